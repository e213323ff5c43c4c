//! Steps over lines: forwards as gdb makes them on the program itself, backwards the same ones in reverse order.

mod common;

use clew_debugger::{Debugger, Direction, Spot, Step, Stop, StopReason, Wanted};
use common::Guest;

fn main() {
    common::tests(vec![
        common::test("over", || over(&["-O0"])),
        common::test("into", || into(&["-O0"])),
        common::test("over/-O2", || there_and_back(&["-O2"])),
        common::test("out", out),
        common::test("breakpoints", breakpoints),
        common::test("conditions", || conditions(&["-O0"])),
        common::test("conditions/-O2", || conditions(&["-O2"])),
        common::test("exceptions", exceptions),
        common::test("one-search", one_search),
        common::test("speed", speed).with_ignored_flag(true),
    ])
}

/// Stops of gdb after each of so many commands, from main on: function and line.
const WALK: &str = r#"
gdb.execute('break main')
gdb.execute('run >/dev/null')
try:
    while True:
        frame = gdb.newest_frame()
        print('@', frame.name(), frame.find_sal().line)
        if frame.find_sal().line == LAST:
            break
        gdb.execute('COMMAND')
except gdb.error:
    pass
"#;

fn shown(stop: &Stop) -> String {
    let location = &stop.here.location;
    let name = location.function.clone().unwrap_or_default();
    format!("{name} {}", location.line.unwrap_or(0))
}

fn at_main(guest: &Guest) -> (Debugger, Stop) {
    let mut debugger = guest.open();
    let main = Spot::Function("main".into());
    let stop = debugger.run_to(Direction::Forward, &main).unwrap();
    (debugger, stop)
}

/// All stops from the beginning of main up to a line.
fn walk(debugger: &mut Debugger, first: Stop, step: Step, last: &str) -> Vec<Stop> {
    let mut all = vec![first];
    while shown(all.last().unwrap()) != last {
        let stop = debugger.step(step, Direction::Forward, 0).unwrap();
        assert_eq!(stop.reason, StopReason::Step, "behind {:?}", all.last());
        all.push(stop);
        assert!(
            all.len() < 2_000,
            "{:?}",
            all.iter().map(shown).collect::<Vec<_>>()
        );
    }
    all
}

fn over(flags: &[&str]) {
    let guest = Guest::new("lines.c", flags);
    let last = guest.line("return 0;");
    // gdb doesn't find its way out of a long jump.
    let jump = guest.line("jumps(5);");
    let script = WALK.replace("LAST", &jump.to_string());
    let mut expected = guest.gdb(&script.replace("COMMAND", "next"));
    expected.push(format!("main {}", guest.line("if (setjmp")));
    expected.push(format!("main {}", guest.line("sum += 2;")));
    let script = WALK.replace(
        "main",
        &format!("lines.c:{}", guest.line("for (int i = 0; i < 3")),
    );
    let script = script.replace("LAST", &last.to_string());
    expected.extend(guest.gdb(&script.replace("COMMAND", "next")));
    let (mut debugger, first) = at_main(&guest);
    let last = format!("main {last}");
    let forward = walk(&mut debugger, first, Step::Over, &last);
    let ours: Vec<String> = forward.iter().map(shown).collect();
    assert_eq!(ours, expected);
    assert!(ours.len() > 20, "{ours:?}");
    back(&mut debugger, &forward);
}

/// The same stops in reverse order, at the very same positions.
fn back(debugger: &mut Debugger, forward: &[Stop]) {
    for expected in forward.iter().rev().skip(1) {
        let stop = debugger.step(Step::Over, Direction::Backward, 0).unwrap();
        assert_eq!(stop.reason, StopReason::Step);
        let (ours, theirs) = (shown(&stop), shown(expected));
        assert_eq!(ours, theirs);
        assert_eq!(stop.here.position, expected.here.position, "{ours}");
    }
}

/// Optimised code: gdb isn't asked, since it may stop in the midst of lines, but back is the way there.
fn there_and_back(flags: &[&str]) {
    let guest = Guest::new("lines.c", flags);
    let (mut debugger, first) = at_main(&guest);
    let mut all = vec![first];
    loop {
        let stop = debugger.step(Step::Over, Direction::Forward, 0).unwrap();
        if stop.here.location.function.as_deref() != Some("main") {
            break;
        }
        assert_eq!(stop.reason, StopReason::Step);
        all.push(stop);
        assert!(all.len() < 2_000);
    }
    assert!(
        all.len() > 10,
        "{:?}",
        all.iter().map(shown).collect::<Vec<_>>()
    );
    // Each line that was stopped at is found again, if it was the beginning of a line.
    let (last, _) = (all.pop().unwrap(), debugger.seek("end").unwrap());
    debugger.seek(&last.here.position).unwrap();
    let mut seen = 0;
    for expected in all.iter().rev() {
        let stop = debugger.step(Step::Over, Direction::Backward, 0).unwrap();
        if stop.reason != StopReason::Step {
            break;
        }
        seen += usize::from(stop.here.position == expected.here.position);
        if stop.here.position != expected.here.position {
            debugger.seek(&expected.here.position).unwrap();
        }
    }
    assert!(seen * 10 >= all.len() * 8, "{seen} of {}", all.len());
}

fn into(flags: &[&str]) {
    let guest = Guest::new("lines.c", flags);
    let last = guest.line("sum += outer(4);");
    // A loop that steps into each of two thousand calls is no test of anything else.
    let (mut debugger, _) = at_main(&guest);
    let from = Spot::Line {
        file: "lines.c".into(),
        line: last,
    };
    let begin = debugger.run_to(Direction::Forward, &from).unwrap();
    let end = guest.line("qsort(values");
    let script = WALK
        .replace("break main", &format!("break lines.c:{last}"))
        .replace("LAST", &end.to_string())
        .replace("COMMAND", "step");
    let gdb = guest.gdb(&script);
    let forward = walk(&mut debugger, begin, Step::Into, &format!("main {end}"));
    let ours: Vec<String> = forward.iter().map(shown).collect();
    assert_eq!(ours, gdb);
    assert!(ours.len() > 100, "{}", ours.len());
    // Backwards every line is come to again, but for stops in the midst of one, behind a call.
    let mut back = vec![shown(forward.last().unwrap())];
    while back.last().unwrap() != &format!("main {last}") {
        let stop = debugger.step(Step::Into, Direction::Backward, 0).unwrap();
        assert_eq!(stop.reason, StopReason::Step, "behind {:?}", back.last());
        back.push(shown(&stop));
        assert!(back.len() < 2_000, "{back:?}");
    }
    back.reverse();
    let mut backs = back.iter().peekable();
    let mut skipped = 0;
    for line in &ours {
        match backs.peek() {
            Some(next) if *next == line => drop(backs.next()),
            _ => skipped += 1,
        }
    }
    assert_eq!(backs.next(), None, "\n{back:?}\n{ours:?}");
    assert!(skipped < ours.len() / 2, "{skipped} of {}", ours.len());
}

fn out() {
    let guest = Guest::new("lines.c", &["-O0"]);
    let (mut debugger, _) = at_main(&guest);
    let leaf = Spot::Function("leaf".into());
    // The fifth call of it.
    debugger
        .add_breakpoint(Wanted {
            condition: Some("n == 4".into()),
            ..Wanted::at(leaf)
        })
        .unwrap();
    let stop = debugger.go(Direction::Forward).unwrap();
    assert_eq!(stop.reason, StopReason::Breakpoints(vec![1]));
    let inside = stop.here.position.clone();
    let stop = debugger.step(Step::Out, Direction::Forward, 0).unwrap();
    let line = guest.line("sum += leaf(i);");
    assert_eq!(shown(&stop), format!("main {line}"));
    assert_eq!(stop.returned.unwrap().text, "9");
    debugger.seek(&inside).unwrap();
    let stop = debugger.step(Step::Out, Direction::Backward, 0).unwrap();
    assert_eq!(shown(&stop), format!("main {line}"));
    let i = debugger.evaluate(debugger.thread(), 0, "i").unwrap();
    assert_eq!(i.text, "4");
    debugger.enable_breakpoint(1, false).unwrap();
    // Recursion: out of the third call of fib is the second one.
    let fib = Spot::Function("fib".into());
    debugger
        .add_breakpoint(Wanted {
            condition: Some("n == 4".into()),
            ..Wanted::at(fib)
        })
        .unwrap();
    debugger.go(Direction::Forward).unwrap();
    // The breakpoint would be come to again on the way.
    debugger.enable_breakpoint(2, false).unwrap();
    let stop = debugger.step(Step::Out, Direction::Forward, 0).unwrap();
    assert_eq!(stop.returned.unwrap().text, "3");
    let n = debugger.evaluate(debugger.thread(), 0, "n").unwrap();
    assert_eq!(n.text, "5");
    // Two frames at once.
    let stop = debugger.step(Step::Out, Direction::Forward, 1).unwrap();
    assert_eq!(
        shown(&stop),
        format!("main {}", guest.line("sum += fib(6);"))
    );
    assert_eq!(stop.returned.unwrap().text, "8");
}

fn breakpoints() {
    let guest = Guest::new("lines.c", &["-O0"]);
    let mut debugger = guest.open();
    let line = guest.line("sum ^= sink;");
    let spot: Spot = format!("lines.c:{line}").parse().unwrap();
    let known = debugger.add_breakpoint(Wanted::at(spot)).unwrap();
    assert_eq!(known.locations.len(), 1, "{:?}", known.locations);
    let mut forward = Vec::new();
    loop {
        let stop = debugger.go(Direction::Forward).unwrap();
        if stop.reason == StopReason::End {
            break;
        }
        assert_eq!(stop.reason, StopReason::Breakpoints(vec![known.id]));
        forward.push(stop.here.position);
    }
    assert_eq!(forward.len(), 3);
    assert_eq!(debugger.breakpoints()[0].hits, 3);
    let mut backward = Vec::new();
    while let StopReason::Breakpoints(_) = {
        let stop = debugger.go(Direction::Backward).unwrap();
        backward.push(stop.here.position);
        stop.reason
    } {}
    backward.pop();
    backward.reverse();
    assert_eq!(backward, forward);
    debugger.remove_breakpoint(known.id).unwrap();
    // The third time.
    let spot = Spot::Function("leaf".into());
    let wanted = Wanted {
        ignore: 2,
        ..Wanted::at(spot)
    };
    debugger.add_breakpoint(wanted).unwrap();
    debugger.go(Direction::Forward).unwrap();
    let n = debugger.evaluate(debugger.thread(), 0, "n").unwrap();
    assert_eq!(n.text, "2");
    // What isn't there is said, with what may have been meant.
    let wrong = debugger.add_breakpoint(Wanted::at(Spot::Function("laef".into())));
    assert!(wrong.unwrap_err().to_string().contains("did you mean leaf"));
    let wrong = debugger.add_breakpoint(Wanted::at("nowhere.c:3".parse().unwrap()));
    assert!(wrong.unwrap_err().to_string().contains("nowhere.c:3"));
    let wrong = Wanted {
        condition: Some("n ==".into()),
        ..Wanted::at(Spot::Function("leaf".into()))
    };
    assert!(debugger.add_breakpoint(wrong).is_err());
}

/// What replaying processes can ask by themselves, and what they can't.
const QUICK: &[&str] = &[
    "n == 4",
    "n > 3 && n < 9",
    "n < -3 || n == 17",
    "!(n & 3)",
    "~n == 5",
    "-n > 12",
    "n * 3 - 2 > 10",
    "(n ^ 5) == 2",
    "n < u",
    "n > c",
    "c == 'A' || c > 200",
    "c + n > 180",
    "u > 0x80000000",
    "u + 0x80000000 < u",
    "u - n > 4000000000",
    "shape.tiny < 0",
    "shape.tiny < -100 || shape.byte > 250",
    "shape.byte > shape.tiny",
    "shape.number < 0",
    "shape.number == other->number",
    "shape.mask > shape.number",
    "shape.wide < 0",
    "shape.wide > shape.huge",
    "shape.huge > 0x8000000000000000",
    "shape.wide < n",
    "shape.set",
    "!shape.set && n > 0",
    "shape.colour == 200",
    "shape.inner.low < 0 && shape.inner.high > 100",
    "shape.list[2] == 7 || shape.list[0] > 12",
    "shape.list[n & 3] > 7",
    "*(shape.list + 1) == 3",
    "shape.next",
    "shape.next == 0",
    "other == &shape",
    "other != &shape && other",
    "other && other->tiny > 0",
    "other && other->next && other->next->byte > 100",
    "counter == 13",
    "counter - n == 21",
    "true",
    "false",
];
const OUTSIDE: &[&str] = &[
    "n % 3 == 0",
    "n / 4 == 2",
    "(n << 1) == 8",
    "shape.real > 1.5",
    "shape.three == 5",
    "mine == 8",
    "(unsigned char)n == 250",
    "sizeof(shape) > 4 && n == 1",
    "counter == 3 ? n < 0 : n == 2",
];

/// A condition stops where, asked at each hit of a breakpoint without one, it is true.
fn conditions(flags: &[&str]) {
    let guest = Guest::new("conditions.cpp", flags);
    let mut debugger = guest.open();
    let spot = Spot::Line {
        file: "conditions.cpp".into(),
        line: guest.line("// HERE"),
    };
    let all = QUICK.iter().chain(OUTSIDE);
    let mut expected: Vec<Vec<String>> = all.clone().map(|_| Vec::new()).collect();
    let plain = debugger.add_breakpoint(Wanted::at(spot.clone())).unwrap();
    let start = debugger.here().unwrap().position;
    let mut stops = 0;
    while let stop = debugger.go(Direction::Forward).unwrap()
        && stop.reason != StopReason::End
    {
        stops += 1;
        for (condition, expected) in all.clone().zip(&mut expected) {
            let text = format!("({condition}) ? 1 : 0");
            let value = debugger.evaluate(debugger.thread(), 0, &text);
            // Where nobody can say, a breakpoint stops.
            if value.is_err() || value.is_ok_and(|value| value.text == "1") {
                expected.push(stop.here.position.clone());
            }
        }
    }
    assert_eq!(stops, 40);
    debugger.remove_breakpoint(plain.id).unwrap();
    let mut quick = 0;
    for (condition, expected) in all.zip(expected) {
        debugger.seek(&start).unwrap();
        let wanted = Wanted {
            condition: Some(condition.to_string()),
            ..Wanted::at(spot.clone())
        };
        let known = debugger.add_breakpoint(wanted).unwrap();
        assert!(!known.quick || QUICK.contains(condition), "{condition}");
        quick += usize::from(known.quick);
        let mut found = Vec::new();
        while let stop = debugger.go(Direction::Forward).unwrap()
            && stop.reason != StopReason::End
        {
            found.push(stop.here.position);
        }
        assert_eq!(found, expected, "{condition}");
        debugger.remove_breakpoint(known.id).unwrap();
    }
    // What the optimiser has moved may be in no simple place.
    let least = match flags {
        ["-O0"] => QUICK.len(),
        _ => QUICK.len() * 3 / 4,
    };
    assert!(quick >= least, "{quick} of {}", QUICK.len());
}

/// A step ends where an exception leads to, in this frame or around it.
fn exceptions() {
    let guest = Guest::new("throws.cpp", &["-O0"]);
    let mut debugger = guest.open();
    let line = |text: &str| guest.line(text);
    let at = |text: &str| Spot::Line {
        file: "throws.cpp".into(),
        line: guest.line(text),
    };
    // Caught in this frame.
    debugger.run_to(Direction::Forward, &at("CALLS")).unwrap();
    let stop = debugger.step(Step::Over, Direction::Forward, 0).unwrap();
    assert_eq!(stop.here.location.line, Some(line("CATCHES")));
    // Caught two frames further out.
    debugger.run_to(Direction::Forward, &at("PASSES")).unwrap();
    let stop = debugger.step(Step::Over, Direction::Forward, 0).unwrap();
    assert_eq!(stop.here.location.function.as_deref(), Some("main"));
    assert_eq!(stop.here.location.line, Some(line("OUTER CATCH")));
}

/// However often a loop on one line runs, it is one search: it must not take as many stops as calls.
fn one_search() {
    let guest = Guest::new("lines.c", &["-O0"]);
    let (mut debugger, _) = at_main(&guest);
    let line = guest.line("sum += leaf(i);");
    let spot = Spot::Line {
        file: "lines.c".into(),
        line,
    };
    debugger.run_to(Direction::Forward, &spot).unwrap();
    let before = debugger.searches();
    let stop = debugger.step(Step::Over, Direction::Forward, 0).unwrap();
    assert_eq!(stop.here.location.line, Some(line + 1));
    assert_eq!(debugger.searches() - before, 1);
    let stop = debugger.step(Step::Over, Direction::Backward, 0).unwrap();
    assert_eq!(stop.here.location.line, Some(line));
    let i = debugger.step(Step::Over, Direction::Backward, 0).unwrap();
    assert_eq!(i.here.location.line, Some(line - 1));
    // Back it takes three: the line before, the last one before that, and on to its beginning.
    assert_eq!(debugger.searches() - before, 7);
}

/// A measurement: a step over a loop on one line that makes twenty million calls.
fn speed() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=20000000"]);
    let (mut debugger, _) = at_main(&guest);
    let spot = Spot::Line {
        file: "lines.c".into(),
        line: guest.line("sum += leaf(i);"),
    };
    debugger.run_to(Direction::Forward, &spot).unwrap();
    for direction in [
        Direction::Forward,
        Direction::Backward,
        Direction::Forward,
        Direction::Backward,
    ] {
        let began = std::time::Instant::now();
        debugger.step(Step::Over, direction, 0).unwrap();
        println!("{direction:?}: {:?}", began.elapsed());
    }
    let wanted = Wanted {
        condition: Some("n == -5".into()),
        ..Wanted::at(Spot::Function("leaf".into()))
    };
    assert!(debugger.add_breakpoint(wanted).unwrap().quick);
    let began = std::time::Instant::now();
    debugger.go(Direction::Forward).unwrap();
    println!("a condition that is never true: {:?}", began.elapsed());
}

//! Breakpoints of every kind, with conditions, counts and commands, in both directions.

use libtest_mimic::{Failed, Trial};

use super::place::{
    self, BACK, FORTH, Place, all_stops, has, is_end, lines_after, require, same, there_and_back,
};

pub fn trials() -> Vec<Trial> {
    place::trials(
        "stops",
        &[
            ("break", breaks),
            ("several breaks", several),
            ("optimised", optimised),
            ("condition", condition),
            ("condition with a call", condition_with_a_call),
            ("a condition that is never true", never_true),
            ("ignore", ignore),
            ("tbreak", tbreak),
            ("hbreak", hbreak),
            ("commands", commands),
            ("disable and delete", disable_and_delete),
            ("until and advance", until_and_advance),
            ("break in a library", in_a_library),
            ("break in a library that comes later", in_a_later_library),
            ("start and end", start_and_end),
            ("starts at the crash", at_the_crash),
            ("starts where told", where_told),
            ("run and start", run_again),
        ],
    )
}

/// The same hits with the same arguments, in the other order.
fn breaks(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert add")?;
    let seen = there_and_back(&mut mi, |mi, stop| {
        let values = (mi.number("a")?, mi.number("b")?, mi.number("calls")?);
        Ok((values, stop.function(), stop.line(), stop.pc()))
    })?;
    let values: Vec<_> = seen.iter().map(|(values, ..)| *values).collect();
    let expected = vec![(0, 0, 0), (0, 1, 1), (1, 4, 2), (5, 9, 3), (14, 16, 4)];
    same("arguments", values, expected)?;
    let all_there = seen
        .iter()
        .all(|hit| hit.1 == "add" && hit.2 == place.line("add"));
    require(all_there, || mi.failure("elsewhere"))
}

fn several(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    for at in ["add", "factorial", "compare", "jump"] {
        mi.command(&format!("-break-insert {at}"))?;
    }
    let body = format!("-break-insert steps.c:{}", place.line("body"));
    mi.command(&body)?;
    let seen = there_and_back(&mut mi, |mi, stop| {
        Ok((stop.function(), stop.pc(), mi.print("$rsp")?))
    })?;
    let count = |name: &str| {
        seen.iter()
            .filter(|(function, ..)| function == name)
            .count()
    };
    same("counts", [count("add"), count("loop")], [5, 5])?;
    same("recursion", [count("factorial"), count("jump")], [5, 4])?;
    require(count("compare") > 4, || format!("{seen:?}"))
}

/// Breakpoints in optimised code, with everything inlined.
fn optimised(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "inlined.c")?;
    let mut mi = place.mi()?;
    mi.command(&format!(
        "-break-insert inlined.c:{}",
        place.line("innermost")
    ))?;
    let seen = there_and_back(&mut mi, |mi, stop| {
        let stack = mi.console("backtrace")?;
        let outside = stack.contains("outer") && stack.contains("main");
        require(outside, || mi.failure("no outer frames")).map_err(|_| stack)?;
        Ok((stop.function(), stop.pc(), mi.print("$rsp")?))
    })?;
    // 1 + 2 + ... + 12, at each of the places that the line was compiled to.
    require(seen.len() % 78 == 0 && !seen.is_empty(), || {
        format!("{} hits", seen.len())
    })
}

fn condition(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -c \"b == 9\" add")?;
    let seen = there_and_back(&mut mi, |mi, _| mi.number("a"))?;
    same("hits", seen, vec![5])?;
    mi.command("-break-condition 1 calls > 2 && numbers[2] == 4")?;
    let seen = there_and_back(&mut mi, |mi, _| mi.number("b"))?;
    same("hits", seen, vec![9, 16])?;
    // With the condition gone it is a plain one again.
    mi.command("-break-condition 1")?;
    let seen = there_and_back(&mut mi, |mi, _| mi.number("b"))?;
    same("hits", seen, vec![0, 1, 4, 9, 16])
}

/// gdb can't compile this for the engine: it stops, makes an excursion, and goes on.
fn condition_with_a_call(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -c \"factorial(3) == 6 && a > 0\" add")?;
    // Backwards gdb calls no functions.
    let seen = all_stops(&mut mi, FORTH, |mi, _| mi.number("a"))?;
    same("hits", seen, vec![1, 5, 14])
}

fn never_true(test: &str) -> Result<(), Failed> {
    let place = Place::guest_with(test, "cond.c", None, &["1000000"])?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -c \"n == -1\" called")?;
    let seen = there_and_back(&mut mi, |mi, _| mi.number("n"))?;
    same("hits", seen, vec![])?;
    mi.command("-break-condition 1 n == 777777 || total == 17")?;
    let seen = there_and_back(&mut mi, |mi, _| mi.number("n"))?;
    // 0+1+2+3+0+1+2+3+0+1+2 = 15, then 3 makes 18: never 17; and 777777.
    same("hits", seen, vec![777_777])
}

fn ignore(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert add")?;
    mi.command("-break-after 1 3")?;
    let stop = mi.go(FORTH)?;
    same("hit", (mi.number("b")?, stop.function()), (9, "add".into()))?;
    mi.command("-break-delete 1")?;
    mi.command("-break-insert steps.c:1")?;
    mi.command("-break-delete")?;
    mi.command("-break-insert -i 2 add")?;
    mi.go(BACK)?;
    same("hit", mi.number("b")?, 0)
}

fn tbreak(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -t add")?;
    let seen = all_stops(&mut mi, FORTH, |mi, _| mi.number("b"))?;
    same("forwards", seen, vec![0])?;
    mi.command("-break-insert -t add")?;
    let seen = all_stops(&mut mi, BACK, |mi, _| mi.number("b"))?;
    same("backwards", seen, vec![16])?;
    let left = mi.console("info breakpoints")?;
    has(&left, &["No breakpoints"])
}

/// As many as one likes.
fn hbreak(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    for at in ["add", "factorial", "compare", "jump", "loop", "main"] {
        mi.command(&format!("-break-insert -h {at}"))?;
    }
    let seen = there_and_back(&mut mi, |_, stop| Ok((stop.function(), stop.pc())))?;
    require(seen.len() > 20 && seen[0].0 == "main", || {
        format!("{seen:?}")
    })
}

fn commands(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let text = place.batch(
        "break add\ncommands\nsilent\nprintf \"seen %d %d\\n\", a, b\ncontinue\nend\n\
         continue\nprintf \"turn\\n\"\n\
         commands 1\nsilent\nprintf \"seen %d %d\\n\", a, b\nreverse-continue\nend\nreverse-continue\n",
    )?;
    let seen = lines_after(&text, "seen ");
    let forth = ["0 0", "0 1", "1 4", "5 9", "14 16"];
    let mut back = forth;
    back.reverse();
    same("hits", seen, [forth, back].concat()).map_err(|_| text.into())
}

fn disable_and_delete(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert add")?;
    mi.command("-break-insert factorial")?;
    mi.command("-break-disable 1")?;
    let seen = there_and_back(&mut mi, |_, stop| Ok(stop.function()))?;
    require(seen.iter().all(|f| f == "factorial"), || {
        format!("{seen:?}")
    })?;
    mi.command("-break-enable 1")?;
    mi.command("-break-delete 2")?;
    let seen = there_and_back(&mut mi, |_, stop| Ok(stop.function()))?;
    require(seen.len() == 5 && seen.iter().all(|f| f == "add"), || {
        format!("{seen:?}")
    })
}

fn until_and_advance(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -t loop")?;
    mi.go(FORTH)?;
    let stop = mi.go(&format!("advance {}", place.line("loop-end")))?;
    same(
        "advance",
        (stop.function(), stop.line()),
        ("loop".into(), place.line("loop-end")),
    )?;
    same("total", mi.number("total")?, 30)?;
    let stop = mi.go(&format!("until {}", place.line("last")))?;
    // `until` stops when the frame is left too.
    same("until", stop.function(), "main".into())?;
    let stop = mi.go("advance factorial")?;
    same(
        "advance",
        (stop.function(), mi.number("n")?),
        ("factorial".into(), 5),
    )
}

/// A function of the C library, whose symbols come from its debug file or its own table.
fn in_a_library(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -t main")?;
    mi.go(FORTH)?;
    mi.command("-break-insert write")?;
    let seen = there_and_back(&mut mi, |mi, stop| {
        Ok((stop.function(), mi.number("$rdx")?))
    })?;
    require(seen.len() == 2 && seen[0].1 == 8, || format!("{seen:?}"))
}

/// A breakpoint that is pending until the program has loaded the library.
fn in_a_later_library(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "images/dlopen.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -t main")?;
    mi.go(FORTH)?;
    let function = "shared_add".to_owned();
    mi.command(&format!("-break-insert -f {function}"))?;
    let stop = mi.go(FORTH)?;
    require(stop.function() == function, || {
        mi.failure(&format!("no stop in {function}"))
    })?;
    let libraries = mi.console("info sharedlibrary")?;
    has(&libraries, &["libshared.so"])?;
    // Before it was loaded there is nothing there; gdb must notice.
    mi.go("-exec-finish")?;
    let stop = mi.go(BACK)?;
    same("backwards", stop.function(), function)
}

fn start_and_end(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    let first = mi.print("$pc")?;
    let stop = mi.go(BACK)?;
    require(is_end(&stop), || mi.failure("before the beginning"))?;
    same("the beginning", mi.print("$pc")?, first.clone())?;
    let stop = mi.go(FORTH)?;
    require(is_end(&stop), || mi.failure("no end"))?;
    let last = mi.print("$pc")?;
    let stop = mi.go(FORTH)?;
    require(is_end(&stop), || mi.failure("behind the end"))?;
    same("the end", mi.print("$pc")?, last)?;
    mi.go(BACK)?;
    same("the beginning", mi.print("$pc")?, first)
}

/// A run that crashed is looked at where it crashed, at the very instruction.
fn at_the_crash(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "overwrite.c")?;
    let line = place.line("crash").to_string();
    let text = place.batch_with(
        &[],
        "info line\nbacktrace\nprint of->name\nprint of->parent\nx/i $pc\ncontinue\nprint of->uses\n",
    )?;
    has(
        &text,
        &[
            "use (of=",
            &format!("overwrite.c:{line}"),
            "main",
            "a name of some l",
            "0x",
        ],
    )?;
    // It goes no further than that.
    has(&text, &["$3 = 1"])?;
    let mut mi = place.mi_with(&[])?;
    let frame = mi.command("-stack-info-frame")?;
    let frame = frame.results.get("frame").cloned();
    let frame = frame.ok_or("no frame")?;
    same("line", frame.text("line"), Some(line))?;
    // And backwards from there.
    mi.command("-break-insert rename_session")?;
    let stop = mi.go(BACK)?;
    same("who did it", stop.function(), "rename_session".into())?;
    same("how long", mi.number("size")?, 22)
}

fn where_told(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "overwrite.c")?;
    let at_end = place.batch_with(&["--at", "end"], "backtrace 1\n")?;
    has(&at_end, &["use (of="])?;
    let at_start = place.batch_with(&["--at", "start"], "backtrace 1\ninfo sharedlibrary\n")?;
    require(!at_start.contains("use (of="), || at_start.clone())?;
    let at_event = place.batch_with(&["--at", "20"], "clew when\n")?;
    has(&at_event, &["20"])?;
    // A run that ended well starts at its beginning.
    let place = Place::guest(&format!("{test}.well"), "steps.c")?;
    let plain = place.batch_with(&[], "tbreak main\ncontinue\nbacktrace 1\n")?;
    has(&plain, &["main ()"])
}

fn run_again(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let first = place.line("first").to_string();
    let text = place.batch_with(
        &["--at", "end"],
        "tbreak main\nrun\nprintf \"calls %d\\n\", calls\nbreak factorial\ncontinue\nstart\n\
         printf \"calls %d\\n\", calls\ninfo line\n",
    )?;
    has(&text, &["calls 0", "factorial (n=5)", &first, "calls 0"])?;
    let mut mi = place.mi_with(&["--at", "end"])?;
    mi.command("-break-insert -t main")?;
    mi.start_going("-exec-run")?;
    let stop = mi.stop()?;
    same("run", stop.function(), "main".into())
}

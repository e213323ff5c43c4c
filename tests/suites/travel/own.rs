//! gdb's commands that are clew's own: when, seek, events, bookmarks, threads, last, watch-transition; what the debugger
//! answers, and its steps from line to line beside gdb's.

use clew_recording::position::Position;
use clew_tests::mi::Mi;
use libtest_mimic::{Failed, Trial};

use super::place::{self, BACK, FORTH, Place, has, require, same};

pub fn trials() -> Vec<Trial> {
    place::trials(
        "own",
        &[
            ("when and seek", when_and_seek),
            ("seek to what isn't there", seek_elsewhere),
            ("events", events),
            ("bookmarks", bookmarks),
            ("threads", threads),
            ("last", last),
            ("last of a local", last_of_a_local),
            ("watch-transition", watch_transition),
            ("help and completion", help),
            ("traced commands", traced),
            ("checkpoints are bookmarks", checkpoints),
            ("record is refused", record),
            ("errors are gdb's", errors),
            ("calls, writes, output, origin", questions),
            ("lines as gdb steps them", lines),
            ("a long line", long_line),
            ("lines and breakpoints", stopped_lines),
        ],
    )
}

/// The position that `clew when` tells.
pub fn when(mi: &mut Mi) -> Result<Position, Failed> {
    let text = mi.console("clew when")?;
    let words = text.split(|c: char| c.is_whitespace() || ",():;".contains(c));
    let position = words
        .filter(|word| !word.is_empty())
        .find_map(|word| word.parse().ok());
    position.ok_or_else(|| mi.failure(&format!("no position in {text:?}")).into())
}

fn when_and_seek(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    let start = when(&mut mi)?;
    mi.command("-break-insert add")?;
    let mut seen = vec![(start, mi.print("$pc")?, mi.print("$sp")?)];
    for _ in 0..5 {
        mi.go(FORTH)?;
        seen.push((when(&mut mi)?, mi.print("$pc")?, mi.print("$sp")?));
    }
    require(seen.is_sorted_by(|one, other| one.0 < other.0), || {
        format!("{seen:?}")
    })?;
    for number in [3, 1, 5, 0, 4, 2, 5, 1] {
        let (position, pc, sp) = &seen[number];
        mi.does(&format!("clew seek {position}"))?;
        same(
            "seek",
            (&when(&mut mi)?, &mi.print("$pc")?, &mi.print("$sp")?),
            (position, pc, sp),
        )?;
    }
    // It goes on from there in both directions.
    mi.does(&format!("clew seek {}", seen[3].0))?;
    mi.go(FORTH)?;
    same("on", when(&mut mi)?, seen[4].0)?;
    mi.go(BACK)?;
    mi.go(BACK)?;
    same("back", when(&mut mi)?, seen[2].0)?;
    // By single instructions positions go on by one, and come back.
    let mut positions = vec![when(&mut mi)?];
    for _ in 0..12 {
        mi.go("-exec-step-instruction")?;
        positions.push(when(&mut mi)?);
    }
    require(positions.is_sorted_by(|a, b| a < b), || {
        format!("{positions:?}")
    })?;
    for target in positions.iter().rev() {
        mi.does(&format!("clew seek {target}"))?;
        same("seek", &when(&mut mi)?, target)?;
    }
    mi.does("clew seek end")?;
    let end = when(&mut mi)?;
    require(end > seen[5].0, || format!("{end}"))?;
    mi.does("clew seek start")?;
    same("start", when(&mut mi)?, start)
}

fn seek_elsewhere(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert add")?;
    mi.go(FORTH)?;
    let here = when(&mut mi)?;
    has(&mi.refused("clew seek sideways")?, &["sideways"])?;
    let said = mi.said("clew seek 99999999")?;
    require(!said.trim().is_empty(), || mi.failure("it says nothing"))?;
    mi.refused("clew seek")?;
    mi.refused("clew nonsense")?;
    // No further than the end.
    let there = when(&mut mi)?;
    mi.does(&format!("clew seek {here}"))?;
    require(there >= here, || format!("{there}"))?;
    mi.go(FORTH)?;
    same("b", mi.number("b")?, 1)
}

fn events(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -t getpid")?;
    mi.go(FORTH)?;
    let text = mi.console("clew events 60")?;
    has(&text, &["getppid"])?;
    has(&text, &["write"])?;
    // Numbers in it are places to go to.
    let line = text
        .lines()
        .find(|line| line.contains("getppid"))
        .unwrap_or_default();
    let number = line
        .split(|c: char| c.is_whitespace() || c == ':')
        .find_map(|word| word.parse::<Position>().ok());
    let number = number.ok_or_else(|| mi.failure("no position"))?;
    mi.does(&format!("clew seek {number}"))?;
    let before = when(&mut mi)?;
    require(before.event >= number.event.saturating_sub(1), || {
        format!("{before}")
    })
}

fn bookmarks(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert add")?;
    mi.go(FORTH)?;
    mi.go(FORTH)?;
    let here = when(&mut mi)?;
    mi.command("clew bookmark second")?;
    mi.go(FORTH)?;
    mi.command("clew bookmark third")?;
    has(&mi.console("clew bookmarks")?, &["second", "third"])?;
    mi.does("clew seek second")?;
    same("second", (when(&mut mi)?, mi.number("b")?), (here, 1))?;
    let said = mi.said("clew bookmark")?;
    has(&said, &["name"])
}

fn threads(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "named.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -t -c \"turn == 14\" count")?;
    mi.go(FORTH)?;
    let threads = mi.console("clew threads")?;
    has(&threads, &["alpha", "beta", "gamma"])?;
    // What they wait in has a name.
    has(&threads, &["waits in futex"])
}

/// To the last change of a value.
fn last(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi_with(&["--at", "end"])?;
    for expected in [4, 3, 2] {
        let told = mi.does("clew last calls")?;
        require(!told.is_empty(), || mi.failure("it says nothing"))?;
        // It stands just before the change.
        same("value", mi.number("calls")?, expected)?;
    }
    has(&mi.console("backtrace")?, &["add", "loop", "main"])?;
    // Breakpoints are left as they were.
    has(&mi.console("info breakpoints")?, &["No breakpoints"])
}

fn last_of_a_local(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command(&format!(
        "-break-insert -t steps.c:{}",
        place.line("loop-end")
    ))?;
    mi.go(FORTH)?;
    mi.does("clew last total")?;
    same("total", mi.number("total")?, 14)?;
    mi.does("clew last numbers[3]")?;
    same("before", mi.number("numbers[3]")?, 0)?;
    // Never changed: it says so.
    mi.does("clew seek end")?;
    let told = mi
        .console("clew last calls")
        .and_then(|_| mi.refused("clew last no_such_variable"))?;
    has(&told, &["no_such_variable"])
}

/// The papers' case, in gdb: it is left just before the flip.
fn watch_transition(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "graph.c")?;
    let mut mi = place.mi_with(&["--at", "end"])?;
    let told = mi.does("clew watch-transition has_cycle() == 1")?;
    let line = place.line("linked");
    has(&told, &["add_edge"])?;
    let frame = mi.command("-stack-info-frame")?.results;
    let frame = frame.get("frame").cloned().ok_or("no frame")?;
    same("line", frame.text("line"), Some(line.to_string()))?;
    has(
        &mi.console("backtrace")?,
        &["add_edge", &format!("graph.c:{}", place.line("closes"))],
    )?;
    same("before", mi.number("has_cycle()")?, 0)?;
    mi.go("-exec-step-instruction")?;
    same("after", mi.number("has_cycle()")?, 1)
}

fn help(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    let all = [
        "when",
        "seek",
        "events",
        "bookmark",
        "bookmarks",
        "threads",
        "last",
        "watch-transition",
        "calls",
        "writes",
        "output",
        "origin",
        "slice",
        "next",
        "reverse-next",
        "step",
        "reverse-step",
        "finish",
        "reverse-finish",
    ];
    let general = mi.console("help clew")?;
    for name in all {
        has(&general, &[name])?;
        let own = mi.console(&format!("help clew {name}"))?;
        let said = own.len() > 20 && !own.contains("not documented");
        require(said, || format!("help clew {name}: {own}"))?;
    }
    let complete = mi.console("complete clew b")?;
    has(&complete, &["clew bookmark", "clew bookmarks"])?;
    mi.command("clew bookmark somewhere")?;
    has(&mi.console("complete clew seek some")?, &["somewhere"])
}

/// `set trace-commands on` puts lines of gdb's among the answers.
fn traced(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let told = place.batch(
        "set trace-commands on\nclew seek end\nclew bookmark here\nclew when\nclew last calls\nprint calls",
    )?;
    has(&told, &["+clew seek end", "exit with status 0", "$1 = 4"])
}

fn checkpoints(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    has(&mi.console("info checkpoints")?, &["No checkpoints"])?;
    mi.command("-break-insert add")?;
    mi.go(FORTH)?;
    let first = when(&mut mi)?;
    has(
        &mi.console("checkpoint")?,
        &["Checkpoint 1", &first.to_string()],
    )?;
    mi.go(FORTH)?;
    let second = when(&mut mi)?;
    mi.command("checkpoint")?;
    mi.does("restart 1")?;
    same("first", when(&mut mi)?, first)?;
    mi.does("restart 2")?;
    same("second", when(&mut mi)?, second)?;
    has(&mi.console("info checkpoints")?, &["1 ", "2 "])?;
    mi.command("delete checkpoint 1")?;
    has(&mi.refused("restart 1")?, &["no checkpoint 1"])?;
    has(&mi.refused("restart")?, &["checkpoint"])
}

fn record(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    for command in ["record", "record full", "record btrace", "info record"] {
        has(&mi.refused(command)?, &["recorded already"])?;
    }
    // Nothing has changed by it.
    mi.command("-break-insert add")?;
    same("there", mi.go(FORTH)?.function(), "add".into())
}

fn errors(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let told = place.batch_with(
        &["--at", "end"],
        "python\nfor line in ('clew last no_such', 'clew last 1 +', 'clew seek nowhere', 'clew events x'):\n  \
         try: gdb.execute(line)\n  except gdb.error as error: print('told: %s' % error)\nend",
    )?;
    has(
        &told,
        &["told: No symbol", "told: ", "told: \"nowhere\"", "told: "],
    )?;
    let place = Place::guest(test, "steps.c")?;
    let told = place.batch("clew last no_such")?;
    has(&told, &["No symbol \"no_such\" in current context."])?;
    require(!told.contains("Python"), || told.clone())
}

/// What is known of the whole run.
fn questions(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command(&format!("-break-insert -t steps.c:{}", place.line("text")))?;
    mi.go(FORTH)?;
    let here = when(&mut mi)?;
    let calls = mi.console("clew calls add")?;
    same("calls", calls.lines().count(), 5)?;
    has(
        &calls,
        &[
            "add(a=0, b=0) = 0",
            "add(a=14, b=16) = 30",
            "loop at steps.c",
        ],
    )?;
    has(
        &mi.console("clew calls factorial")?,
        &["factorial(n=5) = 120", "factorial(n=1) = 1"],
    )?;
    has(&mi.console("clew calls add -n 2")?, &["the first 2"])?;
    let writes = mi.console("clew writes calls")?;
    has(
        &writes,
        &["calls: int", "0 -> 1", "4 -> 5", "add at steps.c"],
    )?;
    has(&mi.console("clew output")?, &["stdout", "30 120 3"])?;
    let origin = mi.console("clew origin total")?;
    has(&origin, &["total = 30", "add "])?;
    // Of the frame that is chosen, and they lead there.
    let third = calls.lines().nth(2).and_then(|line| line.split(' ').next());
    let third = third.unwrap_or_default().to_string();
    mi.does(&format!("clew seek {third}"))?;
    has(&mi.console("backtrace")?, &["add", "loop", "main"])?;
    mi.console("frame 1")?;
    has(
        &mi.console("clew writes total")?,
        &["in a call of loop", "0 -> 1", "14 -> 30"],
    )?;
    mi.does(&format!("clew seek {here}"))?;
    has(&mi.refused("clew calls ad")?, &["did you mean add"])?;
    mi.refused("clew writes no_such")?;
    mi.refused("clew origin no_such")?;
    // Along a slice the program stands at each statement, and comes back.
    mi.refused("clew slice up")?;
    mi.does("clew slice total")?;
    let newest = when(&mut mi)?;
    mi.does("clew slice next")?;
    let older = when(&mut mi)?;
    require(older != newest, || "the next statement is elsewhere".into())?;
    has(&mi.console("backtrace")?, &["main"])?;
    has(&mi.console("clew slice list")?, &["=>   1", "statements"])?;
    mi.does("clew slice prev")?;
    same("the newest statement", when(&mut mi)?, newest)?;
    // What it uses, and what uses that.
    mi.does("clew slice down")?;
    require(when(&mut mi)? < newest, || "what it uses is older".into())?;
    mi.does("clew slice up")?;
    same("what uses it", when(&mut mi)?, newest)?;
    mi.refused("clew slice up")?;
    mi.does("clew slice 1")?;
    same("the second statement", when(&mut mi)?, older)?;
    mi.does("clew slice 0")?;
    mi.refused("clew slice no_such")?;
    mi.refused("clew slice prev")?;
    mi.does(&format!("clew seek {here}"))?;
    // Nothing has moved by being asked.
    same("position", when(&mut mi)?, here)
}

pub fn line_of(mi: &mut Mi) -> Result<(String, String), Failed> {
    let frame = mi.command("-stack-info-frame")?.results;
    let frame = frame.get("frame").cloned().ok_or("no frame")?;
    let text = |name| frame.text(name).unwrap_or_default();
    Ok((text("func"), text("line")))
}

/// gdb's own steps are the judge.
fn lines(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -t loop")?;
    mi.go(FORTH)?;
    let start = when(&mut mi)?;
    for (theirs, ours, count) in [
        ("-exec-next", "clew next", 18),
        ("-exec-step", "clew step", 24),
    ] {
        mi.does(&format!("clew seek {start}"))?;
        let mut expected = vec![line_of(&mut mi)?];
        for _ in 0..count {
            mi.go(theirs)?;
            expected.push(line_of(&mut mi)?);
        }
        mi.does(&format!("clew seek {start}"))?;
        let mut found = vec![line_of(&mut mi)?];
        for _ in 0..count {
            mi.does(ours)?;
            found.push(line_of(&mut mi)?);
        }
        same(ours, &found, &expected)?;
    }
    // Out, and in again.
    mi.does(&format!("clew seek {start}"))?;
    let said = mi.does("clew finish")?;
    has(&said, &["Value returned: 30"])?;
    same("out", line_of(&mut mi)?.0, "main".to_string())?;
    mi.does("clew reverse-next")?;
    same(
        "back",
        line_of(&mut mi)?,
        ("main".into(), place.line("first").to_string()),
    )
}

/// A loop on one line: a step over it is one search, also where it calls, and gdb's own where it doesn't.
fn long_line(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "oneline.c")?;
    let mut mi = place.mi()?;
    let line = |name: &str| ("main".to_string(), place.line(name).to_string());
    mi.command(&format!(
        "-break-insert -t oneline.c:{}",
        place.line("plain")
    ))?;
    mi.go(FORTH)?;
    let first = when(&mut mi)?;
    mi.go("-exec-next")?;
    same("gdb's", line_of(&mut mi)?, line("between"))?;
    let between = when(&mut mi)?;
    mi.does(&format!("clew seek {first}"))?;
    mi.does("clew next 3")?;
    same("ours", line_of(&mut mi)?, line("last"))?;
    same("total", mi.number("total")?, 2 + 199_999 * 200_000)?;
    mi.does("clew reverse-next")?;
    same("back", line_of(&mut mi)?, line("calls"))?;
    mi.does("clew reverse-next")?;
    same(
        "back",
        (line_of(&mut mi)?, when(&mut mi)?),
        (line("between"), between),
    )?;
    mi.does("clew reverse-next")?;
    same(
        "back",
        (line_of(&mut mi)?, when(&mut mi)?),
        (line("plain"), first),
    )
}

/// gdb's breakpoints count on the way, with their conditions.
fn stopped_lines(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -t main")?;
    mi.go(FORTH)?;
    mi.command("-break-insert -c \"a == 5\" add")?;
    mi.does("clew next")?;
    same("where", line_of(&mut mi)?.0, "add".to_string())?;
    same("a", mi.number("a")?, 5)?;
    mi.does("clew finish")?;
    same("where", line_of(&mut mi)?.0, "loop".to_string())
}

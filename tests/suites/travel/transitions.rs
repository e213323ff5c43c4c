//! `clew watch`: the papers' cases, conditions that aren't defined everywhere, and bad ones.

use clew_recording::position::Position;
use clew_tests::run::Outcome;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::place::{self, FORTH, Place, code, has, require, same};

pub fn trials() -> Vec<Trial> {
    place::trials(
        "transitions",
        &[
            ("a graph becomes cyclic", graph),
            ("a list is broken", list),
            ("a pointer is overwritten", overwritten),
            ("a global is freed", freed),
            ("a variable of the program", variable),
            ("undefined in places", pockets),
            ("undefined around the flip", gap),
            ("both ends agree", agree),
            ("between two positions", between),
            ("C++ and Rust", languages),
            ("several processes", processes),
            ("bad expressions", bad),
            ("it is left alone", undisturbed),
        ],
    )
}

fn text(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.stdout).into_owned()
}

/// What `--json` says of a search that found something.
fn found(place: &Place, expression: &str, options: &[&str]) -> Result<Value, Failed> {
    let mut all = vec!["--json"];
    all.extend(options);
    let job = place.watch_job(expression, &all);
    let outcome = job.run();
    let told = serde_json::from_slice(&outcome.stdout);
    match (code(outcome.status), told) {
        (Some(0), Ok(told)) => Ok(told),
        _ => Err(clew_tests::compare::report(
            "nothing found",
            &outcome,
            &[("clew", &job)],
        )),
    }
}

/// The innermost place in the source with that name of a file, and all lines of the stack.
fn lines(told: &Value, file: &str) -> Vec<u64> {
    let mut found = Vec::new();
    let in_file = |value: &Value| {
        let named = ["file", "source", "path"]
            .iter()
            .any(|&key| value[key].as_str().is_some_and(|name| name.ends_with(file)));
        named.then(|| value["line"].as_u64()).flatten()
    };
    fn walk(value: &Value, look: &mut dyn FnMut(&Value)) {
        look(value);
        match value {
            Value::Array(all) => all.iter().for_each(|value| walk(value, look)),
            Value::Object(all) => all.values().for_each(|value| walk(value, look)),
            _ => {}
        }
    }
    walk(told, &mut |value| found.extend(in_file(value)));
    found
}

/// It flips at the line with the first mark, called from the one with the second; and the report for
/// people says the same.
fn flips_at(place: &Place, expression: &str, file: &str, marks: &[&str]) -> Result<Value, Failed> {
    let told = found(place, expression, &[])?;
    let seen = lines(&told, file);
    for mark in marks {
        let line = u64::from(place.line(mark));
        require(seen.contains(&line), || {
            format!("{mark} is line {line}, not in {seen:?}: {told:#}")
        })?;
    }
    let plain = text(&place.watch(expression, &[]));
    for mark in marks {
        has(&plain, &[&format!("{file}:{}", place.line(mark))])?;
    }
    Ok(told)
}

fn graph(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "graph.c")?;
    let told = flips_at(&place, "has_cycle() == 1", "graph.c", &["linked", "closes"])?;
    // The instruction itself: there it is false, behind it true.
    let position = told["position"]
        .as_str()
        .ok_or_else(|| format!("no position: {told:#}"))?;
    let mut mi = place.mi()?;
    mi.does(&format!("clew seek {position}"))?;
    same("before", mi.number("has_cycle()")?, 0)?;
    mi.go("-exec-step-instruction")?;
    same("behind", mi.number("has_cycle()")?, 1)
}

fn list(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "circular.c")?;
    flips_at(
        &place,
        "is_circular() == 0",
        "circular.c",
        &["broken", "call"],
    )
    .map(drop)
}

fn overwritten(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "overwrite.c")?;
    let told = flips_at(
        &place,
        "session.parent == &root",
        "overwrite.c",
        &["overwritten"],
    )?;
    has(&told.to_string(), &["renamer"])
}

fn freed(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "freed.c")?;
    let told = flips_at(
        &place,
        "table == 0 || table->size == 64",
        "freed.c",
        &["freed"],
    )?;
    has(&told.to_string(), &["closer"])
}

/// Without a call: the values involved are told.
fn variable(test: &str) -> Result<(), Failed> {
    let place = Place::guest_with(test, "writes.c", None, &["plain", "300000"])?;
    let told = flips_at(&place, "counter >= 200000", "writes.c", &["plain"])?;
    has(&told.to_string(), &["199999"])?;
    has(
        &text(&place.watch("counter >= 200000", &[])),
        &["counter", "199999"],
    )
}

/// It crashes, waits, and never returns here and there; the flip is elsewhere.
fn pockets(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "undefined.c")?;
    flips_at(&place, "is_wrong()", "undefined.c", &["state", "flips"]).map(drop)
}

/// False, undefined, true: it says where it stops being defined.
fn gap(test: &str) -> Result<(), Failed> {
    let place = Place::guest_with(test, "undefined.c", None, &["gap"])?;
    let outcome = place.watch("is_wrong()", &[]);
    let told = place::code(outcome.status);
    require(told.is_some(), || "it hung, or was killed".into())?;
    let both = text(&outcome) + &String::from_utf8_lossy(&outcome.stderr);
    has(&both, &["undefined"])
}

/// It says so, and what to do; sampling finds what happened in between.
fn agree(test: &str) -> Result<(), Failed> {
    let place = Place::guest_with(test, "writes.c", None, &["plain", "300000"])?;
    let expression = "counter > 1000 && counter < 290000";
    let outcome = place.watch(expression, &[]);
    let both = text(&outcome) + &String::from_utf8_lossy(&outcome.stderr);
    require(code(outcome.status) != Some(0), || {
        format!("a success: {both}")
    })?;
    has(&both, &["--sample"])?;
    let sampled = found(&place, expression, &["--sample", "40"])?;
    let seen = lines(&sampled, "writes.c");
    require(seen.contains(&u64::from(place.line("plain"))), || {
        format!("{sampled:#}")
    })
}

/// From a position, to a position: as gdb tells them.
fn between(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert add")?;
    let mut positions: Vec<Position> = Vec::new();
    for _ in 0..4 {
        mi.go(FORTH)?;
        positions.push(super::own::when(&mut mi)?);
    }
    let (from, to) = (positions[1].to_string(), positions[3].to_string());
    // calls is 1 at the second hit, 3 at the fourth.
    let told = found(&place, "calls == 2", &["--from", &from, "--to", &to]);
    require(told.is_err(), || "both ends are false".into())?;
    let told = found(&place, "calls >= 2", &["--from", &from, "--to", &to])?;
    let position: Position = told["position"].as_str().unwrap_or_default().parse()?;
    require(position > positions[1] && position < positions[2], || {
        format!(
            "{position} isn't between {} and {}",
            positions[1], positions[2]
        )
    })?;
    // The other way round is wrong.
    let outcome = place.watch("calls >= 2", &["--from", &to, "--to", &from]);
    require(!matches!(code(outcome.status), Some(0) | None), || {
        outcome.printed()
    })
}

fn languages(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "classes.cpp")?;
    flips_at(&place, "caught == 2", "classes.cpp", &["catch"]).map(drop)
}

fn processes(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "family.c")?;
    let pids = super::files::pids(&place)?;
    let child = pids[1].to_string();
    let told = found(&place, "value == 30", &["--pid", &child])?;
    let seen = lines(&told, "family.c");
    require(seen.contains(&u64::from(place.line("child"))), || {
        format!("{told:#}")
    })?;
    // In the parent it never is.
    require(found(&place, "value == 30", &[]).is_err(), || {
        "found".into()
    })
}

/// Refused with the reason, and quickly.
fn bad(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "graph.c")?;
    let cases = [
        ("no_such_name == 1", "no_such_name"),
        ("no_such_function()", "no_such_function"),
        ("1 +", ""),
        ("(1", ""),
        ("", ""),
        ("edges = 7", ""),
        ("\"text", ""),
        ("has_cycle(1, 2, 3, 4, 5, 6, 7, 8, 9)", ""),
        ("*edges == 3", ""),
    ];
    for (expression, wanted) in cases {
        let outcome = place.watch(expression, &[]);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        let refused = code(outcome.status).is_some_and(|code| code != 0) && !said.is_empty();
        require(refused && !said.contains("panicked"), || {
            format!(
                "{expression:?}: {}\n{}",
                outcome.ending(),
                outcome.printed()
            )
        })?;
        has(&said, &[wanted])?;
    }
    Ok(())
}

/// The recording is what it was, and replays.
fn undisturbed(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "undefined.c")?;
    let before = clew_tests::compare::files(&place.made.folder, &[]);
    drop(place.watch("is_wrong()", &[]));
    let _ = place.batch(
        "break set_state\ncontinue\nprint is_wrong()\nprint state = 5\nreverse-continue\n",
    )?;
    let after = clew_tests::compare::files(&place.made.folder, &[]);
    let differing = clew_tests::compare::differing_file(("before", &before), ("after", &after));
    require(differing.is_none(), || differing.unwrap_or_default())?;
    let outcome = place.made.command("replay", &["--verify"]).run();
    require(code(outcome.status) == Some(0), || outcome.printed())?;
    has(&String::from_utf8_lossy(&outcome.stderr), &["verified"])
}

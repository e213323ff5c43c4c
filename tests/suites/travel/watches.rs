//! Watchpoints: on globals, locals, memory of any size, for changes, reads and accesses, both ways.

use clew_tests::mi::{Mi, Stop};
use libtest_mimic::{Failed, Trial};

use super::place::{self, BACK, FORTH, Place, all_stops, has, require, same};

pub fn trials() -> Vec<Trial> {
    place::trials(
        "watches",
        &[
            ("watch", watch),
            ("watch with a condition", conditional),
            ("watch a local", local),
            ("watch much memory", much),
            ("many watches", many),
            ("rwatch and awatch", reads),
            ("written by the kernel", by_the_kernel),
            ("written by another thread", by_a_thread),
            ("the last of many writes, with calls", last_with_calls),
            ("the last of many writes, without", last_without),
        ],
    )
}

/// What a watchpoint says: the values before and after in time.
fn change(stop: &Stop, forwards: bool) -> (String, String) {
    let value = stop.0.get("value");
    let part = |name: &str| value.and_then(|v| v.text(name)).unwrap_or_default();
    match forwards {
        true => (part("old"), part("new")),
        false => (part("new"), part("old")),
    }
}

/// All changes forwards, then backwards.
fn changes(mi: &mut Mi) -> Result<Vec<(String, String)>, Failed> {
    let forth = all_stops(mi, FORTH, |_, stop| Ok(change(stop, true)))?;
    let mut back = all_stops(mi, BACK, |_, stop| Ok(change(stop, false)))?;
    back.reverse();
    match forth == back {
        true => Ok(forth),
        false => Err(mi
            .failure(&format!("forwards {forth:?}\nbackwards {back:?}"))
            .into()),
    }
}

fn counting(range: std::ops::Range<i64>) -> Vec<(String, String)> {
    range
        .map(|n| (n.to_string(), (n + 1).to_string()))
        .collect()
}

fn watch(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-watch calls")?;
    let seen = changes(&mut mi)?;
    same("changes", seen, counting(0..5))?;
    // Backwards it stands before the write: a step does it.
    mi.go(FORTH)?;
    mi.go(FORTH)?;
    let stop = mi.go(BACK)?;
    same(
        "before the write",
        (mi.number("calls")?, stop.function()),
        (1, "add".into()),
    )?;
    mi.command("-break-delete")?;
    mi.go("-exec-step-instruction")?;
    same("behind the write", mi.number("calls")?, 2)
}

fn conditional(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    let set = mi.console("watch calls if calls % 2 == 0")?;
    has(&set, &["atchpoint"])?;
    let forth = all_stops(&mut mi, FORTH, |mi, _| mi.number("calls"))?;
    same("forwards", forth, vec![2, 4])?;
    let back = all_stops(&mut mi, BACK, |mi, _| mi.number("calls"))?;
    same("backwards", back, vec![4, 2, 0])
}

/// A variable of a frame: while the frame is there.
fn local(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -t loop")?;
    mi.go(FORTH)?;
    let line = place.line("body");
    mi.command(&format!("-break-insert -t steps.c:{line}"))?;
    mi.go(FORTH)?;
    mi.command("-break-watch total")?;
    let mut forth = Vec::new();
    loop {
        let stop = mi.go(FORTH)?;
        match stop.reason().as_str() {
            "watchpoint-trigger" => forth.push(change(&stop, true)),
            "watchpoint-scope" => break,
            other => return Err(mi.failure(&format!("stopped: {other:?}")).into()),
        }
    }
    let expected = [("0", "1"), ("1", "5"), ("5", "14"), ("14", "30")];
    let expected: Vec<_> = expected
        .iter()
        .map(|(a, b)| ((*a).into(), (*b).into()))
        .collect();
    same("forwards", &forth, &expected)?;
    // The same from the end of the function backwards.
    mi.command(&format!(
        "-break-insert -t steps.c:{}",
        place.line("loop-end")
    ))?;
    mi.go(BACK)?;
    mi.command("-break-watch total")?;
    let mut back = Vec::new();
    while back.len() < expected.len() {
        let stop = mi.go(BACK)?;
        if stop.reason() != "watchpoint-trigger" {
            return Err(mi.failure("stopped for something else").into());
        }
        back.push(change(&stop, false));
    }
    back.reverse();
    same("backwards", back, expected)
}

/// More than any processor could watch.
fn much(test: &str) -> Result<(), Failed> {
    let place = Place::guest_with(test, "registers.c", None, &[])?;
    let mut mi = place.mi()?;
    let set = mi.console("watch bytes")?;
    require(!set.starts_with("Watchpoint"), || {
        format!("in software: {set}")
    })?;
    let mut forth = Vec::new();
    for _ in 0..40 {
        mi.go(FORTH)?;
        forth.push(mi.number("i * 32 + j")?);
    }
    // The first byte is zero before and after.
    same("changes", &forth, &(1..41).collect())?;
    for expected in (2..41).rev() {
        mi.go(BACK)?;
        let at = mi.number("i * 32 + j")?;
        same("backwards", at, expected)?;
    }
    Ok(())
}

fn many(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "inlined.c")?;
    let mut mi = place.mi()?;
    for number in 0..64 {
        mi.command(&format!("-break-watch table[{number}]"))?;
    }
    let which = |stop: &Stop| {
        let named = stop.0.get("wpt").and_then(|wpt| wpt.text("exp"));
        named.unwrap_or_default()
    };
    let forth = all_stops(&mut mi, FORTH, |_, stop| {
        Ok((which(stop), change(stop, true)))
    })?;
    let mut back = all_stops(&mut mi, BACK, |_, stop| {
        Ok((which(stop), change(stop, false)))
    })?;
    back.reverse();
    require(forth.len() > 40, || format!("{forth:?}"))?;
    same("changes", forth, back)
}

fn reads(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let mut mi = place.mi()?;
    // Read once by each addition (calls++), and written once.
    mi.command("-break-watch -r calls")?;
    let value = |stop: &Stop| {
        let value = stop.0.get("value").and_then(|value| value.text("value"));
        (stop.reason(), stop.function(), value.unwrap_or_default())
    };
    let forth = all_stops(&mut mi, FORTH, |_, stop| Ok(value(stop)))?;
    let back = all_stops(&mut mi, BACK, |_, stop| Ok(value(stop)))?;
    require(forth.len() >= 5 && forth.len() == back.len(), || {
        format!("forwards {forth:?}\nbackwards {back:?}")
    })?;
    let reading =
        |stop: &(String, String, String)| stop.0 == "read-watchpoint-trigger" && stop.1 == "add";
    require(forth.iter().chain(&back).all(reading), || {
        format!("forwards {forth:?}\nbackwards {back:?}")
    })?;
    mi.command("-break-delete")?;
    mi.command("-break-watch -a numbers[3]")?;
    let place_of = |stop: &Stop| (stop.reason(), stop.function());
    let forth = all_stops(&mut mi, FORTH, |_, stop| Ok(place_of(stop)))?;
    let mut back = all_stops(&mut mi, BACK, |_, stop| Ok(place_of(stop)))?;
    back.reverse();
    // A write, and a read on the next line.
    same("accesses", (forth.len(), &forth), (2, &back))?;
    require(
        forth
            .iter()
            .all(|(reason, _)| reason == "access-watchpoint-trigger"),
        || format!("{forth:?}"),
    )
}

/// A system call's result is a write as well.
fn by_the_kernel(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "family.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -t main")?;
    mi.go(FORTH)?;
    mi.command("-break-watch status")?;
    let forth = all_statuses(&mut mi)?;
    // Exit statuses 3, 4 and 5, as waitpid writes them.
    same("written", forth, vec![3 << 8, 4 << 8, 5 << 8])
}

/// Changes of main's variable until its end.
fn all_statuses(mi: &mut Mi) -> Result<Vec<i64>, Failed> {
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let stop = mi.go(FORTH)?;
        match stop.reason().as_str() {
            "watchpoint-trigger" => seen.push(change(&stop, true).1.parse()?),
            // Children that are left alone are no stops of this program.
            other => return Err(mi.failure(&format!("stopped: {other:?}")).into()),
        }
    }
    Ok(seen)
}

/// The papers' case in gdb: who overwrote the pointer?
fn by_a_thread(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "overwrite.c")?;
    let mut mi = place.mi_with(&[])?;
    mi.command("-break-watch session.parent")?;
    mi.go(BACK)?;
    let stack = mi.console("backtrace")?;
    has(&stack, &["rename_session", "renamer"])?;
    has(
        &stack,
        &[&format!("overwrite.c:{}", place.line("overwritten"))],
    )?;
    has(
        &mi.console("python print(gdb.selected_thread().name)")?,
        &["renamer"],
    )?;
    has(&mi.console("print session.parent")?, &["<root>"])
}

fn last_of_many(test: &str, kind: &str, mark: &str) -> Result<(), Failed> {
    const COUNT: &str = "2000000";
    let place = Place::guest_with(test, "writes.c", None, &[kind, COUNT])?;
    let mut mi = place.mi_with(&["--at", "end"])?;
    mi.command("-break-watch counter")?;
    let stop = mi.go(BACK)?;
    let values = change(&stop, false);
    same("the last", values, ("1999999".into(), COUNT.into()))?;
    same("where", stop.line(), place.line(mark))?;
    let stop = mi.go(BACK)?;
    same("the one before", change(&stop, false).1, "1999999".into())?;
    let stop = mi.go(FORTH)?;
    same("and again", change(&stop, true).1, "1999999".into())?;
    Ok(())
}

fn last_with_calls(test: &str) -> Result<(), Failed> {
    last_of_many(test, "calls", "call")
}

fn last_without(test: &str) -> Result<(), Failed> {
    last_of_many(test, "plain", "plain")
}

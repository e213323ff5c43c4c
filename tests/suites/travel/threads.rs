//! Threads: by name, each with its own registers and stack, stepped one by one.

use libtest_mimic::{Failed, Trial};

use super::place::{self, BACK, FORTH, Place, has, require, same, there_and_back};

pub fn trials() -> Vec<Trial> {
    place::trials(
        "threads",
        &[
            ("by name", by_name),
            ("breaks in threads", breaks),
            ("breaks of one thread", of_one),
            ("steps of one thread", steps),
            ("stacks of all", stacks),
            ("thread-local variables", local),
            ("they come and go", come_and_go),
        ],
    )
}

fn by_name(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "named.c")?;
    let text = place.batch(
        "break count if number == 2 && counts[2] == 9\ncontinue\ninfo threads\n\
                            thread find beta\nthread name\n",
    )?;
    for name in [
        "\"named\"",
        "\"alpha\"",
        "\"beta\"",
        "\"gamma\"",
        "name 'beta'",
    ] {
        has(&text, &[name])?;
    }
    Ok(())
}

/// Who came, in which order: the same backwards.
fn breaks(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "named.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert count")?;
    // By name: gdb counts a thread that comes again as another one.
    let seen = there_and_back(&mut mi, |mi, _| {
        let name = mi.console("python print(gdb.selected_thread().name)")?;
        Ok((
            name.trim().to_owned(),
            mi.number("number")?,
            mi.number("turn")?,
        ))
    })?;
    same("hits", seen.len(), 60)?;
    for (turn, (name, number, seen_turn)) in seen.iter().enumerate() {
        let expected = ["alpha", "beta", "gamma"][turn % 3];
        same("turn", (name.as_str(), *seen_turn), (expected, turn as i64))?;
        same("number", *number, (turn % 3) as i64)?;
    }
    Ok(())
}

fn of_one(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "named.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -t -c \"number == 1\" count")?;
    let stop = mi.go(FORTH)?;
    mi.command(&format!("break count thread {}", stop.thread()))?;
    // gdb deletes such a breakpoint where its thread isn't alive.
    for count in 1..15 {
        mi.go(FORTH)?;
        same(
            "forwards",
            (mi.number("number")?, mi.number("counts[1]")?),
            (1, 2 * count),
        )?;
    }
    for count in (0..14).rev() {
        mi.go(BACK)?;
        same(
            "backwards",
            (mi.number("number")?, mi.number("counts[1]")?),
            (1, 2 * count),
        )?;
    }
    Ok(())
}

/// A step is a step of the chosen thread, whatever the others do meanwhile.
fn steps(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "named.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -t -c \"number == 1 && counts[1] == 10\" count")?;
    let first = mi.go(FORTH)?;
    let beta = first.thread();
    let mut lines = Vec::new();
    for _ in 0..8 {
        let stop = mi.go("-exec-next")?;
        same("thread", stop.thread(), beta.clone())?;
        lines.push((stop.function(), stop.line()));
    }
    require(lines.iter().any(|(function, _)| function == "run"), || {
        format!("{lines:?}")
    })?;
    // It has waited for the others, and counted again.
    for _ in 0..6 {
        let stop = mi.go("-exec-next --reverse")?;
        same("thread", stop.thread(), beta.clone())?;
    }
    mi.command("-break-insert -t -c \"number == 1\" count")?;
    let stop = mi.go(BACK)?;
    same("thread", stop.thread(), beta.clone())?;
    require(mi.number("counts[1]")? <= 10, || mi.failure("later"))?;
    // Instructions likewise, of a thread that isn't the one that stopped.
    let threads = mi.command("-thread-info")?;
    let threads = threads
        .results
        .get("threads")
        .cloned()
        .ok_or("no threads")?;
    let named = |name: &str| {
        let found = threads
            .members()
            .into_iter()
            .find(|t| t.text("name").as_deref() == Some(name));
        found.and_then(|thread| thread.text("id"))
    };
    let gamma = named("gamma").ok_or("no gamma")?;
    mi.command(&format!("-thread-select {gamma}"))?;
    // It waits in a system call, and comes out of that first.
    mi.go("-exec-step-instruction")?;
    let mut pcs = vec![mi.print("$pc")?];
    for _ in 0..5 {
        let stop = mi.go("-exec-step-instruction")?;
        same("thread", stop.thread(), gamma.clone())?;
        pcs.push(mi.print("$pc")?);
    }
    for expected in pcs.iter().rev().skip(1) {
        let stop = mi.go("-exec-step-instruction --reverse")?;
        same("thread", stop.thread(), gamma.clone())?;
        same("pc", mi.print("$pc")?, expected.clone())?;
    }
    Ok(())
}

fn stacks(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "named.c")?;
    let text =
        place.batch("break count if turn == 30\ncontinue\nthread apply all -s backtrace\n")?;
    has(&text, &["count (number=0)"])?;
    // Others wait for their turn, and main for them.
    has(&text, &["Thread 4", "run (arg="])?;
    has(&text, &["Thread 3", "run (arg="])?;
    has(&text, &["Thread 1", "main ()"])
}

fn local(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "named.c")?;
    let mut mi = place.mi()?;
    mi.command("-break-insert -c \"number == 2\" count")?;
    let seen = there_and_back(&mut mi, |mi, _| mi.number("mine"))?;
    same("values", seen, (0..20).collect())
}

fn come_and_go(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "named.c")?;
    let mut mi = place.mi()?;
    let count = |mi: &mut clew_tests::mi::Mi| -> Result<usize, Failed> {
        let threads = mi.command("-thread-info")?.results;
        Ok(threads
            .get("threads")
            .map_or(0, |threads| threads.members().len()))
    };
    mi.command("-break-insert -t main")?;
    mi.go(FORTH)?;
    same("at first", count(&mut mi)?, 1)?;
    mi.command("-break-insert -t -c \"turn == 8\" count")?;
    mi.go(FORTH)?;
    same("in the midst", count(&mut mi)?, 4)?;
    mi.command(&format!("-break-insert -t named.c:{}", place.line("end")))?;
    mi.go(FORTH)?;
    same("at the end", count(&mut mi)?, 1)?;
    mi.command("-break-insert -t -c \"turn == 8\" count")?;
    mi.go(BACK)?;
    same("in the midst", count(&mut mi)?, 4)?;
    mi.command("-break-insert -t main")?;
    mi.go(BACK)?;
    same("at first", count(&mut mi)?, 1)
}

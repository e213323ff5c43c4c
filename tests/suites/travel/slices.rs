//! Slices on the command line and along them in gdb: graphs, and recordings in which only a slice is executed.

use clew_recording::position::Position;
use clew_tests::compare::report;
use clew_tests::recorded::Recording;
use clew_tests::run::Job;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::own::{line_of, when};
use super::place::{self, Place, has, require, same};

pub fn trials() -> Vec<Trial> {
    place::trials(
        "slices",
        &[
            ("a graph for dot", dot),
            ("only a slice is executed", execution),
            ("what can't be run", refused),
            ("the times of a line", times),
        ],
    )
}

/// What a command prints; it must end with this status.
fn printed(job: &Job, status: i32) -> Result<String, Failed> {
    let outcome = job.run();
    match outcome.status.and_then(|status| status.code()) == Some(status) {
        true => Ok(String::from_utf8_lossy(match status {
            0 => &outcome.stdout,
            _ => &outcome.stderr,
        })
        .into_owned()),
        false => Err(report("another status", &outcome, &[("clew", job)])),
    }
}

fn dot(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let graph = printed(&place.made.command("slice", &["calls", "--dot"]), 0)?;
    has(&graph, &["digraph slice {", "add steps.c:"])?;
    // Each edge is one between statements that are there.
    let named = |name: &str| graph.contains(&format!("  {name} [label="));
    let edges: Vec<_> = graph
        .lines()
        .filter_map(|line| line.split_once(" -> "))
        .collect();
    require(!edges.is_empty(), || graph.clone())?;
    for (from, to) in edges {
        let to = to.split([' ', ';']).next().unwrap_or_default();
        require(named(from.trim()) && named(to), || {
            format!("{from} -> {to}\n{graph}")
        })?;
    }
    let one = printed(
        &place
            .made
            .command("slice", &["calls", "--dot", "--depth", "1"]),
        0,
    )?;
    require(!one.contains("->"), || one)
}

/// A value at the Nth time of a line, at a function's entry and its return; the guest counts, too.
fn times(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let source = include_str!("../../guests/travel/steps.c");
    let line = source.lines().position(|line| line.contains("MARK: add"));
    let line = line.ok_or("no such mark")? + 1;
    let at = |at: &str, more: &[&str], status: i32| {
        let words = [&["calls", "--at", at][..], more].concat();
        printed(&place.made.command("slice", &words), status)
    };
    for number in 1..=5 {
        let before = format!("calls = {}\n", number - 1);
        let after = format!("calls = {number}\n");
        for (at_, more, value) in [
            (format!("steps.c:{line}#{number}"), &[][..], &before),
            (format!("add#{number}"), &["--thread", "0"], &before),
            (format!("add#{number}$"), &[], &after),
        ] {
            let told = at(&at_, more, 0)?;
            require(told.starts_with(value.as_str()), || {
                format!("{at_}: {told}")
            })?;
        }
    }
    let part = at("add#4", &["--from", "add#2", "--data"], 0)?;
    has(&part, &["calls = 3", "x2", "from before"])?;
    has(&at("add#6", &[], 2)?, &["add is called 5 times"])?;
    let line = format!("steps.c:{line}#2");
    let nobody = at(&line, &["--thread", "7"], 2)?;
    has(&nobody, &["it is come to 0 times by thread 7"])
}

/// `clew slice run` of a slice that was saved.
fn run(place: &Place, name: &str) -> (Job, Recording) {
    let folder = place.made.folder.with_extension("slice");
    let _ = std::fs::remove_dir_all(&folder);
    let mut job = place.made.command("slice", &[name, "--json", "-o"]);
    job.args.insert(1, "run".into());
    job.args.push(folder.to_string_lossy().into_owned());
    let made = Recording {
        folder,
        job: place.made.job.clone(),
    };
    (job, made)
}

fn execution(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    printed(
        &place.made.command("slice", &["calls", "--save", "calls"]),
        0,
    )?;
    let (job, made) = run(&place, "calls");
    let told: Value = serde_json::from_str(&printed(&job, 0)?).map_err(|e| e.to_string())?;
    let number = |name: &str| told[name].as_u64().unwrap_or_default();
    require(number("leaps") > 0 && number("executed") > 0, || {
        told.to_string()
    })?;
    require(number("executed") * 20 < number("instructions"), || {
        told.to_string()
    })?;
    // A recording like any other: the same output and end, all that is compared compares.
    let recorded = place.made.command("replay", &[]).run();
    let slice = place.with(made);
    slice.made.replays_as(&recorded)?;

    // From statement to statement of it.
    let mut mi = slice.mi()?;
    let (mut before, mut seen) = (Position::default(), Vec::new());
    for _ in 0..number("statements") {
        mi.does("clew slice next")?;
        let now = when(&mut mi)?;
        require(now > before, || format!("{now} isn't behind {before}"))?;
        before = now;
        if line_of(&mut mi)?.1 == (slice.line("add") + 1).to_string() {
            seen.push(mi.print("calls")?);
        }
    }
    same(
        "calls, before each time",
        seen.join(" "),
        "0 1 2 3 4".into(),
    )?;
    mi.refused("clew slice next")?;
    mi.does("clew slice prev")?;
    require(when(&mut mi)? < before, || "prev goes back".into())?;
    has(
        &mi.console("clew slice list")?,
        &["=>", "statements, for calls = 5"],
    )?;
    mi.does("clew slice 0")?;
    has(&mi.console("backtrace")?, &["main"])?;
    mi.refused("clew slice prev")?;
    mi.refused("clew slice down")?;
    Ok(())
}

fn refused(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "steps.c")?;
    let (job, _) = run(&place, "nothing");
    has(
        &printed(&job, 2)?,
        &["no slice is saved as nothing", "--save NAME"],
    )?;
    let wrong = place
        .made
        .command("slice", &["calls", "--save", "../calls"]);
    printed(&wrong, 2)?;
    let three = place.made.command("slice", &["calls", "more"]);
    has(&printed(&three, 2)?, &["clew slice run"]).map(|_| ())
}

//! `--sched idiom`: bugs that are an order of accesses are found by it, with schedules that can be followed again.

use std::fs;

use clew_tests::compare::{check, code, text};
use clew_tests::run::Outcome;
use libtest_mimic::{Failed, Trial};

use super::{Hunt, RUNS, bug};

/// Those of `guests/bugs` that an order of accesses, or of two locks, brings about.
const ORDERS: [&str; 9] = [
    "aba",
    "check_then_act",
    "double_checked",
    "lock_order",
    "lost_update",
    "missed_signal",
    "order_violation",
    "shutdown",
    "two_variables",
];

pub fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = ORDERS
        .map(|name| Trial::test(format!("idiom/{name}"), move || found(name)))
        .into();
    trials.push(Trial::test("idiom/the same seed", same_seed));
    trials.push(Trial::test("idiom/nothing to find", nothing_to_find));
    trials.push(Trial::test("idiom/a child of the program", child));
    trials
}

/// A value in what `--json` printed.
pub fn value(outcome: &Outcome, name: &str) -> Result<serde_json::Value, Failed> {
    let all: serde_json::Value = serde_json::from_slice(&outcome.stdout)
        .map_err(|why| format!("{why}: {}", text(outcome)))?;
    Ok(all.pointer(name).cloned().unwrap_or_default())
}

fn found(name: &str) -> Result<(), Failed> {
    let hunt = Hunt::new(&format!("idiom.{name}"), bug(name)?);
    let options = ["--json", "--sched", "idiom", "--runs", RUNS, "--seed", "7"];
    let outcome = hunt.run(&options);
    check(code(&outcome) == Some(0), "not found", &outcome)?;
    let left = hunt.left();
    let expected = [format!("{name}-1")];
    check(left == expected, &format!("{left:?} are left"), &outcome)?;
    let seen = value(&outcome, "/orders/seen")?.as_u64();
    check(seen > Some(0), "no orders were seen", &outcome)?;
    // It is the schedule that fails, not chance: the same one fails again, with few preemptions.
    let script = hunt.recordings.join(&left[0]).join("schedule.txt");
    check(script.is_file(), "the schedule isn't kept", &outcome)?;
    let script = script.display().to_string();
    let again = ["--on-deadlock=stop", "--script", &script];
    let again = hunt.job.through("record", &again).run();
    check(code(&again) != Some(0), "it doesn't fail again", &again)?;
    let replayed = hunt.replay();
    check(replayed.status == again.status, "replays differ", &replayed)
}

/// The same runs, whatever the number of jobs.
fn same_seed() -> Result<(), Failed> {
    let program = bug("shutdown")?;
    let schedule = |name: &str, jobs: &str| {
        let hunt = Hunt::new(&format!("idiom.seed.{name}"), &program);
        let options = ["--json", "--sched", "idiom", "--runs", RUNS, "--seed", "3"];
        let outcome = hunt.run(&[&options[..], &["--jobs", jobs]].concat());
        check(code(&outcome) == Some(0), "not found", &outcome)?;
        let folder = value(&outcome, "/found/0/folder")?;
        let folder = folder.as_str().unwrap_or_default().to_owned();
        let text = fs::read_to_string(format!("{folder}/schedule.txt"))?;
        // The names of folders are in the environment, which takes the loader its time.
        let turn = |line: &str| line.split(" from ").next().map(str::to_owned);
        let turns: Vec<String> = text.lines().filter_map(turn).collect();
        Ok::<_, Failed>((value(&outcome, "/found/0/run")?, turns))
    };
    let one = schedule("one", "1")?;
    let two = schedule("two", "1")?;
    if one != two {
        return Err(format!("{one:?} and {two:?}").into());
    }
    // Which of several that fail comes first is up to the jobs.
    let three = schedule("three", "2")?;
    if one.0 == three.0 && one.1 != three.1 {
        return Err(format!("{one:?} and {three:?}").into());
    }
    Ok(())
}

fn nothing_to_find() -> Result<(), Failed> {
    // Neither threads nor anything that they share.
    let hunt = Hunt::new("idiom.nothing", "/bin/true");
    let outcome = hunt.run(&["--json", "--sched", "idiom", "--runs", "12"]);
    check(code(&outcome) == Some(1), "wrong status", &outcome)?;
    check(hunt.left().is_empty(), "something is left", &outcome)?;
    let seen = value(&outcome, "/orders/seen")?;
    check(seen == 0, "orders of one thread", &outcome)
}

/// The threads may be those of a process that the program starts.
fn child() -> Result<(), Failed> {
    let program = bug("lost_update")?.display().to_string();
    let mut hunt = Hunt::new("idiom.child", "/bin/sh");
    hunt.job.args = vec!["-c".into(), format!("true; {program}; exit $?")];
    let outcome = hunt.run(&["--json", "--sched", "idiom", "--runs", RUNS]);
    check(code(&outcome) == Some(0), "not found", &outcome)?;
    let folder = value(&outcome, "/found/0/folder")?;
    let folder = folder.as_str().unwrap_or_default().to_owned();
    let schedule = fs::read_to_string(format!("{folder}/schedule.txt"))?;
    check(schedule.contains("process 0\n"), "which process", &outcome)
}

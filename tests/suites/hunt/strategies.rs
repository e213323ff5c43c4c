//! Strategies that choose at visible operations, virtual time, and what is said of findings.

use std::fs;

use clew_tests::clew;
use clew_tests::compare::{check, code, text};
use clew_tests::run::{Job, Outcome};
use clew_tests::scratch;
use libtest_mimic::{Failed, Trial};

use super::idiom::value;
use super::{Hunt, RUNS, bug, guest};

/// A strategy, and a bug that it must find: of `bugs`, or of `hunt`.
const FOUND: [(&str, &str, &str); 7] = [
    ("surw", "bugs", "lost_update"),
    ("pos", "bugs", "lost_update"),
    ("points", "bugs", "lost_update"),
    ("delay", "bugs", "lost_update"),
    ("hold", "bugs", "order_violation"),
    ("meet", "hunt", "hazard"),
    ("mixed", "hunt", "sleep_order"),
];

pub fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = FOUND
        .map(|(strategy, folder, name)| {
            let title = format!("strategies/{strategy} {name}");
            Trial::test(title, move || found(strategy, folder, name))
        })
        .into();
    trials.push(Trial::test("virtual time/sleep", sleeps_for_an_hour));
    trials.push(Trial::test("virtual time/the same seed", same_seed));
    for policy in ["fair", "random"] {
        let title = format!("virtual time/replayed {policy}");
        trials.push(Trial::test(title, move || replayed(policy)));
    }
    trials.push(Trial::test("findings/a crash's stack", stack));
    trials.push(Trial::test("findings/minimized later", minimized_later));
    trials.push(Trial::test("findings/parts", parts));
    trials
}

fn program(folder: &str, name: &str) -> Result<std::path::PathBuf, Failed> {
    match folder {
        "bugs" => bug(name),
        folder => {
            let sources = scratch::sources().join("guests").join(folder);
            guest(name, &sources.join(format!("{name}.c")))
        }
    }
}

fn found(strategy: &str, folder: &str, name: &str) -> Result<(), Failed> {
    let hunt = Hunt::new(
        &format!("strategies.{strategy}.{name}"),
        program(folder, name)?,
    );
    let options = ["--json", "--sched", strategy, "--runs", RUNS, "--seed", "5"];
    let outcome = hunt.run(&options);
    check(code(&outcome) == Some(0), "not found", &outcome)?;
    let by = value(&outcome, "/found/0/strategy")?;
    check(by.is_string(), "nobody found it", &outcome)?;
    let replayed = hunt.replay();
    check(
        code(&replayed) != Some(0),
        "the replay doesn't fail",
        &replayed,
    )
}

/// Nobody waits for that.
fn sleeps_for_an_hour() -> Result<(), Failed> {
    let mut hunt = Hunt::new("virtual.sleep", "/bin/sleep");
    hunt.job.args = vec!["3600".into()];
    let recorded = hunt.job.through("record", &["--time", "virtual"]).run();
    check(code(&recorded) == Some(0), "it didn't sleep", &recorded)?;
    let replayed = hunt.replay();
    check(code(&replayed) == Some(0), "it doesn't replay", &replayed)
}

/// A program that sleeps has the same runs with the same seed, to the last instruction of the schedule.
fn same_seed() -> Result<(), Failed> {
    let program = program("hunt", "poll_twice")?;
    let hunted = |name: &str| -> Result<(Outcome, String), Failed> {
        let hunt = Hunt::new(name, &program);
        let options = [
            "--json", "--jobs", "1", "--runs", RUNS, "--seed", "3", "--time", "virtual",
        ];
        let outcome = hunt.run(&options);
        check(code(&outcome) == Some(0), "not found", &outcome)?;
        let folder = value(&outcome, "/found/0/folder")?;
        let job = Job::new(clew::path(), scratch::fresh(&format!("{name}.turns")));
        let mut dump = job.clone();
        dump.args = vec![
            "dump".into(),
            "--turns".into(),
            folder.as_str().unwrap_or_default().into(),
        ];
        Ok((outcome, text(&dump.run())))
    };
    let (one, turns) = hunted("virtual.one")?;
    let (two, others) = hunted("virtual.two")?;
    let after = |outcome: &Outcome| value(outcome, "/found/0/after_runs");
    check(after(&one)? == after(&two)?, "not after as many runs", &two)?;
    check(!turns.is_empty() && turns == others, "other turns", &two)
}

/// What virtual time answers is in the recording.
fn replayed(policy: &str) -> Result<(), Failed> {
    for (folder, name) in [
        ("hunt", "sleep_order"),
        ("hunt", "barrier_reuse"),
        ("hunt", "poll_twice"),
        ("bugs", "handler"),
    ] {
        let hunt = Hunt::new(&format!("virtual.{policy}.{name}"), program(folder, name)?);
        for seed in ["1", "2"] {
            let options = [
                "--time",
                "virtual",
                "--sched",
                policy,
                "--seed",
                seed,
                "--on-deadlock=stop",
            ];
            let recorded = hunt.job.through("record", &options).run();
            let replayed = hunt.replay();
            check(
                replayed.status == recorded.status && replayed.stdout == recorded.stdout,
                &format!("{name}, seed {seed}: the replay isn't the same"),
                &replayed,
            )?;
        }
    }
    Ok(())
}

fn stack() -> Result<(), Failed> {
    let hunt = Hunt::new("findings.stack", program("hunt", "half_made")?);
    let outcome = hunt.run(&["--runs", RUNS, "--seed", "1"]);
    check(code(&outcome) == Some(0), "not found", &outcome)?;
    let said = text(&outcome);
    check(
        said.contains("was at half_made.c:") && said.contains(" in user"),
        "no stack",
        &outcome,
    )
}

fn minimized_later() -> Result<(), Failed> {
    let hunt = Hunt::new("findings.minimized", bug("lost_update")?);
    let outcome = hunt.run(&["--sched", "random", "--runs", RUNS, "--seed", "1"]);
    check(code(&outcome) == Some(0), "not found", &outcome)?;
    let mut job = hunt.job.clone();
    job.program = clew::path().to_owned();
    job.args = vec!["minimize".into(), "lost_update-1".into()];
    let outcome = job.run();
    check(
        text(&outcome).contains("minimized: lost_update-2"),
        "not minimized",
        &outcome,
    )
}

fn parts() -> Result<(), Failed> {
    let program = bug("lost_update")?;
    let mut files = Vec::new();
    let dir = scratch::fresh("hunt.findings.parts.files");
    for part in 1..=2 {
        let mut hunt = Hunt::new(&format!("findings.parts.{part}"), &program);
        hunt.job
            .env
            .push(("CI_NODE_INDEX".into(), part.to_string()));
        hunt.job.env.push(("CI_NODE_TOTAL".into(), "2".into()));
        let outcome = hunt.run(&["--json", "--shard", "auto", "--runs", RUNS]);
        check(code(&outcome) == Some(0), "not found", &outcome)?;
        let file = dir.join(format!("{part}.json"));
        fs::write(&file, &outcome.stdout)?;
        files.push(file.display().to_string());
    }
    let mut job = Job::new(clew::path(), dir);
    job.args = ["hunt", "merge", &files[0], &files[1]]
        .map(String::from)
        .into();
    let outcome = job.run();
    check(code(&outcome) == Some(0), "nothing merged", &outcome)?;
    check(
        text(&outcome).contains("in 2 parts, 2 failed, 2 kept"),
        "wrong report",
        &outcome,
    )
}

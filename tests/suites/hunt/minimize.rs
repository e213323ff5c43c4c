//! `--minimize`: few preemptions are left, at the lines that the bug is about; and the lines of a deadlock.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clew_tests::compare::{check, code, text};
use clew_tests::header::Header;
use clew_tests::run::Outcome;
use clew_tests::{clew, compile, scratch};
use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{Hunt, RUNS, bug, compiling};

/// Lines of a source from one to another, both found by what they say.
type Lines = (&'static str, &'static str);

/// A bug, how many preemptions may be left of it, and where one of them must be.
struct Bug {
    name: &'static str,
    most: u64,
    racy: &'static [Lines],
    options: &'static [&'static str],
}

const BUGS: &[Bug] = &[
    Bug {
        name: "lost_update",
        most: 2,
        racy: &[(
            "long before = account->balance",
            "account->balance = before",
        )],
        options: &[],
    },
    Bug {
        name: "check_then_act",
        most: 5,
        racy: &[
            ("int seats = left", "assert(left > 0)"),
            ("if (seats_left() > 0)", "if (seats_left() > 0)"),
        ],
        options: &[],
    },
    Bug {
        name: "two_variables",
        most: 3,
        racy: &[
            ("view.start = start", "view.length = text_size"),
            (
                "unsigned start = view.start",
                "unsigned length = view.length",
            ),
        ],
        options: &[],
    },
    Bug {
        name: "lock_order",
        most: 3,
        racy: &[
            ("static long fee(", "return fee"),
            // Anywhere with a lock in hand: who waits for it decides the rest.
            (
                "pthread_mutex_lock(&from->lock)",
                "pthread_mutex_unlock(&from->lock)",
            ),
        ],
        options: &[],
    },
    Bug {
        name: "aba",
        most: 8,
        racy: &[("static struct buffer *take", "while (first && !atomic")],
        // What it prints counts, not how it ends.
        options: &["--fail-if", "output=has two users", "--sched", "random"],
    },
    Bug {
        name: "shutdown",
        most: 6,
        racy: &[(
            "if (!messages.open) return",
            "messages.used = at + snprintf",
        )],
        options: &[],
    },
];

pub fn trials() -> Vec<Trial> {
    let of_bug = |bug: &'static Bug| {
        let name = format!("minimize/{}", bug.name);
        Trial::test(name, move || minimized(bug))
    };
    let mut trials: Vec<Trial> = BUGS.iter().map(of_bug).collect();
    trials.push(Trial::test("minimize/stripped", stripped));
    trials.push(Trial::test("minimize/interrupted", interrupted));
    trials.push(Trial::test("minimize/few runs", few_runs));
    trials.push(Trial::test("minimize/once only", once_only));
    trials.push(Trial::test("minimize/without threads", without_threads));
    trials.push(Trial::test("deadlock/lines", deadlock_lines));
    trials
}

fn source(name: &str) -> PathBuf {
    let bugs = scratch::sources().join("guests/bugs");
    bugs.join(format!("{name}.c"))
}

/// The number of the only line that says this.
fn line_of(source: &str, says: &str) -> u64 {
    let lines = source.lines().zip(1..);
    let mut found = lines.filter(|(line, _)| line.contains(says));
    let (_, number) = found
        .next()
        .unwrap_or_else(|| panic!("no line with {says}"));
    assert!(found.next().is_none(), "several lines with {says}");
    number
}

/// Built so that lines say where the program is.
fn unoptimised(name: &str) -> Result<PathBuf, Failed> {
    let _one_at_a_time = compiling();
    let path = source(name);
    let guest = compile::guest(&path, &Header::read(&path), "debug");
    Ok(guest.map_err(|why| format!("{name}: {why}"))?.program)
}

fn hunted(hunt: &Hunt, options: &[&str]) -> Result<(Value, Outcome), Failed> {
    let all = [&["--json", "--runs", RUNS, "--seed", "5"], options].concat();
    let outcome = hunt.run(&all);
    check(code(&outcome) == Some(0), "not found", &outcome)?;
    let facts: Value = serde_json::from_slice(&outcome.stdout)?;
    Ok((facts["found"][0].clone(), outcome))
}

fn minimized(bug: &Bug) -> Result<(), Failed> {
    let hunt = Hunt::new(&format!("minimize.{}", bug.name), unoptimised(bug.name)?);
    let (found, outcome) = hunted(&hunt, &[&["--minimize"], bug.options].concat())?;
    let small = &found["minimized"];
    check(small["result"] == "minimal", "not minimal", &outcome)?;
    check(small["ended"] == found["ended"], "another end", &outcome)?;
    let preemptions = small["preemptions"].as_u64().unwrap_or(u64::MAX);
    check(preemptions <= bug.most, "too many are left", &outcome)?;
    check(
        preemptions <= small["preemptions_before"].as_u64().unwrap_or(0),
        "more than before",
        &outcome,
    )?;
    // Each of them, at a line; one of them where it matters.
    let switches = small["switches"].as_array().map_or(&[][..], |all| all);
    check(
        switches.len() as u64 == preemptions,
        "not all are told",
        &outcome,
    )?;
    let text = fs::read_to_string(source(bug.name))?;
    let file = format!("{}.c", bug.name);
    let mut racy = false;
    for switch in switches {
        let at = &switch["at"];
        let named = at["file"]
            .as_str()
            .is_some_and(|name| name.ends_with(&file));
        check(named, "a preemption has no line", &outcome)?;
        check(
            switch["goes_on"]["function"].is_string(),
            "nobody goes on",
            &outcome,
        )?;
        let line = at["line"].as_u64().unwrap_or(0);
        let within =
            |(from, to): &Lines| (line_of(&text, from)..=line_of(&text, to)).contains(&line);
        racy |= bug.racy.iter().any(within);
    }
    check(racy, "none is where the bug is", &outcome)?;
    let names = [1, 2].map(|n| format!("{}-{n}", bug.name));
    let left = hunt.left();
    check(left == names, &format!("{left:?} are left"), &outcome)?;
    same_end(&hunt, &found, &outcome)
}

/// The minimized recording ends as the first one did, in a replay and when its schedule is followed again.
fn same_end(hunt: &Hunt, found: &Value, outcome: &Outcome) -> Result<(), Failed> {
    let small = &found["minimized"];
    check(small["failed"] == small["tried"], "not each time", outcome)?;
    let schedule = PathBuf::from(small["schedule"].as_str().unwrap_or_default());
    let mode = fs::metadata(&schedule)?.permissions().mode();
    check(mode & 0o777 == 0o600, "others may read it", outcome)?;
    let status = |name: &str| {
        let mut job = hunt.job.clone();
        job.program = clew::path().to_owned();
        job.args = vec!["replay".into(), name.into()];
        job.run().status
    };
    let name = |facts: &Value| facts["name"].as_str().unwrap_or_default().to_owned();
    let (first, second) = (status(&name(found)), status(&name(small)));
    check(first == second, &format!("{first:?}, {second:?}"), outcome)?;
    let fails = first.is_some_and(|status| {
        status.signal().is_some() || matches!(status.code(), Some(1..123 | 128..))
    });
    check(fails, "the replay doesn't fail", outcome)?;
    let path = schedule.to_string_lossy();
    let options = ["--on-deadlock=stop", "--script", &path];
    let again = hunt.job.through("record", &options).run();
    check(again.status == first, "it ends otherwise", &again)
}

/// Without symbols there are addresses instead of lines, and nothing else is missing.
fn stripped() -> Result<(), Failed> {
    let dir = scratch::fresh("hunt.minimize.strip");
    let program = dir.join("lock_order");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&program).arg(bug("lock_order")?);
    if !strip.status()?.success() {
        return Err("strip failed".into());
    }
    let hunt = Hunt::new("minimize.stripped", &program);
    let (found, outcome) = hunted(&hunt, &["--minimize"])?;
    let small = &found["minimized"];
    check(small["result"] == "minimal", "not minimal", &outcome)?;
    let switches = small["switches"].as_array().map_or(&[][..], |all| all);
    check(!switches.is_empty(), "no preemptions", &outcome)?;
    let bare = |place: &Value| {
        let address = place["address"].as_str();
        place["line"].is_null() && address.is_some_and(|text| text.starts_with("0x"))
    };
    let fine = switches.iter().all(|switch| bare(&switch["at"]));
    check(fine, "no addresses", &outcome)?;
    let waiting = found["deadlock_threads"].as_array().map_or(0, Vec::len);
    check(waiting == 3, "not all threads", &outcome)?;
    let said = hunt.run(&["--runs", RUNS, "--seed", "5", "--minimize"]);
    check(
        text(&said).contains("was switched away here") && text(&said).contains(" in lock_order"),
        "no text",
        &said,
    )
}

/// What was found stays, and the best so far; nothing else.
fn interrupted() -> Result<(), Failed> {
    let hunt = Hunt::new("minimize.interrupted", bug("aba")?);
    let options = ["--runs", RUNS, "--seed", "5", "--minimize", "--jobs", "1"];
    let job = hunt.job.through("hunt", &options);
    let mut child = job
        .command()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    // The third try: there is a best one, and it isn't the last.
    let end = Instant::now() + Duration::from_secs(100);
    let third = |name: &String| name.ends_with("-minimize-2");
    while !hunt.left().iter().any(third) && Instant::now() < end && child.try_wait()?.is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&child), Signal::INT)?;
    let output = child.wait_with_output()?;
    let outcome = Outcome {
        stdout: output.stdout,
        stderr: output.stderr,
        status: Some(output.status),
    };
    check(code(&outcome) == Some(0), "wrong status", &outcome)?;
    check(text(&outcome).contains("interrupted"), "not said", &outcome)?;
    check(
        hunt.left() == ["aba-1", "aba-2"],
        &format!("{:?} are left", hunt.left()),
        &outcome,
    )?;
    let replayed = hunt.replay();
    check(
        code(&replayed) != Some(0),
        "the best so far doesn't fail",
        &replayed,
    )
}

fn few_runs() -> Result<(), Failed> {
    let hunt = Hunt::new("minimize.few", bug("aba")?);
    let options = ["--minimize=2", "--jobs", "1", "--sched", "random"];
    let (found, outcome) = hunted(&hunt, &options)?;
    let small = &found["minimized"];
    check(small["stopped"] == "runs", "not stopped", &outcome)?;
    check(small["runs"] == 2, "not as many runs", &outcome)?;
    check(small["schedule"].is_string(), "nothing kept", &outcome)?;
    check(hunt.left().len() == 2, "something is left", &outcome)
}

/// A program that fails for another reason than its schedule.
fn once_only() -> Result<(), Failed> {
    let mut hunt = Hunt::new("minimize.once", "/bin/sh");
    let line = "test -e been-here && exit 0; touch been-here; exit 3";
    hunt.job.args = vec!["-c".into(), line.into()];
    let (found, outcome) = hunted(&hunt, &["--minimize"])?;
    let small = &found["minimized"];
    check(small["result"] == "not-again", "minimized", &outcome)?;
    check(small["failed"] == 0, "it failed again", &outcome)?;
    check(hunt.left() == ["sh-1"], "something is left", &outcome)
}

/// A program that always fails needs no preemption.
fn without_threads() -> Result<(), Failed> {
    let mut hunt = Hunt::new("minimize.none", "/bin/sh");
    hunt.job.args = vec!["-c".into(), "exit 3".into()];
    let (found, outcome) = hunted(&hunt, &["--minimize"])?;
    let small = &found["minimized"];
    check(small["result"] == "minimal", "not minimal", &outcome)?;
    check(small["preemptions"] == 0, "preemptions", &outcome)?;
    packed(&hunt, &found)
}

/// The schedule is part of the recording.
fn packed(hunt: &Hunt, found: &Value) -> Result<(), Failed> {
    let name = found["minimized"]["name"].as_str().unwrap_or_default();
    let folder = Path::new(found["minimized"]["folder"].as_str().unwrap_or_default());
    let schedule = fs::read(folder.join("schedule.txt"))?;
    let clew = |args: &[&str]| {
        let mut job = hunt.job.clone();
        job.program = clew::path().to_owned();
        job.args = args.iter().map(|&arg| arg.to_owned()).collect();
        job.run()
    };
    let packed = clew(&["pack", name, "-o", "packed.clew"]);
    check(code(&packed) == Some(0), "not packed", &packed)?;
    let removed = clew(&["rm", name]);
    check(code(&removed) == Some(0), "not removed", &removed)?;
    let unpacked = clew(&["unpack", "packed.clew"]);
    check(code(&unpacked) == Some(0), "not unpacked", &unpacked)?;
    check(
        fs::read(folder.join("schedule.txt"))? == schedule,
        "another schedule",
        &unpacked,
    )
}

/// Who waits for which lock, where, and where the other one took it.
fn deadlock_lines() -> Result<(), Failed> {
    let hunt = Hunt::new("deadlock.lines", bug("lock_order")?);
    let outcome = hunt.run(&["--runs", RUNS]);
    check(code(&outcome) == Some(0), "not found", &outcome)?;
    let source = fs::read_to_string(source("lock_order"))?;
    let line = |says: &str| format!("lock_order.c:{}", line_of(&source, says));
    let waits = format!("({} in transfer)", line("pthread_mutex_lock(&to->lock)"));
    let taken = format!(
        "taken at {} in transfer",
        line("pthread_mutex_lock(&from->lock)")
    );
    let joins = format!("to end ({} in main)", line("pthread_join"));
    let said = text(&outcome);
    for (what, times) in [(waits, 2), (taken, 2), (joins, 1)] {
        let found = said.matches(&what).count();
        check(found == times, &format!("{found} times {what}"), &outcome)?;
    }
    for lock in ["`accounts[0].lock`", "`accounts[1].lock`"] {
        check(said.contains(lock), &format!("no {lock}"), &outcome)?;
    }
    let outcome = hunt.run(&["--runs", RUNS, "--json"]);
    let facts: Value = serde_json::from_slice(&outcome.stdout)?;
    let threads = facts["found"][0]["deadlock_threads"].as_array();
    let threads = threads.map_or(&[][..], |all| all);
    let waiters = threads.iter().filter(|one| one["waits_for"] == "lock");
    let waiters: Vec<&Value> = waiters.collect();
    check(waiters.len() == 2, "not two wait for locks", &outcome)?;
    // Each waits for what the other has.
    let [one, other] = waiters[..] else {
        return Err("two".into());
    };
    check(
        one["other"] == other["tid"]
            && other["other"] == one["tid"]
            && one["lock"] != other["lock"],
        "they don't wait for each other",
        &outcome,
    )?;
    let line = line_of(&source, "pthread_mutex_lock(&to->lock)");
    check(
        one["line"] == line && one["function"] == "transfer",
        "another place",
        &outcome,
    )
}

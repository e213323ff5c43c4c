//! Scheduling policies: a seed is a schedule, races show, spinning doesn't stop the rest, and
//! programs that are right stay right.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use clew_tests::compare::{difference, report};
use clew_tests::header::Header;
use clew_tests::run::{Job, Outcome};
use clew_tests::{compile, scratch};
use libtest_mimic::{Arguments, Failed, Trial};

const POLICIES: [&str; 3] = ["fair", "random", "pct"];

/// Guests that every policy must run as natively.
const GUESTS: &[&str] = &[
    "signals/between_threads.c",
    "signals/tight_loop.c",
    "signals/waiting.c",
    "threads/cancel.c",
    "threads/conditions.c",
    "threads/futex.c",
    "threads/locks.c",
    "threads/priority_inheritance.c",
    "threads/robust.c",
    "threads/spinning.c",
    "instructions/jit_threads.c",
    "instructions/self_modifying.c",
    "instructions/trap_flag.c",
];

fn main() {
    let mut trials = Vec::new();
    for policy in POLICIES {
        trials.push(Trial::test(format!("{policy}/same seed"), move || {
            same_seed(policy)
        }));
        trials.push(Trial::test(format!("{policy}/spinning"), move || {
            spinning(policy)
        }));
    }
    for policy in &POLICIES[1..] {
        for source in GUESTS {
            for seed in ["1", "2"] {
                trials.push(Trial::test(
                    format!("{policy}/{source}/{seed}"),
                    move || as_natively(policy, source, seed),
                ));
            }
        }
        trials.push(Trial::test(format!("{policy}/lost updates"), || {
            loses_updates(policy)
        }));
    }
    trials.push(Trial::test("random/handler", handler_in_the_middle));
    trials.push(Trial::test("unknown policy", unknown_policy));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn guest(source: &str, name: &str) -> Result<Job, Failed> {
    // Several tests use the same guest.
    static COMPILING: Mutex<()> = Mutex::new(());
    let path: PathBuf = scratch::sources().join("guests").join(source);
    let header = Header::read(&path);
    let one_at_a_time = COMPILING.lock();
    let guest = compile::guest(&path, &header, "static")?;
    drop(one_at_a_time);
    let dir = scratch::fresh(&format!("schedules.{name}.{}", source.replace('/', ".")));
    let mut job = Job::new(guest.program, dir).args(header.args.clone());
    job.env.clone_from(&header.env);
    job.stdin.clone_from(&header.stdin);
    Ok(job)
}

/// Runs to a good end.
fn run(job: &Job) -> Result<Outcome, Failed> {
    let outcome = job.run();
    match outcome.status {
        Some(status) if status.success() => Ok(outcome),
        _ => Err(report("failed", &outcome, &[("clew", job)])),
    }
}

/// The same turns and the same output in each run; with another seed other ones, where the policy
/// has a choice.
fn same_seed(policy: &str) -> Result<(), Failed> {
    let mut job = guest("threads/schedule.c", &format!("seed.{policy}"))?;
    job.args = vec!["order".into()];
    let options = |seed| ["--sched", policy, "--seed", seed, "--debug", "turns"];
    let job_with = |seed| job.under_clew(&options(seed));
    // The fair policy ends turns also by time: with translations at hand none is long, unless the machine is busy.
    run(&job_with("7"))?;
    let first = run(&job_with("7"))?;
    let mut again = run(&job_with("7"))?;
    for _ in 0..4 {
        if policy == "fair" && difference(("first", &first), ("again", &again)).is_some() {
            again = run(&job_with("7"))?;
        }
    }
    let turns = String::from_utf8_lossy(&first.stderr);
    if turns.lines().filter(|line| line.contains("turn:")).count() < 10 {
        return Err(report("no turns", &first, &[("clew", &job_with("7"))]));
    }
    if let Some(what) = difference(("first", &first), ("again", &again)) {
        return Err(format!("the same seed: {what}\n{}", job_with("7").shell_line()).into());
    }
    let other = run(&job_with("8"))?;
    // These threads wait for each other so often that a fair turn never lasts to its end.
    if policy != "fair" && other.stderr == first.stderr {
        return Err("another seed, the same turns".into());
    }
    Ok(())
}

/// Natively this takes seconds, or minutes on one processor.
fn spinning(policy: &str) -> Result<(), Failed> {
    let mut job = guest("threads/spin_rounds.c", &format!("spinning.{policy}"))?;
    job.args = vec!["5000".into()];
    job.timeout = Duration::from_secs(30);
    run(&job.under_clew(&["--sched", policy, "--seed", "3"])).map(drop)
}

fn as_natively(policy: &str, source: &str, seed: &str) -> Result<(), Failed> {
    let job = guest(source, &format!("{policy}.{seed}"))?;
    let native = job.run();
    let job = job.under_clew(&["--sched", policy, "--seed", seed]);
    let outcome = job.run();
    match difference(("native", &native), ("clew", &outcome)) {
        None => Ok(()),
        Some(what) => Err(report(&what, &outcome, &[("clew", &job)])),
    }
}

/// A turn can end in the middle of an addition.
fn loses_updates(policy: &str) -> Result<(), Failed> {
    let mut job = guest("threads/racing.c", &format!("lost.{policy}"))?;
    job.args = vec!["count".into()];
    let mut lost = Vec::new();
    for seed in 1..=12 {
        let outcome = run(&job.under_clew(&["--sched", policy, "--seed", &seed.to_string()]))?;
        let text = String::from_utf8_lossy(&outcome.stdout);
        lost.push(text.trim().parse::<u64>().expect("a number"));
    }
    if lost.iter().filter(|&&count| count > 0).count() < 2 {
        return Err(format!("updates lost by seed: {lost:?}").into());
    }
    Ok(())
}

/// A signal can come in the middle of an addition.
fn handler_in_the_middle() -> Result<(), Failed> {
    let mut job = guest("threads/racing.c", "handler")?;
    job.args = vec!["handler".into()];
    let job = job.under_clew(&["--sched", "random", "--seed", "1"]);
    let outcome = run(&job)?;
    if outcome.stdout != b"a handler's work was lost\n" {
        return Err(report("no race", &outcome, &[("clew", &job)]));
    }
    Ok(())
}

fn unknown_policy() -> Result<(), Failed> {
    let job = Job::new("/bin/true", scratch::fresh("schedules.unknown"))
        .under_clew(&["--sched", "nonsense"]);
    let outcome = job.run();
    let text = String::from_utf8_lossy(&outcome.stderr);
    if outcome.status.and_then(|status| status.code()) != Some(2)
        || !text.contains("fair, random, pct")
    {
        return Err(report("not refused", &outcome, &[("clew", &job)]));
    }
    Ok(())
}

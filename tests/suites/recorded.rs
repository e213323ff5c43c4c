//! Every guest in `tests/guests`, natively, recorded and replayed; races and signals in recordings; a seed
//! is a schedule there too.

use clew_tests::compare::{difference, report};
use clew_tests::header::Header;
use clew_tests::recorded::{self, Recording};
use clew_tests::run::{Job, Outcome};
use clew_tests::{guests, scratch};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let mut trials = guests::trials("recorded", builds, |job, header| {
        recorded::recorded(job, header, &|| {})
    });
    for policy in ["fair", "random", "pct"] {
        trials.push(Trial::test(format!("lost updates/{policy}"), || {
            lost_updates(policy)
        }));
    }
    for policy in ["random", "pct"] {
        trials.push(Trial::test(format!("same seed/{policy}"), || {
            same_seed(policy)
        }));
        for name in UNDER_POLICIES {
            trials.push(Trial::test(format!("{policy}/{name}"), || {
                under_policy(policy, name)
            }));
        }
    }
    trials.push(Trial::test("a race, 200 replays", race));
    trials.push(Trial::test("signals while computing", sampled));
    trials.push(Trial::test("who woke whom", woken_by));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Guests that are recorded with other schedules too.
const UNDER_POLICIES: &[&str] = &[
    "instructions/jit_threads",
    "instructions/self_modifying",
    "instructions/trap_flag",
    "signals/between_threads",
    "signals/tight_loop",
    "signals/waiting",
    "threads/cancel",
    "threads/conditions",
    "threads/futex",
    "threads/priority_inheritance",
    "threads/spinning",
    "threads/waiting_calls",
];

/// Every way to build those that are about images; else the first is enough, since the suite
/// `guests` runs them all.
fn builds(name: &str, header: &Header, mut variants: Vec<String>) -> Vec<String> {
    if header.unrecordable {
        variants.clear();
    } else if !name.starts_with("images/") {
        variants.truncate(1);
    }
    variants
}

/// A guest in its first build, for a test of that name.
fn guest(test: &str, name: &str, args: &[&str]) -> Result<(Job, Header), Failed> {
    let source = scratch::sources().join("guests").join(format!("{name}.c"));
    let mut header = Header::read(&source);
    if !args.is_empty() {
        header.args = args.iter().map(|&arg| arg.into()).collect();
    }
    let variants = clew_tests::compile::variants(&source, &header);
    let test = format!("recorded.{test}.{name}");
    Ok((guests::job(&test, &source, &header, &variants[0])?, header))
}

/// A recording that ended well.
fn record(made: &Recording) -> Result<Outcome, Failed> {
    let outcome = made.job.run();
    match outcome.status {
        Some(status) if status.success() => Ok(outcome),
        _ => Err(report("failed", &outcome, &[("record", &made.job)])),
    }
}

fn under_policy(policy: &str, name: &str) -> Result<(), Failed> {
    let (job, _) = guest(policy, name, &[])?;
    let native = job.run();
    let options = ["--sched", policy, "--seed", "1"];
    let outcome = recorded::outcome(&job, &options)?;
    match difference(("native", &native), ("recorded", &outcome)) {
        None => Ok(()),
        Some(what) => Err(report(&what, &outcome, &[("native", &job)])),
    }
}

/// Threads that add to one variable without a lock lose updates, as natively, in one recording or
/// another; every one of them replays.
fn lost_updates(policy: &str) -> Result<(), Failed> {
    let (job, _) = guest(&format!("lost.{policy}"), "threads/racing", RACE)?;
    let mut lost = Vec::new();
    for seed in ["1", "2", "3", "4"] {
        let outcome = recorded::outcome(&job, &["--sched", policy, "--seed", seed])?;
        let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
        lost.push(text.trim().parse::<u64>().map_err(|_| text)?);
    }
    if lost.iter().all(|&count| count == 0) {
        return Err("no update was lost with any seed".into());
    }
    Ok(())
}

/// So long that turns of every policy end in the midst of it.
const RACE: &[&str] = &["count", "1000000"];

/// What a race came to is what it comes to, however often it is asked.
fn race() -> Result<(), Failed> {
    const TIMES: usize = 200;
    let (job, _) = guest("race", "threads/racing", RACE)?;
    for seed in 1..20 {
        let made = Recording::of(&job, &["--seed", &seed.to_string()]);
        let outcome = record(&made)?;
        if outcome.stdout == b"0\n" {
            continue;
        }
        for _ in 0..TIMES {
            made.replays_as(&outcome)?;
        }
        return Ok(());
    }
    Err("no update was lost with any seed".into())
}

/// A timer's handler, which can come at any instruction, sees what it saw.
fn sampled() -> Result<(), Failed> {
    let (job, _) = guest("sampled", "signals/sampled", &["show"])?;
    let made = Recording::of(&job, &[]);
    let outcome = record(&made)?;
    for _ in 0..10 {
        made.replays_as(&outcome)?;
    }
    Ok(())
}

/// Who woke whom is in the recording: in this guest, each thread the one that was made after it.
fn woken_by() -> Result<(), Failed> {
    const THREADS: u64 = 6;
    let (job, _) = guest("woken", "threads/woken", &[&THREADS.to_string()])?;
    let made = Recording::of(&job, &[]);
    let outcome = record(&made)?;
    made.replays_as(&outcome)?;
    let dump = made.command("dump", &["--json", "--quick"]);
    let dumped = dump.run();
    let mut woken = 0;
    for line in String::from_utf8_lossy(&dumped.stdout).lines() {
        let event: serde_json::Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
        let Some(by) = event["woken_by"].as_u64() else {
            continue;
        };
        let thread = event["thread"].as_u64();
        woken += 1;
        if thread != Some((by + 1) % (THREADS + 1)) {
            return Err(report(&format!("{by} woke {thread:?}"), &dumped, &[]));
        }
    }
    match woken {
        0 => Err(report("nobody was woken", &dumped, &[("dump", &dump)])),
        _ => Ok(()),
    }
}

/// The same seed and the same input give the same turns.
fn same_seed(policy: &str) -> Result<(), Failed> {
    let (job, _) = guest(&format!("seed.{policy}"), "threads/schedule", &["order"])?;
    let switches = |seed: &str| {
        let made = Recording::of(&job, &["--sched", policy, "--seed", seed]);
        let outcome = record(&made)?;
        let dump = made.command("dump", &["--json", "--quick"]);
        let dumped = dump.run();
        let text = String::from_utf8_lossy(&dumped.stdout).into_owned();
        let mut carried = 0;
        let found: Vec<String> = text
            .lines()
            .filter_map(|line| switch(line, &mut carried))
            .collect();
        if found.len() < 10 {
            return Err(report("no switches", &dumped, &[("dump", &dump)]));
        }
        Ok((found, outcome.stdout))
    };
    let first = switches("7")?;
    let again = switches("7")?;
    if first != again {
        let at = first.0.iter().zip(&again.0).position(|(a, b)| a != b);
        return Err(format!("the same seed, other turns: the first is number {at:?}").into());
    }
    if switches("8")?.0 == first.0 {
        return Err("another seed, the same turns".into());
    }
    Ok(())
}

/// Where and to whom a dumped event switches. Checks come by the clock on the wall, so their ticks,
/// `carried` on, are the next event's.
fn switch(line: &str, carried: &mut u64) -> Option<String> {
    let field = |name: &str| {
        let (_, rest) = line.split_once(&format!("\"{name}\":"))?;
        rest.split([',', '}']).next()
    };
    let number = |name: &str| field(name).and_then(|word| word.parse::<u64>().ok());
    let ticks = number("ticks").unwrap_or(0);
    match field("kind")?.trim_matches('"') {
        "check" => *carried += ticks,
        "time" | "values" | "note" => {}
        "switched" => {
            let ticks = ticks + std::mem::take(carried);
            let steps = number("steps").unwrap_or(0);
            return Some(format!("{ticks} {steps} {}", field("to").unwrap_or("0")));
        }
        _ => *carried = 0,
    }
    None
}

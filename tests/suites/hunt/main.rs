//! Hunts: every bug in `guests/bugs` is found, what was found replays, and nothing else is left behind.

mod idiom;
mod minimize;
mod strategies;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use clew_tests::compare::{check, code, text};
use clew_tests::header::Header;
use clew_tests::run::{Job, Outcome};
use clew_tests::{clew, compile, scratch, sources};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};

/// Each bug must be found within so many runs.
const RUNS: &str = "200";

fn main() {
    let mut trials = Vec::new();
    for source in sources::list(&scratch::sources().join("guests/bugs"), &["c"]) {
        let name = format!("found/{}", source.name);
        trials.push(Trial::test(name, move || found(&source.name, &source.path)));
    }
    trials.push(Trial::test("nothing to find", nothing_to_find));
    trials.push(Trial::test("the same seed", same_seed));
    trials.push(Trial::test("conditions", conditions));
    trials.push(Trial::test("deadlock", deadlock));
    trials.push(Trial::test("killed", || ended_early(Signal::KILL)));
    trials.push(Trial::test("interrupted", || ended_early(Signal::INT)));
    trials.push(Trial::test("timeout", timeout));
    trials.push(Trial::test("errors", errors));
    trials.push(Trial::test("chaos", chaos));
    trials.extend(idiom::trials());
    trials.extend(minimize::trials());
    trials.extend(strategies::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A hunt with recordings of its own.
struct Hunt {
    recordings: PathBuf,
    job: Job,
}

impl Hunt {
    fn new(name: &str, program: impl Into<PathBuf>) -> Hunt {
        let dir = scratch::fresh(&format!("hunt.{name}"));
        let recordings = dir.join("recordings");
        let mut job = Job::new(program, dir);
        job.env
            .push(("CLEW_DIR".into(), recordings.display().to_string()));
        job.timeout = Duration::from_secs(120);
        Hunt { recordings, job }
    }

    fn run(&self, options: &[&str]) -> Outcome {
        self.job.through("hunt", options).run()
    }

    fn replay(&self) -> Outcome {
        let mut job = self.job.clone();
        job.program = clew::path().to_owned();
        job.args = vec!["replay".into()];
        job.run()
    }

    /// Names of what there is besides the shared copies.
    fn left(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.recordings)
            .map(|entries| {
                let names = entries.flatten().map(|entry| entry.file_name());
                names
                    .map(|name| name.to_string_lossy().into_owned())
                    .collect()
            })
            .unwrap_or_default();
        names.retain(|name| name != "pool" && name != "latest");
        names.sort();
        names
    }
}

/// Held by whoever compiles.
fn compiling() -> Option<MutexGuard<'static, ()>> {
    static COMPILING: Mutex<()> = Mutex::new(());
    COMPILING.lock().ok()
}

fn guest(name: &str, path: &Path) -> Result<PathBuf, Failed> {
    let _one_at_a_time = compiling();
    let header = Header::read(path);
    Ok(compile::guest(path, &header, "pie")
        .map_err(|why| format!("{name}: {why}"))?
        .program)
}

fn bug(name: &str) -> Result<PathBuf, Failed> {
    guest(
        name,
        &scratch::sources()
            .join("guests/bugs")
            .join(format!("{name}.c")),
    )
}

fn found(name: &str, path: &Path) -> Result<(), Failed> {
    let hunt = Hunt::new(name, guest(name, path)?);
    let outcome = hunt.run(&["--runs", RUNS, "--seed", "7"]);
    check(code(&outcome) == Some(0), "not found", &outcome)?;
    let left = hunt.left();
    check(
        left == [format!("{name}-1")],
        &format!("{left:?} are left"),
        &outcome,
    )?;
    // It failed in the recording, so it fails in every replay.
    let replayed = hunt.replay();
    let failed = replayed.status.is_some_and(|status| {
        status.signal().is_some() || matches!(status.code(), Some(1..123 | 128..))
    });
    check(failed, "the replay doesn't fail", &replayed)?;
    let again = hunt.replay();
    check(again.status == replayed.status, "replays differ", &again)
}

fn nothing_to_find() -> Result<(), Failed> {
    let hunt = Hunt::new("nothing", "/bin/true");
    let outcome = hunt.run(&["--runs", "5"]);
    check(code(&outcome) == Some(1), "wrong status", &outcome)?;
    check(
        text(&outcome).contains("no failure in 5 runs"),
        "wrong report",
        &outcome,
    )?;
    check(hunt.left().is_empty(), "something is left", &outcome)
}

/// A seed gives the same schedules, and the printed command the same failure.
fn same_seed() -> Result<(), Failed> {
    let program = bug("lost_update")?;
    let options = [
        "--json", "--jobs", "1", "--runs", RUNS, "--seed", "3", "--sched", "random",
    ];
    let one = Hunt::new("seed.one", &program).run(&options);
    // Schedules are made for the length that the first run shows. It is rounded, but may lie at an edge.
    let length = |outcome: &Outcome| {
        let text = text(outcome);
        let from = text.find("\"length\":").unwrap_or(0);
        let number = text[from..].split(',').next();
        number.unwrap_or_default().to_owned()
    };
    let mut hunts = (0..8).map(|_| Hunt::new("seed.two", &program).run(&options));
    let two = hunts.find(|two| length(two) == length(&one));
    let Some(two) = two else {
        return Err("eight hunts, and none measured the same length".into());
    };
    let plan = |outcome: &Outcome| {
        let text = text(outcome);
        let from = text.find("\"options\":").unwrap_or(0);
        text[from..]
            .split(']')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    check(plan(&one).contains("--seed"), "no options", &one)?;
    check(
        plan(&one) == plan(&two),
        &format!("not {}", plan(&one)),
        &two,
    )?;
    let words: Vec<String> = plan(&one)
        .replace("\"options\":[", "")
        .split(',')
        .map(|word| word.trim_matches('"').to_owned())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let hunt = Hunt::new("seed.again", &program);
    let outcome = hunt.job.through("record", &words).run();
    check(
        code(&outcome) == Some(1),
        "the same schedule doesn't fail",
        &outcome,
    )?;
    // Another part of the seeds is another hunt.
    let options = [
        "--json", "--jobs", "1", "--runs", RUNS, "--seed", "3", "--sched", "random", "--shard",
        "2/3",
    ];
    let other = Hunt::new("seed.other", &program).run(&options);
    check(plan(&other) != plan(&one), "shards are the same", &other)
}

fn conditions() -> Result<(), Failed> {
    let script = |name: &str, options: &[&str], line: &str| {
        let mut hunt = Hunt::new(name, "/bin/sh");
        hunt.job.args = vec!["-c".into(), line.into()];
        let outcome = hunt.run(&[&["--runs", "2"], options].concat());
        code(&outcome)
    };
    let expected = [
        (script("exit", &[], "exit 3"), 0),
        (script("other", &["--fail-if", "exit=4"], "exit 3"), 1),
        (
            script("signal", &["--fail-if", "exit!=0"], "kill -TERM $$"),
            1,
        ),
        (
            script(
                "output",
                &["--fail-if", "output=lost [1-9]"],
                "echo lost 3 >&2",
            ),
            0,
        ),
        (
            script("command", &["--fail-if", "grep -q 17"], "echo 17"),
            0,
        ),
        (
            script(
                "neither",
                &["--fail-if", "grep -q 17", "--fail-if", "signal"],
                "echo 18",
            ),
            1,
        ),
    ];
    match expected
        .iter()
        .position(|(found, wanted)| *found != Some(*wanted))
    {
        None => Ok(()),
        Some(n) => Err(format!("case {n}: {:?}", expected[n]).into()),
    }
}

fn deadlock() -> Result<(), Failed> {
    let hunt = Hunt::new("deadlock", bug("lock_order")?);
    let started = Instant::now();
    let outcome = hunt.run(&["--runs", RUNS, "--fail-if", "deadlock"]);
    check(code(&outcome) == Some(0), "not found", &outcome)?;
    let said = text(&outcome);
    check(
        said.matches(" waits for the lock ").count() == 2,
        "no locks in the report",
        &outcome,
    )?;
    check(said.contains("to end"), "nobody joins", &outcome)?;
    // It isn't a timeout that found it.
    check(
        started.elapsed() < Duration::from_secs(60),
        "slow",
        &outcome,
    )
}

fn timeout() -> Result<(), Failed> {
    let mut hunt = Hunt::new("timeout", "/bin/sh");
    hunt.job.args = vec!["-c".into(), "while :; do :; done".into()];
    let outcome = hunt.run(&["--timeout", "300ms", "--runs", "2"]);
    check(code(&outcome) == Some(0), "not found", &outcome)?;
    check(text(&outcome).contains("timeout"), "no timeout", &outcome)?;
    check(hunt.left() == ["sh-1"], "not kept", &outcome)
}

/// A hunt that is ended leaves no folders of runs, and none of its processes.
fn ended_early(signal: Signal) -> Result<(), Failed> {
    let mut hunt = Hunt::new(&format!("ended.{}", signal.as_raw()), "/bin/sleep");
    // Odd enough to be found in /proc.
    let seconds = format!("100.{}{}", std::process::id(), signal.as_raw());
    hunt.job.args = vec![seconds.clone()];
    let job = hunt.job.through("hunt", &["--jobs", "2"]);
    let mut child = Command::new(&job.program)
        .args(&job.args)
        .env("CLEW_DIR", &hunt.recordings)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let within = |limit: u64, what: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(limit);
        while !what() && Instant::now() < end {
            thread::sleep(Duration::from_millis(20));
        }
        what()
    };
    let running = || !hunt.left().is_empty() && sleeps(&seconds);
    let began = within(30, &running);
    kill_process(Pid::from_child(&child), signal)?;
    let status = child.wait()?;
    let clean = within(30, &|| hunt.left().is_empty() && !sleeps(&seconds));
    match (began, clean) {
        (false, _) => Err("no run began".into()),
        (_, false) => Err(format!("{:?} is left after {status}", hunt.left()).into()),
        _ if signal == Signal::INT && status.code() != Some(130) => Err(status.to_string().into()),
        _ => Ok(()),
    }
}

/// Whether a program with this argument runs; the hunt itself has it too, but more.
fn sleeps(argument: &str) -> bool {
    let Ok(entries) = fs::read_dir("/proc") else {
        return false;
    };
    let line = |path: PathBuf| fs::read(path.join("cmdline")).unwrap_or_default();
    let ours = format!("/bin/sleep\0{argument}\0");
    entries
        .flatten()
        .any(|entry| line(entry.path()) == ours.as_bytes())
}

fn errors() -> Result<(), Failed> {
    let hunt = Hunt::new("errors", "/no/such/program");
    check(
        code(&hunt.run(&[])) == Some(127),
        "missing program",
        &hunt.run(&[]),
    )?;
    let hunt = Hunt::new("errors", "/bin/true");
    for bad in [
        &["--sched", "nonsense"][..],
        &["--shard", "3/2"],
        &["--fail-if", "output=("],
        &["--time", "never"],
        &["--chaos=odd"],
    ] {
        let outcome = hunt.run(bad);
        check(
            code(&outcome) == Some(2),
            &format!("{bad:?} isn't refused"),
            &outcome,
        )?;
    }
    Ok(())
}

/// A right program stays right whatever the kernel does, and its recordings replay.
fn chaos() -> Result<(), Failed> {
    let mut hunt = Hunt::new("chaos", "/bin/sh");
    let line = "test $(seq 1 3000 | sort -n | tail -n 1) = 3000 && seq 1 2000 | cat | wc -l | grep -q 2000";
    hunt.job.args = vec!["-c".into(), line.into()];
    let outcome = hunt.run(&["--chaos", "--runs", "6"]);
    check(code(&outcome) == Some(1), "a right program fails", &outcome)?;
    for seed in ["1", "2"] {
        let recorded = hunt
            .job
            .through("record", &["--chaos", "--seed", seed])
            .run();
        check(
            code(&recorded) == Some(0),
            "a right program fails",
            &recorded,
        )?;
        let replayed = hunt.replay();
        check(code(&replayed) == Some(0), "a replay differs", &replayed)?;
    }
    Ok(())
}

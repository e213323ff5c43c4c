//! The soak: for a given time, random picks of programs, inputs, policies, signals and loads are recorded and replayed with
//! `--verify`. The first difference, hang or engine error ends it, with everything kept.

#![forbid(unsafe_code)]

mod picks;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use clew_tests::random::Random;
use clew_tests::recorded::Recording;
use clew_tests::run::Outcome;
use rustix::process::{Pid, Signal, kill_process_group};

use picks::{Pick, Picks};

/// Record and replay random picks of programs until the time is up or something differs
#[derive(Parser)]
#[command(name = "tools/soak", after_help = EXAMPLES)]
struct Line {
    /// How long
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Stop after so many runs
    #[arg(long)]
    runs: Option<u64>,
    /// At the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Begin with this run; without it, another one each time
    #[arg(long)]
    seed: Option<u64>,
    /// Only picks whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Long workloads too
    #[arg(long)]
    long: bool,
    /// Go on after a failure
    #[arg(long)]
    go_on: bool,
    /// Where failures are kept
    #[arg(long, default_value = "soak-failures")]
    keep: PathBuf,
}

const EXAMPLES: &str = "Examples:
  tools/soak --minutes 120
  tools/soak --only real/sqlite --runs 50
  tools/soak --seed 4711 --runs 1 --jobs 1     a run that failed, again";

struct Soak {
    line: Line,
    picks: Picks,
    /// The number of the next run, which is its seed.
    next: AtomicU64,
    last: u64,
    over: AtomicBool,
    told: Mutex<Told>,
}

/// What came of it, by kind of pick.
#[derive(Default)]
struct Told {
    runs: BTreeMap<String, u64>,
    failures: Vec<String>,
}

fn main() -> ExitCode {
    let line = Line::parse();
    let picks = Picks::new(line.only.as_deref(), line.long);
    if picks.is_empty() {
        eprintln!("soak: nothing is called like that");
        return ExitCode::from(2);
    }
    let first = line.seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH);
        since.unwrap_or_default().as_secs() % 1_000_000 * 1000
    });
    let soak = Soak {
        picks,
        next: AtomicU64::new(first),
        last: line.runs.map_or(u64::MAX, |runs| first + runs),
        over: AtomicBool::new(false),
        told: Mutex::default(),
        line,
    };
    let end = Instant::now() + Duration::from_secs(soak.line.minutes * 60);
    println!("soak: {} picks, from seed {first}", soak.picks.len());
    thread::scope(|scope| {
        for _ in 0..soak.line.jobs {
            scope.spawn(|| soak.work(end));
        }
    });
    soak.sum_up()
}

impl Soak {
    fn work(&self, end: Instant) {
        while Instant::now() < end && !self.over.load(Ordering::Relaxed) {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.last {
                return;
            }
            let mut random = Random::new(seed);
            let pick = match self.picks.choose(seed, &mut random) {
                Ok(pick) => pick,
                Err(why) => {
                    self.failed(seed, "a pick", &why);
                    continue;
                }
            };
            let what = one(seed, &pick, &mut random, &self.line.keep);
            let mut told = self.told.lock().expect("nobody panics here");
            *told.runs.entry(pick.kind.clone()).or_default() += 1;
            let runs: u64 = told.runs.values().sum();
            if runs.is_multiple_of(50) {
                println!("soak: {runs} runs, {} failures", told.failures.len());
            }
            drop(told);
            match what {
                Some(what) => self.failed(seed, &pick.name, &what),
                None => pick.remove(),
            }
        }
    }

    fn failed(&self, seed: u64, name: &str, what: &str) {
        println!("soak: seed {seed}, {name}: {what}");
        let line = format!("seed {seed}, {name}: {}", what.lines().next().unwrap_or(""));
        self.told
            .lock()
            .expect("nobody panics here")
            .failures
            .push(line);
        if !self.line.go_on {
            self.over.store(true, Ordering::Relaxed);
        }
    }

    fn sum_up(&self) -> ExitCode {
        let told = self.told.lock().expect("nobody panics here");
        for (kind, runs) in &told.runs {
            println!("{runs:8}  {kind}");
        }
        for failure in &told.failures {
            println!("failed: {failure}");
        }
        let runs: u64 = told.runs.values().sum();
        println!("soak: {runs} runs, {} failures", told.failures.len());
        ExitCode::from(!told.failures.is_empty() as u8)
    }
}

/// Records and replays; tells what went wrong.
fn one(seed: u64, pick: &Pick, random: &mut Random, keep: &Path) -> Option<String> {
    let options = options(pick, random);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let made = Recording::of(&pick.job, &options);
    pick.prepare();
    let load = Load::new(random.below(3));
    let pokes = pokes(pick, random);
    let recorded = made.job.run_with(|pid| poke(pid, pokes));
    drop(load);
    let what = broken(&recorded).or_else(|| {
        let replayed = made.replays_as(&recorded);
        replayed.err().map(|failed| {
            let text = failed.message().unwrap_or("the replay failed");
            format!("the replay differs\n{text}")
        })
    })?;
    let folder = keep.join(format!("{seed}"));
    let commands = format!(
        "{}\n{what}\n--- record\n{}\n{}",
        pick.name,
        made.job.shell_line(),
        recorded.printed()
    );
    let kept = fs::create_dir_all(&folder)
        .and_then(|()| fs::write(folder.join("what.txt"), commands))
        .and_then(|()| fs::rename(&made.folder, folder.join("recording")));
    let kept = match kept {
        Ok(()) => format!("kept in {}", folder.display()),
        Err(error) => format!("couldn't be kept in {}: {error}", folder.display()),
    };
    Some(format!("{what}\n{kept}"))
}

/// What no program does by itself.
fn broken(recorded: &Outcome) -> Option<String> {
    let said = String::from_utf8_lossy(&recorded.stderr);
    match recorded.status {
        None => Some(format!(
            "hung while it was recorded\n{}",
            recorded.printed()
        )),
        Some(status) if status.code() == Some(125) || said.contains("engine bug") => Some(format!(
            "{status} while it was recorded\n{}",
            recorded.printed()
        )),
        Some(_) => None,
    }
}

fn options(pick: &Pick, random: &mut Random) -> Vec<String> {
    let policy = match random.below(10) {
        0 | 1 => "random",
        2 => "pct",
        _ => "fair",
    };
    let seed = random.below(1 << 20);
    let mut options = vec![format!("--sched={policy}"), format!("--seed={seed}")];
    if pick.bears_chaos && random.below(5) == 0 {
        options.push("--chaos".into());
    }
    if random.below(10) == 0 {
        options.push("--no-cache".into());
    }
    options
}

/// Threads that keep the machine busy.
struct Load(std::sync::Arc<AtomicBool>);

impl Load {
    fn new(threads: usize) -> Load {
        let on = std::sync::Arc::new(AtomicBool::new(true));
        for _ in 0..threads {
            let on = on.clone();
            thread::spawn(move || while on.load(Ordering::Relaxed) {});
        }
        Load(on)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// When to send what: signals that programs don't mind.
fn pokes(pick: &Pick, random: &mut Random) -> Vec<(Duration, Signal)> {
    if random.below(3) != 0 {
        return Vec::new();
    }
    (0..random.below(20))
        .flat_map(|_| {
            let after = Duration::from_micros(random.below(20_000) as u64);
            let pause = Duration::from_micros(random.below(3_000) as u64);
            match random.below(3) {
                0 => vec![(after, Signal::WINCH)],
                1 => vec![(after, Signal::URG)],
                _ if pick.stops => Vec::new(),
                _ => vec![(after, Signal::STOP), (pause, Signal::CONT)],
            }
        })
        .collect()
}

/// Sends them, beside the run, as long as its group is there.
fn poke(pid: Pid, pokes: Vec<(Duration, Signal)>) {
    thread::spawn(move || {
        for (after, signal) in pokes {
            thread::sleep(after);
            if kill_process_group(pid, signal).is_err() {
                return;
            }
        }
    });
}

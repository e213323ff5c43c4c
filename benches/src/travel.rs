//! Time travel: recordings are made, gdb is driven by machine, and what a person waits for is measured.
//!
//! Times are of whole commands, gdb's share in them included; `gdb` alone is measured too, so that its
//! start can be told apart.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clew_tests::family::Family;
use clew_tests::header::Header;
use clew_tests::mi::Mi;
use clew_tests::run::Job;
use clew_tests::{compile, scratch};

use crate::measure;

/// No command takes longer.
const LIMIT: Duration = Duration::from_secs(300);
/// Places that are gone to.
const PLACES: usize = 40;
/// Runs of what is done only once in a session.
const RUNS: usize = 3;

/// What is measured, in the order of the table.
pub const ROWS: &[(&str, Measure)] = &[
    (
        "attach and reach the end, 1 s recording, less its replay",
        attach,
    ),
    ("seek to any position of it, median", seek),
    ("reverse-stepi at any place of it, median", |bench| {
        bench.back("reverse-stepi")
    }),
    ("reverse-step at any place of it, median", |bench| {
        bench.back("reverse-step")
    }),
    (
        "reverse-continue to the last of 6 million writes",
        |bench| bench.last_write("calls"),
    ),
    ("the same in a loop without calls", |bench| {
        bench.last_write("plain")
    }),
    ("condition false 10 million times, forwards", |bench| {
        bench.condition("continue", "start")
    }),
    ("condition false 10 million times, backwards", |bench| {
        bench.condition("reverse-continue", "end")
    }),
    ("transition watch, graph of N = 34,546 nodes", |bench| {
        bench.transition("1")
    }),
    ("transition watch, graph of 8 N", |bench| {
        bench.transition("8")
    }),
    ("memory of a session on a guest of 2 GiB", memory),
];

pub type Measure = fn(&Bench) -> Result<Measured, String>;

/// What came out.
pub struct Measured {
    pub found: Amount,
    pub must: Amount,
    pub note: String,
}

#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Amount {
    Time(Duration),
    Bytes(u64),
}

impl Measured {
    fn time(found: Duration, must_ms: u64) -> Measured {
        Measured {
            found: Amount::Time(found),
            must: Amount::Time(Duration::from_millis(must_ms)),
            note: String::new(),
        }
    }

    fn note(mut self, note: String) -> Measured {
        self.note = note;
        self
    }
}

pub struct Bench {
    clew: PathBuf,
    dir: PathBuf,
}

impl Bench {
    pub fn new(clew: &Path, dir: &Path) -> Bench {
        Bench {
            clew: clew.to_owned(),
            dir: dir.join("travel"),
        }
    }

    fn job(&self, args: &[&str]) -> Job {
        let _ = std::fs::create_dir_all(&self.dir);
        let mut job = Job::new(&self.clew, &self.dir).args(args.iter().copied());
        let recordings = self.dir.join("recordings").to_string_lossy().into_owned();
        job.env.push(("CLEW_DIR".into(), recordings));
        job.timeout = LIMIT;
        job
    }

    /// Records a guest of the tests anew; the recording's name.
    fn record(&self, guest: &str, args: &[&str]) -> Result<String, String> {
        let source = scratch::sources()
            .join("guests/travel")
            .join(format!("{guest}.c"));
        let header = Header::read(&source);
        let built = compile::guest(&source, &header, &compile::variants(&source, &header)[0])?;
        let name = [&[guest], args].concat().join("-");
        // The last time's.
        drop(self.job(&["rm", &name]).run());
        let program = built.program.to_string_lossy().into_owned();
        let mut job = self.job(&["record", "-n", &name, "--", &program]);
        job.args.extend(args.iter().map(|&arg| arg.to_owned()));
        let outcome = job.run();
        match outcome.status {
            Some(status) if status.success() => Ok(name),
            _ => Err(format!(
                "record {name}: {}\n{}",
                outcome.ending(),
                outcome.printed()
            )),
        }
    }

    fn session(&self, name: &str, at: &str) -> Result<Mi, String> {
        let job = self.job(&[
            "debug",
            name,
            "--at",
            at,
            "--",
            "-nx",
            "-q",
            "--interpreter=mi",
        ]);
        let mut mi = Mi::start(&job);
        mi.command("-gdb-set confirm off")?;
        Ok(mi)
    }

    /// How long a whole command takes.
    fn once(&self, args: &[&str]) -> Result<Duration, String> {
        let mut command = self.job(args).command();
        Ok(measure::run(&mut command, None, LIMIT)?.wall)
    }

    /// The median of several, after a warm-up.
    fn wall(&self, args: &[&str]) -> Result<Duration, String> {
        let mut times = Vec::new();
        for _ in 0..=RUNS {
            times.push(self.once(args)?);
        }
        Ok(median(times.split_off(1)))
    }

    /// Places all over a recording, by the ticks of its events.
    fn places(&self, name: &str) -> Result<Vec<String>, String> {
        let told = self.job(&["dump", name, "--json", "--quick"]).run();
        let mut ways = Vec::new();
        for line in String::from_utf8_lossy(&told.stdout).lines() {
            let event: serde_json::Value =
                serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
            ways.push(event["ticks"].as_u64().unwrap_or(0));
        }
        let total: u64 = ways.iter().sum();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut places = Vec::new();
        while places.len() < PLACES {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let mut left = (random >> 16) % total.max(1);
            for (event, &ticks) in ways.iter().enumerate() {
                if left < ticks {
                    places.push(format!("{event}+{left}"));
                    break;
                }
                left -= ticks;
            }
        }
        Ok(places)
    }

    fn back(&self, command: &str) -> Result<Measured, String> {
        let name = self.record("work", &["1400"])?;
        let mut mi = self.session(&name, "end")?;
        let mut times = Vec::new();
        for place in self.places(&name)? {
            mi.does(&format!("clew seek {place}"))?;
            let start = Instant::now();
            mi.go(command)?;
            times.push(start.elapsed());
        }
        let worst = times.iter().max().copied().unwrap_or_default();
        Ok(Measured::time(median(times), 50).note(format!("at most {:.0?}", worst)))
    }

    fn last_write(&self, kind: &str) -> Result<Measured, String> {
        let name = self.record("writes", &[kind, "6000000"])?;
        let mut times = Vec::new();
        for _ in 0..RUNS {
            let mut mi = self.session(&name, "end")?;
            mi.command("-break-watch counter")?;
            let start = Instant::now();
            mi.go("-exec-continue --reverse")?;
            times.push(start.elapsed());
            let value = mi.print("counter")?;
            if value != "5999999" {
                return Err(mi.failure(&format!("counter is {value}")));
            }
        }
        Ok(Measured::time(median(times), 300)
            .note("rr.soft: 0.8 s, and never for the second".into()))
    }

    fn condition(&self, command: &str, at: &str) -> Result<Measured, String> {
        let name = self.record("cond", &["10000000"])?;
        let mut times = Vec::new();
        for _ in 0..RUNS {
            let mut mi = self.session(&name, at)?;
            mi.command("-break-insert -c \"n == -1\" called")?;
            let start = Instant::now();
            let stop = mi.go(command)?;
            times.push(start.elapsed());
            if stop.reason() != "no-history" {
                return Err(mi.failure("it stopped"));
            }
        }
        let must = if at == "start" { 3000 } else { 6000 };
        Ok(Measured::time(median(times), must))
    }

    fn transition(&self, scale: &str) -> Result<Measured, String> {
        let name = self.record("graph", &[scale])?;
        let time = self.wall(&["watch", &name, "has_cycle() == 1"])?;
        let must = if scale == "1" { 2000 } else { 3000 };
        Ok(Measured::time(time, must).note("FReD: 15 to 19 s".into()))
    }
}

/// In turn, so that a change of the machine's mood meets both.
fn attach(bench: &Bench) -> Result<Measured, String> {
    let name = bench.record("work", &["1400"])?;
    let gdb = ["-nx", "-q", "-batch"];
    let start = ["debug", &name, "--at", "end", "--"];
    let args = [&start[..], &gdb, &["-ex", "info registers rip"]].concat();
    let (mut replays, mut attached) = (Vec::new(), Vec::new());
    for round in 0..=RUNS {
        let times = [bench.once(&["replay", &name])?, bench.once(&args)?];
        // The first was a warm-up.
        if round > 0 {
            replays.push(times[0]);
            attached.push(times[1]);
        }
    }
    let (replay, attached) = (median(replays), median(attached));
    let alone = gdb_alone(&gdb)?;
    let note = format!(
        "{:.2} s in all; replay {:.2} s, gdb's own start {:.2} s of it",
        attached.as_secs_f64(),
        replay.as_secs_f64(),
        alone.as_secs_f64()
    );
    Ok(Measured::time(attached.saturating_sub(replay), 500).note(note))
}

/// What gdb takes to begin and end.
fn gdb_alone(args: &[&str]) -> Result<Duration, String> {
    let mut times = Vec::new();
    for _ in 0..=RUNS {
        let mut command = Command::new("gdb");
        command.args(args);
        times.push(measure::run(&mut command, None, LIMIT)?.wall);
    }
    Ok(median(times.split_off(1)))
}

fn seek(bench: &Bench) -> Result<Measured, String> {
    let name = bench.record("work", &["1400"])?;
    let mut mi = bench.session(&name, "end")?;
    let mut times = Vec::new();
    for place in bench.places(&name)? {
        let start = Instant::now();
        mi.does(&format!("clew seek {place}"))?;
        times.push(start.elapsed());
    }
    let worst = times.iter().max().copied().unwrap_or_default();
    Ok(Measured::time(median(times), 300).note(format!("at most {:.0?}", worst)))
}

/// Everything a session takes, when it has gone to and fro, beside the guest itself.
fn memory(bench: &Bench) -> Result<Measured, String> {
    let name = bench.record("big", &["2048", "6"])?;
    let mut mi = bench.session(&name, "end")?;
    let mut most = resident(&mi);
    mi.command("-break-watch round_number")?;
    for _ in 0..5 {
        mi.go("-exec-continue --reverse")?;
        most = most.max(resident(&mi));
    }
    for place in bench.places(&name)?.iter().take(10) {
        mi.does(&format!("clew seek {place}"))?;
        most = most.max(resident(&mi));
    }
    const GUEST: u64 = 2 << 30;
    Ok(Measured {
        found: Amount::Bytes(most),
        must: Amount::Bytes(all_memory() / 4 + GUEST),
        note: "a quarter of the machine's for snapshots, and the guest itself".into(),
    })
}

/// Memory of all processes of a session, what they share counted once.
fn resident(mi: &Mi) -> u64 {
    let family = Family::of(mi.pid());
    let of = |pid: i32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    };
    family
        .members()
        .map(|process| of(process.pid.as_raw_nonzero().get()))
        .sum()
}

fn all_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

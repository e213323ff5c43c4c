//! The command line of `clew hunt`: flags and their help.

use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use clew_engine::kernel::chaos::Kinds;
use clew_hunt::{Condition, Shard, Time};

use crate::arguments::{ALL_CHAOS, Guest};

pub const HUNT_HELP: &str = "\
The program is run again and again, each time under another schedule, and each run is a recording. One that fails is kept; \
the others leave nothing. The first run is an ordinary one, which shows how long the program is. Runs get no input \
(/dev/null) and their output isn't shown; replay shows it.

A CMD given to --fail-if is run by /bin/sh after each run, with the program's output as its input and HUNT_ENDED (exit, \
signal, timeout, deadlock) and HUNT_STATUS in its environment; status 0 means that the run failed.

Exit status: 0 if a failing run was found, 1 if none was, 130 if it was interrupted before, 2 for a wrong command line, 125 \
if the program can't be recorded.

Examples:
  clew hunt ./test
  clew hunt --runs 5000 --jobs 8 --keep 3 -- ./test --filter queue
  clew hunt --minimize ./test                           the fewest preemptions that make it fail
  clew hunt --time 10m --fail-if 'output=lost [1-9]' ./server-test
  clew hunt --fail-if race ./test                       a run with a data race, however it ended (as clew races finds them)
  clew hunt --shard 3/20 --seed 1 --time 30m ./test     one of twenty machines
  clew hunt merge part-*.json                           what all of them found, from what --json printed";

#[derive(Debug, Args)]
pub struct Hunt {
    /// How many runs at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: Option<u64>,

    /// How long at most (30, 90s, 10m, 2h); without this or --runs: 1000 runs. Or what the program's clocks, sleeps and timers
    /// follow: virtual, which jumps when all threads wait, or real (default: virtual, unless the first run makes processes or
    /// sockets)
    #[arg(long, value_name = "T", value_parser = str::parse::<Times>)]
    pub time: Vec<Times>,

    /// How many runs at once (default: as many as there are processors)
    #[arg(short, long, value_name = "J", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub jobs: Option<u64>,

    /// Which schedules: mixed (the others in turn), random (turns of random length, in random order), pct (random
    /// priorities that change at a few places), idiom (led to orders of accesses to shared memory that earlier runs didn't
    /// show), chaos (random, with --chaos); choices at accesses to shared memory alone: surw (all interleavings of some as
    /// likely), pos (a priority for each), points (priorities of threads that change at a few), delay (few delays), hold (a
    /// thread stays where it is), meet (threads are led to one place)
    #[arg(long, value_name = "STRATEGY", value_enum, default_value_t = Sched::Mixed)]
    pub sched: Sched,

    /// For pct: how many ordering constraints the bug needs (default: 2, 3 and 4 in turn)
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub depth: Option<u32>,

    /// Where all decisions come from: the same number gives the same schedules
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// What counts as failing; may be given several times: exit!=0, exit=N, signal, deadlock, timeout, race, output=REGEX, or
    /// a command (default: the first, third, fourth and fifth)
    #[arg(long, value_name = "WHAT", value_parser = str::parse::<Condition>)]
    pub fail_if: Vec<Condition>,

    /// How long a run may take (default: twenty times the first one, and at least 10 seconds)
    #[arg(long, value_name = "T", value_parser = duration)]
    pub timeout: Option<Duration>,

    /// Go on until so many failing runs were kept
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub keep: u64,

    /// Run what was found again with fewer and fewer preemptions, and show the lines where those are that it needs; with at
    /// most N more runs for each (default: 500)
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "500", value_parser = clap::value_parser!(u64).range(1..))]
    pub minimize: Option<u64>,

    /// Then compare failing runs with passing ones, as clew diagnose does; goes on until there are some of each
    #[arg(long, conflicts_with = "json")]
    pub diagnose: bool,

    /// Make the I-th of N parts of all runs; parts have different schedules. `auto`: as the variables of batch systems and CI
    /// matrices say (see docs/hunt.md)
    #[arg(long, value_name = "I/N", default_value = "1/1", value_parser = shard)]
    pub shard: Shard,

    /// Do what the kernel may do and seldom does, as `clew record --chaos`
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true,
        default_missing_value = ALL_CHAOS, value_parser = Kinds::parse)]
    pub chaos: Option<Kinds>,

    /// Show the program only what nearly every CPU has, so that the recordings replay on other machines
    #[arg(long)]
    pub portable: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub guest: Guest,
}

/// What `--time` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    Limit(Duration),
    Clock(Time),
}

impl FromStr for Times {
    type Err = String;

    fn from_str(text: &str) -> Result<Times, String> {
        Ok(match text {
            "virtual" => Times::Clock(Time::Virtual),
            "real" => Times::Clock(Time::Real),
            text => Times::Limit(duration(text)?),
        })
    }
}

impl Hunt {
    /// How long it may take.
    pub fn limit(&self) -> Option<Duration> {
        let mut times = self.time.iter().rev();
        times.find_map(|time| match time {
            Times::Limit(limit) => Some(*limit),
            Times::Clock(_) => None,
        })
    }

    /// Which time the program has.
    pub fn clock(&self) -> Time {
        let mut times = self.time.iter().rev();
        let clock = times.find_map(|time| match time {
            Times::Clock(clock) => Some(*clock),
            Times::Limit(_) => None,
        });
        clock.unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sched {
    Mixed,
    Random,
    Pct,
    Chaos,
    Idiom,
    Surw,
    Pos,
    Points,
    Delay,
    Hold,
    Meet,
}

#[derive(Debug, Args)]
pub struct Guard {
    pub dir: std::path::PathBuf,
    pub prefix: String,
}

#[derive(Debug, Args)]
pub struct ExplainRun {
    pub folder: std::path::PathBuf,
    /// So many preemptions at most
    pub most: usize,
}

fn shard(text: &str) -> Result<Shard, String> {
    match text {
        "auto" => Shard::by_environment(|name| std::env::var(name).ok()),
        text => text.parse(),
    }
}

/// `90`, `90s`, `1.5m`, `2h`, `500ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err("a time is a number with ms, s, m, h or d behind it".into()),
    };
    let number: f64 = digits.parse().map_err(|_| "a time is a number, like 90s")?;
    Duration::try_from_secs_f64(number * unit)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "it must be more than nothing".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["", "0", "-1", "x", "5y", "1e99"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}

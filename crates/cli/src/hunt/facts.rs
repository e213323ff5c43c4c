//! What `clew hunt --json` prints. In: a report. Out: the same facts for machines.

use clew_hunt::explain::{Crash, Explained, Preemption, Waiting};
use clew_hunt::minimize::{Minimized, Smaller, Stopped as Halted};
use clew_hunt::run::Ended;
use clew_hunt::{Found, Report, Stopped};
use serde::Serialize;

#[derive(Serialize)]
pub struct Facts {
    runs: u64,
    failed: u64,
    seconds: f64,
    /// Work of the threads in an ordinary run, in ticks.
    length: Option<u64>,
    threads: u64,
    /// Of accesses, for --sched idiom.
    orders: Option<Orders>,
    stopped: &'static str,
    found: Vec<FoundFacts>,
}

#[derive(Serialize)]
struct Orders {
    seen: usize,
    tried: usize,
    untested: usize,
}

#[derive(Serialize)]
struct FoundFacts {
    name: String,
    folder: String,
    run: u64,
    after_runs: u64,
    why: String,
    ended: String,
    deadlock: Option<String>,
    /// With lines; none if it isn't one, or they can't be told.
    deadlock_threads: Option<Vec<Waiting>>,
    /// Where it died by a signal: process, thread, stack with lines.
    crash: Option<Crash>,
    preemptions: u64,
    /// Which strategy made the schedule.
    strategy: &'static str,
    options: Vec<String>,
    /// Only with `--minimize`.
    #[serde(skip_serializing_if = "Option::is_none")]
    minimized: Option<MinimizedFacts>,
}

/// Of a run that couldn't be made smaller only `result` and what it tells.
#[derive(Default, Serialize)]
struct MinimizedFacts {
    /// minimal, stopped, not-again, error.
    result: &'static str,
    /// runs, time, interrupted.
    stopped: Option<&'static str>,
    name: Option<String>,
    folder: Option<String>,
    schedule: Option<String>,
    why: Option<String>,
    ended: Option<String>,
    preemptions_before: Option<u64>,
    preemptions: Option<u64>,
    runs: Option<u64>,
    seconds: Option<f64>,
    /// The schedule was followed so often again.
    tried: Option<u64>,
    /// And failed so often; if it isn't minimal: with the first run's options.
    failed: Option<u64>,
    options: Option<Vec<String>>,
    /// Options of `clew debug` for the program whose threads these are.
    program: Option<Vec<String>>,
    switches: Option<Vec<Preemption>>,
    deadlock_threads: Option<Vec<Waiting>>,
    /// Why there are no lines.
    no_lines: Option<String>,
}

impl Facts {
    pub fn of(report: &Report) -> Facts {
        Facts {
            runs: report.tally.runs,
            failed: report.tally.failed,
            seconds: report.tally.elapsed.as_secs_f64(),
            length: report.tally.length,
            threads: report.tally.threads,
            orders: report.tally.coverage.map(|coverage| Orders {
                seen: coverage.seen,
                tried: coverage.tried,
                untested: coverage.untested,
            }),
            stopped: match report.stopped {
                Stopped::Kept => "kept",
                Stopped::Runs => "runs",
                Stopped::Time => "time",
                Stopped::Interrupted => "interrupted",
            },
            found: report.found.iter().map(found).collect(),
        }
    }
}

fn found(found: &Found) -> FoundFacts {
    let explained = found.explained.as_ref().and_then(|told| told.as_ref().ok());
    FoundFacts {
        name: found.name.clone(),
        folder: found.folder.to_string_lossy().into_owned(),
        run: found.run,
        after_runs: found.after,
        why: found.why.clone(),
        ended: found.ended.to_string(),
        deadlock: match &found.ended {
            Ended::Deadlock(who) => Some(who.clone()),
            _ => None,
        },
        deadlock_threads: explained.and_then(waiting),
        crash: explained.and_then(|told| told.crash.clone()),
        preemptions: found.schedule.preemptions,
        strategy: found.plan.kind,
        options: found.plan.options(),
        minimized: found.minimized.as_ref().map(|one| minimized(found, one)),
    }
}

fn waiting(explained: &Explained) -> Option<Vec<Waiting>> {
    (!explained.deadlock.is_empty()).then(|| explained.deadlock.clone())
}

fn minimized(found: &Found, minimized: &Minimized) -> MinimizedFacts {
    match minimized {
        Minimized::Smaller(one) => smaller(found, one),
        Minimized::NotAgain { tries, with_plan } => MinimizedFacts {
            result: "not-again",
            tried: Some(*tries),
            failed: Some(*with_plan),
            ..MinimizedFacts::default()
        },
        Minimized::Stopped(stopped) => MinimizedFacts {
            result: "stopped",
            stopped: Some(halted(*stopped)),
            ..MinimizedFacts::default()
        },
        Minimized::Failed(why) => MinimizedFacts {
            result: "error",
            why: Some(why.clone()),
            ..MinimizedFacts::default()
        },
    }
}

fn smaller(found: &Found, smaller: &Smaller) -> MinimizedFacts {
    let explained = smaller.explained.as_ref().ok();
    let (failed, tried) = smaller.confirmed;
    MinimizedFacts {
        result: match smaller.stopped {
            Some(_) => "stopped",
            None => "minimal",
        },
        stopped: smaller.stopped.map(halted),
        name: Some(smaller.name.clone()),
        folder: Some(smaller.folder.to_string_lossy().into_owned()),
        schedule: Some(smaller.schedule.to_string_lossy().into_owned()),
        why: Some(smaller.why.clone()),
        ended: Some(smaller.ended.to_string()),
        preemptions_before: Some(smaller.before),
        preemptions: Some(smaller.preemptions),
        runs: Some(smaller.runs),
        seconds: Some(smaller.elapsed.as_secs_f64()),
        tried: Some(tried),
        failed: Some(failed),
        options: Some(found.plan.following(&smaller.schedule).options()),
        program: explained.map(|explained| explained.program.clone()),
        switches: explained.map(|explained| explained.preemptions.clone()),
        deadlock_threads: explained.and_then(waiting),
        no_lines: smaller.explained.as_ref().err().cloned(),
    }
}

fn halted(stopped: Halted) -> &'static str {
    match stopped {
        Halted::Runs => "runs",
        Halted::Time => "time",
        Halted::Interrupted => "interrupted",
    }
}

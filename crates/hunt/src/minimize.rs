//! The fewest preemptions that still fail. In: a run that failed. Out: a recording that fails in the same way, with its
//! schedule beside it, and the lines at which threads were switched.
//!
//! The run's schedule is read from its recording, and must fail again when it is followed. From then on parts of it are left
//! out ([`shrink`]); every try is a run like any other of the hunt, several at once.

use std::fs::DirBuilder;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clew_recording::script::Script;

use crate::explain::{self, Explained};
use crate::hunt::{Folder, Found, Hunt, News};
use crate::run::{Ended, Outcome};
use crate::strategy::SCHEDULE;
use crate::{HuntError, measure, turns};

pub mod shrink;

use shrink::{Order, Tried, Trier, alone, pairs, shrink, truer};

/// So often the whole schedule, and what was found at the end, is tried.
const TRIES: usize = 3;
/// If more than one preemption is left, other parts are left out first, in these orders: fewer may be enough.
const OTHER_ORDERS: [Order; 4] = [
    Order::Late,
    Order::Mixed(1),
    Order::Mixed(2),
    Order::Mixed(3),
];
/// Before that, so many of its preemptions are tried alone, and so many pairs.
const ALONE: usize = 100;
const PAIRS: usize = 60;
/// How often there are news although nothing happened.
const BEAT: Duration = Duration::from_millis(200);
/// Lines are left out if it takes longer to tell them.
const EXPLAIN: Duration = Duration::from_secs(30);

/// What came of minimizing a run.
#[derive(Clone, Debug)]
pub enum Minimized {
    Smaller(Box<Smaller>),
    /// Following the run's own schedule, the program didn't fail.
    NotAgain {
        tries: u64,
        /// So often it failed with the options of its first run, of as many tries.
        with_plan: u64,
    },
    /// It ended before anything was known.
    Stopped(Stopped),
    /// Runs can't be made any more, or not be read; why.
    Failed(String),
}

/// A recording with as few preemptions as could be found.
#[derive(Clone, Debug)]
pub struct Smaller {
    pub name: String,
    pub folder: PathBuf,
    /// The file for `clew record --script`.
    pub schedule: PathBuf,
    pub why: String,
    pub ended: Ended,
    /// Preemptions of the run that was found.
    pub before: u64,
    pub preemptions: u64,
    pub runs: u64,
    pub elapsed: Duration,
    /// None: not one of the preemptions can be left out.
    pub stopped: Option<Stopped>,
    /// The schedule was followed so often in the end, and failed so often.
    pub confirmed: (u64, u64),
    /// The lines, or why there are none.
    pub explained: Result<Explained, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    Runs,
    Time,
    Interrupted,
}

/// How far it has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub runs: u64,
    pub most: u64,
    pub before: u64,
    pub preemptions: u64,
}

/// Minimizes one of a hunt's failures with at most so many runs.
pub(crate) fn minimize(
    hunt: &Hunt,
    found: &Found,
    most: u64,
    timeout: Option<Duration>,
    watch: &mut dyn FnMut(News),
) -> Result<Minimized, HuntError> {
    let started = Instant::now();
    let script = turns::of(&found.folder)?;
    let before = script.preemptions() as u64;
    let scripts = hunt.folder("schedules");
    DirBuilder::new()
        .mode(0o700)
        .create(&scripts.path)
        .map_err(HuntError::io(scripts.path.display().to_string()))?;
    let mut runs = Runs {
        hunt,
        found,
        timeout,
        scripts,
        most,
        made: AtomicU64::new(0),
        best: None,
        progress: Progress {
            runs: 0,
            most,
            before,
            preemptions: before,
        },
        watch,
    };
    let again = match runs.first(&vec![script.clone(); TRIES]) {
        Ok(again) => again,
        Err(Halt::Stopped(stopped)) => return Ok(Minimized::Stopped(stopped)),
        Err(Halt::Failed(error)) => return Err(error),
    };
    let Some((_, recorded)) = again else {
        let with_plan = match runs.with_plan() {
            Ok(failed) => failed,
            Err(Halt::Stopped(_)) => 0,
            Err(Halt::Failed(error)) => return Err(error),
        };
        return Ok(Minimized::NotAgain {
            tries: TRIES as u64,
            with_plan,
        });
    };
    let whole = truer(script, recorded);
    let mut tried = Tried::new();
    // One preemption is often enough, and which of them is told soonest by trying each; then each two of those around it.
    let start = runs.alone_first(&whole)?;
    let shrunk = shrink(start, Order::Early, &mut tried, &mut runs);
    let mut script = shrunk.script;
    let stopped = match shrunk.stopped {
        Some(Halt::Failed(error)) => return Err(error),
        Some(Halt::Stopped(stopped)) => Some(stopped),
        None => None,
    };
    if stopped.is_none() {
        runs.in_other_orders(&whole, &mut script, &mut tried)?;
    }
    let confirmed = match stopped {
        None => runs.confirm(&script)?,
        Some(_) => (0, 0),
    };
    runs.keep(script, stopped, confirmed, started)
}

/// Why nothing more is tried.
enum Halt {
    Stopped(Stopped),
    Failed(HuntError),
}

impl From<HuntError> for Halt {
    fn from(error: HuntError) -> Halt {
        Halt::Failed(error)
    }
}

/// A run that failed as it should.
struct Failing {
    folder: Folder,
    why: String,
    ended: Ended,
    /// As it was recorded.
    script: Script,
}

/// Makes runs that follow schedules.
struct Runs<'a, 'w> {
    hunt: &'a Hunt<'a>,
    found: &'a Found,
    timeout: Option<Duration>,
    /// Where schedules are written for the runs.
    scripts: Folder,
    most: u64,
    made: AtomicU64,
    /// The last one that failed, which is the one with the fewest preemptions.
    best: Option<Failing>,
    progress: Progress,
    watch: &'w mut dyn FnMut(News),
}

impl Trier for Runs<'_, '_> {
    type Stop = Halt;

    fn first(&mut self, candidates: &[Script]) -> Result<Option<(usize, Script)>, Halt> {
        let failing = self.first_failing(candidates.len(), |n| Some(&candidates[n]))?;
        Ok(failing.map(|(n, failing)| {
            let script = failing.script.clone();
            self.progress.preemptions =
                script.preemptions().min(candidates[n].preemptions()) as u64;
            self.best = Some(failing);
            (n, script)
        }))
    }
}

impl Runs<'_, '_> {
    /// The first of so many runs that fails; those behind it may not be made. No script: with the plan of the run that was
    /// found.
    fn first_failing<'s>(
        &mut self,
        count: usize,
        script: impl Fn(usize) -> Option<&'s Script> + Sync,
    ) -> Result<Option<(usize, Failing)>, Halt> {
        let next = AtomicUsize::new(0);
        let lowest = AtomicUsize::new(count);
        let jobs = self.hunt.settings.jobs.clamp(1, count.max(1));
        let (tell, hear) = mpsc::channel();
        let one = One {
            hunt: self.hunt,
            found: self.found,
            timeout: self.timeout,
            scripts: &self.scripts.path,
            most: self.most,
            made: &self.made,
        };
        let mut first: Option<(usize, Failing)> = None;
        let mut halt = None;
        let progress = &mut self.progress;
        let watch = &mut *self.watch;
        std::thread::scope(|scope| -> Result<(), Halt> {
            for job in 0..jobs {
                let (tell, one, script) = (tell.clone(), &one, &script);
                let (next, lowest) = (&next, &lowest);
                std::thread::Builder::new()
                    .name(format!("minimize-{job}"))
                    .spawn_scoped(scope, move || {
                        loop {
                            let n = next.fetch_add(1, Ordering::Relaxed);
                            if n >= lowest.load(Ordering::Relaxed) {
                                return;
                            }
                            let not_wanted = || n > lowest.load(Ordering::Relaxed);
                            let made = one.make(script(n), &not_wanted);
                            match &made {
                                Ok(Some(_)) => lowest.fetch_min(n, Ordering::Relaxed),
                                Ok(None) => usize::MAX,
                                Err(_) => lowest.fetch_min(0, Ordering::Relaxed),
                            };
                            if tell.send((n, made)).is_err() {
                                return;
                            }
                        }
                    })
                    .map_err(HuntError::io("starting a job"))?;
            }
            drop(tell);
            loop {
                match hear.recv_timeout(BEAT) {
                    Ok((n, Ok(Some(failing)))) => {
                        if first.as_ref().is_none_or(|(m, _)| n < *m) {
                            first = Some((n, failing));
                        }
                    }
                    Ok((_, Ok(None))) => {}
                    Ok((_, Err(why))) => halt = Some(why),
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                }
                progress.runs = one.made.load(Ordering::Relaxed);
                watch(News::Minimizing(progress));
            }
        })?;
        // What was found before it was halted counts; whoever asks again is told.
        match (first, halt) {
            (_, Some(halt @ Halt::Failed(_))) | (None, Some(halt)) => Err(halt),
            (first, _) => Ok(first),
        }
    }

    /// How often the program fails when it is run as it was when it failed first.
    fn with_plan(&mut self) -> Result<u64, Halt> {
        let mut failed = 0;
        for _ in 0..TRIES {
            failed += u64::from(self.first_failing(1, |_| None)?.is_some());
        }
        Ok(failed)
    }

    /// Starts again from the whole schedule, as long as there is more than one preemption: what none can be left out of
    /// isn't the only such schedule. `best` becomes a smaller one that was found.
    fn in_other_orders(
        &mut self,
        whole: &Script,
        best: &mut Script,
        tried: &mut Tried,
    ) -> Result<(), HuntError> {
        // Some are needed to see whether it fails again.
        let most = self.most;
        self.most = most.saturating_sub(TRIES as u64);
        for order in OTHER_ORDERS {
            if best.preemptions() < 2 {
                break;
            }
            let failing = self.best.take();
            let shrunk = shrink(whole.clone(), order, tried, self);
            let smaller = shrunk.script.preemptions() < best.preemptions();
            if smaller && self.best.is_some() {
                *best = shrunk.script;
            } else {
                self.best = failing;
            }
            self.progress.preemptions = best.preemptions() as u64;
            match shrunk.stopped {
                Some(Halt::Failed(error)) => return Err(error),
                Some(Halt::Stopped(_)) => break,
                None => {}
            }
        }
        self.most = most;
        Ok(())
    }

    /// Tries each of a schedule's preemptions alone, then pairs of them; the whole schedule if none of these fails.
    fn alone_first(&mut self, whole: &Script) -> Result<Script, HuntError> {
        if whole.preemptions() < 2 {
            return Ok(whole.clone());
        }
        // Most runs are kept for what always works: leaving out halves.
        let most = self.most;
        let used = self.made.load(Ordering::Relaxed);
        let mut start = whole.clone();
        for candidates in [alone(whole, ALONE), pairs(whole, PAIRS)] {
            let share = self.made.load(Ordering::Relaxed) - used + candidates.len() as u64;
            self.most = most.min(used + share.min(most.saturating_sub(used) / 2));
            let failing = self.best.take();
            match self.first(&candidates) {
                // Others may have been interrupted for the sake of that thread: what was recorded counts.
                Ok(Some((_, recorded))) if recorded.preemptions() < whole.preemptions() => {
                    start = recorded;
                    break;
                }
                Ok(_) | Err(Halt::Stopped(Stopped::Runs)) => self.best = failing,
                Err(Halt::Stopped(_)) => {
                    self.best = failing;
                    break;
                }
                Err(Halt::Failed(error)) => return Err(error),
            }
        }
        self.most = most;
        self.progress.preemptions = start.preemptions() as u64;
        Ok(start)
    }

    /// Follows the final schedule some times more: how often it failed, of how often.
    fn confirm(&mut self, script: &Script) -> Result<(u64, u64), HuntError> {
        let (mut failed, mut tried) = (0, 0);
        for _ in 0..TRIES {
            match self.first_failing(1, |_| Some(script)) {
                Ok(found) => failed += u64::from(found.is_some()),
                Err(Halt::Stopped(_)) => break,
                Err(Halt::Failed(error)) => return Err(error),
            }
            tried += 1;
        }
        Ok((failed, tried))
    }

    /// Gives the best one a name, and its schedule a place.
    fn keep(
        self,
        script: Script,
        stopped: Option<Stopped>,
        confirmed: (u64, u64),
        started: Instant,
    ) -> Result<Minimized, HuntError> {
        let Some(mut best) = self.best else {
            let stopped = stopped.unwrap_or(Stopped::Interrupted);
            return Ok(Minimized::Stopped(stopped));
        };
        write_script(&best.folder.path.join(SCHEDULE), &script)?;
        let folder = self.hunt.keep(&mut best.folder)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let stop = || self.hunt.is_stopped();
        let exe = &self.hunt.settings.runner.exe;
        let explained = explain::ask(exe, &folder, usize::MAX, EXPLAIN, &self.hunt.guard, &stop);
        Ok(Minimized::Smaller(Box::new(Smaller {
            name: name.into_owned(),
            schedule: folder.join(SCHEDULE),
            folder,
            why: best.why,
            ended: best.ended,
            before: self.progress.before,
            preemptions: script.preemptions() as u64,
            runs: self.made.load(Ordering::Relaxed),
            elapsed: started.elapsed(),
            stopped,
            confirmed,
            explained,
        })))
    }
}

/// What the jobs need for one run.
struct One<'a> {
    hunt: &'a Hunt<'a>,
    found: &'a Found,
    timeout: Option<Duration>,
    scripts: &'a Path,
    most: u64,
    made: &'a AtomicU64,
}

impl One<'_> {
    /// Makes a run. None if it doesn't fail as it should, or isn't wanted any more.
    fn make(
        &self,
        script: Option<&Script>,
        not_wanted: &dyn Fn() -> bool,
    ) -> Result<Option<Failing>, Halt> {
        if let Some(stopped) = self.stopped() {
            return Err(Halt::Stopped(stopped));
        }
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        if number >= self.most {
            self.made.fetch_sub(1, Ordering::Relaxed);
            return Err(Halt::Stopped(Stopped::Runs));
        }
        let plan = &self.found.plan;
        let file = self.scripts.join(number.to_string());
        let plan = match script {
            Some(script) => {
                write_script(&file, script)?;
                &plan.following(&file)
            }
            None => plan,
        };
        let folder = self.hunt.folder(&format!("minimize-{number}"));
        let stop = || not_wanted() || self.stopped().is_some();
        let runner = &self.hunt.settings.runner;
        let guard = &self.hunt.guard;
        let outcome = runner.run(plan, &folder.path, self.timeout, guard, &stop)?;
        let _ = std::fs::remove_file(file);
        let Some(outcome) = outcome else {
            return match self.stopped() {
                Some(stopped) => Err(Halt::Stopped(stopped)),
                None => Ok(None),
            };
        };
        let why = self.hunt.why(&outcome)?;
        let Some((_, why)) = why.filter(|(condition, _)| self.same(*condition, &outcome)) else {
            return Ok(None);
        };
        measure::wait_for_writer(&folder.path);
        Ok(Some(Failing {
            script: turns::of(&folder.path)?,
            folder,
            why,
            ended: outcome.ended,
        }))
    }

    /// Whether a run failed as the first one did: by the same condition, and with the same end where that is the condition.
    fn same(&self, condition: usize, outcome: &Outcome) -> bool {
        let same_end = match (&self.found.ended, &outcome.ended) {
            (Ended::Deadlock(_), Ended::Deadlock(_)) => true,
            (one, other) => one == other,
        };
        let about_end = self.hunt.settings.conditions[condition].is_about_end();
        condition == self.found.condition && (same_end || !about_end)
    }

    fn stopped(&self) -> Option<Stopped> {
        let time = self.hunt.settings.time;
        if self.hunt.is_stopped() {
            Some(Stopped::Interrupted)
        } else if time.is_some_and(|time| self.hunt.started.elapsed() >= time) {
            Some(Stopped::Time)
        } else {
            None
        }
    }
}

/// A schedule may tell as much of a program as its recording does.
pub(crate) fn write_script(path: &Path, script: &Script) -> Result<(), HuntError> {
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600);
    file.open(path)
        .and_then(|mut file| write!(file, "{script}"))
        .map_err(HuntError::io(path.display().to_string()))
}

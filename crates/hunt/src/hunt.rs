//! The hunt itself. In: settings. Out: news while it goes on, a report at its end, and the recordings that were kept.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use clew_recording::folder::Recordings;
use clew_recording::meta::Meta;
use clew_recording::summary;

use crate::explain::{self, Explained};
use crate::guard::Guard;
use crate::guide::Guide;
use crate::idiom::explore::Coverage;
use crate::measure::{self, Schedule};
use crate::minimize::{self, Minimized, minimize};
use crate::run::{Ended, Outcome, Runner};
use crate::strategy::{Plan, Shard, Strategy, Time};
use crate::{Condition, HuntError};

/// Without a time limit for runs they get so much longer than the first took, and at least this: schedules under which
/// threads that poll have long turns take seconds, and deadlocks are told at once anyway.
const PATIENCE: u32 = 20;
const LEAST_TIMEOUT: Duration = Duration::from_secs(10);
/// How often there are news although nothing happened.
const BEAT: Duration = Duration::from_millis(200);
/// A deadlock's lines are left out if it takes longer to tell them.
const EXPLAIN: Duration = Duration::from_secs(10);
/// Folders of runs begin with this, then come the hunt's pid and the run's number. Names with a dot in front aren't
/// recordings yet.
const PREFIX: &str = ".hunt-";
/// The folder of copies that recordings share.
const POOL: &str = "pool";

#[derive(Clone, Debug)]
pub struct Settings {
    pub runner: Runner,
    pub place: Recordings,
    pub runs: Option<u64>,
    pub time: Option<Duration>,
    pub jobs: usize,
    pub strategy: Strategy,
    pub clock: Time,
    pub chaos: Option<String>,
    pub seed: u64,
    pub shard: Shard,
    pub conditions: Vec<Condition>,
    pub timeout: Option<Duration>,
    /// The hunt ends when so many recordings were kept.
    pub keep: usize,
    /// What is kept is minimized, with at most so many runs for each.
    pub minimize: Option<u64>,
    /// So many runs that pass are kept too, as long as the report is: the hunt goes on until there are.
    pub passing: usize,
}

/// A run that failed, and its recording.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its number among all runs, from 1; 0 is the first, ordinary run.
    pub run: u64,
    /// How many runs had been made by then, with this one.
    pub after: u64,
    pub plan: Plan,
    pub why: String,
    /// The number of the condition that held.
    pub condition: usize,
    pub ended: Ended,
    pub name: String,
    pub folder: PathBuf,
    pub schedule: Schedule,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// For a deadlock or a death by a signal: its lines, or why there are none.
    pub explained: Option<Result<Explained, String>>,
    pub minimized: Option<Minimized>,
}

/// How far it has come.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub runs: u64,
    pub failed: u64,
    pub elapsed: Duration,
    /// As the first run showed it.
    pub length: Option<u64>,
    pub threads: u64,
    /// The recording kept with the fewest preemptions.
    pub best: Option<(String, u64)>,
    /// Of hunts that look at orders of accesses.
    pub coverage: Option<Coverage>,
}

pub enum News<'a> {
    Progress(&'a Tally),
    Found(&'a Found),
    Minimizing(&'a minimize::Progress),
    /// What came of minimizing is in it.
    Minimized(&'a Found),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// As many were kept as wanted.
    Kept,
    Runs,
    Time,
    /// By the user.
    Interrupted,
}

#[derive(Clone, Debug)]
pub struct Report {
    pub tally: Tally,
    pub found: Vec<Found>,
    pub passed: Vec<Arc<Passed>>,
    /// As the first run showed it.
    pub timeout: Option<Duration>,
    pub stopped: Stopped,
}

/// A run that passed; its folder is gone when nobody has this any more.
#[derive(Debug)]
pub struct Passed {
    folder: Folder,
    /// Without the schedule that it followed.
    pub plan: Plan,
    _guard: Arc<Guard>,
}

impl Passed {
    pub fn folder(&self) -> &Path {
        &self.folder.path
    }
}

/// What a run came to.
struct Done {
    run: u64,
    plan: Plan,
    folder: Folder,
    outcome: Outcome,
    /// The condition that held, and what it says.
    why: Option<(usize, String)>,
}

/// A run's folder, removed unless it is kept.
#[derive(Debug)]
pub(crate) struct Folder {
    pub path: PathBuf,
    kept: bool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Hunts until enough was found, the runs or the time are used up, or `stop` is set.
pub fn hunt(
    settings: &Settings,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(News),
) -> Result<Report, HuntError> {
    settings.place.make()?;
    // Runs share copies of mapped files with the other recordings.
    let pool = settings.place.dir().join(POOL);
    match DirBuilder::new().mode(0o700).create(&pool) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(HuntError::io(pool.display().to_string())(error));
        }
        _ => {}
    }
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let guard = Guard::start(&settings.runner.exe, settings.place.dir(), &prefix)
        .map_err(HuntError::io("starting the guard"))?;
    let guard = Arc::new(guard);
    let hunt = Hunt {
        settings,
        stop,
        over: AtomicBool::new(false),
        guard,
        prefix,
        started: Instant::now(),
        next: AtomicU64::new(0),
    };
    let (mut report, timeout) = hunt.go(watch)?;
    if let Some(most) = settings.minimize {
        for found in &mut report.found {
            // What was found stays found.
            let minimized = minimize(&hunt, found, most, timeout, watch);
            let minimized = minimized.unwrap_or_else(|why| Minimized::Failed(why.to_string()));
            found.minimized = Some(minimized);
            watch(News::Minimized(found));
        }
    }
    Ok(report)
}

/// Minimizes a recording that was kept earlier. It must fail by one of the settings' conditions.
pub fn minimize_recording(
    settings: &Settings,
    folder: &Path,
    meta: &Meta,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(News),
) -> Result<Found, HuntError> {
    let bad = |why: &str| HuntError::Bad(format!("{}: {why}", meta.name));
    let failed = |why: String| HuntError::Recording {
        path: folder.into(),
        why,
    };
    let summary = summary::of(folder).map_err(|why| failed(why.to_string()))?;
    let ended = match (&summary.deadlock, summary.end) {
        (Some(who), _) => Ended::Deadlock(who.clone()),
        (None, summary::End::Exited { status }) => Ended::Exit(status),
        (None, summary::End::Killed { signal }) => Ended::Signal(signal),
        _ => {
            return Err(bad(
                "it has no end, so nobody can tell whether a run ends like it",
            ));
        }
    };
    let outcome = Outcome {
        ended: ended.clone(),
        stdout: Vec::new(),
        stderr: Vec::new(),
        took: Duration::ZERO,
        race: match settings.runner.races {
            true => crate::races::first(&settings.runner.exe, folder)?,
            false => None,
        },
    };
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let guard = Guard::start(&settings.runner.exe, settings.place.dir(), &prefix)
        .map_err(HuntError::io("starting the guard"))?;
    let guard = Arc::new(guard);
    let hunt = Hunt {
        settings,
        stop,
        over: AtomicBool::new(false),
        guard,
        prefix,
        started: Instant::now(),
        next: AtomicU64::new(0),
    };
    let Some((condition, why)) = hunt.why(&outcome)? else {
        return Err(bad("it didn't fail: it ended with status 0"));
    };
    let mut found = Found {
        run: 0,
        after: 0,
        plan: Plan {
            seed: meta.schedule.seed,
            chaos: meta.schedule.chaos.clone(),
            virtual_time: meta.schedule.time.is_some(),
            ..Plan::ordinary()
        },
        why,
        condition,
        ended,
        name: meta.name.clone(),
        folder: folder.into(),
        schedule: measure::schedule(folder)?,
        stdout: Vec::new(),
        stderr: Vec::new(),
        explained: None,
        minimized: None,
    };
    let most = settings.minimize.unwrap_or(u64::MAX);
    let minimized = minimize(&hunt, &found, most, Some(LEAST_TIMEOUT), watch)?;
    found.minimized = Some(minimized);
    Ok(found)
}

pub(crate) struct Hunt<'a> {
    pub settings: &'a Settings,
    /// The user's wish, and everybody's knowledge that it is over.
    stop: &'a AtomicBool,
    over: AtomicBool,
    pub guard: Arc<Guard>,
    prefix: String,
    pub started: Instant,
    next: AtomicU64,
}

/// What the first run gives the others: their time limit, whether their time is virtual, and what leads them.
type Begun<'a> = (Duration, bool, Option<Guide<'a>>);

impl Hunt<'_> {
    /// Also the time limit of the runs.
    fn go(&self, watch: &mut dyn FnMut(News)) -> Result<(Report, Option<Duration>), HuntError> {
        let mut report = Report {
            tally: Tally::default(),
            found: Vec::new(),
            passed: Vec::new(),
            timeout: None,
            stopped: Stopped::Interrupted,
        };
        let Some((timeout, virtual_time, guide)) = self.first(&mut report, watch)? else {
            return Ok((report, None));
        };
        let (timeout, guide) = (Some(timeout), guide.as_ref());
        report.timeout = timeout;
        let mut ended = self.is_over(&report);
        if ended.is_none() {
            let (tell, hear) = mpsc::channel();
            let length = report.tally.length;
            ended = std::thread::scope(|scope| {
                for job in 0..self.settings.jobs.max(1) {
                    let tell = tell.clone();
                    std::thread::Builder::new()
                        .name(format!("hunt-{job}"))
                        .spawn_scoped(scope, move || {
                            self.work(length, timeout, virtual_time, guide, &tell)
                        })
                        .inspect_err(|_| self.over.store(true, Ordering::Relaxed))
                        .map_err(HuntError::io("starting a job"))?;
                }
                drop(tell);
                let ended = self.listen(&hear, guide, &mut report, watch);
                self.over.store(true, Ordering::Relaxed);
                ended
            })?;
        }
        report.stopped = ended.unwrap_or(Stopped::Interrupted);
        report.tally.elapsed = self.started.elapsed();
        Ok((report, timeout))
    }

    fn guide(&self, ordinary: &Path) -> Result<Option<Guide<'_>>, HuntError> {
        let dir = self.settings.place.dir();
        let dir = dir.join(format!("{}orders", self.prefix));
        let late = |time| self.started.elapsed() >= time;
        let is_over = || self.ends() || self.settings.time.is_some_and(late);
        Guide::new(self.settings, &self.guard, dir, ordinary, &is_over)
    }

    /// Whether runs are to be given up.
    fn ends(&self) -> bool {
        self.is_stopped() || self.over.load(Ordering::Relaxed)
    }

    /// An ordinary run: shows how long the program is. None if it was stopped.
    fn first(
        &self,
        report: &mut Report,
        watch: &mut dyn FnMut(News),
    ) -> Result<Option<Begun<'_>>, HuntError> {
        let settings = self.settings;
        let mut plan = Plan::ordinary();
        plan.chaos.clone_from(&settings.chaos);
        plan.virtual_time = settings.clock == Time::Virtual;
        let limit = settings.timeout.or(settings.time);
        let Some(done) = self.run(0, plan, limit)? else {
            return Ok(None);
        };
        measure::wait_for_writer(&done.folder.path);
        let schedule = measure::schedule(&done.folder.path)?;
        report.tally.length = schedule.length();
        report.tally.threads = schedule.threads;
        let virtual_time = match settings.clock {
            Time::ByProgram => !measure::deals_with_outside(&done.folder.path)?,
            clock => clock == Time::Virtual,
        };
        let took = done.outcome.took;
        let guide = self.guide(&done.folder.path)?;
        self.judge(done, report, watch)?;
        let usual = (took * PATIENCE).max(LEAST_TIMEOUT);
        Ok(Some((
            settings.timeout.unwrap_or(usual),
            virtual_time,
            guide,
        )))
    }

    /// A job: one run after the other.
    fn work(
        &self,
        length: Option<u64>,
        timeout: Option<Duration>,
        virtual_time: bool,
        guide: Option<&Guide>,
        tell: &mpsc::Sender<Result<Done, HuntError>>,
    ) {
        let settings = self.settings;
        while !self.over.load(Ordering::Relaxed) && !self.stop.load(Ordering::Relaxed) {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            // The first, ordinary run is one of them.
            if settings.runs.is_some_and(|runs| n + 1 >= runs) {
                return;
            }
            let run = settings.shard.run(n);
            let chaos = settings.chaos.as_deref();
            let plan = match guide {
                None => Ok(Some(settings.strategy.plan(
                    settings.seed,
                    run,
                    length,
                    chaos,
                ))),
                Some(guide) => guide.plan(n, length, &|| self.ends()),
            };
            let done = plan.and_then(|plan| match plan {
                Some(plan) => self.run(
                    run + 1,
                    Plan {
                        virtual_time,
                        ..plan
                    },
                    timeout,
                ),
                None => Ok(None),
            });
            let learned = match (guide, &done) {
                (Some(guide), Ok(Some(done))) => {
                    let failed = done.why.is_some();
                    let ends = || self.ends();
                    guide.ran(n, &done.plan, &done.folder.path, failed, &ends)
                }
                _ => Ok(()),
            };
            match learned.and(done) {
                Ok(None) => return,
                Ok(Some(done)) => {
                    if tell.send(Ok(done)).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                    return;
                }
            }
        }
    }

    fn run(
        &self,
        run: u64,
        plan: Plan,
        timeout: Option<Duration>,
    ) -> Result<Option<Done>, HuntError> {
        let folder = self.folder(&run.to_string());
        let (runner, stop) = (&self.settings.runner, || self.ends());
        let outcome = runner.run(&plan, &folder.path, timeout, &self.guard, &stop)?;
        let Some(outcome) = outcome else {
            return Ok(None);
        };
        let why = self.why(&outcome)?;
        Ok(Some(Done {
            run,
            plan,
            folder,
            outcome,
            why,
        }))
    }

    /// A folder beside the recordings that goes unless it is kept.
    pub fn folder(&self, name: &str) -> Folder {
        let dir = self.settings.place.dir();
        Folder {
            path: dir.join(format!("{}{name}", self.prefix)),
            kept: false,
        }
    }

    /// The condition by which a run failed, and what it says.
    pub fn why(&self, outcome: &Outcome) -> Result<Option<(usize, String)>, HuntError> {
        for (n, condition) in self.settings.conditions.iter().enumerate() {
            if let Some(why) = condition.holds(outcome).map_err(HuntError::Bad)? {
                return Ok(Some((n, why)));
            }
        }
        Ok(None)
    }

    /// By the user.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Takes what the jobs have done until it is enough.
    fn listen(
        &self,
        hear: &mpsc::Receiver<Result<Done, HuntError>>,
        guide: Option<&Guide>,
        report: &mut Report,
        watch: &mut dyn FnMut(News),
    ) -> Result<Option<Stopped>, HuntError> {
        loop {
            match hear.recv_timeout(BEAT) {
                Ok(done) => self.judge(done?, report, watch)?,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                // All jobs have ended by themselves.
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let ended = self.is_over(report);
                    return Ok(Some(ended.unwrap_or(Stopped::Runs)));
                }
            }
            report.tally.elapsed = self.started.elapsed();
            report.tally.coverage = guide.and_then(Guide::coverage);
            watch(News::Progress(&report.tally));
            if let Some(stopped) = self.is_over(report) {
                return Ok(Some(stopped));
            }
        }
    }

    fn is_over(&self, report: &Report) -> Option<Stopped> {
        let settings = self.settings;
        if report.found.len() >= settings.keep && report.passed.len() >= settings.passing {
            Some(Stopped::Kept)
        } else if self.stop.load(Ordering::Relaxed) {
            Some(Stopped::Interrupted)
        } else if settings
            .time
            .is_some_and(|time| self.started.elapsed() >= time)
        {
            Some(Stopped::Time)
        } else if settings.runs.is_some_and(|runs| report.tally.runs >= runs) {
            Some(Stopped::Runs)
        } else {
            None
        }
    }

    /// Counts a run, and keeps it if it failed.
    fn judge(
        &self,
        done: Done,
        report: &mut Report,
        watch: &mut dyn FnMut(News),
    ) -> Result<(), HuntError> {
        report.tally.runs += 1;
        let Some((condition, why)) = done.why else {
            if report.passed.len() < self.settings.passing {
                measure::wait_for_writer(&done.folder.path);
                // What it followed may be gone; what it did is in its recording.
                let plan = Plan {
                    script: None,
                    ..done.plan
                };
                report.passed.push(Arc::new(Passed {
                    folder: done.folder,
                    plan,
                    _guard: self.guard.clone(),
                }));
            }
            return Ok(());
        };
        report.tally.failed += 1;
        if report.found.len() >= self.settings.keep {
            return Ok(());
        }
        let mut temporary = done.folder;
        measure::wait_for_writer(&temporary.path);
        let schedule = measure::schedule(&temporary.path)?;
        let folder = self.keep(&mut temporary)?;
        let mut plan = done.plan;
        plan.keep_script(&folder)
            .map_err(HuntError::io("keeping the schedule"))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let has_place = !matches!(done.outcome.ended, Ended::Exit(_));
        let explained = has_place.then(|| {
            let (exe, stop) = (&self.settings.runner.exe, || self.is_stopped());
            explain::ask(exe, &folder, 0, EXPLAIN, &self.guard, &stop)
        });
        let found = Found {
            run: done.run,
            after: report.tally.runs,
            plan,
            why,
            condition,
            ended: done.outcome.ended,
            name: name.into_owned(),
            folder,
            schedule,
            stdout: done.outcome.stdout,
            stderr: done.outcome.stderr,
            explained,
            minimized: None,
        };
        let best = &mut report.tally.best;
        if best
            .as_ref()
            .is_none_or(|(_, least)| schedule.preemptions < *least)
        {
            *best = Some((found.name.clone(), schedule.preemptions));
        }
        report.tally.elapsed = self.started.elapsed();
        watch(News::Found(&found));
        report.found.push(found);
        Ok(())
    }

    /// Gives a run's folder the name of a recording.
    pub fn keep(&self, temporary: &mut Folder) -> Result<PathBuf, HuntError> {
        let place = &self.settings.place;
        let from = temporary.path.clone();
        let failed = |path: &Path, why: String| HuntError::Recording {
            path: path.into(),
            why,
        };
        let mut meta = Meta::read(&from).map_err(|why| failed(&from, why.to_string()))?;
        let program: OsString = self.settings.runner.program[0].clone();
        let folder = place.create_for(&program)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        meta.name = name.into_owned();
        // A folder takes an empty one's place at once.
        let renamed = meta
            .write(&from)
            .and_then(|()| std::fs::rename(&from, &folder));
        if let Err(why) = renamed {
            let _ = std::fs::remove_dir(&folder);
            return Err(failed(&folder, why.to_string()));
        }
        temporary.kept = true;
        place
            .set_latest(&folder)
            .map_err(|why| failed(&folder, why.to_string()))?;
        Ok(folder)
    }
}

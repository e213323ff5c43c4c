//! What leads the runs of a hunt whose schedules follow from earlier runs. In: recordings of runs. Out: plans of others.
//!
//! A few runs are profiled: which accesses to shared memory they made, in which order. [`crate::idiom`] predicts orders that weren't seen,
//! [`crate::visible`] chooses at random among the places that matter. The mixture gives each of them its share from the first runs on:
//! what finds most bugs comes most often, and none is left out.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_recording::script::Script;

use crate::dice::Dice;
use crate::guard::Guard;
use crate::hunt::Settings;
use crate::idiom::explore::{Coverage, Explorer, Sizes, Step};
use crate::idiom::profile::{self, Profile};
use crate::idiom::steer::Course;
use crate::strategy::{Plan, Strategy, seed_of};
use crate::visible::Kind;
use crate::{HuntError, measure};

/// A profile may take so long; the process that makes it limits itself to less.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether it is done.
const LOOK: Duration = Duration::from_millis(2);
/// Random runs that are profiled have numbers that no other runs have, the same in all shards.
const PROFILED_RUNS: u64 = 1 << 48;
/// So often a schedule that was made before is made anew.
const TRIES: u64 = 4;

/// A part of the mixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The next of the predicted orders, or a profiled run.
    Idiom,
    Visible(Kind),
    /// Random turns, or priorities that change at ticks.
    Blind,
}

/// Comes again and again. Orders of accesses find what they can find early; many threads in one place and threads that are held for long
/// are found by nothing else; what no profile shows is left to chance.
const MIXTURE: [Part; 16] = [
    Part::Idiom,
    Part::Visible(Kind::Meet),
    Part::Idiom,
    Part::Visible(Kind::Surw),
    Part::Visible(Kind::Hold),
    Part::Idiom,
    Part::Blind,
    Part::Visible(Kind::Pos),
    Part::Visible(Kind::Meet),
    Part::Idiom,
    Part::Visible(Kind::Points),
    Part::Visible(Kind::Hold),
    Part::Idiom,
    Part::Visible(Kind::Surw),
    Part::Blind,
    Part::Visible(Kind::Delay),
];

pub struct Guide<'a> {
    settings: &'a Settings,
    guard: &'a Guard,
    explorer: Explorer,
    /// For schedules and profiles. The hunt's guard removes it.
    dir: PathBuf,
}

/// What a run does.
enum Choice {
    Profile(u64),
    Blind,
    Follow(&'static str, Script),
}

impl<'a> Guide<'a> {
    /// Begins with what an ordinary run showed. None if the hunt needs no guide.
    pub fn new(
        settings: &'a Settings,
        guard: &'a Guard,
        dir: PathBuf,
        ordinary: &Path,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Guide<'a>>, HuntError> {
        let sizes = match settings.strategy {
            Strategy::Idiom => Sizes::ALONE,
            Strategy::Mixed => Sizes::AMONG_OTHERS,
            Strategy::Visible(_) => Sizes::PROFILES,
            Strategy::Random | Strategy::Pct(_) | Strategy::Chaos => return Ok(None),
        };
        let made = DirBuilder::new().mode(0o700).create(&dir);
        made.map_err(HuntError::io(dir.display().to_string()))?;
        let explorer = |first| Explorer::new(settings.seed, settings.shard, sizes, first);
        let mut guide = Guide {
            settings,
            guard,
            explorer: explorer(None),
            dir,
        };
        let first = guide.profile("ordinary", ordinary, is_over)?;
        guide.explorer = explorer(first);
        Ok(Some(guide))
    }

    /// The plan of this shard's run `n`; None if the hunt is over. Virtual time is up to whoever asks.
    pub fn plan(
        &self,
        n: u64,
        length: Option<u64>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Plan>, HuntError> {
        let settings = self.settings;
        let chaos = settings.chaos.as_deref();
        let place = self.place(n);
        let Some(courses) = self.explorer.courses(place, is_over) else {
            return Ok(None);
        };
        // The first run may have ended early.
        let longest = courses.iter().filter_map(|c| c.profile().length).max();
        let length = length.max(longest);
        let random = |run| Strategy::Random.plan(settings.seed, run, length, chaos);
        let Some(choice) = self.choose(n, place, &courses, is_over) else {
            return Ok(None);
        };
        let run = settings.shard.run(n);
        Ok(Some(match choice {
            Choice::Profile(number) => random(PROFILED_RUNS + number),
            Choice::Blind if settings.strategy == Strategy::Mixed => {
                // By its number among these, so that every kind has its turn.
                let blind = n / MIXTURE.len() as u64 * 2 + u64::from(n % 16 > 8);
                let mut plan = Strategy::Mixed.plan(settings.seed, blind, length, chaos);
                plan.seed = seed_of(settings.seed, run);
                plan
            }
            Choice::Blind => random(run),
            Choice::Follow(kind, script) => {
                let path = self.dir.join(format!("{n}.txt"));
                let written = std::fs::write(&path, script.to_string());
                written.map_err(HuntError::io(path.display().to_string()))?;
                let mut plan = random(run).following(&path);
                plan.kind = kind;
                plan
            }
        }))
    }

    /// How many runs before run `n` were the explorer's.
    fn place(&self, n: u64) -> u64 {
        if self.settings.strategy != Strategy::Mixed {
            return n;
        }
        let size = MIXTURE.len() as u64;
        let idiom = |parts: &[Part]| parts.iter().filter(|&&p| p == Part::Idiom).count() as u64;
        n / size * idiom(&MIXTURE) + idiom(&MIXTURE[..(n % size) as usize])
    }

    fn choose(
        &self,
        n: u64,
        place: u64,
        courses: &[Arc<Course>],
        is_over: &dyn Fn() -> bool,
    ) -> Option<Choice> {
        let part = match self.settings.strategy {
            Strategy::Mixed => MIXTURE[(n % MIXTURE.len() as u64) as usize],
            _ => Part::Idiom,
        };
        Some(match part {
            Part::Blind => Choice::Blind,
            Part::Visible(kind) => self.visible(kind, n, courses),
            Part::Idiom => match (self.explorer.step(place, is_over)?, self.settings.strategy) {
                (Step::Profile(number), _) => Choice::Profile(number),
                (Step::Follow(script), _) => Choice::Follow("idiom", script),
                (Step::Random, Strategy::Visible(kind)) => self.visible(kind, n, courses),
                (Step::Random, Strategy::Mixed) => {
                    let kinds = [Kind::Surw, Kind::Meet, Kind::Hold, Kind::Pos];
                    self.visible(kinds[(place % 4) as usize], n, courses)
                }
                (Step::Random, _) => Choice::Blind,
            },
        })
    }

    /// A schedule made of one of the profiles: of those that showed most, more often.
    fn visible(&self, kind: Kind, n: u64, courses: &[Arc<Course>]) -> Choice {
        let mut courses: Vec<&Arc<Course>> = courses.iter().collect();
        courses.sort_by_key(|course| std::cmp::Reverse(course.profile().accesses.len()));
        let run = self.settings.shard.run(n);
        for attempt in 0..TRIES {
            let seed = seed_of(self.settings.seed, run) ^ (attempt << 48);
            let mut dice = Dice::new(seed);
            let among = match dice.once_in(2) {
                true => courses.len().div_ceil(2),
                false => courses.len(),
            };
            let script = dice
                .pick(&courses[..among])
                .and_then(|course| kind.script(course, &mut dice));
            if let Some(script) = script {
                return Choice::Follow(kind.name(), script);
            }
        }
        Choice::Blind
    }

    /// Learns from this shard's run `n`. What it followed is kept if it failed.
    pub fn ran(
        &self,
        n: u64,
        plan: &Plan,
        folder: &Path,
        failed: bool,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), HuntError> {
        if let (Some(script), false) = (&plan.script, failed) {
            let _ = std::fs::remove_file(script);
        }
        let place = self.place(n);
        let idiom = self.settings.strategy != Strategy::Mixed
            || MIXTURE[(n % MIXTURE.len() as u64) as usize] == Part::Idiom;
        if idiom && matches!(self.explorer.step(place, is_over), Some(Step::Profile(_))) {
            let profile = self.profile(&n.to_string(), folder, is_over)?;
            self.explorer.profiled(place, profile);
        }
        Ok(())
    }

    /// Of hunts that look for orders of accesses.
    pub fn coverage(&self) -> Option<Coverage> {
        let looks = !matches!(self.settings.strategy, Strategy::Visible(_));
        looks.then(|| self.explorer.coverage())
    }

    /// What a recording shows, found out by another process: replaying needs one with a single thread. None if it can't be replayed,
    /// or takes too long.
    fn profile(
        &self,
        name: &str,
        folder: &Path,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Profile>, HuntError> {
        measure::wait_for_writer(folder);
        let path = self.dir.join(format!("{name}.profile"));
        let file = File::create(&path).map_err(HuntError::io(path.display().to_string()))?;
        let mut child = Command::new(&self.settings.runner.exe)
            .arg(profile::COMMAND)
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(HuntError::io("starting a profile"))?;
        self.guard.begins(child.id());
        let until = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait() {
                Ok(None) if !is_over() && Instant::now() < until => std::thread::sleep(LOOK),
                Ok(None) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break Ok(None);
                }
                done => break done,
            }
        };
        self.guard.ended(child.id());
        let status = status.map_err(HuntError::io("waiting for a profile"))?;
        let measured = |mut profile: Profile| {
            let schedule = measure::schedule(folder).ok();
            profile.length = schedule.and_then(|schedule| schedule.length());
            profile
        };
        let text = std::fs::read_to_string(&path);
        let _ = std::fs::remove_file(&path);
        Ok(match (status, text) {
            (Some(status), Ok(text)) if status.success() => text.parse().ok().map(measured),
            _ => None,
        })
    }
}

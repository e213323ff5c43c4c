//! Runs that are led to orders of accesses which weren't seen yet, as Maple does. In: recordings of runs. Out: plans of others.
//!
//! [`profile`] is what a run showed, `predict` finds what it didn't show, `steer` makes schedules of that, and [`explore`]
//! says which run of a hunt gets which.

pub mod explore;
pub mod profile;

mod atomic;
mod locks;
mod orders;
mod pairs;
mod predict;
mod steer;
#[cfg(test)]
mod testing;

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::guard::Guard;
use crate::hunt::Settings;
use crate::strategy::{Plan, Strategy};
use crate::{HuntError, measure};
use explore::{Coverage, Explorer, Step};
use profile::Profile;

/// A profile may take so long; the process that makes it limits itself to less.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether it is done.
const LOOK: Duration = Duration::from_millis(2);
/// Random runs that are profiled have numbers that no other runs have, the same in all shards.
const PROFILED_RUNS: u64 = 1 << 48;

/// What leads the runs of a hunt.
pub struct Guide<'a> {
    settings: &'a Settings,
    guard: &'a Guard,
    explorer: Explorer,
    /// For schedules and profiles. The hunt's guard removes it.
    dir: PathBuf,
}

impl<'a> Guide<'a> {
    /// Begins with what an ordinary run showed. None if the hunt is of another kind.
    pub fn new(
        settings: &'a Settings,
        guard: &'a Guard,
        dir: PathBuf,
        ordinary: &Path,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Guide<'a>>, HuntError> {
        if settings.strategy != Strategy::Idiom {
            return Ok(None);
        }
        let made = DirBuilder::new().mode(0o700).create(&dir);
        made.map_err(HuntError::io(dir.display().to_string()))?;
        let mut guide = Guide {
            settings,
            guard,
            explorer: Explorer::new(settings.seed, settings.shard, None),
            dir,
        };
        let first = guide.profile("ordinary", ordinary, is_over)?;
        guide.explorer = Explorer::new(settings.seed, settings.shard, first);
        Ok(Some(guide))
    }

    /// The plan of this shard's run `n`; None if the hunt is over.
    pub fn plan(
        &self,
        n: u64,
        length: Option<u64>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Plan>, HuntError> {
        let settings = self.settings;
        let chaos = settings.chaos.as_deref();
        let random = |run| Strategy::Random.plan(settings.seed, run, length, chaos);
        let Some(step) = self.explorer.step(n, is_over) else {
            return Ok(None);
        };
        Ok(Some(match step {
            Step::Profile(number) => random(PROFILED_RUNS + number),
            Step::Random => random(settings.shard.run(n)),
            Step::Follow(script) => {
                let path = self.dir.join(format!("{n}.txt"));
                let written = std::fs::write(&path, script.to_string());
                written.map_err(HuntError::io(path.display().to_string()))?;
                random(settings.shard.run(n)).following(&path)
            }
        }))
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
        if matches!(self.explorer.step(n, is_over), Some(Step::Profile(_))) {
            let profile = self.profile(&n.to_string(), folder, is_over)?;
            self.explorer.profiled(n, profile);
        }
        Ok(())
    }

    pub fn coverage(&self) -> Coverage {
        self.explorer.coverage()
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
        let text = std::fs::read_to_string(&path);
        let _ = std::fs::remove_file(&path);
        Ok(match (status, text) {
            (Some(status), Ok(text)) if status.success() => text.parse().ok(),
            _ => None,
        })
    }
}

//! Runs that follow a schedule, one after the other. In: settings, a schedule, how often. Out: how often the program
//! failed. Nothing is left of these runs.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clew_recording::script::Script;

use crate::guard::Guard;
use crate::minimize::write_script;
use crate::{HuntError, Plan, Settings};

/// Makes runs that follow schedules.
pub struct Follower<'a> {
    settings: &'a Settings,
    stop: &'a AtomicBool,
    guard: Guard,
    dir: PathBuf,
    made: AtomicU64,
    timeout: Option<Duration>,
}

impl<'a> Follower<'a> {
    pub fn new(
        settings: &'a Settings,
        timeout: Option<Duration>,
        stop: &'a AtomicBool,
    ) -> Result<Follower<'a>, HuntError> {
        settings.place.make()?;
        let place = settings.place.dir();
        let prefix = format!(".hunt-{}-follow", std::process::id());
        let guard = Guard::start(&settings.runner.exe, place, &prefix)
            .map_err(HuntError::io("starting the guard"))?;
        let dir = place.join(&prefix);
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&dir)
            .map_err(HuntError::io(dir.display().to_string()))?;
        Ok(Follower {
            settings,
            stop,
            guard,
            dir,
            made: AtomicU64::new(0),
            timeout,
        })
    }

    /// Whether the program fails if it follows that schedule; none if it was stopped. `plan` is the one of the run that the
    /// schedule comes from: its time and its seed.
    pub fn fails(&self, plan: &Plan, script: &Script) -> Result<Option<bool>, HuntError> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let file = self.dir.join(format!("{number}.txt"));
        write_script(&file, script)?;
        let failed = self.run(number, &plan.following(&file));
        let _ = std::fs::remove_file(&file);
        failed
    }

    fn run(&self, number: u64, plan: &Plan) -> Result<Option<bool>, HuntError> {
        let folder = self.dir.join(number.to_string());
        let stop = || self.stop.load(Ordering::Relaxed);
        let runner = &self.settings.runner;
        let outcome = runner.run(plan, &folder, self.timeout, &self.guard, &stop);
        let _ = std::fs::remove_dir_all(&folder);
        let Some(outcome) = outcome? else {
            return Ok(None);
        };
        for condition in &self.settings.conditions {
            let held = condition.holds(&outcome).map_err(HuntError::Bad)?;
            if held.is_some() {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    /// So often of so many it failed, with a plan as it is.
    pub fn again(&self, plan: &Plan, times: u64) -> Result<Option<(u64, u64)>, HuntError> {
        let mut failed = 0;
        for _ in 0..times {
            let number = self.made.fetch_add(1, Ordering::Relaxed);
            match self.run(number, plan)? {
                Some(fails) => failed += u64::from(fails),
                None => return Ok(None),
            }
        }
        Ok(Some((failed, times)))
    }

    /// So often of so many it failed.
    pub fn times(
        &self,
        plan: &Plan,
        script: &Script,
        times: u64,
    ) -> Result<Option<(u64, u64)>, HuntError> {
        let mut failed = 0;
        for _ in 0..times {
            match self.fails(plan, script)? {
                Some(fails) => failed += u64::from(fails),
                None => return Ok(None),
            }
        }
        Ok(Some((failed, times)))
    }
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

//! How recordings are replayed, for all commands that ask about them. In: flags, the environment. Out: settings of a replay; a debugger.

use std::ffi::CStr;

use clew_debugger::{Debugger, Error, Process, Settings};
use clew_recording::reader::Recording;

use crate::arguments::Engine;
use crate::{recordings, run, variables};

#[derive(Clone, Debug, Default, clap::Args)]
pub struct Replaying {
    /// Megabytes of memory that snapshots may take (default: a quarter of the machine's, or of the control group's limit)
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..0x100_0000))]
    pub memory: Option<u64>,

    /// Replay without locking the processes in, on a kernel without seccomp; only for recordings that
    /// you trust like the program itself
    #[arg(long)]
    pub no_jail: bool,
}

impl Replaying {
    /// Settings for it; or what is wrong in the environment.
    pub fn settings(&self, envp: &[&CStr]) -> Result<Settings, String> {
        let variable = |name: &str| variables::get(envp, name);
        let options = run::options(&Engine::default(), &variable)?;
        let mut settings = Settings::new(options);
        settings.unlocked = self.no_jail;
        settings.memory = self.memory.map(|megabytes| megabytes << 20);
        Ok(settings)
    }
}

/// A debugger that knows how much work its program's life is.
pub fn debugger(
    recording: Recording,
    process: Process,
    settings: Settings,
) -> Result<Debugger, Error> {
    let folder = recording.clone();
    let mut debugger = Debugger::open(recording, process, settings)?;
    debugger.expect_work(recordings::work(&folder, debugger.stream()));
    Ok(debugger)
}

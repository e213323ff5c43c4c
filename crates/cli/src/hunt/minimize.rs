//! `clew minimize`: the fewest preemptions that make a recorded run fail. In: a recording that was kept earlier. Out: a smaller one.

use std::ffi::{CStr, OsString};
use std::path::Path;

use clap::Args;

use super::{CANT_HUNT, INTERRUPTED, NOTHING_FOUND, STOP, Screen, prepare_signals, settings_for};
use crate::arguments::Guest;
use crate::text::{self, Style};
use crate::{recordings, run};
use clew_hunt::minimize::{Minimized, Stopped};
use clew_hunt::{News, Settings};
use clew_recording::meta::Meta;

pub const HELP: &str = "\
The recorded program is run again, in its folder, following the recording's schedule with fewer and fewer preemptions, as long as it \
ends in the same way. It must be there unchanged. The smaller recording is kept beside its schedule; the old one stays.

Exit status: 0 if there is a smaller one, 1 if it doesn't fail again or can't be made smaller, 130 if interrupted, 125 if it can't be run.

Examples:
  clew minimize                     the latest recording
  clew minimize queue-test-3 --runs 2000";

#[derive(Debug, Args)]
pub struct Minimize {
    /// The recording (default: the latest)
    pub recording: Option<OsString>,

    /// How many runs at most
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,

    /// How many runs at once (default: as many as there are processors)
    #[arg(short, long, value_name = "J", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub jobs: Option<u64>,
}

pub fn minimize(line: &Minimize, envp: &[&CStr]) -> i32 {
    match begun(line, envp) {
        Ok(status) => status,
        Err(message) => {
            eprintln!("clew: {}", text::plain(&message));
            CANT_HUNT
        }
    }
}

fn begun(line: &Minimize, envp: &[&CStr]) -> Result<i32, String> {
    let folder = recordings::find_exact(envp, line.recording.as_deref())?;
    let (settings, meta) = match prepared(&folder, line.runs, line.jobs, envp)? {
        Ok(prepared) => prepared,
        Err(status) => return Ok(status),
    };
    prepare_signals();
    let mut screen = Screen {
        json: false,
        line: Default::default(),
        style: Style::stdout(),
        settings: &settings,
    };
    let minimized = clew_hunt::minimize_recording(&settings, &folder, &meta, &STOP, &mut |news| {
        screen.show(&news);
    });
    screen.clear();
    let found = minimized.map_err(|error| error.to_string())?;
    screen.show(&News::Minimized(&found));
    Ok(match &found.minimized {
        Some(Minimized::Smaller(smaller)) if smaller.preemptions < smaller.before => 0,
        Some(Minimized::Stopped(Stopped::Interrupted)) => INTERRUPTED,
        Some(Minimized::Failed(_)) => CANT_HUNT,
        _ => NOTHING_FOUND,
    })
}

/// What it takes to run a recorded program again, in its folder; a status if it can't be, which was said.
pub(crate) fn prepared(
    folder: &Path,
    runs: u64,
    jobs: Option<u64>,
    envp: &[&CStr],
) -> Result<Result<(Settings, Meta), i32>, String> {
    let meta = Meta::read(folder).map_err(|why| why.to_string())?;
    std::env::set_current_dir(Path::new(&meta.cwd)).map_err(|why| {
        format!(
            "{}: {why}; the program is run where it was recorded",
            meta.cwd
        )
    })?;
    let program: Vec<OsString> = meta.argv.iter().map(OsString::from).collect();
    let guest = Guest {
        program: program.clone(),
    };
    if let Err(status) = run::request(&guest, &crate::arguments::Engine::default(), envp) {
        return Ok(Err(status));
    }
    let mut settings = settings_for(program, meta.portable, jobs, envp)?;
    settings.minimize = Some(runs);
    Ok(Ok((settings, meta)))
}

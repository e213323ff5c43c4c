//! Questions about a whole recording: `clew calls`, `clew writes`, `clew output`. In: the command line. Out: a debugger
//! on the recording, for one of them to ask; and the ways in which that may fail.

pub mod arguments;
pub mod calls;
pub mod output;
pub mod writes;

use std::ffi::{CStr, OsStr};

use crate::progress::Progress;
use crate::recordings::{self, Opened};
use crate::replay::{CANT_REPLAY, DIVERGED};
use crate::{interrupt, replaying, text};
use arguments::Which;
use clew_debugger::{Debugger, Error, Process};

/// There is nothing of that kind in the recording.
pub(crate) const NOTHING: i32 = 1;
/// The command line is wrong, or names what isn't there.
pub(crate) const WRONG: i32 = 2;
/// Ended by Ctrl-C before anything was found.
const INTERRUPTED: i32 = 130;

/// A debugger on the recording that is meant, and the recording's name; or the exit status.
pub(crate) fn open(
    which: &Which,
    word: Option<&str>,
    envp: &[&CStr],
) -> Result<(Debugger, String), i32> {
    let Opened {
        name, recording, ..
    } = recordings::open(envp, word.map(OsStr::new)).map_err(|why| {
        why.failed();
        CANT_REPLAY
    })?;
    let settings = which.replaying.settings(envp).map_err(|why| wrong(&why))?;
    let process = Process {
        name: which.pid,
        exec: which.exec,
    };
    let debugger = replaying::debugger(recording, process, settings).map_err(|e| failed(&e))?;
    Ok((watched(debugger), name))
}

/// With a line about progress, and ended by Ctrl-C.
pub(crate) fn watched(mut debugger: Debugger) -> Debugger {
    let mut progress = Progress::new("replaying");
    interrupt::catch();
    debugger.set_watcher(Box::new(move |done| {
        progress.show(done);
        interrupt::came()
    }));
    debugger
}

/// The work is done: the line about progress goes, and Ctrl-C ends as always.
pub(crate) fn done(debugger: &mut Debugger) {
    debugger.set_watcher(Box::new(|_| false));
}

/// Says why there is no answer; the exit status for it.
pub(crate) fn failed(error: &Error) -> i32 {
    match error {
        Error::Timeline(clew_timeline::Error::Interrupted) => {
            text::failed(error);
            INTERRUPTED
        }
        Error::Timeline(clew_timeline::Error::Diverged(_) | clew_timeline::Error::Unsteady(_)) => {
            text::failed(error);
            DIVERGED
        }
        Error::Timeline(_) | Error::Recording(_) | Error::Process(_) => {
            text::failed(error);
            CANT_REPLAY
        }
        error => wrong(&error.to_string()),
    }
}

/// Says what is wrong, line by line; the exit status for it.
pub(crate) fn wrong(message: &str) -> i32 {
    for (n, line) in message.lines().enumerate() {
        let line = text::plain(line);
        match n {
            0 => eprintln!("clew: {line}"),
            _ => eprintln!("{line}"),
        }
    }
    WRONG
}

/// That there may be more.
fn more(complete: bool, interrupted: bool, most: u64) -> String {
    match (complete, interrupted) {
        (true, _) => String::new(),
        (false, true) => "(interrupted: there may be more)\n".into(),
        (false, false) => format!("(the first {most}; more with --most N)\n"),
    }
}

/// How to go there.
pub(crate) fn next(name: &str, which: &Which, position: &str) -> String {
    let mut words: Vec<String> = ["clew", "debug", name].map(String::from).to_vec();
    for (flag, value) in [
        ("--pid", which.pid.map(|pid| pid.to_string())),
        ("--exec", which.exec.map(|exec| exec.to_string())),
        ("--at", Some(position.to_string())),
    ] {
        if let Some(value) = value {
            words.extend([flag.into(), value]);
        }
    }
    format!("\n{}\n", text::command(&words))
}

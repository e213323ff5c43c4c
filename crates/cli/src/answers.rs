//! Questions about a whole recording: `clew calls`, `clew writes`, `clew output`. In: the command line. Out: a debugger
//! on the recording, for one of them to ask; and the ways in which that may fail.

pub mod arguments;
pub mod calls;
pub mod output;
pub mod writes;

use std::ffi::{CStr, OsStr};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use crate::arguments::Engine;
use crate::recordings::{self, Opened};
use crate::replay::{CANT_REPLAY, DIVERGED};
use crate::{run, text, variables};
use arguments::Which;
use clew_debugger::{Debugger, Error, Location, Process, Settings};

/// There is nothing of that kind in the recording.
pub const NOTHING: i32 = 1;
/// The command line is wrong, or names what isn't there.
const WRONG: i32 = 2;
/// What takes longer is told about.
const LONG: Duration = Duration::from_secs(1);

/// A debugger on the recording that is meant, and the recording's name; or the exit status.
pub fn open(which: &Which, word: Option<&str>, envp: &[&CStr]) -> Result<(Debugger, String), i32> {
    let Opened {
        name, recording, ..
    } = recordings::open(envp, word.map(OsStr::new)).map_err(|why| {
        why.failed();
        CANT_REPLAY
    })?;
    let variable = |name: &str| variables::get(envp, name);
    let options = run::options(&Engine::default(), &variable).map_err(|why| wrong(&why))?;
    let mut settings = Settings::new(options);
    settings.unlocked = which.no_jail;
    settings.memory = which.memory.map(|megabytes| megabytes << 20);
    let process = Process {
        name: which.pid,
        exec: which.exec,
    };
    let mut debugger = Debugger::open(recording, process, settings).map_err(|e| failed(&e))?;
    if std::io::stderr().is_terminal() {
        debugger.set_watcher(Box::new(progress()));
    }
    Ok((debugger, name))
}

/// Says how long it takes, on a terminal, once a second; and how far it has come, where that is known.
fn progress() -> impl FnMut(f64) -> bool + Send {
    let began = Instant::now();
    let mut told = began;
    move |part| {
        if told.elapsed() >= LONG {
            told = Instant::now();
            let seconds = began.elapsed().as_secs();
            let part = match part > 0.0 && part < 1.0 {
                true => format!(", {:.0}%", part * 100.0),
                false => String::new(),
            };
            eprint!("\rclew: replaying: {seconds} s{part} ");
        }
        false
    }
}

/// Takes the line about progress away.
pub fn done() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}

/// Says why there is no answer; the exit status for it.
pub fn failed(error: &Error) -> i32 {
    done();
    match error {
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
pub fn wrong(message: &str) -> i32 {
    for (n, line) in message.lines().enumerate() {
        let line = text::plain(line);
        match n {
            0 => eprintln!("clew: {line}"),
            _ => eprintln!("{line}"),
        }
    }
    WRONG
}

/// `main at file.c:12`, with what is known.
pub fn place(location: &Location) -> String {
    let function = location.function.as_deref().unwrap_or("??");
    match (&location.file, location.line, &location.module) {
        (Some(file), Some(line), _) => {
            let file = file.rsplit('/').next().unwrap_or(file);
            format!("{function} at {file}:{line}")
        }
        (_, _, Some(module)) => format!("{function} from {module}"),
        _ => format!("{function} at {:#x}", location.address),
    }
}

/// That there may be more.
fn more(complete: bool, most: u64) -> String {
    match complete {
        true => String::new(),
        false => format!("(the first {most}; more with --most N)\n"),
    }
}

/// How to go there.
fn next(name: &str, which: &Which, position: &str) -> String {
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

//! `clew record`: makes a recording's folder and its writer, then starts the program in this very
//! process, as `clew run` does.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::arguments::{Deadlock, Full, Record, Time};
use crate::recordings;
use crate::run;
use crate::{machine, text};
use clew_engine::start::{self, Request};
use clew_recording::channel::{Channel, OnFull};
use clew_recording::folder;
use clew_recording::meta::{self, Meta, Schedule};
use clew_recording::reader::FILES;
use clew_recording::writer;

/// The exit status if nothing can be recorded.
pub const CANT_RECORD: i32 = 125;

/// What the engine needs to record into.
pub struct Recording {
    /// Of the channel's memory; closed on exec unless the engine hands it over.
    pub fd: OwnedFd,
    /// The folder for copies of mapped files.
    pub files: OwnedFd,
    pub seed: u64,
}

pub fn record(line: &Record, envp: &[&CStr]) -> i32 {
    if let Some(how) = line.weave {
        return crate::weave::record(line, how, envp);
    }
    let whole = line.from.is_none() && line.to.is_none() && line.keep_last.is_none();
    if !line.keep_if.is_empty() || !whole {
        return crate::keep::record(line, envp);
    }
    make(line, envp, None)
}

/// The same, into a folder that is there already; it isn't made the latest recording.
pub fn record_into(line: &Record, envp: &[&CStr], folder: &Path) -> i32 {
    make(line, envp, Some(folder))
}

fn make(line: &Record, envp: &[&CStr], folder: Option<&Path>) -> i32 {
    // The program first: without one there is nothing to make a folder for.
    let mut request = match run::request(&line.guest, &line.engine, envp) {
        Ok(request) => request,
        Err(status) => return status,
    };
    request.handover.options.stop_at_deadlock = line.on_deadlock == Deadlock::Stop;
    let begun = match folder {
        Some(folder) => fill(line, &request, folder),
        None => begin(line, envp, &request),
    };
    match begun {
        Ok(recording) => start(request, recording),
        Err(message) => {
            eprintln!("clew: {}", text::plain(&message));
            CANT_RECORD
        }
    }
}

/// Starts the program, recorded.
fn start(mut request: Request, recording: Recording) -> i32 {
    request.handover.options.seed = Some(recording.seed);
    clew_engine::record::begin(&mut request, recording.fd, recording.files);
    start::run(request)
}

/// Makes folder, metadata, channel and writer. After an error there is no folder.
fn begin(line: &Record, envp: &[&CStr], request: &Request) -> Result<Recording, String> {
    let folder = folder_for(line, envp)?;
    let begun = fill(line, request, &folder);
    if begun.is_err() {
        let _ = std::fs::remove_dir_all(&folder);
        return begun;
    }
    note_latest(line, envp, &folder);
    begun
}

/// Makes the recording's folder.
pub fn folder_for(line: &Record, envp: &[&CStr]) -> Result<PathBuf, String> {
    match (&line.output, &recordings::place(envp)) {
        (Some(path), _) => folder::create_at(path).map_err(|error| error.to_string()),
        (None, Ok(place)) => match &line.name {
            Some(name) => place.create(name),
            None => place.create_for(&line.guest.program[0]),
        }
        .map_err(|error| error.to_string()),
        (None, Err(error)) => Err(error.to_string()),
    }
}

/// A recording elsewhere is the latest too, where that can be noted.
pub fn note_latest(line: &Record, envp: &[&CStr], folder: &Path) {
    if let (Ok(place), false) = (&recordings::place(envp), line.hunted) {
        let noted = place
            .make()
            .map_err(std::io::Error::other)
            .and_then(|()| place.set_latest(folder));
        if let (Err(error), None) = (noted, &line.output) {
            let name = recordings::name(folder);
            eprintln!("clew: {name} can't be made the latest recording: {error}");
        }
    }
}

fn fill(line: &Record, request: &Request, folder: &Path) -> Result<Recording, String> {
    let seed = match line.engine.schedule.seed {
        Some(seed) => seed,
        None => {
            random().map_err(|error| format!("no random seed: {error}; give one with --seed"))?
        }
    };
    let schedule = Schedule {
        policy: request.handover.options.sched.name().into(),
        seed,
        depth: line.engine.schedule.depth,
        length: line.engine.schedule.length,
        chaos: line.engine.schedule.chaos.map(|kinds| kinds.names()),
        time: (line.engine.schedule.time == Time::Virtual).then(|| "virtual".into()),
    };
    meta_with(line, &request.program.exe_path(), folder, schedule)
        .write(folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    let (channel, fd) = Channel::create()
        .map_err(|error| format!("there is no shared memory for the recording: {error}"))?;
    channel.set_on_full(match line.on_full {
        Full::Stop => OnFull::Stop,
        Full::Continue => OnFull::Continue,
    });
    let files = clew_engine::record::files::prepare(folder, line.output.is_none())
        .map_err(|error| format!("{}: {error}", folder.join(FILES).display()))?;
    let tail = line.keep_last;
    writer::spawn(&channel, folder, &writer::Options { tail })
        .map_err(|error| format!("{}: the log can't be written: {error}", folder.display()))?;
    Ok(Recording { fd, files, seed })
}

/// What is known of a recording when it begins.
pub fn meta_with(line: &Record, program: &Path, folder: &Path, schedule: Schedule) -> Meta {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let cwd = std::env::current_dir().unwrap_or_default();
    Meta {
        format: meta::FORMAT,
        clock: meta::CLOCK,
        capture: meta::EXACT.into(),
        clew: env!("CARGO_PKG_VERSION").into(),
        name: recordings::name(folder),
        program: program.to_string_lossy().into_owned(),
        argv: line
            .guest
            .program
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        cwd: cwd.to_string_lossy().into_owned(),
        started_ns: now.unwrap_or_default().as_nanos() as u64,
        pid: std::process::id() as i32,
        schedule,
        portable: line.engine.portable,
        machine: machine::here(line.engine.portable),
        region: None,
    }
}

pub fn random() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    // SAFETY: writes at most eight bytes.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != 8 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(u64::from_le_bytes(bytes))
}

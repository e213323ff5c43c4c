//! The commands about recordings that exist: list, show, remove, pack.

pub mod arguments;
pub mod dump;
pub mod info;
pub mod ls;
mod open;
pub mod pack;
pub mod report;
pub mod rm;
pub mod strip;

pub use open::{NotOpened, Opened, open};

use std::ffi::{CStr, OsStr};
use std::path::{Path, PathBuf};

use crate::{text, variables, weave};
use clew_engine::replay::tree;
use clew_recording::event::StreamId;
use clew_recording::folder::{FolderError, Recordings};
use clew_recording::meta::Meta;
use clew_recording::reader::Recording;
use clew_recording::summary::{self, End, Summary};

/// The folder of this user's recordings.
pub fn place(envp: &[&CStr]) -> Result<Recordings, FolderError> {
    Recordings::location(|name| variables::get(envp, name))
}

/// The folder of the recording that a user means. A path needs no folder of recordings.
pub fn find(envp: &[&CStr], word: Option<&OsStr>) -> Result<PathBuf, FolderError> {
    match (place(envp), word) {
        (Ok(place), _) => place.resolve(word),
        (Err(_), Some(word)) => Recordings::at(Path::new(".")).resolve(Some(word)),
        (Err(error), None) => Err(error),
    }
}

/// The same, by its whole name only.
pub fn find_exactly(envp: &[&CStr], word: &OsStr) -> Result<PathBuf, FolderError> {
    let place = place(envp).unwrap_or_else(|_| Recordings::at(Path::new(".")));
    place.resolve_exactly(Some(word))
}

/// The same, but of an exact recording: a woven one is made exact now, if it wasn't before.
pub fn find_exact(envp: &[&CStr], word: Option<&OsStr>) -> Result<PathBuf, String> {
    let folder = find(envp, word).map_err(|error| error.to_string())?;
    match Meta::read(&folder) {
        Ok(meta) if weave::is_woven(&meta) => weave::exact(&folder, envp),
        _ => Ok(folder),
    }
}

/// The name that a recording's folder has.
pub fn name(folder: &Path) -> String {
    folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Reading so much of a log takes some tens of milliseconds.
const SMALL: u64 = 8 << 20;

/// How much work a stream is, by what was found out of it before, or is found quickly; 0 if nothing was. Who only looks
/// leaves nothing behind.
pub fn work(recording: &Recording, stream: StreamId) -> u64 {
    let log = recording.folder().join(clew_recording::log::NAME);
    let size = log.metadata().map_or(0, |meta| meta.len());
    let kept = Summary::kept(recording.folder(), size);
    let summary = kept.or_else(|| (size < SMALL).then(|| summary::of_open(recording)));
    let streams = summary.map(|summary| summary.streams).unwrap_or_default();
    let found = streams.iter().find(|one| one.id == stream);
    found.map_or(0, |one| tree::work(one.ticks, one.events))
}

/// How a process ended, in a few words.
pub fn end_text(end: &End) -> String {
    match *end {
        End::Exited { status } => format!("exit {status}"),
        End::Killed { signal } => clew_calls::names::signal(signal),
        End::Exec => "exec".into(),
        End::CutOff => "cut off".into(),
        End::Region => "goes on".into(),
        End::Recording => "recording".into(),
    }
}

/// The colour for that.
pub fn end_style(style: text::Style, end: &End, text: &str) -> String {
    match end {
        End::Exited { status: 0 } | End::Exec | End::Region => text.into(),
        End::Recording => style.good(text),
        End::CutOff => style.warn(text),
        _ => style.bad(text),
    }
}

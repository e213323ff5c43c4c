//! Recordings of which only the last part is kept.
//!
//! In: what the writer takes out of the channel, and states that copies of the processes write. Out: a folder of files
//! that never grows much beyond the limit; and of those, at any time, a recording like any other.
//!
//! A stream is written in *parts*, each a file of its own. Where a part begins, the process was forked, and the copy
//! has written the whole state there into another file beside it, while the process went on. A part that has its state
//! can be replayed without the parts before it, so these may go. Whoever is killed, and whenever: what is there is good,
//! since a state gets its name when it is whole, and parts only go once there is one to begin with instead.
//!
//! - [`parts`]: the writer's side: what is where, what is wanted, what may go
//! - [`gather`](mod@gather): from the files to a log

pub mod gather;
pub(crate) mod parts;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cut::Tell;
use crate::event::{Event, Record, Start, StreamId};
use crate::log::{Kind, StreamEnd};
use crate::logfile::LogFile;
use crate::reader::FILES;

pub use gather::{Gathered, gather};

/// The folder of parts, in the one with copies of files: of that one recorded processes have a descriptor.
pub const FOLDER: &str = "parts";

/// How much is kept at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Bytes of the log, as they are on disk.
    Bytes(u64),
    Time(Duration),
}

/// A part of a stream: which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartId {
    pub stream: StreamId,
    /// From 0.
    pub number: u32,
}

impl PartId {
    pub fn log(self) -> String {
        format!("{}-{}.log", self.stream, self.number)
    }

    pub fn state(self) -> String {
        format!("{}-{}.state", self.stream, self.number)
    }

    /// What a file's name means: which part, and whether it is a state.
    fn of(name: &str) -> Option<(PartId, bool)> {
        let (id, kind) = name.split_once('.')?;
        let (stream, number) = id.split_once('-')?;
        let id = PartId {
            stream: stream.parse().ok()?,
            number: number.parse().ok()?,
        };
        match kind {
            "log" => Some((id, false)),
            "state" => Some((id, true)),
            _ => None,
        }
    }
}

/// Where the parts of a recording are.
pub fn folder(recording: &Path) -> PathBuf {
    recording.join(FILES).join(FOLDER)
}

/// Whether a recording is one of which the parts aren't gathered yet.
pub fn is_in_parts(recording: &Path) -> bool {
    folder(recording).is_dir()
}

/// Writes the state with which a part begins, as the log of a stream that has nothing else: `tell` tells the prologue
/// but for its first event.
pub fn write_state(file: File, stream: StreamId, start: Start, tell: Tell) -> io::Result<()> {
    let mut log = LogFile::begin(file)?;
    let mut out = log.stream(stream);
    out.kind = Kind::State;
    out.put(&Record::Event(Event::Started(start)))?;
    let mut wrong = None;
    tell(&mut |record| {
        if wrong.is_none() {
            wrong = out.put(record).err();
        }
    })
    .map_err(io::Error::other)?;
    if let Some(error) = wrong {
        return Err(error);
    }
    out.end(Some(StreamEnd::Cut))?;
    log.finish_quickly()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_a_file_is() {
        let id = PartId {
            stream: 12,
            number: 3,
        };
        assert_eq!(PartId::of(&id.log()), Some((id, false)));
        assert_eq!(PartId::of(&id.state()), Some((id, true)));
        for wrong in [
            "",
            "12.log",
            "12-3",
            "12-3.state.new",
            "x-3.log",
            "12--3.log",
        ] {
            assert_eq!(PartId::of(wrong), None, "{wrong}");
        }
    }
}

//! What a recording must know of the guest's mappings.
//!
//! In: each change, at the place where the real mapping and the map are changed. Out: [`Changes`],
//! which the recorder takes after every event. What the engine does for itself (write protection
//! of translated code) is not the guest's state and not written down.

use std::ops::Range;

use clew_recording::maps::{self, Change, Object, Pages, Source};
use rustc_hash::{FxHashMap, FxHashSet};

use super::file::FileIdentity;
use super::host;
use super::mapping::{Backing, Mapping, page_down, page_up};
use super::{Memory, govern};
use crate::guest::access::{self, Fault};
use crate::record::files::Files;

/// All that happened to mappings since it was last asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// In order.
    pub changes: Vec<Change>,
    /// Memory whose contents are to be written down as well, after the changes: nothing else tells
    /// them to a replay. To be read by [`Memory::peek`].
    pub contents: Vec<Range<u64>>,
    pub notes: Vec<Note>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.contents.is_empty() && self.notes.is_empty()
    }
}

/// What can't be recorded faithfully, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub text: String,
    /// The user should hear of it at once.
    pub warn: bool,
}

/// Switched on for a recording.
pub(super) struct Log {
    pending: Changes,
    any: bool,
    pub(super) files: Files,
    /// Number of the next shared anonymous mapping.
    next_object: u64,
    /// Shared files with the size that a replay knows of.
    pub(super) sizes: FxHashMap<(u64, u64), u64>,
    /// Files that the guest may write to and has mapped privately.
    pub(super) followed: FxHashSet<(u64, u64)>,
    /// What was said already isn't said again.
    said: Vec<String>,
}

impl Log {
    pub(super) fn new_object(&mut self) -> Object {
        // Processes that share it must call it the same.
        if let Some(number) = govern::new_object() {
            return Object::Anon(number);
        }
        self.next_object += 1;
        Object::Anon(self.next_object)
    }
}

impl Memory {
    /// From now on changes are written down, and files are shown by copies in `files`. To be called
    /// before anything is mapped.
    pub fn record_changes(&mut self, files: Files) {
        self.log = Some(Box::new(Log {
            pending: Changes::default(),
            any: false,
            files,
            next_object: 0,
            sizes: FxHashMap::default(),
            followed: FxHashSet::default(),
            said: Vec::new(),
        }));
    }

    /// From now on no more.
    pub fn forget_changes(&mut self) {
        self.log = None;
    }

    pub fn records_changes(&self) -> bool {
        self.log.is_some()
    }

    /// The folder's descriptor has another number now.
    #[inline]
    pub fn move_files(&mut self, fd: i32) {
        if let Some(log) = &mut self.log {
            log.files.set_folder(fd);
        }
    }

    /// Is there anything for [`Memory::take_changes`]?
    #[inline]
    pub fn changes_pending(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.any)
    }

    /// What happened since the last call.
    pub fn take_changes(&mut self) -> Changes {
        match &mut self.log {
            Some(log) if log.any => {
                log.any = false;
                std::mem::take(&mut log.pending)
            }
            _ => Changes::default(),
        }
    }

    pub(super) fn logged(&mut self, change: impl FnOnce() -> Change) {
        if let Some(log) = &mut self.log {
            log.any = true;
            log.pending.changes.push(change());
        }
    }

    /// The engine itself wrote to `range` of a new mapping.
    pub fn log_contents(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        if let Some(log) = &mut self.log {
            log.any = true;
            log.pending.contents.push(range);
        }
    }

    /// Reads guest memory for the log, whatever the guest's own rights are there.
    pub fn peek(&self, addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let end = addr.checked_add(buf.len() as u64).ok_or(Fault)?;
        if self.map.covered_to(addr..end) < end {
            return Err(Fault);
        }
        let closed: Vec<Mapping> = self
            .map
            .overlapping(addr..end)
            .filter(|m| m.prot == libc::PROT_NONE)
            .map(|m| m.slice(page_down(addr), page_up(end).unwrap_or(end)))
            .collect();
        for m in &closed {
            host::mprotect(m.start..m.end, libc::PROT_READ).map_err(|_| Fault)?;
        }
        let read = access::read_bytes(addr, buf);
        for m in &closed {
            host::mprotect(m.start..m.end, libc::PROT_NONE).map_err(|_| Fault)?;
        }
        read
    }

    /// Says once what can't be recorded faithfully.
    pub fn note(&mut self, text: String, warn: bool) {
        self.log_note(text, warn);
    }

    /// Says `text` once.
    pub(super) fn log_note(&mut self, text: String, warn: bool) {
        if let Some(log) = &mut self.log
            && !log.said.contains(&text)
        {
            log.any = true;
            log.said.push(text.clone());
            log.pending.notes.push(Note { text, warn });
        }
    }

    /// A mapping that was just made.
    pub(super) fn logged_map(&mut self, mapping: &Mapping, source: Source, path: Vec<u8>) {
        let shared = match source {
            Source::Object {
                object,
                offset,
                size,
                ..
            } => Some((object, offset, size)),
            _ => None,
        };
        self.logged(|| Change::Map {
            mapping: mapping.into(),
            source,
            path,
        });
        let range = mapping.start..mapping.end;
        if let Some((object, offset, size)) = shared
            && govern::add(range.clone(), object, offset, size, mapping.prot)
        {
            self.logged(|| Change::Close(pages(&range)));
        }
    }
}

/// The range as a recording has it. It is page-aligned.
pub(super) fn pages(range: &Range<u64>) -> Pages {
    Pages {
        start: range.start,
        end: range.end,
    }
}

impl From<&Mapping> for maps::Mapping {
    fn from(m: &Mapping) -> maps::Mapping {
        maps::Mapping {
            pages: pages(&(m.start..m.end)),
            prot: m.prot as u8,
            shared: m.shared,
            grows_down: m.grows_down,
            no_reserve: m.no_reserve,
            was_writable: m.was_writable,
            backing: match m.backing {
                Backing::Anon => maps::Backing::Anon,
                Backing::Heap => maps::Backing::Heap,
                Backing::Stack => maps::Backing::Stack,
                Backing::Vdso => maps::Backing::Vdso,
                Backing::Shm => maps::Backing::Shm,
                Backing::File {
                    file,
                    offset,
                    image,
                } => maps::Backing::File {
                    file: file.into(),
                    offset,
                    image,
                },
            },
        }
    }
}

impl From<&maps::Mapping> for Mapping {
    fn from(m: &maps::Mapping) -> Mapping {
        Mapping {
            start: m.pages.start,
            end: m.pages.end,
            prot: m.prot as i32,
            shared: m.shared,
            grows_down: m.grows_down,
            no_reserve: m.no_reserve,
            was_writable: m.was_writable,
            on_fork: Default::default(),
            backing: match m.backing {
                maps::Backing::Anon => Backing::Anon,
                maps::Backing::Heap => Backing::Heap,
                maps::Backing::Stack => Backing::Stack,
                maps::Backing::Vdso => Backing::Vdso,
                maps::Backing::Shm => Backing::Shm,
                maps::Backing::File {
                    file,
                    offset,
                    image,
                } => Backing::File {
                    file: file.into(),
                    offset,
                    image,
                },
            },
        }
    }
}

impl From<FileIdentity> for maps::FileId {
    fn from(file: FileIdentity) -> maps::FileId {
        maps::FileId {
            dev: file.dev,
            ino: file.ino,
            size: file.size,
            mtime_ns: file.mtime_ns,
        }
    }
}

impl From<maps::FileId> for FileIdentity {
    fn from(file: maps::FileId) -> FileIdentity {
        FileIdentity {
            dev: file.dev,
            ino: file.ino,
            size: file.size,
            mtime_ns: file.mtime_ns,
        }
    }
}

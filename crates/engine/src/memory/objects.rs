//! Replay's shared memory: what the recorded program had mapped MAP_SHARED.
//!
//! Memory that is mapped twice (a JIT's writable and executable view) must be one memory in replay
//! too, so each object is a memory file of the replaying process's own. Its size is the recorded
//! one, so accesses behind a file's end fault as they did. Nobody else ever sees it; but a fork of
//! the replaying process would share it: see [`Memory::unshare`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use clew_recording::maps::Object;
use rustc_hash::FxHashMap;

use super::apply::ApplyError;
use super::host::{self, real_prot};
use super::mapping::PAGE;
use super::{Memory, govern};
use crate::sys;
use crate::syscall;

#[derive(Default)]
pub(super) struct Objects {
    files: FxHashMap<Object, OwnedFd>,
    views: BTreeMap<u64, View>,
}

/// Where a part of an object is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    start: u64,
    end: u64,
    object: Object,
    offset: u64,
}

impl View {
    fn slice(&self, start: u64, end: u64) -> View {
        View {
            start,
            end,
            offset: self.offset.wrapping_add(start - self.start),
            ..*self
        }
    }
}

impl Objects {
    /// The object's file, of `size` bytes; empty if nothing of it was mapped before. Is it new?
    pub(super) fn open(&mut self, object: Object, size: u64) -> Result<(i32, bool), i32> {
        let new = !self.files.contains_key(&object);
        if new {
            self.files.insert(object, memory_file()?);
        }
        let fd = self.files[&object].as_raw_fd();
        resize(fd, size)?;
        Ok((fd, new))
    }

    pub(super) fn resize(&mut self, object: Object, size: u64) -> Result<(), i32> {
        match self.files.get(&object) {
            Some(file) => resize(file.as_raw_fd(), size),
            // Its last mapping has just gone.
            None => Ok(()),
        }
    }

    pub(super) fn add(&mut self, range: Range<u64>, object: Object, offset: u64) {
        let (start, end) = (range.start, range.end);
        let view = View {
            start,
            end,
            object,
            offset,
        };
        self.views.insert(start, view);
    }

    /// Takes views out of `range`; an object without any is given up.
    pub(super) fn cut(&mut self, range: Range<u64>) {
        if !self.views.is_empty() {
            self.take(range);
            self.give_up();
        }
    }

    /// Views of `old..old + old_len` are now at `new` (also, with `keep`), and the last one is longer
    /// or shorter.
    pub(super) fn relocate(&mut self, old: u64, old_len: u64, new: u64, new_len: u64, keep: bool) {
        if self.views.is_empty() {
            return;
        }
        // Without a length it is a second mapping of what is at `old`.
        let from = old..old + if old_len == 0 { PAGE } else { old_len };
        let mut views = self.inside(&from);
        if !keep && old_len != 0 {
            self.take(from.clone());
        }
        self.take(new..new + new_len);
        for view in &mut views {
            let last = view.end == from.end;
            view.start = view.start - old + new;
            view.end = if last {
                new + new_len
            } else {
                (view.end - old + new).min(new + new_len)
            };
            if view.start < view.end {
                self.views.insert(view.start, *view);
            }
        }
        self.give_up();
    }

    fn take(&mut self, range: Range<u64>) {
        let overlaps = |v: &&View| v.start < range.end && range.start < v.end;
        let gone: Vec<View> = self.views.values().filter(overlaps).copied().collect();
        for view in gone {
            self.views.remove(&view.start);
            if view.start < range.start {
                let left = view.slice(view.start, range.start);
                self.views.insert(left.start, left);
            }
            if range.end < view.end {
                let right = view.slice(range.end, view.end);
                self.views.insert(right.start, right);
            }
        }
    }

    /// Objects without a view are gone: whoever maps them again brings the contents.
    fn give_up(&mut self) {
        let views = &self.views;
        self.files
            .retain(|object, _| views.values().any(|v| v.object == *object));
    }

    /// What of `range` shows shared memory.
    pub(super) fn shown_in(&self, range: Range<u64>) -> Result<Vec<Shown>, i32> {
        let shown = self.inside(&range).into_iter().filter_map(|view| {
            let file = self.files.get(&view.object)?;
            let stat = super::file::stat(file.as_raw_fd());
            Some(stat.map(|stat| {
                let size = stat.identity.size;
                (view.start..view.end, view.object, view.offset, size)
            }))
        });
        shown.collect()
    }

    /// The parts of views inside `range`.
    fn inside(&self, range: &Range<u64>) -> Vec<View> {
        let overlaps = |v: &&View| v.start < range.end && range.start < v.end;
        self.views
            .values()
            .filter(overlaps)
            .map(|v| v.slice(v.start.max(range.start), v.end.min(range.end)))
            .collect()
    }
}

/// Where shared memory is shown, of which object from which offset, and that object's size.
pub(super) type Shown = (Range<u64>, Object, u64, u64);

/// Shared memory for a replaying process that is about to be forked.
#[derive(Default)]
pub struct Copies(Vec<(Object, OwnedFd)>);

impl Memory {
    /// Before a fork of a replaying process: copies of its shared memory for the child. They must be made
    /// here, since afterwards the parent goes on changing it.
    pub fn copy_shared(&self) -> Result<Copies, ApplyError> {
        let mut copies = Copies::default();
        for (object, file) in &self.objects.files {
            let own = memory_file().map_err(failed)?;
            copy(file.as_raw_fd(), own.as_raw_fd()).map_err(failed)?;
            copies.0.push((*object, own));
        }
        Ok(copies)
    }

    /// In a fork of a replaying process: its shared memory is its own from now on.
    pub fn unshare(&mut self, copies: Copies) -> Result<(), ApplyError> {
        for (object, own) in copies.0 {
            for view in self.objects.views.values().filter(|v| v.object == object) {
                for m in self.map.overlapping(view.start..view.end) {
                    let part = view.slice(m.start.max(view.start), m.end.min(view.end));
                    let mut prot = real_prot(m.prot);
                    if self.code.holds(part.start..part.end) {
                        prot &= !libc::PROT_WRITE;
                    }
                    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                    let len = part.end - part.start;
                    let fd = own.as_raw_fd();
                    host::mmap(part.start, len, prot, flags, fd, part.offset).map_err(failed)?;
                }
            }
            self.objects.files.insert(object, own);
        }
        govern::close_again(0..u64::MAX);
        Ok(())
    }
}

fn failed(errno: i32) -> ApplyError {
    ApplyError::Refused {
        what: "shared memory",
        errno,
    }
}

/// An empty file in memory, ours alone.
pub(super) fn memory_file() -> Result<OwnedFd, i32> {
    let name = c"clew-shared";
    // SAFETY: a constant name.
    let fd = unsafe { syscall!(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) };
    if sys::is_err(fd) {
        return Err(-fd as i32);
    }
    // SAFETY: the descriptor was just made.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

pub(super) fn resize(fd: i32, size: u64) -> Result<(), i32> {
    // SAFETY: ftruncate touches no memory but the file's.
    let ret = unsafe { syscall!(libc::SYS_ftruncate, fd, size) };
    if sys::is_err(ret) {
        return Err(-ret as i32);
    }
    Ok(())
}

/// Size and contents of one memory file to another.
fn copy(from: i32, to: i32) -> Result<(), i32> {
    let size = super::file::stat(from)?.identity.size;
    resize(to, size)?;
    for extent in super::file::data_extents(from, 0..size) {
        super::file::copy_range(from, to, extent)?;
    }
    Ok(())
}

//! Replay's side: recorded changes of mappings, made again.
//!
//! In: a [`Change`] of a recording that may come from a stranger. Out: the same mappings at the same
//! addresses, the same map of mappings; or why not. Only addresses that a guest may own are ever
//! touched. Files are the recording's own copies; shared memory is this process's own (see
//! [`super::objects`]).

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use clew_recording::maps::{self, Change, Discard, Object, Source};

use super::Memory;
use super::host::{self, MAP_FIXED_NOREPLACE, real_prot};
use super::mapping::{Backing, Mapping, PAGE};
use super::originals::Copies;
use super::{file, govern, objects, reserve};
use crate::guest::access;
use crate::layout;

/// Why a recorded change can't be made.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("{:#x}..{:#x} isn't memory that a recorded program can have", .0.start, .0.end)]
    NotGuest(Range<u64>),
    #[error("{:#x}..{:#x} isn't mapped as the recording says", .0.start, .0.end)]
    NotMapped(Range<u64>),
    #[error("a mapping at {0:#x} makes no sense")]
    Nonsense(u64),
    #[error("{what}: {}", io::Error::from_raw_os_error(*.errno))]
    Refused { what: &'static str, errno: i32 },
    #[error("file {name} of the recording: {error}")]
    File { name: String, error: io::Error },
}

/// Opens a file of the recording by its name.
pub type OpenFile<'a> = &'a mut dyn FnMut(&str) -> io::Result<OwnedFd>;

impl Memory {
    /// Makes one recorded change.
    pub fn apply(&mut self, change: &Change, open_file: OpenFile) -> Result<(), ApplyError> {
        reserve::fill();
        match change {
            Change::Map {
                mapping,
                source,
                path,
            } => self.apply_map(mapping, source, path, open_file),
            Change::Image { file, pages } => {
                let range = guest(pages)?;
                self.register_image((*file).into(), range);
                Ok(())
            }
            Change::Unmap(pages) => {
                let range = guest(pages)?;
                refused("munmap", host::munmap(range.clone()))?;
                self.forget(range);
                Ok(())
            }
            Change::Protect { pages, prot } => {
                let range = guest(pages)?;
                if self.map.covered_to(range.clone()) < range.end {
                    return Err(ApplyError::NotMapped(range));
                }
                let parts: Vec<Mapping> = self
                    .map
                    .overlapping(range.clone())
                    .map(|m| m.slice(range.start, range.end))
                    .collect();
                for part in parts {
                    self.protect_piece(part, *prot as i32, false).map_err(|e| {
                        ApplyError::Refused {
                            what: "mprotect",
                            errno: e.errno(),
                        }
                    })?;
                }
                Ok(())
            }
            &Change::Move {
                old,
                old_len,
                new,
                new_len,
                keep,
            } => self.apply_move(old, old_len, new, new_len, keep),
            Change::Discard { pages, kind } => {
                let range = guest(pages)?;
                let advice = match kind {
                    Discard::Private => libc::MADV_DONTNEED,
                    Discard::Shared => libc::MADV_REMOVE,
                };
                self.before_discard(range.clone());
                let len = range.end - range.start;
                refused("madvise", host::madvise(range.start, len, advice))?;
                Ok(())
            }
            Change::OnFork { pages, what } => {
                let range = guest(pages)?;
                self.map.update(range, |m| m.on_fork = *what);
                Ok(())
            }
            &Change::Break(end) => {
                if !(layout::HEAP.start..=layout::HEAP.end).contains(&end) {
                    return Err(ApplyError::Nonsense(end));
                }
                self.brk.end = end;
                Ok(())
            }
            &Change::Stack(floor) => self.apply_stack(floor),
            Change::Close(pages) | Change::Open(pages) => {
                let range = guest(pages)?;
                if self.map.covered_to(range.clone()) < range.end {
                    return Err(ApplyError::NotMapped(range));
                }
                let closed = matches!(change, Change::Close(_));
                let parts: Vec<Mapping> = self
                    .map
                    .overlapping(range.clone())
                    .map(|m| m.slice(range.start, range.end))
                    .collect();
                for m in parts {
                    let prot = if closed { 0 } else { real_prot(m.prot) };
                    refused("mprotect", host::mprotect(m.start..m.end, prot))?;
                }
                govern::replay_closed(range, closed);
                Ok(())
            }
            Change::Resize { object, size } => {
                refused("ftruncate", self.objects.resize(*object, *size).map(|()| 0))?;
                Ok(())
            }
        }
    }

    fn apply_map(
        &mut self,
        mapping: &maps::Mapping,
        source: &Source,
        path: &[u8],
        open_file: OpenFile,
    ) -> Result<(), ApplyError> {
        let range = guest(&mapping.pages)?;
        let mapping = Mapping::from(mapping);
        let is_file = matches!(mapping.backing, Backing::File { .. });
        let from_file = matches!(source, Source::Copy { .. } | Source::Logged { .. });
        if from_file && !is_file {
            return Err(ApplyError::Nonsense(range.start));
        }
        let len = range.end - range.start;
        // What is mapped there is the guest's: nothing else is ever replaced.
        let old: Vec<Range<u64>> = self
            .map
            .overlapping(range.clone())
            .map(|m| m.start.max(range.start)..m.end.min(range.end))
            .collect();
        for part in old {
            refused("munmap", host::munmap(part))?;
        }
        self.forget_but(range.clone(), mapping.image_base());

        let prot = real_prot(mapping.prot);
        let mut flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        if mapping.grows_down && mapping.backing != Backing::Stack {
            flags |= libc::MAP_GROWSDOWN;
        }
        let map = |flags, fd, offset| {
            let made = host::mmap(range.start, len, prot, flags, fd, offset);
            refused("mmap", made).map(|_| ())
        };
        match source {
            Source::Zero => map(flags | libc::MAP_ANONYMOUS, -1, 0)?,
            Source::Copy { name, offset } => {
                let file = open(name, open_file)?;
                map(flags, file.as_raw_fd(), *offset)?;
            }
            Source::Logged { offset, size } => {
                let file = objects::memory_file().map_err(no_memory)?;
                objects::resize(file.as_raw_fd(), *size).map_err(no_memory)?;
                map(flags, file.as_raw_fd(), *offset)?;
            }
            Source::Object {
                object,
                offset,
                size,
                copy,
            } => {
                let end = offset.checked_add(len);
                let end = end.ok_or(ApplyError::Nonsense(range.start))?;
                let (fd, new) = self.objects.open(*object, *size).map_err(no_memory)?;
                if let Some(name) = copy {
                    // Parts mapped before are as they were when recorded; the copy is newer.
                    let from = open(name, open_file)?;
                    fill_object(from.as_raw_fd(), fd, *offset..end.min(*size))?;
                }
                let flags = flags & !libc::MAP_PRIVATE | libc::MAP_SHARED;
                if let Err(error) = map(flags, fd, *offset) {
                    if new {
                        self.objects.add(range.clone(), *object, *offset);
                        self.objects.cut(range);
                    }
                    return Err(error);
                }
                self.objects.add(range.clone(), *object, *offset);
            }
        }
        if let Backing::File { file, .. } = mapping.backing {
            let copied = match source {
                Source::Copy { .. } => Copies::Whole,
                _ => Copies::No,
            };
            self.originals.remember(file, path, copied);
            if let Source::Copy { name, .. }
            | Source::Object {
                copy: Some(name), ..
            } = source
            {
                self.originals.remember_copy(&file, name);
            }
        }
        if mapping.backing == Backing::Stack {
            self.stack_floor = range.start.min(self.stack_floor);
        }
        self.map.insert(mapping);
        Ok(())
    }

    fn apply_move(
        &mut self,
        old: u64,
        old_len: u64,
        new: u64,
        new_len: u64,
        keep: bool,
    ) -> Result<(), ApplyError> {
        let nonsense = ApplyError::Nonsense(old);
        let end = old.checked_add(old_len).ok_or(ApplyError::Nonsense(old))?;
        if !layout::is_guest(new, new_len) {
            return Err(ApplyError::NotGuest(new..new.saturating_add(new_len)));
        }
        let whole = self.map.get(old).filter(|m| end <= m.end);
        let whole = *whole.ok_or(ApplyError::NotMapped(old..end))?;
        self.unprotect_for_kernel(old, old_len);
        if new == old {
            // What really is one mapping may be several here, so only the last page is asked to grow.
            if keep || old_len == 0 || new_len <= old_len || end != whole.end {
                return Err(nonsense);
            }
            if !self.map.is_free(end..new + new_len) {
                return Err(ApplyError::NotMapped(end..new + new_len));
            }
            let last = end - PAGE;
            let len = new + new_len - last;
            refused("mremap", host::mremap(last, PAGE, len, 0, 0))?;
            self.objects.relocate(last, PAGE, last, len, false);
            let mut grown = whole.slice(old, whole.end);
            grown.end = new + new_len;
            self.map.insert(grown);
            return Ok(());
        }
        let apart = end <= new || new + new_len <= old;
        if !apart || (keep && old_len != new_len) || (old_len == 0 && !whole.shared) {
            return Err(nonsense);
        }
        let parts: Vec<Range<u64>> = self
            .map
            .overlapping(new..new + new_len)
            .map(|m| m.start.max(new)..m.end.min(new + new_len))
            .collect();
        for part in parts {
            refused("munmap", host::munmap(part))?;
        }
        let moved = old_len.min(new_len);
        if moved < old_len {
            // The part that mremap leaves behind.
            refused("munmap", host::munmap(old + moved..end))?;
        }
        let flags = libc::MREMAP_MAYMOVE
            | libc::MREMAP_FIXED
            | if keep { super::mremap::DONTUNMAP } else { 0 };
        let answer = move_pieces(old, moved, new, new_len, flags);
        refused("mremap", answer.map(|()| 0))?;
        // Forgetting the old place must not give up an object that is on its way to the new one.
        let mut objects = std::mem::take(&mut self.objects);
        self.after_move(&whole, old, old_len, new, new_len, keep);
        objects.relocate(old, old_len, new, new_len, keep);
        self.objects = objects;
        Ok(())
    }

    /// The main stack's lower end as it can really be accessed.
    fn apply_stack(&mut self, floor: u64) -> Result<(), ApplyError> {
        let area = layout::STACK;
        if !area.contains(&floor) {
            return Err(ApplyError::Nonsense(floor));
        }
        let stack: Vec<Mapping> = self
            .map
            .overlapping(area)
            .filter(|m| m.backing == Backing::Stack)
            .copied()
            .collect();
        let clip = |m: &Mapping, r: Range<u64>| m.start.max(r.start)..m.end.min(r.end);
        let (from, to) = (self.stack_floor, floor);
        for m in &stack {
            let closed = clip(m, from..to);
            if !closed.is_empty() {
                refused("munmap", host::munmap(closed))?;
            }
            let opened = clip(m, to..from);
            if !opened.is_empty() {
                let flags = libc::MAP_PRIVATE
                    | libc::MAP_ANONYMOUS
                    | libc::MAP_NORESERVE
                    | MAP_FIXED_NOREPLACE;
                let len = opened.end - opened.start;
                let made = host::mmap(opened.start, len, real_prot(m.prot), flags, -1, 0);
                refused("mmap", made)?;
            }
        }
        self.stack_floor = floor;
        Ok(())
    }

    /// Writes contents that a recording has for `addr`, whatever the guest's own rights are there.
    pub fn fill(&mut self, addr: u64, bytes: &[u8]) -> Result<(), ApplyError> {
        let end = addr.saturating_add(bytes.len() as u64);
        let range = addr..end;
        if self.map.covered_to(range.clone()) < end {
            return Err(ApplyError::NotMapped(range));
        }
        self.unprotect_for_kernel(addr, bytes.len() as u64);
        let parts: Vec<Mapping> = self.map.overlapping(range.clone()).copied().collect();
        for m in parts {
            let part = m.start.max(addr)..m.end.min(end);
            let closed = !m.can(libc::PROT_WRITE) || govern::is_closed(&part);
            let pages = part.start & !(PAGE - 1)..(part.end + PAGE - 1) & !(PAGE - 1);
            if closed {
                let open = libc::PROT_READ | libc::PROT_WRITE;
                refused("mprotect", host::mprotect(pages.clone(), open))?;
                if m.executable() {
                    self.code.mark_stale(pages.clone());
                }
            }
            let from = &bytes[(part.start - addr) as usize..(part.end - addr) as usize];
            let written = access::write_bytes(part.start, from);
            if closed {
                refused("mprotect", host::mprotect(pages.clone(), real_prot(m.prot)))?;
                govern::close_again(pages);
            }
            if written.is_err() {
                return Err(ApplyError::NotMapped(part));
            }
        }
        Ok(())
    }
}

/// For a replay that leaves the recording.
impl Memory {
    /// Writes from outside, whatever the guest's own rights are there; code that is changed is code that may
    /// change from then on.
    pub fn poke(&mut self, addr: u64, bytes: &[u8]) -> Result<(), ApplyError> {
        let end = addr.saturating_add(bytes.len() as u64);
        let pages = addr & !(PAGE - 1)..end.saturating_add(PAGE - 1) & !(PAGE - 1);
        self.fill(addr, bytes)?;
        let code = |m: &Mapping| m.executable() && m.immutable();
        if self.map.overlapping(pages.clone()).any(code) {
            self.map.update(pages.clone(), |m| m.was_writable = true);
            self.code.mark_stale(pages);
        }
        Ok(())
    }

    /// There is nobody to wait for: all pages that are closed can be used, with what they last had.
    pub fn open_all(&mut self) {
        for (range, closed) in govern::runs(0..layout::ADDRESS_END) {
            if !closed {
                continue;
            }
            let parts = self.map.overlapping(range.clone());
            for m in parts.map(|m| m.slice(range.start, range.end)) {
                let _ = host::mprotect(m.start..m.end, real_prot(m.prot));
            }
            govern::replay_closed(range, false);
        }
    }
}

/// Moves in one go, or piece by piece where the real mapping is cut differently than it was when
/// recorded. The last piece grows.
fn move_pieces(old: u64, old_len: u64, new: u64, new_len: u64, flags: i32) -> Result<(), i32> {
    match host::mremap(old, old_len, new_len, flags, new) {
        Err(libc::EFAULT) if old_len > PAGE => {
            let half = (old_len / 2).next_multiple_of(PAGE);
            move_pieces(old, half, new, half, flags)?;
            move_pieces(
                old + half,
                old_len - half,
                new + half,
                new_len - half,
                flags,
            )
        }
        answer => answer.map(|_| ()),
    }
}

/// Puts what a file has in `range` into an object.
fn fill_object(from: i32, to: i32, range: Range<u64>) -> Result<(), ApplyError> {
    if range.is_empty() {
        return Ok(());
    }
    for extent in file::data_extents(from, range) {
        file::copy_range(from, to, extent).map_err(no_memory)?;
    }
    Ok(())
}

fn guest(pages: &maps::Pages) -> Result<Range<u64>, ApplyError> {
    let aligned = pages.start.is_multiple_of(PAGE) && pages.end.is_multiple_of(PAGE);
    let fits = pages.start < pages.end && layout::is_guest(pages.start, pages.end - pages.start);
    if aligned && fits {
        Ok(pages.start..pages.end)
    } else {
        Err(ApplyError::NotGuest(pages.start..pages.end))
    }
}

fn refused(what: &'static str, answer: Result<u64, i32>) -> Result<u64, ApplyError> {
    answer.map_err(|errno| ApplyError::Refused { what, errno })
}

fn no_memory(errno: i32) -> ApplyError {
    ApplyError::Refused {
        what: "shared memory",
        errno,
    }
}

fn open(name: &str, open_file: OpenFile) -> Result<OwnedFd, ApplyError> {
    if !maps::is_name(name.as_bytes()) {
        let error = io::Error::from(io::ErrorKind::InvalidInput);
        let name = name.escape_default().to_string();
        return Err(ApplyError::File { name, error });
    }
    open_file(name).map_err(|error| ApplyError::File {
        name: name.to_owned(),
        error,
    })
}

/// An object's name in messages.
pub fn describe(object: &Object) -> String {
    match object {
        Object::Anon(_) => "shared anonymous memory".to_owned(),
        Object::Segment(id) => format!("System V segment {id}"),
        Object::File { dev, ino } => format!("file {dev:x}:{ino}"),
    }
}

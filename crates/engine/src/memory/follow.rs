//! Private mappings of files that the guest itself goes on changing.
//!
//! In: what a call of the guest's has done to a file. Out: the mappings show it as they would natively: pages
//! that the guest hasn't written to have the file's new contents, pages behind an end that has moved on are there,
//! pages behind an end that has come closer are gone, with what the guest wrote to them.
//!
//! While recording, private mappings show a copy of the file, which can't follow: others may have it too.
//! Pages that change are therefore mapped anew, from a file in memory, and their contents go into the log. What other
//! processes do to the file isn't followed, nor are images.

use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use clew_recording::maps::{Change, Source};

use super::file::{self, FileStat};
use super::host;
use super::log::pages;
use super::mapping::{Backing, Mapping, OnFork, PAGE, page_down, page_up};
use super::originals::Copies;
use super::{Memory, objects};
use crate::sys;
use crate::syscall;

impl Memory {
    /// The guest has opened a file for writing: from now on private mappings of it are looked after.
    pub fn opened_for_writing(&mut self, fd: i32) {
        if self.log.is_none() || !self.map.iter().any(|m| may_follow(m, None)) {
            return;
        }
        let Some(stat) = file::stat(fd).ok().filter(FileStat::is_regular) else {
            return;
        };
        let key = (stat.identity.dev, stat.identity.ino);
        let mapped = self.map.iter().any(|m| may_follow(m, Some(key)));
        if let Some(log) = self.log.as_mut().filter(|_| mapped) {
            log.followed.insert(key);
        }
    }

    /// A call of the guest's has changed `len` bytes at `offset` of the file that `fd` has open, or its size.
    pub(super) fn follow_file(&mut self, fd: i32, offset: u64, len: u64) {
        let Some(log) = self.log.as_mut().filter(|log| !log.followed.is_empty()) else {
            return;
        };
        let Ok(stat) = file::stat(fd) else {
            return;
        };
        let key = (stat.identity.dev, stat.identity.ino);
        if !log.followed.contains(&key) {
            return;
        }
        let mappings: Vec<Mapping> = self
            .map
            .iter()
            .filter(|m| may_follow(m, Some(key)))
            .copied()
            .collect();
        if mappings.is_empty() {
            log.followed.remove(&key);
            return;
        }
        let size = stat.identity.size;
        let changed = offset..offset.saturating_add(len).min(size);
        let stale: Vec<Mapping> = mappings
            .iter()
            .flat_map(|m| stale_runs(m, &changed, size))
            .collect();
        if !stale.is_empty() {
            self.show_again(fd, &stat, &stale);
        }
    }

    /// Maps parts of private mappings anew, with what the file has there now.
    fn show_again(&mut self, fd: i32, stat: &FileStat, parts: &[Mapping]) {
        let path = crate::kernel::procfs::descriptor_path(fd);
        let made = readable(fd).and_then(|from| {
            let to = objects::memory_file()?;
            objects::resize(to.as_raw_fd(), stat.identity.size)?;
            for part in parts {
                let there = file_range(part);
                let there = there.start..there.end.min(stat.identity.size);
                if !there.is_empty() {
                    file::copy_range(from.as_raw_fd(), to.as_raw_fd(), there)?;
                }
            }
            Ok(to)
        });
        let to = match made {
            Ok(to) => to,
            Err(errno) => {
                let why = std::io::Error::from_raw_os_error(errno);
                let path = String::from_utf8_lossy(&path);
                let text = format!(
                    "a private mapping of {path} doesn't show what is written to the file ({why})"
                );
                return self.log_note(text, true);
            }
        };
        self.originals
            .remember(stat.identity, &path, Copies::Followed);
        for part in parts {
            let there = file_range(part);
            let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
            let (prot, fd) = (host::real_prot(part.prot), to.as_raw_fd());
            if host::mmap(part.start, part.len(), prot, flags, fd, there.start).is_err() {
                continue;
            }
            self.forget(part.start..part.end);
            let mut part = *part;
            if let Backing::File { file, .. } = &mut part.backing {
                *file = stat.identity;
            }
            self.map.insert(part);
            let source = Source::Logged {
                offset: there.start,
                size: stat.identity.size,
            };
            self.logged_map(&part, source, path.clone());
            if part.on_fork != OnFork::default() {
                self.logged(|| Change::OnFork {
                    pages: pages(&(part.start..part.end)),
                    what: part.on_fork,
                });
            }
            let bytes = there
                .end
                .min(stat.identity.size)
                .saturating_sub(there.start);
            self.log_contents(part.start..part.start + bytes);
        }
    }
}

/// Whether a mapping is one that follows its file, or that file.
fn may_follow(m: &Mapping, key: Option<(u64, u64)>) -> bool {
    match m.backing {
        Backing::File { file, image, .. } => {
            let same = key.is_none_or(|key| key == (file.dev, file.ino));
            same && !m.shared && image.is_none() && !m.executable()
        }
        _ => false,
    }
}

/// The part of the file that a mapping shows.
fn file_range(m: &Mapping) -> Range<u64> {
    match m.backing {
        Backing::File { offset, .. } => offset..offset.saturating_add(m.len()),
        _ => 0..0,
    }
}

/// The parts of a mapping that show something else now that `changed` is different and the file has `size` bytes.
fn stale_runs(m: &Mapping, changed: &Range<u64>, size: u64) -> Vec<Mapping> {
    let Backing::File { file, .. } = m.backing else {
        return Vec::new();
    };
    // How long what it shows is.
    let before = file.size;
    let mut changed = changed.clone();
    if before != size {
        let ends = before.min(size)..before.max(size);
        changed = match changed.is_empty() {
            true => ends,
            false => changed.start.min(ends.start)..changed.end.max(ends.end),
        };
    }
    let shown = file_range(m);
    let ends = |bytes: u64| page_up(bytes).unwrap_or(u64::MAX);
    if changed.is_empty() {
        return Vec::new();
    }
    let first = page_down(changed.start).max(shown.start);
    let last = ends(changed.end).min(shown.end);
    let written = m.was_writable.then(|| Written::of(m)).flatten();
    let mut runs: Vec<Mapping> = Vec::new();
    for offset in (first..last.max(first)).step_by(PAGE as usize) {
        let at = m.start + (offset - shown.start);
        let (was, is) = (offset < ends(before), offset < ends(size));
        let own = m.was_writable && written.as_ref().is_none_or(|pages| pages.has(at));
        let stale = match (was, is) {
            (true, true) => !own,
            (was, is) => was != is,
        };
        if !stale {
            continue;
        }
        match runs.last_mut().filter(|run| run.end == at) {
            Some(run) => run.end += PAGE,
            None => runs.push(m.slice(at, at + PAGE)),
        }
    }
    runs
}

/// Which pages of a mapping are the guest's own by now, as the kernel tells.
struct Written {
    start: u64,
    entries: Vec<u64>,
}

impl Written {
    fn of(m: &Mapping) -> Option<Written> {
        let pagemap = std::fs::File::open("/proc/self/pagemap").ok()?;
        let mut bytes = vec![0; (m.len() / PAGE) as usize * 8];
        std::os::unix::fs::FileExt::read_exact_at(&pagemap, &mut bytes, m.start / PAGE * 8).ok()?;
        let entries = bytes
            .chunks_exact(8)
            .map(|entry| u64::from_le_bytes(entry.try_into().expect("8 bytes")))
            .collect();
        Some(Written {
            start: m.start,
            entries,
        })
    }

    fn has(&self, addr: u64) -> bool {
        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        const OF_FILE: u64 = 1 << 61;
        let entry = self.entries[((addr - self.start) / PAGE) as usize];
        entry & SWAPPED != 0 || (entry & PRESENT != 0 && entry & OF_FILE == 0)
    }
}

/// A descriptor by which the file can be read.
fn readable(fd: i32) -> Result<OwnedFd, i32> {
    let made = if file::open_flags(fd)? & libc::O_ACCMODE == libc::O_RDWR {
        // SAFETY: makes another descriptor.
        unsafe { syscall!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, 0) }
    } else {
        let path = std::ffi::CString::new(format!("/proc/self/fd/{fd}")).expect("digits");
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: opens a path that ends with NUL.
        unsafe { syscall!(libc::SYS_open, path.as_ptr(), flags) }
    };
    if sys::is_err(made) {
        return Err(-made as i32);
    }
    // SAFETY: the descriptor was just made.
    Ok(unsafe { OwnedFd::from_raw_fd(made as i32) })
}

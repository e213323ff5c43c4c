//! Descriptors of the engine in the guest's table: few, rare, and never in the guest's sight.
//!
//! Most processes have none. One is kept when the guest leaves its root or namespace (to start
//! clew itself for later execs), another under `--stats` (programs close stderr before the end).
//! They stand high; for the guest those numbers aren't open. If it puts something of its own onto
//! one, the engine's moves away.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::table::{Arg, Args, Call};
use super::{Outcome, pass_nr};
use crate::executor::Executor;
use crate::guest::access;
use crate::sys::{self, err};
use crate::syscall;

/// Where hidden descriptors start, if the limit on open files allows.
const BASE: i32 = 1000;

/// The engine's descriptors in this process; -1 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// clew's own executable.
    pub itself: i32,
    /// Where `--stats` goes.
    pub stats: i32,
    /// The memory shared with the recording's writer.
    pub recording: i32,
    /// The folder of copies of mapped files, while recording.
    pub files: i32,
    /// The schedule that a process of the run follows.
    pub script: i32,
}

impl Default for Hidden {
    fn default() -> Hidden {
        Hidden {
            itself: -1,
            stats: -1,
            recording: -1,
            files: -1,
            script: -1,
        }
    }
}

impl Hidden {
    pub fn is_empty(&self) -> bool {
        self.all().iter().all(|&fd| fd < 0)
    }

    pub fn contains(&self, fd: i32) -> bool {
        fd >= 0 && self.all().contains(&fd)
    }

    fn all(&self) -> [i32; 5] {
        [
            self.itself,
            self.stats,
            self.recording,
            self.files,
            self.script,
        ]
    }

    /// Whether the guest names one of them in this call.
    #[inline]
    pub fn named_by(&self, call: &Call, args: &Args) -> bool {
        if self.is_empty() {
            return false;
        }
        call.args
            .iter()
            .zip(args)
            .any(|(kind, &value)| matches!(kind, Arg::Fd | Arg::At) && self.contains(value as i32))
    }

    /// Keeps a descriptor of clew's own executable from now on.
    pub fn keep_self(&mut self) {
        self.keep(c"/proc/self/exe");
    }

    /// The same where there is no `/proc`.
    pub fn keep_file(&mut self, path: &Path) {
        if let Ok(path) = CString::new(path.as_os_str().as_bytes()) {
            self.keep(&path);
        }
    }

    fn keep(&mut self, path: &CStr) {
        if self.itself >= 0 {
            return;
        }
        // SAFETY: opens a path that ends with NUL.
        let fd = unsafe { syscall!(libc::SYS_open, path.as_ptr(), libc::O_PATH) };
        if !sys::is_err(fd) {
            self.itself = raise(fd as i32);
        }
    }

    /// Keeps a copy of stderr for the report at the end.
    pub fn keep_stderr(&mut self) {
        if self.stats < 0 {
            self.stats = copy_high(2);
        }
    }

    /// Keeps the descriptor of a recording's shared memory.
    pub fn keep_recording(&mut self, fd: i32) {
        self.recording = raise(fd);
    }

    /// Keeps the folder of copies, which is open at `fd`, from now on.
    pub fn keep_files(&mut self, fd: i32) {
        self.files = raise(fd);
    }

    /// Keeps the schedule, which is open at `fd`, from now on.
    pub fn keep_script(&mut self, fd: i32) {
        self.script = raise(fd);
    }

    /// Moves away what stands at `fd`, so that the guest can use the number.
    fn make_room(&mut self, fd: i32) {
        let all = [
            &mut self.itself,
            &mut self.stats,
            &mut self.recording,
            &mut self.files,
            &mut self.script,
        ];
        for mine in all {
            if *mine == fd {
                *mine = raise(fd);
            }
        }
    }
}

/// The same open file at a high number.
fn copy_high(fd: i32) -> i32 {
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes one rlimit, two u64.
    unsafe { syscall!(libc::SYS_getrlimit, libc::RLIMIT_NOFILE, limit.as_mut_ptr()) };
    let base = BASE.min(limit[0].saturating_sub(8) as i32);
    // SAFETY: F_DUPFD touches no memory.
    let copy = unsafe { syscall!(libc::SYS_fcntl, fd, libc::F_DUPFD, base) };
    if sys::is_err(copy) { -1 } else { copy as i32 }
}

/// Moves a descriptor of the engine's to a high number.
fn raise(fd: i32) -> i32 {
    let copy = copy_high(fd);
    close(fd);
    copy
}

/// Closes a descriptor of the engine's own.
pub fn close(fd: i32) {
    // SAFETY: the engine's own descriptor.
    unsafe { syscall!(libc::SYS_close, fd) };
}

pub fn dup2(ex: &mut Executor, a: Args) -> Outcome {
    ex.kernel.own.hidden.make_room(a[1] as i32);
    pass_nr(ex, libc::SYS_dup2, a)
}

pub fn dup3(ex: &mut Executor, a: Args) -> Outcome {
    ex.kernel.own.hidden.make_room(a[1] as i32);
    pass_nr(ex, libc::SYS_dup3, a)
}

/// Closes ranges between hidden descriptors.
pub fn close_range(ex: &mut Executor, a: Args) -> Outcome {
    let hidden = ex.kernel.own.hidden;
    let (first, last) = (a[0] as u32, a[1] as u32);
    if hidden.is_empty() || first > last {
        return pass_nr(ex, libc::SYS_close_range, a);
    }
    for (from, to) in around(first, last, &hidden) {
        let ret = pass_nr(
            ex,
            libc::SYS_close_range,
            [from as u64, to as u64, a[2], 0, 0, 0],
        );
        if ret != Outcome::Return(0) {
            return ret;
        }
    }
    Outcome::Return(0)
}

/// The parts of `first..=last` that are left without the hidden ones.
fn around(first: u32, last: u32, hidden: &Hidden) -> Vec<(u32, u32)> {
    let mut holes = hidden.all();
    holes.sort_unstable();
    let mut parts = Vec::new();
    let mut from = Some(first);
    for hole in holes.into_iter().filter(|&fd| fd >= 0).map(|fd| fd as u32) {
        let Some(start) = from.filter(|&start| start <= hole && hole <= last) else {
            continue;
        };
        if start < hole {
            parts.push((start, hole - 1));
        }
        from = hole.checked_add(1);
    }
    if let Some(start) = from.filter(|&start| start <= last) {
        parts.push((start, last));
    }
    parts
}

pub fn getdents(ex: &mut Executor, a: Args) -> Outcome {
    // linux_dirent: inode, offset, length, name.
    list(ex, libc::SYS_getdents, a, 18)
}

pub fn getdents64(ex: &mut Executor, a: Args) -> Outcome {
    // linux_dirent64 has the type before the name.
    list(ex, libc::SYS_getdents64, a, 19)
}

/// Lists a folder; without the hidden ones if it is the folder of descriptors.
fn list(ex: &mut Executor, nr: i64, a: Args, name_at: usize) -> Outcome {
    loop {
        let outcome = pass_nr(ex, nr, a);
        let Outcome::Return(len @ 1..) = outcome else {
            return outcome;
        };
        if ex.kernel.own.hidden.is_empty() || !is_fd_folder(a[0] as i32) {
            return outcome;
        }
        let mut entries = vec![0; len as usize];
        if access::read_bytes(a[1], &mut entries).is_err() {
            return outcome;
        }
        let hidden = ex.kernel.own.hidden;
        let kept = without(&entries, name_at, |name| {
            let number = std::str::from_utf8(name).ok().and_then(|s| s.parse().ok());
            number.is_some_and(|fd| hidden.contains(fd))
        });
        // The kernel has written more than the result will say.
        access::note_write(a[1], len as u64);
        if access::write_bytes(a[1], &kept).is_err() {
            return Outcome::Return(err(libc::EFAULT));
        }
        // Nothing would mean that there is no more.
        if !kept.is_empty() {
            return Outcome::Return(kept.len() as i64);
        }
    }
}

/// Directory entries without those whose name is to be dropped.
fn without(entries: &[u8], name_at: usize, drop: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut kept = Vec::with_capacity(entries.len());
    let mut rest = entries;
    while rest.len() > name_at {
        let len = u16::from_le_bytes([rest[16], rest[17]]) as usize;
        if len <= name_at || len > rest.len() {
            break;
        }
        let (entry, next) = rest.split_at(len);
        let name = entry[name_at..].split(|&b| b == 0).next().unwrap_or(&[]);
        if !drop(name) {
            kept.extend_from_slice(entry);
        }
        rest = next;
    }
    kept
}

fn is_fd_folder(fd: i32) -> bool {
    let path = super::procfs::descriptor_path(fd);
    path.starts_with(b"/proc/") && (path.ends_with(b"/fd") || path.ends_with(b"/fdinfo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIDDEN: Hidden = Hidden {
        itself: 1000,
        stats: 1002,
        recording: -1,
        files: -1,
        script: -1,
    };

    #[test]
    fn ranges_leave_the_hidden_out() {
        assert_eq!(
            around(3, u32::MAX, &HIDDEN),
            [(3, 999), (1001, 1001), (1003, u32::MAX)]
        );
        assert_eq!(around(3, 10, &HIDDEN), [(3, 10)]);
        assert_eq!(around(1000, 1000, &HIDDEN), []);
        assert_eq!(around(1001, 1002, &HIDDEN), [(1001, 1001)]);
    }

    #[test]
    fn calls_that_name_a_hidden_one_are_seen() {
        use super::super::table::lookup;
        let close = lookup(libc::SYS_close as u64);
        assert!(HIDDEN.named_by(close, &[1000, 0, 0, 0, 0, 0]));
        assert!(!HIDDEN.named_by(close, &[999, 1000, 0, 0, 0, 0]));
        assert!(!Hidden::default().named_by(close, &[u64::MAX, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn entries_can_be_dropped() {
        let mut entries = Vec::new();
        for name in ["1", "1000", "2"] {
            let mut entry = vec![0u8; 24];
            entry[16] = 24;
            entry[19..19 + name.len()].copy_from_slice(name.as_bytes());
            entries.extend(entry);
        }
        let kept = without(&entries, 19, |name| name == b"1000");
        assert_eq!(kept.len(), 48);
        assert_eq!(kept[24 + 19], b'2');
    }
}

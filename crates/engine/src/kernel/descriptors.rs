//! Descriptors of the engine in the guest's table: few, and never in the guest's sight.
//!
//! Most processes that aren't recorded have none. One is kept when the guest leaves its root or namespace (to
//! start clew itself for later execs), another under `--stats` (programs close stderr before the end).
//!
//! They stand right behind the limit on open files, where no call of the guest's puts or finds anything; when it
//! raises the limit, they move. Where the limit can't be passed (it is the hard one, and clew may not raise that;
//! or it is so high that the table would take too much memory) they stand below it: for the guest
//! those numbers aren't open, and if it puts something of its own onto one, the engine's moves away.
//!
//! [`Hidden`] is the one place that knows the numbers.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::table::{Arg, Args, Call};
use super::{Outcome, pass_nr, stop};
use crate::executor::Executor;
use crate::guest::access;
use crate::sys::{self, err};
use crate::syscall;

/// A limit up to here is passed. The kernel's table is as long as the highest number, and is copied by fork.
const HIGHEST_LIMIT: u64 = 1 << 16;
/// Where they start if the limit is higher.
const BASE: u64 = 8000;
/// So many numbers are enough for all of them.
const ROOM: u64 = 16;

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
    /// Another process has the same table (CLONE_FILES), and the same numbers in mind: none may move.
    pub fixed: bool,
}

impl Default for Hidden {
    fn default() -> Hidden {
        Hidden {
            itself: -1,
            stats: -1,
            recording: -1,
            files: -1,
            script: -1,
            fixed: false,
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

    fn all_mut(&mut self) -> [&mut i32; 5] {
        [
            &mut self.itself,
            &mut self.stats,
            &mut self.recording,
            &mut self.files,
            &mut self.script,
        ]
    }

    /// Moves away what stands at `fd`, so that the guest can use the number; an errno if there is nowhere to go.
    fn make_room(&mut self, fd: i32) -> Result<(), i32> {
        // Behind the limit the guest can't use it anyway.
        if !self.contains(fd) || fd as u64 >= limit()[0] {
            return Ok(());
        }
        if self.fixed {
            return Err(libc::EMFILE);
        }
        for mine in self.all_mut().into_iter().filter(|mine| **mine == fd) {
            let moved = copy_high(fd);
            if moved < 0 {
                return Err(libc::EMFILE);
            }
            close(fd);
            *mine = moved;
        }
        Ok(())
    }

    /// The limit on open files has changed: all that it doesn't keep the guest away from any more moves behind it,
    /// where that is possible.
    fn pass_limit(&mut self) {
        let [soft, _] = limit();
        if self.fixed {
            return;
        }
        for mine in self.all_mut() {
            if (0..soft as i64).contains(&i64::from(*mine)) {
                let moved = copy_behind_limit(*mine);
                if moved >= 0 {
                    close(*mine);
                    *mine = moved;
                }
            }
        }
    }
}

/// How many files may be open: soft and hard limit.
fn limit() -> [u64; 2] {
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes one rlimit, two u64.
    unsafe { syscall!(libc::SYS_getrlimit, libc::RLIMIT_NOFILE, limit.as_mut_ptr()) };
    limit
}

fn set_limit(limit: [u64; 2]) -> bool {
    // SAFETY: the kernel reads one rlimit, two u64.
    unsafe { syscall!(libc::SYS_setrlimit, libc::RLIMIT_NOFILE, limit.as_ptr()) == 0 }
}

/// The same open file at the lowest free number from `base` on, or -1.
fn copy_from(fd: i32, base: u64) -> i32 {
    // SAFETY: F_DUPFD touches no memory.
    let copy = unsafe { syscall!(libc::SYS_fcntl, fd, libc::F_DUPFD, base) };
    if sys::is_err(copy) { -1 } else { copy as i32 }
}

/// The same open file behind the limit on open files, or -1. The limit only matters when a number is given away, so
/// it is raised for that moment.
fn copy_behind_limit(fd: i32) -> i32 {
    let [soft, hard] = limit();
    if soft > HIGHEST_LIMIT {
        return -1;
    }
    let raised = soft + ROOM;
    if !set_limit([raised, hard.max(raised)]) {
        return -1;
    }
    let copy = copy_from(fd, soft);
    set_limit([soft, hard]);
    copy
}

/// The same open file where the guest doesn't meet it; -1 if there is no room at all.
fn copy_high(fd: i32) -> i32 {
    let [soft, _] = limit();
    let places = [soft.saturating_sub(ROOM).min(BASE), soft / 2, 3];
    let behind = copy_behind_limit(fd);
    let below = || places.iter().map(|&base| copy_from(fd, base));
    match behind {
        0.. => behind,
        _ => below().find(|&copy| copy >= 0).unwrap_or(-1),
    }
}

/// Moves a descriptor of the engine's to where the guest doesn't meet it.
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

/// Tells those who keep a number what it is now. After anything that changes [`Hidden`].
pub fn moved(ex: &mut Executor) {
    ex.memory.move_files(ex.kernel.own.hidden.files);
}

/// The guest has changed its limit on open files.
pub fn limit_changed(ex: &mut Executor) {
    ex.kernel.own.hidden.pass_limit();
    moved(ex);
}

fn make_room(ex: &mut Executor, fd: i32) -> Result<(), i32> {
    let made = ex.kernel.own.hidden.make_room(fd);
    if made.is_err() {
        stop::warn(&format!(
            "descriptor {fd} is clew's own, and there is no other number for it"
        ));
    }
    moved(ex);
    made
}

pub fn dup2(ex: &mut Executor, a: Args) -> Outcome {
    match make_room(ex, a[1] as i32) {
        Ok(()) => pass_nr(ex, libc::SYS_dup2, a),
        Err(errno) => Outcome::Return(err(errno)),
    }
}

pub fn dup3(ex: &mut Executor, a: Args) -> Outcome {
    match make_room(ex, a[1] as i32) {
        Ok(()) => pass_nr(ex, libc::SYS_dup3, a),
        Err(errno) => Outcome::Return(err(errno)),
    }
}

/// A copy of a descriptor has the lowest free number from the third argument on: also where one of ours stands.
pub fn fcntl(ex: &mut Executor, a: Args) -> Outcome {
    let outcome = pass_nr(ex, libc::SYS_fcntl, a);
    let flags = match a[1] as i32 {
        libc::F_DUPFD => 0,
        libc::F_DUPFD_CLOEXEC => libc::O_CLOEXEC,
        _ => return outcome,
    };
    let Outcome::Return(got @ 0..) = outcome else {
        return outcome;
    };
    let asked = a[2] as i32..got as i32;
    let ours = ex.kernel.own.hidden.all();
    let Some(fd) = ours.into_iter().filter(|fd| asked.contains(fd)).min() else {
        return outcome;
    };
    if make_room(ex, fd).is_err() {
        return outcome;
    }
    // SAFETY: the guest's own new descriptor goes to a number that is free now.
    unsafe { syscall!(libc::SYS_dup3, got, fd, flags) };
    close(got as i32);
    Outcome::Return(i64::from(fd))
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
        fixed: false,
    };

    #[test]
    fn they_stand_where_no_call_puts_anything() {
        // In a process of its own: limits and descriptors are the whole process's.
        // SAFETY: the child has one thread, and ends here.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let [_, hard] = limit();
            let ok = set_limit([256.min(hard), hard]) && {
                let mut hidden = Hidden::default();
                hidden.keep_recording(copy_from(2, 3));
                hidden.keep_files(copy_from(2, 3));
                let [soft, _] = limit();
                let behind = |hidden: &Hidden| {
                    let fds = [hidden.recording, hidden.files];
                    fds.iter().all(|&fd| fd as u64 >= limit()[0])
                        // SAFETY: asks about descriptors.
                        && fds.iter().all(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0)
                };
                let first = behind(&hidden) && soft == 256.min(hard);
                set_limit([300.min(hard), hard]);
                hidden.pass_limit();
                first && behind(&hidden)
            };
            // SAFETY: ends the child.
            unsafe { libc::_exit(!ok as i32) };
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        assert_eq!(status, 0);
    }

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

//! Waiting for a word in memory to change, in this process or another.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Set by the kernel in a robust lock's word when its owner dies.
pub const OWNER_DIED: u32 = libc::FUTEX_OWNER_DIED;
/// The part of such a word that names the owner.
pub const OWNER: u32 = libc::FUTEX_TID_MASK;

/// Waits while `word` is `seen`, at most `time`. Returns early for a signal too: callers look again.
pub fn wait(word: &AtomicU32, seen: u32, time: Option<Duration>) {
    let time = time.map(|time| libc::timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos() as i64,
    });
    let time = time.as_ref().map_or(std::ptr::null(), |t| t as *const _);
    // SAFETY: word and time are valid for the whole call; the kernel only reads them.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, time) };
}

/// Wakes all who wait for `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the kernel doesn't touch the word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Wakes one who waits for `word`, if there is any.
pub fn wake_one(word: &AtomicU32) {
    // SAFETY: the kernel doesn't touch the word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// The kernel's view of the locks that a thread holds (`struct robust_list_head`, one lock long): when
/// the thread ends, or its process execs, the kernel marks the lock's word with [`OWNER_DIED`].
#[repr(C)]
pub struct RobustList {
    first: *const RobustList,
    offset: isize,
    pending: *const RobustList,
    /// The list is circular: the one lock's entry leads back to its head.
    entry: *const RobustList,
}

impl RobustList {
    pub const fn empty() -> RobustList {
        RobustList {
            first: std::ptr::null(),
            offset: 0,
            pending: std::ptr::null(),
            entry: std::ptr::null(),
        }
    }

    /// Makes the calling thread the owner of `word` until it ends. The thread has no other robust locks.
    ///
    /// # Safety
    /// `list` and `word` stay where they are until the thread ends, execs, or calls [`Self::forget`].
    pub unsafe fn own(list: *mut RobustList, word: &AtomicU32) -> std::io::Result<()> {
        // SAFETY: the caller vouches for `list`.
        let result = unsafe {
            let entry = &raw const (*list).entry as *const RobustList;
            (*list).first = entry;
            (*list).entry = list;
            (*list).offset = (word.as_ptr() as isize).wrapping_sub(entry as isize);
            (*list).pending = std::ptr::null();
            // Its kernel form has the three first fields.
            libc::syscall(libc::SYS_set_robust_list, list, 24usize)
        };
        if result != 0 {
            return Err(std::io::Error::last_os_error());
        }
        word.store(tid(), std::sync::atomic::Ordering::SeqCst);
        Ok(())
    }

    /// The calling thread owns nothing any more.
    pub fn forget() {
        // SAFETY: the kernel only keeps the null pointer.
        unsafe { libc::syscall(libc::SYS_set_robust_list, 0usize, 24usize) };
    }
}

pub fn tid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

//! System calls, futexes and locks of the library itself: numbers in, -errno out.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering};

pub mod nr {
    pub const READ: i64 = 0;
    pub const WRITE: i64 = 1;
    pub const CLOSE: i64 = 3;
    pub const MMAP: i64 = 9;
    pub const MUNMAP: i64 = 11;
    pub const MADVISE: i64 = 28;
    pub const GETPID: i64 = 39;
    pub const FCNTL: i64 = 72;
    pub const FUTEX: i64 = 202;
    pub const EXIT_GROUP: i64 = 231;
    pub const OPENAT: i64 = 257;
    pub const FALLOCATE: i64 = 285;
    pub const PREAD64: i64 = 17;
    pub const PWRITE64: i64 = 18;
}

/// # Safety
/// As the call's.
#[inline]
pub unsafe fn call(nr: i64, a: i64, b: i64, c: i64, d: i64, e: i64, f: i64) -> i64 {
    let result: i64;
    // SAFETY: the caller's.
    unsafe {
        asm!("syscall", inlateout("rax") nr => result, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

#[macro_export]
macro_rules! sys {
    ($nr:expr) => {
        $crate::sys::call($nr, 0, 0, 0, 0, 0, 0)
    };
    ($nr:expr, $a:expr) => {
        $crate::sys::call($nr, $a as i64, 0, 0, 0, 0, 0)
    };
    ($nr:expr, $a:expr, $b:expr) => {
        $crate::sys::call($nr, $a as i64, $b as i64, 0, 0, 0, 0)
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr) => {
        $crate::sys::call($nr, $a as i64, $b as i64, $c as i64, 0, 0, 0)
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr) => {
        $crate::sys::call($nr, $a as i64, $b as i64, $c as i64, $d as i64, 0, 0)
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => {
        $crate::sys::call(
            $nr, $a as i64, $b as i64, $c as i64, $d as i64, $e as i64, 0,
        )
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::sys::call(
            $nr, $a as i64, $b as i64, $c as i64, $d as i64, $e as i64, $f as i64,
        )
    };
}

const WAIT: i64 = 128;
const WAKE: i64 = 129;

/// Waits while the word is `value`, at most `ms` milliseconds (0: for ever). False if the time is over.
pub fn futex_wait(word: &AtomicU32, value: u32, ms: i64) -> bool {
    let time = [ms / 1000, ms % 1000 * 1_000_000];
    let limit = if ms == 0 {
        core::ptr::null()
    } else {
        time.as_ptr()
    };
    // SAFETY: the word lives as long as this call, and so does the time.
    unsafe { sys!(nr::FUTEX, word.as_ptr(), WAIT, value, limit) != -110 }
}

pub fn futex_wake(word: &AtomicU32, count: u32) {
    // SAFETY: waking touches no memory.
    unsafe { sys!(nr::FUTEX, word.as_ptr(), WAKE, count) };
}

pub fn exit(status: i32) -> ! {
    loop {
        // SAFETY: ends the process.
        unsafe { sys!(nr::EXIT_GROUP, status) };
    }
}

/// Anonymous memory; none is no reason to go on.
pub fn map(len: usize) -> *mut u8 {
    // SAFETY: a new mapping.
    let at = unsafe { sys!(nr::MMAP, 0, len, 3, 0x4022, -1, 0) };
    if at < 0 {
        crate::fail::stop("there is no memory for the library that clew preloads");
    }
    at as *mut u8
}

/// A lock of the library's own: 0 free, 1 taken, 2 waited for.
#[repr(transparent)]
pub struct Lock(AtomicU32);

impl Lock {
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(0))
    }

    #[inline]
    pub fn lock(&self) {
        if self
            .0
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..100 {
            if self
                .0
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
            core::hint::spin_loop();
        }
        while self.0.swap(2, Ordering::Acquire) != 0 {
            futex_wait(&self.0, 2, 0);
        }
    }

    #[inline]
    pub fn unlock(&self) {
        if self.0.swap(0, Ordering::Release) == 2 {
            futex_wake(&self.0, 1);
        }
    }
}

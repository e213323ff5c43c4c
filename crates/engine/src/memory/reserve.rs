//! Mappings kept in reserve for the engine: calls that the kernel refuses for want of mappings go in, and are made again.
//!
//! The kernel allows a process only so many mappings (`vm.max_map_count`), and a guest may use up all of them. The engine needs
//! some even then: for its own memory, for pages whose protection has to change, and in a replay for all that the
//! recorded program had, beside an engine that has other mappings than the recording one. So some are kept: pages whose
//! protections alternate, each a mapping of its own, made when the process has asked for enough of them that the limit may
//! come into reach. Where the engine is refused, some of them become one, and the call is made again.
//!
//! The guest's own calls don't draw on it ([`guests`]): they fill it up first, and fail as at the kernel's limit.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use super::mapping::PAGE;
use crate::sys::{self, Ret};
use crate::syscall;

/// So many mappings are kept.
const MOST: u32 = 256;
/// So many are given up at once.
const STEP: u32 = 16;
/// Calls that may have made mappings, after which there is a reserve: far from any limit.
const ENOUGH: u32 = 4096;

/// Calls until now, up to [`ENOUGH`].
static CALLS: AtomicU32 = AtomicU32::new(0);
/// Where the pages are; 0 as long as there are none.
static BASE: AtomicU64 = AtomicU64::new(0);
/// Of how many pages, from the first on, each is a mapping.
static KEPT: AtomicU32 = AtomicU32::new(0);
/// A call of the guest's is under way.
static GUESTS: AtomicBool = AtomicBool::new(false);

/// Makes a call for the engine, as often as it takes.
pub fn asked(call: impl Fn() -> Ret) -> Ret {
    let calls = CALLS.load(Relaxed);
    if calls < ENOUGH {
        CALLS.store(calls + 1, Relaxed);
        if calls + 1 == ENOUGH {
            fill();
        }
    }
    loop {
        let ret = call();
        if ret != sys::err(libc::ENOMEM) || GUESTS.load(Relaxed) || !give() {
            return ret;
        }
    }
}

/// Makes a call that isn't worth a mapping of the reserve's.
pub fn guests<T>(call: impl FnOnce() -> T) -> T {
    fill();
    let before = GUESTS.swap(true, Relaxed);
    let result = call();
    GUESTS.store(before, Relaxed);
    result
}

/// Keeps as many mappings as it should, or as there are.
pub fn fill() {
    if CALLS.load(Relaxed) < ENOUGH || KEPT.load(Relaxed) == MOST {
        return;
    }
    if BASE.load(Relaxed) == 0 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let (len, none) = (MOST as u64 * PAGE, libc::PROT_NONE);
        // SAFETY: a new mapping where the kernel likes.
        let base = unsafe { syscall!(libc::SYS_mmap, 0, len, none, flags, -1i64, 0) };
        if sys::is_err(base) {
            return;
        }
        BASE.store(base as u64, Relaxed);
    }
    loop {
        let kept = KEPT.load(Relaxed);
        // Every second page is parted from the one before it and the rest.
        if kept == MOST || protect(kept + 1, 1, libc::PROT_READ).is_err() {
            return;
        }
        let more = KEPT.compare_exchange(kept, kept + 2, Relaxed, Relaxed);
        if more.is_err() {
            // Somebody has given up some meanwhile.
            let _ = protect(kept + 1, 1, libc::PROT_NONE);
        }
    }
}

/// Gives some up; false if there are none. On any thread, and in the midst of an allocation.
fn give() -> bool {
    let less = KEPT.fetch_update(Relaxed, Relaxed, |kept| kept.checked_sub(STEP));
    // What is one mapping in the end takes none on the way.
    less.is_ok_and(|kept| protect(kept - STEP, STEP, libc::PROT_NONE).is_ok())
}

fn protect(page: u32, pages: u32, prot: i32) -> Result<(), Ret> {
    let at = BASE.load(Relaxed) + page as u64 * PAGE;
    let len = pages as u64 * PAGE;
    // SAFETY: pages of the reserve, which nobody uses.
    let ret = unsafe { syscall!(libc::SYS_mprotect, at, len, prot) };
    if ret == 0 { Ok(()) } else { Err(ret) }
}

/// The C library's allocator, with the reserve behind it.
pub struct Allocator;

impl Allocator {
    fn again(&self, get: impl Fn() -> *mut u8) -> *mut u8 {
        loop {
            let got = get();
            if !got.is_null() || !give() {
                return got;
            }
        }
    }
}

// SAFETY: all is the C library's; it is asked again only where it gave nothing.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.again(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.again(|| unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise; where nothing is given, what was there stays.
        self.again(|| unsafe { System.realloc(at, layout, size) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

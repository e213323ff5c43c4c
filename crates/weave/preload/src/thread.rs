//! What the library knows of a thread, and the way to the calling one.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use crate::format::{Chunk, Head};
use crate::heap::{Arena, Outbox};
use crate::sys::{self, Lock};

/// Nothing is noted: another process's, or an ended thread's.
pub const OFF: u32 = 0;
pub const RECORD: u32 = 1;
pub const REPLAY: u32 = 2;

/// Nested calls of stdio, deeper than anybody goes.
pub const DEEPEST: usize = 16;

#[repr(C)]
pub struct Thread {
    pub mode: u32,
    pub id: u32,
    /// Inside a function of the C library that only a recording calls: what it calls itself isn't noted.
    pub depth: u32,
    pub nested: u32,
    pub head: *mut Head,
    /// Recording: where the next entry goes, and the end of that chunk.
    pub at: *mut u8,
    pub end: *mut u8,
    pub chunk: *mut Chunk,
    /// The count after the last entry.
    pub last: u64,
    /// Replaying: the count at which the next entry is due; `at` points behind its delta's flags.
    pub due: u64,
    /// The recorded head.
    pub recorded: *const Head,
    /// The hash when this event is complete.
    pub hash: u64,
    /// This event took its number, but was never complete: it is made, and the thread ends with it.
    pub unfinished: bool,
    /// The last time told, by clock.
    pub times: [i64; 16],
    /// What it waits for: an object and its number, or a thread (`seq` is `u64::MAX`).
    pub waits_for: AtomicUsize,
    pub waits_seq: core::sync::atomic::AtomicU64,
    pub over: AtomicU32,
    /// The object of the event that it is about to make, if many use that at once: it may have taken a number when the
    /// process ended, without having noted it.
    pub object: AtomicUsize,
    pub last_op: AtomicU32,
    pub arena: *mut Arena,
    /// How many threads had it before.
    pub owners: u64,
    pub outbox: Outbox,
    /// Return addresses of stdio calls under way.
    pub returns: [usize; DEEPEST],
    pub files: [usize; DEEPEST],
    pub handle: usize,
    pub routine: usize,
    pub argument: usize,
    pub rounds: u32,
    pub next: *mut Thread,
    pub free: *mut Thread,
}

// One pointer for each thread, in the static part of thread-local memory: two instructions to read it.
global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".p2align 3",
    ".type clew_weave_self,@object",
    ".size clew_weave_self,8",
    "clew_weave_self:",
    ".zero 8",
    ".text",
);

/// The calling thread, or null before it is known.
#[inline(always)]
pub fn me() -> *mut Thread {
    let pointer: *mut Thread;
    // SAFETY: reads this library's own thread-local word.
    unsafe {
        asm!("mov {p}, [rip + clew_weave_self@GOTTPOFF]", "mov {p}, fs:[{p}]", p = out(reg) pointer,
            options(nostack, readonly, preserves_flags, pure));
    }
    pointer
}

pub fn set_me(thread: *mut Thread) {
    // SAFETY: writes this library's own thread-local word.
    unsafe {
        asm!("mov {p}, [rip + clew_weave_self@GOTTPOFF]", "mov fs:[{p}], {v}", p = out(reg) _, v = in(reg) thread,
            options(nostack, preserves_flags));
    }
}

/// All threads, the youngest first.
pub static ALL: AtomicPtr<Thread> = AtomicPtr::new(core::ptr::null_mut());
static LISTED: Lock = Lock::new();
static mut FREE: *mut Thread = core::ptr::null_mut();

/// A thread's own record, in the list.
pub fn new(mode: u32, id: u32) -> *mut Thread {
    LISTED.lock();
    // SAFETY: under the lock. A record on the list of free ones is nobody's.
    let thread = unsafe {
        let mut thread = FREE;
        if thread.is_null() {
            const COUNT: usize = 16;
            thread = sys::map(COUNT * size_of::<Thread>()).cast::<Thread>();
            for n in 1..COUNT {
                (*thread.add(n)).free = FREE;
                FREE = thread.add(n);
            }
        } else {
            FREE = (*thread).free;
            core::ptr::write_bytes(thread, 0, 1);
        }
        (*thread).mode = mode;
        (*thread).id = id;
        (*thread).due = u64::MAX;
        (*thread).next = ALL.load(Ordering::Relaxed);
        thread
    };
    ALL.store(thread, Ordering::Release);
    LISTED.unlock();
    thread
}

/// Takes it from the list. While recording, its record is used again; replaying, others may look at it.
pub fn remove(thread: *mut Thread) {
    LISTED.lock();
    // SAFETY: under the lock; records stay mapped.
    unsafe {
        let mut link = ALL.as_ptr();
        while !(*link).is_null() {
            if *link == thread {
                *link = (*thread).next;
                break;
            }
            link = &raw mut (**link).next;
        }
        if (*thread).mode != REPLAY {
            (*thread).free = FREE;
            FREE = thread;
        }
    }
    LISTED.unlock();
}

/// Looks at all threads while none comes or goes.
pub fn each(mut look: impl FnMut(&Thread)) {
    LISTED.lock();
    let mut thread = ALL.load(Ordering::Acquire);
    // SAFETY: records on the list are whole, under the lock.
    while let Some(one) = unsafe { thread.as_ref() } {
        look(one);
        thread = one.next;
    }
    LISTED.unlock();
}

//! Where proxies report: a list of those that have news, and how to get the executor's ear.
//!
//! A proxy pushes itself onto the list and then looks at what the executor does: asleep, it is
//! woken; running guest code, it is *kicked* with a signal so that the guest leaves the cache at
//! its next tick; busy in the engine, it will look at the list by itself before it goes back.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use super::proxy::ProxyBlock;
use super::siginfo::Siginfo;

/// The kick: a signal that is never blocked on the executor and that no guest can tell from
/// silence, since its siginfo is known to the handler. (A real-time signal of its own would be
/// one that guests couldn't use.)
pub const KICK: i32 = libc::SIGILL;
const KICK_CODE: i32 = -0x63_6c65;
const KICK_VALUE: u64 = 0x6b63_696b_2077_656c;

#[repr(C)]
#[derive(Default)]
pub struct Hub {
    events: AtomicPtr<ProxyBlock>,
    /// 1 while the executor waits for events; also the word that it waits on.
    sleeping: AtomicU32,
    /// 1 while guest code runs, or is about to.
    running: AtomicU32,
    pub pid: AtomicI32,
    pub executor_tid: AtomicI32,
    /// Base of the executor's alternate stack.
    pub handler_stack: AtomicU64,
}

pub fn is_kick(info: &Siginfo) -> bool {
    info.signo() == KICK && info.code() == KICK_CODE && info.value() == KICK_VALUE
}

/// Kicks the executor of a process.
pub fn kick_other(pid: i32, tid: i32) {
    let info = Siginfo::queued(KICK, KICK_CODE, KICK_VALUE);
    // SAFETY: sends a signal that the executor's handler knows; touches no memory.
    unsafe {
        crate::syscall!(libc::SYS_rt_tgsigqueueinfo, pid, tid, KICK, info.0.as_ptr());
    }
}

impl Hub {
    /// For proxies and their handlers: `block` has news.
    pub fn report(&self, block: &ProxyBlock) {
        if block.reported.swap(1, Ordering::SeqCst) == 0 {
            let mut head = self.events.load(Ordering::Relaxed);
            loop {
                block.next_report.store(head, Ordering::Relaxed);
                let this = std::ptr::from_ref(block).cast_mut();
                match self.events.compare_exchange_weak(
                    head,
                    this,
                    Ordering::Release,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => break,
                    Err(now) => head = now,
                }
            }
        }
        fence(Ordering::SeqCst);
        if self.sleeping.swap(0, Ordering::SeqCst) == 1 {
            futex_wake(&self.sleeping);
        } else if self.running.swap(0, Ordering::SeqCst) == 1 {
            self.kick();
        }
    }

    fn kick(&self) {
        kick_other(
            self.pid.load(Ordering::Relaxed),
            self.executor_tid.load(Ordering::Relaxed),
        );
    }

    pub fn any(&self) -> bool {
        !self.events.load(Ordering::Acquire).is_null()
    }

    /// All reports so far, oldest first.
    pub fn take(&self) -> Vec<*mut ProxyBlock> {
        let mut list = Vec::new();
        let mut next = self.events.swap(null_mut(), Ordering::AcqRel);
        while !next.is_null() {
            list.push(next);
            // SAFETY: blocks are never unmapped, and one on the list isn't reused.
            let block = unsafe { &*next };
            next = block.next_report.load(Ordering::Relaxed);
        }
        for &block in &list {
            // SAFETY: as above. From here on the block may report again. Sequentially consistent: a
            // proxy that still finds itself on the list left its news before we look for them.
            unsafe { (*block).reported.swap(0, Ordering::SeqCst) };
        }
        list.reverse();
        list
    }

    /// The executor is about to run guest code: from now on reports kick. Look at [`Hub::any`]
    /// after this.
    pub fn entering_guest(&self) {
        self.running.store(1, Ordering::SeqCst);
    }
    pub fn left_guest(&self) {
        self.running.store(0, Ordering::Relaxed);
    }

    /// Waits for a report, at most `timeout` nanoseconds.
    pub fn sleep(&self, timeout: Option<u64>) {
        self.sleeping.store(1, Ordering::SeqCst);
        if !self.any() {
            futex_wait(&self.sleeping, 1, timeout);
        }
        self.sleeping.store(0, Ordering::SeqCst);
    }

    /// In a forked child nobody else exists.
    pub fn reset(&self) {
        self.events.store(null_mut(), Ordering::Relaxed);
        self.sleeping.store(0, Ordering::Relaxed);
        self.running.store(0, Ordering::Relaxed);
    }
}

pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: waking needs no access beyond the word's address.
    unsafe {
        let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        crate::syscall!(libc::SYS_futex, word.as_ptr(), op, 1);
    }
}

/// Waits while `word` is `value`; may return early.
pub fn futex_wait(word: &AtomicU32, value: u32, timeout: Option<u64>) {
    let time = timeout.map(|ns| [ns / 1_000_000_000, ns % 1_000_000_000]);
    let time = time.as_ref().map_or(std::ptr::null(), |t| t.as_ptr());
    // SAFETY: the kernel reads the word and the timespec, both alive for the call.
    unsafe {
        let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        crate::syscall!(libc::SYS_futex, word.as_ptr(), op, value, time);
    }
}

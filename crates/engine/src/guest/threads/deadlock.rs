//! Threads that wait for each other for good. In: a process in which no thread can run. Out: who waits for whom, as an event
//! of the recording; where that is wanted the process ends there.
//!
//! Only what can't end by itself counts: all threads wait at emulated futexes, which nobody else can wake, without timeouts, and
//! no signal from outside has a handler that could change things. What waits in the kernel (pipes, sockets, locks
//! shared with other processes) may be woken by others, and is left to a time limit.

use clew_recording::deadlock::{Awaited, Waiter};
use clew_recording::event::Cause;

use super::{State, Thread};
use crate::executor::Executor;
use crate::guest::access;
use crate::host::sigset::SigSet;

/// The C library's own signals, which only threads of the process send.
const INTERNAL: [i32; 2] = [32, 33];
/// Bits of a lock's word that hold its owner, where it has one.
const OWNER: u32 = 0x3fff_ffff;
/// Where glibc keeps a mutex's owner.
const GLIBC_OWNER: u64 = 8;
/// glibc's word of a mutex that others wait for.
const GLIBC_CONTENDED: u32 = 2;

impl Executor {
    /// No thread can run, and none has been woken. If that can never change, says so; only once.
    pub(super) fn watch_for_deadlock(&mut self) {
        if self.threads.deadlock_told || !self.all_stuck() || self.signal_under_way() {
            return;
        }
        self.threads.deadlock_told = true;
        let waiters = self.who_waits();
        self.record_deadlock(waiters);
        if self.options.stop_at_deadlock {
            self.die(libc::SIGABRT, Cause::Outside);
        }
    }

    fn all_stuck(&self) -> bool {
        let at_futex = |thread: &Thread| matches!(thread.state, State::OnFutex { .. });
        let timed = |thread: &Thread| thread.wait != 0;
        let mut threads = self.threads.iter().map(|(_, thread)| thread);
        threads.all(|thread| at_futex(thread) && !timed(thread)) && !self.signals_may_help()
    }

    /// Whether one thread has sent another a signal (to cancel it) that wasn't told yet. It was pending before the sender
    /// came to wait, so a proxy that answers has taken it.
    fn signal_under_way(&self) -> bool {
        let threads = self.threads.iter();
        threads.for_each(|(_, thread)| thread.take_signals());
        self.gs.hub.any()
    }

    /// Whether a signal from outside could run a handler.
    fn signals_may_help(&self) -> bool {
        (1..=64).any(|sig| {
            !SigSet::SYNCHRONOUS.contains(sig)
                && !INTERNAL.contains(&sig)
                && self.signals.has_handler(sig)
        })
    }

    /// All threads.
    fn who_waits(&self) -> Vec<Waiter> {
        let threads = self.threads.iter();
        let waiter = |(slot, thread): (usize, &Thread)| {
            let word = self.threads.waits_at(slot)?;
            Some(Waiter {
                tid: thread.tid,
                waits: self.awaited(word),
            })
        };
        threads.filter_map(waiter).collect()
    }

    fn awaited(&self, word: u64) -> Awaited {
        let mut threads = self.threads.iter().map(|(_, thread)| thread);
        if let Some(other) = threads.find(|thread| thread.clear_child_tid == word) {
            return Awaited::End { tid: other.tid };
        }
        let living = |tid: u32| {
            let tid = tid as i32;
            (tid != 0 && self.threads.slot_of(tid).is_some()).then_some(tid)
        };
        let value = access::read::<u32>(word).unwrap_or(0);
        let beside = access::read::<u32>(word.wrapping_add(GLIBC_OWNER)).unwrap_or(0);
        let owner = match value {
            GLIBC_CONTENDED => living(beside),
            _ => living(value & OWNER),
        };
        match owner {
            Some(owner) => Awaited::Lock { addr: word, owner },
            None => Awaited::Wake { addr: word },
        }
    }
}

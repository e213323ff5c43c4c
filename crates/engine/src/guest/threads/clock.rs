//! How long turns take: to end those that are spent in slow system calls, and to tell a guest
//! thread its processor time, which the kernel only knows of the executor's.

use crate::executor::Executor;
use crate::guest::futex::time::now;

/// A turn may take some 20 milliseconds when others wait (time-stamp counters run at 2 to 4 GHz).
/// Ticks and the number of calls bound it much earlier, except for calls that take long (a write of
/// megabytes). Not less, since this makes schedules depend on how busy the machine is.
const LONGEST_TURN: u64 = 60_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub struct TurnClock {
    started: u64,
    /// Cycles of all finished turns.
    total: u64,
}

fn cycles() -> u64 {
    // SAFETY: reads the time-stamp counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

impl Executor {
    /// Books the turn that ends here. Waiting is nobody's time.
    pub(super) fn stop_clock(&mut self) {
        let started = std::mem::take(&mut self.threads.clock.started);
        if started != 0 {
            let took = cycles().saturating_sub(started);
            self.threads.clock.total += took;
            let slot = self.threads.current;
            if let Some(thread) = self.threads.get_mut(slot) {
                thread.cycles += took;
            }
        }
    }

    pub(super) fn start_clock(&mut self) {
        if self.threads.clock.started == 0 {
            self.threads.clock.started = cycles();
        }
    }

    /// Whether the turn has gone on for so long that others should have theirs.
    pub(super) fn turn_is_long(&self) -> bool {
        let started = self.threads.clock.started;
        started != 0 && cycles().saturating_sub(started) > LONGEST_TURN
    }

    /// Processor time of a guest thread in nanoseconds, for CLOCK_THREAD_CPUTIME_ID: its share of
    /// the executor's.
    pub fn cpu_time_of(&mut self, slot: usize) -> u64 {
        let executor = now(libc::CLOCK_THREAD_CPUTIME_ID);
        if !self.threads.multi {
            return executor;
        }
        self.stop_clock();
        self.start_clock();
        let total = u128::from(self.threads.clock.total.max(1));
        let Some(thread) = self.threads.get_mut(slot) else {
            return 0;
        };
        let share = (u128::from(executor) * u128::from(thread.cycles) / total) as u64;
        // Shares shift; a clock must not go back.
        thread.cpu_time = thread.cpu_time.max(share);
        thread.cpu_time
    }
}

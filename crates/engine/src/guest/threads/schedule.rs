//! Whose turn it is: the policy chooses among runnable threads; sleep when there is none.

use std::cmp::Reverse;

use super::{State, Wake};
use crate::context::RAX;
use crate::executor::Executor;
use crate::guest::signals::Signals;
use crate::guest::virtual_time;
use crate::host::proxy::{Proxy, Reply};
use crate::host::siginfo::Siginfo;
use crate::host::sigset::SigSet;
use crate::host::switch;
use crate::host::virtual_clock;
use crate::memory::govern;
use crate::sys::err;

impl Executor {
    /// Leaves with a current thread that can run, its signals delivered and its budget set.
    pub fn schedule(&mut self) {
        if !self.threads.multi {
            loop {
                self.pass_time();
                self.deliver_signals();
                self.share();
                self.threads.turn_over = false;
                self.refill();
                // A kick before the refill may have cut nothing: look again.
                if !self.attention() {
                    return;
                }
            }
        }
        loop {
            self.collect_reports();
            self.pass_time();
            self.deliver_signals();
            self.share();
            if !self.current_is_runnable() || self.threads.turn_over || self.turn_is_up() {
                self.expire_timers();
                self.stop_clock();
                if self.await_outside() {
                    continue;
                }
                if !self.next_thread() {
                    self.watch_for_deadlock();
                    if virtual_clock::active() {
                        self.wait_virtually();
                        continue;
                    }
                    let timeout = self.until_next_timer();
                    govern::park();
                    self.gs.hub.sleep(timeout);
                    govern::unpark();
                    continue;
                }
            }
            self.start_clock();
            if !self.end_wait() {
                continue;
            }
            if !self.current().signals.pending.is_empty() {
                self.deliver_to_current();
            }
            self.refill();
            if self.scripted_steps() || self.tickless_turn() {
                continue;
            }
            self.gs.hub.entering_guest();
            self.record_loose_effects();
            if !self.gs.hub.any() && !self.attention() {
                return;
            }
            self.gs.hub.left_guest();
        }
    }

    /// Makes the next thread current, if another shall run; false if none can.
    fn next_thread(&mut self) -> bool {
        self.threads.turn_over = false;
        let current = self.current_is_runnable().then_some(self.threads.current);
        self.judge_turn(current);
        let threads = &mut self.threads;
        let next = threads
            .policy
            .next(&mut threads.queue, current, &mut threads.slots);
        let Some(next) = next else {
            return current.is_some();
        };
        self.threads.queue.extend(current);
        self.switch_to(next);
        true
    }

    pub(super) fn switch_to(&mut self, next: usize) {
        self.count_ticks();
        self.record_switch(next);
        self.trace_turn();
        let current = self.threads.current;
        if let Some(old) = self.threads.slots[current].as_deref_mut() {
            old.regs = self.gs.regs;
            switch::save_extended(self.gs, &mut old.xsave);
        }
        self.threads.current = next;
        if let Some(new) = self.threads.slots[next].as_deref() {
            self.gs.regs = new.regs;
            switch::load_extended(self.gs, &new.xsave);
        }
        self.gs.clear_ticks();
        self.threads.budget = 0;
        self.note_switched();
        self.threads.steps = 0;
        self.threads.turn = Default::default();
    }

    /// The current thread has waited: gives it the result, in its own turn. False if it waits on.
    fn end_wait(&mut self) -> bool {
        let thread = self.current();
        let Some(mut wake) = thread.wake.take() else {
            return true;
        };
        let mut finish = thread.finish.take();
        // Half a write isn't undone; none at all is, or fails, as the signal's action says.
        if let Some(done) = thread.writes.take()
            && (wake.aborted || wake.value == err(libc::EINTR))
        {
            finish = None;
            let pending = thread.signals.pending.clone();
            let undone = || pending.iter().all(|i| self.signals.restarts(i.signo()));
            wake = match done {
                0 => Wake {
                    aborted: wake.aborted || undone(),
                    ..wake
                },
                done => Wake {
                    value: done as i64,
                    aborted: false,
                    by: None,
                },
            };
        }
        if std::mem::take(&mut self.current().masked_call) {
            self.end_masked(wake.value, wake.aborted);
        }
        let before = self.gs.regs;
        let mut result = None;
        if wake.aborted {
            self.restart_syscall();
        } else {
            let value = finish.map_or(wake.value, |finish| finish(self, wake.value));
            if self.current().state != State::Runnable {
                return false;
            }
            self.gs.regs.gpr[RAX] = value as u64;
            result = Some(value);
        }
        if self.recording() {
            self.record_resumed(result, wake.by, &before);
        }
        true
    }

    /// Puts the current thread back onto its `syscall` instruction; rax still has the number.
    pub fn restart_syscall(&mut self) {
        self.gs.regs.rip -= 2;
    }

    /// Makes a waiting thread runnable. One that waited for the outside world goes first: what it
    /// waited for is there now.
    pub(in crate::guest) fn wake(&mut self, slot: usize, wake: Wake, first: bool) {
        let current = self.threads.current;
        let Some(thread) = self.threads.get_mut(slot) else {
            return;
        };
        thread.state = State::Runnable;
        thread.wake = Some(wake);
        thread.wait = 0;
        if slot == current {
            return;
        }
        if first {
            self.threads.queue.push_front(slot);
            self.threads.turn_over = true;
        } else {
            self.threads.queue.push_back(slot);
        }
    }

    /// News from proxies: calls that ended, signals that came.
    fn collect_reports(&mut self) {
        if !self.gs.hub.any() {
            return;
        }
        for block in self.gs.hub.take() {
            let proxy = Proxy::from_report(block);
            let slot = proxy.slot();
            // A report of a proxy that has been told to exit.
            if self.threads.get(slot).and_then(|thread| thread.proxy) != Some(proxy) {
                continue;
            }
            if let Some(reply) = proxy.poll() {
                self.call_ended(slot, reply);
            }
            // While the proxy is busy a taken signal must stay where it aborts the call.
            if proxy.is_idle() {
                let mut taken = Vec::new();
                proxy.block().host.drain(|info| taken.push(info));
                self.signals_came(slot, taken);
            }
        }
    }

    fn call_ended(&mut self, slot: usize, reply: Reply) {
        if let Some(thread) = self.threads.get_mut(slot) {
            if thread.posted_mask.take().is_some() && !reply.masked {
                thread.signals.kernel_mask = SigSet::ALL;
            }
            self.wake(
                slot,
                Wake {
                    value: reply.value,
                    aborted: reply.aborted,
                    by: None,
                },
                true,
            );
        }
    }

    fn signals_came(&mut self, slot: usize, taken: Vec<Siginfo>) {
        if taken.is_empty() {
            return;
        }
        if let Some(thread) = self.threads.get_mut(slot) {
            thread.signals.kernel_mask = SigSet::ALL;
        }
        for info in taken {
            self.give_signal(slot, info);
        }
    }

    /// A signal for a thread: kept for its next turn if there is a handler to run, which ends an
    /// emulated wait; otherwise the kernel gets it back or it is dropped.
    pub(in crate::guest) fn give_signal(&mut self, slot: usize, info: Siginfo) {
        self.die_if_fatal(slot, info.signo());
        let current = self.threads.current;
        let Some(thread) = self.threads.get_mut(slot) else {
            return;
        };
        if slot == current && thread.state == State::Runnable {
            thread.signals.pending.push_back(info);
            self.look_again();
            return;
        }
        let sig = info.signo();
        let (tid, blocked, state) = (thread.tid, thread.signals.mask.contains(sig), thread.state);
        let in_temporary_mask = thread.masked_call;
        if in_temporary_mask
            || (!blocked && self.signals.has_handler(sig))
            || thread.proxy.is_none()
        {
            thread.signals.pending.push_back(info);
            if let State::OnFutex { restartable } = state {
                let aborted = restarts(&self.signals, sig, restartable);
                self.leave_futex(slot);
                self.wake(
                    slot,
                    Wake {
                        value: err(libc::EINTR),
                        aborted,
                        by: None,
                    },
                    true,
                );
            }
        } else {
            let ignored = self.signals.action(sig).handler == libc::SIG_IGN as u64;
            self.sync_mask_of(slot);
            if blocked || !ignored {
                self.send_back(tid, &info);
            }
        }
    }

    /// Makes [`Executor::deliver_signals`] look even if no handler has run.
    pub fn look_again(&mut self) {
        self.gs.attention = 1;
    }

    /// When a thread's wait ends by itself.
    pub(in crate::guest) fn set_timer(&mut self, slot: usize, deadline: u64) {
        self.threads.waits += 1;
        let wait = self.threads.waits;
        if let Some(thread) = self.threads.get_mut(slot) {
            thread.wait = wait;
            thread.deadline = deadline;
        }
        let deadline = self.choose_moment(deadline);
        let threads = &mut self.threads;
        // Waits that ended early leave their timers behind: sweep them out now and then.
        if threads.timers.len() > 64 + 2 * threads.slots.len() {
            let slots = &threads.slots;
            threads.timers.retain(|&Reverse((_, slot, wait))| {
                slots[slot]
                    .as_ref()
                    .is_some_and(|thread| thread.wait == wait)
            });
        }
        threads.timers.push(Reverse((deadline, slot, wait)));
    }

    fn expire_timers(&mut self) {
        if self.threads.timers.is_empty() {
            return;
        }
        let now = match virtual_clock::active() {
            true => virtual_time::monotonic(),
            false => crate::guest::futex::time::now(libc::CLOCK_MONOTONIC),
        };
        while let Some(&Reverse((deadline, slot, wait))) = self.threads.timers.peek() {
            let stale = self
                .threads
                .get(slot)
                .is_none_or(|thread| thread.wait != wait);
            if !stale && deadline > now {
                break;
            }
            self.threads.timers.pop();
            if !stale {
                if virtual_clock::active() {
                    let deadline = self.threads.get(slot).map_or(0, |thread| thread.deadline);
                    virtual_clock::jump(deadline);
                }
                self.leave_futex(slot);
                self.wake(
                    slot,
                    Wake {
                        value: err(libc::ETIMEDOUT),
                        aborted: false,
                        by: None,
                    },
                    false,
                );
            }
        }
    }

    /// In virtual time a policy that hunts chooses when a timed wait is over and a timer goes off: so much work is done
    /// until then, and the clock jumps.
    pub(in crate::guest) fn choose_moment(&mut self, deadline: u64) -> u64 {
        if !virtual_clock::active() {
            return deadline;
        }
        let now = virtual_time::monotonic();
        let ticks = deadline.saturating_sub(now) / virtual_clock::TICK;
        match self.threads.policy.patience_of(ticks) {
            Some(ticks) => now + ticks * virtual_clock::TICK,
            None => deadline,
        }
    }

    /// Signals of timers that have gone off by now.
    fn pass_time(&mut self) {
        if virtual_clock::active() {
            self.count_ticks();
            self.fire_timers();
        }
    }

    /// In virtual time: when the next timed wait is over.
    pub(in crate::guest) fn next_timed_wait(&mut self) -> Option<u64> {
        while let Some(&Reverse((due, slot, wait))) = self.threads.timers.peek() {
            if self
                .threads
                .get(slot)
                .is_some_and(|thread| thread.wait == wait)
            {
                return Some(due);
            }
            self.threads.timers.pop();
        }
        None
    }

    fn until_next_timer(&self) -> Option<u64> {
        let &Reverse((deadline, ..)) = self.threads.timers.peek()?;
        Some(deadline.saturating_sub(crate::guest::futex::time::now(libc::CLOCK_MONOTONIC)))
    }
}

fn restarts(signals: &Signals, sig: i32, restart: super::Restart) -> bool {
    match restart {
        super::Restart::Always => true,
        super::Restart::Never => false,
        super::Restart::Flagged => signals.restarts(sig),
    }
}

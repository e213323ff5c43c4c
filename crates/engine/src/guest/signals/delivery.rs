//! From "taken" to the guest's handler: what was taken is given to its thread, looked at again
//! under the current mask and disposition, and put on the guest's stack.

use std::sync::atomic::Ordering;

use super::altstack::{AltStack, SS_AUTODISARM};
use super::frame::{self, Details};
use clew_recording::event::{Cause, Place};

use crate::context::{RAX, RDI, RDX, RSI, RSP, Xsave};
use crate::executor::Executor;
use crate::guest::threads::{State, Thread};
use crate::host::siginfo::{self, Siginfo};
use crate::host::sigset::SigSet;
use crate::host::{borrower, handlers, switch};

const SA_NODEFER: u64 = libc::SA_NODEFER as u64;
const SA_RESETHAND: u64 = libc::SA_RESETHAND as u64;
const SA_ONSTACK: u64 = libc::SA_ONSTACK as u64;
/// Direction, resume and trap flags are clear in a handler.
const CLEARED_FLAGS: u64 = 0x400 | 0x1_0000 | 0x100;

impl Executor {
    /// Whether a host handler has left something since the last look.
    pub fn attention(&self) -> bool {
        // SAFETY: a plain field that handlers on this kernel thread write: read it for real.
        unsafe { std::ptr::read_volatile(&raw const self.gs.attention) != 0 }
    }

    /// Delivers to the current thread what has come for it.
    pub fn deliver_signals(&mut self) {
        while self.attention() {
            // SAFETY: as above. Cleared before looking, so that nothing is missed.
            unsafe { std::ptr::write_volatile(&raw mut self.gs.attention, 0) };
            self.collect_own();
            // A thread that has just waited gets its result first, see `schedule`.
            if self.current_is_runnable() && !self.current().has_result() {
                self.deliver_to_current();
            }
        }
    }

    /// Signals that the executor's own kernel thread took: for the only guest thread, or for any
    /// that will have them.
    fn collect_own(&mut self) {
        let mut taken = Vec::new();
        self.gs.host.drain(|info| taken.push(info));
        if taken.is_empty() {
            return;
        }
        if !self.multi_threaded() {
            self.current().signals.kernel_mask = SigSet::ASYNCHRONOUS;
        }
        for info in taken {
            let slot = self.threads.slot_accepting(info.signo());
            self.die_if_fatal(slot, info.signo());
            match self.threads.get(slot) {
                // Only a signal to its proxy ends its call.
                Some(thread) if thread.state == State::OnProxy => {
                    siginfo::send_to_thread(thread.tid, info.signo());
                }
                _ => self.give_signal(slot, info),
            }
        }
    }

    /// A call failed in a way that comes with a signal to the kernel thread that made it. With
    /// several guest threads that may have been the executor, which blocks everything: the signal is
    /// the current thread's.
    pub fn collect_raised(&mut self, value: i64) {
        let sig = match -value as i32 {
            libc::EPIPE => libc::SIGPIPE,
            libc::EFBIG => libc::SIGXFSZ,
            _ => return,
        };
        if !self.multi_threaded() {
            return;
        }
        let (set, mut info, at_once) = (SigSet::only(sig), Siginfo::zeroed(), [0u64; 2]);
        // SAFETY: the kernel reads a set and a time and writes one siginfo, all of them alive.
        let got = unsafe {
            crate::syscall!(
                libc::SYS_rt_sigtimedwait,
                &raw const set,
                &raw mut info,
                &raw const at_once,
                8
            )
        };
        if got != i64::from(sig) {
            return;
        }
        if self.current().signals.mask.contains(sig) {
            // Not the process's: another thread mustn't have it.
            self.sync_mask();
            siginfo::send_to_thread(self.tid(), sig);
        } else {
            self.current().signals.pending.push_back(info);
            self.look_again();
        }
    }

    /// Deals with all pending signals of the current thread that can be dealt with now.
    pub fn deliver_to_current(&mut self) {
        let mut at = 0;
        while let Some(&info) = self.current().signals.pending.get(at) {
            let sig = info.signo();
            let blocked = self.current().signals.mask.contains(sig);
            if blocked && SigSet::SYNCHRONOUS.contains(sig) && self.current().proxy.is_none() {
                // The kernel can't hold this one back: it waits here.
                at += 1;
                continue;
            }
            self.current().signals.pending.remove(at);
            if blocked {
                self.put_back(&info);
            } else {
                self.act_on(&info);
            }
        }
        // A call with a temporary mask ended without a handler to run.
        if let Some(mask) = self.current().signals.saved_mask.take() {
            self.current().signals.mask = mask;
        }
        self.unblock_in_kernel();
    }

    /// A signal that came although the guest blocks it (by now): back into the kernel.
    fn put_back(&mut self, info: &Siginfo) {
        let tid = self.current().tid;
        if self.multi_threaded() {
            self.sync_mask();
        }
        // Alone, all is still blocked: the signal was taken and the mask not yet set again.
        self.send_back(tid, info);
    }

    /// Into the kernel's queues again.
    pub(in crate::guest) fn send_back(&self, tid: i32, info: &Siginfo) {
        if self.multi_threaded() && SigSet::SYNCHRONOUS.contains(info.signo()) {
            // Sent to the process it would come to the executor, which can't block it.
            siginfo::send_to_thread(tid, info.signo());
        } else {
            siginfo::requeue(tid, info);
        }
    }

    /// Does what the guest's disposition says.
    fn act_on(&mut self, info: &Siginfo) {
        let sig = info.signo();
        let handler = self.signals.action(sig).handler;
        if handler == libc::SIG_IGN as u64 {
            return;
        }
        if handler != libc::SIG_DFL as u64 {
            self.run_handler(info, Cause::Outside);
            return;
        }
        match sig {
            libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH | libc::SIGCONT => {}
            // The kernel would have dropped it.
            _ if SigSet::FATAL.contains(sig) && self.is_spared() => {}
            _ if self.signals.kills(sig) => self.die(sig, Cause::Outside),
            // The disposition changed after the signal was taken, or a call raised it. Back in the
            // kernel it would kill from beside, with the guest going on for a while.
            _ if SigSet::FATAL.contains(sig) => self.die(sig, Cause::Outside),
            // The disposition changed after the signal was taken: now it's the kernel's to act on.
            _ => siginfo::requeue(self.current().tid, info),
        }
    }

    /// Whether this is the first process of a pid namespace: the kernel spares it what kills by
    /// default.
    pub(crate) fn is_spared(&self) -> bool {
        self.gs.hub.pid.load(Ordering::Relaxed) == 1
    }

    /// Ends the process if `sig`, which has come for this thread, kills and isn't blocked there.
    /// Whatever its threads wait for, there is nobody left to wait.
    pub(in crate::guest) fn die_if_fatal(&mut self, slot: usize, sig: i32) {
        let accepts = |thread: &Thread| !thread.signals.mask.contains(sig);
        if self.threads.get(slot).is_some_and(accepts)
            && self.signals.kills(sig)
            && !self.is_spared()
        {
            self.die(sig, Cause::Outside);
        }
    }

    /// Puts a frame on the current thread's stack and makes it go on in its handler.
    pub fn run_handler(&mut self, info: &Siginfo, cause: Cause) {
        let at = self.recording().then(|| self.signal_place(cause));
        let sig = info.signo();
        let action = *self.signals.action(sig);
        let thread = self.current();
        let signals = thread.signals.clone();
        let regs = self.gs.regs;
        let place = frame::place(
            regs.gpr[RSP],
            &signals.altstack,
            action.flags & SA_ONSTACK != 0,
        );
        let mut area = Xsave::default();
        switch::save_extended(self.gs, &mut area);
        let written = place
            .filter(|_| action.flags & handlers::SA_RESTORER != 0)
            .and_then(|place| {
                let details = Details {
                    info,
                    restorer: action.restorer,
                    altstack: signals.altstack,
                    mask: signals.saved_mask.unwrap_or(signals.mask),
                    trap: signals.trap,
                };
                let frame = frame::build(&regs, place, &details);
                self.write_guest(place.xstate, &frame::build_xstate(&area))
                    .ok()?;
                self.write_guest(place.frame, &frame).ok()?;
                Some(place)
            });
        let Some(place) = written else {
            return self.no_room_for_frame(sig, cause, at);
        };
        let entered = &mut self.gs.regs;
        entered.gpr[RDI] = sig as u64;
        entered.gpr[RSI] = place.frame + 8 + frame::UCONTEXT as u64;
        entered.gpr[RDX] = place.frame + 8;
        entered.gpr[RAX] = 0;
        entered.gpr[RSP] = place.frame;
        entered.rip = action.handler;
        entered.rflags &= !CLEARED_FLAGS;
        switch::load_extended(self.gs, &Xsave::default());
        let signals = &mut self.current().signals;
        signals.saved_mask = None;
        if signals.altstack.flags & SS_AUTODISARM != 0 {
            signals.altstack = AltStack::default();
        }
        let mut mask = signals.mask.union(action.mask);
        if action.flags & SA_NODEFER == 0 {
            mask = mask.union(SigSet::only(sig));
        }
        signals.mask = mask.blockable();
        if let Some(place) = at {
            self.record_signal(info, cause, place, (&regs, &area));
        }
        if action.flags & SA_RESETHAND != 0 {
            let reset = handlers::Action {
                handler: libc::SIG_DFL as u64,
                ..action
            };
            self.signals.set_action(sig, reset);
        }
    }

    /// The process dies by `sig`, here and now.
    pub fn die(&mut self, sig: i32, cause: Cause) -> ! {
        self.ending();
        self.record_death(sig, cause);
        borrower::leaves();
        handlers::die_by(sig)
    }

    /// The frame couldn't be written: a segmentation fault, and if it was for one, death.
    fn no_room_for_frame(&mut self, sig: i32, cause: Cause, at: Option<Place>) {
        if let Some(place) = at {
            self.unplace(place);
        }
        if sig == libc::SIGSEGV {
            self.die(libc::SIGSEGV, cause);
        }
        self.force(&Siginfo::fault(libc::SIGSEGV, siginfo::SI_KERNEL, 0), cause);
    }
}

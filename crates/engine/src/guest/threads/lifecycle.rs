//! Begin of the engine's life in a process, and what fork and vfork make of it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::policy::{Policy, lineage_of_child};
use super::{State, Thread, Threads};
use crate::executor::Executor;
use crate::guest::signals::{Signals, ThreadSignals};
use crate::host::kernel_thread::Role;
use crate::host::sigset::{self, SigSet, set_kernel_mask};
use crate::host::{altstack, crash};
use crate::kernel::stop;
use crate::memory::govern;

const ARCH_SET_GS: u64 = 0x1001;

/// What a parent gets back when the child that borrowed its memory (vfork) has gone.
pub struct Borrowed {
    threads: Threads,
    signals: Signals,
    pid: i32,
    executor_tid: i32,
    ticks: i64,
}

fn own_ids() -> (i32, i32) {
    // SAFETY: asks for ids.
    unsafe {
        (
            crate::syscall!(libc::SYS_getpid) as i32,
            crate::syscall!(libc::SYS_gettid) as i32,
        )
    }
}

impl Executor {
    /// Takes over the process: gs, handlers, mask. Once, before the guest runs; on the kernel
    /// thread that will run it.
    pub fn take_over_process(&mut self) {
        let gs = std::ptr::from_mut(self.gs);
        let mask = sigset::kernel_mask();
        set_kernel_mask(SigSet::ALL);
        crash::install(gs);
        self.gs.host.set_role(Role::Executor);
        self.note_ids();
        // SAFETY: the block lives as long as the process, and nothing else uses gs.
        unsafe {
            crate::syscall!(libc::SYS_arch_prctl, ARCH_SET_GS, gs);
        }
        let stack = altstack::map(altstack::EXECUTOR_SIZE);
        assert!(stack != 0, "no memory for the signal handlers' stack");
        self.gs.hub.handler_stack.store(stack, Ordering::Relaxed);
        altstack::install(stack, altstack::EXECUTOR_SIZE);
        self.signals = Signals::inherited(self.hooks_signals());
        self.threads.policy = Policy::new(&self.options, self.kernel.own.lineage);
        let tid = self.gs.hub.executor_tid.load(Ordering::Relaxed);
        let main = self.current();
        main.tid = tid;
        main.signals.mask = mask.blockable();
        main.signals.kernel_mask = SigSet::ALL;
        self.sync_mask();
    }

    /// Whether this process's death by a signal must have a place. The first of a pid namespace doesn't die so.
    fn hooks_signals(&self) -> bool {
        (self.recording() || self.options.hook) && !self.is_spared()
    }

    fn note_ids(&mut self) {
        let (pid, tid) = own_ids();
        self.gs.hub.pid.store(pid, Ordering::Relaxed);
        self.gs.hub.executor_tid.store(tid, Ordering::Relaxed);
    }

    /// Before a fork or vfork: blocks everything, so that a signal is taken either by the parent
    /// before or by the right process after.
    pub fn before_fork(&mut self) {
        self.kernel.own.children += 1;
        set_kernel_mask(SigSet::ASYNCHRONOUS);
        if !self.threads.multi {
            self.current().signals.kernel_mask = SigSet::ASYNCHRONOUS;
        }
    }

    /// In the parent of a fork, also of one that failed.
    pub fn after_fork_parent(&mut self) {
        if !self.threads.multi {
            self.sync_mask();
        }
    }

    /// In the child of a fork: one kernel thread is left, and one guest thread, the one that
    /// forked. Nothing is pending for it.
    pub fn after_fork_child(&mut self) {
        self.note_ids();
        self.gs.hub.reset();
        self.gs.host.clear();
        let threads = std::mem::take(&mut self.threads);
        self.threads = only_current(threads);
        self.choose_own_policy();
        self.kernel.timers.clear();
        let ticks = self.ticks_now();
        self.current().life.begin(ticks);
        self.current().tid = own_ids().1;
        self.current().robust_list = 0;
        self.current().clear_child_tid = 0;
        let hooked = self.hooks_signals();
        self.signals.set_hooked(hooked);
        // Whatever the parent had, set it anew.
        self.current().signals.kernel_mask = SigSet::ALL;
        self.sync_mask();
    }

    /// A child decides by itself, but as it did the last time.
    fn choose_own_policy(&mut self) {
        let own = &mut self.kernel.own;
        own.lineage = lineage_of_child(own.lineage, own.children);
        own.children = 0;
        self.threads.policy = Policy::new(&self.options, own.lineage);
    }

    /// Before a vfork: lends the executor to the child, which runs on it, in the same memory, as
    /// a process with one thread. The value goes to [`Executor::after_vfork_parent`].
    pub fn before_vfork(&mut self) -> Borrowed {
        self.before_fork();
        self.count_ticks();
        // Recordings number the child among the threads.
        self.threads.begun += 1;
        let mut child = Thread::new(0);
        child.signals = ThreadSignals {
            pending: VecDeque::new(),
            saved_mask: None,
            ..self.current().signals.clone()
        };
        child.tsc_faults = self.current().tsc_faults;
        child.rules = self.current().rules.clone();
        let mut threads = Threads::default();
        threads.slots[0] = Some(child);
        let mut borrowed = Borrowed {
            threads: std::mem::replace(&mut self.threads, threads),
            signals: self.signals.snapshot(),
            pid: self.gs.hub.pid.load(Ordering::Relaxed),
            executor_tid: self.gs.hub.executor_tid.load(Ordering::Relaxed),
            ticks: self.gs.ticks_in_hand(),
        };
        // A signal that the parent took stays the parent's.
        let slot = borrowed.threads.current;
        if let Some(thread) = borrowed.threads.get_mut(slot) {
            self.gs
                .host
                .drain(|info| thread.signals.pending.push_back(info));
        }
        self.gs.clear_ticks();
        borrowed
    }

    /// In the child of a vfork, first thing.
    pub fn after_vfork_child(&mut self) {
        self.note_ids();
        self.choose_own_policy();
        self.current().tid = own_ids().1;
        let hooked = self.hooks_signals();
        self.signals.set_hooked(hooked);
        self.current().signals.kernel_mask = SigSet::ALL;
        self.sync_mask();
    }

    /// In the parent of a vfork, also of one that failed.
    pub fn after_vfork_parent(&mut self, borrowed: Borrowed) {
        // What the child took and never delivered died with it.
        self.gs.host.clear();
        self.threads = borrowed.threads;
        self.signals.restore(borrowed.signals);
        self.gs.hub.pid.store(borrowed.pid, Ordering::Relaxed);
        self.gs
            .hub
            .executor_tid
            .store(borrowed.executor_tid, Ordering::Relaxed);
        self.gs.clear_ticks();
        self.gs.add_ticks(borrowed.ticks);
        self.after_fork_parent();
        // Look at everything once: what was taken before, what came meanwhile.
        self.look_again();
    }

    /// Keeps what was translated for the next run.
    pub fn save_code(&mut self) {
        if !self.kernel.own.in_vfork {
            self.code.save();
        }
    }

    /// The process is about to end: last accounts.
    pub fn ending(&mut self) {
        self.count_ticks();
        self.trace_turn();
        self.save_code();
        self.report_stats();
        if self.options.sharing
            && let Some(line) = govern::counts()
        {
            stop::warn(&line);
        }
        crate::lockstep::finish(self);
    }
}

/// The current thread of `threads` as the only one, without a proxy.
fn only_current(mut threads: Threads) -> Threads {
    let mut only = Threads {
        budget: threads.budget,
        steps: threads.steps,
        begun: threads.begun,
        ..Threads::default()
    };
    only.pool = std::mem::take(&mut threads.pool);
    only.pool.reclaim_all();
    for thread in threads.slots.iter_mut().flatten() {
        if let Some(proxy) = thread.proxy.take() {
            only.pool.reclaim(proxy);
        }
    }
    if let Some(mut thread) = threads.slots[threads.current].take() {
        thread.signals.pending.clear();
        thread.state = State::Runnable;
        only.slots[0] = Some(thread);
    }
    only
}

//! The executor: one kernel thread that runs all guest threads of a process.
//!
//! In: a loaded guest. Out: the process ends. Each round delivers signals, picks a guest thread,
//! runs its translated code until it leaves the cache, and answers why it left.

use crate::cache::CodeCache;
use crate::context::{Exit, GsBlock};
use crate::guest::signals::Signals;
use crate::guest::threads::Threads;
use crate::guest::trap_flag;
use crate::kernel::{self, Kernel, Outcome};
use crate::lockstep::{self, Lockstep};
use crate::memory::{Memory, govern};
use crate::program::{Options, Program};
use crate::record::Recorder;
use crate::stats::Stats;

/// A process under the engine.
pub struct Executor {
    /// Registers of the current guest thread, tick budget, and what else translated code touches.
    pub gs: &'static mut GsBlock,
    pub memory: Memory,
    pub code: CodeCache,
    pub threads: Threads,
    pub signals: Signals,
    pub kernel: Kernel,
    pub program: Program,
    pub options: Options,
    pub stats: Stats,
    /// Writes down what happens, in the world *record*.
    pub recorder: Option<Box<Recorder>>,
    /// Compares translated with native execution; a debugging aid.
    pub lockstep: Option<Box<Lockstep>>,
}

impl Executor {
    /// Runs the guest to its end.
    pub fn run(&mut self) -> ! {
        loop {
            // Signals first: they may change where the current thread goes on, or end the process.
            self.deliver_signals();
            // Ends the turn of a thread that waits or has used its budget; waits when none can run.
            self.schedule();
            if govern::pending() {
                self.record_loose_effects();
            }
            if let Some(at) = govern::code::used() {
                self.memory.warn_of_code(at);
            }
            govern::runs_guest();
            let mut exit = self.enter();
            self.gs.hub.left_guest();
            self.threads.take_midway();
            self.handle(exit);
            // Between two places that can be found again nothing is delivered and nobody else runs.
            while self.threads.take_midway() {
                exit = self.code.go_on(self.gs, &mut self.memory, &mut self.stats);
                self.handle(exit);
            }
        }
    }

    /// Runs translated code of the current thread until it leaves the cache.
    fn enter(&mut self) -> Exit {
        if self.gs.regs.rflags & trap_flag::TRAP_FLAG != 0 {
            return self.enter_trapping();
        }
        if self.lockstep.is_some() {
            self.nothing_happened();
            return lockstep::enter(self);
        }
        let exit = self.code.enter(self.gs, &mut self.memory, &mut self.stats);
        // Otherwise nothing has run, and the thread is where it was.
        if exit != Exit::Attention {
            self.nothing_happened();
            self.threads.steps = 0;
        }
        exit
    }

    pub(crate) fn handle(&mut self, exit: Exit) {
        match exit {
            Exit::Syscall if self.recording() => self.recorded_call(),
            Exit::Syscall => {
                self.count_call();
                let outcome = kernel::dispatch(self);
                self.settle(&outcome);
            }
            Exit::Budget => self.budget_spent(),
            Exit::Emulate => {
                self.count_answer();
                if self.recording() {
                    self.recorded_instruction();
                } else {
                    kernel::emulate::instruction(self);
                }
            }
            Exit::Fault => self.fault(),
            // Links, indirect misses and stale heads are the cache's own business: `enter` answers
            // them and goes on.
            Exit::Link | Exit::Indirect | Exit::Stale | Exit::Step | Exit::Attention => {}
            Exit::Break | Exit::Watch => unreachable!("only replays have instruments"),
        }
    }

    /// Gives the current thread the answer to its system call.
    pub(crate) fn settle(&mut self, outcome: &Outcome) {
        match *outcome {
            Outcome::Return(value) => {
                self.gs.regs.gpr[crate::context::RAX] = value as u64;
                self.collect_raised(value);
            }
            Outcome::Restart => self.restart_syscall(),
            Outcome::Parked | Outcome::Replaced => {}
        }
    }

    /// A write to `addr` failed. True if its page was protected only because code was translated
    /// from it; then the write has been done and the blocks from that page are doubtful.
    pub fn code_write_fault(&mut self, addr: u64) -> bool {
        if !self.memory.code_write_fault(addr) {
            return false;
        }
        self.code.code_written(self.gs, &mut self.memory, addr);
        // With the trap flag set it is about to be stepped anyway.
        if self.gs.regs.rflags & trap_flag::TRAP_FLAG != 0 {
            return true;
        }
        // The writing instruction may come from the page it writes to: translating a block here
        // would protect the page again before the write is done.
        let exit = self
            .code
            .step_on(self.gs, &mut self.memory, &mut self.stats);
        if matches!(exit, Exit::Step | Exit::Link | Exit::Indirect | Exit::Stale) {
            self.threads.set_midway();
        }
        self.handle(exit);
        true
    }

    /// Whether the guest has a mapping at `addr`.
    pub fn is_mapped(&self, addr: u64) -> bool {
        self.memory.find(addr).is_some()
    }

    /// Whether `addr` lies in a shared mapping.
    pub fn is_shared(&self, addr: u64) -> bool {
        self.memory.find(addr).is_some_and(|mapping| mapping.shared)
    }
}

//! Runs the current thread of a replayed process: to where it leaves translated code by itself, to a tick, and
//! by single instructions.

use clew_recording::event::Place;

use super::machine::{Checked, Divergence, Machine};
use crate::context::{Exit, RAX};
use crate::guest::trap_flag::{self, TRAP_FLAG};
use crate::kernel::{emulate, table};
use crate::trace::Special;

/// More single steps than any recorder makes.
const MOST_STEPS: u32 = 1 << 12;
/// More ticks than any stretch between two events.
pub(super) const PLENTY: i64 = i64::MAX / 4;

impl Machine {
    /// Books the ticks used and allows `budget` more.
    pub(super) fn set_budget(&mut self, budget: i64) {
        let used = (self.budget - self.gs.ticks_left) as u64;
        if let Some(thread) = self.threads.get_mut(&self.current) {
            thread.ticks += used;
        }
        self.since += used as i64;
        self.total += used;
        self.budget = budget;
        self.gs.ticks_left = budget;
        self.gs.kicked = 0;
    }

    /// Runs the current thread until it leaves the cache for something that is an event.
    fn enter(&mut self) -> Exit {
        self.enter_with(false)
    }

    /// The same; with `past`, the instruments of the first instruction don't count.
    pub(super) fn enter_with(&mut self, mut past: bool) -> Exit {
        loop {
            if self.gs.regs.rflags & TRAP_FLAG != 0 {
                return self.step_trapping();
            }
            let (gs, memory) = (&mut *self.gs, &mut self.memory);
            let exit = match std::mem::take(&mut past) {
                true => self.code.enter_past(gs, memory, &mut self.stats),
                false => self.code.enter(gs, memory, &mut self.stats),
            };
            match exit {
                Exit::Fault if self.write_to_code() => {
                    // It may write to more pages than one.
                    let exit = self.step_over_code_writes();
                    if !is_inner(exit) {
                        return exit;
                    }
                    if self.gs.ticks_left == 0 {
                        return Exit::Budget;
                    }
                }
                Exit::Attention => self.gs.attention = 0,
                Exit::Emulate if self.passes() => {}
                _ => return exit,
            }
        }
    }

    /// The current thread stands before an instruction that the engine answers: if it is one without
    /// an event, carries it out.
    pub(super) fn passes(&mut self) -> bool {
        let now = self.since();
        if self.passed.0 != now {
            self.passed = (now, 0);
        }
        if self.stop_at_quiet == Some(self.passed) {
            return false;
        }
        let step = self.code.stepping(self.gs);
        let bases = (self.gs.regs.fs_base, self.gs.regs.gs_base);
        let passes = emulate::quiet(&mut self.gs.regs);
        if passes {
            self.code.stepped(self.gs, step);
            let changed = (self.gs.regs.fs_base, self.gs.regs.gs_base) != bases;
            if changed {
                self.trace_bases(bases);
            }
        }
        self.passed.1 += passes as u32;
        passes
    }

    /// Who did what a trace has so far.
    pub fn trace_thread(&mut self) {
        self.trace_bases((self.gs.regs.fs_base, self.gs.regs.gs_base));
    }

    fn trace_bases(&mut self, (fs, gs): (u64, u64)) {
        let words = [u64::from(self.current), fs, gs];
        self.code.trace_put(self.gs, Special::Thread, &words);
    }

    fn step(&mut self) -> Exit {
        self.code
            .step(self.gs, &mut self.memory, &mut self.stats, 1)
    }

    /// One instruction of a thread with the trap flag set, which the CPU mustn't see.
    fn step_trapping(&mut self) -> Exit {
        let opcode = trap_flag::opcode_at(self.gs.regs.rip);
        self.gs.regs.rflags &= !TRAP_FLAG;
        let exit = self.step_over_code_writes();
        if opcode != Some(trap_flag::POPF) {
            self.gs.regs.rflags |= TRAP_FLAG;
        }
        exit
    }

    /// A write failed only because its page holds translated code: settled, the instruction is to be
    /// executed again.
    fn write_to_code(&mut self) -> bool {
        const PAGE_FAULT: u64 = 14;
        const WRITE: u64 = 2;
        let fault = self.gs.fault;
        let write =
            fault.signo == libc::SIGSEGV && fault.trapno == PAGE_FAULT && fault.err & WRITE != 0;
        if !write || !self.memory.code_write_fault(fault.addr) {
            return false;
        }
        self.code
            .code_written(self.gs, &mut self.memory, fault.addr);
        true
    }

    /// So many ticks from the last event are to go, as a budget.
    pub(super) fn left_of(&self, ticks: u64) -> Result<i64, Divergence> {
        let left = i64::try_from(ticks).ok().filter(|&t| t < PLENTY);
        match left.and_then(|t| t.checked_sub_unsigned(self.since())) {
            Some(left) if left >= 0 => Ok(left),
            _ => self.diverged(format!("an event after {ticks} ticks"), "more ticks"),
        }
    }

    /// Brings the current thread to the next thing that it does by itself, `ticks` after the last event,
    /// which must be one of `kinds`.
    pub(super) fn arrive(
        &mut self,
        ticks: u64,
        kinds: &[Exit],
        what: &dyn Fn() -> String,
    ) -> Result<Exit, Divergence> {
        if let Some(standing) = self.standing.take() {
            if ticks == self.since() && kinds.contains(&standing) {
                return Ok(standing);
            }
            return self.diverged(what(), format!("{standing:?}, where it stood already"));
        }
        let budget = self.left_of(ticks)?;
        // One more than that: reaching it means that the event was missed.
        self.set_budget(budget + 1);
        let exit = self.enter();
        self.no_value_missing()?;
        if !kinds.contains(&exit) {
            return self.diverged(what(), self.describe(exit));
        }
        if self.gs.ticks_left != 1 {
            let found = self.since();
            return self.diverged(
                format!("{} after {ticks} ticks", what()),
                format!("it after {found}"),
            );
        }
        Ok(exit)
    }

    /// Brings the current thread to a place in the midst of its computing.
    pub(super) fn go_to(&mut self, place: Place, what: &dyn Fn() -> String) -> Checked {
        if place.ticks == 0 && place.steps == 0 {
            return Ok(());
        }
        if let Some(standing) = self.standing.take() {
            return self.diverged(what(), format!("{standing:?}"));
        }
        if self.since() < place.ticks {
            self.run_ticks(place.ticks, what)?;
        }
        self.set_budget(PLENTY);
        while self.stepped < place.steps {
            self.step_to(place, what)?;
        }
        self.set_budget(PLENTY);
        Ok(())
    }

    /// Runs the current thread to exactly so many ticks after the last event.
    pub(super) fn run_ticks(&mut self, ticks: u64, what: &dyn Fn() -> String) -> Checked {
        let budget = self.left_of(ticks)?;
        if budget == 0 {
            return Ok(());
        }
        self.set_budget(budget);
        let exit = loop {
            match self.enter() {
                // With the trap flag set, one instruction.
                exit if is_inner(exit) && exit != Exit::Budget => {}
                exit => break exit,
            }
        };
        self.no_value_missing()?;
        if exit != Exit::Budget {
            return self.diverged(format!("{} in {ticks} ticks", what()), self.describe(exit));
        }
        Ok(())
    }

    /// One of the instructions between the tick and the place.
    pub(super) fn step_to(&mut self, place: Place, what: &dyn Fn() -> String) -> Checked {
        if place.steps > MOST_STEPS {
            return self.diverged("a number of instructions", format!("{}", place.steps));
        }
        let exit = self.step_single();
        if !is_inner(exit) {
            return self.diverged(
                format!("{} after {} instructions", what(), place.steps),
                format!("{} after {}", self.describe(exit), self.stepped),
            );
        }
        self.stepped += 1;
        Ok(())
    }

    /// One instruction, with more ticks in the budget than it can take.
    pub(super) fn step_single(&mut self) -> Exit {
        if self.gs.regs.rflags & TRAP_FLAG != 0 {
            self.step_trapping()
        } else {
            self.step_over_code_writes()
        }
    }

    fn step_over_code_writes(&mut self) -> Exit {
        let traced = self.code.stepping(self.gs);
        let exit = loop {
            match self.step() {
                Exit::Fault if self.write_to_code() => {}
                Exit::Attention => self.gs.attention = 0,
                exit => break exit,
            }
        };
        match exit {
            Exit::Fault => self.code.step_faulted(self.gs),
            exit if is_inner(exit) => self.code.stepped(self.gs, traced),
            _ => {}
        }
        exit
    }

    pub(super) fn no_value_missing(&self) -> Checked {
        if self.gs.values.missing != 0 {
            return self.diverged("no more time calls", "a time call");
        }
        Ok(())
    }

    /// All answers of fast calls that were there for this stretch were taken.
    pub(super) fn values_used_up(&self) -> Checked {
        let values = self.gs.values;
        if values.used != values.there {
            let left = values.there - values.used;
            return self.diverged(format!("{left} more time calls"), "none");
        }
        Ok(())
    }

    pub(super) fn describe(&self, exit: Exit) -> String {
        let gpr = &self.gs.regs.gpr;
        match exit {
            Exit::Syscall => {
                let call = table::lookup(gpr[RAX]);
                format!("system call {} ({})", call.name, gpr[RAX])
            }
            Exit::Emulate => "an instruction that the engine answers".into(),
            Exit::Budget => "no event in time".into(),
            Exit::Fault => {
                let fault = self.gs.fault;
                format!("a fault, signal {} at {:#x}", fault.signo, fault.addr)
            }
            other => format!("{other:?}"),
        }
    }
}

/// Exits that are no event: translated code went on elsewhere.
pub(super) fn is_inner(exit: Exit) -> bool {
    matches!(
        exit,
        Exit::Step | Exit::Link | Exit::Indirect | Exit::Budget | Exit::Stale
    )
}

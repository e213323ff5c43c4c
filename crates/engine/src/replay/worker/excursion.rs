//! What-ifs: a worker that leaves the recording. Its memory and registers can be changed, and its current
//! thread runs on; others stand still.
//!
//! In: writes, registers, so many ticks to run. Out: why it stopped, what it wrote. System calls are answered
//! from this process alone (`answers`); nothing of it reaches the world, and nobody takes it back: the worker
//! is thrown away.

use clew_recording::event::ThreadId;

use super::protocol::{Excursion, ExcursionEnd, Registers, Reply};
use super::serve::Worker;
use super::travel::{Done, Halt};
use crate::context::{Exit, R11, RCX, Regs, Xsave};
use crate::host::{switch, time};
use crate::kernel::cpuid::Cpuid;
use crate::kernel::emulate;
use crate::replay::running::is_inner;
use crate::syscall;

/// So many ticks are run at once.
const SLICE: u64 = 1 << 20;
/// So much output is kept of one run.
const MOST_OUTPUT: usize = 64 << 10;
/// What a program can change of its flags, without the trap flag.
const FLAGS: u64 = 0x24_0cd5;
/// Set in every program's.
const FLAGS_SET: u64 = 0x202;
const SYSCALL: u64 = 2;

/// What an excursion has of its own.
#[derive(Default)]
pub struct Astray {
    pub(super) output: Vec<u8>,
    cpuid: Cpuid,
}

/// How a system call, or anything else, goes on.
pub(super) enum Answer {
    Value(i64),
    /// There is none: the excursion stops here.
    Ends(ExcursionEnd),
}

impl Astray {
    pub(super) fn write(&mut self, bytes: &[u8]) {
        let room = MOST_OUTPUT.saturating_sub(self.output.len());
        let len = bytes.len().min(room);
        self.output.extend_from_slice(&bytes[..len]);
    }
}

impl Worker {
    /// From here on this worker doesn't follow the recording.
    fn leave(&mut self) -> &mut Astray {
        if self.astray.is_none() {
            let machine = &mut self.machine;
            // A system call that it stood on hasn't begun.
            if machine.standing.take() == Some(Exit::Syscall) {
                let regs = &mut machine.gs.regs;
                regs.rip = regs.rip.wrapping_sub(SYSCALL);
                [regs.gpr[RCX], regs.gpr[R11]] = machine.code.before_call;
            }
            machine.memory.open_all();
            self.steps = None;
        }
        self.astray.get_or_insert_default()
    }

    pub(super) fn poke(&mut self, addr: u64, bytes: &[u8]) -> Done<Reply> {
        self.leave();
        match self.machine.memory.poke(addr, bytes) {
            Ok(()) => Ok(Reply::Done),
            Err(error) => Err(Halt::Refused(format!(
                "memory at {addr:#x} can't be written: {error}"
            ))),
        }
    }

    pub(super) fn set_registers(&mut self, thread: ThreadId, to: &Registers) -> Done<Reply> {
        let mut regs = Regs::default();
        *regs.words_mut() = to.words;
        let canonical = |base: u64| (base as i64) << 16 >> 16 == base as i64;
        if !canonical(regs.fs_base) || !canonical(regs.gs_base) {
            return Err(Halt::Refused("a segment's base isn't an address".into()));
        }
        regs.rflags = regs.rflags & FLAGS | FLAGS_SET;
        let Some(xsave) = Xsave::sound(&to.extended) else {
            return Err(Halt::Refused("vector registers take 832 bytes".into()));
        };
        self.leave();
        let machine = &mut self.machine;
        if thread == machine.current {
            machine.gs.regs = regs;
            switch::load_extended(machine.gs, &xsave);
        } else if let Some(thread) = machine.threads.get_mut(&thread) {
            (thread.regs, thread.xsave) = (regs, xsave);
        } else {
            return Err(Halt::Refused(format!("there is no thread {thread}")));
        }
        Ok(Reply::Done)
    }

    /// Runs the current thread.
    pub(super) fn run_astray(&mut self, ticks: u64) -> Done<Reply> {
        self.leave().output.clear();
        self.instrument(true);
        self.wanted.remember(&self.machine.memory);
        let why = self.run_freely(ticks);
        let output = std::mem::take(&mut self.leave().output);
        Ok(Reply::Excursion(Excursion {
            why,
            pc: self.machine.gs.regs.rip,
            thread: self.machine.current,
            output,
        }))
    }

    fn run_freely(&mut self, ticks: u64) -> ExcursionEnd {
        let mut left = ticks;
        // Where it begins, instruments don't count: they have been told about.
        let mut past = true;
        self.let_time_pass();
        while left > 0 {
            let slice = left.min(SLICE) as i64;
            self.machine.set_budget(slice);
            let exit = self.machine.enter_with(std::mem::take(&mut past));
            left -= (slice - self.machine.gs.ticks_left).max(0) as u64;
            match exit {
                Exit::Budget => {
                    self.let_time_pass();
                    if self.interrupted() {
                        return ExcursionEnd::Interrupted;
                    }
                }
                Exit::Break | Exit::Watch => {
                    let (thread, regs) = (self.machine.current, self.machine.gs.regs);
                    if self.wanted.breaks_at(thread, &regs) {
                        return ExcursionEnd::Break;
                    }
                    if !self.wanted.any_watch() {
                        past = true;
                    } else if let Some(end) = self.watched_astray() {
                        return end;
                    }
                }
                Exit::Syscall => match self.answer() {
                    Answer::Value(value) => {
                        self.machine.gs.regs.gpr[crate::context::RAX] = value as u64;
                    }
                    Answer::Ends(end) => return end,
                },
                exit => {
                    if let Some(end) = self.after(exit) {
                        return end;
                    }
                }
            }
        }
        ExcursionEnd::Ticks
    }

    /// Emulated instructions and faults.
    fn after(&mut self, exit: Exit) -> Option<ExcursionEnd> {
        if is_inner(exit) {
            return None;
        }
        let fault = match exit {
            Exit::Emulate => {
                let machine = &mut self.machine;
                let cpuid = &mut self.astray.get_or_insert_default().cpuid;
                if emulate::alone(machine.gs, &mut machine.memory, cpuid) {
                    return None;
                }
                (libc::SIGILL, machine.gs.regs.rip)
            }
            _ => (self.machine.gs.fault.signo, self.machine.gs.fault.addr),
        };
        Some(ExcursionEnd::Signal {
            signo: fault.0,
            addr: fault.1,
        })
    }

    /// One instruction that may touch what is watched.
    fn watched_astray(&mut self) -> Option<ExcursionEnd> {
        let touched = self.touched_here();
        let exit = self.machine.step_single();
        match exit {
            exit if is_inner(exit) => {}
            // The instruction with an instrument is no system call.
            exit => return self.after(exit),
        }
        let changed = self.wanted.changed(&self.machine.memory);
        let seen = changed.or(touched)?;
        Some(ExcursionEnd::Watch { watch: seen.watch })
    }

    /// The clock stands still for a thread while it runs, and goes on between.
    fn let_time_pass(&mut self) {
        let (real, monotonic) = (now(libc::CLOCK_REALTIME), now(libc::CLOCK_MONOTONIC));
        time::freeze(self.machine.gs, real, monotonic);
    }
}

/// Seconds and nanoseconds by the host's clock.
pub(super) fn now(clock: i32) -> [u64; 2] {
    let mut time = [0u64; 2];
    // SAFETY: the kernel writes two words.
    unsafe { syscall!(libc::SYS_clock_gettime, clock, time.as_mut_ptr()) };
    time
}

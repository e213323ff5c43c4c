//! Lockstep: runs the guest twice, translated and natively, and compares.
//!
//! In: a guest about to run. Out: the same exits as without the checker, or a report of the first
//! difference and status 125. Each *segment* (from one answer of the executor to the next question
//! of the guest) begins with a fork. The child, the *twin*, is stopped, given the guest's registers
//! and executable pages, and single-stepped through the guest's own code; the original runs the
//! translation, with its links and optimisations, as always. They meet at ticks: the checker
//! counts the twin's by the definition (see ARCHITECTURE, the clock) and gives the original just
//! that budget, so the clock is checked too. Where they meet all registers are compared, at a
//! segment's end also the memory that either has written.
//!
//! - [`native`]: what the checker must know of an instruction
//! - [`twin`]: the native side
//! - [`original`]: the translated side
//! - [`compare`], [`memory`]: registers; memory
//! - [`report`]: what is printed
//! - [`spoil`]: a deliberate mistake in a translation, to see the checker find it

pub mod compare;
pub mod memory;
pub mod native;
pub mod original;
pub mod report;
pub mod spoil;
pub mod twin;

use crate::context::Exit;
use crate::executor::Executor;
use crate::kernel::stop;
use crate::program::Options;
use compare::State;
use native::Barrier;
use original::Reached;
use twin::{Stop, Twin};

/// Instructions of a piece.
const PIECE: u64 = 400;

/// The checker of one process. A guest's children run unchecked.
#[derive(Debug)]
pub struct Lockstep {
    pid: i64,
    /// Check up to that many native instructions.
    limit: u64,
    /// Ticks between comparisons; 0: a few, varying, so that links are followed too.
    stretch: u64,
    /// After each piece so many ticks pass unchecked; 0: there are no pieces.
    spread: u64,
    /// Ticks of those that are left.
    rest: i64,
    pub instructions: u64,
    pub stretches: u64,
    pub segments: u64,
}

/// A difference: what to tell about it.
#[derive(Debug)]
pub struct Difference {
    pub what: String,
    pub registers: Option<Box<(State, State)>>,
}

impl Difference {
    fn new(what: impl Into<String>) -> Difference {
        Difference {
            what: what.into(),
            registers: None,
        }
    }
}

/// How a segment goes on.
enum Next {
    Stretch,
    /// Back to the executor with this.
    Leave(Exit),
    /// The instruction at hand can't be repeated: it runs unchecked, and a new segment begins.
    Skip,
}

impl Lockstep {
    /// The checker that the user asked for, if so.
    pub fn new(options: &Options) -> Option<Box<Lockstep>> {
        Some(Box::new(Lockstep {
            pid: getpid(),
            limit: options.lockstep?,
            stretch: options.stretch,
            spread: options.spread,
            rest: 0,
            instructions: 0,
            stretches: 0,
            segments: 0,
        }))
    }

    fn next_stretch(&self) -> u64 {
        match self.stretch {
            0 => [1, 3, 2, 9, 1, 5, 24, 4][self.stretches as usize % 8],
            ticks => ticks,
        }
    }

    /// One line at the end of the process.
    pub fn summary(&self) -> String {
        format!(
            "lockstep: no difference in {} instructions, {} stretches, {} segments{}",
            self.instructions,
            self.stretches,
            self.segments,
            if self.instructions >= self.limit {
                " (the limit)"
            } else {
                ""
            }
        )
    }

    /// Is this process still the one to check? (A forked child has a copy.)
    fn is_active(&self) -> bool {
        self.instructions < self.limit && self.pid == getpid()
    }

    /// Goes on unchecked up to where the next piece begins.
    fn pass(&mut self, ex: &mut Executor) -> Exit {
        let budget = ex.gs.ticks_left;
        let most = budget.min(self.rest).max(1);
        ex.gs.ticks_left = most;
        let exit = ex.code.enter(ex.gs, &mut ex.memory, &mut ex.stats);
        self.rest -= most - ex.gs.ticks_left - ex.gs.kicked;
        ex.gs.ticks_left += budget - most;
        match exit {
            Exit::Budget if ex.gs.ticks_left > 0 => Exit::Attention,
            exit => exit,
        }
    }

    fn segment(&mut self, ex: &mut Executor) -> Exit {
        self.segments += 1;
        let most = match self.spread {
            0 => self.limit,
            _ => self.limit.min(self.instructions + PIECE),
        };
        let mut twin = match Twin::fork(ex) {
            Ok(twin) => twin,
            Err(errno) => {
                stop::warn(&format!(
                    "lockstep: no twin can be made and traced (errno {errno}); going on unchecked"
                ));
                self.limit = 0;
                return ex.code.enter(ex.gs, &mut ex.memory, &mut ex.stats);
            }
        };
        let mut attention = false;
        let next = loop {
            let next = self.stretch(ex, &mut twin, &mut attention);
            let next =
                next.unwrap_or_else(|difference| report::give_up(ex, self, &twin, &difference));
            if self.stretch == 1 {
                self.compare_memory(ex, &twin);
            }
            match next {
                Next::Stretch if attention => break Next::Leave(Exit::Attention),
                Next::Stretch if self.instructions >= most => {
                    break Next::Leave(Exit::Attention);
                }
                Next::Stretch => {}
                next => break next,
            }
        };
        self.compare_memory(ex, &twin);
        twin.end();
        if self.instructions >= most {
            self.rest = self.spread as i64;
        }
        let exit = match next {
            Next::Leave(exit) => exit,
            Next::Skip => ex.code.step(ex.gs, &mut ex.memory, &mut ex.stats, 1),
            Next::Stretch => unreachable!("the loop goes on"),
        };
        if attention {
            ex.look_again();
        }
        exit
    }

    fn compare_memory(&self, ex: &Executor, twin: &Twin) {
        if let Err(difference) = memory::compare(&ex.memory, twin) {
            report::give_up(ex, self, twin, &difference);
        }
    }

    /// Runs both sides to the same place and compares their registers.
    fn stretch(
        &mut self,
        ex: &mut Executor,
        twin: &mut Twin,
        attention: &mut bool,
    ) -> Result<Next, Difference> {
        let budget = ex.gs.ticks_left;
        let wanted = self.next_stretch().min(budget.max(1) as u64);
        let before = twin.instructions;
        let stop = twin.advance(&ex.memory, wanted);
        self.instructions += twin.instructions - before;
        self.stretches += 1;
        let ticks = twin.ticks as i64;
        let reached = match &stop {
            Stop::Ticks => original::to_tick(ex, ticks, attention),
            Stop::Barrier(Barrier::Unrepeatable) => {
                let steps = twin.instructions - twin.instructions_at_tick;
                original::to_instruction(ex, ticks, twin.regs.rip, steps, attention)
            }
            Stop::Barrier(_) | Stop::Fault(_) => original::to_exit(ex, ticks, attention),
            Stop::SpoiledFlags(_) | Stop::Gone(_) => Reached::default(),
        };
        // What the original did is taken from the turn's own budget.
        ex.gs.kicked = 0;
        ex.gs.ticks_left = budget - reached.ticks;
        let next = agree(ex, twin, &stop, &reached).map_err(|what| Difference {
            what,
            registers: Some(Box::new((State::of_original(ex.gs), twin.state()))),
        })?;
        let exact = matches!(stop, Stop::Barrier(Barrier::Syscall));
        let mut found = compare::registers(ex, twin, &stop);
        if !exact {
            // A tick may spoil flags that nobody will read: the twin watches whether it is so.
            twin.tolerated = found.flags;
            found.flags = 0;
        }
        if found.any() {
            return Err(Difference {
                what: format!("different after {}", describe(&stop)),
                registers: Some(Box::new((State::of_original(ex.gs), twin.state()))),
            });
        }
        twin.start_stretch();
        Ok(match next {
            Next::Stretch if ex.gs.ticks_left <= 0 => Next::Leave(Exit::Budget),
            next => next,
        })
    }
}

/// Do both sides stand at the same place for the same reason? If not, says why not.
fn agree(ex: &Executor, twin: &Twin, stop: &Stop, reached: &Reached) -> Result<Next, String> {
    let here = ex.gs.regs.rip;
    let there = twin.regs.rip;
    let ticks = (reached.ticks, twin.ticks as i64);
    let same = |ok: bool, next: Next| {
        if ok && ticks.0 == ticks.1 {
            return Ok(next);
        }
        Err(format!(
            "natively: {}, at {there:#x} after {} ticks; translated: {}, at {here:#x} after {} ticks",
            describe(stop),
            ticks.1,
            reached.describe(),
            ticks.0
        ))
    };
    match (stop, reached.exit) {
        (Stop::SpoiledFlags(flags), _) => Err(format!(
            "the instruction at {there:#x} reads flags ({}) that a tick has spoiled",
            compare::flag_names(*flags as u64)
        )),
        (Stop::Gone(status), _) => Err(format!("the twin ended (wait status {status:#x})")),
        (Stop::Ticks, Some(Exit::Budget)) => same(here == there, Next::Stretch),
        (Stop::Barrier(Barrier::Syscall), Some(exit @ Exit::Syscall)) => {
            same(here == there + 2, Next::Leave(exit))
        }
        (Stop::Barrier(Barrier::Engine), Some(exit @ Exit::Emulate)) => {
            same(here == there, Next::Leave(exit))
        }
        (Stop::Barrier(Barrier::Hidden), Some(exit @ Exit::Fault)) => same(
            here == there && ex.gs.fault.signo == libc::SIGILL,
            Next::Leave(exit),
        ),
        // Traps report behind themselves.
        (Stop::Barrier(Barrier::Trap), Some(exit @ Exit::Fault)) => {
            same(here == twin.next_pc(&ex.memory), Next::Leave(exit))
        }
        (Stop::Barrier(Barrier::Unrepeatable), None) => same(here == there, Next::Skip),
        (Stop::Fault(sig), Some(exit @ Exit::Fault)) => same(
            here == there && ex.gs.fault.signo == *sig,
            Next::Leave(exit),
        ),
        _ => same(false, Next::Stretch),
    }
}

fn describe(stop: &Stop) -> String {
    match stop {
        Stop::Ticks => "ticks".into(),
        Stop::Barrier(Barrier::Syscall) => "a system call".into(),
        Stop::Barrier(Barrier::Engine) => "an instruction for the engine".into(),
        Stop::Barrier(Barrier::Hidden) => "an instruction of a hidden extension".into(),
        Stop::Barrier(Barrier::Trap) => "a trap".into(),
        Stop::Barrier(Barrier::Unrepeatable) => "an instruction that can't be repeated".into(),
        Stop::Fault(sig) => format!("signal {sig}"),
        Stop::SpoiledFlags(_) => "flags".into(),
        Stop::Gone(_) => "the twin's end".into(),
    }
}

/// Runs the current thread as [`crate::cache::CodeCache::enter`] does, checking.
pub fn enter(ex: &mut Executor) -> Exit {
    let Some(mut lockstep) = ex.lockstep.take() else {
        return ex.code.enter(ex.gs, &mut ex.memory, &mut ex.stats);
    };
    let exit = match lockstep.is_active() {
        true if lockstep.rest > 0 => lockstep.pass(ex),
        true => lockstep.segment(ex),
        false => ex.code.enter(ex.gs, &mut ex.memory, &mut ex.stats),
    };
    ex.lockstep = Some(lockstep);
    exit
}

/// The options for what the process execs: it is checked up to what is left of the limit; a
/// child's isn't.
pub fn options_after_exec(ex: &Executor) -> Options {
    let left = ex.lockstep.as_ref().filter(|lockstep| lockstep.is_active());
    Options {
        lockstep: left.map(|lockstep| lockstep.limit.saturating_sub(lockstep.instructions)),
        ..ex.options.clone()
    }
}

/// Tells the user how it went, at the end of the program that was checked.
pub fn finish(ex: &Executor) {
    if let Some(lockstep) = ex.lockstep.as_ref().filter(|l| l.pid == getpid()) {
        stop::warn(&lockstep.summary());
    }
}

fn getpid() -> i64 {
    // SAFETY: asks for the process's id.
    unsafe { crate::syscall!(libc::SYS_getpid) }
}

//! The way to the next event, in pieces: a thread that is stopped before it gets there.
//!
//! In: the next event, and how far to go. Out: the thread stands there, or where the event is due.
//! [`Machine::event`] goes on from any such place.

use clew_recording::event::{Cause, Event, Place, Touch};

use super::machine::{Divergence, Machine, quiet_stop};
use super::running::{PLENTY, is_inner};
use crate::cache::accesses::Access;
use crate::cache::maybe_spoiled;
use crate::context::{Exit, R11, RCX, RSP, Regs};
use crate::guest::access;
use crate::guest::trap_flag::TRAP_FLAG;
use crate::layout;
use crate::memory::{Fetch, PAGE};

/// Where an event happens, as far as is known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// Right after the event before it.
    Here,
    /// Where the thread leaves translated code by itself for one of these, so many ticks on.
    Ahead {
        ticks: u64,
        kinds: &'static [Exit],
    },
    At(Place),
}

const CALL: &[Exit] = &[Exit::Syscall];
const TOUCH: &[Exit] = &[Exit::Fault, Exit::Emulate, Exit::Syscall];

pub fn place_of(event: &Event) -> Lies {
    let place = event.place();
    let ahead = |kinds| Lies::Ahead {
        ticks: place.ticks,
        kinds,
    };
    match *event {
        Event::Call(_) | Event::Forked { .. } | Event::Exec { .. } | Event::Exited { .. } => {
            ahead(CALL)
        }
        Event::Instruction { .. } => ahead(&[Exit::Emulate]),
        Event::Shared {
            touch: Touch::Instruction { .. },
            ..
        } => ahead(&[Exit::Fault]),
        Event::Shared { .. } => ahead(TOUCH),
        Event::Signal { cause, .. } | Event::Killed { cause, .. } => match cause {
            Cause::Fault => ahead(TOUCH),
            Cause::Outside => Lies::At(place),
        },
        Event::Switched { .. } | Event::Check { .. } | Event::Leap { .. } => Lies::At(place),
        Event::Started(_)
        | Event::Resumed { .. }
        | Event::NewThread { .. }
        | Event::EndedThread { .. }
        | Event::Values(_)
        | Event::Time(_)
        | Event::Note(_)
        | Event::Deadlock(_)
        | Event::State { .. } => Lies::Here,
    }
}

impl Lies {
    /// Ticks after the event before it; single instructions may follow.
    pub fn ticks(self) -> u64 {
        match self {
            Lies::Here => 0,
            Lies::Ahead { ticks, .. } => ticks,
            Lies::At(place) => place.ticks,
        }
    }
}

/// How far a thread came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// The event is to be applied next.
    Due,
    /// As many ticks as it may, or to the tick where the event is due.
    Limit,
    /// To an instruction with an instrument, nothing of which has run.
    Instrument(Exit),
}

/// What a single instruction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// It is the next event's, and wasn't executed.
    Due,
    Moved {
        ticked: bool,
    },
}

const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// For what the instruction there leaves translated code, if it always does.
fn leaves_at(pc: u64) -> Option<Exit> {
    // Time calls of the vdso are answered inside.
    if (layout::VDSO..layout::VDSO + PAGE).contains(&pc) {
        return None;
    }
    let bytes = access::read::<[u8; 4]>(pc).ok()?;
    let opcode = bytes.strip_prefix(&[0x0f])?;
    match opcode {
        [0x05, ..] => Some(Exit::Syscall),
        // cpuid, rdtsc, rdtscp, and of group 9 those with a register: rdrand, rdseed
        [0xa2 | 0x31, ..] | [0x01, 0xf9, ..] | [0xc7, 0xf0..=0xff, ..] => Some(Exit::Emulate),
        _ => None,
    }
}

impl Machine {
    /// Whether the thread is known to stand where the event happens.
    pub fn is_due(&self, event: &Event) -> bool {
        match place_of(event) {
            Lies::Here => true,
            Lies::Ahead { .. } => self.standing.is_some(),
            Lies::At(place) => self.since() >= place.ticks && self.stepped == place.steps,
        }
    }

    /// Looks whether the instruction that the thread stands on is the event's, where that can be told
    /// without executing it.
    pub fn look_ahead(&mut self, event: &Event) -> Result<bool, Divergence> {
        if self.is_due(event) {
            return Ok(true);
        }
        let Lies::Ahead { ticks, kinds } = place_of(event) else {
            return Ok(false);
        };
        if ticks != self.since() {
            return Ok(false);
        }
        let leaves = leaves_at(self.gs.regs.rip).is_some_and(|exit| kinds.contains(&exit));
        if leaves || kinds.contains(&Exit::Fault) && self.faults_here() {
            return match self.single(event)? {
                Stepped::Due => Ok(true),
                Stepped::Moved { .. } => self.diverged(format!("{event:?}"), "no such thing"),
            };
        }
        Ok(false)
    }

    /// Whether the instruction that the thread stands on is sure to fault, by what it would touch.
    fn faults_here(&mut self) -> bool {
        let pc = self.gs.regs.rip;
        if !matches!(self.memory.fetch(pc), Fetch::Executable(_)) {
            return true;
        }
        // Of long ones the first byte: for some only a bound of the length is known.
        let ends = |access: &Access| match access.len {
            2..=64 => [access.addr, access.addr.wrapping_add(access.len - 1)],
            _ => [access.addr; 2],
        };
        let memory = &self.memory;
        let accesses = self.code.accesses(self.gs);
        accesses
            .iter()
            .filter(|access| access.len > 0)
            .any(|access| {
                ends(access)
                    .into_iter()
                    .any(|addr| match memory.find(addr) {
                        None => true,
                        Some(m) if access.write && !m.can(libc::PROT_WRITE) => true,
                        // Closed, behind a file's end, or not for reading.
                        Some(_) => access::read::<u8>(addr).is_err(),
                    })
            })
    }

    /// Runs the current thread towards the event, at most to `limit` ticks after the last one.
    pub fn approach(&mut self, event: &Event, limit: u64) -> Result<Came, Divergence> {
        self.approach_past(event, limit, false, &mut |_| false)
    }

    /// The same where there are instruments; `passes` says which don't matter. With `past`, those of the
    /// instruction that the thread stands on don't count.
    pub fn approach_past(
        &mut self,
        event: &Event,
        limit: u64,
        past: bool,
        passes: &mut dyn FnMut(&mut Machine) -> bool,
    ) -> Result<Came, Divergence> {
        if self.is_due(event) {
            return Ok(Came::Due);
        }
        if limit <= self.since() {
            return Ok(Came::Limit);
        }
        match place_of(event) {
            Lies::Here => Ok(Came::Due),
            Lies::Ahead { ticks, kinds } => {
                // One tick more than to the event: reaching it means that it was missed.
                let to = limit.min(ticks.saturating_add(1));
                let exit = self.run_to(event, to, past, passes)?;
                let since = self.since();
                match exit {
                    Exit::Break | Exit::Watch => Ok(Came::Instrument(exit)),
                    Exit::Budget if since <= ticks => Ok(Came::Limit),
                    exit if kinds.contains(&exit) && since == ticks => {
                        self.standing = Some(exit);
                        Ok(Came::Due)
                    }
                    exit => self.unexpected(event, exit),
                }
            }
            Lies::At(place) if self.since() < place.ticks => {
                match self.run_to(event, limit.min(place.ticks), past, passes)? {
                    exit @ (Exit::Break | Exit::Watch) => Ok(Came::Instrument(exit)),
                    // At a tick, also if the event is due with it.
                    Exit::Budget => Ok(Came::Limit),
                    exit => self.unexpected(event, exit),
                }
            }
            // Single instructions are left.
            Lies::At(_) => Ok(Came::Limit),
        }
    }

    /// Runs to so many ticks after the last event, or to an exit before.
    fn run_to(
        &mut self,
        event: &Event,
        ticks: u64,
        past: bool,
        passes: &mut dyn FnMut(&mut Machine) -> bool,
    ) -> Result<Exit, Divergence> {
        let budget = self.left_of(ticks)?;
        self.set_budget(budget);
        self.stop_at_quiet = quiet_stop(event);
        let mut past = past;
        let exit = loop {
            match self.enter_with(std::mem::take(&mut past)) {
                Exit::Break | Exit::Watch if passes(self) => past = true,
                // With the trap flag set, one instruction.
                exit if is_inner(exit) && exit != Exit::Budget => {}
                exit => break exit,
            }
        };
        self.stop_at_quiet = None;
        self.no_value_missing()?;
        Ok(exit)
    }

    fn unexpected<T>(&self, event: &Event, exit: Exit) -> Result<T, Divergence> {
        let found = format!("{} after {} ticks", self.describe(exit), self.since());
        self.diverged(format!("{event:?}"), found)
    }

    /// Whether only single instructions are left to the event, or the thread single-steps itself: there are no
    /// instruments in those.
    pub fn is_stepping(&self, event: &Event) -> bool {
        self.gs.regs.rflags & TRAP_FLAG != 0
            || matches!(place_of(event), Lies::At(place) if place.ticks <= self.since())
    }

    /// One instruction of the current thread, unless it is the event's.
    pub fn single(&mut self, event: &Event) -> Result<Stepped, Divergence> {
        if self.is_due(event) {
            return Ok(Stepped::Due);
        }
        let before = self.since();
        let lies = place_of(event);
        self.set_budget(PLENTY);
        let exit = self.step_single();
        self.no_value_missing()?;
        let passes = is_inner(exit) || exit == Exit::Emulate && self.passes_before(event);
        if !passes {
            return match lies {
                Lies::Ahead { ticks, kinds } if kinds.contains(&exit) && ticks == self.since() => {
                    self.standing = Some(exit);
                    Ok(Stepped::Due)
                }
                _ => {
                    // What it does instead hasn't begun.
                    self.standing = Some(exit);
                    self.unexpected(event, exit)
                }
            };
        }
        match lies {
            Lies::At(place) if before >= place.ticks => self.stepped += 1,
            Lies::Ahead { ticks, .. } if self.since() > ticks => {
                return self.diverged(format!("{event:?}"), "no event in time");
            }
            _ => {}
        }
        Ok(Stepped::Moved {
            ticked: self.since() != before,
        })
    }

    fn passes_before(&mut self, event: &Event) -> bool {
        self.stop_at_quiet = quiet_stop(event);
        let passes = self.passes();
        self.stop_at_quiet = None;
        passes
    }

    /// The current thread's registers as its program has them: before a system call that it stands on.
    pub fn registers_now(&self) -> Regs {
        let mut regs = self.gs.regs;
        if self.standing == Some(Exit::Syscall) {
            regs.rip = regs.rip.wrapping_sub(SYSCALL.len() as u64);
            [regs.gpr[RCX], regs.gpr[R11]] = self.code.before_call;
        }
        self.without_spoiled(regs)
    }

    /// The current thread's pc and stack pointer, likewise.
    pub fn place_now(&self) -> (u64, u64) {
        let mut pc = self.gs.regs.rip;
        if self.standing == Some(Exit::Syscall) {
            pc = pc.wrapping_sub(SYSCALL.len() as u64);
        }
        (pc, self.gs.regs.gpr[RSP])
    }

    /// Flags that nobody reads any more depend on how a place was reached, stepping or running: they are
    /// shown as 0, always.
    pub fn without_spoiled(&self, mut regs: Regs) -> Regs {
        regs.rflags &= !maybe_spoiled(&self.memory, regs.rip);
        regs
    }
}

//! Accesses of different threads to the same memory, by replaying twice: once to find which memory that is
//! (`owners`), and once to see who touches it (`collect`).
//!
//! In: a worker that stands where nothing is shared yet. Out: what was found, in a buffer. What the kernel
//! does in system calls isn't looked at.

use std::collections::BTreeSet;
use std::ops::Range;

use clew_recording::borrowers;
use clew_recording::event::ThreadId;
use clew_recording::maps::Change;

use super::collect::{Collector, Standing};
use super::observe::{Observer, Sight, Stays};
use super::owners::Owners;
use super::protocol::{EventStop, Goal, Granules, Reply, Stopped, Why};
use super::serve::Worker;
use super::trace::tell;
use super::travel::{Done, Halt};
use crate::cache::accesses::Access;
use crate::cache::instruments::Instruments;
use crate::cache::shadow::Shadow;
use crate::context::RSP;
use crate::layout;
use crate::memory::Memory;
use crate::replay::Machine;
use crate::trace::buffer::Buffer;

/// After so many accesses it looks for commands.
const AT_ONCE: u32 = 1 << 13;
/// A thread's own memory behind its stack: what glibc has at the thread pointer.
const BEHIND_POINTER: u64 = 4096;
/// Maps are placed from the top down; of those near it a granule's state is sure to be their own.
const NEAR_TOP: Range<u64> = layout::HIGH_MAPS.end - (32 << 30)..layout::HIGH_MAPS.end;

/// What is done at each access.
pub(super) enum Look {
    Owners(Box<Owners>),
    Collect(Box<Collector>),
}

/// Tells one of them of all accesses that aren't passed in translated code.
struct Looking {
    look: Look,
    /// Children of vfork: their parents wait for them, so nothing of theirs could happen in another order.
    borrowers: BTreeSet<ThreadId>,
    /// The memory of a thread that was just made.
    new: Option<Range<u64>>,
    /// The thread that runs now is one whose accesses are told.
    counts: bool,
    left: u32,
}

/// Memory that an effect has mapped or unmapped.
pub(super) fn renewed_by(change: &[u8]) -> Option<Range<u64>> {
    match Change::decode(change) {
        Ok(Change::Map { mapping, .. }) => Some(mapping.pages.start..mapping.pages.end),
        Ok(Change::Unmap(pages)) => Some(pages.start..pages.end),
        _ => None,
    }
}

impl Look {
    pub(super) fn shadow() -> Done<Shadow> {
        let refused = |error| Halt::Refused(format!("no room to note who touches what: {error}"));
        Shadow::map().map_err(refused)
    }

    fn turn(&mut self, thread: ThreadId) {
        match self {
            Look::Owners(owners) => owners.turn(thread),
            Look::Collect(collector) => collector.turn(thread),
        }
    }

    /// The instruction that the current thread stands on.
    fn instruction(&mut self, machine: &mut Machine, event: u64) {
        let accesses = machine.code.accesses(machine.gs);
        let at = Standing {
            event,
            ticks: machine.since(),
            passed: machine.passed_here(),
            pc: machine.gs.regs.rip,
            locked: machine.code.locked(machine.gs),
        };
        for access in &accesses {
            let access = &mapped(&machine.memory, access);
            if access.len == 0 {
                continue;
            }
            match self {
                Look::Owners(owners) => owners.touched(access),
                Look::Collect(collector) => collector.touched(access, at),
            }
        }
    }

    fn renewed(&mut self, range: &Range<u64>) {
        let range = range.start.max(NEAR_TOP.start)..range.end.min(NEAR_TOP.end);
        if range.is_empty() {
            return;
        }
        match self {
            Look::Owners(owners) => {
                owners.renewed(Shadow::granule(range.start), Shadow::granule(range.end - 1))
            }
            Look::Collect(collector) => collector.renewed(&range),
        }
    }
}

impl Looking {
    fn new(look: Look) -> Looking {
        Looking {
            look,
            borrowers: BTreeSet::new(),
            new: None,
            counts: true,
            left: AT_ONCE,
        }
    }
}

impl Observer for Looking {
    fn instruments(&mut self, _worker: &Worker) -> Instruments {
        Instruments {
            shadow: true,
            ..Instruments::default()
        }
    }

    fn here(&mut self, worker: &mut Worker, reached: bool) -> Done<Option<Why>> {
        let renewed = worker.renewed.iter_mut();
        let renewed = renewed.flat_map(|renewed| renewed.drain(..));
        for range in renewed.chain(self.new.take()) {
            self.look.renewed(&range);
        }
        let current = worker.machine.current;
        self.counts = !self.borrowers.contains(&current);
        if self.counts {
            self.look.turn(current);
        }
        self.left = AT_ONCE;
        Ok(reached.then_some(Why::Goal))
    }

    fn done(&mut self, worker: &mut Worker) -> Done {
        if let Some(EventStop::NewThread { thread }) = worker.came_by {
            match worker.waits_for_child() {
                true => drop(self.borrowers.insert(thread)),
                false => self.new = worker.stack_of(thread),
            }
        }
        Ok(())
    }

    fn single(&mut self, worker: &mut Worker) -> Done<Option<Why>> {
        if !worker.past && self.counts {
            let events = worker.reader.position();
            self.look.instruction(&mut worker.machine, events);
        }
        Ok(None)
    }

    fn passes(&mut self, sight: Sight<'_>) -> bool {
        if self.counts {
            self.look.instruction(sight.machine, sight.events);
        }
        self.left -= 1;
        self.left > 0
    }

    fn stays(&mut self, _worker: &mut Worker) -> Stays {
        Stays::Passed
    }
}

/// A long access as far as there is memory: what is behind would fault.
pub(super) fn mapped(memory: &Memory, access: &Access) -> Access {
    const LONG: u64 = 256;
    if access.len <= LONG {
        return *access;
    }
    let mut end = access.addr;
    let wanted = access.addr.saturating_add(access.len);
    while end < wanted
        && let Some(mapping) = memory.find(end)
    {
        end = mapping.end.min(wanted);
    }
    Access {
        len: end - access.addr,
        ..*access
    }
}

impl Worker {
    /// Goes to the end, or as far as one is let, and finds which memory several threads touch.
    pub(super) fn survey(&mut self, goal: Goal, buffer: &mut Buffer) -> Done<Reply> {
        let owners = Box::new(Owners::new(Look::shadow()?));
        let (look, stopped) = self.look(Look::Owners(owners), goal)?;
        let complete = stopped.why != Why::Interrupted;
        let shared = match look {
            Look::Owners(owners) => owners.shared(),
            Look::Collect(_) => Vec::new(),
        };
        tell(buffer, &shared, stopped, complete)
    }

    /// The same, and collects accesses to that memory.
    pub(super) fn collect(&mut self, goal: Goal, most: u64, buffer: &mut Buffer) -> Done<Reply> {
        let granules = postcard::from_bytes::<Vec<Granules>>(&buffer.result());
        let granules = granules.map_err(|_| Halt::Refused("no memory to look at".into()))?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut collector = Box::new(Collector::new(Look::shadow()?, most));
        for granules in granules {
            collector.watch(&granules);
        }
        let (look, stopped) = self.look(Look::Collect(collector), goal)?;
        let (touches, all) = match look {
            Look::Collect(collector) => collector.end(),
            Look::Owners(_) => Default::default(),
        };
        let complete = all && stopped.why != Why::Interrupted;
        tell(buffer, &touches, stopped, complete)
    }

    /// Replays on to the goal, or until somebody interrupts.
    fn look(&mut self, look: Look, goal: Goal) -> Done<(Look, Stopped)> {
        self.renewed = Some(Vec::new());
        let mut looking = Looking::new(look);
        let stopped = self
            .pass_silent()
            .and_then(|()| self.observe(goal, &mut looking));
        self.renewed = None;
        self.instrument(false);
        Ok((looking.look, stopped?))
    }

    /// Whether the current thread waits for the child that it has just made.
    pub(super) fn waits_for_child(&self) -> bool {
        let thread = self.machine.threads.get(&self.machine.current);
        let waits = thread.and_then(|thread| thread.waits);
        waits.is_some_and(|call| borrowers::lends_if_it_waits(call.nr))
    }

    /// A new thread's stack, and its own memory above it.
    pub(super) fn stack_of(&self, thread: ThreadId) -> Option<Range<u64>> {
        let regs = &self.machine.threads.get(&thread)?.regs;
        let (sp, pointer) = (regs.gpr[RSP], regs.fs_base);
        let mapping = self.machine.memory.find(sp.wrapping_sub(1))?;
        let end = match (sp..mapping.end).contains(&pointer) {
            true => (pointer + BEHIND_POINTER).min(mapping.end),
            false => sp,
        };
        Some(mapping.start..end)
    }
}

//! Accesses of different threads to the same memory, by replaying twice: once to find which memory that is
//! (`owners`), and once to see who touches it (`collect`).
//!
//! In: a worker that stands where nothing is shared yet. Out: what was found, asked for piece by piece. What the kernel
//! does in system calls isn't looked at.

use std::collections::BTreeSet;
use std::ops::Range;

use clew_recording::event::{Event, Record, ThreadId};
use clew_recording::maps::Change;

use super::collect::{Collector, Standing};
use super::limit::ahead;
use super::owners::Owners;
use super::protocol::{EventStop, Goal, Granules, LONGEST, Reply, Touch};
use super::serve::Worker;
use super::travel::{Done, Halt, Leg};
use crate::cache::accesses::Access;
use crate::cache::instruments::Instruments;
use crate::cache::shadow::Shadow;
use crate::context::RSP;
use crate::layout;
use crate::memory::Memory;
use crate::replay::Machine;
use crate::replay::approach::{Came, Stepped};

/// What a worker has found out.
#[derive(Default)]
pub struct Sharing {
    shared: Vec<Granules>,
    /// Found by a survey.
    owners: Option<Box<Owners>>,
    touches: Vec<Touch>,
    /// Memory that was mapped or unmapped by the last events, while somebody wants to know.
    renewed: Option<Vec<Range<u64>>>,
}

/// What is done at each access.
enum Look {
    Owners(Box<Owners>),
    Collect(Box<Collector>),
}

/// So many of each fit into a message: the largest numbers have ten bytes.
const RANGES_AT_ONCE: usize = LONGEST / 16;
const TOUCHES_AT_ONCE: usize = LONGEST / 80;
/// Memory to look at: no more than this.
const MOST_RANGES: usize = 1 << 20;
/// After so many accesses it looks for commands.
const AT_ONCE: u32 = 1 << 13;
/// A thread's own memory behind its stack: what glibc has at the thread pointer.
const BEHIND_POINTER: u64 = 4096;
/// Maps are placed from the top down; of those near it a granule's state is sure to be their own.
const NEAR_TOP: Range<u64> = layout::HIGH_MAPS.end - (32 << 30)..layout::HIGH_MAPS.end;

impl Sharing {
    /// More memory to look at.
    pub fn share(&mut self, granules: &[Granules]) -> Done {
        if self.shared.len() + granules.len() > MOST_RANGES {
            return Err(Halt::Refused("that much memory can't be looked at".into()));
        }
        self.shared.extend_from_slice(granules);
        Ok(())
    }

    /// An effect that changes mappings.
    pub fn mapped(&mut self, change: &[u8]) {
        let Some(renewed) = &mut self.renewed else {
            return;
        };
        match Change::decode(change) {
            Ok(Change::Map { mapping, .. }) => {
                renewed.push(mapping.pages.start..mapping.pages.end);
            }
            Ok(Change::Unmap(pages)) => renewed.push(pages.start..pages.end),
            _ => {}
        }
    }
}

impl Look {
    fn shadow() -> Done<Shadow> {
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

/// A long access as far as there is memory: what is behind would fault.
fn mapped(memory: &Memory, access: &Access) -> Access {
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
    pub(super) fn survey(&mut self) -> Done<Reply> {
        let owners = Box::new(Owners::new(Look::shadow()?));
        let (look, complete) = self.look(Look::Owners(owners))?;
        if let Look::Owners(owners) = look {
            self.sharing.owners = Some(owners);
        }
        Ok(Reply::Surveyed { complete })
    }

    pub(super) fn collect(&mut self, most: u64) -> Done<Reply> {
        // One that has surveyed stands at the end.
        self.sharing.owners = None;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut collector = Box::new(Collector::new(Look::shadow()?, most));
        for granules in self.sharing.shared.drain(..) {
            collector.watch(&granules);
        }
        let (look, mut complete) = self.look(Look::Collect(collector))?;
        if let Look::Collect(collector) = look {
            let (touches, all) = collector.end();
            self.sharing.touches = touches;
            complete &= all;
        }
        Ok(Reply::Surveyed { complete })
    }

    pub(super) fn show_shared(&mut self, from: u32) -> Reply {
        let owners = self.sharing.owners.as_ref();
        let shared = owners.map(|owners| owners.shared(from, RANGES_AT_ONCE));
        Reply::Shared(shared.unwrap_or_default())
    }

    pub(super) fn show_touches(&mut self, from: u64) -> Reply {
        let touches = usize::try_from(from).ok();
        let touches = touches.and_then(|from| self.sharing.touches.get(from..));
        let touches = touches.unwrap_or_default().iter().take(TOUCHES_AT_ONCE);
        Reply::Touches(touches.copied().collect())
    }

    /// Replays on to the end, or until somebody interrupts: whether it came to the end.
    fn look(&mut self, mut look: Look) -> Done<(Look, bool)> {
        let wanted = Instruments {
            shadow: true,
            ..Instruments::default()
        };
        let machine = &mut self.machine;
        machine.code.instrument(machine.gs, &machine.memory, wanted);
        self.sharing.renewed = Some(Vec::new());
        let looked = self.look_on(&mut look);
        self.sharing.renewed = None;
        self.instrument(false);
        Ok((look, looked?))
    }

    fn look_on(&mut self, look: &mut Look) -> Done<bool> {
        // What the instruction that the thread stands on touches was noted.
        let mut past = false;
        let mut new = None;
        // Children of vfork: their parents wait for them, so nothing of theirs could happen in another order.
        let mut borrowers = BTreeSet::new();
        loop {
            self.pass_silent()?;
            self.renew(look, new.take());
            let current = self.machine.current;
            let counts = !borrowers.contains(&current);
            if counts {
                look.turn(current);
            }
            let leg = self.leg(Goal::End)?;
            if self.shall_stop() {
                return Ok(false);
            }
            match leg {
                Leg::Over(_) => return Ok(true),
                Leg::Event => {
                    let next = self.reader.peek()?;
                    past = matches!(next, Some(Record::Event(Event::Shared { .. })));
                    self.apply()?;
                    if let Some(EventStop::NewThread { thread }) = self.came_by {
                        match self.waits_for_child() {
                            true => drop(borrowers.insert(thread)),
                            false => new = self.stack_of(thread),
                        }
                    }
                }
                Leg::Single => {
                    if !past && counts {
                        look.instruction(&mut self.machine, self.reader.position());
                    }
                    past = self.single()? == Stepped::Due;
                }
                Leg::Run { limit, .. } => {
                    let look = counts.then_some(&mut *look);
                    past = self.look_running(look, limit, past)?;
                }
            }
        }
    }

    /// Runs, at most to `limit` ticks after the last event. Whether the instruction that the thread stands on then
    /// was looked at.
    fn look_running(&mut self, mut look: Option<&mut Look>, limit: u64, past: bool) -> Done<bool> {
        let events = self.reader.position();
        let Some(Record::Event(event)) = ahead(&mut self.reader, &self.limit)? else {
            return Ok(past);
        };
        let mut left = AT_ONCE;
        let came = self
            .machine
            .approach_past(event, limit, past, &mut |machine| {
                if let Some(look) = &mut look {
                    look.instruction(machine, events);
                }
                left -= 1;
                left > 0
            })?;
        self.steps = (came == Came::Limit).then_some(0);
        Ok(came != Came::Limit)
    }

    /// Tells of memory that isn't what it was before the last events.
    fn renew(&mut self, look: &mut Look, new: Option<Range<u64>>) {
        let renewed = self.sharing.renewed.iter_mut();
        for range in renewed.flat_map(|renewed| renewed.drain(..)).chain(new) {
            look.renewed(&range);
        }
    }

    /// Whether the current thread waits for the child that it has just made.
    fn waits_for_child(&self) -> bool {
        const FORKS: [i64; 4] = [
            libc::SYS_clone,
            libc::SYS_fork,
            libc::SYS_vfork,
            libc::SYS_clone3,
        ];
        let thread = self.machine.threads.get(&self.machine.current);
        let waits = thread.and_then(|thread| thread.waits);
        waits.is_some_and(|call| FORKS.contains(&i64::from(call.nr)))
    }

    /// A new thread's stack, and its own memory above it.
    fn stack_of(&self, thread: ThreadId) -> Option<Range<u64>> {
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

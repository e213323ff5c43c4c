//! Where a worker is to stop: what was asked for, made ready to be asked at every instruction.
//!
//! In: [`Stops`]. Out: instruments for translated code, and answers: does this breakpoint count, has what
//! is watched changed, is this event wanted?

use rustc_hash::FxHashMap;

use clew_recording::event::{Event, ThreadId};

use super::protocol::{Break, Calls, EventStop, Gate, Sites, Stops, Watch, WatchKind};
use crate::cache::accesses::Access;
use crate::cache::instruments::{Instruments, Watched};
use crate::context::Regs;
use crate::guest::access;
use crate::memory::{Memory, PAGE};
use crate::replay::agent::{Condition, Numbers, Subject, general_register};

/// As gdb counts them with the usual description of amd64 Linux.
const NUMBERS: Numbers = Numbers {
    fs_base: 58,
    gs_base: 59,
};

/// What was asked for.
#[derive(Default)]
pub struct Wanted {
    /// Numbers of the places at an address.
    breaks: FxHashMap<u64, Vec<u32>>,
    places: Vec<Place>,
    pub watches: Vec<Watch>,
    /// What is in the memory of each watch, where it can be read.
    contents: Vec<Option<Vec<u8>>>,
    events: super::protocol::Events,
    instruments: Instruments,
}

/// A breakpoint at an address, or at many.
struct Place {
    thread: Option<ThreadId>,
    gate: Option<Gate>,
    conditions: Vec<Condition>,
    /// One of them can't be evaluated: gdb would stop and say so.
    always: bool,
}

struct Guest<'a>(&'a Regs);

impl Subject for Guest<'_> {
    fn register(&self, number: u16) -> Option<u64> {
        general_register(self.0, NUMBERS, number)
    }

    fn read(&self, addr: u64, bytes: &mut [u8]) -> bool {
        access::read_bytes(addr, bytes).is_ok()
    }
}

impl Place {
    fn new(from: &Break) -> Place {
        Place::with(from.thread, None, &from.conditions)
    }

    fn of_sites(from: &Sites) -> Place {
        let mut gate = from.gate.clone();
        if let Some(gate) = &mut gate {
            gate.ranges.sort_unstable();
        }
        Place::with(from.thread, gate, &from.conditions)
    }

    fn with(thread: Option<ThreadId>, gate: Option<Gate>, conditions: &[Vec<u8>]) -> Place {
        let decoded = conditions.iter().map(|bytes| Condition::decode(bytes));
        let (good, bad): (Vec<_>, Vec<_>) = decoded.partition(Result::is_ok);
        Place {
            thread,
            gate,
            conditions: good.into_iter().flatten().collect(),
            always: conditions.is_empty() || !bad.is_empty(),
        }
    }

    fn counts(&self, thread: ThreadId, regs: &Regs) -> bool {
        if self.thread.is_some_and(|wanted| wanted != thread) {
            return false;
        }
        if self.gate.as_ref().is_some_and(|gate| !is_open(gate, regs)) {
            return false;
        }
        let holds = |condition: &Condition| condition.evaluate(&Guest(regs)) != Ok(0);
        self.always || self.conditions.iter().any(holds)
    }
}

/// The filter in translated code lets some values through that aren't meant.
fn is_open(gate: &Gate, regs: &Regs) -> bool {
    let register = regs.gpr[usize::from(gate.register) % regs.gpr.len()];
    let value = register.wrapping_add_signed(gate.displacement.into());
    let behind = gate.ranges.partition_point(|&(first, _)| first <= value);
    behind > 0 && value < gate.ranges[behind - 1].1
}

/// Which watch saw something, at which address, and whether it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub watch: u32,
    pub addr: u64,
    pub read: bool,
}

impl Wanted {
    pub fn new(stops: Stops) -> Wanted {
        let mut breaks: FxHashMap<u64, Vec<u32>> = FxHashMap::default();
        let mut places = Vec::new();
        let mut instruments = Instruments::default();
        for at in &stops.breaks {
            breaks.entry(at.addr).or_default().push(places.len() as u32);
            instruments.breaks.insert(at.addr);
            places.push(Place::new(at));
        }
        for sites in &stops.sites {
            for &addr in &sites.addrs {
                breaks.entry(addr).or_default().push(places.len() as u32);
                match &sites.gate {
                    Some(gate) => {
                        let gate = (addr, gate.register % 16, gate.displacement);
                        instruments.gates.insert(gate);
                    }
                    None => {
                        instruments.breaks.insert(addr);
                    }
                }
            }
            if let Some(gate) = &sites.gate {
                let ranges = gate.ranges.iter().map(|&(first, behind)| first..behind);
                instruments.gated.extend(ranges);
            }
            places.push(Place::of_sites(sites));
        }
        let watched = |watch: &Watch| Watched {
            range: watch.addr..watch.addr.saturating_add(watch.len),
            reads: watch.kind != WatchKind::Change,
            writes: watch.kind != WatchKind::Read,
        };
        instruments.watches = stops.watches.iter().map(watched).collect();
        Wanted {
            breaks,
            places,
            contents: vec![None; stops.watches.len()],
            watches: stops.watches,
            events: stops.events,
            instruments,
        }
    }

    pub fn instruments(&self) -> Instruments {
        self.instruments.clone()
    }

    pub fn any_watch(&self) -> bool {
        !self.watches.is_empty()
    }

    /// Accesses are to be looked at, not only changes.
    pub fn any_access(&self) -> bool {
        let access = |watch: &Watch| watch.kind != WatchKind::Change;
        self.watches.iter().any(access)
    }

    /// Whether a breakpoint counts for a thread that is about to execute the instruction it stands on.
    pub fn breaks_at(&self, thread: ThreadId, regs: &Regs) -> bool {
        let places = self.breaks.get(&regs.rip);
        let counts = |&n: &u32| self.places[n as usize].counts(thread, regs);
        places.is_some_and(|places| places.iter().any(counts))
    }

    /// The watch that one of these accesses concerns; changes are found by comparing.
    pub fn touched(&self, accesses: &[Access]) -> Option<Seen> {
        let numbered = self.watches.iter().enumerate();
        let mut wanted = numbered.filter(|(_, watch)| watch.kind != WatchKind::Change);
        wanted.find_map(|(n, watch)| {
            let range = watch.addr..watch.addr.saturating_add(watch.len);
            let counts = |access: &&Access| {
                access.touches(&range) && (access.read || watch.kind == WatchKind::Access)
            };
            let access = accesses.iter().find(counts)?;
            Some(Seen {
                watch: n as u32,
                addr: access.addr.max(watch.addr),
                read: access.read && !access.write,
            })
        })
    }

    /// The watch for accesses that the kernel's writing there concerns.
    pub fn written(&self, addr: u64, len: u64) -> Option<Seen> {
        let write = Access {
            addr,
            len,
            read: false,
            write: true,
        };
        self.touched(&[write])
    }

    /// From here on changes are counted.
    pub fn remember(&mut self, memory: &Memory) {
        for (watch, contents) in self.watches.iter().zip(&mut self.contents) {
            if watch.kind == WatchKind::Change {
                *contents = read(memory, watch);
            }
        }
    }

    /// What has changed since it was last asked.
    pub fn changed(&mut self, memory: &Memory) -> Option<Seen> {
        let mut seen = None;
        let numbered = self.watches.iter().zip(&mut self.contents).enumerate();
        for (n, (watch, contents)) in numbered.filter(|(_, (w, _))| w.kind == WatchKind::Change) {
            if let Some(addr) = compare(memory, watch, contents) {
                seen = seen.or(Some(Seen {
                    watch: n as u32,
                    addr,
                    read: false,
                }));
            }
        }
        seen
    }

    /// Whether to stop before the event, where it is due. `rax` is what the thread has there: of a call that the event
    /// only tells the consequences of, its number.
    pub fn before(&self, event: &Event, rax: u64) -> Option<EventStop> {
        let wanted = &self.events;
        let entered = |calls: &[i64]| {
            let nr = calls
                .iter()
                .find(|&&nr| nr as u64 == rax)
                .map(|&nr| nr as u32);
            let nr = nr.filter(|&nr| wanted.wants(nr));
            nr.map(|nr| EventStop::CallIn { nr })
        };
        let stop = match *event {
            Event::Call(call) => wanted
                .wants(call.nr)
                .then_some(EventStop::CallIn { nr: call.nr }),
            Event::Signal { signo, .. } | Event::Killed { signo, .. } => {
                let bit = 1u64.checked_shl(signo.wrapping_sub(1) as u32).unwrap_or(0);
                (wanted.signals & bit != 0).then_some(EventStop::Signal { signo })
            }
            Event::EndedThread { thread } => {
                wanted.threads.then_some(EventStop::EndedThread { thread })
            }
            Event::Exec { .. } => {
                let exec = wanted.exec.then_some(EventStop::Exec);
                exec.or_else(|| entered(&[libc::SYS_execve, libc::SYS_execveat]))
            }
            Event::Forked { .. } => entered(&[libc::SYS_clone, libc::SYS_fork, libc::SYS_vfork]),
            Event::Exited { .. } => entered(&[libc::SYS_exit_group, libc::SYS_exit]),
            _ => None,
        };
        stop.or(wanted.all.then_some(EventStop::Other))
    }

    /// Whether to stop behind an event, where that is possible.
    pub fn behind(&self, stop: EventStop) -> bool {
        let wanted = &self.events;
        match stop {
            EventStop::CallOut { nr } => wanted.wants(nr),
            EventStop::NewThread { .. } => wanted.threads,
            EventStop::Forked { .. } => wanted.forks,
            _ => false,
        }
    }
}

/// As what one may stop behind that event. `waited`: the call that has ended with it.
pub fn stop_behind(event: &Event, waited: Option<u32>) -> Option<EventStop> {
    match *event {
        Event::Call(call) if !matches!(call.end, clew_recording::event::End::Waits) => {
            Some(EventStop::CallOut { nr: call.nr })
        }
        Event::Resumed { .. } => waited.map(|nr| EventStop::CallOut { nr }),
        Event::NewThread { thread, .. } => Some(EventStop::NewThread { thread }),
        Event::Forked { pid, .. } => Some(EventStop::Forked { pid }),
        Event::Exec { .. } => Some(EventStop::Exec),
        _ => None,
    }
}

impl super::protocol::Events {
    fn wants(&self, nr: u32) -> bool {
        match &self.calls {
            Calls::None => false,
            Calls::All => true,
            Calls::These(wanted) => wanted.contains(&nr),
        }
    }
}

/// Longer ones are compared as far as this.
const LONGEST_WATCH: u64 = 1 << 20;

/// What is in watched memory; none if it can't be read.
pub(super) fn read(memory: &Memory, watch: &Watch) -> Option<Vec<u8>> {
    let mut bytes = vec![0; watch.len.min(LONGEST_WATCH) as usize];
    fill(memory, watch.addr, &mut bytes).then_some(bytes)
}

fn fill(memory: &Memory, addr: u64, into: &mut [u8]) -> bool {
    if access::read_bytes(addr, into).is_ok() {
        return true;
    }
    let mut done = 0;
    while done < into.len() {
        let at = addr.wrapping_add(done as u64);
        let len = ((PAGE - at % PAGE) as usize).min(into.len() - done);
        if !memory.show(at, &mut into[done..done + len]) {
            return false;
        }
        done += len;
    }
    true
}

/// Updates the contents; where they differ first.
fn compare(memory: &Memory, watch: &Watch, contents: &mut Option<Vec<u8>>) -> Option<u64> {
    /// Most watches are of a few words: no memory is taken for them.
    const SHORT: usize = 64;
    if let Some(old) = contents
        && old.len() <= SHORT
    {
        let mut room = [0; SHORT];
        let new = &mut room[..old.len()];
        if access::read_bytes(watch.addr, new).is_ok() {
            let at = old.iter().zip(&*new).position(|(a, b)| a != b)?;
            old.copy_from_slice(new);
            return Some(watch.addr + at as u64);
        }
    }
    let new = read(memory, watch);
    let at = match (&*contents, &new) {
        (None, None) => None,
        (Some(old), Some(new)) => old.iter().zip(new).position(|(a, b)| a != b),
        // It came, or went.
        _ => Some(0),
    };
    *contents = new;
    at.map(|at| watch.addr + at as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regs(rip: u64, rax: u64) -> Regs {
        let mut regs = Regs {
            rip,
            ..Regs::default()
        };
        regs.gpr[0] = rax;
        regs
    }

    #[test]
    fn breakpoints_have_threads_and_conditions() {
        let at = |addr, thread, conditions| Break {
            addr,
            thread,
            conditions,
        };
        // rax == 7
        let seven = vec![0x26, 0, 0, 0x22, 7, 0x13, 0x27];
        let stops = Stops {
            breaks: vec![
                at(0x10, Some(2), vec![]),
                at(0x20, None, vec![seven.clone()]),
                at(0x30, None, vec![seven, vec![0xff]]),
            ],
            ..Stops::default()
        };
        let wanted = Wanted::new(stops);
        assert!(!wanted.breaks_at(1, &regs(0x10, 0)));
        assert!(wanted.breaks_at(2, &regs(0x10, 0)));
        assert!(!wanted.breaks_at(1, &regs(0x11, 0)));
        assert!(wanted.breaks_at(1, &regs(0x20, 7)));
        assert!(!wanted.breaks_at(1, &regs(0x20, 8)));
        assert!(wanted.breaks_at(1, &regs(0x30, 8)), "can't be evaluated");
    }

    #[test]
    fn gates_and_conditions_both_count() {
        let gate = Gate {
            register: 0,
            displacement: 8,
            ranges: vec![(0x40, 0x42), (0x20, 0x21)],
        };
        let sites = |gate, conditions| Sites {
            addrs: vec![0x10, 0x20],
            thread: None,
            gate,
            conditions,
        };
        let stops = |sites| Stops {
            sites: vec![sites],
            ..Stops::default()
        };
        let wanted = Wanted::new(stops(sites(Some(gate.clone()), vec![])));
        let hits = |wanted: &Wanted| {
            let all = (0..0x50u64).filter(|&rax| wanted.breaks_at(1, &regs(0x20, rax)));
            all.collect::<Vec<u64>>()
        };
        assert_eq!(hits(&wanted), [0x18, 0x38, 0x39]);
        assert!(wanted.instruments().breaks.is_empty());
        assert_eq!(wanted.instruments().gates.len(), 2);
        // rax == 0x38
        let condition = vec![0x26, 0, 0, 0x22, 0x38, 0x13, 0x27];
        let wanted = Wanted::new(stops(sites(Some(gate), vec![condition])));
        assert_eq!(hits(&wanted), [0x38]);
        let always = Wanted::new(stops(sites(None, vec![])));
        assert_eq!(hits(&always).len(), 0x50);
        assert_eq!(always.instruments().breaks.len(), 2);
    }

    #[test]
    fn accesses_are_told_from_changes() {
        let watch = |addr, kind| Watch { addr, len: 8, kind };
        let stops = Stops {
            watches: vec![
                watch(0x100, WatchKind::Change),
                watch(0x200, WatchKind::Read),
                watch(0x300, WatchKind::Access),
            ],
            ..Stops::default()
        };
        let wanted = Wanted::new(stops);
        let write = |addr| wanted.written(addr, 4).map(|seen| (seen.watch, seen.addr));
        assert_eq!(write(0x100), None);
        assert_eq!(write(0x204), None);
        assert_eq!(write(0x2fe), Some((2, 0x300)));
        assert_eq!(write(0x308), None);
    }
}

//! What threads do to each other, on one way through. In: known functions, and memory that threads share, in a buffer.
//! Out: calls and returns of those functions, and accesses to that memory or all atomic ones, in the order in which
//! they happened ([`Told`]).
//!
//! Inside a quiet function nothing is told: a lock is one interaction, whatever it is made of. A signal handler that
//! interrupts one isn't inside.
//!
//! Of reads, those that a thread repeats aren't told, unless every access is asked for: nothing was told of it in between, and
//! nobody else has written there.

use std::ops::Range;

use clew_recording::event::{Event, Record, ThreadId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::observe::{Observer, Sight, Stays};
use super::protocol::{EventStop, Goal, Interactions, Mark, Reply, Watchful, Why};
use super::serve::Worker;
use super::told::Told;
use super::touches::{Look, mapped};
use super::travel::{Done, Halt};
use crate::cache::accesses::Access;
use crate::cache::instruments::Instruments;
use crate::cache::shadow::Shadow;
use crate::context::{RAX, RCX, RDI, RDX, RSI, RSP};
use crate::guest::access;
use crate::replay::Machine;
use crate::trace::buffer::Buffer;

/// After so many looks it looks for commands.
const AT_ONCE: u32 = 1 << 12;
/// A granule's state: looked at.
const WATCHED: u8 = 1;
/// Reads that are remembered, so as not to be told again.
const MOST_READS: usize = 1 << 18;
/// No more of a program's code is looked through for calls like the one that was seen.
const MOST_CODE: u64 = 64 << 20;

struct Interacting {
    functions: FxHashMap<u64, (u32, Watchful)>,
    /// Where calls return to.
    backs: FxHashSet<u64>,
    open: FxHashMap<ThreadId, Vec<Open>>,
    /// A return address that has no instrument yet.
    new: bool,
    accesses: Option<Sharing>,
    /// Nothing is passed over, and values are told.
    every: bool,
    repeats: Repeats,
    buffer: Buffer,
    words: Vec<u64>,
    /// Children of vfork: nothing of theirs could happen in another order.
    borrowers: FxHashSet<ThreadId>,
    signal: Due,
    left: u32,
}

/// Which event is due.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    Handler,
    /// A handler's end.
    Return,
    Other,
}

/// A call under way, or a handler.
struct Open {
    /// Where its return address is.
    at: u64,
    back: u64,
    /// None for a handler.
    function: Option<(u32, Watchful)>,
    argument: u64,
    /// The mapping that its stack is in.
    stack: Range<u64>,
}

struct Sharing {
    shadow: Shadow,
    /// Not yet looked at: there is one thread.
    later: Vec<super::protocol::Granules>,
}

/// What was told, as far as it matters to what needn't be.
#[derive(Default)]
struct Repeats {
    number: u64,
    /// Of each thread, the last number that something else than an access was told with.
    since: FxHashMap<ThreadId, u64>,
    reads: FxHashMap<(ThreadId, u64, u64), u64>,
    /// The last writer of each word, and when.
    writes: FxHashMap<u64, (ThreadId, u64)>,
    /// The last write, if nothing was told since.
    last: Option<(ThreadId, u64, u64, u64)>,
}

impl Repeats {
    /// Something that isn't an access.
    fn deed(&mut self, thread: ThreadId) {
        self.number += 1;
        self.since.insert(thread, self.number);
        self.last = None;
    }

    /// Whether an access needs no telling.
    fn known(&mut self, thread: ThreadId, pc: u64, access: &Access) -> bool {
        let what = (access.addr, access.len);
        if access.write {
            // The same again, and nothing else meanwhile: nothing new could be handed over by it.
            let this = (thread, pc, what.0, what.1);
            if self.last == Some(this) {
                return true;
            }
            self.number += 1;
            self.last = Some(this);
            if self.writes.len() > MOST_READS {
                self.writes.clear();
                self.reads.clear();
            }
            for word in words(access) {
                self.writes.insert(word, (thread, self.number));
            }
            return false;
        }
        let since = self.since.get(&thread).copied().unwrap_or(0);
        let read = self.reads.get(&(thread, what.0, what.1)).copied();
        let unwritten = |then: u64| {
            words(access).all(|word| match self.writes.get(&word) {
                Some(&(by, when)) => by == thread || when < then,
                None => true,
            })
        };
        if read.is_some_and(|then| then > since && unwritten(then)) {
            return true;
        }
        self.number += 1;
        self.last = None;
        if self.reads.len() > MOST_READS {
            self.reads.clear();
        }
        self.reads.insert((thread, what.0, what.1), self.number);
        false
    }
}

/// The words of a short access; a long one is no short repetition.
fn words(access: &Access) -> impl Iterator<Item = u64> + use<> {
    let end = access.addr.saturating_add(access.len.max(1)) - 1;
    access.addr >> 3..=end >> 3
}

impl Interacting {
    fn instruments(&self) -> Instruments {
        Instruments {
            breaks: self.functions.keys().chain(&self.backs).copied().collect(),
            shadow: self.accesses.is_some(),
            locked: self.accesses.is_none(),
            ..Instruments::default()
        }
    }

    fn tell(&mut self, machine: &mut Machine, told: &Told) {
        told.words(&mut self.words);
        self.buffer.put_words(machine.gs, &self.words);
    }

    /// The current thread is about to execute an instruction.
    fn look(&mut self, machine: &mut Machine, event: u64) {
        let (pc, _) = machine.place_now();
        if self.backs.contains(&pc) {
            self.returned(machine, event);
        }
        if let Some(&(number, function)) = self.functions.get(&pc) {
            self.called(machine, event, number, function);
        }
        self.touched(machine, event);
    }

    /// Calls that a jump has left: what lies below the stack pointer of the same stack.
    fn unwind(&mut self, machine: &mut Machine, event: u64) {
        let thread = machine.current;
        let (_, sp) = machine.place_now();
        loop {
            let Some(open) = self.open.get_mut(&thread) else {
                return;
            };
            match open.last() {
                Some(last) if last.stack.contains(&sp) && last.at < sp => {}
                _ => return,
            }
            if let Some(Open {
                function: Some((function, _)),
                ..
            }) = open.pop()
            {
                self.repeats.deed(thread);
                let left = Told::Left {
                    thread,
                    function,
                    event,
                };
                self.tell(machine, &left);
            }
        }
    }

    fn is_inside(&self, thread: ThreadId) -> bool {
        let open = self.open.get(&thread).and_then(|open| open.last());
        open.and_then(|open| open.function)
            .is_some_and(|(_, function)| function.quiet)
    }

    fn called(&mut self, machine: &mut Machine, event: u64, number: u32, function: Watchful) {
        self.unwind(machine, event);
        let thread = machine.current;
        if self.is_inside(thread) {
            return;
        }
        let gpr = machine.gs.regs.gpr;
        let at = gpr[RSP];
        let Some(back) = word(at) else {
            return;
        };
        let stack = machine.memory.find(at);
        let stack = stack.map_or(at..at + 1, |mapping| mapping.start..mapping.end);
        let open = self.open.entry(thread).or_default();
        open.push(Open {
            at,
            back,
            function: Some((number, function)),
            argument: gpr[RDI],
            stack,
        });
        if self.backs.insert(back) {
            self.new = true;
            self.backs.extend(alike(machine, back));
        }
        self.repeats.deed(thread);
        let told = Told::Called {
            thread,
            function: number,
            at: mark(machine, event),
            back,
            arguments: [gpr[RDI], gpr[RSI], gpr[RDX], gpr[RCX]],
        };
        self.tell(machine, &told);
    }

    /// It stands behind calls; has one of them returned?
    fn returned(&mut self, machine: &mut Machine, event: u64) {
        let thread = machine.current;
        let (pc, sp) = machine.place_now();
        let Some(open) = self.open.get(&thread) else {
            return;
        };
        let is_it = |open: &Open| {
            open.function.is_some() && open.back == pc && open.at.wrapping_add(8) == sp
        };
        let Some(first) = open.iter().position(is_it) else {
            return;
        };
        while let Some(gone) = self
            .open
            .get_mut(&thread)
            .and_then(|open| (open.len() > first).then(|| open.pop()).flatten())
        {
            let Some((function, _)) = gone.function else {
                continue;
            };
            self.repeats.deed(thread);
            let told = match is_it(&gone) {
                true => Told::Returned {
                    thread,
                    function,
                    at: mark(machine, event),
                    rax: machine.gs.regs.gpr[RAX],
                    pointed: word(gone.argument).unwrap_or(0),
                },
                false => Told::Left {
                    thread,
                    function,
                    event,
                },
            };
            self.tell(machine, &told);
        }
    }

    /// What the instruction touches, if somebody wants to know.
    fn touched(&mut self, machine: &mut Machine, event: u64) {
        let thread = machine.current;
        let waits = self
            .accesses
            .as_ref()
            .is_some_and(|sharing| !sharing.later.is_empty());
        if waits || self.borrowers.contains(&thread) {
            return;
        }
        self.unwind(machine, event);
        if self.is_inside(thread) {
            return;
        }
        let accesses = machine.code.accesses(machine.gs);
        let locked = machine.code.locked(machine.gs);
        if accesses.is_empty() || self.accesses.is_none() && !locked {
            return;
        }
        let at = mark(machine, event);
        for access in &accesses {
            let access = mapped(&machine.memory, access);
            if access.len == 0 {
                continue;
            }
            for piece in self.pieces(&access) {
                if !locked && !self.every && self.repeats.known(thread, at.pc, &piece) {
                    continue;
                }
                if locked {
                    self.repeats.deed(thread);
                    for word in words(&piece) {
                        let now = self.repeats.number;
                        self.repeats.writes.insert(word, (thread, now));
                    }
                }
                let told = Told::Access {
                    thread,
                    at,
                    addr: piece.addr,
                    len: piece.len,
                    read: piece.read,
                    write: piece.write,
                    locked,
                    value: self.every.then(|| value(&piece)).flatten(),
                };
                self.tell(machine, &told);
            }
        }
    }

    /// The parts of an access that are looked at.
    fn pieces(&self, access: &Access) -> Vec<Access> {
        let Some(sharing) = &self.accesses else {
            return vec![*access];
        };
        let watched = |addr| sharing.shadow.state(Shadow::granule(addr)) == WATCHED;
        let end = access.addr.saturating_add(access.len);
        let (mut all, mut addr, mut start) = (Vec::new(), access.addr, None);
        while addr < end {
            match (watched(addr), start) {
                (true, None) => start = Some(addr),
                (false, Some(from)) => {
                    all.push(Access {
                        addr: from,
                        len: addr - from,
                        ..*access
                    });
                    start = None;
                }
                _ => {}
            }
            addr = (addr | (Shadow::GRANULE - 1)).saturating_add(1).min(end);
        }
        if let Some(from) = start {
            all.push(Access {
                addr: from,
                len: end - from,
                ..*access
            });
        }
        all
    }

    /// There are several threads now: memory is looked at.
    fn begin_sharing(&mut self) {
        let Some(sharing) = &mut self.accesses else {
            return;
        };
        for granules in sharing.later.drain(..) {
            let end = granules.first.saturating_add(granules.count);
            (granules.first..end).for_each(|granule| sharing.shadow.set(granule, WATCHED));
        }
    }

    fn renewed(&mut self, machine: &mut Machine, event: u64, range: Range<u64>) {
        if self.accesses.is_some() {
            self.tell(machine, &Told::Renewed { event, range });
        }
    }

    fn add_instruments(&mut self, worker: &mut Worker) {
        if std::mem::take(&mut self.new) {
            worker.instrument_with(Interacting::instruments(self));
        }
    }
}

impl Observer for Interacting {
    fn instruments(&mut self, _worker: &Worker) -> Instruments {
        Interacting::instruments(self)
    }

    fn here(&mut self, worker: &mut Worker, reached: bool) -> Done<Option<Why>> {
        let event = worker.reader.position();
        let renewed = worker.renewed.as_mut().map(std::mem::take);
        for range in renewed.into_iter().flatten() {
            self.renewed(&mut worker.machine, event, range);
        }
        self.left = AT_ONCE;
        Ok(reached.then_some(Why::Goal))
    }

    fn due(&mut self, worker: &mut Worker) -> Done<Option<Why>> {
        self.signal = match worker.reader.peek()? {
            Some(Record::Event(Event::Signal { .. })) => Due::Handler,
            Some(Record::Event(Event::Call(call)))
                if i64::from(call.nr) == libc::SYS_rt_sigreturn =>
            {
                Due::Return
            }
            _ => Due::Other,
        };
        self.repeats.deed(worker.machine.current);
        Ok(None)
    }

    fn done(&mut self, worker: &mut Worker) -> Done {
        let thread = worker.machine.current;
        match self.signal {
            Due::Handler => {
                let (_, at) = worker.machine.place_now();
                let stack = worker.machine.memory.find(at);
                let stack = stack.map_or(at..at + 1, |mapping| mapping.start..mapping.end);
                self.open.entry(thread).or_default().push(Open {
                    at,
                    back: 0,
                    function: None,
                    argument: 0,
                    stack,
                });
            }
            Due::Return => {
                let open = self.open.entry(thread).or_default();
                if let Some(handler) = open.iter().rposition(|open| open.function.is_none()) {
                    open.truncate(handler);
                }
            }
            Due::Other => {}
        }
        if let Some(EventStop::NewThread { thread }) = worker.came_by {
            match worker.waits_for_child() {
                true => drop(self.borrowers.insert(thread)),
                false => {
                    self.begin_sharing();
                    let event = worker.reader.position();
                    if let Some(stack) = worker.stack_of(thread) {
                        self.renewed(&mut worker.machine, event, stack);
                    }
                }
            }
        }
        self.repeats.deed(worker.machine.current);
        Ok(())
    }

    fn single(&mut self, worker: &mut Worker) -> Done<Option<Why>> {
        if !worker.past {
            let events = worker.reader.position();
            self.look(&mut worker.machine, events);
            self.add_instruments(worker);
        }
        Ok(None)
    }

    fn passes(&mut self, sight: Sight<'_>) -> bool {
        self.look(sight.machine, sight.events);
        self.left = self.left.saturating_sub(1);
        !self.new && self.left > 0
    }

    fn stays(&mut self, worker: &mut Worker) -> Stays {
        self.add_instruments(worker);
        Stays::Passed
    }
}

impl Worker {
    /// Goes to the goal and tells of what the buffer asks for.
    pub(super) fn interactions(&mut self, goal: Goal, mut buffer: Buffer) -> Done<Reply> {
        let asked = postcard::from_bytes::<Interactions>(&buffer.result());
        let asked = asked.map_err(|_| Halt::Refused("nothing to look for".into()))?;
        let accesses = match asked.accesses {
            Some(later) => {
                let mut shadow = Look::shadow()?;
                for state in 0..=u8::MAX {
                    let pass = state != WATCHED;
                    shadow.pass(state, pass, pass);
                }
                Some(Sharing { shadow, later })
            }
            None => None,
        };
        buffer.begin(self.machine.gs);
        let numbered = (0..).zip(&asked.functions);
        let mut interacting = Interacting {
            functions: numbered.map(|(n, one)| (one.pc, (n, *one))).collect(),
            backs: FxHashSet::default(),
            open: FxHashMap::default(),
            new: false,
            accesses,
            every: asked.every,
            repeats: Repeats::default(),
            buffer,
            words: Vec::new(),
            borrowers: FxHashSet::default(),
            signal: Due::Other,
            left: AT_ONCE,
        };
        if asked.every || self.machine.threads.len() > 1 {
            interacting.begin_sharing();
        }
        self.renewed = Some(Vec::new());
        let stopped = self
            .pass_silent()
            .and_then(|()| self.observe(goal, &mut interacting));
        self.renewed = None;
        interacting.buffer.flush(self.machine.gs);
        self.instrument(false);
        let stopped = stopped?;
        let complete = stopped.why != Why::Interrupted;
        Ok(Reply::Observed { stopped, complete })
    }
}

fn mark(machine: &Machine, event: u64) -> Mark {
    let (pc, sp) = machine.place_now();
    Mark {
        event,
        ticks: machine.since(),
        pc,
        sp,
    }
}

/// What stands where an access goes, up to eight bytes of it.
fn value(access: &Access) -> Option<u64> {
    let mut bytes = [0; 8];
    let len = access.len.clamp(1, 8) as usize;
    access::read_bytes(access.addr, &mut bytes[..len]).ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn word(addr: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    access::read_bytes(addr, &mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// Where other calls of the same kind in the same piece of code return to: each new one would have all of that code
/// translated again.
fn alike(machine: &Machine, back: u64) -> Vec<u64> {
    let mut all = Vec::new();
    let Some(mapping) = machine.memory.find(back) else {
        return all;
    };
    let (start, end) = (mapping.start, mapping.end);
    let mut call = [0; 6];
    if end - start > MOST_CODE
        || back < start + 6
        || access::read_bytes(back - 6, &mut call).is_err()
    {
        return all;
    }
    let relative = |bytes: &[u8]| {
        let bytes = bytes.try_into().ok()?;
        Some(i64::from(i32::from_le_bytes(bytes)))
    };
    let mut code = vec![0; (end - start) as usize];
    if access::read_bytes(start, &mut code).is_err() {
        return all;
    }
    // call rel32, or call through a word of memory.
    let (skip, len) = match call {
        [_, 0xe8, ..] => (1, 5),
        [0xff, 0x15, ..] => (2, 6),
        _ => return all,
    };
    let Some(target) = relative(&call[2..]).map(|offset| back.wrapping_add_signed(offset)) else {
        return all;
    };
    let first = call[6 - len];
    for (at, window) in code.windows(len).enumerate() {
        if window[0] != first || (skip == 2 && window[1] != 0x15) {
            continue;
        }
        let next = start + (at + len) as u64;
        if relative(&window[skip..]).map(|offset| next.wrapping_add_signed(offset)) == Some(target)
        {
            all.push(next);
        }
    }
    all
}

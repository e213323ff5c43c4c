//! Calls of chosen functions, each with its return. In: where the functions begin, and calls that are under way, in a
//! buffer. Out: each call with the registers and the part of memory that its arguments are in, and what it returned, in the
//! buffer's place; and which are under way now, so that a stretch can be looked at in parts.
//!
//! A call is seen at the function's first instruction, and again where its arguments are known; it is told from others by
//! where its return address is on the stack. Its return is seen behind the call, where that stack pointer comes back: tail calls
//! return there too. Frames that a long jump or an exception has left are noticed when the stack pointer is seen above
//! them: at the next call, or the return of one further out.

use std::collections::BTreeSet;

use clew_recording::event::ThreadId;
use rustc_hash::FxHashMap;

use super::observe::{Observer, Sight, Stays};
use super::protocol::{
    CallOpen, CallSeen, CallsAsked, CallsTold, FunctionEntry, Goal, LeftBy, Mark, Piece, Reply, Why,
};
use super::serve::Worker;
use super::trace::tell;
use super::travel::{Done, Halt};
use crate::cache::instruments::Instruments;
use crate::context::{R8, R9, RAX, RCX, RDI, RDX, RSI, RSP, Xsave};
use crate::guest::access;
use crate::host::switch;
use crate::replay::Machine;
use crate::trace::buffer::Buffer;

/// After so many looks at calls it looks for commands.
const AT_ONCE: u32 = 1 << 12;
/// Below the stack pointer a function may have data that it made no room for.
const RED_ZONE: u64 = 128;
/// So much of the frame is kept, from the red zone on, and around the return address.
const FRAME: u64 = 256;
const AROUND: u64 = 128;
/// And so much of what registers point to.
const POINTED: u64 = 64;
/// Where xmm0 is in an XSAVE area.
const XMM: usize = 160;
const VECTORS: usize = 8;

struct Functions {
    /// By their first instructions, and by where arguments are known.
    entries: FxHashMap<u64, (u32, FunctionEntry)>,
    known: FxHashMap<u64, FunctionEntry>,
    /// Where calls return to.
    backs: BTreeSet<u64>,
    seen: Vec<CallSeen>,
    most: usize,
    /// Calls under way, outermost first.
    open: FxHashMap<ThreadId, Vec<Open>>,
    /// A return address that has no instrument yet.
    new: bool,
    full: bool,
    left: u32,
}

/// A call under way.
struct Open {
    /// Where its return address is.
    at: u64,
    back: u64,
    call: usize,
    /// The mapping that its stack is in: a handler's may be another.
    stack: u64,
}

impl Functions {
    fn instruments(&self) -> Instruments {
        Instruments {
            breaks: self
                .entries
                .keys()
                .chain(self.known.keys())
                .chain(&self.backs)
                .copied()
                .collect(),
            ..Instruments::default()
        }
    }

    /// The current thread is about to execute an instruction.
    fn look(&mut self, machine: &mut Machine, event: u64) {
        let regs = machine.registers_now();
        let pc = regs.rip;
        if self.backs.contains(&pc) {
            self.returned(machine, event);
        }
        if let Some(&(number, entry)) = self.entries.get(&pc) {
            self.called(machine, event, number, &entry);
        }
        if let Some(&entry) = self.known.get(&pc) {
            self.knows(machine, event, &entry);
        }
    }

    fn called(&mut self, machine: &mut Machine, event: u64, number: u32, entry: &FunctionEntry) {
        let regs = machine.registers_now();
        let at = regs.gpr[RSP];
        let Some(back) = word(at) else {
            return;
        };
        let thread = machine.current;
        let stack = machine.memory.find(at).map_or(0, |mapping| mapping.start);
        let open = self.open.entry(thread).or_default();
        let again = |open: &Open| open.at == at && open.back == back;
        if entry.loops
            && let Some(last) = open.last()
            && again(last)
            && self.seen[last.call].function == number
        {
            return;
        }
        // What lies at or below it on the same stack is gone, unless it went on as this one: a tail call has its place.
        while let Some(last) = open.last()
            && last.stack == stack
            && (last.at < at
                || last.at == at && !(again(last) && self.seen[last.call].function != number))
        {
            self.seen[last.call].left = LeftBy::Unwound;
            open.pop();
        }
        if self.seen.len() >= self.most {
            self.full = true;
            return;
        }
        let depth = open.len() as u32;
        open.push(Open {
            at,
            back,
            call: self.seen.len(),
            stack,
        });
        self.new |= self.backs.insert(back);
        self.seen.push(CallSeen {
            function: number,
            thread,
            at: mark(machine, event),
            frame: at.wrapping_add(8),
            back,
            depth,
            known: false,
            registers: regs.gpr,
            vectors: [0; VECTORS],
            pieces: Vec::new(),
            left: LeftBy::Nothing,
        });
    }

    /// The current thread stands where a function's arguments are known; it may come there again.
    fn knows(&mut self, machine: &mut Machine, event: u64, entry: &FunctionEntry) {
        let regs = machine.registers_now();
        let base = regs.gpr[usize::from(entry.register) % 16];
        let at = base.wrapping_add_signed(entry.offset);
        let open = self.open.get(&machine.current).and_then(|open| open.last());
        let Some(call) = open.filter(|open| open.at == at).map(|open| open.call) else {
            return;
        };
        if self.seen[call].known {
            return;
        }
        let low = regs.gpr[RSP].wrapping_sub(RED_ZONE);
        let mut pieces: Vec<Piece> = Vec::new();
        pieces.extend(piece(low, RED_ZONE + FRAME).or_else(|| piece(low, RED_ZONE)));
        pieces.extend(piece(at.wrapping_sub(AROUND), AROUND + 64));
        for register in [RDI, RSI, RDX, RCX, R8, R9] {
            pieces.extend(pointed(regs.gpr[register]));
        }
        let at = mark(machine, event);
        let vectors = vectors(machine);
        let call = &mut self.seen[call];
        call.known = true;
        call.at = at;
        call.registers = regs.gpr;
        call.vectors = vectors;
        call.pieces = pieces;
    }

    /// It stands behind calls; have some of them returned?
    fn returned(&mut self, machine: &mut Machine, event: u64) {
        let regs = machine.registers_now();
        let (pc, sp) = (regs.rip, regs.gpr[RSP]);
        let Some(open) = self.open.get_mut(&machine.current) else {
            return;
        };
        let is_it = |open: &Open| open.back == pc && open.at.wrapping_add(8) == sp;
        // Those that went on as each other return together.
        let Some(first) = open.iter().position(is_it) else {
            return;
        };
        let at = mark(machine, event);
        let xmm = vectors(machine);
        for gone in open.drain(first..) {
            let call = &mut self.seen[gone.call];
            call.left = match is_it(&gone) {
                false => LeftBy::Unwound,
                true => LeftBy::Return {
                    at,
                    rax: regs.gpr[RAX],
                    rdx: regs.gpr[RDX],
                    xmm: [xmm[0], xmm[1]],
                    pieces: pointed(regs.gpr[RAX]).into_iter().collect(),
                },
            };
        }
    }

    fn under_way(&self) -> Vec<CallOpen> {
        let mut threads: Vec<_> = self.open.iter().collect();
        threads.sort_by_key(|(thread, _)| **thread);
        let all = threads.into_iter().flat_map(|(&thread, open)| {
            open.iter().map(move |open| CallOpen {
                thread,
                call: open.call as u32,
                stack: open.stack,
            })
        });
        all.collect()
    }

    fn goes_on(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        !self.new && !self.full && self.left > 0
    }
}

impl Observer for Functions {
    fn instruments(&mut self, _worker: &Worker) -> Instruments {
        Functions::instruments(self)
    }

    fn here(&mut self, _worker: &mut Worker, reached: bool) -> Done<Option<Why>> {
        self.left = AT_ONCE;
        Ok(match (reached, self.full) {
            (true, _) => Some(Why::Goal),
            (false, true) => Some(Why::Interrupted),
            (false, false) => None,
        })
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
        self.goes_on()
    }

    fn stays(&mut self, worker: &mut Worker) -> Stays {
        self.add_instruments(worker);
        Stays::Passed
    }
}

impl Functions {
    fn add_instruments(&mut self, worker: &mut Worker) {
        if std::mem::take(&mut self.new) {
            worker.instrument_with(Functions::instruments(self));
        }
    }
}

impl Worker {
    /// Goes to the goal and collects calls of the functions that stand in the buffer, at most so many with those that were
    /// under way.
    pub(super) fn functions(&mut self, goal: Goal, most: u64, buffer: &mut Buffer) -> Done<Reply> {
        let asked = postcard::from_bytes::<CallsAsked>(&buffer.result());
        let asked = asked.map_err(|_| Halt::Refused("no functions to look for".into()))?;
        let (entries, before) = (asked.functions, asked.under_way);
        let mut open: FxHashMap<ThreadId, Vec<Open>> = FxHashMap::default();
        for one in &before.open {
            let call = one.call as usize;
            let seen = before.seen.get(call);
            let seen = seen.ok_or_else(|| Halt::Refused("no such call is under way".into()))?;
            open.entry(one.thread).or_default().push(Open {
                at: seen.frame.wrapping_sub(8),
                back: seen.back,
                call,
                stack: one.stack,
            });
        }
        let numbered = (0..).zip(&entries);
        let mut functions = Functions {
            entries: numbered.map(|(n, entry)| (entry.pc, (n, *entry))).collect(),
            known: entries.iter().map(|entry| (entry.known, *entry)).collect(),
            backs: open.values().flatten().map(|open| open.back).collect(),
            seen: before.seen,
            most: usize::try_from(most).unwrap_or(usize::MAX),
            open,
            new: false,
            full: false,
            left: AT_ONCE,
        };
        let stopped = self
            .pass_silent()
            .and_then(|()| self.observe(goal, &mut functions));
        self.instrument(false);
        let stopped = stopped?;
        let complete = !functions.full && stopped.why != Why::Interrupted;
        let told = CallsTold {
            open: functions.under_way(),
            seen: functions.seen,
        };
        tell(buffer, &told, stopped, complete)
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

fn word(addr: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    access::read_bytes(addr, &mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// Memory as it is, if all of it can be read.
fn piece(addr: u64, len: u64) -> Option<Piece> {
    let mut bytes = vec![0; len as usize];
    access::read_bytes(addr, &mut bytes).ok()?;
    Some(Piece { addr, bytes })
}

/// What a register points to, if it is a pointer; less at the end of memory.
fn pointed(addr: u64) -> Option<Piece> {
    const PAGE: u64 = 4096;
    if addr < PAGE {
        return None;
    }
    piece(addr, POINTED).or_else(|| piece(addr, (PAGE - addr % PAGE).min(POINTED)))
}

fn vectors(machine: &mut Machine) -> [u64; VECTORS] {
    let mut xsave = Xsave::default();
    switch::save_extended(machine.gs, &mut xsave);
    std::array::from_fn(|n| {
        let at = XMM + n * 16;
        let bytes = xsave.0.get(at..at + 8);
        bytes.map_or(0, |bytes| {
            u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
        })
    })
}

//! What events wrote. In: a stream's log. Out: for each event where it is due, and which registers and memory it
//! defines; the event is their author.

use std::ops::Range;

use clew_engine::vdso::{self, VdsoCall};
use clew_recording::event::{Call, Effect, End, Event, Record};
use clew_recording::maps::Change;
use clew_recording::reader::StreamReader;

use crate::Error;
use crate::cells::Cells;

/// One event.
#[derive(Clone, Debug)]
pub struct Fact {
    /// Ticks after the event before it.
    pub ticks: u64,
    pub kind: Kind,
    /// Registers that have new values: the thread's that it happens to, or another's.
    pub cells: Cells,
    pub thread: Option<u64>,
    /// Which of all ranges of memory it writes.
    memory: Range<u32>,
}

/// As what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Call(Call),
    /// The end of a call that waited.
    Resumed,
    /// An instruction whose answer is the machine's: cpuid, rdtsc, rdrand.
    Instruction,
    Signal {
        signo: i32,
    },
    /// A time call that translated code answers without an event: which.
    Time(VdsoCall),
    /// Memory that another process wrote to.
    Shared,
    NewThread,
    /// The state that exec gives.
    Started,
    /// What was left out of an execution slice.
    Leap,
    Other,
}

impl Kind {
    /// If the instruction there takes the answer of a time call.
    pub fn of_time_call(pc: u64) -> Option<Kind> {
        vdso::entry(pc.wrapping_sub(vdso::SYSCALL_OFFSET)).map(Kind::Time)
    }

    /// What it is called where no more is known of it.
    pub fn words(&self) -> &'static str {
        match self {
            Kind::Call(_) => "a system call",
            Kind::Resumed => "a system call that had waited",
            Kind::Instruction => "an instruction that the machine answers",
            Kind::Signal { .. } => "a signal's frame",
            Kind::Time(VdsoCall::ClockGettime) => "clock_gettime()",
            Kind::Time(VdsoCall::Gettimeofday) => "gettimeofday()",
            Kind::Time(VdsoCall::Time) => "time()",
            Kind::Time(_) => "a time call",
            Kind::Shared => "another process that shares this memory",
            Kind::NewThread => "the making of its thread",
            Kind::Started => "exec",
            Kind::Leap => "what the execution slice leaves out",
            Kind::Other => "an event",
        }
    }
}

/// All events of a stream, by number.
#[derive(Default)]
pub struct Events {
    facts: Vec<Fact>,
    /// Address and length.
    memory: Vec<(u64, u64)>,
}

const RAX_RCX_R11: [usize; 3] = [0, 1, 11];
const FLAGS: u32 = 1 << 17;

impl Events {
    /// Reads on to the log's end.
    pub fn read(mut reader: StreamReader) -> Result<Events, Error> {
        let mut events = Events::default();
        loop {
            match reader.next_in_place() {
                Ok(Some(Record::Event(event))) => {
                    let at = events.memory.len() as u32;
                    events.facts.push(fact(event, at));
                }
                Ok(Some(Record::Effect(effect))) => events.effect(effect),
                // What can't be read isn't replayed either.
                Ok(None) | Err(_) => return Ok(events),
            }
        }
    }

    fn effect(&mut self, effect: &Effect) {
        let Some(fact) = self.facts.last_mut() else {
            return;
        };
        match effect {
            Effect::Memory { addr, bytes } => self.memory.push((*addr, bytes.len() as u64)),
            Effect::Registers { mask, .. } => {
                for n in (0..16).filter(|n| mask & 1 << n != 0) {
                    fact.cells.add(&Cells::general(n, 0, 8));
                }
                if mask & FLAGS != 0 {
                    fact.cells.add(&Cells::flags(u32::MAX));
                }
            }
            Effect::Extended(_) => {
                for n in 0..16 {
                    fact.cells.add(&Cells::vector(n, 0, 32));
                }
                fact.cells.add(&Cells::x87());
                fact.cells.add(&Cells::mxcsr());
            }
            Effect::Map(bytes) => {
                if let Ok(Change::Map { mapping, .. }) = Change::decode(bytes) {
                    let pages = mapping.pages;
                    self.memory.push((pages.start, pages.end - pages.start));
                }
            }
            Effect::Output { .. } => {}
        }
        fact.memory.end = self.memory.len() as u32;
    }

    pub fn get(&self, number: u64) -> Option<&Fact> {
        self.facts.get(usize::try_from(number).ok()?)
    }

    pub fn memory(&self, fact: &Fact) -> &[(u64, u64)] {
        let range = fact.memory.start as usize..fact.memory.end as usize;
        self.memory.get(range).unwrap_or_default()
    }

    /// Where an event is due.
    pub fn ticks(&self, number: u64) -> u64 {
        self.get(number).map_or(0, |fact| fact.ticks)
    }
}

fn fact(event: &Event, at: u32) -> Fact {
    let registers = |numbers: &[usize]| {
        numbers.iter().fold(Cells::NONE, |mut all, &n| {
            all.add(&Cells::general(n, 0, 8));
            all
        })
    };
    let (ticks, kind, cells, thread) = match *event {
        Event::Call(call) => {
            let cells = match call.end {
                End::Returned(_) => registers(&RAX_RCX_R11),
                _ => registers(&RAX_RCX_R11[1..]),
            };
            (call.ticks, Kind::Call(call), cells, None)
        }
        Event::Resumed { .. } => (0, Kind::Resumed, registers(&RAX_RCX_R11[..1]), None),
        Event::Instruction { ticks, .. } => (ticks, Kind::Instruction, Cells::NONE, None),
        Event::Shared { ticks, .. } => (ticks, Kind::Shared, Cells::NONE, None),
        Event::Signal { place, signo, .. } => {
            (place.ticks, Kind::Signal { signo }, Cells::NONE, None)
        }
        Event::NewThread { thread, .. } => {
            (0, Kind::NewThread, Cells::NONE, Some(u64::from(thread)))
        }
        Event::Started(_) | Event::State { .. } => (0, Kind::Started, Cells::NONE, None),
        Event::Leap { place, .. } => (place.ticks, Kind::Leap, Cells::NONE, None),
        Event::Switched { place, .. }
        | Event::Check { place, .. }
        | Event::Killed { place, .. } => (place.ticks, Kind::Other, Cells::NONE, None),
        Event::Forked { ticks, .. } | Event::Exec { ticks } | Event::Exited { ticks, .. } => {
            (ticks, Kind::Other, registers(&RAX_RCX_R11), None)
        }
        _ => (0, Kind::Other, Cells::NONE, None),
    };
    Fact {
        ticks,
        kind,
        cells,
        thread,
        memory: at..at,
    }
}

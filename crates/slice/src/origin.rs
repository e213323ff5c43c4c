//! The chain of one value: in: where it is. Out: where it was before, move by move, back to where it was computed from
//! several others, or came in.
//!
//! A value that is computed from one other and constants (`x + 8`, a shift, a conversion) is followed through that.

use std::ops::Range;

use clew_engine::cache::accesses::Access;
use clew_recording::reader::StreamReader;
use clew_timeline::{Position, Timeline};
use iced_x86::{Instruction, Register};

use crate::cells::Cells;
use crate::events::{Events, Kind};
use crate::flows::{Flow, Flows, Site};
use crate::known::Blocks;
use crate::live::Live;
use crate::shortcut::shortcut;
use crate::stretches::{Lengths, ask};
use crate::taken::{Met, Taken, ranges, want};
use crate::walk::{Executed, Go, Intervals, Place, Run, Visitor, When, back};
use crate::{Error, Result};

/// Where a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Bytes of a thread's general or vector register.
    Register {
        thread: u32,
        register: Register,
        bytes: Range<u8>,
    },
    Memory {
        addr: u64,
        len: u64,
    },
}

/// A general or vector register, as people write it.
pub fn register_named(name: &str) -> Option<Register> {
    let wanted = name.to_ascii_uppercase();
    Register::values().find(|register| {
        let followed = register.is_gpr() || register.is_xmm() || register.is_ymm();
        followed && !Cells::of(*register).is_empty() && format!("{register:?}") == wanted
    })
}

/// One instruction on the way.
#[derive(Clone, Debug)]
pub struct Step {
    /// Before the instruction.
    pub position: Position,
    pub thread: u32,
    pub ins: Instruction,
    /// It only moves the value.
    pub moved: bool,
    /// Memory that it wrote of the value, and memory and registers that the value is made of.
    pub written: Vec<(u64, u64)>,
    pub from: Vec<Source>,
}

/// Something that a value is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Register(Register),
    /// Flags, or a register that is none of the usual.
    Other,
    Memory {
        addr: u64,
        len: u64,
    },
}

/// Where a chain ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// At the last step: from these.
    Computed,
    /// At the last step: it is a constant of the program.
    Constant,
    /// An event wrote it: number, position where it was due, thread.
    Event {
        position: Position,
        thread: u32,
        kind: Kind,
    },
    /// It was there from the beginning: what exec gives, or a file that was mapped.
    Beginning,
    /// As far as one was let.
    Interrupted,
}

#[derive(Clone, Debug)]
pub struct Chain {
    /// Newest first.
    pub steps: Vec<Step>,
    pub ending: Ending,
    /// Instructions that were looked through.
    pub instructions: u64,
}

/// Moves of one value: whoever moves it more often moves it in a circle.
const MOST_STEPS: usize = 100_000;

/// So many stretches are traced before it is asked whether what is looked for was written long before.
const PATIENCE: u32 = 5;

/// The chain of a value that stands somewhere, where the timeline is. It stays there.
pub fn origin(timeline: &mut Timeline, log: StreamReader, value: &Value) -> Result<Chain> {
    let events = Events::read(log)?;
    let mut search = Search {
        live: Live::default(),
        events: &events,
        blocks: Blocks::default(),
        accesses: Vec::new(),
        taken: Taken::default(),
        found: Vec::new(),
        ending: None,
        instructions: 0,
    };
    ask(&mut search.live, std::slice::from_ref(value), WHO);
    let mut steps = Vec::new();
    let mut to = timeline.at();
    let mut lengths = Lengths::backwards();
    let mut traced = 0;
    loop {
        let Some(trace) = timeline.trace_back(&to, lengths.next())? else {
            let ending = Ending::Beginning;
            return Ok(search.chain(steps, ending));
        };
        search.blocks.forget();
        let mut intervals = Intervals::default();
        back(
            &trace,
            &mut intervals,
            &|number| events.ticks(number),
            &mut search,
        )?;
        let incomplete = !trace.complete;
        steps.extend(place_all(&mut search.found, &intervals)?);
        if let Some(ending) = search.ending.take() {
            let ending = resolve(ending, &events, steps.last());
            return Ok(search.chain(steps, ending));
        }
        if incomplete || steps.len() > MOST_STEPS {
            return Ok(search.chain(steps, Ending::Interrupted));
        }
        to = trace.start;
        traced += 1;
        if traced == PATIENCE {
            traced = 0;
            if let Some(nearer) = shortcut(timeline, &events, &search.live, &to)? {
                to = nearer;
                lengths = Lengths::backwards();
            }
        }
    }
}

/// How a chain ended, while positions aren't known.
enum Ended {
    Computed,
    Constant,
    Event {
        number: u64,
        thread: u64,
    },
    /// The last step took the answer of a time call.
    Time(Kind),
}

fn resolve(ended: Ended, events: &Events, last: Option<&Step>) -> Ending {
    match ended {
        Ended::Computed => Ending::Computed,
        Ended::Constant => Ending::Constant,
        Ended::Time(kind) => last.map_or(Ending::Beginning, |step| Ending::Event {
            position: step.position,
            thread: step.thread,
            kind,
        }),
        Ended::Event { number, thread } => match events.get(number) {
            Some(fact) if fact.kind != Kind::Started => Ending::Event {
                position: Position {
                    event: number,
                    ticks: fact.ticks,
                    steps: 0,
                },
                thread: thread as u32,
                kind: fact.kind.clone(),
            },
            _ => Ending::Beginning,
        },
    }
}

/// A step whose position isn't known yet.
struct Found {
    place: Place,
    step: Step,
}

/// Gives steps their positions: all intervals but the first one of a stretch are complete, and the stretch begins at a
/// tick, so that one is, too.
fn place_all(found: &mut Vec<Found>, intervals: &Intervals) -> Result<Vec<Step>> {
    let placed = found.drain(..).map(|found| {
        let position = intervals.position(found.place).ok_or(Error::Nonsense)?;
        Ok(Step {
            position,
            ..found.step
        })
    });
    placed.collect()
}

struct Search<'a> {
    live: Live,
    events: &'a Events,
    blocks: Blocks,
    found: Vec<Found>,
    ending: Option<Ended>,
    instructions: u64,
    /// Room for a run's accesses, and for what an instruction defines.
    accesses: Vec<Access>,
    taken: Taken,
}

/// One value is wanted by one asker.
const WHO: u32 = 0;

impl Search<'_> {
    fn chain(self, steps: Vec<Step>, ending: Ending) -> Chain {
        Chain {
            steps,
            ending,
            instructions: self.instructions,
        }
    }

    /// The instruction that defined what is looked for, or some of it.
    fn defined(&mut self, executed: &Executed, flows: &Flows) -> Go {
        let mut taken = std::mem::take(&mut self.taken);
        // All of them before any source comes in: what one destination had may be what another is made of.
        taken.take(&mut self.live, executed, &flows.flows);
        let mut go = Go::On;
        for met in &taken.met {
            go = self.met(executed, &flows.flows[met.flow], met, &taken);
            if go == Go::Stop {
                break;
            }
        }
        self.taken = taken;
        go
    }

    /// A destination counted.
    fn met(&mut self, executed: &Executed, flow: &Flow, met: &Met, taken: &Taken) -> Go {
        if flow.maybe {
            taken.put_back(&mut self.live, executed, met, &flow.to);
        }
        let from = self.sources(executed, flow, taken.extent(met));
        let written = ranges(executed, &flow.to, true).collect();
        let values = from
            .iter()
            .filter(|source| **source != Source::Other)
            .count();
        let others = from.len() - values;
        self.found.push(Found {
            place: executed.place.place(),
            step: Step {
                position: Position::after(0),
                thread: executed.thread as u32,
                ins: *executed.ins,
                moved: flow.moved,
                written,
                from,
            },
        });
        if flow.moved || values == 1 && others == 0 && !flow.maybe {
            match flow.moved {
                true => taken.follow(&mut self.live, executed, flow, met, WHO),
                false => want(&mut self.live, executed, &flow.from, WHO),
            }
            if self.live.is_empty() {
                // All that was wanted of it are bytes that a move has filled with zeros.
                self.ending = Some(Ended::Constant);
                return Go::Stop;
            }
            // The others are followed as well, if there are any.
            return Go::On;
        }
        self.ending = Some(
            match (Kind::of_time_call(executed.ins.ip()), values + others) {
                (Some(kind), _) => Ended::Time(kind),
                (None, 0) => Ended::Constant,
                (None, _) => Ended::Computed,
            },
        );
        Go::Stop
    }

    /// What the destination's value is made of.
    fn sources(&self, executed: &Executed, flow: &Flow, extent: Option<(u64, u64)>) -> Vec<Source> {
        let mut sources = Vec::new();
        for from in &flow.from {
            match from {
                Site::Register(register) => sources.push(Source::Register(*register)),
                Site::Cells(_) | Site::Upper(_) => {
                    sources.extend(from.cells().iter().flat_map(named))
                }
                Site::Memory(_) | Site::Part { .. } => {
                    for (addr, len) in ranges(executed, from, false) {
                        let (addr, len) = match extent.filter(|_| flow.moved) {
                            Some((first, last)) if first < len => {
                                (addr + first, (last + 1).min(len) - first)
                            }
                            _ => (addr, len),
                        };
                        sources.push(Source::Memory { addr, len });
                    }
                }
            }
        }
        sources
    }
}

/// Cells as registers that people know.
fn named(cells: &Cells) -> Vec<Source> {
    let general = (0..16u32).map(|n| Register::RAX + n);
    let vector = (0..16u32).map(|n| Register::YMM0 + n);
    let mut rest = *cells;
    // How it rounds is no value.
    rest.remove(&Cells::rounding());
    let mut sources = Vec::new();
    for register in general.chain(vector) {
        let of = Cells::of(register);
        if rest.meets(&of) {
            rest.remove(&of);
            sources.push(Source::Register(register));
        }
    }
    if !rest.is_empty() {
        sources.push(Source::Other);
    }
    sources
}

impl Search<'_> {
    fn looked_at(&mut self, executed: &Executed<'_>, flows: &Flows) -> Go {
        let live = self.live.cells(executed.thread);
        match flows.defines.meets(&live) || flows.writes != 0 {
            true => self.defined(executed, flows),
            false => Go::On,
        }
    }
}

impl Visitor for Search<'_> {
    fn run(&mut self, run: &Run<'_>) -> Result<Go> {
        self.instructions += run.len() as u64;
        if !self.blocks.concerns(run, &mut self.live) {
            return Ok(Go::On);
        }
        let mut accesses = std::mem::take(&mut self.accesses);
        let known = self.blocks.known(run).clone();
        let mut go = Go::On;
        for n in (0..run.len()).rev() {
            let flows = &known.flows[n];
            let told = run.accesses(n, &mut accesses)?;
            let executed = Executed {
                thread: run.thread,
                ins: run.instruction(n),
                accesses: &accesses,
                told,
                place: When::Of(run, n),
            };
            go = self.looked_at(&executed, flows);
            if go == Go::Stop {
                break;
            }
        }
        self.accesses = accesses;
        Ok(go)
    }

    fn step(&mut self, executed: &Executed<'_>) -> Result<Go> {
        self.instructions += 1;
        let flows = self.blocks.flows(executed.ins);
        Ok(self.looked_at(executed, &flows))
    }

    fn event(&mut self, number: u64, thread: u64, _pc: u64) -> Result<Go> {
        let Some(fact) = self.events.get(number) else {
            return Ok(Go::On);
        };
        let whose = fact.thread.unwrap_or(thread);
        let by_register = self.live.cells(whose).meets(&fact.cells);
        let ranges = self.events.memory(fact);
        let by_memory = ranges.iter().any(|&(addr, len)| self.live.has(addr, len));
        if !by_register && !by_memory {
            return Ok(Go::On);
        }
        self.ending = Some(Ended::Event { number, thread });
        Ok(Go::Stop)
    }
}

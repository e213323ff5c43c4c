//! Back through a stretch, instruction by instruction. In: a trace, and what the log says of its events. Out: each
//! executed instruction with its accesses, each event, from the last to the first, and where they are.

use clew_engine::cache::accesses::Access;
use clew_engine::trace::read::{Backwards, Bases, Entry, touched};
use clew_engine::trace::rows::End;
use clew_timeline::Position;
use clew_timeline::trace::Trace;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use crate::Error;

/// A place in a stretch, on the way back: how many instructions before the end of its tick. Where that is becomes
/// known when the tick's beginning is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the tick's interval, counted backwards.
    pub interval: usize,
    pub before_end: u64,
}

/// All intervals of a stretch so far: which they are, and how many instructions they have.
#[derive(Clone, Debug, Default)]
pub struct Intervals(Vec<Interval>);

#[derive(Clone, Copy, Debug)]
struct Interval {
    event: u64,
    ticks: u64,
    count: u64,
}

impl Intervals {
    /// The position before the instruction there; its interval must be complete.
    pub fn position(&self, place: Place) -> Option<Position> {
        let interval = self.0.get(place.interval)?;
        Some(Position {
            event: interval.event,
            ticks: interval.ticks,
            steps: interval.count.checked_sub(place.before_end + 1)?,
        })
    }

    fn begin(&mut self, event: u64, ticks: u64) {
        self.0.push(Interval {
            event,
            ticks,
            count: 0,
        });
    }

    /// One more instruction, before all others of the interval.
    fn add(&mut self) -> Place {
        let interval = self.0.len() - 1;
        let last = &mut self.0[interval];
        last.count += 1;
        Place {
            interval,
            before_end: last.count - 1,
        }
    }

    fn tick(&mut self) -> Result<(), Error> {
        let last = self.0.last().copied().ok_or(Error::Nonsense)?;
        let ticks = last.ticks.checked_sub(1).ok_or(Error::Nonsense)?;
        self.begin(last.event, ticks);
        Ok(())
    }
}

/// What was executed.
pub enum Item<'a> {
    Instruction(Executed<'a>),
    /// An event was applied; this thread ran when it was due.
    Event {
        number: u64,
        thread: u64,
    },
}

pub struct Executed<'a> {
    pub thread: u64,
    pub ins: &'a Instruction,
    /// In the order of the decoder's list, or all of them as they were told.
    pub accesses: &'a [Access],
    pub told: bool,
    pub place: Place,
    /// Which instruction of which block, if it is one of a block.
    pub of: Option<(u32, u16)>,
}

/// Whether to go on.
pub enum Go {
    On,
    Stop,
}

/// Who looks at a stretch.
pub trait Visitor {
    /// A block was run through to this end: whether it has to be looked at instruction by instruction.
    fn concerns(&mut self, trace: &Trace, end: &End, slots: &[u8], runs: (u64, Bases)) -> bool;

    fn visit(&mut self, item: Item<'_>) -> Go;
}

/// Goes through a stretch backwards, as far as the visitor goes, and to the beginning of that tick, so that positions are
/// known. `ticks_of`: how many ticks after the event before it an event was due.
pub fn back(
    trace: &Trace,
    intervals: &mut Intervals,
    ticks_of: &dyn Fn(u64) -> u64,
    visitor: &mut dyn Visitor,
) -> Result<(), Error> {
    intervals.begin(trace.end.event, trace.end.ticks);
    let mut runs = None;
    let mut odd: Option<&[u8]> = None;
    let mut accesses = Vec::new();
    let segments = trace.segments.iter().rev();
    let entries = segments.flat_map(|segment| Backwards::new(&trace.tables, segment));
    let mut entries = entries.peekable();
    let mut last = usize::MAX;
    while let Some(entry) = entries.next() {
        if intervals.0.len() > last {
            return Ok(());
        }
        match entry.map_err(|_| Error::Nonsense)? {
            Entry::Thread { thread, bases } => runs = Some((thread, bases)),
            Entry::Touched(_) => {}
            Entry::Event { number, .. } => {
                intervals.begin(number, ticks_of(number));
                // Who ran is told before it, so it comes next.
                let Some(Ok(Entry::Thread { thread, .. })) = entries.peek() else {
                    return Err(Error::Nonsense);
                };
                let item = Item::Event {
                    number,
                    thread: *thread,
                };
                if last == usize::MAX && matches!(visitor.visit(item), Go::Stop) {
                    return Ok(());
                }
            }
            Entry::Run { end, slots } => {
                let runs = runs.ok_or(Error::Nonsense)?;
                if let Some(Ok(Entry::Touched(bytes))) = entries.peek() {
                    odd = Some(bytes);
                }
                let block = trace.tables.blocks.get(end.block as usize);
                let done = block.and_then(|block| block.instructions.get(..end.count as usize));
                let (block, done) = block.zip(done).ok_or(Error::Nonsense)?;
                let over = last != usize::MAX;
                let looks = !over && (visitor.concerns(trace, &end, slots, runs) || odd.is_some());
                for (n, traced) in done.iter().enumerate().rev() {
                    let is_last = n + 1 == done.len();
                    let followed = !is_last && traced.ins.flow_control() == FlowControl::Return;
                    if is_last && end.ticks != 0 || followed {
                        intervals.tick()?;
                    }
                    let place = intervals.add();
                    if !looks || last != usize::MAX {
                        continue;
                    }
                    accesses.clear();
                    match odd.take().filter(|_| traced.odd) {
                        Some(bytes) => accesses.extend(touched(bytes)),
                        None => {
                            for access in block.accesses(traced, slots, runs.1) {
                                accesses.push(access.ok_or(Error::Nonsense)?);
                            }
                        }
                    }
                    let item = Item::Instruction(Executed {
                        thread: runs.0,
                        ins: &traced.ins,
                        accesses: &accesses,
                        told: traced.odd,
                        place,
                        of: Some((end.block, n as u16)),
                    });
                    if matches!(visitor.visit(item), Go::Stop) {
                        last = intervals.0.len();
                    }
                }
            }
            Entry::Step {
                pc,
                code,
                touched: bytes,
                whole,
                ticked,
            } => {
                let (thread, _) = runs.ok_or(Error::Nonsense)?;
                if ticked {
                    intervals.tick()?;
                }
                // A part of an instruction is no instruction of its own, but what it has written it has.
                let place = match whole {
                    true => intervals.add(),
                    false => Place {
                        interval: intervals.0.len() - 1,
                        before_end: u64::MAX - 1,
                    },
                };
                let ins = Decoder::with_ip(64, &code[..15], pc, DecoderOptions::NONE).decode();
                accesses.clear();
                accesses.extend(touched(bytes));
                let item = Item::Instruction(Executed {
                    thread,
                    ins: &ins,
                    accesses: &accesses,
                    told: true,
                    place,
                    of: None,
                });
                if last == usize::MAX && matches!(visitor.visit(item), Go::Stop) {
                    last = intervals.0.len();
                }
            }
        }
    }
    Ok(())
}

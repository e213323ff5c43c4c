//! Back through a stretch, or forth. In: a trace, and what the log says of its events. Out: each run through a block, each event, from
//! the last to the first; the instructions of a run, with their accesses, for who wants them; and where they are.

use clew_engine::cache::accesses::Access;
use clew_engine::trace::read::{Backwards, Bases, Block, Entry, Nonsense, touched};
use clew_engine::trace::rows::End;
use clew_timeline::Position;
use clew_timeline::trace::Trace;
use iced_x86::{Decoder, DecoderOptions, Instruction};

use crate::{Error, Result};

/// A place in a stretch, on the way back: how many instructions before the end of its tick. Where that is becomes
/// known when the tick's beginning is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the tick's interval, counted backwards.
    pub interval: usize,
    pub before_end: u64,
}

impl Place {
    /// Of an instruction that has done a part of its work: no instruction of its own.
    const PART: u64 = u64::MAX - 1;

    pub fn is_part(&self) -> bool {
        self.before_end == Place::PART
    }
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
        let steps = match place.before_end {
            Place::PART => 0,
            before_end => interval.count.checked_sub(before_end + 1)?,
        };
        Some(Position {
            event: interval.event,
            ticks: interval.ticks,
            steps,
        })
    }

    fn begin(&mut self, event: u64, ticks: u64) {
        self.0.push(Interval {
            event,
            ticks,
            count: 0,
        });
    }

    /// So many more instructions, before all others of the interval.
    fn add(&mut self, count: u64) {
        if let Some(last) = self.0.last_mut() {
            last.count += count;
        }
    }

    /// The place that the next instruction gets.
    fn next(&self) -> Place {
        Place {
            interval: self.0.len().saturating_sub(1),
            before_end: self.0.last().map_or(0, |last| last.count),
        }
    }

    fn tick(&mut self) -> Result<()> {
        let last = self.0.last().copied().ok_or(Error::Nonsense)?;
        let ticks = last.ticks.checked_sub(1).ok_or(Error::Nonsense)?;
        self.begin(last.event, ticks);
        Ok(())
    }
}

/// An instruction that was executed.
pub struct Executed<'a> {
    pub thread: u64,
    pub ins: &'a Instruction,
    /// In the order of the decoder's list, or all of them as they were told.
    pub accesses: &'a [Access],
    pub told: bool,
    pub place: When<'a>,
}

/// Where an instruction is; worked out for those who ask.
#[derive(Clone, Copy)]
pub enum When<'a> {
    Known(Place),
    /// Which instruction of a run.
    Of(&'a Run<'a>, usize),
}

impl When<'_> {
    pub fn place(&self) -> Place {
        match self {
            When::Known(place) => *place,
            When::Of(run, n) => run.place(*n),
        }
    }
}

/// A block that was run through.
pub struct Run<'a> {
    pub thread: u64,
    pub bases: Bases,
    pub end: End,
    pub block: &'a Block,
    pub slots: &'a [u8],
    /// What its only instruction touched.
    odd: Option<&'a [u8]>,
    /// Behind its last instruction.
    behind: Place,
    /// Instructions after which a tick is over, in order.
    ticks: &'a [u16],
}

impl Run<'_> {
    pub fn len(&self) -> usize {
        self.end.count as usize
    }

    pub fn is_empty(&self) -> bool {
        self.end.count == 0
    }

    pub fn instruction(&self, n: usize) -> &Instruction {
        &self.block.instructions[n].ins
    }

    /// Whether the engine has told what it touches, because registers don't.
    pub fn told(&self) -> bool {
        self.odd.is_some()
    }

    /// What an instruction touched; whether that is what the engine told.
    pub fn accesses(&self, n: usize, into: &mut Vec<Access>) -> Result<bool> {
        into.clear();
        let traced = &self.block.instructions[n];
        if traced.operands.is_empty() && !traced.odd {
            return Ok(false);
        }
        match self.odd.filter(|_| traced.odd) {
            Some(bytes) => {
                into.extend(touched(bytes));
                Ok(true)
            }
            None => {
                for access in self.block.accesses(traced, self.slots, self.bases) {
                    into.push(access.ok_or(Error::Nonsense)?);
                }
                Ok(traced.odd)
            }
        }
    }

    pub fn place(&self, n: usize) -> Place {
        let behind = self.ticks.iter().filter(|at| usize::from(**at) >= n);
        match behind.clone().next() {
            None => Place {
                interval: self.behind.interval,
                before_end: self.behind.before_end + (self.len() - 1 - n) as u64,
            },
            Some(&next) => Place {
                interval: self.behind.interval + behind.count(),
                before_end: u64::from(next) - n as u64,
            },
        }
    }
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    On,
    Stop,
}

/// Who looks at a stretch.
pub trait Visitor {
    /// On the way forth, before all else: where everything is.
    fn begins(&mut self, _intervals: &Intervals) {}

    /// A block was run through.
    fn run(&mut self, run: &Run<'_>) -> Result<Go>;

    /// An instruction that the engine has executed by itself.
    fn step(&mut self, executed: &Executed<'_>) -> Result<Go>;

    /// An event was applied; this thread ran when it was due, and stood there.
    fn event(&mut self, number: u64, thread: u64, pc: u64) -> Result<Go>;
}

/// One thing that happened, with who ran then.
enum Item<'a> {
    Run {
        thread: u64,
        bases: Bases,
        end: End,
        slots: &'a [u8],
        odd: Option<&'a [u8]>,
        behind: Place,
    },
    Step {
        thread: u64,
        pc: u64,
        code: [u8; 16],
        touched: &'a [u8],
        place: Place,
    },
    Event {
        number: u64,
        thread: u64,
        pc: u64,
    },
}

/// All things that happened in a stretch, the last first, and the intervals that they lie in.
struct Items<'a, E: Iterator<Item = std::result::Result<Entry<'a>, Nonsense>>> {
    trace: &'a Trace,
    entries: std::iter::Peekable<E>,
    runs: Option<(u64, Bases)>,
    ticks: Vec<u16>,
    /// Instructions of the first tick that the stretch hasn't got.
    before: u64,
}

fn items<'a>(
    trace: &'a Trace,
    intervals: &mut Intervals,
) -> Items<'a, impl Iterator<Item = std::result::Result<Entry<'a>, Nonsense>> + use<'a>> {
    // Its memory is used again.
    intervals.0.clear();
    intervals.begin(trace.end.event, trace.end.ticks);
    let segments = trace.segments.iter().rev();
    let entries = segments.flat_map(|segment| Backwards::new(&trace.tables, segment));
    Items {
        trace,
        entries: entries.peekable(),
        runs: None,
        ticks: Vec::new(),
        before: trace.start.steps.unwrap_or(0),
    }
}

impl<'a, E: Iterator<Item = std::result::Result<Entry<'a>, Nonsense>>> Items<'a, E> {
    fn next(
        &mut self,
        intervals: &mut Intervals,
        ticks_of: &dyn Fn(u64) -> u64,
    ) -> Result<Option<Item<'a>>> {
        while let Some(entry) = self.entries.next() {
            let item = match entry.map_err(|_| Error::Nonsense)? {
                Entry::Thread { thread, bases } => {
                    self.runs = Some((thread, bases));
                    continue;
                }
                Entry::Touched(_) => continue,
                Entry::Event { number, pc } => {
                    intervals.begin(number, ticks_of(number));
                    // Who ran is told before it, so it comes next.
                    let Some(Ok(Entry::Thread { thread, .. })) = self.entries.peek() else {
                        return Err(Error::Nonsense);
                    };
                    let thread = *thread;
                    Item::Event { number, thread, pc }
                }
                Entry::Run { end, slots } => {
                    let (thread, bases) = self.runs.ok_or(Error::Nonsense)?;
                    let block = self.trace.tables.blocks.get(end.block as usize);
                    let block = block.ok_or(Error::Nonsense)?;
                    let odd = match self.entries.peek() {
                        Some(Ok(Entry::Touched(bytes))) => Some(*bytes),
                        _ => None,
                    };
                    if block.instructions.len() < end.count as usize {
                        return Err(Error::Nonsense);
                    }
                    let behind = intervals.next();
                    ticks_in(block, &end, &mut self.ticks);
                    let mut done = end.count;
                    for at in self.ticks.iter().rev() {
                        intervals.add(u64::from(done - (at + 1)));
                        intervals.tick()?;
                        done = at + 1;
                    }
                    intervals.add(u64::from(done));
                    Item::Run {
                        thread,
                        bases,
                        end,
                        slots,
                        odd,
                        behind,
                    }
                }
                Entry::Step {
                    pc,
                    code,
                    touched,
                    whole,
                    ticked,
                } => {
                    let (thread, _) = self.runs.ok_or(Error::Nonsense)?;
                    if ticked {
                        intervals.tick()?;
                    }
                    let mut place = intervals.next();
                    match whole {
                        true => intervals.add(1),
                        // It is no instruction of its own, but what it has written it has.
                        false => place.before_end = Place::PART,
                    }
                    Item::Step {
                        thread,
                        pc,
                        code,
                        touched,
                        place,
                    }
                }
            };
            return Ok(Some(item));
        }
        // A stretch may begin within a tick: what was before belongs to its first interval.
        intervals.add(std::mem::take(&mut self.before));
        Ok(None)
    }
}

/// Room for what a visitor is shown.
#[derive(Default)]
struct Room {
    accesses: Vec<Access>,
    ticks: Vec<u16>,
}

fn show(trace: &Trace, item: &Item<'_>, room: &mut Room, visitor: &mut dyn Visitor) -> Result<Go> {
    match *item {
        Item::Run {
            thread,
            bases,
            end,
            slots,
            odd,
            behind,
        } => {
            let block = &trace.tables.blocks[end.block as usize];
            ticks_in(block, &end, &mut room.ticks);
            let run = Run {
                thread,
                bases,
                end,
                block,
                slots,
                odd,
                behind,
                ticks: &room.ticks,
            };
            match end.count {
                0 => Ok(Go::On),
                _ => visitor.run(&run),
            }
        }
        Item::Step {
            thread,
            pc,
            code,
            touched: bytes,
            place,
        } => {
            let ins = Decoder::with_ip(64, &code[..15], pc, DecoderOptions::NONE).decode();
            room.accesses.clear();
            room.accesses.extend(touched(bytes));
            visitor.step(&Executed {
                thread,
                ins: &ins,
                accesses: &room.accesses,
                told: true,
                place: When::Known(place),
            })
        }
        Item::Event { number, thread, pc } => visitor.event(number, thread, pc),
    }
}

/// Goes through a stretch backwards, as far as the visitor goes, and to the beginning of that tick, so that positions are
/// known. `ticks_of`: how many ticks after the event before it an event was due.
pub fn back(
    trace: &Trace,
    intervals: &mut Intervals,
    ticks_of: &dyn Fn(u64) -> u64,
    visitor: &mut dyn Visitor,
) -> Result<()> {
    let mut items = items(trace, intervals);
    let mut room = Room::default();
    // The number of intervals when the visitor had enough.
    let mut enough = None;
    loop {
        if enough.is_some_and(|enough| intervals.0.len() > enough) {
            return Ok(());
        }
        let Some(item) = items.next(intervals, ticks_of)? else {
            return Ok(());
        };
        if enough.is_none() && show(trace, &item, &mut room, visitor)? == Go::Stop {
            enough = Some(intervals.0.len());
        }
    }
}

/// Goes through a stretch forwards; all of its positions are known by then.
pub fn forth(
    trace: &Trace,
    intervals: &mut Intervals,
    ticks_of: &dyn Fn(u64) -> u64,
    visitor: &mut dyn Visitor,
) -> Result<()> {
    let mut items = items(trace, intervals);
    let mut all = Vec::new();
    while let Some(item) = items.next(intervals, ticks_of)? {
        all.push(item);
    }
    visitor.begins(intervals);
    let mut room = Room::default();
    for item in all.iter().rev() {
        if show(trace, item, &mut room, visitor)? == Go::Stop {
            break;
        }
    }
    Ok(())
}

/// After which instructions of a run a tick is over: returns, and its last if that end says so.
fn ticks_in(block: &Block, end: &End, ticks: &mut Vec<u16>) {
    ticks.clear();
    let done = block.returns.iter().filter(|at| **at < end.count);
    ticks.extend(done);
    let last = end.count.checked_sub(1).filter(|_| end.ticks != 0);
    // A return that was followed has its tick, wherever the block was left then.
    ticks.extend(last.filter(|last| ticks.last() != Some(last)));
}

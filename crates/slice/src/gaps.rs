//! What lies between the instructions of a slice. In: a timeline, and which instructions are kept. Out: the gaps, in order, each
//! with where it begins and ends and which memory was written in it.
//!
//! A gap lies between two events: events stay, and with them whose turn it is, what is mapped, and what the kernel did.

use clew_engine::cache::accesses::Access;
use clew_engine::layout::VDSO;
use clew_timeline::{Position, Target, Timeline};

use crate::events::Events;
use crate::stretches::Lengths;
use crate::walk::{Executed, Go, Intervals, Place, Run, Visitor, forth};
use crate::{Error, Result};

/// A part of a thread's way that isn't in a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Before its first instruction, and behind its last.
    pub from: Position,
    pub to: Position,
    pub instructions: u64,
    /// Address and length, in order; a little more than was written.
    pub written: Vec<(u64, u64)>,
}

/// Which gaps are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// None that are shorter, in instructions.
    pub shortest: u64,
    /// No more of them; then the shortest ones go.
    pub most: usize,
    /// None that begin before this.
    pub from: Position,
}

/// All gaps of a stream, and how many instructions it has. `kept`: positions in order. The timeline stays where it is.
pub fn gaps(
    timeline: &mut Timeline,
    events: &Events,
    kept: &[Position],
    wanted: Wanted,
) -> Result<(Vec<Gap>, u64)> {
    let here = timeline.at();
    timeline.seek(Target::Start)?;
    let mut from = timeline.at();
    timeline.return_to(here)?;
    let mut finder = Finder {
        events,
        kept,
        wanted,
        intervals: Intervals::default(),
        last: None,
        open: None,
        gaps: Vec::new(),
        instructions: 0,
        accesses: Vec::new(),
    };
    let mut lengths = Lengths::forwards();
    while let Some(trace) = timeline.trace_forth(&from, lengths.next())? {
        if !trace.complete {
            return Err(clew_timeline::Error::Interrupted.into());
        }
        let ticks_of = |number| events.ticks(number);
        forth(&trace, &mut Intervals::default(), &ticks_of, &mut finder)?;
        from = trace.stopped;
    }
    finder.longest();
    Ok((finder.gaps, finder.instructions))
}

struct Finder<'a> {
    events: &'a Events,
    /// Those that weren't met yet.
    kept: &'a [Position],
    wanted: Wanted,
    intervals: Intervals,
    /// The last instruction that was executed.
    last: Option<Position>,
    open: Option<Gap>,
    gaps: Vec<Gap>,
    instructions: u64,
    accesses: Vec<Access>,
}

/// Ranges of an open gap before they are put in order.
const MANY: usize = 1 << 16;
/// So close, ranges become one: each costs more than some bytes.
const CLOSE: u64 = 32;
const PAGE: u64 = 4096;

impl Finder<'_> {
    fn position(&self, place: Place) -> Result<Position> {
        self.intervals.position(place).ok_or(Error::Nonsense)
    }

    /// Time calls take their answers one after the other: none may be left out.
    fn takes_answers(pc: u64) -> bool {
        (VDSO..VDSO + PAGE).contains(&pc)
    }

    fn is_kept(&mut self, at: Position, pc: u64) -> bool {
        while self.kept.first().is_some_and(|kept| *kept < at) {
            self.kept = &self.kept[1..];
        }
        self.kept.first() == Some(&at) || Finder::takes_answers(pc)
    }

    /// So many more instructions that aren't kept.
    fn left_out(&mut self, at: Position, count: u64) -> &mut Gap {
        let gap = self.open.get_or_insert_with(|| Gap {
            from: at,
            to: at,
            instructions: 0,
            written: Vec::new(),
        });
        gap.instructions += count;
        gap
    }

    fn close(&mut self, to: Position) {
        let Some(mut gap) = self.open.take() else {
            return;
        };
        if gap.instructions < self.wanted.shortest || gap.from < self.wanted.from {
            return;
        }
        gap.to = to;
        join(&mut gap.written);
        self.gaps.push(gap);
        if self.gaps.len() > 2 * self.wanted.most {
            self.longest();
        }
    }

    /// Keeps as many as are wanted, the longest ones.
    fn longest(&mut self) {
        let Some(more) = self.gaps.len().checked_sub(self.wanted.most) else {
            return;
        };
        let mut lengths: Vec<u64> = self.gaps.iter().map(|gap| gap.instructions).collect();
        let Some(more) = more.checked_sub(1) else {
            return;
        };
        let (_, last, _) = lengths.select_nth_unstable(more);
        self.wanted.shortest = *last + 1;
        let shortest = self.wanted.shortest;
        self.gaps.retain(|gap| gap.instructions >= shortest);
    }

    fn one(&mut self, at: Position, pc: u64, accesses: &[Access]) {
        self.instructions += 1;
        self.last = Some(at);
        if self.is_kept(at, pc) {
            self.close(at);
            return;
        }
        let gap = self.left_out(at, 1);
        wrote(gap, accesses);
    }
}

impl Visitor for Finder<'_> {
    fn begins(&mut self, intervals: &Intervals) {
        self.intervals = intervals.clone();
    }

    fn run(&mut self, run: &Run<'_>) -> Result<Go> {
        let count = run.len();
        let last = self.position(run.place(count - 1))?;
        let mut accesses = std::mem::take(&mut self.accesses);
        let none = self.kept.first().is_none_or(|kept| *kept > last)
            && !Finder::takes_answers(run.instruction(0).ip());
        if none {
            let first = match self.open {
                Some(_) => last,
                None => self.position(run.place(0))?,
            };
            self.instructions += count as u64;
            self.last = Some(last);
            self.left_out(first, count as u64);
        }
        for n in 0..count {
            run.accesses(n, &mut accesses)?;
            match none {
                true => {
                    if let Some(gap) = &mut self.open {
                        wrote(gap, &accesses);
                    }
                }
                false => {
                    let at = self.position(run.place(n))?;
                    self.one(at, run.instruction(n).ip(), &accesses);
                }
            }
        }
        self.accesses = accesses;
        Ok(Go::On)
    }

    fn step(&mut self, executed: &Executed<'_>) -> Result<Go> {
        let place = executed.place.place();
        if place.is_part() {
            if let Some(gap) = &mut self.open {
                wrote(gap, executed.accesses);
            }
            return Ok(Go::On);
        }
        let at = self.position(place)?;
        self.one(at, executed.ins.ip(), executed.accesses);
        Ok(Go::On)
    }

    fn event(&mut self, number: u64, _: u64, _: u64) -> Result<Go> {
        let ticks = self.events.ticks(number);
        let same = |last: &Position| (last.event, last.ticks) == (number, ticks);
        self.close(Position {
            event: number,
            ticks,
            steps: self.last.filter(same).map_or(0, |last| last.steps + 1),
        });
        Ok(Go::On)
    }
}

fn wrote(gap: &mut Gap, accesses: &[Access]) {
    for access in accesses.iter().filter(|access| access.write) {
        let range = (access.addr, access.len);
        if gap.written.last() != Some(&range) {
            gap.written.push(range);
        }
    }
    if gap.written.len() >= MANY {
        join(&mut gap.written);
        // What is in order and long stays so, and is put in order again seldom.
        gap.written.reserve(MANY);
    }
}

/// In order, and those that touch or nearly do, within a page, as one.
fn join(ranges: &mut Vec<(u64, u64)>) {
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for &(addr, len) in ranges.iter().filter(|range| range.1 > 0) {
        let end = addr.saturating_add(len);
        match joined.last_mut() {
            Some((start, length)) if near(*start + *length, addr) => {
                *length = (*length).max(end - *start);
            }
            _ => joined.push((addr, end - addr)),
        }
    }
    *ranges = joined;
}

fn near(end: u64, addr: u64) -> bool {
    addr <= end || addr - end <= CLOSE && addr / PAGE == (end - 1) / PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_within_pages() {
        let mut ranges = vec![
            (0x1ff8, 8),
            (0x1000, 8),
            (0x1010, 4),
            (0x1004, 2),
            (0x2008, 8),
        ];
        join(&mut ranges);
        assert_eq!(ranges, [(0x1000, 0x14), (0x1ff8, 8), (0x2008, 8)]);
    }
}

//! Every access to some memory. In: a timeline, and which memory. Out: accesses in the order in which they happened, each
//! with thread or signal handler, value and locks held; the interactions of the same run; pairs that nothing orders.
//!
//! Frees of blocks are accesses here: they write to all of the block.

use std::ops::Range;

use clew_recording::event::ThreadId;
use clew_recording::reader::StreamReader;
use clew_symbols::Modules;
use clew_timeline::program::Program;
use clew_timeline::{Granules, Interactions, Mark, Timeline};

use crate::declared::declared;
use crate::detect::Detector;
use crate::gather::{Gathered, Gatherer, known};
use crate::{Error, Result};

/// More accesses aren't kept.
pub(crate) const MOST: usize = 2_000_000;
/// A granule has so many bytes.
const GRANULE: u64 = 16;

/// A handler that interrupts its thread: a thread of control of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handler {
    pub signo: i32,
    /// Which of all handlers that were begun.
    pub number: u32,
}

/// Where the memory was on the heap: the block that some call allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InBlock {
    pub addr: u64,
    pub size: u64,
    /// The call that allocated it returns there.
    pub back: u64,
    pub allocated: Mark,
    pub thread: ThreadId,
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessed {
    pub thread: ThreadId,
    pub handler: Option<Handler>,
    pub at: Mark,
    /// The instruction, or the call that freed the block.
    pub site: u64,
    pub addr: u64,
    pub len: u64,
    pub read: bool,
    pub write: bool,
    pub locked: bool,
    pub freed: bool,
    /// What stood there before, up to eight bytes.
    pub value: Option<u64>,
    /// The locks held: a number in [`Story::locks`].
    pub locks: u32,
    pub block: Option<InBlock>,
    /// So many interactions had happened.
    pub after: usize,
}

/// What was seen on one way through.
pub struct Story {
    pub accesses: Vec<Accessed>,
    pub gathered: Gathered,
    /// Sets of locks, by their objects' numbers.
    pub locks: Vec<Vec<u32>>,
    /// Instructions whose accesses to the same bytes nothing orders.
    pub races: Vec<(u64, u64)>,
    pub modules: Modules,
    pub complete: bool,
}

/// The granules that ranges of memory are in.
pub fn granules(ranges: &[Range<u64>]) -> Vec<Granules> {
    let of = |range: &Range<u64>| {
        let first = range.start / GRANULE;
        let last = range.end.saturating_sub(1).max(range.start) / GRANULE;
        Granules {
            first: first as u32,
            count: u32::try_from(last - first + 1).unwrap_or(u32::MAX),
        }
    };
    ranges.iter().map(of).collect()
}

/// Goes through a process's whole life, and hears of every access to that memory.
pub fn story(
    timeline: &mut Timeline,
    program: &mut Program,
    log: StreamReader,
    memory: Vec<Granules>,
) -> Result<Story> {
    let (known, modules) = known(timeline, program, true)?;
    let mut detector = Detector::default();
    detector.knows(declared(program.catalog(), &modules));
    let end = timeline.end()?.event;
    let fresh = program.is_fresh(timeline.stream());
    let mut gatherer = Gatherer::new(known, log, fresh, Some(detector)).with_story();
    let asked = Interactions {
        functions: gatherer.functions(),
        accesses: Some(memory),
        every: true,
    };
    timeline.interactions(&asked, &mut gatherer)?;
    let accesses = gatherer.take_story(end);
    let (gathered, detector) = gatherer.end(end)?;
    let detector = detector.ok_or_else(|| Error::Log("no accesses were told".into()))?;
    let pairs = detector.pairs();
    Ok(Story {
        complete: accesses.len() < MOST && gathered.complete,
        accesses,
        gathered,
        locks: detector.all_locks(),
        races: pairs
            .iter()
            .map(|p| (p.first.site, p.second.site))
            .collect(),
        modules,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_covered() {
        let all = granules(&[0x1008..0x1010, 0x100f..0x1011, 0x2000..0x2000]);
        let all: Vec<(u32, u32)> = all.iter().map(|one| (one.first, one.count)).collect();
        assert_eq!(all, [(0x100, 1), (0x100, 2), (0x200, 1)]);
    }
}

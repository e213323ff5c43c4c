//! A long way back to a write, made short. In: memory that is looked for, and nothing else. Out: a place shortly behind the
//! last write to it, by one pass over the recording that looks at that memory alone.
//!
//! To trace a stretch costs tens of times as much as to replay it, and a value may lie in memory for seconds. The place is a
//! tick behind the write, or the next event: the write itself is found by tracing, as always.

use clew_engine::cache::shadow::Shadow;
use clew_timeline::{At, Granules, Hears, Interactions, Position, Target, Timeline, Told};

use crate::Result;
use crate::events::Events;
use crate::live::Live;

/// So many pieces of memory are looked at together, so many bytes in all.
const MOST_PIECES: usize = 4;
const MOST_BYTES: u64 = 64;

/// Hears of accesses, and keeps the last write that counts.
struct Last<'a> {
    wanted: &'a [(u64, u64)],
    before: (u64, u64),
    found: Option<(u64, u64)>,
}

impl Hears for Last<'_> {
    fn begins(&mut self) {
        self.found = None;
    }

    fn hears(&mut self, told: Told) {
        if let Told::Access {
            at,
            addr,
            len,
            write: true,
            ..
        } = told
        {
            let tick = (at.event, at.ticks);
            if tick < self.before && overlap(self.wanted, addr, len) {
                self.found = self.found.max(Some(tick));
            }
        }
    }
}

fn overlap(wanted: &[(u64, u64)], addr: u64, len: u64) -> bool {
    let meets = |&(at, size): &(u64, u64)| {
        at < addr.saturating_add(len.max(1)) && addr < at.saturating_add(size)
    };
    wanted.iter().any(meets)
}

/// The memory, if nothing else is looked for and it isn't much.
fn wanted(live: &Live) -> Option<Vec<(u64, u64)>> {
    let rounding = crate::cells::Cells::rounding();
    if live.threads().any(|(_, cells)| cells != rounding) {
        return None;
    }
    let pieces = live.memory(MOST_PIECES + 1);
    let bytes: u64 = pieces.iter().map(|(_, len, _)| len).sum();
    let few = !pieces.is_empty() && pieces.len() <= MOST_PIECES && bytes <= MOST_BYTES;
    few.then(|| pieces.iter().map(|&(addr, len, _)| (addr, len)).collect())
}

/// The last of so many events that defined any of this memory.
fn last_event(events: &Events, wanted: &[(u64, u64)], done: u64) -> Option<u64> {
    (0..done).rev().find(|&number| {
        let fact = events.get(number);
        fact.is_some_and(|fact| {
            let mut ranges = events.memory(fact).iter();
            ranges.any(|&(addr, len)| overlap(wanted, addr, len))
        })
    })
}

/// A place behind the last definition of what is looked for, nearer to it than `to`; None if there is none to be gained. The
/// timeline stays where it is.
pub fn shortcut(
    timeline: &mut Timeline,
    events: &Events,
    live: &Live,
    to: &At,
) -> Result<Option<At>> {
    let Some(wanted) = wanted(live) else {
        return Ok(None);
    };
    let granules = wanted.iter().map(|&(addr, len)| {
        let first = Shadow::granule(addr);
        let last = Shadow::granule(addr.saturating_add(len - 1));
        Granules {
            first,
            count: last.wrapping_sub(first).wrapping_add(1),
        }
    });
    let asked = Interactions {
        functions: Vec::new(),
        accesses: Some(granules.collect()),
        every: true,
    };
    // Within a tick, what it did before that place counts, too; if it is of use, it is no short cut.
    let within = u64::from(to.steps != Some(0));
    let mut last = Last {
        wanted: &wanted,
        before: (to.event, to.ticks + within),
        found: None,
    };
    timeline.interactions(&asked, &mut last)?;
    // Behind the write: a tick, if there is one before the next event. Events are numbered by how many are done before them.
    let written = last.found.map(|(event, ticks)| {
        let next = events.get(event).map(|fact| fact.ticks);
        match next.is_none_or(|next| ticks + 1 < next) {
            true => (event, ticks + 1),
            false => (event + 1, 0),
        }
    });
    let defined = last_event(events, &wanted, to.event).map(|number| (number + 1, 0));
    let Some((event, ticks)) = written.max(defined) else {
        return Ok(None);
    };
    if (event, ticks) >= (to.event, to.ticks) {
        return Ok(None);
    }
    let here = timeline.position()?;
    let place = Position {
        event,
        ticks,
        steps: 0,
    };
    timeline.seek(Target::Position(place))?;
    let at = timeline.at();
    timeline.seek(Target::Position(here))?;
    Ok(Some(at))
}

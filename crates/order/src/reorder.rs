//! A run in another order, as a recording. In: a recording, its interactions, and along which order. Out: a log of the same
//! events in that order; where a place of the old run is in the new one.
//!
//! Nothing is executed for it: each thread's life is cut into pieces, and these are put together in another order in which
//! everything by which threads synchronise happens as it did. So each thread does the same, instruction for instruction; a replay
//! of the new log compares every event, and at the end registers and all memory. If it diverges, a thread has seen data in another
//! state: there is a race.
//!
//! * [`lives`]: the log, taken apart
//! * [`units`]: what is executed in one piece, and what it needs
//! * [`needs`]: what must stay in order
//! * [`along`]: the paper's orders
//! * [`writing`]: the new log

pub mod along;
mod lives;
mod needs;
mod units;
mod writing;

use clew_recording::event::{Place, ThreadId};
use clew_recording::reader::StreamReader;
use clew_symbols::Modules;
use clew_timeline::program::Program;
use clew_timeline::{Position, Timeline};

use crate::gather::Gathered;
use crate::interaction::Interaction;
use crate::{Error, Result};
pub use along::Along;
use lives::Lives;
use units::{Schedule, UnitId, Units};

/// Why a run can't be had in another order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("there is one thread only: nothing could come in another order")]
    OneThread,
    #[error(
        "it forks at event {0} while it has several threads: the child would begin with another state"
    )]
    Forks(u64),
    #[error(
        "it uses memory that is shared with other processes (event {0}): their order isn't this process's own"
    )]
    Shares(u64),
    #[error("at event {0} it starts another program (vfork) while it has several threads")]
    Borrowed(u64),
    #[error("at event {0} it ends threads from outside, or goes on after an exec that failed")]
    Ends(u64),
    #[error("it is too long, or too much of its memory is shared, to be put in another order")]
    TooLong,
    #[error(
        "only a part of the run is executed in it: put the recording that it was made from in another order"
    )]
    Part,
    #[error("the log can't be read: {0}")]
    Log(String),
}

/// What must be executed for an interaction: none if nothing, since it is before the second thread's making.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// So that it has happened.
    pub happened: Option<UnitId>,
    /// So that its call has returned.
    pub over: Option<UnitId>,
}

impl Reached {
    fn of(units: &Units, lives: &Lives, one: &Interaction) -> Reached {
        use crate::interaction::Kind;
        let (at, over) = (one.at, one.over);
        if at.pc == 0 {
            let unit = match one.kind {
                // It stands at its beginning.
                Kind::ThreadCreated => units.at(lives, at.event, 0),
                _ => units.event(lives, at.event),
            };
            return Reached {
                happened: unit,
                over: unit,
            };
        }
        // Who looks on hears of it when the instruction there is executed: so that is a part of it.
        let happened = units.at(lives, at.event, at.ticks);
        let returned = units.up_to(lives, over.event, over.ticks);
        Reached {
            happened,
            over: returned.max(happened),
        }
    }
}

/// All that is known to put a run in other orders, and to find places in them.
pub struct Reorder {
    lives: Lives,
    units: Units,
    reached: Vec<Reached>,
}

/// A run in another order.
pub struct Reordered<'a> {
    of: &'a Reorder,
    /// Units, in the new order.
    order: Vec<UnitId>,
    /// Where each unit begins in the new log.
    starts: Vec<Position>,
    /// Interactions in the order in which they happen now.
    pub interactions: Vec<usize>,
}

impl Reorder {
    /// Looks at a recorded process: replays it four times.
    pub fn new(
        timeline: &mut Timeline,
        program: &mut Program,
        modules: &Modules,
        gathered: &Gathered,
        log: StreamReader,
    ) -> Result<Reorder> {
        if !gathered.complete {
            return Err(Error::Refused(Refused::TooLong));
        }
        // What is behind a divergence isn't known.
        let end = match timeline.divergence() {
            Some(_) => timeline.end()?.event,
            None => u64::MAX,
        };
        let lives = Lives::read(log, end).map_err(Error::Refused)?;
        let found = needs::constrain(timeline, program, modules, gathered, &lives)?;
        Ok(Reorder {
            lives,
            units: found.units,
            reached: found.reached,
        })
    }

    /// Puts the run in an order: to these interactions one after the other, each with what it needs; then all that is left.
    pub fn order(&self, wanted: &[usize]) -> Reordered<'_> {
        let mut schedule = Schedule::new(&self.units);
        for &one in wanted {
            if let Some(unit) = self.reached[one].over {
                schedule.proceed(unit);
            }
        }
        let order = schedule.finish();
        let starts = writing::starts(&self.lives, &self.units, &order);
        let mut when = vec![u32::MAX; self.units.all.len()];
        for (n, &unit) in order.iter().enumerate() {
            when[unit as usize] = n as u32 + 1;
        }
        let key = |&n: &usize| match self.reached[n].happened {
            Some(unit) => when[unit as usize],
            None => 0,
        };
        let mut interactions: Vec<usize> = (0..self.reached.len()).collect();
        // Those of one piece stay as they were.
        interactions.sort_by_key(key);
        Reordered {
            of: self,
            order,
            starts,
            interactions,
        }
    }
}

impl Reordered<'_> {
    /// Where a place of the old run is, at which that thread runs, or the first behind it where it does.
    pub fn position(&self, thread: ThreadId, at: Position) -> Option<Position> {
        let (lives, units) = (&self.of.lives, &self.of.units);
        if at.event < lives.head {
            return Some(at);
        }
        let first = lives.stretch(at.event)?;
        let stretch =
            (first..lives.stretches.len()).find(|&n| lives.stretches[n].thread == thread)?;
        let (event, ticks, steps) = match stretch == first {
            true => (at.event, at.ticks, at.steps),
            false => (lives.stretches[stretch].event, 0, 0),
        };
        let unit = units.at(lives, event, ticks)?;
        let start = self.starts[unit as usize];
        let of = &lives.stretches[units.all[unit as usize].stretch];
        let own = &units.all[unit as usize];
        let spot = of.start.on(Place {
            ticks,
            steps: u32::try_from(steps).ok()?,
        });
        let on = spot.from(own.start);
        Some(match on.ticks {
            0 => Position {
                steps: start.steps + u64::from(on.steps),
                ..start
            },
            more => Position {
                event: start.event,
                ticks: start.ticks + more,
                steps: u64::from(on.steps),
            },
        })
    }

    /// Which thread's place of the old run a place of the new one is.
    pub fn original(&self, at: Position) -> Option<(ThreadId, Position)> {
        let (lives, units) = (&self.of.lives, &self.of.units);
        let begun = |unit: &UnitId| self.starts[*unit as usize] <= at;
        let n = self.order.partition_point(begun).checked_sub(1)?;
        let id = self.order[n];
        let (unit, start) = (&units.all[id as usize], self.starts[id as usize]);
        let stretch = &lives.stretches[unit.stretch];
        let spot = match at.event == start.event {
            true => {
                let ticks = at.ticks - start.ticks;
                let steps = match ticks {
                    0 => at.steps - start.steps,
                    _ => at.steps,
                };
                unit.start.on(Place {
                    ticks,
                    steps: u32::try_from(steps).ok()?,
                })
            }
            // Behind its event, and nobody has gone on.
            false => unit.end,
        };
        let on = spot.from(stretch.start);
        let old = Position {
            event: stretch.event,
            ticks: on.ticks,
            steps: u64::from(on.steps),
        };
        Some((unit.thread, old))
    }

    /// Whether what happened at one place, in a thread, comes before another now.
    pub fn is_before(&self, one: (u64, u64), other: (u64, u64)) -> Option<bool> {
        let (lives, units) = (&self.of.lives, &self.of.units);
        let when = |(event, ticks)| {
            let unit = units.at(lives, event, ticks)?;
            self.order.iter().position(|&known| known == unit)
        };
        Some(when(one)? < when(other)?)
    }
}

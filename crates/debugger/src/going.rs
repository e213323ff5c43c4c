//! On to the next stop, or back to the last. In: a direction. Out: why and where it stands now.

use clew_recording::event::ThreadId;
use clew_timeline::program::symbol_registers;
use clew_timeline::{Break, Direction, Position, Reason, Stops};
use serde::Serialize;

use crate::breakpoints::BreakpointId;
use crate::condition::Condition;
use crate::debugger::{Debugger, Here};
use crate::values::Node;
use crate::watching::WatchpointId;
use crate::{Error, Result, Spot};

/// Where and why it stands now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stop {
    pub reason: StopReason,
    #[serde(flatten)]
    pub here: Here,
    /// What the function has returned that was finished.
    pub returned: Option<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The step is made.
    Step,
    /// It went where it was sent.
    Arrived,
    Breakpoints(Vec<BreakpointId>),
    /// Forwards it stands behind what touched the memory, backwards before it.
    Watchpoint(WatchpointId),
    /// Nothing more in that direction.
    Start,
    End,
    Interrupted,
}

/// A breakpoint of a single search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopper {
    pub address: u64,
    pub condition: Condition,
}

/// What a search has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// Number among the stoppers.
    Stopper(usize),
    Breakpoints(Vec<BreakpointId>),
    Watchpoint(WatchpointId),
    Limit,
    Start,
    End,
    Interrupted,
}

impl Came {
    pub fn reason(self) -> StopReason {
        match self {
            Came::Stopper(_) => StopReason::Step,
            Came::Breakpoints(ids) => StopReason::Breakpoints(ids),
            Came::Watchpoint(id) => StopReason::Watchpoint(id),
            Came::Limit => StopReason::Arrived,
            Came::Start => StopReason::Start,
            Came::End => StopReason::End,
            Came::Interrupted => StopReason::Interrupted,
        }
    }
}

/// So many stoppers are told at once: a message to a worker has an end.
pub(crate) const MOST_STOPPERS: usize = 4_000;

impl Debugger {
    /// Goes on to the next breakpoint that counts, or the end; back to the last one, or the start.
    pub fn go(&mut self, direction: Direction) -> Result<Stop> {
        let came = self.search(direction, self.thread, &[], true, None)?;
        if !matches!(came, Came::Breakpoints(_) | Came::Watchpoint(_)) {
            self.thread = self.timeline.at().thread;
        }
        self.stop(came.reason())
    }

    /// Goes on, or back, to a place; breakpoints on the way count.
    pub fn run_to(&mut self, direction: Direction, spot: &Spot) -> Result<Stop> {
        let addresses = self.addresses_of(spot)?.into_iter();
        let stoppers: Vec<Stopper> = addresses
            .map(|address| Stopper {
                address,
                condition: Condition::Always,
            })
            .collect();
        let came = self.search_any(direction, None, &stoppers, true, None)?;
        let reason = match came {
            Came::Stopper(_) => StopReason::Arrived,
            other => other.reason(),
        };
        self.thread = self.timeline.at().thread;
        self.stop(reason)
    }

    /// Breakpoints that a front end keeps by itself, such as gdb: steps stop there too, and name none.
    pub fn set_foreign_breaks(&mut self, breaks: Vec<Break>) {
        self.foreign = breaks;
    }

    /// How many searches were made so far: what steps and stops cost.
    pub fn searches(&self) -> u64 {
        self.searches
    }

    pub(crate) fn stop(&mut self, reason: StopReason) -> Result<Stop> {
        Ok(Stop {
            reason,
            here: self.here()?,
            returned: None,
        })
    }

    /// Runs to the next of these stops of a thread, and to breakpoints if they count, in one search.
    pub(crate) fn search(
        &mut self,
        direction: Direction,
        thread: ThreadId,
        stoppers: &[Stopper],
        breakpoints: bool,
        until: Option<Position>,
    ) -> Result<Came> {
        self.search_any(direction, Some(thread), stoppers, breakpoints, until)
    }

    pub(crate) fn search_any(
        &mut self,
        direction: Direction,
        thread: Option<ThreadId>,
        stoppers: &[Stopper],
        breakpoints: bool,
        until: Option<Position>,
    ) -> Result<Came> {
        if stoppers.len() > MOST_STOPPERS {
            return Err(Error::Statements {
                function: "this".into(),
                count: stoppers.len(),
            });
        }
        self.moved();
        let own = stoppers.iter().map(|stopper| Break {
            addr: stopper.address,
            thread,
            conditions: stopper.condition.encoded(),
        });
        let mut breaks: Vec<Break> = own.collect();
        if breakpoints {
            breaks.extend(self.breaks());
            breaks.extend(self.foreign.iter().cloned());
        }
        let watches = match breakpoints {
            true => self.watches(),
            false => Vec::new(),
        };
        self.timeline.set_stops(Stops {
            breaks,
            watches,
            ..Stops::default()
        });
        let came = self.searched(direction, thread, stoppers, breakpoints, until);
        self.timeline.set_stops(Stops::default());
        came
    }

    fn searched(
        &mut self,
        direction: Direction,
        thread: Option<ThreadId>,
        stoppers: &[Stopper],
        breakpoints: bool,
        until: Option<Position>,
    ) -> Result<Came> {
        loop {
            self.searches += 1;
            let stop = self.timeline.run(direction, until)?;
            match stop.reason {
                Reason::Break => {}
                Reason::Arrived => return Ok(Came::Limit),
                Reason::Start => return Ok(Came::Start),
                Reason::End(_) => return Ok(Came::End),
                Reason::Interrupted => return Ok(Came::Interrupted),
                Reason::Watch { watch, .. } => {
                    self.thread = stop.thread;
                    match self.watchpoints.all.get_mut(watch) {
                        Some(one) => {
                            one.hits += 1;
                            return Ok(Came::Watchpoint(one.id));
                        }
                        None => continue,
                    }
                }
                Reason::Event(_) => continue,
            }
            let registers = self.timeline.registers(stop.thread)?;
            if let Some(registers) = &registers
                && thread.is_none_or(|thread| thread == stop.thread)
            {
                let registers = symbol_registers(registers);
                let here = |stopper: &Stopper| {
                    stopper.address == stop.pc && stopper.condition.holds(&registers)
                };
                if let Some(n) = stoppers.iter().position(here) {
                    return Ok(Came::Stopper(n));
                }
            }
            if breakpoints {
                let hits = self.hits(stop.thread, stop.pc)?;
                let own = |one: &crate::Breakpoint| {
                    one.enabled && one.locations.iter().any(|at| at.address == stop.pc)
                };
                // Their conditions were asked on the way: if none of ours is here, one of them held.
                let foreign = !self.breakpoints.all.iter().any(own)
                    && self.foreign.iter().any(|one| one.addr == stop.pc);
                if !hits.is_empty() || foreign {
                    self.thread = stop.thread;
                    return Ok(Came::Breakpoints(hits));
                }
            }
        }
    }
}

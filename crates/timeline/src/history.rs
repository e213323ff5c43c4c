//! What happened over a stretch: all calls of functions, all changes of a piece of memory. In: where they begin, or where
//! it is. Out: what a worker has seen on one way through, with positions where they are wanted.

use std::time::Duration;

use clew_engine::replay::worker::protocol::{
    CallSeen, ChangeSeen, FunctionEntry, Goal, Mark, Observation, Take,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::seek::{must_arrive, position_of};
use crate::touches::result;
use crate::{Error, Position, Result, Timeline};

/// What was seen of a stretch.
#[derive(Clone, Debug)]
pub struct Seen<T> {
    /// In the order in which they happened.
    pub all: Vec<T>,
    /// There were no more of them, and nobody interrupted.
    pub complete: bool,
}

impl Timeline {
    /// Calls of functions between two positions, at most so many. The timeline stays where it is.
    pub fn calls(
        &mut self,
        functions: &[FunctionEntry],
        from: Position,
        to: Option<Position>,
        most: u64,
    ) -> Result<Seen<CallSeen>> {
        self.seen(Observation::Functions { most }, functions, from, to, most)
    }

    /// Changes of a piece of memory between two positions, at most so many. The timeline stays where it is.
    pub fn changes(
        &mut self,
        (addr, len): (u64, u64),
        from: Position,
        to: Option<Position>,
        most: u64,
    ) -> Result<Seen<ChangeSeen>> {
        let look = Observation::Changes { addr, len, most };
        self.seen(look, &[(); 0], from, to, most)
    }

    fn seen<A: Serialize, T: DeserializeOwned>(
        &mut self,
        look: Observation,
        asked: &[A],
        from: Position,
        to: Option<Position>,
        most: u64,
    ) -> Result<Seen<T>> {
        self.pool.begin();
        self.up_to_divergence(|timeline| {
            let mut worker = timeline.worker_at(Goal::Position(from))?;
            let mut buffer = timeline.pool.buffer()?;
            let asked = postcard::to_stdvec(asked).map_err(|_| Error::Lost)?;
            buffer.ring().clear(&asked);
            let goal = to.map_or(Goal::End, Goal::Position);
            let forever = Duration::MAX;
            let (_, complete) = worker.observe(look, goal, &mut buffer, forever, None)?;
            let all: Vec<T> = result(buffer.ring())?;
            if all.len() as u64 > most {
                return Err(Error::Lost);
            }
            Ok(Seen { all, complete })
        })
    }

    /// The positions of marks, which must be in order. The timeline stays where it is.
    pub fn positions(&mut self, marks: &[Mark]) -> Result<Vec<Position>> {
        self.pool.begin();
        self.up_to_divergence(|timeline| {
            let Some(first) = marks.first() else {
                return Ok(Vec::new());
            };
            let tick = |mark: &Mark| Position {
                event: mark.event,
                ticks: mark.ticks,
                steps: 0,
            };
            let start = timeline.start();
            let mut worker = timeline.fork_before(tick(first).max(start))?;
            let mut all: Vec<Position> = Vec::new();
            let mut last: Option<Mark> = None;
            for mark in marks {
                if last != Some(*mark) {
                    let stopped = worker.advance(Goal::Mark(*mark), Take::None)?;
                    must_arrive(&stopped)?;
                    last = Some(*mark);
                }
                all.push(position_of(&worker.at).ok_or(Error::Lost)?);
                if timeline.pool.interrupted() {
                    return Err(Error::Interrupted);
                }
            }
            Ok(all)
        })
    }
}

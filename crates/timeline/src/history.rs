//! What happened over a stretch: all calls of functions, all changes of a piece of memory. In: where they begin, or where
//! it is. Out: what workers have seen on one way through, with positions where they are wanted.
//!
//! A long way is looked at in parts, on all cores (`stretches`); the answer is the same as that of one who goes all the way.

use std::time::Duration;

use clew_engine::replay::worker::protocol::{
    CallOpen, CallSeen, CallsAsked, CallsTold, ChangeSeen, FunctionEntry, Goal, Mark, Observation,
    Take,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::seek::{must_arrive, position_of};
use crate::stretches::{Stretch, Then};
use crate::touches::result;
use crate::{Error, Position, Result, Timeline};

/// What was seen of a stretch.
#[derive(Clone, Debug)]
pub struct Seen<T> {
    /// In the order in which they happened.
    pub all: Vec<T>,
    /// There were no more of them, and nobody interrupted.
    pub complete: bool,
    /// Somebody interrupted: this is what was seen until then.
    pub interrupted: bool,
}

/// So many marks are looked for by one worker, one after the other.
const MARKS: usize = 64;

/// Calls that were put together so far.
struct Together {
    all: Vec<CallSeen>,
    /// Those under way, with their numbers in `all`.
    open: Vec<CallOpen>,
    most: usize,
    /// Parts that were put together, and how many of them had to be looked at again.
    parts: u32,
    again: u32,
    full: bool,
}

impl Together {
    /// What a look from here on must know.
    fn asked(&self, functions: &[FunctionEntry]) -> CallsAsked {
        let open = self.open.iter().zip(0..);
        CallsAsked {
            functions: functions.to_vec(),
            under_way: CallsTold {
                seen: self
                    .open
                    .iter()
                    .map(|one| self.all[one.call as usize].clone())
                    .collect(),
                open: open
                    .map(|(one, call)| CallOpen {
                        call,
                        ..one.clone()
                    })
                    .collect(),
            },
        }
    }

    /// Takes what was seen by one who knew which calls were under way; whether it can be true.
    fn put(&mut self, told: CallsTold) -> bool {
        let known = self.open.len();
        let first = self.all.len();
        let CallsTold { mut seen, open } = told;
        if seen.len() < known || open.iter().any(|one| one.call as usize >= seen.len()) {
            return false;
        }
        let new = seen.split_off(known);
        for (old, now) in self.open.iter().zip(seen) {
            self.all[old.call as usize] = now;
        }
        self.all.extend(new);
        let number = |call: u32| match self.open.get(call as usize) {
            Some(old) => old.call,
            None => (first + call as usize - known) as u32,
        };
        self.open = open
            .into_iter()
            .map(|one| CallOpen {
                call: number(one.call),
                ..one
            })
            .collect();
        true
    }
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
        self.pool.begin();
        self.up_to_divergence(|timeline| timeline.calls_once(functions, from, to, most))
    }

    fn calls_once(
        &mut self,
        functions: &[FunctionEntry],
        from: Position,
        to: Option<Position>,
        most: u64,
    ) -> Result<Seen<CallSeen>> {
        let mut together = Together {
            all: Vec::new(),
            open: Vec::new(),
            most: usize::try_from(most).unwrap_or(usize::MAX),
            parts: 0,
            again: 0,
            full: false,
        };
        let mut came = (Some(from), false);
        if self.jobs > 1 {
            let nothing = together.asked(functions);
            let all = Observation::Functions { most };
            let done = self.in_stretches(
                from,
                to,
                |timeline, stretch| {
                    timeline.look::<_, CallsTold>(all, &nothing, stretch.from, stretch.goal())
                },
                |timeline, stretch, answer| {
                    timeline.put_calls(&mut together, functions, stretch, answer)
                },
            )?;
            came = (done.rest, done.interrupted);
        }
        let mut complete = !together.full && came.0.is_none();
        if let (Some(rest), false) = came {
            let rest = Stretch::between(rest, to);
            complete = self.more_calls(&mut together, functions, &rest)?;
        }
        Ok(Seen {
            all: together.all,
            complete,
            interrupted: came.1 || self.pool.interrupted(),
        })
    }

    /// Puts the calls of the next stretch to those before. Where calls were under way at its beginning, they are looked for
    /// once more, by one who knows them.
    fn put_calls(
        &mut self,
        together: &mut Together,
        functions: &[FunctionEntry],
        stretch: &Stretch,
        answer: Result<(CallsTold, bool)>,
    ) -> Result<Then> {
        together.parts += 1;
        let fits = |told: &CallsTold| together.all.len() + told.seen.len() <= together.most;
        let complete = match answer {
            Ok((told, complete)) if together.open.is_empty() && fits(&told) => {
                if !together.put(told) {
                    return Err(Error::Lost);
                }
                complete
            }
            // One that was killed, for want of memory perhaps, is followed by another one, alone.
            Ok(_) | Err(Error::Lost) => {
                together.again += 1;
                self.more_calls(together, functions, stretch)?
            }
            Err(error) => return Err(error),
        };
        Ok(match complete {
            false => {
                together.full = true;
                Then::Enough
            }
            true if together.again >= 4 && together.again * 2 > together.parts => Then::Alone,
            true => Then::GoOn,
        })
    }

    /// Looks on from where the calls so far were seen to; whether there was nothing more to be seen.
    fn more_calls(
        &mut self,
        together: &mut Together,
        functions: &[FunctionEntry],
        stretch: &Stretch,
    ) -> Result<bool> {
        let asked = together.asked(functions);
        let left = together.most.saturating_sub(together.all.len());
        let most = (left as u64).saturating_add(asked.under_way.seen.len() as u64);
        let look = Observation::Functions { most };
        let told = self.look::<_, CallsTold>(look, &asked, stretch.from, stretch.goal());
        // It was interrupted before it saw anything.
        if matches!(told, Err(Error::Interrupted)) {
            return Ok(false);
        }
        let (told, complete) = told?;
        if told.seen.len() as u64 > most || !together.put(told) {
            return Err(Error::Lost);
        }
        Ok(complete)
    }

    /// Changes of a piece of memory between two positions, at most so many. The timeline stays where it is.
    pub fn changes(
        &mut self,
        place: (u64, u64),
        from: Position,
        to: Option<Position>,
        most: u64,
    ) -> Result<Seen<ChangeSeen>> {
        self.pool.begin();
        self.up_to_divergence(|timeline| timeline.changes_once(place, from, to, most))
    }

    fn changes_once(
        &mut self,
        (addr, len): (u64, u64),
        from: Position,
        to: Option<Position>,
        most: u64,
    ) -> Result<Seen<ChangeSeen>> {
        let look = Observation::Changes { addr, len, most };
        let ask = |timeline: &mut Timeline, from: Position, goal: Goal| {
            timeline.look::<[(); 0], Vec<ChangeSeen>>(look, &[], from, goal)
        };
        let mut all: Vec<ChangeSeen> = Vec::new();
        let mut complete = true;
        let mut interrupted = false;
        let limit = usize::try_from(most).unwrap_or(usize::MAX);
        if self.jobs > 1 {
            let came = self.in_stretches(
                from,
                to,
                |timeline, stretch| ask(timeline, stretch.from, stretch.goal()),
                |timeline, stretch, answer| {
                    let (told, whole) = match answer {
                        Err(Error::Lost) => ask(timeline, stretch.from, stretch.goal())?,
                        answer => answer?,
                    };
                    all.extend(told);
                    complete &= whole && all.len() <= limit;
                    Ok(match complete {
                        true => Then::GoOn,
                        false => Then::Enough,
                    })
                },
            )?;
            interrupted = came.interrupted;
            complete &= came.rest.is_none();
        } else {
            (all, complete) = ask(self, from, to.map_or(Goal::End, Goal::Position))?;
        }
        all.truncate(limit);
        Ok(Seen {
            all,
            complete,
            interrupted: interrupted || self.pool.interrupted(),
        })
    }

    /// What an observer sees of the way from a position to a goal, and whether it was all.
    fn look<A: Serialize + ?Sized, T: DeserializeOwned>(
        &mut self,
        look: Observation,
        asked: &A,
        from: Position,
        goal: Goal,
    ) -> Result<(T, bool)> {
        let mut worker = self.worker_at(Goal::Position(from))?;
        let mut buffer = self.pool.buffer()?;
        let asked = postcard::to_stdvec(asked).map_err(|_| Error::Lost)?;
        buffer.ring().clear(&asked);
        let (_, complete) = worker.observe(look, goal, &mut buffer, Duration::MAX, None)?;
        Ok((result(buffer.ring())?, complete))
    }

    /// The positions of marks, which must be in order. The timeline stays where it is.
    pub fn positions(&mut self, marks: &[Mark]) -> Result<Vec<Position>> {
        self.pool.begin();
        let parts: Vec<&[Mark]> = marks.chunks(MARKS).collect();
        self.up_to_divergence(|timeline| {
            let found =
                timeline.for_each(&parts, |timeline, marks| timeline.positions_of(marks))?;
            Ok(found.into_iter().flatten().collect())
        })
    }

    fn positions_of(&mut self, marks: &[Mark]) -> Result<Vec<Position>> {
        let Some(first) = marks.first() else {
            return Ok(Vec::new());
        };
        let tick = |mark: &Mark| Position {
            event: mark.event,
            ticks: mark.ticks,
            steps: 0,
        };
        let start = self.start();
        let mut worker = self.fork_before(tick(first).max(start))?;
        let mut all: Vec<Position> = Vec::new();
        let mut last: Option<Mark> = None;
        for mark in marks {
            if last != Some(*mark) {
                // Where there is a long way to the next one, a snapshot may be nearer.
                let nearest = self
                    .snapshots
                    .tell(|all| Some(all.before(tick(mark))?.position));
                if nearest > position_of(&worker.at) {
                    worker = self.fork_before(tick(mark))?;
                }
                let stopped = worker.advance(Goal::Mark(*mark), Take::None)?;
                must_arrive(&stopped)?;
                last = Some(*mark);
            }
            all.push(position_of(&worker.at).ok_or(Error::Lost)?);
            if self.pool.interrupted() {
                return Err(Error::Interrupted);
            }
        }
        Ok(all)
    }
}

//! Going somewhere. In: a target. Out: the timeline stands there, with snapshots on the way.
//!
//! Back, or far forward: fork the nearest snapshot before the target and run on from it. On ground where
//! snapshots lie too far apart (nobody was there yet, or some were given up), journeys are made in slices
//! and leave one behind after each.

use std::time::Instant;

use clew_engine::replay::worker::protocol::{At, Goal, HitKind, Mark, Stopped, Take, Why};

use crate::snapshots::{Kind, next_wanted};
use crate::timeline::Timeline;
use crate::usage;
use crate::worker::Worker;
use crate::{Error, Next, Position, Reason, Result, Stop, Target};

/// Where that is, if instructions are counted.
pub fn position_of(at: &At) -> Option<Position> {
    at.steps.map(|steps| Position {
        event: at.event,
        ticks: at.ticks,
        steps,
    })
}

/// How to get there.
pub fn goal_of(at: &At) -> Goal {
    match position_of(at) {
        Some(position) => Goal::Position(position),
        None => Goal::Mark(Mark {
            event: at.event,
            ticks: at.ticks,
            pc: at.pc,
            sp: at.sp,
        }),
    }
}

/// The start of the tick in which that is: no position of it lies before.
pub fn tick_of(at: &At) -> Position {
    Position {
        event: at.event,
        ticks: at.ticks,
        steps: at.steps.unwrap_or(0),
    }
}

/// A way that was gone before doesn't end elsewhere, unless somebody interrupted.
pub fn must_arrive(stopped: &Stopped) -> Result<()> {
    match stopped.why {
        Why::Goal => Ok(()),
        Why::Interrupted => Err(Error::Interrupted),
        // The end itself can be a goal.
        Why::End => Ok(()),
        _ => Err(Error::Unsteady(format!(
            "a second replay of the same part didn't come to the same place: stopped at event {}, tick {} \
             ({:?}); please report this",
            stopped.at.event, stopped.at.ticks, stopped.why
        ))),
    }
}

impl Timeline {
    pub(crate) fn go(&mut self, to: Target) -> Result<Stop> {
        let goal = match to {
            Target::Start => Goal::Position(self.start()),
            Target::End => match &self.end {
                Some(end) => goal_of(end),
                None => Goal::End,
            },
            Target::Position(position) => Goal::Position(position),
            Target::Ticks(ticks) => Goal::Position(self.after_ticks(ticks)?),
        };
        let mut worker = self.depart(goal)?;
        let stopped = self.travel(&mut worker, goal, Take::None)?;
        if stopped.why == Why::Missed {
            return Err(match goal {
                Goal::Position(position) => no_such(position, &stopped.at),
                _ => Error::Lost,
            });
        }
        // On the way back it isn't left in between: the worker of this place is still there.
        if stopped.why == Why::Interrupted && self.here.is_some() {
            return Ok(self.stop(Reason::Interrupted));
        }
        self.check_arrival(goal, &stopped)?;
        self.settle(worker);
        let mut stop = self.told(&stopped);
        if to == Target::End && stopped.why == Why::Goal {
            stop.reason = Reason::End(self.at.next.unwrap_or(Next::CutOff));
        }
        Ok(stop)
    }

    /// A position may have another name, behind an event that happens together with the one before it. Any
    /// other place than what was asked for is none at all.
    fn check_arrival(&mut self, goal: Goal, stopped: &Stopped) -> Result<()> {
        let (Goal::Position(position), Some(at)) = (goal, position_of(&stopped.at)) else {
            return Ok(());
        };
        if at == position || stopped.why != Why::Goal {
            return Ok(());
        }
        let start = Position::after(position.event);
        let same = at == Position::after(at.event)
            && match self.story.event(position.event + 1)? {
                Some((_, place)) => {
                    let steps = u64::from(place.steps);
                    position == start || (place.ticks, steps) == (position.ticks, position.steps)
                }
                None => false,
            };
        match same {
            true => Ok(()),
            false => Err(no_such(position, &stopped.at)),
        }
    }

    /// The worker to go with: the one that stands here, or a copy of the nearest snapshot.
    fn depart(&mut self, goal: Goal) -> Result<Worker> {
        let position = match goal {
            Goal::Position(position) => position,
            _ => Position::after(u64::MAX),
        };
        let here = position_of(&self.at).unwrap_or_else(|| tick_of(&self.at));
        // With uncounted instructions it may lie behind a position of the same tick.
        let passed = match self.at.steps {
            Some(_) => here > position,
            None => (here.event, here.ticks) >= (position.event, position.ticks),
        };
        let nearest = self
            .snapshots
            .tell(|all| Some(all.before(position)?.position));
        if !passed && nearest.is_none_or(|nearest| nearest < here) {
            // If it doesn't come back, another one is made for this place.
            self.worker()?;
            return self.here.take().ok_or(Error::Lost);
        }
        self.fork_before(position)
    }

    /// This worker is where the timeline stands from now on.
    pub(crate) fn settle(&mut self, worker: Worker) {
        self.at = worker.at;
        let pid = worker.pid();
        let old = self.here.replace(worker);
        // Whoever comes back finds it ready.
        if let Some(old) = old
            && position_of(&old.at) != position_of(&self.at)
        {
            self.snapshots.insert(old, Kind::Near);
            self.snapshots
                .hold()
                .fit(self.at.work, self.pace.interval(), &[pid]);
        }
    }

    /// Replays up to the end, and stays here.
    pub(crate) fn find_end(&mut self) -> Result<()> {
        let mut worker = self.fork_before(Position::after(u64::MAX))?;
        let stopped = self.travel(&mut worker, Goal::End, Take::None)?;
        if stopped.why == Why::Interrupted {
            return Err(Error::Interrupted);
        }
        self.snapshots.insert(worker, Kind::Near);
        Ok(())
    }

    pub(crate) fn run_forward(&mut self, until: Option<Position>) -> Result<Stop> {
        let goal = until.map_or(Goal::End, Goal::Position);
        if let Some(until) = until
            && self.position()? >= until
        {
            return Ok(self.stop(Reason::Arrived));
        }
        let take = match self.stops_id {
            0 => Take::None,
            _ => Take::First,
        };
        let mut worker = match take {
            Take::None => self.depart(goal)?,
            _ => {
                self.worker()?;
                self.here.take().ok_or(Error::Lost)?
            }
        };
        let stopped = self.travel(&mut worker, goal, take)?;
        self.settle(worker);
        Ok(self.told(&stopped))
    }

    /// Brings a worker to the goal, or to the first stop, and leaves snapshots on the way where they are
    /// missing. If the watcher interrupts, it stays where it is.
    pub(crate) fn travel(
        &mut self,
        worker: &mut Worker,
        goal: Goal,
        take: Take,
    ) -> Result<Stopped> {
        if take != Take::None {
            worker.set_stops(self.stops_id, &self.stops)?;
        }
        let mut faults = usage::faults(worker.pid()).unwrap_or(0);
        loop {
            let interval = self.pace.interval();
            let wanted = self
                .snapshots
                .tell(|all| next_wanted(&all.works(), worker.at.work, interval));
            let near = match goal {
                Goal::Position(position) => {
                    let behind = self
                        .snapshots
                        .tell(|all| Some(all.behind(position)?.work()));
                    behind.is_some_and(|work| work <= wanted.saturating_add(interval / 2))
                }
                // Behind a mark one has been.
                Goal::Mark(_) => true,
                Goal::Work(_) | Goal::End => false,
            };
            if near {
                return self.note_end(worker.advance(goal, take)?);
            }
            // A slice may lead beyond the goal: then it begins once more from here.
            let before = match goal {
                Goal::Position(_) => Some(worker.fork()?),
                _ => None,
            };
            let slice = match goal {
                Goal::Work(work) => work.min(wanted),
                _ => wanted,
            };
            let (began, from) = (Instant::now(), worker.at.work);
            let stopped = worker.advance(Goal::Work(slice), take)?;
            if take == Take::None {
                let done = stopped.at.work.saturating_sub(from);
                self.pace.ran(done, began.elapsed());
            }
            self.progress(&stopped.at);
            if let (Goal::Position(position), Some(mut before)) = (goal, before) {
                let there = (stopped.at.event, stopped.at.ticks, stopped.at.steps);
                let beyond = match there.2 {
                    Some(_) => position_of(&stopped.at) > Some(position),
                    None => (there.0, there.1) >= (position.event, position.ticks),
                };
                if position_of(&stopped.at) == Some(position) && stopped.why == Why::Goal {
                    return Ok(stopped);
                }
                if beyond {
                    std::mem::swap(worker, &mut before);
                    self.note_end(stopped)?;
                    self.snapshots.insert(before, Kind::Regular);
                    return worker.advance(goal, take);
                }
            }
            if stopped.why != Why::Goal {
                return self.note_end(stopped);
            }
            self.leave_one(worker, &mut faults)?;
            if matches!(goal, Goal::Work(work) if worker.at.work >= work) {
                return Ok(stopped);
            }
            if self.pool.interrupted() {
                let why = Why::Interrupted;
                return Ok(Stopped { why, ..stopped });
            }
        }
    }

    /// Leaves a snapshot, if the last one is far enough away.
    fn leave_one(&mut self, worker: &mut Worker, faults: &mut u64) -> Result<()> {
        let Some(position) = position_of(&worker.at) else {
            return Ok(());
        };
        let interval = self.pace.interval();
        let before = self
            .snapshots
            .tell(|all| Some(all.before(position)?.work()));
        let before = before.unwrap_or(0);
        if worker.at.work.saturating_sub(before) < interval / 5 * 3 {
            return Ok(());
        }
        let now = usage::faults(worker.pid()).unwrap_or(0);
        self.snapshots
            .hold()
            .note_faults(now.saturating_sub(*faults));
        *faults = now;
        let others: Vec<i32> = self
            .here
            .iter()
            .map(Worker::pid)
            .chain([worker.pid()])
            .collect();
        self.snapshots.hold().fit(worker.at.work, interval, &others);
        let copy = self.copy(worker)?;
        self.snapshots.insert(copy, Kind::Regular);
        Ok(())
    }

    fn progress(&self, at: &At) {
        let whole = self.end.as_ref().map_or(self.expected, |end| end.work);
        if whole > 0 {
            let (done, part) = self.share;
            self.pool
                .set_progress(done + part * at.work as f64 / whole as f64);
        }
    }

    /// Remembers the end, if that is where it stopped.
    fn note_end(&mut self, stopped: Stopped) -> Result<Stopped> {
        if stopped.why == Why::End && self.end.is_none() && stopped.at.steps.is_some() {
            self.end = Some(stopped.at);
        }
        Ok(stopped)
    }

    /// For whoever asked, why it stands here now.
    pub(crate) fn told(&self, stopped: &Stopped) -> Stop {
        let at = &stopped.at;
        let at_end = || Reason::End(at.next.unwrap_or(Next::CutOff));
        let mut thread = at.thread;
        let reason = match stopped.why {
            Why::Goal | Why::Missed => Reason::Arrived,
            Why::End => at_end(),
            Why::Break => Reason::Break,
            Why::Watch(hit) => {
                thread = hit.thread;
                reason_of(&hit.kind)
            }
            Why::Event(event) => Reason::Event(event),
            Why::Interrupted => Reason::Interrupted,
        };
        Stop {
            reason,
            thread,
            pc: at.pc,
        }
    }

    pub(crate) fn stop(&self, reason: Reason) -> Stop {
        Stop {
            reason,
            thread: self.at.thread,
            pc: self.at.pc,
        }
    }
}

/// What a hit is to whoever asked for it.
pub fn reason_of(kind: &HitKind) -> Reason {
    match *kind {
        HitKind::Break => Reason::Break,
        HitKind::Watch {
            watch, addr, read, ..
        } => Reason::Watch {
            watch: watch as usize,
            addr,
            read,
        },
        HitKind::Event(event) => Reason::Event(event),
    }
}

fn no_such(position: Position, at: &At) -> Error {
    let nearest = tick_of(at);
    Error::Refused(format!(
        "there is no position {position}: its event or tick doesn't last that long; nearby is {nearest}"
    ))
}

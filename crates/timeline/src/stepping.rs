//! Single instructions. In: a thread and a direction. Out: the timeline stands one instruction, or one event,
//! of that thread further on or back.
//!
//! What a thread does at an event is one step, however many events it takes: a call that waits goes from
//! before its instruction to the other threads' turns and back behind it.

use clew_engine::replay::worker::protocol::{Goal, Stopped, Take, Why};
use clew_recording::event::{Place, ThreadId};

use crate::seek::{goal_of, position_of};
use crate::timeline::Timeline;
use crate::worker::Worker;
use crate::{Direction, Error, Events, Position, Reason, Result, Stop};
use clew_recording::event::Deed;

/// So many ticks' lengths are remembered.
const MOST_LENGTHS: usize = 4096;
/// No tick has more instructions than this, unless somebody made it up.
const LONGEST_TICK: u64 = 1 << 24;

impl Timeline {
    /// One instruction of a thread: forwards until it has executed one (or an event of its own has
    /// happened), backwards to before its last. Other threads run as they did; their stops count.
    /// Backwards at a thread's very beginning it stays where it is and says [`Reason::Start`].
    pub fn step(&mut self, direction: Direction, thread: ThreadId) -> Result<Stop> {
        self.pool.begin();
        self.up_to_divergence(|timeline| match direction {
            Direction::Forward => timeline.step_forward(thread),
            Direction::Backward => timeline.step_backward(thread),
        })
    }

    /// One position, whichever thread it is.
    pub fn step_any(&mut self, direction: Direction) -> Result<Stop> {
        self.pool.begin();
        self.up_to_divergence(|timeline| match direction {
            Direction::Forward => {
                let stopped = timeline.step_once()?;
                Ok(timeline.told(&stopped))
            }
            Direction::Backward => {
                let from = timeline.exact()?;
                match timeline.worker_before(from)? {
                    Some(worker) => timeline.arrive_back(worker, from),
                    None => Ok(timeline.stop(Reason::Start)),
                }
            }
        })
    }

    /// Where it stands; its instructions are counted, and there are snapshots nearby.
    fn exact(&mut self) -> Result<Position> {
        self.densify_here()?;
        self.position()
    }

    fn step_once(&mut self) -> Result<Stopped> {
        self.worker()?;
        let mut worker = self.here.take().ok_or(Error::Lost)?;
        // Whatever goes wrong, the next one to need a worker here makes another.
        let stopped = match self.is_watched() {
            false => worker.step()?,
            true => {
                // Where one step leads to; then there with open eyes.
                let to = worker.fork()?.step()?;
                match to.why {
                    Why::Goal => {
                        worker.set_stops(self.stops_id, &self.stops)?;
                        worker.advance(goal_of(&to.at), Take::First)?
                    }
                    _ => worker.step()?,
                }
            }
        };
        self.at = stopped.at;
        self.here = Some(worker);
        Ok(stopped)
    }

    /// Stops at addresses make no difference to a single step; others do.
    fn is_watched(&self) -> bool {
        !self.stops.watches.is_empty() || self.stops.events != Events::default()
    }

    fn step_forward(&mut self, thread: ThreadId) -> Result<Stop> {
        loop {
            if self.at.thread == thread {
                let before = self.at;
                let stopped = self.step_once()?;
                if stopped.why != Why::Goal || self.did_something(before.event)? {
                    return Ok(self.told(&stopped));
                }
            } else {
                let next = self.story.next_turn(self.at.event, thread)?;
                let stopped = self.run_others(next.map(Position::after))?;
                if stopped.why != Why::Goal {
                    return Ok(self.told(&stopped));
                }
            }
            if self.pool.interrupted() {
                return Ok(self.stop(Reason::Interrupted));
            }
        }
    }

    /// Whether the step from an event's stretch to here was one of the thread's own.
    fn did_something(&mut self, before: u64) -> Result<bool> {
        for number in before + 1..=self.at.event {
            match self.story.event(number)? {
                Some((Deed::Silent, _)) => {}
                Some((Deed::Whole | Deed::Finished, _)) | None => return Ok(true),
                Some((Deed::Begun | Deed::Switch | Deed::None, _)) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Lets the others run up to there, or to the end; their stops count.
    fn run_others(&mut self, to: Option<Position>) -> Result<Stopped> {
        let goal = to.map_or(Goal::End, Goal::Position);
        let take = match self.stops_id {
            0 => Take::None,
            _ => Take::First,
        };
        self.worker()?;
        let mut worker = self.here.take().ok_or(Error::Lost)?;
        let stopped = self.travel(&mut worker, goal, take)?;
        self.settle(worker);
        Ok(stopped)
    }

    fn step_backward(&mut self, thread: ThreadId) -> Result<Stop> {
        let from = self.exact()?;
        let first = self.start().event;
        let mut at = from;
        let found = loop {
            let runs = self.story.runs(at.event)? == thread;
            if runs && at != Position::after(at.event) {
                break self.worker_before(at)?;
            }
            // The event behind which its own stretch ended.
            let mut event = match runs {
                true => at.event,
                false => match self.story.last_turn(at.event, thread)? {
                    Some(stretch) => stretch + 1,
                    None => break None,
                },
            };
            // What happened together with the event before is no deed of its own.
            let together = Some((Deed::Silent, Place::default()));
            while event > first && self.story.event(event)? == together {
                event -= 1;
            }
            if event <= first {
                break None;
            }
            let own = self.story.runs(event - 1)? == thread;
            let deed = self.story.event(event)?.map(|(deed, _)| deed);
            if own && matches!(deed, Some(Deed::Whole | Deed::Begun | Deed::Silent)) {
                break self.worker_before(Position::after(event))?;
            }
            if !own {
                at = Position::after(event - 1);
                continue;
            }
            match self.worker_before(Position::after(event))? {
                Some(worker) => at = position_of(&worker.at).ok_or(Error::Lost)?,
                None => break None,
            }
        };
        match found {
            Some(worker) => self.arrive_back(worker, from),
            None => Ok(self.stop(Reason::Start)),
        }
    }

    /// Stands where this worker is, one step back, unless there was a stop on the way from there to `from`.
    fn arrive_back(&mut self, worker: Worker, from: Position) -> Result<Stop> {
        let to = position_of(&worker.at).ok_or(Error::Lost)?;
        let others = self.story.turned(to.event, from.event)?;
        if self.stops_id != 0 && (self.is_watched() || others) {
            self.snapshots.insert(worker, crate::snapshots::Kind::Near);
            return self.run_backward(Some(to));
        }
        self.settle(worker);
        Ok(self.stop(Reason::Arrived))
    }

    /// A worker at the last position before that one; none if that is the first.
    fn worker_before(&mut self, position: Position) -> Result<Option<Worker>> {
        let mut position = position;
        loop {
            let Position {
                event,
                ticks,
                steps,
            } = position;
            if steps > 0 {
                let steps = steps - 1;
                return self.at_steps(event, ticks, steps).map(Some);
            }
            if ticks > 0 {
                return self.last_of_tick(event, ticks - 1).map(Some);
            }
            if event <= self.start().event {
                return Ok(None);
            }
            let Some((deed, place)) = self.story.event(event)? else {
                return Err(Error::Lost);
            };
            let stretch = event - 1;
            if deed == Deed::Silent {
                match (place.ticks, place.steps) {
                    (0, 0) => {
                        position = Position::after(stretch);
                        continue;
                    }
                    (ticks, 0) => return self.last_of_tick(stretch, ticks - 1).map(Some),
                    (ticks, steps) => {
                        return self
                            .at_steps(stretch, ticks, u64::from(steps) - 1)
                            .map(Some);
                    }
                }
            }
            let worker = self.end_of_stretch(stretch, place.ticks)?;
            if position_of(&worker.at).is_some_and(|at| at < position) {
                return Ok(Some(worker));
            }
            // Nobody stands between these events.
            position = Position::after(stretch);
        }
    }

    /// Where the event that follows that stretch is due.
    fn end_of_stretch(&mut self, event: u64, ticks: u64) -> Result<Worker> {
        let mut tick = Position {
            event,
            ticks,
            steps: 0,
        };
        let mut worker = self.fork_before(tick)?;
        tick.steps = u64::MAX;
        let stopped = worker.advance(Goal::Position(tick), Take::None)?;
        match stopped.why {
            Why::Interrupted => Err(Error::Interrupted),
            _ => Ok(worker),
        }
    }

    fn at_steps(&mut self, event: u64, ticks: u64, steps: u64) -> Result<Worker> {
        self.worker_at(Goal::Position(Position {
            event,
            ticks,
            steps,
        }))
    }

    /// Before the last instruction of a tick: the one that makes the next.
    fn last_of_tick(&mut self, event: u64, ticks: u64) -> Result<Worker> {
        if let Some(&last) = self.lengths.get(&(event, ticks)) {
            return self.at_steps(event, ticks, last);
        }
        let mut worker = self.at_steps(event, ticks, 0)?;
        let mut scout = worker.fork()?;
        let mut last = 0;
        loop {
            let at = scout.step()?.at;
            if (at.event, at.ticks) != (event, ticks) {
                break;
            }
            last += 1;
            if last > LONGEST_TICK {
                return Err(Error::Lost);
            }
            if self.pool.interrupted() {
                return Err(Error::Interrupted);
            }
        }
        if self.lengths.len() >= MOST_LENGTHS {
            self.lengths.clear();
        }
        self.lengths.insert((event, ticks), last);
        let goal = Position {
            event,
            ticks,
            steps: last,
        };
        if last > 0 {
            let stopped = worker.advance(Goal::Position(goal), Take::None)?;
            crate::seek::must_arrive(&stopped)?;
        }
        Ok(worker)
    }
}

//! Backwards to the last stop. In: where to stop, and the part of the stream before this place. Out: the
//! last hit in it.
//!
//! Segments lie between snapshots. Each is run forward by a copy of the snapshot at its start, which tells
//! the last hit that it passed; the last segments first, several at once. Before that, snapshots are left at
//! growing distances before the end of a long segment, so that a hit nearby is found without looking at all
//! of it. A segment that turns out rich in hits, and so slow, is cut in the same way.

use std::time::{Duration, Instant};

use clew_engine::replay::worker::protocol::{At, Command, Goal, Hit, Mark, Take, Why};

use crate::pool::WATCH;
use crate::seek::{goal_of, must_arrive, position_of, reason_of, tick_of};
use crate::snapshots::{Kind, SnapshotId, distances};
use crate::timeline::Timeline;
use crate::worker::{Worker, goal_of_hit, wait_any};
use crate::{Error, Position, Reason, Result, Stop};

/// A segment that takes longer is looked at: it may be rich.
const LONG: Duration = Duration::from_millis(60);
/// Shorter ones aren't cut.
const SHORTEST: u64 = 20_000;

/// A part of the stream, up to but without its end. There was a snapshot at its beginning, or a bit before.
struct Segment {
    from: Position,
    to: Goal,
    to_work: u64,
    state: State,
    /// So many workers have died of it.
    lost: u32,
}

enum State {
    Waits,
    Runs(Job),
    /// Nothing in it.
    Empty,
    /// The last hit in it.
    Found(Hit),
    /// Searched up to where its worker stands, and hits were found.
    Rich(Job),
}

struct Job {
    worker: Worker,
    began: Instant,
    /// When to look at it if it isn't done.
    look: Duration,
    /// The last hit before it was halted and sent on.
    last: Option<Hit>,
}

impl Timeline {
    pub(crate) fn run_backward(&mut self, until: Option<Position>) -> Result<Stop> {
        let lowest = until.unwrap_or(self.start()).max(self.start());
        let reason = match until {
            Some(until) if until >= self.start() => Reason::Arrived,
            _ => Reason::Start,
        };
        let here = position_of(&self.at);
        if here.is_some_and(|here| here <= lowest) {
            return Ok(self.stop(reason));
        }
        let hit = match self.stops_id {
            0 => None,
            _ => match self.last_hit(lowest) {
                Err(Error::Interrupted) => return Ok(self.stop(Reason::Interrupted)),
                hit => hit?,
            },
        };
        let (goal, reason) = match &hit {
            Some(hit) => (goal_of_hit(hit), reason_of(&hit.kind)),
            None => (Goal::Position(lowest), reason),
        };
        let worker = match self.worker_at(goal) {
            Err(Error::Interrupted) => return Ok(self.stop(Reason::Interrupted)),
            worker => worker?,
        };
        self.settle(worker);
        let mut stop = self.stop(reason);
        if let Some(hit) = hit {
            stop.thread = hit.thread;
        }
        Ok(stop)
    }

    /// Leaves snapshots before this place, if the nearest one is far.
    pub(crate) fn densify_here(&mut self) -> Result<()> {
        let at = self.at;
        let nearest = self.snapshots.tell(|all| {
            let nearest = all.before(tick_of(&at))?;
            Some((nearest.id, nearest.work()))
        });
        if let Some((id, work)) = nearest
            && at.work.saturating_sub(work) > 2 * SHORTEST
        {
            self.densify(id, tick_of(&at), at.work)?;
        }
        Ok(())
    }

    /// Leaves snapshots between that one and an end, at growing distances before the end.
    fn densify(&mut self, from: SnapshotId, end: Position, end_work: u64) -> Result<()> {
        let work = self.snapshots.hold().by_id(from).map(|one| one.work());
        let Some(work) = work else {
            return Ok(());
        };
        let length = end_work.saturating_sub(work);
        let distances = distances(length);
        if distances.is_empty() {
            return Ok(());
        }
        let mut worker = self.snapshots.hold().fork(from, &self.pool)?;
        for (n, distance) in distances.iter().rev().enumerate() {
            let goal = end_work - distance;
            if worker.at.work < goal {
                let stopped = worker.advance(Goal::Work(goal), Take::None)?;
                must_arrive(&stopped)?;
            }
            // An event counts as much work as several ticks.
            if position_of(&worker.at).is_none_or(|at| at >= end) {
                break;
            }
            if n + 1 < distances.len() {
                let copy = worker.fork()?;
                self.snapshots.insert(copy, Kind::Near);
            } else {
                self.snapshots.insert(worker, Kind::Near);
                break;
            }
        }
        Ok(())
    }

    /// The last hit from `lowest` on and before this place. The timeline stays where it is.
    fn last_hit(&mut self, lowest: Position) -> Result<Option<Hit>> {
        self.densify_here()?;
        let here = self.at;
        let mut search = Search {
            segments: self.segments(lowest, &here),
            lowest,
            whole: here.work.saturating_sub(self.start.work).max(1),
            here,
            jobs: self.jobs,
        };
        search.run(self)
    }

    /// The parts between snapshots, from the one with `lowest` in it up to `end`.
    fn segments(&self, lowest: Position, end: &At) -> Vec<Segment> {
        let snapshots = self.snapshots.hold();
        let first = snapshots.before(lowest).map(|s| s.position);
        let last = tick_of(end);
        let all = snapshots.iter();
        let inside: Vec<_> = all
            .filter(|s| Some(s.position) >= first)
            .filter(|s| s.position <= last && Some(s.position) != position_of(end))
            .collect();
        let ends = inside[1.min(inside.len())..]
            .iter()
            .map(|s| (Goal::Position(s.position), s.work()))
            .chain([(goal_of(end), end.work)]);
        let segment = |(s, (to, to_work)): (&&crate::snapshots::Snapshot, (Goal, u64))| Segment {
            from: s.position.max(lowest),
            to,
            to_work,
            state: State::Waits,
            lost: 0,
        };
        inside.iter().zip(ends).map(segment).collect()
    }
}

struct Search {
    /// In order; the last ones vanish when they turn out empty.
    segments: Vec<Segment>,
    lowest: Position,
    whole: u64,
    here: At,
    /// Segments that are run at once.
    jobs: usize,
}

impl Search {
    fn run(&mut self, timeline: &mut Timeline) -> Result<Option<Hit>> {
        loop {
            while matches!(self.segments.last(), Some(s) if matches!(s.state, State::Empty)) {
                self.segments.pop();
            }
            // What lies before a hit isn't wanted.
            let hit = |s: &Segment| matches!(s.state, State::Found(_) | State::Rich(_));
            if let Some(n) = self.segments.iter().rposition(hit) {
                self.segments.drain(..n);
            }
            let Some(last) = self.segments.last() else {
                return Ok(None);
            };
            match &last.state {
                State::Found(hit) => return Ok(Some(*hit)),
                State::Rich(_) => {
                    self.cut(timeline)?;
                    continue;
                }
                _ => {}
            }
            self.send_out(timeline)?;
            self.wait();
            self.collect()?;
            let left = self.segments.last().map_or(0, |s| s.to_work);
            let left = left.saturating_sub(timeline.start.work);
            timeline
                .pool
                .set_progress(1.0 - left as f64 / self.whole as f64);
            if timeline.pool.interrupted() {
                return Err(Error::Interrupted);
            }
        }
    }

    /// Gives every idle core a segment, the last ones first.
    fn send_out(&mut self, timeline: &mut Timeline) -> Result<()> {
        let busy = |s: &&Segment| matches!(s.state, State::Runs(_));
        let mut free = self
            .jobs
            .saturating_sub(self.segments.iter().filter(busy).count());
        for segment in self.segments.iter_mut().rev() {
            if free == 0 {
                break;
            }
            match segment.state {
                State::Waits => {}
                _ => continue,
            }
            let mut worker = timeline.worker_at(Goal::Position(segment.from))?;
            worker.set_stops(timeline.stops_id, &timeline.stops)?;
            let mut job = Job {
                worker,
                began: Instant::now(),
                look: LONG,
                last: None,
            };
            job.send(segment.to)?;
            segment.state = State::Runs(job);
            free -= 1;
        }
        Ok(())
    }

    /// Until a job is done, or is to be looked at.
    fn wait(&mut self) {
        let mut until = WATCH;
        let mut workers = Vec::new();
        for segment in &mut self.segments {
            if let State::Runs(job) = &mut segment.state {
                until = until.min(job.look.saturating_sub(job.began.elapsed()));
                workers.push(&mut job.worker);
            }
        }
        wait_any(&workers, until);
    }

    fn collect(&mut self) -> Result<()> {
        for segment in &mut self.segments {
            let mut job = match std::mem::replace(&mut segment.state, State::Empty) {
                State::Runs(job) => job,
                other => {
                    segment.state = other;
                    continue;
                }
            };
            let stopped = match job.worker.arrived() {
                Ok(Some(stopped)) => stopped,
                Ok(None) if job.began.elapsed() < job.look => {
                    segment.state = State::Runs(job);
                    continue;
                }
                Ok(None) => job.worker.halt()?,
                // Killed, for want of memory perhaps: another one, alone, may get through.
                Err(Error::Lost) if segment.lost < 2 => {
                    segment.lost += 1;
                    segment.state = State::Waits;
                    self.jobs = 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            job.last = stopped.last.or(job.last);
            let left = segment.to_work.saturating_sub(stopped.at.work);
            segment.state = match (stopped.why, job.last) {
                (Why::Interrupted, Some(_)) if left > SHORTEST => {
                    job.come_to_rest()?;
                    State::Rich(job)
                }
                // Poor, or nearly done: it may go on.
                (Why::Interrupted, _) => {
                    job.look *= 3;
                    job.send(segment.to)?;
                    State::Runs(job)
                }
                (_, last) => {
                    must_arrive(&stopped)?;
                    last.map_or(State::Empty, State::Found)
                }
            };
        }
        Ok(())
    }

    /// The last segment is rich in hits: what is left of it is cut, the pieces growing towards its
    /// beginning.
    fn cut(&mut self, timeline: &mut Timeline) -> Result<()> {
        let Some(segment) = self.segments.pop() else {
            return Ok(());
        };
        let State::Rich(Job {
            worker,
            last: Some(hit),
            ..
        }) = segment.state
        else {
            return Ok(());
        };
        let Some(from) = position_of(&worker.at) else {
            return Err(Error::Lost);
        };
        self.segments.push(Segment {
            to: Goal::Position(from),
            to_work: worker.at.work,
            state: State::Found(hit),
            ..segment
        });
        timeline.snapshots.insert(worker, Kind::Near);
        let (end, end_work) = match segment.to {
            Goal::Position(position) => (position, segment.to_work),
            Goal::Mark(Mark { event, ticks, .. }) => {
                let steps = 0;
                let tick = Position {
                    event,
                    ticks,
                    steps,
                };
                (tick, segment.to_work)
            }
            _ => return Err(Error::Lost),
        };
        let id = timeline.snapshots.tell(|all| Some(all.before(from)?.id));
        if let Some(id) = id {
            timeline.densify(id, end, end_work)?;
        }
        let mut to = self.here;
        if let Goal::Position(position) = segment.to {
            to.event = position.event;
            to.ticks = position.ticks;
            to.steps = Some(position.steps);
            to.work = segment.to_work;
        }
        let pieces = timeline.segments(from.max(self.lowest), &to);
        self.segments.extend(pieces);
        Ok(())
    }
}

impl Job {
    fn send(&mut self, to: Goal) -> Result<()> {
        self.worker.send(&Command::Advance {
            goal: to,
            take: Take::Last,
        })
    }

    /// It stopped in the midst of a segment: on to where its position is known.
    fn come_to_rest(&mut self) -> Result<()> {
        if self.worker.at.steps.is_none() {
            let goal = Goal::Work(self.worker.at.work + 1);
            let stopped = self.worker.advance(goal, Take::Last)?;
            must_arrive(&stopped)?;
            self.last = stopped.last.or(self.last);
        }
        Ok(())
    }
}

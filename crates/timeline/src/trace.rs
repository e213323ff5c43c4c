//! Traces of a stretch: in: where it begins and ends. Out: the way that it went and what it touched, as translated code
//! writes it down ([`clew_engine::trace`]), in segments that are read from the last to the first.

use std::thread::JoinHandle;
use std::time::Duration;

use clew_engine::replay::worker::protocol::{Goal, Observation, Take};
use clew_engine::trace::read::Tables;

use crate::seek::{goal_of, must_arrive, tick_of};
use crate::snapshots::Snapshot;
use crate::worker::Worker;
use crate::{At, Error, Position, Result, Timeline};

/// What a stretch did.
pub struct Trace {
    /// What its entries mean.
    pub tables: Tables,
    /// Entries, in the order in which they were written.
    pub segments: Vec<Vec<u8>>,
    /// Where it begins, and ends: the position asked for, or the last there is.
    pub start: At,
    pub end: Position,
    pub stopped: At,
    /// All of it is there.
    pub complete: bool,
}

/// A stretch that is traced by another thread. Who doesn't want it any more waits until that has ended.
pub struct Ahead {
    to: At,
    work: u64,
    thread: Option<JoinHandle<Result<Option<Trace>>>>,
}

impl Ahead {
    /// The trace. If anything went wrong it is asked for again, so that it is told as always.
    pub fn trace(mut self, timeline: &mut Timeline) -> Result<Option<Trace>> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Ok(trace))) => Ok(trace),
            _ => timeline.trace_back(&self.to, self.work),
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Timeline {
    /// Begins to trace a stretch of about so much work that ends at a place.
    pub fn trace_ahead(&self, to: At, work: u64) -> Ahead {
        let mut helper = self.helper();
        let traces = move || helper.trace_back_once(&to, work);
        // Without a thread it is traced when it is asked for.
        let thread = std::thread::Builder::new().spawn(traces).ok();
        Ahead { to, work, thread }
    }

    /// Traces from one position to another. The timeline stays where it is.
    pub fn trace(&mut self, from: Position, to: Position) -> Result<Trace> {
        self.pool.begin();
        self.up_to_divergence(|timeline| timeline.trace_once(from, to))
    }

    /// Traces a stretch of about so much work that ends at a place; none if there is nothing before it. The timeline stays
    /// where it is.
    pub fn trace_back(&mut self, to: &At, work: u64) -> Result<Option<Trace>> {
        self.pool.begin();
        self.up_to_divergence(|timeline| timeline.trace_back_once(to, work))
    }

    /// Traces a stretch of about so much work from a place on; none if there is nothing behind it. The timeline stays where
    /// it is.
    pub fn trace_forth(&mut self, from: &At, work: u64) -> Result<Option<Trace>> {
        self.pool.begin();
        self.up_to_divergence(|timeline| timeline.trace_forth_once(from, work))
    }

    fn trace_forth_once(&mut self, from: &At, work: u64) -> Result<Option<Trace>> {
        let mut worker = self.fork_before(tick_of(from))?;
        let arrived = worker.advance(goal_of(from), Take::None)?;
        must_arrive(&arrived)?;
        let goal = Goal::Work(from.work.saturating_add(work));
        let trace = self.trace_with(worker, goal)?;
        Ok((trace.stopped.work > from.work || trace.end > tick_of(from)).then_some(trace))
    }

    fn trace_back_once(&mut self, to: &At, work: u64) -> Result<Option<Trace>> {
        let from = to.work.saturating_sub(work);
        if tick_of(to) <= self.start() {
            return Ok(None);
        }
        let near = |snapshot: &&Snapshot| snapshot.work() <= from;
        let nearest = self
            .snapshots
            .tell(|all| Some(all.iter().rfind(near)?.position));
        let mut worker = self.fork_before(nearest.unwrap_or(self.start()))?;
        if worker.at.work < from {
            let arrived = worker.advance(Goal::Work(from), Take::None)?;
            must_arrive(&arrived)?;
        }
        self.trace_with(worker, goal_of(to)).map(Some)
    }

    fn trace_once(&mut self, from: Position, to: Position) -> Result<Trace> {
        let mut worker = self.fork_before(from)?;
        let arrived = worker.advance(Goal::Position(from), Take::None)?;
        must_arrive(&arrived)?;
        self.trace_with(worker, Goal::Position(to))
    }

    fn trace_with(&mut self, mut worker: Worker, goal: Goal) -> Result<Trace> {
        let start = worker.at;
        let mut buffer = self.pool.buffer()?;
        buffer.ring().clear(&[]);
        let mut segments = Vec::new();
        let mut keep = |_: &_, segment| segments.push(segment);
        let (stopped, complete) = worker.observe(
            Observation::Trace,
            goal,
            &mut buffer,
            Duration::MAX,
            Some(&mut keep),
        )?;
        if self.pool.interrupted() {
            return Err(Error::Interrupted);
        }
        let mut tables = Tables::default();
        if !tables.add(&buffer.ring().rows(0)) {
            return Err(Error::Lost);
        }
        Ok(Trace {
            tables,
            segments,
            start,
            end: tick_of(&stopped.at),
            stopped: stopped.at,
            complete,
        })
    }
}

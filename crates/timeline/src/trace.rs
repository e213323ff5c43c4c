//! Traces of a stretch: in: where it begins and ends. Out: the way that it went and what it touched, as translated code
//! writes it down ([`clew_engine::trace`]), in segments that are read from the last to the first.

use std::time::Duration;

use clew_engine::replay::worker::protocol::{Goal, Observation, Take};
use clew_engine::trace::read::Tables;

use crate::seek::must_arrive;
use crate::{Error, Position, Result, Timeline};

/// What a stretch did.
pub struct Trace {
    /// What its entries mean.
    pub tables: Tables,
    /// Entries, in the order in which they were written.
    pub segments: Vec<Vec<u8>>,
    /// Where it ends: the position asked for, or the last there is.
    pub end: Position,
    /// All of it is there.
    pub complete: bool,
}

impl Timeline {
    /// Traces from one position to another. The timeline stays where it is.
    pub fn trace(&mut self, from: Position, to: Position) -> Result<Trace> {
        self.pool.begin();
        self.up_to_divergence(|timeline| timeline.trace_once(from, to))
    }

    fn trace_once(&mut self, from: Position, to: Position) -> Result<Trace> {
        let mut worker = self.fork_before(from)?;
        let arrived = worker.advance(Goal::Position(from), Take::None)?;
        must_arrive(&arrived)?;
        let mut buffer = self.pool.buffer()?;
        buffer.ring().clear(&[]);
        let mut segments = Vec::new();
        let mut keep = |_: &_, segment| segments.push(segment);
        let (stopped, complete) = worker.observe(
            Observation::Trace,
            Goal::Position(to),
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
            end: crate::seek::tick_of(&stopped.at),
            complete,
        })
    }
}

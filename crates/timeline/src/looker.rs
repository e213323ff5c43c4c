//! A look at many places, one behind the other. In: positions, in order. Out: registers and memory there. It has a worker of its
//! own, which only goes on: nothing is left behind, and the timeline stays where it is.

use clew_engine::replay::worker::protocol::{Command, Goal, Take};
use clew_recording::event::Deed;

use crate::seek::{must_arrive, position_of};
use crate::story::Story;
use crate::timeline::{read, registers};
use crate::worker::Worker;
use crate::{Error, Position, Registers, Result, Timeline};

pub struct Looker {
    worker: Worker,
    story: Story,
}

impl Timeline {
    /// One that begins where the stream does.
    pub fn looker(&mut self) -> Result<Looker> {
        self.pool.begin();
        let worker = self.fork_before(self.start())?;
        let story = self.story.clone();
        Ok(Looker { worker, story })
    }
}

impl Looker {
    /// Goes on to a position, which isn't before the last one.
    pub fn go(&mut self, to: Position) -> Result<()> {
        if position_of(&self.worker.at) == Some(to) {
            return Ok(());
        }
        let stopped = self.worker.advance(Goal::Position(to), Take::None)?;
        must_arrive(&stopped)?;
        let at = position_of(&stopped.at).ok_or(Error::Lost)?;
        match self.is_called(to, at)? {
            true => Ok(()),
            false => Err(Error::Unsteady(format!(
                "the trace has an instruction at {to}, and the replay has none; please report this"
            ))),
        }
    }

    /// Whether a place where an event is due is the one behind it, too: events that nobody stands before are passed at once.
    fn is_called(&mut self, due: Position, at: Position) -> Result<bool> {
        if due == at {
            return Ok(true);
        }
        if at != Position::after(at.event) || at.event <= due.event {
            return Ok(false);
        }
        let mut place = Some((due.ticks, due.steps));
        for number in due.event..at.event {
            let lies = self.story.event(number + 1)?;
            let silent = lies.filter(|(deed, at)| {
                let there = (at.ticks, u64::from(at.steps));
                *deed == Deed::Silent && place.take().unwrap_or((0, 0)) == there
            });
            if silent.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Of the thread that runs there.
    pub fn registers(&mut self) -> Result<Registers> {
        let thread = self.worker.at.thread;
        registers(self.worker.ask(&Command::Registers { thread })?)?.ok_or(Error::Lost)
    }

    /// Reads what can be read from there on; how many bytes that is.
    pub fn read(&mut self, addr: u64, into: &mut [u8]) -> Result<usize> {
        read(&mut self.worker, addr, into)
    }
}

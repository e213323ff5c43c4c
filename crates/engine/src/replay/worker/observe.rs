//! Going forward with somebody looking on: the way to a goal, told to an [`Observer`] at each place that it may want to
//! see. An analysis is one observer, in a file of its own; the way itself is written once, here.
//!
//! Translated code leaves at instruments; single instructions are told one by one. An instruction that was told isn't
//! told again when the thread goes on from it.

use clew_recording::event::{Event, Record};

use super::limit::ahead;
use super::protocol::{Goal, Stopped, Why};
use super::serve::Worker;
use super::stops::Wanted;
use super::travel::{Done, Leg};
use crate::cache::instruments::Instruments;
use crate::replay::Machine;
use crate::replay::approach::{Came, Stepped};

/// Whatever looks at a replay. It may look at anything in the worker; where it says why, the way ends.
pub(super) trait Observer {
    /// What is compiled into code for it.
    fn instruments(&mut self, worker: &Worker) -> Instruments;

    /// Whether the first instruction is to be told by [`Observer::single`], whatever it is.
    fn begins_by_hand(&self) -> bool {
        false
    }

    /// Before each part of the way. `reached`: the goal is here.
    fn here(&mut self, _worker: &mut Worker, reached: bool) -> Done<Option<Why>> {
        Ok(reached.then_some(Why::Goal))
    }

    /// The way ends here by itself: for what, as it is told.
    fn over(&mut self, _worker: &mut Worker, why: Why) -> Done<Why> {
        Ok(why)
    }

    /// The thread has come to the next event.
    fn due(&mut self, _worker: &mut Worker) -> Done<Option<Why>> {
        Ok(None)
    }

    /// The event and its effects are done.
    fn done(&mut self, _worker: &mut Worker) -> Done {
        Ok(())
    }

    /// Events that do nothing by themselves come next, and then were done.
    fn silent(&mut self, _worker: &mut Worker, _done: bool) {}

    /// The thread is going to execute one instruction that has no instruments.
    fn single(&mut self, _worker: &mut Worker) -> Done<Option<Why>> {
        Ok(None)
    }

    /// It has executed it.
    fn stepped(&mut self, _worker: &mut Worker) -> Done<Option<Why>> {
        Ok(None)
    }

    /// An instruction with an instrument, nothing of which has run: whether to go on past it at once.
    fn passes(&mut self, _sight: Sight<'_>) -> bool {
        true
    }

    /// The run has ended at an instruction that wasn't passed.
    fn stays(&mut self, _worker: &mut Worker) -> Stays {
        Stays::Passed
    }

    /// The way has ended.
    fn ends(&mut self, _worker: &mut Worker) {}
}

/// What can be seen while translated code stands at an instrument.
pub(super) struct Sight<'a> {
    pub machine: &'a mut Machine,
    pub wanted: &'a mut Wanted,
    /// Events done.
    pub events: u64,
}

/// How to go on from an instrument.
pub(super) enum Stays {
    Stop(Why),
    /// Past it.
    Passed,
    /// By this instruction alone, told as a single one.
    Single,
}

impl Worker {
    /// Puts instruments into translated code.
    pub(super) fn instrument_with(&mut self, wanted: Instruments) {
        let machine = &mut self.machine;
        machine.code.instrument(machine.gs, &machine.memory, wanted);
    }

    /// Goes to the goal, or to where the observer stays.
    pub(super) fn observe(&mut self, goal: Goal, observer: &mut dyn Observer) -> Done<Stopped> {
        let instruments = observer.instruments(self);
        self.instrument_with(instruments);
        self.past = false;
        let why = self.observed(goal, observer)?;
        observer.ends(self);
        self.stopped(why)
    }

    fn observed(&mut self, goal: Goal, observer: &mut dyn Observer) -> Done<Why> {
        let mut by_hand = observer.begins_by_hand();
        loop {
            let reached = self.is_reached(goal);
            if let Some(why) = observer.here(self, reached)? {
                return Ok(why);
            }
            let leg = match reached {
                true => Leg::Over(Why::Goal),
                false => self.leg(goal)?,
            };
            if self.shall_stop() {
                return Ok(Why::Interrupted);
            }
            let why = match leg {
                Leg::Over(why) => Some(observer.over(self, why)?),
                Leg::Event => self.observe_event(observer)?,
                Leg::Single => self.observe_single(observer)?,
                Leg::Run { .. } if by_hand => self.observe_single(observer)?,
                Leg::Run { limit, .. } => self.observe_run(observer, limit)?,
            };
            if let Some(why) = why {
                return Ok(why);
            }
            by_hand = false;
            if self.is_silent_next()? {
                observer.silent(self, false);
                self.pass_silent()?;
                observer.silent(self, true);
            }
        }
    }

    fn observe_event(&mut self, observer: &mut dyn Observer) -> Done<Option<Why>> {
        if let Some(why) = observer.due(self)? {
            return Ok(Some(why));
        }
        // The instruction that touched shared memory will be executed now: it isn't new.
        let next = self.reader.peek()?;
        self.past = matches!(next, Some(Record::Event(Event::Shared { .. })));
        self.apply()?;
        observer.done(self)?;
        Ok(None)
    }

    fn observe_single(&mut self, observer: &mut dyn Observer) -> Done<Option<Why>> {
        if let Some(why) = observer.single(self)? {
            return Ok(Some(why));
        }
        self.past = self.single()? == Stepped::Due;
        match self.past {
            true => Ok(None),
            false => observer.stepped(self),
        }
    }

    /// Runs at most to `limit` ticks after the last event.
    fn observe_run(&mut self, observer: &mut dyn Observer, limit: u64) -> Done<Option<Why>> {
        let events = self.reader.position();
        let Some(Record::Event(event)) = ahead(&mut self.reader, &self.limit)? else {
            return Ok(None);
        };
        let wanted = &mut self.wanted;
        let mut passes = |machine: &mut Machine| {
            observer.passes(Sight {
                machine,
                wanted,
                events,
            })
        };
        let came = self
            .machine
            .approach_past(event, limit, self.past, &mut passes)?;
        self.steps = (came == Came::Limit).then_some(0);
        self.past = came != Came::Limit;
        if !matches!(came, Came::Instrument(_)) {
            return Ok(None);
        }
        match observer.stays(self) {
            Stays::Stop(why) => Ok(Some(why)),
            Stays::Passed => Ok(None),
            Stays::Single => self.observe_single(observer),
        }
    }
}

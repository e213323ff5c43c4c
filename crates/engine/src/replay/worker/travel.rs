//! Going forward: from where the worker stands to a goal.
//!
//! Long stretches run as translated code, to a tick; from there on single instructions, so that their
//! number is known.

use clew_recording::event::{Cause, Effect, Event, Record};
use clew_recording::position::Position;
use clew_recording::reader::ReadError;

use super::limit::ahead;
use super::protocol::{At, Goal, Mark, Next, Reply, Stopped, Take, Why};
use super::serve::Worker;
use super::stops::stop_behind;
use super::touches::renewed_by;
use crate::context::RSP;
use crate::replay::approach::{Came, Stepped, place_of};
use crate::replay::machine::Divergence;

/// Why a worker can't do what it was told.
pub enum Halt {
    Diverged(Divergence),
    /// The log can't be read on.
    Unreadable(String),
    Refused(String),
}

impl From<Divergence> for Halt {
    fn from(divergence: Divergence) -> Halt {
        Halt::Diverged(divergence)
    }
}

impl From<ReadError> for Halt {
    fn from(error: ReadError) -> Halt {
        Halt::Unreadable(error.to_string())
    }
}

pub(super) type Done<T = ()> = Result<T, Halt>;

/// What to do next on the way.
pub(super) enum Leg {
    /// No more; why.
    Over(Why),
    /// An event is due.
    Event,
    Single,
    /// Run at most so many ticks after the last event; the next one comes first.
    Run {
        limit: u64,
        to_event: bool,
    },
}

/// What an event counts as work, in ticks.
pub const EVENT_WORK: u64 = 64;
/// So many ticks are run at once: a few milliseconds.
const SLICE: u64 = 1 << 20;
/// Cycles between two looks for a command, and between two words about how far it is.
const LOOK: u64 = 4_000_000;
const TELL: u64 = 1_200_000_000;

fn cycles() -> u64 {
    // SAFETY: reads the time-stamp counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

impl Worker {
    pub(super) fn here(&self) -> Position {
        Position {
            event: self.reader.position(),
            ticks: self.machine.since(),
            steps: self.steps.unwrap_or(u64::MAX),
        }
    }

    pub(super) fn work(&self) -> u64 {
        self.machine.all_ticks() + EVENT_WORK * self.reader.position()
    }

    /// Where it stands, and what comes next if that is due here.
    pub(super) fn at(&mut self) -> Done<At> {
        let next = self.next_here()?;
        let regs = self.machine.registers_now();
        Ok(At {
            event: self.reader.position(),
            ticks: self.machine.since(),
            steps: self.steps,
            pc: regs.rip,
            sp: regs.gpr[RSP],
            thread: self.machine.current,
            work: self.work(),
            next,
        })
    }

    fn next_here(&mut self) -> Done<Option<Next>> {
        if self.astray.is_some() {
            return Ok(None);
        }
        if !self.looks_due()? {
            return Ok(None);
        }
        if self.at_limit() {
            return Ok(Some(Next::Diverges));
        }
        let Some(Record::Event(event)) = self.reader.peek()? else {
            return Ok(Some(Next::CutOff));
        };
        Ok(Some(match *event {
            Event::Call(call) => Next::Call { nr: call.nr },
            Event::Signal { signo, cause, .. } => Next::Signal {
                signo,
                fault: cause == Cause::Fault,
            },
            Event::Switched { to, .. } => Next::Switch { to },
            Event::Exited { status, .. } => Next::Exit { status },
            Event::Killed { signo, cause, .. } => Next::Killed {
                signo,
                fault: cause == Cause::Fault,
            },
            Event::Exec { .. } => Next::Exec,
            Event::Forked { pid, .. } => Next::Fork { pid },
            _ => Next::Other,
        }))
    }

    pub(super) fn stopped(&mut self, why: Why) -> Done<Stopped> {
        Ok(Stopped {
            why,
            at: self.at()?,
            last: None,
        })
    }

    /// Goes to the next event, does what it says, and applies its effects.
    pub(super) fn apply(&mut self) -> Done {
        let Some(Record::Event(event)) = self.reader.peek()? else {
            return Err(Halt::Unreadable("an effect without an event".into()));
        };
        let at = self.machine.gs.regs.rip;
        self.machine.trace_thread();
        let waits = self.machine.threads.get(&self.machine.current);
        let waited = waits.and_then(|thread| thread.waits).map(|call| call.nr);
        self.came_by = stop_behind(event, waited);
        self.machine.event(event)?;
        self.reader.next()?;
        while let Some(effect) = self.reader.next_effect()? {
            self.machine.effect(&effect)?;
            if let Effect::Memory { addr, bytes } = effect
                && self.wanted.any_access()
            {
                let seen = self.wanted.written(addr, bytes.len() as u64);
                self.kernel_wrote = self.kernel_wrote.or(seen);
            }
            if let Effect::Map(bytes) = effect
                && let Some(renewed) = &mut self.renewed
            {
                renewed.extend(renewed_by(bytes));
            }
        }
        self.steps = Some(0);
        self.whole = self.reader.position();
        self.trace_event(at);
        self.told = self.whole;
        Ok(())
    }

    /// Passes events that do nothing by themselves and are due here, so that a state has one position.
    pub(super) fn pass_silent(&mut self) -> Done {
        while self.is_silent_next()? {
            let (told, came_by) = (self.told, self.came_by);
            let moved = self.machine.since() != 0 || self.steps != Some(0);
            self.apply()?;
            if !moved {
                self.told = told;
                self.came_by = came_by;
            }
        }
        Ok(())
    }

    pub(super) fn is_silent_next(&mut self) -> Done<bool> {
        if self.at_limit() {
            return Ok(false);
        }
        let Some(Record::Event(event)) = self.reader.peek()? else {
            return Ok(false);
        };
        Ok(match event {
            Event::Time(_) | Event::Note(_) | Event::Deadlock(_) | Event::Values(_) => true,
            Event::Check { .. } => self.machine.is_due(event),
            // Nobody runs: the thread that did has ended.
            Event::Switched { .. } => !self.machine.threads.contains_key(&self.machine.current),
            _ => false,
        })
    }

    /// Whether the next event is the stream's end: it isn't applied, so that the program's last state
    /// can be looked at.
    fn is_last(&mut self) -> Done<bool> {
        if self.at_limit() {
            return Ok(true);
        }
        let at = self.reader.position();
        match self.reader.peek()? {
            Some(Record::Event(
                Event::Exited { .. } | Event::Killed { .. } | Event::Exec { .. },
            )) => {}
            Some(_) => return Ok(false),
            None => return Ok(true),
        }
        if let Some((number, last)) = self.last
            && number == at
        {
            return Ok(last);
        }
        // What looks like the end may be a failed exec, or the death of a vfork's child.
        let mut ahead = self.reader.clone();
        ahead.next()?;
        let last = loop {
            match ahead.next() {
                Ok(Some(Record::Effect(_))) => {}
                Ok(Some(Record::Event(event))) => match event {
                    Event::Check { .. }
                    | Event::Time(_)
                    | Event::Note(_)
                    | Event::Deadlock(_)
                    | Event::Values(_) => {}
                    _ => break false,
                },
                Ok(None) | Err(_) => break true,
            }
        };
        self.last = Some((at, last));
        Ok(last)
    }

    /// One instruction, or the event that is next.
    pub(super) fn step(&mut self) -> Done<Stopped> {
        self.pass_silent()?;
        let why = match self.step_any()? {
            true => Why::Goal,
            false => Why::End,
        };
        self.stopped(why)
    }

    /// False at the stream's end.
    fn step_any(&mut self) -> Done<bool> {
        if self.single()? == Stepped::Due {
            if self.is_last()? {
                return Ok(false);
            }
            self.apply()?;
        }
        self.pass_silent()?;
        Ok(true)
    }

    pub(super) fn advance(&mut self, goal: Goal, take: Take) -> Done<Stopped> {
        self.pass_silent()?;
        if self.lies_behind(goal) {
            return self.stopped(Why::Missed);
        }
        self.looked.told = cycles();
        match take {
            Take::None => self.go(goal),
            Take::First | Take::Last => self.search(goal, take),
        }
    }

    fn go(&mut self, goal: Goal) -> Done<Stopped> {
        self.instrument(false);
        loop {
            if self.is_reached(goal) {
                return self.stopped(Why::Goal);
            }
            if self.shall_stop() {
                return self.stopped(Why::Interrupted);
            }
            if let Some(why) = self.towards(goal)? {
                return self.stopped(why);
            }
            self.pass_silent()?;
        }
    }

    /// Whether the goal can't be reached by going forward.
    pub(super) fn lies_behind(&self, goal: Goal) -> bool {
        let here = self.here();
        match goal {
            Goal::Position(goal) => {
                // Positions between events that do nothing are one and the same.
                let same = here.ticks == 0
                    && here.steps == 0
                    && goal == Position::after(goal.event)
                    && goal.event >= self.told;
                goal < here && !same
            }
            Goal::Mark(mark) => (mark.event, mark.ticks) < (here.event, here.ticks),
            Goal::Work(_) | Goal::End => false,
        }
    }

    pub(super) fn is_reached(&self, goal: Goal) -> bool {
        match goal {
            Goal::Position(goal) => self.here() >= goal,
            Goal::Work(work) => self.work() >= work,
            Goal::Mark(mark) => self.mark() == mark,
            Goal::End => false,
        }
    }

    pub(super) fn mark(&self) -> Mark {
        let (pc, sp) = self.machine.place_now();
        Mark {
            event: self.reader.position(),
            ticks: self.machine.since(),
            pc,
            sp,
        }
    }

    /// How to go on to a goal that isn't reached.
    pub(super) fn leg(&mut self, goal: Goal) -> Done<Leg> {
        let last = self.is_last()?;
        let (here, work_here) = (self.here(), self.work());
        let (blocked, at_limit) = (self.is_blocked(), self.at_limit());
        let Some(Record::Event(event)) = ahead(&mut self.reader, &self.limit)? else {
            return Ok(Leg::Over(Why::End));
        };
        let mut place = place_of(event).ticks();
        if let Some(limit) = self.limit
            && at_limit
        {
            place = place.min(limit.ticks);
        }
        let due = blocked || self.machine.is_due(event);
        // Ticks, counted from the last event, to stop at, if that is before the next event.
        let mut wanted = match goal {
            Goal::Position(Position { event, ticks, .. })
            | Goal::Mark(Mark { event, ticks, .. }) => (event <= here.event).then_some(ticks),
            Goal::Work(work) => Some(here.ticks + (work - work_here)),
            Goal::End => None,
        };
        let is_here = matches!(goal, Goal::Position(_) | Goal::Mark(_)) && wanted.is_some();
        if is_here && (due || wanted < Some(here.ticks)) {
            return Ok(Leg::Over(match due && last {
                true => Why::End,
                false => Why::Missed,
            }));
        }
        if last {
            wanted = Some(wanted.map_or(place, |wanted| wanted.min(place)));
        }
        let careful = wanted.unwrap_or(u64::MAX);
        Ok(if due && last {
            Leg::Over(Why::End)
        } else if due {
            Leg::Event
        } else if here.ticks >= careful || self.machine.is_stepping(event) {
            Leg::Single
        } else {
            let limit = careful.min(here.ticks + SLICE);
            Leg::Run {
                limit,
                to_event: place < limit,
            }
        })
    }

    /// Some way in the direction of the goal, which isn't reached; why there is no more to go.
    fn towards(&mut self, goal: Goal) -> Done<Option<Why>> {
        match self.leg(goal)? {
            Leg::Over(why) => return Ok(Some(why)),
            Leg::Event | Leg::Run { to_event: true, .. } => self.apply()?,
            Leg::Single => drop(self.single()?),
            Leg::Run { limit, .. } => self.run_on(limit)?,
        }
        Ok(None)
    }

    /// Runs, at most to `limit` ticks after the last event.
    fn run_on(&mut self, limit: u64) -> Done {
        if let Some(Record::Event(event)) = ahead(&mut self.reader, &self.limit)? {
            let came = self.machine.approach(event, limit)?;
            self.steps = (came == Came::Limit).then_some(0);
        }
        Ok(())
    }

    /// Looks for a command now and then, and tells how far it is.
    pub(super) fn shall_stop(&mut self) -> bool {
        let now = cycles();
        if now.wrapping_sub(self.looked.at) < LOOK {
            return false;
        }
        self.looked.at = now;
        if now.wrapping_sub(self.looked.told) > TELL {
            self.looked.told = now;
            let work = self.work();
            self.channel.send(&Reply::Progress { work });
        }
        self.interrupted()
    }
}

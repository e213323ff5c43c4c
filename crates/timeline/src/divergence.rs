//! A stream whose replay diverges from the recording. In: a worker's word that it does. Out: a timeline that ends
//! there, and both sides: what agreed last, and where the replay stands when it doesn't any more.

use clew_engine::replay::worker::protocol::{Command, Diverged, Goal, Mark};
use clew_symbols::Stack;

use crate::program::Program;
use crate::timeline::Timeline;
use crate::worker::Worker;
use crate::{Error, Position, Registers, Result, Target, Thread};

/// A thread of the program, somewhere.
#[derive(Clone, Debug)]
pub struct Scene {
    pub position: Position,
    pub thread: Thread,
    pub registers: Registers,
    pub stack: Stack,
}

/// A divergence, seen from both sides.
#[derive(Clone, Debug)]
pub struct Sides {
    pub divergence: Diverged,
    /// Behind the last event that agreed.
    pub agreed: Scene,
    /// Where the replay stands when it does something else.
    pub found: Scene,
}

impl Timeline {
    /// Where the replay stops being what was recorded, as far as anybody has come there: the timeline ends before.
    pub fn divergence(&self) -> Option<&Diverged> {
        self.divergence.as_deref()
    }

    /// Goes to where the replay diverges, and looks around on both sides; none if it doesn't.
    pub fn sides(&mut self, program: &mut Program) -> Result<Option<Sides>> {
        self.seek(Target::End)?;
        let Some(divergence) = self.divergence().cloned() else {
            return Ok(None);
        };
        self.go_where_noticed(&divergence);
        let found = self.scene(program)?;
        let agreed = Position::after(divergence.event).max(self.start());
        self.seek(Target::Position(agreed))?;
        let agreed = self.scene(program)?;
        Ok(Some(Sides {
            divergence,
            agreed,
            found,
        }))
    }

    /// A replay in single steps may come further than one that runs. Where that one was, if it is on the way.
    fn go_where_noticed(&mut self, divergence: &Diverged) {
        let Some(ticks) = divergence.ticks else {
            return;
        };
        let mark = Mark {
            event: divergence.event,
            ticks,
            pc: divergence.pc,
            sp: divergence.sp,
        };
        let is_there = |worker: &Worker| (worker.at.pc, worker.at.sp) == (mark.pc, mark.sp);
        match self.worker_at(Goal::Mark(mark)) {
            Ok(worker) if is_there(&worker) => self.settle(worker),
            _ => {}
        }
    }

    fn scene(&mut self, program: &mut Program) -> Result<Scene> {
        let number = self.at().thread;
        let mut threads = self.threads()?.into_iter();
        let thread = threads.find(|thread| thread.number == number);
        Ok(Scene {
            position: self.position()?,
            thread: thread.ok_or(Error::Lost)?,
            registers: self.registers(number)?.ok_or(Error::Lost)?,
            stack: program.stack(self, number)?,
        })
    }

    /// Does something. If a worker finds on its way that the replay diverges, the timeline ends there from now on,
    /// and it is done once more.
    pub(crate) fn up_to_divergence<T>(
        &mut self,
        mut act: impl FnMut(&mut Timeline) -> Result<T>,
    ) -> Result<T> {
        loop {
            self.hear_of_divergence();
            match act(self) {
                Err(Error::Diverged(found)) if self.is_news(&found) => {
                    self.snapshots.hold().end_at(found);
                }
                done => return done,
            }
        }
    }

    /// Each time it is an earlier place, or no news: this comes to an end.
    fn is_news(&self, found: &Diverged) -> bool {
        let known = self.divergence.as_deref();
        found.stream == self.stream() && known.is_none_or(|known| is_before(found, known))
    }

    /// Whatever a timeline of this stream has found counts for all of them.
    fn hear_of_divergence(&mut self) {
        let found = self.snapshots.tell(|all| all.divergence().cloned());
        let Some(found) = found.filter(|found| self.is_news(found)) else {
            return;
        };
        // One that is dead is noticed when it is needed.
        if let Some(here) = &mut self.here {
            let _ = here.send(&Command::Limit(found.limit()));
        }
        self.divergence = Some(Box::new(found));
        self.end = None;
    }
}

pub(crate) fn is_before(one: &Diverged, other: &Diverged) -> bool {
    let place = |diverged: &Diverged| (diverged.event, diverged.limit().ticks);
    place(one) < place(other)
}

//! Vector clocks: how much of each thread's life happened before something.

use clew_recording::event::ThreadId;

/// For each thread a time; those that aren't there have 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock(Vec<u32>);

impl Clock {
    pub fn of(&self, thread: ThreadId) -> u32 {
        self.0.get(thread as usize).copied().unwrap_or(0)
    }

    pub fn set(&mut self, thread: ThreadId, time: u32) {
        let at = thread as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] = time;
    }

    /// The next moment of a thread's own.
    pub fn tick(&mut self, thread: ThreadId) {
        let next = self.of(thread).saturating_add(1);
        self.set(thread, next);
    }

    /// Also after all that the other is after.
    pub fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}

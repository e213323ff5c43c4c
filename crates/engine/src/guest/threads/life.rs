//! Where in its own life a thread is. In: its ticks, calls and single steps. Out: a point that a schedule can name.

use clew_recording::script::Point;

#[derive(Clone, Copy, Debug, Default)]
pub struct Life {
    /// Its ticks when it began: a forked child has those of its parent.
    born: u64,
    /// At how many ticks the calls and steps were made.
    tick: u64,
    calls: u32,
    /// Across its turns, since the last of these calls.
    steps: u32,
}

impl Life {
    /// It begins now, with so many ticks.
    pub fn begin(&mut self, ticks: u64) {
        *self = Life {
            born: ticks,
            tick: ticks,
            ..Life::default()
        };
    }

    fn at(&mut self, ticks: u64) {
        if self.tick != ticks {
            (self.tick, self.calls, self.steps) = (ticks, 0, 0);
        }
    }

    pub fn call(&mut self, ticks: u64) {
        self.at(ticks);
        self.calls = self.calls.saturating_add(1);
        self.steps = 0;
    }

    /// A single step began at `before` ticks and ended at `after`.
    pub fn step(&mut self, before: u64, after: u64) {
        self.at(before);
        self.steps = self.steps.saturating_add(1);
        self.at(after);
    }

    pub fn point(&self, ticks: u64) -> Point {
        let mut now = *self;
        now.at(ticks);
        Point {
            ticks: ticks.saturating_sub(now.born),
            calls: now.calls,
            steps: now.steps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(ticks: u64, calls: u32, steps: u32) -> Point {
        Point {
            ticks,
            calls,
            steps,
        }
    }

    #[test]
    fn calls_and_steps_are_counted_from_the_last_tick() {
        let mut life = Life::default();
        life.call(0);
        assert_eq!(life.point(0), point(0, 1, 0));
        (0..3).for_each(|_| life.step(9, 9));
        assert_eq!(life.point(9), point(9, 0, 3));
        life.call(9);
        life.step(9, 9);
        assert_eq!(life.point(9), point(9, 1, 1));
        life.step(9, 10);
        assert_eq!(life.point(10), point(10, 0, 0));
        life.call(10);
        assert_eq!(life.point(12), point(12, 0, 0));
    }

    #[test]
    fn a_child_begins_anew() {
        let mut life = Life::default();
        life.call(70);
        life.begin(70);
        assert_eq!(life.point(70), point(0, 0, 0));
        life.call(75);
        assert_eq!(life.point(75), point(5, 1, 0));
    }
}

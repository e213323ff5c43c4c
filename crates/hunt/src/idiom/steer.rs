//! How a run is led to an order of accesses. In: a profile, who is held where, and until what has happened. Out: a schedule.
//!
//! Threads follow each other as in the profile up to where one of them is held. From there on they go on as in the profile,
//! only without that thread, until another one has come where it should; then the one that was held goes on. A thread's turn
//! ends where it is about to touch shared memory out of turn, so that threads are made and woken as early as they can be.

use clew_recording::event::ThreadId;
use clew_recording::script::{End, Script, Turn};

use super::profile::{Access, Profile};

/// Before or after an access of the profile, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub access: usize,
    pub after: bool,
}

impl Place {
    pub fn before(access: usize) -> Place {
        Place {
            access,
            after: false,
        }
    }

    pub fn after(access: usize) -> Place {
        Place {
            access,
            after: true,
        }
    }
}

/// Who goes on when the other one has come where it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// The thread that was held.
    Held,
    /// The other one, and everybody else, as far as they can.
    Others,
    /// The thread that was held, to there; then the other one.
    HeldTo(Place),
}

/// An order of accesses to be brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Steer {
    pub hold: Place,
    /// Of another thread, and behind it in the profile.
    pub until: Place,
    pub then: Then,
}

/// A profile, and what schedules need to know of it.
pub struct Course {
    profile: Profile,
    /// For each access the next one of the same thread.
    next: Vec<Option<usize>>,
    /// Accesses of one thread that follow each other, by the numbers of their last ones.
    runs: Vec<usize>,
    threads: Vec<ThreadId>,
}

/// Longer schedules follow a profile that switches all the time; they aren't worth their cost.
const MOST_TURNS: usize = 20_000;

impl Course {
    pub fn new(profile: Profile) -> Course {
        let accesses = &profile.accesses;
        let mut next = vec![None; accesses.len()];
        let mut last = std::collections::BTreeMap::new();
        for (n, access) in accesses.iter().enumerate().rev() {
            next[n] = last.insert(access.thread, n);
        }
        let ends = |&n: &usize| match accesses.get(n + 1) {
            Some(next) => next.thread != accesses[n].thread,
            None => true,
        };
        let runs = (0..accesses.len()).filter(ends).collect();
        Course {
            profile,
            next,
            runs,
            threads: last.into_keys().collect(),
        }
    }

    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    fn access(&self, n: usize) -> &Access {
        &self.profile.accesses[n]
    }

    /// Where a turn ends that leads to that place.
    pub fn end(&self, place: Place) -> End {
        let access = self.access(place.access);
        End::Near {
            from: access.point,
            pc: access.pc,
            after: place.after,
        }
    }

    /// A turn that leads its thread to that place.
    pub fn turn(&self, place: Place) -> Turn {
        Turn {
            thread: self.access(place.access).thread,
            end: self.end(place),
        }
    }

    /// Turns as in the profile over these accesses, without those of `held`.
    fn follow(
        &self,
        turns: &mut Vec<Turn>,
        accesses: std::ops::Range<usize>,
        held: Option<ThreadId>,
    ) {
        if accesses.is_empty() {
            return;
        }
        let last = accesses.end - 1;
        let run_of = |access| self.runs.partition_point(|&end| end < access);
        // The last run may go on behind the range.
        let ends = self.runs[run_of(accesses.start)..=run_of(last)].iter();
        let mut ends = ends
            .map(|&end| end.min(last))
            .filter(|&n| held != Some(self.access(n).thread))
            .peekable();
        while let Some(n) = ends.next() {
            let thread = self.access(n).thread;
            let goes_on = |&next: &usize| self.access(next).thread == thread;
            if ends.peek().is_some_and(goes_on) {
                continue;
            }
            let end = match self.next[n] {
                Some(next) => self.end(Place::before(next)),
                None => End::Free,
            };
            turns.push(Turn { thread, end });
        }
    }

    /// Turns as in the profile up to an access, and these then; None if that would be too long.
    pub fn led(&self, access: usize, then: &[Turn]) -> Option<Script> {
        let mut turns = Vec::new();
        self.follow(&mut turns, 0..access, None);
        // The next turn ends where it says and nowhere before.
        let next = then.first().map(|turn| turn.thread);
        if turns.last().map(|turn| turn.thread) == next {
            turns.pop();
        }
        turns.extend_from_slice(then);
        (turns.len() <= MOST_TURNS).then(|| Script {
            process: self.profile.process.clone(),
            turns,
        })
    }

    /// The schedule; None if it would be too long, or isn't one.
    pub fn script(&self, steer: &Steer) -> Option<Script> {
        let Steer { hold, until, then } = *steer;
        let held = self.access(hold.access).thread;
        let other = self.access(until.access).thread;
        if held == other || hold.access > until.access {
            return None;
        }
        let free = |thread| Turn {
            thread,
            end: End::Free,
        };
        let mut turns = Vec::new();
        self.follow(&mut turns, 0..hold.access, None);
        // The turn of the thread that is held ends there and nowhere before.
        if turns.last().is_some_and(|turn| turn.thread == held) {
            turns.pop();
        }
        turns.push(self.turn(hold));
        self.follow(&mut turns, hold.access + 1..until.access, Some(held));
        if turns.last().is_some_and(|turn| turn.thread == other) {
            turns.pop();
        }
        turns.push(self.turn(until));
        match then {
            Then::Held => turns.extend([free(held), free(other)]),
            Then::Others => {
                turns.push(free(other));
                let rest = self.threads.iter().copied();
                turns.extend(rest.filter(|&t| t != held && t != other).map(free));
                turns.extend([free(other), free(held)]);
            }
            Then::HeldTo(place) => turns.extend([self.turn(place), free(other), free(held)]),
        }
        (turns.len() <= MOST_TURNS).then(|| Script {
            process: self.profile.process.clone(),
            turns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idiom::testing::Story;

    fn text(story: &Story, steer: Steer) -> String {
        let script = Course::new(story.profile()).script(&steer).unwrap();
        let lines = script.turns.iter().map(Turn::to_string);
        lines.collect::<Vec<_>>().join("; ")
    }

    /// 1 does all its work, then 2; 0 makes both and waits.
    fn one_by_one() -> Story {
        let mut story = Story::default();
        story
            .write(0, 0x10, 0x7000)
            .made(1, 0)
            .write(0, 0x11, 0x7000);
        for thread in [1, 2] {
            story.read(thread, 0x20, 0x9000);
            story.write(thread, 0x30, 0x9000);
        }
        story.read(0, 0x12, 0x9000);
        story
    }

    #[test]
    fn held_until_another_has_come_by() {
        let story = one_by_one();
        let steer = |then| Steer {
            hold: Place::before(3),
            until: Place::after(4),
            then,
        };
        // 0 goes on until it touches what is shared again: it makes 2 meanwhile.
        let begin = "0 before 0x12 from 30; 1 before 0x30 from 20; 2 after 0x20 from 10";
        assert_eq!(
            text(&story, steer(Then::Held)),
            format!("{begin}; 1 free; 2 free")
        );
        assert_eq!(
            text(&story, steer(Then::Others)),
            format!("{begin}; 2 free; 0 free; 2 free; 1 free")
        );
        assert_eq!(
            text(&story, steer(Then::HeldTo(Place::after(3)))),
            format!("{begin}; 1 after 0x30 from 20; 2 free; 1 free")
        );
    }

    #[test]
    fn others_go_on_as_they_did() {
        let mut story = Story::default();
        story.read(1, 0x10, 0x9000).write(3, 0x40, 0x9000);
        story.write(1, 0x20, 0x9000).write(2, 0x30, 0x9000);
        story.write(3, 0x41, 0x9000).write(1, 0x21, 0x9000);
        story.write(2, 0x31, 0x9000);
        let steer = Steer {
            hold: Place::after(0),
            until: Place::after(6),
            then: Then::Held,
        };
        assert_eq!(
            text(&story, steer),
            "1 after 0x10 from 10; 3 before 0x41 from 20; 2 before 0x31 from 20; 3 free; \
             2 after 0x31 from 20; 1 free; 2 free"
        );
    }

    #[test]
    fn led_to_an_access_and_on() {
        let course = Course::new(one_by_one().profile());
        let free = |thread| Turn {
            thread,
            end: End::Free,
        };
        let then = [course.turn(Place::after(2)), free(2), free(1)];
        let script = course.led(2, &then).unwrap();
        let lines: Vec<String> = script.turns.iter().map(Turn::to_string).collect();
        let expected = "0 before 0x12 from 30; 1 after 0x20 from 10; 2 free; 1 free";
        assert_eq!(lines.join("; "), expected);
    }

    #[test]
    fn what_is_no_order_gives_no_schedule() {
        let course = Course::new(one_by_one().profile());
        for (hold, until) in [(2, 3), (4, 2)] {
            let steer = Steer {
                hold: Place::before(hold),
                until: Place::after(until),
                then: Then::Held,
            };
            assert_eq!(course.script(&steer), None);
        }
    }
}

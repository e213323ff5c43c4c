//! Following a schedule that is written down. In: its turns, and where in their lives the threads are. Out: who is next,
//! and how far its turn goes.
//!
//! The program may go another way than when the schedule was made, so nothing here is an error: a turn of a thread that
//! can't run waits for its time, one whose end is behind the thread is dropped, and when no turn is left whose thread can
//! run, threads run as they come.

use std::collections::VecDeque;

use clew_recording::event::ThreadId;
use clew_recording::script::{End, Point, Script};
use rustc_hash::FxHashMap;

use super::{PATIENCE, Standings, TURNS_IN_A_ROW};
use crate::guest::threads::aim::{Aim, Ending};

/// A turn that looks for an instruction gives up after so many steps; more than 4096 a replay wouldn't follow.
const MOST_STEPS: u32 = 4000;
/// How long is waited for a thread that the kernel makes a call for, because its turn is next: once, and in all, in
/// nanoseconds. It may be waiting for threads whose turns come later.
const WAITING: u64 = 20_000_000;
pub const MOST_WAITING: u64 = 500_000_000;

/// What is to be done for the turn's next part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Nothing in particular: the thread runs until it waits.
    Free,
    /// It runs for so many ticks.
    Ticks(u64),
    /// It runs to its next call or tick.
    Call,
    Steps(Ending),
}

/// The turn under way.
#[derive(Clone, Copy, Debug)]
struct Under {
    end: End,
    /// The point from which an instruction is looked for was reached.
    looking: bool,
    /// Steps left for that.
    steps: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Follower {
    /// The turns to come of each thread, with their places in the schedule.
    lists: FxHashMap<ThreadId, VecDeque<(usize, End)>>,
    /// None: whoever runs has no turn in the schedule now.
    turn: Option<Under>,
    /// The turn is over, wherever the thread is.
    over: bool,
    /// The current thread has nothing to do before others were there.
    gave_way: bool,
    /// How often the thread was looked at since its turn began.
    looks: u32,
    /// The turn that was waited for, and for how long; and for how long in all.
    awaited: (usize, u64),
    pub waited: u64,
}

impl Follower {
    pub fn new(script: &Script) -> Follower {
        let mut follower = Follower::default();
        for (place, turn) in script.turns.iter().enumerate() {
            let list = follower.lists.entry(turn.thread).or_default();
            list.push_back((place, turn.end));
        }
        follower
    }

    /// The place in the schedule of a thread's next turn.
    pub fn next_of(&mut self, (thread, at): (ThreadId, Point)) -> Option<usize> {
        let list = self.lists.get_mut(&thread)?;
        while list.front().is_some_and(|&(_, end)| is_behind(end, at)) {
            list.pop_front();
        }
        list.front().map(|&(place, _)| place)
    }

    fn is_over(&self, at: Point) -> bool {
        let reached = |turn: &Under| matches!(turn.end, End::At(end) if end <= at);
        self.over || self.turn.as_ref().is_some_and(reached)
    }

    /// Whether the current thread's turn is in the schedule.
    pub fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Whether nobody is to be chosen as long as the current thread, which is at that point, can run.
    pub fn goes_on(&self, at: Point) -> bool {
        self.turn.is_some() && !self.is_over(at)
    }

    /// What the current thread, which is at that point, does next.
    pub fn goal(&mut self, at: Point) -> Goal {
        let Some(turn) = &mut self.turn else {
            return Goal::Free;
        };
        match turn.end {
            End::Free => Goal::Free,
            End::At(end) => towards(end, at),
            End::Near { from, pc, after } => {
                turn.looking |= at >= from;
                if !turn.looking {
                    return towards(from, at);
                }
                Goal::Steps(Ending {
                    aim: Aim::Pc { pc, after },
                    most: turn.steps,
                })
            }
        }
    }

    /// Whether that turn, the next, is worth waiting for.
    pub fn waits_for(&mut self, place: usize) -> bool {
        if self.awaited.0 != place {
            self.awaited = (place, 0);
        }
        self.awaited.1 < WAITING && self.waited < MOST_WAITING
    }

    /// For so long.
    pub fn has_waited(&mut self, nanoseconds: u64) {
        self.awaited.1 += nanoseconds;
        self.waited += nanoseconds;
    }

    /// Steps were taken for the goal; `arrived`: to the turn's end, or as far as there is any point.
    pub fn stepped(&mut self, steps: u32, arrived: bool) {
        self.over |= arrived;
        if let Some(turn) = &mut self.turn {
            turn.steps = turn.steps.saturating_sub(steps.max(1));
        }
    }

    /// The current thread spins. A turn with an end goes there all the same.
    pub fn gives_way(&mut self) {
        if self.turn.is_none_or(|turn| turn.end == End::Free) {
            self.yields();
        }
    }

    /// The current thread's turn is over as if it waited.
    pub fn yields(&mut self) {
        self.over = true;
        self.gave_way = true;
    }

    /// The current thread has run for long without an end in sight. It may be polling in ways that nobody recognises.
    pub fn looked_at(&mut self) {
        self.looks += 1;
        if self.looks >= TURNS_IN_A_ROW {
            self.gives_way();
        }
    }

    /// Whether the current thread must not go on before somebody is chosen.
    pub fn overdue(
        &mut self,
        current: (ThreadId, Point),
        mut others: impl Iterator<Item = (ThreadId, Point)>,
    ) -> bool {
        if self.turn.is_some() || self.over {
            return self.is_over(current.1);
        }
        self.next_of(current).is_some() || others.any(|other| self.next_of(other).is_some())
    }

    /// As [`super::Policy::next`].
    pub fn next(
        &mut self,
        queue: &mut VecDeque<usize>,
        current: Option<usize>,
        standings: &mut impl Standings,
    ) -> Option<usize> {
        let at = current.map(|slot| standings.whose(slot).1);
        if at.is_some_and(|at| self.goes_on(at)) {
            return None;
        }
        let turns = current.iter().chain(queue.iter());
        let turns = turns.filter_map(|&slot| Some((self.next_of(standings.whose(slot))?, slot)));
        if let Some((_, slot)) = turns.min() {
            self.begin(standings.whose(slot).0);
            let at = queue.iter().position(|&other| other == slot)?;
            return queue.remove(at);
        }
        if current.is_some() && !self.gave_way {
            self.begin_any();
            return None;
        }
        let oldest_first = self.gave_way;
        self.begin_any();
        let at = if oldest_first {
            0
        } else {
            any(queue, standings)
        };
        let slot = queue.remove(at);
        for &other in queue.iter() {
            standings.of(other).passed_over += 1;
        }
        slot.inspect(|&slot| standings.of(slot).passed_over = 0)
    }

    /// A turn that isn't in the schedule begins, or goes on.
    fn begin_any(&mut self) {
        if self.over || self.turn.is_some() {
            self.looks = 0;
        }
        (self.turn, self.over, self.gave_way) = (None, false, false);
    }

    /// The next turn of that thread begins.
    fn begin(&mut self, thread: ThreadId) {
        let list = self.lists.get_mut(&thread);
        let turn = list.and_then(VecDeque::pop_front);
        self.turn = turn.map(|(_, end)| Under {
            end,
            looking: false,
            steps: MOST_STEPS,
        });
        (self.over, self.gave_way, self.looks) = (false, false, 0);
    }
}

/// Where in the queue the thread is that goes on when the schedule says nothing: the one with the lowest number, unless
/// one has been left out for long.
fn any(queue: &VecDeque<usize>, standings: &mut impl Standings) -> usize {
    let mut waited = |at: &usize| standings.of(queue[*at]).passed_over >= PATIENCE;
    if let Some(at) = (0..queue.len()).find(|at| waited(at)) {
        return at;
    }
    let number = |at: &usize| standings.whose(queue[*at]).0;
    (0..queue.len()).min_by_key(number).unwrap_or(0)
}

/// Whether a thread at that point can't come to the turn's end any more. Of an instruction only the tick is known.
fn is_behind(end: End, at: Point) -> bool {
    match end {
        End::Free => false,
        End::At(end) => end <= at,
        End::Near { from, .. } => from.ticks < at.ticks,
    }
}

/// The way from one point to a later one.
fn towards(end: Point, at: Point) -> Goal {
    if at.ticks < end.ticks {
        Goal::Ticks(end.ticks - at.ticks)
    } else if at.calls < end.calls {
        Goal::Call
    } else {
        let most = end.steps.saturating_sub(at.steps).min(MOST_STEPS);
        Goal::Steps(Ending {
            aim: Aim::Steps,
            most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Standing;
    use super::*;

    /// Threads whose slots are their numbers.
    struct Bench {
        follower: Follower,
        points: Vec<Point>,
        standings: Vec<Standing>,
        current: Option<usize>,
        queue: VecDeque<usize>,
    }

    struct Threads<'a>(&'a mut Vec<Standing>, &'a [Point]);

    impl Standings for Threads<'_> {
        fn of(&mut self, slot: usize) -> &mut Standing {
            &mut self.0[slot]
        }
        fn whose(&self, slot: usize) -> (ThreadId, Point) {
            (slot as ThreadId, self.1[slot])
        }
    }

    impl Bench {
        /// Thread 0 runs; the others are runnable.
        fn new(turns: &str, threads: usize) -> Bench {
            let script: Script = format!("clew schedule 1\n{turns}").parse().unwrap();
            Bench {
                follower: Follower::new(&script),
                points: vec![Point::default(); threads],
                standings: vec![Standing::default(); threads],
                current: Some(0),
                queue: (1..threads).collect(),
            }
        }

        fn at(&mut self, thread: usize, point: &str) {
            self.points[thread] = point.parse().unwrap();
        }

        /// Chooses, as the scheduler does; who runs then.
        fn next(&mut self) -> Option<usize> {
            let mut threads = Threads(&mut self.standings, &self.points);
            let next = self
                .follower
                .next(&mut self.queue, self.current, &mut threads);
            if next.is_some() {
                self.queue.extend(self.current);
                self.current = next;
            }
            self.current
        }

        fn blocks(&mut self) -> Option<usize> {
            self.current = None;
            self.next()
        }

        fn overdue(&mut self) -> bool {
            let whose = |&slot: &usize| (slot as ThreadId, self.points[slot]);
            let current = whose(&self.current.unwrap());
            let others: Vec<_> = self.queue.iter().map(whose).collect();
            self.follower.overdue(current, others.into_iter())
        }

        fn goal(&mut self) -> Goal {
            let at = self.points[self.current.unwrap()];
            self.follower.goal(at)
        }
    }

    fn steps(aim: Aim, most: u32) -> Goal {
        Goal::Steps(Ending { aim, most })
    }

    #[test]
    fn turns_follow_each_other() {
        let mut bench = Bench::new("0 at 10\n2 at 5\n1 free\n0 free\n", 3);
        assert!(bench.overdue());
        assert_eq!(bench.next(), Some(0));
        bench.at(0, "9");
        // Whoever comes, the turn goes on.
        assert!(!bench.overdue());
        assert_eq!(bench.next(), Some(0));
        bench.at(0, "10");
        assert!(bench.overdue());
        assert_eq!(bench.next(), Some(2));
        bench.at(2, "5");
        assert_eq!(bench.next(), Some(1));
        bench.at(1, "700+3");
        assert_eq!(bench.next(), Some(1));
        assert_eq!(bench.blocks(), Some(0));
    }

    #[test]
    fn a_thread_that_waits_loses_its_turn_and_not_the_next() {
        let mut bench = Bench::new("0 at 10\n1 at 5\n0 at 20\n1 at 9\n", 2);
        assert_eq!(bench.next(), Some(0));
        bench.at(0, "3+1");
        assert_eq!(bench.blocks(), Some(1));
        bench.at(1, "5");
        // Thread 0 can't run yet.
        assert_eq!(bench.next(), Some(1));
        assert_eq!(bench.goal(), Goal::Ticks(4));
        bench.queue.push_back(0);
        bench.at(1, "9");
        assert_eq!(bench.next(), Some(0));
        assert_eq!(bench.goal(), Goal::Ticks(17));
    }

    #[test]
    fn ends_that_are_behind_are_dropped() {
        let mut bench = Bench::new("0 at 10\n1 at 3+0+2\n1 at 4\n0 at 11\n", 2);
        bench.at(0, "10");
        bench.at(1, "3+1");
        assert_eq!(bench.next(), Some(1));
        assert_eq!(bench.goal(), Goal::Ticks(1));
        bench.at(1, "4");
        assert_eq!(bench.next(), Some(0));
        assert_eq!(bench.goal(), Goal::Ticks(1));
    }

    #[test]
    fn the_way_to_a_point() {
        let mut bench = Bench::new("0 at 10+2+5\n", 2);
        bench.next();
        for (at, goal) in [
            ("0", Goal::Ticks(10)),
            ("7+3", Goal::Ticks(3)),
            ("10", Goal::Call),
            ("10+1+9", Goal::Call),
            ("10+2", steps(Aim::Steps, 5)),
            ("10+2+3", steps(Aim::Steps, 2)),
        ] {
            bench.at(0, at);
            assert_eq!(bench.goal(), goal, "{at}");
            assert!(!bench.overdue(), "{at}");
        }
        // It went another way.
        for at in ["10+2+5", "10+3", "11"] {
            bench.at(0, at);
            assert!(bench.overdue(), "{at}");
        }
    }

    #[test]
    fn the_way_to_an_instruction() {
        let mut bench = Bench::new(
            "0 after 0x40 from 10+0+1\n0 before 0x50 from 9\n1 free\n",
            2,
        );
        let aim = Aim::Pc {
            pc: 0x40,
            after: true,
        };
        bench.next();
        bench.at(0, "10");
        assert_eq!(bench.goal(), steps(Aim::Steps, 1));
        bench.at(0, "10+0+1");
        assert_eq!(bench.goal(), steps(aim, MOST_STEPS));
        // A call on the way; and it gives up in the end.
        bench.follower.stepped(100, false);
        bench.at(0, "11+1");
        assert_eq!(bench.goal(), steps(aim, MOST_STEPS - 100));
        assert!(!bench.overdue());
        bench.follower.stepped(MOST_STEPS - 100, true);
        assert!(bench.overdue());
        // The second of them is behind by now.
        assert_eq!(bench.next(), Some(1));
    }

    #[test]
    fn without_a_turn_whoever_runs_goes_on_and_the_lowest_is_next() {
        let mut bench = Bench::new("9 at 5\n", 4);
        assert!(!bench.overdue());
        assert_eq!(bench.next(), Some(0));
        bench.queue = [3, 1, 2].into();
        assert_eq!(bench.blocks(), Some(1));
        // Once a thread with a turn can run, it does.
        bench.points.resize(10, Point::default());
        bench.standings.resize(10, Standing::default());
        bench.queue.push_back(9);
        assert!(bench.overdue());
        assert_eq!(bench.next(), Some(9));
    }

    #[test]
    fn those_that_spin_let_everybody_run() {
        let mut bench = Bench::new("", 3);
        bench.next();
        let mut turn = |_| {
            bench.follower.gives_way();
            bench.next()
        };
        let order: Vec<_> = (0..4).map(&mut turn).collect();
        assert_eq!(order, [Some(1), Some(2), Some(0), Some(1)]);
        // And one that never waits at all gives way in the end.
        let looks = (1..).find(|_| {
            bench.follower.looked_at();
            bench.next() != Some(1)
        });
        assert_eq!(looks, Some(TURNS_IN_A_ROW));
    }

    #[test]
    fn those_that_wait_for_each_other_do_not_keep_the_rest_waiting() {
        let mut bench = Bench::new("", 3);
        // 0 and 1 wake each other for ever.
        let mut rounds = 0;
        while let Some(slot @ (0 | 1)) = bench.current {
            bench.queue.push_back(1 - slot);
            bench.queue.retain(|&other| other != slot);
            bench.blocks();
            rounds += 1;
        }
        assert_eq!(rounds, PATIENCE + 1);
    }

    #[test]
    fn only_turns_without_an_end_are_over_when_the_thread_spins() {
        let mut bench = Bench::new("0 at 10\n0 free\n0 at 20\n1 free\n", 2);
        bench.next();
        bench.follower.gives_way();
        assert!(!bench.overdue());
        bench.at(0, "10");
        assert_eq!(bench.next(), Some(0));
        assert_eq!(bench.goal(), Goal::Free);
        bench.follower.gives_way();
        assert_eq!(bench.next(), Some(0));
        assert_eq!(bench.goal(), Goal::Ticks(10));
        // A call that gives way is as good as one that waits.
        bench.follower.yields();
        assert!(bench.overdue());
        assert_eq!(bench.next(), Some(1));
    }

    #[test]
    fn waiting_for_the_outside_comes_to_an_end() {
        let mut follower = Follower::default();
        assert!(follower.waits_for(7));
        follower.has_waited(WAITING);
        assert!(!follower.waits_for(7));
        let turns = (8..).take_while(|&place| {
            let waits = follower.waits_for(place);
            follower.has_waited(WAITING);
            waits
        });
        assert_eq!(turns.count() as u64, MOST_WAITING / WAITING - 1);
    }
}

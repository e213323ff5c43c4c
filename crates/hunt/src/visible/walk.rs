//! Random walks over visible operations. In: the operations of each thread. Out: turns that bring one order of them about.
//!
//! Whether a thread can go on isn't known here: one that waits for a lock loses its turn, and whoever comes next in the schedule goes on.

use std::collections::BTreeMap;

use clew_recording::event::ThreadId;
use clew_recording::script::Turn;

use super::Kind;
use super::ops::Ops;
use crate::dice::Dice;
use crate::idiom::steer::Course;

pub fn walk(kind: Kind, course: &Course, dice: &mut Dice) -> Option<Vec<Turn>> {
    let ops = Ops::choose(course, dice)?;
    let mut chooser: Box<dyn Chooser> = match kind {
        Kind::Pos => Box::new(Pos::default()),
        Kind::Points => Box::new(Points::new(&ops, dice)),
        Kind::Delay => Box::new(Delay::new(&ops, dice)),
        _ => Box::new(Surw),
    };
    Some(turns(&ops, &order(&ops, chooser.as_mut(), dice)))
}

/// Who is next.
trait Chooser {
    /// One of `ready`, who each have made so many operations.
    fn next(
        &mut self,
        ops: &Ops,
        ready: &[ThreadId],
        done: &BTreeMap<ThreadId, usize>,
        dice: &mut Dice,
    ) -> usize;
}

/// The operations in the order in which they are made: whose, and which of its.
fn order(ops: &Ops, chooser: &mut dyn Chooser, dice: &mut Dice) -> Vec<(ThreadId, usize)> {
    let mut done: BTreeMap<ThreadId, usize> = ops.threads().iter().map(|&t| (t, 0)).collect();
    let mut order = Vec::with_capacity(ops.total());
    loop {
        let left = |thread: ThreadId| done[&thread] < ops.count(thread);
        let can =
            |&thread: &ThreadId| left(thread) && (done[&thread] > 0 || ops.is_born(thread, &done));
        let ready: Vec<ThreadId> = ops.threads().into_iter().filter(can).collect();
        if ready.is_empty() {
            return order;
        }
        let thread = ready[chooser.next(ops, &ready, &done, dice)];
        let op = done.entry(thread).or_default();
        order.push((thread, *op));
        *op += 1;
    }
}

fn turns(ops: &Ops, order: &[(ThreadId, usize)]) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    for &(thread, op) in order {
        if turns.last().is_some_and(|last| last.thread == thread) {
            turns.pop();
        }
        turns.push(ops.turn(thread, op));
    }
    turns
}

struct Surw;

impl Chooser for Surw {
    fn next(
        &mut self,
        ops: &Ops,
        ready: &[ThreadId],
        done: &BTreeMap<ThreadId, usize>,
        dice: &mut Dice,
    ) -> usize {
        let left = |thread: &ThreadId| ops.count(*thread) - done[thread];
        let mut at = dice.below(ready.iter().map(left).sum());
        for (n, thread) in ready.iter().enumerate() {
            if at < left(thread) {
                return n;
            }
            at -= left(thread);
        }
        0
    }
}

#[derive(Default)]
struct Pos {
    /// Of each thread's next operation.
    priorities: BTreeMap<ThreadId, u64>,
}

impl Chooser for Pos {
    fn next(
        &mut self,
        ops: &Ops,
        ready: &[ThreadId],
        done: &BTreeMap<ThreadId, usize>,
        dice: &mut Dice,
    ) -> usize {
        for &thread in ready {
            self.priorities
                .entry(thread)
                .or_insert_with(|| dice.number());
        }
        let highest = |n: &usize| self.priorities[&ready[*n]];
        let at = (0..ready.len()).max_by_key(highest).unwrap_or(0);
        self.priorities.remove(&ready[at]);
        if let Some(made) = ops.of(ready[at], done[&ready[at]]) {
            let made = ops.access(made);
            // Who conflicts with it draws again.
            self.priorities.retain(|thread, _| {
                let next = ops.of(*thread, done[thread]);
                next.is_none_or(|next| !ops.access(next).conflicts(made))
            });
        }
        at
    }
}

struct Points {
    priorities: BTreeMap<ThreadId, u64>,
    /// Operations, counted over all threads, at which the one who runs becomes the last; the next one last.
    changes: Vec<usize>,
    made: usize,
}

impl Points {
    fn new(ops: &Ops, dice: &mut Dice) -> Points {
        const HIGH: u64 = 1 << 32;
        let depth = 1 + dice.below(4);
        let mut changes: Vec<usize> = (1..depth).map(|_| dice.below(ops.total())).collect();
        changes.sort_unstable_by(|a, b| b.cmp(a));
        let priority = |thread| (thread, HIGH + (dice.number() >> 32));
        Points {
            priorities: ops.threads().into_iter().map(priority).collect(),
            changes,
            made: 0,
        }
    }
}

impl Chooser for Points {
    fn next(
        &mut self,
        _: &Ops,
        ready: &[ThreadId],
        _: &BTreeMap<ThreadId, usize>,
        _: &mut Dice,
    ) -> usize {
        let best = |priorities: &BTreeMap<ThreadId, u64>| {
            (0..ready.len()).max_by_key(|&n| priorities[&ready[n]])
        };
        let mut at = best(&self.priorities).unwrap_or(0);
        while self.changes.last().is_some_and(|&point| point <= self.made) {
            self.changes.pop();
            self.priorities.insert(ready[at], self.changes.len() as u64);
            at = best(&self.priorities).unwrap_or(0);
        }
        self.made += 1;
        at
    }
}

struct Delay {
    /// Whose turn it is, first.
    line: Vec<ThreadId>,
    delays: Vec<usize>,
    made: usize,
}

impl Delay {
    fn new(ops: &Ops, dice: &mut Dice) -> Delay {
        let count = 1 + dice.below(3);
        Delay {
            line: ops.threads(),
            delays: (0..count).map(|_| dice.below(ops.total())).collect(),
            made: 0,
        }
    }
}

impl Chooser for Delay {
    fn next(
        &mut self,
        _: &Ops,
        ready: &[ThreadId],
        _: &BTreeMap<ThreadId, usize>,
        _: &mut Dice,
    ) -> usize {
        let first = |line: &[ThreadId]| line.iter().position(|thread| ready.contains(thread));
        for _ in self.delays.iter().filter(|&&at| at == self.made) {
            if let Some(at) = first(&self.line) {
                let thread = self.line.remove(at);
                self.line.push(thread);
            }
        }
        self.made += 1;
        let thread = first(&self.line).map(|at| self.line[at]);
        let at = ready.iter().position(|&other| Some(other) == thread);
        at.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idiom::testing::Story;
    use std::collections::BTreeSet;

    fn two_threads(each: usize) -> Course {
        let mut story = Story::default();
        story.made(1, 0).made(2, 0);
        for thread in [1, 2] {
            for n in 0..each {
                story.write(thread, 0x20 + n as u64, 0x9000);
            }
        }
        Course::new(story.profile())
    }

    fn orders(kind: Kind, course: &Course, seeds: u64) -> Vec<String> {
        let text = |seed| {
            let turns = walk(kind, course, &mut Dice::new(seed)).unwrap();
            let lines: Vec<String> = turns.iter().map(Turn::to_string).collect();
            lines.join("; ")
        };
        (0..seeds).map(text).collect()
    }

    #[test]
    fn all_orders_of_a_few_operations_come() {
        let course = two_threads(2);
        for kind in [Kind::Surw, Kind::Pos] {
            let all: BTreeSet<String> = orders(kind, &course, 2000).into_iter().collect();
            // Two beginnings and two operations each, whatever the maker does.
            assert!(all.len() >= 20, "{kind:?}: {}", all.len());
        }
        assert_eq!(
            orders(Kind::Surw, &course, 9),
            orders(Kind::Surw, &course, 9)
        );
    }

    #[test]
    fn a_thread_begins_after_its_maker() {
        let course = two_threads(3);
        for kind in [Kind::Surw, Kind::Pos, Kind::Points, Kind::Delay] {
            for order in orders(kind, &course, 50) {
                assert!(order.starts_with("0 free"), "{kind:?}: {order}");
            }
        }
    }

    #[test]
    fn uniform_over_interleavings() {
        // The long thread's operations come first about as often as by chance: a walk that tosses a coin at each step
        // would nearly never see that.
        let mut story = Story::default();
        story.made(1, 0).made(2, 0);
        for n in 0..20 {
            story.write(1, 0x20 + n, 0x9000);
        }
        story.write(2, 0x60, 0x9000);
        let course = Course::new(story.profile());
        let all = orders(Kind::Surw, &course, 3000);
        let last = all.iter().filter(|order| order.ends_with("2 free")).count();
        // The short thread has two operations of 23: its second is the last in about one of eleven.
        assert!((150..600).contains(&last), "{last}");
    }

    #[test]
    fn few_switches_with_few_points() {
        let course = two_threads(10);
        for order in orders(Kind::Delay, &course, 50) {
            assert!(order.split("; ").count() <= 3 + 2 * 3, "{order}");
        }
    }
}

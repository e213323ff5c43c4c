//! Delta debugging of a schedule. In: turns that make a program fail, and somebody who tries others. Out: turns with fewer
//! preemptions, none of which can be left out.
//!
//! A preemption is taken out by letting the thread run on to where its next turn ends: the two turns become one, in the
//! first one's place. Halves are tried first, then quarters, and so on (Zeller, Hildebrandt: Simplifying and Isolating
//! Failure-Inducing Input, 2002). A run that fails has a schedule of its own, which may have fewer preemptions than were
//! asked for; it goes on from there.

use std::collections::{BTreeSet, HashMap, HashSet};

use clew_recording::script::{End, Script, Turn};

/// With so many left, taking out two at once is tried as well.
const FEW: usize = 6;

/// Who tries schedules.
pub trait Trier {
    /// Why no more can be tried.
    type Stop;

    /// The first of these, in order, with which the program fails as it should, and the schedule as it was recorded then.
    fn first(&mut self, candidates: &[Script]) -> Result<Option<(usize, Script)>, Self::Stop>;
}

/// What came of it: the best schedule, and if it was stopped before none of its preemptions could be left out.
#[derive(Debug, PartialEq, Eq)]
pub struct Shrunk<S> {
    pub script: Script,
    pub stopped: Option<S>,
}

/// Which parts are taken out first. Where several few are enough, this decides which of them are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Neighbours together, early ones first.
    Early,
    Late,
    /// Any together, by that seed.
    Mixed(u64),
}

/// Schedules that don't fail, so that none is tried twice.
pub type Tried = HashSet<String>;

/// Shrinks a schedule that is known to fail.
pub fn shrink<T: Trier>(
    script: Script,
    order: Order,
    tried: &mut Tried,
    trier: &mut T,
) -> Shrunk<T::Stop> {
    let mut work = Work {
        script,
        order,
        tried,
        trier,
    };
    let stopped = work.run().err();
    Shrunk {
        script: work.script,
        stopped,
    }
}

struct Work<'a, T> {
    script: Script,
    order: Order,
    tried: &'a mut Tried,
    trier: &'a mut T,
}

impl<T: Trier> Work<'_, T> {
    fn run(&mut self) -> Result<(), T::Stop> {
        let all = forced(&self.script);
        // Perhaps the order of the threads is enough.
        self.any([without(&self.script, &all)])?;
        loop {
            self.halves()?;
            if !self.postponed()? && !self.pairs()? {
                return Ok(());
            }
        }
    }

    /// Takes out ever smaller parts until no single one can go.
    fn halves(&mut self) -> Result<(), T::Stop> {
        let mut parts = 2;
        loop {
            let ends = forced(&self.script);
            if ends.is_empty() {
                return Ok(());
            }
            parts = parts.min(ends.len());
            let mut ends: Vec<usize> = ends.into_iter().collect();
            match self.order {
                Order::Early => {}
                Order::Late => ends.reverse(),
                Order::Mixed(seed) => mix(&mut ends, seed),
            }
            let candidates = chunks(&ends, parts).map(|part| {
                let part = part.iter().copied().collect();
                without(&self.script, &part)
            });
            let candidates: Vec<Script> = candidates.collect();
            if self.any(candidates)? {
                parts = (parts - 1).max(2);
            } else if parts == ends.len() {
                return Ok(());
            } else {
                parts *= 2;
            }
        }
    }

    /// Tries to have a turn later instead of not interrupting it.
    fn postponed(&mut self) -> Result<bool, T::Stop> {
        let script = &self.script;
        let candidates = forced(script).into_iter().map(|n| later(script, n));
        let candidates: Vec<Script> = candidates.collect();
        self.any(candidates)
    }

    /// Two of few, at once.
    fn pairs(&mut self) -> Result<bool, T::Stop> {
        let ends: Vec<usize> = forced(&self.script).into_iter().collect();
        if ends.len() > FEW {
            return Ok(false);
        }
        let mut candidates = Vec::new();
        for (n, &one) in ends.iter().enumerate() {
            for &other in &ends[n + 1..] {
                candidates.push(without(&self.script, &BTreeSet::from([one, other])));
            }
        }
        self.any(candidates)
    }

    /// Whether one of these fails; the schedule is that one from then on.
    fn any(&mut self, candidates: impl IntoIterator<Item = Script>) -> Result<bool, T::Stop> {
        let least = self.script.preemptions();
        let mut fresh = Vec::new();
        for candidate in candidates {
            if candidate.preemptions() < least && !self.tried.contains(&candidate.to_string()) {
                fresh.push(candidate);
            }
        }
        if fresh.is_empty() {
            return Ok(false);
        }
        let found = self.trier.first(&fresh)?;
        let passed = found.as_ref().map_or(fresh.len(), |(n, _)| *n);
        let passed = fresh[..passed].iter().map(Script::to_string);
        self.tried.extend(passed);
        let Some((n, recorded)) = found else {
            return Ok(false);
        };
        self.script = truer(fresh.swap_remove(n), recorded);
        Ok(true)
    }
}

/// A schedule's preemptions one by one, each without all others; so many at most, from everywhere in it. The thread runs
/// to that point as soon as it can, then the others, in their order.
pub fn alone(script: &Script, most: usize) -> Vec<Script> {
    let all = forced(script);
    let stride = all.len().div_ceil(most.max(1)).max(1);
    let mut threads: Vec<u32> = Vec::new();
    for turn in &script.turns {
        if !threads.contains(&turn.thread) {
            threads.push(turn.thread);
        }
    }
    let free = |&thread: &u32| Turn {
        thread,
        end: End::Free,
    };
    let each = all.iter().step_by(stride).map(|&one| {
        let first = script.turns[one];
        let others = threads.iter().filter(|&&thread| thread != first.thread);
        Script {
            process: script.process.clone(),
            turns: [first].into_iter().chain(others.map(free)).collect(),
        }
    });
    each.collect()
}

/// Pairs of a schedule's preemptions that are near each other, each without all others; so many at most, from everywhere in it.
pub fn pairs(script: &Script, most: usize) -> Vec<Script> {
    const NEAR: usize = 3;
    let all: Vec<usize> = forced(script).into_iter().collect();
    let near = |first: usize| (1..=NEAR).map(move |by| (first, first + by));
    let both: Vec<(usize, usize)> = (0..all.len())
        .flat_map(near)
        .filter(|&(_, second)| second < all.len())
        .map(|(first, second)| (all[first], all[second]))
        .collect();
    let stride = both.len().div_ceil(most.max(1)).max(1);
    let keep = |(first, second): &(usize, usize)| {
        let mut turns = script.turns.clone();
        for (n, turn) in turns.iter_mut().enumerate() {
            if n != *first && n != *second {
                turn.end = End::Free;
            }
        }
        Script {
            process: script.process.clone(),
            turns,
        }
    };
    both.iter().step_by(stride).map(keep).collect()
}

/// Of what was asked for and what came of it: the latter, unless threads were also interrupted by themselves.
pub fn truer(asked: Script, recorded: Script) -> Script {
    if recorded.preemptions() <= asked.preemptions() {
        recorded
    } else {
        asked
    }
}

/// Numbers of the turns that end although the thread could go on.
fn forced(script: &Script) -> BTreeSet<usize> {
    let turns = script.turns.iter().enumerate();
    turns
        .filter(|(_, turn)| turn.end != End::Free)
        .map(|(n, _)| n)
        .collect()
}

/// The schedule without these turns' ends: each goes on to the end of the thread's next turn, which is then done with.
fn without(script: &Script, ends: &BTreeSet<usize>) -> Script {
    let mut turns: Vec<Turn> = Vec::new();
    // Where a thread's turn lies that goes on.
    let mut open: HashMap<u32, usize> = HashMap::new();
    for (n, turn) in script.turns.iter().enumerate() {
        let at = open.remove(&turn.thread).unwrap_or_else(|| {
            turns.push(*turn);
            turns.len() - 1
        });
        turns[at].end = turn.end;
        if ends.contains(&n) {
            turns[at].end = End::Free;
            open.insert(turn.thread, at);
        }
    }
    Script {
        process: script.process.clone(),
        turns: joined(turns),
    }
}

/// The schedule without a turn that is interrupted: what it did is done in the thread's next turn.
fn later(script: &Script, turn: usize) -> Script {
    let mut turns = script.turns.clone();
    turns.remove(turn);
    Script {
        process: script.process.clone(),
        turns: joined(turns),
    }
}

/// A thread that goes on at once wasn't interrupted.
fn joined(turns: Vec<Turn>) -> Vec<Turn> {
    let mut all: Vec<Turn> = Vec::with_capacity(turns.len());
    for turn in turns {
        match all.last_mut() {
            Some(last) if last.thread == turn.thread && last.end != End::Free => {
                last.end = turn.end;
            }
            _ => all.push(turn),
        }
    }
    all
}

/// Brings numbers into an order that follows from the seed.
fn mix(all: &mut [usize], seed: u64) {
    all.sort_by_key(|&n| {
        // SplitMix64: neighbours become strangers.
        let mut z = (n as u64 ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    });
}

/// `parts` pieces of nearly the same length.
fn chunks(all: &[usize], parts: usize) -> impl Iterator<Item = &[usize]> {
    (0..parts).map(move |n| &all[n * all.len() / parts..(n + 1) * all.len() / parts])
}

#[cfg(test)]
mod pair_tests {
    use super::*;

    #[test]
    fn pairs_keep_two_preemptions() {
        let text = "clew schedule 1\n1 at 5\n2 at 6\n1 free\n2 at 9\n1 at 11\n1 at 12\n";
        let script: Script = text.parse().unwrap();
        let all = pairs(&script, 100);
        // Of five preemptions, those at most three apart.
        assert_eq!(all.len(), 4 + 3 + 2);
        assert!(all.iter().all(|script| script.preemptions() == 2));
        assert!(pairs(&script, 3).len() <= 3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_recording::script::Point;

    /// The turns of two threads in turn, each of which ends after ten more ticks.
    fn two_threads(turns: u64) -> Script {
        let turn = |n: u64| Turn {
            thread: (n % 2) as u32,
            end: at((n / 2 + 1) * 10),
        };
        Script {
            process: Vec::new(),
            turns: (0..turns).map(turn).collect(),
        }
    }

    fn at(ticks: u64) -> End {
        End::At(Point {
            ticks,
            ..Point::default()
        })
    }

    /// Fails if all these ends are there.
    struct Needs {
        ends: Vec<(u32, End)>,
        runs: usize,
        most: usize,
    }

    impl Trier for Needs {
        type Stop = &'static str;

        fn first(
            &mut self,
            candidates: &[Script],
        ) -> Result<Option<(usize, Script)>, &'static str> {
            for (n, script) in candidates.iter().enumerate() {
                if self.runs == self.most {
                    return Err("runs");
                }
                self.runs += 1;
                let has =
                    |&(thread, end): &(u32, End)| script.turns.contains(&Turn { thread, end });
                if self.ends.iter().all(has) {
                    return Ok(Some((n, script.clone())));
                }
            }
            Ok(None)
        }
    }

    fn needs(ends: &[(u32, End)]) -> Needs {
        Needs {
            ends: ends.to_vec(),
            runs: 0,
            most: 500,
        }
    }

    #[test]
    fn what_is_needed_stays() {
        for ends in [
            &[][..],
            &[(0, at(310))],
            &[(0, at(310)), (1, at(10))],
            &[(0, at(20)), (1, at(490)), (0, at(500))],
        ] {
            for order in [Order::Early, Order::Late, Order::Mixed(1), Order::Mixed(2)] {
                let mut trier = needs(ends);
                let shrunk = shrink(two_threads(100), order, &mut Tried::new(), &mut trier);
                assert_eq!(shrunk.stopped, None);
                let left = shrunk.script.preemptions();
                assert_eq!(left, ends.len(), "{ends:?}, {order:?}");
                let runs = trier.runs;
                assert!(runs < 150, "{runs} runs for {ends:?}, {order:?}");
            }
        }
    }

    #[test]
    fn alone_means_without_all_others() {
        let script = two_threads(7);
        let all = alone(&script, 100);
        assert_eq!(all.len(), 7);
        for (one, turn) in all.iter().zip(&script.turns) {
            let other = Turn {
                thread: 1 - turn.thread,
                end: End::Free,
            };
            assert_eq!(one.turns, [*turn, other]);
        }
        assert_eq!(alone(&script, 3).len(), 3);
    }

    #[test]
    fn stopped_work_is_kept() {
        let mut trier = needs(&[(0, at(310)), (1, at(10))]);
        trier.most = 6;
        let tried = &mut Tried::new();
        let shrunk = shrink(two_threads(100), Order::Early, tried, &mut trier);
        assert_eq!(shrunk.stopped, Some("runs"));
        let left = shrunk.script.preemptions();
        assert!((3..100).contains(&left), "{left}");
    }

    #[test]
    fn a_turn_goes_on_to_the_next_end() {
        let script: Script = "clew schedule 1\n0 at 5\n1 at 7\n0 free\n1 at 9\n0 at 8\n"
            .parse()
            .unwrap();
        let text = |script: Script| {
            let lines: Vec<String> = script.turns.iter().map(Turn::to_string).collect();
            lines.join(", ")
        };
        // Thread 1 isn't interrupted any more, either: nobody else has a turn in between.
        assert_eq!(
            text(without(&script, &BTreeSet::from([0]))),
            "0 free, 1 at 9, 0 at 8"
        );
        assert_eq!(
            text(without(&script, &BTreeSet::from([1]))),
            "0 at 5, 1 at 9, 0 free, 0 at 8"
        );
        assert_eq!(
            text(without(&script, &forced(&script))),
            "0 free, 1 free, 0 free"
        );
        assert_eq!(text(later(&script, 0)), "1 at 7, 0 free, 1 at 9, 0 at 8");
        assert_eq!(text(later(&script, 1)), "0 free, 1 at 9, 0 at 8");
    }
}

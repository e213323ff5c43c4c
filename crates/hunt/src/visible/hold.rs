//! Threads that are kept somewhere. In: the operations of each thread. Out: turns that lead them there, let others go on, and then let
//! them go.
//!
//! A turn without an end goes on until its thread waits, so others get many of them: as far as they can is further than one wait.

use clew_recording::event::ThreadId;
use clew_recording::script::{End, Turn};

use super::ops::{Ops, word};
use crate::dice::Dice;
use crate::idiom::steer::{Course, Place};

/// How often others go on until they wait.
const ROUNDS: usize = 40;
/// All turns of others together, with many threads.
const MOST_FREE: usize = 2_000;

fn free(thread: ThreadId) -> Turn {
    Turn {
        thread,
        end: End::Free,
    }
}

/// These threads go on as far as they can, in that order.
fn let_go(turns: &mut Vec<Turn>, threads: &[ThreadId]) {
    let rounds = ROUNDS.min(MOST_FREE / threads.len().max(1)).max(1);
    for _ in 0..rounds {
        turns.extend(threads.iter().copied().map(free));
    }
}

/// A thread stays at its beginning, or at one or two of its operations, while all others go on.
pub fn hold(course: &Course, dice: &mut Dice) -> Option<Vec<Turn>> {
    let ops = Ops::choose(course, dice)?;
    let mut all = ops.threads();
    dice.shuffle(&mut all);
    let made: Vec<ThreadId> = all.iter().copied().filter(|&t| t != 0).collect();
    let mut turns = Vec::new();
    let held = if dice.once_in(3) {
        // Its beginning: it has no turn before the others had theirs.
        *dice.pick(&made)?
    } else {
        let busy: Vec<ThreadId> = all.iter().copied().filter(|&t| ops.count(t) > 1).collect();
        let held = *dice.pick(&busy)?;
        let others: Vec<ThreadId> = all.iter().copied().filter(|&t| t != held).collect();
        let list = &ops.lists[&held];
        let mut stops = vec![dice.below(list.len())];
        if dice.once_in(3) {
            stops.push(dice.below(list.len()));
            stops.sort_unstable();
            stops.dedup();
        }
        let last = stops.len() - 1;
        for (n, &stop) in stops.iter().enumerate() {
            let place = Place {
                access: list[stop],
                after: dice.once_in(3),
            };
            turns.push(course.turn(place));
            // Between two stops somebody goes on; behind the last everybody does.
            if n < last {
                let_go(&mut turns, dice.pick(&others).map(std::slice::from_ref)?);
            }
        }
        held
    };
    let others: Vec<ThreadId> = all.into_iter().filter(|&t| t != held).collect();
    let_go(&mut turns, &others);
    turns.push(free(held));
    Some(turns)
}

/// Several threads come to the same code, or to the same memory, and go on in a random order.
pub fn meet(course: &Course, dice: &mut Dice) -> Option<Vec<Turn>> {
    let ops = Ops::choose(course, dice)?;
    let places = if dice.once_in(2) {
        same_code(&ops, dice)
    } else {
        same_memory(&ops, dice)
    }?;
    let mut turns: Vec<Turn> = places.iter().map(|&place| course.turn(place)).collect();
    let held: Vec<ThreadId> = turns.iter().map(|turn| turn.thread).collect();
    let mut others = ops.threads();
    others.retain(|thread| !held.contains(thread));
    // Those that aren't there make the ones that are, and get far ahead, or only as far as they have to.
    let_go(&mut turns, &others);
    let mut release = places;
    dice.shuffle(&mut release);
    if dice.once_in(2) {
        // One step each, and then the rest.
        for place in &release {
            if !place.after {
                turns.push(course.turn(Place::after(place.access)));
            }
        }
        if dice.once_in(2) {
            dice.shuffle(&mut release);
        }
    }
    let order: Vec<ThreadId> = release
        .iter()
        .map(|p| ops.access(p.access).thread)
        .collect();
    let_go(&mut turns, &order);
    Some(turns)
}

/// Each thread that executes one instruction, before it or after it; one of them may be left out, and passes by.
fn same_code(ops: &Ops, dice: &mut Dice) -> Option<Vec<Place>> {
    let all: Vec<usize> = ops.lists.values().flatten().copied().collect();
    let site = ops.access(*dice.pick(&all)?).pc;
    let after = dice.once_in(2);
    let first = dice.once_in(2);
    let mut places = Vec::new();
    for list in ops.lists.values() {
        let there: Vec<usize> = list
            .iter()
            .copied()
            .filter(|&n| ops.access(n).pc == site)
            .collect();
        let at = if first { 0 } else { dice.below(there.len()) };
        places.extend(there.get(at).map(|&access| Place { access, after }));
    }
    dice.shuffle(&mut places);
    if places.len() > 2 && dice.once_in(2) {
        places.pop();
    }
    (places.len() >= 2).then_some(places)
}

/// Some threads, each before an access to one word: an order of two, three or more.
fn same_memory(ops: &Ops, dice: &mut Dice) -> Option<Vec<Place>> {
    let all: Vec<usize> = ops.lists.values().flatten().copied().collect();
    let of = word(ops.access(*dice.pick(&all)?));
    let mut places = Vec::new();
    for list in ops.lists.values() {
        let there = list.iter().copied().filter(|&n| word(ops.access(n)) == of);
        let there: Vec<usize> = there.collect();
        places.extend(dice.pick(&there).map(|&n| Place::before(n)));
    }
    dice.shuffle(&mut places);
    if places.len() > 3 && dice.once_in(2) {
        places.truncate(2 + dice.below(places.len() - 2));
    }
    (places.len() >= 2).then_some(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idiom::testing::Story;

    fn crowd(threads: u32) -> Course {
        let mut story = Story::default();
        (1..=threads).for_each(|t| {
            story.made(t, 0);
        });
        (1..=threads).for_each(|t| {
            story.write(t, 0x20, 0x9000).write(t, 0x30, 0x9000);
        });
        Course::new(story.profile())
    }

    #[test]
    fn a_thread_is_held_until_all_others_have_gone_on() {
        let course = crowd(3);
        for seed in 0..200 {
            let turns = hold(&course, &mut Dice::new(seed)).unwrap();
            let held = turns.last().unwrap().thread;
            let free_before = turns[..turns.len() - 1]
                .iter()
                .filter(|turn| turn.end == End::Free);
            for turn in free_before.clone() {
                assert_ne!(turn.thread, held, "seed {seed}");
            }
            assert!(free_before.count() >= 3 * ROUNDS);
        }
    }

    #[test]
    fn all_threads_meet_in_one_place() {
        let course = crowd(6);
        let mut most = 0;
        for seed in 0..200 {
            let Some(turns) = meet(&course, &mut Dice::new(seed)) else {
                continue;
            };
            let led = turns.iter().take_while(|turn| turn.end != End::Free);
            most = most.max(led.count());
            let last = turns.iter().rev().take(2).map(|turn| turn.thread);
            assert!(last.clone().min() != last.max(), "seed {seed}");
        }
        assert_eq!(most, 6);
    }
}

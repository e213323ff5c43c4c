//! An access between two of another thread (idiom 2). In: accesses to one word. Out: what came between, and what could.

use std::collections::{BTreeMap, BTreeSet};

use clew_recording::event::ThreadId;

use super::orders::by_site;
use super::predict::{Found, Key, Site, View, Way, put_off};
use super::steer::{Place, Then};

const TIER: u32 = 1;
/// Both ends of the window lock the bus: mostly a lock that is taken and given, so that nobody can come between.
const LOCKED_TIER: u32 = 4;
/// Windows of one kind that are tried against each other.
const MOST_WINDOWS: usize = 3;
const MOST_KINDS: usize = 64;

/// Two accesses of one thread to the word, with none of its own between them.
type Window = (usize, usize);

fn windows(view: &View, word: &[usize]) -> BTreeMap<(ThreadId, Site, Site), Vec<Window>> {
    let mut last: BTreeMap<ThreadId, usize> = BTreeMap::new();
    let mut windows: BTreeMap<_, Vec<Window>> = BTreeMap::new();
    for &n in word {
        let access = &view.accesses[n];
        if let Some(before) = last.insert(access.thread, n) {
            let first = Site::of(&view.accesses[before]);
            windows
                .entry((access.thread, first, Site::of(access)))
                .or_default()
                .push((before, n));
        }
    }
    windows
}

pub fn seen(view: &View, word: &[usize], seen: &mut BTreeSet<Key>) {
    let mut last: BTreeMap<ThreadId, usize> = BTreeMap::new();
    for (at, &n) in word.iter().enumerate() {
        let access = &view.accesses[n];
        if let Some(before) = last.insert(access.thread, at) {
            let first = Site::of(&view.accesses[word[before]]);
            // Windows that are open for long say little about what lies in them.
            for &between in word[before + 1..at].iter().take(64) {
                let between = Site::of(&view.accesses[between]);
                seen.insert(Key::Atomic(first, between, Site::of(access)));
            }
        }
    }
}

/// The result may be one that no order of whole windows gives.
fn matters(view: &View, window: Window, between: usize) -> bool {
    let (first, second) = (&view.accesses[window.0], &view.accesses[window.1]);
    let between = &view.accesses[between];
    let conflicts = between.conflicts(first) && between.conflicts(second);
    conflicts && !(first.write && second.write && between.write && !second.locked)
}

pub fn predict(view: &View, word: &[usize], seen: &BTreeSet<Key>, found: &mut Found) {
    let sites = by_site(view, word);
    for ((x, first, second), all) in windows(view, word).iter().take(MOST_KINDS) {
        let step = all.len().div_ceil(MOST_WINDOWS).max(1);
        // The last ones are always among them.
        let some: Vec<Window> = all.iter().rev().step_by(step).copied().collect();
        for ((y, b), betweens) in sites.iter().take(MOST_KINDS) {
            let key = Key::Atomic(*first, *b, *second);
            if x == y || seen.contains(&key) {
                continue;
            }
            let mut ways = Vec::new();
            for &window in &some {
                let behind = betweens.partition_point(|&n| n < window.1);
                if let Some(&n) = betweens.get(behind) {
                    ways.extend(held_in_window(view, window, n));
                }
                let before = betweens.partition_point(|&n| n < window.0);
                if let Some(&n) = before.checked_sub(1).and_then(|n| betweens.get(n)) {
                    ways.extend(held_before(view, window, n));
                }
            }
            found.add(key, all.len().min(betweens.len()), ways);
        }
    }
}

/// The window's thread is held in it until the other has come by.
fn held_in_window(view: &View, window: Window, between: usize) -> Option<Way> {
    let fine = matters(view, window, between) && view.possible(window.0, between);
    fine.then(|| Way {
        tier: TIER + doubts(view, window, between),
        hold: view.between(window),
        until: Place::after(between),
        then: None,
    })
}

/// The other thread, which came first, is held until the window is open.
fn held_before(view: &View, window: Window, between: usize) -> Option<Way> {
    let hold = view.before(between, window.0);
    let fine = matters(view, window, between) && view.possible(hold.access, window.0);
    fine.then(|| Way {
        tier: TIER + doubts(view, window, between),
        hold,
        until: view.between(window),
        then: Some(Then::HeldTo(Place::after(between))),
    })
}

fn doubts(view: &View, window: Window, between: usize) -> u32 {
    let (first, second) = (&view.accesses[window.0], &view.accesses[window.1]);
    let all = [first, second, &view.accesses[between]];
    let locked = if first.locked && second.locked {
        LOCKED_TIER - TIER
    } else if !all.iter().any(|access| view.profile.is_own(access.pc)) {
        put_off::LIBRARY
    } else {
        0
    };
    locked + view.doubts_between(window, between)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idiom::predict::{Candidate, predict, seen};
    use crate::idiom::testing::Story;

    fn site(pc: u64) -> Site {
        Site { pc, lock: None }
    }

    fn candidates(story: &Story) -> Vec<Candidate> {
        let profile = story.profile();
        let view = View::new(&profile);
        let mut found = predict(&view, &seen(&view));
        found.retain(|c| matches!(c.key, Key::Atomic(..)));
        found
    }

    #[test]
    fn read_and_write_back() {
        let mut story = Story::default();
        story.made(1, 0).made(2, 0);
        for thread in [1, 2] {
            story.read(thread, 0x10, 0x9000).write(thread, 0x20, 0x9000);
        }
        let found = candidates(&story);
        assert_eq!(found.len(), 1, "{found:?}");
        let key = Key::Atomic(site(0x10), site(0x20), site(0x20));
        assert_eq!((found[0].key, found[0].tier), (key, TIER));
        // 1 is held behind its read until 2 has written; or 1 is held before it writes until 2 has read.
        assert_eq!(found[0].steers[0].hold, Place::before(1));
        assert_eq!(found[0].steers[0].until, Place::after(2));
        assert_eq!(found[0].steers[1].hold, Place::after(0));
        assert_eq!(found[0].steers[1].until, Place::after(3));
    }

    #[test]
    fn what_came_between_was_seen() {
        let mut story = Story::default();
        story.made(1, 0).made(2, 0);
        story.read(1, 0x10, 0x9000).write(2, 0x30, 0x9000);
        story.read(1, 0x20, 0x9000).write(2, 0x30, 0x9000);
        let key = Key::Atomic(site(0x10), site(0x30), site(0x20));
        assert!(!candidates(&story).iter().any(|c| c.key == key));
    }

    #[test]
    fn a_check_and_an_act_with_the_lock_given_between() {
        let mut story = Story::default();
        story.made(1, 0).made(2, 0);
        for thread in [1, 2] {
            for pc in [0x10, 0x20] {
                story.locked(thread, 0x2000, 0x8000);
                match pc {
                    0x10 => story.read(thread, pc, 0x9000),
                    _ => story.write(thread, pc, 0x9000),
                };
                story.locked(thread, 0x2010, 0x8000);
            }
        }
        let found = candidates(&story);
        let key = Key::Atomic(site(0x10), site(0x20), site(0x20));
        let found = found.iter().find(|c| c.key == key).unwrap();
        assert_eq!(found.tier, TIER);
        // Behind the giving of the lock.
        let holds: Vec<Place> = found.steers.iter().map(|steer| steer.hold).collect();
        assert!(holds.contains(&Place::after(2)), "{holds:?}");
        assert!(!holds.contains(&Place::after(1)), "{holds:?}");
    }

    #[test]
    fn windows_under_one_lock_come_late() {
        let mut story = Story::default();
        story.made(1, 0).made(2, 0);
        for thread in [1, 2] {
            story.locked(thread, 0x2000, 0x8000);
            story.read(thread, 0x10, 0x9000).write(thread, 0x20, 0x9000);
            story.locked(thread, 0x2010, 0x8000);
        }
        let found = candidates(&story);
        let key = Key::Atomic(site(0x10), site(0x20), site(0x20));
        let found = found.iter().find(|c| c.key == key).unwrap();
        assert_eq!(found.tier, TIER + put_off::SAME_LOCK);
    }
}

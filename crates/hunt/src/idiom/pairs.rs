//! Two threads and two places in memory (idioms 3 to 5, and locks). In: a profile. Out: orders that it doesn't show.

use std::collections::{BTreeMap, HashMap, HashSet};

use clew_recording::event::ThreadId;

use super::locks::Section;
use super::predict::{Found, Key, Site, View, Way};
use super::steer::{Place, Then};

const LOCKS_TIER: u32 = 1;
const VARIABLES_TIER: u32 = 3;
/// Two accesses of a thread belong together if they are no further apart, in its own accesses.
const NEAR: usize = 4;
/// Pairs of one kind that are tried against those of others: the first and the last ones.
const MOST_OF_A_KIND: usize = 4;
/// An instruction that touches more than this goes through a buffer; variables are something else.
const MOST_PLACES: usize = 256;
/// Kinds for the same memory.
const MOST_KINDS: usize = 24;
/// Ways in all; what is left out are the highest addresses.
const MOST_WAYS: usize = 20_000;

/// A lock taken while another was held: numbers of sections.
type Nested = (usize, usize);

/// One thread takes two locks in one order, another in the other.
pub fn lock_orders(view: &View, found: &mut Found) {
    let sections = &view.locks.sections;
    let mut by_locks: BTreeMap<(u64, u64), Vec<Nested>> = BTreeMap::new();
    for (inner, section) in sections.iter().enumerate() {
        let outer = |outer: &&Section| outer.lock != section.lock;
        for outer in view.locks.held(section.taken).filter(outer) {
            let place = sections.partition_point(|one| one.taken < outer.taken);
            let nested = by_locks.entry((outer.lock, section.lock)).or_default();
            nested.push((place, inner));
        }
    }
    for (&(one, other), here) in &by_locks {
        let Some(there) = by_locks.get(&(other, one)) else {
            continue;
        };
        let mut ways = Vec::new();
        for &(_, inner) in &some(here) {
            for &(outer, _) in &some(there) {
                let (held, comes) = (&sections[inner], &sections[outer]);
                // Whoever was first is held between its two locks until the other has its own first.
                if held.thread == comes.thread || held.taken > comes.taken {
                    continue;
                }
                if view.possible(held.taken, comes.taken) {
                    ways.push(Way {
                        tier: LOCKS_TIER,
                        hold: Place::before(held.taken),
                        until: Place::after(comes.taken),
                        then: Some(Then::Others),
                    });
                }
            }
        }
        let key = Key::Locks(one.min(other), one.max(other));
        found.add(key, here.len().min(there.len()), ways);
    }
}

/// The first and the last ones.
fn some<T: Copy>(all: &[T]) -> Vec<T> {
    let half = MOST_OF_A_KIND / 2;
    match all.len() {
        0..=MOST_OF_A_KIND => all.to_vec(),
        len => [&all[..half], &all[len - half..]].concat(),
    }
}

/// Two accesses of one thread to different memory, near each other: numbers of accesses.
type Near = (usize, usize);
type Kinds = BTreeMap<(ThreadId, Site, Site), Vec<Near>>;

/// Pairs by the memory that they touch, first and second.
fn near_pairs(view: &View) -> BTreeMap<(u64, u64), Kinds> {
    let mut places: HashMap<Site, HashSet<u64>> = HashMap::new();
    for access in view.accesses {
        let places = places.entry(Site::of(access)).or_default();
        if places.len() <= MOST_PLACES {
            places.insert(access.addr);
        }
    }
    let mut recent: BTreeMap<ThreadId, Vec<usize>> = BTreeMap::new();
    let mut pairs: BTreeMap<(u64, u64), Kinds> = BTreeMap::new();
    for (n, access) in view.accesses.iter().enumerate() {
        if access.locked || places[&Site::of(access)].len() > MOST_PLACES {
            continue;
        }
        let recent = recent.entry(access.thread).or_default();
        for &before in recent.iter() {
            let first = &view.accesses[before];
            if first.overlaps(access) {
                continue;
            }
            pairs
                .entry((first.addr, access.addr))
                .or_default()
                .entry((access.thread, Site::of(first), Site::of(access)))
                .or_default()
                .push((before, n));
        }
        recent.push(n);
        if recent.len() > NEAR {
            recent.remove(0);
        }
    }
    pairs
}

/// One thread touches two variables; another touches both between.
pub fn variables(view: &View, found: &mut Found) {
    let pairs = near_pairs(view);
    let mut room = MOST_WAYS;
    for (&(one, other), kinds) in &pairs {
        let there = [pairs.get(&(one, other)), pairs.get(&(other, one))];
        for (x, here) in kinds.iter().take(MOST_KINDS) {
            for (y, there) in there
                .iter()
                .flatten()
                .flat_map(|k| k.iter().take(MOST_KINDS))
            {
                if x.0 == y.0 || room == 0 {
                    continue;
                }
                let ways = meet(view, &some(here), &some(there));
                room = room.saturating_sub(ways.len());
                let key = Key::Pair([x.1, x.2, y.1, y.2]);
                found.add(key, here.len().min(there.len()), ways);
            }
        }
    }
}

fn meet(view: &View, outers: &[Near], inners: &[Near]) -> Vec<Way> {
    let mut ways = Vec::new();
    for &outer in outers {
        for &inner in inners {
            if !conflict(view, outer, inner) {
                continue;
            }
            let doubts = [inner.0, inner.1].map(|one| view.doubts_between(outer, one));
            let tier = VARIABLES_TIER + doubts[0].max(doubts[1]);
            if outer.1 < inner.0 && view.possible(outer.1, inner.0) {
                ways.push(Way {
                    tier,
                    hold: late(view, outer),
                    until: Place::after(inner.1),
                    then: None,
                });
            } else if inner.1 < outer.0 && view.possible(inner.0, outer.0) {
                ways.push(Way {
                    tier,
                    hold: view.before(inner.0, outer.0),
                    until: late(view, outer),
                    then: Some(Then::HeldTo(Place::after(inner.1))),
                });
            }
        }
    }
    ways
}

/// Between the two, and as late as no lock is taken for the second.
fn late(view: &View, (first, second): Near) -> Place {
    let taken = view.locks.first_taken(second);
    match taken.filter(|&taken| taken > first) {
        Some(taken) => Place::before(taken),
        None => Place::before(second),
    }
}

/// Each of one thread's accesses has one of the other's to fear.
fn conflict(view: &View, outer: Near, inner: Near) -> bool {
    let conflict = |a: usize, b: usize| view.accesses[a].conflicts(&view.accesses[b]);
    conflict(outer.0, inner.0) && conflict(outer.1, inner.1)
        || conflict(outer.0, inner.1) && conflict(outer.1, inner.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idiom::predict::{Candidate, predict, seen};
    use crate::idiom::testing::Story;

    fn candidates(story: &Story) -> Vec<Candidate> {
        let profile = story.profile();
        let view = View::new(&profile);
        predict(&view, &seen(&view))
    }

    fn transfer(story: &mut Story, thread: ThreadId, locks: [u64; 2]) {
        story.locked(thread, 0x2000, locks[0]);
        story.locked(thread, 0x2000, locks[1]);
        story.locked(thread, 0x2010, locks[1]);
        story.locked(thread, 0x2010, locks[0]);
    }

    #[test]
    fn two_locks_in_two_orders() {
        let mut story = Story::default();
        story.made(1, 0).made(2, 0);
        transfer(&mut story, 1, [0x8000, 0x8100]);
        transfer(&mut story, 2, [0x8100, 0x8000]);
        let found = candidates(&story);
        let key = Key::Locks(0x8000, 0x8100);
        let found = found.iter().find(|c| c.key == key).unwrap();
        assert_eq!(found.steers[0].hold, Place::before(1));
        assert_eq!(found.steers[0].until, Place::after(4));
    }

    #[test]
    fn two_locks_in_one_order() {
        let mut story = Story::default();
        story.made(1, 0).made(2, 0);
        transfer(&mut story, 1, [0x8000, 0x8100]);
        transfer(&mut story, 2, [0x8000, 0x8100]);
        let locks = |c: &Candidate| matches!(c.key, Key::Locks(..));
        assert!(!candidates(&story).iter().any(locks));
    }

    #[test]
    fn two_variables_set_and_read() {
        let mut story = Story::default();
        story.made(1, 0).made(2, 0);
        story.write(1, 0x10, 0x9000).write(1, 0x20, 0x9100);
        story.read(2, 0x30, 0x9000).read(2, 0x40, 0x9100);
        let found = candidates(&story);
        let site = |pc| Site { pc, lock: None };
        let key = |pcs: [u64; 4]| Key::Pair(pcs.map(site));
        let between = |key| found.iter().find(|c| c.key == key).unwrap();
        let writer = between(key([0x10, 0x20, 0x30, 0x40]));
        assert_eq!(writer.steers[0].hold, Place::before(1));
        assert_eq!(writer.steers[0].until, Place::after(3));
        // The reader came later: the writer is held until it stands between its reads.
        let reader = between(key([0x30, 0x40, 0x10, 0x20]));
        assert_eq!(reader.steers[0].hold, Place::before(0));
        assert_eq!(reader.steers[0].until, Place::before(3));
        assert_eq!(reader.steers[0].then, Then::HeldTo(Place::after(1)));
    }

    #[test]
    fn two_readers_have_nothing_to_fear() {
        let mut story = Story::default();
        story.made(1, 0).made(2, 0);
        for thread in [1, 2] {
            story.read(thread, 0x10, 0x9000).read(thread, 0x20, 0x9100);
        }
        assert!(candidates(&story).is_empty());
    }
}

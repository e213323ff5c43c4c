//! Two accesses in the other order (idiom 1). In: accesses to one word. Out: which orders were seen, which weren't.

use std::collections::{BTreeMap, BTreeSet};

use clew_recording::event::ThreadId;

use super::predict::{Found, Key, Site, View, Way, meetings};

/// Instructions of one word that are looked at; one with more is a buffer that everything goes through.
const MOST_SITES: usize = 48;

const TIER: u32 = 0;
const LOCKED_TIER: u32 = 2;

/// An access depends on the last write before it, a write on the reads since then as well.
pub fn seen(view: &View, word: &[usize], seen: &mut BTreeSet<Key>) {
    let mut write: Option<usize> = None;
    let mut reads: BTreeMap<(ThreadId, Site), usize> = BTreeMap::new();
    for &n in word {
        let access = &view.accesses[n];
        let mut follows = |earlier: usize| {
            let earlier = &view.accesses[earlier];
            if earlier.conflicts(access) {
                seen.insert(Key::Order(Site::of(earlier), Site::of(access)));
            }
        };
        write.into_iter().for_each(&mut follows);
        if access.write {
            reads.values().copied().for_each(&mut follows);
            reads.clear();
            write = Some(n);
        } else {
            reads.insert((access.thread, Site::of(access)), n);
        }
    }
}

/// Where each instruction of each thread touches the word.
pub fn by_site(view: &View, word: &[usize]) -> BTreeMap<(ThreadId, Site), Vec<usize>> {
    let mut sites: BTreeMap<(ThreadId, Site), Vec<usize>> = BTreeMap::new();
    for &n in word {
        let access = &view.accesses[n];
        sites
            .entry((access.thread, Site::of(access)))
            .or_default()
            .push(n);
    }
    sites
}

pub fn predict(view: &View, word: &[usize], seen: &BTreeSet<Key>, found: &mut Found) {
    let sites = by_site(view, word);
    for ((x, a), firsts) in sites.iter().take(MOST_SITES) {
        for ((y, b), seconds) in sites.iter().take(MOST_SITES) {
            // The first is held until the second has happened.
            let key = Key::Order(*b, *a);
            if x == y || seen.contains(&key) {
                continue;
            }
            let conflict = |i: usize, j: usize| view.accesses[i].conflicts(&view.accesses[j]);
            let locked = a.lock.is_some() || b.lock.is_some();
            let base = if locked { LOCKED_TIER } else { TIER };
            let ways = meetings(firsts, seconds)
                .into_iter()
                .filter(|&(i, j)| conflict(i, j) && view.possible(i, j))
                .map(|(i, j)| Way {
                    tier: base + view.doubts(i, j),
                    hold: view.before(i, j),
                    until: view.behind(i, j),
                    then: None,
                });
            found.add(key, firsts.len().min(seconds.len()), ways);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idiom::predict::{predict, put_off, seen};
    use crate::idiom::steer::{Place, Then};
    use crate::idiom::testing::Story;

    fn site(pc: u64) -> Site {
        Site { pc, lock: None }
    }

    #[test]
    fn a_reader_that_came_after_the_writer() {
        let mut story = Story::default();
        story.made(1, 0).made(2, 0);
        story.write(1, 0x10, 0x9000).read(2, 0x20, 0x9000);
        let profile = story.profile();
        let view = View::new(&profile);
        let seen = seen(&view);
        assert!(seen.contains(&Key::Order(site(0x10), site(0x20))));
        let candidates = predict(&view, &seen);
        assert_eq!(candidates.len(), 1, "{candidates:?}");
        assert_eq!(candidates[0].key, Key::Order(site(0x20), site(0x10)));
        assert_eq!(candidates[0].tier, TIER);
        assert_eq!(candidates[0].steers[0].hold, Place::before(0));
        assert_eq!(candidates[0].steers[0].until, Place::after(1));
        assert_eq!(candidates[0].steers[0].then, Then::Held);
    }

    #[test]
    fn both_orders_were_seen() {
        let mut story = Story::default();
        story.made(1, 0).made(2, 0);
        story.write(1, 0x10, 0x9000).read(2, 0x20, 0x9000);
        story.write(1, 0x10, 0x9000);
        let profile = story.profile();
        let view = View::new(&profile);
        let candidates = predict(&view, &seen(&view));
        let order = |c: &&super::super::predict::Candidate| matches!(c.key, Key::Order(..));
        assert_eq!(candidates.iter().find(order), None);
    }

    #[test]
    fn readers_alone_and_other_memory_make_no_order() {
        let mut story = Story::default();
        story.read(1, 0x10, 0x9000).read(2, 0x20, 0x9000);
        story.write(1, 0x10, 0x9100).write(2, 0x20, 0x9200);
        let profile = story.profile();
        let view = View::new(&profile);
        assert!(seen(&view).is_empty());
        assert!(predict(&view, &BTreeSet::new()).is_empty());
    }

    #[test]
    fn who_isnt_made_yet_cant_be_first() {
        let mut story = Story::default();
        story
            .write(0, 0x10, 0x9000)
            .made(1, 0)
            .read(1, 0x20, 0x9000);
        let profile = story.profile();
        let view = View::new(&profile);
        assert!(predict(&view, &seen(&view)).is_empty());
    }

    #[test]
    fn who_waited_for_the_end_comes_late() {
        let mut story = Story::default();
        story.made(1, 0).write(1, 0x10, 0x9000).ended(1);
        story.read(0, 0x20, 0x9000);
        let profile = story.profile();
        let view = View::new(&profile);
        let candidates = predict(&view, &seen(&view));
        assert_eq!(candidates[0].tier, TIER + put_off::JOINED);
    }

    #[test]
    fn whole_sections_of_one_lock_change_places() {
        let mut story = Story::default();
        story.made(1, 0).made(2, 0);
        for (thread, pc) in [(1, 0x10), (2, 0x20)] {
            story.locked(thread, 0x2000, 0x8000);
            story.write(thread, pc, 0x9000);
            story.locked(thread, 0x2010, 0x8000);
        }
        let profile = story.profile();
        let view = View::new(&profile);
        let candidates = predict(&view, &seen(&view));
        let key = Key::Order(site(0x20), site(0x10));
        let found = candidates.iter().find(|c| c.key == key).unwrap();
        assert_eq!(found.steers[0].hold, Place::before(0));
        assert_eq!(found.steers[0].until, Place::after(5));
    }

    #[test]
    fn locks_differ_by_their_address() {
        let mut story = Story::default();
        story.made(1, 0).made(2, 0);
        for lock in [0x8000, 0x8100] {
            for thread in [1, 2] {
                story.locked(thread, 0x2000, lock);
                story.locked(thread, 0x2010, lock);
            }
        }
        let profile = story.profile();
        let view = View::new(&profile);
        let candidates = predict(&view, &seen(&view));
        let taken = |lock| Site {
            pc: 0x2000,
            lock: Some(lock),
        };
        for lock in [0x8000, 0x8100] {
            let key = Key::Order(taken(lock), taken(lock));
            let found = candidates.iter().find(|c| c.key == key).unwrap();
            assert_eq!(found.tier, LOCKED_TIER);
        }
    }
}

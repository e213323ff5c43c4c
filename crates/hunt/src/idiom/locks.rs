//! Which locks were held. In: a profile. Out: for each access, the locks that its thread had, and where it took and gave them.
//!
//! Nothing says which memory is a lock; a guess does. A thread's first access to a word that locks the bus takes a lock, if there
//! is one; the last gives it, and so does one that comes right before a taking. Memory where the same instruction does both is
//! no lock, and neither is one that two threads seem to have at once. What is left may still be something else, so that
//! a guess may put candidates off, but never out.

use std::collections::{BTreeMap, HashSet};

use clew_recording::event::ThreadId;

use super::profile::Access;

/// From taking a lock to giving it, as numbers of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    pub thread: ThreadId,
    pub lock: u64,
    /// Where it was first tried.
    pub taken: usize,
    pub given: usize,
}

#[derive(Default)]
pub struct Locks {
    /// In the order in which they were taken.
    pub sections: Vec<Section>,
    /// For each access, the sections that it lies in, without those that it takes or gives.
    held: Vec<Vec<usize>>,
}

/// A section that is longer isn't believed.
const LONGEST: usize = 5_000;

/// Accesses that lock the bus, by word and thread.
type Words = BTreeMap<u64, BTreeMap<ThreadId, Vec<usize>>>;

impl Locks {
    pub fn of(accesses: &[Access]) -> Locks {
        let mut words = Words::new();
        for (n, access) in accesses.iter().enumerate().filter(|(_, a)| a.locked) {
            let word = words.entry(access.addr).or_default();
            word.entry(access.thread).or_default().push(n);
        }
        let taking = takers(accesses, &words);
        let sections = words.iter();
        let mut sections: Vec<Section> = sections
            .flat_map(|(&lock, threads)| sections_of(accesses, &taking, lock, threads))
            .collect();
        sections.sort_unstable_by_key(|section| section.taken);
        let mut held = vec![Vec::new(); accesses.len()];
        for (number, section) in sections.iter().enumerate() {
            for n in section.taken + 1..section.given {
                if accesses[n].thread == section.thread {
                    held[n].push(number);
                }
            }
        }
        Locks { sections, held }
    }

    pub fn held(&self, access: usize) -> impl Iterator<Item = &Section> {
        self.held[access].iter().map(|&n| &self.sections[n])
    }

    /// Sections around `one` of locks that are held at `other`, too: neither can come into the other's.
    pub fn shared(&self, one: usize, other: usize) -> impl Iterator<Item = &Section> {
        self.held(one)
            .filter(move |a| self.held(other).any(|b| a.lock == b.lock))
    }

    pub fn share(&self, one: usize, other: usize) -> bool {
        self.shared(one, other).next().is_some()
    }

    /// Where the last of the locks held there is given; None if there are none.
    pub fn all_given(&self, access: usize) -> Option<usize> {
        self.held(access).map(|section| section.given).max()
    }

    /// Where the first of the locks held there was taken; None if there are none.
    pub fn first_taken(&self, access: usize) -> Option<usize> {
        self.held(access).map(|section| section.taken).min()
    }
}

/// Instructions that were the first of a thread at any word.
fn takers(accesses: &[Access], words: &Words) -> HashSet<u64> {
    let firsts = words.values().flat_map(|threads| threads.values());
    firsts.map(|list| accesses[list[0]].pc).collect()
}

/// The sections of one word; none if it is no lock.
fn sections_of(
    accesses: &[Access],
    taking: &HashSet<u64>,
    lock: u64,
    threads: &BTreeMap<ThreadId, Vec<usize>>,
) -> Vec<Section> {
    let takes = |n: usize| taking.contains(&accesses[n].pc);
    let mut sections = Vec::new();
    // Where each was really had, at the last attempt, and where it was given.
    let mut had: Vec<(usize, usize)> = Vec::new();
    for (&thread, list) in threads {
        let mut taken = None;
        for (at, &n) in list.iter().enumerate() {
            let next = list.get(at + 1);
            let gives = next.is_none_or(|&next| takes(next));
            match (taken, gives) {
                (None, false) => taken = Some(n),
                (Some(_), false) => {}
                // Taken and given by one instruction: a counter, or a list.
                (None, true) if next.is_some() => return Vec::new(),
                (_, true) if next.is_some() && takes(n) => return Vec::new(),
                // The thread ended while it had it, or only tried.
                (None, true) => {}
                (Some(first), true) => {
                    taken = None;
                    had.push((list[at - 1], n));
                    if n - first <= LONGEST {
                        sections.push(Section {
                            thread,
                            lock,
                            taken: first,
                            given: n,
                        });
                    }
                }
            }
        }
    }
    had.sort_unstable();
    if had.windows(2).any(|two| two[1].0 < two[0].1) {
        return Vec::new();
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idiom::testing::Story;

    #[test]
    fn taken_and_given() {
        let mut story = Story::default();
        story.locked(1, 0x100, 0x8000).read(1, 0x10, 0x9000);
        story.read(2, 0x10, 0x9000);
        story.locked(1, 0x200, 0x8000).read(1, 0x10, 0x9000);
        let locks = Locks::of(&story.profile().accesses);
        assert_eq!(locks.sections.len(), 1);
        assert_eq!(locks.all_given(1), Some(3));
        assert_eq!(locks.first_taken(1), Some(0));
        for n in [0, 2, 3, 4] {
            assert_eq!(locks.all_given(n), None, "{n}");
        }
    }

    #[test]
    fn a_counter_is_no_lock() {
        let mut story = Story::default();
        for _ in 0..4 {
            story.locked(1, 0x100, 0x8000).read(1, 0x10, 0x9000);
        }
        assert!(Locks::of(&story.profile().accesses).sections.is_empty());
    }

    #[test]
    fn whoever_had_to_wait_tried_twice() {
        let mut story = Story::default();
        story.locked(1, 0x100, 0x8000).locked(2, 0x100, 0x8000);
        story.locked(1, 0x200, 0x8000).locked(2, 0x110, 0x8000);
        story.read(2, 0x10, 0x9000).locked(2, 0x200, 0x8000);
        story.locked(2, 0x100, 0x8000).locked(2, 0x200, 0x8000);
        let locks = Locks::of(&story.profile().accesses);
        let sections: Vec<_> = locks.sections.iter().map(|s| (s.taken, s.given)).collect();
        assert_eq!(sections, [(0, 2), (1, 5), (6, 7)]);
    }

    #[test]
    fn what_two_have_at_once_is_no_lock() {
        let mut story = Story::default();
        story.locked(1, 0x100, 0x8000).locked(2, 0x100, 0x8000);
        story.locked(1, 0x200, 0x8000).locked(2, 0x200, 0x8000);
        assert!(Locks::of(&story.profile().accesses).sections.is_empty());
    }

    #[test]
    fn the_same_lock_on_both_sides() {
        let mut story = Story::default();
        for thread in [1, 2] {
            story.locked(thread, 0x100, 0x8000);
            story.write(thread, 0x10, 0x9000);
            story.locked(thread, 0x200, 0x8000);
            story.write(thread, 0x20, 0x9000);
        }
        let locks = Locks::of(&story.profile().accesses);
        assert!(locks.share(1, 5));
        assert!(!locks.share(3, 5));
    }
}

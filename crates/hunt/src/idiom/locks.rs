//! Which locks were held. In: a profile. Out: for each access, the locks that its thread had, and where it took and gave them.
//!
//! Nothing says which memory is a lock; a guess does. A thread that locks the bus at a word and later does so at the same word
//! by another instruction has taken and given a lock. Counters and lists without locks may look the same, so that a guess may put
//! candidates off, but never out.

use std::collections::HashMap;

use clew_recording::event::ThreadId;

use super::profile::Access;

/// From taking a lock to giving it, both as numbers of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    pub thread: ThreadId,
    pub lock: u64,
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

impl Locks {
    pub fn of(accesses: &[Access]) -> Locks {
        let mut open: HashMap<(ThreadId, u64), usize> = HashMap::new();
        let mut sections = Vec::new();
        for (n, access) in accesses.iter().enumerate().filter(|(_, a)| a.locked) {
            let key = (access.thread, access.addr);
            match open.get(&key) {
                Some(&taken) if accesses[taken].pc != access.pc => {
                    open.remove(&key);
                    if n - taken <= LONGEST {
                        sections.push(Section {
                            thread: access.thread,
                            lock: access.addr,
                            taken,
                            given: n,
                        });
                    }
                }
                // The same instruction once more: it tried again, or this is no lock.
                _ => {
                    open.insert(key, n);
                }
            }
        }
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

    /// Both were done under the same lock: one can't come into the other's section.
    pub fn share(&self, one: usize, other: usize) -> bool {
        self.held(one)
            .any(|a| self.held(other).any(|b| a.lock == b.lock))
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

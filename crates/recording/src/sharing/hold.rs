//! What one process knows of the pages that it owns: acquisitions and letters in; what it has lost, what it is asked for and
//! copies of pages from before others had them out.
//!
//! A copy is what a replay has in a page. Of a page that is held there is a good one only while the process is away: it is
//! made before ([`Hold::copy`]) and no good after ([`Hold::is_back`]), or it would be compared with later, and what had
//! changed back to it would be missed.
//!
//! *Hot* pages are those that go to and fro. A process that comes back takes all of them again that it can
//! ([`Hold::to_regain`]) and compares them with its copies: a fraction of a microsecond for each, where closing one, touching it
//! and opening it takes ten or more. A page cools down if nobody takes it for a while.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::Entry;

/// So many pages are hot at most.
const HOT: usize = 256;
/// A hot page cools down when nobody took it so often that the process was away.
const PATIENCE: u8 = 10;

/// What an entry is a page of: an object's name, and which.
pub type PageOf = (u64, u64);

#[derive(Clone)]
pub struct Hold<C> {
    held: Map<PageOf>,
    hot: Vec<Hot>,
    copies: Map<Copy<C>>,
    /// Of these held pages there are good copies.
    copied: Vec<Entry>,
    lost: Vec<Entry>,
    asked: Vec<Entry>,
}

type Map<T> = HashMap<Entry, T, BuildHasherDefault<Mix>>;

#[derive(Clone)]
struct Copy<C> {
    contents: Option<C>,
    /// Otherwise there is only its memory, to be used again.
    good: bool,
}

#[derive(Clone)]
struct Hot {
    entry: Entry,
    /// How often the process has been away since it was taken.
    untaken: u8,
}

impl<C> Default for Hold<C> {
    fn default() -> Hold<C> {
        Hold {
            held: HashMap::default(),
            hot: Vec::new(),
            copies: HashMap::default(),
            copied: Vec::new(),
            lost: Vec::new(),
            asked: Vec::new(),
        }
    }
}

impl<C> Hold<C> {
    pub fn has(&self, entry: Entry) -> bool {
        self.held.contains_key(&entry)
    }

    pub fn get(&self, entry: Entry) -> Option<PageOf> {
        self.held.get(&entry).copied()
    }

    pub fn all(&self) -> Vec<Entry> {
        self.held.keys().copied().collect()
    }

    pub fn of_object(&self, name: u64) -> Vec<Entry> {
        let of = self.held.iter().filter(|(_, (object, _))| *object == name);
        of.map(|(&entry, _)| entry).collect()
    }

    /// The page has been touched, and is this process's. What was in it when it had it last, if that is known.
    pub fn acquired(&mut self, entry: Entry, page: PageOf) -> Option<C> {
        self.held.insert(entry, page);
        self.hot.retain(|hot| hot.entry != entry);
        if self.hot.len() == HOT {
            let cold = self.hot.remove(0);
            self.cool(cold.entry);
        }
        self.hot.push(Hot { entry, untaken: 0 });
        let copy = self.copies.remove(&entry)?;
        copy.contents.filter(|_| copy.good)
    }

    /// Not hot any more: of a page that is held, a copy is no good or will be dropped with the others.
    fn cool(&mut self, entry: Entry) {
        if self.has(entry) && self.copies.get(&entry).is_some_and(|copy| !copy.good) {
            self.copies.remove(&entry);
        }
    }

    /// Before the process is away: copies its hot pages. `read` reads one, into memory that may be there.
    pub fn copy(&mut self, mut read: impl FnMut(PageOf, &mut Option<C>)) {
        let mut hot = std::mem::take(&mut self.hot);
        hot.retain_mut(|hot| {
            hot.untaken += 1;
            let keep = hot.untaken <= PATIENCE;
            if keep {
                self.copy_one(hot.entry, &mut read);
            } else {
                self.cool(hot.entry);
            }
            keep
        });
        self.hot = hot;
    }

    fn copy_one(&mut self, entry: Entry, read: &mut impl FnMut(PageOf, &mut Option<C>)) {
        let Some(&page) = self.held.get(&entry) else {
            return;
        };
        let copy = self.copies.entry(entry).or_insert(Copy {
            contents: None,
            good: false,
        });
        // Otherwise nothing has run since it was made.
        if !copy.good {
            read(page, &mut copy.contents);
            copy.good = true;
            self.copied.push(entry);
        }
    }

    /// Sorts letters: pages that aren't this process's any more are lost. The others are asked for.
    pub fn read(&mut self, letters: Vec<Entry>, owns: impl Fn(Entry) -> bool) {
        for entry in letters {
            if !self.has(entry) {
                continue;
            }
            if !owns(entry) {
                self.lost.push(entry);
            } else if !self.asked.contains(&entry) {
                self.asked.push(entry);
            }
        }
        self.lost.sort_unstable();
        self.lost.dedup();
    }

    /// Lost pages that the process will want again at once, and can compare with what it had.
    pub fn to_regain(&self) -> Vec<Entry> {
        let hot = self.hot.iter().map(|hot| hot.entry);
        let good = |entry: &Entry| {
            let copy = self.copies.get(entry);
            copy.is_some_and(|copy| copy.good && copy.contents.is_some())
        };
        let lost = |entry: &Entry| self.lost.binary_search(entry).is_ok();
        let mut all: Vec<Entry> = hot.filter(|entry| lost(entry) && good(entry)).collect();
        all.sort_unstable();
        all
    }

    /// What was [to be regained](Self::to_regain) has been.
    pub fn regained(&mut self, entries: &[Entry]) {
        let regained = |entry: &Entry| entries.binary_search(entry).is_ok();
        for hot in self.hot.iter_mut().filter(|hot| regained(&hot.entry)) {
            hot.untaken = 0;
        }
        self.lost.retain(|entry| !regained(entry));
    }

    /// What was in a page before the process was away.
    pub fn copy_of(&self, entry: Entry) -> Option<&C> {
        let copy = self.copies.get(&entry).filter(|copy| copy.good)?;
        copy.contents.as_ref()
    }

    /// Pages to be closed, and [lost](Self::lose).
    pub fn take_lost(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.lost)
    }

    /// The page is no longer this process's; a good copy of it stays.
    pub fn lose(&mut self, entry: Entry) -> Option<PageOf> {
        self.hot.retain(|hot| hot.entry != entry);
        self.asked.retain(|&other| other != entry);
        if self.copies.get(&entry).is_some_and(|copy| !copy.good) {
            self.copies.remove(&entry);
        }
        self.held.remove(&entry)
    }

    /// It is no longer, and there is no copy of what it had last.
    pub fn forget(&mut self, entry: Entry) -> Option<PageOf> {
        self.copies.remove(&entry);
        self.lose(entry)
    }

    /// The process goes on, and all that is lost has been told: what it still has may change from here on.
    pub fn is_back(&mut self) {
        for entry in self.copied.drain(..) {
            if self.held.contains_key(&entry)
                && let Some(copy) = self.copies.get_mut(&entry)
            {
                copy.good = false;
            }
        }
    }

    pub fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Pages that others have asked for, with a copy of each: they are to be [lost](Self::lose) and given up.
    pub fn take_asked(&mut self, mut read: impl FnMut(PageOf, &mut Option<C>)) -> Vec<Entry> {
        let asked = std::mem::take(&mut self.asked);
        for &entry in &asked {
            self.copy_one(entry, &mut read);
        }
        asked
    }

    pub fn drop_asked(&mut self) {
        self.asked.clear();
    }
}

#[cfg(test)]
impl<C: Clone + Ord + std::hash::Hash> Hold<C> {
    /// All that matters for what happens next, in order.
    pub fn summary(&self) -> impl std::hash::Hash + use<C> {
        let held = self.held.iter().map(|(&entry, &page)| (entry, page));
        let copies = self.copies.iter().filter(|(_, copy)| copy.good);
        let copies = copies.map(|(&entry, copy)| (entry, copy.contents.clone()));
        let hot = self.hot.iter().map(|hot| hot.entry);
        let lists = [&self.copied, &self.lost, &self.asked];
        (
            sorted(held),
            sorted(copies),
            sorted(hot),
            lists.map(|list| sorted(list.iter().copied())),
        )
    }
}

#[cfg(test)]
fn sorted<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort();
    items
}

/// Entries are places in a table, already as good as random.
#[derive(Clone, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(byte as u32);
        }
    }
    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

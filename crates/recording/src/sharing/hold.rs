//! What one process knows of the pages that it owns: acquisitions and letters in; what it has lost, what it is asked for and
//! copies of pages from before others had them out.
//!
//! A copy is what a replay has in a page. There is one only of a page that isn't held: whoever takes the page makes it, or the
//! process itself when it gives the page up. It is gone when the page comes back.
//!
//! A process that comes back takes most of the pages again that it has lost, all at once, and compares them with their
//! copies: a fraction of a microsecond for each, where closing a page, touching it and opening it takes twenty. A page that
//! was regained [`LIFE`] times without being touched for all that is known is closed instead: that shows whether it is used.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::Entry;

/// A page is regained so often after a touch.
const LIFE: u8 = 24;
/// So many copies are kept; of other pages all contents are written down when they come back.
const COPIES: usize = 4096;

/// What an entry is a page of: an object's name, and which.
pub type PageOf = (u64, u64);

/// A page that was taken, and where in its owner's letters the copy of it is, if there is one.
pub type Lost = (Entry, Option<usize>);

/// What others say about a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Letter {
    Asked(Entry),
    Taken(Lost),
}

#[derive(Clone)]
pub struct Hold<C> {
    held: Map<Held>,
    copies: Map<C>,
    asked: Vec<Entry>,
}

type Map<T> = HashMap<Entry, T, BuildHasherDefault<Mix>>;

#[derive(Clone)]
struct Held {
    page: PageOf,
    life: u8,
}

impl<C> Default for Hold<C> {
    fn default() -> Hold<C> {
        Hold {
            held: HashMap::default(),
            copies: HashMap::default(),
            asked: Vec::new(),
        }
    }
}

impl<C> Hold<C> {
    pub fn has(&self, entry: Entry) -> bool {
        self.held.contains_key(&entry)
    }

    pub fn get(&self, entry: Entry) -> Option<PageOf> {
        self.held.get(&entry).map(|held| held.page)
    }

    pub fn all(&self) -> Vec<Entry> {
        self.held.keys().copied().collect()
    }

    pub fn of_object(&self, name: u64) -> Vec<Entry> {
        let of = self.held.iter().filter(|(_, held)| held.page.0 == name);
        of.map(|(&entry, _)| entry).collect()
    }

    /// The page has been touched, and is this process's. What was in it when it had it last, if that is known.
    pub fn acquired(&mut self, entry: Entry, page: PageOf) -> Option<C> {
        self.held.insert(entry, Held { page, life: LIFE });
        self.copies.remove(&entry)
    }

    /// Reads letters: which pages were taken? They may have been given back since.
    pub fn read(&mut self, letters: Vec<Letter>) -> Vec<Lost> {
        let mut lost = Vec::new();
        for letter in letters {
            match letter {
                Letter::Taken(page) if self.has(page.0) => lost.push(page),
                Letter::Asked(entry) if self.has(entry) && !self.asked.contains(&entry) => {
                    self.asked.push(entry);
                }
                _ => {}
            }
        }
        lost
    }

    /// Of lost pages, those that the process will want again at once and can compare with what it had.
    pub fn to_regain(&self, lost: &[Lost]) -> Vec<Lost> {
        let lives = |entry| self.held.get(&entry).is_some_and(|held| held.life > 0);
        let wanted = |&&(entry, copy): &&Lost| copy.is_some() && lives(entry);
        lost.iter().filter(wanted).copied().collect()
    }

    /// It was regained.
    pub fn regained(&mut self, entry: Entry) {
        if let Some(held) = self.held.get_mut(&entry) {
            held.life = held.life.saturating_sub(1);
        }
    }

    /// The page is no longer this process's; `copy` is what was in it.
    pub fn lose(&mut self, entry: Entry, copy: Option<C>) -> Option<PageOf> {
        self.asked.retain(|&other| other != entry);
        let held = self.held.remove(&entry)?;
        if let Some(copy) = copy {
            if self.copies.len() >= COPIES
                && let Some(&any) = self.copies.keys().next()
            {
                self.copies.remove(&any);
            }
            self.copies.insert(entry, copy);
        }
        Some(held.page)
    }

    pub fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Pages that others have asked for: to be [lost](Self::lose) and given up.
    pub fn take_asked(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.asked)
    }
}

#[cfg(test)]
impl<C: Clone + Ord + std::hash::Hash> Hold<C> {
    /// All that matters for what happens next, in order.
    pub fn summary(&self) -> impl std::hash::Hash + use<C> {
        let held = self.held.iter().map(|(&entry, held)| (entry, held.page));
        let copies = (self.copies.iter()).map(|(&entry, copy)| (entry, copy.clone()));
        let asked = self.asked.iter().copied();
        (sorted(held), sorted(copies), sorted(asked))
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

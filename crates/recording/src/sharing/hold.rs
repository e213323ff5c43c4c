//! What one process knows of the pages that it owns: acquisitions and letters in; what it has lost, what it is asked for and
//! which version of a page its replay has out.
//!
//! A version is known only of a page that isn't held, and that was published when it was lost.
//!
//! A process that comes back takes most of the pages again that it has lost, all at once, and writes down what has changed in
//! them: a fraction of a microsecond for each, where closing a page, touching it and opening it takes twenty. Whether
//! a page is used isn't known as long as it is open. So it is regained some times after a touch, then it is
//! closed; if it is touched again so soon that regaining it until then would have cost less, that was a mistake, and it is
//! regained for much longer the next time. Otherwise, for less: pages of a buffer that is gone through (postgres's log)
//! are used for a while and then not for long.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::{Entry, Version};

/// A page is regained so often after its first touch,
const FIRST: u16 = 8;
/// and at most so often after any,
const MOST: u16 = 512;
/// so many times as often as the last time if it was missed.
const LONGER: u16 = 8;
/// A touch costs as much as to regain a page some more times than this.
const SOON: u32 = 16;

/// What an entry is a page of: an object's name, and which.
pub type PageOf = (u64, u64);

/// A page that was taken, and in which version, if that is known.
pub type Lost = (Entry, Option<Version>);

/// What others say about a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Letter {
    Asked(Entry),
    Taken(Lost),
}

#[derive(Clone, Default)]
pub struct Hold {
    held: Map<Held>,
    seen: Map<Version>,
    asked: Vec<Entry>,
    lives: Map<Life>,
    /// How often lost pages were regained.
    rounds: u32,
    pub(super) room: Room,
}

/// Room for lists, kept: there are some for each time that the process comes back.
#[derive(Clone, Default)]
pub(super) struct Room {
    pub lost: Vec<Lost>,
    pub wanted: Vec<Lost>,
    pub regained: Vec<Entry>,
}

type Map<T> = HashMap<Entry, T, BuildHasherDefault<Mix>>;

#[derive(Clone)]
struct Held {
    page: PageOf,
    /// How often it will be regained yet.
    left: u16,
}

/// How long a page was held after its last touch.
#[derive(Clone, Copy)]
struct Life {
    rounds: u16,
    /// In which round it was closed.
    closed: u32,
}

impl Hold {
    pub fn has(&self, entry: Entry) -> bool {
        self.held.contains_key(&entry)
    }

    pub fn get(&self, entry: Entry) -> Option<PageOf> {
        self.held.get(&entry).map(|held| held.page)
    }

    /// Which version of a page that isn't held a replay has.
    pub fn seen(&self, entry: Entry) -> Option<Version> {
        self.seen.get(&entry).copied()
    }

    pub fn all(&self) -> Vec<Entry> {
        self.held.keys().copied().collect()
    }

    pub fn of_object(&self, name: u64) -> Vec<Entry> {
        let of = self.held.iter().filter(|(_, held)| held.page.0 == name);
        of.map(|(&entry, _)| entry).collect()
    }

    /// The page has been touched, and is this process's.
    pub fn acquired(&mut self, entry: Entry, page: PageOf) {
        let left = match self.lives.get(&entry) {
            None => FIRST,
            Some(life) => {
                let missed = self.rounds.wrapping_sub(life.closed) <= SOON;
                if missed {
                    life.rounds.saturating_mul(LONGER).min(MOST)
                } else {
                    (life.rounds / LONGER).max(FIRST)
                }
            }
        };
        let (rounds, closed) = (left, self.rounds);
        self.lives.insert(entry, Life { rounds, closed });
        self.held.insert(entry, Held { page, left });
        self.seen.remove(&entry);
    }

    /// Reads a letter: was a page taken? It may have been given back since.
    pub fn read(&mut self, letter: Letter) -> Option<Lost> {
        match letter {
            Letter::Taken(page) if self.has(page.0) => return Some(page),
            Letter::Asked(entry) if self.has(entry) && !self.asked.contains(&entry) => {
                self.asked.push(entry);
            }
            _ => {}
        }
        None
    }

    /// Whether a lost page is one that the process will want again at once and of which it knows what it had.
    pub fn wants(&self, (entry, seen): Lost) -> bool {
        seen.is_some() && self.held.get(&entry).is_some_and(|held| held.left > 0)
    }

    /// It was regained.
    pub fn regained(&mut self, entry: Entry) {
        if let Some(held) = self.held.get_mut(&entry) {
            held.left = held.left.saturating_sub(1);
        }
    }

    /// Pages have been regained.
    pub fn round(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
    }

    /// The page is no longer this process's, and its replay has this version of it.
    pub fn lose(&mut self, entry: Entry, seen: Option<Version>) -> Option<PageOf> {
        self.asked.retain(|&other| other != entry);
        let held = self.held.remove(&entry)?;
        if let Some(life) = self.lives.get_mut(&entry) {
            life.closed = self.rounds;
        }
        if let Some(seen) = seen {
            self.seen.insert(entry, seen);
        }
        Some(held.page)
    }

    pub fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Pages that others have asked for.
    pub fn take_asked(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.asked)
    }
}

#[cfg(test)]
impl Hold {
    /// All that matters for what happens next, in order.
    pub fn summary(&self) -> impl std::hash::Hash + use<> {
        let held = self.held.iter().map(|(&entry, held)| (entry, held.page));
        let seen = self.seen.iter().map(|(&entry, &seen)| (entry, seen));
        let asked = self.asked.iter().copied();
        (sorted(held), sorted(seen), sorted(asked))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Regains the page until it isn't wanted any more: how often?
    fn held_for(hold: &mut Hold, entry: Entry) -> u16 {
        let mut times = 0;
        while hold.wants((entry, Some(1))) {
            hold.regained(entry);
            hold.round();
            times += 1;
        }
        hold.lose(entry, Some(1));
        times
    }

    #[test]
    fn what_is_missed_is_held_longer() {
        let mut hold = Hold::default();
        hold.acquired(7, (1, 7));
        assert_eq!(held_for(&mut hold, 7), FIRST);
        hold.acquired(7, (1, 7));
        assert_eq!(held_for(&mut hold, 7), FIRST * LONGER);
        hold.acquired(7, (1, 7));
        assert_eq!(held_for(&mut hold, 7), FIRST * LONGER * LONGER);
        // Nobody has missed it until now.
        (0..=SOON).for_each(|_| hold.round());
        hold.acquired(7, (1, 7));
        assert_eq!(held_for(&mut hold, 7), FIRST * LONGER);
        assert_eq!(hold.seen(7), Some(1));
        hold.acquired(7, (1, 7));
        assert_eq!(hold.seen(7), None);
    }
}

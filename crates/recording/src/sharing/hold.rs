//! What one process knows of the pages that it owns: acquisitions and letters in, what it has lost, what it is asked for and
//! copies of pages from before others had them out.
//!
//! A copy is what a replay has in a page. Of a page that is held there is one only while the process is away: it is made
//! before ([`Hold::copy`]) and dropped after ([`Hold::is_back`]), or it would be compared with later, and what had changed back
//! to it would be missed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::Entry;

/// So many pages that were acquired last are copied; of others all contents are written down when they come back.
const COPIED: usize = 96;

/// What an entry is a page of: an object's name, and which.
pub type PageOf = (u64, u64);

#[derive(Clone)]
pub struct Hold<C> {
    held: HashMap<Entry, PageOf, BuildHasherDefault<Mix>>,
    /// Acquired last; oldest first.
    recent: Vec<Entry>,
    copies: HashMap<Entry, C, BuildHasherDefault<Mix>>,
    /// Of these held pages there are copies.
    copied: Vec<Entry>,
    asked: Vec<Entry>,
}

impl<C> Default for Hold<C> {
    fn default() -> Hold<C> {
        Hold {
            held: HashMap::default(),
            recent: Vec::new(),
            copies: HashMap::default(),
            copied: Vec::new(),
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

    /// The page is this process's. What was in it when it had it last, if that is known.
    pub fn acquired(&mut self, entry: Entry, page: PageOf) -> Option<C> {
        self.held.insert(entry, page);
        self.recent.retain(|&other| other != entry);
        if self.recent.len() == COPIED {
            self.recent.remove(0);
        }
        self.recent.push(entry);
        self.copies.remove(&entry)
    }

    /// Before the process is away: copies the pages acquired last, as `read` finds them.
    pub fn copy(&mut self, mut read: impl FnMut(PageOf) -> Option<C>) {
        for n in 0..self.recent.len() {
            self.copy_one(self.recent[n], &mut read);
        }
    }

    fn copy_one(&mut self, entry: Entry, read: &mut impl FnMut(PageOf) -> Option<C>) {
        if let Some(copy) = self.get(entry).and_then(read) {
            self.copies.insert(entry, copy);
            self.copied.push(entry);
        }
    }

    /// Sorts letters: pages that aren't this process's any more, to be [lost](Self::lose). The others are asked for.
    pub fn read(&mut self, letters: Vec<Entry>, owns: impl Fn(Entry) -> bool) -> Vec<Entry> {
        let mut lost = Vec::new();
        for entry in letters {
            if !self.has(entry) {
                continue;
            }
            if !owns(entry) {
                lost.push(entry);
            } else if !self.asked.contains(&entry) {
                self.asked.push(entry);
            }
        }
        lost
    }

    /// The page is no longer this process's; a copy of it stays.
    pub fn lose(&mut self, entry: Entry) -> Option<PageOf> {
        self.recent.retain(|&other| other != entry);
        self.asked.retain(|&other| other != entry);
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
            if self.held.contains_key(&entry) {
                self.copies.remove(&entry);
            }
        }
    }

    pub fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Pages that others have asked for, with a copy of each: they are to be [lost](Self::lose) and given up.
    pub fn take_asked(&mut self, mut read: impl FnMut(PageOf) -> Option<C>) -> Vec<Entry> {
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
impl<C: Clone + Ord> Hold<C> {
    /// All that matters for what happens next, in order.
    pub fn summary(&self) -> impl std::hash::Hash + use<C>
    where
        C: std::hash::Hash,
    {
        let mut held: Vec<_> = self
            .held
            .iter()
            .map(|(&entry, &page)| (entry, page))
            .collect();
        let mut copies: Vec<_> = (self.copies.iter())
            .map(|(&entry, copy)| (entry, copy.clone()))
            .collect();
        held.sort();
        copies.sort();
        let mut copied = self.copied.clone();
        copied.sort();
        copied.dedup();
        (held, copies, copied, self.asked.clone())
    }
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

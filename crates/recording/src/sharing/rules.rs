//! The rules by which pages change hands: one step of one process in, the table after it and what the process does next out.
//!
//! Every function here is one step, made under the table's lock. Nothing waits here: [`super::Sharing`] waits, and the
//! model in `model.rs` makes the same steps in every order.
//!
//! # States
//!
//! A process *runs* or is *away*. One that runs may touch the pages that it owns and all memory that isn't governed. One that
//! is away touches no guest memory at all: it waits in the kernel, for a page, for others to govern an object, or it
//! has stepped aside. **Whoever waits is away**, so nobody waits for one who waits: that is why there is no deadlock.
//!
//! A page has an owner or none; also *next*, who gets it when its owner gives it up.
//! A use (a process has an object) is *free*, *to govern*, or *governed*: the process's pages of the object are closed unless owned.
//!
//! # Messages
//!
//! | message | to | asks for |
//! |---|---|---|
//! | a letter with a page that the reader owns | an owner who runs | give it up, at the next place that can be found again |
//! | a letter with a page that it doesn't own any more | an owner who was away | close it before anything else |
//! | *to govern* | a user of an object | close it; one who runs is waited for, one who is away does it before it runs |
//! | `news` | all who wait | look again |
//!
//! # Steps
//!
//! - [`Rules::take`]: a page of nobody, of a dead process, or of one who is away becomes the taker's; an owner that is away gets
//!   a letter, and in the same step the taker copies the page for it: what is in it then is what the owner's replay has. Only
//!   the page that a process waits for itself can't be taken from it: it has been given it, and will run.
//! - [`Rules::take_or_wait`]: or else a letter, and a place as the next owner; and the asker is away until it can take.
//! - [`Rules::busy`], [`Rules::regain`]: the same for all pages that a process has lost while it was away and will want again at
//!   once: processes that use the same pages take turns with all of them.
//! - [`Rules::release`]: to the next owner, or to nobody.
//! - [`Rules::back`]: after [`Rules::away`], and before it touches guest memory, a process reads its letters, compares what it has
//!   regained with the copies, closes what it has lost, and governs what it is asked to. Until it runs, its letters stay where
//!   they are, and the copies with them.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};

use super::{Entry, Letter, Lost};
use crate::event::StreamId;

pub(super) const LETTERS: usize = 250;
/// In a letter: the page was taken, otherwise asked for; and it was copied for whom it was taken from.
const TAKEN: u32 = 1 << 30;
const COPIED: u32 = 1 << 31;

pub(super) mod doing {
    /// Running the guest, or about to.
    pub const RUNS: u32 = 0;
    /// In the kernel, or waiting: away from its pages.
    pub const AWAY: u32 = 1;
}

pub(super) const TO_GOVERN: u32 = 1;
pub(super) const GOVERNED: u32 = 2;

/// A process has an object mapped.
#[repr(C)]
#[derive(Default)]
pub(super) struct Use {
    pub object: AtomicU64,
    /// 0 if the slot is free.
    pub stream: AtomicU32,
    /// 0, [`TO_GOVERN`] or [`GOVERNED`].
    pub governed: AtomicU32,
}

/// What belongs to the process in the slot of the same number.
#[repr(C)]
pub(super) struct Member {
    pub doing: AtomicU32,
    /// The page that it waits for, plus one.
    pub waits_for: AtomicU32,
    /// Somebody wants something from it.
    pub wanted: AtomicU32,
    /// Since when it runs.
    pub since: AtomicU32,
    pub pid: AtomicI32,
    pub tid: AtomicI32,
    /// More letters came than there is room for.
    pub overflow: AtomicU32,
    pub count: AtomicU32,
    /// Pages that were asked for, or taken.
    pub letters: [AtomicU32; LETTERS],
}

#[repr(C)]
#[derive(Default)]
pub(super) struct Page {
    /// What it is a page of, and which; 0 if the entry is free.
    pub key: AtomicU64,
    pub owner: AtomicU32,
    /// Who gets it next.
    pub next: AtomicU32,
    /// Somebody has owned it.
    pub used: AtomicU32,
}

/// Who makes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub stream: StreamId,
    /// Its member's.
    pub index: usize,
}

/// What [`Rules::use_object`] found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Joined {
    /// Others have the object, or had it when this process began to.
    pub others: bool,
    /// Those that run and haven't closed it yet: to be waited for, and asked again.
    pub wait_for: Vec<usize>,
}

/// A page was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub entry: Entry,
    /// Nobody has ever owned it.
    pub first: bool,
    /// The member that it was taken from and the letter that it got: the copy belongs there.
    pub from: Option<(usize, usize)>,
}

/// A process waits for a page.
pub(super) struct Waits {
    pub owner: usize,
    /// That it is away may be news to somebody.
    pub tell: bool,
}

/// The table, for one step.
pub(super) struct Rules<'a> {
    pub uses: &'a [Use],
    pub uses_end: &'a AtomicU32,
    pub members: &'a [Member],
    pub pages: &'a [Page],
    /// The member of a stream, if its process lives.
    pub living: &'a dyn Fn(StreamId) -> Option<usize>,
}

impl Rules<'_> {
    pub fn runs(&self, index: usize) -> bool {
        self.members[index].doing.load(Relaxed) == doing::RUNS
    }

    /// Whether a living process has been given the page that it waits for, and will run.
    fn comes_for(&self, owner: usize, entry: Entry) -> bool {
        self.members[owner].waits_for.load(Relaxed) == entry + 1
    }

    /// Takes a page, or says whom to ask.
    pub fn take(&self, me: Who, entry: Entry) -> Result<Taken, usize> {
        let page = &self.pages[entry as usize];
        let owner = page.owner.load(Relaxed);
        let mut taken = Taken {
            entry,
            first: false,
            from: None,
        };
        if owner == me.stream {
            return Ok(taken);
        }
        if owner != 0
            && let Some(index) = (self.living)(owner)
        {
            if self.runs(index) || self.comes_for(index, entry) {
                return Err(index);
            }
            taken.from = self.put(index, entry | TAKEN).map(|letter| (index, letter));
        }
        page.owner.store(me.stream, Release);
        if page.next.load(Relaxed) == me.stream {
            page.next.store(0, Relaxed);
        }
        taken.first = page.used.swap(1, Relaxed) == 0;
        Ok(taken)
    }

    /// The copy of a page that was taken is there.
    pub fn copied(&self, (index, letter): (usize, usize)) {
        self.members[index].letters[letter].fetch_or(COPIED, Release);
    }

    /// Takes a page, and goes on; or asks for it, and is away.
    pub fn take_or_wait(&self, me: Who, entry: Entry) -> Result<Taken, Waits> {
        match self.take(me, entry) {
            Ok(taken) => {
                self.back(me);
                Ok(taken)
            }
            Err(owner) => {
                self.ask(me, entry, owner);
                let tell = self.away(me, Some(entry));
                Err(Waits { owner, tell })
            }
        }
    }

    /// Takes those of these lost pages that can be taken, and goes on: which, and the letters about them. All letters are
    /// read then.
    pub fn regain(&self, me: Who, lost: &[Lost]) -> Vec<(Taken, usize)> {
        let take = |&(entry, letter): &Lost| Some((self.take(me, entry).ok()?, letter?));
        let taken = lost.iter().filter_map(take).collect();
        let member = &self.members[me.index];
        for word in [&member.wanted, &member.count, &member.overflow] {
            word.store(0, Relaxed);
        }
        self.back(me);
        taken
    }

    /// If the owner of one of these lost pages runs: it is asked for that page, and this process is away.
    pub fn busy(&self, me: Who, lost: &[Lost]) -> Option<Waits> {
        for &(entry, _) in lost {
            let owner = self.pages[entry as usize].owner.load(Relaxed);
            if owner != 0
                && owner != me.stream
                && let Some(owner) = (self.living)(owner)
                && (self.runs(owner) || self.comes_for(owner, entry))
            {
                self.ask(me, entry, owner);
                let tell = self.away(me, Some(entry));
                return Some(Waits { owner, tell });
            }
        }
        None
    }

    /// Asks the owner for a page.
    fn ask(&self, me: Who, entry: Entry, owner: usize) {
        let page = &self.pages[entry as usize];
        let next = page.next.load(Relaxed);
        if next == 0 || (self.living)(next).is_none() {
            page.next.store(me.stream, Relaxed);
        }
        self.post(owner, entry);
    }

    /// Gives a page up: whose is it now?
    pub fn release(&self, me: Who, entry: Entry) -> Option<usize> {
        let page = &self.pages[entry as usize];
        if page.owner.load(Relaxed) != me.stream {
            return None;
        }
        let next = page.next.swap(0, Relaxed);
        // One that has got what it wanted in another way doesn't come for it.
        let index = (self.living)(next).filter(|&index| next != 0 && self.comes_for(index, entry));
        page.owner.store(index.map_or(0, |_| next), Release);
        index
    }

    /// Tells a member about a page that it is asked for; more than once, perhaps.
    fn post(&self, index: usize, entry: Entry) {
        let member = &self.members[index];
        let count = member.count.load(Relaxed) as usize;
        let mut there = member.letters[..count.min(LETTERS)].iter();
        if !there.any(|letter| letter.load(Relaxed) == entry) {
            self.put(index, entry);
        }
        member.wanted.store(1, Relaxed);
    }

    /// Tells a member about a page: with which of its letters?
    fn put(&self, index: usize, letter: u32) -> Option<usize> {
        let member = &self.members[index];
        member.wanted.store(1, Relaxed);
        let count = member.count.load(Relaxed) as usize;
        let Some(room) = member.letters.get(count) else {
            member.overflow.store(1, Relaxed);
            return None;
        };
        room.store(letter, Relaxed);
        member.count.store(count as u32 + 1, Relaxed);
        Some(count)
    }

    /// Pages that were asked for or taken since letters were last read; true if there were more.
    pub fn letters(&self, me: Who) -> (Vec<Letter>, bool) {
        let member = &self.members[me.index];
        let count = member.count.load(Relaxed) as usize;
        let letter = |n: usize| {
            let letter = member.letters[n].load(Acquire);
            let entry = letter & !(TAKEN | COPIED);
            if letter & TAKEN == 0 {
                Letter::Asked(entry)
            } else {
                Letter::Taken((entry, (letter & COPIED != 0).then_some(n)))
            }
        };
        let more = member.overflow.load(Relaxed) != 0;
        ((0..count.min(LETTERS)).map(letter).collect(), more)
    }

    /// The process doesn't touch guest memory from here on. True if that may be news to somebody.
    pub fn away(&self, me: Who, for_page: Option<Entry>) -> bool {
        let member = &self.members[me.index];
        member
            .waits_for
            .store(for_page.map_or(0, |entry| entry + 1), Relaxed);
        member.doing.swap(doing::AWAY, Relaxed) == doing::RUNS && member.wanted.load(Relaxed) != 0
    }

    pub fn back(&self, me: Who) {
        let member = &self.members[me.index];
        member.waits_for.store(0, Relaxed);
        member.doing.store(doing::RUNS, Relaxed);
    }

    /// The process maps (or writes to) an object. Once there is nobody to wait for, the others' pages are closed
    /// unless owned, and so must this process's be if there are others. `None` if the table is full.
    pub fn use_object(&self, me: Who, object: u64) -> Option<Joined> {
        let end = self.uses_end.load(Relaxed) as usize;
        let (mut own, mut free, mut others) = (None, None, false);
        let mut wait_for = Vec::new();
        for (n, used) in self.uses[..end].iter().enumerate() {
            let stream = used.stream.load(Relaxed);
            if stream == 0 {
                free.get_or_insert(n);
                continue;
            }
            if used.object.load(Relaxed) != object {
                continue;
            }
            if stream == me.stream {
                own = Some(n);
                continue;
            }
            let Some(index) = (self.living)(stream) else {
                used.stream.store(0, Relaxed);
                free.get_or_insert(n);
                continue;
            };
            others = true;
            if used.governed.load(Relaxed) != GOVERNED {
                used.governed.store(TO_GOVERN, Relaxed);
                self.members[index].wanted.store(1, Relaxed);
                if self.runs(index) {
                    wait_for.push(index);
                }
            }
        }
        let used = match own.or(free) {
            Some(n) => &self.uses[n],
            None => {
                let used = self.uses.get(end)?;
                self.uses_end.store(end as u32 + 1, Relaxed);
                used
            }
        };
        if own.is_none() {
            used.object.store(object, Relaxed);
            used.stream.store(me.stream, Relaxed);
            // Whoever had the slot before may have left something else.
            used.governed.store(0, Relaxed);
        }
        if others {
            used.governed.store(GOVERNED, Relaxed);
        }
        Some(Joined {
            others: used.governed.load(Relaxed) == GOVERNED,
            wait_for,
        })
    }

    fn uses_of(&self, stream: StreamId) -> impl Iterator<Item = &Use> {
        let end = self.uses_end.load(Relaxed) as usize;
        self.uses[..end]
            .iter()
            .filter(move |used| used.stream.load(Relaxed) == stream)
    }

    /// Does another living process use the object?
    pub fn is_used_by_others(&self, me: Who, object: u64) -> bool {
        let end = self.uses_end.load(Relaxed) as usize;
        self.uses[..end].iter().any(|used| {
            let stream = used.stream.load(Relaxed);
            let other = stream != 0 && stream != me.stream;
            other && used.object.load(Relaxed) == object && (self.living)(stream).is_some()
        })
    }

    /// The process has nothing of the object any more.
    pub fn leave_object(&self, me: Who, object: u64) {
        for used in self.uses_of(me.stream) {
            if used.object.load(Relaxed) == object {
                used.stream.store(0, Relaxed);
                used.governed.store(0, Relaxed);
            }
        }
    }

    /// Objects that another process has begun to use as well.
    pub fn to_govern(&self, me: Who) -> Vec<u64> {
        self.uses_of(me.stream)
            .filter(|used| used.governed.load(Relaxed) == TO_GOVERN)
            .map(|used| used.object.load(Relaxed))
            .collect()
    }

    /// The object's pages are closed here.
    pub fn governed(&self, me: Who, object: u64) {
        for used in self.uses_of(me.stream) {
            if used.object.load(Relaxed) == object {
                used.governed.store(GOVERNED, Relaxed);
            }
        }
    }
}

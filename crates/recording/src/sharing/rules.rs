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
//! | a letter with a page that the reader owns | an owner who runs | step aside, at a place that can be found again, when its stint is over |
//! | a letter with a page that it doesn't own any more | an owner who was away | regain or close it before anything else |
//! | *to govern* | a user of an object | close it; one who runs is waited for, one who is away does it before it runs |
//! | `news` | one who waits, or all | look again; who has to wait on wakes the next, once |
//!
//! # Steps
//!
//! - [`Rules::take`]: a page of nobody, of a dead process, or of one who is away becomes the taker's; in the same step the taker
//!   *publishes* it ([`super::versions`]): what is in it then is what the owner's replay has. An owner that is away gets
//!   a letter with that version. Only the page that a process waits for itself can't be taken from it: it has been given it,
//!   and will run.
//! - [`Rules::take_or_wait`]: or else a letter, and a place as the next owner; and the asker is away until it can take.
//! - [`Rules::busy`], [`Rules::regain`]: the same for all pages that a process has lost while it was away and will want again at
//!   once: processes that use the same pages take turns with all of them.
//! - [`Rules::aside`]: who has run long enough is away for a while, so that those who have asked take what they want.
//! - [`Rules::release`]: to the next owner, or to nobody: whoever unmaps a page.
//! - [`Rules::back`]: after [`Rules::away`], and before it touches guest memory, a process reads its letters, writes down what has
//!   changed of what it has regained since the versions in the letters, closes what it has lost, and governs what it is asked to.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};

use super::{Entry, Letter, Lost, Version};
use crate::event::StreamId;
use crate::{futex, shared};

/// The model has few pages, and very many tables.
pub(super) const LETTERS: usize = if cfg!(test) { 12 } else { 508 };
/// In a letter, beside the page: it was taken, otherwise asked for; and the version that it was taken in, if that is known.
const TAKEN: u64 = 1 << 31;
const VERSION: u32 = 32;

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
    /// The kernel thread that takes the table's lock.
    pub locks: AtomicU32,
    /// The pid namespace that `pid` and the threads are numbered in; 0 if not known.
    pub namespace: AtomicU64,
    /// More letters came than there is room for.
    pub overflow: AtomicU32,
    pub count: AtomicU32,
    /// Pages that were asked for, or taken.
    pub letters: [AtomicU64; LETTERS],
}

impl Member {
    /// The calling thread is the member's, before it takes the lock.
    pub fn is_here(&self, namespace: u64) {
        self.namespace.store(namespace, Relaxed);
        self.locks.store(futex::tid(), Relaxed);
    }

    /// Whether its numbers mean the same here as there.
    pub fn is_visible(&self) -> bool {
        let namespace = self.namespace.load(Relaxed);
        namespace != 0 && namespace == shared::known_pid_namespace()
    }

    /// Has it look up from its work. In another pid namespace its numbers would be somebody else's: there it looks up
    /// at the end of its turn.
    pub fn kick(&self, kick: &dyn Fn(i32, i32)) {
        if self.is_visible() {
            kick(self.pid.load(Relaxed), self.tid.load(Relaxed));
        }
    }
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
    /// Where the copy of it is, plus one; and of which version.
    pub copy: AtomicU32,
    pub version: AtomicU32,
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
    /// The member that it was taken from and the letter that it got: the version belongs there.
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

    /// Whether a living process keeps its pages: it runs, or will at once.
    fn keeps(&self, index: usize, entry: Entry) -> bool {
        self.runs(index) || self.comes_for(index, entry)
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
            if self.keeps(index, entry) {
                return Err(index);
            }
            let letter = self.put(index, entry as u64 | TAKEN);
            taken.from = letter.map(|letter| (index, letter));
        }
        page.owner.store(me.stream, Release);
        if page.next.load(Relaxed) == me.stream {
            page.next.store(0, Relaxed);
        }
        taken.first = page.used.swap(1, Relaxed) == 0;
        Ok(taken)
    }

    /// A page that was taken is published: who had it is told the version.
    pub fn published(&self, taken: &Taken, version: Version) {
        if let Some((index, letter)) = taken.from {
            let version = (version as u64) << VERSION;
            self.members[index].letters[letter].fetch_or(version, Release);
        }
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

    /// Takes those of these lost pages that can be taken, and goes on: `each` sees which, and the versions that they were lost
    /// in. All letters are read then.
    pub fn regain(&self, me: Who, lost: &[Lost], mut each: impl FnMut(Taken, Version)) {
        for &(entry, seen) in lost {
            if let (Ok(taken), Some(seen)) = (self.take(me, entry), seen) {
                each(taken, seen);
            }
        }
        let member = &self.members[me.index];
        for word in [&member.wanted, &member.count, &member.overflow] {
            word.store(0, Relaxed);
        }
        self.back(me);
    }

    /// If the owner of one of these lost pages runs: it is asked for that page, and this process is away.
    pub fn busy(&self, me: Who, lost: &[Lost]) -> Option<Waits> {
        for &(entry, _) in lost {
            let owner = self.pages[entry as usize].owner.load(Relaxed);
            if owner != 0
                && owner != me.stream
                && let Some(owner) = (self.living)(owner)
                && self.keeps(owner, entry)
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
        let comes = |&index: &usize| self.comes_for(index, entry);
        if next == 0 || (self.living)(next).filter(comes).is_none() {
            page.next.store(me.stream, Relaxed);
        }
        self.post(owner, entry);
    }

    /// The process is away for the sake of those who have asked for these pages: who are they?
    pub fn aside(&self, me: Who, entries: &[Entry]) -> Vec<(usize, Entry)> {
        let taker = |&entry: &Entry| {
            let next = self.pages[entry as usize].next.load(Relaxed);
            let index = (self.living)(next).filter(|_| next != 0 && next != me.stream)?;
            self.comes_for(index, entry).then_some((index, entry))
        };
        let takers = entries.iter().filter_map(taker).collect();
        self.away(me, None);
        takers
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
        if !there.any(|letter| letter.load(Relaxed) == entry as u64) {
            self.put(index, entry as u64);
        }
        member.wanted.store(1, Relaxed);
    }

    /// Tells a member about a page: with which of its letters?
    fn put(&self, index: usize, letter: u64) -> Option<usize> {
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

    /// Reads letters, about pages that were asked for or taken since they were last read; true if there were more.
    pub fn letters(&self, me: Who, mut each: impl FnMut(Letter)) -> bool {
        let member = &self.members[me.index];
        let count = member.count.load(Relaxed) as usize;
        let letter = |n: usize| {
            let letter = member.letters[n].load(Acquire);
            let entry = (letter & (TAKEN - 1)) as Entry;
            if letter & TAKEN == 0 {
                Letter::Asked(entry)
            } else {
                let version = (letter >> VERSION) as Version;
                Letter::Taken((entry, (version != 0).then_some(version)))
            }
        };
        (0..count.min(LETTERS)).for_each(|n| each(letter(n)));
        member.overflow.load(Relaxed) != 0
    }

    /// The process doesn't touch guest memory from here on. True if it did until now, which may be news to somebody.
    pub fn away(&self, me: Who, for_page: Option<Entry>) -> bool {
        let member = &self.members[me.index];
        member
            .waits_for
            .store(for_page.map_or(0, |entry| entry + 1), Relaxed);
        member.doing.swap(doing::AWAY, Relaxed) == doing::RUNS
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

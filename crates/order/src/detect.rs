//! Accesses that nothing orders. In: interactions and accesses to shared memory, in the order in which they happened.
//! Out: pairs of accesses to the same bytes, one of them a write, that no synchronisation is between.
//!
//! As FastTrack does it: a clock for each thread and each object that hands something over; for each byte the last writes and the
//! reads since, each with the time of its thread. What is found would be found in any order with the same interactions.
//!
//! Memory that is touched by an atomic instruction is a means of synchronisation: whoever reads it, by whatever instruction,
//! comes after all who wrote it. Machine code doesn't tell an atomic load or store from an ordinary one.

use std::collections::BTreeMap;
use std::ops::Range;

use clew_recording::event::ThreadId;
use clew_timeline::Mark;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::clocks::Clock;
use crate::interaction::{Interaction, Kind};

const PAGE: u64 = 4096;
/// Pairs of instructions that are kept.
const MOST_PAIRS: usize = 10_000;
/// Blocks that are remembered after they were given back.
const MOST_GONE: usize = 100_000;

/// A thread touches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub thread: ThreadId,
    pub at: Mark,
    pub addr: u64,
    pub len: u64,
    pub read: bool,
    pub write: bool,
    pub locked: bool,
}

/// What was remembered of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Bytes of the word.
    mask: u8,
    pub thread: ThreadId,
    time: u32,
    pub at: Mark,
    /// The instruction, or the call that gave the memory back.
    pub site: u64,
    pub write: bool,
    /// An atomic instruction, or one that may be meant as such: two of them are no race.
    atomic: bool,
    /// It reads and writes without being atomic: that is never meant.
    changes: bool,
    /// The memory was given back.
    pub freed: bool,
    /// Which locks were held, by the number of the set.
    pub locks: u32,
}

/// A block of memory that the program asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub addr: u64,
    pub size: u64,
    pub thread: ThreadId,
    pub at: Mark,
    pub back: u64,
}

/// Two accesses without order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub first: Touched,
    pub second: Touched,
    /// The bytes that both touch.
    pub addr: u64,
    pub len: u64,
    pub block: Option<Block>,
    pub count: u64,
}

/// The accesses to a word that still matter.
#[derive(Clone, Debug, Default)]
struct Word {
    writes: Vec<Touched>,
    reads: Vec<Touched>,
}

/// Memory that atomic instructions touch: where it is in its word, and what it hands over.
#[derive(Clone, Debug, Default)]
struct Atomic {
    mask: u8,
    clock: Clock,
}

type Words<T> = FxHashMap<u64, FxHashMap<u16, T>>;

#[derive(Default)]
pub struct Detector {
    threads: Vec<Clock>,
    objects: FxHashMap<u32, Clock>,
    /// What readers of an rwlock hand over, to writers alone.
    readers: FxHashMap<u32, Clock>,
    writer: FxHashMap<u32, ThreadId>,
    words: Words<Word>,
    atomics: Words<Atomic>,
    /// Known to be atomic from the beginning: an earlier way through found out too late.
    foreknown: FxHashSet<u64>,
    late: FxHashSet<u64>,
    held: FxHashMap<ThreadId, Vec<u32>>,
    sets: Vec<Vec<u32>>,
    numbers: FxHashMap<Vec<u32>, u32>,
    blocks: BTreeMap<u64, Block>,
    /// Blocks that were given back, and by whom, until the memory is used again.
    gone: BTreeMap<u64, (Block, Touched)>,
    pairs: FxHashMap<(u64, bool, u64, bool), Pair>,
    pub complete: bool,
    pub accesses: u64,
}

impl Detector {
    pub fn begins(&mut self) {
        let foreknown = std::mem::take(&mut self.foreknown);
        *self = Detector {
            foreknown,
            complete: true,
            ..Detector::default()
        };
        self.sets.push(Vec::new());
        self.numbers.insert(Vec::new(), 0);
    }

    /// Memory that is atomic, wherever that is known from. Whether that is news.
    pub fn knows(&mut self, addresses: impl IntoIterator<Item = u64>) -> bool {
        let before = self.foreknown.len();
        self.foreknown.extend(addresses);
        self.foreknown.len() > before
    }

    /// Memory was written by ordinary instructions before it turned out to be atomic: what these handed over is
    /// missing. Whether there is some, and another way through will know.
    pub fn learns(&mut self) -> bool {
        let late = std::mem::take(&mut self.late);
        let before = self.foreknown.len();
        self.foreknown.extend(late);
        self.foreknown.len() > before
    }

    /// In the order in which they were first seen.
    pub fn pairs(&self) -> Vec<Pair> {
        let mut all: Vec<Pair> = self.pairs.values().cloned().collect();
        let place = |mark: &Mark| (mark.event, mark.ticks, mark.pc, mark.sp);
        all.sort_by_key(|pair| (place(&pair.second.at), place(&pair.first.at)));
        all
    }

    /// The locks of a set, by their objects' numbers.
    pub fn locks(&self, set: u32) -> &[u32] {
        self.sets.get(set as usize).map_or(&[], Vec::as_slice)
    }

    /// All sets of locks, by their numbers.
    pub fn all_locks(&self) -> Vec<Vec<u32>> {
        self.sets.clone()
    }

    /// The block that is at an address now; of what was given back and isn't used again, the one that was there.
    pub fn block_was_at(&self, addr: u64) -> Option<Block> {
        let inside = |block: &Block| addr.wrapping_sub(block.addr) < block.size.max(1);
        let live = self.blocks.range(..=addr).next_back();
        let live = live.map(|(_, block)| *block).filter(inside);
        let gone = || self.gone.range(..=addr).next_back();
        live.or_else(|| gone().map(|(_, (block, _))| *block).filter(inside))
    }

    fn thread(&mut self, thread: ThreadId) -> &mut Clock {
        let at = thread as usize;
        while self.threads.len() <= at {
            let mut clock = Clock::default();
            clock.set(self.threads.len() as ThreadId, 1);
            self.threads.push(clock);
        }
        &mut self.threads[at]
    }

    fn acquire(&mut self, thread: ThreadId, object: u32) {
        if let Some(clock) = self.objects.get(&object).cloned() {
            self.thread(thread).join(&clock);
        }
    }

    fn release(&mut self, thread: ThreadId, object: u32) {
        let clock = self.thread(thread).clone();
        self.objects.entry(object).or_default().join(&clock);
        self.thread(thread).tick(thread);
    }

    fn take(&mut self, thread: ThreadId, object: u32) {
        self.held.entry(thread).or_default().push(object);
    }

    fn give(&mut self, thread: ThreadId, object: u32) {
        let held = self.held.entry(thread).or_default();
        if let Some(at) = held.iter().rposition(|&one| one == object) {
            held.remove(at);
        }
    }

    /// The number of the set of locks that a thread has.
    pub fn lock_set(&mut self, thread: ThreadId) -> u32 {
        let Some(held) = self.held.get(&thread) else {
            return 0;
        };
        if let Some(&number) = self.numbers.get(held) {
            return number;
        }
        let number = self.sets.len() as u32;
        self.sets.push(held.clone());
        self.numbers.insert(held.clone(), number);
        number
    }

    /// `talks`: what is done there can be seen by others.
    pub fn interacts(&mut self, one: &Interaction, talks: bool) {
        let (thread, object) = (one.thread, one.object);
        match one.kind {
            Kind::MutexLock | Kind::SpinLock => {
                self.acquire(thread, object);
                self.take(thread, object);
            }
            Kind::MutexUnlock | Kind::SpinUnlock => {
                self.give(thread, object);
                self.release(thread, object);
            }
            Kind::RwRead => {
                self.acquire(thread, object);
                self.take(thread, object);
            }
            Kind::RwWrite => {
                self.acquire(thread, object);
                if let Some(clock) = self.readers.get(&object).cloned() {
                    self.thread(thread).join(&clock);
                }
                self.take(thread, object);
                self.writer.insert(object, thread);
            }
            Kind::RwUnlock => {
                self.give(thread, object);
                match self.writer.get(&object) == Some(&thread) {
                    true => {
                        self.writer.remove(&object);
                        self.release(thread, object);
                    }
                    false => {
                        let clock = self.thread(thread).clone();
                        self.readers.entry(object).or_default().join(&clock);
                        self.thread(thread).tick(thread);
                    }
                }
            }
            Kind::ThreadCreate
            | Kind::ThreadExit
            | Kind::SemPost
            | Kind::BarrierArrive
            | Kind::QueueSend
            | Kind::FutexWake
            | Kind::SignalSend
            | Kind::Fork => self.release(thread, object),
            Kind::Write if talks => self.release(thread, object),
            Kind::ThreadCreated
            | Kind::ThreadJoin
            | Kind::SemWait
            | Kind::BarrierLeave
            | Kind::QueueReceive
            | Kind::FutexWait
            | Kind::SignalDeliver
            | Kind::Wait => self.acquire(thread, object),
            Kind::Read if talks => self.acquire(thread, object),
            Kind::SemOperate => {
                self.acquire(thread, object);
                self.release(thread, object);
            }
            // A condition's signal promises nothing about who sees what: its lock does.
            _ => {}
        }
    }

    pub fn access(&mut self, access: &Access) {
        self.accesses += 1;
        let locked = access.locked || self.foreknown.contains(&access.addr);
        let set = self.lock_set(access.thread);
        let time = self.thread(access.thread).of(access.thread);
        let changes = access.read && access.write && !access.locked;
        for (word, mask) in words(access.addr, access.len) {
            let atomic = self.synchronises(access, word, mask, locked && !changes);
            for (mask, atomic) in [(mask & !atomic, false), (mask & atomic, true)] {
                if mask == 0 {
                    continue;
                }
                let touched = Touched {
                    mask,
                    thread: access.thread,
                    time,
                    at: access.at,
                    site: access.at.pc,
                    write: access.write,
                    atomic: atomic && !changes,
                    changes,
                    freed: false,
                    locks: set,
                };
                self.look(word, touched);
            }
        }
    }

    /// What a word of an access hands over, and which of its bytes are for that.
    fn synchronises(&mut self, access: &Access, word: u64, mask: u8, locked: bool) -> u8 {
        let (page, at) = place(word);
        let known = self.atomics.get(&page).and_then(|page| page.get(&at));
        let known = known.map_or(0, |atomic| atomic.mask);
        if !locked && known & mask == 0 {
            return 0;
        }
        if locked && known & mask != mask {
            self.becomes_atomic(access.thread, word, mask);
        }
        let atomic = self.atomics.entry(page).or_default().entry(at).or_default();
        let clock = std::mem::take(&mut atomic.clock);
        // One that reads and writes without being atomic isn't meant to synchronise.
        if access.locked || access.read && !access.write {
            self.thread(access.thread).join(&clock);
        }
        let mut clock = clock;
        if access.write {
            let own = self.thread(access.thread);
            clock.join(own);
            own.tick(access.thread);
        }
        if let Some(atomic) = self
            .atomics
            .get_mut(&page)
            .and_then(|page| page.get_mut(&at))
        {
            atomic.clock = clock;
            return mask & atomic.mask;
        }
        0
    }

    fn becomes_atomic(&mut self, thread: ThreadId, word: u64, mask: u8) {
        let (page, at) = place(word);
        let atomic = self.atomics.entry(page).or_default().entry(at).or_default();
        atomic.mask |= mask;
        let Some(data) = self.words.get_mut(&page).and_then(|page| page.get_mut(&at)) else {
            return;
        };
        // What others wrote there as if it were data, with nothing to order it, was meant to be seen.
        let clock = self.threads.get(thread as usize);
        let unordered = |touched: &Touched| {
            touched.mask & mask != 0
                && touched.thread != thread
                && clock.is_none_or(|clock| touched.time > clock.of(touched.thread))
        };
        if data
            .writes
            .iter()
            .filter(|touched| !touched.changes)
            .any(unordered)
        {
            self.late
                .insert((word << 3) + u64::from(mask.trailing_zeros()));
        }
        for touched in data.writes.iter_mut().chain(&mut data.reads) {
            touched.atomic |= touched.mask & mask != 0 && !touched.changes;
        }
        // Pairs that were found there are none, but for what is never meant.
        let bytes = word << 3..(word << 3) + 8;
        self.pairs.retain(|_, pair| {
            !bytes.contains(&pair.addr) || pair.first.changes || pair.second.changes
        });
    }

    /// Memory that was given back isn't to be touched any more, in whichever order.
    fn used_after(&mut self, word: u64, touched: Touched) {
        let addr = (word << 3) + u64::from(touched.mask.trailing_zeros());
        let Some((_, &(block, free))) = self.gone.range(..=addr).next_back() else {
            return;
        };
        let clock = &self.threads[touched.thread as usize];
        let ordered = free.thread == touched.thread || free.time <= clock.of(free.thread);
        if addr - block.addr < block.size && !ordered {
            let free = Touched {
                mask: touched.mask,
                ..free
            };
            self.found_in(word, free, touched, Some(block));
        }
    }

    /// Compares with what was there before, and remembers.
    fn look(&mut self, word: u64, touched: Touched) {
        self.thread(touched.thread);
        if !self.gone.is_empty() && !touched.freed {
            self.used_after(word, touched);
        }
        let (page, at) = place(word);
        let known = self.words.entry(page).or_default().entry(at).or_default();
        let clock = &self.threads[touched.thread as usize];
        let ordered = |before: &Touched| {
            before.thread == touched.thread || before.time <= clock.of(before.thread)
        };
        let conflict = |before: &&Touched| {
            before.mask & touched.mask != 0
                && !ordered(before)
                && !(before.atomic && touched.atomic)
        };
        let mut found: Vec<Touched> = known.writes.iter().filter(conflict).copied().collect();
        if touched.write {
            found.extend(known.reads.iter().filter(conflict));
        }
        // What is ordered before it can't race with anything that doesn't race with it; but what is atomic stands
        // only for its like.
        let covers = |before: &mut Touched, by_any: bool| {
            let stands_for = before.atomic || !touched.atomic;
            if stands_for && (by_any || ordered(before)) {
                before.mask &= !touched.mask;
            }
            before.mask != 0
        };
        known
            .reads
            .retain_mut(|before| covers(before, touched.write));
        if touched.write {
            known.writes.retain_mut(|before| covers(before, true));
            known.writes.push(touched);
        } else {
            known.reads.push(touched);
        }
        for before in found {
            self.found(word, before, touched);
        }
    }

    fn found(&mut self, word: u64, first: Touched, second: Touched) {
        self.found_in(word, first, second, None);
    }

    fn found_in(&mut self, word: u64, first: Touched, second: Touched, block: Option<Block>) {
        let both = first.mask & second.mask;
        let addr = (word << 3) + u64::from(both.trailing_zeros());
        let len = u64::from(both.count_ones());
        let key = (first.site, first.write, second.site, second.write);
        if let Some(pair) = self.pairs.get_mut(&key) {
            // One access may be several words long.
            if pair.second.at == second.at && pair.addr + pair.len == addr {
                pair.len += len;
            } else {
                pair.count += 1;
            }
            return;
        }
        if self.pairs.len() >= MOST_PAIRS {
            self.complete = false;
            return;
        }
        let block = block.or_else(|| self.block_at(addr));
        let pair = Pair {
            first,
            second,
            addr,
            len,
            block,
            count: 1,
        };
        self.pairs.insert(key, pair);
    }

    fn block_at(&self, addr: u64) -> Option<Block> {
        let (_, block) = self.blocks.range(..=addr).next_back()?;
        (addr - block.addr < block.size.max(1)).then_some(*block)
    }

    /// The program has a new block of memory: what was there before was other memory.
    pub fn allocated(&mut self, thread: ThreadId, addr: u64, size: u64, at: Mark, back: u64) {
        self.renewed(addr..addr.saturating_add(size));
        let block = Block {
            addr,
            size,
            thread,
            at,
            back,
        };
        self.blocks.insert(addr, block);
    }

    /// It gives one back: that conflicts with whoever uses it still.
    pub fn freed(&mut self, thread: ThreadId, addr: u64, at: Mark, back: u64) {
        let Some(block) = self.blocks.get(&addr).copied() else {
            return;
        };
        let locks = self.lock_set(thread);
        let time = self.thread(thread).of(thread);
        let mut known: Vec<u64> = Vec::new();
        let end = addr.saturating_add(block.size);
        self.each_page(addr..end, |page, words| {
            let words = words.keys().map(|&at| ((page * PAGE) >> 3) + u64::from(at));
            known.extend(words.filter(|word| (addr >> 3..=end >> 3).contains(word)));
        });
        for word in known {
            let start = (word << 3).max(addr);
            let stop = ((word << 3) + 8).min(end);
            if start >= stop {
                continue;
            }
            let mask = words(start, stop - start)
                .next()
                .map_or(0, |(_, mask)| mask);
            let touched = Touched {
                mask,
                thread,
                time,
                at,
                site: back.wrapping_sub(1),
                write: true,
                atomic: false,
                changes: false,
                freed: true,
                locks,
            };
            self.look(word, touched);
        }
        self.blocks.remove(&addr);
        if self.gone.len() < MOST_GONE {
            let free = Touched {
                mask: 0xff,
                thread,
                time,
                at,
                site: back.wrapping_sub(1),
                write: true,
                atomic: false,
                changes: false,
                freed: true,
                locks,
            };
            self.gone.insert(addr, (block, free));
        }
    }

    fn each_page(&self, range: Range<u64>, mut look: impl FnMut(u64, &FxHashMap<u16, Word>)) {
        let pages = range.start / PAGE..=range.end.saturating_sub(1) / PAGE;
        let many = pages.end() - pages.start();
        if many > self.words.len() as u64 {
            let there = self.words.iter().filter(|(page, _)| pages.contains(page));
            there.for_each(|(&page, words)| look(page, words));
            return;
        }
        for page in pages {
            if let Some(words) = self.words.get(&page) {
                look(page, words);
            }
        }
    }

    /// What was there is no more.
    pub fn renewed(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let overlaps = |block: &Block| {
            block.addr < range.end && range.start < block.addr.saturating_add(block.size)
        };
        // Blocks that were given back don't overlap: those that reach into it begin in it, or right before it.
        let first = self
            .gone
            .range(..range.start)
            .next_back()
            .map(|(&at, _)| at);
        let inside = self.gone.range(range.clone()).map(|(&at, _)| at);
        let again: Vec<u64> = first.into_iter().chain(inside).collect();
        for at in again {
            if self.gone.get(&at).is_some_and(|(block, _)| overlaps(block)) {
                self.gone.remove(&at);
            }
        }
        forget(&mut self.words, &range);
        forget(&mut self.atomics, &range);
    }
}

/// Words that lie in a range, as a whole or in part.
fn forget<T>(all: &mut Words<T>, range: &Range<u64>) {
    let (first, last) = (range.start >> 3, (range.end - 1) >> 3);
    let pages = range.start / PAGE..=(range.end - 1) / PAGE;
    let clear = |page: u64, words: &mut FxHashMap<u16, T>| {
        words.retain(|&at, _| {
            let word = ((page * PAGE) >> 3) + u64::from(at);
            !(first..=last).contains(&word)
        });
    };
    if pages.end() - pages.start() > all.len() as u64 {
        let there = all.iter_mut().filter(|(page, _)| pages.contains(page));
        there.for_each(|(&page, words)| clear(page, words));
        return;
    }
    for page in pages {
        if let Some(words) = all.get_mut(&page) {
            clear(page, words);
        }
    }
}

/// A word's page, and where it is there.
fn place(word: u64) -> (u64, u16) {
    let in_page = PAGE >> 3;
    (word / in_page, (word % in_page) as u16)
}

/// The words of an access, with a bit for each byte.
fn words(addr: u64, len: u64) -> impl Iterator<Item = (u64, u8)> {
    let end = addr.saturating_add(len.max(1));
    (addr >> 3..=(end - 1) >> 3).map(move |word| {
        let start = word << 3;
        let from = addr.saturating_sub(start);
        let behind = start.saturating_add(8).saturating_sub(end);
        (word, (0xff << from) as u8 & (0xff >> behind))
    })
}

#[cfg(test)]
mod tests;

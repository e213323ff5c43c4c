//! Accesses to memory that several threads touch. In: granules to look at, and accesses to them, one after the other.
//! Out: those to bytes that at least two threads touch and at least one writes, in the order in which they happened.
//!
//! Memory is bounded: of each instruction, thread and address the first and last few times are kept, and fewer when
//! there are many; a granule that one thread touches very often in one turn is left alone until the next.

use std::collections::VecDeque;
use std::ops::Range;

use rustc_hash::FxHashMap;

use clew_recording::event::ThreadId;

use super::protocol::{Granules, Touch};
use crate::cache::accesses::Access;
use crate::cache::shadow::Shadow;

/// States of granules: looked at; to be looked at, but not in this turn.
const WATCHED: u8 = 1;
const TIRED: u8 = 2;
/// A granule is left alone after so many accesses in one turn.
const TIRING: u32 = 1 << 14;
const MOST_EMPTIED: usize = 1 << 10;
/// The first so many times of an instruction, thread and address, and as many of the last.
const TIMES: usize = 16;
/// Words that are looked at.
const MOST_WORDS: usize = 1 << 20;
/// Pieces of one access: what it touches of watched memory may lie apart.
const MOST_PIECES: usize = 64;
/// Accesses up to this long are told as they are, longer ones as far as they touch watched memory.
const WHOLE: u64 = 64;
/// Room for accesses that will turn out to be one thread's own, for each of those wanted.
const OVER: usize = 4;
const MOST_OVER: usize = 1 << 20;

pub struct Collector {
    pub shadow: Shadow,
    /// Eight bytes each, by the address's eighth.
    words: FxHashMap<u64, Word>,
    seen: FxHashMap<Key, Times>,
    /// Accesses to memory that isn't there any more.
    settled: Vec<Numbered>,
    /// Times that are kept, in `seen`.
    kept: usize,
    /// As many as [`TIMES`], or fewer.
    times: usize,
    most: usize,
    number: u64,
    /// Accesses in this turn.
    turn: FxHashMap<u32, u32>,
    current: Option<ThreadId>,
    complete: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    thread: ThreadId,
    pc: u64,
    addr: u64,
}

#[derive(Default)]
struct Times {
    first: Vec<Numbered>,
    last: VecDeque<Numbered>,
}

/// An access and its place in the order of all.
type Numbered = (u64, Touch);

/// Who touches a word: a bit for each byte.
#[derive(Default)]
struct Word {
    by: Vec<(ThreadId, u8)>,
    written: u8,
}

impl Word {
    fn touched(&mut self, thread: ThreadId, bytes: u8, write: bool) {
        match self.by.iter_mut().find(|(by, _)| *by == thread) {
            Some((_, touched)) => *touched |= bytes,
            None => self.by.push((thread, bytes)),
        }
        if write {
            self.written |= bytes;
        }
    }

    /// Bytes that two threads touch and one writes.
    fn shared(&self) -> u8 {
        let (mut once, mut twice) = (0, 0);
        for (_, bytes) in &self.by {
            twice |= once & bytes;
            once |= bytes;
        }
        twice & self.written
    }
}

/// Where the current thread stands.
#[derive(Clone, Copy)]
pub struct Standing {
    pub event: u64,
    pub ticks: u64,
    pub passed: u32,
    pub pc: u64,
    pub locked: bool,
}

impl Collector {
    /// Keeps about so many accesses at most.
    pub fn new(mut shadow: Shadow, most: usize) -> Collector {
        for state in 0..=u8::MAX {
            let pass = state != WATCHED;
            shadow.pass(state, pass, pass);
        }
        Collector {
            shadow,
            words: FxHashMap::default(),
            seen: FxHashMap::default(),
            settled: Vec::new(),
            kept: 0,
            times: TIMES,
            most,
            number: 0,
            turn: FxHashMap::default(),
            current: None,
            complete: true,
        }
    }

    pub fn watch(&mut self, granules: &Granules) {
        let end = granules.first.saturating_add(granules.count);
        for granule in granules.first..end {
            self.shadow.set(granule, WATCHED);
        }
    }

    /// This thread runs now.
    pub fn turn(&mut self, thread: ThreadId) {
        if self.current == Some(thread) {
            return;
        }
        self.current = Some(thread);
        for (granule, count) in self.turn.drain() {
            if count >= TIRING {
                self.shadow.set(granule, WATCHED);
            }
        }
        // To empty a large one takes its time, each turn again.
        if self.turn.capacity() > MOST_EMPTIED {
            self.turn = FxHashMap::default();
        }
    }

    /// The current thread is about to do this.
    pub fn touched(&mut self, access: &Access, at: Standing) {
        if access.len <= WHOLE {
            let last = access.addr.wrapping_add(access.len - 1);
            let mut watched = self.look(last);
            let granules = (access.addr..last).step_by(Shadow::GRANULE as usize);
            for addr in granules {
                watched |= Shadow::granule(addr) != Shadow::granule(last) && self.look(addr);
            }
            if watched {
                self.keep(access.addr, access.len, access.write, at);
            }
            return;
        }
        // The parts that are watched, one after the other.
        let end = access.addr.saturating_add(access.len);
        let (mut addr, mut piece, mut pieces) = (access.addr, None, 0);
        while addr < end {
            let next = (addr | (Shadow::GRANULE - 1)).saturating_add(1).min(end);
            if self.look(addr) {
                piece.get_or_insert(addr);
            } else if let Some(start) = piece.take() {
                self.keep(start, addr - start, access.write, at);
                pieces += 1;
            }
            if pieces == MOST_PIECES {
                self.complete = false;
                return;
            }
            addr = next;
        }
        if let Some(start) = piece {
            self.keep(start, end - start, access.write, at);
        }
    }

    /// Whether the granule of an address is watched.
    fn look(&mut self, addr: u64) -> bool {
        let granule = Shadow::granule(addr);
        match self.shadow.state(granule) {
            WATCHED => {
                let count = self.turn.entry(granule).or_default();
                *count += 1;
                if *count >= TIRING {
                    self.tire(granule, addr);
                }
                true
            }
            TIRED => true,
            _ => false,
        }
    }

    /// The current thread isn't looked at there for the rest of its turn: whatever it may do counts as done, so that
    /// nobody's access is taken for private.
    fn tire(&mut self, granule: u32, addr: u64) {
        self.shadow.set(granule, TIRED);
        self.complete = false;
        let Some(thread) = self.current else { return };
        let start = addr / Shadow::GRANULE * Shadow::GRANULE;
        for (word, bytes) in words(start, Shadow::GRANULE) {
            let word = self.words.entry(word).or_default();
            word.touched(thread, bytes, true);
        }
    }

    fn keep(&mut self, addr: u64, len: u64, write: bool, at: Standing) {
        let Some(thread) = self.current else { return };
        for (word, bytes) in words(addr, len) {
            if self.words.len() >= MOST_WORDS && !self.words.contains_key(&word) {
                self.complete = false;
                return;
            }
            let word = self.words.entry(word).or_default();
            word.touched(thread, bytes, write);
        }
        let touch = Touch {
            thread,
            event: at.event,
            ticks: at.ticks,
            passed: at.passed,
            pc: at.pc,
            addr,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            write,
            locked: at.locked,
        };
        self.number += 1;
        let pc = at.pc;
        let room = self.most.saturating_mul(OVER).min(self.most.max(MOST_OVER));
        let known = self.seen.contains_key(&Key { thread, pc, addr });
        if !known && self.kept >= room {
            self.complete = false;
            return;
        }
        let times = self.seen.entry(Key { thread, pc, addr }).or_default();
        self.kept += times.add((self.number, touch), self.times) as usize;
        while self.kept >= room && self.times > 1 {
            self.keep_fewer();
        }
    }

    fn keep_fewer(&mut self) {
        self.times /= 2;
        self.kept = 0;
        for times in self.seen.values_mut() {
            times.shorten(self.times);
            self.kept += times.len();
        }
    }

    /// Memory was mapped there, or became the stack of a new thread: what was touched before was another.
    pub fn renewed(&mut self, range: &Range<u64>) {
        let (first, last) = (
            Shadow::granule(range.start),
            Shadow::granule(range.end.saturating_sub(1)),
        );
        let watched = |granule| matches!(self.shadow.state(granule), WATCHED | TIRED);
        let mut next = self.shadow.next_used(first);
        loop {
            match next {
                Some(granule) if granule <= last => {
                    if watched(granule) {
                        break;
                    }
                    let on = granule.checked_add(1);
                    next = on.and_then(|on| self.shadow.next_used(on));
                }
                _ => return,
            }
        }
        let words = &mut self.words;
        let mut gone: Vec<Numbered> = Vec::new();
        self.seen.retain(|key, times| {
            let stays = !range.contains(&key.addr);
            if !stays {
                self.kept -= times.len();
                let all = times.all();
                gone.extend(all.filter(|(_, touch)| is_shared(words, touch)));
            }
            stays
        });
        self.settled.extend(gone);
        words.retain(|&word, _| !range.contains(&(word << 3)));
    }

    /// What was found, and whether nothing was left out. No more than it was told to keep.
    pub fn end(mut self) -> (Vec<Touch>, bool) {
        let words = &self.words;
        self.seen.retain(|_, times| {
            times.first.retain(|(_, touch)| is_shared(words, touch));
            times.last.retain(|(_, touch)| is_shared(words, touch));
            times.len() > 0
        });
        let count = |seen: &FxHashMap<Key, Times>| seen.values().map(Times::len).sum::<usize>();
        let most = self.most.saturating_sub(self.settled.len());
        while self.times > 1 && count(&self.seen) > most {
            self.keep_fewer();
        }
        let mut all = self.settled;
        all.extend(self.seen.values().flat_map(Times::all));
        all.sort_unstable_by_key(|(number, _)| *number);
        let complete = self.complete && all.len() <= self.most;
        all.truncate(self.most);
        (all.into_iter().map(|(_, touch)| touch).collect(), complete)
    }
}

impl Times {
    /// Whether there is one more now.
    fn add(&mut self, time: Numbered, most: usize) -> bool {
        if self.last.is_empty() && self.first.len() < most {
            self.first.push(time);
            return true;
        }
        let full = self.last.len() >= most;
        if full {
            self.last.pop_front();
        }
        self.last.push_back(time);
        !full
    }

    fn shorten(&mut self, most: usize) {
        // What is at the end of few first ones is among the last.
        let over = self.first.split_off(self.first.len().min(most));
        for time in over.into_iter().rev() {
            self.last.push_front(time);
        }
        let over = self.last.len().saturating_sub(most);
        self.last.drain(..over);
    }

    fn len(&self) -> usize {
        self.first.len() + self.last.len()
    }

    fn all(&self) -> impl Iterator<Item = Numbered> {
        self.first.iter().chain(&self.last).copied()
    }
}

/// The words of an access, with a bit for each byte.
fn words(addr: u64, len: u64) -> impl Iterator<Item = (u64, u8)> {
    let end = addr.saturating_add(len);
    (addr >> 3..=(end - 1) >> 3).map(move |word| {
        let start = word << 3;
        let from = addr.saturating_sub(start);
        let behind = (start + 8).saturating_sub(end);
        (word, (0xff << from) as u8 & (0xff >> behind))
    })
}

fn is_shared(all: &FxHashMap<u64, Word>, touch: &Touch) -> bool {
    words(touch.addr, u64::from(touch.len)).any(|(word, bytes)| {
        let found = all.get(&word);
        found.is_some_and(|word| word.shared() & bytes != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_bytes_of_an_access() {
        let all = |addr, len| words(addr, len).collect::<Vec<_>>();
        assert_eq!(all(0x100, 8), [(0x20, 0xff)]);
        assert_eq!(all(0x103, 2), [(0x20, 0b11000)]);
        assert_eq!(all(0x107, 2), [(0x20, 0x80), (0x21, 1)]);
        assert_eq!(all(0x106, 13), [(0x20, 0xc0), (0x21, 0xff), (0x22, 0b111)]);
    }

    #[test]
    fn bytes_are_shared_one_by_one() {
        let mut word = Word::default();
        word.touched(1, 0b0011, true);
        word.touched(2, 0b1100, true);
        assert_eq!(word.shared(), 0);
        word.touched(2, 0b0010, false);
        assert_eq!(word.shared(), 0b0010);
        word.touched(3, 0b1000, false);
        assert_eq!(word.shared(), 0b1010);
        let mut read = Word::default();
        read.touched(1, 0xff, false);
        read.touched(2, 0xff, false);
        assert_eq!(read.shared(), 0);
    }

    #[test]
    fn the_first_and_last_times_are_kept() {
        let touch = Touch {
            thread: 1,
            event: 0,
            ticks: 0,
            passed: 0,
            pc: 0,
            addr: 0,
            len: 1,
            write: false,
            locked: false,
        };
        let numbers = |times: &Times| times.all().map(|(number, _)| number).collect::<Vec<_>>();
        let mut times = Times::default();
        let added = |times: &mut Times, from: u64, to, most| {
            let added = (from..to).filter(|&n| times.add((n, touch), most));
            added.count()
        };
        assert_eq!(added(&mut times, 0, 3, 4), 3);
        assert_eq!(numbers(&times), [0, 1, 2]);
        assert_eq!(added(&mut times, 3, 100, 4), 5);
        assert_eq!(numbers(&times), [0, 1, 2, 3, 96, 97, 98, 99]);
        times.shorten(2);
        assert_eq!(numbers(&times), [0, 1, 98, 99]);
        assert_eq!(added(&mut times, 100, 101, 2), 0);
        assert_eq!(numbers(&times), [0, 1, 99, 100]);
        // Few of them become first and last ones.
        let mut few = Times::default();
        added(&mut few, 0, 4, 4);
        few.shorten(1);
        assert_eq!(numbers(&few), [0, 3]);
    }
}

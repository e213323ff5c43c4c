//! What a question is about, at one moment: cells of threads' registers, and bytes of memory, and who wants them.

use rustc_hash::FxHashMap;

use crate::cells::Cells;
use crate::threads::ByThread;

/// Who wants a value: a number that the asker gives.
pub type Who = u32;

#[derive(Clone, Debug, Default)]
pub struct Live {
    threads: ByThread<Registers>,
    memory: Memory,
}

/// A thread's.
#[derive(Clone, Debug)]
struct Registers {
    cells: Cells,
    who: [Who; Cells::GROUPS],
}

impl Default for Registers {
    fn default() -> Registers {
        Registers {
            cells: Cells::NONE,
            who: [0; Cells::GROUPS],
        }
    }
}

impl Live {
    pub fn is_empty(&self) -> bool {
        // How arithmetic rounds mostly nobody has ever set: that alone isn't worth the way back to the beginning.
        let rounding = Cells::rounding();
        let idle = |all: &Registers| all.cells.is_empty() || all.cells == rounding;
        self.memory.words == 0 && self.threads.iter().all(|(_, all)| idle(all))
    }

    pub fn cells(&self, thread: u64) -> Cells {
        self.threads
            .get(thread)
            .map(|all| all.cells)
            .unwrap_or_default()
    }

    pub fn meets(&self, thread: u64, cells: &Cells) -> bool {
        let all = self.threads.get(thread);
        all.is_some_and(|all| all.cells.meets(cells))
    }

    pub fn has_memory(&self) -> bool {
        self.memory.words > 0
    }

    /// All threads with cells that count.
    pub fn threads(&self) -> impl Iterator<Item = (u64, Cells)> {
        let some = self.threads.iter().filter(|(_, all)| !all.cells.is_empty());
        some.map(|(thread, all)| (thread, all.cells))
    }

    pub fn add_cells(&mut self, thread: u64, cells: &Cells, who: Who) {
        if cells.is_empty() {
            return;
        }
        let all = self.threads.of(thread);
        all.cells.add(cells);
        cells.groups(|group| all.who[group] = who);
    }

    /// Takes cells out; which of them counted.
    pub fn take_cells(&mut self, thread: u64, cells: &Cells) -> (Cells, Who) {
        let Some(all) = self.threads.get_mut(thread) else {
            return (Cells::NONE, 0);
        };
        if !all.cells.meets(cells) {
            return (Cells::NONE, 0);
        }
        let met = all.cells.both(cells);
        all.cells.remove(cells);
        let mut who = 0;
        met.groups(|group| who = all.who[group]);
        (met, who)
    }

    /// Who wants any of these cells, if they count.
    pub fn who_of(&self, thread: u64, cells: &Cells) -> Option<Who> {
        let all = self.threads.get(thread)?;
        let mut who = None;
        all.cells
            .both(cells)
            .groups(|group| who = Some(all.who[group]));
        who
    }

    /// Who wants a byte of a range, if one counts.
    pub fn who_at(&mut self, addr: u64, len: u64) -> Option<Who> {
        self.memory.who_at(addr, len)
    }

    /// The offsets in a range that count.
    pub fn offsets(&mut self, addr: u64, len: u64, found: &mut Vec<u64>) {
        self.memory.offsets(addr, len, found);
    }

    /// Whether any byte of a range counts.
    pub fn has(&mut self, addr: u64, len: u64) -> bool {
        self.memory.has(addr, len)
    }

    pub fn add(&mut self, addr: u64, len: u64, who: Who) {
        self.memory.add(addr, len, who);
    }

    /// Takes a range out; the offsets in it that counted go into `found`. Who wanted one of them.
    pub fn take(&mut self, addr: u64, len: u64, found: &mut Vec<u64>) -> Option<Who> {
        self.memory.take(addr, len, found)
    }

    /// The ranges of memory that count, in order, at most so many; who wants each.
    pub fn memory(&self, most: usize) -> Vec<(u64, u64, Who)> {
        self.memory.ranges(most)
    }
}

/// Bytes by pages. Whole pages are found through a small table of those that were asked for last: most questions are
/// about the stack.
#[derive(Clone, Debug)]
struct Memory {
    numbers: FxHashMap<u64, u32>,
    pages: Vec<Page>,
    free: Vec<u32>,
    /// Page, and its number or that it isn't there.
    recent: Box<[(u64, u32)]>,
    /// Words with bytes that count.
    words: u64,
}

#[derive(Clone, Debug)]
struct Page {
    /// For each word of eight bytes, a bit for each that counts.
    bytes: [u8; WORDS],
    /// Who wants each half of a word: most variables are that long, and neighbours aren't wanted by the same.
    who: [Who; 2 * WORDS],
    words: u32,
}

const WORDS: usize = 512;
const RECENT: usize = 256;
const NOWHERE: u32 = u32::MAX;

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            numbers: FxHashMap::default(),
            pages: Vec::new(),
            free: Vec::new(),
            recent: vec![(u64::MAX, NOWHERE); RECENT].into(),
            words: 0,
        }
    }
}

/// The words of a range: page, word in it, and a bit for each byte.
fn words(addr: u64, len: u64) -> impl Iterator<Item = (u64, usize, u8)> {
    let end = addr.saturating_add(len);
    let last = end.saturating_sub(1) >> 3;
    let first = addr >> 3;
    let range = if len == 0 { 0..0 } else { first..last + 1 };
    range.map(move |word| {
        let start = word << 3;
        let from = addr.saturating_sub(start);
        let behind = (start + 8).saturating_sub(end);
        let bytes = (0xff << from) as u8 & (0xff >> behind);
        (word >> 9, word as usize % WORDS, bytes)
    })
}

/// The halves of a word that some of its bytes are in.
fn halves(bytes: u8) -> impl Iterator<Item = usize> {
    (0..2).filter(move |half| bytes >> (4 * half) & 0xf != 0)
}

impl Memory {
    fn page(&mut self, page: u64) -> u32 {
        let recent = &mut self.recent[page as usize % RECENT];
        if recent.0 != page {
            *recent = (page, self.numbers.get(&page).copied().unwrap_or(NOWHERE));
        }
        recent.1
    }

    fn has(&mut self, addr: u64, len: u64) -> bool {
        self.words > 0
            && words(addr, len).any(|(page, word, bytes)| match self.page(page) {
                NOWHERE => false,
                number => self.pages[number as usize].bytes[word] & bytes != 0,
            })
    }

    fn who_at(&mut self, addr: u64, len: u64) -> Option<Who> {
        words(addr, len).find_map(|(page, word, bytes)| match self.page(page) {
            NOWHERE => None,
            number => {
                let page = &self.pages[number as usize];
                let half = halves(page.bytes[word] & bytes).next()?;
                Some(page.who[2 * word + half])
            }
        })
    }

    fn offsets(&mut self, addr: u64, len: u64, found: &mut Vec<u64>) {
        for (page, word, bytes) in words(addr, len) {
            let number = self.page(page);
            if number == NOWHERE {
                continue;
            }
            let marked = self.pages[number as usize].bytes[word] & bytes;
            let start = (page << 12) + (word as u64) * 8;
            let bits = (0..8).filter(|bit| marked & 1 << bit != 0);
            found.extend(bits.map(|bit| start.wrapping_add(bit).wrapping_sub(addr)));
        }
    }

    fn add(&mut self, addr: u64, len: u64, who: Who) {
        for (page, word, bytes) in words(addr, len) {
            let number = match self.page(page) {
                NOWHERE => self.new_page(page),
                number => number,
            };
            let page = &mut self.pages[number as usize];
            if page.bytes[word] == 0 {
                page.words += 1;
                self.words += 1;
            }
            page.bytes[word] |= bytes;
            for half in halves(bytes) {
                page.who[2 * word + half] = who;
            }
        }
    }

    fn new_page(&mut self, page: u64) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.pages.push(Page {
                bytes: [0; WORDS],
                who: [0; 2 * WORDS],
                words: 0,
            });
            self.pages.len() as u32 - 1
        });
        self.numbers.insert(page, number);
        self.recent[page as usize % RECENT] = (page, number);
        number
    }

    fn take(&mut self, addr: u64, len: u64, found: &mut Vec<u64>) -> Option<Who> {
        let mut who = None;
        for (page_number, word, bytes) in words(addr, len) {
            let number = self.page(page_number);
            if number == NOWHERE {
                continue;
            }
            let page = &mut self.pages[number as usize];
            let taken = page.bytes[word] & bytes;
            if taken == 0 {
                continue;
            }
            let half = halves(taken).next().unwrap_or(0);
            who = Some(page.who[2 * word + half]);
            page.bytes[word] &= !taken;
            let start = (page_number << 12) + (word as u64) * 8;
            let bits = (0..8).filter(|bit| taken & 1 << bit != 0);
            found.extend(bits.map(|bit| start.wrapping_add(bit).wrapping_sub(addr)));
            if page.bytes[word] == 0 {
                page.words -= 1;
                self.words -= 1;
                if page.words == 0 {
                    self.numbers.remove(&page_number);
                    self.free.push(number);
                    self.recent[page_number as usize % RECENT] = (page_number, NOWHERE);
                }
            }
        }
        who
    }

    fn ranges(&self, most: usize) -> Vec<(u64, u64, Who)> {
        let mut pages: Vec<(u64, u32)> = self.numbers.iter().map(|(a, b)| (*a, *b)).collect();
        pages.sort_unstable();
        let mut ranges: Vec<(u64, u64, Who)> = Vec::new();
        for (page, number) in pages {
            let all = &self.pages[number as usize];
            for word in 0..WORDS {
                for bit in (0..8).filter(|bit| all.bytes[word] & 1 << bit != 0) {
                    let byte = (page << 12) + word as u64 * 8 + bit;
                    let full = ranges.len() == most;
                    match ranges.last_mut() {
                        Some((start, len, _)) if *start + *len == byte => *len += 1,
                        _ if full => return ranges,
                        _ => ranges.push((byte, 1, all.who[2 * word + bit as usize / 4])),
                    }
                }
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_and_go_one_by_one() {
        let mut live = Live::default();
        live.add(0x1005, 6, 7);
        assert!(live.has(0x1000, 6) && !live.has(0x1000, 5));
        assert!(live.has(0x100a, 1) && !live.has(0x100b, 100));
        let mut found = Vec::new();
        assert_eq!(live.take(0x1007, 2, &mut found), Some(7));
        assert_eq!(found, [0, 1]);
        assert_eq!(live.memory(10), [(0x1005, 2, 7), (0x1009, 2, 7)]);
        assert_eq!(live.memory(1), [(0x1005, 2, 7)]);
        found.clear();
        assert_eq!(live.take(0x1000, 0x20, &mut found), Some(7));
        assert_eq!(found, [5, 6, 9, 10]);
        assert!(live.is_empty());
        assert!(!live.has(0x1000, 0));
        assert_eq!(live.take(0x1000, 0x20, &mut found), None);
    }

    #[test]
    fn neighbours_are_wanted_by_others() {
        let mut live = Live::default();
        live.add(0x1000, 4, 1);
        live.add(0x1004, 4, 2);
        assert_eq!(live.who_at(0x1000, 4), Some(1));
        assert_eq!(live.who_at(0x1004, 4), Some(2));
        assert_eq!(live.who_at(0x1008, 4), None);
        let mut found = Vec::new();
        live.offsets(0x0ffe, 4, &mut found);
        assert_eq!(found, [2, 3]);
        assert_eq!(live.take(0x1000, 4, &mut found), Some(1));
        assert_eq!(live.take(0x1000, 8, &mut found), Some(2));
    }

    #[test]
    fn ranges_over_pages() {
        let mut live = Live::default();
        live.add(0x1ffe, 0x1004, 1);
        assert_eq!(live.memory(10), [(0x1ffe, 0x1004, 1)]);
        let mut found = Vec::new();
        live.take(0x2000, 0x1000, &mut found);
        assert_eq!(found.len(), 0x1000);
        assert_eq!(live.memory(10), [(0x1ffe, 2, 1), (0x3000, 2, 1)]);
    }

    #[test]
    fn registers_know_who_wants_them() {
        let mut live = Live::default();
        let rbx = Cells::general(3, 0, 8);
        live.add_cells(1, &rbx, 9);
        let low = Cells::general(3, 0, 4);
        assert_eq!(live.take_cells(1, &low), (low, 9));
        assert_eq!(live.cells(1), Cells::general(3, 4, 4));
        assert_eq!(live.take_cells(2, &rbx), (Cells::NONE, 0));
    }
}

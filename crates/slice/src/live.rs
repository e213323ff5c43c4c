//! What a question is about, at one moment: cells of threads' registers, and bytes of memory.

use rustc_hash::FxHashMap;

use crate::cells::Cells;

#[derive(Clone, Debug, Default)]
pub struct Live {
    threads: FxHashMap<u64, Cells>,
    /// Eight bytes each, by the address's eighth: a bit for each that counts.
    words: FxHashMap<u64, u8>,
    /// Which words may be there, by their low bits: most questions end here.
    filter: Filter,
}

#[derive(Clone, Debug)]
struct Filter(Box<[u64]>);

/// Bits of the filter.
const FILTER: u64 = 1 << 16;

impl Default for Filter {
    fn default() -> Filter {
        Filter(vec![0; (FILTER / 64) as usize].into())
    }
}

impl Filter {
    fn place(word: u64) -> (usize, u64) {
        let at = (word ^ word >> 16) % FILTER;
        ((at / 64) as usize, 1 << (at % 64))
    }

    fn add(&mut self, word: u64) {
        let (at, bit) = Filter::place(word);
        self.0[at] |= bit;
    }

    fn may_have(&self, word: u64) -> bool {
        let (at, bit) = Filter::place(word);
        self.0[at] & bit != 0
    }
}

/// The words of a range, with a bit for each byte.
fn words(addr: u64, len: u64) -> impl Iterator<Item = (u64, u8)> {
    let end = addr.saturating_add(len);
    let last = end.saturating_sub(1) >> 3;
    let first = addr >> 3;
    let range = if len == 0 { 0..0 } else { first..last + 1 };
    range.map(move |word| {
        let start = word << 3;
        let from = addr.saturating_sub(start);
        let behind = (start + 8).saturating_sub(end);
        (word, (0xff << from) as u8 & (0xff >> behind))
    })
}

impl Live {
    pub fn is_empty(&self) -> bool {
        self.words.is_empty() && self.threads.values().all(Cells::is_empty)
    }

    pub fn cells(&self, thread: u64) -> Cells {
        self.threads.get(&thread).copied().unwrap_or_default()
    }

    pub fn add_cells(&mut self, thread: u64, cells: &Cells) {
        if !cells.is_empty() {
            self.threads.entry(thread).or_default().add(cells);
        }
    }

    pub fn remove_cells(&mut self, thread: u64, cells: &Cells) {
        if let Some(live) = self.threads.get_mut(&thread) {
            live.remove(cells);
        }
    }

    /// Whether any byte of a range counts.
    pub fn has(&self, addr: u64, len: u64) -> bool {
        let mut all = words(addr, len);
        all.any(|(word, bytes)| {
            self.filter.may_have(word)
                && self.words.get(&word).is_some_and(|live| live & bytes != 0)
        })
    }

    pub fn add(&mut self, addr: u64, len: u64) {
        for (word, bytes) in words(addr, len) {
            self.filter.add(word);
            *self.words.entry(word).or_default() |= bytes;
        }
    }

    /// Takes a range out; the offsets in it that counted.
    pub fn take(&mut self, addr: u64, len: u64) -> Vec<u64> {
        let mut found = Vec::new();
        for (word, bytes) in words(addr, len) {
            if !self.filter.may_have(word) {
                continue;
            }
            let Some(live) = self.words.get_mut(&word) else {
                continue;
            };
            let taken = *live & bytes;
            *live &= !bytes;
            if *live == 0 {
                self.words.remove(&word);
            }
            let bits = (0..8).filter(|bit| taken & 1 << bit != 0);
            found.extend(bits.map(|bit| (word << 3).wrapping_add(bit).wrapping_sub(addr)));
        }
        found
    }

    /// The ranges of memory that count, in order.
    #[cfg(test)]
    pub fn memory(&self) -> Vec<(u64, u64)> {
        let mut bytes: Vec<u64> = self
            .words
            .iter()
            .flat_map(|(word, live)| {
                let bits = (0..8).filter(move |bit| live & 1 << bit != 0);
                bits.map(move |bit| (word << 3) + bit)
            })
            .collect();
        bytes.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for byte in bytes {
            match ranges.last_mut() {
                Some((start, len)) if *start + *len == byte => *len += 1,
                _ => ranges.push((byte, 1)),
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
        live.add(0x1005, 6);
        assert!(live.has(0x1000, 6) && !live.has(0x1000, 5));
        assert!(live.has(0x100a, 1) && !live.has(0x100b, 100));
        assert_eq!(live.take(0x1007, 2), [0, 1]);
        assert_eq!(live.memory(), [(0x1005, 2), (0x1009, 2)]);
        assert_eq!(live.take(0x1000, 0x20), [5, 6, 9, 10]);
        assert!(live.is_empty());
        assert!(!live.has(0x1000, 0));
    }
}

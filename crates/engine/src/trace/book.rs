//! The blocks that a worker has translated for tracing, and their ends. In: blocks as they are translated, and where they
//! lie. Out: numbers for translated code to write, rows for who reads them, and which entry is open at a host address.
//!
//! Numbers are given out once: entries that were written keep their meaning when translations are dropped.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::rows::{End, Row};

/// A block under construction.
pub struct Open {
    number: u32,
    places: Vec<Place>,
}

/// One of its instructions, and the bytes of slots that are filled before it.
#[derive(Clone, Copy)]
struct Place {
    pc: u64,
    size: u16,
}

struct Block {
    number: u32,
    host_end: u32,
    places: Vec<Place>,
}

#[derive(Default)]
pub struct Book {
    blocks: u32,
    ends: u32,
    /// Ends that translated code has no way to: of faults.
    faults: FxHashMap<(u32, u16), u32>,
    /// By host address.
    by_host: BTreeMap<u32, Block>,
    /// All of it, and how much of that who reads has been told.
    rows: Vec<u8>,
    told: usize,
}

impl Book {
    pub fn open(&mut self) -> Open {
        self.blocks += 1;
        Open {
            number: self.blocks - 1,
            places: Vec::new(),
        }
    }

    /// A new end of a block, behind `count` instructions.
    pub fn end(&mut self, open: &Open, count: usize, size: u16, ticks: u8) -> u32 {
        self.add_end(End {
            block: open.number,
            count: count as u16,
            size,
            ticks,
        })
    }

    fn add_end(&mut self, end: End) -> u32 {
        self.rows.extend(Row::End(end).encode());
        self.ends += 1;
        self.ends - 1
    }

    /// The block is complete and lies there.
    pub fn close(&mut self, open: Open, host: Range<u32>, pieces: Vec<(u64, Vec<u8>)>) {
        self.rows.extend(Row::Block { pieces }.encode());
        let block = Block {
            number: open.number,
            host_end: host.end,
            places: open.places,
        };
        self.by_host.insert(host.start, block);
    }

    /// Translations there are gone.
    pub fn forget(&mut self, host: &Range<u32>) {
        self.by_host.retain(|start, _| !host.contains(start));
    }

    /// The end for an entry that is open where the instruction at `pc` doesn't get through; its number and size.
    pub fn fault(&mut self, host: u32, pc: u64) -> Option<(u32, u16)> {
        let (_, block) = self.by_host.range(..=host).next_back()?;
        if host >= block.host_end {
            return None;
        }
        let count = block.places.iter().position(|place| place.pc == pc)?;
        let (number, size) = (block.number, block.places[count].size);
        let key = (number, count as u16);
        if let Some(&end) = self.faults.get(&key) {
            return Some((end, size));
        }
        let end = self.add_end(End {
            block: number,
            count: count as u16,
            size,
            ticks: 0,
        });
        self.faults.insert(key, end);
        Some((end, size))
    }

    /// Somebody else reads from here on, and knows nothing.
    pub fn new_reader(&mut self) {
        self.told = 0;
    }

    /// Rows that weren't told yet, and are now.
    pub fn take_rows(&mut self) -> &[u8] {
        let told = std::mem::replace(&mut self.told, self.rows.len());
        &self.rows[told..]
    }
}

impl Open {
    /// The next instruction begins.
    pub fn place(&mut self, pc: u64, size: u16) {
        self.places.push(Place { pc, size });
    }
}

//! Translations of code that may change: JITs, self-modifying programs, anything not mapped
//! read-only from a file.
//!
//! The guest page is write-protected while a block made from it is valid. A write invalidates the
//! blocks of its page by turning their heads (five-byte nops, passed at each entry) into jumps to
//! the engine: nothing needs unlinking. A block whose bytes turn out unchanged is revived.
//! Memory that others can write behind our back (shared mappings) can't be protected, nor can a page where the kernel
//! allows no more mappings: such blocks are compared each time they are entered and never linked.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::View;
use super::region::{Region, write_code};
use crate::context::Exit;
use crate::memory::Memory;
use crate::stats::Stats;
use crate::trace::book::Book;
use crate::translate::checks::Checks;
use crate::translate::{self, HEAD, Shape};

struct Block {
    pc: u64,
    head: u32,
    /// What the head jumps to while the block is not valid.
    stale_stub: u32,
    guest: Vec<Range<u64>>,
    hash: u64,
    valid: bool,
    shared: bool,
}

/// How a block is wanted.
#[derive(Clone, Copy)]
pub struct How {
    pub stub: bool,
    pub shared: bool,
    pub optimise: bool,
    pub dump: bool,
}

pub struct Mutable {
    pub region: Region,
    /// What is compiled into it.
    pub checks: Checks,
    blocks: Vec<Block>,
    heads: FxHashMap<u64, u32>,
    pages: FxHashMap<u64, Vec<u32>>,
    /// Pages that couldn't be protected.
    writable: FxHashSet<u64>,
}

impl Mutable {
    pub fn new(host: Range<u32>, checks: Checks) -> Mutable {
        Mutable {
            region: Region::new(0..u64::MAX, host),
            checks,
            blocks: Vec::new(),
            heads: FxHashMap::default(),
            pages: FxHashMap::default(),
            writable: FxHashSet::default(),
        }
    }

    pub fn clear(&mut self) {
        let checks = std::mem::take(&mut self.checks);
        *self = Mutable::new(self.region.host.clone(), checks);
    }

    pub fn is_shared(&self, pc: u64) -> bool {
        self.heads
            .get(&pc)
            .is_some_and(|&n| self.blocks[n as usize].shared)
    }

    /// The entry for `pc`, translated or revived if need be. None if there is no whole instruction.
    pub fn entry(
        &mut self,
        pc: u64,
        mut how: How,
        memory: &mut Memory,
        stats: &mut Stats,
        book: &mut Book,
    ) -> Option<u32> {
        how.shared |= self.writable.contains(&(pc & !0xfff));
        self.made(pc, how, memory, stats, book).or_else(|| {
            // What can't be protected is made again, to be compared.
            how.shared = !how.shared && self.writable.contains(&(pc & !0xfff));
            how.shared
                .then(|| self.made(pc, how, memory, stats, book))
                .flatten()
        })
    }

    /// None also if the block's pages can't be protected.
    fn made(
        &mut self,
        pc: u64,
        how: How,
        memory: &mut Memory,
        stats: &mut Stats,
        book: &mut Book,
    ) -> Option<u32> {
        let How {
            stub,
            shared,
            optimise,
            dump,
        } = how;
        let old = self.heads.get(&pc).copied();
        if let Some(number) = old {
            let block = &self.blocks[number as usize];
            if block.valid && !block.shared {
                return Some(block.head);
            }
            // Another kind of mapping may have taken the place of the old one.
            if block.shared == shared && hash_guest(&block.guest, memory) == Some(block.hash) {
                return self
                    .revive(number, memory)
                    .then(|| self.blocks[number as usize].head);
            }
        }
        let stub = stub && !shared && self.region.stub(pc).is_none();
        let shape = Shape {
            mutable: true,
            stub,
            single: None,
            shared,
            optimise: optimise && !shared,
            unchecked: false,
        };
        let before = self.region.hot;
        let view = View::across(memory);
        let (region, checks) = (&mut self.region, &self.checks);
        let block = translate::translate(region, &view, pc, shape, checks, Some(book))?;
        if dump {
            eprint!("{}", translate::dump::block(&self.region, &block));
        }
        stats.blocks += 1;
        stats.guest_bytes += block.guest.iter().map(|r| r.end - r.start).sum::<u64>();
        stats.host_bytes += (self.region.hot - before) as u64;
        let stale_stub = self.region.place_cold(
            |stub| {
                stub.exit_arg(pc);
                stub.exit(Exit::Stale as usize);
            },
            translate::stubs::exit_stub_len(pc),
        );
        let number = self.blocks.len() as u32;
        let hash = hash_guest(&block.guest, memory).expect("it was just decoded");
        self.blocks.push(Block {
            pc,
            head: block.entry,
            stale_stub,
            guest: block.guest,
            hash,
            valid: true,
            shared,
        });
        if !shared && !self.watch(number, memory) {
            // Its stub may come into use some day.
            self.blocks[number as usize].valid = false;
            point_head(block.entry, stale_stub);
            return None;
        }
        self.heads.insert(pc, number);
        if let Some(old) = old
            && !shared
        {
            // Branches that lead to the old block go on to the new one. One that is compared at each
            // entry has to be asked for.
            point_head(self.blocks[old as usize].head, block.entry);
        }
        Some(block.entry)
    }

    /// Write-protects the pages that a block was made from; false if one of them can still be written.
    fn watch(&mut self, number: u32, memory: &mut Memory) -> bool {
        let block = &self.blocks[number as usize];
        for range in &block.guest {
            for page in (range.start & !0xfff..range.end).step_by(4096) {
                if memory.protect_code(page..page + 4096).is_err() {
                    // Whatever begins on the block's first page would fail in the same way.
                    self.writable.extend([page, block.pc & !0xfff]);
                    return false;
                }
                let blocks = self.pages.entry(page).or_default();
                if !blocks.contains(&number) {
                    blocks.push(number);
                }
            }
        }
        true
    }

    fn revive(&mut self, number: u32, memory: &mut Memory) -> bool {
        if self.blocks[number as usize].shared {
            return true;
        }
        if !self.watch(number, memory) {
            return false;
        }
        let block = &mut self.blocks[number as usize];
        block.valid = true;
        write_code(block.head, &HEAD);
        true
    }

    /// A write to `page` makes its blocks doubtful.
    pub fn page_written(&mut self, page: u64) {
        for number in self.pages.remove(&page).unwrap_or_default() {
            self.invalidate(number);
        }
    }

    fn invalidate(&mut self, number: u32) {
        let block = &mut self.blocks[number as usize];
        if block.valid && self.heads.get(&block.pc) == Some(&number) {
            block.valid = false;
            point_head(block.head, block.stale_stub);
        }
    }

    /// Mappings in `range` changed.
    pub fn forget(&mut self, range: &Range<u64>) {
        // Something has changed: it may be possible now.
        self.writable.retain(|page| !range.contains(page));
        if (range.end - range.start) / 4096 < self.pages.len() as u64 {
            for page in (range.start & !0xfff..range.end).step_by(4096) {
                self.page_written(page);
            }
        } else {
            let pages: Vec<u64> = self
                .pages
                .keys()
                .copied()
                .filter(|p| range.contains(p))
                .collect();
            for page in pages {
                self.page_written(page);
            }
        }
    }
}

/// Turns a block's head into a jump.
fn point_head(head: u32, target: u32) {
    let mut jump = [0xe9, 0, 0, 0, 0];
    jump[1..].copy_from_slice(&target.wrapping_sub(head + 5).to_le_bytes());
    write_code(head, &jump);
}

/// None if some of it can't be executed any more.
fn hash_guest(ranges: &[Range<u64>], memory: &Memory) -> Option<u64> {
    use crate::translate::Fetch;
    let mut hasher = FxHasher::default();
    for range in ranges {
        let view = View::across(memory);
        let mut at = range.start;
        while at < range.end {
            at = view.code_end(at)?;
        }
        // SAFETY: the mapping says that these bytes are executable, so they are readable.
        let bytes = unsafe {
            std::slice::from_raw_parts(range.start as *const u8, (range.end - range.start) as usize)
        };
        bytes.hash(&mut hasher);
    }
    Some(hasher.finish())
}

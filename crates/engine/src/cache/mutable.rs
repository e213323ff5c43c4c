//! Translations of code that may change: JITs, self-modifying programs, anything not mapped
//! read-only from a file.
//!
//! The guest page is write-protected while a block made from it is valid. A write invalidates the
//! blocks of its page by turning their heads (five-byte nops, passed at each entry) into jumps to
//! the engine: nothing needs unlinking. A block whose bytes turn out unchanged is revived.
//! Memory that others can write behind our back (shared mappings) can't be protected: such blocks
//! are compared each time they are entered and never linked.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHasher};

use super::View;
use super::region::{Region, write_code};
use crate::context::Exit;
use crate::memory::Memory;
use crate::stats::Stats;
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
}

impl Mutable {
    pub fn new(host: Range<u32>, checks: Checks) -> Mutable {
        Mutable {
            region: Region::new(0..u64::MAX, host),
            checks,
            blocks: Vec::new(),
            heads: FxHashMap::default(),
            pages: FxHashMap::default(),
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
        how: How,
        memory: &mut Memory,
        stats: &mut Stats,
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
            if hash_guest(&block.guest, memory) == Some(block.hash) {
                self.revive(number, memory);
                return Some(self.blocks[number as usize].head);
            }
        }
        let stub = stub && !shared && self.region.stub(pc).is_none();
        let shape = Shape {
            mutable: true,
            stub,
            single: shared.then_some(64),
            optimise: optimise && !shared,
            unchecked: false,
        };
        let before = self.region.hot;
        let view = View::of(memory);
        let block = translate::translate(&mut self.region, &view, pc, shape, &self.checks)?;
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
        self.heads.insert(pc, number);
        if let Some(old) = old {
            // Branches that lead to the old block go on to the new one.
            point_head(self.blocks[old as usize].head, block.entry);
        }
        if !shared {
            self.watch(number, memory);
        }
        Some(block.entry)
    }

    /// Write-protects the pages that a block was made from.
    fn watch(&mut self, number: u32, memory: &mut Memory) {
        for range in &self.blocks[number as usize].guest {
            for page in (range.start & !0xfff..range.end).step_by(4096) {
                // A page that can't be protected (unmapped meanwhile) can't be executed either.
                let _ = memory.protect_code(page..page + 4096);
                let blocks = self.pages.entry(page).or_default();
                if !blocks.contains(&number) {
                    blocks.push(number);
                }
            }
        }
    }

    fn revive(&mut self, number: u32, memory: &mut Memory) {
        let block = &mut self.blocks[number as usize];
        if block.shared {
            return;
        }
        block.valid = true;
        write_code(block.head, &HEAD);
        self.watch(number, memory);
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
        let view = View::of(memory);
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

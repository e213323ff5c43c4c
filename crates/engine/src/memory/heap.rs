//! The program break.

use clew_recording::maps::{Change, Source};

use super::Memory;
use super::host::{self, MAP_FIXED_NOREPLACE};
use super::mapping::{Backing, Mapping, page_up};
use crate::layout;

const PROT: i32 = libc::PROT_READ | libc::PROT_WRITE;

impl Memory {
    /// Moves the program break; the answer is where it then is, as the kernel's brk answers.
    pub fn brk(&mut self, addr: u64) -> u64 {
        let heap = layout::HEAP;
        if !(self.brk.start..=heap.end).contains(&addr) {
            return self.brk.end;
        }
        // Both are at most the area's end, which is page-aligned, so rounding can't fail.
        let (Some(old), Some(new)) = (page_up(self.brk.end), page_up(addr)) else {
            return self.brk.end;
        };
        let done = if new > old {
            self.grow_heap(old, new)
        } else {
            self.shrink_heap(new, old)
        };
        if done && self.brk.end != addr {
            self.brk.end = addr;
            self.logged(|| Change::Break(addr));
        }
        self.brk.end
    }

    /// Start and present value of the break.
    pub fn heap(&self) -> std::ops::Range<u64> {
        self.brk.clone()
    }

    fn grow_heap(&mut self, old: u64, new: u64) -> bool {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        if !self.map.is_free(old..new) || host::mmap(old, new - old, PROT, flags, -1, 0).is_err() {
            return false;
        }
        let mut mapping = Mapping::anon(old, new, PROT);
        mapping.backing = Backing::Heap;
        self.map.insert(mapping);
        self.logged_map(&mapping, Source::Zero, Vec::new());
        true
    }

    fn shrink_heap(&mut self, new: u64, old: u64) -> bool {
        new == old || self.munmap(new, old - new).is_ok()
    }
}

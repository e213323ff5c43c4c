//! The main thread's stack.
//!
//! It is a real growing mapping, so the kernel itself extends it on faults and for system calls,
//! obeys RLIMIT_STACK (also when the guest changes it) and lets an overflow fault, all as natively.
//! In the map of mappings it covers what it may grow to; `/proc/self/maps` shows what it has
//! grown to. A replay has no limit to obey: it can access what the map says, down to the floor that
//! the recording tells. The area below [`layout::STACK_TOP`] bounds it when the limit is "unlimited".

use clew_recording::maps::{Change, Source};

use super::host::{self, MAP_FIXED_NOREPLACE, real_prot};
use super::mapping::{Backing, Mapping, PAGE, page_down, page_up};
use super::{Answer, MapError, Memory};
use crate::layout;
use crate::syscall;

/// The kernel keeps this much free between a growing stack and what lies below it.
const GUARD_GAP: u64 = 1 << 20;

impl Memory {
    /// Maps the stack with `size` bytes already usable at its top; it may grow to `limit` bytes.
    pub fn map_stack(&mut self, size: u64, prot: i32, limit: u64) -> Answer {
        let size = page_up(size).filter(|&s| s < most()).ok_or(libc::ENOMEM)?;
        let start = layout::STACK_TOP - size;
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_GROWSDOWN
            | libc::MAP_STACK
            | MAP_FIXED_NOREPLACE;
        host::mmap(start, size, real_prot(prot), flags, -1, 0)?;
        let mut mapping = Mapping::anon(start, layout::STACK_TOP, prot);
        mapping.grows_down = true;
        mapping.backing = Backing::Stack;
        self.map.insert(mapping);
        self.logged_map(&mapping, Source::Zero, Vec::new());
        self.stack_floor = start;
        self.set_stack_limit(limit);
        Ok(start)
    }

    /// The guest's RLIMIT_STACK (soft) is now `limit` bytes: the stack may grow to that. What has
    /// grown already stays.
    pub fn set_stack_limit(&mut self, limit: u64) {
        self.stack_limit = limit;
        self.settle_stack();
    }

    /// Something was done to mappings at `addr..addr + len`: how far the stack may grow depends on what
    /// lies below it.
    pub fn settle_stack_near(&mut self, addr: u64, len: u64) {
        let near = layout::STACK.start - GUARD_GAP..layout::STACK.end;
        if addr < near.end && near.start < addr.saturating_add(len) {
            self.settle_stack();
        }
    }

    /// Finds out how far the stack may grow by the kernel's own rules, and makes the map of mappings say so.
    fn settle_stack(&mut self) {
        let area = layout::STACK;
        let is_stack = |m: &&Mapping| m.backing == Backing::Stack;
        if self.map.get(area.end - 1).filter(is_stack).is_none() {
            return;
        }
        let grown = self.grown_stack();
        let Some(lowest) = self.map.get(grown.start).copied() else {
            return;
        };
        // The limit is on whole pages, and on the lowest of the mappings that the stack really consists of.
        let mut floor = grown.end - page_down(self.stack_limit.min(most()));
        let below = self
            .map
            .overlapping(0..grown.start)
            .rev()
            .find(|m| m.backing != Backing::Stack);
        if let Some(below) = below {
            let gap = below.prot != libc::PROT_NONE && !below.grows_down;
            floor = floor.max(below.end + if gap { GUARD_GAP } else { 0 });
        }
        let floor = floor.max(area.start).min(grown.start);
        for hole in self.map.holes(floor..grown.start).into_iter().rev() {
            let more = Mapping {
                start: hole.start,
                end: hole.end,
                ..lowest
            };
            self.map.insert(more);
            self.log_stack_floor(more.end);
            self.logged_map(&more, Source::Zero, Vec::new());
            self.stack_floor = more.start;
        }
        if self.records_changes() {
            self.log_stack_floor(floor);
        }
    }

    /// The lowest of the real mappings of the stack, as far as it has grown.
    fn grown_stack(&self) -> std::ops::Range<u64> {
        let text = host::maps().unwrap_or_default();
        let mut lines = text.split(|&b| b == b'\n').filter_map(host::parse_line);
        let is_stack = |at| {
            self.map
                .get(at)
                .is_some_and(|m| m.backing == Backing::Stack)
        };
        let found =
            lines.find(|l| layout::STACK.contains(&l.range.start) && is_stack(l.range.start));
        found.map_or(layout::STACK_TOP..layout::STACK_TOP, |line| line.range)
    }

    /// The limit alone decides what can be accessed of the map's stack.
    fn log_stack_floor(&mut self, floor: u64) {
        if floor != self.stack_floor {
            self.stack_floor = floor;
            self.logged(|| Change::Stack(floor));
        }
    }
}

fn most() -> u64 {
    layout::STACK.end - layout::STACK.start - GUARD_GAP - PAGE
}

/// The soft limit on stacks, in bytes.
pub fn stack_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 8 << 20,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one `rlimit`, which is what `limit` is.
    unsafe {
        syscall!(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_STACK,
            0,
            &raw mut limit
        )
    };
    limit.rlim_cur
}

impl MapError {
    /// The errno for a caller that has no use for the engine's range.
    pub fn errno(&self) -> i32 {
        match self {
            MapError::Errno(errno) => *errno,
            MapError::Engine(_) => libc::ENOMEM,
        }
    }
}

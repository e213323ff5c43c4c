//! The main thread's stack.
//!
//! It is a real growing mapping, so the kernel itself extends it on faults and for system calls,
//! obeys RLIMIT_STACK (also when the guest changes it) and lets an overflow fault, all as natively.
//! In the map of mappings it covers what it may grow to; `/proc/self/maps` shows what it has
//! grown to. The area below [`layout::STACK_TOP`] bounds it when the limit is "unlimited".

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
        let area = layout::STACK;
        let Some(top) = self
            .map
            .get(area.end - 1)
            .filter(|m| m.backing == Backing::Stack)
        else {
            return;
        };
        let lowest = self
            .map
            .overlapping(area.clone())
            .find(|m| m.backing == Backing::Stack);
        let (top, lowest) = (*top, lowest.copied().unwrap_or(*top));
        let floor = page_down(area.end - limit.min(most()));
        if floor < lowest.start && self.map.is_free(floor..lowest.start) {
            let mut more = Mapping {
                prot: lowest.prot,
                ..top
            };
            more.start = floor;
            more.end = lowest.start;
            self.map.insert(more);
            self.log_stack_floor(lowest.start);
            self.logged_map(&more, Source::Zero, Vec::new());
            self.stack_floor = floor;
        } else if self.records_changes() && floor != self.stack_floor {
            self.log_stack_floor(floor.min(grown_to()).max(lowest.start));
        }
    }

    /// The limit alone decides what can be accessed of the map's stack.
    fn log_stack_floor(&mut self, floor: u64) {
        if floor != self.stack_floor {
            self.stack_floor = floor;
            self.logged(|| Change::Stack(floor));
        }
    }
}

/// Where the real stack begins by now.
fn grown_to() -> u64 {
    let text = host::maps().unwrap_or_default();
    let mut lines = text.split(|&b| b == b'\n').filter_map(host::parse_line);
    let found = lines.find(|l| layout::STACK.contains(&l.range.start));
    found.map_or(layout::STACK_TOP, |line| line.range.start)
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

//! A module's memory: segments, a heap and mappings, all in one range of addresses that no guest has. In: calls for memory.
//! Out: addresses, or an errno.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::layout::PROBE;
use crate::replay::worker::protocol::probing::Segment;
use crate::{sys, syscall};

const PAGE: u64 = 4096;
/// Where a module is linked to be, its heap, its mappings and its stack. A page before and behind everything stays empty.
pub const IMAGE: Range<u64> = PROBE.start + PAGE..PROBE.start + (256 << 20);
const HEAP: Range<u64> = IMAGE.end..PROBE.start + (1 << 30);
const MAPS: Range<u64> = HEAP.end..PROBE.end - (64 << 20);
/// Behind mappings comes a gap, so that who leaves the stack downwards faults.
pub const STACK: Range<u64> = MAPS.end + (48 << 20)..PROBE.end - PAGE;
const GAP: Range<u64> = MAPS.end..STACK.start;

/// Is an address where a stack that is used up leads?
pub fn is_gap(addr: u64) -> bool {
    GAP.contains(&addr)
}

pub struct Space {
    /// End of the heap, and of what is mapped of it.
    brk: u64,
    mapped: u64,
    /// Mappings, by start; the end of each.
    maps: BTreeMap<u64, u64>,
    pub text: Range<u64>,
}

fn up(len: u64) -> Option<u64> {
    len.checked_next_multiple_of(PAGE)
}

/// Fresh memory at a place in this range. The place is checked by the callers.
fn map(at: u64, len: u64) -> Result<(), i32> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE: nothing that exists is touched.
    let got = unsafe { syscall!(libc::SYS_mmap, at, len, prot, flags, -1i64, 0) };
    match got == at as i64 {
        true => Ok(()),
        false => Err(if got < 0 { -got as i32 } else { libc::ENOMEM }),
    }
}

impl Space {
    /// Maps the segments and the stack.
    pub fn load(segments: &[Segment]) -> Result<Space, String> {
        let text = segments.iter().find(|segment| segment.executable);
        let text = text.ok_or("a module without code")?;
        let text = text.addr..text.addr.saturating_add(text.len);
        for segment in segments {
            let end = segment.addr.checked_add(segment.len);
            let fits = segment.addr >= IMAGE.start
                && end.is_some_and(|end| end <= IMAGE.end)
                && segment.bytes.len() as u64 <= segment.len;
            if !fits {
                return Err("a module that isn't where it belongs".into());
            }
        }
        let first = segments.iter().map(|segment| segment.addr).min();
        let last = segments
            .iter()
            .map(|segment| segment.addr + segment.len)
            .max();
        let (first, last) = (first.unwrap_or(0) & !(PAGE - 1), last.unwrap_or(0));
        let no = |errno: i32| format!("no memory for a probe: {}", sys::error(-i64::from(errno)));
        map(first, up(last - first).unwrap_or(0)).map_err(no)?;
        map(STACK.start, STACK.end - STACK.start).map_err(no)?;
        for segment in segments {
            // SAFETY: inside of what was just mapped, by the checks above.
            unsafe {
                let to = segment.addr as *mut u8;
                std::ptr::copy_nonoverlapping(segment.bytes.as_ptr(), to, segment.bytes.len());
            }
        }
        Ok(Space {
            brk: HEAP.start,
            mapped: HEAP.start,
            maps: BTreeMap::new(),
            text,
        })
    }

    pub fn brk(&mut self, to: u64) -> u64 {
        if HEAP.contains(&to) {
            let end = up(to).unwrap_or(HEAP.end);
            if end > self.mapped {
                if map(self.mapped, end - self.mapped).is_err() {
                    return self.brk;
                }
                self.mapped = end;
            }
            self.brk = to;
        }
        self.brk
    }

    /// Memory of its own, wherever there is room.
    pub fn mmap(&mut self, len: u64) -> Result<u64, i32> {
        let most = MAPS.end - MAPS.start;
        let len = up(len).filter(|&len| len > 0).ok_or(libc::EINVAL)?;
        let len = Some(len).filter(|len| *len <= most).ok_or(libc::ENOMEM)?;
        let mut at = MAPS.start;
        for (&start, &end) in &self.maps {
            if start - at >= len + PAGE {
                break;
            }
            at = end + PAGE;
        }
        if at + len > MAPS.end {
            return Err(libc::ENOMEM);
        }
        map(at, len)?;
        self.maps.insert(at, at + len);
        Ok(at)
    }

    pub fn munmap(&mut self, at: u64, len: u64) -> Result<(), i32> {
        let end = up(len)
            .and_then(|len| at.checked_add(len))
            .ok_or(libc::EINVAL)?;
        let over = self.maps.range(..=at).next_back();
        let Some((&start, &over)) = over.filter(|(_, over)| **over >= end) else {
            return Err(libc::EINVAL);
        };
        // SAFETY: memory of the module's own.
        unsafe { syscall!(libc::SYS_munmap, at, end - at) };
        self.maps.remove(&start);
        if start < at {
            self.maps.insert(start, at);
        }
        if end < over {
            self.maps.insert(end, over);
        }
        Ok(())
    }

    /// Larger or smaller, elsewhere if need be.
    pub fn mremap(&mut self, at: u64, old: u64, new: u64) -> Result<u64, i32> {
        let (old, new) = (up(old).ok_or(libc::EINVAL)?, up(new).ok_or(libc::EINVAL)?);
        let end = self.maps.get(&at).copied().ok_or(libc::EFAULT)?;
        if old > end - at || new == 0 {
            return Err(libc::EINVAL);
        }
        if new <= old {
            if new < old {
                self.munmap(at + new, old - new)?;
            }
            return Ok(at);
        }
        let to = self.mmap(new)?;
        // SAFETY: both are the module's own, and as long as this.
        unsafe { std::ptr::copy_nonoverlapping(at as *const u8, to as *mut u8, old as usize) };
        self.munmap(at, old)?;
        Ok(to)
    }

    /// Protection of its own memory; code isn't made of it.
    pub fn mprotect(&self, at: u64, len: u64, prot: i32) -> Result<(), i32> {
        let end = up(len)
            .and_then(|len| at.checked_add(len))
            .ok_or(libc::EINVAL)?;
        if at < PROBE.start || end > PROBE.end {
            return Err(libc::EACCES);
        }
        let prot = prot & (libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: memory of the module's own.
        match unsafe { syscall!(libc::SYS_mprotect, at, end - at, prot) } {
            0 => Ok(()),
            error => Err(-error as i32),
        }
    }
}

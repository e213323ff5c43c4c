//! A checksum of the guest's own memory: equal in a recording and its replay, whatever pages the host
//! happens to have there.
//!
//! Counted are private mappings that can be read: anonymous ones, and files that were writable at some
//! time. A page that nobody touched and one full of zeroes are the same. No descriptor is needed, so it
//! works in a locked process too.

use super::mapping::{Backing, Mapping, PAGE};
use super::{Memory, host};

/// Pages asked about at once.
const BATCH: u64 = 4096;

impl Memory {
    pub fn checksum(&self) -> u64 {
        let mut sum = 0u64;
        self.page_sums(&mut |_, page| sum = sum.wrapping_add(page));
        sum
    }

    /// Calls `found(address, checksum)` for each page that isn't all zeroes.
    pub fn page_sums(&self, found: &mut dyn FnMut(u64, u64)) {
        // What was swapped out can't be told from what was never there: then all is read.
        let all = host::swap_in_use();
        for mapping in self.iter().filter(|m| counts(m)) {
            each_page(mapping, all, &mut |at| page(at, found));
        }
    }
}

/// Calls `found` for each page of a private mapping that may hold something; with `all`, also for those that aren't in
/// memory.
pub(super) fn each_page(mapping: &Mapping, all: bool, found: &mut dyn FnMut(u64)) {
    let mut at = mapping.start;
    while at < mapping.end {
        let end = mapping.end.min(at + BATCH * PAGE);
        batch(mapping, at, end, all, found);
        at = end;
    }
}

fn counts(mapping: &Mapping) -> bool {
    let own = match mapping.backing {
        Backing::File { .. } => mapping.was_writable,
        Backing::Vdso => false,
        _ => true,
    };
    own && !mapping.shared && mapping.can(libc::PROT_READ)
}

fn batch(mapping: &Mapping, start: u64, end: u64, all: bool, found: &mut dyn FnMut(u64)) {
    if let Backing::File { file, offset, .. } = mapping.backing {
        // What isn't in memory may be read again; behind the file's end there is nothing.
        let end_of_file = mapping.start + file.size.saturating_sub(offset);
        for at in (start..end.min(end_of_file)).step_by(PAGE as usize) {
            found(at);
        }
        return;
    }
    let mut present = [0u8; BATCH as usize];
    let mut start = start;
    if host::mincore(start..end, &mut present).is_err() {
        // Part of the range isn't there: a stack that hasn't grown so far down.
        start = first_there(start, end);
        if host::mincore(start..end, &mut present).is_err() {
            for at in (start..end).step_by(PAGE as usize) {
                let there = host::mincore(at..at + PAGE, &mut present).is_ok();
                if there && (all || present[0] & 1 != 0) {
                    found(at);
                }
            }
            return;
        }
    }
    for (n, at) in (start..end).step_by(PAGE as usize).enumerate() {
        // What isn't in memory was never written.
        if all || present[n] & 1 != 0 {
            found(at);
        }
    }
}

/// Where the mapped part begins in a range of which only the end is mapped.
fn first_there(start: u64, end: u64) -> u64 {
    let (mut absent, mut there) = (start / PAGE, end / PAGE);
    while there - absent > 1 {
        let middle = absent.midpoint(there);
        match host::mincore(middle * PAGE..(middle + 1) * PAGE, &mut [0]) {
            Ok(_) => there = middle,
            Err(_) => absent = middle,
        }
    }
    match host::mincore(start..start + PAGE, &mut [0]) {
        // Not only the end, after all.
        Ok(_) => start,
        Err(_) => there * PAGE,
    }
}

fn page(at: u64, found: &mut dyn FnMut(u64, u64)) {
    let mut page = [0u64; 512];
    // SAFETY: the array is as long as a page, and any bytes are numbers.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(page.as_mut_ptr().cast::<u8>(), PAGE as usize) };
    // Behind a file's end there is nothing to read.
    if crate::guest::access::read_bytes(at, bytes).is_ok() {
        let sum = page_sum(at, &page);
        if sum != 0 {
            found(at, sum);
        }
    }
}

/// 0 for a page of zeroes. Four lanes, so that the multiplications overlap.
fn page_sum(addr: u64, page: &[u64; 512]) -> u64 {
    const K: [u64; 4] = [
        0x9e37_79b9_7f4a_7c15,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x27d4_eb2f_1656_67c5,
    ];
    if page.iter().all(|&word| word == 0) {
        return 0;
    }
    let mut lanes = K;
    for group in page.chunks_exact(4) {
        for (lane, (&word, k)) in lanes.iter_mut().zip(group.iter().zip(K)) {
            *lane = (*lane ^ word).wrapping_mul(k);
            *lane ^= *lane >> 29;
        }
    }
    let mut sum = addr.wrapping_mul(K[0]);
    for lane in lanes {
        sum = (sum ^ lane).wrapping_mul(K[1]);
        sum ^= sum >> 31;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_are_nothing_and_the_place_matters() {
        let mut page = [0u64; 512];
        assert_eq!(page_sum(0x1000, &page), 0);
        page[511] = 1;
        let one = page_sum(0x1000, &page);
        assert_ne!(one, 0);
        assert_ne!(one, page_sum(0x2000, &page));
        page[511] = 0;
        page[510] = 1;
        assert_ne!(one, page_sum(0x1000, &page));
    }
}

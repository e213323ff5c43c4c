//! Memory of both sides: what either has written since the fork must be equal.
//!
//! A page that one side wrote after the fork is its own; the kernel says so (`/proc/…/pagemap`).
//! Pages that both still have in common need no look.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::Difference;
use super::twin::Twin;
use crate::memory::{Mapping, Memory, PAGE};

/// Entries of the page map that are read at once.
const BATCH: u64 = 512;
/// Present or swapped out, and mapped nowhere else.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const EXCLUSIVE: u64 = 1 << 56;
/// Mappings larger than this (reservations) are passed over.
const LARGEST: u64 = 4 << 30;

/// Compares what the guest may have written.
pub fn compare(memory: &Memory, twin: &Twin) -> Result<(), Difference> {
    let open = |pid: &str| File::open(format!("/proc/{pid}/pagemap"));
    let (Ok(here), Ok(there)) = (open("self"), open(&twin.pid().to_string())) else {
        return Ok(());
    };
    for mapping in memory.iter() {
        if mapping.can(libc::PROT_WRITE) && mapping.len() <= LARGEST {
            compare_mapping(mapping, twin, &here, &there)?;
        }
    }
    Ok(())
}

fn compare_mapping(
    mapping: &Mapping,
    twin: &Twin,
    here: &File,
    there: &File,
) -> Result<(), Difference> {
    let mut at = mapping.start;
    while at < mapping.end {
        let count = ((mapping.end - at) / PAGE).min(BATCH) as usize;
        let (mine, its) = (entries(here, at, count), entries(there, at, count));
        for page in 0..count {
            // Views of one file are mapped more than once, but never by both.
            if mapping.shared || is_own(mine[page]) || is_own(its[page]) {
                compare_page(at + page as u64 * PAGE, twin)?;
            }
        }
        at += count as u64 * PAGE;
    }
    Ok(())
}

fn entries(map: &File, at: u64, count: usize) -> [u64; BATCH as usize] {
    let mut bytes = [0u8; BATCH as usize * 8];
    let mut entries = [0; BATCH as usize];
    if map
        .read_exact_at(&mut bytes[..count * 8], at / PAGE * 8)
        .is_err()
    {
        // Unknown: look at all of them.
        entries.fill(PRESENT | EXCLUSIVE);
        return entries;
    }
    for (entry, bytes) in entries.iter_mut().zip(bytes.chunks_exact(8)) {
        *entry = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    entries
}

fn is_own(entry: u64) -> bool {
    entry & SWAPPED != 0 || entry & (PRESENT | EXCLUSIVE) == PRESENT | EXCLUSIVE
}

fn compare_page(at: u64, twin: &Twin) -> Result<(), Difference> {
    let mut here = [0u8; PAGE as usize];
    let mut there = [0u8; PAGE as usize];
    // Pages that can't be read (behind a file's end) have nothing to compare.
    if crate::guest::access::read_bytes(at, &mut here).is_err()
        || twin.read(at, &mut there) < here.len()
    {
        return Ok(());
    }
    if here == there {
        return Ok(());
    }
    let first = here
        .iter()
        .zip(&there)
        .position(|(a, b)| a != b)
        .expect("they differ");
    let count = here.iter().zip(&there).filter(|(a, b)| a != b).count();
    let word = first & !7;
    let hex = |bytes: &[u8; PAGE as usize]| {
        u64::from_le_bytes(bytes[word..word + 8].try_into().expect("eight bytes"))
    };
    Err(Difference::new(format!(
        "memory at {:#x}: {count} bytes of its page differ; the first word that does is {:#018x}, \
         natively {:#018x}",
        at + first as u64,
        hex(&here),
        hex(&there)
    )))
}

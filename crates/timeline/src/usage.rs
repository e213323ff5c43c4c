//! What processes take of the machine's memory. In: their numbers. Out: bytes.
//!
//! Workers share most of their pages. What they take together is the sum of their proportional shares, which
//! only `smaps_rollup` knows; it looks at every page (tens of milliseconds for some GiB), so it is asked only
//! when an estimate says that the budget may be used up. The estimate is an upper bound and costs
//! microseconds: a page that one worker has for itself came by a page fault, and faults are counted. `statm`
//! wouldn't do: its "shared" isn't what forks share.

use std::fs;

use crate::limits;

const PAGE: u64 = 4096;
/// A process without any memory: kernel stack, descriptors, the top of its page tables.
const PROCESS: u64 = 128 << 10;

/// Page faults of a process so far, without those that read a file.
pub fn faults(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may contain anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(7)?.parse().ok()
}

/// What it has mapped and in memory, whoever shares it.
pub fn resident(pid: i32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * PAGE)
}

/// At most so much is a process's own that had so many faults since it was the same as another.
pub fn bound(faults: u64, resident: u64) -> u64 {
    faults * PAGE + overhead(resident)
}

/// Page tables, and what each process takes.
fn overhead(resident: u64) -> u64 {
    resident / 512 + PROCESS
}

/// What these take together, exactly.
pub fn together(pids: impl Iterator<Item = i32>) -> u64 {
    pids.map(|pid| share(pid).unwrap_or(0) + overhead(resident(pid).unwrap_or(0)))
        .sum()
}

/// A process's share: its own pages, and its part of those that it has with others. Files don't count.
fn share(pid: i32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    shares(&rollup)
}

fn shares(rollup: &str) -> Option<u64> {
    let value = |key: &str| -> Option<u64> {
        let line = rollup.lines().find_map(|line| line.strip_prefix(key))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib << 10)
    };
    // Old kernels don't tell files from the rest.
    match (value("Pss_Anon:"), value("Pss_Shmem:")) {
        (Some(anonymous), Some(shared)) => Some(anonymous + shared),
        _ => value("Pss:"),
    }
}

/// A quarter of the memory that this process may have.
pub fn quarter() -> u64 {
    limits::memory().map_or(1 << 30, |bytes| bytes / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_this_process() {
        let me = std::process::id() as i32;
        assert!(faults(me).unwrap() > 0);
        assert!(resident(me).unwrap() > PAGE);
        assert!(together([me].into_iter()) > PAGE);
        assert_eq!(faults(-5), None);
        assert!(quarter() > 1 << 20);
    }

    #[test]
    fn reads_a_rollup() {
        let text =
            "00400000-7ff000 ---p 00000000 00:00 0    [rollup]\nRss:   1320 kB\nPss:    410 kB\n";
        assert_eq!(shares(text), Some(410 << 10));
        let text = format!("{text}Pss_Anon:   100 kB\nPss_File:  300 kB\nPss_Shmem:   10 kB\n");
        assert_eq!(shares(&text), Some(110 << 10));
        assert_eq!(shares("Rss: 1 kB"), None);
    }
}

//! One number for all that the guest has written to its private memory.
//!
//! In: the map of mappings and the process's page tables. Out: a sum that a recording and its replay
//! agree on although different pages may have been touched: a page that is all zero counts like
//! none, and the order of pages doesn't matter. Left out are memory without access, shared memory,
//! and file mappings that can't have changed, that are large, or of which there is no copy.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use super::Memory;
use super::mapping::{Backing, PAGE};
use crate::sys;
use crate::syscall;

/// Private mappings of larger files are left out: all of their pages would have to be read.
const LARGE_FILE: u64 = 64 << 20;
/// Without the kernel's help in finding pages, no more address space than this is looked through.
const MOST_LISTED: u64 = 256 << 30;

/// A process's page tables. It belongs to the process that opened it, not to its children.
#[derive(Debug)]
pub struct PageTables {
    file: OwnedFd,
    pid: i64,
}

impl PageTables {
    /// Opens those of this process. Needs `/proc`; later questions don't.
    pub fn open() -> io::Result<PageTables> {
        let file = std::fs::File::open("/proc/self/pagemap")?;
        Ok(PageTables {
            file: file.into(),
            pid: pid(),
        })
    }

    /// Calls `each` with ranges of `range` whose pages are the process's own, not zero pages and not
    /// a file's. False if that can't be told.
    fn own_pages(&self, range: Range<u64>, each: &mut impl FnMut(Range<u64>)) -> bool {
        match self.scan(range.clone(), each) {
            Err(libc::ENOTTY | libc::EINVAL) => {
                range.end - range.start <= MOST_LISTED && self.list(range, each)
            }
            done => done.is_ok(),
        }
    }

    /// PAGEMAP_SCAN, in Linux since 6.7. The error is an errno, before anything was found.
    fn scan(&self, range: Range<u64>, each: &mut impl FnMut(Range<u64>)) -> Result<(), i32> {
        const PAGEMAP_SCAN: u64 = 0xc060_6610;
        const FILE: u64 = 1 << 2;
        const PRESENT: u64 = 1 << 3;
        const SWAPPED: u64 = 1 << 4;
        const ZERO: u64 = 1 << 5;
        #[repr(C)]
        #[derive(Default)]
        struct Request {
            size: u64,
            flags: u64,
            start: u64,
            end: u64,
            walk_end: u64,
            vec: u64,
            vec_len: u64,
            max_pages: u64,
            category_inverted: u64,
            category_mask: u64,
            category_anyof_mask: u64,
            return_mask: u64,
        }
        let mut found = [[0u64; 3]; 64];
        let mut at = range.start;
        while at < range.end {
            let mut request = Request {
                size: size_of::<Request>() as u64,
                start: at,
                end: range.end,
                vec: found.as_mut_ptr() as u64,
                vec_len: found.len() as u64,
                category_inverted: FILE | ZERO,
                category_mask: FILE | ZERO,
                category_anyof_mask: PRESENT | SWAPPED,
                return_mask: PRESENT,
                ..Request::default()
            };
            // SAFETY: the kernel writes at most `vec_len` regions of three numbers to `found`.
            let ret = unsafe {
                syscall!(
                    libc::SYS_ioctl,
                    self.file.as_raw_fd(),
                    PAGEMAP_SCAN,
                    &raw mut request
                )
            };
            if ret == sys::err(libc::EINTR) {
                continue;
            }
            if sys::is_err(ret) {
                return Err(-ret as i32);
            }
            for &[start, end, _] in found.iter().take(ret as usize) {
                each(start..end);
            }
            if request.walk_end <= at {
                return Err(libc::EIO);
            }
            at = request.walk_end;
        }
        Ok(())
    }

    /// The same by reading an entry for each page.
    fn list(&self, range: Range<u64>, each: &mut impl FnMut(Range<u64>)) -> bool {
        const PRESENT_OR_SWAPPED: u64 = 3 << 62;
        const FILE: u64 = 1 << 61;
        let mut entries = vec![0u8; 1 << 16];
        let mut at = range.start;
        while at < range.end {
            let pages = ((range.end - at) / PAGE).min(entries.len() as u64 / 8);
            let part = &mut entries[..pages as usize * 8];
            if super::file::read_at(self.file.as_raw_fd(), part, at / PAGE * 8) != Ok(part.len()) {
                return false;
            }
            for (n, entry) in part.as_chunks::<8>().0.iter().enumerate() {
                let entry = u64::from_le_bytes(*entry);
                if entry & PRESENT_OR_SWAPPED != 0 && entry & FILE == 0 {
                    let page = at + n as u64 * PAGE;
                    each(page..page + PAGE);
                }
            }
            at += pages * PAGE;
        }
        true
    }
}

fn pid() -> i64 {
    // SAFETY: getpid touches no memory.
    unsafe { syscall!(libc::SYS_getpid) }
}

impl Memory {
    /// The checksum; `None` if the kernel doesn't tell which pages were written.
    pub fn checksum(&self, tables: &PageTables) -> Option<u64> {
        if tables.pid != pid() {
            return None;
        }
        let mut sum = 0u64;
        let mut add = |range: Range<u64>| {
            for page in range.step_by(PAGE as usize) {
                // SAFETY: pages that the guest can read, which are there: `own_pages` found them, or
                // they lie inside a file that nobody shortens.
                let contents = unsafe { &*(page as *const [[u64; 4]; PAGE as usize / 32]) };
                sum = sum.wrapping_add(hash_page(page, contents));
            }
        };
        for m in self.map.iter() {
            if m.shared || m.prot == libc::PROT_NONE {
                continue;
            }
            match m.backing {
                Backing::Anon | Backing::Heap | Backing::Stack => {
                    if !tables.own_pages(m.start..m.end, &mut add) {
                        return None;
                    }
                }
                Backing::File { file, offset, .. } => {
                    let counts = m.was_writable
                        && file.size <= LARGE_FILE
                        && self.originals.is_copied(&file);
                    if counts {
                        let there = file.size.saturating_sub(offset).next_multiple_of(PAGE);
                        add(m.start..m.start + there.min(m.len()));
                    }
                }
                Backing::Vdso | Backing::Shm => {}
            }
        }
        Some(sum)
    }
}

/// 0 for a page of zeroes.
fn hash_page(addr: u64, contents: &[[u64; 4]; PAGE as usize / 32]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    // Four independent chains: a multiplication takes longer than the next load.
    let mut lanes = [K, K.rotate_left(16), K.rotate_left(32), K.rotate_left(48)];
    let mut any = 0;
    for words in contents {
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = (*lane ^ word).wrapping_mul(K).rotate_left(29);
            any |= word;
        }
    }
    if any == 0 {
        return 0;
    }
    let mut hash = addr;
    for lane in lanes {
        hash = (hash ^ lane).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash ^= hash >> 29;
    }
    hash
}

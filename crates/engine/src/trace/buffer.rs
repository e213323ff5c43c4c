//! The memory that entries and rows go through, shared by a worker, which fills it, and its commander, which empties it.
//!
//! Entries go into *segments*, one after the other and round again; a worker that is ahead by all of them waits. Behind
//! each segment is a page that can't be written: translated code doesn't look for the end, it faults there, the open
//! entry is moved to the next segment, and the store is made again. Rows have a room of their own and stay.
//!
//! The file is made by the commander before the worker is locked in, and can't change its size: a worker may be a
//! stranger's to the last instruction, and must not take memory away that its commander reads.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use iced_x86::{Decoder, DecoderOptions};

use super::Special;
use crate::context::GsBlock;
use crate::{layout, sys, syscall};

/// Bytes of a segment, and how many there are.
pub const SEGMENT: usize = 4 << 20;
pub const SEGMENTS: usize = 4;
/// Room for rows.
pub const ROWS: usize = 256 << 20;
const PAGE: usize = 4096;
/// No entry is longer.
const GUARD: usize = 64 << 10;
const FILE: usize = PAGE + ROWS + SEGMENTS * SEGMENT;
const FIRST: u64 = layout::TRACE + (1 << 30);

/// What both sides say about it.
#[repr(C)]
struct Header {
    /// Segments that are complete, and those of them that were emptied; they go round.
    filled: AtomicU32,
    emptied: AtomicU32,
    /// The commander wants no more: nobody waits for it.
    unwanted: AtomicU32,
    /// Bytes of rows.
    rows: AtomicU32,
    /// Bytes in each segment.
    used: [AtomicU32; SEGMENTS],
}

/// A new buffer, to be passed to a worker.
pub fn create() -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: makes a descriptor of our own, and asks the kernel for its size and seals.
    unsafe {
        let fd = libc::memfd_create(c"clew-trace".as_ptr(), flags);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let file = OwnedFd::from_raw_fd(fd);
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        if libc::ftruncate(fd, FILE as i64) < 0 || libc::fcntl(fd, libc::F_ADD_SEALS, seals) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(file)
    }
}

/// Maps a part of the file, at a fixed place if one is given.
fn map(fd: RawFd, at: Option<u64>, part: Range<usize>) -> io::Result<u64> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | at.map_or(0, |_| libc::MAP_FIXED_NOREPLACE);
    let (place, len) = (at.unwrap_or(0), part.len());
    // SAFETY: NOREPLACE, or wherever there is room: nothing that exists is touched.
    let got = unsafe { syscall!(libc::SYS_mmap, place, len, prot, flags, fd, part.start) };
    match got {
        0.. if at.is_none_or(|at| got == at as i64) => Ok(got as u64),
        0.. => Err(io::Error::from_raw_os_error(libc::EEXIST)),
        _ => Err(sys::error(got)),
    }
}

fn unmap(at: u64, len: usize) {
    // SAFETY: mapped by us, and its owner is being dropped.
    unsafe { syscall!(libc::SYS_munmap, at, len) };
}

fn wait(word: &AtomicU32, while_it_is: u32) {
    let soon = libc::timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    let word = word.as_ptr();
    // SAFETY: waits for a change of a word that both sides have mapped.
    unsafe {
        syscall!(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAIT,
            while_it_is,
            &raw const soon
        )
    };
}

fn wake(word: &AtomicU32) {
    // SAFETY: wakes who waits for it.
    unsafe { syscall!(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// The worker's side.
pub struct Buffer {
    /// Segments that were begun.
    begun: u32,
    rows: usize,
}

impl Buffer {
    /// Maps it at its place. There can be one of these in a process.
    pub fn map(fd: RawFd) -> io::Result<Buffer> {
        let mut mapped = Vec::new();
        let mut part = |at: u64, part: Range<usize>| -> io::Result<()> {
            mapped.push((map(fd, Some(at), part.clone())?, part.len()));
            Ok(())
        };
        let all = part(layout::TRACE, 0..PAGE + ROWS).and_then(|()| {
            (0..SEGMENTS).try_for_each(|n| {
                let from = PAGE + ROWS + n * SEGMENT;
                part(place(n as u32), from..from + SEGMENT)
            })
        });
        if let Err(error) = all {
            mapped.iter().for_each(|&(at, len)| unmap(at, len));
            return Err(error);
        }
        Ok(Buffer { begun: 0, rows: 0 })
    }

    fn header(&self) -> &Header {
        // SAFETY: mapped as long as this lives; all of it is atomic.
        unsafe { &*(layout::TRACE as *const Header) }
    }

    /// What stands in the room for rows.
    pub fn result(&self) -> Vec<u8> {
        let there = (self.header().rows.load(Ordering::Acquire) as usize).min(ROWS);
        let from = (layout::TRACE + PAGE as u64) as *const u8;
        // SAFETY: mapped as long as this lives; the commander waits for us.
        unsafe { std::slice::from_raw_parts(from, there) }.to_vec()
    }

    /// Puts something else there; whether there was room.
    pub fn set_result(&mut self, bytes: &[u8]) -> bool {
        self.rows = 0;
        self.add_rows(bytes)
    }

    /// From here on entries may be written.
    pub fn begin(&mut self, gs: &mut GsBlock) {
        gs.trace_at = place(self.begun);
    }

    fn used(&self, gs: &GsBlock) -> usize {
        gs.trace_at.saturating_sub(place(self.begun)) as usize
    }

    /// Gives what there is to the commander, and begins the next segment when it is free.
    pub fn flush(&mut self, gs: &mut GsBlock) {
        let used = self.used(gs).min(SEGMENT);
        let header = self.header();
        header.used[self.begun as usize % SEGMENTS].store(used as u32, Ordering::Relaxed);
        let begun = self.begun.wrapping_add(1);
        header.filled.store(begun, Ordering::Release);
        wake(&header.filled);
        loop {
            let emptied = header.emptied.load(Ordering::Acquire);
            let ahead = begun.wrapping_sub(emptied) as usize;
            if ahead < SEGMENTS || header.unwanted.load(Ordering::Relaxed) != 0 {
                break;
            }
            wait(&header.emptied, emptied);
        }
        self.begun = begun;
        self.begin(gs);
    }

    /// Whether a fault was translated code's at the end of a segment: the store can be made again.
    pub fn is_full(&mut self, gs: &mut GsBlock) -> bool {
        let end = place(self.begun) + SEGMENT as u64;
        if !(end..end + GUARD as u64).contains(&gs.fault.addr) {
            return false;
        }
        // SAFETY: the CPU has just executed what stands there.
        let code = unsafe { std::slice::from_raw_parts(gs.fault.host_pc as *const u8, 15) };
        let ins = Decoder::with_ip(64, code, gs.fault.host_pc, DecoderOptions::NONE).decode();
        let base = ins.memory_base();
        let old = gs.trace_at;
        if !base.is_gpr64() || gs.regs.gpr[base.number()] != old {
            return false;
        }
        let open = (end - old) as usize;
        self.flush(gs);
        // SAFETY: slots of the open entry, from the end of one segment to the start of another.
        unsafe { std::ptr::copy(old as *const u8, gs.trace_at as *mut u8, open) };
        gs.regs.gpr[base.number()] = gs.trace_at;
        true
    }

    /// Words that are read forwards, and stay together. For who writes no entries.
    pub fn put_words(&mut self, gs: &mut GsBlock, words: &[u64]) {
        if self.used(gs) + 8 * words.len() > SEGMENT {
            self.flush(gs);
        }
        for word in words {
            // SAFETY: there is room in the segment, and only this uses it.
            unsafe { (gs.trace_at as *mut u64).write(*word) };
            gs.trace_at += 8;
        }
    }

    /// An entry that isn't translated code's. No entry is open.
    pub fn put(&mut self, gs: &mut GsBlock, special: Special, words: &[u64]) {
        let len = 8 * words.len();
        if self.used(gs) + len + 8 > SEGMENT {
            self.flush(gs);
        }
        let id = (len as u64) << 32 | u64::from(special.id());
        for word in words.iter().chain([&id]) {
            // SAFETY: there is room in the segment, and only this and translated code, which doesn't run now, use it.
            unsafe { (gs.trace_at as *mut u64).write(*word) };
            gs.trace_at += 8;
        }
    }

    /// Ends the open entry, whose slots are as long as `size`.
    pub fn close(&mut self, gs: &mut GsBlock, end: u32, size: u16) {
        let slots = gs.trace_at as *const u8;
        if self.used(gs) + size as usize + 8 > SEGMENT {
            self.flush(gs);
            // SAFETY: as in `is_full`.
            unsafe { std::ptr::copy(slots, gs.trace_at as *mut u8, size as usize) };
        }
        gs.trace_at += u64::from(size);
        // SAFETY: as in `put`.
        unsafe { (gs.trace_at as *mut u64).write(u64::from(end)) };
        gs.trace_at += 8;
    }

    /// Adds rows; whether there was room.
    pub fn add_rows(&mut self, rows: &[u8]) -> bool {
        if self.rows + rows.len() > ROWS {
            return false;
        }
        let at = layout::TRACE + (PAGE + self.rows) as u64;
        // SAFETY: there is room, and the commander reads no further than it is told.
        unsafe { std::ptr::copy(rows.as_ptr(), at as *mut u8, rows.len()) };
        self.rows += rows.len();
        self.header()
            .rows
            .store(self.rows as u32, Ordering::Release);
        true
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        unmap(layout::TRACE, PAGE + ROWS);
        (0..SEGMENTS as u32).for_each(|n| unmap(place(n), SEGMENT));
    }
}

/// Where a segment begins in the worker.
fn place(number: u32) -> u64 {
    FIRST + (number as usize % SEGMENTS * (SEGMENT + GUARD)) as u64
}

/// The commander's side.
pub struct Ring {
    at: u64,
    fd: OwnedFd,
}

impl Ring {
    pub fn map(fd: OwnedFd) -> io::Result<Ring> {
        let at = map(fd.as_raw_fd(), None, 0..FILE)?;
        Ok(Ring { at, fd })
    }

    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn header(&self) -> &Header {
        // SAFETY: mapped as long as this lives, and its size is sealed; all of it is atomic.
        unsafe { &*(self.at as *const Header) }
    }

    /// Copies a part that the worker may be writing to meanwhile, if it means us harm.
    fn copy(&self, part: Range<usize>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(part.len());
        // SAFETY: a part of the mapping; what stands there is nothing but bytes, whatever they are.
        unsafe {
            let from = (self.at as *const u8).add(part.start);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), part.len());
            bytes.set_len(part.len());
        }
        bytes
    }

    /// Makes it empty, for a worker that begins, and leaves this for it to read.
    pub fn clear(&mut self, bytes: &[u8]) {
        let header = self.header();
        for word in [&header.filled, &header.emptied, &header.unwanted] {
            word.store(0, Ordering::Relaxed);
        }
        let len = bytes.len().min(ROWS);
        // SAFETY: a part of the mapping, which no worker uses now.
        unsafe {
            let to = (self.at as *mut u8).add(PAGE);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len);
        }
        self.header().rows.store(len as u32, Ordering::Release);
    }

    /// Gives its memory back to the machine.
    pub fn discard(&self) {
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a file of our own; where it is mapped there are zeros then.
        unsafe { libc::fallocate(self.fd.as_raw_fd(), how, 0, FILE as i64) };
    }

    /// The next complete segment, if there is one.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let header = self.header();
        let emptied = header.emptied.load(Ordering::Relaxed);
        if header.filled.load(Ordering::Acquire) == emptied {
            return None;
        }
        let n = emptied as usize % SEGMENTS;
        let used = header.used[n].load(Ordering::Relaxed) as usize;
        let from = PAGE + ROWS + n * SEGMENT;
        let bytes = self.copy(from..from + used.min(SEGMENT));
        header
            .emptied
            .store(emptied.wrapping_add(1), Ordering::Release);
        wake(&header.emptied);
        Some(bytes)
    }

    /// All rows from an offset on.
    pub fn rows(&self, from: usize) -> Vec<u8> {
        let there = (self.header().rows.load(Ordering::Acquire) as usize).min(ROWS);
        self.copy(PAGE + from.min(there)..PAGE + there)
    }

    /// Waits a while for a segment.
    pub fn wait(&self) {
        let header = self.header();
        let emptied = header.emptied.load(Ordering::Relaxed);
        if header.filled.load(Ordering::Acquire) == emptied {
            wait(&header.filled, emptied);
        }
    }

    /// No more of them are wanted.
    pub fn refuse(&self) {
        self.header().unwanted.store(1, Ordering::Relaxed);
        wake(&self.header().emptied);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        unmap(self.at, FILE);
    }
}

// SAFETY: a mapping and a descriptor, which any thread may use.
unsafe impl Send for Ring {}

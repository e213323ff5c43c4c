//! Replaying: a thread's entries, one after the other.

use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use crate::fail;
use crate::format::*;
use crate::sys::nr;
use crate::thread::Thread;

/// The log, mapped for reading.
pub static LOG: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
pub static LEN: AtomicUsize = AtomicUsize::new(0);
pub static DATA_FD: AtomicI32 = AtomicI32::new(-1);

/// An entry, as it was written. `at` is where its inline payload is.
#[derive(Clone, Copy)]
pub struct Entry {
    pub op: u8,
    pub check: u16,
    pub flags: u8,
    pub turn: u32,
    pub result: i64,
    pub sum: u32,
    pub len: usize,
    pub data: u64,
    pub at: *const u8,
}

/// The chunk at this place.
fn chunk(at: u64) -> *const Chunk {
    let len = LEN.load(Ordering::Relaxed) as u64;
    if at < FIRST || at >= len || len - at < size_of::<Chunk>() as u64 {
        fail::diverge("the log is damaged");
    }
    // SAFETY: inside the mapping.
    unsafe { LOG.load(Ordering::Relaxed).add(at as usize).cast() }
}

/// Lets `t` read from the chunk at `at`, its first.
///
/// # Safety
/// The log is mapped.
pub unsafe fn attach(t: &mut Thread, at: u64) {
    // SAFETY: chunks are as they were written.
    unsafe {
        let first = chunk(at);
        t.chunk = first.cast_mut();
        t.recorded = first.add(1).cast();
        t.at = first
            .cast::<u8>()
            .add(size_of::<Chunk>() + size_of::<Head>())
            .cast_mut();
        t.last = 0;
        look_ahead(t);
    }
}

unsafe fn varint(at: &mut *const u8) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        // SAFETY: within what was written.
        let byte = unsafe { **at };
        *at = unsafe { at.add(1) };
        value |= u64::from(byte & 127) << shift;
        shift += 7;
        if byte < 128 || shift > 63 {
            return value;
        }
    }
}

/// Finds out when the next entry is due.
unsafe fn look_ahead(t: &mut Thread) {
    // SAFETY: chunks are as they were written; an entry never crosses into another.
    unsafe {
        loop {
            let used = (*t.chunk).used as usize;
            if (t.at as usize) < t.chunk as usize + used {
                let mut at = t.at.cast_const().add(4);
                t.due = t.last + varint(&mut at);
                return;
            }
            if (*t.chunk).next == 0 {
                t.due = u64::MAX;
                return;
            }
            t.chunk = chunk((*t.chunk).next).cast_mut();
            t.at = t.chunk.add(1).cast();
        }
    }
}

/// The entry that is due.
///
/// # Safety
/// `t.due` is the thread's count.
pub unsafe fn take(t: &mut Thread) -> Entry {
    // SAFETY: as it was written.
    unsafe {
        let mut at = t.at.cast_const();
        let mut entry = Entry {
            op: *at,
            check: u16::from_le_bytes([*at.add(1), *at.add(2)]),
            flags: *at.add(3),
            turn: 0,
            result: 0,
            sum: 0,
            len: 0,
            data: 0,
            at,
        };
        at = at.add(4);
        varint(&mut at);
        if entry.flags & TURN != 0 {
            entry.turn = varint(&mut at) as u32;
        }
        if entry.flags & RESULT != 0 {
            let value = varint(&mut at);
            entry.result = (value >> 1) as i64 ^ -((value & 1) as i64);
        }
        if entry.flags & SUM != 0 {
            entry.sum = at.cast::<u32>().read_unaligned();
            at = at.add(4);
        }
        if entry.flags & PAYLOAD != 0 {
            entry.len = varint(&mut at) as usize;
            if entry.flags & AWAY != 0 {
                entry.data = varint(&mut at);
            } else {
                entry.at = at;
                at = at.add(entry.len);
            }
        }
        t.at = at.cast_mut();
        t.last = t.due + 1;
        look_ahead(t);
        entry
    }
}

impl Entry {
    /// Takes the next `len` bytes of the payload.
    ///
    /// # Safety
    /// `to` can be written.
    pub unsafe fn copy(&mut self, to: *mut u8, len: usize) {
        if len > self.len {
            fail::diverge("a call was given more room than when it was recorded");
        }
        // SAFETY: the caller's, and there are as many.
        unsafe {
            if self.flags & AWAY == 0 {
                core::ptr::copy_nonoverlapping(self.at, to, len);
                self.at = self.at.add(len);
            } else {
                let mut done = 0;
                while done < len {
                    let fd = DATA_FD.load(Ordering::Relaxed);
                    let got = crate::sys!(nr::PREAD64, fd, to.add(done), len - done, self.data);
                    if got <= 0 && got != -4 {
                        fail::diverge("the recording's data file is cut off");
                    }
                    done += got.max(0) as usize;
                    self.data += got.max(0) as u64;
                }
            }
        }
        self.len -= len;
    }
}

/// Is the entry that is due this one?
///
/// # Safety
/// An entry is due.
pub unsafe fn peek(t: &mut Thread, op: Op, result: i64) -> bool {
    // SAFETY: looks at a copy, and puts everything back.
    unsafe {
        let (chunk, at, last, due) = (t.chunk, t.at, t.last, t.due);
        let entry = take(t);
        (t.chunk, t.at, t.last, t.due) = (chunk, at, last, due);
        entry.op == op as u8 && entry.result == result
    }
}

/// Is an entry due, of this kind?
///
/// # Safety
/// `t` is the calling thread and replays.
pub unsafe fn is_next(t: &Thread, op: Op) -> bool {
    // SAFETY: an entry that is due begins with its operation.
    unsafe { t.due == (*t.head).count && *t.at == op as u8 }
}

//! Recording: an event's entry → the thread's chunk in the shared file.

use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::fail;
use crate::format::*;
use crate::sys::nr;
use crate::thread::{OFF, Thread};

pub static HEADER: AtomicPtr<Header> = AtomicPtr::new(core::ptr::null_mut());
/// How much of the file is mapped.
pub static MAPPED: AtomicUsize = AtomicUsize::new(0);
pub static LOG_FD: AtomicI32 = AtomicI32::new(-1);
pub static DATA_FD: AtomicI32 = AtomicI32::new(-1);

pub fn header() -> *mut Header {
    HEADER.load(Ordering::Relaxed)
}

/// Room for a chunk: where it is in the file. None if the disk is full.
pub fn chunk(size: u32, thread: u32, index: u32) -> Option<u64> {
    let header = header();
    // SAFETY: the header is mapped while anything is recorded; its words are used atomically by all threads.
    unsafe {
        let next = AtomicU64::from_ptr(&raw mut (*header).next);
        let at = next.fetch_add(size.into(), Ordering::Relaxed);
        if at + u64::from(size) > MAPPED.load(Ordering::Relaxed) as u64 {
            return None;
        }
        if !reserved(at + u64::from(size)) {
            return None;
        }
        let chunk = header.cast::<u8>().add(at as usize).cast::<Chunk>();
        (*chunk).size = size;
        (*chunk).thread = thread;
        (*chunk).index = index;
        (*chunk).used = size_of::<Chunk>() as u32;
        Some(at)
    }
}

/// So much is asked of the file system at once.
const RESERVE: u64 = 1 << 20;
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// Has the disk room up to `end`? Writing to a page that it has none for would be a fault. Some file systems can't promise.
fn reserved(end: u64) -> bool {
    let before = RESERVED.load(Ordering::Acquire);
    if end <= before {
        return true;
    }
    let upto = end
        .next_multiple_of(RESERVE)
        .min(MAPPED.load(Ordering::Relaxed) as u64);
    // SAFETY: the log's own descriptor.
    let room = unsafe {
        sys!(
            nr::FALLOCATE,
            LOG_FD.load(Ordering::Relaxed),
            0,
            before,
            upto - before
        )
    };
    if matches!(room, -28 | -122 | -27) {
        return false;
    }
    RESERVED.fetch_max(upto, Ordering::AcqRel);
    true
}

/// The first chunk of a thread.
pub fn first(thread: u32) -> Option<u64> {
    let at = chunk(SMALL, thread, 0)?;
    // SAFETY: a new chunk, with room for a head.
    unsafe {
        let chunk = header().cast::<u8>().add(at as usize).cast::<Chunk>();
        let head = chunk.add(1).cast::<Head>();
        (*head).id = thread;
        (*head).state = RUNNING;
        (*chunk).used = (size_of::<Chunk>() + size_of::<Head>()) as u32;
    }
    Some(at)
}

/// Lets `thread` write to its first chunk.
///
/// # Safety
/// `at` is from [`first`], for this thread.
pub unsafe fn attach(thread: &mut Thread, at: u64) {
    // SAFETY: the caller's.
    unsafe {
        let chunk = header().cast::<u8>().add(at as usize).cast::<Chunk>();
        thread.chunk = chunk;
        thread.head = chunk.add(1).cast();
        thread.at = chunk.cast::<u8>().add((*chunk).used as usize);
        thread.end = chunk.cast::<u8>().add((*chunk).size as usize);
    }
}

/// The most that an entry takes besides an inline payload.
const FIXED: usize = 64;

unsafe fn put(at: &mut *mut u8, byte: u8) {
    // SAFETY: the caller has made room.
    unsafe {
        **at = byte;
        *at = at.add(1);
    }
}

unsafe fn varint(at: &mut *mut u8, mut value: u64) {
    // SAFETY: the caller has made room.
    unsafe {
        while value >= 128 {
            put(at, value as u8 | 128);
            value >>= 7;
        }
        put(at, value as u8);
    }
}

/// What an entry says.
pub struct Entry<'a> {
    pub op: Op,
    /// The running hash, this event included.
    pub hash: u64,
    pub turn: Option<u32>,
    pub result: Option<i64>,
    pub sum: Option<u32>,
    /// More flags.
    pub flags: u8,
    /// Pieces of memory that make up the payload, if there is one.
    pub payload: Option<&'a [(*const u8, usize)]>,
}

/// Writes it. The event isn't counted yet.
///
/// # Safety
/// `t` is the calling thread; the pieces can be read.
#[cold]
pub unsafe fn write(t: &mut Thread, entry: &Entry) {
    let len = entry
        .payload
        .map_or(0, |parts| parts.iter().map(|part| part.1).sum::<usize>());
    let away = len > INLINE;
    let mut data = 0;
    if away {
        match elsewhere(entry.payload.unwrap_or(&[]), len) {
            Some(at) => data = at,
            None => return full(t),
        }
    }
    // SAFETY: there is room for the entry in the chunk, or a new one is taken.
    unsafe {
        let need = FIXED + if away { 0 } else { len };
        if (t.end as usize) - (t.at as usize) < need && !grow(t) {
            return full(t);
        }
        let mut at = t.at;
        put(&mut at, entry.op as u8);
        put(&mut at, (entry.hash >> 48) as u8);
        put(&mut at, (entry.hash >> 56) as u8);
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        let flags = entry.flags
            | flag(entry.turn.is_some(), TURN)
            | flag(entry.result.is_some(), RESULT)
            | flag(entry.sum.is_some(), SUM)
            | flag(entry.payload.is_some(), PAYLOAD)
            | flag(away, AWAY);
        put(&mut at, flags);
        varint(&mut at, (*t.head).count - t.last);
        if let Some(turn) = entry.turn {
            varint(&mut at, turn.into());
        }
        if let Some(result) = entry.result {
            varint(&mut at, ((result << 1) ^ (result >> 63)) as u64);
        }
        if let Some(sum) = entry.sum {
            for byte in sum.to_le_bytes() {
                put(&mut at, byte);
            }
        }
        if let Some(parts) = entry.payload {
            varint(&mut at, len as u64);
            if away {
                varint(&mut at, data);
            } else {
                for &(from, len) in parts {
                    core::ptr::copy_nonoverlapping(from, at, len);
                    at = at.add(len);
                }
            }
        }
        t.at = at;
        t.last = (*t.head).count + 1;
        let used = (at as usize - t.chunk as usize) as u32;
        AtomicU32::from_ptr(&raw mut (*t.chunk).used).store(used, Ordering::Release);
    }
}

/// A further chunk, twice as large.
unsafe fn grow(t: &mut Thread) -> bool {
    // SAFETY: the thread's chunk is mapped.
    unsafe {
        let size = ((*t.chunk).size * 2).min(LARGE);
        let Some(at) = chunk(size, t.id, (*t.chunk).index + 1) else {
            return false;
        };
        AtomicU64::from_ptr(&raw mut (*t.chunk).next).store(at, Ordering::Release);
        t.chunk = header().cast::<u8>().add(at as usize).cast();
        t.at = t.chunk.add(1).cast();
        t.end = t.chunk.cast::<u8>().add(size as usize);
    }
    true
}

/// A large payload: where it is in the data file. Written by a call: faults of a mapping cost more.
fn elsewhere(parts: &[(*const u8, usize)], len: usize) -> Option<u64> {
    // SAFETY: the header's word is used atomically; the pieces can be read, by the caller's word.
    unsafe {
        let next = AtomicU64::from_ptr(&raw mut (*header()).data);
        let at = next.fetch_add(len as u64, Ordering::Relaxed);
        let mut to = at;
        for &(from, len) in parts {
            let mut done = 0;
            while done < len {
                let fd = DATA_FD.load(Ordering::Relaxed);
                let written = sys!(nr::PWRITE64, fd, from.add(done), len - done, to);
                if written <= 0 && written != -4 {
                    return None;
                }
                done += written.max(0) as usize;
                to += written.max(0) as u64;
            }
        }
        Some(at)
    }
}

/// There is no room: stops, or goes on unrecorded.
fn full(t: &mut Thread) {
    // SAFETY: the header is mapped.
    let lenient = unsafe { (*header()).lenient != 0 };
    if !lenient {
        fail::stop(
            "the disk is full, or the recording has reached its limit: what was recorded so far replays",
        );
    }
    fail::note(
        "the disk is full: the program goes on unrecorded; what was recorded so far replays",
    );
    t.mode = OFF;
}

//! Events: what a thread does with an object → an entry if another thread had it last; replaying, the wait for its turn.
//!
//! An object's *clock* is a word: how many events it had (low half), who made the last one (high half). Whoever
//! finds another thread there writes down the number; events that follow by the same thread need no entry, since
//! nobody else can have a turn between them. Replaying, a thread waits until the object's number is its own.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::fail;
use crate::format::{Op, RESULT, TURN};
use crate::log;
use crate::sys::{self, Lock};
use crate::tape::{self, Entry};
use crate::thread::{self, RECORD, REPLAY, Thread};

pub type Clock = AtomicU64;

const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;

/// The running hash with one more event. Only the low bits of the address where it was called: the others change
/// from run to run.
#[inline(always)]
pub fn mix(hash: u64, op: Op, site: usize) -> u64 {
    (hash ^ ((op as u64) << 12 | (site as u64 & 0xfff)))
        .wrapping_mul(PRIME)
        .rotate_left(29)
}

/// Counts an event without an entry.
#[inline(always)]
unsafe fn count(t: &mut Thread, hash: u64) {
    // SAFETY: a recording or replaying thread has a head.
    unsafe {
        (*t.head).hash = hash;
        // The entry, if there is one, is stored before.
        AtomicU64::from_ptr(&raw mut (*t.head).count).store((*t.head).count + 1, Ordering::Release);
    }
}

/// Recording: an event on an object that the thread holds.
///
/// # Safety
/// `t` is the calling thread and records; nobody else uses the clock meanwhile.
#[inline(always)]
pub unsafe fn held(t: &mut Thread, clock: *mut u64, op: Op, site: usize) {
    // SAFETY: the caller's.
    unsafe {
        let hash = mix((*t.head).hash, op, site);
        let word = *clock;
        if (word >> 32) as u32 != t.id {
            handed_over(t, op, hash, word as u32);
        }
        *clock = u64::from((word as u32).wrapping_add(1)) | u64::from(t.id) << 32;
        count(t, hash);
    }
}

#[cold]
#[inline(never)]
unsafe fn handed_over(t: &mut Thread, op: Op, hash: u64, turn: u32) {
    let entry = log::Entry {
        op,
        hash,
        turn: Some(turn),
        result: None,
        sum: None,
        flags: 0,
        payload: None,
    };
    // SAFETY: the calling thread's.
    unsafe { log::write(t, &entry) };
}

/// Recording: takes the next number of an object that many threads use at once. Some if it was another's.
#[inline(always)]
pub fn number(t: &Thread, clock: &Clock) -> (u32, bool) {
    let mut word = clock.load(Ordering::Relaxed);
    loop {
        let new = u64::from((word as u32).wrapping_add(1)) | u64::from(t.id) << 32;
        match clock.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => {
                // SAFETY: a recording thread has a head.
                unsafe { (*t.head).pending = u64::from(word as u32) | ((*t.head).count + 1) << 32 };
                return (word as u32, (word >> 32) as u32 != t.id);
            }
            Err(now) => word = now,
        }
    }
}

/// Recording: an event whose number is taken.
///
/// # Safety
/// `t` is the calling thread and records.
#[inline(always)]
pub unsafe fn numbered(t: &mut Thread, op: Op, site: usize, (turn, other): (u32, bool)) {
    // SAFETY: the caller's.
    unsafe {
        let hash = mix((*t.head).hash, op, site);
        if other {
            handed_over(t, op, hash, turn);
        }
        count(t, hash);
    }
}

/// Recording: an event that only counts.
///
/// # Safety
/// `t` is the calling thread and records.
#[inline(always)]
pub unsafe fn plain(t: &mut Thread, op: Op, site: usize) {
    // SAFETY: the caller's.
    unsafe {
        let hash = mix((*t.head).hash, op, site);
        count(t, hash);
    }
}

/// Recording: an event whose result isn't the usual one.
///
/// # Safety
/// `t` is the calling thread and records.
#[cold]
pub unsafe fn odd(t: &mut Thread, op: Op, site: usize, turn: Option<u32>, result: i64) {
    // SAFETY: the caller's.
    unsafe {
        let hash = mix((*t.head).hash, op, site);
        let entry = log::Entry {
            op,
            hash,
            turn,
            result: Some(result),
            sum: None,
            flags: 0,
            payload: None,
        };
        log::write(t, &entry);
        count(t, hash);
    }
}

/// Recording: an event with all that belongs to it. `extra` is part of what is compared, as the place is.
///
/// # Safety
/// `t` is the calling thread and records; the payload can be read.
pub unsafe fn full(t: &mut Thread, site: usize, extra: u64, mut entry: log::Entry) {
    // SAFETY: the caller's.
    unsafe {
        entry.hash = mix((*t.head).hash ^ extra, entry.op, site);
        let hash = entry.hash;
        log::write(t, &entry);
        count(t, hash);
    }
}

/// Replaying: this thread is about to make an event. Its entry, if it has one. Doesn't return if the thread had come no
/// further when it was recorded.
///
/// # Safety
/// `t` is the calling thread and replays.
#[inline(always)]
pub unsafe fn begin(t: &mut Thread, op: Op, site: usize) -> Option<Entry> {
    // SAFETY: the caller's.
    unsafe { begin_with(t, op, site, 0) }
}

/// The same, with more to compare.
///
/// # Safety
/// As [`begin`].
#[inline(always)]
pub unsafe fn begin_with(t: &mut Thread, op: Op, site: usize, extra: u64) -> Option<Entry> {
    // SAFETY: the caller's.
    unsafe {
        let now = (*t.head).count;
        if now >= (*t.recorded).count {
            return unfinished(t, op, site);
        }
        t.hash = mix((*t.head).hash ^ extra, op, site);
        if now != t.due {
            return None;
        }
        Some(due(t, op, site))
    }
}

/// Is it an event on an object that many threads use at once?
pub fn is_numbered(op: Op) -> bool {
    matches!(op, Op::Post | Op::SemWait | Op::ReadLock | Op::WriteLock)
        || op as u8 >= Op::Read as u8
}

/// The thread had come no further. If it had taken a number, others may have gone on from there: it has that turn still.
#[cold]
#[inline(never)]
unsafe fn unfinished(t: &mut Thread, op: Op, site: usize) -> Option<Entry> {
    // SAFETY: the caller's.
    unsafe {
        let pending = (*t.recorded).pending;
        if !is_numbered(op)
            || (pending >> 32) as u32 != ((*t.recorded).count as u32).wrapping_add(1)
        {
            fail::at_end(t, op, site);
        }
        t.unfinished = true;
        Some(Entry {
            op: op as u8,
            check: 0,
            flags: TURN,
            turn: pending as u32,
            result: 0,
            sum: 0,
            len: 0,
            data: 0,
            at: core::ptr::null(),
        })
    }
}

/// Is this thread where it was when the process ended?
pub fn over(t: &Thread) -> bool {
    // SAFETY: a replaying thread has both.
    unsafe { (*t.head).count >= (*t.recorded).count }
}

#[cold]
#[inline(never)]
unsafe fn due(t: &mut Thread, op: Op, site: usize) -> Entry {
    // SAFETY: the caller's.
    unsafe {
        let entry = tape::take(t);
        if entry.op != op as u8 || entry.check != (t.hash >> 48) as u16 {
            fail::unexpected(t, &entry, op, site);
        }
        entry
    }
}

/// Replaying: the event is complete.
///
/// # Safety
/// After [`begin`], by the same thread.
#[inline(always)]
pub unsafe fn done(t: &mut Thread) {
    // SAFETY: the caller's.
    unsafe {
        if t.unfinished {
            fail::at_end(t, Op::Nothing, 0);
        }
        let hash = t.hash;
        count(t, hash);
        if (*t.head).count == (*t.recorded).count {
            fail::last_event(t);
        }
    }
}

/// Where threads wait for turns, by object and number.
struct Slot {
    changes: AtomicU32,
    waiting: AtomicU32,
}

const SLOTS: usize = 1024;
static WAITING: [Slot; SLOTS] = [const {
    Slot {
        changes: AtomicU32::new(0),
        waiting: AtomicU32::new(0),
    }
}; SLOTS];

fn slot(object: usize, seq: u32) -> &'static Slot {
    let hash = ((object as u64 >> 3) ^ (u64::from(seq) << 32 | u64::from(seq))).wrapping_mul(PRIME);
    &WAITING[(hash >> 54) as usize]
}

/// Replaying: waits until the object's number is `seq`.
///
/// # Safety
/// The object lives.
pub unsafe fn wait_turn(t: &mut Thread, clock: *const u64, seq: u32) {
    // SAFETY: the caller's; the word is aligned, by its place in the object.
    let clock = unsafe { AtomicU64::from_ptr(clock.cast_mut()) };
    let mut rounds = 0;
    while clock.load(Ordering::Acquire) as u32 != seq {
        let slot = slot(clock.as_ptr() as usize, seq);
        slot.waiting.fetch_add(1, Ordering::SeqCst);
        let changes = slot.changes.load(Ordering::SeqCst);
        if clock.load(Ordering::SeqCst) as u32 != seq {
            t.waits_seq.store(seq.into(), Ordering::Relaxed);
            t.waits_for
                .store(clock.as_ptr() as usize, Ordering::Release);
            let in_time = sys::futex_wait(&slot.changes, changes, 1000);
            slot.waiting.fetch_sub(1, Ordering::SeqCst);
            rounds += 1;
            if !in_time && rounds > 1 {
                fail::stuck(t);
            }
            t.waits_for.store(0, Ordering::Release);
        } else {
            slot.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Replaying: the object's next number, for whoever waits for it.
///
/// # Safety
/// It is the caller's turn, so nobody else changes it.
pub unsafe fn advance(clock: *mut u64) {
    // SAFETY: the caller's.
    unsafe {
        let clock = AtomicU64::from_ptr(clock);
        let seq = (clock.load(Ordering::Relaxed) as u32).wrapping_add(1);
        clock.store(seq.into(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let slot = slot(clock.as_ptr() as usize, seq);
        if slot.waiting.load(Ordering::SeqCst) != 0 {
            slot.changes.fetch_add(1, Ordering::SeqCst);
            sys::futex_wake(&slot.changes, u32::MAX >> 1);
        }
    }
}

/// Replaying: waits for the turn that an entry tells, if it tells one.
///
/// # Safety
/// The object lives.
#[inline(always)]
pub unsafe fn turn(t: &mut Thread, clock: *const u64, entry: &Option<Entry>) {
    if let Some(entry) = entry
        && entry.flags & TURN != 0
    {
        // SAFETY: the caller's.
        unsafe { wait_turn(t, clock, entry.turn) };
    }
}

/// The odd result that an entry tells.
#[inline(always)]
pub fn odd_result(entry: &Option<Entry>) -> Option<i64> {
    entry
        .as_ref()
        .filter(|entry| entry.flags & RESULT != 0)
        .map(|entry| entry.result)
}

/// A lock of the library's own whose holders are an event each.
pub struct Ordered {
    pub lock: Lock,
    pub clock: u64,
}

impl Ordered {
    pub const fn new() -> Ordered {
        Ordered {
            lock: Lock::new(),
            clock: 0,
        }
    }
}

/// Does `work` alone, in the recorded order.
///
/// # Safety
/// `t` is the calling thread, or null if its order doesn't matter; the object lives.
pub unsafe fn critical<R>(
    t: *mut Thread,
    object: *mut Ordered,
    op: Op,
    work: impl FnOnce() -> R,
) -> R {
    // SAFETY: the clock is used under the lock.
    unsafe {
        let mode = t.as_ref().map_or(
            thread::OFF,
            |t| if t.depth == 0 { t.mode } else { thread::OFF },
        );
        match mode {
            RECORD => {
                (*object).lock.lock();
                held(&mut *t, &raw mut (*object).clock, op, 0);
                let result = work();
                (*object).lock.unlock();
                result
            }
            REPLAY => {
                let entry = begin(&mut *t, op, 0);
                turn(&mut *t, &raw const (*object).clock, &entry);
                (*object).lock.lock();
                let result = work();
                advance(&raw mut (*object).clock);
                (*object).lock.unlock();
                done(&mut *t);
                result
            }
            _ => {
                (*object).lock.lock();
                let result = work();
                (*object).lock.unlock();
                result
            }
        }
    }
}

//! Ends that aren't the program's own: what can't be recorded, what a replay does otherwise, where a recording ends.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::format::*;
use crate::log;
use crate::sys::{self, Lock, nr};
use crate::tape::Entry;
use crate::thread::{self, Thread};

/// A few lines of text, cut off if there is more.
pub struct Text {
    bytes: [u8; WORDS],
    len: usize,
}

impl Text {
    pub const fn new() -> Text {
        Text {
            bytes: [0; WORDS],
            len: 0,
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let n = text.len().min(WORDS - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&text.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// Where a replay says how it went.
pub static REPORT: AtomicPtr<Report> = AtomicPtr::new(core::ptr::null_mut());
static TELLING: Lock = Lock::new();

fn to_stderr(parts: &[&[u8]]) {
    for part in parts {
        // SAFETY: reads the text.
        unsafe { sys!(nr::WRITE, 2, part.as_ptr(), part.len()) };
    }
}

/// Adds words to the header or the report.
unsafe fn tell(words: *mut u8, told: *mut u32, text: &[u8]) {
    TELLING.lock();
    // SAFETY: the caller's fields, mapped for good.
    unsafe {
        let at = *told as usize;
        let n = text.len().min(WORDS - at.min(WORDS));
        core::ptr::copy_nonoverlapping(text.as_ptr(), words.add(at), n);
        *told = (at + n) as u32;
    }
    TELLING.unlock();
}

/// Recording can't go on, and neither may the program.
pub fn stop(why: &str) -> ! {
    let header = log::header();
    if !header.is_null() {
        // SAFETY: the header is mapped.
        unsafe {
            tell(
                (&raw mut (*header).words).cast(),
                &raw mut (*header).told,
                why.as_bytes(),
            )
        };
    } else {
        to_stderr(&[b"clew: ", why.as_bytes(), b"\n"]);
    }
    sys::exit(125);
}

/// Something that makes the recording less than exact. Refused, unless the user said to go on anyway.
pub fn unseen(what: &str) {
    static ONCE: AtomicU32 = AtomicU32::new(0);
    let header = log::header();
    // SAFETY: the header is mapped while anything is recorded.
    unsafe {
        if header.is_null() {
            return;
        }
        if (*header).choice & ANYWAY == 0 {
            (*header).choice |= REFUSED;
            stop(what);
        }
        if ONCE.swap(1, Ordering::Relaxed) == 0 {
            note(what);
        }
    }
}

/// A remark in the recording.
pub fn note(what: &str) {
    let header = log::header();
    if !header.is_null() {
        // SAFETY: the header is mapped.
        unsafe {
            tell(
                (&raw mut (*header).words).cast(),
                &raw mut (*header).told,
                what.as_bytes(),
            )
        };
    }
}

fn end(state: u32, status: i32, text: &[u8]) -> ! {
    let report = REPORT.load(Ordering::Acquire);
    if report.is_null() {
        to_stderr(&[b"clew: ", text, b"\n"]);
    } else {
        // SAFETY: the report is mapped. The first to come is the one that is told.
        unsafe {
            let before =
                AtomicU32::from_ptr(&raw mut (*report).state).swap(state, Ordering::SeqCst);
            if !matches!(before, DIVERGED | CUT) {
                tell(
                    (&raw mut (*report).words).cast(),
                    &raw mut (*report).told,
                    text,
                );
            }
        }
    }
    sys::exit(status);
}

/// The replay isn't what was recorded.
pub fn diverge(why: &str) -> ! {
    let mut text = Text::new();
    let t = thread::me();
    // SAFETY: the calling thread's record.
    if let Some(t) = unsafe { t.as_ref() }
        && !t.head.is_null()
    {
        // SAFETY: its head.
        let count = unsafe { (*t.head).count };
        let _ = write!(
            text,
            "in thread {}, at its event {}: {why}",
            t.id,
            count + 1
        );
    } else {
        let _ = text.write_str(why);
    }
    end(DIVERGED, DIVERGED_STATUS, text.as_bytes());
}

pub fn name(op: u8) -> &'static str {
    NAMES
        .get(op as usize)
        .copied()
        .unwrap_or("something unknown")
}

/// An event that isn't the recorded one.
///
/// # Safety
/// `t` is the calling thread.
pub unsafe fn unexpected(t: &Thread, entry: &Entry, op: Op, site: usize) -> ! {
    let mut text = Text::new();
    // SAFETY: a replaying thread has a head.
    let count = unsafe { (*t.head).count };
    let _ = write!(
        text,
        "in thread {}, at its event {}: expected {}",
        t.id,
        count + 1,
        name(entry.op)
    );
    if entry.op == op as u8 {
        let _ = text.write_str(", found the same, called from elsewhere or after other events than when it was recorded");
    } else {
        let _ = write!(text, ", found {}", name(op as u8));
    }
    crate::modules::place(&mut text, site);
    end(DIVERGED, DIVERGED_STATUS, text.as_bytes());
}

/// Changes when a thread comes to its end, for whoever exits.
pub static ENDS: AtomicU32 = AtomicU32::new(0);
/// All others wait for what won't come: the process may exit.
static RELEASED: AtomicU32 = AtomicU32::new(0);

/// The thread has made all its recorded events.
///
/// # Safety
/// `t` is the calling thread and replays.
#[cold]
pub unsafe fn last_event(t: &Thread) {
    // SAFETY: a replaying thread has both.
    if unsafe { (*t.head).hash != (*t.recorded).hash } {
        diverge(
            "its events were others than when it was recorded, called from elsewhere or in another order",
        );
    }
    ENDS.fetch_add(1, Ordering::SeqCst);
    sys::futex_wake(&ENDS, 1000);
}

/// A thread that comes further than it did: it waits for the process to end.
///
/// # Safety
/// `t` is the calling thread and replays.
#[cold]
pub unsafe fn at_end(t: &mut Thread, op: Op, site: usize) -> ! {
    // SAFETY: a replaying thread has one.
    if unsafe { (*t.recorded).state == ENDED } {
        let mut text = Text::new();
        let _ = write!(
            text,
            "in thread {}: expected its end, found {}",
            t.id,
            name(op as u8)
        );
        crate::modules::place(&mut text, site);
        end(DIVERGED, DIVERGED_STATUS, text.as_bytes());
    }
    if !crate::order::is_numbered(op) {
        t.object.store(0, Ordering::Relaxed);
    }
    t.last_op.store(op as u32, Ordering::Relaxed);
    t.over.store(1, Ordering::Release);
    ENDS.fetch_add(1, Ordering::SeqCst);
    sys::futex_wake(&ENDS, 1000);
    static NEVER: AtomicU32 = AtomicU32::new(0);
    loop {
        sys::futex_wait(&NEVER, 0, 1000);
        stuck(t);
    }
}

/// Can this thread not go on? And how many events it has.
fn waits(t: &Thread) -> (bool, u64) {
    // SAFETY: a listed thread's head, if it has one; objects that a thread waits for live.
    unsafe {
        let count = if t.head.is_null() { 0 } else { (*t.head).count };
        if t.over.load(Ordering::Acquire) != 0 {
            return (true, count);
        }
        let object = t.waits_for.load(Ordering::Acquire);
        if object == 0 {
            return (false, count);
        }
        let stuck = match t.waits_seq.load(Ordering::Acquire) {
            u64::MAX => (*(object as *const Thread)).over.load(Ordering::Acquire) != 2,
            EXITING => true,
            seq => *(object as *const u32) != seq as u32,
        };
        (stuck, count)
    }
}

pub const EXITING: u64 = u64::MAX - 1;

/// Looks whether anybody can go on. If not, this is the end.
pub fn stuck(_t: &Thread) {
    let look = || {
        let (mut all, mut sum, mut exiting) = (true, 0u64, false);
        thread::each(|t| {
            let (stuck, count) = waits(t);
            all &= stuck;
            sum = sum.wrapping_add(count);
            exiting |= t.waits_for.load(Ordering::Acquire) != 0
                && t.waits_seq.load(Ordering::Acquire) == EXITING;
        });
        (all, sum, exiting)
    };
    let first = look();
    if !first.0 || look() != first {
        return;
    }
    if take_lost_turn() {
        return;
    }
    if first.2 {
        RELEASED.store(1, Ordering::SeqCst);
        ENDS.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(&ENDS, 1000);
        return;
    }
    // SAFETY: the log is mapped while replaying.
    let state = unsafe { (*crate::tape::LOG.load(Ordering::Relaxed).cast::<Header>()).state };
    let mut text = Text::new();
    thread::each(|t| {
        // SAFETY: a listed thread's heads.
        unsafe {
            if !t.head.is_null() && t.over.load(Ordering::Acquire) != 2 {
                let (count, of) = ((*t.head).count, (*t.recorded).count);
                let _ = write!(text, "; thread {} waits after {count} of {of} events", t.id);
                let object = t.waits_for.load(Ordering::Acquire);
                let wanted = t.waits_seq.load(Ordering::Acquire);
                if object != 0 && wanted < EXITING {
                    let _ = write!(
                        text,
                        ", for turn {wanted} of an object that is at {}",
                        *(object as *const u32)
                    );
                }
            }
        }
    });
    if state != EXITED {
        end(CUT, CUT_STATUS, b"");
    }
    let mut all = Text::new();
    let _ = all.write_str("all threads wait for events that don't come");
    let _ = all.write_str(core::str::from_utf8(text.as_bytes()).unwrap_or(""));
    end(DIVERGED, DIVERGED_STATUS, all.as_bytes());
}

/// All wait. If one waits for a later turn of an object, the turn in between was taken by a thread that had come no further than that
/// when the process ended: it is given now.
fn take_lost_turn() -> bool {
    let mut wanted = [0usize; 64];
    let mut count = 0;
    thread::each(|t| {
        let object = t.waits_for.load(Ordering::Acquire);
        if t.over.load(Ordering::Acquire) == 0
            && object != 0
            && t.waits_seq.load(Ordering::Acquire) < EXITING
            && count < wanted.len()
        {
            wanted[count] = object;
            count += 1;
        }
    });
    let (mut found, mut op) = (0, 0);
    thread::each(|t| {
        let object = t.object.load(Ordering::Acquire);
        if found == 0
            && t.over.load(Ordering::Acquire) == 1
            && wanted[..count].contains(&object)
            && t.object
                .compare_exchange(object, 0, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        {
            found = object;
            op = t.last_op.load(Ordering::Relaxed);
        }
    });
    if found != 0 {
        // SAFETY: an object that somebody waits for.
        unsafe {
            crate::order::advance(found as *mut u64);
            // Others may have gone on by it.
            if op == Op::Post as u32 {
                crate::sync::post_for(found);
            }
        }
    }
    found != 0
}

/// Replaying: before the process exits, waits until the other threads have come as far as they did.
///
/// # Safety
/// `t` is the calling thread and replays.
pub unsafe fn wait_for_others(t: &mut Thread) {
    let mine = &raw const *t;
    loop {
        let ends = ENDS.load(Ordering::SeqCst);
        let mut all = true;
        thread::each(|other| {
            // SAFETY: a listed thread's heads.
            unsafe {
                if !core::ptr::eq(other, mine)
                    && !other.head.is_null()
                    && other.mode == thread::REPLAY
                {
                    all &= (*other.head).count >= (*other.recorded).count;
                }
            }
        });
        if all || RELEASED.load(Ordering::SeqCst) != 0 {
            t.waits_for.store(0, Ordering::Release);
            return;
        }
        t.waits_seq.store(EXITING, Ordering::Relaxed);
        t.waits_for.store(8, Ordering::Release);
        if !sys::futex_wait(&ENDS, ends, 1000) {
            stuck(t);
        }
    }
}

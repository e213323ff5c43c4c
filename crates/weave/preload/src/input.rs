//! What comes from outside: a call's result and what it wrote → the log; replaying, from there, without the call.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::fail;
use crate::format::*;
use crate::log;
use crate::order::{Clock, advance, begin_with, done, full, number, turn};
use crate::thread::{OFF, RECORD, me};

/// The order of everything that this process says to the world and hears from it. One object for all: what one
/// thread writes another may read, and nobody knows by which way it went.
pub static WORLD: Clock = AtomicU64::new(0);

/// When a call has its place in that order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It tells others something: before it is made.
    Before,
    /// It hears something: when it is over.
    After,
    /// It has none.
    Never,
}

/// Most pieces of memory that a call writes.
const PIECES: usize = 64;

/// Bytes that a call sends out, to be compared.
pub struct Sent {
    pub sum: u32,
    /// `OUT` or `ERR`, for the program's own output.
    pub flags: u8,
}

/// A call that asks something of the kernel.
///
/// `make` makes it, and is only called while recording; `wrote` tells, by the result, which memory it wrote. `asked`
/// is compared: arguments that are the same in every run.
///
/// # Safety
/// What `wrote` tells can be read and written.
pub unsafe fn ask(
    op: Op,
    site: usize,
    asked: u64,
    when: When,
    sent: Option<Sent>,
    make: impl FnOnce() -> i64,
    wrote: impl Fn(i64, &mut dyn FnMut(*mut u8, usize)),
) -> i64 {
    // SAFETY: the calling thread's own record; the memory, by the caller's word.
    unsafe {
        let t = match me().as_mut() {
            Some(t) if t.mode != OFF && t.depth == 0 => t,
            _ => return make(),
        };
        if t.mode == RECORD {
            let mut taken = None;
            if when == When::Before {
                // Others may go on from here while this call still waits.
                taken = Some(number(t, &WORLD));
            }
            t.depth += 1;
            let result = make();
            t.depth -= 1;
            // A child that was forked isn't recorded. It was told by another way to this record.
            if (&raw const t.mode).read_volatile() == OFF {
                return result;
            }
            if when == When::After {
                taken = Some(number(t, &WORLD));
            }
            let mut pieces = [(core::ptr::null::<u8>(), 0usize); PIECES];
            let mut count = 0;
            wrote(result, &mut |at, len| {
                if len != 0 {
                    if count == PIECES {
                        fail::stop("a call wrote to more places than a woven recording can hold");
                    }
                    pieces[count] = (at, len);
                    count += 1;
                }
            });
            let turn = taken.filter(|taken| taken.1).map(|taken| taken.0);
            let entry = log::Entry {
                op,
                hash: 0,
                turn,
                result: Some(result),
                sum: sent.as_ref().map(|sent| sent.sum),
                flags: sent.map_or(0, |sent| sent.flags),
                payload: (count != 0).then_some(&pieces[..count]),
            };
            full(t, site, asked, entry);
            return result;
        }
        if when != When::Never {
            t.object.store(WORLD.as_ptr() as usize, Ordering::Relaxed);
        }
        let entry = begin_with(t, op, site, asked);
        if when != When::Never {
            turn(t, WORLD.as_ptr(), &entry);
        }
        if t.unfinished {
            advance(WORLD.as_ptr());
            done(t);
        }
        let Some(mut entry) = entry else {
            fail::diverge("a call was made that wasn't recorded");
        };
        if let Some(sent) = sent {
            if entry.flags & SUM != 0 && entry.sum != sent.sum {
                fail::diverge(
                    "the program writes other bytes than when it was recorded: a data race, or something that isn't woven, changed them",
                );
            }
            let _ = sent.flags;
        }
        wrote(entry.result, &mut |at, len| {
            if len != 0 {
                entry.copy(at, len);
            }
        });
        if entry.len != 0 {
            fail::diverge("a call was given less room than when it was recorded");
        }
        crate::io::show(&entry);
        if when != When::Never {
            advance(WORLD.as_ptr());
        }
        done(t);
        entry.result
    }
}

/// A checksum of bytes that go out.
///
/// # Safety
/// They can be read.
pub unsafe fn sum(seed: u64, at: *const u8, len: usize) -> u64 {
    const A: u64 = 0x9e37_79b9_7f4a_7c15;
    const B: u64 = 0xc2b2_ae3d_27d4_eb4f;
    let (mut a, mut b) = (
        seed ^ (len as u64).wrapping_mul(A),
        seed.rotate_left(32) ^ B,
    );
    let mut done = 0;
    // SAFETY: the caller's.
    unsafe {
        while len - done >= 16 {
            let x = at.add(done).cast::<u64>().read_unaligned();
            let y = at.add(done + 8).cast::<u64>().read_unaligned();
            a = (a ^ x).wrapping_mul(A).rotate_left(31);
            b = (b ^ y).wrapping_mul(B).rotate_left(29);
            done += 16;
        }
        while done < len {
            a = (a ^ u64::from(*at.add(done))).wrapping_mul(B);
            done += 1;
        }
    }
    let mixed = (a ^ b.rotate_left(17)).wrapping_mul(A);
    mixed ^ mixed >> 32
}

/// Is this process one whose calls are noted?
pub fn noted() -> bool {
    // SAFETY: the calling thread's own record.
    unsafe { me().as_ref().is_some_and(|t| t.mode != OFF && t.depth == 0) }
}

/// Does it replay?
pub fn replays() -> bool {
    // SAFETY: the calling thread's own record.
    unsafe {
        me().as_ref()
            .is_some_and(|t| t.mode == crate::thread::REPLAY)
    }
}

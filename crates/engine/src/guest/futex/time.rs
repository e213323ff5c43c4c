//! Deadlines: what a futex call says about time in, monotonic nanoseconds out.

use crate::guest::access::{self, Fault};
use crate::host::virtual_clock;
use crate::sys::err;

const SECOND: u64 = 1_000_000_000;

/// Nanoseconds on a clock of the machine.
pub fn now(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` has room for the answer.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}

/// How a timeout is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Relative,
    Absolute(libc::clockid_t),
}

/// When a timeout at guest address `at` (0: never) ends the wait.
pub fn deadline(at: u64, kind: Kind) -> Result<Option<u64>, i64> {
    if at == 0 {
        return Ok(None);
    }
    let [seconds, nanoseconds] = access::read::<[i64; 2]>(at).map_err(|Fault| Fault::ERRNO)?;
    if seconds < 0 || !(0..SECOND as i64).contains(&nanoseconds) {
        return Err(err(libc::EINVAL));
    }
    let time = (seconds as u64)
        .saturating_mul(SECOND)
        .saturating_add(nanoseconds as u64);
    let now = if virtual_clock::active() {
        |clock| virtual_clock::now(clock).unwrap_or(0)
    } else {
        now
    };
    let monotonic = now(libc::CLOCK_MONOTONIC);
    Ok(Some(match kind {
        Kind::Relative => monotonic.saturating_add(time),
        Kind::Absolute(libc::CLOCK_MONOTONIC) => time,
        Kind::Absolute(clock) => monotonic.saturating_add(time.saturating_sub(now(clock))),
    }))
}

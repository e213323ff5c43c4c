//! Virtual time for the guest: sleeps, timed waits, timers and clocks follow a clock that jumps when all threads wait.
//!
//! In: calls about time, and a process in which nobody can run. Out: their answers, and the next moment at which something
//! happens. What waits for the outside world is waited for in real time, and the clock goes on by as much. Answers are recorded as
//! the kernel's are, so a replay knows nothing of it.

pub mod timers;

use crate::executor::Executor;
use crate::guest::access::{self, Fault};
use crate::guest::futex::time::now as real_now;
use crate::guest::threads::{Restart, State};
use crate::host::virtual_clock::{self, now};
use crate::kernel::Outcome;
use crate::kernel::table::{Args, Call};
use crate::memory::govern;
use crate::sys::err;

const SECOND: u64 = 1_000_000_000;
const EFAULT: Outcome = Outcome::Return(Fault::ERRNO);
const EINVAL: Outcome = Outcome::Return(err(libc::EINVAL));

/// Where a sleep that a signal ends tells what was left, and in which units.
#[derive(Clone, Copy)]
enum Left {
    Nowhere,
    Timespec(u64),
    Timeval(u64),
}

/// Waits that only signals end.
pub fn waits_for_signals(nr: i64) -> bool {
    matches!(
        nr,
        libc::SYS_pause | libc::SYS_rt_sigsuspend | libc::SYS_rt_sigtimedwait
    )
}

/// The answer to a call about time; None for all others, and in real time.
pub fn answer(ex: &mut Executor, call: &Call, args: &Args) -> Option<Outcome> {
    if !virtual_clock::active() {
        return None;
    }
    let nr = i64::from(call.nr);
    let absolute = args[1] as i32 & libc::TIMER_ABSTIME != 0;
    Some(match nr {
        libc::SYS_clock_gettime => {
            let Some(time) = now(args[0] as libc::clockid_t) else {
                return Some(EINVAL);
            };
            put(ex, args[1], [time / SECOND, time % SECOND])
        }
        libc::SYS_gettimeofday => {
            let time = now(libc::CLOCK_REALTIME)?;
            if args[1] != 0 && ex.write_guest(args[1], &[0; 8]).is_err() {
                return Some(EFAULT);
            }
            match args[0] {
                0 => Outcome::Return(0),
                at => put(ex, at, [time / SECOND, time % SECOND / 1000]),
            }
        }
        libc::SYS_time => {
            let seconds = now(libc::CLOCK_REALTIME)? / SECOND;
            let stored = args[0] == 0 || ex.write_guest(args[0], &seconds.to_le_bytes()).is_ok();
            match stored {
                true => Outcome::Return(seconds as i64),
                false => EFAULT,
            }
        }
        libc::SYS_nanosleep => match timespec(args[0]) {
            Err(outcome) => outcome,
            Ok(time) => sleep(ex, time, Left::Timespec(args[1])),
        },
        libc::SYS_clock_nanosleep => match (timespec(args[2]), now(args[0] as libc::clockid_t)) {
            (_, None) => EINVAL,
            (Err(outcome), _) => outcome,
            (Ok(until), Some(now)) if absolute => {
                sleep(ex, until.saturating_sub(now), Left::Nowhere)
            }
            (Ok(time), _) => sleep(ex, time, Left::Timespec(args[3])),
        },
        // What has no descriptors is a way to sleep.
        libc::SYS_poll if args[1] == 0 && args[2] as i32 > 0 => {
            sleep(ex, args[2] as u32 as u64 * 1_000_000, Left::Nowhere)
        }
        libc::SYS_select if args[0] as i32 == 0 && args[4] != 0 => {
            match access::read::<[u64; 2]>(args[4]) {
                Err(Fault) => EFAULT,
                Ok([seconds, micros]) if seconds >> 40 == 0 && micros < 1_000_000 => {
                    let time = seconds * SECOND + micros * 1000;
                    sleep(ex, time, Left::Timeval(args[4]))
                }
                Ok(_) => EINVAL,
            }
        }
        libc::SYS_ppoll if args[1] == 0 && args[2] != 0 && args[3] == 0 => {
            match timespec(args[2]) {
                Err(outcome) => outcome,
                Ok(time) => sleep(ex, time, Left::Timespec(args[2])),
            }
        }
        libc::SYS_pselect6 if args[0] as i32 == 0 && args[4] != 0 && no_mask(args[5]) => {
            match timespec(args[4]) {
                Err(outcome) => outcome,
                Ok(time) => sleep(ex, time, Left::Timespec(args[4])),
            }
        }
        nr if waits_for_signals(nr) => return timers::before_signal_wait(ex, nr),
        _ => return timers::answer(ex, nr, args),
    })
}

/// pselect6's last argument: a pair of mask and size.
fn no_mask(pair: u64) -> bool {
    pair == 0 || access::read::<u64>(pair) == Ok(0)
}

fn put(ex: &mut Executor, at: u64, words: [u64; 2]) -> Outcome {
    let bytes = [words[0].to_le_bytes(), words[1].to_le_bytes()].concat();
    match ex.write_guest(at, &bytes) {
        Ok(()) => Outcome::Return(0),
        Err(Fault) => EFAULT,
    }
}

fn timespec(at: u64) -> Result<u64, Outcome> {
    let [seconds, nanoseconds] = access::read::<[i64; 2]>(at).map_err(|Fault| EFAULT)?;
    if seconds < 0 || !(0..SECOND as i64).contains(&nanoseconds) {
        return Err(EINVAL);
    }
    let seconds = (seconds as u64).saturating_mul(SECOND);
    Ok(seconds.saturating_add(nanoseconds as u64))
}

fn tell_left(ex: &mut Executor, left: Left, deadline: u64) {
    let rest = deadline.saturating_sub(monotonic());
    let (at, words) = match left {
        Left::Nowhere => return,
        Left::Timespec(at) => (at, [rest / SECOND, rest % SECOND]),
        Left::Timeval(at) => (at, [rest / SECOND, rest % SECOND / 1000]),
    };
    if at != 0 {
        // A bad address is the guest's loss, as in the kernel.
        let _ = put(ex, at, words);
    }
}

/// The monotonic clock, from which deadlines are told.
pub fn monotonic() -> u64 {
    now(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// The current thread sleeps for so long.
fn sleep(ex: &mut Executor, time: u64, left: Left) -> Outcome {
    const EINTR: i64 = err(libc::EINTR);
    let deadline = monotonic().saturating_add(time);
    if !ex.multi_threaded() {
        while ex.kernel.timers.first().is_some_and(|due| due < deadline) {
            ex.jump_to_timer();
            if !ex.current().signals.pending.is_empty() {
                tell_left(ex, left, deadline);
                return Outcome::Return(EINTR);
            }
        }
        virtual_clock::jump(deadline);
        return Outcome::Return(0);
    }
    let slot = ex.threads.current_slot();
    ex.park_for_sleep(Box::new(move |ex, value| match value {
        EINTR => {
            tell_left(ex, left, deadline);
            EINTR
        }
        _ => 0,
    }));
    ex.set_timer(slot, deadline);
    Outcome::Parked
}

impl Executor {
    /// Nobody can run. Goes on to the next moment at which somebody can, or waits for the outside world until then.
    pub(in crate::guest) fn wait_virtually(&mut self) {
        let next = self.next_moment();
        if let (Some(next), false) = (next, self.awaits_outside()) {
            virtual_clock::jump(next);
            return;
        }
        let begun = real_now(libc::CLOCK_MONOTONIC);
        govern::park();
        self.gs
            .hub
            .sleep(next.map(|next| next.saturating_sub(monotonic())));
        govern::unpark();
        virtual_clock::advance(real_now(libc::CLOCK_MONOTONIC).saturating_sub(begun));
    }

    fn next_moment(&mut self) -> Option<u64> {
        let waits = self.next_timed_wait();
        let signals = self.kernel.timers.first();
        waits.into_iter().chain(signals).min()
    }

    /// Whether some thread waits in the kernel for more than a signal.
    fn awaits_outside(&self) -> bool {
        self.threads.iter().any(|(_, thread)| {
            thread.state == State::OnProxy && !waits_for_signals(thread.proxy_call)
        })
    }
}

/// Sleeps end with EINTR when a handler has run, whatever its flags.
pub const RESTART: Restart = Restart::Never;

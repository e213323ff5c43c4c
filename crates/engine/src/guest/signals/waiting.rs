//! Calls that wait for signals, or wait with another mask than the thread's.
//!
//! A temporary mask is the kernel's business: it is given to the call. Only what the call
//! unblocks can end it with EINTR; a signal that the thread's own mask lets through before the
//! call begins aborts it, is delivered first, and the call is made again. The thread's mask is
//! the temporary one until the call's signal is delivered, and the frame holds the old one: the
//! kernel's "restore sigmask" rule.

use crate::executor::Executor;
use crate::guest::access::{self, Fault};
use crate::host::proxy::During;
use crate::host::sigset::SigSet;
use crate::kernel::Outcome;
use crate::sys::err;

const EINTR: i64 = err(libc::EINTR);
const EINVAL: Outcome = Outcome::Return(err(libc::EINVAL));
const EFAULT: Outcome = Outcome::Return(Fault::ERRNO);

pub fn sys_pause(ex: &mut Executor, _args: [u64; 6]) -> Outcome {
    ex.call_blocking(libc::SYS_pause, [0; 6])
}

pub fn sys_rt_sigsuspend(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    if args[1] != 8 {
        return EINVAL;
    }
    with_mask_at(ex, libc::SYS_rt_sigsuspend, args, args[0], 0, false)
}

pub fn sys_ppoll(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    optional_mask(ex, libc::SYS_ppoll, args, 3)
}
pub fn sys_epoll_pwait(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    optional_mask(ex, libc::SYS_epoll_pwait, args, 4)
}
pub fn sys_epoll_pwait2(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    optional_mask(ex, libc::SYS_epoll_pwait2, args, 4)
}

/// pselect6 and io_pgetevents: the last argument points to (mask, size).
pub fn sys_pselect6(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    sys_mask_in_pair(ex, libc::SYS_pselect6, args)
}
pub fn sys_mask_in_pair(ex: &mut Executor, nr: i64, args: [u64; 6]) -> Outcome {
    let pair = if args[5] == 0 {
        Ok([0; 2])
    } else {
        access::read::<[u64; 2]>(args[5])
    };
    match pair {
        Err(Fault) => EFAULT,
        Ok([0, _]) => ex.call_blocking(nr, args),
        Ok([_, size]) if size != 8 => EINVAL,
        Ok([mask, _]) => with_mask_at(ex, nr, args, mask, 5, true),
    }
}

fn optional_mask(ex: &mut Executor, nr: i64, args: [u64; 6], arg: usize) -> Outcome {
    match args[arg] {
        0 => ex.call_blocking(nr, args),
        _ if args[arg + 1] != 8 => EINVAL,
        mask => with_mask_at(ex, nr, args, mask, arg, false),
    }
}

fn with_mask_at(
    ex: &mut Executor,
    nr: i64,
    args: [u64; 6],
    at: u64,
    arg: usize,
    in_pair: bool,
) -> Outcome {
    match access::read::<SigSet>(at) {
        Ok(mask) => ex.call_masked(
            nr,
            args,
            During {
                mask: mask.blockable(),
                arg,
                in_pair,
            },
        ),
        Err(Fault) => EFAULT,
    }
}

/// The set may name signals that wait in the engine; the rest is the kernel's.
pub fn sys_rt_sigtimedwait(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    let [set, info_at, _, size, ..] = args;
    if size != 8 {
        return EINVAL;
    }
    let Ok(set) = access::read::<SigSet>(set) else {
        return EFAULT;
    };
    let pending = &mut ex.current().signals.pending;
    if let Some(at) = pending.iter().position(|info| set.contains(info.signo())) {
        let Some(info) = pending.remove(at) else {
            return EINVAL;
        };
        if info_at != 0 && ex.put(info_at, &info).is_err() {
            return EFAULT;
        }
        return Outcome::Return(i64::from(info.signo()));
    }
    ex.call_blocking(libc::SYS_rt_sigtimedwait, args)
}

impl Executor {
    /// Makes a call during which the current thread has another mask.
    pub fn call_masked(&mut self, nr: i64, mut args: [u64; 6], during: During) -> Outcome {
        let signals = &mut self.current().signals;
        let own = signals.mask;
        signals.saved_mask = Some(own);
        signals.mask = during.mask;
        if signals
            .pending
            .iter()
            .any(|info| !during.mask.contains(info.signo()))
        {
            // It waited in the engine, since the kernel can't hold it back.
            self.look_again();
            return Outcome::Return(EINTR);
        }
        if self.multi_threaded() {
            self.park_on_proxy(nr, args, Some((own, during)), None);
            return Outcome::Parked;
        }
        let mask = during.mask.on_executor();
        let pair = [&raw const mask as u64, 8];
        args[during.arg] = if during.in_pair {
            &raw const pair as u64
        } else {
            pair[0]
        };
        let ended = self.wait_in_place(nr, args);
        self.end_masked(ended.value, ended.aborted != 0);
        if ended.aborted != 0 {
            Outcome::Restart
        } else {
            Outcome::Return(ended.value)
        }
    }

    /// The end of a call with a temporary mask: only EINTR leaves it on, for the signal's sake.
    pub fn end_masked(&mut self, value: i64, aborted: bool) {
        if value != EINTR || aborted {
            let signals = &mut self.current().signals;
            if let Some(mask) = signals.saved_mask.take() {
                signals.mask = mask;
            }
        }
        self.look_again();
    }
}

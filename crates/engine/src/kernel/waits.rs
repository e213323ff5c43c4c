//! Calls that can wait.
//!
//! With one guest thread they are made in place, interruptibly. With several, the executor mustn't
//! be held up: a call is first made in a form that can't wait (a flag, a zero timeout); only one
//! that really has to wait goes to the thread's proxy. So it is where memory is shared with other processes. Asking `poll` first and calling then would
//! be a race against proxies that wait on the same descriptor.

use super::scratch::Scratch;
use super::table::{Args, Call, Wait};
use super::{Outcome, direct, outputs};
use crate::executor::Executor;
use crate::guest::access;
use crate::memory::govern;
use crate::sys::err;
use crate::syscall;

/// Below this much, a write to a pipe is all or nothing.
pub const ATOMIC: u64 = libc::PIPE_BUF as u64;
const AGAIN: i64 = err(libc::EAGAIN);

pub fn make(ex: &mut Executor, call: &'static Call, args: &Args) -> Outcome {
    let can_wait = match call.wait {
        Wait::Never => false,
        Wait::Unless(i, bits) => args[i as usize] & bits == 0,
        Wait::Timeout(i) => args[i as usize] as i32 != 0,
        Wait::If(condition) => condition(args),
        Wait::Recv(i) | Wait::Send(i) => args[i as usize] as i32 & libc::MSG_DONTWAIT == 0,
        _ => true,
    };
    // One who shares memory with others is away only where it really waits: others take its pages then.
    let try_first = ex.multi_threaded() || govern::active();
    if govern::active() {
        govern::acquire_all(&Scratch::ranges(ex, call, args));
    }
    if !can_wait {
        return Outcome::Return(match call.wait {
            Wait::Timeout(_) => question(ex, call, args),
            _ => direct(ex, call, args),
        });
    }
    if !try_first {
        return blocking(ex, call, args);
    }
    match attempt(ex, call, args) {
        Some(ret) => Outcome::Return(ret),
        None => blocking(ex, call, args),
    }
}

fn blocking(ex: &mut Executor, call: &Call, args: &Args) -> Outcome {
    let outcome = ex.call_blocking(call.nr as i64, *args);
    if outcome == Outcome::Return(err(libc::EFAULT)) && outputs::unprotect(ex, call, args) {
        return ex.call_blocking(call.nr as i64, *args);
    }
    outcome
}

/// A call with a timeout of 0. The kernel says EINTR where nothing is ready and a signal has just come,
/// which may be the engine's own; one for the guest is delivered after the call either way.
fn question(ex: &mut Executor, call: &Call, args: &Args) -> i64 {
    loop {
        let ret = direct(ex, call, args);
        if ret != err(libc::EINTR) {
            return ret;
        }
    }
}

/// The call's result if it can be had without waiting.
fn attempt(ex: &mut Executor, call: &'static Call, args: &Args) -> Option<i64> {
    let fd = args[0] as i32;
    match call.wait {
        Wait::Read => {
            // The cheaper question first: servers ask it all the time.
            if is_nonblocking(fd) || !may_wait(fd) {
                return Some(direct(ex, call, args));
            }
            let vectors = Vectors::of(call, args);
            let ret = vectors.make(libc::SYS_preadv2, fd);
            settle(ex, call, args, ret, libc::POLLIN)
        }
        Wait::Write => {
            if is_nonblocking(fd) || !may_wait(fd) {
                return Some(direct(ex, call, args));
            }
            let vectors = Vectors::of(call, args);
            if vectors.bytes() > ATOMIC {
                return None;
            }
            let ret = vectors.make(libc::SYS_pwritev2, fd);
            settle(ex, call, args, ret, libc::POLLOUT)
        }
        Wait::Recv(flags) => {
            if args[flags as usize] as i32 & libc::MSG_WAITALL != 0 && !is_nonblocking(fd) {
                return None;
            }
            let ret = direct(ex, call, &with(args, flags, libc::MSG_DONTWAIT as u64));
            (ret != AGAIN || is_nonblocking(fd)).then_some(ret)
        }
        Wait::Send(flags) => {
            if is_nonblocking(fd) {
                return Some(direct(ex, call, args));
            }
            let bytes = if call.nr as i64 == libc::SYS_sendto {
                args[2]
            } else {
                message_bytes(args[1])
            };
            if bytes > ATOMIC {
                return None;
            }
            let ret = direct(ex, call, &with(args, flags, libc::MSG_DONTWAIT as u64));
            (ret != AGAIN).then_some(ret)
        }
        Wait::Blocking => is_nonblocking(fd).then(|| direct(ex, call, args)),
        Wait::Open(path) => (!opens_slowly(call, args, path)).then(|| direct(ex, call, args)),
        Wait::Timeout(i) => {
            let mut now = *args;
            now[i as usize] = 0;
            let ret = question(ex, call, &now);
            if ret == 0 {
                // Nobody is ready: poll has written that down.
                outputs::each(call, &now, Some(0), &mut access::note_write);
            }
            (ret != 0).then_some(ret)
        }
        Wait::Unless(i, bits) => {
            // waitid says 0 for "nobody yet" and for success alike.
            if call.nr as i64 == libc::SYS_waitid {
                return None;
            }
            let ret = direct(ex, call, &with(args, i, bits));
            let not_yet = match call.nr as i64 {
                libc::SYS_wait4 => ret == 0,
                libc::SYS_msgrcv => ret == err(libc::ENOMSG),
                _ => ret == AGAIN,
            };
            (!not_yet).then_some(ret)
        }
        _ => None,
    }
}

/// Makes sense of a try with RWF_NOWAIT: some files don't know that flag, and are asked by poll.
fn settle(ex: &mut Executor, call: &Call, args: &Args, ret: i64, event: i16) -> Option<i64> {
    let fd = args[0] as i32;
    if ret == AGAIN {
        is_nonblocking(fd).then_some(ret)
    } else if ret == err(libc::EOPNOTSUPP) || ret == err(libc::EFAULT) {
        (is_ready(fd, event) || is_nonblocking(fd)).then(|| direct(ex, call, args))
    } else {
        Some(ret)
    }
}

fn with(args: &Args, index: u8, bits: u64) -> Args {
    let mut changed = *args;
    changed[index as usize] |= bits;
    changed
}

/// The buffers of a read or write, or of their vector forms.
pub enum Vectors {
    One([u64; 2]),
    Many(u64, u64),
}

impl Vectors {
    pub fn of(call: &Call, args: &Args) -> Vectors {
        match call.nr as i64 {
            libc::SYS_readv | libc::SYS_writev => Vectors::Many(args[1], args[2]),
            _ => Vectors::One([args[1], args[2]]),
        }
    }

    pub fn bytes(&self) -> u64 {
        match *self {
            Vectors::One([_, len]) => len,
            Vectors::Many(array, count) => vector_bytes(array, count),
        }
    }

    /// `preadv2` or `pwritev2` at the file's own position, without waiting.
    pub fn make(&self, nr: i64, fd: i32) -> i64 {
        const RWF_NOWAIT: u64 = 8;
        let (array, count) = match self {
            Vectors::One(one) => (one.as_ptr() as u64, 1),
            Vectors::Many(array, count) => (*array, *count),
        };
        // SAFETY: the guest's own buffers, as in the call it asked for.
        unsafe { syscall!(nr, fd, array, count, u64::MAX, u64::MAX, RWF_NOWAIT) }
    }
}

fn vector_bytes(array: u64, count: u64) -> u64 {
    let lens = (0..count.min(libc::UIO_MAXIOV as u64))
        .map(|k| access::read::<u64>(array + k * 16 + 8).unwrap_or(0));
    lens.fold(0, u64::saturating_add)
}

fn message_bytes(msghdr: u64) -> u64 {
    match access::read::<[u64; 7]>(msghdr) {
        Ok([_, _, array, count, ..]) => vector_bytes(array, count),
        Err(_) => 0,
    }
}

/// Whether reading or writing can wait at all: not for regular files, folders and disks.
pub fn may_wait(fd: i32) -> bool {
    !matches!(
        kind(fd),
        None | Some(libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK)
    )
}

/// A terminal, or something like it.
pub fn is_device(fd: i32) -> bool {
    kind(fd) == Some(libc::S_IFCHR)
}

/// What kind of file it is, one of S_IFMT.
fn kind(fd: i32) -> Option<u32> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: fstat writes one stat, for which there is room; zeroes are a valid one otherwise.
    let mode = unsafe {
        if syscall!(libc::SYS_fstat, fd, stat.as_mut_ptr()) != 0 {
            return None;
        }
        stat.assume_init().st_mode
    };
    Some(mode & libc::S_IFMT)
}

pub fn is_nonblocking(fd: i32) -> bool {
    // SAFETY: F_GETFL touches no memory.
    let flags = unsafe { syscall!(libc::SYS_fcntl, fd, libc::F_GETFL) };
    flags < 0 || flags as i32 & libc::O_NONBLOCK != 0
}

pub fn is_ready(fd: i32, events: i16) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    // SAFETY: one pollfd, alive during the call.
    unsafe { syscall!(libc::SYS_poll, &raw mut poll, 1, 0) != 0 }
}

/// Opening waits only for FIFOs (the other end) and some devices (a modem's carrier).
fn opens_slowly(call: &Call, args: &Args, path: u8) -> bool {
    let at = if path == 0 {
        libc::AT_FDCWD
    } else {
        args[0] as i32
    };
    let flags = match call.nr as i64 {
        libc::SYS_creat => 0,
        libc::SYS_openat2 => access::read::<u64>(args[2]).unwrap_or(0),
        _ => args[path as usize + 1],
    };
    if flags as i32 & (libc::O_NONBLOCK | libc::O_PATH | libc::O_DIRECTORY) != 0 {
        return false;
    }
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let room = stat.as_mut_ptr();
    // SAFETY: the guest's own path pointer (a bad one fails), and room for one stat.
    let mode = unsafe {
        if syscall!(libc::SYS_newfstatat, at, args[path as usize], room, 0) != 0 {
            return false;
        }
        stat.assume_init().st_mode
    };
    matches!(mode & libc::S_IFMT, libc::S_IFIFO | libc::S_IFCHR)
}

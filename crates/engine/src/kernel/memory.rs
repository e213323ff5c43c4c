//! Memory: the guest's own map decides, see [`crate::memory`].

use super::table::{Args, Handler};
use super::{Outcome, pokes, stop};
use crate::executor::Executor;
use crate::memory::{Answer, MapError, reserve};
use crate::sys::err;

/// The functions for calls of this group that the engine answers.
pub const HANDLERS: &[(i64, Handler)] = &[
    (libc::SYS_mmap, mmap),
    (libc::SYS_mprotect, mprotect),
    (libc::SYS_munmap, munmap),
    (libc::SYS_brk, brk),
    (libc::SYS_mremap, mremap),
    (libc::SYS_madvise, madvise),
    (libc::SYS_shmat, shmat),
    (libc::SYS_shmdt, shmdt),
    (libc::SYS_mlockall, mlockall),
    (libc::SYS_process_vm_writev, pokes::process_vm_writev),
    (libc::SYS_pkey_mprotect, pkey_mprotect),
];

/// The memory's answer; stops if the guest reaches for the engine's own.
fn answer(ex: &mut Executor, result: Answer) -> Outcome {
    match result {
        Ok(value) => Outcome::Return(value as i64),
        Err(MapError::Errno(errno)) => Outcome::Return(err(errno)),
        Err(error @ MapError::Engine(_)) => stop::refuse(ex, &error.to_string()),
    }
}

/// The same for what was done at `at`, or where the result says: the stack may grow more, or less, then.
fn answer_at(ex: &mut Executor, result: Answer, at: Option<u64>, len: u64) -> Outcome {
    if let Some(addr) = at.or(result.as_ref().ok().copied()) {
        ex.memory.settle_stack_near(addr, len);
    }
    answer(ex, result)
}

fn mmap(ex: &mut Executor, a: Args) -> Outcome {
    if a[3] as i32 & libc::MAP_ANONYMOUS == 0 && ex.kernel.own.hidden.contains(a[4] as i32) {
        return Outcome::Return(err(libc::EBADF));
    }
    let (prot, flags, fd) = (a[2] as i32, a[3] as i32, a[4] as i32);
    let result = reserve::guests(|| ex.memory.mmap(a[0], a[1], prot, flags, fd, a[5]));
    answer_at(ex, result, None, a[1])
}

fn munmap(ex: &mut Executor, a: Args) -> Outcome {
    let result = reserve::guests(|| ex.memory.munmap(a[0], a[1]));
    answer_at(ex, result, Some(a[0]), a[1])
}

fn mprotect(ex: &mut Executor, a: Args) -> Outcome {
    let result = reserve::guests(|| ex.memory.mprotect(a[0], a[1], a[2] as i32));
    answer_at(ex, result, Some(a[0]), a[1])
}

/// Without a key it is mprotect; keys can't be had (see `refused`).
fn pkey_mprotect(ex: &mut Executor, a: Args) -> Outcome {
    if a[3] as i32 == -1 {
        mprotect(ex, a)
    } else {
        Outcome::Return(err(libc::EINVAL))
    }
}

fn mremap(ex: &mut Executor, a: Args) -> Outcome {
    let flags = a[3] as i32;
    let result = reserve::guests(|| ex.memory.mremap(a[0], a[1], a[2], flags, a[4]));
    ex.memory.settle_stack_near(a[0], a[1]);
    answer_at(ex, result, None, a[2])
}

fn brk(ex: &mut Executor, a: Args) -> Outcome {
    Outcome::Return(reserve::guests(|| ex.memory.brk(a[0])) as i64)
}

fn madvise(ex: &mut Executor, a: Args) -> Outcome {
    let result = reserve::guests(|| ex.memory.madvise(a[0], a[1], a[2] as i32));
    answer(ex, result)
}

/// Locking everything would lock the engine's reservations and count them against the guest's
/// limit. What the lock is for, no paging, can't be seen from inside: say yes where the kernel
/// would.
fn mlockall(_: &mut Executor, a: Args) -> Outcome {
    let known = (libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) as u64;
    let wants = a[0] & (libc::MCL_CURRENT | libc::MCL_FUTURE) as u64;
    Outcome::Return(if a[0] & !known != 0 || wants == 0 {
        err(libc::EINVAL)
    } else {
        0
    })
}

fn shmat(ex: &mut Executor, a: Args) -> Outcome {
    let result = reserve::guests(|| ex.memory.shmat(a[0] as i32, a[1], a[2] as i32));
    answer_at(ex, result, None, 1)
}

fn shmdt(ex: &mut Executor, a: Args) -> Outcome {
    let result = reserve::guests(|| ex.memory.shmdt(a[0]));
    answer_at(ex, result, Some(a[0]), 1)
}

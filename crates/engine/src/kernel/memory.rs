//! Memory: the guest's own map decides, see [`crate::memory`].

use super::table::{Arg::*, Args, Call, Len::*, call};
use super::{Outcome, stop};
use crate::executor::Executor;
use crate::memory::{Answer, MapError};
use crate::sys::err;

pub const CALLS: &[Call] = &[
    call(9, "mmap", &[Addr, Int, Hex, Hex, Fd, Int]).by(mmap),
    call(10, "mprotect", &[Addr, Int, Hex]).by(mprotect),
    call(11, "munmap", &[Addr, Int]).by(munmap),
    call(12, "brk", &[Addr]).by(brk),
    call(25, "mremap", &[Addr, Int, Int, Hex, Addr]).by(mremap),
    call(26, "msync", &[Addr, Int, Hex]),
    call(27, "mincore", &[Addr, Int, OutAlways(Pages(1))]),
    call(28, "madvise", &[Addr, Int, Int]).by(madvise),
    call(29, "shmget", &[Hex, Int, Hex]),
    call(30, "shmat", &[Int, Addr, Hex]).by(shmat),
    call(31, "shmctl", &[Int, Int, By(1)]),
    call(67, "shmdt", &[Addr]).by(shmdt),
    call(149, "mlock", &[Addr, Int]),
    call(150, "munlock", &[Addr, Int]),
    call(151, "mlockall", &[Hex]).by(mlockall),
    call(152, "munlockall", &[]),
    call(
        310,
        "process_vm_readv",
        &[Int, IovOut(2), Int, Addr, Int, Hex],
    ),
    call(
        311,
        "process_vm_writev",
        &[Int, IovIn(2), Int, By(0), Int, Hex],
    ),
    call(325, "mlock2", &[Addr, Int, Hex]),
    call(329, "pkey_mprotect", &[Addr, Int, Hex, Int]).by(pkey_mprotect),
];

/// The memory's answer; stops if the guest reaches for the engine's own.
fn answer(ex: &mut Executor, result: Answer) -> Outcome {
    match result {
        Ok(value) => Outcome::Return(value as i64),
        Err(MapError::Errno(errno)) => Outcome::Return(err(errno)),
        Err(error @ MapError::Engine(_)) => stop::refuse(ex, &error.to_string()),
    }
}

fn mmap(ex: &mut Executor, a: Args) -> Outcome {
    if a[3] as i32 & libc::MAP_ANONYMOUS == 0 && ex.kernel.own.hidden.contains(a[4] as i32) {
        return Outcome::Return(err(libc::EBADF));
    }
    let result = ex
        .memory
        .mmap(a[0], a[1], a[2] as i32, a[3] as i32, a[4] as i32, a[5]);
    answer(ex, result)
}

fn munmap(ex: &mut Executor, a: Args) -> Outcome {
    let result = ex.memory.munmap(a[0], a[1]);
    answer(ex, result)
}

fn mprotect(ex: &mut Executor, a: Args) -> Outcome {
    let result = ex.memory.mprotect(a[0], a[1], a[2] as i32);
    answer(ex, result)
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
    let result = ex.memory.mremap(a[0], a[1], a[2], a[3] as i32, a[4]);
    answer(ex, result)
}

fn brk(ex: &mut Executor, a: Args) -> Outcome {
    Outcome::Return(ex.memory.brk(a[0]) as i64)
}

fn madvise(ex: &mut Executor, a: Args) -> Outcome {
    let result = ex.memory.madvise(a[0], a[1], a[2] as i32);
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
    let result = ex.memory.shmat(a[0] as i32, a[1], a[2] as i32);
    answer(ex, result)
}

fn shmdt(ex: &mut Executor, a: Args) -> Outcome {
    let result = ex.memory.shmdt(a[0]);
    answer(ex, result)
}

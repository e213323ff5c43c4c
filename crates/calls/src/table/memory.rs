//! Memory: the guest's own map decides, see [`crate::memory`].

use super::{Arg::*, Call, Len::*, call};

pub const CALLS: &[Call] = &[
    call(9, "mmap", &[Addr, Int, Hex, Hex, Fd, Int]).by_engine(),
    call(10, "mprotect", &[Addr, Int, Hex]).by_engine(),
    call(11, "munmap", &[Addr, Int]).by_engine(),
    call(12, "brk", &[Addr]).by_engine(),
    call(25, "mremap", &[Addr, Int, Int, Hex, Addr]).by_engine(),
    call(26, "msync", &[Addr, Int, Hex]),
    call(27, "mincore", &[Addr, Int, OutAlways(Pages(1))]),
    call(28, "madvise", &[Addr, Int, Int]).by_engine(),
    call(29, "shmget", &[Hex, Int, Hex]),
    call(30, "shmat", &[Int, Addr, Hex]).by_engine(),
    call(31, "shmctl", &[Int, Int, By(1)]),
    call(67, "shmdt", &[Addr]).by_engine(),
    call(149, "mlock", &[Addr, Int]),
    call(150, "munlock", &[Addr, Int]),
    call(151, "mlockall", &[Hex]).by_engine(),
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
    )
    .by_engine(),
    call(325, "mlock2", &[Addr, Int, Hex]),
    call(329, "pkey_mprotect", &[Addr, Int, Hex, Int]).by_engine(),
];

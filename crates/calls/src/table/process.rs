//! Processes: identity, waiting, limits. Making them is in `fork` and `exec`.

use super::{Arg::*, Call, Len::*, Wait, call};

const RUSAGE: u32 = 144;
/// The part of a siginfo that waitid fills in.
const WAITED: u32 = 28;
const WNOHANG: u64 = libc::WNOHANG as u64;

pub const CALLS: &[Call] = &[
    call(39, "getpid", &[]),
    call(
        56,
        "clone",
        &[Hex, Addr, Out(Bytes(4)), Out(Bytes(4)), Addr],
    )
    .by_engine(),
    call(57, "fork", &[]).by_engine(),
    call(58, "vfork", &[]).by_engine(),
    call(59, "execve", &[Str, Strs, Strs]).by_engine(),
    call(61, "wait4", &[Int, Out(IfAny(4)), Hex, Out(IfAny(RUSAGE))])
        .waits(Wait::Unless(2, WNOHANG)),
    call(97, "getrlimit", &[Int, Out(Bytes(16))]).by_engine(),
    call(98, "getrusage", &[Int, Out(Bytes(RUSAGE))]),
    call(100, "times", &[Out(Bytes(32))]),
    call(102, "getuid", &[]),
    call(104, "getgid", &[]),
    call(105, "setuid", &[Int]).on_both(),
    call(106, "setgid", &[Int]).on_both(),
    call(107, "geteuid", &[]),
    call(108, "getegid", &[]),
    call(109, "setpgid", &[Int, Int]),
    call(110, "getppid", &[]),
    call(111, "getpgrp", &[]),
    call(112, "setsid", &[]),
    call(113, "setreuid", &[Int, Int]).on_both(),
    call(114, "setregid", &[Int, Int]).on_both(),
    call(115, "getgroups", &[Int, Out(RetItems(0, 4))]),
    call(116, "setgroups", &[Int, In(Items(0, 4))]).on_both(),
    call(117, "setresuid", &[Int, Int, Int]).on_both(),
    call(
        118,
        "getresuid",
        &[Out(Bytes(4)), Out(Bytes(4)), Out(Bytes(4))],
    ),
    call(119, "setresgid", &[Int, Int, Int]).on_both(),
    call(
        120,
        "getresgid",
        &[Out(Bytes(4)), Out(Bytes(4)), Out(Bytes(4))],
    ),
    call(121, "getpgid", &[Int]),
    call(122, "setfsuid", &[Int]).on_both(),
    call(123, "setfsgid", &[Int]).on_both(),
    call(124, "getsid", &[Int]),
    call(125, "capget", &[BothAlways(Bytes(8)), Out(Bytes(24))]).per_thread(),
    call(126, "capset", &[BothAlways(Bytes(8)), In(Bytes(24))]).on_both(),
    call(160, "setrlimit", &[Int, In(Bytes(16))]).by_engine(),
    call(
        247,
        "waitid",
        &[Int, Int, OutAlways(Bytes(WAITED)), Hex, Out(Bytes(RUSAGE))],
    )
    .waits(Wait::Unless(3, WNOHANG)),
    call(302, "prlimit64", &[Int, Int, In(Bytes(16)), Out(Bytes(16))]).by_engine(),
    call(312, "kcmp", &[Int, Int, Int, Hex, Hex]),
    call(322, "execveat", &[At, Str, Strs, Strs, Hex]).by_engine(),
    call(434, "pidfd_open", &[Int, Hex]),
    call(438, "pidfd_getfd", &[Fd, Int, Hex]),
    call(448, "process_mrelease", &[Fd, Hex]),
];

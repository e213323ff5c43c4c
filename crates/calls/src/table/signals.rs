//! Signals: all that concerns dispositions, masks and waiting is the guest's own state.

use super::{Arg::*, Call, Len::*, Wait, call};

const SIGINFO: u32 = 128;

pub const CALLS: &[Call] = &[
    call(
        13,
        "rt_sigaction",
        &[Int, In(Bytes(32)), Out(Bytes(32)), Int],
    )
    .by_engine(),
    call(14, "rt_sigprocmask", &[Int, In(Arg(3)), Out(Arg(3)), Int]).by_engine(),
    call(15, "rt_sigreturn", &[]).by_engine(),
    call(34, "pause", &[]).waits(Wait::Always).by_engine(),
    call(62, "kill", &[Int, Int]).per_thread(),
    call(127, "rt_sigpending", &[Out(Arg(1)), Int]).by_engine(),
    call(
        128,
        "rt_sigtimedwait",
        &[In(Arg(3)), Out(IfAny(SIGINFO)), In(Bytes(16)), Int],
    )
    .waits(Wait::Always)
    .by_engine(),
    call(129, "rt_sigqueueinfo", &[Int, Int, In(Bytes(SIGINFO))]).per_thread(),
    call(130, "rt_sigsuspend", &[In(Arg(1)), Int])
        .waits(Wait::Masked)
        .by_engine(),
    call(131, "sigaltstack", &[In(Bytes(24)), Out(Bytes(24))]).by_engine(),
    call(200, "tkill", &[Int, Int]).per_thread().by_engine(),
    call(219, "restart_syscall", &[]).refused(libc::EINTR),
    call(234, "tgkill", &[Int, Int, Int])
        .per_thread()
        .by_engine(),
    call(
        270,
        "pselect6",
        &[
            Int,
            Both(Bits(0)),
            Both(Bits(0)),
            Both(Bits(0)),
            BothAlways(Bytes(16)),
            In(Bytes(16)),
        ],
    )
    .waits(Wait::Masked)
    .by_engine(),
    call(
        271,
        "ppoll",
        &[Polls(1), Int, BothAlways(Bytes(16)), In(Arg(4)), Int],
    )
    .waits(Wait::Masked)
    .by_engine(),
    call(
        281,
        "epoll_pwait",
        &[Fd, Out(RetItems(2, 12)), Int, Int, In(Arg(5)), Int],
    )
    .waits(Wait::Masked)
    .by_engine(),
    call(282, "signalfd", &[Fd, In(Arg(2)), Int]),
    call(289, "signalfd4", &[Fd, In(Arg(2)), Int, Hex]),
    call(
        297,
        "rt_tgsigqueueinfo",
        &[Int, Int, Int, In(Bytes(SIGINFO))],
    )
    .per_thread(),
    call(
        424,
        "pidfd_send_signal",
        &[Fd, Int, In(Bytes(SIGINFO)), Hex],
    )
    .per_thread(),
    call(
        441,
        "epoll_pwait2",
        &[
            Fd,
            Out(RetItems(2, 12)),
            Int,
            In(Bytes(16)),
            In(Arg(5)),
            Int,
        ],
    )
    .waits(Wait::Masked)
    .by_engine(),
];

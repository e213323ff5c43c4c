//! Sockets, System V and POSIX message passing.

use super::{Arg::*, Args, Call, Len::*, Wait, call};

const NOWAIT: u64 = libc::IPC_NOWAIT as u64;

pub const CALLS: &[Call] = &[
    call(41, "socket", &[Int, Hex, Int]),
    call(42, "connect", &[Fd, In(Items(2, 1)), Int]).waits(Wait::Blocking),
    call(43, "accept", &[Fd, Out(Address(2)), Both(Bytes(4))]).waits(Wait::Blocking),
    call(
        44,
        "sendto",
        &[Fd, In(Arg(2)), Int, Hex, In(Items(5, 1)), Int],
    )
    .waits(Wait::Send(3)),
    call(
        45,
        "recvfrom",
        &[Fd, Out(Ret(2)), Int, Hex, Out(Address(5)), Both(Bytes(4))],
    )
    .waits(Wait::Recv(3)),
    call(46, "sendmsg", &[Fd, MsgIn, Hex]).waits(Wait::Send(2)),
    call(47, "recvmsg", &[Fd, MsgOut, Hex]).waits(Wait::Recv(2)),
    call(48, "shutdown", &[Fd, Int]),
    call(49, "bind", &[Fd, In(Arg(2)), Int]),
    call(50, "listen", &[Fd, Int]),
    call(51, "getsockname", &[Fd, Out(Address(2)), Both(Bytes(4))]),
    call(52, "getpeername", &[Fd, Out(Address(2)), Both(Bytes(4))]),
    call(53, "socketpair", &[Int, Hex, Int, OutAlways(Bytes(8))]),
    call(54, "setsockopt", &[Fd, Int, Int, In(Arg(4)), Int]),
    call(
        55,
        "getsockopt",
        &[Fd, Int, Int, Both(Behind(4)), BothAlways(Bytes(4))],
    ),
    call(64, "semget", &[Hex, Int, Hex]),
    call(65, "semop", &[Int, In(Items(2, 6)), Int]).waits(Wait::Always),
    call(66, "semctl", &[Int, Int, Int, By(2)]),
    call(68, "msgget", &[Hex, Hex]),
    call(69, "msgsnd", &[Int, In(ArgPlus(2, 8)), Int, Hex]).waits(Wait::Unless(3, NOWAIT)),
    call(70, "msgrcv", &[Int, Out(RetPlus(2, 8)), Int, Int, Hex]).waits(Wait::Unless(4, NOWAIT)),
    call(71, "msgctl", &[Int, Int, By(1)]),
    call(
        220,
        "semtimedop",
        &[Int, In(Items(2, 6)), Int, In(Bytes(16))],
    )
    .waits(Wait::Always),
    call(240, "mq_open", &[Str, Hex, Hex, In(Bytes(64))]),
    call(241, "mq_unlink", &[Str]),
    call(
        242,
        "mq_timedsend",
        &[Fd, In(Arg(2)), Int, Int, In(Bytes(16))],
    )
    .waits(Wait::Blocking),
    call(
        243,
        "mq_timedreceive",
        &[Fd, Out(Ret(2)), Int, Out(Bytes(4)), In(Bytes(16))],
    )
    .waits(Wait::Blocking),
    call(244, "mq_notify", &[Fd, In(Bytes(64))]),
    call(245, "mq_getsetattr", &[Fd, In(Bytes(64)), Out(Bytes(64))]),
    call(288, "accept4", &[Fd, Out(Address(2)), Both(Bytes(4)), Hex]).waits(Wait::Blocking),
    call(
        299,
        "recvmmsg",
        &[Fd, MmsgOut(2), Int, Hex, Both(Bytes(16))],
    )
    .waits(Wait::If(recvmmsg_waits)),
    call(307, "sendmmsg", &[Fd, MmsgIn(2), Int, Hex]).waits(Wait::If(sendmmsg_waits)),
];

fn recvmmsg_waits(args: &Args) -> bool {
    args[3] as i32 & libc::MSG_DONTWAIT == 0
}

fn sendmmsg_waits(args: &Args) -> bool {
    args[3] as i32 & libc::MSG_DONTWAIT == 0
}

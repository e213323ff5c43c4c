//! Clocks and timers.

use super::{Arg::*, Call, Len::*, Wait, call};

const TIMESPEC: u32 = 16;
const ITIMER: u32 = 32;

pub const CALLS: &[Call] = &[
    call(35, "nanosleep", &[In(Bytes(TIMESPEC)), Left]).waits(Wait::Always),
    call(36, "getitimer", &[Int, Out(Bytes(ITIMER))]),
    call(37, "alarm", &[Int]),
    call(
        38,
        "setitimer",
        &[Int, In(Bytes(ITIMER)), Out(Bytes(ITIMER))],
    ),
    call(96, "gettimeofday", &[Out(Bytes(16)), Out(Bytes(8))]),
    call(159, "adjtimex", &[BothAlways(Bytes(208))]),
    call(164, "settimeofday", &[In(Bytes(16)), In(Bytes(8))]),
    call(201, "time", &[Out(Bytes(8))]),
    call(222, "timer_create", &[Int, In(Bytes(64)), Out(Bytes(4))]),
    call(
        223,
        "timer_settime",
        &[Int, Hex, In(Bytes(ITIMER)), Out(Bytes(ITIMER))],
    ),
    call(224, "timer_gettime", &[Int, Out(Bytes(ITIMER))]),
    call(225, "timer_getoverrun", &[Int]),
    call(226, "timer_delete", &[Int]),
    call(227, "clock_settime", &[Int, In(Bytes(TIMESPEC))]),
    // CLOCK_THREAD_CPUTIME_ID asks for the caller's own time, which the executor's clock is
    // the best answer to: the guest's code runs there.
    call(228, "clock_gettime", &[Int, Out(Bytes(TIMESPEC))]),
    call(229, "clock_getres", &[Int, Out(Bytes(TIMESPEC))]),
    call(
        230,
        "clock_nanosleep",
        &[Int, Hex, In(Bytes(TIMESPEC)), Left],
    )
    .waits(Wait::Always),
    call(283, "timerfd_create", &[Int, Hex]),
    call(
        286,
        "timerfd_settime",
        &[Fd, Hex, In(Bytes(ITIMER)), Out(Bytes(ITIMER))],
    ),
    call(287, "timerfd_gettime", &[Fd, Out(Bytes(ITIMER))]),
    call(305, "clock_adjtime", &[Int, Both(Bytes(208))]),
];

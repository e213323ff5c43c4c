//! Guest threads: futexes, thread exit, scheduling.

use super::{Arg::*, Call, Len::*, Wait, call};

pub const CALLS: &[Call] = &[
    call(24, "sched_yield", &[]).by_engine(),
    call(60, "exit", &[Int]).by_engine(),
    call(140, "getpriority", &[Int, Int]).per_thread(),
    call(141, "setpriority", &[Int, Int, Int]).per_thread(),
    call(142, "sched_setparam", &[Int, In(Bytes(4))])
        .per_thread()
        .by_engine(),
    call(143, "sched_getparam", &[Int, Out(Bytes(4))]).per_thread(),
    call(144, "sched_setscheduler", &[Int, Int, In(Bytes(4))])
        .per_thread()
        .by_engine(),
    call(145, "sched_getscheduler", &[Int]).per_thread(),
    call(146, "sched_get_priority_max", &[Int]),
    call(147, "sched_get_priority_min", &[Int]),
    call(148, "sched_rr_get_interval", &[Int, Out(Bytes(16))]).per_thread(),
    call(186, "gettid", &[]).by_engine(),
    call(202, "futex", &[By(1), Int, Int, In(Bytes(16)), Addr, Int])
        .waits(Wait::Always)
        .by_engine(),
    call(203, "sched_setaffinity", &[Int, Int, In(Arg(1))]).per_thread(),
    call(204, "sched_getaffinity", &[Int, Int, Out(Ret(1))]).per_thread(),
    call(218, "set_tid_address", &[Addr]).by_engine(),
    call(231, "exit_group", &[Int]).by_engine(),
    call(251, "ioprio_set", &[Int, Int, Int]).per_thread(),
    call(252, "ioprio_get", &[Int, Int]).per_thread(),
    call(273, "set_robust_list", &[Addr, Int]).by_engine(),
    call(274, "get_robust_list", &[Int, Out(Bytes(8)), Out(Bytes(8))]).by_engine(),
    call(309, "getcpu", &[Out(Bytes(4)), Out(Bytes(4)), Addr]),
    call(314, "sched_setattr", &[Int, BothAlways(Bytes(56)), Hex])
        .per_thread()
        .by_engine(),
    call(315, "sched_getattr", &[Int, Out(Arg(2)), Int, Hex]).per_thread(),
    // All guest threads run on one kernel thread, one after the other: what the barrier
    // promises holds anyway, and the kernel's own answer says which commands exist.
    call(324, "membarrier", &[Int, Hex, Int]),
];

//! Guest threads: futexes, thread exit, scheduling.

use super::table::Handler;
use crate::executor::Executor;
use crate::guest::{futex, threads as guest};

/// The functions for calls of this group that the engine answers.
pub const HANDLERS: &[(i64, Handler)] = &[
    (libc::SYS_sched_yield, guest::sys_sched_yield),
    (libc::SYS_exit, guest::sys_exit),
    (libc::SYS_sched_setparam, Executor::sys_set_scheduling),
    (libc::SYS_sched_setscheduler, Executor::sys_set_scheduling),
    (libc::SYS_gettid, guest::sys_gettid),
    (libc::SYS_futex, futex::sys_futex),
    (libc::SYS_set_tid_address, guest::sys_set_tid_address),
    (libc::SYS_exit_group, guest::sys_exit_group),
    (libc::SYS_set_robust_list, guest::sys_set_robust_list),
    (libc::SYS_get_robust_list, guest::sys_get_robust_list),
    (libc::SYS_sched_setattr, Executor::sys_set_scheduling),
];

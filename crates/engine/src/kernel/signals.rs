//! Signals: all that concerns dispositions, masks and waiting is the guest's own state.

use super::table::Handler;
use crate::guest::signals as guest;

/// The functions for calls of this group that the engine answers.
pub const HANDLERS: &[(i64, Handler)] = &[
    (libc::SYS_rt_sigaction, guest::sys_rt_sigaction),
    (libc::SYS_rt_sigprocmask, guest::sys_rt_sigprocmask),
    (libc::SYS_rt_sigreturn, guest::sys_rt_sigreturn),
    (libc::SYS_pause, guest::sys_pause),
    (libc::SYS_rt_sigpending, guest::sys_rt_sigpending),
    (libc::SYS_rt_sigtimedwait, guest::sys_rt_sigtimedwait),
    (libc::SYS_rt_sigsuspend, guest::sys_rt_sigsuspend),
    (libc::SYS_sigaltstack, guest::sys_sigaltstack),
    (libc::SYS_tkill, guest::sys_tkill),
    (libc::SYS_tgkill, guest::sys_tgkill),
    (libc::SYS_pselect6, guest::sys_pselect6),
    (libc::SYS_ppoll, guest::sys_ppoll),
    (libc::SYS_epoll_pwait, guest::sys_epoll_pwait),
    (libc::SYS_epoll_pwait2, guest::sys_epoll_pwait2),
];

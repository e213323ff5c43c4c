//! Processes: identity, waiting, limits. Making them is in `fork` and `exec`.

use super::table::Handler;
use super::{exec, fork, limits};

/// The functions for calls of this group that the engine answers.
pub const HANDLERS: &[(i64, Handler)] = &[
    (libc::SYS_clone, fork::clone),
    (libc::SYS_fork, fork::fork),
    (libc::SYS_vfork, fork::vfork),
    (libc::SYS_execve, exec::execve),
    (libc::SYS_getrlimit, limits::getrlimit),
    (libc::SYS_setrlimit, limits::setrlimit),
    (libc::SYS_prlimit64, limits::prlimit64),
    (libc::SYS_execveat, exec::execveat),
];

//! The system as a whole: names, limits, modules, keys, mounts.

use super::table::Handler;
use super::{namespaces, prctl, seccomp};

/// The functions for calls of this group that the engine answers.
pub const HANDLERS: &[(i64, Handler)] = &[
    (libc::SYS_pivot_root, namespaces::enter),
    (libc::SYS_prctl, prctl::prctl),
    (libc::SYS_arch_prctl, prctl::arch_prctl),
    (libc::SYS_chroot, namespaces::enter),
    (libc::SYS_unshare, namespaces::enter),
    (libc::SYS_setns, namespaces::enter),
    (libc::SYS_seccomp, seccomp::seccomp),
];

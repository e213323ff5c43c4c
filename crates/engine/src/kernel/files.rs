//! Files and descriptors.

use super::table::Handler;
use super::{descriptors, procfs};

/// The functions for calls of this group that the engine answers.
pub const HANDLERS: &[(i64, Handler)] = &[
    (libc::SYS_open, procfs::open),
    (libc::SYS_stat, procfs::stat),
    (libc::SYS_access, procfs::access),
    (libc::SYS_dup2, descriptors::dup2),
    (libc::SYS_fcntl, descriptors::fcntl),
    (libc::SYS_getdents, descriptors::getdents),
    (libc::SYS_creat, procfs::creat),
    (libc::SYS_readlink, procfs::readlink),
    (libc::SYS_getdents64, descriptors::getdents64),
    (libc::SYS_openat, procfs::openat),
    (libc::SYS_newfstatat, procfs::newfstatat),
    (libc::SYS_readlinkat, procfs::readlinkat),
    (libc::SYS_faccessat, procfs::faccessat),
    (libc::SYS_dup3, descriptors::dup3),
    (libc::SYS_statx, procfs::statx),
    (libc::SYS_close_range, descriptors::close_range),
    (libc::SYS_openat2, procfs::openat2),
    (libc::SYS_faccessat2, procfs::faccessat),
];

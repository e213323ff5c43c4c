//! Files and descriptors.

use super::{Arg::*, Args, Call, Len::*, Wait, call};

const STAT: u32 = 144;
const STATFS: u32 = 120;
const STATX: u32 = 256;

pub const CALLS: &[Call] = &[
    call(0, "read", &[Fd, Out(Ret(2)), Int]).waits(Wait::Read),
    call(1, "write", &[Fd, In(Arg(2)), Int]).waits(Wait::Write),
    call(2, "open", &[Str, Hex, Hex])
        .waits(Wait::Open(0))
        .by_engine(),
    call(3, "close", &[Fd]),
    call(4, "stat", &[Str, Out(Bytes(STAT))]).by_engine(),
    call(5, "fstat", &[Fd, Out(Bytes(STAT))]),
    call(6, "lstat", &[Str, Out(Bytes(STAT))]),
    call(7, "poll", &[Polls(1), Int, Int]).waits(Wait::Timeout(2)),
    call(8, "lseek", &[Fd, Int, Int]),
    call(16, "ioctl", &[Fd, Hex, By(1)]).waits(Wait::If(ioctl_waits)),
    call(17, "pread64", &[Fd, Out(Ret(2)), Int, Int]),
    call(18, "pwrite64", &[Fd, In(Arg(2)), Int, Int]),
    call(19, "readv", &[Fd, IovOut(2), Int]).waits(Wait::Read),
    call(20, "writev", &[Fd, IovIn(2), Int]).waits(Wait::Write),
    call(21, "access", &[Str, Hex]).by_engine(),
    call(22, "pipe", &[Out(Bytes(8))]),
    call(
        23,
        "select",
        &[
            Int,
            Both(Bits(0)),
            Both(Bits(0)),
            Both(Bits(0)),
            BothAlways(Bytes(16)),
        ],
    )
    .waits(Wait::Always),
    call(32, "dup", &[Fd]),
    call(33, "dup2", &[Fd, Int]).by_engine(),
    call(40, "sendfile", &[Fd, Fd, BothAlways(Bytes(8)), Int]).waits(Wait::Blocking),
    call(72, "fcntl", &[Fd, Int, By(1)])
        .waits(Wait::If(fcntl_waits))
        .by_engine(),
    call(73, "flock", &[Fd, Hex]).waits(Wait::Unless(1, libc::LOCK_NB as u64)),
    call(74, "fsync", &[Fd]),
    call(75, "fdatasync", &[Fd]),
    call(76, "truncate", &[Str, Int]),
    call(77, "ftruncate", &[Fd, Int]),
    call(78, "getdents", &[Fd, Out(Ret(2)), Int]).by_engine(),
    call(79, "getcwd", &[Out(Ret(1)), Int]),
    call(80, "chdir", &[Str]),
    call(81, "fchdir", &[Fd]),
    call(82, "rename", &[Str, Str]),
    call(83, "mkdir", &[Str, Hex]),
    call(84, "rmdir", &[Str]),
    call(85, "creat", &[Str, Hex])
        .waits(Wait::Open(0))
        .by_engine(),
    call(86, "link", &[Str, Str]),
    call(87, "unlink", &[Str]),
    call(88, "symlink", &[Str, Str]),
    call(89, "readlink", &[Str, Out(Ret(2)), Int]).by_engine(),
    call(90, "chmod", &[Str, Hex]),
    call(91, "fchmod", &[Fd, Hex]),
    call(92, "chown", &[Str, Int, Int]),
    call(93, "fchown", &[Fd, Int, Int]),
    call(94, "lchown", &[Str, Int, Int]),
    call(95, "umask", &[Hex]),
    call(132, "utime", &[Str, In(Bytes(16))]),
    call(133, "mknod", &[Str, Hex, Hex]),
    call(136, "ustat", &[Int, Out(Bytes(32))]),
    call(137, "statfs", &[Str, Out(Bytes(STATFS))]),
    call(138, "fstatfs", &[Fd, Out(Bytes(STATFS))]),
    call(162, "sync", &[]),
    call(187, "readahead", &[Fd, Int, Int]),
    call(188, "setxattr", &[Str, Str, In(Arg(3)), Int, Hex]),
    call(189, "lsetxattr", &[Str, Str, In(Arg(3)), Int, Hex]),
    call(190, "fsetxattr", &[Fd, Str, In(Arg(3)), Int, Hex]),
    call(191, "getxattr", &[Str, Str, Out(Ret(3)), Int]),
    call(192, "lgetxattr", &[Str, Str, Out(Ret(3)), Int]),
    call(193, "fgetxattr", &[Fd, Str, Out(Ret(3)), Int]),
    call(194, "listxattr", &[Str, Out(Ret(2)), Int]),
    call(195, "llistxattr", &[Str, Out(Ret(2)), Int]),
    call(196, "flistxattr", &[Fd, Out(Ret(2)), Int]),
    call(197, "removexattr", &[Str, Str]),
    call(198, "lremovexattr", &[Str, Str]),
    call(199, "fremovexattr", &[Fd, Str]),
    call(213, "epoll_create", &[Int]),
    call(217, "getdents64", &[Fd, Out(Ret(2)), Int]).by_engine(),
    call(221, "fadvise64", &[Fd, Int, Int, Int]),
    call(232, "epoll_wait", &[Fd, Out(RetItems(2, 12)), Int, Int]).waits(Wait::Timeout(3)),
    call(233, "epoll_ctl", &[Fd, Int, Fd, In(Bytes(12))]),
    call(235, "utimes", &[Str, In(Bytes(32))]),
    call(253, "inotify_init", &[]),
    call(254, "inotify_add_watch", &[Fd, Str, Hex]),
    call(255, "inotify_rm_watch", &[Fd, Int]),
    call(257, "openat", &[At, Str, Hex, Hex])
        .waits(Wait::Open(1))
        .by_engine(),
    call(258, "mkdirat", &[At, Str, Hex]),
    call(259, "mknodat", &[At, Str, Hex, Hex]),
    call(260, "fchownat", &[At, Str, Int, Int, Hex]),
    call(261, "futimesat", &[At, Str, In(Bytes(32))]),
    call(262, "newfstatat", &[At, Str, Out(Bytes(STAT)), Hex]).by_engine(),
    call(263, "unlinkat", &[At, Str, Hex]),
    call(264, "renameat", &[At, Str, At, Str]),
    call(265, "linkat", &[At, Str, At, Str, Hex]),
    call(266, "symlinkat", &[Str, At, Str]),
    call(267, "readlinkat", &[At, Str, Out(Ret(3)), Int]).by_engine(),
    call(268, "fchmodat", &[At, Str, Hex]),
    call(269, "faccessat", &[At, Str, Hex]).by_engine(),
    call(
        275,
        "splice",
        &[Fd, Both(Bytes(8)), Fd, Both(Bytes(8)), Int, Hex],
    )
    .waits(Wait::Always),
    call(276, "tee", &[Fd, Fd, Int, Hex]).waits(Wait::Always),
    call(277, "sync_file_range", &[Fd, Int, Int, Hex]),
    call(278, "vmsplice", &[Fd, IovBoth(2), Int, Hex]).waits(Wait::Always),
    call(280, "utimensat", &[At, Str, In(Bytes(32)), Hex]),
    call(284, "eventfd", &[Int]),
    call(285, "fallocate", &[Fd, Hex, Int, Int]),
    call(290, "eventfd2", &[Int, Hex]),
    call(291, "epoll_create1", &[Hex]),
    call(292, "dup3", &[Fd, Int, Hex]).by_engine(),
    call(293, "pipe2", &[Out(Bytes(8)), Hex]),
    call(294, "inotify_init1", &[Hex]),
    call(295, "preadv", &[Fd, IovOut(2), Int, Int, Int]),
    call(296, "pwritev", &[Fd, IovIn(2), Int, Int, Int]),
    call(300, "fanotify_init", &[Hex, Hex]),
    call(301, "fanotify_mark", &[Fd, Hex, Hex, At, Str]),
    call(
        303,
        "name_to_handle_at",
        &[At, Str, BothAlways(Bytes(136)), By(4), Hex],
    ),
    call(304, "open_by_handle_at", &[Fd, In(Bytes(136)), Hex]),
    call(306, "syncfs", &[Fd]),
    call(316, "renameat2", &[At, Str, At, Str, Hex]),
    call(319, "memfd_create", &[Str, Hex]),
    call(
        326,
        "copy_file_range",
        &[Fd, Both(Bytes(8)), Fd, Both(Bytes(8)), Int, Hex],
    ),
    call(327, "preadv2", &[Fd, IovOut(2), Int, Int, Int, Hex]).waits(Wait::Blocking),
    call(328, "pwritev2", &[Fd, IovIn(2), Int, Int, Int, Hex]).waits(Wait::Blocking),
    call(332, "statx", &[At, Str, Hex, Hex, Out(Bytes(STATX))]).by_engine(),
    call(436, "close_range", &[Int, Int, Hex]).by_engine(),
    call(437, "openat2", &[At, Str, In(Arg(3)), Int])
        .waits(Wait::Open(1))
        .by_engine(),
    call(439, "faccessat2", &[At, Str, Hex, Hex]).by_engine(),
    call(447, "memfd_secret", &[Hex]),
    call(451, "cachestat", &[Fd, In(Bytes(16)), Out(Bytes(40)), Hex]),
    call(452, "fchmodat2", &[At, Str, Hex, Hex]),
    call(463, "setxattrat", &[At, Str, Hex, Str, In(Arg(5)), Int]),
    call(464, "getxattrat", &[At, Str, Hex, Str, By(5), Int]),
    call(465, "listxattrat", &[At, Str, Hex, Out(Ret(4)), Int]),
    call(466, "removexattrat", &[At, Str, Hex, Str]),
    call(468, "file_getattr", &[At, Str, Out(Arg(3)), Int, Hex]),
    call(469, "file_setattr", &[At, Str, In(Arg(3)), Int, Hex]),
];

/// Of the ioctls of terminals and files, few wait: draining output, and locks of devices.
fn ioctl_waits(args: &Args) -> bool {
    const TCSBRK: u64 = 0x5409;
    const TCSETSW: u64 = 0x5403;
    const TCSETSF: u64 = 0x5404;
    const TCSETAW: u64 = 0x5407;
    const TCSETAF: u64 = 0x5408;
    const TCSETSW2: u64 = 0x402c_542c;
    const TCSETSF2: u64 = 0x402c_542d;
    matches!(
        args[1] as u32 as u64,
        TCSBRK | TCSETSW | TCSETSF | TCSETAW | TCSETAF | TCSETSW2 | TCSETSF2
    )
}

fn fcntl_waits(args: &Args) -> bool {
    matches!(args[1] as i32, libc::F_SETLKW | libc::F_OFD_SETLKW)
}

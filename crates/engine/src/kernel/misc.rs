//! The system as a whole: names, limits, modules, keys, mounts.

use super::table::{Arg::*, Call, Len::*, call};
use super::{namespaces, prctl, seccomp};

pub const CALLS: &[Call] = &[
    call(63, "uname", &[Out(Bytes(390))]),
    call(99, "sysinfo", &[Out(Bytes(112))]),
    call(103, "syslog", &[Int, Out(Ret(2)), Int]).waits(super::table::Wait::Always),
    call(135, "personality", &[Hex]),
    call(139, "sysfs", &[Int, Addr, Addr]),
    call(153, "vhangup", &[]),
    call(155, "pivot_root", &[Str, Str]).by(namespaces::enter),
    call(157, "prctl", &[Int, Hex, Hex, Hex, Hex]).by(prctl::prctl),
    call(158, "arch_prctl", &[Int, By(0)]).by(prctl::arch_prctl),
    call(161, "chroot", &[Str]).by(namespaces::enter),
    call(163, "acct", &[Str]),
    call(165, "mount", &[Str, Str, Str, Hex, Addr]),
    call(166, "umount2", &[Str, Hex]),
    call(167, "swapon", &[Str, Hex]),
    call(168, "swapoff", &[Str]),
    call(169, "reboot", &[Hex, Hex, Hex, Str]),
    call(170, "sethostname", &[In(Arg(1)), Int]),
    call(171, "setdomainname", &[In(Arg(1)), Int]),
    call(172, "iopl", &[Int]),
    call(173, "ioperm", &[Hex, Int, Int]),
    call(175, "init_module", &[In(Arg(1)), Int, Str]),
    call(176, "delete_module", &[Str, Hex]),
    call(179, "quotactl", &[Int, Str, Int, Addr]),
    call(212, "lookup_dcookie", &[Hex, Out(Ret(2)), Int]),
    call(237, "mbind", &[Addr, Int, Int, In(Bytes(8)), Int, Hex]),
    call(238, "set_mempolicy", &[Int, In(Bytes(8)), Int]).per_thread(),
    call(
        239,
        "get_mempolicy",
        &[Out(Bytes(4)), Out(Bits(2)), Int, Addr, Hex],
    )
    .per_thread(),
    call(246, "kexec_load", &[Hex, Int, Addr, Hex]),
    call(248, "add_key", &[Str, Str, In(Arg(3)), Int, Int]),
    call(249, "request_key", &[Str, Str, Str, Int]),
    call(250, "keyctl", &[Int, Hex, Hex, Hex, Hex]).per_thread(),
    call(
        256,
        "migrate_pages",
        &[Int, Int, In(Bytes(8)), In(Bytes(8))],
    ),
    call(272, "unshare", &[Hex])
        .on_both()
        .by(namespaces::enter),
    call(
        279,
        "move_pages",
        &[
            Int,
            Int,
            In(Items(1, 8)),
            In(Items(1, 4)),
            Out(Items(1, 4)),
            Hex,
        ],
    ),
    call(298, "perf_event_open", &[In(Bytes(136)), Int, Int, Fd, Hex]).per_thread(),
    call(308, "setns", &[Fd, Hex])
        .on_both()
        .by(namespaces::enter),
    call(313, "finit_module", &[Fd, Str, Hex]),
    call(317, "seccomp", &[Int, Hex, Addr]).by(seccomp::seccomp),
    call(318, "getrandom", &[Out(Ret(1)), Int, Hex]),
    call(320, "kexec_file_load", &[Fd, Fd, Int, Str, Hex]),
    call(321, "bpf", &[Int, Both(Arg(2)), Int]),
    call(428, "open_tree", &[At, Str, Hex]),
    call(429, "move_mount", &[At, Str, At, Str, Hex]),
    call(430, "fsopen", &[Str, Hex]),
    call(431, "fsconfig", &[Fd, Int, Str, Addr, Int]),
    call(432, "fsmount", &[Fd, Hex, Hex]),
    call(433, "fspick", &[At, Str, Hex]),
    call(442, "mount_setattr", &[At, Str, Hex, In(Arg(4)), Int]),
    call(443, "quotactl_fd", &[Fd, Int, Int, Addr]),
    call(450, "set_mempolicy_home_node", &[Addr, Int, Int, Hex]),
    call(457, "statmount", &[In(Bytes(32)), Out(Arg(2)), Int, Hex]),
    call(
        458,
        "listmount",
        &[In(Bytes(32)), Out(RetItems(2, 8)), Int, Hex],
    ),
    call(
        459,
        "lsm_get_self_attr",
        &[Int, Out(Behind(2)), Both(Bytes(4)), Hex],
    ),
    call(460, "lsm_set_self_attr", &[Int, In(Arg(2)), Int, Hex]),
    call(
        461,
        "lsm_list_modules",
        &[Out(Behind(1)), Both(Bytes(4)), Hex],
    ),
    call(467, "open_tree_attr", &[At, Str, Hex, In(Arg(4)), Int]),
];

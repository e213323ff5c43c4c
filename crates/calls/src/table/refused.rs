//! Calls that fail under clew, and why: a call in, its error out.
//!
//! All of them fail alike whether a program runs or is recorded. A recording says so where programs don't try
//! just in case: of those that write to memory unseen, or look into other processes.

use libc::{EACCES, EINVAL, ENOSPC, ENOSYS, EOPNOTSUPP, EPERM};

use super::{Arg::*, Call, Len::*, call};

pub const CALLS: &[Call] = &[
    // No number in x86-64 Linux any more: the kernel says ENOSYS too.
    call(134, "uselib", &[Str]).refused(ENOSYS),
    call(156, "_sysctl", &[Addr]).refused(ENOSYS),
    call(174, "create_module", &[]).refused(ENOSYS),
    call(177, "get_kernel_syms", &[]).refused(ENOSYS),
    call(178, "query_module", &[]).refused(ENOSYS),
    call(180, "nfsservctl", &[]).refused(ENOSYS),
    call(181, "getpmsg", &[]).refused(ENOSYS),
    call(182, "putpmsg", &[]).refused(ENOSYS),
    call(183, "afs_syscall", &[]).refused(ENOSYS),
    call(184, "tuxcall", &[]).refused(ENOSYS),
    call(185, "security", &[]).refused(ENOSYS),
    call(205, "set_thread_area", &[]).refused(ENOSYS),
    call(211, "get_thread_area", &[]).refused(ENOSYS),
    call(214, "epoll_ctl_old", &[]).refused(ENOSYS),
    call(215, "epoll_wait_old", &[]).refused(ENOSYS),
    call(236, "vserver", &[]).refused(ENOSYS),
    // A debugger would see the engine, not the guest. Containers without the ptrace
    // capability give the same answer.
    call(101, "ptrace", &[Int, Int, Addr, Addr]).refused_aloud(EPERM),
    // Segments other than fs and gs bases aren't translated.
    call(154, "modify_ldt", &[Int, Both(Arg(2)), Int]).refused(ENOSYS),
    // The kernel would write guest memory at any time, unseen. Programs have a fallback.
    call(206, "io_setup", &[Int, Out(Bytes(8))]).refused_aloud(ENOSYS),
    call(207, "io_destroy", &[Addr]).refused(EINVAL),
    call(
        208,
        "io_getevents",
        &[Addr, Int, Int, Out(RetItems(2, 32)), In(Bytes(16))],
    )
    .refused(EINVAL),
    call(209, "io_submit", &[Addr, Int, Addr]).refused(EINVAL),
    call(210, "io_cancel", &[Addr, Addr, Out(Bytes(32))]).refused(EINVAL),
    call(333, "io_pgetevents", &[Addr, Int, Int, Addr, Addr, Addr]).refused(EINVAL),
    call(425, "io_uring_setup", &[Int, Both(Bytes(120))]).refused_aloud(ENOSYS),
    call(426, "io_uring_enter", &[Fd, Int, Int, Hex, Addr, Int]).refused(ENOSYS),
    call(427, "io_uring_register", &[Fd, Int, Addr, Int]).refused(ENOSYS),
    // Results come through rings and maps in shared memory; programs and counters would see the engine.
    call(
        298,
        "perf_event_open",
        &[BothAlways(Bytes(136)), Int, Int, Fd, Hex],
    )
    .refused_aloud(EACCES),
    call(321, "bpf", &[Int, Both(Arg(2)), Int]).refused_aloud(EPERM),
    // Deprecated; the memory map has no pages out of order.
    call(216, "remap_file_pages", &[Addr, Int, Hex, Int, Hex]).refused(ENOSYS),
    // The engine's own accesses to guest memory would wait for a handler that is a guest thread.
    call(323, "userfaultfd", &[Hex]).refused_aloud(ENOSYS),
    // The engine has no restartable sequences: translated code isn't where the guest says.
    call(334, "rseq", &[Addr, Int, Hex, Hex]).refused(ENOSYS),
    // Return addresses are translated: a return probe is not the guest's business.
    call(335, "uretprobe", &[]).refused(ENOSYS),
    call(336, "uprobe", &[]).refused(ENOSYS),
    // Protection keys are hidden by cpuid; so say kernels on CPUs without them.
    call(330, "pkey_alloc", &[Hex, Hex]).refused(ENOSPC),
    call(331, "pkey_free", &[Int]).refused(EINVAL),
    // libc falls back to clone.
    call(435, "clone3", &[In(Arg(1)), Int]).refused(ENOSYS),
    // By iovec into any process, also this one with the engine in it; programs have a fallback.
    call(440, "process_madvise", &[Fd, IovIn(2), Int, Int, Hex]).refused_aloud(ENOSYS),
    // Would also lock the engine out of its cache folder and of starting itself for an exec.
    // The answer of a kernel that was booted without it.
    call(444, "landlock_create_ruleset", &[In(Arg(1)), Int, Hex]).refused(EOPNOTSUPP),
    call(445, "landlock_add_rule", &[Fd, Int, Addr, Hex]).refused(EOPNOTSUPP),
    call(446, "landlock_restrict_self", &[Fd, Hex]).refused(EOPNOTSUPP),
    // Shadow stacks are hidden by cpuid.
    call(453, "map_shadow_stack", &[Addr, Int, Hex]).refused(EOPNOTSUPP),
    // futex2: libc uses the classic call; the engine emulates that one.
    call(
        449,
        "futex_waitv",
        &[In(Items(1, 24)), Int, Hex, In(Bytes(16)), Int],
    )
    .refused(ENOSYS),
    call(454, "futex_wake", &[Addr, Hex, Int, Hex]).refused(ENOSYS),
    call(
        455,
        "futex_wait",
        &[Addr, Int, Hex, Hex, In(Bytes(16)), Int],
    )
    .refused(ENOSYS),
    call(456, "futex_requeue", &[In(Bytes(48)), Hex, Int, Int]).refused(ENOSYS),
    // A sealed mapping can't be write-protected by the engine any more.
    call(462, "mseal", &[Addr, Int, Hex]).refused(ENOSYS),
];

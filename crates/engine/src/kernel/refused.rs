//! Calls that fail under clew, and why: a call in, its error out.
//!
//! All of them fail alike whether a program runs or is recorded. A recording says so where programs don't try
//! just in case: of those that write to memory unseen, or look into other processes.

use super::table::{Arg::*, Args, Call, Len::*, call};
use crate::executor::Executor;
use libc::{EACCES, EINVAL, ENOSPC, ENOSYS, EOPNOTSUPP, EPERM};

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

/// An error for calls that are refused by what they ask for: the kernel, a device or a virtual machine would
/// write to guest memory at moments that nobody sees. The errors are those of kernels without the feature.
pub fn by_arguments(ex: &mut Executor, call: &Call, args: &Args) -> Option<i32> {
    let (what, errno) = unseen_writer(call, args)?;
    ex.say(format!("{what} isn't supported under clew and fails"));
    Some(errno)
}

fn unseen_writer(call: &Call, args: &Args) -> Option<(&'static str, i32)> {
    const SOL_PACKET: i32 = 263;
    const SOL_XDP: i32 = 283;
    const PACKET_RX_RING: i32 = 5;
    const PACKET_TX_RING: i32 = 13;
    const TCP_ZEROCOPY_RECEIVE: i32 = 35;
    const USBDEVFS_SUBMITURB: u32 = 0x8038_550a;
    const USERFAULTFD_IOC_NEW: u32 = 0xaa00;
    const KVM_CREATE_VM: u32 = 0xae01;
    const VHOST_SET_OWNER: u32 = 0xaf01;
    const VFIO_SET_IOMMU: u32 = 0x3b66;
    let option = (args[1] as i32, args[2] as i32);
    Some(match call.nr as i64 {
        libc::SYS_setsockopt => match option {
            (SOL_PACKET, PACKET_RX_RING | PACKET_TX_RING) => {
                ("a packet socket's ring", libc::ENOPROTOOPT)
            }
            (SOL_XDP, _) => ("an XDP socket", libc::ENOPROTOOPT),
            _ => return None,
        },
        libc::SYS_getsockopt if option == (libc::IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE) => {
            ("TCP_ZEROCOPY_RECEIVE", libc::ENOPROTOOPT)
        }
        libc::SYS_ioctl => match args[1] as u32 {
            USBDEVFS_SUBMITURB => ("an asynchronous USB request", libc::ENOTTY),
            USERFAULTFD_IOC_NEW => ("userfaultfd", libc::ENOTTY),
            KVM_CREATE_VM => ("a virtual machine (KVM)", libc::ENODEV),
            VHOST_SET_OWNER => ("vhost", libc::ENODEV),
            VFIO_SET_IOMMU => ("vfio", libc::ENODEV),
            _ => return None,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::table::lookup;
    use super::*;

    #[test]
    fn writers_that_nobody_sees_are_known() {
        let errno = |nr: i64, a: u64, b: u64| {
            unseen_writer(lookup(nr as u64), &[0, a, b, 0, 0, 0]).map(|(_, errno)| errno)
        };
        assert_eq!(errno(libc::SYS_setsockopt, 263, 5), Some(libc::ENOPROTOOPT));
        assert_eq!(errno(libc::SYS_setsockopt, 263, 6), None);
        assert_eq!(errno(libc::SYS_ioctl, 0xaa00, 0), Some(libc::ENOTTY));
        assert_eq!(errno(libc::SYS_ioctl, 0x5401, 0), None);
        assert_eq!(errno(libc::SYS_read, 0xaa00, 0), None);
    }
}

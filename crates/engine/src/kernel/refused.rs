//! Calls that fail under clew, and why: a call in, its error out.
//!
//! All of them fail alike whether a program runs or is recorded. A recording says so where programs don't try
//! just in case: of those that write to memory unseen, or look into other processes.

use super::table::{Args, Call};
use crate::executor::Executor;

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

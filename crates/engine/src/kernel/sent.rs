//! What goes out: for calls that write to a descriptor, where in guest memory the bytes are.

use super::outputs;
use super::table::{Args, Call};
use crate::guest::access;
use crate::syscall;

/// Whether the call is one that writes from memory to the descriptor in argument 0.
pub fn writes(call: &Call, args: &Args) -> bool {
    match call.nr as i64 {
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_sendto => true,
        libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 => true,
        libc::SYS_sendmsg | libc::SYS_sendmmsg => true,
        libc::SYS_vmsplice => outputs::is_write_end(args[0] as i32),
        _ => false,
    }
}

/// The memory whose bytes went to the descriptor in argument 0, in order, of a call that has
/// returned `ret`; `None` if the call isn't one that writes from memory. Look right after the
/// call was made: the guest may change its buffers as soon as it runs.
pub fn written_bytes(call: &Call, args: &Args, ret: i64) -> Option<Vec<(u64, u64)>> {
    if !writes(call, args) {
        return None;
    }
    let done = ret.max(0) as u64;
    let mut out = Vec::new();
    match call.nr as i64 {
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_sendto => {
            push(&mut out, args[1], args[2].min(done));
        }
        libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 | libc::SYS_vmsplice => {
            vectors(&mut out, args[1], args[2], done);
        }
        libc::SYS_sendmsg => message(&mut out, args[1], done),
        libc::SYS_sendmmsg => {
            for k in 0..done.min(libc::UIO_MAXIOV as u64) {
                let one = args[1].wrapping_add(k * 64);
                let sent = access::read::<u32>(one.wrapping_add(56)).unwrap_or(0);
                message(&mut out, one, sent.into());
            }
        }
        _ => {}
    }
    Some(out)
}

/// What a call that returned `ret` has changed of a file's contents: the descriptor that has the file
/// open (-1 if it was named by argument 0), where (`None`: up to its position), and how many bytes; none
/// if only the length.
pub fn changed_file(call: &Call, args: &Args, ret: i64) -> Option<(i32, Option<u64>, u64)> {
    const RWF_APPEND: u64 = 0x10;
    if ret < 0 {
        return None;
    }
    let (fd, done) = (args[0] as i32, ret as u64);
    // A pointer to an offset, which the call has moved on; or none.
    let behind = |at: u64| match at {
        0 => None,
        at => access::read::<u64>(at)
            .ok()
            .map(|end| end.wrapping_sub(done)),
    };
    let change = match call.nr as i64 {
        libc::SYS_write | libc::SYS_writev | libc::SYS_sendfile => (fd, None, done),
        libc::SYS_pwrite64 | libc::SYS_pwritev => (fd, Some(args[3]), done),
        libc::SYS_pwritev2 if args[5] & RWF_APPEND != 0 => (fd, Some(0), u64::MAX),
        libc::SYS_pwritev2 if args[3] == u64::MAX => (fd, None, done),
        libc::SYS_pwritev2 => (fd, Some(args[3]), done),
        libc::SYS_truncate => (-1, Some(0), 0),
        libc::SYS_splice | libc::SYS_copy_file_range => (args[2] as i32, behind(args[3]), done),
        libc::SYS_ftruncate => (fd, Some(0), 0),
        libc::SYS_fallocate if args[1] == 0 => (fd, Some(0), 0),
        // Holes, zeroes, and contents that move.
        libc::SYS_fallocate => (fd, Some(args[2]), u64::MAX),
        libc::SYS_open | libc::SYS_openat | libc::SYS_openat2 | libc::SYS_creat => {
            (ret as i32, Some(0), 0)
        }
        _ => return None,
    };
    Some(change)
}

/// For calls that write from memory to the file in argument 0: where (`None`: at its position), and at most how
/// many bytes.
pub fn writes_file(call: &Call, args: &Args) -> Option<(Option<u64>, u64)> {
    let bytes = || {
        let ranges = written_bytes(call, args, i64::MAX).unwrap_or_default();
        ranges.iter().map(|(_, len)| len).sum()
    };
    match call.nr as i64 {
        libc::SYS_write => Some((None, args[2])),
        libc::SYS_writev => Some((None, bytes())),
        libc::SYS_pwrite64 => Some((Some(args[3]), args[2])),
        libc::SYS_pwritev | libc::SYS_pwritev2 => {
            Some((Some(args[3]).filter(|&at| at != u64::MAX), bytes()))
        }
        _ => None,
    }
}

/// For calls that move data between descriptors without showing it to the guest: which argument
/// is the descriptor that the data goes to. Programs fall back to reading and writing where such
/// a call says EINVAL.
pub fn moves_data_unseen(call: &Call) -> Option<usize> {
    match call.nr as i64 {
        libc::SYS_sendfile | libc::SYS_vmsplice => Some(0),
        libc::SYS_tee => Some(1),
        libc::SYS_splice | libc::SYS_copy_file_range => Some(2),
        _ => None,
    }
}

/// Whether the call kills this very process by SIGKILL.
pub fn kills(call: &Call, args: &Args) -> bool {
    // SAFETY: ids touch no memory.
    let own = || unsafe { syscall!(libc::SYS_getpid) } as i32;
    // SAFETY: as above.
    let group = || unsafe { syscall!(libc::SYS_getpgid, 0) } as i32;
    let (to, first, second) = (args[0] as i32, args[1] as i32, args[2] as i32);
    match call.nr as i64 {
        libc::SYS_kill if first == libc::SIGKILL => {
            to == own() || to == 0 || (to < -1 && -to == group())
        }
        libc::SYS_rt_sigqueueinfo if first == libc::SIGKILL => to == own(),
        libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo if second == libc::SIGKILL => {
            to == own() && is_thread(to, first)
        }
        libc::SYS_tkill if first == libc::SIGKILL => is_thread(own(), to),
        _ => false,
    }
}

/// Whether the process has this thread.
fn is_thread(pid: i32, tid: i32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { syscall!(libc::SYS_tgkill, pid, tid, 0) == 0 }
}

/// An error for calls after which the kernel writes to guest memory at moments that nobody sees,
/// or through pointers whose lengths only it knows: a recording can't have them. The errors are
/// those of kernels without the feature.
pub fn unrecordable(call: &Call, args: &Args) -> Option<i32> {
    const SOL_PACKET: i32 = 263;
    const SOL_XDP: i32 = 283;
    const PACKET_RX_RING: i32 = 5;
    const PACKET_TX_RING: i32 = 13;
    const TCP_ZEROCOPY_RECEIVE: i32 = 35;
    const USBDEVFS_SUBMITURB: u32 = 0x8038_550a;
    let option = (args[1] as i32, args[2] as i32);
    match call.nr as i64 {
        libc::SYS_bpf => Some(libc::EPERM),
        // Its results come through a ring in shared memory.
        libc::SYS_perf_event_open => Some(libc::EACCES),
        libc::SYS_setsockopt => match option {
            (SOL_PACKET, PACKET_RX_RING | PACKET_TX_RING) | (SOL_XDP, _) => Some(libc::ENOPROTOOPT),
            _ => None,
        },
        libc::SYS_getsockopt => {
            let zerocopy = option == (libc::IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE);
            zerocopy.then_some(libc::ENOPROTOOPT)
        }
        libc::SYS_ioctl => (args[1] as u32 == USBDEVFS_SUBMITURB).then_some(libc::ENOTTY),
        _ => None,
    }
}

fn push(out: &mut Vec<(u64, u64)>, addr: u64, len: u64) {
    if len != 0 {
        out.push((addr, len));
    }
}

fn vectors(out: &mut Vec<(u64, u64)>, array: u64, count: u64, mut left: u64) {
    for k in 0..count.min(libc::UIO_MAXIOV as u64) {
        let Ok([base, len]) = access::read::<[u64; 2]>(array.wrapping_add(k * 16)) else {
            return;
        };
        let len = len.min(left);
        push(out, base, len);
        left -= len;
    }
}

fn message(out: &mut Vec<(u64, u64)>, addr: u64, done: u64) {
    if let Ok([_, _, array, count, ..]) = access::read::<[u64; 7]>(addr) {
        vectors(out, array, count, done);
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::lookup;
    use super::*;

    #[test]
    fn the_first_bytes_of_the_buffers() {
        let page = access::tests::guest_page();
        access::write(page, &[[0x1000u64, 10], [0x2000, 20]]).unwrap();
        access::write(page + 64, &[0u64, 0, page, 2, 0, 0, 0]).unwrap();
        let sent = |nr: i64, args: Args, ret| written_bytes(lookup(nr as u64), &args, ret);
        let plain = [1, 0x1000, 100, 0, 0, 0];
        assert_eq!(sent(libc::SYS_write, plain, 7), Some(vec![(0x1000, 7)]));
        assert_eq!(sent(libc::SYS_write, plain, -9), Some(vec![]));
        assert_eq!(sent(libc::SYS_read, plain, 7), None);
        let both = Some(vec![(0x1000, 10), (0x2000, 5)]);
        assert_eq!(sent(libc::SYS_writev, [1, page, 2, 0, 0, 0], 15), both);
        assert_eq!(
            sent(libc::SYS_sendmsg, [1, page + 64, 0, 0, 0, 0], 15),
            both
        );
    }

    #[test]
    fn unseen_moves_are_known() {
        let out = |nr: i64| moves_data_unseen(lookup(nr as u64));
        assert_eq!(out(libc::SYS_splice), Some(2));
        assert_eq!(out(libc::SYS_write), None);
        let bpf = unrecordable(lookup(libc::SYS_bpf as u64), &[0; 6]);
        assert_eq!(bpf, Some(libc::EPERM));
    }
}

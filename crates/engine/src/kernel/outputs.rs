//! What the kernel writes: from the table's words about a call to ranges of guest memory.

use super::table::{Arg, Args, Call, Len};
use crate::executor::Executor;
use crate::guest::access;

/// Calls `found(address, length)` for all memory that the call can write (`ret` is `None`, before
/// it is made) or has written (`ret` is its result).
pub fn each(call: &Call, args: &Args, ret: Option<i64>, found: &mut dyn FnMut(u64, u64)) {
    for (i, kind) in call.args.iter().enumerate() {
        let addr = args[i];
        if addr == 0 {
            continue;
        }
        match *kind {
            Arg::Out(len) | Arg::Both(len) => found(addr, length(len, args, ret)),
            Arg::IovOut(count) => vectors(addr, args[count as usize], ret, found),
            Arg::MsgOut => message(addr, ret, found),
            Arg::MmsgOut(count) => {
                let max = args[count as usize].min(1024);
                let filled = ret.map_or(max, |n| max.min(n.max(0) as u64));
                for k in 0..filled {
                    let one = addr + k * 64;
                    let got = access::read::<u32>(one + 56).unwrap_or(0);
                    message(one, ret.map(|_| got as i64), found);
                    found(one + 56, 4);
                }
            }
            Arg::By(_) => {
                let len = by_request(call.nr, args);
                if len != 0 {
                    found(addr, len);
                }
            }
            _ => {}
        }
    }
}

fn length(len: Len, args: &Args, ret: Option<i64>) -> u64 {
    let arg = |i: u8| args[i as usize];
    let done = ret.map(|n| n.max(0) as u64);
    match len {
        Len::Bytes(n) => n as u64,
        Len::Arg(i) => arg(i),
        Len::Ret(i) => done.map_or(arg(i), |n| n.min(arg(i))),
        Len::Items(i, size) => (arg(i) as u32 as u64) * size as u64,
        Len::RetItems(i, size) => {
            let max = arg(i) as u32 as u64;
            done.map_or(max, |n| n.min(max)) * size as u64
        }
        Len::Behind(i) => access::read::<u32>(arg(i)).unwrap_or(0) as u64,
        Len::Bits(i) => (arg(i) as u32 as u64).div_ceil(64) * 8,
    }
}

/// An array of iovec, filled front to back with `ret` bytes.
fn vectors(array: u64, count: u64, ret: Option<i64>, found: &mut dyn FnMut(u64, u64)) {
    let mut left = ret.map_or(u64::MAX, |n| n.max(0) as u64);
    for k in 0..count.min(libc::UIO_MAXIOV as u64) {
        let Ok([base, len]) = access::read::<[u64; 2]>(array + k * 16) else {
            return;
        };
        let len = len.min(left);
        if len != 0 {
            found(base, len);
        }
        left -= len;
    }
}

/// A msghdr: name, vectors, control data, and the header's own lengths and flags.
fn message(addr: u64, ret: Option<i64>, found: &mut dyn FnMut(u64, u64)) {
    let Ok([name, name_len, iov, iov_len, control, control_len, _flags]) =
        access::read::<[u64; 7]>(addr)
    else {
        return;
    };
    found(addr, 56);
    if name != 0 {
        found(name, name_len as u32 as u64);
    }
    vectors(iov, iov_len, ret, found);
    if control != 0 {
        found(control, control_len);
    }
}

const F_GETOWN_EX: i32 = 16;

/// How much a call writes behind a pointer whose meaning its request decides.
fn by_request(nr: u16, args: &Args) -> u64 {
    match nr as i64 {
        libc::SYS_ioctl => ioctl_len(args[1] as u32),
        libc::SYS_fcntl => match args[1] as i32 {
            libc::F_GETLK | libc::F_OFD_GETLK => 32,
            F_GETOWN_EX => 8,
            _ => 0,
        },
        // IPC_STAT and its relatives: the longest of the three structures.
        libc::SYS_msgctl | libc::SYS_shmctl => 120,
        libc::SYS_semctl => match args[2] as i32 {
            // GETALL: as many u16 as the set has semaphores; 32,000 is the kernel's bound.
            13 => 2 * 32_000,
            _ => 120,
        },
        _ => 0,
    }
}

/// An ioctl's request says how much it writes; the old ones of terminals and sockets don't.
fn ioctl_len(request: u32) -> u64 {
    const READ: u32 = 2 << 30;
    if request >> 16 == 0 {
        return match request {
            // TCGETS and relatives write a termios (60 bytes at most), TIOCGWINSZ 8, FIONREAD 4.
            0x5400..=0x54ff => 64,
            // Interface and routing requests write an ifreq.
            0x8900..=0x89ff => 40,
            _ => 0,
        };
    }
    if request & READ != 0 {
        (request >> 16 & 0x3fff) as u64
    } else {
        0
    }
}

/// Gives back the write permission that the engine took from pages with translated code, for all
/// that the call may write. True if anything changed, so that the call is worth a second try.
pub fn unprotect(ex: &mut Executor, call: &Call, args: &Args) -> bool {
    let memory = &mut ex.memory;
    let mut changed = false;
    each(call, args, None, &mut |addr, len| {
        changed |= memory.unprotect_for_kernel(addr, len);
    });
    changed
}

#[cfg(test)]
mod tests {
    use super::super::table::lookup;
    use super::*;

    fn ranges(nr: i64, args: Args, ret: Option<i64>) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        each(lookup(nr as u64), &args, ret, &mut |a, l| all.push((a, l)));
        all
    }

    #[test]
    fn read_writes_what_it_returned() {
        let args = [3, 0x1000, 100, 0, 0, 0];
        assert_eq!(ranges(libc::SYS_read, args, None), [(0x1000, 100)]);
        assert_eq!(ranges(libc::SYS_read, args, Some(7)), [(0x1000, 7)]);
        assert_eq!(ranges(libc::SYS_read, args, Some(-4)), [(0x1000, 0)]);
    }

    #[test]
    fn vectors_fill_front_to_back() {
        let iov = [[0x1000u64, 10], [0x2000, 20], [0x3000, 30]];
        let args = [3, iov.as_ptr() as u64, 3, 0, 0, 0];
        assert_eq!(
            ranges(libc::SYS_readv, args, Some(15)),
            [(0x1000, 10), (0x2000, 5)]
        );
        assert_eq!(ranges(libc::SYS_readv, args, None).len(), 3);
    }

    #[test]
    fn null_pointers_write_nothing() {
        let none = ranges(libc::SYS_wait4, [1, 0, 0, 0, 0, 0], Some(1));
        assert!(none.is_empty());
    }

    #[test]
    fn ioctls_tell_their_length() {
        assert_eq!(ioctl_len(0x5401), 64);
        assert_eq!(ioctl_len(0x802c_542a), 44);
        assert_eq!(ioctl_len(0x4004_5431), 0);
    }
}

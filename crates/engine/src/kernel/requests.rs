//! Calls whose arguments mean something else for each command: ioctl, fcntl, prctl, keyctl and
//! the like. A call and its arguments in, the ranges that the kernel writes out.

use super::ioctl;
use super::outputs::{Found, Query};
use crate::sys::{err, is_err};
use crate::syscall;

pub fn each(query: &Query, found: Found) {
    let args = query.args;
    let failed = query.ret.is_some_and(is_err);
    let nr = query.call.nr as i64;
    let mut plain = |addr: u64, len: u64| {
        if addr != 0 && len != 0 && !failed {
            found(addr, len);
        }
    };
    match nr {
        libc::SYS_ioctl => ioctl_writes(query, found),
        libc::SYS_fcntl => plain(args[2], fcntl_len(args[1] as i32).unwrap_or(0)),
        libc::SYS_prctl => prctl(query, &mut plain),
        libc::SYS_keyctl => keyctl(query, &mut plain),
        libc::SYS_futex => futex(query, &mut plain),
        libc::SYS_msgctl => plain(
            args[2],
            by_command(
                args[1],
                &[(2, 120), (3, 32), (11, 120), (12, 32), (13, 120)],
            ),
        ),
        libc::SYS_shmctl => plain(
            args[2],
            by_command(
                args[1],
                &[(2, 112), (3, 72), (13, 112), (14, 48), (15, 112)],
            ),
        ),
        libc::SYS_semctl => {
            const GETALL: u64 = 13;
            let len = if args[2] & 0xff == GETALL {
                2 * semaphores(args[0] as i32)
            } else {
                by_command(
                    args[2],
                    &[(2, 104), (3, 40), (18, 104), (19, 40), (20, 104)],
                )
            };
            plain(args[3], len);
        }
        libc::SYS_quotactl => plain(args[3], quota(args[0] as u32 >> 8)),
        libc::SYS_quotactl_fd => plain(args[3], quota(args[1] as u32 >> 8)),
        // The name of a file system's type.
        libc::SYS_sysfs if args[0] as i32 == 2 => plain(args[2], 64),
        libc::SYS_name_to_handle_at => {
            const AT_HANDLE_MNT_ID_UNIQUE: u64 = 1;
            let len = if args[4] & AT_HANDLE_MNT_ID_UNIQUE != 0 {
                8
            } else {
                4
            };
            if args[3] != 0
                && query
                    .ret
                    .is_none_or(|ret| !is_err(ret) || ret == err(libc::EOVERFLOW))
            {
                found(args[3], len);
            }
        }
        libc::SYS_process_vm_writev if !failed && is_own(args[0] as i32) => {
            query.vectors(args[3], args[4], query.done(), found);
        }
        SYS_GETXATTRAT => {
            // struct xattr_args: where the value goes, its length.
            if let (Some(value), Some(size)) = (query.word(args[4]), query.half(args[4] + 8)) {
                plain(value, query.done().map_or(size, |got| got.min(size)));
            }
        }
        _ => {}
    }
}

const SYS_GETXATTRAT: i64 = 464;

/// What the kernel reads behind the pointer of such a call; 0 if it is none.
pub fn reads(nr: i64, args: &[u64; 6]) -> u64 {
    match nr {
        libc::SYS_ioctl => {
            let request = args[1] as u32;
            ioctl::lookup(request)
                .or_else(|| ioctl::encoded(request))
                .map_or(0, |known| known.reads)
        }
        libc::SYS_fcntl => match args[1] as i32 {
            libc::F_SETLK | libc::F_SETLKW | libc::F_GETLK => 32,
            libc::F_OFD_SETLK | libc::F_OFD_SETLKW | libc::F_OFD_GETLK => 32,
            F_SETOWN_EX | F_SET_RW_HINT | F_SET_FILE_RW_HINT => 8,
            _ => 0,
        },
        _ => 0,
    }
}

/// Options of sockets whose structures point to memory that the kernel writes: netfilter's tables give the old
/// counters back when they are replaced.
pub fn behind_options(query: &Query, found: Found) {
    const COUNTER: u64 = 16;
    let args = query.args;
    let set = match query.call.nr as i64 {
        libc::SYS_setsockopt => true,
        libc::SYS_getsockopt => false,
        _ => return,
    };
    // Where the structure has the number of counters, and a pointer to them.
    let (count, counters) = match (set, args[1] as i32, args[2] as i32) {
        (true, libc::SOL_IP | libc::SOL_IPV6, 64) => (84, 88),
        (true, libc::SOL_IP, 96) => (68, 72),
        (true, libc::SOL_IP, 128) | (false, libc::SOL_IP, 129 | 131) => (96, 104),
        _ => return,
    };
    let at = |offset: u64| args[3].wrapping_add(offset);
    let mut written = |addr: Option<u64>, len: u64| match addr {
        Some(addr) if addr != 0 && len != 0 => found(addr, len),
        _ => {}
    };
    let count = query.half(at(count)).unwrap_or(0);
    written(query.word(at(counters)), count * COUNTER);
    if !set {
        // Bridges' tables: the entries as well.
        written(query.word(at(112)), query.half(at(40)).unwrap_or(0));
    }
}

fn by_command(command: u64, lengths: &[(u64, u64)]) -> u64 {
    // IPC_64 may be set, as in calls of other architectures.
    let found = lengths.iter().find(|(one, _)| *one == command & 0xff);
    found.map_or(0, |(_, len)| *len)
}

const F_GETOWN_EX: i32 = 16;
const F_SETOWN_EX: i32 = 15;
const F_GETOWNER_UIDS: i32 = 17;
const F_GET_RW_HINT: i32 = 1035;
const F_SET_RW_HINT: i32 = 1036;
const F_GET_FILE_RW_HINT: i32 = 1037;
const F_SET_FILE_RW_HINT: i32 = 1038;

/// How much fcntl writes; none for commands that are unknown.
pub fn fcntl_len(command: i32) -> Option<u64> {
    match command {
        libc::F_GETLK | libc::F_OFD_GETLK => Some(32),
        F_GETOWN_EX | F_GETOWNER_UIDS => Some(8),
        F_GET_RW_HINT | F_GET_FILE_RW_HINT => Some(8),
        0..=15 | 37 | 38 | 1024..=1034 | F_SET_RW_HINT | F_SET_FILE_RW_HINT => Some(0),
        _ => None,
    }
}

/// The highest option that was looked at.
const LAST_PRCTL: i32 = 81;
const PR_GET_AUXV: i32 = 0x4155_5856;
const PR_SET_VMA: i32 = 0x5356_4d41;
const PR_SET_PTRACER: i32 = 0x5961_6d61;

pub fn prctl_is_known(option: i32) -> bool {
    (0..=LAST_PRCTL).contains(&option)
        || matches!(option, PR_GET_AUXV | PR_SET_VMA | PR_SET_PTRACER)
}

fn prctl(query: &Query, found: Found) {
    const PR_SCHED_CORE: i32 = 62;
    const PR_GET_SHADOW_STACK_STATUS: i32 = 74;
    let args = query.args;
    match args[0] as i32 {
        libc::PR_GET_PDEATHSIG
        | libc::PR_GET_UNALIGN
        | libc::PR_GET_FPEMU
        | libc::PR_GET_FPEXC
        | libc::PR_GET_ENDIAN
        | libc::PR_GET_TSC
        | libc::PR_GET_CHILD_SUBREAPER => found(args[1], 4),
        libc::PR_GET_NAME => found(args[1], 16),
        libc::PR_GET_TID_ADDRESS => found(args[1], 8),
        PR_SCHED_CORE if args[1] == 0 => found(args[4], 8),
        PR_GET_SHADOW_STACK_STATUS => found(args[1], 8),
        PR_GET_AUXV => {
            let len = query.done().map_or(args[2], |got| got.min(args[2]));
            found(args[1], len);
        }
        _ => {}
    }
}

/// Results that say how much there is; no more than the buffer's length is written.
fn keyctl(query: &Query, found: Found) {
    let args = query.args;
    let up_to = |len: u64| query.done().map_or(len, |got| got.min(len));
    match args[0] as i32 {
        // DESCRIBE, READ, GET_SECURITY, DH_COMPUTE.
        6 | 11 | 17 => found(args[2], up_to(args[3])),
        23 => found(args[2], up_to(args[3])),
        // PKEY_QUERY; then ENCRYPT, DECRYPT and SIGN with the lengths in a structure.
        24 => found(args[4], 64),
        25..=27 => {
            let len = query.half(args[1].wrapping_add(8)).unwrap_or(0);
            found(args[4], up_to(len));
        }
        // CAPABILITIES: the rest of the buffer is cleared.
        31 => found(args[1], args[2]),
        _ => {}
    }
}

/// Emulated, but for those shared between processes.
fn futex(query: &Query, found: Found) {
    let args = query.args;
    match args[1] as i32 & 0x7f {
        libc::FUTEX_LOCK_PI | libc::FUTEX_UNLOCK_PI | libc::FUTEX_TRYLOCK_PI | 13 => {
            found(args[0], 4);
        }
        libc::FUTEX_WAKE_OP => found(args[4], 4),
        _ => {}
    }
}

/// How many semaphores a set has.
fn semaphores(id: i32) -> u64 {
    /// The kernel's bound.
    const MOST: u64 = 32_000;
    let mut about = [0u64; 16];
    // SAFETY: IPC_STAT writes a semid_ds, 104 bytes.
    let ret = unsafe { syscall!(libc::SYS_semctl, id, 0, libc::IPC_STAT, about.as_mut_ptr()) };
    if is_err(ret) {
        MOST
    } else {
        about[10].min(MOST)
    }
}

fn quota(command: u32) -> u64 {
    match command {
        0x80_0004 => 4,
        0x80_0005 => 24,
        0x80_0007 => 72,
        0x80_0009 => 80,
        // XFS: a quota, the next one, states.
        0x5803 | 0x5809 => 112,
        0x5805 => 80,
        0x5808 => 256,
        _ => 0,
    }
}

/// Whether a pid names this process or one of its threads.
pub fn is_own(pid: i32) -> bool {
    // SAFETY: getpid touches no memory.
    i64::from(pid) == unsafe { syscall!(libc::SYS_getpid) }
        || (pid > 0 && std::path::Path::new(&format!("/proc/self/task/{pid}")).exists())
}

const SIOCGIFCONF: u32 = 0x8912;
const FIEMAP: u32 = 0xc020_660b;
const FIDEDUPERANGE: u32 = 0xc018_9436;
const GETFSMAP: u32 = 0xc0c0_583b;
const GET_ENCRYPTION_POLICY_EX: u32 = 0xc009_6616;
const MEASURE_VERITY: u32 = 0xc004_6686;
const SG_IO: u32 = 0x2285;
const PAGEMAP_SCAN: u32 = 0xc060_6610;
const PROCMAP_QUERY: u32 = 0xc068_6611;
const USBDEVFS_CONTROL: u32 = 0xc018_5500;
const USBDEVFS_BULK: u32 = 0xc010_5502;
const USBDEVFS_BULK_64: u32 = 0xc018_5502;
/// Device mapper: all its structures begin with their length.
const DEVICE_MAPPER: u32 = 0xfd;

/// Whether an ioctl's outputs are known to the last byte.
pub fn ioctl_is_known(request: u32) -> bool {
    ioctl::lookup(request).is_some()
        || request >> 8 & 0xff == DEVICE_MAPPER
        || matches!(
            request,
            SIOCGIFCONF
                | FIEMAP
                | FIDEDUPERANGE
                | GETFSMAP
                | GET_ENCRYPTION_POLICY_EX
                | MEASURE_VERITY
                | SG_IO
                | PAGEMAP_SCAN
                | PROCMAP_QUERY
                | USBDEVFS_CONTROL
                | USBDEVFS_BULK
                | USBDEVFS_BULK_64
        )
}

fn ioctl_writes(query: &Query, found: Found) {
    let request = query.args[1] as u32;
    let at = query.args[2];
    // Drivers give structures back also when they fail; those who don't know the request don't.
    let untouched = match query.ret {
        Some(ret) if ret == err(libc::ENOTTY) || ret == err(libc::EBADF) => true,
        Some(ret) => is_err(ret) && ioctl::encoded(request).is_none() && request != SG_IO,
        None => false,
    };
    if at == 0 || untouched {
        return;
    }
    let half = |offset: u64| query.half(at.wrapping_add(offset)).unwrap_or(0);
    let word = |offset: u64| query.word(at.wrapping_add(offset)).unwrap_or(0);
    match request {
        SIOCGIFCONF => {
            found(at, 16);
            if word(8) != 0 && half(0) != 0 {
                found(word(8), half(0));
            }
        }
        FIEMAP => found(at, 32 + half(24).min(1 << 20) * 56),
        FIDEDUPERANGE => found(at, 24 + (half(16) & 0xffff) * 32),
        GETFSMAP => found(at, 192 + half(8).min(1 << 20) * 48),
        GET_ENCRYPTION_POLICY_EX => found(at, 8 + word(0).min(256)),
        MEASURE_VERITY => found(at, 4 + (half(0) >> 16)),
        SG_IO => {
            found(at, 88);
            let (iovecs, len) = (half(8) >> 16, half(12));
            if iovecs != 0 {
                query.vectors(word(16), iovecs, None, found);
            } else if len != 0 && word(16) != 0 {
                found(word(16), len);
            }
            let sense = half(8) >> 8 & 0xff;
            if sense != 0 && word(32) != 0 {
                found(word(32), sense);
            }
        }
        PAGEMAP_SCAN => {
            found(at, 96);
            let regions = query.done().unwrap_or(word(48)).min(word(48).min(1 << 20));
            if word(40) != 0 && regions != 0 {
                found(word(40), regions * 24);
            }
        }
        PROCMAP_QUERY => {
            found(at, 104);
            for (len, to) in [(half(80), word(88)), (half(84), word(96))] {
                if len != 0 && to != 0 {
                    found(to, len);
                }
            }
        }
        USBDEVFS_CONTROL => found(word(16), half(4) >> 16),
        USBDEVFS_BULK | USBDEVFS_BULK_64 => found(word(16), half(4)),
        _ if request >> 8 & 0xff == DEVICE_MAPPER => found(at, half(12).clamp(312, 16 << 20)),
        _ => {
            let known = ioctl::lookup(request).or_else(|| ioctl::encoded(request));
            if let Some(len) = known.map(|known| known.writes).filter(|&len| len != 0) {
                found(at, len);
            }
        }
    }
}

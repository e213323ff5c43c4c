//! Descriptors, files and sockets: each call by its number, with what it is asked and what it writes.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicU8, Ordering};

use crate::export;
use crate::fail;
use crate::format::*;
use crate::input::{Sent, When, ask, noted, replays, sum};
use crate::order::{Ordered, critical};
use crate::real::result;
use crate::sys::nr;
use crate::tape::Entry;
use crate::thread::me;

type P = *mut c_void;

/// Descriptors that are the program's standard output or error, by number.
static OUTLETS: [AtomicU8; 1024] = {
    let mut all = [const { AtomicU8::new(0) }; 1024];
    all[1] = AtomicU8::new(OUT);
    all[2] = AtomicU8::new(ERR);
    all
};

fn outlet(fd: c_int) -> u8 {
    OUTLETS
        .get(fd as usize)
        .map_or(0, |outlet| outlet.load(Ordering::Relaxed))
}

fn set_outlet(fd: i64, value: u8) {
    if let Some(outlet) = OUTLETS.get(fd as usize) {
        outlet.store(value, Ordering::Relaxed);
    }
}

/// Replaying: bytes on their way out, of the call under way.
static mut SHOWN: [(*const u8, usize); 16] = [(core::ptr::null(), 0); 16];
static mut SHOWN_COUNT: usize = 0;

/// Replaying: shows what the program's call put out, as much as it did. In the world's order, so one at a time.
///
/// # Safety
/// What [`out`] was given can be read.
pub unsafe fn show(entry: &Entry) {
    // SAFETY: one thread at a time is in the world's turn.
    unsafe {
        let to = match entry.flags & (OUT | ERR) {
            0 => return,
            OUT => 1,
            _ => 2,
        };
        let mut left = entry.result.max(0) as usize;
        let all = &raw const SHOWN;
        for n in 0..SHOWN_COUNT {
            let (at, len) = (*all)[n];
            let len = len.min(left);
            let mut done = 0;
            while done < len {
                let written = sys!(nr::WRITE, to, at.add(done), len - done);
                if written <= 0 && written != -4 {
                    return;
                }
                done += written.max(0) as usize;
            }
            left -= len;
        }
    }
}

/// A call whose only answer is its result.
macro_rules! simple {
    ($($name:ident($($arg:ident: $type:ty),*; $site:ident = $reg:literal) = $nr:literal, $op:ident, $when:ident, [$($asked:expr),*];)*) => {$(
        export! { fn $name($($arg: $type),*; $site = $reg) -> i64 {
            // SAFETY: the program's own arguments, passed on.
            unsafe {
                let asked = [$nr as u64, $($asked as u64),*];
                result(ask(Op::$op, $site, mixed(&asked), When::$when, None, || sys!($nr, $($arg),*), |_, _| {}))
            }
        }}
    )*};
}

/// Arguments that are compared.
fn mixed(values: &[u64]) -> u64 {
    values.iter().fold(0, |all, &value| {
        (all ^ value)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23)
    })
}

/// A name that is compared.
unsafe fn text(at: *const c_char) -> u64 {
    if at.is_null() {
        return 0;
    }
    // SAFETY: a C string.
    unsafe {
        let bytes = core::ffi::CStr::from_ptr(at).to_bytes();
        sum(1, bytes.as_ptr(), bytes.len())
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Piece {
    at: *mut u8,
    len: usize,
}

/// The parts of an array of pieces that `total` bytes fill.
unsafe fn filled(
    pieces: *const Piece,
    count: usize,
    total: i64,
    each: &mut dyn FnMut(*mut u8, usize),
) {
    let mut left = total.max(0) as usize;
    for n in 0..count {
        // SAFETY: the program's array.
        let piece = unsafe { *pieces.add(n) };
        let len = piece.len.min(left);
        if len == 0 && left == 0 {
            break;
        }
        each(piece.at, len);
        left -= len;
    }
}

// ---- reading

unsafe fn read_by(op: Op, site: usize, asked: u64, to: *mut u8, make: impl FnOnce() -> i64) -> i64 {
    // SAFETY: the program's own arguments, passed on; likewise below.
    unsafe {
        result(ask(
            op,
            site,
            asked,
            When::After,
            None,
            make,
            |got, each| each(to, got.max(0) as usize),
        ))
    }
}

/// `read`, for the library's own streams too.
///
/// # Safety
/// As the call's.
pub unsafe fn read_at(fd: c_int, to: *mut u8, len: usize, site: usize) -> i64 {
    // SAFETY: see above.
    unsafe {
        read_by(
            Op::Read,
            site,
            mixed(&[0, fd as u64, len as u64]),
            to,
            || sys!(0, fd, to, len),
        )
    }
}

export! { fn read(fd: c_int, to: *mut u8, len: usize; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe { read_at(fd, to, len, site) }
}}
export! { fn __read_chk(fd: c_int, to: *mut u8, len: usize, room: usize; site = "r8") -> i64 {
    let _ = room;
    // SAFETY: see above.
    unsafe { read_at(fd, to, len, site) }
}}
unsafe fn pread_at(fd: c_int, to: *mut u8, len: usize, at: i64, site: usize) -> i64 {
    // SAFETY: see above.
    unsafe {
        read_by(
            Op::Read,
            site,
            mixed(&[17, fd as u64, len as u64, at as u64]),
            to,
            || sys!(17, fd, to, len, at),
        )
    }
}
export! { fn pread(fd: c_int, to: *mut u8, len: usize, at: i64; site = "r8") -> i64 {
    // SAFETY: see above.
    unsafe { pread_at(fd, to, len, at, site) }
}}
export! { fn pread64(fd: c_int, to: *mut u8, len: usize, at: i64; site = "r8") -> i64 {
    // SAFETY: see above.
    unsafe { pread_at(fd, to, len, at, site) }
}}
export! { fn readv(fd: c_int, pieces: *const Piece, count: c_int; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe {
        result(ask(Op::Read, site, mixed(&[19, fd as u64, count as u64]), When::After, None, || sys!(19, fd, pieces, count),
            |got, each| filled(pieces, count as usize, got, each)))
    }
}}
export! { fn recv(fd: c_int, to: *mut u8, len: usize, flags: c_int; site = "r8") -> i64 {
    // SAFETY: see above.
    unsafe { read_by(Op::Read, site, mixed(&[45, fd as u64, len as u64]), to, || sys!(45, fd, to, len, flags, 0, 0)) }
}}
/// The length of an address that a call filled: what it says, but not more than there was room for.
unsafe fn address(at: P, len: *mut u32, room: u32, each: &mut dyn FnMut(*mut u8, usize)) {
    // SAFETY: the program's pointers.
    unsafe {
        if !len.is_null() {
            each(len.cast(), 4);
            if !at.is_null() {
                each(at.cast(), (*len).min(room) as usize);
            }
        }
    }
}
unsafe fn room(len: *const u32) -> u32 {
    // SAFETY: the program's pointer.
    unsafe { if len.is_null() { 0 } else { *len } }
}
unsafe fn recvfrom_at(
    fd: c_int,
    to: *mut u8,
    len: usize,
    flags: c_int,
    from: P,
    from_len: *mut u32,
) -> i64 {
    // SAFETY: see above.
    unsafe {
        let room = room(from_len);
        result(ask(
            Op::Read,
            0,
            mixed(&[45, fd as u64, len as u64]),
            When::After,
            None,
            || sys!(45, fd, to, len, flags, from, from_len),
            |got, each| {
                if got >= 0 {
                    each(to, (got as usize).min(len));
                    address(from, from_len, room, each);
                }
            },
        ))
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn recvfrom(
    fd: c_int,
    to: *mut u8,
    len: usize,
    flags: c_int,
    from: P,
    from_len: *mut u32,
) -> i64 {
    // SAFETY: see above.
    unsafe { recvfrom_at(fd, to, len, flags, from, from_len) }
}
#[repr(C)]
struct Message {
    name: P,
    name_len: u32,
    pieces: *mut Piece,
    count: usize,
    control: P,
    control_len: usize,
    flags: c_int,
}
export! { fn recvmsg(fd: c_int, message: *mut Message, flags: c_int; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe {
        let (name_room, control_room) = ((*message).name_len, (*message).control_len);
        result(ask(Op::Read, site, mixed(&[47, fd as u64]), When::After, None, || sys!(47, fd, message, flags),
            |got, each| if got >= 0 {
                each((&raw mut (*message).name_len).cast(), 4);
                each((&raw mut (*message).control_len).cast(), 8);
                each((&raw mut (*message).flags).cast(), 4);
                if !(*message).name.is_null() {
                    each((*message).name.cast(), (*message).name_len.min(name_room) as usize);
                }
                if !(*message).control.is_null() {
                    each((*message).control.cast(), (*message).control_len.min(control_room));
                }
                filled((*message).pieces, (*message).count, got, each);
            }))
    }
}}

// ---- writing

unsafe fn write_by(
    site: usize,
    asked: u64,
    fd: c_int,
    pieces: &[(*const u8, usize)],
    make: impl FnOnce() -> i64,
) -> i64 {
    // SAFETY: see above.
    unsafe {
        if !noted() {
            return result(make());
        }
        let all = pieces
            .iter()
            .fold(fd as u64, |all, &(at, len)| sum(all, at, len));
        let flags = if replays() { 0 } else { outlet(fd) };
        let to = &raw mut SHOWN;
        // The pieces are noted where this call's turn will find them.
        let count = pieces.len().min(16);
        let mut mine = [(core::ptr::null(), 0); 16];
        mine[..count].copy_from_slice(&pieces[..count]);
        let note = move || {
            to.cast::<(*const u8, usize)>()
                .copy_from_nonoverlapping(mine.as_ptr(), count);
            SHOWN_COUNT = count;
        };
        result(ask(
            Op::Write,
            site,
            asked,
            When::Before,
            Some(Sent {
                sum: all as u32,
                flags,
            }),
            make,
            |_, _| {
                if replays() {
                    note();
                }
            },
        ))
    }
}

/// `write`, for the library's own streams too.
///
/// # Safety
/// As the call's.
pub unsafe fn write_at(fd: c_int, from: *const u8, len: usize, site: usize) -> i64 {
    // SAFETY: see above.
    unsafe {
        write_by(
            site,
            mixed(&[1, fd as u64, len as u64]),
            fd,
            &[(from, len)],
            || sys!(1, fd, from, len),
        )
    }
}

export! { fn write(fd: c_int, from: *const u8, len: usize; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe { write_at(fd, from, len, site) }
}}
unsafe fn pwrite_at(fd: c_int, from: *const u8, len: usize, at: i64, site: usize) -> i64 {
    // SAFETY: see above.
    unsafe {
        write_by(
            site,
            mixed(&[18, fd as u64, len as u64, at as u64]),
            fd,
            &[(from, len)],
            || sys!(18, fd, from, len, at),
        )
    }
}
export! { fn pwrite(fd: c_int, from: *const u8, len: usize, at: i64; site = "r8") -> i64 {
    // SAFETY: see above.
    unsafe { pwrite_at(fd, from, len, at, site) }
}}
export! { fn pwrite64(fd: c_int, from: *const u8, len: usize, at: i64; site = "r8") -> i64 {
    // SAFETY: see above.
    unsafe { pwrite_at(fd, from, len, at, site) }
}}
unsafe fn gathered(pieces: *const Piece, count: usize) -> [(*const u8, usize); 16] {
    let mut all = [(core::ptr::null(), 0); 16];
    // SAFETY: the program's array.
    unsafe {
        for (n, slot) in all.iter_mut().enumerate().take(count) {
            *slot = ((*pieces.add(n)).at.cast_const(), (*pieces.add(n)).len);
        }
    }
    all
}
export! { fn writev(fd: c_int, pieces: *const Piece, count: c_int; site = "rcx") -> i64 {
    // SAFETY: see above. More pieces than fit go out by several calls, as a kernel may do it too.
    unsafe {
        let count = (count.max(0) as usize).min(16);
        let all = gathered(pieces, count);
        write_by(site, mixed(&[20, fd as u64, count as u64]), fd, &all[..count], || sys!(20, fd, pieces, count))
    }
}}
export! { fn send(fd: c_int, from: *const u8, len: usize, flags: c_int; site = "r8") -> i64 {
    // SAFETY: see above.
    unsafe { write_by(site, mixed(&[44, fd as u64, len as u64]), fd, &[(from, len)], || sys!(44, fd, from, len, flags, 0, 0)) }
}}
#[unsafe(no_mangle)]
unsafe extern "C" fn sendto(
    fd: c_int,
    from: *const u8,
    len: usize,
    flags: c_int,
    to: P,
    to_len: u32,
) -> i64 {
    // SAFETY: see above.
    unsafe {
        write_by(
            0,
            mixed(&[44, fd as u64, len as u64]),
            fd,
            &[(from, len)],
            || sys!(44, fd, from, len, flags, to, to_len),
        )
    }
}
export! { fn sendmsg(fd: c_int, message: *const Message, flags: c_int; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe {
        let count = (*message).count.min(16);
        let all = gathered((*message).pieces, count);
        write_by(site, mixed(&[46, fd as u64]), fd, &all[..count], || sys!(46, fd, message, flags))
    }
}}
export! { fn sendfile(to: c_int, from: c_int, at: *mut i64, len: usize; site = "r8") -> i64 {
    // SAFETY: see above.
    unsafe { sendfile_at(to, from, at, len, site) }
}}
export! { fn sendfile64(to: c_int, from: c_int, at: *mut i64, len: usize; site = "r8") -> i64 {
    // SAFETY: see above.
    unsafe { sendfile_at(to, from, at, len, site) }
}}
unsafe fn sendfile_at(to: c_int, from: c_int, at: *mut i64, len: usize, site: usize) -> i64 {
    // SAFETY: see above.
    unsafe {
        result(ask(
            Op::File,
            site,
            mixed(&[40, to as u64, from as u64, len as u64]),
            When::Before,
            None,
            || sys!(40, to, from, at, len),
            |_, each| {
                if !at.is_null() {
                    each(at.cast(), 8)
                }
            },
        ))
    }
}

// ---- descriptors

/// Calls that make descriptors: the new one isn't an outlet until it is known to be.
unsafe fn opened(op: Op, site: usize, asked: u64, make: impl FnOnce() -> i64) -> i64 {
    // SAFETY: see above.
    unsafe {
        let fd = ask(op, site, asked, When::After, None, make, |_, _| {});
        set_outlet(fd, 0);
        result(fd)
    }
}

/// `open`, for the library's own streams too.
///
/// # Safety
/// As the call's.
pub unsafe fn open_at(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    site: usize,
) -> i64 {
    // SAFETY: see above.
    unsafe {
        opened(
            Op::Open,
            site,
            mixed(&[257, text(path), flags as u64]),
            || sys!(257, folder, path, flags, mode),
        )
    }
}

const HERE: c_int = -100;

export! { fn open(path: *const c_char, flags: c_int, mode: u32; site = "rcx") -> i64 {
    // SAFETY: see above. Without O_CREAT the kernel ignores the mode.
    unsafe { open_at(HERE, path, flags, mode, site) }
}}
export! { fn open64(path: *const c_char, flags: c_int, mode: u32; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe { open_at(HERE, path, flags, mode, site) }
}}
export! { fn __open_2(path: *const c_char, flags: c_int; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe { open_at(HERE, path, flags, 0, site) }
}}
export! { fn __open64_2(path: *const c_char, flags: c_int; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe { open_at(HERE, path, flags, 0, site) }
}}
export! { fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: u32; site = "r8") -> i64 {
    // SAFETY: see above.
    unsafe { open_at(folder, path, flags, mode, site) }
}}
export! { fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: u32; site = "r8") -> i64 {
    // SAFETY: see above.
    unsafe { open_at(folder, path, flags, mode, site) }
}}
export! { fn __openat_2(folder: c_int, path: *const c_char, flags: c_int; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe { open_at(folder, path, flags, 0, site) }
}}
export! { fn creat(path: *const c_char, mode: u32; site = "rdx") -> i64 {
    // SAFETY: see above. O_CREAT, O_WRONLY, O_TRUNC.
    unsafe { open_at(HERE, path, 0o1101, mode, site) }
}}

/// Is it one of this library's own?
fn own(fd: c_int) -> bool {
    use crate::log::{DATA_FD, LOG_FD};
    fd >= 0 && (fd == LOG_FD.load(Ordering::Relaxed) || fd == DATA_FD.load(Ordering::Relaxed))
}

/// `close`, for the library's own streams too.
///
/// # Safety
/// As the call's.
pub unsafe fn close_at(fd: c_int, site: usize) -> i64 {
    // SAFETY: see above.
    unsafe {
        if own(fd) {
            return result(-9);
        }
        let closed = ask(
            Op::Close,
            site,
            mixed(&[3, fd as u64]),
            When::Before,
            None,
            || sys!(3, fd),
            |_, _| {},
        );
        set_outlet(fd.into(), 0);
        result(closed)
    }
}
export! { fn close(fd: c_int; site = "rsi") -> i64 {
    // SAFETY: see above.
    unsafe { close_at(fd, site) }
}}
unsafe fn duplicate(fd: c_int, site: usize, asked: u64, make: impl FnOnce() -> i64) -> i64 {
    // SAFETY: see above.
    unsafe {
        let new = opened(Op::Open, site, asked, make);
        set_outlet(new, outlet(fd));
        new
    }
}
export! { fn dup(fd: c_int; site = "rsi") -> i64 {
    // SAFETY: see above.
    unsafe { duplicate(fd, site, mixed(&[32, fd as u64]), || sys!(32, fd)) }
}}
export! { fn dup2(fd: c_int, new: c_int; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe {
        if own(new) {
            return result(-9);
        }
        duplicate(fd, site, mixed(&[33, fd as u64, new as u64]), || sys!(33, fd, new))
    }
}}
export! { fn dup3(fd: c_int, new: c_int, flags: c_int; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe {
        if own(new) {
            return result(-9);
        }
        duplicate(fd, site, mixed(&[292, fd as u64, new as u64]), || sys!(292, fd, new, flags))
    }
}}
unsafe fn pair(op: Op, nr: u64, site: usize, to: *mut c_int, make: impl FnOnce() -> i64) -> i64 {
    // SAFETY: see above.
    unsafe {
        result(ask(
            op,
            site,
            mixed(&[nr]),
            When::After,
            None,
            make,
            |made, each| {
                if made == 0 {
                    each(to.cast(), 8)
                }
            },
        ))
    }
}
export! { fn pipe(to: *mut c_int; site = "rsi") -> i64 {
    // SAFETY: see above.
    unsafe { pair(Op::Open, 22, site, to, || sys!(22, to)) }
}}
export! { fn pipe2(to: *mut c_int, flags: c_int; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe { pair(Op::Open, 293, site, to, || sys!(293, to, flags)) }
}}
export! { fn socketpair(domain: c_int, kind: c_int, protocol: c_int, to: *mut c_int; site = "r8") -> i64 {
    // SAFETY: see above.
    unsafe { pair(Op::Socket, 53, site, to, || sys!(53, domain, kind, protocol, to)) }
}}
export! { fn fcntl(fd: c_int, command: c_int, argument: i64; site = "rcx") -> i64 {
    // SAFETY: see above. Locks are structures of 32 bytes, owners of 8.
    unsafe { fcntl_at(fd, command, argument, site) }
}}
export! { fn fcntl64(fd: c_int, command: c_int, argument: i64; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe { fcntl_at(fd, command, argument, site) }
}}
unsafe fn fcntl_at(fd: c_int, command: c_int, argument: i64, site: usize) -> i64 {
    // SAFETY: see above.
    unsafe {
        let asked = mixed(&[72, fd as u64, command as u64]);
        match command {
            0 | 1030 => duplicate(fd, site, asked, || sys!(72, fd, command, argument)),
            _ => {
                let len = match command {
                    5 | 36 => 32,
                    16 => 8,
                    _ => 0,
                };
                result(ask(
                    Op::Control,
                    site,
                    asked,
                    When::After,
                    None,
                    || sys!(72, fd, command, argument),
                    |got, each| {
                        if got >= 0 {
                            each(argument as *mut u8, len)
                        }
                    },
                ))
            }
        }
    }
}
export! { fn ioctl(fd: c_int, request: u64, argument: *mut u8; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe {
        // Terminals and queues; others tell in their number how much they write.
        let len = match request {
            0x5401 => 36,
            0x5413 => 8,
            0x541b | 0x5411 | 0x540f | 0x5429 => 4,
            0x5402..=0x5404 | 0x5414 | 0x5421 | 0x5451 | 0x5450 | 0x5410 | 0x540b | 0x5409 | 0x540a => 0,
            _ if request >> 30 & 3 == 0 && request >> 8 & 0xff != 0x54 => 0,
            _ if request >> 30 & 2 != 0 => (request >> 16 & 0x3fff) as usize,
            _ if request >> 30 & 3 == 1 => 0,
            _ => {
                fail::unseen("the program makes an ioctl that a woven recording doesn't know; record it with: clew record");
                0
            }
        };
        result(ask(Op::Control, site, mixed(&[16, fd as u64, request]), When::After, None, || sys!(16, fd, request, argument),
            |got, each| if got >= 0 { each(argument, len) }))
    }
}}
export! { fn isatty(fd: c_int; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe {
        let mut settings = [0u8; 64];
        let got = ask(Op::Control, site, mixed(&[16, fd as u64]), When::Never, None, || sys!(16, fd, 0x5401, settings.as_mut_ptr()), |_, _| {});
        (result(got) == 0).into()
    }
}}

/// `lseek`, for the library's own streams.
///
/// # Safety
/// As the call's.
pub unsafe fn seek_at(fd: c_int, at: i64, from: c_int) -> i64 {
    // SAFETY: see above.
    unsafe {
        result(ask(
            Op::Seek,
            1,
            mixed(&[8, fd as u64]),
            When::After,
            None,
            || sys!(8, fd, at, from),
            |_, _| {},
        ))
    }
}

/// Is it a terminal? An event, as all input is.
///
/// # Safety
/// By a thread that is noted.
pub unsafe fn is_terminal(fd: c_int) -> bool {
    let mut settings = [0u8; 64];
    // SAFETY: see above.
    unsafe {
        ask(
            Op::Control,
            1,
            0,
            When::Never,
            None,
            || sys!(16, fd, 0x5401, settings.as_mut_ptr()),
            |_, _| {},
        ) == 0
    }
}

// ---- waiting for descriptors

unsafe fn poll_at(
    fds: *mut u8,
    count: u64,
    site: usize,
    nr: u64,
    make: impl FnOnce() -> i64,
) -> i64 {
    // SAFETY: see above. Eight bytes each.
    unsafe {
        result(ask(
            Op::Poll,
            site,
            mixed(&[nr, count]),
            When::After,
            None,
            make,
            |got, each| {
                if got >= 0 {
                    each(fds, count as usize * 8)
                }
            },
        ))
    }
}
export! { fn poll(fds: *mut u8, count: u64, timeout: c_int; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe { poll_at(fds, count, site, 7, || sys!(7, fds, count, timeout)) }
}}
export! { fn __poll_chk(fds: *mut u8, count: u64, timeout: c_int, room: usize; site = "r8") -> i64 {
    let _ = room;
    // SAFETY: see above.
    unsafe { poll_at(fds, count, site, 7, || sys!(7, fds, count, timeout)) }
}}
export! { fn ppoll(fds: *mut u8, count: u64, timeout: *const i64, mask: P; site = "r8") -> i64 {
    // SAFETY: see above. The kernel writes to the time; the C library gives it a copy.
    unsafe {
        let mut time = if timeout.is_null() { [0; 2] } else { [*timeout, *timeout.add(1)] };
        let at = if timeout.is_null() { core::ptr::null_mut() } else { time.as_mut_ptr() };
        poll_at(fds, count, site, 271, || sys!(271, fds, count, at, mask, 8))
    }
}}
export! { fn select(count: c_int, reads: *mut u8, writes: *mut u8, others: *mut u8, timeout: *mut u8; site = "r9") -> i64 {
    // SAFETY: see above. Sets are words of 64 bits.
    unsafe {
        let len = (count.max(0) as usize).div_ceil(64) * 8;
        result(ask(Op::Poll, site, mixed(&[23, count as u64]), When::After, None, || sys!(23, count, reads, writes, others, timeout),
            |got, each| {
                if got >= 0 {
                    for set in [reads, writes, others] {
                        if !set.is_null() {
                            each(set, len);
                        }
                    }
                }
                if !timeout.is_null() {
                    each(timeout, 16);
                }
            }))
    }
}}
#[unsafe(no_mangle)]
unsafe extern "C" fn pselect(
    count: c_int,
    reads: *mut u8,
    writes: *mut u8,
    others: *mut u8,
    timeout: *const i64,
    mask: P,
) -> i64 {
    // SAFETY: see above.
    unsafe {
        let len = (count.max(0) as usize).div_ceil(64) * 8;
        let mut time = if timeout.is_null() {
            [0; 2]
        } else {
            [*timeout, *timeout.add(1)]
        };
        let at = if timeout.is_null() {
            core::ptr::null_mut()
        } else {
            time.as_mut_ptr()
        };
        let set = [mask as usize, 8];
        result(ask(
            Op::Poll,
            0,
            mixed(&[270, count as u64]),
            When::After,
            None,
            || sys!(270, count, reads, writes, others, at, set.as_ptr()),
            |got, each| {
                if got >= 0 {
                    for set in [reads, writes, others] {
                        if !set.is_null() {
                            each(set, len);
                        }
                    }
                }
            },
        ))
    }
}
export! { fn epoll_wait(fd: c_int, events: *mut u8, most: c_int, timeout: c_int; site = "r8") -> i64 {
    // SAFETY: see above. Twelve bytes each.
    unsafe {
        result(ask(Op::Poll, site, mixed(&[232, fd as u64]), When::After, None, || sys!(232, fd, events, most, timeout),
            |got, each| each(events, got.max(0) as usize * 12)))
    }
}}
export! { fn epoll_pwait(fd: c_int, events: *mut u8, most: c_int, timeout: c_int, mask: P; site = "r9") -> i64 {
    // SAFETY: see above.
    unsafe {
        result(ask(Op::Poll, site, mixed(&[281, fd as u64]), When::After, None, || sys!(281, fd, events, most, timeout, mask, 8),
            |got, each| each(events, got.max(0) as usize * 12)))
    }
}}

// ---- sockets

unsafe fn accept_at(fd: c_int, at: P, len: *mut u32, flags: c_int, site: usize) -> i64 {
    // SAFETY: see above.
    unsafe {
        let room = room(len);
        result(ask(
            Op::Socket,
            site,
            mixed(&[288, fd as u64]),
            When::After,
            None,
            || sys!(288, fd, at, len, flags),
            |got, each| {
                if got >= 0 {
                    address(at, len, room, each)
                }
            },
        ))
    }
}
export! { fn accept(fd: c_int, at: P, len: *mut u32; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe { accept_at(fd, at, len, 0, site) }
}}
export! { fn accept4(fd: c_int, at: P, len: *mut u32, flags: c_int; site = "r8") -> i64 {
    // SAFETY: see above.
    unsafe { accept_at(fd, at, len, flags, site) }
}}
unsafe fn name_at(nr: i64, fd: c_int, at: P, len: *mut u32, site: usize) -> i64 {
    // SAFETY: see above.
    unsafe {
        let room = room(len);
        result(ask(
            Op::Socket,
            site,
            mixed(&[nr as u64, fd as u64]),
            When::After,
            None,
            || sys!(nr, fd, at, len),
            |got, each| {
                if got >= 0 {
                    address(at, len, room, each)
                }
            },
        ))
    }
}
export! { fn getsockname(fd: c_int, at: P, len: *mut u32; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe { name_at(51, fd, at, len, site) }
}}
export! { fn getpeername(fd: c_int, at: P, len: *mut u32; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe { name_at(52, fd, at, len, site) }
}}
export! { fn getsockopt(fd: c_int, level: c_int, name: c_int, value: P, len: *mut u32; site = "r9") -> i64 {
    // SAFETY: see above.
    unsafe {
        let room = room(len);
        result(ask(Op::Socket, site, mixed(&[55, fd as u64, name as u64]), When::After, None, || sys!(55, fd, level, name, value, len),
            |got, each| if got >= 0 { address(value, len, room, each) }))
    }
}}

simple! {
    socket(domain: c_int, kind: c_int, protocol: c_int; site = "rcx") = 41, Socket, After, [domain, kind];
    connect(fd: c_int, at: P, len: u32; site = "rcx") = 42, Socket, Before, [fd];
    bind(fd: c_int, at: P, len: u32; site = "rcx") = 49, Socket, Before, [fd];
    listen(fd: c_int, most: c_int; site = "rdx") = 50, Socket, Before, [fd];
    shutdown(fd: c_int, how: c_int; site = "rdx") = 48, Socket, Before, [fd];
    setsockopt(fd: c_int, level: c_int, name: c_int, value: P, len: u32; site = "r9") = 54, Socket, Before, [fd, name];
    epoll_create1(flags: c_int; site = "rsi") = 291, Open, After, [];
    epoll_create(size: c_int; site = "rsi") = 213, Open, After, [];
    epoll_ctl(fd: c_int, what: c_int, on: c_int, event: P; site = "r8") = 233, Poll, Before, [fd, what, on];
    eventfd(value: u32, flags: c_int; site = "rdx") = 290, Open, After, [];
    timerfd_create(clock: c_int, flags: c_int; site = "rdx") = 283, Open, After, [];
    inotify_init1(flags: c_int; site = "rsi") = 294, Open, After, [];
    memfd_create(name: *const c_char, flags: u32; site = "rdx") = 319, Open, After, [];
    lseek(fd: c_int, at: i64, from: c_int; site = "rcx") = 8, Seek, After, [fd, at, from];
    lseek64(fd: c_int, at: i64, from: c_int; site = "rcx") = 8, Seek, After, [fd, at, from];
    ftruncate(fd: c_int, len: i64; site = "rdx") = 77, File, Before, [fd, len];
    ftruncate64(fd: c_int, len: i64; site = "rdx") = 77, File, Before, [fd, len];
    fsync(fd: c_int; site = "rsi") = 74, File, Before, [fd];
    fdatasync(fd: c_int; site = "rsi") = 75, File, Before, [fd];
    fchmod(fd: c_int, mode: u32; site = "rdx") = 91, File, Before, [fd, mode];
    fchown(fd: c_int, user: u32, group: u32; site = "rcx") = 93, File, Before, [fd];
    fchdir(fd: c_int; site = "rsi") = 81, File, Before, [fd];
    flock(fd: c_int, how: c_int; site = "rdx") = 73, File, After, [fd, how];
    umask(mask: u32; site = "rsi") = 95, File, After, [mask];
    access(path: *const c_char, mode: c_int; site = "rdx") = 21, File, After, [text(path), mode];
    unlink(path: *const c_char; site = "rsi") = 87, File, Before, [text(path)];
    unlinkat(folder: c_int, path: *const c_char, flags: c_int; site = "rcx") = 263, File, Before, [text(path)];
    rename(from: *const c_char, to: *const c_char; site = "rdx") = 82, File, Before, [text(from), text(to)];
    renameat(a: c_int, from: *const c_char, b: c_int, to: *const c_char; site = "r8") = 264, File, Before, [text(from), text(to)];
    link(from: *const c_char, to: *const c_char; site = "rdx") = 86, File, Before, [text(from), text(to)];
    symlink(from: *const c_char, to: *const c_char; site = "rdx") = 88, File, Before, [text(from), text(to)];
    mkdir(path: *const c_char, mode: u32; site = "rdx") = 83, File, Before, [text(path)];
    rmdir(path: *const c_char; site = "rsi") = 84, File, Before, [text(path)];
    chdir(path: *const c_char; site = "rsi") = 80, File, Before, [text(path)];
    chmod(path: *const c_char, mode: u32; site = "rdx") = 90, File, Before, [text(path), mode];
    chown(path: *const c_char, user: u32, group: u32; site = "rcx") = 92, File, Before, [text(path)];
    lchown(path: *const c_char, user: u32, group: u32; site = "rcx") = 94, File, Before, [text(path)];
    truncate(path: *const c_char, len: i64; site = "rdx") = 76, File, Before, [text(path), len];
    utimensat(folder: c_int, path: *const c_char, times: P, flags: c_int; site = "r8") = 280, File, Before, [text(path)];
    fallocate(fd: c_int, mode: c_int, at: i64, len: i64; site = "r8") = 285, File, Before, [fd, at, len];
    fallocate64(fd: c_int, mode: c_int, at: i64, len: i64; site = "r8") = 285, File, Before, [fd, at, len];
}

export! { fn faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int; site = "r8") -> i64 {
    // SAFETY: see above.
    unsafe { access_at(folder, path, mode, flags, site) }
}}
export! { fn euidaccess(path: *const c_char, mode: c_int; site = "rdx") -> i64 {
    // SAFETY: see above. 0x200: by the effective user.
    unsafe { access_at(HERE, path, mode, 0x200, site) }
}}
export! { fn eaccess(path: *const c_char, mode: c_int; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe { access_at(HERE, path, mode, 0x200, site) }
}}
unsafe fn access_at(
    folder: c_int,
    path: *const c_char,
    mode: c_int,
    flags: c_int,
    site: usize,
) -> i64 {
    // SAFETY: see above. Kernels before 5.8 know no flags.
    unsafe {
        result(ask(
            Op::File,
            site,
            mixed(&[439, text(path), mode as u64]),
            When::After,
            None,
            || match sys!(439, folder, path, mode, flags) {
                -38 => sys!(269, folder, path, mode),
                answer => answer,
            },
            |_, _| {},
        ))
    }
}
export! { fn futimens(fd: c_int, times: P; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe { result(ask(Op::File, site, mixed(&[280, fd as u64]), When::Before, None, || sys!(280, fd, 0, times, 0), |_, _| {})) }
}}
export! { fn futimes(fd: c_int, times: *const i64; site = "rdx") -> i64 {
    // SAFETY: see above. Microseconds become nanoseconds.
    unsafe {
        let mut exact = [0i64; 4];
        if !times.is_null() {
            exact = [*times, *times.add(1) * 1000, *times.add(2), *times.add(3) * 1000];
        }
        let at = if times.is_null() { core::ptr::null() } else { exact.as_ptr() };
        result(ask(Op::File, site, mixed(&[280, fd as u64]), When::Before, None, || sys!(280, fd, 0, at, 0), |_, _| {}))
    }
}}
export! { fn utimes(path: *const c_char, times: P; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe { result(ask(Op::File, site, mixed(&[235, text(path)]), When::Before, None, || sys!(235, path, times), |_, _| {})) }
}}
export! { fn utime(path: *const c_char, times: P; site = "rdx") -> i64 {
    // SAFETY: see above.
    unsafe { result(ask(Op::File, site, mixed(&[132, text(path)]), When::Before, None, || sys!(132, path, times), |_, _| {})) }
}}
export! { fn posix_fadvise(fd: c_int, at: i64, len: i64, how: c_int; site = "r8") -> c_int {
    // SAFETY: see above. The error is the result.
    unsafe { -ask(Op::File, site, mixed(&[221, fd as u64]), When::After, None, || sys!(221, fd, at, len, how), |_, _| {}) as c_int }
}}
export! { fn posix_fadvise64(fd: c_int, at: i64, len: i64, how: c_int; site = "r8") -> c_int {
    // SAFETY: see above.
    unsafe { -ask(Op::File, site, mixed(&[221, fd as u64]), When::After, None, || sys!(221, fd, at, len, how), |_, _| {}) as c_int }
}}

// ---- what is known of files

unsafe fn stat_at(
    folder: c_int,
    path: *const c_char,
    to: *mut u8,
    flags: c_int,
    site: usize,
) -> i64 {
    // SAFETY: see above.
    unsafe {
        result(ask(
            Op::Stat,
            site,
            mixed(&[262, text(path)]),
            When::After,
            None,
            || sys!(262, folder, path, to, flags),
            |got, each| {
                if got == 0 {
                    each(to, 144)
                }
            },
        ))
    }
}
const EMPTY: c_int = 0x1000;
const NO_FOLLOW: c_int = 0x100;
macro_rules! stats {
    ($($stat:ident $fstat:ident $lstat:ident $fstatat:ident $old:ident $old_f:ident $old_l:ident;)*) => {$(
        export! { fn $stat(path: *const c_char, to: *mut u8; site = "rdx") -> i64 {
            // SAFETY: see above.
            unsafe { stat_at(HERE, path, to, 0, site) }
        }}
        export! { fn $lstat(path: *const c_char, to: *mut u8; site = "rdx") -> i64 {
            // SAFETY: see above.
            unsafe { stat_at(HERE, path, to, NO_FOLLOW, site) }
        }}
        export! { fn $fstat(fd: c_int, to: *mut u8; site = "rdx") -> i64 {
            // SAFETY: see above.
            unsafe { stat_at(fd, c"".as_ptr(), to, EMPTY, site) }
        }}
        export! { fn $fstatat(folder: c_int, path: *const c_char, to: *mut u8, flags: c_int; site = "r8") -> i64 {
            // SAFETY: see above.
            unsafe { stat_at(folder, path, to, flags, site) }
        }}
        export! { fn $old(version: c_int, path: *const c_char, to: *mut u8; site = "rcx") -> i64 {
            let _ = version;
            // SAFETY: see above.
            unsafe { stat_at(HERE, path, to, 0, site) }
        }}
        export! { fn $old_l(version: c_int, path: *const c_char, to: *mut u8; site = "rcx") -> i64 {
            let _ = version;
            // SAFETY: see above.
            unsafe { stat_at(HERE, path, to, NO_FOLLOW, site) }
        }}
        export! { fn $old_f(version: c_int, fd: c_int, to: *mut u8; site = "rcx") -> i64 {
            let _ = version;
            // SAFETY: see above.
            unsafe { stat_at(fd, c"".as_ptr(), to, EMPTY, site) }
        }}
    )*};
}
stats! {
    stat fstat lstat fstatat __xstat __fxstat __lxstat;
    stat64 fstat64 lstat64 fstatat64 __xstat64 __fxstat64 __lxstat64;
}
export! { fn statx(folder: c_int, path: *const c_char, flags: c_int, mask: u32, to: *mut u8; site = "r9") -> i64 {
    // SAFETY: see above.
    unsafe {
        result(ask(Op::Stat, site, mixed(&[332, text(path)]), When::After, None, || sys!(332, folder, path, flags, mask, to),
            |got, each| if got == 0 { each(to, 256) }))
    }
}}
export! { fn readlink(path: *const c_char, to: *mut u8, len: usize; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe {
        result(ask(Op::Stat, site, mixed(&[89, text(path)]), When::After, None, || sys!(89, path, to, len),
            |got, each| each(to, got.max(0) as usize)))
    }
}}
export! { fn getdents64(fd: c_int, to: *mut u8, len: usize; site = "rcx") -> i64 {
    // SAFETY: see above.
    unsafe { dents(fd, to, len, site) }
}}
unsafe fn dents(fd: c_int, to: *mut u8, len: usize, site: usize) -> i64 {
    // SAFETY: see above.
    unsafe {
        result(ask(
            Op::Folder,
            site,
            mixed(&[217, fd as u64]),
            When::After,
            None,
            || sys!(217, fd, to, len),
            |got, each| each(to, got.max(0) as usize),
        ))
    }
}
export! { fn getcwd(to: *mut u8, len: usize; site = "rdx") -> *mut u8 {
    // SAFETY: see above. Without room, the C library makes some.
    unsafe {
        unsafe extern "C" { fn malloc(size: usize) -> *mut u8; }
        let (to, len) = if to.is_null() { (malloc(len.max(4096)), len.max(4096)) } else { (to, len) };
        let got = ask(Op::File, site, mixed(&[79]), When::After, None, || sys!(79, to, len), |got, each| each(to, got.max(0) as usize));
        if result(got) < 0 { core::ptr::null_mut() } else { to }
    }
}}

// ---- folders, by getdents

#[repr(C)]
struct Folder {
    fd: c_int,
    at: usize,
    len: usize,
    told: i64,
    entries: [u8; 32768],
}

unsafe fn folder_of(fd: i64) -> *mut Folder {
    unsafe extern "C" {
        fn malloc(size: usize) -> *mut u8;
    }
    // SAFETY: memory of that size.
    unsafe {
        if fd < 0 {
            return core::ptr::null_mut();
        }
        let folder = malloc(size_of::<Folder>()).cast::<Folder>();
        if !folder.is_null() {
            ((*folder).fd, (*folder).at, (*folder).len, (*folder).told) = (fd as c_int, 0, 0, 0);
        }
        folder
    }
}
export! { fn opendir(path: *const c_char; site = "rsi") -> *mut Folder {
    // SAFETY: see above. O_DIRECTORY, O_CLOEXEC, O_NONBLOCK.
    unsafe { folder_of(open_at(HERE, path, 0o2204000, 0, site)) }
}}
export! { fn fdopendir(fd: c_int; site = "rsi") -> *mut Folder {
    // SAFETY: see above.
    unsafe { folder_of(fd.into()) }
}}
unsafe fn next_entry(folder: *mut Folder, site: usize) -> *mut u8 {
    // SAFETY: a folder that was opened here.
    unsafe {
        if (*folder).at >= (*folder).len {
            let to = (&raw mut (*folder).entries).cast::<u8>();
            let got = dents((*folder).fd, to, 32768, site);
            if got <= 0 {
                return core::ptr::null_mut();
            }
            ((*folder).at, (*folder).len) = (0, got as usize);
        }
        let entry = (&raw mut (*folder).entries).cast::<u8>().add((*folder).at);
        (*folder).at += entry.add(16).cast::<u16>().read_unaligned() as usize;
        (*folder).told = entry.add(8).cast::<i64>().read_unaligned();
        entry
    }
}
export! { fn readdir(folder: *mut Folder; site = "rsi") -> *mut u8 {
    // SAFETY: see above.
    unsafe { next_entry(folder, site) }
}}
export! { fn readdir64(folder: *mut Folder; site = "rsi") -> *mut u8 {
    // SAFETY: see above.
    unsafe { next_entry(folder, site) }
}}
export! { fn closedir(folder: *mut Folder; site = "rsi") -> i64 {
    unsafe extern "C" { fn free(memory: *mut u8); }
    // SAFETY: see above.
    unsafe {
        let fd = (*folder).fd;
        free(folder.cast());
        close_at(fd, site)
    }
}}
export! { fn dirfd(folder: *mut Folder; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { (*folder).fd }
}}
export! { fn telldir(folder: *mut Folder; site = "rsi") -> i64 {
    // SAFETY: see above.
    unsafe { (*folder).told }
}}
export! { fn rewinddir(folder: *mut Folder; site = "rsi") -> () {
    // SAFETY: see above.
    unsafe {
        let fd = (*folder).fd;
        ask(Op::Seek, site, mixed(&[8, fd as u64]), When::After, None, || sys!(8, fd, 0, 0), |_, _| {});
        ((*folder).at, (*folder).len, (*folder).told) = (0, 0, 0);
    }
}}

// ---- memory

/// Where mappings are, in every run.
pub const MAPS: (usize, usize) = (0x3600_0000_0000, 0x3e00_0000_0000);
static mut SPACE: Ordered = Ordered::new();
static mut NEXT_MAP: usize = MAPS.0;

const FIXED: c_int = 0x10;
const ANONYMOUS: c_int = 0x20;

unsafe fn place(len: usize) -> usize {
    // SAFETY: in the space's order.
    unsafe {
        critical(me(), &raw mut SPACE, Op::Map, || {
            let at = NEXT_MAP;
            // A page between them: what runs out of one doesn't run into the next.
            let len = len.next_multiple_of(4096) + 4096;
            if at + len > MAPS.1 {
                fail::stop(
                    "the program has used up the addresses that a woven recording has for mappings",
                );
            }
            NEXT_MAP += len;
            at
        })
    }
}

unsafe fn map_at(
    at: usize,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> i64 {
    // SAFETY: see above.
    unsafe {
        if !noted() || len == 0 {
            return result(sys!(9, at, len, protection, flags, fd, offset));
        }
        let (at, flags) = if flags & FIXED != 0 {
            (at, flags)
        } else {
            (place(len), flags & !0x100000 | FIXED)
        };
        if flags & ANONYMOUS != 0 {
            return result(sys!(9, at, len, protection, flags, fd, offset));
        }
        // A file's contents are input. They are copied once, when it is mapped.
        let mut have = 0usize;
        if !replays() {
            let mut about = [0i64; 18];
            if sys!(262, fd, c"".as_ptr(), about.as_mut_ptr(), EMPTY) == 0 {
                have = (about[6] - offset).clamp(0, len as i64) as usize;
            }
            if flags & 1 != 0 && protection & 2 != 0 {
                fail::unseen(
                    "the program writes to files that it maps, which a woven recording doesn't compare; record it with: clew record",
                );
            }
        }
        let mut size = have as u64;
        let counted = &raw mut size;
        let mapped = ask(
            Op::Map,
            0,
            mixed(&[9, fd as u64, len as u64, offset as u64]),
            When::After,
            None,
            || {
                let at = sys!(9, at, len, protection | 1, flags, fd, offset);
                if at > 0 && protection & 1 == 0 {
                    sys!(10, at, len, protection);
                }
                at
            },
            |mapped, each| {
                if mapped > 0 {
                    each(counted.cast(), 8);
                    if replays() {
                        sys!(9, at, len, 3, 0x32, -1, 0);
                    }
                    if protection & 1 != 0 {
                        each(at as *mut u8, *counted as usize);
                    }
                    if replays() && protection != 3 {
                        sys!(10, at, len, protection & 3);
                    }
                }
            },
        );
        result(mapped)
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: usize,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> i64 {
    // SAFETY: see above.
    unsafe { map_at(at, len, protection, flags, fd, offset) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    at: usize,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> i64 {
    // SAFETY: see above.
    unsafe { map_at(at, len, protection, flags, fd, offset) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    old: usize,
    old_len: usize,
    len: usize,
    flags: c_int,
    new: usize,
) -> i64 {
    // SAFETY: see above. Where the kernel may choose a place, it is ours that is taken.
    unsafe {
        if noted() && flags & 3 == 1 && len > old_len {
            let new = place(len);
            return result(sys!(25, old, old_len, len, 3, new));
        }
        result(sys!(25, old, old_len, len, flags, new))
    }
}

//! Memory that is written through the kernel's back doors: `/proc/PID/mem` and `process_vm_writev`.
//!
//! In: a call that writes to such a descriptor, or into a process. Out: for the process's own memory the
//! answer, worked out by the engine, so that recordings and translations know of it; for another recorded
//! process an error, with a word about it, since the other's recording couldn't say when it happened;
//! otherwise nothing, and the kernel answers.

use std::ffi::CString;

use super::procfs::descriptor_path;
use super::table::{Args, Call};
use super::{Outcome, pass_nr, sent};
use crate::executor::Executor;
use crate::guest::access;
use crate::layout;
use crate::memory::govern;
use crate::sys::{err, is_err};
use crate::syscall;

/// The kernel copies by pages.
const PIECE: u64 = 4096;
const PROC: u64 = 0x9fa0;

/// Whose memory a descriptor of `/proc/PID/mem` leads to.
enum Whose {
    Own,
    Recorded,
    /// Of a process that has nothing to do with clew.
    Other,
}

/// A descriptor was opened for writing: `Err` if the recording can't have it.
pub fn opened(ex: &mut Executor, flags: u64, outcome: Outcome) -> Outcome {
    let Outcome::Return(fd @ 0..) = outcome else {
        return outcome;
    };
    if flags as i32 & (libc::O_ACCMODE | libc::O_PATH) == libc::O_RDONLY {
        return outcome;
    }
    ex.memory.opened_for_writing(fd as i32);
    match whose(fd as i32) {
        None => {}
        Some(Whose::Recorded) if ex.recording() => {
            super::descriptors::close(fd as i32);
            refuse(ex, "opening another recorded process's memory for writing");
            return Outcome::Return(err(libc::EACCES));
        }
        Some(_) => ex.kernel.own.memory_files = true,
    }
    outcome
}

/// Descriptors come from elsewhere: among them may be such ones.
pub fn descriptors_come(ex: &mut Executor, call: &Call, args: &Args) {
    const CONTROL: u64 = 32;
    let may = match call.nr as i64 {
        libc::SYS_recvmsg => access::read::<u64>(args[1] + CONTROL) != Ok(0),
        libc::SYS_recvmmsg | libc::SYS_pidfd_getfd => true,
        _ => return,
    };
    ex.kernel.own.memory_files |= may;
}

/// Answers a call that writes to a process's memory by descriptor; `None` if it is none.
pub fn write(ex: &mut Executor, call: &Call, args: &Args) -> Option<Outcome> {
    let fd = args[0] as i32;
    let at = match call.nr as i64 {
        libc::SYS_write | libc::SYS_writev => None,
        libc::SYS_pwrite64 | libc::SYS_pwritev => Some(args[3]),
        libc::SYS_pwritev2 if args[5] == 0 => Some(args[3]).filter(|&at| at != u64::MAX),
        _ => return None,
    };
    if ex.kernel.own.hidden.contains(fd) {
        return None;
    }
    match whose(fd)? {
        Whose::Own if is_writable(fd) && is_alive(fd, ex.gs.regs.rip) => {}
        Whose::Recorded if ex.recording() => {
            refuse(ex, "writing to another recorded process's memory");
            return Some(Outcome::Return(err(libc::EIO)));
        }
        _ => return None,
    }
    let from = sent::written_bytes(call, args, i64::MAX).unwrap_or_default();
    let start = match at {
        Some(at) => at,
        // SAFETY: asks for the position; lseek touches no memory.
        None => unsafe { syscall!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) as u64 },
    };
    let (done, errno) = copy(ex, &from, start);
    if at.is_none() {
        // SAFETY: as above.
        unsafe {
            syscall!(
                libc::SYS_lseek,
                fd,
                start.wrapping_add(done),
                libc::SEEK_SET
            )
        };
    }
    Some(Outcome::Return(match errno {
        Some(errno) if done == 0 => err(errno),
        _ => done as i64,
    }))
}

/// Copies guest memory to guest memory, whatever the rights are at its goal: how much, and what ended it.
fn copy(ex: &mut Executor, from: &[(u64, u64)], start: u64) -> (u64, Option<i32>) {
    let mut buffer = [0; PIECE as usize];
    let mut done = 0;
    for &(addr, len) in from {
        let mut at = 0;
        while at < len {
            let to = start.wrapping_add(done);
            let take = (len - at).min(PIECE - to % PIECE);
            let piece = &mut buffer[..take as usize];
            if access::read_bytes(addr.wrapping_add(at), piece).is_err() {
                return (done, Some(libc::EFAULT));
            }
            if !force(ex, to, piece) {
                return (done, Some(libc::EIO));
            }
            at += take;
            done += take;
        }
    }
    (done, None)
}

/// Writes to one page of guest memory as a debugger would: private pages also where the guest itself may not.
fn force(ex: &mut Executor, addr: u64, bytes: &[u8]) -> bool {
    if !layout::is_guest(addr, bytes.len() as u64) {
        return false;
    }
    let Some(closed) = ex.memory.open_for_poke(addr) else {
        return false;
    };
    let written = ex.write_guest(addr, bytes).is_ok();
    if let Some(closed) = closed {
        ex.memory.close_after_poke(closed);
    }
    written
}

pub fn process_vm_writev(ex: &mut Executor, a: Args) -> Outcome {
    const NR: i64 = libc::SYS_process_vm_writev;
    let pid = a[0] as i32;
    if !super::requests::is_own(pid) {
        if ex.recording() && is_recorded(&format!("/proc/{pid}")) {
            refuse(ex, "process_vm_writev into another recorded process");
            return Outcome::Return(err(libc::EPERM));
        }
        return pass_nr(ex, NR, a);
    }
    let mut goals = Vec::new();
    for k in 0..a[4].min(libc::UIO_MAXIOV as u64) {
        let one = access::read::<[u64; 2]>(a[3].wrapping_add(k * 16));
        // What isn't the guest's isn't there.
        let Some([addr, len]) = one.ok().filter(|[addr, len]| layout::is_guest(*addr, *len)) else {
            break;
        };
        goals.push((addr, len));
    }
    let mut own = a;
    if a[4] <= libc::UIO_MAXIOV as u64 && goals.len() as u64 != a[4] {
        if goals.is_empty() {
            return Outcome::Return(err(libc::EFAULT));
        }
        own[4] = goals.len() as u64;
    }
    govern::acquire_all(&goals);
    pass_nr(ex, NR, own)
}

fn refuse(ex: &mut Executor, what: &str) {
    ex.say(format!("{what} can't be recorded and fails"));
}

/// Whose memory `fd` leads to; `None` if it is something else.
fn whose(fd: i32) -> Option<Whose> {
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: fstatfs writes one statfs, for which there is room; zeroes are a valid one otherwise.
    let kind = unsafe {
        syscall!(libc::SYS_fstatfs, fd, stat.as_mut_ptr());
        stat.assume_init().f_type
    };
    if kind != PROC {
        return None;
    }
    let path = String::from_utf8(descriptor_path(fd)).ok()?;
    let folder = path.strip_suffix("/mem")?;
    let pid: i32 = folder.rsplit('/').next()?.parse().ok()?;
    Some(if super::requests::is_own(pid) {
        Whose::Own
    } else if is_recorded(folder) {
        Whose::Recorded
    } else {
        Whose::Other
    })
}

/// Whether the process with that folder in `/proc` runs under clew.
fn is_recorded(folder: &str) -> bool {
    let exe = |folder: &str| {
        let path = CString::new(format!("{folder}/exe")).ok()?;
        let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: a path that ends with NUL, and room for one stat.
        unsafe {
            let ret = syscall!(libc::SYS_stat, path.as_ptr(), stat.as_mut_ptr());
            let stat = stat.assume_init();
            (!is_err(ret)).then_some((stat.st_dev, stat.st_ino))
        }
    };
    exe(folder).is_some_and(|theirs| Some(theirs) == exe("/proc/self"))
}

fn flags(fd: i32) -> i32 {
    // SAFETY: F_GETFL touches no memory.
    unsafe { syscall!(libc::SYS_fcntl, fd, libc::F_GETFL) as i32 }
}

fn is_writable(fd: i32) -> bool {
    let flags = flags(fd);
    flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// A descriptor that was open at an exec leads to memory that is gone: nothing can be read there.
fn is_alive(fd: i32, mapped: u64) -> bool {
    if flags(fd) & libc::O_ACCMODE == libc::O_WRONLY {
        return true;
    }
    let mut byte = 0u8;
    // SAFETY: one byte of room.
    unsafe { syscall!(libc::SYS_pread64, fd, &raw mut byte, 1, mapped) == 1 }
}

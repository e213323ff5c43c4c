//! The engine's access to guest memory: guest addresses in, values or a fault out.
//!
//! A guest may pass any number as a pointer. Nothing in the engine follows one except through
//! here: addresses outside the guest's ranges are refused, and the rest is copied by a routine
//! that turns a page fault into an error.

use crate::executor::Executor;
use crate::host::copy;
use crate::layout;
use crate::memory::govern;

/// The guest's memory isn't accessible there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

impl Fault {
    pub const ERRNO: i64 = crate::sys::err(libc::EFAULT);
}

/// Values that may be read from and written to guest memory bit by bit.
///
/// # Safety
/// Every bit pattern must be a valid value, and there must be no padding.
pub unsafe trait Plain: Copy {}
macro_rules! plain {
    ($($t:ty),*) => { $(
        // SAFETY: an integer, or something made of integers without gaps.
        unsafe impl Plain for $t {}
    )* };
}
plain!(u8, u16, u32, u64, i8, i16, i32, i64, usize);
plain!(
    crate::host::sigset::SigSet,
    crate::host::handlers::Action,
    crate::host::siginfo::Siginfo
);
// SAFETY: an array has no padding of its own.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

pub fn read<T: Plain>(addr: u64) -> Result<T, Fault> {
    let mut value = std::mem::MaybeUninit::<T>::uninit();
    let len = size_of::<T>();
    check(addr, len)?;
    // SAFETY: `value` has room; every bit pattern is a `T`, and all bytes were copied.
    unsafe {
        if copy_guest(value.as_mut_ptr().cast(), addr as *const u8, len, addr) {
            Ok(value.assume_init())
        } else {
            Err(Fault)
        }
    }
}

pub fn write<T: Plain>(addr: u64, value: &T) -> Result<(), Fault> {
    check(addr, size_of::<T>())?;
    note_write(addr, size_of::<T>() as u64);
    // SAFETY: reads `value`; the guest's memory is the guest's to have written.
    let done = unsafe {
        copy_guest(
            addr as *mut u8,
            std::ptr::from_ref(value).cast(),
            size_of::<T>(),
            addr,
        )
    };
    if done { Ok(()) } else { Err(Fault) }
}

pub fn read_bytes(addr: u64, into: &mut [u8]) -> Result<(), Fault> {
    if into.is_empty() {
        return Ok(());
    }
    check(addr, into.len())?;
    // SAFETY: `into` has room.
    let done = unsafe { copy_guest(into.as_mut_ptr(), addr as *const u8, into.len(), addr) };
    if done { Ok(()) } else { Err(Fault) }
}

pub fn write_bytes(addr: u64, from: &[u8]) -> Result<(), Fault> {
    if from.is_empty() {
        return Ok(());
    }
    check(addr, from.len())?;
    note_write(addr, from.len() as u64);
    // SAFETY: as in `write`.
    let done = unsafe { copy_guest(addr as *mut u8, from.as_ptr(), from.len(), addr) };
    if done { Ok(()) } else { Err(Fault) }
}

/// Copies from or to guest memory at `guest`; what is another process's at the moment is acquired first.
///
/// # Safety
/// As for [`copy::copy`].
unsafe fn copy_guest(to: *mut u8, from: *const u8, len: usize, guest: u64) -> bool {
    // SAFETY: the caller vouches for both sides.
    unsafe {
        copy::copy(to, from, len)
            || (govern::touch(guest, len as u64) && copy_guest(to, from, len, guest))
    }
}

/// A string up to (without) its NUL, at most `max` bytes of it.
pub fn read_cstr(addr: u64, max: usize) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    let mut at = addr;
    while out.len() < max {
        // Never read beyond the page that has the terminator.
        let in_page = 4096 - (at & 4095) as usize;
        let take = in_page.min(max - out.len()).min(256);
        let mut piece = [0u8; 256];
        read_bytes(at, &mut piece[..take])?;
        if let Some(end) = piece[..take].iter().position(|&b| b == 0) {
            out.extend_from_slice(&piece[..end]);
            return Ok(out);
        }
        out.extend_from_slice(&piece[..take]);
        at = at.wrapping_add(take as u64);
    }
    Ok(out)
}

/// Ranges of guest memory that were written for the guest since the last event, while recording.
/// Only the executor touches it, and there is one for each process.
struct Notes {
    on: bool,
    ranges: Vec<(u64, u64)>,
}
struct Shared(std::cell::UnsafeCell<Notes>);
// SAFETY: used on the executor's kernel thread only.
unsafe impl Sync for Shared {}
static NOTES: Shared = Shared(std::cell::UnsafeCell::new(Notes {
    on: false,
    ranges: Vec::new(),
}));

fn notes() -> &'static mut Notes {
    // SAFETY: as above, and no reference outlives a function of this file.
    unsafe { &mut *NOTES.0.get() }
}

/// From now on writes are noted.
pub fn keep_notes() {
    notes().on = true;
}

/// From now on no more.
pub fn drop_notes() {
    let notes = notes();
    notes.on = false;
    notes.ranges = Vec::new();
}

/// Notes that the guest's memory there was written, or may have been.
#[inline]
pub fn note_write(addr: u64, len: u64) {
    let notes = notes();
    if notes.on && len != 0 {
        notes.add(addr, len);
    }
}

impl Notes {
    fn add(&mut self, addr: u64, len: u64) {
        // A call's own table entry and the engine's writes name the same ranges again and again.
        let within = |&(start, size): &(u64, u64)| start <= addr && addr + len <= start + size;
        if !self.ranges.iter().any(within) {
            self.ranges.push((addr, len));
        }
    }
}

/// Whether anything was noted since the last time.
#[inline]
pub fn any_notes() -> bool {
    !notes().ranges.is_empty()
}

/// Exchanges what was noted since the last time for an empty list, whose memory is used for the next.
pub fn swap_notes(with: &mut Vec<(u64, u64)>) {
    debug_assert!(with.is_empty());
    std::mem::swap(&mut notes().ranges, with);
}

fn check(addr: u64, len: usize) -> Result<(), Fault> {
    let probe = layout::PROBE;
    let of_probe = probe.contains(&addr) && len as u64 <= probe.end - addr;
    if layout::is_guest(addr, len as u64) || of_probe {
        Ok(())
    } else {
        Err(Fault)
    }
}

impl Executor {
    /// Writes a value to guest memory, also where pages are protected because of code on them.
    pub fn put<T: Plain>(&mut self, addr: u64, value: &T) -> Result<(), Fault> {
        if write(addr, value).is_ok() {
            return Ok(());
        }
        // SAFETY: a plain value is its bytes.
        let bytes = unsafe {
            std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>())
        };
        self.write_guest(addr, bytes)
    }

    /// Writes to guest memory, also where pages are protected because code was translated from
    /// them.
    pub fn write_guest(&mut self, addr: u64, from: &[u8]) -> Result<(), Fault> {
        if write_bytes(addr, from).is_ok() {
            return Ok(());
        }
        if self.memory.unprotect_for_kernel(addr, from.len() as u64) {
            return write_bytes(addr, from);
        }
        Err(Fault)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Readable memory where guests have theirs.
    pub fn guest_page() -> u64 {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(layout::HIGH.start + 0x1234_0000);
        let at = NEXT.fetch_add(0x10000, Ordering::Relaxed);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping in a range that nothing else uses.
        let got = unsafe { crate::syscall!(libc::SYS_mmap, at, 4096, 3, flags, -1i64, 0) };
        assert_eq!(got as u64, at);
        at
    }

    /// Lets copies fail in a test process as they do under the engine's own handlers.
    pub fn survive_faults() {
        extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
            // SAFETY: the kernel gives a handler with SA_SIGINFO a ucontext.
            let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
            let rip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
            match copy::failed(*rip as u64) {
                Some(on) => *rip = on as i64,
                None => std::process::abort(),
            }
        }
        // SAFETY: a handler that only changes where the interrupted code goes on.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
        }
    }

    #[test]
    fn reads_and_writes() {
        let page = guest_page();
        write(page + 8, &0x1122_3344_5566_7788u64).unwrap();
        assert_eq!(read::<u32>(page + 8), Ok(0x5566_7788));
        assert_eq!(read::<u16>(page + 14), Ok(0x1122));
        write_bytes(page + 4090, b"hello\0").unwrap();
        assert_eq!(read_cstr(page + 4090, 100).unwrap(), b"hello");
    }

    #[test]
    fn refuses_engine_memory() {
        let own = 5u64;
        assert_eq!(read::<u64>(&raw const own as u64), Err(Fault));
        assert_eq!(read::<u64>(0), Err(Fault));
        assert_eq!(read::<u64>(u64::MAX - 3), Err(Fault));
    }
}

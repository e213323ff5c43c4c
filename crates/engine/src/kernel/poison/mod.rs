//! Test of the table against the kernel: calls are made for real in memory full of poison, and every
//! byte that changed must lie in what the table says. Twice, with different poison, so that a byte
//! that happens to be written with its old value is seen too.
//!
//! The tests may run as root on a machine that others use: only calls that ask, act on this test's
//! own descriptors and processes, or fail may be made here. Nothing that sets a clock or a limit.

mod files;
mod processes;
mod sockets;

use std::ffi::CString;

use super::outputs;
use super::table::{Args, lookup};
use crate::guest::access;
use crate::layout;
use crate::sys::err;
use crate::syscall;

/// Memory where guests have theirs; behind it there is nothing.
struct Arena {
    base: u64,
}

const LEN: usize = 128 << 10;

impl Arena {
    fn new() -> Arena {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(layout::HIGH.start + 0x2_0000_0000);
        let base = NEXT.fetch_add(1 << 20, Ordering::Relaxed);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping in a range that nothing else uses.
        let got = unsafe { syscall!(libc::SYS_mmap, base, LEN, 3, flags, -1i64, 0) };
        assert_eq!(got as u64, base);
        Arena { base }
    }
    fn at(&self, offset: u64) -> u64 {
        self.base + offset
    }
    fn end(&self) -> u64 {
        self.base + LEN as u64
    }
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN];
        access::read_bytes(self.base, &mut bytes).unwrap();
        bytes
    }
    fn put(&self, offset: u64, bytes: &[u8]) -> u64 {
        access::write_bytes(self.at(offset), bytes).unwrap();
        self.at(offset)
    }
    fn words(&self, offset: u64, words: &[u64]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.put(offset, &bytes)
    }
    fn half(&self, offset: u64, value: u32) -> u64 {
        self.put(offset, &value.to_le_bytes())
    }
    fn path(&self, offset: u64, path: &str) -> u64 {
        let path = CString::new(path).unwrap();
        self.put(offset, path.as_bytes_with_nul())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: this test's own mapping.
        unsafe { syscall!(libc::SYS_munmap, self.base, LEN) };
    }
}

/// Makes the call that `setup` prepares, and compares; its result.
fn check(nr: i64, setup: impl Fn(&Arena) -> Args) -> i64 {
    access::tests::survive_faults();
    let call = lookup(nr as u64);
    let mut last = 0;
    for poison in [0xa5u8, 0x5a] {
        let arena = Arena::new();
        arena.put(0, &vec![poison; LEN]);
        let args = setup(&arena);
        let before = arena.bytes();
        let mut possible = vec![false; LEN];
        let mark = |set: &mut Vec<bool>, addr: u64, len: u64| {
            let from = addr.saturating_sub(arena.base).min(LEN as u64) as usize;
            let to = addr
                .saturating_add(len)
                .saturating_sub(arena.base)
                .min(LEN as u64) as usize;
            if addr.saturating_add(len) > arena.base {
                set[from..to].fill(true);
            }
        };
        outputs::each(call, &args, None, &mut |a, l| mark(&mut possible, a, l));
        // SAFETY: a call on this test's own memory and descriptors.
        let ret = unsafe { crate::sys::call(nr, args) };
        let after = arena.bytes();
        let mut told = vec![false; LEN];
        outputs::each(call, &args, Some(ret), &mut |a, l| mark(&mut told, a, l));
        for at in 0..LEN {
            if before[at] != after[at] {
                let name = call.name;
                assert!(
                    told[at],
                    "{name} -> {ret}: byte {at:#x} not told, args {args:x?}"
                );
                assert!(
                    possible[at],
                    "{name} -> {ret}: byte {at:#x} not expected, {args:x?}"
                );
            }
        }
        last = ret;
    }
    last
}

fn made(ret: i64) -> u64 {
    assert!(ret >= 0, "set-up failed: {ret}");
    ret as u64
}

/// A pipe with something in it: (read end, write end).
fn pipe(data: &[u8]) -> (u64, u64) {
    let mut ends = [0i32; 2];
    // SAFETY: two descriptors, and data from a live buffer.
    unsafe {
        made(syscall!(
            libc::SYS_pipe2,
            ends.as_mut_ptr(),
            libc::O_CLOEXEC
        ));
        made(syscall!(
            libc::SYS_write,
            ends[1],
            data.as_ptr(),
            data.len()
        ));
    }
    (ends[0] as u64, ends[1] as u64)
}

fn sockets(kind: i32) -> (u64, u64) {
    let mut ends = [0i32; 2];
    // SAFETY: two descriptors.
    unsafe {
        made(syscall!(
            libc::SYS_socketpair,
            libc::AF_UNIX,
            kind,
            0,
            ends.as_mut_ptr()
        ))
    };
    (ends[0] as u64, ends[1] as u64)
}

fn send(fd: u64, data: &[u8]) {
    // SAFETY: data from a live buffer.
    unsafe { made(syscall!(libc::SYS_write, fd, data.as_ptr(), data.len())) };
}

fn open(path: &str, flags: i32) -> u64 {
    let path = CString::new(path).unwrap();
    // SAFETY: a path that ends with NUL.
    unsafe { made(syscall!(libc::SYS_open, path.as_ptr(), flags, 0o600)) }
}

fn close(fds: (u64, u64)) {
    // SAFETY: this test's own descriptors.
    unsafe {
        syscall!(libc::SYS_close, fds.0);
        syscall!(libc::SYS_close, fds.1);
    }
}

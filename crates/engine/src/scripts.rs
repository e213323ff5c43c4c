//! How a schedule gets to the programs that a guest execs. In: a schedule. Out: the same, behind the exec.
//!
//! It may be longer than an environment variable can be, so it is a file in memory that the processes of a run inherit.

use std::sync::Arc;

use clew_recording::script::Script;

use crate::kernel::descriptors::{self, Hidden};
use crate::kernel::stop;
use crate::program::{Options, Sched};
use crate::{sys, syscall};

/// Keeps the schedule for programs to come. Without room for it they run without one, which is told.
pub fn keep(script: &Script, hidden: &mut Hidden) {
    let text = script.to_string();
    // SAFETY: the name is a constant; the kernel reads nothing else.
    let fd = unsafe { syscall!(libc::SYS_memfd_create, c"clew-script".as_ptr(), 0) };
    if sys::is_err(fd) || !write(fd as i32, text.as_bytes()) {
        return stop::warn("programs that this one starts don't follow the schedule: no memory");
    }
    hidden.keep_script(fd as i32);
}

fn write(fd: i32, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        // SAFETY: the kernel reads the slice.
        let written = unsafe { syscall!(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
        if written <= 0 {
            descriptors::close(fd);
            return false;
        }
        bytes = &bytes[written as usize..];
    }
    true
}

/// Finds what an earlier program of this process, or of its parents, kept.
pub fn find(hidden: &Hidden, options: &mut Options) {
    if hidden.script < 0 {
        return;
    }
    let script = read(hidden.script).and_then(|text| String::from_utf8(text).ok()?.parse().ok());
    match script {
        Some(script) => {
            options.script = Some(Arc::new(script));
            options.sched = Sched::Script;
        }
        None => stop::warn("the schedule to be followed can't be read here"),
    }
}

/// From the beginning: others have the same file open.
fn read(fd: i32) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut part = [0u8; 4096];
    loop {
        let (to, len, at) = (part.as_mut_ptr(), part.len(), text.len());
        // SAFETY: the kernel writes at most `len` bytes to `part`.
        let got = unsafe { syscall!(libc::SYS_pread64, fd, to, len, at) };
        if got <= 0 {
            return (got == 0).then_some(text);
        }
        text.extend_from_slice(&part[..got as usize]);
    }
}

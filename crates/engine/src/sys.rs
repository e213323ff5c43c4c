//! Raw system calls, made without libc: no errno, no thread-local storage, no cancellation.
//! The engine's signal handlers and proxies can use these where nothing else is safe.

use std::arch::asm;

/// The kernel's answer: a value, or a negative errno in -4095..=-1.
pub type Ret = i64;

/// Makes a system call.
///
/// # Safety
/// The call can do anything to this process; the arguments must be right for it.
#[inline(always)]
pub unsafe fn call(nr: i64, a: [u64; 6]) -> Ret {
    let ret;
    // SAFETY: the caller vouches for the call; the kernel clobbers only rax, rcx and r11.
    unsafe {
        asm!("syscall", inlateout("rax") nr => ret,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    ret
}

/// `syscall!(libc::SYS_close, fd)`: a raw call with up to six arguments, each cast to u64.
#[macro_export]
macro_rules! syscall {
    ($nr:expr) => { $crate::sys::call($nr, [0; 6]) };
    ($nr:expr, $($a:expr),+) => {{
        let mut args = [0u64; 6];
        let given = [$($a as u64),+];
        args[..given.len()].copy_from_slice(&given);
        $crate::sys::call($nr, args)
    }};
}

pub fn is_err(ret: Ret) -> bool {
    (-4095..0).contains(&ret)
}

/// What a failed call's answer means.
pub fn error(ret: Ret) -> std::io::Error {
    std::io::Error::from_raw_os_error(-ret as i32)
}

/// A negative errno as the kernel returns it.
pub const fn err(errno: i32) -> Ret {
    -(errno as Ret)
}

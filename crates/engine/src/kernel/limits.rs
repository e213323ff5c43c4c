//! Resource limits. All are the kernel's, but for the address space: the engine reserves far more
//! of it than a guest, so a limit (`ulimit -v`) given to the kernel would make every later mapping
//! fail. The guest's wish is kept and shown, and goes along fork and exec.

use super::table::Args;
use super::{Outcome, descriptors, pass_nr};
use crate::executor::Executor;
use crate::guest::access;
use crate::memory::stack::stack_limit;
use crate::sys::err;
use crate::syscall;

const AS: u64 = libc::RLIMIT_AS as u64;

/// How large a file may be. A write of the engine's that goes further would be the guest's death
/// by SIGXFSZ.
pub fn file_size_limit() -> u64 {
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes one rlimit, two u64.
    unsafe { syscall!(libc::SYS_getrlimit, libc::RLIMIT_FSIZE, limit.as_mut_ptr()) };
    limit[0]
}

pub fn getrlimit(ex: &mut Executor, a: Args) -> Outcome {
    if a[0] as u32 as u64 == AS {
        return address_space(ex, 0, a[1]);
    }
    pass_nr(ex, libc::SYS_getrlimit, a)
}

pub fn setrlimit(ex: &mut Executor, a: Args) -> Outcome {
    if a[0] as u32 as u64 == AS {
        if a[1] == 0 {
            return Outcome::Return(err(libc::EFAULT));
        }
        return address_space(ex, a[1], 0);
    }
    let outcome = pass_nr(ex, libc::SYS_setrlimit, a);
    tell_stack(ex, a[0], a[1]);
    tell_descriptors(ex, a[0], a[1]);
    outcome
}

pub fn prlimit64(ex: &mut Executor, a: Args) -> Outcome {
    // SAFETY: getpid touches no memory.
    let ours = a[0] as i32 == 0 || a[0] as i32 as i64 == unsafe { syscall!(libc::SYS_getpid) };
    if ours && a[1] as u32 as u64 == AS {
        return address_space(ex, a[2], a[3]);
    }
    let outcome = pass_nr(ex, libc::SYS_prlimit64, a);
    if ours {
        tell_stack(ex, a[1], a[2]);
        tell_descriptors(ex, a[1], a[2]);
    }
    outcome
}

/// The engine's own descriptors stand behind the limit on open files.
fn tell_descriptors(ex: &mut Executor, resource: u64, new: u64) {
    if resource as u32 == libc::RLIMIT_NOFILE as u32 && new != 0 {
        descriptors::limit_changed(ex);
    }
}

/// The main stack may grow further, or less, once its limit has changed.
fn tell_stack(ex: &mut Executor, resource: u64, new: u64) {
    if resource as u32 == libc::RLIMIT_STACK as u32 && new != 0 {
        ex.memory.set_stack_limit(stack_limit());
    }
}

/// prlimit for RLIMIT_AS of this process: `new` and `old` are addresses or 0.
fn address_space(ex: &mut Executor, new: u64, old: u64) -> Outcome {
    let before = match ex.kernel.own.address_space {
        Some(limit) => limit,
        None => {
            let mut real = [u64::MAX; 2];
            // SAFETY: the kernel writes one rlimit, two u64.
            unsafe { syscall!(libc::SYS_getrlimit, AS, real.as_mut_ptr()) };
            real
        }
    };
    if new != 0 {
        let Ok(wanted) = access::read::<[u64; 2]>(new) else {
            return Outcome::Return(err(libc::EFAULT));
        };
        if wanted[0] > wanted[1] {
            return Outcome::Return(err(libc::EINVAL));
        }
        // SAFETY: geteuid touches no memory.
        if wanted[1] > before[1] && unsafe { syscall!(libc::SYS_geteuid) } != 0 {
            return Outcome::Return(err(libc::EPERM));
        }
        ex.kernel.own.address_space = Some(wanted);
    }
    if old != 0 && access::write(old, &before).is_err() {
        return Outcome::Return(err(libc::EFAULT));
    }
    Outcome::Return(0)
}

//! prctl and arch_prctl: what concerns the guest's registers and what would hurt the engine.

use super::table::{Args, lookup};
use super::{Outcome, pass};
use crate::executor::Executor;
use crate::guest::access;
use crate::sys::err;

const PR_SET_MDWE: i32 = 65;
const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;

pub fn prctl(ex: &mut Executor, a: Args) -> Outcome {
    match a[0] as i32 {
        // The kernel's idea of the guest's layout was set by the engine; changing it takes a
        // privilege natively too.
        libc::PR_SET_MM => Outcome::Return(err(libc::EPERM)),
        // The engine reads the counter all the time.
        libc::PR_SET_TSC => Outcome::Return(match a[1] as i32 {
            libc::PR_TSC_ENABLE | libc::PR_TSC_SIGSEGV => {
                ex.current().tsc_faults = a[1] as i32 == libc::PR_TSC_SIGSEGV;
                0
            }
            _ => err(libc::EINVAL),
        }),
        libc::PR_GET_TSC => {
            let value = match ex.current().tsc_faults {
                true => libc::PR_TSC_SIGSEGV,
                false => libc::PR_TSC_ENABLE,
            };
            Outcome::Return(match ex.put(a[1], &value) {
                Ok(()) => 0,
                Err(_) => err(libc::EFAULT),
            })
        }
        libc::PR_SET_SECCOMP => super::seccomp::by_prctl(ex, a),
        libc::PR_GET_SECCOMP => super::seccomp::mode(ex),
        CLEW => Outcome::Return(by_name(ex, a)),
        // Would forbid the engine to write code; would make the engine's own calls trap.
        PR_SET_MDWE | PR_SET_SYSCALL_USER_DISPATCH => Outcome::Return(err(libc::EINVAL)),
        option => {
            let call = lookup(libc::SYS_prctl as u64);
            if ex.multi_threaded() && is_per_thread(option) {
                return Outcome::Return(ex.call_on_proxy(libc::SYS_prctl, a));
            }
            pass(ex, call, &a)
        }
    }
}

/// What a program says to clew (`include/clew.h`). Natively the kernel knows no such option.
const CLEW: i32 = i32::from_be_bytes(*b"clew");
const RUNNING: u64 = 0;
const MARK: u64 = 1;
const LONGEST_MARK: usize = 200;

fn by_name(ex: &mut Executor, a: Args) -> i64 {
    match a[1] {
        RUNNING => 1 + i64::from(ex.recording()),
        MARK => {
            let mut name = vec![0; LONGEST_MARK.min(a[3] as usize)];
            if access::read_bytes(a[2], &mut name).is_err() {
                return err(libc::EFAULT);
            }
            let name = String::from_utf8_lossy(&name).replace(char::is_control, " ");
            ex.record_mark(name);
            0
        }
        _ => err(libc::EINVAL),
    }
}

/// What the kernel keeps for each thread. The rest concerns the process or its memory.
fn is_per_thread(option: i32) -> bool {
    matches!(
        option,
        libc::PR_SET_NAME
            | libc::PR_GET_NAME
            | libc::PR_SET_PDEATHSIG
            | libc::PR_GET_PDEATHSIG
            | libc::PR_SET_KEEPCAPS
            | libc::PR_GET_KEEPCAPS
            | libc::PR_SET_SECUREBITS
            | libc::PR_GET_SECUREBITS
            | libc::PR_CAPBSET_DROP
            | libc::PR_CAP_AMBIENT
            | libc::PR_SET_TIMERSLACK
            | libc::PR_GET_TIMERSLACK
            | libc::PR_SET_NO_NEW_PRIVS
            | libc::PR_GET_NO_NEW_PRIVS
    )
}

const ARCH_SET_GS: u64 = 0x1001;
const ARCH_SET_FS: u64 = 0x1002;
const ARCH_GET_FS: u64 = 0x1003;
const ARCH_GET_GS: u64 = 0x1004;
/// The first address that isn't user space.
const TASK_SIZE: u64 = 0x7fff_ffff_f000;

pub fn arch_prctl(ex: &mut Executor, a: Args) -> Outcome {
    let regs = &mut ex.gs.regs;
    Outcome::Return(match a[0] as u32 as u64 {
        ARCH_SET_FS | ARCH_SET_GS if a[1] >= TASK_SIZE => err(libc::EPERM),
        ARCH_SET_FS => {
            regs.fs_base = a[1];
            0
        }
        ARCH_SET_GS => {
            regs.gs_base = a[1];
            0
        }
        ARCH_GET_FS => stored(a[1], regs.fs_base),
        ARCH_GET_GS => stored(a[1], regs.gs_base),
        // Among others: CPUID faulting (ENODEV on CPUs without), shadow stacks, AMX permission,
        // address tagging. All are features that cpuid hides: EINVAL, as from older kernels.
        0x1011 | 0x1012 => err(libc::ENODEV),
        _ => err(libc::EINVAL),
    })
}

fn stored(addr: u64, value: u64) -> i64 {
    match access::write(addr, &value) {
        Ok(()) => 0,
        Err(_) => err(libc::EFAULT),
    }
}

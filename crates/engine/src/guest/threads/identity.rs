//! Calls about a thread's own words. The engine does the kernel's part at the thread's end (see
//! `exit` and `robust`); the kernel knows of the robust list for the case that the whole process
//! is killed and other processes wait for what it held.

use crate::executor::Executor;
use crate::kernel::Outcome;
use crate::sys::err;

/// Size of `struct robust_list_head`.
const ROBUST_HEAD: u64 = 24;

pub fn sys_gettid(ex: &mut Executor, _args: [u64; 6]) -> Outcome {
    Outcome::Return(i64::from(ex.tid()))
}

pub fn sys_set_tid_address(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    ex.current().clear_child_tid = args[0];
    sys_gettid(ex, args)
}

pub fn sys_set_robust_list(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    if args[1] != ROBUST_HEAD {
        return Outcome::Return(err(libc::EINVAL));
    }
    ex.current().robust_list = args[0];
    Outcome::Return(ex.call_on_proxy(libc::SYS_set_robust_list, args))
}

pub fn sys_get_robust_list(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    let [tid, head, len, ..] = args;
    let slot = match tid as i32 {
        0 => Some(ex.threads.current_slot()),
        tid => ex.threads.slot_of(tid),
    };
    let Some(list) = slot
        .and_then(|slot| ex.threads.get(slot))
        .map(|thread| thread.robust_list)
    else {
        return Outcome::Return(err(libc::ESRCH));
    };
    if ex.put(len, &ROBUST_HEAD).is_err() || ex.put(head, &list).is_err() {
        return Outcome::Return(err(libc::EFAULT));
    }
    Outcome::Return(0)
}

/// Ends the turn. Alone, the kernel's own: another process may want to run.
pub fn sys_sched_yield(ex: &mut Executor, _args: [u64; 6]) -> Outcome {
    ex.yield_turn();
    if let Some(follower) = ex.threads.policy.follower() {
        follower.yields();
    }
    if ex.threads.queue.is_empty() {
        // SAFETY: gives the processor away for a moment.
        unsafe { crate::syscall!(libc::SYS_sched_yield) };
    }
    Outcome::Return(0)
}

//! Stand-in: futexes are the kernel's.
use crate::executor::Executor;
use crate::kernel::Outcome;

pub fn sys_futex(_: &mut Executor, a: [u64; 6]) -> Outcome {
    // SAFETY: stand-in; the guest's own call.
    Outcome::Return(unsafe { crate::sys::call(libc::SYS_futex, a) })
}

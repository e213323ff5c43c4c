//! System calls: the table and the calls that the engine answers itself.
pub mod emulate;

use crate::executor::Executor;

/// What became of a system call.
pub enum Outcome {
    /// The value for rax; negative errno on failure.
    Return(i64),
    /// Interrupted before it did anything: after the handler the guest makes it again.
    Restart,
    /// The thread waits (for a futex, or its proxy makes the call); another one runs.
    Parked,
    /// The thread's registers were set as a whole (sigreturn), or another thread is current.
    Replaced,
}

pub fn dispatch(_ex: &mut Executor) -> Outcome {
    Outcome::Return(crate::sys::err(libc::ENOSYS))
}

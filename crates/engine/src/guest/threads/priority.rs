//! Scheduling priorities: what the kernel keeps for each guest thread's proxy in, what the engine must do alike out.
//!
//! A new thread inherits from the one that makes it, but its proxy is a child of the executor. And futexes wake
//! threads of a real-time policy first, the highest priority before all.

use crate::executor::Executor;
use crate::kernel::table::Args;
use crate::kernel::{Outcome, pass_nr};
use crate::sys::is_err;
use crate::syscall;

/// `struct sched_attr`, the first version.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    deadline: [u64; 3],
}

const RESET_ON_FORK: u64 = 1;
/// A set of processors.
type Processors = [u64; 128];

impl Attributes {
    fn of(tid: i32) -> Option<Attributes> {
        let mut attributes = Attributes::default();
        let size = size_of::<Attributes>();
        // SAFETY: the kernel writes at most `size` bytes of attributes.
        let ret = unsafe { syscall!(libc::SYS_sched_getattr, tid, &raw mut attributes, size, 0) };
        (!is_err(ret)).then_some(attributes)
    }
}

/// How early futexes wake a thread: 0 for ordinary ones.
fn rank(tid: i32) -> u32 {
    const DEADLINE: u32 = 6;
    match Attributes::of(tid) {
        Some(own) if own.policy == DEADLINE => u32::MAX,
        Some(own) => own.priority,
        None => 0,
    }
}

impl Executor {
    /// sched_setscheduler and its like.
    pub fn sys_set_scheduling(&mut self, args: Args) -> Outcome {
        let nr = self.gs.regs.gpr[crate::context::RAX] as i64;
        self.threads.ranked = true;
        pass_nr(self, nr, args)
    }

    /// How early the current thread is to be woken, when it begins to wait.
    pub(in crate::guest) fn own_rank(&mut self) -> u32 {
        if self.threads.ranked {
            rank(self.current().tid)
        } else {
            0
        }
    }

    /// Several threads there will be: do any have a rank?
    pub(super) fn look_at_rank(&mut self) {
        self.threads.ranked |= rank(self.current().tid) != 0;
    }
}

/// Gives the kernel thread `to` what it would have inherited from `from`.
pub(super) fn inherit(from: i32, to: i32) {
    if let (Some(mut own), Some(new)) = (Attributes::of(from), Attributes::of(to))
        && own.flags & RESET_ON_FORK == 0
        && own != new
    {
        own.size = size_of::<Attributes>() as u32;
        // SAFETY: the kernel reads the attributes. Should it refuse, the thread stays as it is.
        unsafe { syscall!(libc::SYS_sched_setattr, to, &raw const own, 0) };
    }
    let processors = |tid| {
        let mut set: Processors = [0; 128];
        // SAFETY: the kernel writes at most as many bytes as the set has.
        let len = unsafe {
            syscall!(
                libc::SYS_sched_getaffinity,
                tid,
                size_of::<Processors>(),
                set.as_mut_ptr()
            )
        };
        (!is_err(len)).then_some((set, len))
    };
    if let (Some((own, len)), Some((new, _))) = (processors(from), processors(to))
        && own != new
    {
        // SAFETY: the kernel reads as many bytes as it wrote.
        unsafe { syscall!(libc::SYS_sched_setaffinity, to, len, own.as_ptr()) };
    }
    const PROCESS: i32 = 1;
    // SAFETY: asks for a number, and sets it; no memory is touched.
    unsafe {
        let own = syscall!(libc::SYS_ioprio_get, PROCESS, from);
        if !is_err(own) && own != syscall!(libc::SYS_ioprio_get, PROCESS, to) {
            syscall!(libc::SYS_ioprio_set, PROCESS, to, own);
        }
    }
}

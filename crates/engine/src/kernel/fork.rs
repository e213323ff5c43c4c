//! New processes: fork, vfork, and the forms of clone that make them.
//!
//! A *fork* is the kernel's own: the child has a copy of everything and goes on alone. A *vfork*
//! shares memory: the child runs the same executor, on a stack of its own, while the kernel keeps
//! the parent waiting; when the child execs or ends, the parent puts back what belongs to it
//! (registers, signal table, threads, hidden descriptors). Translations that the child made stay.
//! Faking a vfork by a fork would lose what posix_spawn's child reports through shared memory.

use std::arch::asm;

use super::table::Args;
use super::{Outcome, stop};
use crate::context::{GsBlock, RAX, RSP, Regs};
use crate::executor::Executor;
use crate::guest::threads::Attributes;
use crate::guest::{access, threads};
use crate::host::borrower;
use crate::sys::{self, err};
use crate::syscall;

const VM: u64 = libc::CLONE_VM as u64;
const VFORK: u64 = libc::CLONE_VFORK as u64;
const UNTRACED: u64 = libc::CLONE_UNTRACED as u64;
const THREAD: u64 = libc::CLONE_THREAD as u64;
const SETTLS: u64 = libc::CLONE_SETTLS as u64;
const PARENT_SETTID: u64 = libc::CLONE_PARENT_SETTID as u64;
const CHILD_SETTID: u64 = libc::CLONE_CHILD_SETTID as u64;
const CHILD_CLEARTID: u64 = libc::CLONE_CHILD_CLEARTID as u64;
const PIDFD: u64 = libc::CLONE_PIDFD as u64;
const NEWNS: u64 = (libc::CLONE_NEWNS | libc::CLONE_NEWUSER) as u64;
const SIGCHLD: u64 = libc::SIGCHLD as u64;
const FILES: u64 = libc::CLONE_FILES as u64;
const FS: u64 = libc::CLONE_FS as u64;
const SIGHAND: u64 = libc::CLONE_SIGHAND as u64;
const SYSVSEM: u64 = libc::CLONE_SYSVSEM as u64;
const DETACHED: u64 = libc::CLONE_DETACHED as u64;
const NEWIPC: u64 = libc::CLONE_NEWIPC as u64;
const NEWPID: u64 = libc::CLONE_NEWPID as u64;
const NEWUSER: u64 = libc::CLONE_NEWUSER as u64;
/// Namespaces that a thread could have for itself.
const NAMESPACES: u64 = NEWNS
    | NEWIPC
    | NEWPID
    | (libc::CLONE_NEWNET | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP) as u64;

/// What the engine does itself, in the guest's own order and through its own tables.
const OURS: u64 = SETTLS | PARENT_SETTID | CHILD_SETTID | CHILD_CLEARTID;

/// What the guest asks for.
#[derive(Clone, Copy, Debug, Default)]
struct Request {
    flags: u64,
    /// The child's stack pointer, or 0 for the parent's value.
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
}

pub fn fork(ex: &mut Executor, _: Args) -> Outcome {
    make_copy(
        ex,
        Request {
            flags: SIGCHLD,
            ..Request::default()
        },
    )
}

pub fn vfork(ex: &mut Executor, _: Args) -> Outcome {
    share(
        ex,
        Request {
            flags: VM | VFORK | SIGCHLD,
            ..Request::default()
        },
    )
}

pub fn clone(ex: &mut Executor, a: Args) -> Outcome {
    // The kernel has no more of them here.
    let flags = a[0] & 0xffff_ffff;
    if is_invalid(flags) {
        return Outcome::Return(err(libc::EINVAL));
    }
    let request = Request {
        flags,
        stack: a[1],
        parent_tid: a[2],
        child_tid: a[3],
        tls: a[4],
    };
    if flags & THREAD != 0 {
        return ex.spawn_thread(flags, a[1], a[2], a[3], a[4]);
    }
    if flags & VM == 0 {
        return make_copy(ex, request);
    }
    // A second process on the same memory, running at the same time, would need a second executor
    // on the same translations. A copy instead would silently lose what it writes. So the child
    // runs first, to its end or exec: one of the orders that natively happen, unless it waits for
    // the parent. The one program known to do that is LeakSanitizer's tracer (which couldn't trace
    // either); it sees an error that it reports.
    if flags & VFORK == 0 && flags & UNTRACED != 0 {
        stop::warn("clone(CLONE_VM | CLONE_UNTRACED) isn't supported");
        return Outcome::Return(err(libc::EINVAL));
    }
    share(
        ex,
        Request {
            flags: flags | VFORK,
            ..request
        },
    )
}

/// Whether the kernel refuses these flags together, as far as it doesn't get to see them itself: it is told
/// nothing of threads, and not of what the engine does itself.
fn is_invalid(flags: u64) -> bool {
    let all = |bits: u64| flags & bits == bits;
    let any = |bits: u64| flags & bits != 0;
    all(PIDFD | PARENT_SETTID)
        || all(PIDFD | DETACHED)
        || any(SIGHAND) && !any(VM)
        || any(THREAD) && !any(SIGHAND)
        || any(FS) && any(NEWNS)
        || all(SYSVSEM | NEWIPC)
        || all(THREAD | NEWPID)
        || all(THREAD | NEWUSER)
        // Kernels before 6.9 know no pidfds of threads. Namespaces of one thread alone would be the engine's, too.
        || any(THREAD) && any(PIDFD | NAMESPACES)
}

/// The kernel's flags for the request: without what the engine does itself. A pidfd is the
/// kernel's to make, and goes where the parent's tid would.
fn kernel_flags(flags: u64) -> u64 {
    flags & !OURS
}

/// A fork.
fn make_copy(ex: &mut Executor, request: Request) -> Outcome {
    prepare(ex, &request);
    // Or each of many children would save the same again.
    ex.save_code();
    let stream = ex.record_before_fork();
    ex.before_fork();
    ex.memory.before_fork();
    let flags = kernel_flags(request.flags);
    let thread = ex.thread_attributes();
    // Parent and child have one table from here on.
    if flags & FILES != 0 {
        ex.kernel.own.hidden.fixed = true;
    }
    let ticks = ex.record_forks(stream);
    // SAFETY: without CLONE_VM and without a stack this is a fork; both sides return from it.
    let pid = unsafe { syscall!(libc::SYS_clone, flags, 0, request.parent_tid) };
    if pid == 0 {
        ex.stats.start_over();
        // Its memory is its own, also if the parent was a vfork child.
        ex.kernel.own.in_vfork = false;
        ex.kernel.own.hidden.fixed = flags & FILES != 0;
        thread.take();
        ex.after_fork_child();
        ex.record_as_child(stream);
        ex.memory.after_fork_child();
        become_child(ex, &request);
        return Outcome::Return(0);
    }
    ex.after_fork_parent();
    ex.record_forked(stream, ticks, pid);
    tell_parent(ex, &request, pid);
    Outcome::Return(pid)
}

/// A vfork.
fn share(ex: &mut Executor, request: Request) -> Outcome {
    prepare(ex, &request);
    let stack = match ex.kernel.stacks.pop().map_or_else(Stack::new, Ok) {
        Ok(stack) => stack,
        Err(errno) => return Outcome::Return(err(errno)),
    };
    ex.record_vfork();
    // From here on no handler runs in the parent until its own state is back.
    let borrowed = ex.before_vfork();
    let registers = Registers::take(ex.gs);
    let own = ex.kernel.own.clone();
    let stats = ex.stats.clone();
    let mut child = Child {
        ex: &raw mut *ex,
        request,
        thread: ex.thread_attributes(),
    };
    borrower::works();
    // SAFETY: the kernel suspends this thread until the child has left the address space, so the
    // child alone uses the executor and `child`, and this frame stays as it is.
    let pid = unsafe {
        clone_onto(
            kernel_flags(request.flags),
            stack.top(),
            request.parent_tid,
            run_child,
            &raw mut child,
        )
    };
    if pid > 0 && borrower::was_torn_away() {
        stop::warn(
            "the child of a vfork was killed while clew worked for it in this process's memory; stopping",
        );
        stop::exit(stop::STATUS);
    }
    borrower::works();
    registers.restore(ex.gs);
    ex.stats = stats;
    let hidden = ex.kernel.own.hidden;
    ex.kernel.own = own;
    if request.flags & FILES != 0 {
        // What the child moved, it moved for both.
        ex.kernel.own.hidden = hidden;
    }
    super::descriptors::moved(ex);
    ex.kernel.stacks.push(stack);
    ex.after_vfork_parent(borrowed);
    ex.record_vfork_over(pid);
    tell_parent(ex, &request, pid);
    Outcome::Return(pid)
}

struct Child {
    ex: *mut Executor,
    request: Request,
    thread: Attributes,
}

/// The child's first function, on its own stack.
extern "C" fn run_child(child: *mut Child) -> ! {
    // SAFETY: the parent's frame, where this lives, stands still until the child is gone; and the
    // executor is the child's alone for as long.
    let (ex, request, thread) = unsafe { (&mut *(*child).ex, (*child).request, &(*child).thread) };
    thread.take();
    ex.stats.start_over();
    ex.kernel.own.in_vfork = true;
    ex.after_vfork_child();
    become_child(ex, &request);
    ex.gs.regs.gpr[RAX] = 0;
    ex.record_vfork_child();
    ex.run()
}

/// What must be in place before the child exists.
fn prepare(ex: &mut Executor, request: &Request) {
    if request.flags & NEWNS != 0 {
        ex.kernel.own.hidden.keep_self();
    }
    if request.flags & PIDFD != 0 {
        ex.memory.unprotect_for_kernel(request.parent_tid, 4);
    }
}

/// In the child: its registers and tids.
fn become_child(ex: &mut Executor, request: &Request) {
    if request.stack != 0 {
        ex.gs.regs.gpr[RSP] = request.stack;
    }
    if request.flags & SETTLS != 0 {
        ex.gs.regs.fs_base = request.tls;
    }
    // SAFETY: gettid touches no memory.
    let tid = unsafe { syscall!(libc::SYS_gettid) } as u32;
    if request.flags & CHILD_SETTID != 0 {
        let _ = ex.put(request.child_tid, &tid);
    }
    // With shared memory the child sees the word that the kernel writes for the parent.
    if request.flags & PARENT_SETTID != 0 && request.flags & VM != 0 {
        let _ = ex.put(request.parent_tid, &tid);
    }
    // The kernel has put a pidfd there before this child ran.
    if request.flags & PIDFD != 0 && request.flags & VM != 0 {
        access::note_write(request.parent_tid, 4);
    }
    if request.flags & CHILD_CLEARTID != 0 {
        threads::sys_set_tid_address(ex, [request.child_tid, 0, 0, 0, 0, 0]);
    }
}

/// In the parent: the child's tid where it was asked for. Bad addresses are ignored, as by the
/// kernel.
fn tell_parent(ex: &mut Executor, request: &Request, pid: i64) {
    if request.flags & PARENT_SETTID != 0 && !sys::is_err(pid) {
        let _ = ex.put(request.parent_tid, &(pid as u32));
    }
}

/// The parent's registers, which the child uses up.
struct Registers {
    regs: Regs,
    mxcsr: u32,
    ymm: [[u8; 32]; 16],
}

impl Registers {
    fn take(gs: &GsBlock) -> Registers {
        Registers {
            regs: gs.regs,
            mxcsr: gs.mxcsr,
            ymm: gs.ymm,
        }
    }

    fn restore(self, gs: &mut GsBlock) {
        gs.regs = self.regs;
        gs.mxcsr = self.mxcsr;
        gs.ymm = self.ymm;
    }
}

/// A stack on which a vfork child's engine runs.
pub struct Stack(u64);

impl Stack {
    const SIZE: u64 = 1 << 20;

    fn new() -> Result<Stack, i32> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a new mapping wherever the kernel likes, then its lowest page made a guard.
        let map = || unsafe { syscall!(libc::SYS_mmap, 0, Stack::SIZE, prot, flags, -1i64, 0) };
        let base = crate::memory::reserve::asked(map);
        if sys::is_err(base) {
            return Err(-base as i32);
        }
        // SAFETY: the page was just mapped and nobody uses it.
        unsafe { syscall!(libc::SYS_mprotect, base, 4096, libc::PROT_NONE) };
        Ok(Stack(base as u64))
    }

    fn top(&self) -> u64 {
        self.0 + Stack::SIZE
    }
}

/// A clone whose child starts in `entry` on another stack.
///
/// # Safety
/// `stack` is the top of an unused stack, aligned to 16; what `arg` points to lives as long as
/// the child may use it.
unsafe fn clone_onto<T>(
    flags: u64,
    stack: u64,
    parent_tid: u64,
    entry: extern "C" fn(*mut T) -> !,
    arg: *mut T,
) -> i64 {
    let ret;
    // SAFETY: in the parent this is a system call like any other. The child leaves for `entry`
    // at once, and never comes back to this frame.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone => ret,
            in("rdi") flags,
            in("rsi") stack,
            in("rdx") parent_tid,
            in("r10") 0,
            in("r8") 0,
            in("r12") arg,
            in("r13") entry,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    ret
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn leave_a_note(note: *mut u64) -> ! {
        // SAFETY: the parent waits and keeps the note alive.
        unsafe { *note = 42 };
        stop::exit(7)
    }

    #[test]
    fn a_vfork_child_shares_memory_and_ends_first() {
        let stack = Stack::new().unwrap();
        let mut note = 0u64;
        // SAFETY: a fresh stack, and a note that outlives the child.
        let pid = unsafe {
            clone_onto(
                VM | VFORK | SIGCHLD,
                stack.top(),
                0,
                leave_a_note,
                &raw mut note,
            )
        };
        assert!(pid > 0);
        assert_eq!(note, 42);
        let mut status = 0i32;
        // SAFETY: waits for the child made above.
        unsafe { syscall!(libc::SYS_wait4, pid, &raw mut status, 0, 0) };
        assert_eq!(status, 7 << 8);
    }

    #[test]
    fn flags_that_the_kernel_refuses() {
        let thread = VM | FS | FILES | SIGHAND | THREAD | SYSVSEM | SETTLS | PARENT_SETTID;
        for right in [
            0,
            SIGCHLD,
            VM | VFORK | SIGCHLD,
            thread,
            PIDFD,
            VM | SIGHAND,
        ] {
            assert!(!is_invalid(right), "{right:#x}");
        }
        for wrong in [
            THREAD,
            THREAD | VM,
            SIGHAND,
            SIGHAND | THREAD,
            thread | PIDFD,
            thread | NEWPID,
            FS | NEWUSER,
            SYSVSEM | NEWIPC,
            PIDFD | PARENT_SETTID,
        ] {
            assert!(is_invalid(wrong), "{wrong:#x}");
        }
    }

    #[test]
    fn the_engine_keeps_tids_and_tls_for_itself() {
        let libc_fork = CHILD_SETTID | CHILD_CLEARTID | SIGCHLD;
        assert_eq!(kernel_flags(libc_fork), SIGCHLD);
        assert_eq!(kernel_flags(PIDFD | SIGCHLD), PIDFD | SIGCHLD);
    }
}

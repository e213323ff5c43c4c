//! System calls: the table, and the calls that the engine answers itself.
//!
//! In: a guest thread that stands behind its `syscall` instruction. Out: an [`Outcome`], with
//! guest memory, descriptors and the rest of the world changed as the kernel would.

pub mod chaos;
pub mod cpuid;
pub mod descriptors;
pub mod emulate;
pub mod exec;
pub mod fork;
pub mod ioctl;
mod outlet;
pub mod outputs;
pub mod procfs;
pub mod scratch;
pub mod sent;
pub mod stop;
pub mod table;

mod files;
mod limits;
mod memory;
mod misc;
mod namespaces;
#[cfg(test)]
mod poison;
mod pokes;
mod prctl;
mod process;
mod refused;
mod requests;
pub mod seccomp;
mod signals;
mod threads;
mod waits;
mod window;

pub use limits::file_size_limit;

use crate::context::{R8, R9, R10, RAX, RDI, RDX, RSI};
use crate::executor::Executor;
use crate::guest::signals as guest_signals;
use crate::guest::virtual_time;
use crate::host::borrower;
use crate::loader::Entry;
use crate::memory::govern;
use crate::sys::err;
use table::{Answer, Args, Call, Maker, Wait};

/// What became of a system call.
#[derive(Debug, PartialEq, Eq)]
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

/// What the engine keeps for its answers.
#[derive(Default)]
pub struct Kernel {
    /// What a vfork child has for itself although it shares the parent's memory.
    pub own: Own,
    pub cpuid: cpuid::Cpuid,
    /// Where the loader put the guest's arguments and the like.
    pub entry: Option<Entry>,
    /// Stacks for vfork children, kept for the next one.
    stacks: Vec<fork::Stack>,
    /// The exec under way. Kept here and not on the stack, because a vfork child that execs
    /// never returns to free it; the next exec does.
    plan: Option<exec::Plan>,
    /// Timers in virtual time.
    pub timers: virtual_time::timers::Timers,
    /// Unknown numbers and requests that were told about.
    warned: Vec<u64>,
}

/// The part of [`Kernel`] that belongs to one process and goes along every fork and exec.
#[derive(Clone, Default)]
pub struct Own {
    pub hidden: descriptors::Hidden,
    /// The address-space limit that the guest set (soft, hard); see `limits`.
    pub address_space: Option<[u64; 2]>,
    /// A descriptor that leads to a process's memory may be open; see `pokes`.
    pub memory_files: bool,
    /// The exec under way is by a thread for which the time-stamp counter faults.
    pub tsc_faults: bool,
    /// What that thread has forbidden itself.
    pub rules: Option<std::sync::Arc<seccomp::Rules>>,
    /// `/proc/self/{cmdline,environ,auxv}` show the engine's values and must be made up.
    pub made_up_proc: bool,
    /// This is a vfork child: memory and translations are the parent's.
    pub in_vfork: bool,
    /// Which process of the tree this is, without pids, and how many it has made: for the scheduling
    /// policy.
    pub lineage: u64,
    pub children: u64,
}

/// Answers the system call that the current thread makes.
pub fn dispatch(ex: &mut Executor) -> Outcome {
    let gpr = &ex.gs.regs.gpr;
    let nr = gpr[RAX];
    let mut args = [gpr[RDI], gpr[RSI], gpr[RDX], gpr[R10], gpr[R8], gpr[R9]];
    let call = table::lookup(nr);
    if let Some(outcome) = seccomp::judge(ex, nr, &args) {
        return outcome;
    }
    if let Some(outcome) = chaos::interfere(ex, call, &mut args) {
        return outcome;
    }
    if let Some(outcome) = virtual_time::answer(ex, call, &args) {
        return outcome;
    }
    pokes::descriptors_come(ex, call, &args);
    if ex.kernel.own.memory_files
        && let Some(outcome) = pokes::write(ex, call, &args)
    {
        return outcome;
    }
    if let Some(errno) = refused::by_arguments(ex, call, &args) {
        return Outcome::Return(err(errno));
    }
    match call.answer {
        Answer::Pass => pass(ex, call, &args),
        Answer::Refuse(errno) => Outcome::Return(err(errno)),
        Answer::RefuseAloud(errno) => {
            ex.say(format!(
                "{} isn't supported under clew and fails",
                call.name
            ));
            Outcome::Return(err(errno))
        }
        Answer::Engine => match table::handler(call) {
            Some(handler) => handler(ex, args),
            None => unknown(ex, nr),
        },
        Answer::Unknown => unknown(ex, nr),
    }
}

/// Has the kernel answer, on the right kernel thread, without holding up other guest threads.
pub fn pass(ex: &mut Executor, call: &'static Call, args: &Args) -> Outcome {
    if ex.kernel.own.hidden.named_by(call, args) {
        return Outcome::Return(err(libc::EBADF));
    }
    if ex.recording()
        && let Some(window) = ex.window_of(call, args)
    {
        let outcome = made(ex, call, args);
        window.note();
        return outcome;
    }
    made(ex, call, args)
}

fn made(ex: &mut Executor, call: &'static Call, args: &Args) -> Outcome {
    if ex.memory.protects_code() {
        // A protected page in the midst of a buffer wouldn't fail the call but shorten it.
        outputs::unprotect(ex, call, args);
    }
    if let Some(goes) = ex.recorder.as_ref().and_then(|recorder| recorder.outlet) {
        return outlet::make(ex, call, args, goes);
    }
    if govern::active() && matches!(call.wait, Wait::Never) {
        govern::acquire_all(&scratch::Scratch::ranges(ex, call, args));
    }
    if matches!(call.maker, Maker::Proxy) {
        guest_signals::before_sending(ex, call.nr as i64, args);
    }
    match call.maker {
        Maker::Any => {}
        Maker::Proxy if !ex.multi_threaded() => {}
        Maker::Proxy => return Outcome::Return(ex.call_on_proxy(call.nr as i64, *args)),
        Maker::Both => return Outcome::Return(ex.call_on_both(call.nr as i64, *args)),
    }
    match call.wait {
        Wait::Never if govern::active() && awaits_disk(call) => {
            govern::park();
            let ret = direct(ex, call, args);
            govern::unpark();
            Outcome::Return(ret)
        }
        Wait::Never => Outcome::Return(direct(ex, call, args)),
        _ => waits::make(ex, call, args),
    }
}

/// Whether a call, which uses none of the guest's memory, takes as long as a disk does.
fn awaits_disk(call: &Call) -> bool {
    matches!(
        call.nr as i64,
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_sync_file_range | libc::SYS_syncfs
    )
}

/// [`pass`] for a handler that knows its call by number.
pub fn pass_nr(ex: &mut Executor, nr: i64, args: Args) -> Outcome {
    pass(ex, table::lookup(nr as u64), &args)
}

/// Makes a call right here, and again if it failed only because the engine had write-protected
/// a page that holds translated code.
fn direct(ex: &mut Executor, call: &Call, args: &Args) -> i64 {
    let ret = raw(call, args);
    if ret == err(libc::EFAULT) && outputs::unprotect(ex, call, args) {
        return raw(call, args);
    }
    ret
}

/// Makes a guest's call with its own arguments.
fn raw(call: &Call, args: &Args) -> i64 {
    borrower::rests();
    // SAFETY: guest and engine share an address space by design; the table says that this call
    // only does to the process what the guest may do to itself.
    let ret = unsafe { crate::sys::call(call.nr as i64, *args) };
    borrower::works();
    ret
}

fn unknown(ex: &mut Executor, nr: u64) -> Outcome {
    if ex.options.warn_calls && !ex.kernel.warned.contains(&nr) {
        ex.kernel.warned.push(nr);
        stop::warn(&format!("unknown system call {}: ENOSYS", nr as u32));
    }
    Outcome::Return(err(libc::ENOSYS))
}

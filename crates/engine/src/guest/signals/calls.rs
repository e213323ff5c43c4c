//! The system calls about signals that don't wait: arguments in, [`Outcome`] out.

use super::altstack::AltStack;
use super::frame;
use clew_recording::event::Cause;

use crate::context::{RSP, Xsave};
use crate::executor::Executor;
use crate::guest::access::{self, Fault};
use crate::host::handlers::Action;
use crate::host::siginfo::{SI_KERNEL, Siginfo};
use crate::host::sigset::{NSIG, SigSet, set_kernel_mask};
use crate::host::switch;
use crate::kernel::Outcome;
use crate::sys::err;

const EINVAL: Outcome = Outcome::Return(err(libc::EINVAL));
const EFAULT: Outcome = Outcome::Return(Fault::ERRNO);
/// Flags that the kernel keeps; it drops all others, so that programs can probe for them.
const KNOWN_FLAGS: u64 = 0xdc00_0807;

pub fn sys_rt_sigaction(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    let [sig, new, old, size, ..] = args;
    let sig = sig as i32;
    if size != 8 {
        return EINVAL;
    }
    let new = match (new != 0).then(|| access::read::<Action>(new)).transpose() {
        Ok(new) => new,
        Err(Fault) => return EFAULT,
    };
    let fixed = SigSet::UNBLOCKABLE.contains(sig);
    if !(1..=NSIG as i32).contains(&sig) || (new.is_some() && fixed) {
        return EINVAL;
    }
    let before = *ex.signals.action(sig);
    if let Some(mut action) = new {
        action.flags &= KNOWN_FLAGS;
        action.mask = action.mask.blockable();
        ex.signals.set_action(sig, action);
    }
    if old != 0 && ex.put(old, &before).is_err() {
        return EFAULT;
    }
    Outcome::Return(0)
}

pub fn sys_rt_sigprocmask(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    let [how, new, old, size, ..] = args;
    if size != 8 {
        return EINVAL;
    }
    let before = ex.current().signals.mask;
    if new != 0 {
        let Ok(set) = access::read::<SigSet>(new) else {
            return EFAULT;
        };
        let mask = match how as i32 {
            libc::SIG_BLOCK => before.union(set),
            libc::SIG_UNBLOCK => before.minus(set),
            libc::SIG_SETMASK => set,
            _ => return EINVAL,
        };
        if !change_mask(ex, mask.blockable()) {
            return Outcome::Restart;
        }
    }
    if old != 0 && ex.put(old, &before).is_err() {
        return EFAULT;
    }
    Outcome::Return(0)
}

/// False if a signal came first that the new mask would block: the guest takes it before the call.
fn change_mask(ex: &mut Executor, mask: SigSet) -> bool {
    if ex.multi_threaded() {
        ex.set_guest_mask(mask);
        return true;
    }
    if ex.gs.host.any() {
        return false;
    }
    let before = ex.current().signals.mask;
    ex.set_guest_mask(mask);
    let mut too_late = false;
    ex.gs
        .host
        .each(|info| too_late |= mask.contains(info.signo()) && !before.contains(info.signo()));
    if too_late {
        set_kernel_mask(SigSet::ASYNCHRONOUS);
        ex.current().signals.kernel_mask = SigSet::ASYNCHRONOUS;
        ex.current().signals.mask = before;
    } else {
        // Something that the old mask blocked, held back here, may go now.
        ex.look_again();
    }
    !too_late
}

pub fn sys_rt_sigpending(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    let [at, size, ..] = args;
    if size > 8 {
        return EINVAL;
    }
    ex.sync_mask();
    let mut set = SigSet::NONE;
    // Made into engine memory, since signals that wait in the engine are added.
    let ret = ex.call_on_proxy(
        libc::SYS_rt_sigpending,
        [&raw mut set as u64, 8, 0, 0, 0, 0],
    );
    if ret < 0 {
        return Outcome::Return(ret);
    }
    let signals = &ex.current().signals;
    for info in &signals.pending {
        if signals.mask.contains(info.signo()) {
            set = set.union(SigSet::only(info.signo()));
        }
    }
    match ex.write_guest(at, &set.0.to_le_bytes()[..size as usize]) {
        Ok(()) => Outcome::Return(0),
        Err(Fault) => EFAULT,
    }
}

pub fn sys_sigaltstack(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    let [new, old, ..] = args;
    let sp = ex.gs.regs.gpr[RSP];
    let new = match (new != 0)
        .then(|| access::read::<[u64; 3]>(new))
        .transpose()
    {
        Ok(new) => new.map(AltStack::from_words),
        Err(Fault) => return EFAULT,
    };
    let stack = &mut ex.current().signals.altstack;
    let seen = stack.seen(sp);
    if let Some(new) = new {
        let ret = stack.set(new, sp);
        if ret != 0 {
            return Outcome::Return(ret);
        }
    }
    if old != 0 && ex.put(old, &seen.to_words()).is_err() {
        return EFAULT;
    }
    Outcome::Return(0)
}

pub fn sys_rt_sigreturn(ex: &mut Executor, _args: [u64; 6]) -> Outcome {
    if restore_frame(ex).is_none() {
        ex.force(&Siginfo::fault(libc::SIGSEGV, SI_KERNEL, 0), Cause::Fault);
    }
    Outcome::Replaced
}

/// None if the frame is no good.
fn restore_frame(ex: &mut Executor) -> Option<()> {
    let mut regs = ex.gs.regs;
    let uc = access::read::<[u8; frame::UCONTEXT]>(regs.gpr[RSP]).ok()?;
    let restored = frame::parse(&uc, &mut regs);
    let area = if restored.xstate == 0 {
        Xsave::default()
    } else {
        let bytes = access::read::<[u8; 832]>(restored.xstate).ok()?;
        let magic2 = access::read::<u32>(restored.xstate + 832).ok();
        frame::parse_xstate(&bytes, magic2)?
    };
    ex.gs.regs = regs;
    switch::load_extended(ex.gs, &area);
    // As in the kernel, a stack that can't be set is no reason to fail.
    ex.current()
        .signals
        .altstack
        .set(restored.altstack, regs.gpr[RSP]);
    ex.set_guest_mask(restored.mask);
    ex.look_again();
    Some(())
}

pub fn sys_tkill(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    send_to_thread(ex, libc::SYS_tkill, args, args[0])
}

pub fn sys_tgkill(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    send_to_thread(ex, libc::SYS_tgkill, args, args[1])
}

/// kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo: the kernel's own, made by the kernel
/// thread that stands for the guest's, so that a signal to oneself arrives before the call ends.
pub fn sys_send_signal(ex: &mut Executor, nr: i64, args: [u64; 6]) -> Outcome {
    before_sending(ex, nr, &args);
    Outcome::Return(ex.call_on_proxy(nr, args))
}

/// A process that kills itself (`abort`) ends inside the call, without a word to the engine: what was translated is
/// saved before.
pub fn before_sending(ex: &mut Executor, nr: i64, args: &[u64; 6]) {
    let (whom, sig) = match nr {
        libc::SYS_kill | libc::SYS_rt_sigqueueinfo => (args[0] as i32, args[1]),
        libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo => (args[0] as i32, args[2]),
        // Which process that is isn't told; one's own is the likely one.
        libc::SYS_tkill | libc::SYS_pidfd_send_signal => (0, args[1]),
        _ => return,
    };
    // 0, -1 and groups may mean oneself.
    let own = whom <= 0 || whom == ex.gs.hub.pid.load(std::sync::atomic::Ordering::Relaxed);
    if own && (1..=64).contains(&sig) && ex.signals.is_fatal(sig as i32) {
        ex.save_code();
    }
}

/// Where schedules are to be made again, a signal to another thread of the process arrives before
/// the call ends, too.
fn send_to_thread(ex: &mut Executor, nr: i64, args: [u64; 6], tid: u64) -> Outcome {
    let outcome = sys_send_signal(ex, nr, args);
    if outcome == Outcome::Return(0) {
        ex.await_signal(tid as i32);
    }
    outcome
}

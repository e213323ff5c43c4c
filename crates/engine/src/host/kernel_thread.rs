//! The header that a signal handler finds through gs, whichever kernel thread it interrupted.
//!
//! A handler never delivers anything. It *takes* the signal: stores its siginfo here and changes
//! the interrupted context so that, when it returns, all signals are blocked. So one signal at a
//! time is in the engine's hands and all others stay in the kernel, in the kernel's order, where
//! `sigpending` and `signalfd` see them. When the executor has delivered the signal it sets the
//! kernel's mask to what the guest's handler shall have, and the next one comes.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

use super::siginfo::Siginfo;

/// What a kernel thread is for.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// gs isn't set up yet.
    None = 0,
    Executor = 1,
    Proxy = 2,
}

/// Room for one blockable signal, for one more that slips in while a mask is being set, and for
/// one of each synchronous kind that somebody sent with `kill` (these can't be blocked on the
/// executor).
const ROOM: usize = 8;

#[repr(C)]
pub struct KernelThread {
    role: AtomicU32,
    /// How many signals are in `taken`. Nonzero aborts interruptible calls, see `blocking`.
    pub signalled: AtomicU32,
    taken: UnsafeCell<[Siginfo; ROOM]>,
}

// SAFETY: `taken` is written only by the handler on the kernel thread that owns the header, and
// read by the executor only below `signalled`, which the handler raises after writing.
unsafe impl Sync for KernelThread {}

impl Default for KernelThread {
    fn default() -> Self {
        KernelThread::new(Role::None)
    }
}

impl KernelThread {
    pub const fn new(role: Role) -> KernelThread {
        KernelThread {
            role: AtomicU32::new(role as u32),
            signalled: AtomicU32::new(0),
            taken: UnsafeCell::new([Siginfo::zeroed(); ROOM]),
        }
    }

    pub fn set_role(&self, role: Role) {
        self.role.store(role as u32, Ordering::Relaxed);
    }
    pub fn role(&self) -> Role {
        match self.role.load(Ordering::Relaxed) {
            1 => Role::Executor,
            2 => Role::Proxy,
            _ => Role::None,
        }
    }

    /// For the handler: keeps `info`. A second one of a kind that is already there is dropped, as
    /// the kernel drops a standard signal that is pending.
    pub fn take(&self, info: &Siginfo) {
        let count = self.signalled.load(Ordering::Acquire) as usize;
        // SAFETY: see `Sync`; the handler is the only writer.
        let taken = unsafe { &mut *self.taken.get() };
        let unblockable = super::sigset::SigSet::SYNCHRONOUS.contains(info.signo());
        if unblockable
            && taken[..count.min(ROOM)]
                .iter()
                .any(|t| t.signo() == info.signo())
        {
            return;
        }
        if count < ROOM {
            taken[count] = *info;
            self.signalled.store(count as u32 + 1, Ordering::Release);
        }
    }

    pub fn any(&self) -> bool {
        self.signalled.load(Ordering::Acquire) != 0
    }

    /// For the executor: removes all that was taken, in order, and hands each to `each`.
    pub fn drain(&self, mut each: impl FnMut(Siginfo)) {
        loop {
            let count = self.signalled.load(Ordering::Acquire);
            if count == 0 {
                return;
            }
            // SAFETY: entries below `count` are complete and the handler doesn't touch them again
            // before `signalled` falls.
            let taken = unsafe { *self.taken.get() };
            // A handler that interrupts us between the two loads raises the count: look again.
            if self
                .signalled
                .compare_exchange(count, 0, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                taken[..count as usize].iter().for_each(|info| each(*info));
                return;
            }
        }
    }

    /// For the executor: looks at what its own kernel thread took.
    pub fn each(&self, each: impl FnMut(&Siginfo)) {
        let count = self.signalled.load(Ordering::Acquire) as usize;
        // SAFETY: entries below `count` are complete.
        let taken = unsafe { *self.taken.get() };
        taken[..count].iter().for_each(each);
    }

    pub fn clear(&self) {
        self.signalled.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_in_order_and_merges_unblockable_kinds() {
        let thread = KernelThread::new(Role::Executor);
        for sig in [libc::SIGTRAP, libc::SIGUSR1, libc::SIGTRAP, 40] {
            thread.take(&Siginfo::fault(sig, 0, 0));
        }
        let mut got = Vec::new();
        thread.drain(|info| got.push(info.signo()));
        assert_eq!(got, [libc::SIGTRAP, libc::SIGUSR1, 40]);
        assert!(!thread.any());
    }
}

//! A set of signals as the kernel keeps it: bit `n - 1` stands for signal `n`.

/// Signals are numbered 1 to 64.
pub const NSIG: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct SigSet(pub u64);

const fn bit(sig: i32) -> u64 {
    1 << ((sig - 1) & 63)
}

impl SigSet {
    pub const NONE: SigSet = SigSet(0);
    pub const ALL: SigSet = SigSet(!0);
    /// Signals that an instruction raises. The engine needs them for itself (its own accesses to
    /// guest memory may fault), so on the executor they are never blocked and always handled; the
    /// guest's mask and disposition for them are emulated.
    pub const SYNCHRONOUS: SigSet = SigSet(
        bit(libc::SIGSEGV)
            | bit(libc::SIGBUS)
            | bit(libc::SIGILL)
            | bit(libc::SIGFPE)
            | bit(libc::SIGTRAP),
    );
    /// All that may be blocked on the executor.
    pub const ASYNCHRONOUS: SigSet = SigSet(!SigSet::SYNCHRONOUS.0);
    /// What kills by default and can be handled: all that doesn't stop, continue or do nothing.
    pub const FATAL: SigSet = SigSet(
        !(bit(libc::SIGKILL)
            | bit(libc::SIGSTOP)
            | bit(libc::SIGTSTP)
            | bit(libc::SIGTTIN)
            | bit(libc::SIGTTOU)
            | bit(libc::SIGCONT)
            | bit(libc::SIGCHLD)
            | bit(libc::SIGURG)
            | bit(libc::SIGWINCH)),
    );
    /// What the kernel silently removes from every mask.
    pub const UNBLOCKABLE: SigSet = SigSet(bit(libc::SIGKILL) | bit(libc::SIGSTOP));

    pub const fn only(sig: i32) -> SigSet {
        SigSet(bit(sig))
    }
    pub const fn contains(self, sig: i32) -> bool {
        sig >= 1 && sig <= NSIG as i32 && self.0 & bit(sig) != 0
    }
    pub const fn union(self, other: SigSet) -> SigSet {
        SigSet(self.0 | other.0)
    }
    pub const fn minus(self, other: SigSet) -> SigSet {
        SigSet(self.0 & !other.0)
    }
    pub const fn intersects(self, other: SigSet) -> bool {
        self.0 & other.0 != 0
    }
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// As the kernel would store it: without the signals that can't be blocked.
    pub const fn blockable(self) -> SigSet {
        self.minus(SigSet::UNBLOCKABLE)
    }
    /// As the executor's kernel thread may have it.
    pub const fn on_executor(self) -> SigSet {
        self.minus(SigSet::SYNCHRONOUS)
    }
}

/// Sets this kernel thread's mask.
pub fn set_kernel_mask(mask: SigSet) {
    // SAFETY: `mask` is a valid 8-byte set; no old set is asked for.
    unsafe {
        crate::syscall!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            0,
            8
        );
    }
}

/// This kernel thread's mask.
pub fn kernel_mask() -> SigSet {
    let mut mask = SigSet::NONE;
    // SAFETY: only asks; `mask` has room for the 8-byte set.
    unsafe {
        crate::syscall!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            0,
            &raw mut mask,
            8
        );
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbering_is_the_kernels() {
        assert_eq!(SigSet::only(1).0, 1);
        assert_eq!(SigSet::only(64).0, 1 << 63);
        assert!(SigSet::ALL.contains(64) && !SigSet::ALL.contains(0) && !SigSet::ALL.contains(65));
        assert_eq!(SigSet::UNBLOCKABLE.0, 0x40100);
        assert!(!SigSet::ASYNCHRONOUS.contains(libc::SIGSEGV));
    }
}

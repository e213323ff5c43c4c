//! `siginfo_t` in the kernel's own layout.

#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct Siginfo(pub [u8; 128]);

/// Sent by the kernel itself (general protection faults, `int3`).
pub const SI_KERNEL: i32 = 0x80;
/// Sent with `tgkill`/`tkill`: meant for one thread.
pub const SI_TKILL: i32 = -6;

impl Siginfo {
    pub const fn zeroed() -> Siginfo {
        Siginfo([0; 128])
    }

    /// A fault at `addr`.
    pub fn fault(signo: i32, code: i32, addr: u64) -> Siginfo {
        let mut info = Siginfo::zeroed();
        info.put(0, signo);
        info.put(8, code);
        info.0[16..24].copy_from_slice(&addr.to_le_bytes());
        info
    }

    /// A call that a filter denied: behind which instruction, its number, what the filter said besides.
    pub fn denied(ip: u64, nr: i32, data: i32) -> Siginfo {
        const SYS_SECCOMP: i32 = 1;
        const AUDIT_ARCH_X86_64: i32 = 0xc000_003e_u32 as i32;
        let mut info = Siginfo::fault(libc::SIGSYS, SYS_SECCOMP, ip);
        info.put(4, data);
        info.put(24, nr);
        info.put(28, AUDIT_ARCH_X86_64);
        info
    }

    /// The same of another signal.
    pub fn of(mut self, signo: i32) -> Siginfo {
        self.put(0, signo);
        self
    }

    fn put(&mut self, at: usize, value: i32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    fn get(&self, at: usize) -> i32 {
        i32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }
    pub fn signo(&self) -> i32 {
        self.get(0)
    }
    pub fn code(&self) -> i32 {
        self.get(8)
    }
    pub fn addr(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[16..24]);
        u64::from_le_bytes(bytes)
    }
    /// First half of `si_value` in a queued signal.
    pub fn value(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[24..32]);
        u64::from_le_bytes(bytes)
    }
    pub fn queued(signo: i32, code: i32, value: u64) -> Siginfo {
        let mut info = Siginfo::zeroed();
        info.put(0, signo);
        info.put(8, code);
        info.0[24..32].copy_from_slice(&value.to_le_bytes());
        info
    }
}

impl std::fmt::Debug for Siginfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "signal {} code {} addr {:#x}",
            self.signo(),
            self.code(),
            self.addr()
        )
    }
}

/// Sends a signal to one thread of this process.
pub fn send_to_thread(tid: i32, sig: i32) {
    // SAFETY: sends a signal; touches no memory.
    unsafe {
        let pid = crate::syscall!(libc::SYS_getpid);
        crate::syscall!(libc::SYS_tgkill, pid, tid, sig);
    }
}

/// Puts a signal back into the kernel's queues, with the siginfo it came with.
///
/// One that was meant for a thread goes to `tid`; any other to the process, so that a thread that
/// doesn't block it can have it.
pub fn requeue(tid: i32, info: &Siginfo) {
    let sig = info.signo();
    // SAFETY: sends a signal to this process with a complete siginfo; touches no memory.
    unsafe {
        let pid = crate::syscall!(libc::SYS_getpid);
        let own = crate::syscall!(libc::SYS_gettid);
        // The kernel lets a thread say "the kernel (or a user) sent this" only to itself, and
        // takes the main thread for the process.
        let refused = if info.code() == SI_TKILL {
            let to = info.0.as_ptr();
            own != i64::from(tid)
                || crate::syscall!(libc::SYS_rt_tgsigqueueinfo, pid, tid, sig, to) != 0
        } else {
            crate::syscall!(libc::SYS_rt_sigqueueinfo, pid, sig, info.0.as_ptr()) != 0
                && !through_own_pidfd(own, info)
        };
        // The signal matters more than what it says about its sender.
        if refused && info.code() == SI_TKILL {
            crate::syscall!(libc::SYS_tgkill, pid, tid, sig);
        } else if refused {
            crate::syscall!(libc::SYS_kill, pid, sig);
        }
    }
}

/// To the process of the calling thread, named by that thread: any thread may say anything so
/// (Linux 6.9).
fn through_own_pidfd(own: i64, info: &Siginfo) -> bool {
    const PIDFD_THREAD: i32 = libc::O_EXCL;
    const PIDFD_SIGNAL_THREAD_GROUP: i32 = 2;
    // SAFETY: opens a descriptor, sends through it, closes it.
    unsafe {
        let fd = crate::syscall!(libc::SYS_pidfd_open, own, PIDFD_THREAD);
        if fd < 0 {
            return false;
        }
        let flags = PIDFD_SIGNAL_THREAD_GROUP;
        let ret = crate::syscall!(
            libc::SYS_pidfd_send_signal,
            fd,
            info.signo(),
            info.0.as_ptr(),
            flags
        );
        crate::syscall!(libc::SYS_close, fd);
        ret == 0
    }
}

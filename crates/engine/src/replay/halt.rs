//! Ctrl-Z: the terminal's request to stop in, replaying processes that stop and go on with clew out.
//!
//! They are process groups of their own, so the terminal's signal doesn't come to them. clew takes it, stops them, stops itself as it
//! would have, and when it is continued has them go on.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Requests are taken as long as this lives.
pub struct Halt(OwnedFd);

impl Halt {
    /// `None` if stopping is ignored here, or taken by somebody else.
    pub fn new() -> Option<Halt> {
        // SAFETY: asks for a disposition, and makes a descriptor that is nobody else's.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let asked = libc::sigaction(libc::SIGTSTP, std::ptr::null(), &raw mut action);
            if asked != 0 || action.sa_sigaction != libc::SIG_DFL {
                return None;
            }
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            let fd = libc::signalfd(-1, &request(), flags);
            if fd < 0 {
                return None;
            }
            mask(libc::SIG_BLOCK);
            Some(Halt(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Readable when there is a request.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// If there is a request: stops with these process groups, until clew is continued.
    pub fn answer(&self, groups: impl Fn() -> Vec<i32>) {
        let mut room = [0u8; size_of::<libc::signalfd_siginfo>()];
        // SAFETY: the kernel writes at most so many bytes.
        let read = unsafe { libc::read(self.fd(), room.as_mut_ptr().cast(), room.len()) };
        if read <= 0 {
            return;
        }
        send(&groups(), libc::SIGSTOP);
        // SAFETY: a signal to this process, which stops here, as it would have without all this.
        unsafe {
            libc::kill(libc::getpid(), libc::SIGTSTP);
            mask(libc::SIG_UNBLOCK);
            mask(libc::SIG_BLOCK);
        }
        send(&groups(), libc::SIGCONT);
    }
}

impl Drop for Halt {
    fn drop(&mut self) {
        // SAFETY: the signal was let through before.
        unsafe { mask(libc::SIG_UNBLOCK) };
    }
}

fn send(groups: &[i32], signal: i32) {
    for &group in groups {
        // SAFETY: groups of children of ours, or of nobody.
        unsafe { libc::kill(-group, signal) };
    }
}

fn request() -> libc::sigset_t {
    // SAFETY: a set is plain numbers.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTSTP);
        set
    }
}

/// # Safety
/// Nobody else changes what becomes of SIGTSTP.
unsafe fn mask(how: i32) {
    // SAFETY: reads a set.
    unsafe { libc::sigprocmask(how, &request(), std::ptr::null_mut()) };
}

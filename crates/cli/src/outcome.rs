//! How this process ends where another one's end is to be seen.

/// Dies as a process does that this signal kills, as far as a shell can see; without a core.
pub fn die_by(signo: i32) -> ! {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: calls that touch nothing of ours, on the way out. A core would be this program's, not
    // the recorded one's; helpers that take cores over a pipe are kept away by the last.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::signal(signo, libc::SIG_DFL);
        let mut only = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, signo);
        // A recording may name one that only stops.
        if !matches!(
            signo,
            libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU
        ) {
            libc::raise(signo);
        }
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
        // A signal whose default isn't to kill: as a shell tells it.
        libc::_exit(128 + (signo & 0x7f));
    }
}

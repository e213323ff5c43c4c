//! The lock around a replaying process: what it may ask of the kernel from here on.
//!
//! A recording may come from a stranger, and its program runs in the same address space as the
//! engine: nothing in this process is safe from it. So the kernel keeps it in. What is left: its
//! own memory, reading files that are open (the recording's, and saved translations: none can be
//! written), forks of itself if the recording has some, words on a pipe, and reports on a socket.
//! No file can be opened, no signal sent, no other process looked at, no limit raised.
//!
//! Any other call kills the process, and the coordinator says so.

use std::io;
use std::os::fd::RawFd;

use crate::layout;
use crate::{sys, syscall};

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0x8000_0000;
const REFUSE: u32 = 0x0005_0000 | libc::EACCES as u32;

/// Whatever the arguments are.
const ANY: &[i64] = &[
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mincore,
    // Of what is open: files for reading, and memory of its own (see `memory::objects`).
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_pwrite64,
    libc::SYS_copy_file_range,
    libc::SYS_fallocate,
    libc::SYS_sysinfo,
    libc::SYS_clock_gettime,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_wait4,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_gettid,
    libc::SYS_futex,
    libc::SYS_getrandom,
];

/// What the engine tries where it can, and does without: saved translations.
const REFUSED: &[i64] = &[libc::SYS_open, libc::SYS_openat, libc::SYS_utimensat];

const STDERR: u32 = 2;

/// The filter, instruction by instruction.
#[derive(Default)]
struct Filter(Vec<libc::sock_filter>);

impl Filter {
    fn put(&mut self, code: u32, k: u32, jt: u8, jf: u8) {
        let code = code as u16;
        self.0.push(libc::sock_filter { code, jt, jf, k });
    }

    fn load(&mut self, offset: u32) {
        self.put(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0);
    }

    /// The low half of an argument: all of it, where the kernel takes an int.
    fn load_argument(&mut self, n: u32) {
        self.load(16 + 8 * n);
    }

    fn load_high(&mut self, n: u32) {
        self.load(16 + 8 * n + 4);
    }

    fn equal(&mut self, k: u32, jt: u8, jf: u8) {
        self.put(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k, jt, jf);
    }

    fn answer(&mut self, with: u32) {
        self.put(libc::BPF_RET | libc::BPF_K, with, 0, 0);
    }

    /// The number, which is loaded, decides at once.
    fn call(&mut self, nr: i64, answer: u32) {
        self.equal(nr as u32, 0, 1);
        self.answer(answer);
    }

    /// More is to be looked at: `rules` must answer on all ways.
    fn call_with(&mut self, nr: i64, rules: impl FnOnce(&mut Filter)) {
        let mut inner = Filter::default();
        rules(&mut inner);
        let len = u8::try_from(inner.0.len()).expect("a few instructions");
        self.equal(nr as u32, 0, len);
        self.0.append(&mut inner.0);
    }

    /// Allowed if argument `n`, an int, is one of these.
    fn argument_in(&mut self, n: u32, values: &[u32]) {
        self.load_argument(n);
        for &value in values {
            self.equal(value, 0, 1);
            self.answer(ALLOW);
        }
        self.answer(KILL);
    }

    /// Allowed if argument `n`, an int, is one of `count` from `first` on.
    fn argument_between(&mut self, n: u32, first: u32, count: u32) {
        let at_least = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
        self.load_argument(n);
        self.put(at_least, first, 1, 0);
        self.answer(KILL);
        self.put(at_least, first + count, 0, 1);
        self.answer(KILL);
        self.answer(ALLOW);
    }

    /// Allowed if all of argument `n` is this.
    fn argument_is(&mut self, n: u32, value: u32) {
        self.load_high(n);
        self.equal(0, 1, 0);
        self.answer(KILL);
        self.argument_in(n, &[value]);
    }

    /// Executable memory is the code cache only.
    fn protection(&mut self) {
        const EXEC: u32 = libc::PROT_EXEC as u32;
        self.load_argument(2);
        self.put(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, EXEC, 1, 0);
        self.answer(ALLOW);
        self.load_high(0);
        self.equal(0, 1, 0);
        self.answer(KILL);
        let (start, end) = (layout::CODE_CACHE.start, layout::CODE_CACHE.end);
        let at_least = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
        self.load_argument(0);
        self.put(at_least, start as u32, 1, 0);
        self.answer(KILL);
        self.put(at_least, end as u32, 0, 1);
        self.answer(KILL);
        self.answer(ALLOW);
    }

    /// Allowed unless argument `n`, an int, is this.
    fn argument_is_not(&mut self, n: u32, value: u32) {
        self.load_argument(n);
        self.equal(value, 0, 1);
        self.answer(KILL);
        self.answer(ALLOW);
    }
}

/// What a locked process is for.
#[derive(Clone, Copy)]
enum Purpose {
    /// Replays and reports; may it fork?
    Replay { report: RawFd, forks: bool },
    /// Serves on one of the channels, by its first descriptor and their number, and forks more of its kind.
    Worker { first: RawFd, count: u32 },
}

/// What a worker's forks are made with: its parent's children, like itself.
const FORK_FLAGS: u32 = (libc::CLONE_PARENT | libc::SIGCHLD) as u32;

fn filter(purpose: Purpose, leash: RawFd) -> Vec<libc::sock_filter> {
    let mut filter = Filter::default();
    filter.load(4);
    filter.equal(AUDIT_ARCH_X86_64, 1, 0);
    filter.answer(KILL);
    filter.load(0);
    for &nr in ANY {
        filter.call(nr, ALLOW);
    }
    for &nr in REFUSED {
        filter.call(nr, REFUSE);
    }
    filter.call_with(libc::SYS_close, |rules| {
        rules.argument_is_not(0, leash as u32);
    });
    match purpose {
        Purpose::Replay { report, forks } => {
            if forks {
                filter.call(libc::SYS_fork, ALLOW);
            }
            filter.call_with(libc::SYS_sendto, |rules| {
                rules.argument_in(0, &[report as u32]);
            });
        }
        Purpose::Worker { first, count } => {
            for nr in [libc::SYS_recvfrom, libc::SYS_sendto] {
                filter.call_with(nr, |rules| rules.argument_between(0, first as u32, count));
            }
            filter.call_with(libc::SYS_clone, |rules| rules.argument_is(0, FORK_FLAGS));
            filter.call(libc::SYS_getppid, ALLOW);
        }
    }
    for nr in [libc::SYS_mmap, libc::SYS_mprotect] {
        filter.call_with(nr, Filter::protection);
    }
    for nr in [libc::SYS_write, libc::SYS_writev] {
        filter.call_with(nr, |rules| rules.argument_in(0, &[STDERR]));
    }
    // Not the commands that make descriptors send signals.
    let commands = [
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
    ];
    filter.call_with(libc::SYS_fcntl, |rules| {
        rules.argument_in(1, &commands.map(|command| command as u32));
    });
    filter.answer(KILL);
    filter.0
}

/// Descriptors that came from outside, besides the standard ones: what clew opened itself is closed on
/// exec, what isn't was left open by whoever started it. There may be thousands of clew's own, so they are
/// looked through once, for all processes.
pub fn inherited() -> io::Result<Vec<RawFd>> {
    let open = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    // SAFETY: F_GETFD touches no memory.
    let inherited = |fd: &RawFd| *fd > 2 && unsafe { libc::fcntl(*fd, libc::F_GETFD) } == 0;
    Ok(open.filter(inherited).collect())
}

/// Takes from this process what it doesn't need: the descriptors that its parent has `inherited`, standard
/// input and output, core dumps. What it says on stderr goes to `words`.
pub fn undress(inherited: &[RawFd], words: RawFd) -> io::Result<()> {
    // SAFETY: descriptors of this process; those closed are nobody's in it.
    unsafe {
        for &fd in inherited {
            libc::close(fd);
        }
        let nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if nowhere < 0 {
            return Err(io::Error::last_os_error());
        }
        for (from, to) in [(nowhere, 0), (nowhere, 1), (words, 2)] {
            if libc::dup2(from, to) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        libc::close(nowhere);
        libc::close(words);
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
    }
    // If memory runs out, this process is the one to go. Not everywhere can that be chosen.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    Ok(())
}

/// From here on this process, and what it forks, can do no harm. `forks`: it may fork. `leash`: what it can't close.
pub fn lock(report: RawFd, forks: bool, leash: RawFd) -> io::Result<()> {
    install(Purpose::Replay { report, forks }, leash)
}

/// The same for one that is commanded over one of `count` descriptors from `first` on.
pub fn lock_worker(first: RawFd, count: usize, leash: RawFd) -> io::Result<()> {
    let count = count as u32;
    install(Purpose::Worker { first, count }, leash)
}

fn install(purpose: Purpose, leash: RawFd) -> io::Result<()> {
    filtered(&mut filter(purpose, leash), 0).map(drop)
}

/// Puts a filter around this process for good; the descriptor that `flags` may ask for.
pub(super) fn filtered(program: &mut [libc::sock_filter], flags: u64) -> io::Result<RawFd> {
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel reads the program, which lives until the calls are over.
    let answer = unsafe {
        match syscall!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) {
            0 => syscall!(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const filter
            ),
            error => error,
        }
    };
    match answer {
        0.. => Ok(answer as RawFd),
        error => Err(sys::error(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody's descriptor.
    const LEASH: RawFd = 1000;

    /// What becomes of a locked child that does this: its exit status, or None if it was killed.
    fn locked(forks: bool, act: impl FnOnce(RawFd) -> i32) -> Option<i32> {
        let (_mine, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let report = std::os::fd::AsRawFd::as_raw_fd(&theirs);
        // SAFETY: the child only makes system calls.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                let status = match lock(report, forks, LEASH) {
                    Ok(()) => act(report),
                    Err(_) => 99,
                };
                syscall!(libc::SYS_exit_group, status);
            }
            let mut status = 0;
            libc::waitpid(pid, &mut status, 0);
            libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
        }
    }

    fn call(nr: i64, args: [i64; 6]) -> Option<i32> {
        // SAFETY: what the tests below ask for touches no memory, or is refused.
        locked(false, |_| unsafe {
            let [a, b, c, d, e, f] = args;
            (syscall!(nr, a, b, c, d, e, f) < 0) as i32
        })
    }

    /// The same for a worker with two channels, whose first descriptor `act` is given.
    fn locked_worker(act: impl FnOnce(RawFd) -> i32) -> Option<i32> {
        let (_mine, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let first = std::os::fd::AsRawFd::as_raw_fd(&theirs);
        // SAFETY: the child only makes system calls.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                let status = match lock_worker(first, 2, LEASH) {
                    Ok(()) => act(first),
                    Err(_) => 99,
                };
                syscall!(libc::SYS_exit_group, status);
            }
            let mut status = 0;
            libc::waitpid(pid, &mut status, 0);
            libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
        }
    }

    #[test]
    fn workers_use_their_channels_and_fork_for_their_parent() {
        // SAFETY: sends from a constant, looks for what isn't there, forks a process that ends.
        let served = locked_worker(|first| unsafe {
            let sent = syscall!(libc::SYS_sendto, first, c"x".as_ptr(), 1, 0, 0, 0);
            let mut byte = 0u8;
            let none = libc::MSG_DONTWAIT;
            let got = syscall!(libc::SYS_recvfrom, first, &raw mut byte, 1, none, 0, 0);
            let child = syscall!(libc::SYS_clone, u64::from(FORK_FLAGS), 0, 0, 0, 0);
            if child == 0 {
                syscall!(libc::SYS_exit_group, 0);
            }
            let all = sent == 1 && got == sys::err(libc::EAGAIN) && child > 0;
            (!all || syscall!(libc::SYS_getppid) <= 0) as i32
        });
        assert_eq!(served, Some(0));
        let refused = |nr: i64, args: [i64; 5]| {
            // SAFETY: refused before anything is touched.
            locked_worker(|first| unsafe {
                let [a, b, c, d, e] = args;
                let a = if a == -7 { i64::from(first) + 2 } else { a };
                syscall!(nr, a, b, c, d, e, 0) as i32
            })
        };
        assert_eq!(refused(libc::SYS_sendto, [-7, 0, 0, 0, 0]), None);
        assert_eq!(refused(libc::SYS_recvfrom, [0, 0, 0, 0, 0]), None);
        assert_eq!(
            refused(libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0, 0, 0]),
            None
        );
        let thread = i64::from(FORK_FLAGS) | i64::from(libc::CLONE_VM);
        assert_eq!(refused(libc::SYS_clone, [thread, 0, 0, 0, 0]), None);
        let high = i64::from(FORK_FLAGS) | 1 << 32;
        assert_eq!(refused(libc::SYS_clone, [high, 0, 0, 0, 0]), None);
        let name = i64::from(libc::PR_SET_NAME);
        assert_eq!(refused(libc::SYS_prctl, [name, 0, 0, 0, 0]), None);
        assert_eq!(refused(libc::SYS_fork, [0; 5]), None);
        assert_eq!(refused(libc::SYS_kill, [0; 5]), None);
    }

    #[test]
    fn memory_and_reports_are_allowed() {
        let anon = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as i64;
        assert_eq!(call(libc::SYS_mmap, [0, 4096, 3, anon, -1, 0]), Some(0));
        let cache = layout::CODE_CACHE.start as i64;
        let fixed = anon | libc::MAP_FIXED as i64;
        assert_eq!(
            call(libc::SYS_mmap, [cache, 4096, 7, fixed, -1, 0]),
            Some(0)
        );
        // SAFETY: sends from a constant.
        let sent = locked(false, |report| unsafe {
            (syscall!(libc::SYS_sendto, report, c"x".as_ptr(), 1, 0, 0, 0) != 1) as i32
        });
        assert_eq!(sent, Some(0));
    }

    #[test]
    fn nothing_else_is() {
        let anon = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as i64;
        assert_eq!(call(libc::SYS_mmap, [0, 4096, 7, anon, -1, 0]), None);
        let beyond = layout::CODE_CACHE.end as i64;
        assert_eq!(call(libc::SYS_mprotect, [beyond, 4096, 7, 0, 0, 0]), None);
        let high = layout::CODE_CACHE.start as i64 + (1 << 32);
        assert_eq!(call(libc::SYS_mprotect, [high, 4096, 7, 0, 0, 0]), None);
        assert_eq!(call(libc::SYS_write, [1, 0, 0, 0, 0, 0]), None);
        assert_eq!(call(libc::SYS_sendto, [0, 0, 0, 0, 0, 0]), None);
        assert_eq!(call(libc::SYS_close, [LEASH.into(), 0, 0, 0, 0, 0]), None);
        // Open in no process: other tests may have any smaller one.
        let none = i64::from(i32::MAX);
        assert_eq!(call(libc::SYS_close, [none, 0, 0, 0, 0, 0]), Some(1));
        assert_eq!(call(libc::SYS_setpgid, [0; 6]), None);
        let own = libc::F_SETOWN as i64;
        assert_eq!(call(libc::SYS_fcntl, [0, own, 1, 0, 0, 0]), None);
        assert_eq!(call(libc::SYS_openat, [-100, 0, 0, 0, 0, 0]), Some(1));
        for nr in [
            libc::SYS_fork,
            libc::SYS_clone,
            libc::SYS_execve,
            libc::SYS_socket,
            libc::SYS_kill,
            libc::SYS_tgkill,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_unlink,
            libc::SYS_sendmsg,
            libc::SYS_ioctl,
            libc::SYS_prlimit64,
            libc::SYS_setpriority,
            libc::SYS_dup2,
        ] {
            assert_eq!(call(nr, [0; 6]), None, "call {nr}");
        }
        // Another architecture's numbers: x32.
        assert_eq!(call(libc::SYS_getpid | 0x4000_0000, [0; 6]), None);
    }
}

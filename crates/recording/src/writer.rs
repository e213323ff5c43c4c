//! The process that writes the log: how it is started and what it is made of.
//!
//! In: a channel and a recording's folder. Out: `log` in that folder.
//!
//! It is nobody's child, has no terminal and no descriptors of others, and takes no signals: what happens
//! to the recorded program doesn't happen to it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use crate::channel::Channel;
use crate::futex::RobustList;
use crate::log;
use crate::tail::Limit;
use crate::tail::parts::Parts;
use crate::writing::Writing;

/// How the writer works.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only so much is kept: in parts, that are to be gathered.
    pub tail: Option<Limit>,
}

/// Starts the writer of a new recording; returns when it is ready. `folder` is there and has no log yet.
///
/// The writer ends when all streams have ended, or if the caller ends before the first begins.
pub fn spawn(channel: &Channel, folder: &Path, options: &Options) -> io::Result<()> {
    // It holds what the program had in memory.
    let mut log = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(folder.join(log::NAME))?;
    log.write_all(&log::file_header())?;
    log.try_lock()
        .map_err(|_| io::Error::other("the new log is locked by somebody else"))?;
    let parts = match options.tail {
        Some(limit) => Some(Parts::create(folder, limit)?),
        None => None,
    };
    channel
        .control()
        .tail
        .store(parts.is_some() as u32, Relaxed);
    let (mut ready, tell) = io::pipe()?;
    let launcher = std::process::id() as i32;
    channel.control().launcher.store(launcher, Relaxed);
    // SAFETY: the child only does what is safe after fork in a process with one thread (and, with musl,
    // whose fork takes the allocator's lock, in one with more).
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        // SAFETY: as above; the first child ends at once, so that the second has no parent.
        unsafe {
            libc::setsid();
            match libc::fork() {
                0 => live(channel, log, parts, tell.into(), launcher),
                -1 => libc::_exit(1),
                _ => libc::_exit(0),
            }
        }
    }
    drop(tell);
    let mut status = 0;
    // SAFETY: waits for the own child.
    while unsafe { libc::waitpid(child, &mut status, 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    ready
        .read_exact(&mut [0])
        .map_err(|_| io::Error::other("the process that writes the recording didn't start"))
}

/// The life of the writer.
fn live(channel: &Channel, log: File, parts: Option<Parts>, tell: OwnedFd, launcher: i32) -> ! {
    let run = move || -> io::Result<()> {
        forget_signals();
        raise_limits();
        ask_for_short_waits();
        // SAFETY: a name and a path.
        unsafe {
            libc::prctl(libc::PR_SET_NAME, c"clew-writer".as_ptr());
            libc::chdir(c"/".as_ptr());
        }
        let [memory, log, tell] = keep_only([channel.fd(), log.as_raw_fd(), tell.as_raw_fd()])?;
        let channel = channel.with_fd(memory);
        // SAFETY: keep_only made these, nobody else has them. What held them before is never dropped.
        let (log, mut tell) = unsafe { (File::from_raw_fd(log), File::from_raw_fd(tell)) };
        let list: &'static mut RobustList = Box::leak(Box::new(RobustList::empty()));
        // SAFETY: leaked, and the control block is mapped for good.
        unsafe { RobustList::own(list, &channel.control().line.writer)? };
        let mut writing = Writing::new(channel, log, parts, launcher)?;
        tell.write_all(&[1])?;
        drop(tell);
        writing.run();
        Ok(())
    };
    let code = run().is_err() as i32;
    // SAFETY: ends the process; nothing of the caller's (buffers, destructors) may run here.
    unsafe { libc::_exit(code) }
}

fn forget_signals() {
    // SAFETY: a set that is filled before it is used.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

/// Limits that the recorded program was given aren't meant for the writer.
fn raise_limits() {
    for what in [
        libc::RLIMIT_CPU,
        libc::RLIMIT_FSIZE,
        libc::RLIMIT_NOFILE,
        libc::RLIMIT_AS,
        libc::RLIMIT_DATA,
    ] {
        // SAFETY: reads and sets a structure of the right type.
        unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            if libc::getrlimit(what, &mut limit) == 0 {
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(what, &limit);
            }
        }
    }
}

/// The writer runs seldom and shortly, but what it is late with is lost if it is killed: on a busy
/// machine it should get its turn soon. As much of that as the kernel grants.
fn ask_for_short_waits() {
    /// The kernel's `struct sched_attr`, as of its first version.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        /// For ordinary processes: the length of a turn. Short turns come sooner.
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    // SAFETY: no arguments besides numbers.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // In a session of its own, how nice the writer is counts for little; how nice the session is does.
    let _ = std::fs::write("/proc/self/autogroup", "-10");
    for nice in [nice.min(-5), nice] {
        let attributes = Attributes {
            size: size_of::<Attributes>() as u32,
            policy: libc::SCHED_OTHER as u32,
            flags: 0,
            nice,
            priority: 0,
            runtime: 500_000,
            deadline: 0,
            period: 0,
        };
        // SAFETY: the structure is as long as it says.
        if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attributes, 0) } == 0 {
            return;
        }
    }
}

/// Closes all descriptors but these, which get numbers from 3 on; 0 to 2 lead nowhere. The caller's pipes
/// must not stay open because of the writer.
fn keep_only<const N: usize>(fds: [RawFd; N]) -> io::Result<[RawFd; N]> {
    const FIRST: RawFd = 3;
    let check = |result: i32| match result {
        -1 => Err(io::Error::last_os_error()),
        fd => Ok(fd),
    };
    // SAFETY: descriptors of this process only, which has no other thread yet.
    unsafe {
        // Out of the way first.
        let mut high = [0; N];
        for (to, from) in high.iter_mut().zip(fds) {
            *to = check(libc::fcntl(from, libc::F_DUPFD_CLOEXEC, FIRST + N as i32))?;
        }
        let mut nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if nowhere < 0 {
            nowhere = check(libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC))?;
        }
        for fd in 0..FIRST {
            if nowhere != fd {
                check(libc::dup2(nowhere, fd))?;
            }
        }
        let mut kept = [0; N];
        for (n, from) in high.into_iter().enumerate() {
            kept[n] = check(libc::dup3(from, FIRST + n as i32, libc::O_CLOEXEC))?;
        }
        let rest = FIRST + N as i32;
        if libc::syscall(libc::SYS_close_range, rest, u32::MAX, 0) != 0 {
            let most = libc::sysconf(libc::_SC_OPEN_MAX).clamp(1024, 1 << 20) as i32;
            for fd in rest..most {
                libc::close(fd);
            }
        }
        Ok(kept)
    }
}

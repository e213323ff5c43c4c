//! Forks of replaying processes, one by one. In: a process that begins to replay. Out: a descriptor on which each fork
//! that it or a fork of it wants to make waits to be allowed.
//!
//! A recording may come from a stranger, whose program can do in its process what it likes: whether a fork is one of the
//! recording's only the process outside can tell. Needs seccomp's notifications (Linux 5.5); without them forks aren't
//! counted, and end with clew all the same (`leash`).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::jail;
use crate::{sys, syscall};

const ALLOW: u32 = 0x7fff_0000;
const NOTIFY: u32 = 0x7fc0_0000;
const NEW_LISTENER: u64 = 1 << 3;
const CONTINUE: u32 = 1;
/// `_IOWR('!', 0, Asked)`, `_IOWR('!', 1, Answer)`.
const RECEIVE: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;

const FORKS: [i64; 4] = [
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_clone,
    libc::SYS_clone3,
];

/// As the kernel tells it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Asked {
    id: u64,
    pid: u32,
    flags: u32,
    /// The call, which is known.
    data: [u64; 8],
}

#[repr(C)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// From here on, forks of this process and of its forks wait for who holds what is returned. None where the kernel can't
/// do that.
pub fn ask() -> Option<OwnedFd> {
    if !continues() {
        return None;
    }
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let line = |code, k, jt| libc::sock_filter { code, jt, jf: 0, k };
    let mut program = vec![line(load, 0, 0)];
    for (n, nr) in FORKS.iter().enumerate() {
        program.push(line(equal, *nr as u32, (FORKS.len() - n) as u8));
    }
    program.push(line(answer, ALLOW, 0));
    program.push(line(answer, NOTIFY, 0));
    let fd = jail::filtered(&mut program, NEW_LISTENER).ok()?;
    // SAFETY: a new descriptor, nobody else's.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether an answer can be that the call goes on: since Linux 5.5.
fn continues() -> bool {
    // SAFETY: the kernel fills a structure of which all bytes may be zero.
    let name = unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&raw mut name);
        name
    };
    let release: Vec<u8> = name.release.iter().map(|&c| c as u8).collect();
    let release = String::from_utf8_lossy(&release);
    let mut numbers = release.split('.').map(|part| {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        part[..digits].parse::<u32>().unwrap_or(0)
    });
    (numbers.next(), numbers.next()) >= (Some(5), Some(5))
}

/// What becomes of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    /// There are many at the moment.
    NotNow,
    /// It is none of the recording's.
    Refused,
}

/// Answers those who ask.
pub struct Guard(OwnedFd);

impl Guard {
    pub fn new(fd: OwnedFd) -> Guard {
        Guard(fd)
    }

    /// Answers all that ask now. `decide` is told the process that wants to fork.
    pub fn answer(&self, mut decide: impl FnMut(i32) -> Verdict) {
        while self.is_asked() {
            let mut asked = Asked::default();
            let fd = self.0.as_raw_fd();
            // SAFETY: the kernel writes one structure of this size.
            let got = unsafe { syscall!(libc::SYS_ioctl, fd, RECEIVE, &raw mut asked) };
            if got == sys::err(libc::EINTR) {
                continue;
            }
            if got != 0 {
                // It died meanwhile.
                return;
            }
            let (error, flags) = match decide(asked.pid as i32) {
                Verdict::Allowed => (0, CONTINUE),
                Verdict::NotNow => (-libc::EAGAIN, 0),
                Verdict::Refused => (-libc::EPERM, 0),
            };
            let answer = Answer {
                id: asked.id,
                value: 0,
                error,
                flags,
            };
            // SAFETY: the kernel reads one structure of this size.
            unsafe { syscall!(libc::SYS_ioctl, fd, SEND, &raw const answer) };
        }
    }

    /// Whether anybody is left who could ask.
    pub fn is_of_use(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: 0,
            revents: 0,
        };
        // SAFETY: one pollfd, alive during the call.
        unsafe { libc::poll(&raw mut poll, 1, 0) };
        poll.revents & libc::POLLHUP == 0
    }

    fn is_asked(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd, alive during the call.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 }
    }
}

impl AsFd for Guard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::passing::{pass_one, take_one};
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn forks_wait_to_be_allowed() {
        let (mine, theirs) = UnixDatagram::pair().unwrap();
        // SAFETY: the child only makes system calls.
        let child = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                pass_one(theirs.as_raw_fd(), ask());
                let mut made = 0;
                for _ in 0..5 {
                    match syscall!(libc::SYS_fork) {
                        0 => libc::_exit(0),
                        pid if pid > 0 => {
                            made += 1;
                            libc::waitpid(pid as i32, std::ptr::null_mut(), 0);
                        }
                        _ => {}
                    }
                }
                libc::_exit(made);
            }
            pid
        };
        let Some(fd) = take_one(mine.as_raw_fd()) else {
            eprintln!("NOT TESTED: the kernel has no such notifications");
            return;
        };
        let guard = Guard::new(fd);
        let mut left = 2;
        let mut status = 0;
        // SAFETY: asks about a child of this process.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
            guard.answer(|pid| {
                assert_eq!(pid, child);
                left -= 1;
                match left {
                    0.. => Verdict::Allowed,
                    _ => Verdict::Refused,
                }
            });
            std::thread::yield_now();
        }
        assert!(libc::WIFEXITED(status));
        assert_eq!((libc::WEXITSTATUS(status), left), (2, -3));
    }
}

//! What ends replaying processes with clew, whatever they have become. In: a process that begins to replay. Out: the end
//! of a pipe; when it is closed, also by the death of who holds it, the kernel kills that process and all its forks.
//!
//! A recording may come from a stranger, whose program can do in its process what it likes: close what tells it that
//! nobody is there any more, and forget in a fork that it shall die with its parent. So the kernel is asked to send
//! SIGKILL to the whole process group as soon as the pipe has no writer, and the lock (`jail`) keeps the group from
//! being left and the pipe's other end from being closed.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// The end to hold, and the end for the process that is held. Both are closed on exec.
pub fn new() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0i32; 2];
    // SAFETY: the kernel writes two descriptors, which are nobody else's.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[1]), OwnedFd::from_raw_fd(ends[0])))
    }
}

/// `F_SETSIG`, which not every libc names.
const SET_SIGNAL: i32 = 10;

/// This process leads a group of its own from here on, which ends when the other end is closed. The descriptor that
/// must stay open.
pub fn put_on(end: OwnedFd) -> io::Result<RawFd> {
    let fd = end.as_raw_fd();
    let done = |result: i32| match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    // SAFETY: changes this process's group, and flags of a descriptor of its own.
    unsafe {
        done(libc::setpgid(0, 0))?;
        done(libc::fcntl(fd, libc::F_SETOWN, -libc::getpid()))?;
        done(libc::fcntl(fd, SET_SIGNAL, libc::SIGKILL))?;
        done(libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC))?;
        // The holder may be gone already, and then nothing happens any more.
        let mut poll = libc::pollfd {
            fd,
            events: 0,
            revents: 0,
        };
        libc::poll(&raw mut poll, 1, 0);
        if poll.revents != 0 {
            libc::_exit(crate::kernel::stop::STATUS);
        }
    }
    Ok(end.into_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn all_of_a_group_end_with_the_holder() {
        let (held, end) = new().unwrap();
        let (mut words, said) = io::pipe().unwrap();
        // SAFETY: the children only make system calls.
        let child = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::close(held.as_raw_fd());
                let put = put_on(end).is_ok();
                // A fork that wants to stay, and is nobody's child soon.
                let forked = libc::fork();
                libc::signal(libc::SIGIO, libc::SIG_IGN);
                libc::signal(libc::SIGTERM, libc::SIG_IGN);
                let text = if put { b"y" } else { b"n" };
                libc::write(said.as_raw_fd(), text.as_ptr().cast(), 1);
                if forked != 0 {
                    libc::_exit(0);
                }
                loop {
                    libc::pause();
                }
            }
            pid
        };
        drop((said, end));
        let mut two = [0; 2];
        words.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"yy");
        let mut status = 0;
        // SAFETY: waits for a child of this process.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        drop(held);
        // The fork holds the pipe open until it dies.
        assert_eq!(words.read(&mut two).unwrap(), 0);
    }
}

//! A worker's end of its channel: commands in, replies out, a packet each.

use std::os::fd::RawFd;

use super::protocol::{Command, LONGEST, Reply};
use crate::kernel::stop;
use crate::{sys, syscall};

/// One of the descriptors that the lock allows to be used for this.
pub struct Channel {
    fd: RawFd,
    room: Vec<u8>,
}

/// What came.
pub enum Received {
    Command(Command),
    /// Nothing so far.
    Nothing,
    /// Nonsense.
    Unknown,
}

impl Channel {
    pub fn new(fd: RawFd) -> Channel {
        Channel {
            fd,
            room: vec![0; LONGEST],
        }
    }

    /// The next command; waits for it.
    pub fn wait(&mut self) -> Received {
        self.take(0)
    }

    /// The next command, if there is one.
    pub fn look(&mut self) -> Received {
        self.take(libc::MSG_DONTWAIT)
    }

    /// The process ends if nobody is there any more.
    fn take(&mut self, flags: i32) -> Received {
        let (room, len) = (self.room.as_mut_ptr(), self.room.len());
        // SAFETY: the kernel writes at most so many bytes.
        let got = unsafe { syscall!(libc::SYS_recvfrom, self.fd, room, len, flags, 0, 0) };
        if got == sys::err(libc::EAGAIN) || got == sys::err(libc::EINTR) {
            return Received::Nothing;
        }
        if got <= 0 {
            stop::exit(0);
        }
        match Command::decode(&self.room[..got as usize]) {
            Some(command) => Received::Command(command),
            None => Received::Unknown,
        }
    }

    pub fn send(&self, reply: &Reply) {
        let bytes = reply.encode();
        loop {
            let (from, len) = (bytes.as_ptr(), bytes.len());
            // SAFETY: the kernel reads so many bytes.
            let sent = unsafe {
                let flags = libc::MSG_NOSIGNAL;
                syscall!(libc::SYS_sendto, self.fd, from, len, flags, 0, 0)
            };
            match sent {
                sent if sent == len as i64 => return,
                sent if sent == sys::err(libc::EINTR) => {}
                _ => stop::exit(0),
            }
        }
    }
}

//! Descriptors on their way from one process to another: over a socket, with some bytes.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The kernel passes no more of them in one message.
const MOST: usize = 250;
const HEADER: usize = 16;

/// A control message, as the kernel lays it out: its length, `SOL_SOCKET`, `SCM_RIGHTS`, descriptors.
#[repr(C, align(8))]
struct Control([u8; HEADER + 4 * MOST]);

impl Control {
    fn of(fds: &[RawFd]) -> Control {
        let mut control = Control([0; HEADER + 4 * MOST]);
        control.0[..8].copy_from_slice(&length(fds.len()).to_le_bytes());
        control.0[8..12].copy_from_slice(&libc::SOL_SOCKET.to_le_bytes());
        control.0[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_le_bytes());
        for (at, fd) in control.0[HEADER..].chunks_exact_mut(4).zip(fds) {
            at.copy_from_slice(&fd.to_le_bytes());
        }
        control
    }

    /// Descriptors that came, `len` bytes with the header.
    fn fds(&self, len: usize) -> Vec<OwnedFd> {
        let kind = [
            libc::SOL_SOCKET.to_le_bytes(),
            libc::SCM_RIGHTS.to_le_bytes(),
        ]
        .concat();
        let told = u64::from_le_bytes(self.0[..8].try_into().expect("eight bytes")) as usize;
        let len = len.min(told).min(self.0.len());
        if len < HEADER || self.0[8..16] != kind[..] {
            return Vec::new();
        }
        let number = |bytes: &[u8]| RawFd::from_le_bytes(bytes.try_into().expect("four bytes"));
        let numbers = self.0[HEADER..len].chunks_exact(4).map(number);
        // SAFETY: the kernel has just made them for this process.
        numbers
            .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
            .collect()
    }
}

fn length(fds: usize) -> u64 {
    (HEADER + 4 * fds) as u64
}

/// Sends bytes, one at least, and at most [`MOST`] descriptors in one message.
fn send(socket: RawFd, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
    let mut data = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control::of(fds);
    loop {
        // SAFETY: the kernel reads the message, whose parts live during the call.
        let sent = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut data, 1);
            if !fds.is_empty() {
                message.msg_control = (&raw mut control).cast();
                message.msg_controllen = length(fds.len()).next_multiple_of(8) as _;
            }
            libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL)
        };
        match sent {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(io::Error::last_os_error()),
            _ => return Ok(()),
        }
    }
}

/// The next message: how many bytes of `into` it has filled, and its descriptors. Waits for it; no bytes if nobody is
/// there any more.
fn receive(socket: RawFd, into: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut data = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let mut control = Control::of(&[]);
    loop {
        // SAFETY: the kernel writes at most as much as there is room for.
        let (got, len) = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut data, 1);
            message.msg_control = (&raw mut control).cast();
            message.msg_controllen = size_of::<Control>() as _;
            let got = libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC);
            (got, message.msg_controllen as usize)
        };
        match got {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(io::Error::last_os_error()),
            got => return Ok((got as usize, control.fds(len))),
        }
    }
}

/// Passes a descriptor, or that there is none, to who has the other end of a socket.
pub fn pass_one(socket: RawFd, fd: Option<OwnedFd>) {
    let fds: Vec<RawFd> = fd.iter().map(AsRawFd::as_raw_fd).collect();
    let _ = send(socket, &[fd.is_some() as u8], &fds);
}

/// Takes what [`pass_one`] passed; waits for it. None if the other side ended without a word.
pub fn take_one(socket: RawFd) -> Option<OwnedFd> {
    let (_, mut fds) = receive(socket, &mut [0]).ok()?;
    fds.pop()
}

/// Passes bytes and any number of descriptors over a socket that keeps messages apart.
pub fn pass(socket: RawFd, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
    let mut head = (bytes.len() as u64).to_le_bytes().to_vec();
    head.extend((fds.len() as u64).to_le_bytes());
    send(socket, &head, &[])?;
    for piece in bytes.chunks(PIECE) {
        send(socket, piece, &[])?;
    }
    for some in fds.chunks(MOST) {
        send(socket, &[0], some)?;
    }
    Ok(())
}

/// Takes what [`pass`] passed.
pub fn take(socket: RawFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut head = [0; 16];
    if receive(socket, &mut head)?.0 != head.len() {
        return Err(short());
    }
    let number = |n: usize| u64::from_le_bytes(head[8 * n..8 * n + 8].try_into().expect("eight"));
    let (len, count) = (number(0) as usize, number(1) as usize);
    let (mut bytes, mut fds) = (Vec::new(), Vec::new());
    let mut room = vec![0; PIECE];
    while bytes.len() < len {
        match receive(socket, &mut room)?.0 {
            0 => return Err(short()),
            got => bytes.extend(&room[..got]),
        }
    }
    while fds.len() < count {
        match receive(socket, &mut [0])? {
            (0, _) => return Err(short()),
            (_, more) => fds.extend(more),
        }
    }
    Ok((bytes, fds))
}

/// Bytes of one message.
const PIECE: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn many_descriptors_arrive_in_order() {
        let (mine, theirs) = UnixDatagram::pair().unwrap();
        let pipes: Vec<_> = (0..300).map(|_| io::pipe().unwrap()).collect();
        let fds: Vec<RawFd> = pipes.iter().map(|(_, end)| end.as_raw_fd()).collect();
        let bytes: Vec<u8> = (0..100_000).map(|n| (n % 251) as u8).collect();
        std::thread::scope(|scope| {
            let passing = scope.spawn(|| pass(mine.as_raw_fd(), &bytes, &fds).unwrap());
            let (came, ends) = take(theirs.as_raw_fd()).unwrap();
            passing.join().unwrap();
            assert_eq!(came, bytes);
            assert_eq!(ends.len(), 300);
            for (n, end) in ends.into_iter().enumerate() {
                use std::io::{Read, Write};
                let mut end = std::io::PipeWriter::from(end);
                end.write_all(&[n as u8]).unwrap();
                let mut byte = [0];
                (&pipes[n].0).read_exact(&mut byte).unwrap();
                assert_eq!(byte[0], n as u8);
            }
        });
    }

    #[test]
    fn none_is_passed_too() {
        let (mine, theirs) = UnixDatagram::pair().unwrap();
        pass_one(mine.as_raw_fd(), None);
        assert!(take_one(theirs.as_raw_fd()).is_none());
        let (read, write) = io::pipe().unwrap();
        pass_one(mine.as_raw_fd(), Some(write.into()));
        assert!(take_one(theirs.as_raw_fd()).is_some());
        drop(read);
    }
}

//! Packets on a socket. In: bytes from gdb, which may be anything. Out: packets, framed and checked.
//!
//! A packet is `$data#checksum`; `}` in the data escapes the next byte. Outside of packets gdb sends
//! acknowledgements, which are passed over, and byte 3 for Ctrl-C.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What gdb may send in one packet, and what it gets.
pub const LONGEST: usize = 0x20000;
/// What must be escaped in binary data.
const SPECIAL: &[u8] = b"#$}*";
const INTERRUPT: u8 = 3;

#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    Packet(Vec<u8>),
    /// Ctrl-C while nothing ran.
    Interrupt,
    /// A signal to this process.
    Signal,
}

pub struct Wire {
    socket: UnixStream,
    inbox: Vec<u8>,
    /// Packets are acknowledged, until both sides agree that a socket loses nothing.
    acknowledges: bool,
    closed: bool,
    trace: bool,
}

/// The wire, for who asks between two packets whether gdb wants something; and what else both know of.
pub fn held<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    /// `trace`: show all packets on stderr.
    pub fn new(socket: UnixStream, trace: bool) -> Wire {
        Wire {
            socket,
            inbox: Vec::new(),
            acknowledges: true,
            closed: false,
            trace,
        }
    }

    pub fn stop_acknowledging(&mut self) {
        self.acknowledges = false;
    }

    /// Waits for what comes next; `None` if gdb is gone.
    pub fn next(&mut self) -> io::Result<Option<Incoming>> {
        loop {
            match parse(&mut self.inbox) {
                Parsed::Packet(data) => {
                    if self.acknowledges {
                        self.write(b"+")?;
                    }
                    self.show("->", &data);
                    return Ok(Some(Incoming::Packet(data)));
                }
                Parsed::Interrupt => {
                    self.show("->", b"Ctrl-C");
                    return Ok(Some(Incoming::Interrupt));
                }
                Parsed::Damaged => {
                    if self.acknowledges {
                        self.write(b"-")?;
                    }
                }
                Parsed::Incomplete if self.closed => return Ok(None),
                Parsed::Incomplete => match self.fill() {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                        return Ok(Some(Incoming::Signal));
                    }
                    filled => filled?,
                },
            }
        }
    }

    /// Whether Ctrl-C was sent, or gdb has gone. Doesn't wait.
    pub fn wants_interrupt(&mut self) -> bool {
        loop {
            // What runs is waited for: anything else that gdb sends now comes later.
            if let Some(at) = self.inbox.iter().position(|&byte| byte == INTERRUPT)
                && !self.inbox[..at].contains(&b'$')
            {
                self.inbox.remove(at);
                return true;
            }
            if self.closed {
                return true;
            }
            if !readable(self.socket.as_fd(), 0) || self.fill().is_err() {
                return self.closed;
            }
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        match self.socket.read(&mut bytes) {
            Ok(0) => self.closed = true,
            Ok(n) => self.inbox.extend_from_slice(&bytes[..n]),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.closed = true,
            Err(error) => return Err(error),
        }
        // Nobody who follows the protocol sends so much without the end of a packet.
        if self.inbox.len() > 4 * LONGEST {
            return Err(io::Error::other("gdb sent a packet without an end"));
        }
        Ok(())
    }

    /// Sends a packet whose data needs no escapes, or has them.
    pub fn send(&mut self, data: &[u8]) -> io::Result<()> {
        self.show("<-", data);
        let mut packet = Vec::with_capacity(data.len() + 4);
        packet.push(b'$');
        packet.extend_from_slice(data);
        packet.push(b'#');
        crate::hex::put(&mut packet, &[sum(data)]);
        self.write(&packet)
    }

    /// Text on gdb's console, while it waits for the program.
    pub fn say(&mut self, text: &str) -> io::Result<()> {
        // Longer than a packet it can't be, hex digits and all.
        for piece in text.as_bytes().chunks(LONGEST / 2 - 8) {
            let mut data = vec![b'O'];
            crate::hex::put(&mut data, piece);
            self.send(&data)?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.socket.write_all(bytes) {
            // It is noticed when reading.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            result => result,
        }
    }

    fn show(&self, arrow: &str, data: &[u8]) {
        if self.trace {
            let shown = &data[..data.len().min(300)];
            eprintln!("clew: {arrow} {}", shown.escape_ascii());
        }
    }
}

/// Whether there is something to read, within so many milliseconds.
pub fn readable(fd: BorrowedFd, timeout: i32) -> bool {
    use std::os::fd::AsRawFd;
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, which lives here.
    unsafe { libc::poll(&raw mut poll, 1, timeout) > 0 }
}

enum Parsed {
    Packet(Vec<u8>),
    Interrupt,
    /// The checksum is wrong: gdb should send it again.
    Damaged,
    Incomplete,
}

/// Takes what is complete from the front.
fn parse(inbox: &mut Vec<u8>) -> Parsed {
    // Acknowledgements, and whatever is between packets.
    let from = inbox
        .iter()
        .position(|byte| matches!(*byte, b'$' | INTERRUPT));
    let Some(from) = from else {
        inbox.clear();
        return Parsed::Incomplete;
    };
    inbox.drain(..from);
    if inbox[0] == INTERRUPT {
        inbox.remove(0);
        return Parsed::Interrupt;
    }
    let Some(end) = inbox.iter().position(|&byte| byte == b'#') else {
        return Parsed::Incomplete;
    };
    if inbox.len() < end + 3 {
        return Parsed::Incomplete;
    }
    let packet: Vec<u8> = inbox.drain(..end + 3).collect();
    let data = &packet[1..end];
    if crate::hex::number(&packet[end + 1..]) != Some(u64::from(sum(data))) {
        return Parsed::Damaged;
    }
    Parsed::Packet(unescape(data))
}

fn sum(data: &[u8]) -> u8 {
    data.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

fn unescape(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut bytes = data.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'}' => out.extend(bytes.next().map(|escaped| escaped ^ 0x20)),
            _ => out.push(byte),
        }
    }
    out
}

/// Appends binary data, at most up to `room` bytes in all; how many of them went in.
pub fn escape(out: &mut Vec<u8>, data: &[u8], room: usize) -> usize {
    for (n, &byte) in data.iter().enumerate() {
        if out.len() + 2 > room {
            return n;
        }
        if SPECIAL.contains(&byte) {
            out.extend([b'}', byte ^ 0x20]);
        } else {
            out.push(byte);
        }
    }
    data.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire() -> (Wire, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Wire::new(ours, false), theirs)
    }

    fn packet(data: &[u8]) -> Option<Incoming> {
        Some(Incoming::Packet(data.to_vec()))
    }

    #[test]
    fn packets_are_found_among_other_bytes() {
        let (mut wire, mut gdb) = wire();
        gdb.write_all(b"+$?#3f+\x03$X1,1:}\x03#a0").unwrap();
        assert_eq!(wire.next().unwrap(), packet(b"?"));
        assert_eq!(wire.next().unwrap(), Some(Incoming::Interrupt));
        assert_eq!(wire.next().unwrap(), packet(b"X1,1:#"));
        drop(gdb);
        assert_eq!(wire.next().unwrap(), None);
    }

    #[test]
    fn damage_is_told() {
        let (mut wire, mut gdb) = wire();
        gdb.write_all(b"$?#00$?#3f").unwrap();
        assert_eq!(wire.next().unwrap(), packet(b"?"));
        wire.stop_acknowledging();
        wire.send(b"OK").unwrap();
        let mut answer = [0; 8];
        gdb.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"-+$OK#9a");
    }

    #[test]
    fn an_interrupt_is_seen_while_running() {
        let (mut wire, mut gdb) = wire();
        assert!(!wire.wants_interrupt());
        gdb.write_all(b"+\x03").unwrap();
        assert!(wire.wants_interrupt());
        assert!(!wire.wants_interrupt());
        drop(gdb);
        assert!(wire.wants_interrupt());
    }

    #[test]
    fn binary_data_is_escaped_and_cut() {
        let mut out = vec![b'l'];
        assert_eq!(escape(&mut out, b"a#b}", 100), 4);
        assert_eq!(out, b"la}\x03b}]");
        assert_eq!(unescape(&out[1..]), b"a#b}");
        let mut out = Vec::new();
        assert_eq!(escape(&mut out, b"abcdef", 4), 3);
    }
}

//! What a replaying process reports to the one that coordinates: messages, in and out.

use std::os::fd::RawFd;

use clew_recording::bytes::{LONGEST, Malformed, Reader, Writer};
use clew_recording::event::StreamId;

use super::arguments::Argument;
use super::tree::{End, Ending};
use super::worker::protocol::Diverged;
use crate::kernel::stop;
use crate::{sys, syscall};

pub enum Message<'a> {
    Started {
        stream: StreamId,
    },
    /// So much of it is done, in units of work.
    Progress {
        stream: StreamId,
        work: u64,
    },
    Output {
        stream: StreamId,
        to: u8,
        order: u64,
        part: u32,
        last: bool,
        bytes: &'a [u8],
    },
    Ended {
        stream: StreamId,
        end: End,
    },
    Diverged(Box<Diverged>),
    Argument {
        stream: StreamId,
        event: u64,
        argument: Argument,
    },
    /// It couldn't be replayed, for a reason that isn't in the recording.
    Unable {
        stream: StreamId,
        text: &'a str,
    },
}

/// The longest message: a piece of output, or a report cut to this.
pub const MESSAGE: usize = 40 << 10;
/// What was expected, and what was found, are cut to this.
const LONGEST_WORDS: usize = 4 << 10;

impl Message<'_> {
    /// In one piece: several processes share the socket. Without anybody to report to there is
    /// nothing left to do.
    pub fn send(&self, socket: RawFd) {
        let mut room = [0u8; MESSAGE];
        let len = self.encode(&mut room);
        loop {
            // SAFETY: sends from a live buffer.
            let sent = unsafe {
                syscall!(
                    libc::SYS_sendto,
                    socket,
                    room.as_ptr(),
                    len,
                    libc::MSG_NOSIGNAL,
                    0,
                    0
                )
            };
            if sent == sys::err(libc::EINTR) {
                continue;
            }
            if sys::is_err(sent) {
                stop::exit(stop::STATUS);
            }
            return;
        }
    }

    fn encode(&self, room: &mut [u8]) -> usize {
        let mut out = Writer::new(room);
        match self {
            Message::Started { stream } => {
                out.byte(0);
                out.number(*stream as u64);
            }
            Message::Output {
                stream,
                to,
                order,
                part,
                last,
                bytes,
            } => {
                out.byte(1);
                out.number(*stream as u64);
                out.byte(*to);
                out.number(*order);
                out.number(*part as u64);
                out.byte(*last as u8);
                out.bytes(bytes);
            }
            Message::Ended { stream, end } => {
                out.byte(2);
                out.number(*stream as u64);
                let (kind, value) = match end.ending {
                    Ending::Exited(status) => (0, status),
                    Ending::Killed(signo) => (1, signo),
                    Ending::Exec => (2, 0),
                    Ending::CutOff => (3, 0),
                    Ending::Region => (5, 0),
                    Ending::Stopped => (4, 0),
                };
                out.byte(kind);
                out.signed(value as i64);
                out.number(end.events);
                out.number(end.ticks);
                out.number(end.checks);
            }
            Message::Diverged(diverged) => {
                out.byte(3);
                out.number(diverged.stream as u64);
                let mut diverged = diverged.clone();
                for text in [&mut diverged.expected, &mut diverged.found] {
                    text.truncate(text.floor_char_boundary(LONGEST_WORDS));
                }
                out.bytes(&postcard::to_stdvec(&diverged).expect("plain data"));
            }
            Message::Argument {
                stream,
                event,
                argument,
            } => {
                out.byte(4);
                out.number(*stream as u64);
                out.number(*event);
                out.byte(argument.index);
                out.number(argument.len);
                out.bytes(&argument.bytes);
            }
            Message::Unable { stream, text } => {
                out.byte(5);
                out.number(*stream as u64);
                out.bytes(beginning(text));
            }
            Message::Progress { stream, work } => {
                out.byte(6);
                out.number(*stream as u64);
                out.number(*work);
            }
        }
        out.len()
    }

    /// Takes what came over the socket, `text` being room for words in it.
    pub fn decode<'a>(message: &'a [u8], text: &'a mut String) -> Result<Message<'a>, Malformed> {
        let mut input = Reader::new(message);
        let kind = input.byte()?;
        let stream = input.small()?;
        Ok(match kind {
            0 => Message::Started { stream },
            1 => Message::Output {
                stream,
                to: input.byte()?,
                order: input.number()?,
                part: input.small()?,
                last: input.byte()? != 0,
                bytes: input.rest(),
            },
            2 => {
                let kind = input.byte()?;
                let value = input.signed()? as i32;
                let ending = match kind {
                    0 => Ending::Exited(value),
                    1 => Ending::Killed(value),
                    2 => Ending::Exec,
                    3 => Ending::CutOff,
                    5 => Ending::Region,
                    4 => Ending::Stopped,
                    _ => return Err(Malformed),
                };
                let end = End {
                    ending,
                    events: input.number()?,
                    ticks: input.number()?,
                    checks: input.number()?,
                };
                Message::Ended { stream, end }
            }
            3 => match postcard::from_bytes::<Box<Diverged>>(input.rest()) {
                Ok(diverged) if diverged.stream == stream => Message::Diverged(diverged),
                _ => return Err(Malformed),
            },
            5 => {
                *text = String::from_utf8_lossy(input.rest()).into_owned();
                Message::Unable { stream, text }
            }
            6 => Message::Progress {
                stream,
                work: input.number()?,
            },
            4 => Message::Argument {
                stream,
                event: input.number()?,
                argument: Argument {
                    index: input.byte()?,
                    len: input.number()?,
                    bytes: input.rest().to_vec(),
                },
            },
            _ => return Err(Malformed),
        })
    }
}

fn beginning(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(MESSAGE - 2 * LONGEST)]
}

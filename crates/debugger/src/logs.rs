//! Lines that a program logs. In: the calls of its life. Out: each text that it wrote into a file, or sent to a service such as syslog, with
//! the file's name and the position of the call.

use std::collections::{BTreeMap, HashMap};

use clew_recording::event::{Call, End, Event, ThreadId};
use clew_timeline::{Position, Target};
use serde::Serialize;

use crate::Result;
use crate::debugger::Debugger;

const WRITES: [u32; 7] = [
    1,   // write
    18,  // pwrite64
    20,  // writev
    44,  // sendto
    46,  // sendmsg
    296, // pwritev
    328, // pwritev2
];
const OPEN: u32 = 2;
const CLOSE: u32 = 3;
const DUP: u32 = 32;
const DUP2: u32 = 33;
const SOCKET: u32 = 41;
const CONNECT: u32 = 42;
const FCNTL: u32 = 72;
const CREAT: u32 = 85;
const OPENAT: u32 = 257;
const DUP3: u32 = 292;
const OPENAT2: u32 = 437;
/// Commands of fcntl that copy a descriptor.
const COPIES: [u64; 2] = [0, 1030];
/// No path is longer.
const LONGEST_PATH: usize = 4096;

/// A text that was written into a file, or sent to a service by its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Logged {
    /// Right behind the call that wrote it: the stack there is the writer's.
    pub position: String,
    pub thread: ThreadId,
    /// As the program named it.
    pub file: String,
    pub text: String,
}

/// What is behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// Named by the memory at an address, behind that event; in an address of a socket after two more bytes.
    Named { event: u64, at: u64, socket: bool },
    /// A socket that isn't connected.
    Nobody,
}

/// A call that wrote.
struct Write {
    thread: ThreadId,
    call: Call,
    bytes: u64,
    to: Behind,
}

/// Descriptors as calls leave them.
#[derive(Default)]
struct Descriptors(HashMap<u64, Behind>);

impl Descriptors {
    /// A call has returned; if it wrote to what has a name, to what.
    fn returned(&mut self, call: &Call, result: i64, event: u64) -> Option<Behind> {
        let (args, open) = (&call.args, &mut self.0);
        let new = u64::try_from(result).ok()?;
        let named = |at: u64, socket: bool| Behind::Named { event, at, socket };
        match call.nr {
            OPEN | CREAT => drop(open.insert(new, named(args[0], false))),
            OPENAT | OPENAT2 => drop(open.insert(new, named(args[1], false))),
            SOCKET => drop(open.insert(new, Behind::Nobody)),
            CONNECT => drop(open.insert(args[0], named(args[1], true))),
            CLOSE => drop(open.remove(&args[0])),
            DUP | DUP2 | DUP3 => self.copied(args[0], new),
            FCNTL if COPIES.contains(&args[1]) => self.copied(args[0], new),
            nr if WRITES.contains(&nr) && new > 0 && call.output.is_none() => {
                return open.get(&args[0]).copied();
            }
            _ => {}
        }
        None
    }

    fn copied(&mut self, from: u64, to: u64) {
        match self.0.get(&from).copied() {
            Some(behind) => self.0.insert(to, behind),
            None => self.0.remove(&to),
        };
    }
}

impl Debugger {
    /// All texts that the program wrote into files that it opened and sent to services that it connected to by path, in order, at most so
    /// many calls. What isn't text isn't told.
    pub fn logged(&mut self, most: usize) -> Result<Vec<Logged>> {
        let (writes, names) = self.log_writes(most)?;
        let here = self.timeline.position()?;
        let told = self.texts(writes, names);
        self.timeline.seek(Target::Position(here))?;
        told
    }

    /// The calls by event, and where names are to be read, from the log alone.
    fn log_writes(&mut self, most: usize) -> Result<(BTreeMap<u64, Write>, Vec<Behind>)> {
        let mut open = Descriptors::default();
        let mut waiting: HashMap<ThreadId, Call> = HashMap::new();
        let (mut writes, mut names) = (BTreeMap::new(), Vec::new());
        self.read_log(|event, number, thread| {
            let done = match event {
                Event::Call(call) => match call.end {
                    End::Returned(result) => Some((*call, result)),
                    End::Waits => {
                        waiting.insert(thread, *call);
                        None
                    }
                    _ => None,
                },
                Event::Resumed { result, .. } => waiting.remove(&thread).zip(*result),
                _ => None,
            };
            if let Some((call, result)) = done
                && let Some(to @ Behind::Named { .. }) = open.returned(&call, result, number)
            {
                if !names.contains(&to) {
                    names.push(to);
                }
                let bytes = result as u64;
                let write = Write {
                    thread,
                    call,
                    bytes,
                    to,
                };
                writes.insert(number, write);
            }
            writes.len() < most
        })?;
        Ok((writes, names))
    }

    fn texts(&mut self, writes: BTreeMap<u64, Write>, names: Vec<Behind>) -> Result<Vec<Logged>> {
        let mut files: Vec<(Behind, Option<String>)> = Vec::new();
        for behind in names {
            let Behind::Named { event, at, socket } = behind else {
                continue;
            };
            self.timeline
                .seek(Target::Position(Position::after(event)))?;
            files.push((behind, self.name_at(at, socket)?));
        }
        let mut all = Vec::new();
        for (event, write) in writes {
            let file = files.iter().find(|(behind, _)| *behind == write.to);
            let Some((_, Some(file))) = file else {
                continue;
            };
            let position = Position::after(event);
            self.timeline.seek(Target::Position(position))?;
            let bytes = self.written(&write.call, write.bytes)?;
            if let Some(text) = as_text(bytes) {
                all.push(Logged {
                    position: position.to_string(),
                    thread: write.thread,
                    file: file.clone(),
                    text,
                });
            }
        }
        Ok(all)
    }

    /// A path in memory; of a socket's address only one that has a path.
    fn name_at(&mut self, at: u64, socket: bool) -> Result<Option<String>> {
        const UNIX: [u8; 2] = 1_u16.to_le_bytes();
        let mut bytes = vec![0; LONGEST_PATH];
        let got = self.timeline.read(at, &mut bytes)?;
        let bytes = match (socket, bytes[..got].strip_prefix(&UNIX)) {
            (false, _) => &bytes[..got],
            // A socket's address is short.
            (true, Some(rest)) => &rest[..rest.len().min(108)],
            (true, None) => return Ok(None),
        };
        let end = bytes.iter().position(|byte| *byte == 0);
        let name = &bytes[..end.unwrap_or(bytes.len())];
        let known = !name.is_empty();
        Ok(known.then(|| String::from_utf8_lossy(name).into_owned()))
    }
}

/// Bytes that people can read.
fn as_text(mut bytes: Vec<u8>) -> Option<String> {
    // What is sent to syslog may end with one.
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    let text = String::from_utf8(bytes).ok()?;
    let readable = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\x1b');
    (!text.is_empty() && text.chars().all(readable)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(nr: u32, args: [u64; 6]) -> Call {
        Call {
            ticks: 0,
            nr,
            args,
            end: End::Waits,
            output: None,
        }
    }

    #[test]
    fn descriptors_are_followed() {
        let mut open = Descriptors::default();
        let mut made =
            |nr, args: [u64; 6], result, event| open.returned(&call(nr, args), result, event);
        let file = Some(Behind::Named {
            event: 1,
            at: 0x100,
            socket: false,
        });
        assert_eq!(made(OPENAT, [0, 0x100, 0, 0, 0, 0], 3, 1), None);
        assert_eq!(made(1, [3, 0, 5, 0, 0, 0], 5, 2), file);
        // A copy is the same file; what failed, or is closed, is none.
        made(DUP2, [3, 7, 0, 0, 0, 0], 7, 3);
        assert_eq!(made(20, [7, 0, 1, 0, 0, 0], 5, 4), file);
        made(CLOSE, [3, 0, 0, 0, 0, 0], 0, 5);
        assert_eq!(made(1, [3, 0, 5, 0, 0, 0], 5, 6), None);
        made(OPEN, [0x200, 0, 0, 0, 0, 0], -2, 7);
        assert_eq!(made(1, [7, 0, 5, 0, 0, 0], -4, 8), None);
        made(SOCKET, [1, 2, 0, 0, 0, 0], 3, 9);
        assert_eq!(made(44, [3, 0, 5, 0, 0, 0], 5, 10), Some(Behind::Nobody));
        made(CONNECT, [3, 0x300, 110, 0, 0, 0], 0, 11);
        let service = made(44, [3, 0, 5, 0, 0, 0], 5, 12);
        assert!(matches!(service, Some(Behind::Named { socket: true, .. })));
    }

    #[test]
    fn what_people_can_read() {
        assert_eq!(
            as_text(b"<14>hello\0".to_vec()).as_deref(),
            Some("<14>hello")
        );
        assert_eq!(as_text(b"a\n\tb".to_vec()).as_deref(), Some("a\n\tb"));
        for bytes in [&b""[..], b"\0\0", b"a\x01b", b"\xff\xfe"] {
            assert_eq!(as_text(bytes.to_vec()), None, "{bytes:?}");
        }
    }
}

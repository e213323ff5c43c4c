//! What happened in a program's life that has a place in the log, or a function of its own: output, threads' births and
//! ends, signals, exceptions. In: nothing. Out: all of them, in order, with positions.

use std::collections::HashMap;

use clew_recording::event::{Call, End, Event, Record, ThreadId};
use clew_timeline::{Mark, Position, Target};
use serde::Serialize;

use crate::debugger::Debugger;
use crate::{Error, Result};

const WRITE: u32 = 1;
const PWRITE: u32 = 18;
const WRITEV: u32 = 20;
const PWRITEV: u32 = 296;
const PWRITEV2: u32 = 328;
const SENDTO: u32 = 44;
const SENDMSG: u32 = 46;
/// No more pieces of a vector are read.
const MOST_PIECES: u64 = 1024;
/// No output at once is larger.
const LARGEST: u64 = 16 << 20;
/// No more exceptions are told.
const MOST_EXCEPTIONS: u64 = 100_000;

/// Something that the program wrote to its standard output or error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Right behind the call that wrote it: the stack there is the writer's.
    pub position: String,
    pub thread: ThreadId,
    /// 1 or 2.
    pub to: u8,
    /// As text; what isn't UTF-8 is replaced in it.
    pub text: String,
    #[serde(skip)]
    pub bytes: Vec<u8>,
    /// All of it could be read. Otherwise the kernel took it from a file, or it was changed meanwhile.
    pub whole: bool,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Happening {
    ThreadBegins {
        position: String,
        thread: ThreadId,
        tid: i32,
    },
    /// It is about to end.
    ThreadEnds { position: String, thread: ThreadId },
    /// A handler begins.
    Signal {
        position: String,
        thread: ThreadId,
        signo: i32,
    },
    /// Right before it is thrown, in `__cxa_throw`.
    Exception {
        position: String,
        thread: ThreadId,
        #[serde(rename = "type")]
        of: Option<String>,
    },
}

/// A call that wrote to a standard stream.
struct Output {
    event: u64,
    thread: ThreadId,
    to: u8,
    call: Call,
    bytes: u64,
}

impl Debugger {
    /// Everything that the program wrote to its standard output and error, in order, at most so much.
    pub fn output(&mut self, most: usize) -> Result<Vec<Written>> {
        let outputs = self.outputs(most)?;
        let here = self.timeline.position()?;
        let mut all = Vec::new();
        for output in outputs {
            self.timeline
                .seek(Target::Position(Position::after(output.event)))?;
            let bytes = self.written(&output.call, output.bytes)?;
            all.push(Written {
                position: Position::after(output.event).to_string(),
                thread: output.thread,
                to: output.to,
                text: String::from_utf8_lossy(&bytes).into_owned(),
                whole: bytes.len() as u64 == output.bytes,
                bytes,
            });
        }
        self.timeline.seek(Target::Position(here))?;
        Ok(all)
    }

    /// The calls that wrote, from the log alone.
    fn outputs(&mut self, most: usize) -> Result<Vec<Output>> {
        let mut outputs = Vec::new();
        let mut waiting: HashMap<ThreadId, Call> = HashMap::new();
        self.read_log(|event, number, thread| {
            let done = match event {
                Event::Call(call) if call.output.is_some() => match call.end {
                    End::Returned(bytes) => Some((*call, bytes)),
                    End::Waits => {
                        waiting.insert(thread, *call);
                        None
                    }
                    _ => None,
                },
                Event::Resumed { result, .. } => {
                    let call = waiting.remove(&thread);
                    call.zip(*result)
                }
                _ => None,
            };
            if let Some((call, bytes)) = done
                && bytes > 0
                && let Some(output) = call.output
            {
                outputs.push(Output {
                    event: number,
                    thread,
                    to: output.to,
                    call,
                    bytes: bytes as u64,
                });
            }
            outputs.len() < most
        })?;
        Ok(outputs)
    }

    /// What a call has written, from the memory that it wrote: so many bytes.
    pub(crate) fn written(&mut self, call: &Call, bytes: u64) -> Result<Vec<u8>> {
        let [_, mut address, mut count, ..] = call.args;
        let mut left = bytes.min(LARGEST);
        let mut bytes = Vec::new();
        let word = |at: &[u8]| u64::from_le_bytes(at.try_into().expect("eight bytes"));
        if call.nr == SENDMSG {
            // The vector is in the message's head.
            let mut head = [0; 32];
            if self.timeline.read(address, &mut head)? < head.len() {
                return Ok(bytes);
            }
            (address, count) = (word(&head[16..24]), word(&head[24..]));
        }
        let pieces = match call.nr {
            WRITE | PWRITE | SENDTO => vec![(address, left)],
            WRITEV | PWRITEV | PWRITEV2 | SENDMSG => {
                let mut vector = vec![0; (count.min(MOST_PIECES) * 16) as usize];
                let got = self.timeline.read(address, &mut vector)?;
                let pieces = vector[..got].chunks_exact(16);
                pieces
                    .map(|piece| (word(&piece[..8]), word(&piece[8..])))
                    .collect()
            }
            _ => Vec::new(),
        };
        for (address, len) in pieces {
            let mut piece = vec![0; len.min(left) as usize];
            let got = self.timeline.read(address, &mut piece)?;
            bytes.extend_from_slice(&piece[..got]);
            left -= got as u64;
            if got < piece.len() || left == 0 {
                break;
            }
        }
        Ok(bytes)
    }

    /// Threads' births and ends, signals that handlers took, and C++ exceptions.
    pub fn happenings(&mut self) -> Result<Vec<Happening>> {
        let mut all: Vec<(u64, u64, Happening)> = Vec::new();
        self.read_log(|event, number, thread| {
            let position = Position::after(number).to_string();
            let happening = match *event {
                Event::NewThread { thread, tid } => Some(Happening::ThreadBegins {
                    position,
                    thread,
                    tid,
                }),
                Event::EndedThread { thread } => {
                    let position = Position::after(number.saturating_sub(1)).to_string();
                    Some(Happening::ThreadEnds { position, thread })
                }
                Event::Signal { signo, .. } => Some(Happening::Signal {
                    position,
                    thread,
                    signo,
                }),
                _ => None,
            };
            all.extend(happening.map(|happening| (number, 0, happening)));
            true
        })?;
        let thrown = self.calls_of_symbol("__cxa_throw", MOST_EXCEPTIONS)?;
        let marks: Vec<Mark> = thrown.iter().map(|call| call.at).collect();
        let positions = self.timeline.positions(&marks)?;
        for (call, position) in thrown.iter().zip(positions) {
            /// The second argument, as instructions number registers: rsi.
            const INFO: usize = 6;
            let name = call.pieces.iter().find_map(|piece| {
                let at = call.registers[INFO].checked_sub(piece.addr)? as usize + 8;
                let bytes = piece.bytes.get(at..at + 8)?;
                Some(u64::from_le_bytes(bytes.try_into().ok()?))
            });
            let of = match name {
                Some(name) => self.type_named(name)?,
                None => None,
            };
            all.push((
                call.at.event,
                1 + call.at.ticks,
                Happening::Exception {
                    position: position.to_string(),
                    thread: call.thread,
                    of,
                },
            ));
        }
        all.sort_by_key(|(event, ticks, _)| (*event, *ticks));
        Ok(all.into_iter().map(|(_, _, happening)| happening).collect())
    }

    /// The name of a C++ type as its `type_info` has it, read where the timeline stands or from the file.
    fn type_named(&mut self, address: u64) -> Result<Option<String>> {
        let mut bytes = [0; 512];
        let here = self.timeline.position()?;
        let mut got = self.timeline.read(address, &mut bytes)?;
        if got == 0 {
            // Loaded later.
            self.timeline.seek(Target::End)?;
            got = self.timeline.read(address, &mut bytes)?;
            self.timeline.seek(Target::Position(here))?;
        }
        let end = bytes[..got].iter().position(|byte| *byte == 0);
        let name = end.map(|end| String::from_utf8_lossy(&bytes[..end]).into_owned());
        Ok(name.map(|name| {
            let name = name.trim_start_matches('*');
            let plain = clew_symbols::value::demangled(&format!("_ZTI{name}"));
            match plain.strip_prefix("typeinfo for ") {
                Some(plain) => plain.to_string(),
                None => name.to_string(),
            }
        }))
    }

    /// Tells each event of the log with its number and the thread that ran, until somebody has enough.
    pub(crate) fn read_log(
        &self,
        mut each: impl FnMut(&Event<'_>, u64, ThreadId) -> bool,
    ) -> Result<()> {
        let unreadable =
            |error: clew_recording::reader::ReadError| Error::Recording(error.to_string());
        let mut reader = self.recording.stream(self.stream()).map_err(unreadable)?;
        let start = self.timeline.start().event;
        let mut thread = 0;
        loop {
            let number = reader.position() + 1;
            match reader.next_in_place() {
                Ok(Some(Record::Event(event))) => {
                    if number > start && !each(event, number, thread) {
                        return Ok(());
                    }
                    if let Event::Switched { to, .. } = event {
                        thread = *to;
                    }
                }
                Ok(Some(Record::Effect(_))) => {}
                // A torn end ends it here as everywhere.
                Ok(None) | Err(_) => return Ok(()),
            }
        }
    }
}

//! Goes through a stream event by event. Out: each with its effects, its number, its time and its thread.

use clew_engine::replay::arguments::Argument;
use clew_recording::event::{Call, Effect, Event, Record, StreamId, ThreadId};
use clew_recording::landings::Landings;
use clew_recording::reader::{ReadError, Recording, StreamReader};
use clew_recording::walk::Walk;

/// Of contents of memory, as much is kept if not all of it is to be shown.
const KEPT: usize = 64;
/// As many pieces of memory of one event are kept.
const MOST_PIECES: usize = 256;

/// An event and what belongs to it.
pub struct Entry {
    pub stream: StreamId,
    pub pid: i32,
    /// From 1, in its stream.
    pub number: u64,
    pub time_ns: u64,
    pub thread: ThreadId,
    pub tid: i32,
    /// Ticks of the stream up to here.
    pub ticks: u64,
    /// What it borrows of the log is in `bytes` instead.
    pub event: Event<'static>,
    pub bytes: Vec<u8>,
    /// Of an [`Event::Resumed`]: the call that waited.
    pub resumes: Option<Call>,
    /// Of an [`Event::Resumed`]: the tid of the thread that woke this one.
    pub woken_by: Option<i32>,
    pub effects: Effects,
    /// What its call passed to the kernel, as far as a replay told.
    pub inputs: Vec<Argument>,
}

/// What an event changed.
#[derive(Default)]
pub struct Effects {
    pub memory: Vec<Piece>,
    /// Pieces and bytes of memory in all.
    pub pieces: u64,
    pub memory_bytes: u64,
    pub values: Vec<(usize, u64)>,
    pub extended: bool,
    pub maps: u64,
}

/// Contents that memory got.
pub struct Piece {
    pub addr: u64,
    pub len: u64,
    /// The first of it.
    pub bytes: Vec<u8>,
}

pub struct Cursor {
    stream: StreamId,
    pid: i32,
    reader: StreamReader,
    walk: Walk,
    keep: usize,
}

impl Cursor {
    pub fn open(recording: &Recording, stream: StreamId, full: bool) -> Result<Cursor, ReadError> {
        let info = recording.streams().iter().find(|info| info.id == stream);
        let start = &info.ok_or(ReadError::NoStream(stream))?.start;
        Ok(Cursor {
            stream,
            pid: start.pid,
            reader: recording.stream(stream)?,
            walk: Walk::new(start),
            keep: if full { usize::MAX } else { KEPT },
        })
    }

    /// Goes on from the last of these landings before an event, so that the event itself comes.
    pub fn skip_to(mut self, landings: &Landings, event: u64) -> Cursor {
        if let Some(landing) = landings.before(self.stream, event.saturating_sub(1)) {
            self.reader.go_to(&landing.resume);
            self.walk = landing.walk.clone();
        }
        self
    }

    /// Without contents of memory: how much there was is all.
    pub fn bare(recording: &Recording, stream: StreamId) -> Result<Cursor, ReadError> {
        let cursor = Cursor::open(recording, stream, false)?;
        Ok(Cursor { keep: 0, ..cursor })
    }

    pub fn next(&mut self) -> Result<Option<Entry>, ReadError> {
        let (event, bytes) = loop {
            match self.reader.next()? {
                None => return Ok(None),
                Some(Record::Event(event)) => break detached(event),
                // Effects that nothing caused: they can't be shown, and replay won't take them.
                Some(Record::Effect(_)) => {}
            }
        };
        self.walk.come_to(&event);
        let mut entry = Entry {
            stream: self.stream,
            pid: self.pid,
            number: self.reader.position(),
            time_ns: self.walk.time,
            thread: self.walk.thread,
            tid: self.walk.tid(),
            ticks: self.walk.ticks,
            event,
            bytes,
            resumes: None,
            woken_by: None,
            effects: Effects::default(),
            inputs: Vec::new(),
        };
        if let Event::Resumed { by: Some(by), .. } = entry.event {
            entry.woken_by = self.walk.tid_of(by);
        }
        entry.resumes = self.walk.pass(&entry.event);
        while let Some(effect) = self.reader.next_effect()? {
            entry.effects.add(&effect, self.keep);
        }
        Ok(Some(entry))
    }
}

impl Effects {
    fn add(&mut self, effect: &Effect, keep: usize) {
        match *effect {
            Effect::Memory { addr, bytes } => {
                self.pieces += 1;
                self.memory_bytes += bytes.len() as u64;
                // Long contents come in several pieces.
                if let Some(last) = self.memory.last_mut()
                    && last.addr.wrapping_add(last.len) == addr
                {
                    last.len += bytes.len() as u64;
                    let room = keep.saturating_sub(last.bytes.len()).min(bytes.len());
                    last.bytes.extend_from_slice(&bytes[..room]);
                } else if self.memory.len() < MOST_PIECES {
                    self.memory.push(Piece {
                        addr,
                        len: bytes.len() as u64,
                        bytes: bytes[..bytes.len().min(keep)].to_vec(),
                    });
                }
            }
            Effect::Registers { mask, values } => {
                let set = values.iter().enumerate();
                let set = set.filter(|(n, _)| mask >> n & 1 != 0);
                self.values.extend(set.map(|(n, &value)| (n, value)));
            }
            Effect::Extended(_) => self.extended = true,
            Effect::Map(_) => self.maps += 1,
            // What was written is shown with the call.
            Effect::Output { .. } => {}
        }
    }
}

/// The event without what it borrows, and that.
fn detached(event: Event) -> (Event<'static>, Vec<u8>) {
    match event {
        Event::Signal {
            place,
            cause,
            signo,
            info,
        } => (
            Event::Signal {
                place,
                cause,
                signo,
                info: &[],
            },
            info.to_vec(),
        ),
        Event::Values(bytes) => (Event::Values(&[]), bytes.to_vec()),
        Event::Note(text) => (Event::Note(""), text.as_bytes().to_vec()),
        Event::Deadlock(waiters) => (Event::Deadlock(waiters), Vec::new()),
        Event::State { ticks, name, waits } => {
            let state = Event::State {
                ticks,
                name: &[],
                waits,
            };
            (state, name.to_vec())
        }
        Event::Started(start) => (Event::Started(start), Vec::new()),
        Event::Call(call) => (Event::Call(call), Vec::new()),
        Event::Resumed { result, by } => (Event::Resumed { result, by }, Vec::new()),
        Event::Instruction { ticks, what } => (Event::Instruction { ticks, what }, Vec::new()),
        Event::Shared { ticks, touch } => (Event::Shared { ticks, touch }, Vec::new()),
        Event::Switched { place, to } => (Event::Switched { place, to }, Vec::new()),
        Event::NewThread { thread, tid } => (Event::NewThread { thread, tid }, Vec::new()),
        Event::EndedThread { thread } => (Event::EndedThread { thread }, Vec::new()),
        Event::Forked { ticks, stream, pid } => (Event::Forked { ticks, stream, pid }, Vec::new()),
        Event::Check {
            place,
            registers,
            memory,
        } => (
            Event::Check {
                place,
                registers,
                memory,
            },
            Vec::new(),
        ),
        Event::Exec { ticks } => (Event::Exec { ticks }, Vec::new()),
        Event::Leap { place, left_out } => (Event::Leap { place, left_out }, Vec::new()),
        Event::Exited { ticks, status } => (Event::Exited { ticks, status }, Vec::new()),
        Event::Killed {
            place,
            cause,
            signo,
        } => (
            Event::Killed {
                place,
                cause,
                signo,
            },
            Vec::new(),
        ),
        Event::Time(time) => (Event::Time(time), Vec::new()),
    }
}

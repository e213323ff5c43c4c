//! Bytes that went from one recorded process to another. In: a recording. Out: for bytes that a call read from a pipe or a pair
//! of sockets, the call in the other process that wrote them, and where in memory it had them.
//!
//! Descriptors are followed through forks, execs and copies, and bytes are counted on both sides. Where several processes write
//! to the same pipe at the same time, or bytes go ways that aren't counted (splice, messages), nothing is said.

use clew_recording::event::{Call, Effect, End, Event, Origin, ProcessId, Record, StreamId};
use clew_recording::reader::Recording;
use clew_recording::walk::Walk;
use clew_timeline::Position;
use rustc_hash::FxHashMap;

mod number {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const CLOSE: u32 = 3;
    pub const READV: u32 = 19;
    pub const WRITEV: u32 = 20;
    pub const PIPE: u32 = 22;
    pub const DUP: u32 = 32;
    pub const DUP2: u32 = 33;
    pub const SENDFILE: u32 = 40;
    pub const SENDTO: u32 = 44;
    pub const RECVFROM: u32 = 45;
    pub const SENDMSG: u32 = 46;
    pub const RECVMSG: u32 = 47;
    pub const SOCKETPAIR: u32 = 53;
    pub const FCNTL: u32 = 72;
    pub const SPLICE: u32 = 275;
    pub const TEE: u32 = 276;
    pub const VMSPLICE: u32 = 278;
    pub const DUP3: u32 = 292;
    pub const PIPE2: u32 = 293;
    pub const SENDMMSG: u32 = 307;
    pub const CLOSE_RANGE: u32 = 436;
}
const F_DUPFD: u64 = 0;
const F_DUPFD_CLOEXEC: u64 = 1030;
const MSG_PEEK: u64 = 2;

/// A call that read or wrote a piece of what went through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub stream: StreamId,
    pub process: ProcessId,
    /// The event that says how much it was, and the position before the call, where its memory is as it was written.
    pub event: u64,
    pub position: Position,
    /// Where its bytes are: at an address, or where a vector at this address says.
    pub addr: u64,
    pub vector: bool,
    /// Which bytes of all.
    pub at: u64,
    pub len: u64,
    time: u64,
}

#[derive(Debug, Default)]
struct Channel {
    writes: Vec<Piece>,
    reads: Vec<Piece>,
    /// Some bytes went through uncounted.
    broken: bool,
}

/// A descriptor's two ways: what it reads from, what it writes to.
#[derive(Clone, Copy, Debug)]
struct Ends {
    reads: Option<usize>,
    writes: Option<usize>,
}

type Table = FxHashMap<i32, Ends>;

#[derive(Debug, Default)]
pub struct Passages {
    channels: Vec<Channel>,
}

impl Passages {
    /// Goes through all of a recording's streams.
    pub fn read(recording: &Recording) -> Passages {
        let mut all = Passages::default();
        // Of streams that will begin with another's descriptors.
        let mut tables: FxHashMap<StreamId, Table> = FxHashMap::default();
        for info in recording.streams() {
            let table = match info.start.origin {
                Origin::Exec { before } => tables.get(&before).cloned(),
                Origin::Fork { .. } => tables.remove(&info.id),
                Origin::Midst { .. } => None,
            };
            let mut stream = Stream {
                id: info.id,
                process: info.process,
                table: table.unwrap_or_default(),
                walk: Walk::new(&info.start),
                pair: None,
                forks: Vec::new(),
                waits: FxHashMap::default(),
            };
            if let Ok(reader) = recording.stream(info.id) {
                stream.read(reader, &mut all);
            }
            tables.extend(stream.forks);
            tables.insert(info.id, stream.table);
        }
        for channel in &mut all.channels {
            let counted = count(&mut channel.writes) && count(&mut channel.reads);
            channel.broken |= !counted;
        }
        all
    }

    /// All reads whose bytes are counted.
    pub fn reads(&self) -> impl Iterator<Item = &Piece> {
        let counted = self.channels.iter().filter(|channel| !channel.broken);
        counted.flat_map(|channel| &channel.reads)
    }

    /// Who wrote bytes that an event of a stream has read: the pieces, each with where in it they begin and how many.
    pub fn sources(
        &self,
        stream: StreamId,
        event: u64,
        first: u64,
        len: u64,
    ) -> Vec<(&Piece, u64, u64)> {
        let mut found = Vec::new();
        for channel in self.channels.iter().filter(|channel| !channel.broken) {
            let mut reads = channel.reads.iter();
            let Some(read) = reads.find(|read| read.stream == stream && read.event == event) else {
                continue;
            };
            let from = read.at + first;
            let to = read.at + (first + len).min(read.len);
            for write in &channel.writes {
                let (start, end) = (from.max(write.at), to.min(write.at + write.len));
                if start < end {
                    found.push((write, start - write.at, end - start));
                }
            }
        }
        found
    }
}

/// Gives pieces their places. One process after the other: those of several at a time have no order that is known.
fn count(pieces: &mut [Piece]) -> bool {
    let mut spans: FxHashMap<ProcessId, (u64, u64)> = FxHashMap::default();
    for piece in pieces.iter() {
        let span = spans
            .entry(piece.process)
            .or_insert((piece.time, piece.time));
        *span = (span.0.min(piece.time), span.1.max(piece.time));
    }
    let first = |process: ProcessId| spans[&process].0;
    pieces.sort_by_key(|piece| {
        (
            first(piece.process),
            piece.process,
            piece.stream,
            piece.event,
        )
    });
    let mut at = 0;
    for piece in pieces.iter_mut() {
        piece.at = at;
        at += piece.len;
    }
    let mut spans: Vec<(u64, u64)> = spans.into_values().collect();
    spans.sort_unstable();
    spans.windows(2).all(|two| two[0].1 < two[1].0)
}

/// A stream that is being read.
struct Stream {
    id: StreamId,
    process: ProcessId,
    table: Table,
    walk: Walk,
    /// The call that has just made a pair of descriptors.
    pair: Option<Call>,
    forks: Vec<(StreamId, Table)>,
    /// Where calls that wait began, by thread.
    waits: FxHashMap<u32, Position>,
}

impl Stream {
    fn read(&mut self, mut reader: clew_recording::reader::StreamReader, all: &mut Passages) {
        let mut number = 0;
        loop {
            match reader.next_in_place() {
                Ok(Some(Record::Event(event))) => {
                    self.event(number, event, all);
                    number += 1;
                }
                Ok(Some(Record::Effect(Effect::Memory { addr, bytes }))) => {
                    self.effect(*addr, bytes, all);
                }
                Ok(Some(Record::Effect(_))) => {}
                // What can't be read isn't replayed either.
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn event(&mut self, number: u64, event: &Event, all: &mut Passages) {
        self.pair = None;
        self.walk.come_to(event);
        let here = Position {
            event: number,
            ticks: event.place().ticks,
            steps: 0,
        };
        let thread = self.walk.thread;
        let waited = self.walk.pass(event);
        match event {
            Event::Call(call) => match call.end {
                End::Returned(result) => self.called(number, here, call, result, all),
                End::Waits => {
                    self.waits.insert(thread, here);
                }
                _ => {}
            },
            Event::Resumed { result, .. } => {
                let began = self.waits.remove(&thread).unwrap_or(here);
                if let (Some(call), Some(result)) = (waited, result) {
                    self.called(number, began, &call, *result, all);
                }
            }
            Event::Forked { stream, .. } => self.forks.push((*stream, self.table.clone())),
            _ => {}
        }
    }

    fn called(
        &mut self,
        event: u64,
        position: Position,
        call: &Call,
        result: i64,
        all: &mut Passages,
    ) {
        if result < 0 {
            return;
        }
        let (fd, made) = (call.args[0] as i32, result as i32);
        let ends = self.table.get(&fd).copied();
        let piece = |vector| Piece {
            stream: self.id,
            process: self.process,
            event,
            position,
            addr: call.args[1],
            vector,
            at: 0,
            len: result as u64,
            time: self.walk.time,
        };
        let reads = ends.and_then(|ends| ends.reads);
        let writes = ends.and_then(|ends| ends.writes);
        match call.nr {
            number::READ | number::READV | number::RECVFROM => {
                let peeks = call.nr == number::RECVFROM && call.args[3] & MSG_PEEK != 0;
                if let Some(channel) = reads.filter(|_| result > 0 && !peeks) {
                    let vector = call.nr == number::READV;
                    all.channels[channel].reads.push(piece(vector));
                }
            }
            number::WRITE | number::WRITEV | number::SENDTO => {
                if let Some(channel) = writes.filter(|_| result > 0) {
                    let vector = call.nr == number::WRITEV;
                    all.channels[channel].writes.push(piece(vector));
                }
            }
            number::SENDFILE
            | number::SENDMSG
            | number::RECVMSG
            | number::SENDMMSG
            | number::SPLICE
            | number::TEE
            | number::VMSPLICE => {
                let other = match call.nr {
                    number::SPLICE => call.args[2] as i32,
                    _ => call.args[1] as i32,
                };
                for ends in [ends, self.table.get(&other).copied()]
                    .into_iter()
                    .flatten()
                {
                    for channel in [ends.reads, ends.writes].into_iter().flatten() {
                        all.channels[channel].broken = true;
                    }
                }
            }
            number::PIPE | number::PIPE2 | number::SOCKETPAIR => self.pair = Some(*call),
            number::CLOSE => drop(self.table.remove(&fd)),
            number::CLOSE_RANGE => {
                let gone = call.args[0] as i32..=call.args[1].min(i32::MAX as u64) as i32;
                if call.args[2] == 0 {
                    self.table.retain(|fd, _| !gone.contains(fd));
                }
            }
            number::DUP | number::DUP2 | number::DUP3 => self.copied(ends, made),
            number::FCNTL if matches!(call.args[1], F_DUPFD | F_DUPFD_CLOEXEC) => {
                self.copied(ends, made)
            }
            _ => {}
        }
    }

    fn copied(&mut self, ends: Option<Ends>, to: i32) {
        match ends {
            Some(ends) => self.table.insert(to, ends),
            None => self.table.remove(&to),
        };
    }

    /// The two descriptors of a pair, as the kernel wrote them.
    fn effect(&mut self, addr: u64, bytes: &[u8], all: &mut Passages) {
        let Some(call) = self.pair else {
            return;
        };
        let at = match call.nr {
            number::SOCKETPAIR => call.args[3],
            _ => call.args[0],
        };
        let Some(words) = bytes.first_chunk::<8>().filter(|_| addr == at) else {
            return;
        };
        self.pair = None;
        let word = u64::from_le_bytes(*words);
        let (one, other) = (word as i32, (word >> 32) as i32);
        let first = all.channels.len();
        all.channels.push(Channel::default());
        if call.nr == number::SOCKETPAIR {
            let second = all.channels.len();
            all.channels.push(Channel::default());
            let ends = |reads, writes| Ends {
                reads: Some(reads),
                writes: Some(writes),
            };
            self.table.insert(one, ends(first, second));
            self.table.insert(other, ends(second, first));
        } else {
            let (reads, writes) = (Some(first), Some(first));
            self.table.insert(
                one,
                Ends {
                    reads,
                    writes: None,
                },
            );
            self.table.insert(
                other,
                Ends {
                    reads: None,
                    writes,
                },
            );
        }
    }
}

impl Passages {
    /// Where the bytes of an input were in the process that wrote them: the first piece of them. `ranges`: all memory that
    /// the event wrote, in order.
    pub fn elsewhere(
        &self,
        stream: StreamId,
        event: u64,
        ranges: &[(u64, u64)],
        addr: u64,
        len: u64,
    ) -> Option<(&Piece, u64, u64)> {
        let mut before = 0;
        for &(start, size) in ranges {
            if (start..start + size).contains(&addr) {
                let first = before + (addr - start);
                let sources = self.sources(stream, event, first, len.max(1));
                return sources.into_iter().next();
            }
            before += size;
        }
        None
    }
}

impl Piece {
    /// The address of one of its bytes, and how many of those wanted lie there together. The timeline stands before the
    /// call.
    pub fn place(
        &self,
        timeline: &mut clew_timeline::Timeline,
        at: u64,
        len: u64,
    ) -> crate::Result<Option<(u64, u64)>> {
        if !self.vector {
            return Ok(Some((self.addr.wrapping_add(at), len)));
        }
        const MOST: u64 = 1024;
        let mut before = 0;
        for n in 0..MOST {
            let mut pair = [0; 16];
            if timeline.read(self.addr.wrapping_add(16 * n), &mut pair)? < pair.len() {
                return Ok(None);
            }
            let word = u128::from_le_bytes(pair);
            let (base, size) = (word as u64, (word >> 64) as u64);
            if at < before + size {
                let offset = at - before;
                return Ok(Some((base.wrapping_add(offset), len.min(size - offset))));
            }
            before += size;
        }
        Ok(None)
    }
}

/// Where a process was forked, in its parent: before that, what the child has is the parent's.
pub fn forked(recording: &Recording, stream: StreamId) -> Option<(StreamId, Position)> {
    let Origin::Fork { parent } = recording.info(stream)?.start.origin else {
        return None;
    };
    let mut reader = recording.stream(parent).ok()?;
    let mut number = 0;
    loop {
        match reader.next_in_place() {
            Ok(Some(Record::Event(event))) => {
                if let Event::Forked {
                    stream: child,
                    ticks,
                    ..
                } = event
                    && *child == stream
                {
                    let position = Position {
                        event: number,
                        ticks: *ticks,
                        steps: 0,
                    };
                    return Some((parent, position));
                }
                number += 1;
            }
            Ok(Some(Record::Effect(_))) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}

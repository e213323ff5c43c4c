//! Landings at which the reading of a stream can begin. In: a recording, read once from its beginning. Out: for each of its
//! long streams, what a reader must know every few megabytes; kept in a file beside the log.
//!
//! Records are differences to those before them, and small chunks are compressed with what came before. So whoever wants
//! events from the midst of a long stream would have to read all before them. The file isn't packed, and a log without
//! it, or with one that doesn't belong to it, is read from the beginning: it only saves time.

use std::collections::BTreeMap;
use std::path::Path;

use crate::bytes::{Malformed, Reader};
use crate::codec::put_number;
use crate::event::{Record, Start, StreamId};
use crate::meta::{read_bounded, replace_file};
use crate::reader::{Recording, Resume, StreamReader};
use crate::summary;
use crate::walk::Walk;

/// The file's name in a recording's folder.
pub const FILE: &str = "landings";
const MAGIC: [u8; 8] = *b"clew lnd";
const VERSION: u32 = 1;
/// Length of its header: these two, a checksum of what follows, the log's size, the length of what follows unpacked.
const HEADER: usize = 32;
/// Bytes of records from one landing to the next.
const EVERY: u64 = 4 << 20;
/// A file of more than this, packed or not, isn't read.
const MOST_BYTES: u64 = 1 << 30;

/// A place between two events of a stream.
#[derive(Clone)]
pub struct Landing {
    pub resume: Resume,
    pub walk: Walk,
}

/// The landings of a recording.
#[derive(Clone, Default)]
pub struct Landings {
    /// In order of their events.
    streams: BTreeMap<StreamId, Vec<Landing>>,
}

impl Landings {
    /// The last one with no more than so many events before it.
    pub fn before(&self, stream: StreamId, events: u64) -> Option<&Landing> {
        let landings = self.streams.get(&stream)?;
        let behind = landings.partition_point(|landing| landing.resume.events() <= events);
        landings.get(behind.checked_sub(1)?)
    }

    /// The kept ones, if they were made from a log of this size.
    fn kept(folder: &Path, log_bytes: u64) -> Option<Landings> {
        let bytes = read_bounded(&folder.join(FILE), MOST_BYTES).ok()?;
        let (head, packed) = bytes.split_at_checked(HEADER)?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| head[at + n]));
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let fits = head[..8] == MAGIC
            && word(8) == VERSION
            && word(12) == crc32fast::hash(packed)
            && long(16) == log_bytes
            && long(24) <= MOST_BYTES;
        if !fits {
            return None;
        }
        let raw = zstd::bulk::decompress(packed, long(24) as usize).ok()?;
        Landings::decode(&raw).ok()
    }

    /// Keeps them. Where nothing can be written they will be made again, that is all.
    fn keep(&self, folder: &Path, log_bytes: u64) {
        let mut raw = Vec::new();
        self.encode(&mut raw);
        let Ok(packed) = zstd::bulk::compress(&raw, 1) else {
            return;
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(crc32fast::hash(&packed).to_le_bytes());
        bytes.extend(log_bytes.to_le_bytes());
        bytes.extend((raw.len() as u64).to_le_bytes());
        bytes.extend(packed);
        let _ = replace_file(&folder.join(FILE), &bytes);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.streams.len() as u64);
        for (&stream, landings) in &self.streams {
            put_number(out, stream.into());
            put_number(out, landings.len() as u64);
            for landing in landings {
                landing.resume.encode(out);
                landing.walk.encode(out);
            }
        }
    }

    fn decode(bytes: &[u8]) -> Result<Landings, Malformed> {
        let mut input = Reader::new(bytes);
        let mut streams = BTreeMap::new();
        for _ in 0..input.number()? {
            let stream = input.small()?;
            let mut landings = Vec::new();
            for _ in 0..input.number()? {
                landings.push(Landing {
                    resume: Resume::decode(&mut input)?,
                    walk: Walk::decode(&mut input)?,
                });
            }
            streams.insert(stream, landings);
        }
        Ok(Landings { streams })
    }
}

/// Makes landings while somebody reads a recording from its beginning.
#[derive(Default)]
pub struct Maker {
    landings: Landings,
    stream: StreamId,
    walk: Walk,
    /// Bytes of records before the last landing.
    last: u64,
    /// A landing, if the next record is an event.
    next: Option<Resume>,
}

impl Maker {
    /// The records of this stream follow.
    pub fn stream(&mut self, stream: StreamId, start: &Start) {
        (self.stream, self.walk) = (stream, Walk::new(start));
        (self.last, self.next) = (0, None);
    }

    /// The reader stands before a record.
    #[inline]
    pub fn stands(&mut self, reader: &StreamReader) {
        if reader.is_between_chunks() && reader.raw() >= self.last + EVERY {
            self.last = reader.raw();
            self.next = Some(reader.resume());
        }
    }

    /// That is the record.
    #[inline]
    pub fn record(&mut self, record: &Record) {
        let Record::Event(event) = record else {
            if self.next.take().is_some() {
                // Not between two events: the next chunk will do.
                self.last = self.last.saturating_sub(EVERY);
            }
            return;
        };
        if let Some(resume) = self.next.take() {
            let walk = self.walk.clone();
            let landings = self.landings.streams.entry(self.stream).or_default();
            landings.push(Landing { resume, walk });
        }
        self.walk.come_to(event);
        self.walk.pass(event);
    }

    /// Keeps what was found, if there is anything to keep.
    pub fn keep(&self, folder: &Path, log_bytes: u64) {
        if !self.landings.streams.is_empty() {
            self.landings.keep(folder, log_bytes);
        }
    }
}

/// The landings of a recording: the kept ones, or some made by reading all of it. None of one that is short, or still being
/// made.
pub fn of(recording: &Recording) -> Landings {
    let long = |raw: u64| raw >= 2 * EVERY;
    if !recording.streams().iter().any(|info| long(info.raw)) {
        return Landings::default();
    }
    let folder = recording.folder();
    let size = || {
        let log = folder.join(crate::log::NAME);
        log.metadata().map_or(0, |meta| meta.len())
    };
    if let Some(kept) = Landings::kept(folder, size()) {
        return kept;
    }
    // The same pass tells what the recording is about.
    if summary::make(recording, size()).is_none() {
        return Landings::default();
    }
    Landings::kept(folder, size()).unwrap_or_default()
}

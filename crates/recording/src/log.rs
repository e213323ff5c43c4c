//! The log file: a header, then chunks, one after the other. docs/format.md describes it.
//!
//! In: whole records of one stream at a time. Out: bytes of a chunk, and back. Everything read here may
//! come from a stranger: lengths are checked before anything is allocated.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use zstd_safe::{CCtx, DCtx};

use crate::event::StreamId;

/// The log's name in a recording's folder.
pub const NAME: &str = "log";
/// The version of everything in the log, records included.
pub const VERSION: u32 = 4;
pub const MAGIC: [u8; 8] = *b"clew log";
/// Length of the file's header.
pub const FILE_HEADER: usize = 16;
/// Length of a chunk's header.
pub const CHUNK_HEADER: usize = 32;
/// No chunk has more bytes.
pub const LONGEST_CHUNK: usize = 1 << 20;
/// So many bytes of the same stream help to compress the chunk that follows them.
pub const HISTORY: usize = 32 << 10;

/// Of zstd. The writer shares the machine with the guest, so the fastest where much comes, in one chunk or in those of
/// several streams at a time; where less comes it has the time for a better one.
fn level(raw: usize, round: usize) -> i32 {
    let much = raw > LONGEST_CHUNK / 2 || round > LONGEST_CHUNK / 8;
    if much { 1 } else { 3 }
}
const ZSTD_DICTIONARY: u32 = 0xec30a437;
const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"chnk");

/// What a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records of a stream.
    Records,
    /// The same, of the prologue of a stream that begins in the midst: its state.
    State,
    /// No more of a stream comes.
    StreamEnd(StreamEnd),
    /// No more of anything comes.
    End,
    /// The process of this stream isn't recorded; its bytes say why, in words.
    Unrecorded,
    /// Of a later version, and nothing is right without it: whoever doesn't know it refuses the log.
    Needed(u8),
    /// Of a later version, from [`FIRST_EXTRA`] on: whoever doesn't know it passes it by.
    Extra(u8),
}

/// The state that a stream begins with in the midst of its process's life.
const STATE: u8 = 7;
/// A stream goes on behind the region that the recording is of.
const CUT: u8 = 8;
/// Kinds of chunks from here on may be passed by.
pub const FIRST_EXTRA: u8 = 128;

/// How a stream ended, as far as the writer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// Its process said so.
    Ended,
    /// Its process went on in another stream.
    Exec,
    /// Its process was killed, or went on in another stream without saying so.
    Gone,
    /// Its process went on; the recording is of a region that ends here.
    Cut,
}

impl Kind {
    /// In the file, kinds are numbered from 1.
    fn code(self) -> u8 {
        match self {
            Kind::Records => 1,
            Kind::State => STATE,
            Kind::StreamEnd(StreamEnd::Cut) => CUT,
            Kind::StreamEnd(end) => 2 + end as u8,
            Kind::End => 5,
            Kind::Unrecorded => 6,
            Kind::Needed(code) | Kind::Extra(code) => code,
        }
    }

    fn of(code: u8) -> Option<Kind> {
        Some(match code {
            0 => return None,
            1 => Kind::Records,
            2 => Kind::StreamEnd(StreamEnd::Ended),
            3 => Kind::StreamEnd(StreamEnd::Exec),
            4 => Kind::StreamEnd(StreamEnd::Gone),
            5 => Kind::End,
            6 => Kind::Unrecorded,
            STATE => Kind::State,
            CUT => Kind::StreamEnd(StreamEnd::Cut),
            9..FIRST_EXTRA => Kind::Needed(code),
            FIRST_EXTRA.. => Kind::Extra(code),
        })
    }
}

/// How a chunk's bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    Plain = 0,
    /// One zstd frame.
    Zstd = 1,
    /// One zstd frame whose prefix is the up to [`HISTORY`] bytes before it in the stream.
    ZstdAfter = 2,
}

/// A chunk's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub kind: Kind,
    pub coding: Coding,
    pub stream: StreamId,
    /// Its place among all chunks of the log, from 0 (low 32 bits).
    pub number: u32,
    /// Bytes of records.
    pub raw: u32,
    /// Bytes in the file after the header.
    pub stored: u32,
    /// CRC-32 of these.
    pub sum: u32,
}

impl Chunk {
    pub fn encode(&self) -> [u8; CHUNK_HEADER] {
        let mut bytes = [0; CHUNK_HEADER];
        bytes[0..4].copy_from_slice(&CHUNK_MAGIC.to_le_bytes());
        bytes[4] = self.kind.code();
        bytes[5] = self.coding as u8;
        for (at, value) in [
            (8, self.stream),
            (12, self.number),
            (16, self.raw),
            (20, self.stored),
            (24, self.sum),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let sum = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` for anything that isn't the header of chunk `number`.
    pub fn decode(bytes: &[u8; CHUNK_HEADER], number: u32) -> Option<Chunk> {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| bytes[at + n]));
        let chunk = Chunk {
            kind: Kind::of(bytes[4])?,
            coding: match bytes[5] {
                0 => Coding::Plain,
                1 => Coding::Zstd,
                2 => Coding::ZstdAfter,
                _ => return None,
            },
            stream: word(8),
            number: word(12),
            raw: word(16),
            stored: word(20),
            sum: word(24),
        };
        let good = word(0) == CHUNK_MAGIC
            && word(28) == crc32fast::hash(&bytes[..28])
            && bytes[6..8] == [0, 0]
            && chunk.number == number
            && chunk.raw as usize <= LONGEST_CHUNK
            && match chunk.coding {
                Coding::Plain => chunk.stored == chunk.raw,
                _ => chunk.stored < chunk.raw,
            }
            && match chunk.kind {
                Kind::Records | Kind::State | Kind::Unrecorded => {
                    chunk.stream != 0 && chunk.raw != 0
                }
                Kind::StreamEnd(_) => chunk.stream != 0 && chunk.raw == 0,
                Kind::End => chunk.stream == 0 && chunk.raw == 0,
                Kind::Needed(_) | Kind::Extra(_) => true,
            };
        good.then_some(chunk)
    }
}

/// From this version on the header has a checksum: a damaged version is not an earlier one.
pub const SUMMED: u32 = 3;

/// What is behind the version in a header that begins with these bytes.
pub fn header_sum(begin: &[u8]) -> [u8; 4] {
    crc32fast::hash(begin).to_le_bytes()
}

pub fn file_header() -> [u8; FILE_HEADER] {
    let mut bytes = [0; FILE_HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let sum = header_sum(&bytes[..12]);
    bytes[12..].copy_from_slice(&sum);
    bytes
}

/// Makes chunks of bytes.
pub struct Packer {
    zstd: CCtx<'static>,
    number: u32,
    /// The last chunk, header and all.
    out: Vec<u8>,
    /// Bytes in the round before, and in this one.
    rounds: [usize; 2],
}

impl Default for Packer {
    fn default() -> Packer {
        Packer {
            zstd: CCtx::create(),
            number: 0,
            out: Vec::new(),
            rounds: [0; 2],
        }
    }
}

impl Packer {
    /// What comes next comes later than what came until now.
    pub fn next_round(&mut self) {
        self.rounds = [self.rounds[1], 0];
    }

    /// The next chunk of the log. `history` is what came before in the same stream: all of it, or the
    /// last [`HISTORY`] bytes.
    pub fn pack(&mut self, kind: Kind, stream: StreamId, raw: &[u8], history: &[u8]) -> &[u8] {
        assert!(raw.len() <= LONGEST_CHUNK && history.len() <= HISTORY);
        let coding = self.compress(raw, history);
        if coding == Coding::Plain {
            self.out.resize(CHUNK_HEADER, 0);
            self.out.extend_from_slice(raw);
        }
        let chunk = Chunk {
            kind,
            coding,
            stream,
            number: self.number,
            raw: raw.len() as u32,
            stored: (self.out.len() - CHUNK_HEADER) as u32,
            sum: crc32fast::hash(&self.out[CHUNK_HEADER..]),
        };
        self.out[..CHUNK_HEADER].copy_from_slice(&chunk.encode());
        self.number = self.number.wrapping_add(1);
        &self.out
    }

    /// The next chunk is the one with this number.
    pub fn go_on_at(&mut self, number: u32) {
        self.number = number;
    }

    /// Puts the compressed bytes behind the header's place; `Plain` if they wouldn't be shorter.
    fn compress(&mut self, raw: &[u8], history: &[u8]) -> Coding {
        // Shorter ones don't get smaller.
        if raw.len() < 16 {
            return Coding::Plain;
        }
        self.out
            .resize(CHUNK_HEADER + zstd_safe::compress_bound(raw.len()), 0);
        let out = &mut self.out[CHUNK_HEADER..];
        // For a large chunk history isn't worth its time.
        let after = raw.len() <= LONGEST_CHUNK / 8 && can_help(history);
        self.rounds[1] += raw.len();
        let level = level(raw.len(), self.rounds[0].max(self.rounds[1]));
        let (len, coding) = if after {
            let len = self.zstd.compress_using_dict(out, raw, history, level);
            (len, Coding::ZstdAfter)
        } else {
            (self.zstd.compress(out, raw, level), Coding::Zstd)
        };
        match len {
            Ok(len) if len < raw.len() => {
                self.out.truncate(CHUNK_HEADER + len);
                coding
            }
            // Longer, or out of memory: it is written as it is.
            _ => Coding::Plain,
        }
    }
}

/// zstd takes bytes that begin like one of its dictionaries for one.
fn can_help(history: &[u8]) -> bool {
    history.len() >= 64 && history[..4] != ZSTD_DICTIONARY.to_le_bytes()
}

/// The part of all that came before in a stream, and of `new`, that helps the next chunk.
pub fn remember(history: &mut Vec<u8>, new: &[u8]) {
    let new = &new[new.len().saturating_sub(HISTORY)..];
    let kept = (HISTORY - new.len()).min(history.len());
    history.drain(..history.len() - kept);
    history.extend_from_slice(new);
}

/// Takes chunks apart.
pub struct Unpacker {
    zstd: DCtx<'static>,
    stored: Vec<u8>,
}

impl Default for Unpacker {
    fn default() -> Unpacker {
        Unpacker {
            zstd: DCtx::create(),
            stored: Vec::new(),
        }
    }
}

impl Unpacker {
    /// Reads the bytes of the chunk whose header ends at `at` into `raw`; `None` if they aren't what the
    /// writer has put there.
    pub fn unpack(
        &mut self,
        file: &File,
        chunk: &Chunk,
        at: u64,
        history: &[u8],
        raw: &mut Vec<u8>,
    ) -> io::Result<Option<()>> {
        let len = chunk.raw as usize;
        // Lengths are within bounds: the header was checked.
        raw.resize(len, 0);
        let plain = chunk.coding == Coding::Plain;
        let stored = if plain { &mut *raw } else { &mut self.stored };
        stored.resize(chunk.stored as usize, 0);
        match file.read_exact_at(stored, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            result => result?,
        }
        if crc32fast::hash(stored) != chunk.sum {
            return Ok(None);
        }
        let done = match chunk.coding {
            Coding::Plain => Ok(len),
            Coding::Zstd => self.zstd.decompress(&mut raw[..], &self.stored),
            Coding::ZstdAfter => {
                if !can_help(history) {
                    return Ok(None);
                }
                self.zstd
                    .decompress_using_dict(&mut raw[..], &self.stored, history)
            }
        };
        Ok((done == Ok(len)).then_some(()))
    }
}

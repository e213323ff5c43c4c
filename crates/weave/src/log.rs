//! Reads the log of a woven recording. In: the file. Out: its threads, their counts and entries. Nothing in it is trusted.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::WeaveError;
use crate::format::*;

/// What the header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// 0 if the library was never loaded.
    pub pid: u32,
    /// The program ended by itself.
    pub exited: bool,
    /// Where the used part of the file ends.
    pub used: u64,
    pub first: u64,
    /// It was stopped because of something that a woven recording can't hold.
    pub refused: bool,
    pub words: String,
}

/// A thread's life, as far as it was written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    pub id: u32,
    pub count: u64,
    pub hash: u64,
    pub ended: bool,
    pub entries: Vec<Entry>,
}

/// An event with an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which of the thread's events, from 0.
    pub at: u64,
    pub op: u8,
    pub turn: Option<u32>,
    pub result: Option<i64>,
    /// Where the payload is: its length, and the place in the data file if it isn't here.
    pub len: u64,
    pub away: Option<u64>,
    pub payload: Vec<u8>,
}

pub struct Log {
    file: File,
    path: PathBuf,
    len: u64,
}

/// More threads than any machine has.
const MOST_THREADS: usize = 1 << 20;

impl Log {
    pub fn open(path: &Path) -> Result<Log, WeaveError> {
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (len, file) = opened.map_err(|why| WeaveError::Io {
            path: path.to_owned(),
            why,
        })?;
        let log = Log {
            file,
            path: path.to_owned(),
            len,
        };
        let header = log.bytes(0, FIRST as usize)?;
        if u64_at(&header, 0) != MAGIC || u32_at(&header, 8) != VERSION {
            return Err(log.damaged("it doesn't begin as one"));
        }
        Ok(log)
    }

    fn damaged(&self, why: &'static str) -> WeaveError {
        WeaveError::Damaged {
            path: self.path.clone(),
            why,
        }
    }

    fn bytes(&self, at: u64, len: usize) -> Result<Vec<u8>, WeaveError> {
        if at.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Err(self.damaged("it is cut off"));
        }
        let mut bytes = vec![0; len];
        let read = self.file.read_exact_at(&mut bytes, at);
        read.map_err(|why: io::Error| WeaveError::Io {
            path: self.path.clone(),
            why,
        })?;
        Ok(bytes)
    }

    pub fn facts(&self) -> Result<Facts, WeaveError> {
        let header = self.bytes(0, FIRST as usize)?;
        let told = (u32_at(&header, 44) as usize).min(WORDS);
        let at = std::mem::offset_of!(Header, words);
        Ok(Facts {
            pid: u32_at(&header, 12),
            exited: u32_at(&header, 16) == EXITED,
            used: u64_at(&header, 24).min(self.len),
            first: u64_at(&header, std::mem::offset_of!(Header, first)),
            refused: u32_at(&header, 52) & 2 != 0,
            words: String::from_utf8_lossy(&header[at..at + told]).into_owned(),
        })
    }

    /// All threads, in the order of their numbers. With `entries`, everything that they wrote down.
    pub fn lives(&self, entries: bool) -> Result<Vec<Life>, WeaveError> {
        let mut lives = Vec::new();
        let mut firsts = vec![self.facts()?.first];
        let mut known = std::collections::BTreeSet::new();
        while let Some(first) = firsts.pop() {
            if !known.insert(first) || known.len() > MOST_THREADS {
                return Err(self.damaged("a thread has two beginnings"));
            }
            let mut life = self.life(first)?;
            for entry in life
                .entries
                .iter()
                .filter(|entry| entry.op == Op::Create as u8 && entry.result == Some(0))
            {
                if entry.payload.len() >= 16 && entry.at < life.count {
                    firsts.push(u64_at(&entry.payload, 8));
                }
            }
            if !entries {
                life.entries = Vec::new();
            }
            lives.push(life);
        }
        lives.sort_by_key(|life| life.id);
        Ok(lives)
    }

    fn life(&self, first: u64) -> Result<Life, WeaveError> {
        let header = size_of::<Chunk>();
        let head = self.bytes(first.saturating_add(header as u64), size_of::<Head>())?;
        let mut life = Life {
            count: u64_at(&head, 0),
            hash: u64_at(&head, 8),
            id: u32_at(&head, 24),
            ended: u32_at(&head, 28) == ENDED,
            entries: Vec::new(),
        };
        let (mut at, mut skip, mut count) = (first, size_of::<Head>(), 0);
        loop {
            let chunk = self.bytes(at, header)?;
            let used = u32_at(&chunk, 4) as usize;
            if used < header + skip || used > LARGE as usize {
                return Err(self.damaged("a chunk has an impossible size"));
            }
            let bytes = self.bytes(
                at.saturating_add((header + skip) as u64),
                used - header - skip,
            )?;
            let mut reader = Reader { bytes: &bytes };
            while !reader.bytes.is_empty() {
                let Some(entry) = reader.entry(&mut count) else {
                    return Err(self.damaged("an entry is cut off"));
                };
                life.entries.push(entry);
            }
            let next = u64_at(&chunk, 8);
            if next == 0 {
                return Ok(life);
            }
            if next <= at {
                return Err(self.damaged("chunks go backwards"));
            }
            (at, skip) = (next, 0);
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn take(&mut self, len: usize) -> Option<&[u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 127).checked_shl(shift).unwrap_or(0);
            shift += 7;
            if byte < 128 {
                return Some(value);
            }
        }
    }

    /// One entry. `count` is that of the event after the last one.
    fn entry(&mut self, count: &mut u64) -> Option<Entry> {
        let fixed = self.take(4)?;
        let (op, flags) = (fixed[0], fixed[3]);
        let at = count.checked_add(self.varint()?)?;
        *count = at.checked_add(1)?;
        let turn = if flags & TURN != 0 {
            Some(self.varint()? as u32)
        } else {
            None
        };
        let result = match flags & RESULT != 0 {
            true => {
                let value = self.varint()?;
                Some((value >> 1) as i64 ^ -((value & 1) as i64))
            }
            false => None,
        };
        if flags & SUM != 0 {
            self.take(4)?;
        }
        let (mut len, mut away, mut payload) = (0, None, Vec::new());
        if flags & PAYLOAD != 0 {
            len = self.varint()?;
            if flags & AWAY != 0 {
                away = Some(self.varint()?);
            } else {
                payload = self.take(usize::try_from(len).ok()?)?.to_vec();
            }
        }
        Some(Entry {
            at,
            op,
            turn,
            result,
            len,
            away,
            payload,
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// What an operation is called.
pub fn name(op: u8) -> &'static str {
    NAMES.get(op as usize).copied().unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log with one thread, two entries and a second chunk.
    fn example() -> Vec<u8> {
        let mut bytes = vec![0; 3 * 4096];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC.to_le_bytes());
        put(8, &VERSION.to_le_bytes());
        put(12, &7u32.to_le_bytes());
        put(16, &EXITED.to_le_bytes());
        put(24, &(3u64 * 4096).to_le_bytes());
        put(56, &FIRST.to_le_bytes());
        let (header, head) = (size_of::<Chunk>(), size_of::<Head>());
        let entries = [
            Op::Lock as u8,
            1,
            2,
            TURN,
            5,
            9,
            Op::Read as u8,
            3,
            4,
            RESULT | PAYLOAD,
            0,
            6,
            3,
            b'a',
            b'b',
            b'c',
        ];
        put(4096, &4096u32.to_le_bytes());
        put(
            4100,
            &((header + head + entries.len()) as u32).to_le_bytes(),
        );
        put(4104, &(2u64 * 4096).to_le_bytes());
        put(4096 + header, &100u64.to_le_bytes());
        put(4096 + header + 24, &1u32.to_le_bytes());
        put(4096 + header + head, &entries);
        let more = [Op::SemWait as u8, 0, 0, TURN, 1, 77];
        put(8192, &4096u32.to_le_bytes());
        put(8196, &((header + more.len()) as u32).to_le_bytes());
        put(8192 + header, &more);
        bytes
    }

    fn read(name: &str, bytes: &[u8]) -> Result<Vec<Life>, WeaveError> {
        let path = std::env::temp_dir().join(format!("clew-weave-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let read = Log::open(&path).and_then(|log| {
            log.facts()?;
            log.lives(true)
        });
        std::fs::remove_file(&path).unwrap();
        read
    }

    #[test]
    fn entries_are_read_across_chunks() {
        let lives = read("whole", &example()).unwrap();
        assert_eq!((lives.len(), lives[0].id, lives[0].count), (1, 1, 100));
        let entries = &lives[0].entries;
        let places: Vec<(u64, &str)> = entries
            .iter()
            .map(|entry| (entry.at, name(entry.op)))
            .collect();
        assert_eq!(places, [(5, "mutex lock"), (6, "read"), (8, "sem_wait")]);
        assert_eq!((entries[0].turn, entries[1].result), (Some(9), Some(3)));
        assert_eq!(entries[1].payload, b"abc");
    }

    #[test]
    fn damage_is_an_error_or_another_log() {
        let whole = example();
        for at in (0..64).chain(4096..4096 + 80).chain(8192..8192 + 40) {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let _ = read("damaged", &bytes);
            }
        }
        for len in (0..8192 + 30).step_by(37) {
            assert!(read("cut", &whole[..len]).is_err());
        }
    }
}

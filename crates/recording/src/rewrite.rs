//! A log written anew. In: a recording, and what is to become of each record, or of one stream. Out: another log.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::codec::Encoder;
use crate::event::{Event, LONGEST_RECORD, Origin, Record, StreamId};
use crate::log::{self, Kind, Packer, StreamEnd};
use crate::reader::{ReadError, Recording, StreamInfo};

/// Bytes of records that go into one chunk.
const CHUNK: usize = 256 << 10;

#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Told a record's stream, its number in that, and the record; what it `puts` stands there instead.
pub type Edit<'a> = &'a mut dyn FnMut(StreamId, u64, &Record, Puts);
pub type Puts<'a> = &'a mut dyn FnMut(&Record);

/// Writes the log of a recording, with changes, to a new file.
pub fn rewrite(recording: &Recording, file: &Path, edit: Edit) -> Result<(), RewriteError> {
    let mut out = Log::create(file)?;
    for info in recording.streams() {
        let mut stream = out.stream(info.id);
        let mut reader = recording.stream(info.id)?;
        let mut number = 0;
        let mut failed = None;
        while let Some(record) = reader.next()? {
            edit(info.id, number, &record, &mut |record| {
                failed = stream.put(record).err().or(failed.take());
            });
            number += 1;
            if let Some(error) = failed {
                return Err(error.into());
            }
        }
        stream.end(info)?;
    }
    out.end()
}

/// Writes the log of a recording to a new file, one stream of it with other records: `fill` puts all of them, in order.
pub fn with_stream(
    recording: &Recording,
    file: &Path,
    other: StreamId,
    fill: &mut dyn FnMut(&mut Stream<'_>) -> Result<(), RewriteError>,
) -> Result<(), RewriteError> {
    let mut out = Log::create(file)?;
    for info in recording.streams() {
        let mut stream = out.stream(info.id);
        if info.id == other {
            fill(&mut stream)?;
        } else {
            let mut reader = recording.stream(info.id)?;
            while let Some(record) = reader.next()? {
                stream.put(&record)?;
            }
        }
        stream.end(info)?;
    }
    out.end()
}

/// A log that is being written.
struct Log {
    file: BufWriter<File>,
    packer: Packer,
    room: Vec<u8>,
}

impl Log {
    fn create(file: &Path) -> io::Result<Log> {
        let mut file = BufWriter::new(File::create_new(file)?);
        file.write_all(&log::file_header())?;
        Ok(Log {
            file,
            packer: Packer::default(),
            room: vec![0; 2 * LONGEST_RECORD],
        })
    }

    fn stream(&mut self, id: StreamId) -> Stream<'_> {
        Stream {
            log: self,
            id,
            encoder: Encoder::default(),
            history: Vec::new(),
            bytes: Vec::new(),
            first: true,
        }
    }

    fn end(mut self) -> Result<(), RewriteError> {
        let end = self.packer.pack(Kind::End, 0, &[], &[]);
        self.file.write_all(end)?;
        self.file.flush()?;
        Ok(())
    }
}

/// A stream of a log that is being written.
pub struct Stream<'a> {
    log: &'a mut Log,
    id: StreamId,
    encoder: Encoder,
    history: Vec<u8>,
    bytes: Vec<u8>,
    first: bool,
}

impl Stream<'_> {
    /// The next record. The first one has a chunk of its own, as the writer does it.
    pub fn put(&mut self, record: &Record) -> io::Result<()> {
        let room = &mut self.log.room;
        let len = match record {
            Record::Event(event) => self.encoder.event(event, room),
            Record::Effect(effect) => self.encoder.effect(effect, room),
        };
        self.bytes.extend_from_slice(&room[..len]);
        let first = std::mem::take(&mut self.first);
        match record {
            // A reader that doesn't know of states is told by the first chunk that it can't do without.
            Record::Event(Event::Started(start))
                if first && matches!(start.origin, Origin::Midst { .. }) =>
            {
                self.write(Kind::State)
            }
            _ if first || self.bytes.len() > CHUNK => self.write(Kind::Records),
            _ => Ok(()),
        }
    }

    fn write(&mut self, kind: Kind) -> io::Result<()> {
        let chunk = self
            .log
            .packer
            .pack(kind, self.id, &self.bytes, &self.history);
        self.log.file.write_all(chunk)?;
        log::remember(&mut self.history, &self.bytes);
        self.bytes.clear();
        Ok(())
    }

    fn end(mut self, info: &StreamInfo) -> io::Result<()> {
        if !self.bytes.is_empty() {
            self.write(Kind::Records)?;
        }
        let end = Kind::StreamEnd(info.end.unwrap_or(StreamEnd::Ended));
        let chunk = self.log.packer.pack(end, self.id, &[], &[]);
        self.log.file.write_all(chunk)
    }
}

//! A log that is written by one who has all of it: records in, a file out.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::codec::Encoder;
use crate::event::{Effect, LONGEST_RECORD, Record, StreamId};
use crate::log::{self, Kind, Packer, StreamEnd};
use crate::maps::{Change, Source};

/// Bytes of records that go into one chunk.
const CHUNK: usize = 256 << 10;

/// A log that is written from its first record to its last.
pub(crate) struct LogFile {
    out: BufWriter<File>,
    packer: Packer,
}

impl LogFile {
    pub(crate) fn create(file: &Path) -> io::Result<LogFile> {
        // It holds what the program had in memory.
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(file)?;
        LogFile::begin(file)
    }

    /// In an empty file.
    pub(crate) fn begin(file: File) -> io::Result<LogFile> {
        let mut out = BufWriter::new(file);
        out.write_all(&log::file_header())?;
        let packer = Packer::default();
        Ok(LogFile { out, packer })
    }

    pub(crate) fn stream(&mut self, stream: StreamId) -> StreamFile<'_> {
        StreamFile {
            log: self,
            stream,
            kind: Kind::Records,
            encoder: Encoder::default(),
            history: Vec::new(),
            bytes: Vec::new(),
            room: vec![0; 2 * LONGEST_RECORD],
            begun: false,
            files: BTreeSet::new(),
        }
    }

    pub(crate) fn chunk(&mut self, kind: Kind, stream: StreamId, bytes: &[u8]) -> io::Result<()> {
        let chunk = self.packer.pack(kind, stream, bytes, &[]);
        self.out.write_all(chunk)
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        self.finished()?.sync_all()
    }

    /// The same, but what the kernel hasn't written back yet a power cut may take.
    pub(crate) fn finish_quickly(self) -> io::Result<()> {
        self.finished().map(drop)
    }

    fn finished(mut self) -> io::Result<File> {
        self.chunk(Kind::End, 0, &[])?;
        self.out.into_inner().map_err(|error| error.into_error())
    }
}

/// A stream of it.
pub(crate) struct StreamFile<'a> {
    log: &'a mut LogFile,
    stream: StreamId,
    /// What the next chunk is.
    pub(crate) kind: Kind,
    encoder: Encoder,
    history: Vec<u8>,
    bytes: Vec<u8>,
    room: Vec<u8>,
    begun: bool,
    pub(crate) files: BTreeSet<String>,
}

impl StreamFile<'_> {
    pub(crate) fn put(&mut self, record: &Record) -> io::Result<()> {
        let len = match record {
            Record::Event(event) => self.encoder.event(event, &mut self.room),
            Record::Effect(effect) => self.encoder.effect(effect, &mut self.room),
        };
        self.bytes.extend_from_slice(&self.room[..len]);
        if let Record::Effect(Effect::Map(bytes)) = record
            && let Ok(Change::Map { source, .. }) = Change::decode(bytes)
            && let Source::Copy { name, .. }
            | Source::Object {
                copy: Some(name), ..
            } = source
        {
            self.files.insert(name);
        }
        // The first record has a chunk of its own, as the writer does it.
        if !self.begun || self.bytes.len() > CHUNK {
            self.begun = true;
            self.flush()?;
        }
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let packer = &mut self.log.packer;
        let chunk = packer.pack(self.kind, self.stream, &self.bytes, &self.history);
        self.log.out.write_all(chunk)?;
        log::remember(&mut self.history, &self.bytes);
        self.bytes.clear();
        Ok(())
    }

    pub(crate) fn end(mut self, end: Option<StreamEnd>) -> io::Result<()> {
        self.flush()?;
        if let Some(end) = end {
            self.log.chunk(Kind::StreamEnd(end), self.stream, &[])?;
        }
        Ok(())
    }
}

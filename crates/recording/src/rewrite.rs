//! A log written anew. In: a recording, and what is to become of each record. Out: another log.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::codec::Encoder;
use crate::event::{LONGEST_RECORD, Origin, Record, StreamId};
use crate::log::{self, Kind, Packer, StreamEnd};
use crate::reader::{ReadError, Recording};

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
    let mut out = BufWriter::new(File::create_new(file)?);
    let mut packer = Packer::default();
    out.write_all(&log::file_header())?;
    for info in recording.streams() {
        let mut encoder = Encoder::default();
        let mut history = Vec::new();
        let mut bytes = Vec::new();
        let mut room = vec![0; 2 * LONGEST_RECORD];
        let mut reader = recording.stream(info.id)?;
        let mut number = 0;
        // By its first chunk a reader that doesn't know of states is told that it can't do without.
        let first = match info.start.origin {
            Origin::Midst { .. } => Kind::State,
            _ => Kind::Records,
        };
        while let Some(record) = reader.next()? {
            edit(info.id, number, &record, &mut |record| {
                let len = match record {
                    Record::Event(event) => encoder.event(event, &mut room),
                    Record::Effect(effect) => encoder.effect(effect, &mut room),
                };
                bytes.extend_from_slice(&room[..len]);
            });
            number += 1;
            // The first record has a chunk of its own, as the writer does it.
            if number == 1 || bytes.len() > CHUNK {
                let kind = if number == 1 { first } else { Kind::Records };
                out.write_all(packer.pack(kind, info.id, &bytes, &history))?;
                log::remember(&mut history, &bytes);
                bytes.clear();
            }
        }
        out.write_all(packer.pack(Kind::Records, info.id, &bytes, &history))?;
        let end = Kind::StreamEnd(info.end.unwrap_or(StreamEnd::Ended));
        out.write_all(packer.pack(end, info.id, &[], &[]))?;
    }
    out.write_all(packer.pack(Kind::End, 0, &[], &[]))?;
    out.flush()?;
    Ok(())
}

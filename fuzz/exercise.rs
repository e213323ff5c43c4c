//! What is done with bytes from a stranger, for fuzz targets and for the test that runs known damage. Nothing
//! here may panic or take more memory than the bytes justify.

use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;
use std::path::Path;

use clew_recording::codec::Decoder;
use clew_recording::event::{LONGEST_RECORD, Record};
use clew_recording::log::{Chunk, Coding, Kind, LONGEST_CHUNK, file_header};
use clew_recording::reader::{ReadError, Recording};

/// Bytes as the records of a stream.
pub fn records(mut bytes: &[u8]) {
    let mut decoder = Decoder::default();
    while let Ok(Some((record, used))) = decoder.next(bytes) {
        assert!(used > 0 && used <= LONGEST_RECORD + 16);
        std::hint::black_box(format!("{record:?}").len());
        bytes = &bytes[used..];
    }
}

/// Bytes as a log.
pub fn log(bytes: &[u8]) {
    // SAFETY: a name; the descriptor is the file's alone.
    let mut file = unsafe { File::from_raw_fd(libc::memfd_create(c"log".as_ptr(), 0)) };
    file.write_all(bytes).unwrap();
    let Ok(recording) = Recording::from_log(file, Path::new("/nowhere")) else {
        return;
    };
    assert!(recording.size() <= bytes.len() as u64);
    for info in recording.streams() {
        let mut reader = recording.stream(info.id).unwrap();
        let mut events = 0;
        loop {
            let looked = reader.peek().map(|r| r.is_some());
            match (looked, reader.next()) {
                (Ok(true), Ok(Some(record))) => events += matches!(record, Record::Event(_)) as u64,
                (Ok(false), Ok(None)) => break,
                (Err(ReadError::Damaged { .. }), Err(ReadError::Damaged { .. })) => break,
                other => panic!("looked at one thing and took another: {other:?}"),
            }
        }
        assert_eq!(reader.position(), events);
    }
}

/// Bytes as the contents of chunks whose headers are right: what damage that isn't recognised as such would do.
pub fn chunks(mut bytes: &[u8]) {
    let mut log = file_header().to_vec();
    let mut number = 0;
    while let [kind, coding, stream, raw, len, rest @ ..] = bytes {
        let stored = &rest[..rest.len().min(*len as usize * 4)];
        bytes = &rest[stored.len()..];
        let coding = [Coding::Plain, Coding::Zstd, Coding::ZstdAfter][*coding as usize % 3];
        let kind = match kind {
            255 => Kind::End,
            128.. => Kind::State,
            _ => Kind::Records,
        };
        let raw = match coding {
            Coding::Plain => stored.len(),
            _ => (1usize << (raw % 21)).min(LONGEST_CHUNK),
        };
        let chunk = Chunk {
            kind,
            coding,
            stream: if kind == Kind::End {
                0
            } else {
                *stream as u32 % 4 + 1
            },
            number,
            raw: raw as u32,
            stored: stored.len() as u32,
            sum: crc32fast::hash(stored),
        };
        log.extend_from_slice(&chunk.encode());
        log.extend_from_slice(stored);
        number += 1;
    }
    self::log(&log);
}

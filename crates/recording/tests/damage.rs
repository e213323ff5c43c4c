//! Logs that were cut, damaged or made up: what is read is a prefix of what was written, and nothing panics.

mod common;
#[path = "../../../fuzz/exercise.rs"]
mod exercise;

use std::os::unix::fs::FileExt;

use clew_recording::event::LONGEST_RECORD;
use clew_recording::log::{self, HISTORY, Kind, Packer, StreamEnd, file_header};
use clew_recording::reader::{OpenError, ReadError, Recording};
use common::*;
use proptest::prelude::*;

/// A finished log of two streams, in small chunks; how many records each has.
fn small_log(chunks: usize) -> (Vec<u8>, [u64; 2]) {
    let mut bytes = file_header().to_vec();
    let mut packer = Packer::default();
    let mut sources = [Source::new(1), Source::new(2)];
    let mut histories = [Vec::new(), Vec::new()];
    let mut room = vec![0; LONGEST_RECORD];
    for n in 0..chunks {
        let which = n % 3 / 2;
        let mut raw = Vec::new();
        for _ in 0..3 {
            let len = sources[which].next(&mut room);
            raw.extend_from_slice(&room[..len]);
        }
        let stream = which as u32 + 1;
        bytes.extend_from_slice(packer.pack(Kind::Records, stream, &raw, &histories[which]));
        log::remember(&mut histories[which], &raw);
    }
    for (kind, stream) in [
        (Kind::StreamEnd(StreamEnd::Ended), 1),
        (Kind::StreamEnd(StreamEnd::Gone), 2),
        (Kind::End, 0),
    ] {
        bytes.extend_from_slice(packer.pack(kind, stream, &[], &[]));
    }
    (bytes, sources.map(|source| source.records))
}

/// What can be read.
#[derive(Debug, PartialEq)]
struct Found {
    complete: bool,
    records: [u64; 2],
    ends: [Option<StreamEnd>; 2],
    damaged: bool,
}

/// Checks that what is there of a log is a prefix, and tells how much it is.
fn read(folder: &Folder) -> Option<Found> {
    let recording = match Recording::open(folder.path()) {
        Ok(recording) => recording,
        Err(OpenError::Io { error, .. }) => panic!("{error}"),
        Err(_) => return None,
    };
    let mut found = Found {
        complete: recording.is_complete(),
        records: [0; 2],
        ends: [None; 2],
        damaged: false,
    };
    for info in recording.streams() {
        let which = info.id as usize - 1;
        found.ends[which] = info.end;
        let source = Source::new(info.id);
        let mut reader = recording.stream(info.id).unwrap();
        loop {
            match reader.next() {
                Ok(Some(record)) => source.is(found.records[which], record),
                Ok(None) => break,
                Err(ReadError::Damaged { .. }) => {
                    found.damaged = true;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
            found.records[which] += 1;
        }
    }
    Some(found)
}

fn write(folder: &Folder, bytes: &[u8]) -> std::fs::File {
    let path = folder.path().join(log::NAME);
    std::fs::write(&path, bytes).unwrap();
    std::fs::File::options().write(true).open(path).unwrap()
}

#[test]
fn a_whole_log_is_whole() {
    let folder = Folder::new();
    let (bytes, records) = small_log(30);
    write(&folder, &bytes);
    let found = Found {
        complete: true,
        records,
        ends: [Some(StreamEnd::Ended), Some(StreamEnd::Gone)],
        damaged: false,
    };
    assert_eq!(read(&folder), Some(found));
}

/// A log with a chunk of this kind after so many others.
fn log_with(kind: Kind, after: usize) -> (Vec<u8>, usize, [u64; 2]) {
    let mut bytes = file_header().to_vec();
    let mut packer = Packer::default();
    let mut sources = [Source::new(1), Source::new(2)];
    let mut room = vec![0; LONGEST_RECORD];
    let mut at = 0;
    for n in 0..6 {
        if n == after {
            let state: Vec<u8> = (0..5_000u32).map(|n| (n * n) as u8).collect();
            at = bytes.len();
            bytes.extend_from_slice(packer.pack(kind, 1, &state, &[]));
        }
        let which = n % 2;
        let len = sources[which].next(&mut room);
        bytes.extend_from_slice(packer.pack(Kind::Records, which as u32 + 1, &room[..len], &[]));
    }
    for (kind, stream) in [
        (Kind::StreamEnd(StreamEnd::Ended), 1),
        (Kind::StreamEnd(StreamEnd::Ended), 2),
        (Kind::End, 0),
    ] {
        bytes.extend_from_slice(packer.pack(kind, stream, &[], &[]));
    }
    (bytes, at, sources.map(|source| source.records))
}

/// Later versions add kinds of chunks. Some may be passed by; without others nothing is right, and that is said.
#[test]
fn kinds_of_later_versions() {
    let folder = Folder::new();
    for extra in [log::FIRST_EXTRA, 200, 255] {
        let (bytes, at, records) = log_with(Kind::Extra(extra), 3);
        let file = write(&folder, &bytes);
        let found = read(&folder).unwrap();
        assert!(found.complete && !found.damaged);
        assert_eq!(found.records, records);
        // Cut in the midst of it, it ends before it.
        file.set_len(at as u64 + 40).unwrap();
        let cut = read(&folder).unwrap();
        assert!(!cut.complete && !cut.damaged);
        assert_eq!(cut.records, [2, 1]);
    }
    for needed in [9, 100, log::FIRST_EXTRA - 1] {
        let (bytes, at, _) = log_with(Kind::Needed(needed), 2);
        let file = write(&folder, &bytes);
        let error = match Recording::open(folder.path()) {
            Err(error @ OpenError::Needs { .. }) => error.to_string(),
            other => panic!("{:?}", other.err()),
        };
        assert!(error.contains(&format!("kind {needed}")), "{error}");
        assert!(error.contains("replay it with the clew that made it"));
        // Cut off before it is whole, nobody knows that it would be needed.
        file.set_len(at as u64 + 40).unwrap();
        assert_eq!(read(&folder).unwrap().records, [1, 1]);
    }
    // A damaged kind is damage, as the header's checksum says.
    let (mut bytes, at, _) = log_with(Kind::Extra(200), 3);
    bytes[at + 4] = 7;
    write(&folder, &bytes);
    assert!(!read(&folder).unwrap().complete);
}

#[test]
fn a_log_cut_at_any_byte_is_a_prefix() {
    let folder = Folder::new();
    let (bytes, all) = small_log(12);
    let file = write(&folder, &bytes);
    let mut last = all;
    for len in (0..bytes.len()).rev() {
        file.set_len(len as u64).unwrap();
        let Some(found) = read(&folder) else {
            last = [0; 2];
            continue;
        };
        assert!(!found.complete && !found.damaged, "cut at {len}");
        assert!(found.records[0] <= last[0] && found.records[1] <= last[1]);
        last = found.records;
    }
    assert_eq!(last, [0; 2]);
}

#[test]
fn every_flipped_bit_is_noticed() {
    let folder = Folder::new();
    let (bytes, all) = small_log(9);
    let file = write(&folder, &bytes);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            file.write_all_at(&[bytes[at] ^ 1 << bit], at as u64)
                .unwrap();
            if let Some(found) = read(&folder) {
                assert!(!found.complete || found.damaged, "bit {bit} of byte {at}");
                assert!(found.records[0] <= all[0] && found.records[1] <= all[1]);
            }
        }
        file.write_all_at(&bytes[at..at + 1], at as u64).unwrap();
    }
}

#[test]
fn zeros_for_what_was_written_last_are_cut_off() {
    let folder = Folder::new();
    let (mut bytes, _) = small_log(20);
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0);
    write(&folder, &bytes);
    let found = read(&folder).unwrap();
    assert!(!found.complete && !found.damaged);
    assert!(found.records[0] > 0 && found.records[1] > 0);
}

#[test]
fn errors_say_what_to_do() {
    let folder = Folder::new();
    let error = |bytes: Option<&[u8]>| {
        if let Some(bytes) = bytes {
            write(&folder, bytes);
        }
        Recording::open(folder.path()).err().unwrap().to_string()
    };
    assert!(error(None).contains("not a recording"));
    assert!(error(Some(b"")).contains("nothing was recorded"));
    assert!(error(Some(&[b'x'; 100])).contains("not a log"));
    let mut newer = file_header();
    newer[8] = 9;
    assert!(error(Some(&newer)).contains("newer clew (format 9"));
    assert!(error(Some(&file_header())).contains("nothing was recorded"));
    let missing = Recording::open(std::path::Path::new("/nowhere"))
        .err()
        .unwrap();
    assert!(missing.to_string().contains("no such recording"));
}

#[test]
fn names_of_files_do_not_lead_out_of_the_folder() {
    let folder = Folder::new();
    write(&folder, &small_log(5).0);
    std::fs::create_dir(folder.path().join("files")).unwrap();
    std::fs::write(folder.path().join("files/abc"), "").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("files/link")).unwrap();
    let recording = Recording::open(folder.path()).unwrap();
    assert!(recording.file("abc").is_ok());
    for name in [
        "",
        ".",
        "..",
        "../log",
        "/etc/passwd",
        "link",
        "a\0b",
        "none",
    ] {
        assert!(recording.file(name).is_err(), "{name}");
    }
}

#[test]
fn a_copy_of_a_reader_goes_its_own_way() {
    let folder = Folder::new();
    let (bytes, records) = small_log(30);
    write(&folder, &bytes);
    let recording = Recording::open(folder.path()).unwrap();
    let source = Source::new(1);
    let mut reader = recording.stream(1).unwrap();
    for n in 0..records[0] {
        // Once after a look ahead, once without.
        if n % 2 == 0 {
            reader.peek().unwrap();
        }
        let mut copy = reader.clone();
        for n in n..records[0] {
            source.is(n, copy.next().unwrap().unwrap());
        }
        assert!(copy.next().unwrap().is_none());
        source.is(n, reader.next().unwrap().unwrap());
    }
}

#[test]
fn history_is_the_last_bytes() {
    let mut history = Vec::new();
    let mut all = Vec::new();
    let mut random = Random(7);
    for n in 0..200 {
        let new: Vec<u8> = (0..random.next() % 3000 * (1 + n % 17))
            .map(|n| n as u8)
            .collect();
        all.extend_from_slice(&new);
        log::remember(&mut history, &new);
        assert_eq!(history, all[all.len().saturating_sub(HISTORY)..]);
    }
}

/// The same damage every time, without a fuzzer; `CLEW_DAMAGE=N` does N times as much, of another kind.
#[test]
fn known_damage_does_no_harm() {
    let (whole, _) = small_log(12);
    let more = std::env::var("CLEW_DAMAGE").ok();
    let more: Option<u64> = more.and_then(|more| more.parse().ok());
    let mut random = Random(0x5eed ^ more.unwrap_or(0) << 20);
    for _ in 0..3000 * more.unwrap_or(1) {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.next() % 4 {
            let at = random.next() as usize % bytes.len();
            let len = random.next() as usize % 64;
            let end = bytes.len().min(at + len);
            match random.next() % 5 {
                0 => bytes[at] ^= 1 << (random.next() % 8),
                1 => bytes[at..end].fill(random.next() as u8),
                2 => bytes.truncate(at.max(1)),
                3 => drop(bytes.drain(at..end)),
                _ => bytes.extend_from_within(at..end),
            }
            if bytes.is_empty() {
                bytes.push(0);
            }
        }
        exercise::log(&bytes);
        exercise::chunks(&bytes[log::FILE_HEADER.min(bytes.len())..]);
        exercise::records(&bytes[random.next() as usize % bytes.len()..]);
    }
}

proptest! {
    #[test]
    fn any_bytes_as_records(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        exercise::records(&bytes);
    }

    #[test]
    fn any_bytes_as_chunks(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        exercise::chunks(&bytes);
    }

    #[test]
    fn any_bytes_as_log(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut log = file_header().to_vec();
        log.extend_from_slice(&bytes);
        exercise::log(&log);
    }
}

//! The files of a recording in parts, as the writer sees them: chunks in, files out; which processes are to tell their
//! state, and which files nobody needs any more.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::{Limit, PartId};
use crate::event::StreamId;
use crate::log::{self, FILE_HEADER, Kind, Packer};

pub(crate) struct Parts {
    folder: PathBuf,
    limit: Limit,
    /// Bytes of all parts that there ever were.
    written: u64,
    packer: Packer,
    streams: BTreeMap<StreamId, Stream>,
}

/// A moment, on both scales.
#[derive(Clone, Copy)]
struct Moment {
    written: u64,
    time: Instant,
}

struct Stream {
    parts: Vec<Part>,
    /// The stream that it was forked from, and how much that had committed by then.
    parent: Option<(StreamId, u64)>,
    ended: Option<Moment>,
    /// Of the program that was recorded: how it ended is what people ask for, however long ago that is.
    first: bool,
}

struct Part {
    number: u32,
    begun: Moment,
    /// The position in the stream at which it begins.
    head: u64,
    len: u64,
    chunks: u32,
    /// Bytes of the state that it begins with, once that is there.
    state: Option<u64>,
}

impl Stream {
    /// Whether a part can be replayed without others.
    fn stands_alone(&self, part: &Part) -> bool {
        part.state.is_some() || part.number == 0 && self.parent.is_none()
    }
}

impl Parts {
    /// In a new folder inside of the recording's.
    pub(crate) fn create(recording: &Path, limit: Limit) -> io::Result<Parts> {
        let recording = recording.canonicalize()?;
        let folder = super::folder(&recording);
        if let Some(files) = folder.parent() {
            fs::DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(files)?;
            fs::DirBuilder::new().mode(0o700).create(&folder)?;
            open_to_descendants(&recording, files, &folder)?;
        }
        Ok(Parts {
            folder,
            limit,
            written: 0,
            packer: Packer::default(),
            streams: BTreeMap::new(),
        })
    }

    fn now(&self) -> Moment {
        Moment {
            written: self.written,
            time: Instant::now(),
        }
    }

    /// A stream begins; `parent` is whom it was forked from, and where.
    pub(crate) fn begin(&mut self, stream: StreamId, parent: Option<(StreamId, u64)>) {
        let first = Part::new(0, self.now(), 0);
        self.streams.entry(stream).or_insert_with(|| Stream {
            parts: vec![first],
            parent,
            ended: None,
            first: false,
        });
    }

    /// The stream is one of the process that began the recording.
    pub(crate) fn is_first(&mut self, stream: StreamId) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.first = true;
        }
    }

    /// The next part of a stream begins, at this position.
    pub(crate) fn part(&mut self, stream: StreamId, head: u64) {
        let now = self.now();
        if let Some(stream) = self.streams.get_mut(&stream) {
            let number = stream.parts.last().map_or(0, |part| part.number + 1);
            stream.parts.push(Part::new(number, now, head));
        }
    }

    /// Appends a chunk to the stream's last part, or leaves it as it was.
    pub(crate) fn append(
        &mut self,
        kind: Kind,
        stream: StreamId,
        raw: &[u8],
        history: &[u8],
    ) -> io::Result<()> {
        self.begin(stream, None);
        let now = self.now();
        let Some(known) = self.streams.get_mut(&stream) else {
            return Ok(());
        };
        if matches!(kind, Kind::StreamEnd(_) | Kind::Unrecorded) {
            known.ended = Some(now);
        }
        let Some(part) = known.parts.last_mut() else {
            return Ok(());
        };
        let number = part.number;
        let path = self.folder.join(PartId { stream, number }.log());
        // Not kept open: there may be thousands of streams.
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        if part.len == 0 {
            file.write_all_at(&log::file_header(), 0)?;
            part.len = FILE_HEADER as u64;
        }
        self.packer.go_on_at(part.chunks);
        let chunk = self.packer.pack(kind, stream, raw, history);
        if let Err(error) = file.write_all_at(chunk, part.len) {
            let _ = file.set_len(part.len);
            return Err(error);
        }
        part.chunks += 1;
        part.len += chunk.len() as u64;
        self.written += chunk.len() as u64;
        Ok(())
    }

    /// Whether so much has come since then that it needn't be kept.
    fn is_old(&self, moment: Moment) -> bool {
        match self.limit {
            Limit::Bytes(bytes) => self.written - moment.written >= bytes,
            Limit::Time(time) => moment.time.elapsed() >= time,
        }
    }

    /// Whether the process of a stream is to tell its state now.
    pub(crate) fn wants_part(&self, stream: StreamId) -> bool {
        let Some(stream) = self.streams.get(&stream) else {
            return false;
        };
        let Some(part) = stream.parts.last().filter(|part| part.len > 0) else {
            return false;
        };
        // One copy at a time, unless one has died.
        if !stream.stands_alone(part) && part.number != 0 && !self.is_old(part.begun) {
            return false;
        }
        match self.limit {
            // A state isn't written for less of the log than it takes itself.
            Limit::Bytes(bytes) => {
                let state = part.state.unwrap_or(0);
                self.written - part.begun.written >= (bytes / 2).max(state / 2)
            }
            Limit::Time(time) => part.begun.time.elapsed() >= time / 2,
        }
    }

    /// Removes what isn't needed any more.
    pub(crate) fn trim(&mut self) {
        self.look_for_states();
        let mut needed: BTreeMap<StreamId, u32> = BTreeMap::new();
        // The last program of that process.
        let first = self.streams.iter().rev().find(|(_, stream)| stream.first);
        let first = first.map(|(&id, _)| id);
        // Children have larger numbers than their parents.
        for (&id, stream) in self.streams.iter().rev() {
            let gone = stream.ended.is_some_and(|ended| self.is_old(ended)) && first != Some(id);
            let alone = |part: &&Part| stream.stands_alone(part);
            let old = |part: &&Part| self.is_old(part.begun);
            let begin = stream.parts.first().map_or(0, |part| part.number);
            let own = stream.parts.iter().rev().filter(alone).find(old);
            let own = (!gone).then_some(own.map_or(begin, |part| part.number));
            let others = needed.get(&id).copied();
            let Some(number) = own.into_iter().chain(others).min() else {
                continue;
            };
            needed.insert(id, number);
            if number == 0
                && let Some((parent, head)) = stream.parent
                && let Some(of) = self.streams.get(&parent)
            {
                // Where it was forked, and what that needs to be replayed.
                let before = of.parts.iter().rev().skip_while(|part| part.head > head);
                let from = before.clone().find(|part| of.stands_alone(part));
                let from = from.or(of.parts.first()).map_or(0, |part| part.number);
                let needed = needed.entry(parent).or_insert(from);
                *needed = from.min(*needed);
            }
        }
        let folder = &self.folder;
        self.streams.retain(|&stream, known| {
            let needed = needed.get(&stream).copied();
            // The oldest first, so that what is left is in one piece.
            known.parts.retain(|part| {
                let keep = needed.is_some_and(|needed| part.number >= needed);
                if !keep {
                    let id = PartId {
                        stream,
                        number: part.number,
                    };
                    let _ = fs::remove_file(folder.join(id.log()));
                    let _ = fs::remove_file(folder.join(id.state()));
                }
                keep
            });
            needed.is_some()
        });
    }

    fn look_for_states(&mut self) {
        for (&stream, known) in &mut self.streams {
            for part in &mut known.parts {
                if part.number > 0 && part.state.is_none() {
                    let number = part.number;
                    let path = self.folder.join(PartId { stream, number }.state());
                    part.state = fs::metadata(path).ok().map(|meta| meta.len());
                }
            }
        }
    }
}

/// A recorded program may give up root's privileges and still writes its states, by a descriptor that it has. Nobody else
/// gets so far: the recording's own folder is root's alone.
fn open_to_descendants(recording: &Path, files: &Path, folder: &Path) -> io::Result<()> {
    // SAFETY: asks for an id.
    let root = unsafe { libc::geteuid() } == 0;
    if root && recording.metadata()?.permissions().mode() & 0o077 == 0 {
        fs::set_permissions(files, fs::Permissions::from_mode(0o711))?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o1733))?;
    }
    Ok(())
}

impl Part {
    fn new(number: u32, begun: Moment, head: u64) -> Part {
        Part {
            number,
            begun,
            head,
            len: 0,
            chunks: 0,
            state: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::StreamEnd;
    use crate::testing::Scratch;

    /// What is in the folder, in order.
    fn there(parts: &Parts) -> Vec<String> {
        let names = fs::read_dir(&parts.folder).unwrap();
        let mut names: Vec<String> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Bytes that don't get smaller, other ones each time.
    fn noise(parts: &Parts, len: usize) -> Vec<u8> {
        let mut state = parts.written ^ 0x9e37_79b9_7f4a_7c15;
        let mut next = || {
            state = state.wrapping_mul(0xd129_0d3b_3b7b_9c5d).rotate_left(29) ^ 0x1234_5678_9abc;
            state as u8
        };
        (0..len).map(|_| next()).collect()
    }

    fn write(parts: &mut Parts, stream: StreamId, len: usize) {
        let bytes = noise(parts, len);
        parts.append(Kind::Records, stream, &bytes, &[]).unwrap();
    }

    fn write_state(parts: &Parts, stream: StreamId, number: u32) {
        let name = PartId { stream, number }.state();
        fs::write(parts.folder.join(name), b"state").unwrap();
    }

    #[test]
    fn what_is_too_old_goes_once_a_later_part_has_its_state() {
        let scratch = Scratch::new("parts");
        let mut parts = Parts::create(&scratch.0, Limit::Bytes(10_000)).unwrap();
        parts.begin(1, None);
        write(&mut parts, 1, 4_000);
        assert!(!parts.wants_part(1));
        write(&mut parts, 1, 2_000);
        assert!(parts.wants_part(1));
        parts.part(1, 6_000);
        write(&mut parts, 1, 6_000);
        // The state isn't there yet: one copy at a time, and nothing goes.
        assert!(!parts.wants_part(1));
        write(&mut parts, 1, 6_000);
        parts.trim();
        assert_eq!(there(&parts), ["1-0.log", "1-1.log"]);
        write_state(&parts, 1, 1);
        parts.trim();
        assert_eq!(there(&parts), ["1-1.log", "1-1.state"]);
        assert!(parts.wants_part(1));
        // What is kept is never less than the amount.
        parts.part(1, 18_000);
        write_state(&parts, 1, 2);
        write(&mut parts, 1, 9_000);
        parts.trim();
        assert_eq!(there(&parts).len(), 4);
        write(&mut parts, 1, 2_000);
        parts.trim();
        assert_eq!(there(&parts), ["1-2.log", "1-2.state"]);
    }

    #[test]
    fn what_a_fork_needs_stays_until_it_stands_alone() {
        let scratch = Scratch::new("forks");
        let mut parts = Parts::create(&scratch.0, Limit::Bytes(1_000)).unwrap();
        parts.begin(1, None);
        write(&mut parts, 1, 600);
        parts.part(1, 600);
        write_state(&parts, 1, 1);
        write(&mut parts, 1, 600);
        parts.begin(2, Some((1, 900)));
        write(&mut parts, 2, 100);
        parts.part(1, 1_200);
        write_state(&parts, 1, 2);
        write(&mut parts, 1, 5_000);
        parts.trim();
        // Its parent's second part, where it was forked, and what follows.
        let all = there(&parts);
        assert_eq!(
            all,
            ["1-1.log", "1-1.state", "1-2.log", "1-2.state", "2-0.log"]
        );
        parts.part(2, 100);
        write_state(&parts, 2, 1);
        write(&mut parts, 2, 1_200);
        parts.trim();
        let all = there(&parts);
        assert_eq!(all, ["1-2.log", "1-2.state", "2-1.log", "2-1.state"]);
        // One that has ended goes as a whole.
        let end = Kind::StreamEnd(StreamEnd::Ended);
        parts.append(end, 2, &[], &[]).unwrap();
        write(&mut parts, 1, 1_200);
        parts.trim();
        assert_eq!(there(&parts), ["1-2.log", "1-2.state"]);
        // But not the program that was recorded.
        parts.begin(3, None);
        parts.is_first(1);
        parts.append(end, 1, &[], &[]).unwrap();
        write(&mut parts, 3, 2_000);
        parts.trim();
        assert_eq!(there(&parts), ["1-2.log", "1-2.state", "3-0.log"]);
    }
}

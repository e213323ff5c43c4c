//! From the parts that are there to a log like any other.
//!
//! Each stream begins at its first part that can be replayed without the ones before it: one with a state, or the
//! beginning of its program, or a fork of a stream that is there. What was written of it since follows. The parts may be
//! in the midst of being written, and older ones may go meanwhile: what is open stays readable.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::PartId;
use crate::cut::{CutError, Found, renumbered};
use crate::event::{Event, Origin, Record, Start, StreamId};
use crate::log::{Kind, StreamEnd};
use crate::logfile::{LogFile, StreamFile};
use crate::reader::{OpenError, ReadError, Recording};

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    pub streams: Vec<StreamId>,
    /// Names of the recording's files that it needs.
    pub files: BTreeSet<String>,
    /// How the first stream begins, if that isn't how its program did.
    pub midst: Option<Midst>,
    /// Nothing of the run is missing at its beginning.
    pub whole: bool,
    /// Processes that were still running.
    pub running: usize,
    /// When the earliest of its streams begins, in nanoseconds since the recording did.
    pub time: u64,
}

/// Where a process was when its part begins.
#[derive(Clone, Debug)]
pub struct Midst {
    pub start: Start,
    /// Events that it had before.
    pub events: u64,
    /// So many events restore its state.
    pub prologue: u64,
}

/// How often one begins anew because a file has gone.
const TRIES: usize = 100;

/// Writes a log of all that there is in the folder of parts.
pub fn gather(parts: &Path, file: &Path) -> Result<Gathered, CutError> {
    let opened = open(parts)?;
    let mut chosen = Chosen::of(&opened)?;
    let orders = std::mem::take(&mut chosen.found).numbered();
    let mut log = LogFile::create(file)?;
    let mut made = Gathered {
        time: u64::MAX,
        ..Gathered::default()
    };
    for stream in &chosen.streams {
        let mut out = log.stream(stream.id);
        let mut writes = Writes {
            out: &mut out,
            orders: &orders,
        };
        let prologue = stream.write(&chosen.begun, &mut writes)?;
        made.files.append(&mut out.files);
        if stream.end.is_none() {
            made.running += 1;
        }
        let first = made.streams.is_empty();
        made.streams.push(stream.id);
        made.time = made.time.min(stream.start.time);
        if let (true, Origin::Midst { events, .. }) = (first, stream.start.origin) {
            made.midst = Some(Midst {
                start: stream.start.clone(),
                events,
                prologue,
            });
        }
        out.end(Some(stream.end.unwrap_or(StreamEnd::Cut)))?;
    }
    let said: BTreeSet<StreamId> = chosen.unrecorded.iter().map(|(id, _)| *id).collect();
    let there = |id: &StreamId| chosen.begun.contains_key(id) || said.contains(id);
    let midst = |stream: &Whole| matches!(stream.start.origin, Origin::Midst { .. });
    let mut missing = chosen.forked.iter().filter(|(id, _)| !there(id)).peekable();
    // Streams are numbered from 1, and those between were somebody's.
    let last = made.streams.last().copied().unwrap_or(0);
    made.whole = missing.peek().is_none()
        && !chosen.streams.iter().any(midst)
        && (1..=last).all(|id| there(&id));
    for (stream, pid) in missing {
        let text = format!("process {pid} isn't kept, or did nothing");
        log.chunk(Kind::Unrecorded, *stream, text.as_bytes())?;
    }
    for (stream, text) in &chosen.unrecorded {
        log.chunk(Kind::Unrecorded, *stream, text.as_bytes())?;
    }
    log.finish()?;
    Ok(made)
}

/// The files of a stream.
#[derive(Default)]
struct Files {
    logs: BTreeMap<u32, File>,
    states: BTreeMap<u32, File>,
}

type Opened = BTreeMap<StreamId, Files>;

/// Opens all files at once.
fn open(parts: &Path) -> io::Result<Opened> {
    for _ in 0..TRIES {
        match try_to_open(parts) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && parts.is_dir() => {}
            result => return result,
        }
    }
    Err(io::Error::other(
        "the parts go faster than they can be read",
    ))
}

fn try_to_open(parts: &Path) -> io::Result<Opened> {
    let mut names = Vec::new();
    for entry in fs::read_dir(parts)? {
        if let Some(id) = entry?.file_name().to_str().and_then(PartId::of) {
            names.push(id);
        }
    }
    // The oldest first: they are the next to go. A stream whose file has gone may have got a state since.
    names.sort_by_key(|(id, state)| (id.number, !state));
    let mut opened = Opened::new();
    for (id, state) in names {
        let name = if state { id.state() } else { id.log() };
        let file = File::open(parts.join(name))?;
        let files = opened.entry(id.stream).or_default();
        let list = match state {
            true => &mut files.states,
            false => &mut files.logs,
        };
        list.insert(id.number, file);
    }
    Ok(opened)
}

/// A stream that can be replayed, with what is needed of it.
struct Whole {
    id: StreamId,
    start: Start,
    state: Option<Recording>,
    parts: Vec<Recording>,
    /// How it ended, if it has.
    end: Option<StreamEnd>,
    /// So many events of its parts are whole: all, if it has ended.
    events: u64,
}

/// What there is to be written.
#[derive(Default)]
struct Chosen {
    streams: Vec<Whole>,
    /// Streams and their pids.
    begun: BTreeMap<StreamId, i32>,
    found: Found,
    /// Streams that were forked, and their pids.
    forked: BTreeMap<StreamId, i32>,
    unrecorded: Vec<(StreamId, String)>,
}

impl Chosen {
    fn of(opened: &Opened) -> Result<Chosen, CutError> {
        let mut chosen = Chosen::default();
        for (&id, files) in opened {
            chosen.stream(id, files)?;
        }
        Ok(chosen)
    }

    fn stream(&mut self, id: StreamId, files: &Files) -> Result<(), CutError> {
        let mut parts: Vec<(u32, Recording)> = Vec::new();
        for (&number, file) in files.logs.iter().rev() {
            // In one piece, up to the last.
            if parts.last().is_some_and(|(next, _)| number + 1 != *next) {
                break;
            }
            match self.part(id, file)? {
                Some(part) => parts.push((number, part)),
                // Nothing but what is said of it, or it has just begun.
                None => parts.clear(),
            }
        }
        parts.reverse();
        while let Some((number, part)) = parts.first() {
            let state = match files.states.get(number) {
                Some(file) => read(file)?.filter(Recording::is_complete),
                None => None,
            };
            let start = match (&state, part.info(id)) {
                (Some(state), _) => state.info(id).map(|info| info.start.clone()),
                (None, Some(info)) => match info.start.origin {
                    Origin::Exec { .. } => Some(info.start.clone()),
                    Origin::Fork { .. } if self.found.forked.contains(&id) => {
                        Some(info.start.clone())
                    }
                    _ => None,
                },
                (None, None) => None,
            };
            let Some(start) = start else {
                parts.remove(0);
                continue;
            };
            let parts = parts.into_iter().map(|(_, part)| part).collect();
            let whole = Whole::new(id, start, state, parts, &mut self.found)?;
            whole.each(&mut |record| {
                if let Record::Event(Event::Forked { stream, pid, .. }) = record {
                    self.forked.insert(*stream, *pid);
                }
                Ok(())
            })?;
            self.begun.insert(id, whole.start.pid);
            self.streams.push(whole);
            return Ok(());
        }
        Ok(())
    }

    /// Reads a part; none if nothing of the stream is in it.
    fn part(&mut self, id: StreamId, file: &File) -> Result<Option<Recording>, CutError> {
        let part = match read(file)? {
            Some(part) => part,
            None => {
                let said = crate::reader::unrecorded(file)?;
                let said = said.into_iter().map(|one| (one.stream, one.text));
                self.unrecorded.extend(said);
                return Ok(None);
            }
        };
        Ok(part.info(id).is_some().then_some(part))
    }
}

/// A part or a state as a recording; none if nothing is in it.
fn read(file: &File) -> Result<Option<Recording>, CutError> {
    match Recording::from_log(file.try_clone()?, Path::new("")) {
        Ok(recording) => Ok(Some(recording)),
        Err(OpenError::Empty(_)) => Ok(None),
        Err(OpenError::Io { error, .. }) => Err(error.into()),
        Err(error) => Err(io::Error::other(error.to_string()).into()),
    }
}

impl Whole {
    fn new(
        id: StreamId,
        start: Start,
        state: Option<Recording>,
        parts: Vec<Recording>,
        found: &mut Found,
    ) -> Result<Whole, ReadError> {
        let end = parts.last().and_then(|part| part.info(id)?.end);
        let mut whole = Whole {
            id,
            start,
            state,
            parts,
            end,
            events: u64::MAX,
        };
        if end.is_none() {
            whole.events = whole.whole_events()?;
        }
        let begins = whole.state.as_ref();
        if let Some(state) = begins {
            let mut reader = state.stream(id)?;
            while let Some(record) = reader.next()? {
                found.look(&record);
            }
        }
        whole
            .each(&mut |record| {
                found.look(record);
                Ok(())
            })
            .map_err(|error| match error {
                CutError::Read(error) => error,
                error => ReadError::Io(io::Error::other(error.to_string())),
            })?;
        Ok(whole)
    }

    /// How many events are there with all of their effects: those up to the last but one that does something. What
    /// lies between it and the last is for that one.
    fn whole_events(&self) -> Result<u64, ReadError> {
        let (mut count, mut whole, mut last) = (0, 0, 0);
        for (n, part) in self.parts.iter().enumerate() {
            let mut reader = part.stream(self.id)?;
            let mut first = true;
            while let Some(record) = reader.next()? {
                let Record::Event(event) = record else {
                    continue;
                };
                let again = std::mem::take(&mut first) && self.is_said_again(n);
                if again {
                    continue;
                }
                count += 1;
                if !event.is_beside() {
                    whole = std::mem::replace(&mut last, count);
                }
            }
        }
        Ok(whole)
    }

    /// Whether the first event of a part only says whose it is.
    fn is_said_again(&self, part: usize) -> bool {
        part > 0 || self.state.is_some()
    }

    /// Gives out all records of the parts that are whole.
    fn each(&self, put: &mut dyn FnMut(&Record) -> io::Result<()>) -> Result<(), CutError> {
        let mut count = 0;
        for (n, part) in self.parts.iter().enumerate() {
            let mut reader = part.stream(self.id)?;
            let mut first = true;
            while let Some(record) = reader.next()? {
                if matches!(record, Record::Event(_)) {
                    if std::mem::take(&mut first) && self.is_said_again(n) {
                        continue;
                    }
                    count += 1;
                    if count > self.events {
                        return Ok(());
                    }
                }
                put(&record)?;
            }
        }
        Ok(())
    }

    /// Writes the stream; how many events restore its state.
    fn write(&self, begun: &BTreeMap<StreamId, i32>, out: &mut Writes) -> Result<u64, CutError> {
        let mut prologue = 0;
        if let Some(state) = &self.state {
            out.out.kind = Kind::State;
            let mut reader = state.stream(self.id)?;
            while let Some(record) = reader.next()? {
                out.put(&record)?;
            }
            prologue = reader.position();
            out.out.flush()?;
            out.out.kind = Kind::Records;
        }
        self.each(&mut |record| {
            let Record::Event(Event::Started(start)) = record else {
                return out.put(record);
            };
            let mut start = start.clone();
            // What it was before isn't there any more, but perhaps what it was before that.
            if let Origin::Exec { before } = &mut start.origin
                && *before != 0
                && !begun.contains_key(before)
            {
                let earlier = begun.range(..self.id).rev();
                let mut same = earlier.filter(|(_, pid)| **pid == start.pid);
                *before = same.next().map_or(0, |(&id, _)| id);
            }
            out.put(&Record::Event(Event::Started(start)))
        })?;
        Ok(prologue)
    }
}

/// Where records go.
struct Writes<'a, 'b> {
    out: &'a mut StreamFile<'b>,
    orders: &'a BTreeMap<u64, u64>,
}

impl Writes<'_, '_> {
    fn put(&mut self, record: &Record) -> io::Result<()> {
        self.out.put(&renumbered(self.orders, record))
    }
}

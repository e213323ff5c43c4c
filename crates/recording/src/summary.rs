//! What a recording is about, in short. In: all its events. Out: processes, threads, counts, its end.
//!
//! A complete recording never changes, so its summary is computed once and kept in `summary.json`,
//! together with the size of the log it was made from; with another size it isn't believed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::deadlock::{self, Waiter};
use crate::event::{
    Effect, End as CallEnd, Event, Origin, ProcessId, Record, Start, StreamId, ThreadId,
};
use crate::landings::Maker;
use crate::meta::{read_bounded, replace_file};
use crate::reader::{OpenError, Recording};
use crate::{log, pack};

pub const FILE: &str = "summary.json";
/// Changes with the fields and how they are computed.
const VERSION: u32 = 4;
const MOST_BYTES: u64 = 256 << 20;
/// More notes of different text, or threads of a process, are only counted.
const MOST_NOTES: usize = 200;
const MOST_THREADS: usize = 2000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    version: u32,
    /// Size of the log it was made from.
    log_bytes: u64,
    /// How the recorded program, the first process, ended.
    pub end: End,
    /// From the start to the last moment known.
    pub duration_ns: u64,
    pub events: u64,
    pub ticks: u64,
    /// Contents of memory that the log has, in bytes.
    pub memory_bytes: u64,
    pub kinds: BTreeMap<String, u64>,
    /// By number of the call.
    pub calls: BTreeMap<u32, Calls>,
    pub streams: Vec<Stream>,
    pub notes: Vec<Note>,
    /// Processes that ran without being recorded: who, and why.
    pub unrecorded: Vec<String>,
    /// Processes that were killed before their first event.
    pub unborn: u64,
    /// What the recording takes on disk, in how many files besides log and metadata.
    pub disk_bytes: u64,
    pub files: u64,
    /// Why the log's end couldn't be read.
    pub damage: Option<String>,
    /// Who waits for whom, in the first process in which no thread can ever go on.
    pub deadlock: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    pub count: u64,
    pub failed: u64,
}

/// How a process, or a stream of it, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum End {
    Exited {
        status: i32,
    },
    Killed {
        signal: i32,
    },
    /// It began another program; that is another stream.
    Exec,
    /// Its last events are missing: clew was killed, or the disk was full.
    CutOff,
    /// The recording is of a region that ends here; it went on.
    Region,
    /// It is still being recorded.
    Recording,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    pub id: StreamId,
    /// Whose: pids aren't unique.
    pub process: ProcessId,
    pub pid: i32,
    pub parent_pid: i32,
    /// The stream of the same process before its exec, or of the process that forked it; 0: none.
    pub from: StreamId,
    pub forked: bool,
    pub exe: String,
    pub argv: Vec<String>,
    pub started_ns: u64,
    pub ended_ns: u64,
    pub events: u64,
    pub ticks: u64,
    pub end: End,
    pub thread_count: u64,
    pub threads: Vec<Thread>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    pub thread: ThreadId,
    pub tid: i32,
    pub events: u64,
    pub ended: bool,
}

/// What wasn't recorded faithfully, as often as it was noted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub text: String,
    pub count: u64,
    /// Where it was noted first.
    pub stream: StreamId,
    pub event: u64,
}

impl Summary {
    /// The kept one, if it was made from a log of this size.
    pub fn kept(folder: &Path, log_bytes: u64) -> Option<Summary> {
        let bytes = read_bounded(&folder.join(FILE), MOST_BYTES).ok()?;
        let kept: Summary = serde_json::from_slice(&bytes).ok()?;
        (kept.version == VERSION && kept.log_bytes == log_bytes).then_some(kept)
    }

    /// Keeps it. Where nothing can be written it will be computed again, that is all.
    pub fn keep(&self, folder: &Path) {
        if let Ok(text) = serde_json::to_vec(self) {
            let _ = replace_file(&folder.join(FILE), &text);
        }
    }

    /// The streams of one process, in order. The recorded program itself is process 1.
    pub fn process(&self, process: ProcessId) -> impl Iterator<Item = &Stream> {
        self.streams
            .iter()
            .filter(move |stream| stream.process == process)
    }

    /// How many processes are in the recording.
    pub fn processes(&self) -> u32 {
        let all = self.streams.iter().map(|stream| stream.process);
        all.max().unwrap_or(0)
    }

    /// A name for a process that no other has: its pid, and its number where the pid isn't enough.
    pub fn name(&self, process: ProcessId) -> String {
        let Some(first) = self.process(process).next() else {
            return format!("#{process}");
        };
        let mut others = self.streams.iter().filter(|s| s.process != process);
        match others.any(|other| other.pid == first.pid) {
            true => format!("{}#{process}", first.pid),
            false => first.pid.to_string(),
        }
    }
}

/// Whether a recording is being made right now, by the writer's lock on its log.
pub fn is_being_written(folder: &Path) -> bool {
    let Ok(file) = File::open(folder.join(log::NAME)) else {
        return false;
    };
    let locked = file.try_lock_shared();
    matches!(locked, Err(std::fs::TryLockError::WouldBlock))
}

/// What an open recording is about, by reading all of it; nothing is left behind.
pub fn of_open(recording: &Recording) -> Summary {
    let log = recording.folder().join(log::NAME);
    let bytes = log.metadata().map_or(0, |meta| meta.len());
    let writing = recording.is_being_written();
    read(recording, bytes, writing, &mut Maker::default())
}

/// What a recording is about: the kept summary, or one made by reading all of it. Of one that is
/// still being made, what was written so far.
pub fn of(folder: &Path) -> Result<Summary, OpenError> {
    let log_bytes = || {
        folder
            .join(log::NAME)
            .metadata()
            .map_or(0, |meta| meta.len())
    };
    let bytes = log_bytes();
    if let Some(kept) = Summary::kept(folder, bytes) {
        return Ok(kept);
    }
    let recording = Recording::open(folder)?;
    let writing = recording.is_being_written();
    let mut landings = Maker::default();
    let mut summary = read(&recording, bytes, writing, &mut landings);
    let sizes = pack::size(folder);
    (summary.disk_bytes, summary.files) = (sizes.bytes, sizes.files);
    if !writing && log_bytes() == bytes {
        summary.keep(folder);
        landings.keep(folder, bytes);
    }
    Ok(summary)
}

/// Reads all of a recording that isn't being made any more, and keeps what one then knows of it.
pub(crate) fn make(recording: &Recording, log_bytes: u64) -> Option<()> {
    if recording.is_being_written() {
        return None;
    }
    let mut landings = Maker::default();
    read(recording, log_bytes, false, &mut landings);
    landings.keep(recording.folder(), log_bytes);
    Some(())
}

fn read(recording: &Recording, log_bytes: u64, writing: bool, landings: &mut Maker) -> Summary {
    let mut builder = Builder::new(log_bytes);
    for one in recording.unrecorded() {
        builder.unrecorded(one.stream, &one.text);
    }
    for info in recording.streams() {
        builder.stream(info.id, &info.start);
        landings.stream(info.id, &info.start);
        let mut reader = match recording.stream(info.id) {
            Ok(reader) => reader,
            Err(error) => {
                builder.damage(error.to_string());
                continue;
            }
        };
        loop {
            landings.stands(&reader);
            match reader.next() {
                Ok(Some(record)) => {
                    builder.record(&record);
                    landings.record(&record);
                }
                Ok(None) => {
                    builder.over(info.end);
                    break;
                }
                Err(error) => {
                    builder.damage(error.to_string());
                    break;
                }
            }
        }
    }
    builder.finish(writing)
}

/// What kind of event it is, in one word.
pub fn kind(event: &Event) -> &'static str {
    match event {
        Event::Started(_) => "started",
        Event::Call(_) => "call",
        Event::Resumed { .. } => "resumed",
        Event::Instruction { .. } => "instruction",
        Event::Shared { .. } => "shared",
        Event::Signal { .. } => "signal",
        Event::Switched { .. } => "switched",
        Event::NewThread { .. } => "new_thread",
        Event::EndedThread { .. } => "ended_thread",
        Event::Forked { .. } => "forked",
        Event::Check { .. } => "check",
        Event::Exec { .. } => "exec",
        Event::Exited { .. } => "exited",
        Event::Killed { .. } => "killed",
        Event::Leap { .. } => "leap",
        Event::Values(_) => "values",
        Event::Time(_) => "time",
        Event::Note(_) => "note",
        Event::Deadlock(_) => "deadlock",
        Event::State { .. } => "state",
    }
}

/// Text for people from a guest's bytes.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Makes a summary of events.
pub struct Builder {
    summary: Summary,
    /// Streams whose processes aren't recorded, and those that were forked.
    unrecorded: Vec<StreamId>,
    forked: Vec<StreamId>,
    /// Where the current stream's threads stand: the running one, and indices by number.
    current: ThreadId,
    threads: BTreeMap<ThreadId, usize>,
}

impl Builder {
    pub fn new(log_bytes: u64) -> Builder {
        Builder {
            summary: Summary {
                version: VERSION,
                log_bytes,
                end: End::CutOff,
                duration_ns: 0,
                events: 0,
                ticks: 0,
                memory_bytes: 0,
                kinds: BTreeMap::new(),
                calls: BTreeMap::new(),
                streams: Vec::new(),
                notes: Vec::new(),
                unrecorded: Vec::new(),
                unborn: 0,
                disk_bytes: 0,
                files: 0,
                damage: None,
                deadlock: None,
            },
            unrecorded: Vec::new(),
            forked: Vec::new(),
            current: 0,
            threads: BTreeMap::new(),
        }
    }

    /// The process that would have had this stream isn't in the recording.
    pub fn unrecorded(&mut self, stream: StreamId, text: &str) {
        self.unrecorded.push(stream);
        if self.summary.unrecorded.len() < MOST_NOTES {
            self.summary.unrecorded.push(text.into());
        }
    }

    /// The records of this stream follow.
    pub fn stream(&mut self, id: StreamId, start: &Start) {
        let (from, forked) = match start.origin {
            Origin::Exec { before } => (before, false),
            Origin::Fork { parent } => (parent, true),
            Origin::Midst { .. } => (0, false),
        };
        let streams = &self.summary.streams;
        let before = match forked {
            false => streams.binary_search_by_key(&from, |stream| stream.id).ok(),
            true => None,
        };
        let process = match before {
            Some(index) => streams[index].process,
            None => self.summary.processes() + 1,
        };
        self.summary.streams.push(Stream {
            id,
            process,
            pid: start.pid,
            parent_pid: start.parent_pid,
            from,
            forked,
            exe: text(&start.exe),
            argv: start.argv.iter().map(|arg| text(arg)).collect(),
            started_ns: start.time,
            ended_ns: start.time,
            events: 0,
            ticks: 0,
            end: End::CutOff,
            thread_count: 0,
            threads: Vec::new(),
        });
        self.current = 0;
        self.threads.clear();
        self.thread(0, start.tid);
    }

    fn thread(&mut self, thread: ThreadId, tid: i32) {
        let Some(stream) = self.summary.streams.last_mut() else {
            return;
        };
        stream.thread_count += 1;
        if stream.threads.len() < MOST_THREADS {
            self.threads.insert(thread, stream.threads.len());
            stream.threads.push(Thread {
                thread,
                tid,
                events: 0,
                ended: false,
            });
        }
    }

    pub fn record(&mut self, record: &Record) {
        match record {
            Record::Event(event) => self.event(event),
            Record::Effect(Effect::Memory { bytes, .. }) => {
                self.summary.memory_bytes += bytes.len() as u64;
            }
            Record::Effect(_) => {}
        }
    }

    fn event(&mut self, event: &Event) {
        let Some(stream) = self.summary.streams.last_mut() else {
            return;
        };
        let ticks = event.place().ticks;
        stream.events += 1;
        stream.ticks = stream.ticks.saturating_add(ticks);
        if let Some(count) = self.summary.kinds.get_mut(kind(event)) {
            *count += 1;
        } else {
            self.summary.kinds.insert(kind(event).into(), 1);
        }
        if let Some(&n) = self.threads.get(&self.current) {
            stream.threads[n].events += 1;
        }
        // Whatever comes behind the last event, it wasn't the last.
        if !matches!(event, Event::Time(_) | Event::Check { .. }) {
            stream.end = End::CutOff;
        }
        match *event {
            Event::Call(call) => {
                let calls = self.summary.calls.entry(call.nr).or_default();
                calls.count += 1;
                calls.failed += matches!(call.end, CallEnd::Returned(-4095..=-1)) as u64;
            }
            Event::Switched { to, .. } => self.current = to,
            Event::NewThread { thread, tid } => self.thread(thread, tid),
            Event::EndedThread { thread } => {
                if let Some(&n) = self.threads.get(&thread) {
                    stream.threads[n].ended = true;
                }
            }
            Event::Forked { stream, .. } => self.forked.push(stream),
            Event::Exec { .. } => stream.end = End::Exec,
            Event::Exited { status, .. } => stream.end = End::Exited { status },
            Event::Killed { signo, .. } => stream.end = End::Killed { signal: signo },
            Event::Time(time) => stream.ended_ns = stream.ended_ns.max(time),
            Event::Note(text) => {
                if let Some(waiters) = deadlock::of_note(text) {
                    self.deadlock(&waiters);
                }
                self.note(text);
            }
            Event::Deadlock(ref waiters) => {
                self.deadlock(waiters);
                self.note(&format!("deadlock: {}", deadlock::text(waiters)));
            }
            _ => {}
        }
    }

    /// No more of the stream comes.
    fn over(&mut self, end: Option<log::StreamEnd>) {
        if let Some(stream) = self.summary.streams.last_mut()
            && stream.end == End::CutOff
            && end == Some(log::StreamEnd::Cut)
        {
            stream.end = End::Region;
        }
    }

    fn deadlock(&mut self, waiters: &[Waiter]) {
        let first = &mut self.summary.deadlock;
        first.get_or_insert_with(|| deadlock::text(waiters));
    }

    fn note(&mut self, text: &str) {
        let Some(stream) = self.summary.streams.last() else {
            return;
        };
        let (stream, event) = (stream.id, stream.events);
        let notes = &mut self.summary.notes;
        if let Some(note) = notes.iter_mut().find(|note| note.text == text) {
            note.count += 1;
        } else if notes.len() < MOST_NOTES {
            notes.push(Note {
                text: text.into(),
                count: 1,
                stream,
                event,
            });
        }
    }

    pub fn damage(&mut self, why: String) {
        self.summary.damage.get_or_insert(why);
    }

    /// The summary; `recording` if more may follow.
    pub fn finish(mut self, recording: bool) -> Summary {
        let there: BTreeSet<StreamId> = (self.summary.streams.iter().map(|stream| stream.id))
            .chain(self.unrecorded)
            .collect();
        if !recording {
            let gone = self.forked.iter().filter(|stream| !there.contains(stream));
            self.summary.unborn = gone.count() as u64;
        }
        let streams = &mut self.summary.streams;
        streams.sort_by_key(|stream| stream.id);
        // An exec that failed is followed by the call's result; one that didn't, by a new stream.
        let began: Vec<StreamId> = streams
            .iter()
            .filter(|stream| !stream.forked)
            .map(|stream| stream.from)
            .collect();
        for stream in streams.iter_mut() {
            if stream.end == End::Exec && !began.contains(&stream.id) {
                stream.end = End::CutOff;
            }
            if stream.end == End::CutOff && recording {
                stream.end = End::Recording;
            }
        }
        let sum = |value: fn(&Stream) -> u64, streams: &[Stream]| {
            streams.iter().map(value).fold(0, u64::saturating_add)
        };
        self.summary.events = sum(|stream| stream.events, streams);
        self.summary.ticks = sum(|stream| stream.ticks, streams);
        let ends = streams.iter().map(|stream| stream.ended_ns);
        self.summary.duration_ns = ends.max().unwrap_or(0);
        // The first process, along its execs. Numbers only grow, so this ends.
        let mut last = streams.first();
        while let Some(next) = last.and_then(|last| {
            let follows = |s: &&Stream| !s.forked && s.from == last.id && s.id > last.id;
            streams.iter().find(follows)
        }) {
            last = Some(next);
        }
        let nothing_yet = if recording {
            End::Recording
        } else {
            End::CutOff
        };
        self.summary.end = last.map_or(nothing_yet, |stream| stream.end);
        self.summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Call, Place};
    use crate::testing::Scratch;

    fn start(pid: i32, origin: Origin) -> Start {
        Start {
            origin,
            pid,
            parent_pid: 1,
            tid: pid,
            exe: b"/bin/x".to_vec(),
            argv: vec![b"x".to_vec()],
            time: 5,
        }
    }

    fn call(nr: u32, result: i64) -> Record<'static> {
        Record::Event(Event::Call(Call {
            ticks: 10,
            nr,
            args: [0; 6],
            end: CallEnd::Returned(result),
            output: None,
        }))
    }

    fn build(recording: bool) -> Summary {
        let mut builder = Builder::new(100);
        let first = start(7, Origin::Exec { before: 0 });
        builder.stream(1, &first);
        builder.record(&Record::Event(Event::Started(first)));
        builder.record(&call(0, 3));
        builder.record(&call(0, -9));
        builder.record(&Record::Event(Event::NewThread { thread: 1, tid: 8 }));
        let place = Place { ticks: 5, steps: 2 };
        builder.record(&Record::Event(Event::Switched { place, to: 1 }));
        builder.record(&Record::Event(Event::EndedThread { thread: 1 }));
        for _ in 0..2 {
            builder.record(&Record::Event(Event::Note("odd")));
        }
        builder.record(&Record::Event(Event::Exec { ticks: 1 }));
        let child = start(9, Origin::Fork { parent: 1 });
        builder.stream(2, &child);
        builder.record(&Record::Event(Event::Started(child)));
        builder.record(&Record::Event(Event::Time(900)));
        let second = start(7, Origin::Exec { before: 1 });
        builder.stream(3, &second);
        builder.record(&Record::Event(Event::Started(second)));
        builder.record(&Record::Event(Event::Exited {
            ticks: 4,
            status: 3,
        }));
        builder.finish(recording)
    }

    #[test]
    fn counts_and_the_end_follow_the_first_process() {
        let summary = build(false);
        assert_eq!(summary.end, End::Exited { status: 3 });
        assert_eq!(summary.ticks, 30);
        assert_eq!(summary.events, 13);
        assert_eq!(summary.duration_ns, 900);
        assert_eq!(
            summary.calls[&0],
            Calls {
                count: 2,
                failed: 1
            }
        );
        assert_eq!(summary.kinds["call"], 2);
        assert_eq!(summary.notes[0].count, 2);
        let [first, child, _] = &summary.streams[..] else {
            panic!("three streams");
        };
        assert_eq!((first.end, child.end), (End::Exec, End::CutOff));
        assert_eq!(first.threads.len(), 2);
        assert!(first.threads[1].ended && !first.threads[0].ended);
        assert_eq!(summary.process(1).count(), 2);
        assert_eq!((summary.processes(), summary.unborn), (2, 0));
        assert_eq!((summary.name(1), summary.name(2)), ("7".into(), "9".into()));
        assert_eq!(build(true).streams[1].end, End::Recording);
    }

    #[test]
    fn processes_are_told_apart_and_counted() {
        let mut builder = Builder::new(1);
        builder.unrecorded(4, "process 5 isn't recorded: why");
        builder.stream(1, &start(1, Origin::Exec { before: 0 }));
        for stream in 2..=4 {
            let forked = Event::Forked {
                ticks: 0,
                stream,
                pid: 5,
            };
            builder.record(&Record::Event(forked));
        }
        // In a namespace of its own the child has the first one's pid.
        builder.stream(2, &start(1, Origin::Fork { parent: 1 }));
        builder.stream(5, &start(1, Origin::Exec { before: 2 }));
        let summary = builder.finish(false);
        assert_eq!((summary.processes(), summary.unborn), (2, 1));
        assert_eq!(summary.name(2), "1#2");
        assert_eq!(summary.process(2).count(), 2);
        assert_eq!(summary.unrecorded.len(), 1);
    }

    #[test]
    fn an_exec_that_nothing_follows_is_no_end() {
        let mut builder = Builder::new(1);
        builder.stream(1, &start(7, Origin::Exec { before: 0 }));
        builder.record(&Record::Event(Event::Exec { ticks: 1 }));
        assert_eq!(builder.finish(false).end, End::CutOff);
        assert_eq!(Builder::new(1).finish(false).end, End::CutOff);
    }

    #[test]
    fn a_kept_summary_belongs_to_one_size_of_log() {
        let scratch = Scratch::new("summary");
        let summary = build(false);
        summary.keep(&scratch.0);
        assert_eq!(Summary::kept(&scratch.0, 100), Some(summary));
        assert_eq!(Summary::kept(&scratch.0, 101), None);
        std::fs::write(scratch.0.join(FILE), "{").unwrap();
        assert_eq!(Summary::kept(&scratch.0, 100), None);
    }
}

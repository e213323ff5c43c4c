//! `clew dump`: the events of a recording, one per line.

mod cursor;
mod format;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ffi::CStr;
use std::io::{BufWriter, Write};

use super::arguments::Dump;
use super::find_exact;
use crate::arguments::Engine;
use crate::{replay, run};
use crate::{text, variables};
use clew_engine::replay::arguments::Argument;
use clew_engine::replay::tree::Request;
use clew_recording::event::{Event, ProcessId, StreamId};
use clew_recording::landings::{self, Landings};
use clew_recording::process::{self, ProcessName};
use clew_recording::reader::{ReadError, Recording};
use cursor::{Cursor, Entry};

/// The command line is wrong.
const WRONG: i32 = 2;

pub fn dump(line: &Dump, envp: &[&CStr]) -> i32 {
    if line.turns {
        return turns(line, envp);
    }
    if let (Some(from), Some(to)) = (line.from, line.to)
        && from > to
    {
        eprintln!("clew: there are no events from {from} to {to}: --from is behind --to");
        return WRONG;
    }
    let opened = find_exact(envp, line.recording.as_deref())
        .and_then(|folder| Recording::open(&folder).map_err(|error| error.to_string()));
    let recording = match opened {
        Ok(recording) => recording,
        Err(error) => return text::failed(&error),
    };
    let streams = match chosen(&recording, line) {
        Ok(streams) => streams,
        Err(message) => return text::failed(&message),
    };
    let inputs = match line.quick {
        true => Inputs::new(),
        false => inputs(&recording, line, envp),
    };
    let mut out = Out {
        inputs,
        to: BufWriter::new(std::io::stdout()),
        line,
        many: streams.len() > 1,
        shown: false,
        last: 0,
        landings: match line.from {
            Some(_) => landings::of(&recording),
            None => Landings::default(),
        },
    };
    let shown = if line.all {
        merged(&recording, &streams, &mut out)
    } else {
        streams
            .iter()
            .try_for_each(|&stream| one(&recording, stream, &mut out))
    };
    // A reader that has gone away has seen enough.
    let _ = out.to.flush();
    match shown {
        Ok(()) | Err(Stop::ReaderGone) => {}
        Err(Stop::Damaged(error)) => return text::failed(&error),
    }
    if let (false, Some(from)) = (out.shown, line.from) {
        let last = text::count(out.last);
        eprintln!("clew: there is no event {from}: the last one is {last}");
    }
    mention_others(&recording, &streams);
    0
}

fn turns(line: &Dump, envp: &[&CStr]) -> i32 {
    let script = find_exact(envp, line.recording.as_deref())
        .and_then(|folder| clew_hunt::turns::of(&folder).map_err(|error| error.to_string()));
    match script {
        Ok(script) => {
            // A reader that has gone away has seen enough.
            let _ = write!(std::io::stdout(), "{script}");
            0
        }
        Err(error) => text::failed(&error),
    }
}

/// The events of a stream with these numbers, a line for each that people want to see.
pub fn lines(
    recording: &Recording,
    stream: StreamId,
    from: u64,
    to: u64,
) -> Result<Vec<(u64, String)>, ReadError> {
    let cursor = Cursor::open(recording, stream, false)?;
    shown_lines(cursor.skip_to(&landings::of(recording), from), from, to)
}

fn shown_lines(mut cursor: Cursor, from: u64, to: u64) -> Result<Vec<(u64, String)>, ReadError> {
    let mut lines = Vec::new();
    while let Some(entry) = cursor.next()? {
        if entry.number > to {
            break;
        }
        // The time is in front of every line.
        if entry.number < from || matches!(entry.event, Event::Time(_)) {
            continue;
        }
        lines.push((entry.number, line(&entry, false)));
    }
    Ok(lines)
}

/// The same without contents of memory.
pub fn bare_lines(
    recording: &Recording,
    stream: StreamId,
    from: u64,
    to: u64,
) -> Result<Vec<(u64, String)>, ReadError> {
    let cursor = Cursor::bare(recording, stream)?;
    shown_lines(cursor.skip_to(&landings::of(recording), from), from, to)
}

/// An event's number, time, thread, and what it was.
fn line(entry: &Entry, full: bool) -> String {
    let seconds = entry.time_ns as f64 / 1e9;
    let text = text::plain(&format::text(entry, full));
    format!(
        "{:<8} {seconds:>11.6} {:>7}  {text}",
        entry.number, entry.tid
    )
}

enum Stop {
    ReaderGone,
    Damaged(ReadError),
}

impl From<std::io::Error> for Stop {
    fn from(_: std::io::Error) -> Stop {
        Stop::ReaderGone
    }
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Stop {
        Stop::Damaged(error)
    }
}

/// Which streams to show.
fn chosen(recording: &Recording, line: &Dump) -> Result<Vec<StreamId>, String> {
    let streams = recording.streams();
    if line.all {
        return Ok(streams.iter().map(|info| info.id).collect());
    }
    let process = process::find(streams, line.pid)
        .map_err(|why| format!("{why}; clew info shows its processes"))?;
    Ok(recording.of_process(process).map(|info| info.id).collect())
}

/// Says which processes weren't shown.
fn mention_others(recording: &Recording, shown: &[StreamId]) {
    const NAMED: usize = 10;
    let seen: BTreeSet<ProcessId> = shown
        .iter()
        .filter_map(|&id| Some(recording.info(id)?.process))
        .collect();
    let others = (1..=recording.processes()).filter(|process| !seen.contains(process));
    let others: Vec<ProcessName> = others
        .filter_map(|process| process::name(recording.streams(), process))
        .collect();
    if others.is_empty() {
        return;
    }
    let named = others.iter().take(NAMED).map(ProcessName::to_string);
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match others.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    eprintln!("clew: not shown: processes {named}{more}; --pid P shows one, --all shows all");
}

/// What calls passed to the kernel, by stream and event.
type Inputs = BTreeMap<(StreamId, u64), Vec<Argument>>;

/// Asks a replay. One that fails tells nothing, or less: then addresses are shown.
fn inputs(recording: &Recording, line: &Dump, envp: &[&CStr]) -> Inputs {
    let variable = |name: &str| variables::get(envp, name);
    let Ok(options) = run::options(&Engine::default(), &variable) else {
        return Inputs::new();
    };
    let process = process::find(recording.streams(), line.pid).ok();
    let request = Request {
        process: process.filter(|_| !line.all),
        arguments: Some((line.from.unwrap_or(0), line.to.unwrap_or(u64::MAX))),
        ..Request::all(options)
    };
    let what = "replaying, for what calls passed to the kernel (--quick does without)";
    let Ok(outcome) = replay::shown(recording, &request, what) else {
        return Inputs::new();
    };
    if let Some(diverged) = outcome.divergences.iter().min_by_key(|found| found.stream) {
        let diverged = text::plain(&diverged.to_string());
        eprintln!(
            "clew: {diverged}; the events are shown all the same, but what calls passed to the kernel only up to there"
        );
    }
    outcome.arguments
}

struct Out<'a> {
    inputs: Inputs,
    to: BufWriter<std::io::Stdout>,
    line: &'a Dump,
    /// Events of several streams: say which.
    many: bool,
    /// Something was.
    shown: bool,
    /// The highest number of an event that was met.
    last: u64,
    /// Where reading can begin.
    landings: Landings,
}

impl Out<'_> {
    /// Whether events from here on can still be wanted.
    fn is_over(&self, number: u64) -> bool {
        self.line.to.is_some_and(|to| number > to)
    }

    fn show(&mut self, mut entry: Entry) -> Result<(), Stop> {
        self.last = self.last.max(entry.number);
        if self.line.from.is_some_and(|from| entry.number < from) {
            return Ok(());
        }
        self.shown = true;
        let key = (entry.stream, entry.number);
        entry.inputs = self.inputs.remove(&key).unwrap_or_default();
        let entry = &entry;
        if self.line.json {
            let json = format::json(entry, self.line.full);
            writeln!(self.to, "{json}")?;
            return Ok(());
        }
        // The time is in front of every line.
        if matches!(entry.event, Event::Time(_)) {
            return Ok(());
        }
        let stream = if self.many {
            format!("{:>4}:", entry.stream)
        } else {
            String::new()
        };
        writeln!(self.to, "{stream}{}", line(entry, self.line.full))?;
        Ok(())
    }
}

fn one(recording: &Recording, stream: StreamId, out: &mut Out) -> Result<(), Stop> {
    let cursor = Cursor::open(recording, stream, out.line.full)?;
    let mut cursor = cursor.skip_to(&out.landings, out.line.from.unwrap_or(0));
    while let Some(entry) = cursor.next()? {
        if out.is_over(entry.number) {
            break;
        }
        out.show(entry)?;
    }
    Ok(())
}

/// Events of several streams, by time as far as it was noted, then by stream. A stream is opened when its
/// time comes, so that those of long ago take no memory.
fn merged(recording: &Recording, streams: &[StreamId], out: &mut Out) -> Result<(), Stop> {
    let starts = recording.streams().iter();
    let mut next: BinaryHeap<Reverse<(u64, StreamId)>> = starts
        .filter(|info| streams.contains(&info.id))
        .map(|info| Reverse((info.start.time, info.id)))
        .collect();
    let mut open: BTreeMap<StreamId, (Cursor, Option<Entry>)> = BTreeMap::new();
    while let Some(Reverse((_, stream))) = next.pop() {
        let (mut cursor, mut ahead) = match open.remove(&stream) {
            Some(opened) => opened,
            None => (Cursor::open(recording, stream, out.line.full)?, None),
        };
        // All of it up to where another stream comes first.
        loop {
            let entry = match ahead.take() {
                Some(entry) => entry,
                None => match cursor.next()? {
                    Some(entry) if !out.is_over(entry.number) => entry,
                    _ => break,
                },
            };
            let key = (entry.time_ns, stream);
            if next.peek().is_some_and(|Reverse(other)| *other < key) {
                next.push(Reverse(key));
                open.insert(stream, (cursor, Some(entry)));
                break;
            }
            out.show(entry)?;
        }
    }
    Ok(())
}

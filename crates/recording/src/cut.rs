//! A region of a recording as a recording of its own. In: the recording, where in which stream the region begins and
//! ends, and the state there. Out: its log, and the names of the files that it needs.
//!
//! What comes from one process isn't what others need to be replayed, so a region is of one process, and of those that
//! it starts in the region. Streams keep their numbers. Outputs are numbered anew, since those of others are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use crate::event::{Call, Effect, Event, Origin, Place, Record, Start, StreamId};
use crate::log::{Kind, StreamEnd};
use crate::logfile::LogFile;
use crate::position::Position;
use crate::reader::{ReadError, Recording};
use crate::stack::Stack;
use crate::walk::Walk;

#[derive(Debug, thiserror::Error)]
pub enum CutError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("writing the new recording: {0}")]
    Write(#[from] io::Error),
    #[error("{0}")]
    State(String),
    #[error("{to} doesn't lie behind {from}, where the region begins")]
    Nothing { from: Position, to: Position },
}

/// Where a region lies.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub stream: StreamId,
    /// At a tick: without single instructions.
    pub from: Position,
    /// None: to the end of the process, with its later programs.
    pub to: Option<Position>,
}

/// Tells records, which are given to whom it is told.
pub type Tell<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&Record)) -> Result<(), String>;

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Made {
    pub streams: Vec<StreamId>,
    /// Names of the recording's files that the region needs.
    pub files: BTreeSet<String>,
    /// So many events restore the state: the next one is the one behind `from`.
    pub prologue: u64,
    /// When it begins, in nanoseconds since the recording did.
    pub time: u64,
}

/// Writes the log of a region. `state` tells the prologue at `from`, but for its first event; `end` what stands at `to`.
pub fn cut(
    recording: &Recording,
    region: &Region,
    file: &Path,
    state: Tell,
    end: Tell,
) -> Result<Made, CutError> {
    if let Some(to) = region.to
        && to <= region.from
    {
        let from = region.from;
        return Err(CutError::Nothing { from, to });
    }
    let parts = Parts::find(recording, region)?;
    let mut log = LogFile::create(file)?;
    let mut made = Made {
        streams: parts.streams.clone(),
        time: parts.start.time,
        ..Made::default()
    };
    for &stream in &parts.streams {
        let mut out = log.stream(stream);
        let first = stream == region.stream;
        if first {
            out.kind = Kind::State;
            out.put(&Record::Event(Event::Started(parts.start.clone())))?;
            made.prologue = 1;
            tell(state, |record| {
                let event = matches!(record, Record::Event(_));
                let beside = matches!(record, Record::Event(event) if event.is_beside());
                if beside && out.kind == Kind::State {
                    out.flush()?;
                    out.kind = Kind::Records;
                }
                made.prologue += u64::from(event && !beside);
                out.put(&parts.renumbered(record))
            })?;
            out.flush()?;
            out.kind = Kind::Records;
        }
        let info = recording.info(stream).ok_or(ReadError::NoStream(stream))?;
        let mut stream_end = info.end;
        match first {
            true => copy(recording, region, &mut |record| {
                out.put(&parts.renumbered(record))
            })?,
            false => {
                let mut reader = recording.stream(stream)?;
                while let Some(record) = reader.next()? {
                    out.put(&parts.renumbered(&record))?;
                }
            }
        }
        if first && let Some(to) = region.to {
            let mut place = Place {
                ticks: to.ticks,
                steps: to.steps as u32,
            };
            if to.event == region.from.event {
                place.ticks -= region.from.ticks;
            }
            tell(end, |record| match record {
                Record::Event(Event::Check {
                    registers, memory, ..
                }) => out.put(&Record::Event(Event::Check {
                    place,
                    registers: *registers,
                    memory: *memory,
                })),
                record => out.put(record),
            })?;
            stream_end = Some(StreamEnd::Cut);
        }
        made.files.append(&mut out.files);
        out.end(stream_end)?;
    }
    log.finish()?;
    Ok(made)
}

/// Writes a log with only these streams, and those that they were forked from. The others are named in it as not
/// recorded.
pub fn select(
    recording: &Recording,
    wanted: &BTreeSet<StreamId>,
    file: &Path,
) -> Result<Made, CutError> {
    let mut streams = wanted.clone();
    // Children have larger numbers than their parents.
    for info in recording.streams().iter().rev() {
        if let (Origin::Fork { parent }, true) = (info.start.origin, streams.contains(&info.id)) {
            streams.insert(parent);
        }
    }
    let mut found = Found::default();
    for &stream in &streams {
        let mut reader = recording.stream(stream)?;
        while let Some(record) = reader.next()? {
            found.look(&record);
        }
    }
    let orders = found.numbered();
    let mut log = LogFile::create(file)?;
    let mut made = Made::default();
    for info in recording.streams() {
        if !streams.contains(&info.id) {
            let pid = info.start.pid;
            let text = format!("process {pid} ended well and isn't kept");
            log.chunk(Kind::Unrecorded, info.id, text.as_bytes())?;
            continue;
        }
        made.streams.push(info.id);
        let mut out = log.stream(info.id);
        if matches!(info.start.origin, Origin::Midst { .. }) {
            out.kind = Kind::State;
        }
        let mut reader = recording.stream(info.id)?;
        while let Some(record) = reader.next()? {
            out.put(&renumbered(&orders, &record))?;
            out.kind = Kind::Records;
        }
        made.files.append(&mut out.files);
        out.end(info.end)?;
    }
    for one in recording.unrecorded() {
        log.chunk(Kind::Unrecorded, one.stream, one.text.as_bytes())?;
    }
    log.finish()?;
    Ok(made)
}

/// Lets somebody tell; the first error of `take` is what comes of it.
fn tell(told: Tell, mut take: impl FnMut(&Record) -> io::Result<()>) -> Result<(), CutError> {
    let mut wrong = None;
    let done = told(&mut |record| {
        if wrong.is_none() {
            wrong = take(record).err();
        }
    });
    match wrong {
        Some(error) => Err(error.into()),
        None => done.map_err(CutError::State),
    }
}

/// Gives out the records of the region's own stream that lie in it, the first event counted from where it begins.
fn copy(
    recording: &Recording,
    region: &Region,
    put: &mut dyn FnMut(&Record) -> io::Result<()>,
) -> Result<(), CutError> {
    let mut reader = recording.stream(region.stream)?;
    let last = region.to.map_or(u64::MAX, |to| to.event);
    // Ticks that aren't counted of the next event.
    let mut before = region.from.ticks;
    // Answers for what comes next: they aren't all taken where the region ends first.
    let mut values: Option<Vec<u8>> = None;
    let mut inside = false;
    loop {
        let number = reader.position() + 1;
        let Some(record) = reader.next()? else { break };
        match record {
            Record::Effect(_) if !inside => {}
            Record::Effect(effect) => put(&Record::Effect(effect))?,
            Record::Event(_) if number > last => return Ok(()),
            Record::Event(_) if number <= region.from.event => {}
            Record::Event(Event::Values(bytes)) => {
                inside = true;
                values = Some(bytes.to_vec());
            }
            Record::Event(event) if event.is_beside() => {
                inside = true;
                put(&Record::Event(event))?;
            }
            Record::Event(event) => {
                inside = true;
                if let Some(values) = values.take() {
                    put(&Record::Event(Event::Values(&values)))?;
                }
                let by = match event {
                    // It struck anywhere.
                    Event::Killed { place, .. } => std::mem::take(&mut before).min(place.ticks),
                    _ => std::mem::take(&mut before),
                };
                let event = event.earlier(by).ok_or_else(|| {
                    CutError::State(format!("event {number} comes before {}", region.from))
                })?;
                put(&Record::Event(event))?;
            }
        }
    }
    if region.to.is_none()
        && let Some(values) = values
    {
        put(&Record::Event(Event::Values(&values)))?;
    }
    Ok(())
}

/// What is known of a region before it is written.
struct Parts {
    /// How its first stream begins.
    start: Start,
    /// In order; the region's own is the first.
    streams: Vec<StreamId>,
    /// The numbers of all outputs in it, and those that they get.
    orders: BTreeMap<u64, u64>,
}

/// What is found in the records of a region.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) forked: BTreeSet<StreamId>,
    orders: BTreeMap<u64, u64>,
}

impl Found {
    fn output(&mut self, order: u64) {
        // What goes out in pieces has none of its own.
        if order != 0 {
            self.orders.insert(order, 0);
        }
    }

    fn call(&mut self, call: &Call) {
        if let Some(output) = call.output {
            self.output(output.order);
        }
    }

    pub(crate) fn look(&mut self, record: &Record) {
        match record {
            Record::Event(Event::Call(call)) => self.call(call),
            Record::Event(Event::Forked { stream, .. }) => {
                self.forked.insert(*stream);
            }
            Record::Event(Event::State {
                waits: Some(call), ..
            }) => self.call(call),
            Record::Effect(Effect::Output { order, .. }) => self.output(*order),
            _ => {}
        }
    }
}

impl Found {
    /// The numbers that outputs get when those of others are gone.
    pub(crate) fn numbered(mut self) -> BTreeMap<u64, u64> {
        for (n, new) in self.orders.values_mut().enumerate() {
            *new = n as u64 + 1;
        }
        self.orders
    }
}

impl Parts {
    fn find(recording: &Recording, region: &Region) -> Result<Parts, CutError> {
        let own = region.stream;
        let info = recording.info(own).ok_or(ReadError::NoStream(own))?;
        let mut start = info.start.clone();
        // A cut of a cut says where it was in the first one's origin.
        let (events, ticks) = origin_of(&info.start, recording, region)?;
        let stack = Stack::of(recording, own)?.map_or(0, |stack| stack.top());
        start.origin = Origin::Midst {
            events,
            ticks,
            stack,
        };
        // What was before: whose output is under way, what time it is.
        let mut walk = Walk::new(&info.start);
        let mut reader = recording.stream(own)?;
        while reader.position() < region.from.event {
            let Some(record) = reader.next()? else { break };
            if let Record::Event(event) = record {
                walk.come_to(&event);
                walk.pass(&event);
            }
        }
        start.time = walk.time;
        let mut found = Found::default();
        walk.waiting().for_each(|call| found.call(call));
        copy(recording, region, &mut |record| {
            found.look(record);
            Ok(())
        })?;
        let mut streams = vec![own];
        let mut pids = BTreeSet::from([start.pid]);
        for other in recording.streams().iter().filter(|other| other.id > own) {
            let belongs = match other.start.origin {
                Origin::Fork { .. } => found.forked.contains(&other.id),
                // Where the region ends, the process's next program doesn't begin.
                Origin::Exec { before } if before == own => region.to.is_none(),
                Origin::Exec { before: 0 } => {
                    // What the child of a vfork has started.
                    pids.contains(&other.start.parent_pid) && other.start.time >= start.time
                }
                Origin::Exec { before } => streams.contains(&before),
                Origin::Midst { .. } => false,
            };
            if !belongs {
                continue;
            }
            streams.push(other.id);
            pids.insert(other.start.pid);
            let mut reader = recording.stream(other.id)?;
            while let Some(record) = reader.next()? {
                found.look(&record);
            }
        }
        Ok(Parts {
            start,
            streams,
            orders: found.numbered(),
        })
    }

    fn renumbered<'a>(&self, record: &Record<'a>) -> Record<'a> {
        renumbered(&self.orders, record)
    }
}

/// The same record, with its output's new number.
pub(crate) fn renumbered<'a>(orders: &BTreeMap<u64, u64>, record: &Record<'a>) -> Record<'a> {
    let new = |order: u64| orders.get(&order).copied().unwrap_or(0);
    let renumber = |call: &mut Call| {
        if let Some(output) = &mut call.output {
            output.order = new(output.order);
        }
    };
    let mut record = record.clone();
    match &mut record {
        Record::Event(Event::Call(call)) => renumber(call),
        Record::Event(Event::State {
            waits: Some(call), ..
        }) => renumber(call),
        Record::Effect(Effect::Output { order, .. }) => *order = new(*order),
        _ => {}
    }
    record
}

/// Events that the process had, and ticks since, by the numbers of the recording that was made of it first.
fn origin_of(
    start: &Start,
    recording: &Recording,
    region: &Region,
) -> Result<(u64, u64), CutError> {
    let Origin::Midst { events, ticks, .. } = start.origin else {
        return Ok((region.from.event, region.from.ticks));
    };
    let prologue = prologue(recording, region.stream)?;
    let more = region.from.event.saturating_sub(prologue);
    Ok(match more {
        0 => (events, ticks.saturating_add(region.from.ticks)),
        more => (events.saturating_add(more), region.from.ticks),
    })
}

/// How many events restore the state that a stream begins with; 0 of one that begins otherwise.
pub fn prologue(recording: &Recording, stream: StreamId) -> Result<u64, ReadError> {
    let info = recording.info(stream).ok_or(ReadError::NoStream(stream))?;
    if !matches!(info.start.origin, Origin::Midst { .. }) {
        return Ok(0);
    }
    let mut reader = recording.stream(stream)?;
    while let Some(record) = reader.next()? {
        if matches!(record, Record::Event(Event::Check { .. })) {
            break;
        }
    }
    Ok(reader.position())
}

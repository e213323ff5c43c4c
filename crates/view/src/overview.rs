//! The log as lanes over time. In: the events of all streams. Out: who ran when, who waited for what and whom, and what happened, in as
//! much detail as a screen shows; a position for a place on the screen, and the other way round.
//!
//! Events say little about the time of day. A place on the screen is a time: between two notes of the clock it goes on with
//! the work that was done, ticks and events.

use std::collections::{BTreeMap, BTreeSet};

use clew_calls::names;
use clew_debugger::Position;
use clew_recording::event::{End, Event, ProcessId, Record, StreamId, ThreadId};
use clew_recording::reader::Recording;
use clew_recording::walk::Walk;
use serde::Serialize;
use serde_json::{Value, json};

use crate::jobs::Job;

/// An event takes as much room as so many ticks.
const EVENT: u64 = 16;
/// More spans or marks than this in a lane are told as how dense they are.
const MOST: usize = 400;
/// More parts of a screen aren't told.
const MOST_PARTS: usize = 8_192;
const MOST_LANES: usize = 4_096;

/// What a mark in a lane means; the page has the same numbers (`lanes.js`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Call = 0,
    Failed = 1,
    Output = 2,
    Signal = 3,
    Thread = 4,
    Process = 5,
    Death = 6,
    Note = 7,
    Instruction = 8,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    x: f64,
    event: u64,
    stream: StreamId,
    kind: Kind,
    /// A call's number, a signal's, a thread's or process's.
    detail: i64,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    from: f64,
    to: f64,
    nr: u32,
    by: Option<ThreadId>,
}

/// One thread's.
#[derive(Default)]
struct Lane {
    process: ProcessId,
    thread: ThreadId,
    tid: i32,
    /// In order, and one after the other.
    runs: Vec<(f64, f64)>,
    waits: Vec<Wait>,
    marks: Vec<Mark>,
}

/// Where the events of a stream are on the screen.
struct Course {
    stream: StreamId,
    process: ProcessId,
    /// Work that is done after each event, from the first.
    work: Vec<u64>,
    /// Where the clock was noted: work, nanoseconds.
    clock: Vec<(u64, f64)>,
}

pub struct Overview {
    courses: Vec<Course>,
    lanes: Vec<Lane>,
    from: f64,
    to: f64,
    events: u64,
    calls: BTreeSet<u32>,
}

impl Course {
    fn x_of_work(&self, work: u64) -> f64 {
        let behind = self.clock.partition_point(|(known, _)| *known <= work);
        let before = behind.saturating_sub(1);
        match (self.clock.get(before), self.clock.get(behind)) {
            (Some(&(w0, x0)), Some(&(w1, x1))) if w1 > w0 => {
                let part = work.saturating_sub(w0) as f64 / (w1 - w0) as f64;
                x0 + (x1 - x0) * part.min(1.0)
            }
            (Some(&(_, x)), _) => x,
            _ => 0.0,
        }
    }

    fn work_of_x(&self, x: f64) -> u64 {
        let behind = self.clock.partition_point(|(_, known)| *known <= x);
        let before = behind.saturating_sub(1);
        match (self.clock.get(before), self.clock.get(behind)) {
            (Some(&(w0, x0)), Some(&(w1, x1))) if x1 > x0 => {
                let part = ((x - x0) / (x1 - x0)).clamp(0.0, 1.0);
                w0 + ((w1 - w0) as f64 * part).round() as u64
            }
            (Some(&(w, _)), _) => w,
            _ => 0,
        }
    }

    fn x_of(&self, position: Position) -> f64 {
        let Some(index) = usize::try_from(position.event)
            .ok()
            .and_then(|n| n.checked_sub(1))
        else {
            return self.clock.first().map_or(0.0, |(_, x)| *x);
        };
        let last = self.work.last().copied().unwrap_or(0);
        let done = self.work.get(index).copied().unwrap_or(last);
        let next = self.work.get(index + 1).copied().unwrap_or(last);
        self.x_of_work(done.saturating_add(position.ticks).min(next.max(done)))
    }

    /// The position that is shown there, or nearest before.
    fn position_at(&self, x: f64) -> Position {
        let work = self.work_of_x(x);
        // Nobody stands behind the last event.
        let last = self.work.len().saturating_sub(1);
        let events = self.work.partition_point(|done| *done <= work);
        let events = events.min(last).max(1);
        let done = self.work.get(events - 1).copied().unwrap_or(0);
        let next = self.work.get(events).copied().unwrap_or(done);
        // What an event itself takes is no place to be.
        let most = next.saturating_sub(done).saturating_sub(EVENT);
        Position {
            event: events as u64,
            ticks: work.saturating_sub(done).min(most),
            steps: 0,
        }
    }
}

/// What is read of a stream before times are known.
#[derive(Default)]
struct Raw {
    /// Thread, from, to: in work.
    runs: Vec<(ThreadId, u64, u64)>,
    waits: Vec<(ThreadId, u64, u64, u32, Option<ThreadId>)>,
    marks: Vec<(ThreadId, u64, u64, Kind, i64)>,
    tids: BTreeMap<ThreadId, i32>,
}

impl Overview {
    /// Reads the whole log.
    pub fn read(recording: &Recording, job: &Job) -> Result<Overview, String> {
        let infos = recording.streams();
        let all: u64 = infos.iter().map(|info| info.raw).sum();
        let mut read = 0;
        let mut courses = Vec::new();
        let mut raws = Vec::new();
        let mut calls = BTreeSet::new();
        for info in infos {
            let mut reader = recording
                .stream(info.id)
                .map_err(|error| error.to_string())?;
            let mut walk = Walk::new(&info.start);
            let mut course = Course {
                stream: info.id,
                process: info.process,
                work: Vec::new(),
                clock: vec![(0, info.start.time as f64)],
            };
            let mut raw = Raw::default();
            raw.tids.insert(0, info.start.tid);
            let mut work = 0;
            let mut began = 0;
            let mut waiting: BTreeMap<ThreadId, u64> = BTreeMap::new();
            // A torn end ends it here as everywhere.
            while let Ok(Some(record)) = reader.next_in_place() {
                let Record::Event(event) = record else {
                    continue;
                };
                walk.come_to(event);
                work += event.place().ticks;
                let thread = walk.thread;
                let number = course.work.len() as u64 + 1;
                let before = work;
                work += EVENT;
                let waited = walk.pass(event);
                let mut mark = |kind: Kind, detail: i64| {
                    raw.marks.push((thread, before, number, kind, detail));
                };
                match event {
                    Event::Call(call) => {
                        calls.insert(call.nr);
                        mark(kind_of(call.output.is_some(), call.end), call.nr.into());
                        if call.end == End::Waits {
                            waiting.insert(thread, before);
                        }
                    }
                    Event::Resumed { by, .. } => {
                        let from = waiting.remove(&thread).unwrap_or(before);
                        let nr = waited.map_or(0, |call| call.nr);
                        raw.waits.push((thread, from, before, nr, *by));
                    }
                    Event::Instruction { .. } => mark(Kind::Instruction, 0),
                    Event::Signal { signo, .. } => mark(Kind::Signal, (*signo).into()),
                    Event::NewThread { thread: new, tid } => {
                        raw.tids.insert(*new, *tid);
                        mark(Kind::Thread, (*new).into());
                    }
                    Event::EndedThread { thread } => mark(Kind::Thread, (*thread).into()),
                    Event::Forked { pid, .. } => mark(Kind::Process, (*pid).into()),
                    Event::Exec { .. } => mark(Kind::Process, 0),
                    Event::Exited { status, .. } => mark(Kind::Process, (*status).into()),
                    Event::Killed { signo, .. } => mark(Kind::Death, (*signo).into()),
                    Event::Note(_) | Event::Deadlock(_) => mark(Kind::Note, 0),
                    Event::Switched { .. } => {
                        raw.runs.push((thread, began, before));
                        began = work;
                    }
                    Event::Time(_) => {
                        let last = course.clock.last().map_or(0.0, |(_, x)| *x);
                        course.clock.push((work, (walk.time as f64).max(last)));
                    }
                    _ => {}
                }
                course.work.push(work);
                if number.is_multiple_of(65_536) {
                    job.set_progress((read + reader.raw()) as f64 / all.max(1) as f64);
                    if job.is_cancelled() {
                        return Err("cancelled".into());
                    }
                }
            }
            raw.runs.push((walk.thread, began, work));
            for (thread, from) in waiting {
                raw.waits.push((thread, from, work, 0, None));
            }
            read += info.raw;
            courses.push(course);
            raws.push(raw);
        }
        finish_clocks(&mut courses);
        Ok(lanes(courses, raws, calls))
    }

    /// What is the same at any zoom.
    pub fn told(&self) -> Value {
        let lanes: Vec<Value> = self
            .lanes
            .iter()
            .map(|lane| json!({"process": lane.process, "thread": lane.thread, "tid": lane.tid, "events": lane.marks.len()}))
            .collect();
        let streams: Vec<Value> = self
            .courses
            .iter()
            .map(|course| {
                let (from, to) = (course.clock.first(), course.clock.last());
                json!({
                    "stream": course.stream,
                    "process": course.process,
                    "from": from.map(|(_, x)| *x),
                    "to": to.map(|(_, x)| *x),
                    "events": course.work.len(),
                })
            })
            .collect();
        let names: BTreeMap<u32, String> = self
            .calls
            .iter()
            .map(|nr| (*nr, names::call(*nr)))
            .collect();
        json!({
            "from": self.from,
            "to": self.to,
            "events": self.events,
            "work": self.courses.iter().filter_map(|course| course.work.last()).sum::<u64>(),
            "lanes": lanes,
            "streams": streams,
            "calls": names,
        })
    }

    /// What is between two places on so many lanes, in as many parts as the screen has.
    pub fn part(&self, from: f64, to: f64, parts: usize, lanes: std::ops::Range<usize>) -> Part {
        let parts = parts.clamp(1, MOST_PARTS);
        let to = if to > from { to } else { from + 1e-6 };
        let end = lanes
            .end
            .min(self.lanes.len())
            .min(lanes.start.saturating_add(MOST_LANES));
        let shown = self.lanes.get(lanes.start..end).unwrap_or_default();
        let lanes = shown.iter().enumerate().map(|(n, lane)| LanePart {
            lane: lanes.start + n,
            runs: lane.runs_between(from, to, parts),
            waits: lane.waits_between(from, to, parts),
            marks: lane.marks_between(from, to, parts),
        });
        Part {
            from,
            to,
            parts,
            lanes: lanes.collect(),
        }
    }

    /// Where a position is on the screen.
    pub fn x_of(&self, stream: StreamId, position: Position) -> Option<f64> {
        let course = self.courses.iter().find(|course| course.stream == stream)?;
        Some(course.x_of(position))
    }

    /// The stream of a lane at a place, and the position there.
    pub fn at(&self, lane: usize, x: f64) -> Option<(StreamId, Position)> {
        let process = self.lanes.get(lane)?.process;
        let of_process = self
            .courses
            .iter()
            .filter(|course| course.process == process);
        // The last that has begun.
        let mut found = None;
        for course in of_process {
            let begins = course.clock.first().map_or(0.0, |(_, x)| *x);
            if found.is_none() || begins <= x {
                found = Some(course);
            }
        }
        found.map(|course| (course.stream, course.position_at(x)))
    }
}

fn kind_of(output: bool, end: End) -> Kind {
    match end {
        End::Returned(value) if value < 0 => Kind::Failed,
        _ if output => Kind::Output,
        _ => Kind::Call,
    }
}

/// Behind the last note of the clock it goes on as fast as before.
fn finish_clocks(courses: &mut [Course]) {
    let (mut work, mut time) = (0u64, 0.0);
    for course in courses.iter() {
        if let (Some(first), Some(last)) = (course.clock.first(), course.clock.last()) {
            work += last.0 - first.0;
            time += last.1 - first.1;
        }
    }
    let pace = match work > 0 && time > 0.0 {
        true => time / work as f64,
        false => 1.0,
    };
    for course in courses {
        let all = course.work.last().copied().unwrap_or(0);
        if let Some(&(done, x)) = course.clock.last()
            && done < all
        {
            course.clock.push((all, x + (all - done) as f64 * pace));
        }
    }
}

fn lanes(courses: Vec<Course>, raws: Vec<Raw>, calls: BTreeSet<u32>) -> Overview {
    let mut lanes: BTreeMap<(ProcessId, ThreadId), Lane> = BTreeMap::new();
    let mut events = 0;
    for (course, raw) in courses.iter().zip(raws) {
        let process = course.process;
        events += course.work.len() as u64;
        for (&thread, &tid) in &raw.tids {
            let lane = lanes.entry((process, thread)).or_default();
            (lane.process, lane.thread, lane.tid) = (process, thread, tid);
        }
        for (thread, from, to) in raw.runs {
            let run = (course.x_of_work(from), course.x_of_work(to));
            lanes.entry((process, thread)).or_default().runs.push(run);
        }
        for (thread, from, to, nr, by) in raw.waits {
            let wait = Wait {
                from: course.x_of_work(from),
                to: course.x_of_work(to),
                nr,
                by,
            };
            lanes.entry((process, thread)).or_default().waits.push(wait);
        }
        for (thread, work, event, kind, detail) in raw.marks {
            let mark = Mark {
                x: course.x_of_work(work),
                event,
                stream: course.stream,
                kind,
                detail,
            };
            lanes.entry((process, thread)).or_default().marks.push(mark);
        }
    }
    let firsts = courses.iter().filter_map(|course| course.clock.first());
    let lasts = courses.iter().filter_map(|course| course.clock.last());
    let from = firsts.map(|(_, x)| *x).fold(f64::INFINITY, f64::min);
    let to = lasts.map(|(_, x)| *x).fold(0.0, f64::max);
    let from = if from.is_finite() { from } else { 0.0 };
    Overview {
        from,
        to: if to > from { to } else { from + 1.0 },
        events,
        calls,
        lanes: lanes.into_values().collect(),
        courses,
    }
}

/// Spans one by one, or how much of each part of the screen they cover, in 255ths.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spans<T> {
    Each(Vec<T>),
    Dense(Vec<u8>),
}

/// Marks one by one (place, kind, detail, event, stream), or of each part that has some: its number, how many, which kinds as bits.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Marks {
    Each(Vec<(f64, u8, i64, u64, StreamId)>),
    Dense(Vec<(u32, u32, u16)>),
}

#[derive(Debug, Serialize)]
pub struct LanePart {
    lane: usize,
    runs: Spans<(f64, f64)>,
    waits: Spans<(f64, f64, u32, Option<ThreadId>)>,
    marks: Marks,
}

#[derive(Debug, Serialize)]
pub struct Part {
    from: f64,
    to: f64,
    parts: usize,
    lanes: Vec<LanePart>,
}

impl Lane {
    fn runs_between(&self, from: f64, to: f64, parts: usize) -> Spans<(f64, f64)> {
        let first = self.runs.partition_point(|run| run.1 < from);
        let last = self.runs.partition_point(|run| run.0 <= to).max(first);
        let runs = &self.runs[first..last];
        match runs.len() <= MOST {
            true => Spans::Each(runs.to_vec()),
            false => Spans::Dense(dense(runs.iter().copied(), from, to, parts)),
        }
    }

    fn waits_between(
        &self,
        from: f64,
        to: f64,
        parts: usize,
    ) -> Spans<(f64, f64, u32, Option<ThreadId>)> {
        let first = self.waits.partition_point(|wait| wait.to < from);
        let last = self
            .waits
            .partition_point(|wait| wait.from <= to)
            .max(first);
        let waits = &self.waits[first..last];
        match waits.len() <= MOST {
            true => Spans::Each(
                waits
                    .iter()
                    .map(|wait| (wait.from, wait.to, wait.nr, wait.by))
                    .collect(),
            ),
            false => {
                let spans = waits.iter().map(|wait| (wait.from, wait.to));
                Spans::Dense(dense(spans, from, to, parts))
            }
        }
    }

    fn marks_between(&self, from: f64, to: f64, parts: usize) -> Marks {
        let first = self.marks.partition_point(|mark| mark.x < from);
        let last = self.marks.partition_point(|mark| mark.x <= to).max(first);
        let marks = &self.marks[first..last];
        if marks.len() <= MOST {
            let each = marks.iter().map(|mark| {
                (
                    mark.x,
                    mark.kind as u8,
                    mark.detail,
                    mark.event,
                    mark.stream,
                )
            });
            return Marks::Each(each.collect());
        }
        let scale = parts as f64 / (to - from);
        let mut all: Vec<(u32, u32, u16)> = Vec::new();
        for mark in marks {
            let part = (((mark.x - from) * scale) as u32).min(parts as u32 - 1);
            let bit = 1 << mark.kind as u16;
            match all.last_mut() {
                Some((number, count, kinds)) if *number == part => {
                    *count += 1;
                    *kinds |= bit;
                }
                _ => all.push((part, 1, bit)),
            }
        }
        Marks::Dense(all)
    }
}

/// How much of each part spans cover, in 255ths; what is there at all is at least one.
fn dense(spans: impl Iterator<Item = (f64, f64)>, from: f64, to: f64, parts: usize) -> Vec<u8> {
    let scale = parts as f64 / (to - from);
    let mut covered = vec![0f32; parts];
    for (begin, end) in spans {
        let begin = ((begin - from) * scale).max(0.0);
        let end = ((end - from) * scale).min(parts as f64);
        let mut at = begin;
        let first = (begin as usize).min(parts - 1);
        for (part, covered) in covered.iter_mut().enumerate().skip(first) {
            let next = (part + 1) as f64;
            *covered += (end.min(next) - at).max(1e-3) as f32;
            at = next;
            if end <= next {
                break;
            }
        }
    }
    let whole = |part: f32| {
        if part > 0.0 {
            (part * 255.0).clamp(1.0, 255.0) as u8
        } else {
            0
        }
    };
    covered.into_iter().map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course() -> Course {
        Course {
            stream: 1,
            process: 1,
            // 10 ticks, then an event; none, then one; 100, then one.
            work: vec![26, 42, 158],
            clock: vec![(0, 1000.0), (42, 1042.0), (158, 3042.0)],
        }
    }

    #[test]
    fn positions_are_found_again_where_they_are_shown() {
        let course = course();
        for (event, ticks) in [(1, 0), (2, 0), (2, 1), (2, 57), (2, 99)] {
            let position = Position {
                event,
                ticks,
                steps: 0,
            };
            let x = course.x_of(position);
            assert_eq!(course.position_at(x), position, "{position} at {x}");
        }
        let mut last = 0.0;
        for x in 900..3100 {
            let shown = course.x_of(course.position_at(f64::from(x)));
            assert!(shown >= last, "{x}");
            last = shown;
        }
    }

    #[test]
    fn less_detail_tells_of_the_same_marks_and_spans() {
        let mark = |n: u64| Mark {
            x: n as f64,
            event: n,
            stream: 1,
            kind: if n.is_multiple_of(7) {
                Kind::Signal
            } else {
                Kind::Call
            },
            detail: 0,
        };
        let lane = Lane {
            runs: (0..2000)
                .map(|n| (n as f64 * 2.0, n as f64 * 2.0 + 1.0))
                .collect(),
            marks: (0..5000).map(mark).collect(),
            ..Lane::default()
        };
        let Marks::Dense(all) = lane.marks_between(100.0, 3100.0, 300) else {
            panic!("too many to be told one by one");
        };
        assert_eq!(all.iter().map(|(_, count, _)| count).sum::<u32>(), 3001);
        assert!(
            all.iter()
                .all(|(_, count, kinds)| *count < 7 || *kinds == 0b1001)
        );
        let Spans::Dense(covered) = lane.runs_between(0.0, 4000.0, 100) else {
            panic!("too many to be told one by one");
        };
        assert!(
            covered.iter().all(|part| (125..=129).contains(part)),
            "{covered:?}"
        );
        let Marks::Each(few) = lane.marks_between(10.0, 20.0, 300) else {
            panic!("few enough");
        };
        assert_eq!(few.len(), 11);
    }
}

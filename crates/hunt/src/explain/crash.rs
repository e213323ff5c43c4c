//! Where a program died by a signal. In: a recording. Out: which process and thread it was, and its stack, with lines.

use std::collections::HashMap;

use clew_recording::event::{Event, Record, StreamId, ThreadId};
use clew_recording::reader::{ReadError, Recording};
use clew_timeline::{Settings, Target, Timeline};
use serde::{Deserialize, Serialize};

use super::spot::{Spot, View};
use super::{ExplainError, Who, program};

/// So many functions are told.
const MOST: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    pub signal: i32,
    pub pid: i32,
    /// Options of `clew debug` for the process, if it isn't the one that it shows by itself.
    pub program: Vec<String>,
    pub thread: Who,
    /// Innermost first, without the library's part of it.
    pub stack: Vec<Spot>,
}

struct Death {
    stream: StreamId,
    pid: i32,
    thread: ThreadId,
    signal: i32,
}

/// The first process that a signal ended: those that died later may have done so because of it.
fn death(recording: &Recording) -> Result<Option<Death>, ReadError> {
    // Which thread of its parent a forked process goes on with.
    let mut first: HashMap<StreamId, ThreadId> = HashMap::new();
    let mut found: Option<(u64, Death)> = None;
    for info in recording.streams() {
        let mut reader = recording.stream(info.id)?;
        let mut thread = first.get(&info.id).copied().unwrap_or(0);
        let mut time = 0;
        // A torn end: what there is will do.
        while let Ok(Some(record)) = reader.next() {
            let Record::Event(event) = record else {
                continue;
            };
            match event {
                Event::Forked { stream, .. } => {
                    first.insert(stream, thread);
                }
                Event::Switched { to, .. } => thread = to,
                Event::Time(now) => time = now,
                Event::Killed { signo, .. } => {
                    let death = Death {
                        stream: info.id,
                        pid: info.start.pid,
                        thread,
                        signal: signo,
                    };
                    if found.as_ref().is_none_or(|(earliest, _)| time < *earliest) {
                        found = Some((time, death));
                    }
                }
                _ => {}
            }
        }
    }
    Ok(found.map(|(_, death)| death))
}

pub(super) fn explain(
    recording: &Recording,
    settings: &Settings,
) -> Result<Option<Crash>, ExplainError> {
    let Some(death) = death(recording)? else {
        return Ok(None);
    };
    let timeline = Timeline::open(recording, death.stream, settings.clone())?;
    let mut view = View::new(recording, timeline);
    view.timeline.seek(Target::End)?;
    let threads = view.threads()?;
    let who = threads.into_iter().map(|(_, who)| who);
    let Some(thread) = who.into_iter().find(|who| who.number == death.thread) else {
        return Ok(None);
    };
    Ok(Some(Crash {
        signal: death.signal,
        pid: death.pid,
        program: program(recording.streams(), death.stream),
        thread,
        stack: view.stack(death.thread, MOST)?,
    }))
}

//! A recorded run in the program's own words. In: a recording. Out: the lines at which threads were switched away, and for
//! a deadlock who waits for what, where, and where the others took it.
//!
//! Lines come from replaying, and a timeline forks, so this is work for a process with one thread: a hunt, whose jobs
//! are threads, [asks](ask) a child of its own (`clew explain-run`).

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clew_recording::event::StreamId;
use clew_recording::process;
use clew_recording::reader::StreamInfo;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::guard::Guard;
use crate::strategy::SCHEDULE;

mod crash;
mod deadlock;
mod names;
mod spot;
mod switches;

pub use crash::Crash;
pub use spot::Spot;

/// The hidden command that explains.
pub const COMMAND: &str = "explain-run";

/// How often a hunt that waits looks whether it is over.
const LOOK: Duration = Duration::from_millis(5);
/// No honest answer is longer.
const LONGEST: u64 = 16 << 20;

/// What is known of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    /// Options of `clew debug` for the program that it is about, if that isn't the one that it shows by itself.
    pub program: Vec<String>,
    /// In order, the first ones if there are very many.
    pub preemptions: Vec<Preemption>,
    /// How many there are in all.
    pub all_preemptions: u64,
    /// Threads that wait for each other.
    pub deadlock: Vec<Waiting>,
    /// Where the program died by a signal.
    #[serde(default)]
    pub crash: Option<Crash>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// Threads are numbered as they begin; the first is 0.
    pub number: u32,
    pub tid: i32,
    /// If it isn't the program's.
    pub name: Option<String>,
}

/// A thread could have gone on, and another one did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    /// For `clew debug --at`.
    pub position: String,
    pub thread: Who,
    /// What it would have done next.
    pub at: Spot,
    pub to: Who,
    /// The other thread had never run.
    pub begins: bool,
    /// Where the other one goes on.
    pub goes_on: Spot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitsFor {
    Lock,
    /// The end of another thread.
    End,
    /// A condition, a semaphore, anything.
    Wake,
}

/// A thread of a deadlock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    #[serde(flatten)]
    pub thread: Who,
    pub waits_for: WaitsFor,
    /// Where what it waits for is in memory.
    pub lock: Option<String>,
    /// The variable there.
    pub variable: Option<String>,
    /// Who has the lock, or is to end: a tid.
    pub other: Option<i32>,
    #[serde(flatten)]
    pub at: Spot,
    /// Where the other one took the lock.
    pub taken: Option<Spot>,
}

/// Why there are no lines.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error(transparent)]
    Open(#[from] clew_recording::reader::OpenError),
    #[error(transparent)]
    Read(#[from] clew_recording::reader::ReadError),
    #[error(transparent)]
    Timeline(#[from] clew_timeline::Error),
}

/// Replays a recording for the lines of its deadlock, and of so many preemptions at most. For a process with one thread.
pub fn explain(
    folder: &Path,
    most: usize,
    settings: &clew_timeline::Settings,
) -> Result<Explained, ExplainError> {
    let recording = clew_recording::reader::Recording::open(folder)?;
    let crash = crash::explain(&recording, settings)?;
    let story = switches::read(&recording)?;
    let Some(story) = story else {
        return Ok(Explained {
            crash,
            ..Explained::default()
        });
    };
    let timeline = clew_timeline::Timeline::open(&recording, story.stream, settings.clone())?;
    let mut view = spot::View::new(&recording, timeline);
    let schedule = std::fs::read_to_string(folder.join(SCHEDULE));
    let schedule = schedule.ok().and_then(|text| text.parse().ok());
    let (preemptions, all_preemptions) =
        switches::explain(&mut view, &story, schedule.as_ref(), most)?;
    let deadlock = match &story.deadlock {
        Some(waiters) => deadlock::explain(&mut view, waiters)?,
        None => Vec::new(),
    };
    Ok(Explained {
        program: program(recording.streams(), story.stream),
        preemptions,
        all_preemptions,
        deadlock,
        crash,
    })
}

/// How to choose a stream: `clew debug` shows the last program of the first process.
fn program(streams: &[StreamInfo], stream: StreamId) -> Vec<String> {
    let mut words = Vec::new();
    let Some(chosen) = streams.iter().find(|info| info.id == stream) else {
        return words;
    };
    if chosen.process != 1
        && let Some(name) = process::name(streams, chosen.process)
    {
        words.extend(["--pid".into(), name.to_string()]);
    }
    let of_pid = (streams.iter()).filter(|info| info.process == chosen.process);
    let of_pid: Vec<StreamId> = of_pid.map(|info| info.id).collect();
    if of_pid.last() != Some(&stream)
        && let Some(n) = of_pid.iter().position(|&id| id == stream)
    {
        words.extend(["--exec".into(), (n + 1).to_string()]);
    }
    words
}

/// Has a child [explain] a recording. In words why not, if it can't within that time or the hunt is stopped.
pub fn ask(
    exe: &Path,
    folder: &Path,
    most: usize,
    limit: Duration,
    guard: &Guard,
    stop: &dyn Fn() -> bool,
) -> Result<Explained, String> {
    let mut child = Command::new(exe)
        .arg(COMMAND)
        .arg(folder)
        .arg(most.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|why| why.to_string())?;
    let group = child.id();
    guard.begins(group);
    let answer = hear(&mut child, Instant::now() + limit, stop);
    if let Some(pid) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.wait();
    guard.ended(group);
    serde_json::from_slice(&answer?).map_err(|_| "the recording can't be replayed".into())
}

/// What the child prints.
fn hear(child: &mut Child, end: Instant, stop: &dyn Fn() -> bool) -> Result<Vec<u8>, String> {
    let pipe = child.stdout.take().ok_or("no pipe")?;
    // An answer may be longer than the pipe, so somebody must read while others wait.
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.take(LONGEST)
            .read_to_end(&mut bytes)
            .map(|_| bytes)
            .map_err(|why| why.to_string())
    });
    while !reader.is_finished() {
        if stop() {
            return Err("interrupted".into());
        }
        if Instant::now() >= end {
            return Err("it took too long".into());
        }
        std::thread::sleep(LOOK);
    }
    reader.join().map_err(|_| "reading failed")?
}

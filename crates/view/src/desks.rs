//! Debuggers of a recording's processes. In: a stream, and work to do with its debugger. Out: what came of it.
//!
//! Each stream has two debuggers on the same snapshots: one for what is answered at once, one for questions about whole
//! lives, so that nobody who steps waits for those.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use clew_debugger::{Debugger, Process};
use clew_recording::event::StreamId;
use clew_recording::process;
use clew_recording::reader::Recording;

use crate::Host;
use crate::jobs::{Job, hold};

/// A debugger and where it stands, as far as it was told.
pub struct Desk {
    pub debugger: Debugger,
    /// Position and calls hidden there; none if it has been moved since.
    pub stands: Option<(String, usize)>,
}

/// The quick one, and the other.
type Pair = Arc<(Mutex<Option<Desk>>, Mutex<Option<Desk>>)>;

#[derive(Default)]
pub struct Desks {
    pairs: Mutex<HashMap<StreamId, Pair>>,
}

/// Which process, as people and [`Debugger::open`] name it.
pub fn process_of(recording: &Recording, stream: StreamId) -> Result<Process, String> {
    let streams = recording.streams();
    let Some(info) = streams.iter().find(|info| info.id == stream) else {
        return Err(format!("there is no stream {stream} in this recording"));
    };
    let of_process = recording.of_process(info.process);
    let number = of_process.take_while(|one| one.id != stream).count();
    Ok(Process {
        name: process::name(streams, info.process),
        exec: Some(number + 1),
    })
}

impl Desks {
    fn pair(&self, stream: StreamId) -> Pair {
        hold(&self.pairs).entry(stream).or_default().clone()
    }

    /// What is answered at once.
    pub fn quickly<T>(
        &self,
        host: &dyn Host,
        stream: StreamId,
        job: &Arc<Job>,
        work: impl FnOnce(&mut Desk) -> Result<T, String>,
    ) -> Result<T, String> {
        let pair = self.pair(stream);
        let mut quick = hold(&pair.0);
        check(job)?;
        let desk = filled(&mut quick, || first(host, stream))?;
        watched(desk, job, work)
    }

    /// What takes a replay of a life.
    pub fn slowly<T>(
        &self,
        host: &dyn Host,
        stream: StreamId,
        job: &Arc<Job>,
        work: impl FnOnce(&mut Desk) -> Result<T, String>,
    ) -> Result<T, String> {
        let pair = self.pair(stream);
        let mut slow = hold(&pair.1);
        check(job)?;
        let desk = filled(&mut slow, || {
            let mut quick = hold(&pair.0);
            let desk = filled(&mut quick, || first(host, stream))?;
            let timeline = desk.debugger.another_timeline();
            let timeline = timeline.map_err(|error| error.to_string())?;
            Ok(Debugger::on(host.recording().0.clone(), timeline))
        })?;
        watched(desk, job, work)
    }
}

/// The first debugger of a stream.
fn first(host: &dyn Host, stream: StreamId) -> Result<Debugger, String> {
    host.open(process_of(host.recording().0, stream)?)
}

/// The desk, with a debugger that is opened when it is first asked for.
fn filled(
    desk: &mut Option<Desk>,
    open: impl FnOnce() -> Result<Debugger, String>,
) -> Result<&mut Desk, String> {
    match desk {
        Some(desk) => Ok(desk),
        None => Ok(desk.insert(Desk {
            debugger: open()?,
            stands: None,
        })),
    }
}

fn watched<T>(
    desk: &mut Desk,
    job: &Arc<Job>,
    work: impl FnOnce(&mut Desk) -> Result<T, String>,
) -> Result<T, String> {
    let job = job.clone();
    let watcher = Box::new(move |done| {
        job.set_progress(done);
        job.is_cancelled()
    });
    desk.debugger.set_watcher(watcher);
    let told = work(desk);
    desk.debugger.set_watcher(Box::new(|_| false));
    told
}

fn check(job: &Job) -> Result<(), String> {
    match job.is_cancelled() {
        true => Err("cancelled".into()),
        false => Ok(()),
    }
}

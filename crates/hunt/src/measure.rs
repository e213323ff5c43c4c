//! What a recording says about its schedule. In: its folder. Out: how much work the threads did, how often they were switched.

use std::path::Path;
use std::time::{Duration, Instant};

use clew_recording::event::{Event, Record};
use clew_recording::reader::Recording;
use clew_recording::summary;

use crate::{HuntError, turns};

/// What a call and a new thread count for: as the engine's policies count.
const CALL: u64 = 64;
const NEW_THREAD: u64 = 64;

/// Of the process with the most work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Work from the second thread on; 0 if there was never one.
    pub work: u64,
    pub threads: u64,
    /// Turns that ended although the thread could go on.
    pub preemptions: u64,
}

/// Waits until the log is complete: its writer ends a moment after the program. False if it is never.
pub fn wait_for_writer(folder: &Path) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    while summary::is_being_written(folder) {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    true
}

/// Reads a complete recording.
pub fn schedule(folder: &Path) -> Result<Schedule, HuntError> {
    Ok(turns::read(folder)?.0)
}

/// Calls by which a program begins to deal with others: sockets, other processes, what changes in files.
/// In this order: socket, socketpair, shmget, mknod, mq_open, inotify_init, mknodat, inotify_init1, fanotify_init.
const OUTSIDE: [u32; 9] = [41, 53, 29, 133, 240, 253, 259, 294, 300];

/// Whether a recorded program has others to wait for: processes, its own or not, at the other end of anything. It must not believe
/// that more time has passed than they had.
pub fn deals_with_outside(folder: &Path) -> Result<bool, HuntError> {
    let failed = |why: String| HuntError::Recording {
        path: folder.into(),
        why,
    };
    let recording = Recording::open(folder).map_err(|error| failed(error.to_string()))?;
    if recording.streams().len() > 1 {
        return Ok(true);
    }
    for stream in recording.streams() {
        let reader = recording.stream(stream.id);
        let mut reader = reader.map_err(|error| failed(error.to_string()))?;
        // A torn end: what there is will do.
        while let Ok(Some(record)) = reader.next() {
            if let Record::Event(Event::Call(call)) = record
                && OUTSIDE.contains(&call.nr)
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

impl Schedule {
    pub(crate) fn count(&mut self, event: &Event) {
        if matches!(event, Event::NewThread { .. }) {
            self.threads += 1;
            self.work += NEW_THREAD;
        }
        if self.threads < 2 {
            return;
        }
        self.work += event.place().ticks;
        if matches!(event, Event::Call(_)) {
            self.work += CALL;
        }
    }

    /// The work as a round number, so that it is the same when measured again.
    pub fn length(&self) -> Option<u64> {
        if self.work == 0 {
            return None;
        }
        // Two significant digits, rounded up.
        let digits = self.work.ilog10().saturating_sub(1);
        let unit = 10u64.pow(digits);
        Some(self.work.div_ceil(unit) * unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_round() {
        let length = |work| {
            let schedule = Schedule {
                work,
                ..Schedule::default()
            };
            schedule.length()
        };
        assert_eq!(length(0), None);
        assert_eq!(length(7), Some(7));
        assert_eq!(length(1_234), Some(1_300));
        assert_eq!(length(99_999), Some(100_000));
    }
}

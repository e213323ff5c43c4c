//! What a recording says about its schedule. In: its folder. Out: how much work the threads did, how often they were switched.

use std::path::Path;
use std::time::{Duration, Instant};

use clew_recording::event::Event;
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

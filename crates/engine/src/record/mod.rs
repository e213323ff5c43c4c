//! The world *record*: everything that reaches the guest from outside is written down.
//!
//! In: what the executor answers to its guest threads (calls, signals, turns). Out: events and their
//! effects in the ring that the writer process empties. A replay knows nothing of files, futexes or
//! dispositions; it applies effects. So whatever changes registers or memory of the guest, other than
//! its own instructions, must come through here, at a place that can be found again: a system call, an
//! emulated instruction, a fault, or the end of a budget and some single steps.

pub mod events;
pub mod files;
pub mod output;
mod processes;
mod quiet;
pub mod recorder;
mod tail;
pub mod values;
pub mod view;

pub use output::Standard;
pub(crate) use recorder::Goes;
pub use recorder::{Arrival, Recorder};

use std::os::fd::{IntoRawFd, OwnedFd};

use crate::program::RecordOptions;
use crate::start::Request;

/// Has the program of `request` recorded: through the shared memory behind `channel`, with copies of
/// mapped files in the folder behind `files`.
pub fn begin(request: &mut Request, channel: OwnedFd, files: OwnedFd) {
    let hidden = &mut request.handover.own.hidden;
    hidden.keep_recording(channel.into_raw_fd());
    hidden.keep_files(files.into_raw_fd());
    request.handover.options.record = Some(RecordOptions {
        standard: Standard::own().to_words(),
        first: true,
        ..RecordOptions::default()
    });
}

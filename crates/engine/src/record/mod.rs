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
pub mod recorder;
pub mod values;

pub use output::Standard;
pub use recorder::{Arrival, Recorder};

//! What happened before what: interactions of threads, their partial order, and accesses that nothing orders.
//!
//! It runs nothing again: what it tells is the order of the one run that was recorded.
//!
//! In: a timeline of one process. Out: its interactions `<type, thread, object, t>` with Lamport times, the edges between
//! them, and data races. The definitions are those of "Replay Debugging for Multi-threaded Embedded Software" (Lee and others);
//! its events are called *interactions* here, since a log has events of its own.
//!
//! * `known`: functions by which threads interact
//! * `interaction`: what an interaction is
//! * `descriptors`: which descriptors lead to the same pipe or socket
//! * [`gather`]: a replay with an observer and the log, put together
//! * [`graph`]: Lamport times, edges, before and after; what must come before, and what can go on without
//! * `declared`: variables that the program's text says are atomic
//! * `clocks`, `detect`: vector clocks, and accesses that are in no order
//! * [`reorder`]: the run in another order, as a recording
//! * [`races`]: races as people read them
//! * [`story`]: every access to some memory, with handlers, values and locks
//! * `names`: objects and lines as people know them
//! * [`show`]: as a diagram, a graph, a page, JSON

#![forbid(unsafe_code)]

mod clocks;
mod declared;
mod descriptors;
mod detect;
pub mod gather;
pub mod graph;
mod interaction;
mod known;
mod names;
pub mod races;
pub mod reorder;
pub mod show;
pub mod story;

pub use gather::{Gathered, gather};
pub use interaction::{Interaction, Kind, Object, ObjectKey};
pub use names::{Line, Names, is_c_library_at};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Timeline(#[from] clew_timeline::Error),
    #[error("the log can't be read: {0}")]
    Log(String),
    #[error("it can't be had in another order: {0}")]
    Refused(#[from] reorder::Refused),
}

pub type Result<T> = std::result::Result<T, Error>;

//! The gdb remote serial protocol, answered from a timeline.
//!
//! It steps over no lines by itself: gdb does that, or `clew_debugger`.
//!
//! In: a socket that a gdb is connected to. Out: a [`Session`] in which it can do with a recorded program
//! what it can do with a live one, and go backwards.
//!
//! The protocol is written out here, because the `gdbstub` crate (0.7) reads the conditions of
//! breakpoints but doesn't hand them on, and a condition that gdb itself must evaluate costs a stop each
//! time. It also lacks `qXfer:threads` and `qXfer:siginfo`, and speaks of one process only by a made-up pid.
//!
//! | file | packets |
//! |---|---|
//! | `wire`, `hex`, `xml`, `ids` | framing, numbers, documents, names of threads |
//! | `session` | registers, memory, threads, settings |
//! | `points` | breakpoints and watchpoints |
//! | `going`, `range`, `resume`, `report` | what makes the program go, and stop replies |
//! | `whatif`, `successors` | writes, and calls of functions |
//! | `queries`, `libraries`, `files`, `processfs`, `auxv`, `siginfo`, `tls` | what gdb asks for |
//! | `commands`, `questions`, `clew.py` | our own commands |
//! | `launch` | a gdb that is started for the session |

mod auxv;
mod commands;
mod files;
mod going;
mod hex;
mod ids;
pub mod launch;
mod libraries;
mod points;
mod probes;
mod processfs;
mod queries;
mod questions;
mod range;
mod registers;
mod report;
mod resume;
mod session;
mod siginfo;
mod signals;
mod successors;
mod tls;
mod whatif;
mod wire;
mod xml;

use clew_recording::event::{StreamId, ThreadId};
use clew_recording::reader::{ReadError, Recording};
use clew_timeline::{Position, Timeline};

pub use commands::parse_target;
pub use session::{Session, Settings};

/// Why a session ended, or something in it couldn't be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Timeline(#[from] clew_timeline::Error),
    #[error("the connection to gdb: {0}")]
    Wire(#[from] std::io::Error),
    #[error(transparent)]
    Log(#[from] ReadError),
    #[error("the recording has no stream {0}; `clew info` lists its processes")]
    NoStream(StreamId),
    #[error("{0}")]
    Command(String),
    #[error("{what}: {error}")]
    Launch { what: String, error: std::io::Error },
}

pub type Result<T> = std::result::Result<T, Error>;

/// Shows how far long work has come.
pub trait Meter {
    fn begins(&mut self);

    /// This part is done, of 1.
    fn show(&mut self, done: f64);

    fn is_over(&mut self);
}

/// What comes of a command about the order of threads.
#[derive(Default)]
pub struct Ordered {
    /// The run in another order, from here on.
    pub other: Option<(Recording, Timeline)>,
    /// Where to go.
    pub position: Option<Position>,
    pub text: String,
}

/// What a session asks of whoever knows more than the timeline does.
pub trait Helper {
    /// The events of the session's stream with these numbers, and a line about each.
    fn events(&mut self, from: u64, to: u64) -> std::result::Result<Vec<(u64, String)>, String>;

    /// Where a value comes from, as text: of where the timeline stands.
    fn origin(
        &mut self,
        timeline: &mut Timeline,
        what: &str,
    ) -> std::result::Result<String, String>;

    /// All that a value depends on, of where the timeline stands; or goes along what was asked for last. Where to go, and
    /// what to say.
    fn slice(
        &mut self,
        timeline: &mut Timeline,
        words: &str,
    ) -> std::result::Result<(Option<Position>, String), String>;

    /// What is asked about the order of threads, of where the timeline stands and a thread of it; or the same run in another order.
    fn order(
        &mut self,
        timeline: &mut Timeline,
        thread: ThreadId,
        words: &str,
    ) -> std::result::Result<Ordered, String>;

    /// Runs debug code at places over the whole recording. Out: what it prints, with positions, and how it ended.
    fn probe(
        &mut self,
        debugger: &mut clew_debugger::Debugger,
        probes: &[(String, String)],
    ) -> std::result::Result<String, String>;

    /// Finds where an expression changes from true to false or the other way. Out: the position just before,
    /// and what to say about it.
    fn transition(
        &mut self,
        timeline: &mut Timeline,
        expression: &str,
        thread: ThreadId,
    ) -> std::result::Result<(Position, String), String>;
}

/// Without what a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(plain).collect()
}

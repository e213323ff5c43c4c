//! Forwards and backwards through the life of one recorded program.
//!
//! It prints nothing, and checks what a worker says before using it: the program may be a stranger's.
//!
//! A [`Timeline`] stands at a position of a stream. It seeks, runs and steps in both directions, shows
//! threads, registers and memory, and makes [`Excursion`]s: what-ifs in a forked copy that is thrown
//! away. Nothing that is done with it changes the recording or what it shows later.
//!
//! Behind it are processes: *workers* (`clew_engine::replay::worker`), each standing somewhere in the
//! stream. A snapshot is a worker that only forks. To go back is to fork the nearest earlier snapshot
//! and run forward; to search backwards is to do that segment by segment, the last one first.
//!
//! * `timeline`: open, look
//! * `seek`: go somewhere, and leave snapshots on the way
//! * `search`: backwards to the last stop, several segments at once
//! * `stepping`: single instructions of a thread, both ways
//! * `excursion`: what-ifs
//! * `divergence`: where the replay isn't what was recorded
//! * `program`: the stack with functions and lines, values of C expressions
//! * `transition`, `watch`: where a condition flips
//! * `touches`: accesses of different threads to the same memory
//! * `interactions`: calls of known functions and accesses to shared memory, in one order
//! * `history`: all calls of functions, all changes of a piece of memory
//! * `stretches`: a question about a long way, asked on all cores
//! * `trace`: all instructions of a stretch and what they touched
//! * `snapshots`, `usage`: who stands where, who is to go, and what it all takes
//! * `worker`, `pool`: processes and the words that pass between them and this one
//! * `story`: what the log says without being replayed

#![forbid(unsafe_code)]

pub mod divergence;
mod excursion;
mod history;
mod interactions;
mod limits;
mod looker;
mod pool;
mod probe;
pub mod program;
mod search;
mod seek;
mod snapshots;
mod stepping;
mod story;
mod stretches;
mod timeline;
mod touches;
pub mod trace;
pub mod transition;
mod usage;
pub mod watch;
mod worker;

use std::path::PathBuf;
use std::time::Duration;

pub use clew_engine::replay::worker::protocol::{
    At, Break, CallSeen, Calls, ChangeSeen, Diverged, EventStop, Events, ExcursionEnd,
    FunctionEntry, Gate, Granules, Interactions, LeftBy, Mapping, Mark, Next, Piece, Registers,
    Sites, Stops, Thread, Watch, WatchKind, Watchful,
};
pub use clew_engine::replay::worker::told::Told;
use clew_recording::event::ThreadId;
pub use clew_recording::position::Position;

pub use clew_engine::replay::worker::protocol::probing;
pub use excursion::{Excursion, Ran, Undefined};
pub use history::Seen;
pub use interactions::Hears;
pub use looker::Looker;
pub use probe::Probed;
pub use timeline::Timeline;
pub use touches::{Touch, TouchLimits, Touches};

/// Why something couldn't be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Diverged(Box<Diverged>),
    /// Two replays of one part aren't the same.
    #[error("{0}")]
    Unsteady(String),
    #[error(
        "a replaying process ended without a word: memory ran out, or the recording was tampered with"
    )]
    Lost,
    #[error(
        "a replaying process answered what can't be understood: a mistake of clew's, or the recording was tampered with"
    )]
    Nonsense,
    #[error("interrupted")]
    Interrupted,
    #[error("{what}: {error}")]
    Io {
        what: &'static str,
        error: std::io::Error,
    },
}

pub type Result<T> = std::result::Result<T, Error>;

/// How a timeline may use the machine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of memory that snapshots may take; `None` is a quarter of the machine's or of the control group's limit.
    pub memory: Option<u64>,
    /// From a snapshot to any position behind it should take no longer, where memory allows.
    pub latency: Duration,
    /// Searches use so many processes at once; `None` is one for each core.
    pub jobs: Option<usize>,
    /// A question about a long way is asked in parts of so much work; `None` is what takes some tenths of a second.
    pub stretch: Option<u64>,
    /// Replay without the lock around processes, where the kernel hasn't got it.
    pub unlocked: bool,
    /// Compare memory wherever the recording has a checksum of it.
    pub verify: bool,
    /// The clew to make replaying processes of; none is the program that asks.
    pub program: Option<PathBuf>,
    pub options: clew_engine::program::Options,
}

impl Settings {
    /// The usual ones.
    pub fn new(options: clew_engine::program::Options) -> Settings {
        Settings {
            memory: None,
            latency: Duration::from_millis(50),
            jobs: None,
            stretch: None,
            unlocked: false,
            verify: false,
            program: None,
            options,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// Where to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Right after the stream's first event: nothing of the program has run.
    Start,
    /// Before the stream's last event (the exit, the death, the exec), or as far as the log goes.
    End,
    Position(Position),
    /// So many ticks of all threads after the start.
    Ticks(u64),
}

/// Why and where it stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub reason: Reason,
    /// The thread that it is about; of a plain arrival, the one that runs there.
    pub thread: ThreadId,
    pub pc: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It went where it was sent, or made its step.
    Arrived,
    /// Nothing more in that direction.
    Start,
    End(Next),
    Break,
    /// Forwards it stands behind the instruction or event, backwards before it.
    Watch {
        /// Number among [`Stops::watches`].
        watch: usize,
        addr: u64,
        read: bool,
    },
    Event(EventStop),
    Interrupted,
}

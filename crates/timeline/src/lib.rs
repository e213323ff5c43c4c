//! Forwards and backwards through the life of one recorded program.
//!
//! A [`Timeline`] stands at a position of a stream. It seeks, runs and steps in both directions, shows
//! threads, registers and memory, and makes [`Excursion`]s: what-ifs in a forked copy that is thrown
//! away. Nothing that is done with it changes the recording or what it shows later.
//!
//! Behind it are processes: *workers* (`clew_engine::replay::worker`), each standing somewhere in the
//! stream. A snapshot is a worker that only forks. To go back is to fork the nearest earlier snapshot
//! and run forward; to search backwards is to do that segment by segment, the last one first.

use std::time::Duration;

pub use clew_engine::replay::worker::protocol::{
    At, Break, Calls, EventStop, Events, ExcursionEnd, Mapping, Next, Registers, Stops, Thread,
    Watch, WatchKind,
};
use clew_recording::event::{StreamId, ThreadId};
pub use clew_recording::position::Position;
use clew_recording::reader::Recording;

/// Why something couldn't be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Diverged(String),
    #[error(
        "a replaying process ended without a word: memory ran out, or the recording was tampered with"
    )]
    Lost,
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
    /// Bytes of memory that snapshots may take; `None` is a quarter of the machine's.
    pub memory: Option<u64>,
    /// From a snapshot to any position behind it should take no longer, where memory allows.
    pub latency: Duration,
    /// Searches use so many processes at once; `None` is one for each core.
    pub jobs: Option<usize>,
    /// Replay without the lock around processes, where the kernel hasn't got it.
    pub unlocked: bool,
    pub options: clew_engine::program::Options,
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

/// One program's life in a recording, and a place in it.
pub struct Timeline {}

impl Timeline {
    /// Opens a stream and stands at its start. Must be called by a process's only thread, because it
    /// forks; the processes that it makes end with that thread.
    pub fn open(
        _recording: &Recording,
        _stream: StreamId,
        _settings: Settings,
    ) -> Result<Timeline> {
        todo!()
    }

    /// Where it stands.
    pub fn position(&mut self) -> Result<Position> {
        todo!()
    }

    /// What is known of that place without counting instructions: cheap.
    pub fn at(&self) -> At {
        todo!()
    }

    /// The last position. Replays to the end if that wasn't done yet.
    pub fn end(&mut self) -> Result<Position> {
        todo!()
    }

    pub fn seek(&mut self, _to: Target) -> Result<Stop> {
        todo!()
    }

    /// Where to stop in [`Timeline::run`] and [`Timeline::step`].
    pub fn set_stops(&mut self, _stops: Stops) {
        todo!()
    }

    /// Goes on until a stop, or the end, or the start. What is at the present position doesn't count.
    /// `until`: not further than that, where given.
    pub fn run(&mut self, _direction: Direction, _until: Option<Position>) -> Result<Stop> {
        todo!()
    }

    /// One instruction of a thread: forwards until it has executed one (or an event of its own has
    /// happened), backwards to before its last. Other threads run as they did; their stops count.
    pub fn step(&mut self, _direction: Direction, _thread: ThreadId) -> Result<Stop> {
        todo!()
    }

    /// One position, whichever thread it is.
    pub fn step_any(&mut self, _direction: Direction) -> Result<Stop> {
        todo!()
    }

    /// In order of their numbers.
    pub fn threads(&mut self) -> Result<Vec<Thread>> {
        todo!()
    }

    pub fn registers(&mut self, _thread: ThreadId) -> Result<Option<Registers>> {
        todo!()
    }

    /// Reads what can be read from there on; how many bytes that is.
    pub fn read(&mut self, _addr: u64, _into: &mut [u8]) -> Result<usize> {
        todo!()
    }

    pub fn mappings(&mut self) -> Result<Vec<Mapping>> {
        todo!()
    }

    /// A copy of the program as it is here, to be changed and thrown away.
    pub fn excursion(&mut self) -> Result<Excursion> {
        todo!()
    }

    /// Asked now and then during long work: `true` interrupts it. Also told how far it has come, 0..=1.
    pub fn set_watcher(&mut self, _watcher: Box<dyn FnMut(f64) -> bool>) {
        todo!()
    }

    pub fn stream(&self) -> StreamId {
        todo!()
    }
}

/// A what-if: a copy of the program that goes its own way. Dropping it ends it.
pub struct Excursion {}

/// What came of running an excursion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    pub end: ExcursionEnd,
    pub pc: u64,
    /// What it wrote to stdout and stderr.
    pub output: Vec<u8>,
}

/// Why a call in an excursion has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undefined {
    /// It would have been killed.
    Signal {
        signo: i32,
        addr: u64,
    },
    Exited,
    /// It waits for what can't happen, or ran for too long.
    Endless,
}

impl Excursion {
    pub fn registers(&mut self, _thread: ThreadId) -> Result<Option<Registers>> {
        todo!()
    }

    pub fn set_registers(&mut self, _thread: ThreadId, _registers: &Registers) -> Result<()> {
        todo!()
    }

    pub fn read(&mut self, _addr: u64, _into: &mut [u8]) -> Result<usize> {
        todo!()
    }

    pub fn write(&mut self, _addr: u64, _bytes: &[u8]) -> Result<()> {
        todo!()
    }

    /// Runs on until one of these stops, a signal, the end of `ticks`, or a wait that can't end.
    pub fn run(&mut self, _stops: Stops, _ticks: u64) -> Result<Ran> {
        todo!()
    }

    /// Calls a function with integer arguments in the current thread, as the C ABI has it; registers are
    /// put back afterwards. `ticks`: how long it may take. Returns rax, or why there is none.
    pub fn call(
        &mut self,
        _function: u64,
        _arguments: &[u64],
        _ticks: u64,
    ) -> Result<std::result::Result<u64, Undefined>> {
        todo!()
    }
}

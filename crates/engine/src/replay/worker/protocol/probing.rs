//! What is said about probes: a module in, what its probes printed and how they failed out.

use clew_recording::event::ThreadId;
use serde::{Deserialize, Serialize};

use super::Mark;

/// System calls by which a module speaks to the engine: it is ready for probes; a probe is done.
pub const READY: u64 = 0x636c_0001;
pub const DONE: u64 = 0x636c_0002;

/// Words of [`Module::hit`]: general registers in the hardware's numbering, rip, rflags, fs and gs bases, then these, and
/// behind all of them the lower halves of the vector registers.
pub const EVENT: usize = 20;
pub const TICKS: usize = 21;
pub const THREAD: usize = 22;
/// What else there is to say: of an access its address and length.
pub const EXTRA: usize = 23;
pub const EXTRA_TOO: usize = 24;
pub const WORDS: usize = 26;

/// Debug code and where it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// All of it lies in [`crate::layout::PROBE`].
    pub segments: Vec<Segment>,
    pub entry: u64,
    /// Its program headers, where they are and how many.
    pub headers: (u64, u64),
    /// Where the program's registers go before a probe runs.
    pub hit: u64,
    /// The function that runs a probe, by its number.
    pub enter: u64,
    pub probes: Vec<Probe>,
    /// Writes to the program's memory are errors also in its own functions; otherwise they are undone.
    pub strict: bool,
    /// A probe that failed ends the way.
    pub stop_at_errors: bool,
    /// More ticks than these are an endless loop.
    pub most_ticks: u64,
    /// What it has of files.
    pub files: Option<Folder>,
}

/// A folder that debug code may read and write, as it is when that begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// Absolute.
    pub path: String,
    /// Where names begin that aren't.
    pub here: String,
    /// Below it, with slashes between.
    pub folders: Vec<String>,
    pub files: Vec<(String, Vec<u8>)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    pub addr: u64,
    /// In memory; what isn't in `bytes` is 0.
    pub len: u64,
    pub bytes: Vec<u8>,
    pub executable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    pub when: When,
    /// It wants the vector registers.
    pub vectors: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// Before the instruction there.
    Pc(u64),
    /// Before a system call, or after it; any if there is no number.
    Call { nr: Option<u32>, after: bool },
    /// Before an instruction that touches this memory.
    Access {
        addr: u64,
        len: u64,
        reads: bool,
        writes: bool,
    },
    /// A thread was made.
    Thread,
    /// Before a signal's handler begins, or it kills.
    Signal,
}

/// Something that a probe told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// `at`: where the program stood; none before its first instruction and after its last.
    Output {
        at: Option<Hit>,
        fd: u32,
        bytes: Vec<u8>,
    },
    Failed(Failed),
    /// A file of the folder was written, from there on; or it is empty now.
    Wrote {
        name: String,
        at: u64,
        bytes: Vec<u8>,
    },
    Emptied {
        name: String,
    },
}

/// A probe's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    pub probe: u32,
    pub at: Mark,
    pub thread: ThreadId,
}

/// A probe didn't come to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    pub at: Option<Hit>,
    /// Where the module was, or what it called.
    pub pc: u64,
    /// Where the module called the program's function that it was in; 0 if it was in none.
    pub from: u64,
    /// Addresses of the module's code on its stack, the innermost first: mostly where calls return to.
    pub stack: Vec<u64>,
    pub why: Failure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    Signal {
        signo: i32,
        addr: u64,
    },
    /// It would have written to the program's memory.
    Write {
        addr: u64,
    },
    /// Its stack is used up.
    Overflow,
    /// It jumped where no code is, or none that can be run here.
    Jump {
        to: u64,
    },
    Endless,
    Exited {
        status: i32,
    },
    /// It left by a long jump.
    Left,
    Fork,
    /// It asked for what only others could give, and would wait for ever.
    Waits,
}

/// What became of all probes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// How often each ran.
    pub hits: Vec<u64>,
    pub failed: u64,
    /// Checksums of registers and memory that agreed with the recording, at the end and on the way.
    pub checks: u64,
    /// The program's own end was reached and compared.
    pub ended: bool,
    /// Writes of the program's functions that were undone.
    pub undone: u64,
}

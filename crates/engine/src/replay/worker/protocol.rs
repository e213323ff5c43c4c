//! What the commanding process and its workers say to each other: one message a packet.
//!
//! A worker may have been led astray by a stranger's recording: whoever reads its replies trusts
//! none of their values.

pub mod probing;

use std::fmt;

use clew_recording::event::{StreamId, ThreadId};
use clew_recording::position::Position;
use serde::{Deserialize, Serialize};

/// No message is longer, encoded.
pub const LONGEST: usize = 128 << 10;
/// At most so many bytes of memory in one message.
pub const LONGEST_READ: usize = 64 << 10;
/// So many channels are made at the start, and no more: as many workers can live at once.
pub const CHANNELS: usize = 512;
/// So many buffers (`crate::trace::buffer`): as many workers can observe at once.
pub const BUFFERS: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Make a copy of this worker that serves on that channel. [`Reply::Forked`] comes from the old one.
    Fork { channel: u32 },
    /// Where to stop from now on; replaces what was said before. No reply.
    Stops(Stops),
    /// The replay diverges behind this: it is the stream's end from now on. No reply.
    Limit(Limit),
    /// Go forward. [`Reply::Stopped`].
    Advance { goal: Goal, take: Take },
    /// One instruction of the thread that runs here, or the event that comes next. [`Reply::Stopped`].
    Step,
    /// [`Reply::Stopped`] with where it stands.
    Where,
    /// [`Reply::Threads`].
    Threads,
    /// [`Reply::Registers`].
    Registers { thread: ThreadId },
    /// [`Reply::Memory`]: as many bytes as can be read from there on.
    Read { addr: u64, len: u32 },
    /// [`Reply::Mappings`], from this address on, as many as fit.
    Mappings { from: u64 },
    /// The code there, and what it is translated to. [`Reply::Listing`].
    Listing { pc: u64 },
    /// From here on this worker is an excursion: it can't follow the recording any more.
    /// [`Reply::Done`]
    Write { addr: u64, bytes: Vec<u8> },
    /// Likewise.
    SetRegisters {
        thread: ThreadId,
        registers: Box<Registers>,
    },
    /// Run on from here as an excursion, at most so many ticks: only the current thread, with system calls
    /// answered from nothing but this process. Stops at breakpoints. [`Reply::Excursion`].
    Run { ticks: u64 },
    /// Look at the replay on the way to a goal; what is seen goes into one of the buffers. [`Reply::Observed`].
    Observe {
        look: Observation,
        goal: Goal,
        buffer: u32,
    },
    /// Tell the whole state, as the prologue of a stream that begins with it; or what a region ends with. Some
    /// [`Reply::State`], then [`Reply::Done`].
    State { whole: bool },
    /// Stop what you do. No reply of its own; ignored by a worker that does nothing.
    Interrupt,
    /// End. No reply.
    End,
}

/// What to look at, and what comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Observation {
    /// Which memory several threads touch: a `Vec<Granules>` in the buffer.
    Sharing,
    /// Accesses to the memory that stands in the buffer, at most so many: a `Vec<Touch>` in its place.
    Touches { most: u64 },
    /// Calls of the functions that stand in the buffer (a [`CallsAsked`]), at most so many: a [`CallsTold`] in its place.
    Functions { most: u64 },
    /// Changes of a piece of memory, at most so many: a `Vec<ChangeSeen>` in the buffer.
    Changes { addr: u64, len: u64, most: u64 },
    /// What the [`Interactions`] in the buffer ask for, told as it comes ([`super::told::Told`]).
    Interactions,
    /// Each instruction and what it touches ([`crate::trace`]).
    Trace,
    /// Runs the probes that stand in the buffer (a [`probing::Module`]); [`Reply::Told`] on the way, and a
    /// `Vec<probing::Summary>` in the buffer.
    Probes,
}

/// How far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Goal {
    Position(Position),
    Mark(Mark),
    /// The first tick or event at which [`At::work`] is so much, or more.
    Work(u64),
    /// Before the stream's last event, or as far as the log goes.
    End,
}

/// Which of the stops on the way count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Take {
    /// None: go to the goal.
    None,
    /// Stay at the first. The position that it starts from doesn't count.
    First,
    /// Go to the goal, and tell the last that was passed on the way. The goal itself doesn't
    /// count; the start does.
    Last,
}

/// An instruction of a stream's life: found again by going to the tick, then stepping until pc and
/// stack pointer are these (see the clock in ARCHITECTURE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub event: u64,
    pub ticks: u64,
    pub pc: u64,
    pub sp: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stops {
    pub breaks: Vec<Break>,
    pub watches: Vec<Watch>,
    pub events: Events,
    pub sites: Vec<Sites>,
}

/// Stop before any of these instructions: the places that an interpreter comes to at each step of the program
/// that it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sites {
    pub addrs: Vec<u64>,
    /// Only when this thread comes there.
    pub thread: Option<ThreadId>,
    /// Only where this is so: what isn't doesn't leave translated code.
    pub gate: Option<Gate>,
    /// As those of a [`Break`].
    pub conditions: Vec<Vec<u8>>,
}

/// A register plus a displacement is in one of some ranges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// As instructions number it.
    pub register: u8,
    pub displacement: i32,
    /// First value, and the first one behind.
    pub ranges: Vec<(u64, u64)>,
}

/// Stop before the instruction there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Break {
    pub addr: u64,
    /// Only when this thread comes there.
    pub thread: Option<ThreadId>,
    /// gdb's agent expressions: stop if one is true, or if there is none. One that can't be evaluated
    /// (memory that isn't there) counts as true, as gdb would stop and say so.
    pub conditions: Vec<Vec<u8>>,
}

/// Stop when memory is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    pub addr: u64,
    pub len: u64,
    pub kind: WatchKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchKind {
    /// The contents change, by an instruction or an event's effect. Writing the same again doesn't count.
    Change,
    Read,
    /// Read or written, changed or not.
    Access,
}

/// Which events to stop at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// System calls, on their way in and out.
    pub calls: Calls,
    /// Bit n - 1 for signal n: before its handler begins, or it kills.
    pub signals: u64,
    /// After a thread was made, and before one ends.
    pub threads: bool,
    pub forks: bool,
    pub exec: bool,
    /// Before every event that does something.
    pub all: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Calls {
    #[default]
    None,
    All,
    These(Vec<u32>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// First word of the worker that was started: it stands right after the stream's first event.
    Ready,
    Forked {
        pid: i32,
    },
    Stopped(Stopped),
    Threads(Vec<Thread>),
    /// `None`: there is no such thread.
    Registers(Option<Box<Registers>>),
    Memory(Vec<u8>),
    Mappings(Vec<Mapping>),
    /// Nothing where there is no code.
    Listing(String),
    /// Some records, as one encoder wrote them.
    State(Vec<u8>),
    Done,
    Excursion(Excursion),
    /// A command can't be carried out, in words.
    Refused(String),
    /// The replay isn't what was recorded: this worker is of no more use.
    Diverged(Box<Diverged>),
    /// `complete`: all of it was seen, and nothing was too much.
    Observed {
        stopped: Stopped,
        complete: bool,
    },
    /// What probes have told, in the order in which they did. The answer follows.
    Told(Vec<probing::Told>),
    /// How far a long [`Command::Advance`] has come, every half second or so.
    Progress {
        work: u64,
    },
}

/// The last place that agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Events done.
    pub event: u64,
    /// Nothing was otherwise before so many ticks since.
    pub ticks: u64,
    /// The log can't be read behind them.
    pub unreadable: bool,
}

/// Where and how a replay isn't what was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diverged {
    pub stream: StreamId,
    /// Events that agreed and are done, with their effects.
    pub event: u64,
    /// Ticks since then, where it was noticed; none if it was at the event's effects.
    pub ticks: Option<u64>,
    pub thread: ThreadId,
    /// Of the instruction where it was noticed.
    pub pc: u64,
    pub sp: u64,
    pub expected: String,
    pub found: String,
    /// The log can't be read any further: nobody knows what was recorded.
    pub unreadable: bool,
}

impl Diverged {
    pub fn limit(&self) -> Limit {
        Limit {
            event: self.event,
            ticks: self.ticks.unwrap_or(u64::MAX),
            unreadable: self.unreadable,
        }
    }
}

impl fmt::Display for Diverged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stream, event) = (self.stream, self.event);
        if self.unreadable {
            let found = &self.found;
            return write!(
                f,
                "the recording can be read to event {event} of stream {stream} only: {found}"
            );
        }
        write!(
            f,
            "the replay diverges from the recording behind event {event} of stream {stream}: expected {}, \
             found {}",
            self.expected, self.found
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    pub why: Why,
    pub at: At,
    /// With [`Take::Last`]: the last stop on the way.
    pub last: Option<Hit>,
}

/// Where a worker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    pub event: u64,
    pub ticks: u64,
    /// Instructions since the tick, where that is known: it isn't after a breakpoint. The mark tells.
    pub steps: Option<u64>,
    pub pc: u64,
    pub sp: u64,
    pub thread: ThreadId,
    /// A measure of the way from the beginning: ticks of all threads, and something for each event.
    pub work: u64,
    /// The next event is due right here: what the thread stands on is a system call, a fault, a turn's end.
    pub next: Option<Next>,
}

/// The event that happens next, when the thread has come to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Next {
    Call {
        nr: u32,
    },
    Signal {
        signo: i32,
        fault: bool,
    },
    Switch {
        to: ThreadId,
    },
    Exit {
        status: i32,
    },
    Killed {
        signo: i32,
        fault: bool,
    },
    Exec,
    Fork {
        pid: i32,
    },
    /// Anything else.
    Other,
    /// The log ends here, though the program didn't.
    CutOff,
    /// From here on the replay isn't what was recorded ([`Command::Limit`]).
    Diverges,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    Goal,
    /// The end of the stream; see [`At::next`].
    End,
    /// Before the instruction at a breakpoint.
    Break,
    /// After the instruction or event that touched the memory; `last` isn't set, `hit` is.
    Watch(Hit),
    /// At an event, see [`EventStop`].
    Event(EventStop),
    Interrupted,
    /// A [`Goal::Mark`] isn't on the way, or the goal lies behind.
    Missed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventStop {
    /// Stands before the call.
    CallIn {
        nr: u32,
    },
    /// Stands behind it.
    CallOut {
        nr: u32,
    },
    /// Stands before the handler begins, or the death.
    Signal {
        signo: i32,
    },
    /// Behind its making.
    NewThread {
        thread: ThreadId,
    },
    /// Before its end.
    EndedThread {
        thread: ThreadId,
    },
    /// Stands behind the fork.
    Forked {
        pid: i32,
    },
    /// Stands before the exec.
    Exec,
    Other,
}

/// Something on the way that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// Before the instruction; of an event, where the thread stands for it.
    pub at: Mark,
    /// Known if found at an event.
    pub steps: Option<u64>,
    pub thread: ThreadId,
    pub kind: HitKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HitKind {
    Break,
    /// Number of the watch, the address touched, whether an event's effect did it, and if it was a read.
    Watch {
        watch: u32,
        addr: u64,
        by_event: bool,
        read: bool,
    },
    Event(EventStop),
}

/// Neighbouring granules of memory, by [`Shadow::granule`](crate::cache::shadow::Shadow::granule): the first and how
/// many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granules {
    pub first: u32,
    pub count: u32,
}

/// An access of a thread to memory that several touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touch {
    pub thread: ThreadId,
    /// Events done, and ticks since.
    pub event: u64,
    pub ticks: u64,
    /// Instructions since then that the engine answered without an event.
    pub passed: u32,
    pub pc: u64,
    pub addr: u64,
    pub len: u32,
    pub write: bool,
    /// Atomic for other processors too.
    pub locked: bool,
}

/// A function whose calls are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionEntry {
    /// Its first instruction, with the return address on top of the stack.
    pub pc: u64,
    /// It comes there again by itself: a loop. Otherwise who comes there was called.
    pub loops: bool,
    /// The instruction at which its arguments are where debugging information says.
    pub known: u64,
    /// There this register (as instructions number them) and offset make the address of the return address.
    pub register: u8,
    pub offset: i64,
}

/// What threads do to each other, as far as it is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interactions {
    /// First instructions of functions.
    pub functions: Vec<Watchful>,
    /// Accesses to this memory are told, as soon as there are two threads. Without it, those of atomic instructions to
    /// any memory.
    pub accesses: Option<Vec<Granules>>,
    /// Every access to that memory with its value, from the beginning, also of a single thread and if it is repeated.
    pub every: bool,
}

/// A function whose calls and returns are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watchful {
    pub pc: u64,
    /// What happens inside isn't told.
    pub quiet: bool,
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSeen {
    /// Number among those that were asked for.
    pub function: u32,
    pub thread: ThreadId,
    /// Where its arguments are known; its first instruction, if it didn't come there.
    pub at: Mark,
    /// It came there.
    pub known: bool,
    /// The canonical frame address: the stack pointer behind the return.
    pub frame: u64,
    /// The return address.
    pub back: u64,
    /// So many of the calls that are looked for are under way around it.
    pub depth: u32,
    /// In the order in which instructions number them.
    pub registers: [u64; 16],
    /// The lower halves of xmm0 to xmm7.
    pub vectors: [u64; 8],
    /// Memory: parts of the frame, and what registers with arguments point to.
    pub pieces: Vec<Piece>,
    pub left: LeftBy,
}

/// What calls are looked for in a stretch, and which of them are under way when it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallsAsked {
    pub functions: Vec<FunctionEntry>,
    pub under_way: CallsTold,
}

/// Calls in the order in which they began, and which of them are under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallsTold {
    pub seen: Vec<CallSeen>,
    /// Of each thread, outermost first.
    pub open: Vec<CallOpen>,
}

/// A call under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallOpen {
    pub thread: ThreadId,
    /// Number among those seen.
    pub call: u32,
    /// The mapping that its stack is in: a handler's may be another.
    pub stack: u64,
}

/// Memory as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    pub addr: u64,
    pub bytes: Vec<u8>,
}

/// How a call has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeftBy {
    /// It hasn't, or nobody saw it.
    Nothing,
    Return {
        /// Behind the call.
        at: Mark,
        rax: u64,
        rdx: u64,
        /// The lower halves of xmm0 and xmm1.
        xmm: [u64; 2],
        /// What rax points to.
        pieces: Vec<Piece>,
    },
    /// A long jump or an exception.
    Unwound,
}

/// A change of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSeen {
    /// Before the instruction; of an event, where the thread stood for it.
    pub at: Mark,
    pub thread: ThreadId,
    /// An event did it: a system call, another process.
    pub by_event: bool,
    /// None: it couldn't be read.
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    pub number: ThreadId,
    pub tid: i32,
    pub name: String,
    pub pc: u64,
    pub sp: u64,
    /// The number of the system call that it waits in.
    pub waits: Option<u32>,
}

/// In the order of [`crate::context::Regs::words`]; `extended` is an XSAVE area of 832 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registers {
    pub words: [u64; 20],
    pub extended: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// PROT_READ, PROT_WRITE, PROT_EXEC.
    pub prot: u32,
    pub shared: bool,
    /// What is mapped: a path as the guest knew it, `[heap]`, `[stack]`, `[vdso]`, or nothing.
    pub name: String,
    pub offset: u64,
    /// The file's copy in the recording, by its name there.
    pub copy: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excursion {
    pub why: ExcursionEnd,
    pub pc: u64,
    pub thread: ThreadId,
    /// What it wrote to stdout and stderr, as much as fits.
    pub output: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExcursionEnd {
    Break,
    /// Memory that is watched was touched.
    Watch {
        watch: u32,
    },
    /// It would have been killed, or a handler would have begun.
    Signal {
        signo: i32,
        addr: u64,
    },
    /// It called exit, or exec.
    Exited,
    /// It waits for something that can't happen: other threads stand still.
    Waits {
        nr: u32,
    },
    /// The ticks are used up.
    Ticks,
    Interrupted,
}

impl Command {
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data")
    }

    pub fn decode(bytes: &[u8]) -> Option<Command> {
        postcard::from_bytes(bytes).ok()
    }
}

impl Reply {
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data")
    }

    pub fn decode(bytes: &[u8]) -> Option<Reply> {
        postcard::from_bytes(bytes).ok()
    }
}

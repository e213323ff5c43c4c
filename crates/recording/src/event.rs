//! What is written down of a run: the vocabulary of recordings.
//!
//! A recording has *streams*. A stream is the life of one address space: it begins with an exec or
//! a fork and ends with an exec, an exit or a death. All guest threads of a process run on one
//! executor, so the events of a stream are in order, and between two of them exactly one guest
//! thread runs.
//!
//! An *event* says where it happened (how many ticks after the one before it, and for those in the
//! midst of computing how many single instructions after that). Its *effects*, what it changed of
//! registers and memory, follow it. Replaying means: run to the event, check, apply its effects.

use std::fmt;

use crate::deadlock::Waiter;

/// Number of a guest thread in its stream, counted from 0 and never used again.
pub type ThreadId = u32;
/// Number of a stream in its recording, counted from 1.
pub type StreamId = u32;

/// Number of a process in its recording, counted from 1 in the order in which they began. A pid may be that of
/// several: in nested pid namespaces, or one after the other.
pub type ProcessId = u32;

/// How many general registers an event can change: sixteen, then rip, rflags, fs and gs bases.
pub const REGISTERS: usize = 20;

/// A piece of memory contents in one effect is at most this long; more takes several.
pub const LONGEST_PIECE: usize = 32 << 10;
/// No event or effect is longer, encoded.
pub const LONGEST_RECORD: usize = 64 << 10;

/// Where something happened: so many ticks after the event before it, and that many single
/// instructions after that tick (none of which makes another).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub ticks: u64,
    pub steps: u32,
}

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub ticks: u64,
    pub nr: u32,
    pub args: [u64; 6],
    pub end: End,
    /// What it wrote went to the recorded program's own stdout or stderr.
    pub output: Option<Output>,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The value for rax.
    Returned(i64),
    /// It was undone for a signal's sake; the thread stands before it again.
    Restarted,
    /// The thread waits; its [`Event::Resumed`] says what came of it.
    Waits,
    /// All registers were set (sigreturn), the effects say how; or it doesn't return.
    Replaced,
}

/// Output to the standard streams that the recording began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// 1 or 2.
    pub to: u8,
    /// Its place among all outputs of all processes; 0 if it goes out in pieces, each an [`Effect::Output`].
    pub order: u64,
}

/// Why a signal came where it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// From outside, or another thread: at a tick, some instructions after it, or at the event
    /// before.
    Outside,
    /// The instruction that the thread stands on raised it.
    Fault,
}

/// Who has touched shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Recordings of the first format don't say.
    Unknown,
    /// The engine, for the call or instruction that the thread stands on.
    Engine,
    /// The instruction at `pc`; the page begins at `page`.
    Instruction { pc: u64, page: u64 },
}

/// Instructions whose answer isn't in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    Cpuid,
    TimeStamp,
    Random,
    /// Anything else that the engine executes itself.
    Other,
    /// One that needs no answer (`pause`, `xgetbv`, segment bases) and is told only because the next
    /// event happened right behind it. `passed`: so many of them were passed since the last event or
    /// tick, whichever was later.
    Quiet {
        passed: u32,
    },
}

/// How a stream begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub origin: Origin,
    pub pid: i32,
    pub parent_pid: i32,
    /// Thread 0 of the stream.
    pub tid: i32,
    pub exe: Vec<u8>,
    pub argv: Vec<Vec<u8>>,
    /// Nanoseconds since the recording began.
    pub time: u64,
}

/// Where a stream's first state comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A program was started: the effects of the start are all there is. `before` is the stream of
    /// the same process that ended in the exec, 0 for the first one of a recording.
    Exec { before: StreamId },
    /// The process was forked: the state is the parent's at its [`Event::Forked`] for this stream.
    Fork { parent: StreamId },
    /// The recording begins in the midst of the process's life: the events up to the first [`Event::Check`] are the
    /// stream's *prologue*, which restores its whole state. Before that it had so many events, and ran so many ticks
    /// since the last. `stack` is where its program's arguments and environment begin, as exec put them; 0 if nobody
    /// knows.
    Midst { events: u64, ticks: u64, stack: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The first of every stream.
    Started(Start),
    Call(Call),
    /// The current thread's waiting call ended. `None`: it is undone, the thread stands before it
    /// again.
    Resumed {
        result: Option<i64>,
        /// The thread of this process that woke it, where one did.
        by: Option<u32>,
    },
    Instruction {
        ticks: u64,
        what: Instruction,
    },
    /// The current thread has touched memory that it shares with other processes, by the instruction or
    /// call that it stands on: its effects are what others did to that memory. It isn't executed yet.
    Shared {
        ticks: u64,
        touch: Touch,
    },
    /// A handler begins; the effects are its frame and registers. `info` is the siginfo.
    Signal {
        place: Place,
        cause: Cause,
        signo: i32,
        info: &'a [u8],
    },
    /// Another thread goes on.
    Switched {
        place: Place,
        to: ThreadId,
    },
    /// The current thread has made a thread; a [`Effect::Registers`] that follows is in difference to
    /// the maker's.
    NewThread {
        thread: ThreadId,
        tid: i32,
    },
    EndedThread {
        thread: ThreadId,
    },
    /// The process was forked; the child's stream begins with this state.
    Forked {
        ticks: u64,
        stream: StreamId,
        pid: i32,
    },
    /// Without effects: a place at which replay must stand at exactly these ticks; the registers
    /// (and, where given, all writable memory) have this checksum.
    Check {
        place: Place,
        registers: u64,
        memory: Option<u64>,
    },
    /// The process is about to exec: if it succeeds, this is the stream's last event.
    Exec {
        ticks: u64,
    },
    /// The last event of a stream that ended by itself.
    Exited {
        ticks: u64,
        status: i32,
    },
    /// The last event of a stream that ended by a signal.
    Killed {
        place: Place,
        cause: Cause,
        signo: i32,
    },
    /// What the thread would execute from here on was left out, so many instructions: the effects are what they did, and
    /// it goes on behind them. Only in execution slices.
    Leap {
        place: Place,
        left_out: u64,
    },
    /// Answers that translated code took without leaving the cache, before the next event.
    Values(&'a [u8]),
    /// Nanoseconds since the recording began.
    Time(u64),
    /// For people: what wasn't recorded faithfully, and why.
    Note(&'a str),
    /// No thread can ever go on: these wait for each other.
    Deadlock(Vec<Waiter>),
    /// In the prologue of a stream that begins in the midst: what is to be known of the current thread besides its
    /// registers, which are the effects. `waits` is the call that it waits in.
    State {
        ticks: u64,
        name: &'a [u8],
        waits: Option<Call>,
    },
}

/// What an event is to the thread that runs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It did something, or something was done to it: a call, a signal.
    Whole = 0,
    /// A call that waits: done when it is resumed.
    Begun = 1,
    /// The call that waited is over.
    Finished = 2,
    /// Another thread goes on.
    Switch = 3,
    /// Others are told of: new and ended threads, a fork; or it stands before the same instruction still.
    None = 4,
    /// Happens together with the event before it: nobody ever stands in between.
    Silent = 5,
}

impl Event<'_> {
    /// How far after the event before it.
    #[inline]
    pub fn place(&self) -> Place {
        self.lies().1
    }

    /// The same event where a part of the way to it is done already; none if it doesn't lie behind that. What counts quiet
    /// instructions since a tick has to lie behind the next tick.
    pub fn nearer(&self, done: Place) -> Option<Event<'_>> {
        if done == Place::default() {
            return Some(self.clone());
        }
        let behind = |place: Place| {
            let ticks = place.ticks.checked_sub(done.ticks)?;
            let steps = match ticks {
                0 => place.steps.checked_sub(done.steps)?,
                _ => place.steps,
            };
            Some(Place { ticks, steps })
        };
        let fewer = |ticks: u64| ticks.checked_sub(done.ticks);
        Some(match *self {
            Event::Call(call) => Event::Call(Call {
                ticks: fewer(call.ticks)?,
                ..call
            }),
            Event::Instruction { ticks, what } => {
                let ticks = fewer(ticks)?;
                match what {
                    Instruction::Quiet { .. } if ticks == 0 => return None,
                    what => Event::Instruction { ticks, what },
                }
            }
            Event::Shared { ticks, touch } => Event::Shared {
                ticks: fewer(ticks)?,
                touch,
            },
            // Those that the thread comes to by itself have no single instructions.
            Event::Signal {
                place,
                cause: Cause::Fault,
                signo,
                info,
            } => Event::Signal {
                place: Place {
                    ticks: fewer(place.ticks)?,
                    ..place
                },
                cause: Cause::Fault,
                signo,
                info,
            },
            Event::Killed {
                place,
                cause: Cause::Fault,
                signo,
            } => Event::Killed {
                place: Place {
                    ticks: fewer(place.ticks)?,
                    ..place
                },
                cause: Cause::Fault,
                signo,
            },
            Event::Signal {
                place,
                cause,
                signo,
                info,
            } => Event::Signal {
                place: behind(place)?,
                cause,
                signo,
                info,
            },
            Event::Killed {
                place,
                cause,
                signo,
            } => Event::Killed {
                place: behind(place)?,
                cause,
                signo,
            },
            Event::Switched { place, to } => Event::Switched {
                place: behind(place)?,
                to,
            },
            Event::Check {
                place,
                registers,
                memory,
            } => Event::Check {
                place: behind(place)?,
                registers,
                memory,
            },
            Event::Leap { place, left_out } => Event::Leap {
                place: behind(place)?,
                left_out,
            },
            Event::Forked { ticks, stream, pid } => Event::Forked {
                ticks: fewer(ticks)?,
                stream,
                pid,
            },
            Event::Exec { ticks } => Event::Exec {
                ticks: fewer(ticks)?,
            },
            Event::Exited { ticks, status } => Event::Exited {
                ticks: fewer(ticks)?,
                status,
            },
            // Nothing is executed before these.
            Event::Started(_)
            | Event::State { .. }
            | Event::Resumed { .. }
            | Event::NewThread { .. }
            | Event::EndedThread { .. }
            | Event::Values(_)
            | Event::Time(_)
            | Event::Note(_)
            | Event::Deadlock(_) => return None,
        })
    }

    /// Whether it happens where it is by itself, and ticks are counted on behind it.
    pub fn is_beside(&self) -> bool {
        matches!(
            self,
            Event::Values(_) | Event::Time(_) | Event::Note(_) | Event::Deadlock(_)
        )
    }

    /// The same where so many of the ticks before it aren't counted; none if there aren't so many.
    pub fn earlier(mut self, by: u64) -> Option<Self> {
        let ticks = match &mut self {
            Event::Call(call) => &mut call.ticks,
            Event::Instruction { ticks, .. }
            | Event::Shared { ticks, .. }
            | Event::Forked { ticks, .. }
            | Event::Exec { ticks }
            | Event::Exited { ticks, .. } => ticks,
            Event::Signal { place, .. }
            | Event::Switched { place, .. }
            | Event::Check { place, .. }
            | Event::Leap { place, .. }
            | Event::Killed { place, .. } => &mut place.ticks,
            _ => return (by == 0).then_some(self),
        };
        *ticks = ticks.checked_sub(by)?;
        Some(self)
    }

    /// What it is to the thread that runs there, and how far after the event before it.
    #[inline]
    pub fn lies(&self) -> (Deed, Place) {
        let at = |ticks: u64| Place { ticks, steps: 0 };
        match self {
            Event::Started(_) | Event::State { .. } => (Deed::None, Place::default()),
            Event::Call(call) => match call.end {
                End::Waits => (Deed::Begun, at(call.ticks)),
                _ => (Deed::Whole, at(call.ticks)),
            },
            Event::Resumed { .. } => (Deed::Finished, Place::default()),
            Event::Instruction { ticks, .. } => (Deed::Whole, at(*ticks)),
            Event::Signal { place, .. } => (Deed::Whole, *place),
            Event::Switched { place, .. } => (Deed::Switch, *place),
            Event::NewThread { .. } | Event::EndedThread { .. } => (Deed::None, Place::default()),
            Event::Shared { ticks, .. } | Event::Forked { ticks, .. } | Event::Exec { ticks } => {
                (Deed::None, at(*ticks))
            }
            Event::Exited { ticks, .. } => (Deed::Whole, at(*ticks)),
            Event::Killed { place, .. } | Event::Leap { place, .. } => (Deed::Whole, *place),
            Event::Check { place, .. } => (Deed::Silent, *place),
            Event::Values(_) | Event::Time(_) | Event::Note(_) | Event::Deadlock(_) => {
                (Deed::Silent, Place::default())
            }
        }
    }
}

/// What an event changed. Effects follow their event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effect<'a> {
    Memory {
        addr: u64,
        bytes: &'a [u8],
    },
    /// Bit n of `mask` set: register n has a new value, the next in `values`.
    Registers {
        mask: u32,
        values: [u64; REGISTERS],
    },
    /// Vector and x87 state, XSAVE format; empty for the state that exec gives.
    Extended(&'a [u8]),
    /// A change of mappings, see [`crate::maps`].
    Map(&'a [u8]),
    /// So many bytes more of what the current thread's waiting call writes have gone out, at this place among
    /// all outputs.
    Output {
        order: u64,
        bytes: u64,
    },
}

impl fmt::Debug for Effect<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Memory { addr, bytes } => write!(f, "memory {addr:#x}+{:#x}", bytes.len()),
            Effect::Registers { mask, values } => write!(f, "registers {mask:#x} {values:x?}"),
            Effect::Extended(bytes) => write!(f, "extended {}", bytes.len()),
            Effect::Map(bytes) => write!(f, "map {bytes:02x?}"),
            Effect::Output { order, bytes } => write!(f, "output {bytes} at {order}"),
        }
    }
}

/// One or the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    Event(Event<'a>),
    Effect(Effect<'a>),
}

//! Which memory the threads of a program share. In: a recording, and how much to look at. Out: accesses to memory
//! that at least two threads touch and at least one of them writes, in the order in which they happened.
//!
//! What the kernel reads and writes in system calls isn't among them.

use std::time::Duration;

use clew_recording::event::ThreadId;
use clew_recording::script::Point;

use crate::{Position, Result, Timeline};

/// How much to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TouchLimits {
    /// So many accesses are told at most.
    pub accesses: usize,
    pub time: Duration,
}

/// One access to memory that at least two threads touch and at least one writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Touch {
    pub thread: ThreadId,
    /// In the thread's own life: the tick or system call before the instruction. `steps` is 0.
    pub point: Point,
    pub pc: u64,
    pub addr: u64,
    pub len: u32,
    /// An instruction that reads and writes the same memory is one access that writes.
    pub write: bool,
    /// A lock prefix, or `xchg` with memory.
    pub locked: bool,
    /// In the stream: the tick or event before the instruction. `steps` is 0.
    pub position: Position,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touches {
    /// In the order in which they happened.
    pub touches: Vec<Touch>,
    /// Nothing was left out: neither time nor number were a limit, and no instruction came so often that only its
    /// first and last times are told.
    pub complete: bool,
}

impl Timeline {
    /// Accesses to shared memory, from where the second thread begins to the end. The timeline stays where it is.
    pub fn touches(&mut self, _limits: &TouchLimits) -> Result<Touches> {
        todo!()
    }
}

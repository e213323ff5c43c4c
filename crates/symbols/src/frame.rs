//! Frames of a stack as a person reads them: what unwinding and debugging information found in,
//! gdb's style of line out.

use crate::{Die, Line, Module, Registers};
use std::fmt;
use std::sync::Arc;

/// A call in progress: a function, or a call that the compiler inlined into one.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The instruction that runs next in this frame; an inlined frame has that of the function
    /// it was inlined into.
    pub pc: u64,
    /// The address to look things up by (process's terms): `pc` where the frame was interrupted,
    /// and a byte before it where it waits for a call to return.
    pub lookup: u64,
    /// Process address = module address + bias.
    pub module: Option<Arc<Module>>,
    pub bias: u64,
    /// Demangled and qualified.
    pub function: Option<String>,
    /// How far into the function `pc` is, if the function's start is known.
    pub offset: Option<u64>,
    /// The function's (or inlined call's) entry, where its variables are.
    pub die: Option<Die>,
    pub line: Option<Line>,
    /// Inlined into the next frame of the stack, with which it shares registers and CFA.
    pub inlined: bool,
    /// The frame that the kernel made to call a signal handler.
    pub is_signal: bool,
    /// Found without unwind information, and so perhaps wrong.
    pub guessed: bool,
    /// The canonical frame address: the stack pointer before the call of this function.
    pub cfa: Option<u64>,
    /// As they are in this frame, for its variables.
    pub registers: Registers,
}

/// A stack, innermost frame first.
#[derive(Clone, Debug)]
pub struct Stack {
    pub frames: Vec<Frame>,
    pub end: StackEnd,
}

/// Why a stack ends where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackEnd {
    /// The outermost function: nobody called it.
    Outermost,
    /// There is no unwind information, and nothing that looks like a caller.
    Lost,
    /// Memory that the caller's registers lie in can't be read, or unwind information is damaged.
    Unreadable,
    /// The stack leads back to a frame it already has.
    Cycle,
    /// There are more frames than were asked for.
    Limit,
}

/// `main (a.c:12)`, with what is known: gdb's way, without frame number and arguments.
impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_signal {
            return write!(f, "<signal handler called>");
        }
        // As in gdb, the address says that this isn't the start of a line.
        let starts = self.pc == self.lookup && self.line.as_ref().is_some_and(|line| line.is_stmt);
        if !self.inlined && !starts {
            write!(f, "0x{:016x} in ", self.pc)?;
        }
        write!(f, "{}", self.function.as_deref().unwrap_or("??"))?;
        match (&self.line, &self.module) {
            (Some(line), _) => write!(f, " at {}:{}", line.file, line.line)?,
            (None, Some(module)) => write!(f, " from {}", module.name().display())?,
            (None, None) => {}
        }
        if self.guessed {
            write!(f, " (guessed: no unwind information)")?;
        }
        Ok(())
    }
}

/// A line per frame, numbered as gdb numbers them.
impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, frame) in self.frames.iter().enumerate() {
            writeln!(f, "#{number:<3}{frame}")?;
        }
        match self.end {
            StackEnd::Outermost => Ok(()),
            StackEnd::Lost => writeln!(f, "(no unwind information for what called this)"),
            StackEnd::Unreadable => writeln!(f, "(the stack can't be read further)"),
            StackEnd::Cycle => writeln!(f, "(the stack leads back to itself: it is damaged)"),
            StackEnd::Limit => writeln!(f, "(more frames follow)"),
        }
    }
}

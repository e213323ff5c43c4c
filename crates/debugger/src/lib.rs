//! Source-level debugging of a recorded program: calls that return data, for whoever shows it.
//!
//! A [`Debugger`] stands at a position of one program's life. It tells where that is, threads, stacks, scopes and values
//! as trees; goes from line to line, both ways; and answers questions about the whole recording: all calls of a function,
//! all changes of a variable, all output. Nothing here prints, and a front end needs no debugging logic of its own.
//!
//! * `debugger`: open, where, threads, stacks
//! * `values`: scopes and value trees, expressions
//! * `breakpoints`, `going`: where to stop; on to the next stop, and back
//! * `whatif`: values that somebody sets, in a copy
//! * `watching`: memory to stop at
//! * `targets`: what a line calls, and into one of these calls
//! * `statements`, `stepping`: the lines of a function; from line to line, into and out of calls
//! * `condition`: what is asked in the midst of a run: is it this frame?
//! * `images`: which files were mapped when
//! * `changes`: the last change of a variable, and all of them
//! * `calls`, `tree`: all calls of a function; all calls within a call
//! * `executions`, `coverage`: all times that a line was executed, with values there; how often all lines were
//! * `probing`: what debug code that runs in a replay needs to know, and running it
//! * `logs`: what it wrote into files and to services
//! * `happenings`: output, threads' births and ends, exceptions
//! * `code`: memory, instructions
//! * `beneath`: what analyses of whole recordings stand on

#![forbid(unsafe_code)]

mod beneath;
mod breakpoints;
mod calls;
mod changes;
mod code;
mod condition;
mod coverage;
mod debugger;
mod executions;
mod going;
mod happenings;
mod images;
mod logs;
mod probing;
mod statements;
mod stepping;
mod targets;
mod tree;
mod values;
mod watching;
mod whatif;

pub use beneath::SeenCalls;
pub use breakpoints::{Breakpoint, BreakpointId, Spot, Wanted};
pub use calls::{Call, Calls, Left, Named};
pub use changes::{Change, Changes};
pub use code::{Code, Executed};
pub use coverage::LineCount;
pub use debugger::{Debugger, Frame, Here, Location, Process, Stack, ThreadInfo};
pub use executions::{Execution, Executions};
pub use going::{Stop, StopReason};
pub use happenings::{Happening, Written};
pub use images::Loaded;
pub use logs::Logged;
pub use stepping::Step;
pub use targets::StepTarget;
pub use tree::Tree;
pub use values::{Node, Scope, ScopeKind, ValueId};
pub use watching::{Touch, Watchpoint, WatchpointId};
pub use whatif::Settable;

pub use clew_timeline::{Direction, Position, Settings};

/// Why something couldn't be done, and what to do instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Process(String),
    #[error(
        "{0:?} is no position; one is EVENT, EVENT+TICKS or EVENT+TICKS+STEPS, as in 1204+77+3"
    )]
    Position(String),
    #[error("there is no thread {0} here; ask for the threads of this position")]
    Thread(u32),
    #[error("the stack has no frame {0} here; ask for the stack")]
    Frame(usize),
    /// A value of another position, or none at all.
    #[error("that value isn't of this position; ask for the scopes or the expression again")]
    Stale,
    #[error("there is no breakpoint {0}; ask for all breakpoints")]
    Breakpoint(u32),
    #[error("no function is called {name}{}", meant(.like))]
    Function { name: String, like: Vec<String> },
    #[error("no code is known for {file}:{line}{}", why_no_line(*.known))]
    Line {
        file: String,
        line: u32,
        known: bool,
    },
    #[error("{0}")]
    Expression(String),
    #[error("{0}")]
    Place(String),
    #[error(
        "{function} has {count} statements, more than a step can look at; set a breakpoint where you want to go"
    )]
    Statements { function: String, count: usize },
    #[error("nobody called this function: there is nothing to return to; continue instead")]
    Outermost,
    #[error("debugging information can't be read: {0}")]
    Symbols(#[from] clew_symbols::Error),
    #[error(transparent)]
    Timeline(#[from] clew_timeline::Error),
    #[error("the recording can't be read: {0}")]
    Recording(String),
}

pub type Result<T> = std::result::Result<T, Error>;

/// Servers with threads hold a debugger: this doesn't compile if it is tied to one of them.
const _: () = {
    const fn may_be_passed_on<T: Send>() {}
    may_be_passed_on::<Debugger>();
    may_be_passed_on::<Error>();
};

impl Error {
    /// Somebody wanted the work to end: nothing went wrong.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, Error::Timeline(clew_timeline::Error::Interrupted))
    }
}

fn meant(like: &[String]) -> String {
    match like {
        [] => "; a name may have its namespaces, or not".into(),
        [one] => format!("; did you mean {one}?"),
        [all @ .., last] => format!("; did you mean {} or {last}?", all.join(", ")),
    }
}

fn why_no_line(known: bool) -> &'static str {
    match known {
        true => ": no line of that file from there on has any",
        false => ": no program or library of the recording was compiled from such a file with -g",
    }
}

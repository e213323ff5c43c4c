//! Probes: a user's debug code inside an exact replay of a recorded program.
//!
//! In: debug code, in a copy of the program's source or by place. Out: a module that a worker runs in its replay, and what
//! happened to it in words. The recorded program isn't rebuilt: names in debug code are bound to the recorded image by its
//! debugging information, everything else to the module's own libc.
//!
//! * `regions`: debug code in a copy of the source
//! * `places`: where a piece of debug code runs
//! * `rewrite`: which names in it are the program's
//! * `bind`, `locate`, `types`: what they are there, as C
//! * `watched`: memory that call-backs watch
//! * `compile`, `module`: an executable of its own, and what the worker is told of it
//! * `failures`: what went wrong, with the line of debug code

#![forbid(unsafe_code)]

mod bind;
mod compile;
mod failures;
mod locate;
mod module;
mod places;
mod prepare;
mod regions;
mod rewrite;
mod types;
mod watched;

use std::path::PathBuf;

pub use failures::describe;
pub use module::How;
pub use prepare::{Prepared, prepare};

/// The instructions that a place means: FILE:LINE, FUNCTION, or FUNCTION$ for its returns.
pub fn addresses(debugger: &mut clew_debugger::Debugger, place: &str) -> Result<Vec<u64>, Error> {
    Ok(places::addresses(debugger, place)?.0)
}

/// Debug code, and how it is to be compiled and run.
#[derive(Clone, Debug)]
pub struct Request {
    /// Copies of the program's source files, with regions.
    pub sources: Vec<PathBuf>,
    /// Statements, and where they run: FILE:LINE, FUNCTION or FUNCTION$.
    pub places: Vec<(String, String)>,
    /// Files with functions and globals of debug code's own, and call-backs.
    pub with: Vec<PathBuf>,
    /// More options for the compiler.
    pub options: Vec<String>,
    /// Places at which a variable isn't there are left out, rather than an error.
    pub where_available: bool,
    /// Where the replay is to begin: watched expressions mean what they do there.
    pub from: String,
    pub how: How,
}

/// Why debug code can't be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Region(String),
    #[error("{0}")]
    Place(String),
    #[error("{path} can't be read: {1}", path = .0.display())]
    Source(PathBuf, std::io::Error),
    #[error("{path} can't be written: {1}", path = .0.display())]
    Scratch(PathBuf, std::io::Error),
    #[error(
        "{0} isn't there, and probes with statements are compiled: install gcc and libc6-dev (for C++: g++); \
         --print EXPRESSIONS needs none"
    )]
    NoCompiler(&'static str),
    #[error("the probe can't be compiled:\n{0}")]
    Compiler(String),
    #[error("{}", .0.join("\n"))]
    Names(Vec<String>),
    #[error(transparent)]
    Debugger(#[from] clew_debugger::Error),
}

//! Recordings for agents: tools of the Model Context Protocol in, calls of [`clew_debugger`] and commands of clew between, small
//! complete answers out. Nothing about debugging is decided here.
//!
//! * `server`: the protocol, by the `rmcp` crate
//! * `tools`: which tools there are, and what each takes
//! * `answers`: what each of them says
//! * `pages`: answers in parts that are not too long

#![forbid(unsafe_code)]

mod answers;
mod pages;
mod server;
mod tools;

use clew_debugger::Debugger;

/// What a command of clew printed.
pub struct Printed {
    pub status: i32,
    pub output: String,
    pub errors: String,
}

/// What a server needs of the program that it is part of.
pub trait Host: Send {
    /// A debugger on a recording (none: the latest) and process, and the recording's name; or why there is none.
    fn open(
        &mut self,
        recording: Option<&str>,
        process: Option<&str>,
    ) -> Result<(Debugger, String), String>;

    /// Runs a command of clew to its end.
    fn command(&mut self, words: &[String]) -> Result<Printed, String>;
}

/// Serves an agent on standard input and output until it leaves. Programs are run only where that is allowed.
pub fn serve(host: Box<dyn Host>, may_record: bool) -> Result<(), String> {
    server::serve(host, may_record)
}

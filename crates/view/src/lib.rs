//! Recordings in a browser: a page's questions in, calls of [`clew_debugger`] and commands of clew between, data out. Nothing about
//! debugging is decided here, and nothing is asked of the internet.
//!
//! * `http`: who may ask, and the files of the page
//! * `jobs`: questions that take a while: how far they are, and that nobody wants the answer any more
//! * `question`: what can be asked
//! * `answers`, `commands`: what is answered by a debugger; by clew's own commands
//! * `desks`: the debuggers of a recording's processes
//! * `overview`: the log as lanes over time, in as much detail as fits on a screen
//! * `notebook`: what people write down

#![forbid(unsafe_code)]

mod answers;
mod commands;
mod desks;
mod http;
mod jobs;
mod notebook;
mod overview;
mod question;

use std::net::TcpListener;
use std::process::Child;

use clew_debugger::{Debugger, Process};
use clew_recording::reader::Recording;

/// What a server needs of the program that it is part of.
pub trait Host: Send + Sync {
    /// The recording, and its name.
    fn recording(&self) -> (&Recording, &str);

    /// A debugger on a process of it; or why there is none.
    fn open(&self, process: Process) -> Result<Debugger, String>;

    /// Starts a command of clew, its output and errors piped.
    fn command(&self, words: &[String]) -> Result<Child, String>;
}

/// Serves a page until the process is ended. Only who knows the token is answered.
pub fn serve(host: Box<dyn Host>, listener: TcpListener, token: String) -> Result<(), String> {
    http::serve(host, listener, token)
}

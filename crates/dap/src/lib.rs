//! Recordings in editors: messages of the Debug Adapter Protocol in and out, calls of [`clew_debugger`] between them. Nothing
//! about debugging is decided here.
//!
//! * `wire`: messages, as they go over a pipe or a socket
//! * `flags`: what is said in the midst of long work: pause, cancel, progress
//! * `session`: one editor and one recording; which request is whose
//! * `stops`: breakpoints of all kinds
//! * `printing`: log points, over the whole recording at once
//! * `going`: continue, steps, goto, both ways
//! * `looking`: threads, stacks, scopes, values, memory, code, sources
//! * `setting`: values that a person sets, in a copy
//! * `console`: what a person types: expressions, and commands that begin with `clew`

#![forbid(unsafe_code)]

mod console;
mod flags;
mod going;
mod looking;
mod printing;
mod session;
mod setting;
mod stops;
mod wire;

use std::io::{Read, Write};

use clew_debugger::Debugger;
use serde::Deserialize;

/// Which recording to open.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attach {
    /// Its name or folder; none: the latest.
    pub recording: Option<String>,
    /// Which of its processes: a pid, or its number in the recording as `clew ls` shows it.
    pub process: Option<String>,
    /// Which program of one that has run several, from 1 on.
    pub exec: Option<usize>,
    /// Where to stand first: a position, `start` or `end`.
    pub at: Option<String>,
    /// Stand in main first, rather than go on to the first breakpoint.
    pub stop_on_entry: Option<bool>,
    pub token: Option<String>,
}

/// What to record.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Launch {
    pub program: String,
    pub args: Vec<String>,
    pub cwd: Option<String>,
    pub env: std::collections::BTreeMap<String, Option<String>>,
    /// Flags for `clew record`, such as `--sched random`.
    pub record_flags: Vec<String>,
    pub stop_on_entry: Option<bool>,
    pub at: Option<String>,
    pub token: Option<String>,
}

/// What a recorded program wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Standard,
    Error,
}

/// What a session needs of the program that it is part of.
pub trait Host {
    /// A debugger on a recording, or why there is none.
    fn open(&mut self, attach: &Attach) -> Result<Debugger, String>;

    /// Records a program, telling what it writes; the recording's name.
    fn record(
        &mut self,
        launch: &Launch,
        told: &mut dyn FnMut(Output, &str),
    ) -> Result<String, String>;
}

/// Serves one editor until it leaves. `token`, if there is one, is what it must say first.
pub fn serve(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    host: Box<dyn Host>,
    token: Option<String>,
) -> std::io::Result<()> {
    session::serve(Box::new(input), Box::new(output), host, token)
}

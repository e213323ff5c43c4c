//! Servers for editors and agents: what they need of the command line. In: names of recordings, programs. Out: debuggers,
//! new recordings; errors as text, for whoever asked.

pub mod dap;
pub mod mcp;
pub mod view;

use std::ffi::{CStr, CString, OsStr};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use crate::recordings::{self, NotOpened};
pub use crate::replaying::Replaying;
use crate::{record, replaying};
use clew_debugger::{Debugger, Process};

/// The environment that this command was started with.
#[derive(Clone)]
pub struct Environment(Vec<CString>);

impl Environment {
    pub fn new(envp: &[&CStr]) -> Environment {
        Environment(envp.iter().map(|&one| one.to_owned()).collect())
    }

    pub fn strings(&self) -> Vec<&CStr> {
        self.0.iter().map(CString::as_c_str).collect()
    }
}

/// A debugger on a recording, and the recording's name.
pub fn open(
    envp: &[&CStr],
    word: Option<&str>,
    process: Process,
    replaying: &Replaying,
) -> Result<(Debugger, String), String> {
    let opened = recordings::open(envp, word.map(OsStr::new)).map_err(|why| match why {
        NotOpened::Unreadable(why) | NotOpened::Unfit(why) => why,
    })?;
    let settings = replaying.settings(envp)?;
    let debugger = replaying::debugger(opened.recording, process, settings);
    let debugger = debugger.map_err(|error| error.to_string())?;
    Ok((debugger, opened.name))
}

/// A program to record.
pub struct Recorded<'a> {
    pub program: &'a str,
    pub args: &'a [String],
    pub folder: Option<&'a str>,
    /// Variables to set, or to take away.
    pub variables: Vec<(&'a str, Option<&'a str>)>,
    pub flags: &'a [String],
}

/// Records a program that gets no input, telling what it writes line by line (`true`: to standard error). The recording's
/// name.
pub fn record(
    envp: &[&CStr],
    wanted: &Recorded,
    told: &mut dyn FnMut(bool, &str),
) -> Result<String, String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let base = Path::new(wanted.program).file_name();
    let base = base.map_or("program".into(), |name| name.to_string_lossy().into_owned());
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{base}-{}-{number}", std::process::id());
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["record", "--name", &name])
        .args(wanted.flags)
        .arg("--")
        .arg(wanted.program)
        .args(wanted.args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(folder) = wanted.folder {
        command.current_dir(folder);
    }
    for (variable, value) in &wanted.variables {
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
    }
    let mut child = command
        .spawn()
        .map_err(|error| format!("clew can't be started again: {error}"))?;
    let (send, lines) = mpsc::channel();
    let mut readers = Vec::new();
    let pipes: [(bool, Option<Box<dyn Read + Send>>); 2] = [
        (false, child.stdout.take().map(|pipe| Box::new(pipe) as _)),
        (true, child.stderr.take().map(|pipe| Box::new(pipe) as _)),
    ];
    for (is_error, pipe) in pipes {
        let (Some(pipe), send) = (pipe, send.clone()) else {
            continue;
        };
        readers.push(std::thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut line = Vec::new();
            while pipe.read_until(b'\n', &mut line).is_ok_and(|got| got > 0) {
                let text = String::from_utf8_lossy(&line).into_owned();
                line.clear();
                if send.send((is_error, text)).is_err() {
                    return;
                }
            }
        }));
    }
    drop(send);
    let mut complaint = String::new();
    for (is_error, line) in lines {
        if is_error {
            complaint.clone_from(&line);
        }
        told(is_error, &line);
    }
    for reader in readers {
        let _ = reader.join();
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    match recordings::find_exactly(envp, OsStr::new(&name)) {
        Ok(_) => Ok(name),
        Err(_) => Err(format!(
            "{} couldn't be recorded ({status}): {}",
            wanted.program,
            complaint.trim_end()
        )),
    }
}

/// A word that only who started the server knows.
pub fn token() -> Result<String, String> {
    let word = || record::random().map_err(|error| format!("no random numbers: {error}"));
    Ok(format!("{:016x}{:016x}", word()?, word()?))
}

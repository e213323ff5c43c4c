//! `clew view`: a recording in a browser. In: its name. Out: a page on a port of this machine, and its address.

use std::ffi::{CStr, OsString};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};

use super::{Environment, Replaying};
use crate::recordings::{self, NotOpened};
use crate::text;
use clew_debugger::{Debugger, Process};
use clew_recording::reader::Recording;
use clew_view::Host;

#[derive(Debug, clap::Args)]
pub struct View {
    /// Name of the recording, the beginning of one, or its folder (default: the latest)
    #[arg(value_name = "REC")]
    pub recording: Option<OsString>,

    /// Only print the address; open no browser
    #[arg(long)]
    pub no_open: bool,

    /// The port (default: any that is free)
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub port: u16,

    #[command(flatten)]
    pub replaying: Replaying,
}

pub const HELP: &str = "\
Prints the address of a page and opens it in a browser: threads over time, source, stacks and values at any moment, output that leads to \
what wrote it, histories of variables, and the analyses of other commands with links into the recording (docs/view.md). The page \
is served to this machine alone, to whoever has the whole address with its token, and needs no internet. Ctrl-C ends it.

Exit status: 1 if the recording can't be read, 2 for a wrong command line, 125 if it can't be replayed here.

Examples:
  clew view
  clew view jobs-1 --no-open
";

struct Page {
    environment: Environment,
    replaying: Replaying,
    recording: Recording,
    name: String,
}

impl Host for Page {
    fn recording(&self) -> (&Recording, &str) {
        (&self.recording, &self.name)
    }

    fn open(&self, process: Process) -> Result<Debugger, String> {
        let folder = self.recording.folder().display().to_string();
        let strings = self.environment.strings();
        let (debugger, _) = super::open(&strings, Some(&folder), process, &self.replaying)?;
        Ok(debugger)
    }

    fn command(&self, words: &[String]) -> Result<Child, String> {
        let mut command = Command::new("/proc/self/exe");
        command
            .args(words)
            .env("CLEW_PROGRESS", "lines")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn();
        child.map_err(|error| format!("clew can't be started again: {error}"))
    }
}

pub fn view(line: &View, envp: &[&CStr]) -> i32 {
    let opened = match recordings::open(envp, line.recording.as_deref()) {
        Ok(opened) => opened,
        Err(why) => return NotOpened::failed(&why),
    };
    let served = super::token().and_then(|token| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, line.port));
        let listener = listener.map_err(|error| format!("port {}: {error}", line.port))?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let url = format!("http://{address}/?token={token}");
        println!("{url}");
        if !line.no_open {
            browse(&url);
        }
        let page = Page {
            environment: Environment::new(envp),
            replaying: line.replaying.clone(),
            recording: opened.recording,
            name: opened.name,
        };
        clew_view::serve(Box::new(page), listener, token)
    });
    match served {
        Ok(()) => 0,
        Err(why) => text::failed(&why),
    }
}

/// Opens the user's browser, where there is one; the address is printed in any case.
fn browse(url: &str) {
    let opened = Command::new("xdg-open")
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match opened {
        // It ends as soon as the browser has the address.
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(_) => eprintln!("clew: no browser could be started: open that address in one"),
    }
}

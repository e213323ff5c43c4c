//! `clew ctl`: what is being recorded now. In: a recording or one of its processes, and what is wanted. Out: how it stands, or
//! a recording of what there is.

use std::ffi::{CStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use clew_recording::meta::Meta;
use clew_recording::{log, pack, summary, tail};

use crate::{recordings, text};

pub const HELP: &str = "\
REC is a recording's name or its folder, or the pid of the program that is being recorded.

Exit status: 0; 1 if there is no such recording, or it can't be written.

Examples:
  clew ctl server status
  clew ctl 4711 save slow-request";

#[derive(Debug, Args)]
pub struct Ctl {
    /// The recording, or the pid of the recorded program
    #[arg(value_name = "REC|PID")]
    recording: OsString,

    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// How it stands: running or not, what is kept, how much there is
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a recording of what `clew record --keep-last` has kept so far
    Save {
        /// What to call it
        name: String,
    },
}

pub fn ctl(line: &Ctl, envp: &[&CStr]) -> i32 {
    let done = find(&line.recording, envp).and_then(|folder| match &line.what {
        What::Status { json } => status(&folder, *json),
        What::Save { name } => crate::tail::save_as(&folder, name, false, envp),
    });
    match done {
        Ok(()) => 0,
        Err(error) => {
            text::failed(&error);
            1
        }
    }
}

/// The folder that is meant. A pid is that of a program that is being recorded.
fn find(word: &OsString, envp: &[&CStr]) -> Result<PathBuf, String> {
    let pid = word.to_str().and_then(|word| word.parse::<i32>().ok());
    if let (Some(pid), Ok(place)) = (pid, recordings::place(envp)) {
        let all = place.list().map_err(|error| error.to_string())?;
        let is = |folder: &PathBuf| {
            summary::is_being_written(folder) && Meta::read(folder).is_ok_and(|m| m.pid == pid)
        };
        if let Some(found) = all.into_iter().find(is) {
            return Ok(found);
        }
    }
    recordings::find(envp, Some(word)).map_err(|error| error.to_string())
}

/// Of the parts of a recording, their states included.
fn size(folder: &Path) -> u64 {
    let all = std::fs::read_dir(tail::folder(folder))
        .into_iter()
        .flatten();
    let meta = all.flatten().filter_map(|entry| entry.metadata().ok());
    meta.map(|meta| meta.len()).sum()
}

fn status(folder: &Path, json: bool) -> Result<(), String> {
    let meta = Meta::read(folder).map_err(|error| error.to_string())?;
    let running = summary::is_being_written(folder);
    let parts = tail::is_in_parts(folder);
    let bytes = match parts {
        true => size(folder),
        false => folder.join(log::NAME).metadata().map_or(0, |m| m.len()),
    };
    let whole = pack::size(folder).bytes;
    let name = recordings::name(folder);
    if json {
        let all = serde_json::json!({
            "name": name,
            "path": folder.to_string_lossy(),
            "argv": meta.argv,
            "pid": meta.pid,
            "started_ns": meta.started_ns,
            "running": running,
            "tail": parts,
            "log_bytes": bytes,
            "bytes": whole,
        });
        text::print(&format!("{all}\n"));
        return Ok(());
    }
    let state = match (running, parts) {
        (true, true) => "is being recorded, the last part is kept",
        (true, false) => "is being recorded, all of it is kept",
        (false, true) => {
            "whoever recorded it is gone; clew save makes a recording of what there is"
        }
        (false, false) => "has ended",
    };
    let text = format!(
        "{name}: {state}; process {}, {}, since {}; log {}, {} on disk",
        meta.pid,
        text::command(&meta.argv),
        text::when(meta.started_ns),
        text::size(bytes),
        text::size(whole.max(bytes)),
    );
    text::print(&format!("{}\n", text::plain(&text)));
    Ok(())
}

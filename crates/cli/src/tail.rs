//! `clew record --keep-last`, `clew save`: recordings of which only the last part is kept. In: a folder with parts. Out: a
//! recording like any other, in its place when the program has ended, or beside it while it runs.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clew_recording::meta::{Meta, Region};
use clew_recording::reader::FILES;
use clew_recording::tail::{self, Gathered, Limit};
use clew_recording::{log, pack, summary};

use crate::recordings;
use crate::text;

pub const HELP: &str = "\
REC is a recording that is being made with `clew record --keep-last`, by its name or folder; by default the latest. What \
there is of it becomes a recording of its own, and the program doesn't notice. If whoever recorded it was killed, this \
makes a recording of what is left.

Exit status: 0; 1 if there is no such recording or it can't be written.

Examples:
  clew record --keep-last 64M -n server ./server &
  clew save slow-request server
  clew debug slow-request";

#[derive(Debug, Args)]
pub struct Save {
    /// What to call the new recording
    #[arg(value_name = "NAME")]
    name: String,

    /// The recording that is being made (default: the latest)
    #[arg(value_name = "REC")]
    recording: Option<OsString>,

    /// Print what was made as JSON
    #[arg(long)]
    json: bool,
}

/// `64M`, `2G`, `30s`, `5min`, `1h`.
pub fn limit(text: &str) -> Result<Limit, String> {
    let wrong = || format!("{text:?} is no amount: 64M and 2G are sizes, 30s, 5min and 1h times");
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text[..text.len() - unit.len()]
        .parse()
        .map_err(|_| wrong())?;
    let bytes = |shift: u32| number.checked_mul(1 << shift).map(Limit::Bytes);
    let time = |secs: u64| {
        let secs = number.checked_mul(secs)?;
        Some(Limit::Time(Duration::from_secs(secs)))
    };
    let limit = match unit {
        "K" | "KiB" => bytes(10),
        "M" | "MiB" => bytes(20),
        "G" | "GiB" => bytes(30),
        "s" => time(1),
        "min" => time(60),
        "h" => time(3600),
        _ => None,
    };
    let nothing = |limit: &Limit| matches!(limit, Limit::Bytes(0) | Limit::Time(Duration::ZERO));
    limit.filter(|limit| !nothing(limit)).ok_or_else(wrong)
}

pub fn save(line: &Save, envp: &[&CStr]) -> i32 {
    let of = recordings::find(envp, line.recording.as_deref()).map_err(|e| e.to_string());
    match of.and_then(|of| save_as(&of, &line.name, line.json, envp)) {
        Ok(()) => 0,
        Err(error) => {
            text::failed(&error);
            1
        }
    }
}

/// Makes a recording of that name of what another has kept so far.
pub fn save_as(of: &Path, name: &str, json: bool, envp: &[&CStr]) -> Result<(), String> {
    let other = recordings::name(of);
    if !tail::is_in_parts(of) {
        return Err(format!(
            "{other} isn't being recorded with --keep-last; it is a recording already, or records everything"
        ));
    }
    let place = recordings::place(envp).map_err(|error| error.to_string())?;
    let new = place.create(name).map_err(|error| error.to_string())?;
    let made = fill(of, &new).inspect_err(|_| {
        let _ = fs::remove_dir_all(&new);
    })?;
    let bytes = pack::size(&new).bytes;
    if json {
        let all = serde_json::json!({
            "name": name,
            "path": new.to_string_lossy(),
            "of": other,
            "streams": made.streams,
            "running": made.running,
            "bytes": bytes,
        });
        text::print(&format!("{all}\n"));
        return Ok(());
    }
    let what = format!("saved: {name}, the tail of {other}, {}", text::size(bytes));
    text::print(&format!("{}\n", text::plain(&what)));
    Ok(())
}

/// Makes a new recording of the parts of another.
fn fill(of: &Path, new: &Path) -> Result<Gathered, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let file = new.join(log::NAME);
    let made = tail::gather(&tail::folder(of), &file).map_err(|error| words(&error))?;
    if made.streams.is_empty() {
        return Err("there is nothing of it yet".into());
    }
    crate::cut::copy_files(of, new, &made.files).map_err(|error| words(&error))?;
    let mut meta = Meta::read(of).map_err(|error| words(&error))?;
    meta.name = recordings::name(new);
    meta.region = region(&recordings::name(of), &made);
    meta.write(new).map_err(|error| words(&error))?;
    Ok(made)
}

/// Where the first process was when what is kept of it begins.
fn region(of: &str, made: &Gathered) -> Option<Region> {
    let midst = made.midst.as_ref()?;
    Some(Region {
        of: of.into(),
        from: midst.events.to_string(),
        to: None,
        pid: midst.start.pid,
        prologue: midst.prologue,
    })
}

/// Puts a recording in the place of its parts, when nobody writes them any more. What was kept of how much, in words.
pub fn finish(folder: &Path) -> Result<String, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    if summary::is_being_written(folder) {
        let name = recordings::name(folder);
        return Err(format!(
            "processes of {name} are still running, and recorded; clew save NAME {name} makes a recording of what there is"
        ));
    }
    let parts = tail::folder(folder);
    let new = folder.join(".log.gathered");
    let _ = fs::remove_file(&new);
    let made = tail::gather(&parts, &new).map_err(|error| {
        let _ = fs::remove_file(&new);
        words(&error)
    })?;
    let mut meta = Meta::read(folder).map_err(|error| words(&error))?;
    meta.region = region("a run of which the end is kept", &made);
    meta.write(folder).map_err(|error| words(&error))?;
    fs::rename(&new, folder.join(log::NAME)).map_err(|error| words(&error))?;
    remove(&parts);
    if let Ok(files) = fs::metadata(folder.join(FILES)) {
        let mut mode = files.permissions();
        mode.set_mode(0o700);
        let _ = fs::set_permissions(folder.join(FILES), mode);
    }
    drop_files(folder, &made.files);
    Ok(match &made.midst {
        Some(midst) => format!(
            "from {} on, the last {}",
            midst.events,
            text::size(log_size(folder))
        ),
        None if made.whole => "all of it".into(),
        None => format!("the last {}", text::size(log_size(folder))),
    })
}

fn log_size(folder: &Path) -> u64 {
    let log: PathBuf = folder.join(log::NAME);
    log.metadata().map_or(0, |meta| meta.len())
}

/// A copy of a process may still put its state there.
fn remove(parts: &Path) {
    for _ in 0..100 {
        if fs::remove_dir_all(parts).is_ok() || !parts.exists() {
            return;
        }
    }
}

/// Copies of files that only the parts needed that are gone.
fn drop_files(folder: &Path, needed: &BTreeSet<String>) {
    for entry in fs::read_dir(folder.join(FILES))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        if !name.to_str().is_some_and(|name| needed.contains(name)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        assert_eq!(limit("64M"), Ok(Limit::Bytes(64 << 20)));
        assert_eq!(limit("30s"), Ok(Limit::Time(Duration::from_secs(30))));
        assert_eq!(limit("5min"), Ok(Limit::Time(Duration::from_secs(300))));
        for wrong in ["", "64", "0M", "64m", "x", "99999999999999999999G", "-1s"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}

//! A recording without the values of environment variables. In: a recording's folder. Out: another one, beside it, that
//! replays, and which values had to stay.
//!
//! The environment is part of a program's memory. What a program reads of it has to stay, or its replay isn't what was
//! recorded; so the result is replayed, and variables without which it diverges are found by halving.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::arguments::Engine;
use crate::{replay, run, variables};
use clew_engine::replay::tree::Request;
use clew_recording::environment::{self, Variable};
use clew_recording::event::Origin;
use clew_recording::log;
use clew_recording::meta;
use clew_recording::reader::{Recording, StreamInfo};

/// So often a way to strip it is tried.
const MOST_TRIES: usize = 200;

/// A copy of a recording; goes when it is dropped.
pub struct Stripped {
    folder: PathBuf,
    /// Variables whose values are still in it: the program doesn't replay without them.
    kept: BTreeSet<String>,
    /// Those that were overwritten, but the program read or received the same text.
    elsewhere: BTreeSet<String>,
    stripped: usize,
}

impl Stripped {
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What became of the environment, as the end of a sentence.
    pub fn told(&self) -> String {
        let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
        let mut out = format!(
            "the values of {} variables of its environment are overwritten",
            self.stripped
        );
        if !self.kept.is_empty() {
            out += &format!(
                "; it doesn't replay without these, which are still in it: {}",
                list(&self.kept)
            );
        }
        if !self.elsewhere.is_empty() {
            out += &format!(
                "; the program read or received these values elsewhere too, where they are left: {}",
                list(&self.elsewhere)
            );
        }
        out + "; memory isn't compared in its replays"
    }
}

impl Drop for Stripped {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub fn without_environment(folder: &Path, envp: &[&CStr]) -> Result<Stripped, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let recording = Recording::open(folder).map_err(|error| text(&error))?;
    let midst = |info: &StreamInfo| matches!(info.start.origin, Origin::Midst { .. });
    if recording.streams().iter().any(midst) {
        return Err(
            "it begins in the midst of a run, where nobody knows any more which memory was the environment: pack \
             the recording that it was cut out of with --strip-env, unpack that, and cut it"
                .into(),
        );
    }
    let found = environment::of(&recording).map_err(|error| text(&error))?;
    let elsewhere = environment::elsewhere(&recording, &found).map_err(|error| text(&error))?;
    let names: BTreeSet<String> = found.iter().map(|variable| variable.name.clone()).collect();
    let copy = copy_of(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut trying = Trying {
        recording: &recording,
        variables: &found,
        envp,
        tries: 0,
        stripped: Stripped {
            folder: copy,
            kept: BTreeSet::new(),
            elsewhere,
            stripped: 0,
        },
    };
    if !trying.replays(&names)? {
        return Err(
            "it diverges even with its environment: clew report makes a file for whoever looks for the cause, \
             without it"
                .into(),
        );
    }
    let kept = trying.needed(&names)?;
    // The last try may have been another one.
    if !trying.replays(&kept)? {
        return Err("no way was found to strip it that replays each time; pack it without --strip-env, or not at all".into());
    }
    let Trying { mut stripped, .. } = trying;
    stripped.stripped = names.len() - kept.len();
    stripped.elsewhere.retain(|name| !kept.contains(name));
    stripped.kept = kept;
    Ok(stripped)
}

/// A new folder beside a recording's, with everything but its log.
fn copy_of(folder: &Path) -> std::io::Result<PathBuf> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let copy = folder.with_file_name(format!(".{name}.strip.{}", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&copy)?;
    match copy_into(folder, &copy) {
        Ok(()) => Ok(copy),
        Err(error) => {
            let _ = fs::remove_dir_all(&copy);
            Err(error)
        }
    }
}

/// Puts everything of a recording but its log into an empty folder.
pub fn copy_into(folder: &Path, copy: &Path) -> std::io::Result<()> {
    fs::copy(folder.join(meta::FILE), copy.join(meta::FILE))?;
    let files = folder.join("files");
    if !files.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new()
        .mode(0o700)
        .create(copy.join("files"))?;
    for entry in fs::read_dir(files)? {
        let entry = entry?;
        let to = copy.join("files").join(entry.file_name());
        // They are never written to.
        if fs::hard_link(entry.path(), &to).is_err() {
            fs::copy(entry.path(), &to)?;
        }
    }
    Ok(())
}

struct Trying<'a> {
    recording: &'a Recording,
    variables: &'a [Variable],
    envp: &'a [&'a CStr],
    tries: usize,
    stripped: Stripped,
}

impl Trying<'_> {
    /// Strips all but these; whether the result replays.
    fn replays(&mut self, keep: &BTreeSet<String>) -> Result<bool, String> {
        self.tries += 1;
        let folder = &self.stripped.folder;
        let file = folder.join(log::NAME);
        let _ = fs::remove_file(&file);
        let stripped = environment::strip(self.recording, self.variables, keep, &file);
        stripped.map_err(|error| error.to_string())?;
        let recording = Recording::open(folder).map_err(|error| error.to_string())?;
        let variable = |name: &str| variables::get(self.envp, name);
        let request = Request::all(run::options(&Engine::default(), &variable)?);
        let what = format!("replaying without {}", self.variables.len() - keep.len());
        let outcome = replay::shown(&recording, &request, &what)?;
        match (&outcome.unable[..], &outcome.lost[..]) {
            ([], []) => Ok(outcome.divergences.is_empty()),
            ([why, ..], _) => Err(why.clone()),
            _ => Ok(false),
        }
    }

    /// Which of these it doesn't replay without.
    fn needed(&mut self, names: &BTreeSet<String>) -> Result<BTreeSet<String>, String> {
        let mut needed = BTreeSet::new();
        // Those that aren't decided are kept while others are tried.
        let mut open: Vec<Vec<String>> = vec![names.iter().cloned().collect()];
        while let Some(group) = open.pop() {
            if group.is_empty() {
                continue;
            }
            let others = open.iter().flatten().cloned();
            let mut keep: BTreeSet<String> = others.collect();
            keep.extend(needed.iter().cloned());
            if self.tries < MOST_TRIES && self.replays(&keep)? {
                continue;
            }
            match group.len() {
                1 => needed.extend(group),
                _ if self.tries >= MOST_TRIES => needed.extend(group),
                len => {
                    let (left, right) = group.split_at(len / 2);
                    open.push(left.to_vec());
                    open.push(right.to_vec());
                }
            }
        }
        Ok(needed)
    }
}

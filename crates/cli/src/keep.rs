//! `clew record --keep-if`, `--from`, `--to`: a recording stays if its run ended in a certain way, or a region of it. In:
//! what is to be kept. Out: the program's own status.
//!
//! The run is a child's. This process waits for it, judges, and of a tree of processes keeps those that failed and what
//! their replays need; or cuts the region out.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use clew_hunt::condition::Condition;
use clew_hunt::measure::wait_for_writer;
use clew_hunt::run::{Ended, Outcome};
use clew_recording::cut;
use clew_recording::event::StreamId;
use clew_recording::meta::Meta;
use clew_recording::reader::{FILES, Recording};
use clew_recording::summary::{self, End, Summary};
use clew_recording::{landings, log, tail};

use crate::arguments::Record;
use crate::record::{CANT_RECORD, note_latest, record_into};
use crate::{outcome, recordings, text};

/// What is kept.
#[derive(Clone, Debug)]
pub enum KeepIf {
    /// A run that failed; of its processes, those that did.
    Fail,
    Condition(Condition),
}

impl FromStr for KeepIf {
    type Err = String;

    fn from_str(text: &str) -> Result<KeepIf, String> {
        match text {
            "fail" => Ok(KeepIf::Fail),
            "timeout" => Err("a recorded program has no time limit; `clew hunt` gives one".into()),
            text => text.parse().map(KeepIf::Condition),
        }
    }
}

/// The process that runs the program, for the signals that are passed on.
static CHILD: AtomicI32 = AtomicI32::new(0);

pub fn record(line: &Record, envp: &[&CStr]) -> i32 {
    let folder = match crate::record::folder_for(line, envp) {
        Ok(folder) => folder,
        Err(error) => {
            text::failed(&error);
            return CANT_RECORD;
        }
    };
    if line.keep_last.is_some() {
        // `clew save` is about it, while it runs.
        note_latest(line, envp, &folder);
    }
    // SAFETY: this process has one thread, so the child can go on as usual.
    let child = unsafe { libc::fork() };
    if child == 0 {
        return record_into(line, envp, &folder);
    }
    if child < 0 {
        let error = std::io::Error::last_os_error();
        let _ = fs::remove_dir_all(&folder);
        text::failed(&format!("can't fork: {error}"));
        return CANT_RECORD;
    }
    let ended = wait(child);
    if folder.join(log::NAME).exists() {
        wait_for_writer(&folder);
    }
    let mut tail = None;
    if line.keep_last.is_some() && tail::is_in_parts(&folder) {
        match crate::tail::finish(&folder) {
            Ok(text) => tail = Some(text),
            Err(error) => {
                eprintln!("clew: {}", text::plain(&error));
                return status_of(&ended);
            }
        }
    }
    match judge(line, &folder, &ended) {
        Ok(Some(why)) => {
            if line.from.is_some() || line.to.is_some() {
                region(line, &folder);
            }
            kept(line, envp, &folder, &why, tail.as_deref());
        }
        Ok(None) => {
            let _ = fs::remove_dir_all(&folder);
        }
        // Nobody knows, so nothing is thrown away.
        Err(error) => {
            let name = recordings::name(&folder);
            eprintln!("clew: {}; {name} is kept", text::plain(&error));
        }
    }
    status_of(&ended)
}

/// The program's own.
fn status_of(ended: &Ended) -> i32 {
    match *ended {
        Ended::Signal(signo) => outcome::die_by(signo),
        Ended::Exit(status) => status,
        _ => CANT_RECORD,
    }
}

/// Waits for the program's end. What a terminal sends goes to both; what only this process is sent is passed on.
fn wait(child: i32) -> Ended {
    extern "C" fn pass_on(signo: i32) {
        // SAFETY: sends a signal to a child of ours that nobody has waited for.
        unsafe { libc::kill(CHILD.load(Ordering::Relaxed), signo) };
    }
    CHILD.store(child, Ordering::Relaxed);
    // SAFETY: the handler makes one call that may be made in one; the structure is whole.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = pass_on as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        for signo in [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
            libc::sigaction(signo, &raw const action, std::ptr::null_mut());
        }
        for signo in [libc::SIGINT, libc::SIGQUIT] {
            libc::signal(signo, libc::SIG_IGN);
        }
    }
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return Ended::Exit(CANT_RECORD);
        }
    }
    match libc::WIFSIGNALED(status) {
        true => Ended::Signal(libc::WTERMSIG(status)),
        false => Ended::Exit(libc::WEXITSTATUS(status)),
    }
}

/// Why the recording is to be kept, if it is.
fn judge(line: &Record, folder: &Path, ended: &Ended) -> Result<Option<String>, String> {
    let summary = match summary::of(folder) {
        Ok(summary) => summary,
        // It never began, which was said.
        Err(_) => return Ok(None),
    };
    // The recorder gave up: what there is of it may tell why.
    if let Ended::Exit(status @ CANT_RECORD) = ended
        && summary.end != (End::Exited { status: *status })
    {
        return Ok(Some("the recording broke off".into()));
    }
    let ended = match &summary.deadlock {
        Some(text) => Ended::Deadlock(text.clone()),
        None => ended.clone(),
    };
    let mut outcome = Outcome {
        ended,
        stdout: Vec::new(),
        stderr: Vec::new(),
        took: Duration::ZERO,
        race: None,
    };
    if line.keep_if.is_empty() {
        return Ok(Some(outcome.ended.to_string()));
    }
    let mut printed = false;
    for condition in &line.keep_if {
        let conditions = match condition {
            KeepIf::Fail => Condition::usual(),
            KeepIf::Condition(condition) => vec![condition.clone()],
        };
        for condition in conditions {
            if matches!(condition, Condition::Race) {
                let race = clew_hunt::races::first(&this(), folder);
                outcome.race = race.map_err(|error| error.to_string())?;
            } else if !condition.is_about_end() && !std::mem::replace(&mut printed, true) {
                (outcome.stdout, outcome.stderr) = output(folder)?;
            }
            if let Some(why) = condition.holds(&outcome)? {
                return Ok(Some(why));
            }
        }
    }
    Ok(None)
}

/// The command itself, which answers by running again.
fn this() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into())
}

/// What the program printed, told by a replay: it had its own terminal or pipes.
fn output(folder: &Path) -> Result<(Vec<u8>, Vec<u8>), String> {
    let replay = Command::new(this())
        .arg("replay")
        .arg(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("what it printed isn't known: {error}"))?;
    match replay.status.code() {
        Some(crate::replay::DIVERGED | crate::replay::CANT_REPLAY) => {
            let said = String::from_utf8_lossy(&replay.stderr).into_owned();
            Err(format!("what it printed isn't known: {}", said.trim()))
        }
        _ => Ok((replay.stdout, replay.stderr)),
    }
}

/// Puts the region that is asked for in the place of the whole recording; says so if there is none.
fn region(line: &Record, folder: &Path) {
    if let Err(error) = cut_out(line, folder) {
        let name = recordings::name(folder);
        let text = format!("no region was cut out, all of {name} is kept: {error}");
        eprintln!("clew: {}", text::plain(&text));
    }
}

fn cut_out(line: &Record, folder: &Path) -> Result<(), String> {
    let name = recordings::name(folder);
    let new = folder.with_file_name(format!(".{name}.region.{}", std::process::id()));
    let exe = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut command = Command::new(exe);
    command.arg("cut").arg(folder).arg("-o").arg(&new);
    for (word, when) in [("--from", &line.from), ("--to", &line.to)] {
        if let Some(when) = when {
            command.arg(word).arg(when);
        }
    }
    let made = command.stdin(Stdio::null()).output();
    let made = made.map_err(|error| error.to_string())?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        let said = said.trim();
        return Err(said.strip_prefix("clew: ").unwrap_or(said).to_owned());
    }
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let mut meta = Meta::read(&new).map_err(|error| words(&error))?;
    meta.name = name;
    if let Some(region) = &mut meta.region {
        region.of = "a run that isn't kept".into();
    }
    meta.write(&new).map_err(|error| words(&error))?;
    fs::remove_dir_all(folder).map_err(|error| words(&error))?;
    fs::rename(&new, folder).map_err(|error| words(&error))
}

/// Says that a recording is kept, and how it is opened.
fn kept(line: &Record, envp: &[&CStr], folder: &Path, why: &str, tail: Option<&str>) {
    note_latest(line, envp, folder);
    let name = match line.output {
        Some(_) => folder.to_string_lossy().into_owned(),
        None => recordings::name(folder),
    };
    let mut more = tail.map_or(String::new(), |tail| format!(", {tail}"));
    let whole = line.from.is_none() && line.to.is_none();
    if whole && line.keep_if.iter().any(|what| matches!(what, KeepIf::Fail)) {
        match reduce(folder) {
            Ok(0) => {}
            Ok(dropped) => {
                let dropped = text::counted(dropped, "process");
                more += &format!(", without {dropped} that ended well");
            }
            Err(error) => more += &format!(" (all processes: {error})"),
        }
    }
    let text = format!("kept {name}: {why}{more}; clew debug {name}, clew why {name}");
    eprintln!("clew: {}", text::plain(&text));
}

/// Leaves only the processes that failed, the program itself, and what they need; how many went.
fn reduce(folder: &Path) -> Result<u64, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    // Something that the program left running is still recorded.
    if summary::is_being_written(folder) {
        return Ok(0);
    }
    let summary = summary::of(folder).map_err(|error| words(&error))?;
    let wanted = failed(&summary);
    let recording = Recording::open(folder).map_err(|error| words(&error))?;
    let new = folder.join(".log.kept");
    let made = cut::select(&recording, &wanted, &new).map_err(|error| {
        let _ = fs::remove_file(&new);
        words(&error)
    })?;
    let gone = summary.streams.len() - made.streams.len();
    if gone == 0 {
        let _ = fs::remove_file(&new);
        return Ok(0);
    }
    let left: BTreeSet<u32> = summary
        .streams
        .iter()
        .filter(|stream| made.streams.contains(&stream.id))
        .map(|stream| stream.process)
        .collect();
    fs::rename(&new, folder.join(log::NAME)).map_err(|error| words(&error))?;
    for name in [summary::FILE, landings::FILE] {
        let _ = fs::remove_file(folder.join(name));
    }
    for name in recording.file_names().map_err(|error| words(&error))? {
        if !made.files.contains(&name) {
            let _ = fs::remove_file(folder.join(FILES).join(name));
        }
    }
    Ok(u64::from(summary.processes()) - left.len() as u64)
}

/// The streams of processes that failed, and of the first.
fn failed(summary: &Summary) -> BTreeSet<StreamId> {
    let bad = |end: &End| match end {
        End::Exited { status } => *status != 0,
        End::Exec => false,
        _ => true,
    };
    let streams = &summary.streams;
    let processes: BTreeSet<u32> = streams
        .iter()
        .filter(|stream| stream.process == 1 || bad(&stream.end))
        .map(|stream| stream.process)
        .collect();
    streams
        .iter()
        .filter(|stream| processes.contains(&stream.process))
        .map(|stream| stream.id)
        .collect()
}

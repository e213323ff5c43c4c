//! Recordings of interpreters in the language that they run: the prompt of `clew debug`, `clew watch --lang`, `clew last`.

use std::ffi::{CStr, OsStr};
use std::path::PathBuf;

use clap::Args;
use clew_personality::{
    Commands, Error, Flip, Frame, LANGUAGES, Searched, Session, Sought, prompt,
};
use clew_recording::event::StreamId;
use clew_recording::process::{self, ProcessName};
use clew_recording::reader::Recording;
use clew_recording::summary::{self, End};
use clew_timeline::{Settings, Target, Timeline};
use serde_json::{Value, json};

use crate::arguments::{Debug, Engine, Watch};
use crate::progress::Progress;
use crate::recordings::{self, Opened, work};
use crate::replay::{CANT_REPLAY, DIVERGED};
use crate::{run, text, variables};

/// There is no such line.
const NOT_FOUND: i32 = 1;
/// The command line, or the expression, is wrong.
const WRONG: i32 = 2;

#[derive(Debug, Args)]
pub struct Last {
    /// The recording (default: the latest), and the expression
    #[arg(value_name = "REC EXPR", num_args = 1..=2, required = true)]
    pub words: Vec<String>,

    /// The language of the recorded program: python, perl (default: found by itself)
    #[arg(long, value_name = "LANGUAGE", value_parser = LANGUAGES)]
    pub lang: Option<String>,

    /// Before this (default: the end)
    #[arg(long, value_name = "POS", value_parser = clew_gdb::parse_target)]
    pub at: Option<Target>,

    #[command(flatten)]
    pub which: crate::answers::arguments::Which,
}

pub const LAST_HELP: &str = "\
EXPR is an expression of the language in which the recorded program is written. The line is found that last changed its \
value, with the stack there and the value before and after. Values are compared as they are written (repr); places between \
that line and the end are looked at, not all of them: a change that was taken back at once may be missed.

Exit status: 0 if there is such a line; 1 if the value never changes; 2 for a wrong command line or expression; 124 if \
the replay diverged; 125 if the recording can't be read, or replayed here.

Examples:
  clew last 'config.mode'
  clew last bank-1 --lang python 'accounts[0].n' --at 1204+77";

/// Which language a recording is to be debugged in: none for gdb. What is asked for, else what the program's name says,
/// unless gdb is asked for.
pub fn of_debug<'a>(line: &'a Debug, recording: &Recording, stream: StreamId) -> Option<&'a str> {
    if let Some(wanted) = line.personality.as_deref() {
        return Some(wanted).filter(|&wanted| wanted != "c");
    }
    if line.gdb.is_some() || line.serve.is_some() || !line.arguments.is_empty() {
        return None;
    }
    let info = recording.streams().iter().find(|info| info.id == stream)?;
    let exe = String::from_utf8_lossy(&info.start.exe);
    let name = exe.rsplit('/').next()?;
    LANGUAGES
        .into_iter()
        .find(|language| name.starts_with(language))
}

/// The prompt; the exit status.
pub fn debug(
    line: &Debug,
    language: &str,
    recording: &Recording,
    stream: StreamId,
    timeline: Timeline,
    envp: &[&CStr],
) -> i32 {
    let at = line.at.or_else(|| killed(recording, stream));
    let mut session = match Session::open(recording, stream, timeline, Some(language)) {
        Ok(session) => session,
        Err(error) => return failed(&error),
    };
    if let Some(at) = at
        && let Err(error) = session.seek(at)
    {
        return failed(&error);
    }
    eprintln!(
        "{}: {} - help tells the commands; gdb: clew debug --personality c",
        session.language(),
        session.version()
    );
    let mut commands = Commands::new(session);
    match prompt::run(&mut commands, history(envp)) {
        Ok(()) => 0,
        Err(error) => text::failed(&error),
    }
}

/// The end of a run that crashed.
fn killed(recording: &Recording, stream: StreamId) -> Option<Target> {
    let summary = summary::of(recording.folder()).ok()?;
    let found = summary.streams.iter().find(|one| one.id == stream)?;
    matches!(found.end, End::Killed { .. }).then_some(Target::End)
}

/// Beside the recordings.
fn history(envp: &[&CStr]) -> Option<PathBuf> {
    let home = variables::get(envp, "XDG_STATE_HOME").map(PathBuf::from);
    let home = home.or_else(|| {
        variables::get(envp, "HOME").map(|home| PathBuf::from(home).join(".local/state"))
    })?;
    let folder = home.join("clew");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("history"))
}

/// Which process, and how.
struct Which<'a> {
    language: Option<&'a str>,
    pid: Option<ProcessName>,
    exec: Option<usize>,
    memory: Option<u64>,
    no_jail: bool,
}

fn open(word: Option<&OsStr>, which: &Which<'_>, envp: &[&CStr]) -> Result<(Session, String), i32> {
    let Opened {
        name, recording, ..
    } = recordings::open(envp, word).map_err(|why| {
        why.failed();
        CANT_REPLAY
    })?;
    let unable = |error: &dyn std::fmt::Display| {
        text::failed(error);
        CANT_REPLAY
    };
    let stream = process::program(recording.streams(), which.pid, which.exec)
        .map_err(|why| unable(&format!("{why}; clew info {name} shows its processes")))?;
    let variable = |name: &str| variables::get(envp, name);
    let options = run::options(&Engine::default(), &variable).map_err(|why| {
        eprintln!("clew: {why}");
        WRONG
    })?;
    let mut settings = Settings::new(options);
    settings.unlocked = which.no_jail;
    settings.memory = which.memory.map(|megabytes| megabytes << 20);
    let mut timeline =
        Timeline::open(&recording, stream, settings).map_err(|error| unable(&error))?;
    timeline.expect_work(work(&recording, stream));
    let mut progress = Progress::new("searching");
    timeline.set_watcher(Box::new(move |done| {
        progress.show(done);
        false
    }));
    let session =
        Session::open(&recording, stream, timeline, which.language).map_err(|e| failed(&e))?;
    Ok((session, name))
}

fn failed(error: &Error) -> i32 {
    text::failed(error);
    match error {
        Error::Timeline(clew_timeline::Error::Diverged(_) | clew_timeline::Error::Unsteady(_)) => {
            DIVERGED
        }
        Error::Timeline(_) => CANT_REPLAY,
        Error::Unknown(_) | Error::Refused(_) => WRONG,
    }
}

pub fn watch(line: &Watch, language: &str, envp: &[&CStr]) -> i32 {
    let (word, expression) = match &line.words[..] {
        [expression] => (None, expression),
        [recording, expression] => (Some(OsStr::new(recording)), expression),
        _ => return WRONG,
    };
    let which = Which {
        language: Some(language),
        pid: line.pid,
        exec: line.exec,
        memory: line.memory,
        no_jail: line.no_jail,
    };
    let (mut session, name) = match open(word, &which, envp) {
        Ok(opened) => opened,
        Err(status) => return status,
    };
    let sought = Sought {
        expression: expression.trim(),
        from: line.from,
        to: line.to,
        any_place: line.any_place,
    };
    let found = session.transition(&sought);
    answer(session, &sought, &name, line.json, found)
}

pub fn last(line: &Last, envp: &[&CStr]) -> i32 {
    let (word, expression) = match &line.words[..] {
        [expression] => (None, expression),
        [recording, expression] => (Some(OsStr::new(recording)), expression),
        _ => return WRONG,
    };
    let which = Which {
        language: line.lang.as_deref(),
        pid: line.which.pid,
        exec: line.which.exec,
        memory: line.which.replaying.memory,
        no_jail: line.which.replaying.no_jail,
    };
    let (mut session, name) = match open(word, &which, envp) {
        Ok(opened) => opened,
        Err(status) => return status,
    };
    let sought = Sought {
        expression: expression.trim(),
        to: line.at,
        ..Sought::default()
    };
    let found = session.last_change(&sought);
    answer(session, &sought, &name, line.which.json, found)
}

fn answer(
    mut session: Session,
    sought: &Sought<'_>,
    name: &str,
    machine: bool,
    found: Result<Searched, Error>,
) -> i32 {
    // What was shown of it goes.
    session.view.timeline.set_watcher(Box::new(|_| false));
    let found = match found {
        Ok(found) => found,
        Err(error) => return failed(&error),
    };
    let language = session.language();
    let status = if found.flip.is_some() { 0 } else { NOT_FOUND };
    if machine {
        let all = as_json(&found, sought, name, language);
        text::print(&format!("{all:#}\n"));
        return status;
    }
    let style = text::Style::stdout();
    let mut commands = Commands::new(session);
    let out = match &found.flip {
        None => format!(
            "{}: {} at all {} places that were looked at\n",
            sought.expression,
            found.last.value.text(),
            found.probes
        ),
        Some(flip) => {
            let mut out = String::new();
            if let Some(frame) = flip.stack.first() {
                let source = commands.text(&frame.file, frame.line).unwrap_or_default();
                out.push_str(&style.bold(&format!(
                    "{}:{} in {}\n    {}\n",
                    frame.file,
                    frame.line,
                    frame.function,
                    source.trim()
                )));
            }
            out.push_str(&clew_personality::told(flip));
            for frame in flip.stack.iter().skip(1) {
                let Frame {
                    file,
                    line,
                    function,
                    ..
                } = frame;
                out.push_str(&format!("  called from {file}:{line} in {function}\n"));
            }
            let position = flip.exactly.unwrap_or(flip.before.position).to_string();
            let words = ["clew", "debug", name, "--at", &position].map(String::from);
            let next = format!("\n{}\n", text::command(&words));
            out.push_str(&style.faint(&next));
            out
        }
    };
    text::print(&out);
    status
}

fn as_json(found: &Searched, sought: &Sought<'_>, name: &str, language: &str) -> Value {
    json!({
        "recording": name,
        "language": language,
        "expression": sought.expression,
        "found": found.flip.is_some(),
        "probes": found.probes,
        "first": {
            "position": found.first.position.to_string(),
            "value": found.first.value.text(),
        },
        "last": {
            "position": found.last.position.to_string(),
            "value": found.last.value.text(),
        },
        "flip": found.flip.as_ref().map(flip),
    })
}

fn flip(flip: &Flip) -> Value {
    let frame = |frame: &Frame| {
        json!({
            "file": frame.file,
            "line": frame.line,
            "function": frame.function,
        })
    };
    let changed = |changed: &clew_personality::Changed| {
        json!({
            "expression": changed.expression,
            "before": changed.before.text(),
            "after": changed.after.text(),
        })
    };
    json!({
        "position": flip.before.position.to_string(),
        "after": flip.after.position.to_string(),
        "becomes": flip.to,
        "undefined_before": flip.across,
        "exactly": flip.exactly.map(|position| position.to_string()),
        "thread": flip.thread,
        "stack": flip.stack.iter().map(frame).collect::<Vec<Value>>(),
        "values": flip.values.iter().map(changed).collect::<Vec<Value>>(),
    })
}

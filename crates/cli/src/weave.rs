//! Woven recordings at the command line: `record --weave`, their replay, `relog`, and what other commands need of them.

use std::ffi::{CStr, OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::arguments::{Full, Record, Replay};
use crate::record::{self, CANT_RECORD};
use crate::replay::{CANT_REPLAY, CUT_OFF, DIVERGED};
use crate::{outcome, recordings, text, variables};
use clew_recording::folder;
use clew_recording::meta::{Meta, Schedule, WOVEN};
use clew_recording::pack;
use clew_recording::summary::End;
use clew_weave::folder::{EXACT, Woven};
use clew_weave::replay::Outcome;
use clew_weave::{WeaveError, launch, log, refuse, replay};

/// How strict `--weave` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Weave {
    /// Refuse what can't be seen
    Strict,
    /// Record it all the same; a replay may diverge
    Anyway,
}

pub const RELOG_HELP: &str = "The woven recording's program runs once more, under clew, with the recorded order and input; what comes \
    of it is an exact recording, with all that can be asked of one. Other commands do it by themselves when they need it, and keep \
    the result inside the woven recording.\n\n\
    Exit status: 0; 1 if the recording can't be read; 124 if the program did something else than what was recorded.\n\n\
    Examples:\n  \
    clew relog pigz-1\n  \
    clew relog pigz-1 -o /tmp/exact && clew replay --verify /tmp/exact";

#[derive(Debug, Args)]
pub struct Relog {
    /// The woven recording (default: the latest)
    #[arg(value_name = "REC")]
    pub recording: Option<OsString>,

    /// The recording was made elsewhere, and its program may do what you may do
    #[arg(long)]
    pub trust: bool,

    /// The folder of the new recording; without it, it is kept inside the woven one
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Is that a woven recording?
pub fn is_woven(meta: &Meta) -> bool {
    meta.capture == WOVEN
}

fn failed(error: &WeaveError) -> i32 {
    eprintln!("clew: {}", text::plain(&error.to_string()));
    CANT_RECORD
}

/// `clew record --weave`.
pub fn record(line: &Record, how: Weave, envp: &[&CStr]) -> i32 {
    let name = &line.guest.program[0];
    let Some(path) = launch::find(Path::new(name), variables::get(envp, "PATH")) else {
        eprintln!("clew: {}: command not found", name.display());
        return 127;
    };
    let loader = match refuse::look(&path, how == Weave::Anyway) {
        Ok(loader) => loader,
        Err(error) => return failed(&error),
    };
    let program = launch::Program {
        path,
        argv: line.guest.program.clone(),
        loader,
    };
    let folder = match record::folder_for(line, envp) {
        Ok(folder) => folder,
        Err(message) => return text::failed_with(&message, CANT_RECORD),
    };
    let made = meta(line, &program, &folder)
        .write(&folder)
        .map_err(|why| WeaveError::Io {
            path: folder.clone(),
            why,
        })
        .and_then(|()| {
            Woven::create(
                &folder,
                how == Weave::Anyway,
                line.on_full == Full::Continue,
            )
        });
    let woven = match made {
        Ok(woven) => woven,
        Err(error) => {
            let _ = std::fs::remove_dir_all(&folder);
            return failed(&error);
        }
    };
    record::note_latest(line, envp, &folder);
    if let Err(error) = mark(&woven, envp) {
        eprintln!(
            "clew: it can't be noted that this recording is yours: {error}; relog it with --trust"
        );
    }
    match launch::record(&woven, &program) {
        Ok(recorded) => {
            if let Some(why) = recorded.refused {
                let _ = std::fs::remove_dir_all(&folder);
                eprintln!("clew: stopped: {}", text::plain(&why));
                return CANT_RECORD;
            }
            if let Some(notes) = recorded.notes {
                eprintln!("clew: {}", text::plain(&notes));
            }
            end(recorded.end)
        }
        Err(error) => {
            let _ = std::fs::remove_dir_all(&folder);
            failed(&error)
        }
    }
}

/// Ends as the program did.
fn end(end: clew_weave::folder::End) -> i32 {
    match (end.status, end.signal) {
        (Some(status), _) => status & 0xff,
        (_, Some(signal)) => outcome::die_by(signal),
        _ => CUT_OFF,
    }
}

fn meta(line: &Record, program: &launch::Program, folder: &Path) -> Meta {
    let schedule = Schedule {
        policy: "parallel".into(),
        seed: 0,
        depth: None,
        length: None,
        chaos: None,
        time: None,
    };
    let mut meta = record::meta_with(line, &program.path, folder, schedule);
    meta.capture = WOVEN.into();
    meta
}

/// `clew replay` of a woven recording.
pub fn replay(line: &Replay, folder: &Path) -> i32 {
    let name = recordings::name(folder);
    match replay::replay(&Woven::of(folder), !line.no_jail, line.quiet) {
        Ok(Outcome::Ended(ended)) => end(ended),
        Ok(Outcome::CutOff) => {
            let name = text::plain(&name);
            eprintln!(
                "clew: {name} ends here; the program or its recorder was killed, or the disk was full"
            );
            CUT_OFF
        }
        Ok(Outcome::Diverged(words)) => {
            diverged(&name, &words);
            DIVERGED
        }
        Err(error) => {
            text::failed(&error);
            CANT_REPLAY
        }
    }
}

fn diverged(name: &str, words: &str) {
    eprintln!(
        "clew: the replay of {} isn't what was recorded: {}",
        text::plain(name),
        text::plain(words)
    );
    eprintln!(
        "clew:   a data race between threads, or something that isn't woven (docs/weave.md); an exact recording: clew record"
    );
}

/// `clew relog`.
pub fn relog(line: &Relog, envp: &[&CStr]) -> i32 {
    let folder = match recordings::find(envp, line.recording.as_deref()) {
        Ok(folder) => folder,
        Err(error) => return text::failed(&error),
    };
    match Meta::read(&folder) {
        Ok(meta) if is_woven(&meta) => {}
        Ok(_) => {
            let name = recordings::name(&folder);
            return text::failed(&format!(
                "{name} isn't a woven recording; it is exact already"
            ));
        }
        Err(error) => return text::failed(&error),
    }
    let target = match &line.output {
        Some(path) => path.clone(),
        None => folder.join(EXACT),
    };
    if !line.trust && !is_ours(&folder, envp) {
        return text::failed(&strangers(&folder));
    }
    match relog_to(&folder, &target, envp) {
        Ok(()) => {
            eprintln!("clew: relogged: {}", target.display());
            0
        }
        Err((message, status)) => text::failed_with(&message, status),
    }
}

/// Runs a woven recording under `clew record`, into `target`.
fn relog_to(folder: &Path, target: &Path, envp: &[&CStr]) -> Result<(), (String, i32)> {
    let unable = |error: WeaveError| (error.to_string(), CANT_REPLAY);
    if line_exists(target) {
        std::fs::remove_dir_all(target)
            .map_err(|error| (format!("{}: {error}", target.display()), 1))?;
    }
    folder::create_at(target).map_err(|error| (error.to_string(), 1))?;
    let woven = Woven::of(folder);
    let (program, argv, variables) = launch::again(&woven).map_err(unable)?;
    let report = replay::report_file(&woven).map_err(unable)?;
    let clew = std::env::current_exe().map_err(|error| (error.to_string(), CANT_REPLAY))?;
    let mut command = Command::new(clew);
    command.args(["record", "--hunted", "-o"]).arg(target);
    // Where translations are saved is the user's choice, not the recording's.
    let same = |name: &str| {
        let recorded = variables.iter().find_map(|variable| {
            let (key, value) = split(variable)?;
            (key == name).then(|| value.to_owned())
        });
        recorded == variables::get(envp, name)
    };
    if !["CLEW_CACHE", "XDG_CACHE_HOME", "HOME"]
        .iter()
        .all(|name| same(name))
    {
        command.arg("--no-cache");
    }
    command.arg("--").arg(&program).args(&argv).env_clear();
    command.envs(variables.iter().filter_map(|variable| split(variable)));
    command.stdin(std::process::Stdio::null());
    command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let status = command
        .status()
        .map_err(|error| (error.to_string(), CANT_REPLAY))?;
    let outcome = replay::verdict(&woven, &report, status, &[]).map_err(unable);
    let _ = std::fs::remove_file(woven.path(clew_weave::folder::REPORT));
    match outcome? {
        Outcome::Ended(_) | Outcome::CutOff => Ok(()),
        Outcome::Diverged(words) => {
            let _ = std::fs::remove_dir_all(target);
            let name = recordings::name(folder);
            Err((
                format!("{name} can't be made exact: its replay isn't what was recorded: {words}"),
                DIVERGED,
            ))
        }
    }
}

fn line_exists(target: &Path) -> bool {
    target.ends_with(EXACT) && target.exists()
}

fn split(variable: &OsStr) -> Option<(&OsStr, &OsStr)> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = variable.as_bytes();
    let at = bytes
        .iter()
        .position(|&byte| byte == b'=')
        .filter(|&at| at > 0)?;
    Some((
        OsStr::from_bytes(&bytes[..at]),
        OsStr::from_bytes(&bytes[at + 1..]),
    ))
}

/// Where this user's woven recordings are noted: to relog is to run a program with the user's rights, which a stranger's
/// recording must not get by itself.
const OURS: &str = ".woven";
const MARK: &str = "mark";

/// Notes that a recording was made here.
fn mark(woven: &Woven, envp: &[&CStr]) -> Result<(), String> {
    use std::os::unix::fs::DirBuilderExt;
    let told = |error: std::io::Error| error.to_string();
    let place = recordings::place(envp).map_err(|error| error.to_string())?;
    let folder = place.dir().join(OURS);
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    made.map_err(told)?;
    let mark = format!(
        "{:016x}{:016x}",
        record::random().map_err(told)?,
        record::random().map_err(told)?
    );
    std::fs::write(folder.join(&mark), "").map_err(told)?;
    std::fs::write(woven.path(MARK), &mark).map_err(told)
}

/// Was it made here, by this user?
fn is_ours(recording: &Path, envp: &[&CStr]) -> bool {
    let mark =
        clew_weave::folder::read_bounded(&Woven::of(recording).path(MARK), 64).unwrap_or_default();
    let mark = String::from_utf8(mark).unwrap_or_default();
    let hex = mark.len() == 32 && mark.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex && recordings::place(envp).is_ok_and(|place| place.dir().join(OURS).join(&mark).exists())
}

fn strangers(recording: &Path) -> String {
    let name = recordings::name(recording);
    format!(
        "{name} was made elsewhere, and making it exact runs its program with your rights; clew replay runs it locked in. If you \
         trust it: clew relog --trust {name}"
    )
}

/// The exact recording of a woven one, made now if it isn't there.
pub fn exact(folder: &Path, envp: &[&CStr]) -> Result<PathBuf, String> {
    let target = folder.join(EXACT);
    if clew_recording::reader::Recording::open(&target).is_err() {
        if !is_ours(folder, envp) {
            return Err(strangers(folder));
        }
        eprintln!(
            "clew: {} is woven; it is made exact first",
            recordings::name(folder)
        );
        relog_to(folder, &target, envp).map_err(|(message, _)| message)?;
    }
    Ok(target)
}

/// What `clew ls` and `clew info` tell of it.
pub struct Summary {
    pub end: End,
    pub duration_ns: u64,
    pub events: u64,
    pub threads: usize,
    pub entries: usize,
    pub notes: String,
    pub bytes: u64,
}

pub fn summary(folder: &Path) -> Result<Summary, String> {
    let woven = Woven::of(folder);
    let told = woven.end();
    let end = match told {
        None if woven.is_being_written() => End::Recording,
        None => End::CutOff,
        Some(end) => match (end.status, end.signal) {
            (Some(status), _) => End::Exited { status },
            (_, Some(signal)) => End::Killed { signal },
            _ => End::CutOff,
        },
    };
    let read = log::Log::open(&woven.path(clew_weave::folder::LOG))
        .and_then(|log| Ok((log.facts()?, log.lives(true)?)));
    let (facts, lives) = read.map_err(|error| error.to_string())?;
    Ok(Summary {
        end,
        duration_ns: told.map_or(0, |end| end.duration_ns),
        events: lives.iter().map(|life| life.count).sum(),
        threads: lives.len(),
        entries: lives.iter().map(|life| life.entries.len()).sum(),
        notes: facts.words,
        bytes: pack::size(folder).bytes,
    })
}

/// `clew info` of it.
pub fn info(folder: &Path, meta: &Meta, json: bool) -> i32 {
    let summary = match summary(folder) {
        Ok(summary) => summary,
        Err(error) => return text::failed(&error),
    };
    if json {
        let value = serde_json::json!({
            "name": recordings::name(folder),
            "path": folder.to_string_lossy(),
            "meta": meta,
            "end": summary.end,
            "duration_ns": summary.duration_ns,
            "events": summary.events,
            "entries": summary.entries,
            "threads": summary.threads,
            "bytes": summary.bytes,
            "notes": summary.notes,
        });
        text::print(&format!("{value}\n"));
        return 0;
    }
    let exact = match folder.join(EXACT).exists() {
        true => "made; debug, watch, dump use it",
        false => "not made yet: clew relog, or any command that needs it",
    };
    let rows = [
        ("recording", recordings::name(folder)),
        ("kind", "woven: order and input of a parallel run".into()),
        ("folder", folder.to_string_lossy().into_owned()),
        ("command", text::command(&meta.argv)),
        ("program", meta.program.clone()),
        (
            "started",
            format!(
                "{}, for {}",
                text::when(meta.started_ns),
                text::duration(summary.duration_ns)
            ),
        ),
        ("end", recordings::end_text(&summary.end)),
        (
            "length",
            format!(
                "{}, {}, {} written down",
                text::counted(summary.threads as u64, "thread"),
                text::counted(summary.events, "event"),
                text::count(summary.entries as u64)
            ),
        ),
        ("size", format!("{} on disk", text::size(summary.bytes))),
        ("exact", exact.into()),
    ];
    let mut out = String::new();
    for (what, value) in rows {
        out.push_str(&format!("{what:<10}  {}\n", text::plain(&value)));
    }
    if !summary.notes.is_empty() {
        out.push_str(&format!(
            "{:<10}  {}\n",
            "notes",
            text::plain(&summary.notes)
        ));
    }
    text::print(&out);
    0
}

//! `clew cut`: a region of a recording as a recording of its own. In: a recording and two positions. Out: another
//! recording, which begins with the whole state at the first.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsString};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::Args;
use clew_recording::cut::{self, CutError, Made, Region};
use clew_recording::event::StreamId;
use clew_recording::meta::{self, Meta};
use clew_recording::process::{self, ProcessName};
use clew_recording::reader::{FILES, Recording};
use clew_recording::{folder, log, pack};
use clew_timeline::{Error, Position, Reason, Settings, Target, Timeline};

use crate::arguments::Engine;
use crate::asking::{Failed, WRONG};
use crate::progress::Progress;
use crate::recordings::{self, Opened, work};
use crate::replay::CANT_REPLAY;
use crate::when::When;
use crate::{run, text, variables};

pub const HELP: &str = "\
REC is a recording's name or its folder. The recording is replayed to where the region begins, and the program's whole \
state there is written down: threads, registers, memory. What follows is the log of the original, to where the \
region ends. Of several processes it is of one, and of those that it starts in the region; files that were mapped are \
shared with the original where the file system can.

WHEN is start, end, an event's number (`clew dump` shows them), a position as `clew when` in gdb tells it; FUNCTION, its \
Nth entry FUNCTION#N, its return FUNCTION$ or FUNCTION#N$; FILE:LINE or FILE:LINE#N; an amount: ticks:5e9, time:30s, \
calls:10000; signal:USR1, before its handler begins or it kills; output:REGEX, behind the call that wrote it. A region \
begins at a tick: single instructions of --from are left out.

The new recording is one like any other: replay, debug, watch and all else work on it, and are done with what lies \
before the region at once. Its events have numbers of their own; `clew info` says which are which.

Exit status: 0; 1 if it can't be read or written; 2 for a wrong command line or position; 124 if the replay diverged; \
125 if the recording can't be replayed here, or can't be cut there.

Examples:
  clew cut server-1 --from 81000 --to 82000 -n request
  clew cut server-1 --from 'parse_request#3' --to 'parse_request#3$' -n third
  clew cut server-1 --from ticks:5e9 -o /tmp/tail
  clew cut make-1 --pid 4711 --from 1200 -n compiler";

#[derive(Debug, Args)]
pub struct Cut {
    /// The recording (default: the latest)
    #[arg(value_name = "REC")]
    recording: Option<OsString>,

    /// Where the region begins (default: where the process does)
    #[arg(long, value_name = "WHEN", value_parser = str::parse::<When>)]
    from: Option<When>,

    /// Where it ends (default: where the process does)
    #[arg(long, value_name = "WHEN", value_parser = str::parse::<When>)]
    to: Option<When>,

    /// Which process (default: the program that was recorded)
    #[arg(long, value_name = "P")]
    pid: Option<ProcessName>,

    /// Which of its programs, if it began others by exec: from 0 (default: the last)
    #[arg(long, value_name = "N")]
    exec: Option<usize>,

    /// The folder of the new recording, instead of one among the others; must be new or empty
    #[arg(short, long, value_name = "DIR", conflicts_with = "name")]
    output: Option<PathBuf>,

    /// What to call it
    #[arg(short, long, value_name = "NAME")]
    name: Option<String>,

    /// Print what was made as JSON
    #[arg(long)]
    json: bool,

    /// Replay without the lock around the process; only for recordings that you trust
    #[arg(long)]
    no_jail: bool,
}

pub fn cut(line: &Cut, envp: &[&CStr]) -> i32 {
    match make(line, envp) {
        Ok(()) => 0,
        Err(failed) => failed.tell(),
    }
}

fn make(line: &Cut, envp: &[&CStr]) -> Result<(), Failed> {
    let Opened {
        name,
        meta,
        recording,
    } = recordings::open(envp, line.recording.as_deref())
        .map_err(|why| Failed(why.failed(), String::new()))?;
    let stream = process::program(recording.streams(), line.pid, line.exec).map_err(|why| {
        let text = format!("{why}; clew info {name} shows its processes");
        Failed(CANT_REPLAY, text)
    })?;
    let mut timelines = Ends::open(&recording, stream, line, envp)?;
    let to = match &line.to {
        Some(to) => {
            let target = to.target(&recording, &mut timelines.from)?;
            timelines.last(target)?
        }
        None => None,
    };
    let target = match &line.from {
        Some(from) => from.target(&recording, &mut timelines.from)?,
        None => Target::Start,
    };
    let from = timelines.first(target)?;
    let region = Region { stream, from, to };
    let folder = folder_for(line, &name, envp)?;
    let made = write(&recording, &region, &mut timelines, &folder).and_then(|made| {
        fill(&recording, &region, &meta, &name, &made, &folder)?;
        Ok(made)
    });
    let made = match made {
        Ok(made) => made,
        Err(failed) => {
            let _ = fs::remove_dir_all(&folder);
            return Err(failed);
        }
    };
    if let (None, Ok(place)) = (&line.output, recordings::place(envp)) {
        let _ = place.set_latest(&folder);
    }
    tell(line, &name, &region, &made, &folder);
    Ok(())
}

/// The two ends of the region, each with who stands there.
struct Ends {
    from: Timeline,
    to: Option<Timeline>,
}

impl Ends {
    fn open(
        recording: &Recording,
        stream: StreamId,
        line: &Cut,
        envp: &[&CStr],
    ) -> Result<Ends, Failed> {
        let variable = |name: &str| variables::get(envp, name);
        let options = run::options(&Engine::default(), &variable).map_err(|m| Failed(WRONG, m))?;
        let mut settings = Settings::new(options);
        settings.unlocked = line.no_jail;
        let mut from = Timeline::open(recording, stream, settings)?;
        from.expect_work(work(recording, stream));
        let to = line.to.is_some().then(|| from.another()).transpose()?;
        let mut progress = Progress::new("replaying");
        from.set_watcher(Box::new(move |done| {
            progress.show(done);
            false
        }));
        Ok(Ends { from, to })
    }

    /// Goes to the region's beginning: at a tick.
    fn first(&mut self, target: Target) -> Result<Position, Failed> {
        let at = arrive(&mut self.from, target)?;
        let tick = Position { steps: 0, ..at };
        if tick != at {
            self.from.seek(Target::Position(tick))?;
        }
        Ok(self.from.position()?)
    }

    /// Goes to its end. None if that is the process's.
    fn last(&mut self, target: Target) -> Result<Option<Position>, Failed> {
        let Some(timeline) = self.to.as_mut().filter(|_| target != Target::End) else {
            return Ok(None);
        };
        let at = arrive(timeline, target)?;
        // More single instructions than a recording has between two events.
        if at.steps > 1000 {
            let tick = Position { steps: 0, ..at };
            timeline.seek(Target::Position(tick))?;
            return Ok(Some(timeline.position()?));
        }
        Ok(Some(at))
    }
}

fn arrive(timeline: &mut Timeline, target: Target) -> Result<Position, Failed> {
    let stop = timeline.seek(target)?;
    let here = timeline.position()?;
    match target {
        Target::Position(wanted) if !matches!(stop.reason, Reason::Arrived) && wanted > here => {
            let text = format!("{wanted} lies behind the end of the recording, which is {here}");
            Err(Failed(WRONG, text))
        }
        _ => Ok(here),
    }
}

fn folder_for(line: &Cut, name: &str, envp: &[&CStr]) -> Result<PathBuf, Failed> {
    let failed = |error: &dyn std::fmt::Display| Failed(1, error.to_string());
    if let Some(path) = &line.output {
        return folder::create_at(path).map_err(|error| failed(&error));
    }
    let place = recordings::place(envp).map_err(|error| failed(&error))?;
    match &line.name {
        Some(name) => place.create(name),
        None => place.create_for(format!("{name}-cut").as_ref()),
    }
    .map_err(|error| failed(&error))
}

/// Writes the log.
fn write(
    recording: &Recording,
    region: &Region,
    ends: &mut Ends,
    folder: &Path,
) -> Result<Made, Failed> {
    let Ends { from, to } = ends;
    let mut state =
        |put: &mut dyn FnMut(&clew_recording::event::Record)| from.state(true, put).map_err(words);
    let mut end = |put: &mut dyn FnMut(&clew_recording::event::Record)| match to {
        Some(to) => to.state(false, put).map_err(words),
        None => Ok(()),
    };
    let file = folder.join(log::NAME);
    cut::cut(recording, region, &file, &mut state, &mut end).map_err(|error| match error {
        CutError::Nothing { .. } => Failed(WRONG, error.to_string()),
        CutError::State(why) => {
            let from = region.from;
            Failed(
                CANT_REPLAY,
                format!("a region can't begin at {from}: {why}"),
            )
        }
        CutError::Read(_) | CutError::Write(_) => Failed(1, error.to_string()),
    })
}

fn words(error: Error) -> String {
    match error {
        Error::Refused(why) => why,
        error => error.to_string(),
    }
}

/// Everything but the log.
fn fill(
    recording: &Recording,
    region: &Region,
    meta: &Meta,
    name: &str,
    made: &Made,
    folder: &Path,
) -> Result<(), Failed> {
    let failed = |error: std::io::Error| Failed(1, format!("{}: {error}", folder.display()));
    copy_files(recording.folder(), folder, &made.files).map_err(failed)?;
    let pid = recording
        .info(region.stream)
        .map_or(0, |info| info.start.pid);
    let mut new = Meta {
        name: recordings::name(folder),
        started_ns: meta.started_ns,
        pid,
        format: meta::FORMAT,
        region: Some(meta::Region {
            of: name.into(),
            from: region.from.to_string(),
            to: region.to.map(|to| to.to_string()),
            pid,
            prologue: made.prologue,
        }),
        ..meta.clone()
    };
    if let Some(info) = recording.info(region.stream) {
        new.program = String::from_utf8_lossy(&info.start.exe).into_owned();
        let argv = info.start.argv.iter();
        new.argv = argv
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
    }
    new.write(folder).map_err(failed)
}

/// The files that the region needs, shared with the original where that can be: they are never written to.
pub fn copy_files(from: &Path, to: &Path, names: &BTreeSet<String>) -> std::io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(to.join(FILES))?;
    for name in names {
        let (old, new) = (from.join(FILES).join(name), to.join(FILES).join(name));
        if fs::hard_link(&old, &new).is_err() {
            fs::copy(&old, &new)?;
        }
    }
    Ok(())
}

fn tell(line: &Cut, of: &str, region: &Region, made: &Made, folder: &Path) {
    let name = recordings::name(folder);
    let size = pack::size(folder).bytes;
    if line.json {
        let all = serde_json::json!({
            "name": name,
            "path": folder.to_string_lossy(),
            "of": of,
            "from": region.from.to_string(),
            "to": region.to.map(|to| to.to_string()),
            "prologue": made.prologue,
            "streams": made.streams,
            "bytes": size,
        });
        return text::print(&format!("{all}\n"));
    }
    let to = region.to.map_or("its end".into(), |to| to.to_string());
    let what = format!(
        "cut: {name}, {of} from {} to {to}, {}",
        region.from,
        text::size(size)
    );
    text::print(&format!("{}\n", text::plain(&what)));
}

//! `clew debug`: the user's gdb on a recording, forwards and backwards.

use std::ffi::{CStr, OsString};
use std::path::PathBuf;

use crate::arguments::Debug;
use crate::arguments::Engine;
use crate::recordings::dump::lines;
use crate::recordings::{self, Opened};
use crate::replay::CANT_REPLAY;
use crate::run;
use crate::{text, variables};
use clew_gdb::launch::{self, Folder};
use clew_gdb::{Error, Helper, Session};
use clew_recording::event::{StreamId, ThreadId};
use clew_recording::process::{self, ProcessName};
use clew_recording::reader::{Recording, StreamInfo};
use clew_recording::summary::{self, End};
use clew_timeline::program::Program;
use clew_timeline::watch::{self, Question};
use clew_timeline::{Position, Settings, Target, Timeline};

/// There is no such gdb.
const NO_GDB: i32 = 127;

/// What the session asks of us.
struct Knowing<'a> {
    recording: &'a Recording,
    stream: StreamId,
    program: Program,
}

impl Helper for Knowing<'_> {
    fn events(&mut self, from: u64, to: u64) -> Result<Vec<(u64, String)>, String> {
        lines(self.recording, self.stream, from, to).map_err(|error| error.to_string())
    }

    fn transition(
        &mut self,
        timeline: &mut Timeline,
        expression: &str,
        _thread: ThreadId,
    ) -> Result<(Position, String), String> {
        let question = Question {
            expression: expression.into(),
            ..Question::default()
        };
        let report = watch::watch(timeline, &mut self.program, &question);
        let report = report.map_err(|error| error.to_string())?;
        let text = report.text(&|_, text| text.into());
        match report.flips.first() {
            Some(found) => Ok((found.flip.before(), text)),
            None => Err(text.trim_end().into()),
        }
    }
}

pub fn debug(line: &Debug, envp: &[&CStr]) -> i32 {
    let opened = recordings::open(envp, line.recording.as_deref());
    let Opened {
        name, recording, ..
    } = match opened {
        Ok(opened) => opened,
        Err(why) => return why.failed(),
    };
    let chosen = choose(recording.streams(), line.pid, line.exec);
    let stream = match chosen {
        Ok(stream) => stream,
        Err(why) => return text::failed(&format!("{why}; clew info {name} shows its processes")),
    };
    let at = match line.at {
        Some(at) => at,
        None => beginning(&recording, stream),
    };
    let variable = |name: &str| variables::get(envp, name);
    let options = match run::options(&Engine::default(), &variable) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("clew: {message}");
            return 2;
        }
    };
    let mut settings = Settings::new(options);
    settings.unlocked = line.no_jail;
    settings.memory = line.memory.map(|megabytes| megabytes << 20);
    let timeline = match Timeline::open(&recording, stream, settings) {
        Ok(timeline) => timeline,
        Err(error) => {
            text::failed(&error);
            return CANT_REPLAY;
        }
    };
    let parent = variable("TMPDIR").filter(|value| !value.is_empty());
    let parent = parent.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let mut helper = Knowing {
        recording: &recording,
        stream,
        program: Program::new(&recording),
    };
    let opened = Folder::new(&parent).and_then(|folder| {
        let settings = clew_gdb::Settings {
            root: Some(folder.root()),
            at,
            trace: line.trace_packets,
            name,
        };
        let session = Session::new(&recording, timeline, &mut helper, settings)?;
        Ok((session, folder))
    });
    let ended = opened.and_then(|(mut session, folder)| match &line.serve {
        Some(path) => {
            launch::serve(&mut session, &folder, path, |arguments| {
                let words = std::iter::once("gdb".into()).chain(arguments.iter().map(readable));
                let words: Vec<String> = words.collect();
                eprintln!("clew: waiting; start: {}", text::command(&words));
            })?;
            Ok(0)
        }
        None => {
            let gdb = line.gdb.clone().or_else(|| variable("CLEW_GDB"));
            let gdb = gdb.unwrap_or_else(|| "gdb".into());
            launch::debug(&mut session, &folder, &gdb, &line.arguments)
        }
    });
    match ended {
        Ok(status) => status,
        Err(error @ Error::Launch { .. }) => {
            text::failed(&error);
            NO_GDB
        }
        Err(error) => text::failed(&error),
    }
}

fn readable(word: &OsString) -> String {
    word.to_string_lossy().into_owned()
}

/// The stream that the user means: of this process (the recorded program if none is named), its last program,
/// or the one with that number.
pub fn choose(
    streams: &[StreamInfo],
    name: Option<ProcessName>,
    exec: Option<usize>,
) -> Result<StreamId, String> {
    let process = process::find(streams, name)?;
    let programs: Vec<StreamId> = streams
        .iter()
        .filter(|info| info.process == process)
        .map(|info| info.id)
        .collect();
    let Some(&last) = programs.last() else {
        return Err("there is no process in this recording".into());
    };
    match exec {
        None => Ok(last),
        Some(number) => {
            let found = number.checked_sub(1).and_then(|n| programs.get(n));
            found.copied().ok_or_else(|| {
                let many = text::counted(programs.len() as u64, "program");
                match name {
                    Some(name) => format!("process {name} has run {many} only"),
                    None => format!("the recorded process has run {many} only"),
                }
            })
        }
    }
}

/// The end of a run that crashed, else the start.
fn beginning(recording: &Recording, stream: StreamId) -> Target {
    let Ok(summary) = summary::of(recording.folder()) else {
        return Target::Start;
    };
    let found = summary.streams.iter().find(|one| one.id == stream);
    match found.map(|one| one.end) {
        Some(End::Killed { .. }) => Target::End,
        _ => Target::Start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_recording::event::{Origin, Start};

    fn stream(id: StreamId, process: u32, pid: i32) -> StreamInfo {
        StreamInfo {
            id,
            process,
            raw: 0,
            end: None,
            start: Start {
                origin: Origin::Exec { before: 0 },
                pid,
                parent_pid: 1,
                tid: pid,
                exe: Vec::new(),
                argv: Vec::new(),
                time: 0,
                view: Default::default(),
            },
        }
    }

    #[test]
    fn which_program() {
        let streams = [stream(1, 1, 10), stream(2, 2, 11), stream(3, 1, 10)];
        let choose = |streams: &[StreamInfo], pid: Option<i32>, exec| {
            let name = pid.map(|pid| ProcessName { pid, process: None });
            choose(streams, name, exec)
        };
        assert_eq!(choose(&streams, None, None), Ok(3));
        assert_eq!(choose(&streams, None, Some(1)), Ok(1));
        assert_eq!(choose(&streams, Some(11), None), Ok(2));
        assert!(choose(&streams, Some(12), None).is_err());
        assert!(choose(&streams, Some(11), Some(2)).is_err());
        assert!(choose(&streams, Some(11), Some(0)).is_err());
    }
}

//! `clew debug`: the user's gdb on a recording, forwards and backwards.

use std::ffi::{CStr, OsString};
use std::io::IsTerminal;
use std::path::PathBuf;

use crate::arguments::Debug;
use crate::arguments::Engine;
use crate::order::stepping::Stepping;
use crate::progress::Progress;
use crate::recordings::dump::lines;
use crate::recordings::{self, Opened};
use crate::replay::CANT_REPLAY;
use crate::run;
use crate::{language, text, variables};
use clew_debugger::Debugger;
use clew_gdb::launch::{self, Folder};
use clew_gdb::{Error, Helper, Ordered, Session};
use clew_recording::event::{StreamId, ThreadId};
use clew_recording::process;
use clew_recording::reader::Recording;
use clew_recording::summary::{self, End};
use clew_timeline::program::Program;
use clew_timeline::watch::{self, Question};
use clew_timeline::{Position, Settings, Target, Timeline};

/// There is no such gdb.
const NO_GDB: i32 = 127;

/// What the session asks of us.
struct Knowing {
    recording: Recording,
    stream: StreamId,
    program: Program,
    /// The slice that was asked for last.
    slice: Option<clew_slice::tour::Tour>,
    order: Stepping,
}

impl Helper for Knowing {
    fn events(&mut self, from: u64, to: u64) -> Result<Vec<(u64, String)>, String> {
        lines(&self.recording, self.stream, from, to).map_err(|error| error.to_string())
    }

    fn origin(&mut self, timeline: &mut Timeline, what: &str) -> Result<String, String> {
        crate::origin::told(timeline, &mut self.program, &self.recording, what)
    }

    fn slice(
        &mut self,
        timeline: &mut Timeline,
        words: &str,
    ) -> Result<(Option<Position>, String), String> {
        let (program, recording) = (&mut self.program, &self.recording);
        crate::slice::walk::in_gdb(&mut self.slice, timeline, program, recording, words)
    }

    fn order(
        &mut self,
        timeline: &mut Timeline,
        thread: ThreadId,
        words: &str,
    ) -> Result<Ordered, String> {
        let found = self.order.asked(timeline, thread, words)?;
        if let Some((recording, _)) = &found.other {
            (self.recording, self.slice) = (recording.clone(), None);
        }
        Ok(found)
    }

    fn probe(
        &mut self,
        debugger: &mut Debugger,
        probes: &[(String, String)],
    ) -> Result<String, String> {
        crate::probe::told(debugger, probes)
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
    let chosen = process::program(recording.streams(), line.pid, line.exec);
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
    let timeline = match Timeline::open(&recording, stream, settings.clone()) {
        Ok(mut timeline) => {
            timeline.expect_work(recordings::work(&recording, stream));
            timeline
        }
        Err(error) => {
            text::failed(&error);
            return CANT_REPLAY;
        }
    };
    if let Some(language) = language::of_debug(line, &recording, stream) {
        return language::debug(line, language, &recording, stream, timeline, envp);
    }
    let parent = variable("TMPDIR").filter(|value| !value.is_empty());
    let parent = parent.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let mut helper = Knowing {
        order: Stepping::new(&recording, stream, settings, &parent),
        recording: recording.clone(),
        stream,
        program: Program::new(&recording),
        slice: None,
    };
    let opened = Folder::new(&parent).and_then(|folder| {
        let settings = clew_gdb::Settings {
            root: Some(folder.root()),
            at,
            trace: line.trace_packets,
            name,
            goes_later: line.serve.is_none(),
            meter: Box::new(Progress::new("replaying").only_if(is_for_people(&line.arguments))),
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

/// Whether somebody sits at gdb's terminal, and no program in between would be confused.
fn is_for_people(arguments: &[OsString]) -> bool {
    let by_machine = |word: &OsString| {
        let word = word.to_string_lossy();
        word.contains("interpreter")
            || word == "-i"
            || word.starts_with("-i=")
            || word.ends_with("-tui")
    };
    std::io::stdin().is_terminal() && !arguments.iter().any(by_machine)
}

fn readable(word: &OsString) -> String {
    word.to_string_lossy().into_owned()
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

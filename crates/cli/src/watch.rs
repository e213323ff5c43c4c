//! `clew watch`: where in a recorded run a condition becomes true, or false.

use std::ffi::{CStr, OsStr};

use crate::arguments::Engine;
use crate::arguments::Watch;
use crate::progress::Progress;
use crate::recordings::{self, Opened, work};
use crate::replay::{CANT_REPLAY, DIVERGED};
use crate::run;
use crate::{stack, text, variables};
use clew_recording::process;
use clew_timeline::program::Program;
use clew_timeline::transition::Flip;
use clew_timeline::watch::{Found, Question, Report, Seen, Tint, WatchError};
use clew_timeline::{Error, Settings, Timeline};
use serde_json::{Value, json};

/// It never flips, as far as was looked.
const NOT_FOUND: i32 = 1;
/// The command line, or the expression, is wrong.
const WRONG: i32 = 2;

pub fn watch(line: &Watch, envp: &[&CStr]) -> i32 {
    if let Some(language) = &line.lang {
        return crate::language::watch(line, language, envp);
    }
    // With one word that is the expression.
    let (recording, expression) = match &line.words[..] {
        [expression] => (None, expression),
        [recording, expression] => (Some(OsStr::new(recording)), expression),
        _ => return WRONG,
    };
    // Before anything is replayed for nothing.
    if let Err(problem) = clew_symbols::expr::check(expression.trim()) {
        return wrong(&problem.pointed(expression.trim()));
    }
    let unable = |error: &dyn std::fmt::Display| {
        text::failed(error);
        CANT_REPLAY
    };
    let Opened {
        name, recording, ..
    } = match recordings::open(envp, recording) {
        Ok(opened) => opened,
        Err(why) => {
            why.failed();
            return CANT_REPLAY;
        }
    };
    let stream = match process::program(recording.streams(), line.pid, line.exec) {
        Ok(stream) => stream,
        Err(why) => return unable(&format!("{why}; clew info {name} shows its processes")),
    };
    let variable = |name: &str| variables::get(envp, name);
    let options = match run::options(&Engine::default(), &variable) {
        Ok(options) => options,
        Err(message) => return wrong(&message),
    };
    let mut settings = Settings::new(options);
    settings.unlocked = line.no_jail;
    settings.memory = line.memory.map(|megabytes| megabytes << 20);
    let mut timeline = match Timeline::open(&recording, stream, settings) {
        Ok(timeline) => timeline,
        Err(error) => return unable(&error),
    };
    timeline.expect_work(work(&recording, stream));
    let mut progress = Progress::new("searching");
    timeline.set_watcher(Box::new(move |done| {
        progress.show(done);
        false
    }));
    let mut program = Program::new(&recording);
    let question = Question {
        expression: expression.clone(),
        from: line.from,
        to: line.to,
        first: line.first,
        samples: line.sample.unwrap_or(0) as usize,
    };
    let found = clew_timeline::watch::watch(&mut timeline, &mut program, &question);
    // What was shown of it goes.
    timeline.set_watcher(Box::new(|_| false));
    match found {
        Ok(report) => {
            if line.json {
                let all = as_json(&report, &name);
                text::print(&format!("{all:#}\n"));
            } else {
                text::print(&as_text(&report, &name, line));
            }
            if report.is_found() { 0 } else { NOT_FOUND }
        }
        Err(WatchError::Expression(message) | WatchError::Ends(message)) => wrong(&message),
        Err(WatchError::Timeline(error @ (Error::Diverged(_) | Error::Unsteady(_)))) => {
            text::failed(&error);
            DIVERGED
        }
        Err(WatchError::Timeline(error)) => unable(&error),
    }
}

/// Says what is wrong, line by line; the exit status for it.
fn wrong(message: &str) -> i32 {
    for (n, line) in message.lines().enumerate() {
        let line = text::plain(line);
        match n {
            0 => eprintln!("clew: {line}"),
            _ => eprintln!("{line}"),
        }
    }
    WRONG
}

fn as_text(report: &Report, name: &str, line: &Watch) -> String {
    let style = text::Style::stdout();
    let mut all = report.text(&|tint, text| match tint {
        Tint::Title | Tint::Source => style.bold(text),
        Tint::Position => style.good(text),
        Tint::Faint => style.faint(text),
    });
    if let Some(found) = report.flips.first() {
        let position = found.flip.before().to_string();
        let mut words: Vec<String> = ["clew", "debug", name].map(String::from).to_vec();
        for (flag, value) in [
            ("--pid", line.pid.map(|pid| pid.to_string())),
            ("--exec", line.exec.map(|exec| exec.to_string())),
            ("--at", Some(position)),
        ] {
            if let Some(value) = value {
                words.extend([flag.into(), value]);
            }
        }
        let next = format!("\n{}\n", text::command(&words));
        all.push_str(&style.faint(&next));
    }
    all
}

fn as_json(report: &Report, name: &str) -> Value {
    let mut all = json!({
        "recording": name,
        "expression": report.expression,
        "found": report.is_found(),
        "from": seen(&report.from),
        "to": seen(&report.to),
        "samples": report.samples.iter().map(seen).collect::<Vec<Value>>(),
        "flips": report.flips.iter().map(found).collect::<Vec<Value>>(),
        "probes": report.probes,
    });
    // The first flip's facts are the answer's own.
    if let (Some(first), Some(all)) = (report.flips.first(), all.as_object_mut())
        && let Value::Object(facts) = found(first)
    {
        all.extend(facts);
    }
    all
}

fn seen(seen: &Seen) -> Value {
    json!({
        "position": seen.position.to_string(),
        "truth": seen.truth,
        "value": seen.text,
    })
}

fn found(found: &Found) -> Value {
    let (undefined, why) = match &found.flip {
        Flip::At { .. } => (false, None),
        Flip::Across { why, .. } => (true, Some(why)),
    };
    let change = |change: &clew_timeline::watch::Change| {
        json!({
            "expression": change.expression,
            "before": change.before,
            "after": change.after,
        })
    };
    json!({
        "position": found.flip.before().to_string(),
        "after": found.flip.after().to_string(),
        "becomes": found.flip.to(),
        "undefined_between": undefined,
        "why_undefined": why,
        "thread": {
            "number": found.thread.number,
            "tid": found.thread.tid,
            "name": found.thread.name,
        },
        "function": found.function(0),
        "frame": found.frame,
        "file": found.line.as_ref().map(|line| line.file.to_string()),
        "line": found.line.as_ref().map(|line| line.line),
        "source": found.source,
        "event": found.event,
        "values": found.values.iter().map(change).collect::<Vec<Value>>(),
        "stack": stack::json(&found.stack),
    })
}

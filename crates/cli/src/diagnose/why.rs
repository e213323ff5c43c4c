//! `clew why`: how it came to the failure.

use std::ffi::{CStr, OsStr};

use super::arguments::Why;
use super::{switches, wrapped};
use crate::answers::{NOTHING, WRONG, failed, watched, wrong};
use crate::recordings::{self, Opened};
use crate::replay::CANT_REPLAY;
use crate::text;
use clew_debugger::{Debugger, Process};
use clew_diagnose::why::{Answer, Kind, Question, Statement};
use clew_recording::reader::Recording;
use serde_json::json;

pub fn why(line: &Why, envp: &[&CStr]) -> i32 {
    let expected = match &line.expected {
        None => None,
        Some(path) => match std::fs::read(path) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                wrong(&format!("{}: {error}", path.display()));
                return WRONG;
            }
        },
    };
    let word = line.recording.as_deref().map(OsStr::new);
    let Opened {
        name, recording, ..
    } = match recordings::open(envp, word) {
        Ok(opened) => opened,
        Err(why) => {
            why.failed();
            return CANT_REPLAY;
        }
    };
    let settings = match line.which.replaying.settings(envp) {
        Ok(settings) => settings,
        Err(why) => return wrong(&why),
    };
    let folder = recording.folder().to_owned();
    drop(recording);
    let open = |process: Process| -> Result<Debugger, clew_debugger::Error> {
        let recording = Recording::open(&folder)
            .map_err(|error| clew_debugger::Error::Recording(error.to_string()))?;
        let debugger = Debugger::open(recording, process, settings.clone())?;
        Ok(watched(debugger))
    };
    let answer = clew_diagnose::why::why(&Question {
        process: Process {
            name: line.which.pid,
            exec: line.which.exec,
        },
        expected,
        open: &open,
    });
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return failed(&error),
    };
    let failed = !matches!(answer.kind, Kind::None);
    let taken = (line.minimize && failed).then(|| switches::switches(&folder, envp));
    match line.which.json {
        true => {
            let mut all = json!(answer);
            if let Some(all) = all.as_object_mut() {
                all.insert("recording".into(), json!(name));
                if let Some(taken) = &taken {
                    all.insert("switches".into(), switches::as_json(taken));
                }
            }
            text::print(&format!("{all:#}\n"));
        }
        false => {
            let style = text::Style::stdout();
            let taken = taken.map(|taken| switches::shown(&taken, style));
            text::print(&shown(&answer, &name, line));
            text::print(&taken.unwrap_or_default());
        }
    }
    match answer.cause() {
        Some(_) => 0,
        None => NOTHING,
    }
}

fn shown(answer: &Answer, name: &str, line: &Why) -> String {
    let style = text::Style::stdout();
    let kind = json!(answer.kind);
    let kind = kind.as_str().unwrap_or("").replace('-', " ");
    let mut all = match answer.kind {
        Kind::None | Kind::Unknown => String::new(),
        _ => format!("{}\n", style.bold(&kind)),
    };
    let width = answer.statements.iter().filter_map(|one| one.site.as_ref());
    let width = width.map(|site| site.position.len()).max().unwrap_or(0);
    for statement in &answer.statements {
        all.push_str(&sentence(statement, width, &style));
    }
    if answer.cause().is_none() && answer.kind != Kind::None {
        all.push_str("The cause isn't known. What was looked at:\n");
        for looked in &answer.looked {
            let looked = wrapped(&text::plain(looked), 4);
            all.push_str(&format!("  - {looked}\n"));
        }
    }
    let place = answer.cause().or(answer.statements.first());
    if let Some(site) = place.and_then(|statement| statement.site.as_ref()) {
        let mut words: Vec<String> = ["clew", "debug", name].map(String::from).to_vec();
        let pid = match (&answer.process, &line.which.pid) {
            (Some(process), _) => Some(process.clone()),
            (None, Some(pid)) => Some(pid.to_string()),
            (None, None) => None,
        };
        for (flag, value) in [("--pid", pid), ("--at", Some(site.position.clone()))] {
            if let Some(value) = value {
                words.extend([flag.into(), value]);
            }
        }
        all.push_str(&style.faint(&format!("\n{}\n", text::command(&words))));
    }
    all
}

/// `  117+19     Text … a.c:12 in f, thread 0`
fn sentence(statement: &Statement, width: usize, style: &text::Style) -> String {
    let mark = match statement.cause {
        true => style.bad("=>"),
        false => "  ".into(),
    };
    let (position, place) = match &statement.site {
        Some(site) => (site.position.clone(), site.to_string()),
        None => (String::new(), String::new()),
    };
    let inferred = match statement.inferred {
        true => " (inferred)",
        false => "",
    };
    let body = wrapped(
        &text::plain(&format!("{}{inferred}", statement.text)),
        width + 5,
    );
    let padded = format!("{position:width$}");
    let mut all = format!("{mark} {}  {body}\n", style.good(&padded));
    if !place.is_empty() {
        let site = statement.site.as_ref();
        let thread = site.map_or(0, |site| site.thread);
        let place = format!(
            "{}{}, thread {thread}",
            " ".repeat(width + 5),
            text::plain(&place)
        );
        all.push_str(&style.faint(&place));
        all.push('\n');
    }
    all
}

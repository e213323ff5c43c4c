//! `clew writes`: all changes of a variable.

use std::ffi::CStr;

use super::arguments::Writes;
use super::{NOTHING, done, failed, more, next, open, wrong};
use crate::text;
use clew_debugger::Change;
use serde_json::json;

/// Values are shown this long.
const LONGEST: usize = 60;

pub fn writes(line: &Writes, envp: &[&CStr]) -> i32 {
    let expression = line.expression.trim();
    // Before anything is replayed for nothing.
    if let Err(problem) = clew_symbols::expr::check(expression) {
        return wrong(&problem.pointed(expression));
    }
    let (mut debugger, name) = match open(&line.which, line.recording.as_deref(), envp) {
        Ok(opened) => opened,
        Err(status) => return status,
    };
    let found = debugger
        .seek(&line.at)
        .and_then(|here| debugger.changes(here.thread, 0, expression, line.most));
    let found = match found {
        Ok(found) => found,
        Err(error) => return failed(&error),
    };
    done(&mut debugger);
    if line.which.json {
        let mut all = json!(found);
        if let Some(all) = all.as_object_mut() {
            all.insert("recording".into(), json!(name));
        }
        text::print(&format!("{all:#}\n"));
    } else {
        let style = text::Style::stdout();
        let whose = match &found.function {
            Some(function) => format!(", in a call of {function}"),
            None => String::new(),
        };
        let what = format!(
            "{expression}: {} at {:#x}, {}{whose}",
            found.of,
            found.address,
            text::counted(found.size, "byte"),
        );
        let mut all = format!("{}\n", style.bold(&text::plain(&what)));
        let rows: Vec<Vec<String>> = found.changes.iter().map(row).collect();
        let names = ["POSITION", "THREAD", "BEFORE", "AFTER", "WHERE"];
        match rows.is_empty() {
            true => all.push_str("it doesn't change\n"),
            false => all.push_str(&text::table(&names, &rows, |row, name, cell| {
                match (row, name) {
                    (usize::MAX, _) => style.bold(cell),
                    (_, "POSITION") => style.good(cell),
                    (_, "WHERE") => style.faint(cell),
                    _ => cell.into(),
                }
            })),
        }
        all.push_str(&more(found.complete, found.interrupted, line.most));
        if let Some(last) = found.changes.last() {
            all.push_str(&style.faint(&next(&name, &line.which, &last.position)));
        }
        text::print(&all);
    }
    match found.changes.is_empty() {
        true => NOTHING,
        false => 0,
    }
}

fn row(change: &Change) -> Vec<String> {
    let value = |text: &Option<String>| {
        let text = text.as_deref().unwrap_or("(no memory)");
        text::plain(&text::shortened(text, LONGEST))
    };
    let place = change.location.to_string();
    let by = match change.by_event {
        true => format!("{place}, by an event there"),
        false => place,
    };
    vec![
        change.position.clone(),
        change.thread.to_string(),
        value(&change.before),
        value(&change.after),
        text::plain(&by),
    ]
}

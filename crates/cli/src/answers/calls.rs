//! `clew calls`: all calls of a function.

use std::ffi::CStr;

use super::arguments::Calls;
use super::{NOTHING, done, failed, more, next, open};
use crate::text;
use clew_debugger::{Call, Left};
use serde_json::json;

/// Arguments are shown this long.
const LONGEST: usize = 100;

pub fn calls(line: &Calls, envp: &[&CStr]) -> i32 {
    let (mut debugger, name) = match open(&line.which, line.recording.as_deref(), envp) {
        Ok(opened) => opened,
        Err(status) => return status,
    };
    let found = match debugger.calls(line.function.trim(), line.most) {
        Ok(found) => found,
        Err(error) => return failed(&error),
    };
    done(&mut debugger);
    if line.which.json {
        let all = json!({
            "recording": name,
            "function": line.function.trim(),
            "complete": found.complete,
            "interrupted": found.interrupted,
            "calls": found.calls,
            "inlined": found.inlined,
        });
        text::print(&format!("{all:#}\n"));
    } else {
        let style = text::Style::stdout();
        let rows: Vec<Vec<String>> = found.calls.iter().map(row).collect();
        let names = ["POSITION", "THREAD", "CALL", "RETURNED", "FROM"];
        let mut all = match rows.is_empty() {
            true => format!("{} isn't called\n", text::plain(line.function.trim())),
            false => text::table(&names, &rows, |row, name, cell| match (row, name) {
                (usize::MAX, _) => style.bold(cell),
                (_, "POSITION") => style.good(cell),
                (_, "FROM") => style.faint(cell),
                _ => cell.into(),
            }),
        };
        all.push_str(&more(found.complete, found.interrupted, line.most));
        let copies = found.inlined.iter().map(|copy| copy.to_string());
        let mut copies: Vec<String> = copies.collect();
        copies.dedup();
        for copy in copies {
            let copy = text::plain(&copy);
            all.push_str(&style.warn(&format!(
                "inlined, so that calls there aren't told: {copy}\n"
            )));
        }
        if let Some(first) = found.calls.first() {
            all.push_str(&style.faint(&next(&name, &line.which, &first.position)));
        }
        text::print(&all);
    }
    match found.calls.is_empty() {
        true => NOTHING,
        false => 0,
    }
}

fn row(call: &Call) -> Vec<String> {
    let arguments = call.arguments.iter();
    let arguments = arguments.map(|one| format!("{}={}", one.name, one.text));
    let arguments: Vec<String> = arguments.collect();
    let indent = "  ".repeat((call.depth as usize).min(20));
    // Without parameters' types, which the demangled name of a function may have.
    let function = call.function.split('(').next().unwrap_or(&call.function);
    let shown = format!("{indent}{function}({})", arguments.join(", "));
    let returned = match &call.left {
        Left::Returned { value, .. } => value.as_ref().map_or("", |value| &value.text),
        Left::Unwound => "(unwound)",
        Left::Never => "(didn't return)",
    };
    vec![
        call.position.clone(),
        call.thread.to_string(),
        text::plain(&text::shortened(&shown, LONGEST)),
        text::plain(&text::shortened(returned, LONGEST / 2)),
        text::plain(&call.caller.to_string()),
    ]
}

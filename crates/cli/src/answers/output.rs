//! `clew output`: everything that was written to standard output and error.

use std::ffi::CStr;

use super::arguments::Output;
use super::{NOTHING, done, failed, more, next, open};
use crate::text;
use serde_json::json;

/// Of one write so much is shown.
const LONGEST: usize = 120;

pub fn output(line: &Output, envp: &[&CStr]) -> i32 {
    let (mut debugger, name) = match open(&line.which, line.recording.as_deref(), envp) {
        Ok(opened) => opened,
        Err(status) => return status,
    };
    // One more, to know whether there are more.
    let mut written = match debugger.output(line.most as usize + 1) {
        Ok(written) => written,
        Err(error) => return failed(&error),
    };
    done(&mut debugger);
    let complete = written.len() as u64 <= line.most;
    written.truncate(line.most as usize);
    if line.which.json {
        let all = json!({
            "recording": name,
            "complete": complete,
            "output": written,
        });
        text::print(&format!("{all:#}\n"));
    } else {
        let style = text::Style::stdout();
        let rows: Vec<Vec<String>> = written
            .iter()
            .map(|one| {
                let stream = match one.to {
                    2 => "stderr",
                    _ => "stdout",
                };
                let shown = text::shortened(&format!("{:?}", one.text), LONGEST);
                let short = match one.whole {
                    true => "",
                    false => " (not all of it could be read)",
                };
                vec![
                    one.position.clone(),
                    one.thread.to_string(),
                    stream.into(),
                    format!("{}{short}", text::plain(&shown)),
                ]
            })
            .collect();
        let names = ["POSITION", "THREAD", "TO", "TEXT"];
        let mut all = match rows.is_empty() {
            true => "it wrote nothing to standard output and error\n".into(),
            false => text::table(&names, &rows, |row, name, cell| match (row, name) {
                (usize::MAX, _) => style.bold(cell),
                (_, "POSITION") => style.good(cell),
                _ => cell.into(),
            }),
        };
        all.push_str(&more(complete, false, line.most));
        if let Some(last) = written.last() {
            all.push_str(&style.faint(&next(&name, &line.which, &last.position)));
        }
        text::print(&all);
    }
    match written.is_empty() {
        true => NOTHING,
        false => 0,
    }
}

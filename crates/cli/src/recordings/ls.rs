//! `clew ls`: the recordings there are.

use std::ffi::CStr;
use std::path::Path;

use serde::Serialize;

use super::arguments::Ls;
use super::{end_style, end_text, name, place};
use crate::progress::Progress;
use crate::text::{self, Style};
use crate::weave;
use clew_recording::folder::Recordings;
use clew_recording::meta::Meta;
use clew_recording::pack;
use clew_recording::summary::{self, End};

/// Of a command line, in the table.
const SHOWN: usize = 40;

#[derive(Serialize)]
struct All<'a> {
    folder: String,
    recordings: &'a [Row],
}

/// A recording, as `--json` prints it.
#[derive(Serialize)]
struct Row {
    name: String,
    path: String,
    program: String,
    argv: Vec<String>,
    started_ns: u64,
    /// Unknown if it can't be read.
    end: Option<End>,
    duration_ns: u64,
    events: u64,
    processes: u64,
    bytes: u64,
    /// Why it can't be read.
    problem: Option<String>,
    /// Order and input of a parallel run only.
    woven: bool,
}

pub fn ls(line: &Ls, envp: &[&CStr]) -> i32 {
    let listed = place(envp)
        .map_err(|error| error.to_string())
        .and_then(|place| Ok((rows(&place)?, place)));
    let (rows, place) = match listed {
        Ok(listed) => listed,
        Err(error) => return text::failed(&error),
    };
    if line.json {
        let all = All {
            folder: place.dir().to_string_lossy().into_owned(),
            recordings: &rows,
        };
        let json = serde_json::to_string(&all).unwrap_or_default();
        text::print(&format!("{json}\n"));
    } else if rows.is_empty() {
        let place = place.dir().display();
        eprintln!("clew: there are no recordings in {place} yet; clew record PROG makes one");
    } else {
        text::print(&table(&rows, Style::stdout()));
    }
    0
}

/// The recordings, the oldest first.
fn rows(place: &Recordings) -> Result<Vec<Row>, String> {
    let folders = place
        .list()
        .map_err(|error| format!("{}: {error}", place.dir().display()))?;
    let mut progress = Progress::new("reading recordings");
    let mut rows: Vec<Row> = (0..)
        .zip(&folders)
        .filter_map(|(n, folder)| {
            progress.show(f64::from(n) / folders.len() as f64);
            row(folder)
        })
        .collect();
    drop(progress);
    rows.sort_by(|a, b| (a.started_ns, &a.name).cmp(&(b.started_ns, &b.name)));
    Ok(rows)
}

fn row(folder: &Path) -> Option<Row> {
    let name = name(folder);
    let path = folder.to_string_lossy().into_owned();
    let meta = match Meta::read(folder) {
        Ok(meta) => meta,
        // Some other folder, or one that is being made or removed right now.
        Err(_) if !folder.join(clew_recording::meta::FILE).exists() => return None,
        Err(error) => return Some(unreadable(name, path, folder, error.to_string())),
    };
    let mut row = Row {
        name,
        path,
        program: meta.program.clone(),
        argv: meta.argv.clone(),
        started_ns: meta.started_ns,
        end: None,
        duration_ns: 0,
        events: 0,
        processes: 0,
        bytes: 0,
        problem: None,
        woven: false,
    };
    if weave::is_woven(&meta) {
        match weave::summary(folder) {
            Ok(summary) => {
                row.end = Some(summary.end);
                row.duration_ns = summary.duration_ns;
                row.events = summary.events;
                row.processes = 1;
                row.bytes = summary.bytes;
            }
            Err(error) => row.problem = Some(error),
        }
        row.woven = true;
        return Some(row);
    }
    // Reading what is still growing would take long, and be wrong at once.
    if summary::is_being_written(folder) {
        row.end = Some(End::Recording);
        row.bytes = pack::size(folder).bytes;
        row.duration_ns = now_ns().saturating_sub(meta.started_ns);
        return Some(row);
    }
    match summary::of(folder) {
        Ok(summary) => {
            row.end = Some(summary.end);
            row.duration_ns = summary.duration_ns;
            row.events = summary.events;
            row.processes = summary.processes().into();
            row.bytes = summary.disk_bytes;
        }
        Err(error) => {
            row.problem = Some(error.to_string());
            row.bytes = pack::size(folder).bytes;
        }
    }
    Some(row)
}

fn unreadable(name: String, path: String, folder: &Path, problem: String) -> Row {
    Row {
        name,
        path,
        program: String::new(),
        argv: Vec::new(),
        started_ns: 0,
        end: None,
        duration_ns: 0,
        events: 0,
        processes: 0,
        bytes: pack::size(folder).bytes,
        problem: Some(problem),
        woven: false,
    }
}

fn now_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_nanos() as u64
}

fn table(rows: &[Row], style: Style) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let known = row.end.is_some();
            let told = |text: String| if known { text } else { "-".into() };
            vec![
                text::plain(&row.name),
                row.end.as_ref().map_or("unreadable".into(), end_text),
                told(text::when(row.started_ns)),
                told(text::duration(row.duration_ns)),
                match row.end {
                    Some(End::Recording) | None => "-".into(),
                    _ => text::count(row.events),
                },
                text::size(row.bytes),
                match &row.problem {
                    Some(problem) => text::shortened(&text::plain(problem), 2 * SHOWN),
                    None => {
                        let command =
                            text::shortened(&text::plain(&text::command(&row.argv)), SHOWN);
                        if row.woven {
                            format!("{command} (woven)")
                        } else {
                            command
                        }
                    }
                },
            ]
        })
        .collect();
    let names = [
        "name", "end", "started", ">length", ">events", ">size", "program",
    ];
    text::table(&names, &cells, |row, column, cell| {
        match (rows.get(row), column) {
            (None, _) => style.faint(cell),
            (Some(_), "name") => style.bold(cell),
            (Some(row), "end") => match &row.end {
                Some(end) => end_style(style, end, cell),
                None => style.bad(cell),
            },
            _ => cell.into(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(name: &str, end: Option<End>) -> Row {
        Row {
            name: name.into(),
            path: format!("/r/{name}"),
            program: "/bin/sh".into(),
            argv: vec!["sh".into(), "-c".into(), "a\u{1b}b".into()],
            started_ns: 1_000_000_000,
            end,
            duration_ns: 2_000_000,
            events: 1204,
            processes: 1,
            bytes: 4096,
            problem: end.is_none().then(|| "no log".into()),
            woven: false,
        }
    }

    #[test]
    fn a_row_for_each_with_its_end() {
        let rows = [
            example("a", Some(End::Exited { status: 3 })),
            example("b", Some(End::Killed { signal: 11 })),
            example("c", Some(End::Recording)),
            example("d", None),
        ];
        let text = table(&rows, Style::none());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5);
        assert!(lines[1].contains("exit 3") && lines[1].contains("1,204"));
        assert!(lines[2].contains("SIGSEGV") && lines[3].contains("recording"));
        assert!(lines[4].contains("unreadable") && lines[4].contains("no log"));
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}

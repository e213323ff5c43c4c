//! `clew info`: what a recording holds.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::arguments::Info;
use super::{end_style, end_text, find, name};
use crate::machine;
use crate::text::{self, Style};
use clew_calls::names;
use clew_recording::event::StreamId;
use clew_recording::log;
use clew_recording::meta::{Meta, Region};
use clew_recording::summary::{self, Calls, Stream, Summary};

/// As many threads of a process are named, and as many system calls listed.
const SHOWN_THREADS: usize = 8;
const SHOWN_CALLS: usize = 20;

/// What `--json` prints.
#[derive(Serialize)]
struct All<'a> {
    name: &'a str,
    path: String,
    log_bytes: u64,
    meta: &'a Meta,
    /// By name, the counterpart of the numbers in `summary`.
    system_calls: BTreeMap<String, Calls>,
    summary: &'a Summary,
    /// Why this clew can't replay it here.
    unfit: Option<String>,
}

pub fn info(line: &Info, envp: &[&CStr]) -> i32 {
    let folder = match find(envp, line.recording.as_deref()) {
        Ok(folder) => folder,
        Err(error) => return text::failed(&error),
    };
    let meta = match Meta::read(&folder) {
        Ok(meta) => meta,
        Err(error) => return text::failed(&error),
    };
    if crate::weave::is_woven(&meta) {
        return crate::weave::info(&folder, &meta, line.json);
    }
    let summary = match summary::of(&folder) {
        Ok(summary) => summary,
        Err(error) => return text::failed(&error),
    };
    let unfit = meta.fits(&machine::here(false)).err();
    if line.json {
        let name = name(&folder);
        let calls = summary.calls.iter();
        let all = All {
            name: &name,
            path: folder.to_string_lossy().into_owned(),
            log_bytes: log_bytes(&folder),
            meta: &meta,
            system_calls: calls.map(|(&nr, &n)| (names::call(nr), n)).collect(),
            summary: &summary,
            unfit: unfit.map(|why| why.to_string()),
        };
        let json = serde_json::to_string(&all).unwrap_or_default();
        text::print(&format!("{json}\n"));
        return 0;
    }
    let style = Style::stdout();
    let mut out = head(&folder, &meta, &summary, style);
    if let Some(why) = unfit {
        let _ = writeln!(
            out,
            "{}",
            style.bad(&text::plain(&format!("can't be replayed here: {why}")))
        );
    }
    let count = text::counted(summary.processes().into(), "process");
    let _ = writeln!(out, "\n{}", style.bold(&count));
    tree(&summary, style, &mut out);
    missing(&summary, style, &mut out);
    counts(&summary, style, &mut out);
    notes(&summary, style, &mut out);
    text::print(&out);
    0
}

fn log_bytes(folder: &Path) -> u64 {
    folder
        .join(log::NAME)
        .metadata()
        .map_or(0, |meta| meta.len())
}

/// What a recording was cut out of.
fn region_text(region: &Region) -> String {
    let to = region.to.as_ref().map_or("its end", String::as_str);
    format!(
        "of {}, process {}, from {} to {to}; the state takes {}, the next is the one behind {}",
        region.of,
        region.pid,
        region.from,
        text::counted(region.prologue, "event"),
        region.from
    )
}

fn head(folder: &Path, meta: &Meta, summary: &Summary, style: Style) -> String {
    let mut out = String::new();
    let mut row = |what: &str, value: String| {
        let _ = writeln!(out, "{:<10}  {value}", what);
    };
    row("recording", style.bold(&text::plain(&name(folder))));
    row("folder", text::plain(&folder.to_string_lossy()));
    row("command", text::plain(&text::command(&meta.argv)));
    row("program", text::plain(&meta.program));
    row("in", text::plain(&meta.cwd));
    let (when, length) = (
        text::when(meta.started_ns),
        text::duration(summary.duration_ns),
    );
    row("started", format!("{when}, for {length}"));
    if let Some(region) = &meta.region {
        row("region", text::plain(&region_text(region)));
    }
    let end = end_style(style, &summary.end, &end_text(&summary.end));
    row("end", end);
    row(
        "length",
        format!(
            "{}, {}",
            text::counted(summary.events, "event"),
            text::counted(summary.ticks, "tick")
        ),
    );
    row(
        "size",
        format!(
            "{} on disk: log {}, {} copied",
            text::size(summary.disk_bytes),
            text::size(log_bytes(folder)),
            text::counted(summary.files, "file")
        ),
    );
    let schedule = &meta.schedule;
    let depth = schedule
        .depth
        .map_or(String::new(), |d| format!(", depth {d}"));
    let length = schedule
        .length
        .map_or(String::new(), |n| format!(", length {n}"));
    let chaos = schedule.chaos.as_deref().map_or(String::new(), |what| {
        format!(", chaos {}", text::plain(what))
    });
    row(
        "schedule",
        format!(
            "{}, seed {}{depth}{length}{chaos}",
            text::plain(&schedule.policy),
            schedule.seed
        ),
    );
    row(
        "by",
        text::plain(&format!(
            "clew {} (format {}, clock {}) for {}",
            meta.clew, meta.format, meta.clock, meta.machine.user
        )),
    );
    let machine = &meta.machine;
    let portable = if meta.portable { ", portable" } else { "" };
    row(
        "machine",
        text::plain(&format!(
            "{}, {}, {}{portable}",
            machine.hostname, machine.brand, machine.kernel
        )),
    );
    if let Some(why) = &summary.damage {
        row("damage", style.bad(&text::plain(why)));
    }
    out
}

/// Processes below those that made them; the programs of one process one after the other.
fn tree(summary: &Summary, style: Style, out: &mut String) {
    let mut children: BTreeMap<StreamId, Vec<&Stream>> = BTreeMap::new();
    for stream in &summary.streams {
        // What isn't made by an earlier one stands at the top; so there is no loop.
        let from = if stream.from < stream.id {
            stream.from
        } else {
            0
        };
        let known = summary.streams.iter().any(|other| other.id == from);
        children
            .entry(if known { from } else { 0 })
            .or_default()
            .push(stream);
    }
    // A stack: what is to come first is pushed last. An exec goes on in the same process: not deeper.
    let push = |id: StreamId, depth: usize, stack: &mut Vec<_>| {
        for &stream in children.get(&id).into_iter().flatten().rev() {
            let depth = depth + usize::from(stream.forked && id != 0);
            stack.push((stream, depth));
        }
    };
    let mut stack: Vec<(&Stream, usize)> = Vec::new();
    push(0, 0, &mut stack);
    while let Some((stream, depth)) = stack.pop() {
        process(&summary.name(stream.process), stream, depth, style, out);
        push(stream.id, depth, &mut stack);
    }
}

fn process(name: &str, stream: &Stream, depth: usize, style: Style, out: &mut String) {
    let indent = "  ".repeat(depth + 1);
    let command = if stream.argv.is_empty() {
        stream.exe.clone()
    } else {
        text::command(&stream.argv)
    };
    let how = if stream.forked { "forked " } else { "" };
    let end = end_style(style, &stream.end, &end_text(&stream.end));
    let _ = writeln!(
        out,
        "{indent}{} {how}{}: {end}, {}, {}",
        style.bold(name),
        text::shortened(&text::plain(&command), 60),
        text::counted(stream.events, "event"),
        text::counted(stream.ticks, "tick"),
    );
    if stream.thread_count > 1 {
        let named = stream.threads.iter().take(SHOWN_THREADS);
        let named: Vec<String> = named.map(|thread| thread.tid.to_string()).collect();
        let more = if stream.thread_count as usize > named.len() {
            ", …"
        } else {
            ""
        };
        let count = text::counted(stream.thread_count, "thread");
        let _ = writeln!(out, "{indent}  {count}: {}{more}", named.join(", "));
    }
}

/// Processes that were there and aren't in the recording.
fn missing(summary: &Summary, style: Style, out: &mut String) {
    for text in &summary.unrecorded {
        let _ = writeln!(out, "  {}", style.bad(&text::plain(text)));
    }
    if summary.unborn > 0 {
        let count = text::counted(summary.unborn, "process");
        let text = format!("{count} more, killed before the first event");
        let _ = writeln!(out, "  {}", style.faint(&text));
    }
}

fn counts(summary: &Summary, style: Style, out: &mut String) {
    let _ = writeln!(out, "\n{}", style.bold("events"));
    let mut kinds: Vec<_> = summary.kinds.iter().collect();
    kinds.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
    for (kind, &count) in kinds {
        let _ = writeln!(out, "  {:>12}  {}", text::count(count), text::plain(kind));
    }
    let mut calls: Vec<_> = summary.calls.iter().collect();
    calls.sort_by_key(|(nr, calls)| (std::cmp::Reverse(calls.count), **nr));
    if !calls.is_empty() {
        let _ = writeln!(out, "\n{}", style.bold("system calls"));
    }
    for &(&nr, calls) in calls.iter().take(SHOWN_CALLS) {
        let failed = match calls.failed {
            0 => String::new(),
            n => format!(", {} failed", text::count(n)),
        };
        let (count, name) = (text::count(calls.count), names::call(nr));
        let _ = writeln!(out, "  {count:>12}  {name}{failed}");
    }
    if let Some(more) = calls.get(SHOWN_CALLS..).filter(|more| !more.is_empty()) {
        let sum = more.iter().map(|(_, calls)| calls.count).sum();
        let (count, kinds) = (text::count(sum), more.len());
        let _ = writeln!(out, "  {count:>12}  {kinds} others (--json names them)");
    }
}

fn notes(summary: &Summary, style: Style, out: &mut String) {
    if summary.notes.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", style.bold("notes"));
    for note in &summary.notes {
        let stream = summary.streams.iter().find(|s| s.id == note.stream);
        let pid = stream.map_or_else(|| "0".into(), |stream| summary.name(stream.process));
        let times = match note.count {
            1 => String::new(),
            n => format!(", {} times", text::count(n)),
        };
        let _ = writeln!(
            out,
            "  {} (process {pid}, event {}{times})",
            style.warn(&text::plain(&note.text)),
            note.event
        );
    }
}

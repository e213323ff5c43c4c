//! `clew report`: what whoever looks for the cause of a divergence needs, in one file.
//!
//! In: a recording whose replay isn't what was recorded. Out: an archive of texts, without the program's memory,
//! environment and files, unless they are asked for; and a line that says so.

use std::ffi::CStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::arguments::Report;
use super::{Opened, dump, find_exact, open};
use crate::arguments::Engine;
use crate::divergence::Facts;
use crate::replay::{self, CANT_REPLAY};
use crate::{machine, run, text, variables};
use clew_engine::replay::tree::{Outcome, Request};
use clew_recording::bundle::{self, Item};
use clew_recording::meta::Meta;
use clew_recording::reader::Recording;
use clew_timeline::divergence::{Scene, Sides};
use clew_timeline::program::Program;
use clew_timeline::{Diverged, Settings, Timeline};

/// So many of a replay's divergences are looked into.
const MOST: usize = 4;
/// Events around a divergence.
const EVENTS_BEFORE: u64 = 2000;
const EVENTS_AFTER: u64 = 200;

const REGISTERS: [&str; 20] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15", "rip", "rflags", "fs_base", "gs_base",
];
/// Where the x87 unit's and the vector unit's settings are in an XSAVE area.
const FCW: usize = 0;
const MXCSR: usize = 24;

pub fn report(line: &Report, envp: &[&CStr]) -> i32 {
    let Opened {
        name,
        meta,
        recording,
    } = match open(envp, line.recording.as_deref()) {
        Ok(opened) => opened,
        Err(why) => return why.failed(),
    };
    let file = match &line.output {
        Some(file) => file.clone(),
        None => PathBuf::from(format!("{name}.report.tar.zst")),
    };
    if file.symlink_metadata().is_ok() {
        let file = file.display();
        return text::failed(&format!(
            "{file} exists; remove it, or give another with -o"
        ));
    }
    let variable = |name: &str| variables::get(envp, name);
    let options = match run::options(&Engine::default(), &variable) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("clew: {message}");
            return 2;
        }
    };
    let request = Request {
        verify: true,
        unlocked: line.no_jail,
        ..Request::all(options)
    };
    let outcome = match replay::shown(&recording, &request, &format!("replaying {name}")) {
        Ok(outcome) => outcome,
        Err(why) => {
            text::failed(&why);
            return CANT_REPLAY;
        }
    };
    let problems = problems(&outcome);
    if outcome.divergences.is_empty() && problems.is_empty() {
        return text::failed(&format!(
            "{name} replays as recorded: there is nothing to report. If it diverges now and then: clew replay \
             --verify {name} until it does"
        ));
    }
    let mut settings = Settings::new(request.options.clone());
    (settings.unlocked, settings.verify) = (line.no_jail, true);
    let folder = match find_exact(envp, line.recording.as_deref()) {
        Ok(folder) => folder,
        Err(error) => return text::failed(&error),
    };
    let mut made = Made {
        name,
        meta,
        recording: &recording,
        items: Vec::new(),
        facts: Vec::new(),
        problems,
    };
    let mut found: Vec<&Diverged> = outcome.divergences.iter().collect();
    found.sort_by_key(|diverged| diverged.stream);
    for (n, diverged) in found.into_iter().take(MOST).enumerate() {
        made.look(n + 1, diverged, &settings);
    }
    made.finish(line, &folder);
    match bundle::write(&file, &made.items) {
        Ok(bytes) => {
            text::print(&made.told(line, &file, bytes));
            0
        }
        Err(error) => text::failed(&error),
    }
}

/// What went wrong besides.
fn problems(outcome: &Outcome) -> Vec<String> {
    let lost = outcome.lost.iter();
    let lost = lost.map(|stream| format!("the replay of stream {stream} died without a word"));
    outcome.unable.iter().cloned().chain(lost).collect()
}

struct Made<'a> {
    name: String,
    meta: Meta,
    recording: &'a Recording,
    items: Vec<Item>,
    facts: Vec<Facts>,
    problems: Vec<String>,
}

impl Made<'_> {
    fn put(&mut self, name: &str, text: impl Into<String>) {
        self.items.push(Item::bytes(name, text.into().into_bytes()));
    }

    fn look(&mut self, number: usize, diverged: &Diverged, settings: &Settings) {
        let mut code = String::new();
        let mut mapped = String::new();
        let facts = Facts::find(
            self.recording,
            &self.name,
            diverged,
            settings.clone(),
            |timeline, program, sides| {
                code = listings(timeline, sides);
                mapped = mappings(timeline, program);
            },
        );
        let event = facts.diverged.event;
        let (from, to) = (event.saturating_sub(EVENTS_BEFORE), event + EVENTS_AFTER);
        let events = match dump::bare_lines(self.recording, diverged.stream, from, to) {
            Ok(lines) => lines
                .into_iter()
                .map(|(_, line)| line + "\n")
                .collect::<String>(),
            Err(error) => format!("{error}\n"),
        };
        let mut text = facts.text() + "\n";
        if let Ok(Some(sides)) = &facts.sides {
            registers(&mut text, "last equal", &sides.agreed);
            registers(&mut text, "noticed", &sides.found);
        }
        self.put(&format!("divergence-{number}.txt"), text);
        self.put(&format!("events-{number}.txt"), events);
        self.put(&format!("code-{number}.txt"), code);
        self.put(&format!("mapped-{number}.txt"), mapped);
        self.facts.push(facts);
    }

    /// What is about all of it, and what was asked for.
    fn finish(&mut self, line: &Report, folder: &Path) {
        // Whose machine it was tells nothing.
        let mut meta = self.meta.clone();
        (meta.machine.hostname, meta.machine.user) = (String::new(), String::new());
        let recorded = serde_json::to_value(&meta).unwrap_or_default();
        let mut here = machine::here(false);
        (here.hostname, here.user) = (String::new(), String::new());
        let all = json!({
            "clew": env!("CARGO_PKG_VERSION"),
            "recording": recorded,
            "replayed_on": here,
            "divergences": self.facts.iter().map(Facts::json).collect::<Vec<Value>>(),
            "problems": self.problems,
        });
        self.put("report.json", format!("{all:#}\n"));
        if line.with_memory {
            self.put(
                "recording/meta.json",
                serde_json::to_string_pretty(&self.meta).unwrap_or_default(),
            );
            self.items
                .push(Item::file("recording/log", &folder.join("log")));
        }
        if line.with_files {
            for name in self.recording.file_names().unwrap_or_default() {
                let path = folder.join("files").join(&name);
                let name = format!("recording/files/{name}");
                self.items.push(Item::file(&name, &path));
            }
        }
        let contents = format!("{}\n", contents(line));
        self.items
            .insert(0, Item::bytes("contents.txt", contents.into_bytes()));
    }

    fn told(&self, line: &Report, file: &Path, bytes: u64) -> String {
        if line.json {
            let all = json!({
                "recording": self.name,
                "file": file.display().to_string(),
                "bytes": bytes,
                "contents": self.items.iter().map(Item::name).collect::<Vec<&str>>(),
                "memory": line.with_memory,
                "files": line.with_files,
                "divergences": self.facts.iter().map(Facts::json).collect::<Vec<Value>>(),
                "problems": self.problems,
            });
            return format!("{all:#}\n");
        }
        let (file, size) = (file.display(), text::size(bytes));
        format!("report: {file}, {size}\n{}\n", contents(line))
    }
}

/// What is in a report, in words.
fn contents(line: &Report) -> String {
    let mut out = String::from(
        "In it: where the replay diverges, stacks and registers there, the events and the translated code around, names \
         and build-ids of mapped files, the command line, the versions of clew, kernel and CPU.",
    );
    if line.with_memory {
        out.push_str(" The log: what the program read and received, its environment, contents of its memory.");
    }
    if line.with_files {
        out.push_str(" Copies of the files that the program had mapped.");
    }
    match (line.with_memory, line.with_files) {
        (false, false) => out.push_str(" Not in it: the program's memory, environment and files."),
        (true, false) => out.push_str(" Not in it: the program's files."),
        (false, true) => out.push_str(" Not in it: the program's memory and environment."),
        (true, true) => {}
    }
    out
}

fn registers(out: &mut String, what: &str, scene: &Scene) {
    let _ = writeln!(out, "\nregisters, {what}, at {}:", scene.position);
    let words = &scene.registers.words;
    for (name, value) in REGISTERS.iter().zip(words) {
        let _ = writeln!(out, "  {name:<8} {value:#018x}");
    }
    let extended = &scene.registers.extended;
    let word = |at: usize, len: usize| {
        let bytes = extended.get(at..at + len)?.iter().rev();
        Some(bytes.fold(0u32, |sum, &byte| sum << 8 | u32::from(byte)))
    };
    for (name, value) in [("fcw", word(FCW, 2)), ("mxcsr", word(MXCSR, 4))] {
        if let Some(value) = value {
            let _ = writeln!(out, "  {name:<8} {value:#x}");
        }
    }
}

/// Guest code and its translation where both sides stand.
fn listings(timeline: &mut Timeline, sides: &Sides) -> String {
    let mut out = String::new();
    for (what, pc) in [
        ("last equal", sides.agreed.thread.pc),
        ("noticed", sides.found.thread.pc),
    ] {
        let listing = timeline.listing(pc);
        let listing = listing.unwrap_or_else(|error| error.to_string());
        let _ = writeln!(out, "{what}, pc {pc:#x}\n{listing}");
    }
    out
}

/// What is mapped, with build-ids, without contents.
fn mappings(timeline: &mut Timeline, program: &mut Program) -> String {
    let all = match timeline.mappings() {
        Ok(all) => all,
        Err(error) => return format!("{error}\n"),
    };
    let mut out = String::new();
    for mapping in all {
        let can = |bit: u32, letter: char| if mapping.prot & bit != 0 { letter } else { '-' };
        let build_id = mapping.copy.as_deref();
        let build_id = build_id.and_then(|copy| program.build_id(copy, &mapping.name));
        let _ = writeln!(
            out,
            "{:012x}-{:012x} {}{}{}{} {:08x} {} {}",
            mapping.start,
            mapping.end,
            can(1, 'r'),
            can(2, 'w'),
            can(4, 'x'),
            if mapping.shared { 's' } else { 'p' },
            mapping.offset,
            build_id.unwrap_or_else(|| "-".into()),
            text::plain(&mapping.name),
        );
    }
    out
}

//! Bytes that went from process to process: what a call read is what the other process had in memory where it is said to have
//! written it from. And a guest: the slice of what it read leads to the line of the other process that made it.

#[path = "../../timeline/tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use clew_recording::reader::Recording;
use clew_slice::closure::{Bounds, Kinds, Question, slice};
use clew_slice::events::Events;
use clew_slice::origin::Value;
use clew_slice::passages::Passages;
use clew_timeline::program::Program;
use clew_timeline::{Position, Target, Timeline};
use common::{open_stream, record_any};

fn main() {
    common::tests(vec![
        common::test("pipeline", || {
            let line = "for i in 5 3 9; do echo $i; done | sort | { read a; read b; echo $a$b; }";
            let (folder, _) = record_any(&[], &["/bin/bash", "-c", line]);
            let compared = same_bytes(&folder);
            assert!(compared > 8, "{compared} bytes");
            common::no_children();
        }),
        common::test("guest", || {
            let folder = guest();
            assert_eq!(same_bytes(&folder), 8);
            made_elsewhere(&folder);
            common::no_children();
        }),
    ])
}

fn timeline(recording: &Recording, stream: u32, at: Position) -> Timeline {
    let mut timeline = open_stream(recording.folder(), stream);
    timeline.seek(Target::Position(at)).unwrap();
    timeline
}

/// How many bytes of all that were read were compared with where they were written.
fn same_bytes(folder: &Path) -> u64 {
    let recording = Recording::open(folder).unwrap();
    let passages = Passages::read(&recording);
    let mut compared = 0;
    for read in passages.reads().filter(|read| !read.vector) {
        let mut reader = timeline(&recording, read.stream, Position::after(read.event + 1));
        let mut whole = vec![0; read.len as usize];
        assert_eq!(reader.read(read.addr, &mut whole).unwrap(), whole.len());
        let mut at = 0;
        for (piece, offset, len) in passages.sources(read.stream, read.event, 0, read.len) {
            assert_ne!(piece.process, read.process);
            let mut writer = timeline(&recording, piece.stream, piece.position);
            let place = piece.place(&mut writer, offset, len).unwrap();
            let (addr, len) = place.unwrap();
            let mut bytes = vec![0; len as usize];
            assert_eq!(writer.read(addr, &mut bytes).unwrap(), bytes.len());
            assert_eq!(bytes, whole[at..at + bytes.len()], "{read:?} {piece:?}");
            at += bytes.len();
            compared += len;
        }
    }
    compared
}

fn guest() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/slices/pipes.c");
    let program = std::env::temp_dir().join(format!("pipes-{}", std::process::id()));
    let built = Command::new("cc")
        .args(["-O0", "-g", "-w", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.unwrap().success());
    record_any(&[], &[program.to_str().unwrap(), "5"]).0
}

fn made_elsewhere(folder: &Path) {
    let recording = Recording::open(folder).unwrap();
    let mut program = Program::new(&recording);
    let mut timeline_here = common::open(folder);
    timeline_here.seek(Target::End).unwrap();
    let answer = program.evaluate(&mut timeline_here, "result", &mut Default::default(), 1000);
    let (addr, len) = answer.unwrap().value.unwrap().memory.unwrap();
    let stream = timeline_here.stream();
    let ask = |timeline: &mut Timeline, addr, len| {
        let mut program = Program::new(&recording);
        let modules = program.modules(timeline).unwrap();
        let question = Question {
            values: vec![Value::Memory { addr, len }],
            here: false,
        };
        let log = recording.stream(timeline.stream()).unwrap();
        let (kinds, bounds) = (Kinds::default(), Bounds::default());
        let found = slice(timeline, log, modules.clone(), &question, kinds, bounds).unwrap();
        let line_of = |pc: &u64| {
            let image = modules.find(*pc)?;
            let line = image.module.line_at(image.local(*pc)).ok()??;
            line.file.ends_with("pipes.c").then_some(line.line)
        };
        let lines: Vec<u32> = found.code.keys().filter_map(line_of).collect();
        (found, lines)
    };
    let (found, _) = ask(&mut timeline_here, addr, len);
    let passages = Passages::read(&recording);
    let events = Events::read(recording.stream(stream).unwrap()).unwrap();
    let mut all = Vec::new();
    for input in &found.inputs {
        let Some(fact) = events.get(input.position.event) else {
            continue;
        };
        let (ranges, event) = (events.memory(fact), input.position.event);
        let Some(addr) = input.addr else {
            continue;
        };
        let found = passages.elsewhere(stream, event, ranges, addr, input.bytes);
        let Some((piece, at, len)) = found else {
            continue;
        };
        let mut other = timeline(&recording, piece.stream, piece.position);
        let (addr, len) = piece.place(&mut other, at, len).unwrap().unwrap();
        all.push(ask(&mut other, addr, len).1);
    }
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/slices/pipes.c"),
    );
    let text = text.unwrap();
    let line = |what: &str| {
        let found = text.lines().position(|line| line.contains(what));
        found.unwrap() as u32 + 1
    };
    let (made, constant) = (line("int made ="), line("int words[2]"));
    // Three reads: two of the constant's halves, one of what was computed.
    assert_eq!(all.len(), 3);
    assert_eq!(all.iter().filter(|lines| lines.contains(&made)).count(), 1);
    assert_eq!(
        all.iter().filter(|lines| lines.contains(&constant)).count(),
        2
    );
}

//! Forth and back are the same relation: a value influences another if and only if that one, followed back, is made of it.
//! Random registers of real programs, some instructions apart, both ways. And a guest whose lines say what is influenced.
//!
//! `CLEW_SEED`, `CLEW_QUESTIONS`.

#[path = "../../timeline/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use clew_recording::reader::Recording;
use clew_slice::closure::{Bounds, Kinds, Question, slice};
use clew_slice::forward::influence;
use clew_slice::origin::{Value, register_named};
use clew_timeline::program::Program;
use clew_timeline::{Break, Direction, Position, Reason, Stops, Target};
use common::{Random, open, record_any, record_program};

const REGISTERS: [&str; 15] = [
    "rax", "rcx", "rdx", "rbx", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

fn main() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("CLEW_SEED").unwrap_or(4711);
    let questions = number("CLEW_QUESTIONS").unwrap_or(12);
    let program = |name: &'static str, line: &'static [&'static str]| {
        common::test(name, move || {
            println!("CLEW_SEED={seed}");
            both_ways(&record_program(&[], line), seed, questions);
            common::no_children();
        })
    };
    common::tests(vec![
        program(
            "bash",
            &[
                "/bin/bash",
                "-c",
                "for i in 1 2 3; do x=$x$((i * i)); done; echo $x",
            ],
        ),
        program(
            "perl",
            &["/usr/bin/perl", "-e", "print map { $_ / 7 } 1..50"],
        ),
        common::test("lines", || {
            lines();
            common::no_children();
        }),
    ])
}

fn value(name: &str, thread: u32) -> Value {
    Value::Register {
        thread,
        register: register_named(name).unwrap(),
        bytes: 0..8,
    }
}

/// The numbers of registers in the order of cells.
fn cell(name: &str) -> u32 {
    let numbers = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
        "r13", "r14", "r15",
    ];
    numbers.iter().position(|known| *known == name).unwrap() as u32
}

fn both_ways(folder: &Path, seed: u64, questions: u64) {
    let random = &mut Random(seed | 1);
    let mut timeline = open(folder);
    let recording = Recording::open(folder).unwrap();
    let mut program = Program::new(&recording);
    let log = || recording.stream(recording.streams()[0].id).unwrap();
    timeline.seek(Target::End).unwrap();
    let end = timeline.position().unwrap();
    // Only values, and all of them.
    let kinds = Kinds {
        control: false,
        libraries: true,
        ..Kinds::default()
    };
    let (mut influenced, mut untouched) = (0, 0);
    for _ in 0..questions {
        let from = Position::after(random.below(end.event));
        if timeline.seek(Target::Position(from)).is_err() {
            continue;
        }
        for _ in 0..random.below(30) {
            timeline.step_any(Direction::Forward).unwrap();
        }
        let (from, thread) = (timeline.position().unwrap(), timeline.at().thread);
        for _ in 0..5 + random.below(200) {
            if timeline.step_any(Direction::Forward).unwrap().reason != Reason::Arrived {
                break;
            }
        }
        let to = timeline.position().unwrap();
        if to <= from || timeline.at().thread != thread {
            continue;
        }
        let name = REGISTERS[random.below(REGISTERS.len() as u64) as usize];
        timeline.seek(Target::Position(from)).unwrap();
        let question = Question {
            values: vec![value(name, thread)],
            here: false,
        };
        let bounds = Bounds {
            to: Some(to),
            ..Bounds::default()
        };
        let forth = influence(&mut timeline, log(), &question, kinds, bounds).unwrap();
        let marked = forth.registers.iter().find(|(of, _)| *of == thread);
        let marked = marked.map_or(0, |(_, bytes)| *bytes);
        timeline.seek(Target::Position(to)).unwrap();
        let modules = program.modules(&mut timeline).unwrap();
        for other in REGISTERS {
            let question = Question {
                values: vec![value(other, thread)],
                here: false,
            };
            let bounds = Bounds {
                from: Some(from),
                ..Bounds::default()
            };
            let (timeline, modules) = (&mut timeline, modules.clone());
            let back = slice(timeline, log(), modules, &question, kinds, bounds).unwrap();
            let made = back.registers.iter().find(|(of, _)| *of == thread);
            let made = made.map_or(0, |(_, bytes)| *bytes);
            let is_made = made >> (8 * cell(name)) & 0xff != 0;
            let is_marked = marked >> (8 * cell(other)) & 0xff != 0;
            assert_eq!(
                is_marked, is_made,
                "{name} at {from}, {other} at {to}: forth, back"
            );
            match is_made {
                true => influenced += 1,
                false => untouched += 1,
            }
        }
    }
    println!("{influenced} influenced, {untouched} not");
    assert!(influenced > 0 && untouched > 0);
}

/// Lines that end with `// influenced` must be there, others mustn't.
fn lines() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/slices/forward.c");
    let program = std::env::temp_dir().join(format!("forward-{}", std::process::id()));
    let built = Command::new("cc")
        .args(["-O0", "-g", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.unwrap().success());
    let (folder, _) = record_any(&[], &[program.to_str().unwrap(), "12"]);
    let mut timeline = open(&folder);
    let recording = Recording::open(&folder).unwrap();
    let mut program = Program::new(&recording);
    timeline.seek(Target::End).unwrap();
    let modules = program.modules(&mut timeline).unwrap();
    let begin = modules.images().iter().find_map(|image| {
        let found = image.module.symbols_named("begin").ok()?;
        Some(found.first()?.address.wrapping_add(image.bias))
    });
    timeline.set_stops(Stops {
        breaks: vec![Break {
            addr: begin.unwrap(),
            thread: None,
            conditions: Vec::new(),
        }],
        ..Stops::default()
    });
    timeline.seek(Target::Start).unwrap();
    let stop = timeline.run(Direction::Forward, None).unwrap();
    assert_eq!(stop.reason, Reason::Break);
    timeline.set_stops(Stops::default());
    let answer = program.evaluate(&mut timeline, "seed", &mut Default::default(), 1000);
    let (addr, len) = answer.unwrap().value.unwrap().memory.unwrap();
    let question = Question {
        values: vec![Value::Memory { addr, len }],
        here: false,
    };
    let log = recording.stream(timeline.stream()).unwrap();
    let found = influence(
        &mut timeline,
        log,
        &question,
        Kinds::default(),
        Bounds::default(),
    )
    .unwrap();
    assert!(found.complete);
    let line_of = |pc: &u64| {
        let image = modules.find(*pc)?;
        let line = image.module.line_at(image.local(*pc)).ok()??;
        (Path::new(&*line.file).file_name() == source.file_name()).then_some(line.line)
    };
    let lines: BTreeSet<u32> = found.code.keys().filter_map(line_of).collect();
    let text = std::fs::read_to_string(&source).unwrap();
    let wanted = (1..).zip(text.lines());
    let wanted = wanted.filter(|(_, line)| line.ends_with("// influenced"));
    let wanted: BTreeSet<u32> = wanted.map(|(n, _)| n).collect();
    assert_eq!(lines, wanted);
    // Each member is where it is said to be.
    for member in &found.members {
        timeline.seek(Target::Position(member.position)).unwrap();
        assert_eq!(timeline.at().pc, member.pc, "{}", member.position);
    }
    // And it is written out.
    assert!(!found.inputs.is_empty());
}

//! Origins: a guest whose answers are known, and random values of real programs, whose chains are compared with what
//! watched memory and registers say, which knows nothing of traces.
//!
//! `CLEW_SEED=N` asks the same questions, `CLEW_RECORDING=FOLDER` asks them of a recording that was kept.

#[path = "../../timeline/tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use clew_recording::reader::Recording;
use clew_slice::origin::{Chain, Ending, Source, Value, origin, register_named};
use clew_slice::{EventKind, tell};
use clew_timeline::program::Program;
use clew_timeline::{Direction, Position, Reason, Stops, Target, Timeline, Watch, WatchKind};
use common::{Random, open, record_program};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};

/// Questions asked of each program.
const QUESTIONS: usize = 20;

fn main() {
    let seed = std::env::var("CLEW_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(std::process::id() as u64 * 7919);
    let random = |name: &'static str, line: &'static [&'static str]| {
        common::test(name, move || {
            let kept = std::env::var_os("CLEW_RECORDING").map(PathBuf::from);
            let recording = kept.unwrap_or_else(|| record_program(&[], line));
            let shown = recording.display();
            println!("CLEW_SEED={seed} CLEW_RECORDING={shown} asks the same");
            questions(&recording, seed);
            common::no_children();
        })
    };
    common::tests(vec![
        common::test("a known chain", known),
        random(
            "bash",
            &[
                "/bin/bash",
                "-c",
                "for i in 1 2 3; do x=$x$((i * i)); done; echo $x",
            ],
        ),
        random(
            "perl",
            &[
                "/usr/bin/perl",
                "-e",
                "print sort map { $_ * 7 % 31 } 1..50",
            ],
        ),
        random("sort", &["/usr/bin/sort", "/etc/passwd"]),
    ])
}

fn guest() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/chain.c");
    let program = std::env::temp_dir().join(format!("chain-{}", std::process::id()));
    let built = Command::new("cc")
        .args(["-O1", "-g", "-pthread", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.unwrap().success());
    record_program(&[], &[program.to_str().unwrap()])
}

fn ask(timeline: &mut Timeline, folder: &Path, value: &Value) -> Chain {
    let recording = Recording::open(folder).unwrap();
    let log = recording.stream(timeline.stream()).unwrap();
    origin(timeline, log, value).unwrap()
}

/// The line of the guest that has this remark.
fn line_of(remark: &str) -> u32 {
    let source = include_str!("guests/chain.c");
    let found = source.lines().position(|line| line.contains(remark));
    found.expect("a remark of the guest") as u32 + 1
}

fn known() {
    let folder = guest();
    let mut timeline = open(&folder);
    let recording = Recording::open(&folder).unwrap();
    let mut program = Program::new(&recording);
    timeline.seek(Target::End).unwrap();
    let place = |timeline: &mut Timeline, program: &mut Program, name: &str| {
        let answer = program
            .evaluate(timeline, name, &mut Default::default(), 1000)
            .unwrap();
        let (addr, len) = answer.value.unwrap().memory.unwrap();
        Value::Memory { addr, len }
    };
    let value = place(&mut timeline, &mut program, "total");
    let chain = ask(&mut timeline, &folder, &value);
    let told = tell::tell(&mut timeline, &mut program, &chain, true, 1000).unwrap();
    let lines: Vec<Option<u32>> = told.iter().map(|told| told.line).collect();
    for remark in ["// stored", "// tripled", "// summed"] {
        let line = Some(line_of(remark));
        assert!(lines.contains(&line), "{remark} is missing: {lines:?}");
    }
    let threads: Vec<u32> = chain.steps.iter().map(|step| step.thread).collect();
    assert!(threads.contains(&0) && threads.contains(&1), "{threads:?}");
    assert_eq!(chain.ending, Ending::Computed);
    let last = told.last().unwrap();
    assert_eq!(last.line, Some(line_of("// summed")));
    let used: Vec<u64> = last.used.iter().filter_map(|(_, value)| *value).collect();
    assert_eq!(used, [u64::from(b'2'), u64::from(b'4')], "{last:?}");

    let value = place(&mut timeline, &mut program, "constant");
    let chain = ask(&mut timeline, &folder, &value);
    assert_eq!(chain.ending, Ending::Constant);

    let value = place(&mut timeline, &mut program, "line[2]");
    let chain = ask(&mut timeline, &folder, &value);
    let read = |kind: &EventKind| matches!(kind, EventKind::Call(call) if call.nr == 0);
    assert!(
        matches!(&chain.ending, Ending::Event { kind, .. } if read(kind)),
        "{:?}",
        chain.ending
    );
    // Translated code answers these: no event has written what they give.
    for (name, call) in [
        ("by_result", "time()"),
        ("by_memory", "gettimeofday()"),
        ("by_clock", "clock_gettime()"),
    ] {
        let value = place(&mut timeline, &mut program, name);
        let chain = ask(&mut timeline, &folder, &value);
        let Ending::Event { kind, .. } = &chain.ending else {
            panic!("{name}: {:?}", chain.ending);
        };
        assert_eq!(kind.words(), call, "{name}");
    }

    let value = place(&mut timeline, &mut program, "queue[3]->text[5]");
    let chain = ask(&mut timeline, &folder, &value);
    assert!(chain.steps.is_empty(), "never written: {:?}", chain.steps);
    drop(timeline);
    common::no_children();
}

/// Random values at random places: each move moves the same value, and each definition is the last one.
fn questions(folder: &Path, seed: u64) {
    let random = &mut Random(seed | 1);
    let mut timeline = open(folder);
    timeline.seek(Target::End).unwrap();
    let end = timeline.position().unwrap();
    let (mut moves, mut definitions) = (0, 0);
    for _ in 0..QUESTIONS {
        let from = Position::after(random.below(end.event));
        if timeline.seek(Target::Position(from)).is_err() {
            continue;
        }
        for _ in 0..random.below(60) {
            timeline.step_any(Direction::Forward).unwrap();
        }
        let here = timeline.position().unwrap();
        let at = timeline.at();
        let names = ["rax", "rdi", "rsi", "rbx", "r12", "rdx", "r8"];
        let value = match random.below(2) {
            0 => Value::Register {
                thread: at.thread,
                register: register_named(names[random.below(7) as usize]).unwrap(),
                bytes: 0..8,
            },
            _ => Value::Memory {
                addr: at.sp + 8 * random.below(8),
                len: 8,
            },
        };
        let chain = ask(&mut timeline, folder, &value);
        for step in &chain.steps {
            if step.moved {
                same_value(&mut timeline, step);
                moves += 1;
            }
        }
        // Who wrote the memory last, by watching it. A value may be put together from several.
        let mut asked: Vec<(Position, u64, u64, usize)> = Vec::new();
        if let Value::Memory { addr, len } = value {
            asked.push((here, addr, len, 0));
        }
        for (n, step) in chain.steps.iter().enumerate().take(12) {
            if let [Source::Memory { addr, len }] = &step.from[..] {
                asked.push((step.position, *addr, *len, n + 1));
            }
        }
        for (behind, addr, len, next) in asked {
            let writes = |step: &&clew_slice::origin::Step| {
                let overlaps = |&(to, many): &(u64, u64)| to < addr + len && addr < to + many;
                step.written.iter().any(overlaps)
            };
            let Some(step) = chain.steps[next..].iter().find(writes) else {
                continue;
            };
            let found = last_write(&mut timeline, behind, addr, len);
            assert_eq!(found, Some(step.position), "{value:?} at {here}: {step:?}");
            definitions += 1;
        }
    }
    println!("  {moves} moves, {definitions} definitions");
    assert!(moves > 0 && definitions > 0);
}

/// What a move takes is what it leaves.
fn same_value(timeline: &mut Timeline, step: &clew_slice::origin::Step) {
    let ([Source::Memory { addr, len }], []) = (&step.from[..], &step.written[..]) else {
        let ([Source::Memory { addr, len }], [(to, _)]) = (&step.from[..], &step.written[..])
        else {
            return;
        };
        let before = bytes(timeline, step.position, *addr, *len);
        timeline.step_any(Direction::Forward).unwrap();
        let mut after = vec![0; *len as usize];
        timeline.read(*to, &mut after).unwrap();
        assert_eq!(before, after, "{step:?}");
        return;
    };
    // Into a register: one of its parts has the value then.
    let before = bytes(timeline, step.position, *addr, *len);
    timeline.step_any(Direction::Forward).unwrap();
    let registers = timeline.registers(step.thread).unwrap().unwrap();
    let words = registers.words.iter().flat_map(|word| word.to_le_bytes());
    let all: Vec<u8> = words.chain(registers.extended.iter().copied()).collect();
    let there = all.windows(before.len()).any(|part| part == before);
    assert!(there, "{before:x?} by {step:?}");
}

fn bytes(timeline: &mut Timeline, at: Position, addr: u64, len: u64) -> Vec<u8> {
    timeline.seek(Target::Position(at)).unwrap();
    let mut bytes = vec![0; len as usize];
    timeline.read(addr, &mut bytes).unwrap();
    bytes
}

/// Where memory was last written before a position, by an instruction; none if an event did it.
fn last_write(timeline: &mut Timeline, before: Position, addr: u64, len: u64) -> Option<Position> {
    timeline.seek(Target::Position(before)).unwrap();
    let kind = WatchKind::Access;
    timeline.set_stops(Stops {
        watches: vec![Watch { addr, len, kind }],
        ..Stops::default()
    });
    let found = loop {
        let stop = timeline.run(Direction::Backward, None).unwrap();
        match stop.reason {
            Reason::Watch { read: true, .. } => {}
            // What it writes of its area depends on what is in use; the watch takes all of it.
            Reason::Watch { .. } if is_xsave(timeline) => {}
            Reason::Watch { .. } => break Some(timeline.position().unwrap()),
            _ => break None,
        }
    };
    timeline.set_stops(Stops::default());
    found
}

fn is_xsave(timeline: &mut Timeline) -> bool {
    let mut code = [0; 15];
    let pc = timeline.at().pc;
    let len = timeline.read(pc, &mut code).unwrap();
    let ins = Decoder::new(64, &code[..len], DecoderOptions::NONE).decode();
    matches!(ins.mnemonic(), Mnemonic::Xsavec | Mnemonic::Xsave)
}

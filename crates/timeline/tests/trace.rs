//! Traces of recordings, compared with single steps: each instruction, and where its operands lie by its registers.
//!
//! `trace [GUEST]`, `CLEW_SEED=N`.

mod common;

use std::path::Path;

use clew_engine::trace::read::{Backwards, Bases, Entry, touched};
use clew_timeline::trace::Trace;
use clew_timeline::{Direction, Position, Reason, Registers, Target, Timeline};
use common::{Random, open, record_program, record_with};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, OpAccess, Register};

/// Stretches of each recording, and instructions in each.
const STRETCHES: usize = 30;
const STEPS: usize = 600;

fn main() {
    let seed = std::env::var("CLEW_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(std::process::id() as u64 * 7919);
    let guest = |name: &'static str, guest: &'static str, options: &'static [&'static str]| {
        common::test(name, move || {
            println!("CLEW_SEED={seed} looks at the same stretches");
            compare(&record_with(guest, options, &[]), seed);
            common::no_children();
        })
    };
    let program = |name: &'static str, line: &'static [&'static str]| {
        common::test(name, move || {
            println!("CLEW_SEED={seed} looks at the same stretches");
            compare(&record_program(&[], line), seed);
            common::no_children();
        })
    };
    common::tests(vec![
        guest("plain", "plain", &[]),
        guest("threads", "threads", &[]),
        guest("threads at random", "threads", &["--sched", "random"]),
        program(
            "bash",
            &["/bin/bash", "-c", "for i in 1 2 3; do : $((i * i)); done"],
        ),
        program(
            "perl",
            &[
                "/usr/bin/perl",
                "-e",
                "print sort map { $_ * 7 % 31 } 1..50",
            ],
        ),
        common::test("many segments", || {
            let line = [
                "/bin/bash",
                "-c",
                "for ((i = 0; i < 4000; i++)); do :; done",
            ];
            segments(&record_program(&[], &line));
            common::no_children();
        }),
        common::test("whole lives", move || {
            whole(&record_with("threads", &[], &[]))
        }),
    ])
}

/// An executed instruction.
#[derive(Debug)]
struct Executed {
    pc: u64,
    thread: u64,
    /// Where its operands begin, in order; none where that isn't told by registers alone.
    touched: Option<Vec<u64>>,
}

/// What a trace tells, from the first instruction to the last.
fn told(trace: &Trace) -> Vec<Executed> {
    let mut all: Vec<Executed> = Vec::new();
    let entries = trace.segments.iter().rev();
    let entries = entries.flat_map(|segment| Backwards::new(&trace.tables, segment));
    let mut runs = None;
    for entry in entries {
        match entry.expect("entries make sense") {
            Entry::Thread { thread, bases } => runs = Some((thread, bases)),
            entry => {
                let (thread, bases) = runs.expect("the last entry tells who ran");
                tell(trace, entry, thread, bases, &mut all);
            }
        }
    }
    all.reverse();
    all
}

/// One entry's instructions, the last first.
fn tell(trace: &Trace, entry: Entry, thread: u64, bases: Bases, all: &mut Vec<Executed>) {
    match entry {
        Entry::Run { end, slots } => {
            let block = &trace.tables.blocks[end.block as usize];
            for traced in block.instructions[..end.count as usize].iter().rev() {
                let repeats = traced.ins.has_rep_prefix() || traced.ins.has_repne_prefix();
                let known = !traced.odd && !repeats;
                let accesses = block.accesses(traced, slots, bases);
                let addresses = accesses.map(|access| access.expect("slots").addr);
                all.push(Executed {
                    pc: traced.ins.ip(),
                    thread,
                    touched: known.then(|| addresses.collect()),
                });
            }
        }
        Entry::Step {
            pc,
            touched: bytes,
            whole: true,
            ..
        } => {
            touched(bytes).count();
            all.push(Executed {
                pc,
                thread,
                touched: None,
            });
        }
        _ => {}
    }
}

/// Where the operands of an instruction begin, by its registers.
fn operands(code: &[u8], registers: &Registers) -> Option<Vec<u64>> {
    let words = &registers.words;
    let ins = Decoder::with_ip(64, code, words[16], DecoderOptions::NONE).decode();
    // A time call of the vdso writes, which isn't told by its code.
    let time_call = ins.mnemonic() == Mnemonic::Syscall;
    if ins.has_rep_prefix() || ins.has_repne_prefix() || time_call {
        return None;
    }
    let mut factory = InstructionInfoFactory::new();
    let value = |register: Register, _, _| match register {
        Register::FS => Some(words[18]),
        Register::GS => Some(words[19]),
        register if register.is_gpr64() => Some(words[register.number()]),
        register if register.is_segment_register() => Some(0),
        _ => None,
    };
    let used = factory.info(&ins).used_memory().to_vec();
    let real = used
        .iter()
        .filter(|used| !matches!(used.access(), OpAccess::None | OpAccess::NoMemAccess));
    real.map(|used| used.virtual_address(0, value)).collect()
}

/// Steps on from a position: what it executes, and where that leads.
fn step_from(timeline: &mut Timeline, from: Position, most: usize) -> (Vec<Executed>, Position) {
    timeline.seek(Target::Position(from)).unwrap();
    let mut steps = Vec::new();
    while steps.len() < most {
        let at = timeline.at();
        if at.next.is_none() {
            let registers = timeline.registers(at.thread).unwrap().unwrap();
            let mut code = [0; 15];
            let len = timeline.read(at.pc, &mut code).unwrap();
            // What it writes differs from CPU to CPU, so it is an event, which isn't seen before.
            let ins = Decoder::new(64, &code[..len], DecoderOptions::NONE).decode();
            let event = matches!(ins.mnemonic(), Mnemonic::Xsavec | Mnemonic::Xsave);
            if !event {
                steps.push(Executed {
                    pc: at.pc,
                    thread: u64::from(at.thread),
                    touched: operands(&code[..len], &registers),
                });
            }
        }
        let stop = timeline.step_any(Direction::Forward).unwrap();
        if stop.reason != Reason::Arrived {
            break;
        }
    }
    (steps, timeline.position().unwrap())
}

fn compare(folder: &Path, seed: u64) {
    let random = &mut Random(seed | 1);
    let mut timeline = open(folder);
    timeline.seek(Target::End).unwrap();
    let end = timeline.position().unwrap();
    let (mut instructions, mut operands) = (0, 0);
    for _ in 0..STRETCHES {
        let event = random.below(end.event);
        let from = Position::after(event);
        // Somewhere behind the event, not always right at it.
        if timeline.seek(Target::Position(from)).is_err() {
            continue;
        }
        for _ in 0..random.below(40) {
            timeline.step_any(Direction::Forward).unwrap();
        }
        let from = timeline.position().unwrap();
        let (steps, to) = step_from(&mut timeline, from, STEPS);
        let trace = timeline.trace(from, to).unwrap();
        assert!(trace.complete);
        let told = told(&trace);
        for (n, (told, step)) in told.iter().zip(&steps).enumerate() {
            let place = format!("instruction {n} of {from}..{to}");
            assert_eq!((told.pc, told.thread), (step.pc, step.thread), "{place}");
            if let (Some(told), Some(expected)) = (&told.touched, &step.touched) {
                assert_eq!(told, expected, "{place}, at {:#x}", step.pc);
                operands += expected.len();
            }
        }
        assert_eq!(told.len(), steps.len(), "{from}..{to}");
        instructions += told.len();
    }
    println!("  {instructions} instructions, {operands} operands");
    assert!(instructions > 0 && operands > 0);
}

/// From the beginning to the end, through many segments.
fn whole(folder: &Path) {
    let mut timeline = open(folder);
    let from = timeline.position().unwrap();
    timeline.seek(Target::End).unwrap();
    let to = timeline.position().unwrap();
    let once = timeline.trace(from, to).unwrap();
    assert!(once.complete);
    let again = timeline.trace(from, to).unwrap();
    let (once, again) = (told(&once), told(&again));
    println!("  {} instructions", once.len());
    assert_eq!(once.len(), again.len());
    assert!(once.iter().zip(&again).all(|(a, b)| a.pc == b.pc));
}

/// Where segments end nothing is lost: a long trace has as many instructions as short ones of its parts.
fn segments(folder: &Path) {
    const PARTS: u64 = 40;
    let mut timeline = open(folder);
    timeline.seek(Target::End).unwrap();
    let (end, ticks) = (timeline.position().unwrap(), timeline.at().work);
    let start = timeline.start();
    let mut cuts = vec![start];
    for part in 1..PARTS {
        if timeline
            .seek(Target::Ticks(ticks * part / PARTS / 2))
            .is_ok()
        {
            cuts.push(timeline.position().unwrap());
        }
    }
    cuts.push(end);
    cuts.dedup();
    let whole = timeline.trace(start, end).unwrap();
    assert!(whole.segments.len() > 4, "{}", whole.segments.len());
    let parts = cuts.windows(2).map(|cut| {
        let part = timeline.trace(cut[0], cut[1]).unwrap();
        count(&part)
    });
    assert_eq!(count(&whole), parts.sum::<u64>());
}

fn count(trace: &Trace) -> u64 {
    let entries = trace.segments.iter();
    let entries = entries.flat_map(|segment| Backwards::new(&trace.tables, segment));
    let count = entries.map(|entry| match entry.expect("entries make sense") {
        Entry::Run { end, .. } => u64::from(end.count),
        Entry::Step { whole, .. } => u64::from(whole),
        _ => 0,
    });
    count.sum()
}

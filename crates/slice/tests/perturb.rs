//! What a slice says doesn't matter is changed, in an excursion, and the program runs the same way to the question's place: the
//! value must be the same. A branch of the slice must go the same way. What is only moved there is changed, too: the
//! value must change with it.
//!
//! `CLEW_SEED=N` asks other questions; `CLEW_QUESTIONS=N` asks more of them.

#[path = "../../timeline/tests/common/mod.rs"]
mod common;

use std::path::Path;

use clew_recording::reader::Recording;
use clew_slice::closure::{Bounds, Kinds, Question, Slice, slice};
use clew_slice::origin::{Value, register_named};
use clew_timeline::program::Program;
use clew_timeline::{
    Break, Direction, Excursion, ExcursionEnd, Position, Reason, Stops, Target, Timeline,
};
use common::{Random, open, record_program};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess,
};

const QUESTIONS: u64 = 25;
/// Of the short form, which is always run.
const FEW: u64 = 4;
/// Instructions from where something is changed to where the value is looked at.
const LONGEST: u64 = 300;
const CHANGES: u64 = 4;
const TICKS: u64 = 1_000;

fn main() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("CLEW_SEED").unwrap_or(7919);
    let questions = number("CLEW_QUESTIONS").unwrap_or(QUESTIONS);
    let asked = |name: &'static str, questions: u64, line: &'static [&'static str]| {
        common::test(name, move || {
            println!("CLEW_SEED={seed}");
            let mut tally = Tally::default();
            ask_all(&record_program(&[], line), seed, questions, &mut tally);
            println!("{tally:?}");
            assert!(tally.same > 0, "nothing was tried");
            common::no_children();
        })
    };
    // Some changes in the dynamic linker's own code lead elsewhere where they shouldn't, not in every run; why isn't known.
    let program = |name: &'static str, line: &'static [&'static str]| {
        asked(name, questions, line).with_ignored_flag(true)
    };
    common::tests(vec![
        asked("a few in sort", FEW, &["/usr/bin/sort", "/etc/passwd"]),
        asked(
            "a few in perl",
            FEW,
            &["/usr/bin/perl", "-e", "print map { $_ * 7 % 31 } 1..20"],
        ),
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
            &[
                "/usr/bin/perl",
                "-e",
                "print sort map { $_ * 7 % 31 } 1..50",
            ],
        ),
        program("sort", &["/usr/bin/sort", "/etc/passwd"]),
        program(
            "python3",
            &[
                "/usr/bin/python3",
                "-c",
                "print(sum(i * i for i in range(50)))",
            ],
        ),
    ])
}

#[derive(Debug, Default)]
struct Tally {
    /// Changed, and the value stayed as it was.
    same: u64,
    /// Changed, and the value with it, as it should.
    changed: u64,
    /// It went another way where the slice doesn't care, or ended.
    elsewhere: u64,
    /// It wrote to other addresses, which the slice wasn't asked about.
    aliased: u64,
}

/// One executed instruction.
struct Step {
    position: Position,
    ins: Instruction,
}

fn ask_all(folder: &Path, seed: u64, questions: u64, tally: &mut Tally) {
    let random = &mut Random(seed | 1);
    let mut timeline = open(folder);
    let recording = Recording::open(folder).unwrap();
    let mut program = Program::new(&recording);
    timeline.seek(Target::End).unwrap();
    let end = timeline.position().unwrap();
    for _ in 0..questions {
        let from = Position::after(random.below(end.event));
        if timeline.seek(Target::Position(from)).is_err() {
            continue;
        }
        for _ in 0..random.below(40) {
            timeline.step_any(Direction::Forward).unwrap();
        }
        let from = timeline.position().unwrap();
        let path = path(&mut timeline, 5 + random.below(LONGEST));
        let Some(last) = path.last() else {
            continue;
        };
        if path.len() < 5 {
            continue;
        }
        timeline.seek(Target::Position(last.position)).unwrap();
        let thread = timeline.at().thread;
        let names = ["rax", "rdx", "rsi", "rbx", "rcx", "rdi", "r8", "r12"];
        let name = names[random.below(names.len() as u64) as usize];
        let register = register_named(name).unwrap();
        let value = Value::Register {
            thread,
            register,
            bytes: 0..8,
        };
        let question = Question {
            values: vec![value],
            here: true,
        };
        let bounds = Bounds {
            from: Some(from),
            ..Bounds::default()
        };
        // Nothing is left out.
        let kinds = Kinds {
            libraries: true,
            ..Kinds::default()
        };
        let log = recording.stream(timeline.stream()).unwrap();
        let modules = program.modules(&mut timeline).unwrap();
        let found = slice(&mut timeline, log, modules, &question, kinds, bounds).unwrap();
        let words = timeline.registers(thread).unwrap().unwrap().words;
        let expected = words[register.number()];
        timeline.seek(Target::Position(from)).unwrap();
        for _ in 0..CHANGES {
            let what = format!("{name} at {} from {from}", last.position);
            change(
                &mut timeline,
                &found,
                &path,
                register.number(),
                expected,
                random,
                tally,
                &what,
            );
        }
    }
}

/// The instructions from here on, as far as no event comes between; the timeline stands behind them.
fn path(timeline: &mut Timeline, most: u64) -> Vec<Step> {
    let mut path = Vec::new();
    let event = timeline.at().event;
    while path.len() < most as usize {
        let at = timeline.at();
        let position = timeline.position().unwrap();
        if at.event != event || at.next.is_some() {
            break;
        }
        let mut bytes = [0; 15];
        let got = timeline.read(at.pc, &mut bytes).unwrap();
        let ins = Decoder::with_ip(64, &bytes[..got], at.pc, DecoderOptions::NONE).decode();
        path.push(Step { position, ins });
        if timeline.step_any(Direction::Forward).unwrap().reason != Reason::Arrived {
            break;
        }
    }
    path
}

/// Changes one register that doesn't matter (or, if the value is only moved, the one that does), and runs.
#[allow(clippy::too_many_arguments)]
fn change(
    timeline: &mut Timeline,
    found: &Slice,
    path: &[Step],
    register: usize,
    expected: u64,
    random: &mut Random,
    tally: &mut Tally,
    what: &str,
) {
    const RSP: u64 = 4;
    let live = found
        .registers
        .iter()
        .fold(0, |all, (_, cells)| all | cells);
    let used = used_first(path);
    if used.is_empty() {
        return;
    }
    let number = used[random.below(used.len() as u64) as usize];
    let bytes = live >> (8 * number) & 0xff;
    // A whole register that counts and is only moved, or one of which nothing counts.
    let moved =
        found.count == 0 && found.rest.is_empty() && bytes == 0xff && live == bytes << (8 * number);
    if number == RSP || bytes != 0 && !moved {
        return;
    }
    // Small ones make no wild pointers.
    let flip = match random.below(3) {
        0 => random.below(u64::MAX) | 1,
        _ => 1 << random.below(5),
    };
    let start = |timeline: &mut Timeline| {
        let mut excursion = timeline.excursion().unwrap();
        let thread = excursion.thread();
        let mut registers = excursion.registers(thread).unwrap().unwrap();
        registers.words[number as usize] ^= flip;
        excursion.set_registers(thread, &registers).unwrap();
        excursion
    };
    let mut excursion = start(timeline);
    match follow(&mut excursion, path) {
        Followed::Elsewhere(at) => {
            let member = found
                .members
                .iter()
                .any(|member| member.position == path[at].position);
            let way: Vec<String> = path[..=at]
                .iter()
                .map(|step| step.ins.to_string())
                .collect();
            let changed = format!("register {number} by {flip:#x}, {}", way.join("; "));
            assert!(
                !member || aliased(&mut start(timeline), timeline, path),
                "{what}: {changed}: the branch at {} goes elsewhere, and is in the slice",
                path[at].position
            );
            tally.elsewhere += 1;
        }
        Followed::Ended => tally.elsewhere += 1,
        Followed::There => {
            let thread = excursion.thread();
            let got = excursion.registers(thread).unwrap().unwrap().words[register];
            if moved {
                assert_ne!(
                    got, expected,
                    "{what}: register {number} is moved there, and changes nothing"
                );
                tally.changed += 1;
            } else if got == expected {
                tally.same += 1;
            } else {
                assert!(
                    aliased(&mut start(timeline), timeline, path),
                    "{what}: register {number} by {flip:#x} doesn't matter, but it is {got:#x}, not {expected:#x}"
                );
                tally.aliased += 1;
            }
        }
    }
}

/// General registers that the path reads before it writes them: what they hold may matter to something.
fn used_first(path: &[Step]) -> Vec<u64> {
    let mut factory = InstructionInfoFactory::new();
    let (mut used, mut written) = (Vec::new(), [false; 16]);
    for step in path {
        let info = factory.info(&step.ins);
        for register in info.used_registers() {
            let full = register.register().full_register();
            if !full.is_gpr64() {
                continue;
            }
            let reads = !matches!(register.access(), OpAccess::Write | OpAccess::CondWrite);
            let number = full.number();
            if reads && !written[number] && !used.contains(&(number as u64)) {
                used.push(number as u64);
            }
        }
        for register in info.used_registers() {
            let full = register.register().full_register();
            if full.is_gpr64() && register.access() != OpAccess::Read {
                written[full.number()] = true;
            }
        }
    }
    used
}

enum Followed {
    There,
    /// At this instruction.
    Elsewhere(usize),
    Ended,
}

fn run_to(excursion: &mut Excursion, places: &[u64]) -> Option<u64> {
    let stops = Stops {
        breaks: places
            .iter()
            .map(|&addr| Break {
                addr,
                thread: None,
                conditions: Vec::new(),
            })
            .collect(),
        ..Stops::default()
    };
    let ran = excursion.run(stops, TICKS).unwrap();
    (ran.end == ExcursionEnd::Break).then_some(ran.pc)
}

/// Runs along the path: to each branch, and over it.
fn follow(excursion: &mut Excursion, path: &[Step]) -> Followed {
    let mut pc = path[0].ins.ip();
    for n in 0..path.len() - 1 {
        let (ins, next) = (&path[n].ins, path[n + 1].ins.ip());
        let decides = matches!(
            ins.flow_control(),
            FlowControl::ConditionalBranch
                | FlowControl::IndirectBranch
                | FlowControl::IndirectCall
                | FlowControl::Return
        );
        let last = n + 2 == path.len();
        if !decides && !last {
            continue;
        }
        if pc != ins.ip() && run_to(excursion, &[ins.ip()]).is_none() {
            return Followed::Ended;
        }
        let mut places = vec![next];
        if ins.flow_control() == FlowControl::ConditionalBranch {
            places.extend([ins.near_branch_target(), ins.next_ip()]);
            places.dedup();
        }
        match run_to(excursion, &places) {
            Some(at) if at == next => pc = at,
            Some(_) => return Followed::Elsewhere(n),
            None if decides => return Followed::Elsewhere(n),
            None => return Followed::Ended,
        }
    }
    Followed::There
}

/// Whether the changed run addresses other memory than the recorded one, before it goes elsewhere.
fn aliased(changed: &mut Excursion, timeline: &mut Timeline, path: &[Step]) -> bool {
    let mut plain = timeline.excursion().unwrap();
    for steps in path.windows(2) {
        let (ins, next) = (&steps[0].ins, steps[1].ins.ip());
        let mut addresses = [Vec::new(), Vec::new()];
        for (excursion, addresses) in [&mut *changed, &mut plain].into_iter().zip(&mut addresses) {
            let thread = excursion.thread();
            let words = excursion.registers(thread).unwrap().unwrap().words;
            let used = [ins.memory_base(), ins.memory_index()];
            let used = used.into_iter().filter(|register| register.is_gpr());
            addresses.extend(used.map(|register| words[register.full_register().number()]));
            if ins.is_string_instruction() || ins.is_stack_instruction() {
                addresses.extend([words[1], words[4], words[6], words[7]]);
            }
        }
        if addresses[0] != addresses[1] {
            return true;
        }
        let ran = [&mut *changed, &mut plain].map(|excursion| run_to(excursion, &[next]));
        if ran.iter().any(Option::is_none) {
            return false;
        }
    }
    false
}

//! What a run failed by, as a question. In: a timeline. Out: what to ask at which place: the address that a crash went to,
//! what decided that an assertion failed, the last bytes that went out.

use clew_recording::event::{Event, Record};
use clew_recording::reader::Recording;
use clew_symbols::Frame;
use clew_timeline::program::Program;
use clew_timeline::{Break, Direction, Position, Reason, Stops, Target, Timeline};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use crate::Result;
use crate::closure::Question;
use crate::origin::Value;

/// A failure; the timeline stands where it is to be asked about.
#[derive(Clone, Debug)]
pub struct Failure {
    pub question: Question,
    /// What it is, in words.
    pub words: String,
}

const SIGILL: i32 = 4;
const SIGABRT: i32 = 6;
const SIGBUS: i32 = 7;
const SIGFPE: i32 = 8;
const SIGSEGV: i32 = 11;

/// Functions that report a failure and don't return: who called the outermost of them has decided.
fn reports(name: &str) -> bool {
    const NAMES: [&str; 12] = [
        "abort",
        "raise",
        "__assert_fail",
        "__assert_fail_base",
        "__assert_perror_fail",
        "__stack_chk_fail",
        "__fortify_fail",
        "__chk_fail",
        "__libc_message",
        "pthread_kill",
        "std::terminate",
        "exit",
    ];
    let plain = name.split('(').next().unwrap_or(name);
    let base = plain.rsplit("::").next().unwrap_or(plain);
    NAMES.contains(&plain)
        || NAMES.contains(&base)
        || plain.starts_with("__GI_")
        || plain.contains("pthread_kill")
        || plain.starts_with("core::panicking")
        || plain.starts_with("std::panicking")
        || plain.starts_with("rust_panic")
        || plain.starts_with("__rust")
        || plain.starts_with("std::sys")
        || plain.starts_with("core::option::unwrap_failed")
        || plain.starts_with("core::result::unwrap_failed")
        || plain.starts_with("core::option::expect_failed")
        || plain.starts_with("std::process::abort")
}

/// How a stream's log ends.
enum LogEnd {
    Killed(i32),
    Other,
}

/// What failed, if anything did that can be asked about.
pub fn what_failed(
    timeline: &mut Timeline,
    program: &mut Program,
    recording: &Recording,
) -> Result<Option<Failure>> {
    timeline.seek(Target::End)?;
    let (end, output) = ends(timeline, recording);
    match end {
        LogEnd::Killed(SIGABRT) => {
            if let Some(failure) = reported(timeline, program)? {
                return Ok(Some(failure));
            }
        }
        LogEnd::Killed(signo @ (SIGSEGV | SIGBUS | SIGFPE | SIGILL)) => {
            if let Some(failure) = crashed(timeline, signo)? {
                return Ok(Some(failure));
            }
        }
        _ => {}
    }
    let Some((position, addr, len)) = output else {
        return Ok(None);
    };
    timeline.seek(Target::Position(position))?;
    Ok(Some(Failure {
        question: Question {
            values: vec![Value::Memory { addr, len }],
            here: false,
        },
        words: format!("the last {len} bytes that were written, at {position}"),
    }))
}

/// How the log ends, and the last call that wrote to stdout or stderr: where, and its bytes.
fn ends(timeline: &Timeline, recording: &Recording) -> (LogEnd, Option<(Position, u64, u64)>) {
    let (mut end, mut output) = (LogEnd::Other, None);
    let Ok(mut reader) = recording.stream(timeline.stream()) else {
        return (end, output);
    };
    const WRITE: u32 = 1;
    let mut number = 0;
    while let Ok(Some(record)) = reader.next_in_place() {
        let Record::Event(event) = record else {
            continue;
        };
        match event {
            Event::Killed { signo, .. } => end = LogEnd::Killed(*signo),
            Event::Call(call) if call.output.is_some() && call.nr == WRITE && call.args[2] > 0 => {
                let position = Position {
                    event: number,
                    ticks: call.ticks,
                    steps: 0,
                };
                output = Some((position, call.args[1], call.args[2].min(1 << 20)));
            }
            _ => {}
        }
        number += 1;
    }
    (end, output)
}

/// Whoever called what reports failures: why did it?
fn reported(timeline: &mut Timeline, program: &mut Program) -> Result<Option<Failure>> {
    let thread = timeline.at().thread;
    let stack = program.stack(timeline, thread)?;
    let is_report = |frame: &Frame| frame.function.as_deref().is_some_and(reports);
    let Some(last) = stack.frames.iter().rposition(is_report) else {
        return Ok(None);
    };
    let (Some(entry), Some(caller)) = (entry(&stack.frames[last]), stack.frames.get(last + 1))
    else {
        return Ok(None);
    };
    let words = format!(
        "{} called {}",
        caller.function.as_deref().unwrap_or("something"),
        stack.frames[last].function.as_deref().unwrap_or("abort")
    );
    let before = timeline.stops().clone();
    timeline.set_stops(Stops {
        breaks: vec![Break {
            addr: entry,
            thread: Some(thread),
            conditions: Vec::new(),
        }],
        ..Stops::default()
    });
    let stop = timeline.run(Direction::Backward, None);
    timeline.set_stops(before);
    if stop?.reason != Reason::Break {
        return Ok(None);
    }
    // Through a stub, if there is one, to the call.
    for _ in 0..4 {
        timeline.step(Direction::Backward, thread)?;
        if instruction(timeline)?
            .is_some_and(|ins| ins.is_call_near() || ins.is_call_near_indirect())
        {
            break;
        }
    }
    Ok(Some(Failure {
        question: Question {
            values: Vec::new(),
            here: true,
        },
        words,
    }))
}

/// Where a frame's function begins.
fn entry(frame: &Frame) -> Option<u64> {
    Some(frame.pc.wrapping_sub(frame.offset?))
}

/// The instruction where the timeline stands.
fn instruction(timeline: &mut Timeline) -> Result<Option<Instruction>> {
    let pc = timeline.at().pc;
    let mut bytes = [0; 15];
    let got = timeline.read(pc, &mut bytes)?;
    let ins = Decoder::with_ip(64, &bytes[..got], pc, DecoderOptions::NONE).decode();
    Ok((!ins.is_invalid()).then_some(ins))
}

/// A fault: what its address was made of, or what was divided by.
fn crashed(timeline: &mut Timeline, signo: i32) -> Result<Option<Failure>> {
    let thread = timeline.at().thread;
    let mut at = instruction(timeline)?;
    if at.is_none() {
        // It jumped to nowhere: by which value?
        timeline.step(Direction::Backward, thread)?;
        at = instruction(timeline)?;
    }
    let Some(ins) = at else {
        return Ok(None);
    };
    let register = |register: Register| Value::Register {
        thread,
        register,
        bytes: 0..register.size() as u8,
    };
    let followed = |register: &Register| register.is_gpr() && *register != Register::None;
    let mut values: Vec<Value> = match ins.mnemonic() {
        Mnemonic::Div | Mnemonic::Idiv if signo == SIGFPE => (0..ins.op_count())
            .filter(|n| ins.op_kind(*n) == OpKind::Register)
            .map(|n| register(ins.op_register(n)))
            .collect(),
        Mnemonic::Ret | Mnemonic::Pop | Mnemonic::Push => vec![register(Register::RSP)],
        _ if ins.op0_kind() == OpKind::Register
            && (ins.is_call_near_indirect() || ins.is_jmp_near_indirect()) =>
        {
            vec![register(ins.op0_register())]
        }
        _ => [ins.memory_base(), ins.memory_index()]
            .into_iter()
            .filter(followed)
            .map(register)
            .collect(),
    };
    if ins.is_string_instruction() {
        values.extend([Register::RSI, Register::RDI].map(register));
    }
    if values.is_empty() && (0..ins.op_count()).any(|n| ins.op_kind(n) == OpKind::Memory) {
        let registers = timeline.registers(thread)?;
        let value = |register: Register, _, _| match register {
            Register::FS | Register::GS => None,
            register => registers
                .as_ref()?
                .words
                .get(register.full_register().number())
                .copied(),
        };
        if let Some(addr) = (0..ins.op_count())
            .find(|n| ins.op_kind(*n) == OpKind::Memory)
            .and_then(|n| ins.virtual_address(n, 0, value))
        {
            values.push(Value::Memory { addr, len: 8 });
        }
    }
    let words = match signo {
        SIGFPE => "what was divided by when it crashed".into(),
        _ => format!("the address that it crashed at (signal {signo})"),
    };
    let here = values.is_empty();
    Ok(Some(Failure {
        question: Question { values, here },
        words,
    }))
}

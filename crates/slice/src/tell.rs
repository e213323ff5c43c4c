//! A chain as people read it: in: steps. Out: for each its line and function, and the value that it produced and those
//! that it used, as they were then.

use clew_symbols::{Modules, Place as Code};
use clew_timeline::program::Program;
use clew_timeline::{Position, Registers, Target, Timeline};
use iced_x86::{Formatter, IntelFormatter, Register};

use crate::Result;
use crate::origin::{Chain, Source, Step};

/// One step, told.
#[derive(Clone, Debug)]
pub struct Told {
    pub position: Position,
    pub thread: u32,
    pub pc: u64,
    /// The instruction.
    pub text: String,
    pub moved: bool,
    pub function: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
    /// What was read, by name, and its value then.
    pub used: Vec<(String, Option<u64>)>,
    /// What was written of the value: where, and what stood there then.
    pub wrote: Option<(String, Option<u64>)>,
}

/// Tells the steps that aren't moves, or all; at most so many.
pub fn tell(
    timeline: &mut Timeline,
    program: &mut Program,
    chain: &Chain,
    moves: bool,
    most: usize,
) -> Result<Vec<Told>> {
    let wanted = chain.steps.iter().filter(|step| moves || !step.moved);
    let here = timeline.position()?;
    let mut all = Vec::new();
    for step in wanted.take(most) {
        all.push(told(timeline, program, step)?);
    }
    timeline.seek(Target::Position(here))?;
    Ok(all)
}

fn told(timeline: &mut Timeline, program: &mut Program, step: &Step) -> Result<Told> {
    timeline.seek(Target::Position(step.position))?;
    let modules = program.modules(timeline)?;
    let registers = timeline.registers(step.thread)?;
    let used = step.from.iter().map(|source| match source {
        Source::Register(register) => {
            let value = registers.as_ref().and_then(|all| value(all, *register));
            (format!("{register:?}").to_lowercase(), value)
        }
        Source::Other => ("flags".into(), None),
        Source::Memory { addr, len } => (format!("[{addr:#x}]"), number(timeline, *addr, *len)),
    });
    let used = used.collect();
    let written = step.written.first().copied();
    let wrote = match written {
        Some((addr, len)) => {
            timeline.step_any(clew_timeline::Direction::Forward)?;
            Some((format!("[{addr:#x}]"), number(timeline, addr, len)))
        }
        None => None,
    };
    let place = place(&modules, step.ins.ip());
    let line = place.as_ref().and_then(|place| place.line.as_ref());
    let mut text = String::new();
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_branch_leading_zeros(false);
    formatter.format(&step.ins, &mut text);
    Ok(Told {
        position: step.position,
        thread: step.thread,
        pc: step.ins.ip(),
        text,
        moved: step.moved,
        function: place
            .as_ref()
            .and_then(|place| place.function.as_ref().map(|f| f.to_string())),
        file: line.map(|line| line.file.to_string()),
        line: line.map(|line| line.line),
        used,
        wrote,
    })
}

/// The innermost function and line of an address.
fn place(modules: &Modules, pc: u64) -> Option<Code> {
    let image = modules.find(pc)?;
    let places = image.module.places_at(image.local(pc)).ok()?;
    places.into_iter().next()
}

/// The value of a general register, or the low half of a vector's low half.
fn value(registers: &Registers, register: Register) -> Option<u64> {
    let number = register.full_register().number();
    if register.is_gpr() {
        let word = *registers.words.get(number)?;
        let bits = 8 * register.size() as u32;
        return Some(word & (u64::MAX >> (64 - bits)));
    }
    const XMM: usize = 160;
    let at = XMM + 16 * number;
    let bytes = registers.extended.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Up to eight bytes there, as a number.
fn number(timeline: &mut Timeline, addr: u64, len: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    let len = len.min(8) as usize;
    let got = timeline.read(addr, &mut bytes[..len]).ok()?;
    (got == len).then(|| u64::from_le_bytes(bytes))
}

//! A chain as people read it: in: steps. Out: for each its line and function, and the value that it produced and those
//! that it used, as they were then.

use clew_symbols::{Modules, Place as Code};
use clew_timeline::program::Program;
use clew_timeline::{Position, Registers, Target, Timeline};
use iced_x86::{
    Formatter, Instruction, InstructionInfo, InstructionInfoFactory, IntelFormatter, Mnemonic,
    OpAccess, OpKind, Register,
};

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

/// Tells one instruction, as it was executed at a position: what it reads, and what it leaves in its destination.
pub fn executed(
    timeline: &mut Timeline,
    program: &mut Program,
    position: Position,
    thread: u32,
    ins: &Instruction,
) -> Result<Told> {
    timeline.seek(Target::Position(position))?;
    let registers = timeline.registers(thread)?;
    let address = |n: u32| {
        let word = |register: Register, _, _| {
            let all = registers.as_ref()?;
            match register {
                Register::FS => all.words.get(FS_BASE).copied(),
                Register::GS => all.words.get(FS_BASE + 1).copied(),
                Register::ES | Register::DS | Register::SS | Register::CS => Some(0),
                register => value(all, register),
            }
        };
        ins.virtual_address(n, 0, word)
    };
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(ins);
    let (mut from, mut written) = (Vec::new(), Vec::new());
    for n in 0..ins.op_count() {
        let access = info.op_access(n);
        let reads = !matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::None | OpAccess::NoMemAccess
        );
        let writes = !matches!(
            access,
            OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess
        );
        let memory = (ins.op_kind(n) == OpKind::Memory)
            .then(|| address(n))
            .flatten()
            .map(|addr| (addr, ins.memory_size().size() as u64));
        if let Some((addr, len)) = memory {
            from.extend(reads.then_some(Source::Memory { addr, len }));
            written.extend(writes.then_some((addr, len)));
        } else if ins.op_kind(n) == OpKind::Register && reads {
            from.push(Source::Register(ins.op_register(n)));
        }
    }
    if ins.mnemonic() == Mnemonic::Lea {
        let parts = [ins.memory_base(), ins.memory_index()].into_iter();
        let parts = parts.filter(|part| part.is_gpr());
        from.extend(parts.map(Source::Register));
    }
    let target = (ins.op_count() > 0 && ins.op0_kind() == OpKind::Register)
        .then(|| ins.op0_register())
        .filter(|register| register.is_gpr() && written.is_empty());
    let step = Step {
        position,
        thread,
        ins: *ins,
        moved: false,
        written,
        from,
    };
    let mut told = told(timeline, program, &step)?;
    if let Some(register) = target.filter(|_| info_writes_first(info)) {
        timeline.seek(Target::Position(position))?;
        timeline.step(clew_timeline::Direction::Forward, thread)?;
        let after = timeline.registers(thread)?;
        let after = after.and_then(|all| value(&all, register));
        told.wrote = Some((format!("{register:?}").to_lowercase(), after));
    }
    Ok(told)
}

const FS_BASE: usize = 18;

fn info_writes_first(info: &InstructionInfo) -> bool {
    matches!(
        info.op0_access(),
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
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

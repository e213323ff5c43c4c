//! What flows where in an instruction. In: an instruction. Out: its destinations, each with the sources of its value, and
//! whether it only moves them.
//!
//! The decoder's table of used registers and memory is the source; where several destinations have different sources, or
//! a value is moved as it is, that is told here by name.

mod areas;
mod moves;
mod tables;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register};

use crate::cells::Cells;
use tables::{addresses_only, is_constant, keeps_flags, masks_stores, moves_strings, repeats};
use tables::{rounds, uses_x87};

/// Where a value is, within one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// A register, whose bytes correspond to the other side's if it is moved.
    Register(Register),
    Cells(Cells),
    /// The upper half of a vector register.
    Upper(u8),
    /// An access to memory, by its number.
    Memory(u8),
    /// Some bytes of an access.
    Part {
        access: u8,
        at: u16,
        len: u16,
    },
}

impl Site {
    /// The cells of a register, or none of memory.
    pub fn cells(&self) -> Option<Cells> {
        match self {
            Site::Register(register) => Some(Cells::of(*register)),
            Site::Cells(cells) => Some(*cells),
            Site::Upper(number) => Some(Cells::vector(usize::from(*number), 16, 16)),
            Site::Memory(_) | Site::Part { .. } => None,
        }
    }
}

/// One destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    pub to: Site,
    /// The destination's cells, if it is a register.
    pub cells: Option<Cells>,
    pub from: Vec<Site>,
    /// The value is moved byte by byte, so many of them; what the destination has more than that, or than the source, is
    /// zero.
    pub moved: bool,
    pub width: u8,
    /// The old value may stay.
    pub maybe: bool,
}

/// However many there are.
const ALL: u8 = u8::MAX;

impl Flow {
    fn computed(to: Site, from: Vec<Site>, maybe: bool) -> Flow {
        Flow {
            to,
            cells: to.cells(),
            from,
            moved: false,
            width: ALL,
            maybe,
        }
    }

    fn moved(to: Site, from: Site) -> Flow {
        Flow {
            to,
            cells: to.cells(),
            from: vec![from],
            moved: true,
            width: ALL,
            maybe: false,
        }
    }
}

/// All of an instruction.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    pub flows: Vec<Flow>,
    /// All values that it reads, whatever becomes of them.
    pub reads: Vec<Site>,
    /// Registers that addresses are made of.
    pub addresses: Cells,
    /// All register cells that it may write.
    pub defines: Cells,
    /// Accesses to memory that it may write, a bit each.
    pub writes: u8,
}

/// Finds flows; keeps what the decoder's tables need.
pub struct Finder {
    factory: InstructionInfoFactory,
}

impl Default for Finder {
    fn default() -> Finder {
        Finder {
            factory: InstructionInfoFactory::new(),
        }
    }
}

const READS: [OpAccess; 4] = [
    OpAccess::Read,
    OpAccess::CondRead,
    OpAccess::ReadWrite,
    OpAccess::ReadCondWrite,
];
const WRITES: [OpAccess; 4] = [
    OpAccess::Write,
    OpAccess::CondWrite,
    OpAccess::ReadWrite,
    OpAccess::ReadCondWrite,
];

fn maybe(access: OpAccess) -> bool {
    matches!(access, OpAccess::CondWrite | OpAccess::ReadCondWrite)
}

/// Accesses to memory are numbered as they stand in the decoder's list, those that are none left out.
fn real(access: OpAccess) -> bool {
    READS.contains(&access) || WRITES.contains(&access)
}

/// A call is executed as an instruction only where translated code answers it: a time call. It gives a result and writes
/// the time; nothing that the program has goes in.
fn answered() -> Flows {
    let result = Site::Register(Register::RAX);
    let to = [result, Site::Memory(0)];
    Flows {
        flows: to.map(|to| Flow::computed(to, Vec::new(), false)).into(),
        defines: Cells::of(Register::RAX),
        writes: 1,
        ..Flows::default()
    }
}

impl Finder {
    pub fn find(&mut self, ins: &Instruction) -> Flows {
        if ins.mnemonic() == Mnemonic::Vzeroupper {
            return areas::upper_halves();
        }
        if ins.mnemonic() == Mnemonic::Syscall {
            return answered();
        }
        if let Some(flows) = areas::area(ins) {
            return flows;
        }
        let info = self.factory.info(ins);
        let mut flows = Flows::default();
        let (mut sources, mut kept) = (Vec::new(), Vec::new());
        let mut accesses = Vec::new();
        for used in info.used_memory().iter().filter(|used| real(used.access())) {
            let number = accesses.len() as u8;
            for register in [used.base(), used.index()] {
                flows.addresses.add(&Cells::of(register));
            }
            if READS.contains(&used.access()) {
                sources.push(Site::Memory(number));
            }
            if WRITES.contains(&used.access()) {
                flows.writes |= 1 << number;
                kept.push((
                    Site::Memory(number),
                    maybe(used.access()) || masks_stores(ins),
                ));
            }
            accesses.push(used.access());
        }
        let stack = ins.is_stack_instruction();
        let mut values = Cells::NONE;
        for used in info.used_registers() {
            let (register, access) = (used.register(), used.access());
            let cells = Cells::of(register);
            // The stack pointer of push and pop is an address, and moves by a constant.
            let rsp = register.full_register() == Register::RSP;
            let plumbing = stack && rsp && ins.mnemonic() != Mnemonic::Leave;
            let address = plumbing || addresses_only(ins, register);
            if READS.contains(&access) && !address {
                values.add(&cells);
            }
            if WRITES.contains(&access) && !cells.is_empty() {
                flows.defines.add(&cells);
                match plumbing {
                    // What is popped into it stands for itself.
                    true if ins.mnemonic() == Mnemonic::Pop && ins.op0_register() == register => {
                        let popped = Site::Register(register);
                        flows.flows.push(Flow::moved(popped, Site::Memory(0)));
                    }
                    true => {
                        let same = Site::Cells(cells);
                        flows.flows.push(Flow::computed(same, vec![same], false));
                    }
                    false => kept.push((Site::Cells(cells), maybe(access) || repeats(ins))),
                }
            }
        }
        if uses_x87(ins) {
            // Its registers change their names with each load: all of them are one.
            values.add(&Cells::x87());
            flows.defines.add(&Cells::x87());
            kept.retain(|(to, _)| *to != Site::Cells(Cells::x87()));
            kept.push((Site::Cells(Cells::x87()), true));
        }
        let read = Cells::flags(ins.rflags_read());
        let undefined = Cells::flags(ins.rflags_undefined());
        let mut written = Cells::flags(ins.rflags_modified());
        written.remove(&undefined);
        values.add(&read);
        if rounds(ins) {
            values.add(&Cells::rounding());
            flows.defines.add(&Cells::exceptions());
            kept.push((Site::Cells(Cells::exceptions()), true));
        }
        if is_constant(ins) {
            // It depends on nothing, whatever was there.
            values = read;
            sources.clear();
        }
        if !values.is_empty() {
            sources.push(Site::Cells(values));
        }
        if !written.is_empty() {
            flows.defines.add(&written);
            kept.push((Site::Cells(written), keeps_flags(ins)));
        }
        if !undefined.is_empty() {
            // Processors mostly leave them alone.
            flows.defines.add(&undefined);
            kept.push((Site::Cells(undefined), true));
        }
        flows.reads = sources.clone();
        if let Some(named) = moves::by_name(ins) {
            flows.flows.extend(named);
            return flows;
        }
        if moves_strings(ins) {
            // Byte by byte from one place to the other; the rest is counting.
            let written = accesses.iter().position(|access| WRITES.contains(access));
            let read = accesses.iter().position(|access| READS.contains(access));
            if let (Some(to), Some(from)) = (written, read) {
                let (to, from) = (Site::Memory(to as u8), Site::Memory(from as u8));
                flows.flows.push(Flow::moved(to, from));
            }
            kept.retain(|(to, _)| !matches!(to, Site::Memory(_)));
            sources.retain(|from| !matches!(from, Site::Memory(_)));
        }
        for (to, maybe) in kept {
            flows.flows.push(Flow::computed(to, sources.clone(), maybe));
        }
        flows
    }
}

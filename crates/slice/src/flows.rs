//! What flows where in an instruction. In: an instruction. Out: its destinations, each with the sources of its value, and
//! whether it only moves them.
//!
//! The decoder's table of used registers and memory is the source; where several destinations have different sources, or
//! a value is moved as it is, that is told here by name.

use iced_x86::{
    Code, CpuidFeature, EncodingKind, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

use crate::cells::Cells;

/// Where a value is, within one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// A register, whose bytes correspond to the other side's if it is moved.
    Register(Register),
    Cells(Cells),
    /// An access to memory, by its number.
    Memory(u8),
}

/// One destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    pub to: Site,
    pub from: Vec<Site>,
    /// The value is moved byte by byte; what the destination has more than the source is zero.
    pub moved: bool,
    /// The old value may stay.
    pub maybe: bool,
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

impl Finder {
    pub fn find(&mut self, ins: &Instruction) -> Flows {
        if ins.mnemonic() == Mnemonic::Vzeroupper {
            return upper_halves();
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
                kept.push((Site::Memory(number), maybe(used.access())));
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
                    true => flows.flows.push(Flow {
                        to: Site::Cells(cells),
                        from: vec![Site::Cells(cells)],
                        moved: false,
                        maybe: false,
                    }),
                    false => kept.push((Site::Cells(cells), maybe(access))),
                }
            }
        }
        if ins.cpuid_features().contains(&CpuidFeature::FPU) {
            // Its registers change their names with each load: all of them are one.
            values.add(&Cells::x87());
            flows.defines.add(&Cells::x87());
            kept.retain(|(to, _)| *to != Site::Cells(Cells::x87()));
            kept.push((Site::Cells(Cells::x87()), true));
        }
        let read = Cells::flags(ins.rflags_read());
        let written = Cells::flags(ins.rflags_modified());
        values.add(&read);
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
            kept.push((Site::Cells(written), shifts_by_register(ins)));
        }
        flows.reads = sources.clone();
        if let Some(named) = self.by_name(ins) {
            flows.flows.extend(named);
            return flows;
        }
        if moves_strings(ins) {
            // Byte by byte from one place to the other; the rest is counting.
            let written = accesses.iter().position(|access| WRITES.contains(access));
            let read = accesses.iter().position(|access| READS.contains(access));
            if let (Some(to), Some(from)) = (written, read) {
                flows.flows.push(Flow {
                    to: Site::Memory(to as u8),
                    from: vec![Site::Memory(from as u8)],
                    moved: true,
                    maybe: false,
                });
            }
            kept.retain(|(to, _)| !matches!(to, Site::Memory(_)));
            sources.retain(|from| !matches!(from, Site::Memory(_)));
        }
        for (to, maybe) in kept {
            flows.flows.push(Flow {
                to,
                from: sources.clone(),
                moved: false,
                maybe,
            });
        }
        flows
    }

    /// Destinations with sources of their own.
    fn by_name(&self, ins: &Instruction) -> Option<Vec<Flow>> {
        let moved = |to, from| Flow {
            to,
            from: vec![from],
            moved: true,
            maybe: false,
        };
        let bytes = |register: Register| register.is_gpr() || register.is_vector_register();
        let plain = |n| ins.op_kind(n) != OpKind::Register || bytes(ins.op_register(n));
        if !(0..ins.op_count()).all(plain) {
            return None;
        }
        let site = |n: u32| match ins.op_kind(n) {
            OpKind::Register => Some(Site::Register(ins.op_register(n))),
            OpKind::Memory => Some(Site::Memory(0)),
            _ => None,
        };
        match ins.mnemonic() {
            Mnemonic::Mov
            | Mnemonic::Movzx
            | Mnemonic::Movaps
            | Mnemonic::Movups
            | Mnemonic::Movapd
            | Mnemonic::Movupd
            | Mnemonic::Movdqa
            | Mnemonic::Movdqu
            | Mnemonic::Lddqu
            | Mnemonic::Movntdq
            | Mnemonic::Movnti
            | Mnemonic::Movq
            | Mnemonic::Movd
            | Mnemonic::Vmovaps
            | Mnemonic::Vmovups
            | Mnemonic::Vmovapd
            | Mnemonic::Vmovupd
            | Mnemonic::Vmovdqa
            | Mnemonic::Vmovdqu
            | Mnemonic::Vmovq
            | Mnemonic::Vmovd
                if ins.op_count() == 2 =>
            {
                let to = self.whole(ins, site(0)?);
                match site(1) {
                    Some(from) => Some(vec![moved(to, from)]),
                    // A constant.
                    None => Some(vec![Flow {
                        to,
                        from: Vec::new(),
                        moved: false,
                        maybe: false,
                    }]),
                }
            }
            Mnemonic::Push => {
                let to = Site::Memory(u8::from(ins.op0_kind() == OpKind::Memory));
                Some(vec![match site(0) {
                    Some(from) => moved(to, from),
                    None => Flow {
                        to,
                        from: Vec::new(),
                        moved: false,
                        maybe: false,
                    },
                }])
            }
            Mnemonic::Pop if ins.op0_kind() == OpKind::Register => {
                let to = ins.op0_register();
                (to.full_register() != Register::RSP)
                    .then(|| vec![moved(Site::Register(to), Site::Memory(0))])
            }
            Mnemonic::Leave => Some(vec![
                Flow {
                    to: Site::Register(Register::RSP),
                    from: vec![Site::Register(Register::RBP)],
                    moved: false,
                    maybe: false,
                },
                moved(Site::Register(Register::RBP), Site::Memory(0)),
            ]),
            // A load fills the rest with zeros; a store takes what it writes.
            Mnemonic::Movss | Mnemonic::Movsd | Mnemonic::Vmovss | Mnemonic::Vmovsd
                if !ins.is_string_instruction()
                    && ins.op_count() == 2
                    && (0..2).any(|n| ins.op_kind(n) == OpKind::Memory) =>
            {
                let to = match site(0)? {
                    Site::Register(register) if ins.encoding() == EncodingKind::VEX => {
                        Site::Register(Register::YMM0 + register.number() as u32)
                    }
                    to => to,
                };
                Some(vec![moved(to, site(1)?)])
            }
            Mnemonic::Call if ins.op0_kind() != OpKind::Memory => Some(vec![Flow {
                to: Site::Memory(0),
                from: Vec::new(),
                moved: false,
                maybe: false,
            }]),
            Mnemonic::Xchg if ins.op_count() == 2 => {
                let (a, b) = (site(0)?, site(1)?);
                Some(vec![
                    moved(self.whole(ins, a), b),
                    moved(self.whole(ins, b), a),
                ])
            }
            _ => None,
        }
    }

    /// The register that an operand really changes: 32 bits clear the rest, and so do vector moves of newer kinds.
    fn whole(&self, ins: &Instruction, site: Site) -> Site {
        let Site::Register(register) = site else {
            return site;
        };
        let clears = matches!(ins.encoding(), EncodingKind::VEX)
            || matches!(
                ins.code(),
                Code::Movq_xmm_xmmm64 | Code::Movd_xmm_rm32 | Code::Movq_xmm_rm64
            );
        if register.is_gpr32() {
            Site::Register(register.full_register())
        } else if register.is_vector_register() && clears {
            let number = register.number() as u32;
            let all = match matches!(ins.encoding(), EncodingKind::VEX) {
                true => Register::YMM0,
                false => Register::XMM0,
            };
            Site::Register(all + number)
        } else {
            site
        }
    }
}

/// The upper halves of all vector registers become zero, the lower ones stay.
fn upper_halves() -> Flows {
    let mut halves = Cells::NONE;
    for register in 0..16 {
        halves.add(&Cells::vector(register, 16, 16));
    }
    Flows {
        flows: vec![Flow {
            to: Site::Cells(halves),
            from: Vec::new(),
            moved: false,
            maybe: false,
        }],
        defines: halves,
        ..Flows::default()
    }
}

/// Registers that an instruction uses for nothing but an address.
fn addresses_only(ins: &Instruction, register: Register) -> bool {
    let full = register.full_register();
    let addresses = [ins.memory_base(), ins.memory_index()];
    let in_address = addresses
        .into_iter()
        .any(|used| used != Register::None && used.full_register() == full);
    let named = (0..ins.op_count())
        .any(|n| ins.op_kind(n) == OpKind::Register && ins.op_register(n).full_register() == full);
    // What `lea` computes is the address.
    if ins.mnemonic() == Mnemonic::Lea {
        return false;
    }
    let string = ins.is_string_instruction() && matches!(full, Register::RSI | Register::RDI);
    in_address && !named || string
}

fn moves_strings(ins: &Instruction) -> bool {
    ins.is_string_instruction()
        && matches!(
            ins.mnemonic(),
            Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsd | Mnemonic::Movsq
        )
}

/// Whether the result is the same whatever the operands are.
fn is_constant(ins: &Instruction) -> bool {
    let same = |a: u32, b: u32| {
        ins.op_kind(a) == OpKind::Register
            && ins.op_kind(b) == OpKind::Register
            && ins.op_register(a) == ins.op_register(b)
    };
    match ins.mnemonic() {
        Mnemonic::Xor
        | Mnemonic::Sub
        | Mnemonic::Sbb
        | Mnemonic::Pxor
        | Mnemonic::Xorps
        | Mnemonic::Xorpd
        | Mnemonic::Psubb
        | Mnemonic::Psubw
        | Mnemonic::Psubd
        | Mnemonic::Psubq
        | Mnemonic::Pcmpeqb
        | Mnemonic::Pcmpeqw
        | Mnemonic::Pcmpeqd
        | Mnemonic::Pcmpeqq
        | Mnemonic::Pcmpgtb
        | Mnemonic::Pcmpgtw
        | Mnemonic::Pcmpgtd => ins.op_count() == 2 && same(0, 1),
        Mnemonic::Vpxor
        | Mnemonic::Vxorps
        | Mnemonic::Vxorpd
        | Mnemonic::Vpsubb
        | Mnemonic::Vpsubw
        | Mnemonic::Vpsubd
        | Mnemonic::Vpsubq
        | Mnemonic::Vpcmpeqb
        | Mnemonic::Vpcmpeqw
        | Mnemonic::Vpcmpeqd
        | Mnemonic::Vpcmpeqq => ins.op_count() == 3 && same(1, 2),
        _ => false,
    }
}

/// Shifts by a register leave flags alone if it is zero.
fn shifts_by_register(ins: &Instruction) -> bool {
    (0..ins.op_count())
        .any(|n| ins.op_kind(n) == OpKind::Register && ins.op_register(n) == Register::CL)
        || ins.has_rep_prefix()
        || ins.has_repne_prefix()
}

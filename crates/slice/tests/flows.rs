//! What is said of instructions against what the processor does: random instructions, executed one by one from random
//! states. What changes must be said to be written; what isn't said to be read is changed, and the results must stay.
//!
//! `CLEW_SEED`: the same instructions again; `CLEW_INSTRUCTIONS`: how many.

mod native;

use std::collections::BTreeMap;

use clew_slice::cells::Cells;
use clew_slice::flows::{Finder, Flow, Flows, Site};
use iced_x86::{
    Code, CpuidFeature, Decoder, DecoderOptions, EncodingKind, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register, RflagsBits,
};
use native::{CODE, DATA, DATA_LEN, Native, State};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 8) % end
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// Something that an instruction may read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cell {
    General(usize, usize),
    Vector(usize, usize),
    Flag(u32),
    X87,
    Rounding,
    Exceptions,
    /// Its offset in the data.
    Memory(usize),
}

const FLAGS: [(u32, u64); 7] = [
    (RflagsBits::CF, 1 << 0),
    (RflagsBits::PF, 1 << 2),
    (RflagsBits::AF, 1 << 4),
    (RflagsBits::ZF, 1 << 6),
    (RflagsBits::SF, 1 << 7),
    (RflagsBits::DF, 1 << 10),
    (RflagsBits::OF, 1 << 11),
];

/// Where vector registers are: the low halves, the upper ones.
const XMM: usize = 160;
const YMM: usize = 576;
const MXCSR: usize = 24;
const EXCEPTIONS: u32 = 0x3f;

fn registers() -> Vec<Cell> {
    let mut all = Vec::new();
    for n in 0..16 {
        all.extend((0..8).map(|byte| Cell::General(n, byte)));
        all.extend((0..32).map(|byte| Cell::Vector(n, byte)));
    }
    all.extend(FLAGS.iter().map(|(flag, _)| Cell::Flag(*flag)));
    all.extend([Cell::X87, Cell::Rounding, Cell::Exceptions]);
    all
}

/// Whether a set has it.
fn has(cells: &Cells, cell: Cell) -> bool {
    let one = match cell {
        Cell::General(n, byte) => Cells::general(n, byte, 1),
        Cell::Vector(n, byte) => Cells::vector(n, byte, 1),
        Cell::Flag(flag) => Cells::flags(flag),
        Cell::X87 => Cells::x87(),
        Cell::Rounding => Cells::rounding(),
        Cell::Exceptions => Cells::exceptions(),
        Cell::Memory(_) => return false,
    };
    cells.meets(&one)
}

fn mxcsr(state: &State) -> u32 {
    u32::from_le_bytes(state.extended[MXCSR..MXCSR + 4].try_into().unwrap())
}

fn vector_byte(n: usize, byte: usize) -> usize {
    match byte {
        0..16 => XMM + 16 * n + byte,
        _ => YMM + 16 * n + byte - 16,
    }
}

fn differs(cell: Cell, a: &State, b: &State) -> bool {
    match cell {
        Cell::General(n, byte) => (a.general[n] ^ b.general[n]) >> (8 * byte) & 0xff != 0,
        Cell::Vector(n, byte) => {
            let at = vector_byte(n, byte);
            a.extended[at] != b.extended[at]
        }
        Cell::Flag(flag) => {
            let bit = FLAGS.iter().find(|(known, _)| *known == flag).unwrap().1;
            (a.flags ^ b.flags) & bit != 0
        }
        // Control, status, tags, registers; not where the last instruction was.
        Cell::X87 => {
            let registers = (0..8).flat_map(|n| 32 + 16 * n..42 + 16 * n);
            let mut bytes = (0..5).chain(registers);
            bytes.any(|at| a.extended[at] != b.extended[at])
        }
        Cell::Rounding => (mxcsr(a) ^ mxcsr(b)) & !EXCEPTIONS != 0,
        Cell::Exceptions => (mxcsr(a) ^ mxcsr(b)) & EXCEPTIONS != 0,
        Cell::Memory(at) => a.memory[at] != b.memory[at],
    }
}

fn change(cell: Cell, state: &mut State, random: &mut Random) {
    match cell {
        Cell::General(n, byte) => {
            state.general[n] &= !(0xff << (8 * byte));
            state.general[n] |= random.below(256) << (8 * byte);
        }
        Cell::Vector(n, byte) => state.extended[vector_byte(n, byte)] = random.next() as u8,
        Cell::Flag(flag) => {
            let bit = FLAGS.iter().find(|(known, _)| *known == flag).unwrap().1;
            state.flags ^= bit * random.below(2);
        }
        Cell::X87 => x87(state, random),
        Cell::Rounding => {
            let control = random.one_of(&[0x1f80, 0x3f80, 0x5f80, 0x7f80, 0x9fc0]);
            let new = control | mxcsr(state) & EXCEPTIONS;
            state.extended[MXCSR..MXCSR + 4].copy_from_slice(&new.to_le_bytes());
        }
        Cell::Exceptions => {
            let new = mxcsr(state) & !EXCEPTIONS | random.below(64) as u32;
            state.extended[MXCSR..MXCSR + 4].copy_from_slice(&new.to_le_bytes());
        }
        Cell::Memory(at) => state.memory[at] = random.next() as u8,
    }
}

/// All exceptions are masked, all else is random.
fn x87(state: &mut State, random: &mut Random) {
    let control = 0x037f | random.below(4) << 10;
    state.extended[0..2].copy_from_slice(&(control as u16).to_le_bytes());
    let status = random.next() as u16 & 0x7f00 & !0x80;
    state.extended[2..4].copy_from_slice(&status.to_le_bytes());
    state.extended[4] = random.next() as u8;
    for n in 0..8 {
        let mut value = [0; 10];
        random.fill(&mut value);
        if random.below(2) == 0 {
            // Something that is a number.
            value[9] = 0x3f | value[9] & 0x80;
            value[8] = 0xf0 | value[8] & 0xf;
            value[7] |= 0x80;
        }
        state.extended[32 + 16 * n..42 + 16 * n].copy_from_slice(&value);
    }
}

fn random_state(native: &Native, random: &mut Random) -> State {
    let mut state = State {
        general: [0; 16],
        flags: 0,
        rip: CODE + 0x100,
        extended: vec![0; native.extended_len()],
        memory: vec![0; DATA_LEN],
    };
    for word in &mut state.general {
        let all = random.next();
        *word = random.one_of(&[all, all, all & 0xff, all & 0x1f, 0, u64::MAX, all >> 32]);
    }
    for cell in registers() {
        if !matches!(cell, Cell::General(..)) {
            change(cell, &mut state, random);
        }
    }
    random.fill(&mut state.memory);
    if random.below(2) == 0 {
        // Numbers that arithmetic does something with.
        for n in 0..16 {
            for at in [XMM + 16 * n, XMM + 16 * n + 8, YMM + 16 * n] {
                let value = f64::from(random.below(1000) as u32) / 8.0;
                state.extended[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
        }
    }
    state
}

/// Some instruction, its memory operands within the data; registers are set for that.
fn random_instruction(random: &mut Random, state: &mut State) -> Option<(Vec<u8>, Instruction)> {
    let mut code = Vec::new();
    let opcode = random.next() as u8;
    if random.below(3) == 0 {
        code.push(0xc4);
        code.push((random.next() as u8 & 0xe0) | (1 + random.below(3) as u8));
        code.push(random.next() as u8);
        code.push(opcode);
    } else {
        match random.below(16) {
            0..3 => code.push(0x66),
            3..5 => code.push(0xf2),
            5..7 => code.push(0xf3),
            7 => code.push(0xf0),
            _ => {}
        }
        if random.below(2) == 0 {
            code.push(0x40 | random.below(16) as u8);
        }
        match random.below(8) {
            0..3 => code.push(opcode),
            3..6 => code.extend([0x0f, opcode]),
            6 => code.extend([0x0f, 0x38, opcode]),
            _ => code.extend([0x0f, 0x3a, opcode]),
        }
    }
    let mut rest = [0; 16];
    random.fill(&mut rest);
    code.extend(rest);
    code.truncate(15);
    let decode = |code: &[u8]| {
        let mut decoder = Decoder::with_ip(64, code, CODE + 0x100, DecoderOptions::NONE);
        let ins = decoder.decode();
        (ins, decoder.get_constant_offsets(&ins))
    };
    let (ins, offsets) = decode(&code);
    if ins.is_invalid() || !is_tried(&ins) {
        return None;
    }
    code.truncate(ins.len());
    // The middle of the data; where alignment is needed it mostly is there.
    let aligned = random.below(4) != 0;
    let near = |random: &mut Random| match aligned {
        true => random.below(8) * 64,
        false => random.below(512),
    };
    let middle = DATA + 0x800;
    if offsets.has_displacement() {
        let based = ins.memory_base() != Register::None;
        let near = near(random);
        let value = match offsets.displacement_size() {
            1 => near & 0x40,
            4 if ins.is_ip_rel_memory_operand() => {
                middle.wrapping_add(near).wrapping_sub(ins.next_ip())
            }
            4 if based => near,
            _ => middle + near,
        };
        let at = offsets.displacement_offset();
        let bytes = value.to_le_bytes();
        let size = offsets.displacement_size();
        code[at..at + size].copy_from_slice(&bytes[..size]);
    }
    let (ins, _) = decode(&code);
    let index = ins.memory_index();
    if ins.is_vsib() {
        for byte in 0..32 {
            let at = vector_byte(index.number(), byte);
            state.extended[at] = match byte % 4 {
                0 => random.next() as u8,
                _ => 0,
            };
        }
    } else if index != Register::None {
        state.general[index.full_register().number()] = random.below(4) * 64;
    }
    let mut bases = vec![ins.memory_base()];
    if ins.is_stack_instruction() {
        bases.push(Register::RSP);
    }
    if ins.mnemonic() == Mnemonic::Leave || ins.mnemonic() == Mnemonic::Enter {
        bases.push(Register::RBP);
    }
    for n in 0..ins.op_count() {
        match ins.op_kind(n) {
            OpKind::MemorySegRSI => bases.push(Register::RSI),
            OpKind::MemorySegRDI | OpKind::MemoryESRDI => bases.push(Register::RDI),
            _ => {}
        }
    }
    for base in bases {
        if base.is_gpr() && !ins.is_ip_rel_memory_operand() || base == Register::RSP {
            state.general[base.full_register().number()] = middle + near(random);
        }
    }
    if is_area(&ins) {
        // All registers that are followed, and a header that says so.
        state.general[0] = random.below(8);
        state.general[2] = 0;
        let mut factory = InstructionInfoFactory::new();
        let memory = *factory.info(&ins).used_memory().first()?;
        let value = |register: Register, _, _| match register.is_segment_register() {
            true => Some(0),
            false => Some(word(state, register)),
        };
        let at = (memory.virtual_address(0, value)?.checked_sub(DATA)?) as usize;
        let area = state.memory.get_mut(at..at + 832)?;
        area[512..576].fill(0);
        area[512] = 7;
        area[MXCSR..MXCSR + 4].copy_from_slice(&0x1f80u32.to_le_bytes());
    }
    if has_rep(&ins) {
        state.general[1] = random.below(20);
    }
    if is_bit_string(&ins) {
        let number = ins.op1_register().full_register().number();
        if ins.memory_base().full_register() == ins.op1_register().full_register()
            || ins.memory_index().full_register() == ins.op1_register().full_register()
        {
            return None;
        }
        state.general[number] = random.below(4096);
    }
    Some((code, ins))
}

fn has_rep(ins: &Instruction) -> bool {
    ins.is_string_instruction() && (ins.has_rep_prefix() || ins.has_repne_prefix())
}

/// Saves or loads many registers.
fn is_area(ins: &Instruction) -> bool {
    matches!(
        ins.mnemonic(),
        Mnemonic::Xsave
            | Mnemonic::Xsave64
            | Mnemonic::Xsavec
            | Mnemonic::Xsavec64
            | Mnemonic::Xsaveopt
            | Mnemonic::Xsaveopt64
            | Mnemonic::Xrstor
            | Mnemonic::Xrstor64
    )
}

/// An operand that is a bit of memory, as far from its address as a register says.
fn is_bit_string(ins: &Instruction) -> bool {
    matches!(
        ins.mnemonic(),
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
    ) && ins.op0_kind() == OpKind::Memory
        && ins.op1_kind() == OpKind::Register
}

/// What leaves the program, or whose answer is an event in a recording, isn't tried.
fn is_tried(ins: &Instruction) -> bool {
    let features = ins.cpuid_features();
    let unwanted = [
        CpuidFeature::WAITPKG,
        CpuidFeature::RDRAND,
        CpuidFeature::RDSEED,
        CpuidFeature::RDPID,
        CpuidFeature::RTM,
        CpuidFeature::PKU,
        CpuidFeature::FSGSBASE,
        CpuidFeature::CET_SS,
        CpuidFeature::UINTR,
        CpuidFeature::AMX_TILE,
        CpuidFeature::SERIALIZE,
        CpuidFeature::MONITOR,
        CpuidFeature::RDTSCP,
        CpuidFeature::TSC,
        CpuidFeature::RDPMC,
        CpuidFeature::XSAVES,
        CpuidFeature::VMX,
        CpuidFeature::SVM,
    ];
    let segments = (0..ins.op_count())
        .any(|n| ins.op_kind(n) == OpKind::Register && ins.op_register(n).is_segment_register());
    let far = matches!(
        ins.mnemonic(),
        Mnemonic::Retf | Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq
    ) || ins.is_call_far()
        || ins.is_jmp_far()
        || ins.is_call_far_indirect()
        || ins.is_jmp_far_indirect();
    let odd = matches!(
        ins.mnemonic(),
        Mnemonic::Syscall
            | Mnemonic::Sysenter
            | Mnemonic::Int
            | Mnemonic::Int1
            | Mnemonic::Int3
            | Mnemonic::Cpuid
            | Mnemonic::Popf
            | Mnemonic::Popfq
            | Mnemonic::Xgetbv
            | Mnemonic::Lfs
            | Mnemonic::Lgs
            | Mnemonic::Lss
            | Mnemonic::Lsl
            | Mnemonic::Lar
            | Mnemonic::Sgdt
            | Mnemonic::Sidt
            | Mnemonic::Sldt
            | Mnemonic::Str
            | Mnemonic::Smsw
            | Mnemonic::Rdpmc
            | Mnemonic::Vmmcall
            | Mnemonic::Xsetbv
    );
    let opmask = (0..ins.op_count())
        .any(|n| ins.op_kind(n) == OpKind::Register && ins.op_register(n).is_k());
    !odd && !far
        && !segments
        && !opmask
        && !ins.is_privileged()
        && ins.segment_prefix() == Register::None
        && ins.encoding() != EncodingKind::EVEX
        && ins.memory_base().size() != 4
        && ins.memory_index().size() != 4
        && !features.iter().any(|feature| unwanted.contains(feature))
}

fn word(state: &State, register: Register) -> u64 {
    let number = register.full_register().number();
    let word = state.general[number];
    match register.size() {
        1 => word & 0xff,
        2 => word & 0xffff,
        4 => word & 0xffff_ffff,
        _ => word,
    }
}

/// The bytes of each access to memory, in the order of the decoder's list, as offsets in the data; none if they lie outside.
fn accesses(ins: &Instruction, state: &State) -> Option<Vec<std::ops::Range<usize>>> {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(ins);
    let mut all = Vec::new();
    for used in info.used_memory() {
        if matches!(used.access(), OpAccess::None | OpAccess::NoMemAccess) {
            continue;
        }
        if ins.is_vsib() {
            all.push(0..DATA_LEN);
            continue;
        }
        let value = |register: Register, _, _| match register.is_segment_register() {
            true => Some(0),
            false => Some(word(state, register)),
        };
        let mut addr = used.virtual_address(0, value)?;
        let mut size = used.memory_size().size() as u64;
        if is_area(ins) {
            size = 832;
        }
        if is_bit_string(ins) {
            let bits = 8 * ins.op1_register().size() as u64;
            let offset = word(state, ins.op1_register());
            let shift = 64 - bits;
            let offset = ((offset << shift) as i64 >> shift) as u64;
            addr = addr
                .wrapping_add(((offset as i64).div_euclid(bits as i64) * (bits / 8) as i64) as u64);
            size = bits / 8;
        }
        if has_rep(ins) {
            size = ins.memory_size().size() as u64;
            let count = state.general[1];
            if count == 0 {
                all.push(0..0);
                continue;
            }
            if state.flags & 1 << 10 != 0 {
                addr = addr.wrapping_sub((count - 1) * size);
            }
            size *= count;
        }
        let at = addr.checked_sub(DATA)?;
        (at + size <= DATA_LEN as u64).then_some(())?;
        all.push(at as usize..(at + size) as usize);
    }
    Some(all)
}

/// An instruction that was executed once.
struct Trial<'a> {
    ins: &'a Instruction,
    code: &'a [u8],
    flows: &'a Flows,
    accesses: &'a [std::ops::Range<usize>],
    cells: &'a [Cell],
}

impl Trial<'_> {
    fn site_has(&self, site: &Site, cell: Cell) -> bool {
        match (site, cell) {
            (Site::Memory(n), Cell::Memory(at)) => self
                .accesses
                .get(usize::from(*n))
                .is_some_and(|range| range.contains(&at)),
            (Site::Part { access, at, len }, Cell::Memory(byte)) => {
                let (at, len) = (usize::from(*at), usize::from(*len));
                let range = self.accesses.get(usize::from(*access));
                range.is_some_and(|range| {
                    let start = range.start + at;
                    (start..range.end.min(start + len)).contains(&byte)
                })
            }
            (site, cell) => site.cells().is_some_and(|cells| has(&cells, cell)),
        }
    }

    /// The first destination that has it.
    fn author(&self, cell: Cell) -> Option<usize> {
        let mut all = self.flows.flows.iter();
        all.position(|flow| self.site_has(&flow.to, cell))
    }

    /// Where memory is: what only that depends on isn't asked.
    fn is_address(&self, cell: Cell) -> bool {
        let string = self.ins.is_string_instruction();
        let counts = match cell {
            Cell::General(1, _) => has_rep(self.ins),
            // Which registers.
            Cell::General(0 | 2, _) => is_area(self.ins),
            Cell::Flag(RflagsBits::DF) => string,
            _ => false,
        };
        let bits = is_bit_string(self.ins) && has(&Cells::of(self.ins.op1_register()), cell);
        has(&self.flows.addresses, cell) || counts || bits
    }

    fn kept(&self, flow: &Flow, cell: Cell) -> bool {
        self.is_address(cell)
            || flow.from.iter().any(|site| self.site_has(site, cell))
            || flow.maybe && self.site_has(&flow.to, cell)
    }

    fn byte(&self, site: &Site, n: usize) -> Option<Cell> {
        Some(match site {
            Site::Memory(access) => {
                let range = self.accesses.get(usize::from(*access))?;
                (n < range.len()).then_some(Cell::Memory(range.start + n))?
            }
            Site::Part { access, at, len } => {
                let range = self.accesses.get(usize::from(*access))?;
                let at = n + usize::from(*at);
                (n < usize::from(*len) && at < range.len())
                    .then_some(Cell::Memory(range.start + at))?
            }
            Site::Upper(number) => {
                (n < 16).then_some(Cell::Vector(usize::from(*number), 16 + n))?
            }
            Site::Register(register) if n < register.size() => {
                let number = register.full_register().number();
                match register.is_gpr() {
                    true => {
                        let high = matches!(
                            register,
                            Register::AH | Register::BH | Register::CH | Register::DH
                        );
                        Cell::General(number, n + usize::from(high))
                    }
                    false => Cell::Vector(register.number(), n),
                }
            }
            _ => return None,
        })
    }

    /// What is wrong with what is said, if anything is.
    fn check(&self, native: &mut Native, before: &State, random: &mut Random) -> Option<String> {
        let after = native.run(self.code, before)?;
        for &cell in self
            .cells
            .iter()
            .filter(|cell| differs(**cell, before, &after))
        {
            let said = match cell {
                Cell::Memory(_) => self.author(cell).is_some() && self.flows.writes != 0,
                _ => self.author(cell).is_some() && has(&self.flows.defines, cell),
            };
            if !said {
                return Some(format!("writes {cell:?}"));
            }
        }
        for (number, flow) in self.flows.flows.iter().enumerate() {
            let ranges = (self.accesses.first(), self.accesses.get(1));
            if let (Some(a), Some(b)) = ranges
                && flow.moved
                && a.start < b.end
                && b.start < a.end
            {
                // It reads what it has written.
                continue;
            }
            if flow.moved && !flow.maybe {
                let [from] = &flow.from[..] else {
                    return Some("is moved from several".into());
                };
                for n in 0..64 {
                    let Some(to) = self.byte(&flow.to, n) else {
                        break;
                    };
                    if self.author(to) != Some(number) {
                        continue;
                    }
                    let source = self.byte(from, n).filter(|_| n < usize::from(flow.width));
                    let was = source.map_or(0, |from| value(from, before));
                    if value(to, &after) != was {
                        return Some(format!("doesn't move byte {n} to {:?}", flow.to));
                    }
                }
                continue;
            }
            let mut changed = before.clone();
            for &cell in self.cells.iter().filter(|cell| !self.kept(flow, **cell)) {
                change(cell, &mut changed, random);
            }
            let Some(other) = native.run(self.code, &changed) else {
                continue;
            };
            let wrong = self.cells.iter().find(|cell| {
                differs(**cell, &after, &other) && self.author(**cell) == Some(number)
            });
            if let Some(wrong) = wrong {
                return Some(format!("{wrong:?} isn't made of {:?}", flow.from));
            }
        }
        // Where it goes.
        let mut changed = before.clone();
        let kept = |cell| {
            self.is_address(cell)
                || self
                    .flows
                    .reads
                    .iter()
                    .any(|site| self.site_has(site, cell))
        };
        for &cell in self.cells.iter().filter(|cell| !kept(**cell)) {
            change(cell, &mut changed, random);
        }
        let other = native.run(self.code, &changed)?;
        (after.rip != other.rip).then(|| format!("goes by more than {:?}", self.flows.reads))
    }
}

fn value(cell: Cell, state: &State) -> u8 {
    match cell {
        Cell::General(n, byte) => (state.general[n] >> (8 * byte)) as u8,
        Cell::Vector(n, byte) => state.extended[vector_byte(n, byte)],
        Cell::Memory(at) => state.memory[at],
        _ => 0,
    }
}

#[test]
fn what_is_said_of_instructions_is_what_they_do() {
    let number = |name: &str, otherwise: u64| {
        let value = std::env::var(name)
            .ok()
            .and_then(|value| value.parse().ok());
        value.unwrap_or(otherwise)
    };
    let seed = number("CLEW_SEED", 0x5eed);
    let count = number("CLEW_INSTRUCTIONS", 20_000);
    println!("CLEW_SEED={seed}");
    let random = &mut Random(seed | 1);
    let mut native = Native::new();
    let mut finder = Finder::default();
    let mut cells = registers();
    cells.extend((0..DATA_LEN).map(Cell::Memory));
    let mut wrong: BTreeMap<String, (u64, String)> = BTreeMap::new();
    let mut tried: BTreeMap<Code, u64> = BTreeMap::new();
    let mut done = 0;
    while done < count {
        let mut before = random_state(&native, random);
        let Some((code, ins)) = random_instruction(random, &mut before) else {
            continue;
        };
        done += 1;
        let Some(accesses) = accesses(&ins, &before) else {
            continue;
        };
        let flows = finder.find(&ins);
        *tried.entry(ins.code()).or_default() += 1;
        let trial = Trial {
            ins: &ins,
            code: &code,
            flows: &flows,
            accesses: &accesses,
            cells: &cells,
        };
        if let Some(problem) = trial.check(&mut native, &before, random) {
            let known = wrong.entry(format!("{:?}", ins.code())).or_default();
            known.0 += 1;
            known.1 = format!("{ins} [{code:02x?}] {problem}");
        }
    }
    println!("{done} instructions of {} kinds", tried.len());
    for (code, (times, example)) in &wrong {
        println!("{code}: {times} times: {example}");
    }
    assert!(wrong.is_empty(), "{} kinds are wrong", wrong.len());
}

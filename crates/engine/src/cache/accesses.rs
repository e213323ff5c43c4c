//! What the next instruction would touch: registers in, exact addresses out. Decides behind
//! [`Exit::Watch`](crate::context::Exit::Watch), which may come for nothing.

use iced_x86::{
    CodeSize, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, InstructionInfoOptions,
    Mnemonic, OpKind, Register, UsedMemory,
};

use super::view::page_after;
use crate::context::{GsBlock, RCX, Regs};
use crate::guest::access;
use crate::translate::touches::{Finder, is_locked, kinds, offset_in_register, repeated_element};

/// Bytes that an instruction would read, write, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub addr: u64,
    pub len: u64,
    pub read: bool,
    pub write: bool,
}

impl Access {
    pub fn touches(&self, range: &std::ops::Range<u64>) -> bool {
        self.addr < range.end && range.start < self.addr.saturating_add(self.len)
    }
}

/// All accesses of one instruction.
pub type Accesses = Vec<Access>;

/// The largest area that XSAVE and its relatives touch of what the guest is shown.
const XSAVE: u64 = 832;
/// For instructions whose size of access isn't known here; none that the guest is shown has more.
const UNKNOWN: u64 = 4096;
const DIRECTION: u64 = 1 << 10;

/// Instructions looked at lately: the same few touch watched memory again and again.
pub struct AccessReader {
    factory: InstructionInfoFactory,
    lately: Vec<Looked>,
}

#[derive(Clone)]
struct Looked {
    pc: u64,
    bytes: [u8; 15],
    ins: Instruction,
    used: Vec<UsedMemory>,
}

const LATELY: usize = 64;

impl Default for AccessReader {
    fn default() -> AccessReader {
        let nothing = Looked {
            pc: u64::MAX,
            bytes: [0; 15],
            ins: Instruction::default(),
            used: Vec::new(),
        };
        AccessReader {
            factory: InstructionInfoFactory::new(),
            lately: vec![nothing; LATELY],
        }
    }
}

impl super::CodeCache {
    /// What the instruction at `gs.regs.rip` would touch, implicit accesses among it. Of a masked or
    /// repeated one, what its mask, count and operands make it touch. What the kernel would write in a
    /// system call isn't told.
    pub fn accesses(&mut self, gs: &GsBlock) -> Accesses {
        self.access_reader.accesses(&gs.regs, &gs.ymm)
    }

    /// Whether the instruction that was asked about last is atomic for other processors too: a lock prefix, or an
    /// exchange with memory.
    pub fn locked(&self, gs: &GsBlock) -> bool {
        self.access_reader.locked(gs.regs.rip)
    }
}

impl AccessReader {
    fn locked(&self, pc: u64) -> bool {
        let looked = &self.lately[slot(pc)];
        looked.pc == pc && is_locked(&looked.ins)
    }

    /// The same from registers alone.
    pub fn accesses(&mut self, regs: &Regs, vectors: &[[u8; 32]; 16]) -> Accesses {
        let pc = regs.rip;
        let mut bytes = [0; 15];
        let room = (page_after(pc) - pc).min(15) as usize;
        let whole = access::read_bytes(pc, &mut bytes).is_ok();
        if !whole && access::read_bytes(pc, &mut bytes[..room]).is_err() {
            return Vec::new();
        }
        let looked = &mut self.lately[slot(pc)];
        if looked.pc != pc || looked.bytes != bytes {
            let ins = Decoder::with_ip(64, &bytes, pc, DecoderOptions::NONE).decode();
            let options = InstructionInfoOptions::NO_REGISTER_USAGE;
            let used = self.factory.info_options(&ins, options).used_memory();
            *looked = Looked {
                pc,
                bytes,
                ins,
                used: used.to_vec(),
            };
        }
        let state = State { regs, vectors };
        if looked.ins.mnemonic() == Mnemonic::Syscall {
            return state.time_call(&looked.ins);
        }
        let mut found = Accesses::with_capacity(2);
        for used in &looked.used {
            let (read, write) = kinds(used.access());
            if read || write {
                let add = |addr, len| {
                    join(
                        &mut found,
                        Access {
                            addr,
                            len,
                            read,
                            write,
                        },
                    )
                };
                state.extent(&looked.ins, used, add);
            }
        }
        found
    }
}

/// Where an instruction is kept.
fn slot(pc: u64) -> usize {
    (pc ^ pc >> 6) as usize % LATELY
}

/// Adds an access; neighbours become one.
fn join(found: &mut Accesses, access: Access) {
    if access.len == 0 {
        return;
    }
    if let Some(last) = found.last_mut()
        && last.addr.wrapping_add(last.len) == access.addr
        && (last.read, last.write) == (access.read, access.write)
    {
        last.len += access.len;
    } else {
        found.push(access);
    }
}

struct State<'a> {
    regs: &'a Regs,
    vectors: &'a [[u8; 32]; 16],
}

impl State<'_> {
    /// Tells the bytes of one operand.
    fn extent(&self, ins: &Instruction, used: &UsedMemory, mut add: impl FnMut(u64, u64)) {
        let at = |element| {
            used.virtual_address(element, |register, element, size| {
                Some(self.value(register, element, size))
            })
            .expect("every register has a value")
        };
        let size = used.memory_size().size() as u64;
        let element = repeated_element(ins) as u64;
        if element != 0 {
            let (addr, len) = self.repeated(ins, at(0), element, used.address_size());
            add(addr, len);
        } else if offset_in_register(ins) {
            add(at(0).wrapping_add(self.bit_offset(ins, size)), size);
        } else if used.vsib_size() != 0 {
            // The mask is the last operand; it has elements of the data's size.
            let mask = ins.op_register(ins.op_count() - 1);
            let lanes = ins.op0_register().size() / size as usize;
            let indexes = used.index().size() / used.vsib_size() as usize;
            for n in (0..lanes.min(indexes)).filter(|&n| self.masked(mask, n, size as usize)) {
                add(at(n), size);
            }
        } else if let Some((mask, lane)) = mask_of(ins) {
            let addr = at(0);
            for n in (0..size as usize / lane).filter(|&n| self.masked(mask, n, lane)) {
                add(addr.wrapping_add((n * lane) as u64), lane as u64);
            }
        } else {
            let size = match ins.mnemonic() {
                Mnemonic::Xsave
                | Mnemonic::Xsave64
                | Mnemonic::Xsavec
                | Mnemonic::Xsavec64
                | Mnemonic::Xsaveopt
                | Mnemonic::Xsaveopt64
                | Mnemonic::Xrstor
                | Mnemonic::Xrstor64 => XSAVE,
                _ if size == 0 => UNKNOWN,
                _ => size,
            };
            add(at(0), size);
        }
    }

    /// A string instruction with a count: start and length of what it goes through.
    fn repeated(&self, ins: &Instruction, addr: u64, size: u64, wide: CodeSize) -> (u64, u64) {
        let count = match wide {
            CodeSize::Code32 => self.regs.gpr[RCX] as u32 as u64,
            _ => self.regs.gpr[RCX],
        };
        let compares = matches!(
            ins.mnemonic(),
            Mnemonic::Cmpsb
                | Mnemonic::Cmpsw
                | Mnemonic::Cmpsd
                | Mnemonic::Cmpsq
                | Mnemonic::Scasb
                | Mnemonic::Scasw
                | Mnemonic::Scasd
                | Mnemonic::Scasq
        );
        let count = if compares {
            self.rounds(ins, count, size)
        } else {
            count
        };
        let len = count.saturating_mul(size);
        if self.regs.rflags & DIRECTION == 0 || count == 0 {
            (addr, len)
        } else {
            (addr.wrapping_sub(len).wrapping_add(size), len)
        }
    }

    /// How often a comparing string instruction goes round: until its condition fails, or memory ends.
    fn rounds(&self, ins: &Instruction, count: u64, size: u64) -> u64 {
        let scans = ins.op_count() == 2 && ins.op0_kind() == OpKind::Register;
        let step = if self.regs.rflags & DIRECTION == 0 {
            size
        } else {
            size.wrapping_neg()
        };
        let segment = match ins.memory_segment() {
            register @ (Register::FS | Register::GS) => self.value(register, 0, 0),
            _ => 0,
        };
        let mut there = self.regs.gpr[crate::context::RDI];
        let mut here = self.regs.gpr[crate::context::RSI].wrapping_add(segment);
        let load = |addr: u64| {
            let mut bytes = [0; 8];
            access::read_bytes(addr, &mut bytes[..size as usize])
                .ok()
                .map(|()| u64::from_le_bytes(bytes))
        };
        let accumulator = self.regs.gpr[crate::context::RAX] & (u64::MAX >> (64 - 8 * size));
        for round in 0..count {
            let source = if scans { Some(accumulator) } else { load(here) };
            let (Some(a), Some(b)) = (source, load(there)) else {
                return round + 1;
            };
            if (a == b) == ins.has_repne_prefix() {
                return round + 1;
            }
            here = here.wrapping_add(step);
            there = there.wrapping_add(step);
        }
        count
    }

    /// How many bytes from the operand the word with the bit lies.
    fn bit_offset(&self, ins: &Instruction, size: u64) -> u64 {
        let value = self.value(ins.op1_register(), 0, 0);
        let signed = match size {
            2 => value as i16 as i64,
            4 => value as i32 as i64,
            _ => value as i64,
        };
        let bits = size as i64 * 8;
        signed.div_euclid(bits).wrapping_mul(size as i64) as u64
    }

    /// Is the top bit of a mask's element set?
    fn masked(&self, mask: Register, element: usize, size: usize) -> bool {
        let last = element * size + size - 1;
        // The contents of MMX registers aren't known here.
        let Some(vector) = self.vector(mask) else {
            return true;
        };
        vector[last] & 0x80 != 0
    }

    fn vector(&self, register: Register) -> Option<&[u8; 32]> {
        let is_vector = register.is_xmm() || register.is_ymm();
        is_vector
            .then(|| self.vectors.get(register.number()))
            .flatten()
    }

    /// The contents of a register, or of an element of a vector.
    fn value(&self, register: Register, element: usize, size: usize) -> u64 {
        if let Some(vector) = self.vector(register) {
            let mut word = [0; 8];
            word[..size].copy_from_slice(&vector[element * size..][..size]);
            return u64::from_le_bytes(word);
        }
        match register {
            Register::FS => self.regs.fs_base,
            Register::GS => self.regs.gs_base,
            Register::AH | Register::CH | Register::DH | Register::BH => {
                self.regs.gpr[register.full_register().number()] >> 8 & 0xff
            }
            _ if register.is_gpr() => {
                let value = self.regs.gpr[register.full_register().number()];
                value & (u64::MAX >> (64 - 8 * register.size()))
            }
            _ => 0,
        }
    }

    /// What a time call of the guest's vdso writes.
    fn time_call(&self, ins: &Instruction) -> Accesses {
        let mut finder = Finder::default();
        let touches = finder.touches(ins).iter();
        touches
            .map(|touch| Access {
                addr: touch.base.map_or(0, |base| self.regs.gpr[base as usize]),
                len: touch.len as u64,
                read: touch.read,
                write: touch.write,
            })
            .collect()
    }
}

/// The mask of a masked move to or from memory, and the size of its elements.
pub(crate) fn mask_of(ins: &Instruction) -> Option<(Register, usize)> {
    match ins.mnemonic() {
        Mnemonic::Vmaskmovps | Mnemonic::Vpmaskmovd => Some((ins.op1_register(), 4)),
        Mnemonic::Vmaskmovpd | Mnemonic::Vpmaskmovq => Some((ins.op1_register(), 8)),
        Mnemonic::Maskmovq | Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovdqu => {
            Some((ins.op2_register(), 1))
        }
        _ => None,
    }
}

//! Which memory an instruction touches: an instruction in, descriptions of its accesses out, implicit
//! ones among them.

use iced_x86::{
    CodeSize, FlowControl, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic,
    OpAccess, OpKind, Register, UsedMemory,
};

use crate::vdso::{self, VdsoCall};

/// One access of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    pub segment: Segment,
    /// Numbers of general registers.
    pub base: Option<u8>,
    pub index: Option<u8>,
    pub scale: u8,
    pub displacement: u64,
    /// Bytes; of a repeated one, of each element; of an odd one, perhaps not known.
    pub len: u32,
    pub read: bool,
    pub write: bool,
    pub kind: Kind,
}

/// What is added to the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    None,
    Fs,
    Gs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// So many bytes at the address.
    Plain,
    /// A string instruction that repeats as often as rcx says.
    Repeated,
    /// The description tells who reads and writes, and no more.
    Odd,
}

/// Whether an instruction is atomic for other processors, too: a lock prefix, or an exchange with memory.
pub fn is_locked(ins: &Instruction) -> bool {
    let memory = |n| ins.op_kind(n) == OpKind::Memory;
    ins.has_lock_prefix() || ins.mnemonic() == Mnemonic::Xchg && (0..ins.op_count()).any(memory)
}

/// Finds touches; keeps what the decoder's tables need from one instruction to the next.
pub struct Finder {
    factory: InstructionInfoFactory,
    found: Vec<Touch>,
    written: u32,
}

impl Default for Finder {
    fn default() -> Finder {
        Finder {
            factory: InstructionInfoFactory::new(),
            found: Vec::new(),
            written: 0,
        }
    }
}

impl Finder {
    /// The accesses of an instruction. What the kernel does in a system call isn't among them.
    pub fn touches(&mut self, ins: &Instruction) -> &[Touch] {
        self.find(ins, InstructionInfoOptions::NO_REGISTER_USAGE);
        &self.found
    }

    /// The same, to be asked for; and which general registers it writes.
    pub fn look(&mut self, ins: &Instruction) {
        self.find(ins, InstructionInfoOptions::NONE);
    }

    pub fn all(&self) -> &[Touch] {
        &self.found
    }

    /// General registers that the instruction writes, or may write, a bit each.
    pub fn written(&self) -> u32 {
        self.written
    }

    fn find(&mut self, ins: &Instruction, options: u32) {
        self.found.clear();
        self.written = 0;
        if ins.mnemonic() == Mnemonic::Syscall {
            self.found.extend(time_call(ins.ip()));
            const RAX_RCX_R11: u32 = 1 | 1 << 1 | 1 << 11;
            self.written = RAX_RCX_R11;
            return;
        }
        let info = self.factory.info_options(ins, options);
        for used in info.used_registers() {
            let full = used.register().full_register();
            if full.is_gpr64() && kinds(used.access()).1 {
                self.written |= 1 << full.number();
            }
        }
        for used in info.used_memory() {
            let (read, write) = kinds(used.access());
            if !read && !write {
                continue;
            }
            let touch = describe(ins, used).unwrap_or(Touch {
                kind: Kind::Odd,
                ..NOWHERE
            });
            self.found.push(Touch {
                read,
                write,
                ..touch
            });
        }
        // Nesting: rare, and too many to look at one by one.
        if self.found.len() > 4 {
            let read = self.found.iter().any(|touch| touch.read);
            let write = self.found.iter().any(|touch| touch.write);
            self.found.clear();
            self.found.push(Touch {
                read,
                write,
                kind: Kind::Odd,
                ..NOWHERE
            });
        }
    }
}

impl Finder {
    /// One of those that were found last.
    pub fn found(&self, n: usize) -> Touch {
        self.found[n]
    }
}

const NOWHERE: Touch = Touch {
    segment: Segment::None,
    base: None,
    index: None,
    scale: 1,
    displacement: 0,
    len: 0,
    read: false,
    write: false,
    kind: Kind::Plain,
};

/// Read, written.
pub fn kinds(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
    }
}

/// None for what only its registers' contents tell.
fn describe(ins: &Instruction, used: &UsedMemory) -> Option<Touch> {
    let general = |register: Register| match register {
        Register::None => Some(None),
        register if register.is_gpr64() => Some(Some(register.number() as u8)),
        _ => None,
    };
    let wide = matches!(used.address_size(), CodeSize::Code64 | CodeSize::Unknown);
    if !wide || used.vsib_size() != 0 || offset_in_register(ins) {
        return None;
    }
    let len = match repeated_element(ins) {
        0 => used.memory_size().size() as u32,
        element => element,
    };
    let displacement = used.displacement();
    let base = general(used.base())?;
    let index = general(used.index())?;
    let reaches = i32::try_from(displacement as i64).is_ok() || (base.is_none() && index.is_none());
    if len == 0 || !reaches {
        return None;
    }
    Some(Touch {
        segment: match used.segment() {
            Register::FS => Segment::Fs,
            Register::GS => Segment::Gs,
            _ => Segment::None,
        },
        base,
        index,
        scale: used.scale() as u8,
        displacement,
        len,
        kind: match repeated_element(ins) {
            0 => Kind::Plain,
            _ => Kind::Repeated,
        },
        ..NOWHERE
    })
}

/// `bt` and its relatives with memory and a register: the register says how far from the operand the
/// bit lies.
pub fn offset_in_register(ins: &Instruction) -> bool {
    matches!(
        ins.mnemonic(),
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
    ) && ins.op0_kind() == OpKind::Memory
        && ins.op1_kind() == OpKind::Register
}

/// Size of the elements of a string instruction that repeats; 0 for every other instruction.
pub fn repeated_element(ins: &Instruction) -> u32 {
    if !ins.has_rep_prefix() && !ins.has_repne_prefix() {
        return 0;
    }
    match ins.mnemonic() {
        Mnemonic::Movsb | Mnemonic::Stosb | Mnemonic::Lodsb | Mnemonic::Scasb | Mnemonic::Cmpsb => {
            1
        }
        Mnemonic::Movsw | Mnemonic::Stosw | Mnemonic::Lodsw | Mnemonic::Scasw | Mnemonic::Cmpsw => {
            2
        }
        Mnemonic::Movsd | Mnemonic::Cmpsd if !ins.is_string_instruction() => 0,
        Mnemonic::Movsd | Mnemonic::Stosd | Mnemonic::Lodsd | Mnemonic::Scasd | Mnemonic::Cmpsd => {
            4
        }
        Mnemonic::Movsq | Mnemonic::Stosq | Mnemonic::Lodsq | Mnemonic::Scasq | Mnemonic::Cmpsq => {
            8
        }
        _ => 0,
    }
}

/// What the time calls of the guest's vdso write without leaving the cache.
fn time_call(pc: u64) -> Option<Touch> {
    const RSI: u8 = 6;
    const RDI: u8 = 7;
    let (base, len) = match vdso::entry(pc.wrapping_sub(vdso::SYSCALL_OFFSET))? {
        VdsoCall::ClockGettime => (RSI, 16),
        VdsoCall::Gettimeofday => (RDI, 16),
        VdsoCall::Time => (RDI, 8),
        VdsoCall::Getcpu | VdsoCall::ClockGetres => return None,
    };
    Some(Touch {
        base: Some(base),
        len,
        write: true,
        ..NOWHERE
    })
}

/// Whether the instruction may touch memory of one of these kinds.
pub fn concerns(finder: &mut Finder, ins: &Instruction, reads: bool, writes: bool) -> bool {
    let touches = finder.touches(ins).iter();
    (reads || writes)
        && !matches!(ins.flow_control(), FlowControl::ConditionalBranch)
        && touches
            .into_iter()
            .any(|touch| touch.read && reads || touch.write && writes)
}

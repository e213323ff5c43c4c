//! Where behind its last tick a turn ends. In: what the policy aims at, and the instruction that the current thread
//! stands on. Out: whether the turn ends before it.
//!
//! Any number of steps behind a tick can be found again, so a policy may choose by what the next instructions do:
//! bugs show where a thread is switched away right before or after it takes a lock, or between two accesses to memory
//! that others see. Most instructions are neither.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use crate::context::{RDI, RSI, RSP, Regs};
use crate::executor::Executor;
use crate::guest::access;
use crate::memory::Memory;

/// What a turn's last steps look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Nothing.
    Steps,
    /// The so-manieth instruction that locks the bus: a lock is taken or given, a counter changed. `after`: it is the
    /// turn's last.
    Lock { count: u32, after: bool },
    /// The so-manieth access to writable memory that isn't the thread's own stack; the turn ends before it.
    Access(u32),
    /// That instruction; the turn ends before it, or right after it.
    Pc { pc: u64, after: bool },
}

/// How a turn ends: after at most so many steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    pub aim: Aim,
    pub most: u32,
}

impl Ending {
    pub const AT_TICK: Ending = Ending {
        aim: Aim::Steps,
        most: 0,
    };

    fn finish_after_next(&mut self) {
        (self.aim, self.most) = (Aim::Steps, 1);
    }
}

impl Executor {
    /// Whether the turn ends before the instruction that the current thread stands on.
    pub(super) fn ends_here(&self, ending: &mut Ending) -> bool {
        if ending.most == 0 {
            return true;
        }
        let regs = &self.gs.regs;
        match ending.aim {
            Aim::Steps => {}
            Aim::Pc { pc, after } => {
                if regs.rip == pc {
                    if !after {
                        return true;
                    }
                    ending.finish_after_next();
                }
            }
            Aim::Lock { count, after } => {
                if next(regs).is_some_and(|ins| locks(&ins)) {
                    match (count, after) {
                        (..=1, false) => return true,
                        (..=1, true) => ending.finish_after_next(),
                        _ => {
                            let count = count - 1;
                            ending.aim = Aim::Lock { count, after };
                        }
                    }
                }
            }
            Aim::Access(count) => {
                let visible = |ins| is_visible(&ins, regs, &self.memory);
                if next(regs).is_some_and(visible) {
                    if count <= 1 {
                        return true;
                    }
                    ending.aim = Aim::Access(count - 1);
                }
            }
        }
        ending.most -= 1;
        false
    }
}

/// The instruction that a thread stands on.
fn next(regs: &Regs) -> Option<Instruction> {
    const LONGEST: usize = 15;
    let mut bytes = [0; LONGEST];
    let page_left = (4096 - regs.rip % 4096) as usize;
    let mut room = LONGEST;
    if access::read_bytes(regs.rip, &mut bytes).is_err() {
        room = page_left.min(LONGEST);
        access::read_bytes(regs.rip, &mut bytes[..room]).ok()?;
    }
    let ins = Decoder::with_ip(64, &bytes[..room], regs.rip, DecoderOptions::NONE).decode();
    (!ins.is_invalid()).then_some(ins)
}

fn locks(ins: &Instruction) -> bool {
    let exchanges = ins.mnemonic() == Mnemonic::Xchg && has_memory(ins);
    ins.has_lock_prefix() || exchanges
}

fn has_memory(ins: &Instruction) -> bool {
    (0..ins.op_count()).any(|n| ins.op_kind(n) == OpKind::Memory)
}

/// Whether it may read or write what other threads see. Calls, returns, pushes and pops don't.
fn is_visible(ins: &Instruction, regs: &Regs, memory: &Memory) -> bool {
    if matches!(
        ins.mnemonic(),
        Mnemonic::Lea | Mnemonic::Nop | Mnemonic::Endbr64
    ) {
        return false;
    }
    let Some(addr) = (0..ins.op_count()).find_map(|n| address(ins, n, regs)) else {
        return false;
    };
    let stack = memory.find(regs.gpr[RSP]).map(|mapping| mapping.start);
    memory
        .find(addr)
        .is_some_and(|mapping| mapping.can(libc::PROT_WRITE) && Some(mapping.start) != stack)
}

/// The address of a memory operand.
fn address(ins: &Instruction, operand: u32, regs: &Regs) -> Option<u64> {
    match ins.op_kind(operand) {
        OpKind::Memory => ins.virtual_address(operand, 0, |register, _, _| match register {
            Register::FS => Some(regs.fs_base),
            Register::GS => Some(regs.gs_base),
            Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
            register if register.is_gpr() => Some(regs.gpr[register.full_register().number()]),
            _ => None,
        }),
        OpKind::MemorySegRSI => Some(regs.gpr[RSI]),
        OpKind::MemoryESRDI | OpKind::MemorySegRDI => Some(regs.gpr[RDI]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Instruction {
        Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode()
    }

    #[test]
    fn locking_instructions() {
        // lock cmpxchg [rdi], esi; xchg eax, [rdi]; xchg eax, ecx; mov [rdi], eax
        assert!(locks(&decoded(&[0xf0, 0x0f, 0xb1, 0x37])));
        assert!(locks(&decoded(&[0x87, 0x07])));
        assert!(!locks(&decoded(&[0x87, 0xc8])));
        assert!(!locks(&decoded(&[0x89, 0x07])));
    }

    #[test]
    fn addresses_of_operands() {
        let mut regs = Regs::default();
        regs.gpr[RDI] = 0x5000;
        regs.gpr[RSI] = 4;
        regs.fs_base = 0x7_0000;
        let of = |bytes: &[u8]| address(&decoded(bytes), 0, &regs);
        // mov [rdi+rsi*8+16], eax; mov [rip+0x10], eax; mov fs:[0x28], rax (7 bytes of displacement form)
        assert_eq!(of(&[0x89, 0x44, 0xf7, 0x10]), Some(0x5030));
        assert_eq!(of(&[0x89, 0x05, 0x10, 0, 0, 0]), Some(0x1016));
        let fs = [0x64, 0x48, 0x89, 0x04, 0x25, 0x28, 0, 0, 0];
        assert_eq!(of(&fs), Some(0x7_0028));
        // stosb; a register
        assert_eq!(of(&[0xaa]), Some(0x5000));
        assert_eq!(of(&[0x89, 0xc8]), None);
    }
}

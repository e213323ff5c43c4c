//! Instructions that tell about the kernel's tables: sgdt, sidt, sldt, str, smsw, and lsl, lar,
//! verr, verw.
//!
//! The first five show addresses of the kernel, unless the CPU forbids it (UMIP) and the kernel
//! answers in its place. The guest gets the kernel's made-up answers everywhere, so that a
//! recording doesn't depend on the CPU. The other four ask about a segment; the limit of one of
//! them is the number of the processor it is asked on, so they are answers from outside.

use std::arch::asm;

use super::operand::{Encoded, Operand};
use super::{bad_address, read_fault, state, write_fault};
use crate::executor::Executor;
use crate::guest::access;

/// What the kernel answers (arch/x86/kernel/umip.c).
const GDT: u64 = 0xffff_ffff_fffe_0000;
const IDT: u64 = 0xffff_ffff_ffff_0000;
const MACHINE_STATUS: u64 = 0x8005_0033;
const TASK: u64 = 0x40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// sgdt, sidt: a base address, and a limit of 0.
    Table(u64),
    /// sldt, str, smsw.
    Word(u64),
    Segment(Question),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Limit,
    Rights,
    Readable,
    Writable,
}

impl System {
    pub fn of(ins: &Encoded) -> Option<System> {
        if !ins.two_bytes || ins.repeat {
            return None;
        }
        let memory = matches!(ins.operand, Operand::Memory { .. });
        Some(match (ins.opcode, ins.reg & 7) {
            (0x00, 0) => System::Word(0),
            (0x00, 1) => System::Word(TASK),
            (0x00, 4) => System::Segment(Question::Readable),
            (0x00, 5) => System::Segment(Question::Writable),
            (0x01, 0) if memory => System::Table(GDT),
            (0x01, 1) if memory => System::Table(IDT),
            (0x01, 4) => System::Word(MACHINE_STATUS),
            (0x02, _) => System::Segment(Question::Rights),
            (0x03, _) => System::Segment(Question::Limit),
            _ => return None,
        })
    }
}

/// Carries it out; the thread then stands behind the instruction, or on it with a fault.
pub fn answer(ex: &mut Executor, what: System, ins: &Encoded) {
    if let Operand::Memory { addr, stack } = ins.operand
        && !state::is_canonical(addr)
    {
        return bad_address(ex, stack);
    }
    let done = match what {
        System::Table(base) => {
            let mut image = [0; 10];
            image[2..].copy_from_slice(&base.to_le_bytes());
            store(ex, ins, &image)
        }
        System::Word(value) => store(ex, ins, &value.to_le_bytes()),
        System::Segment(question) => ask(ex, ins, question),
    };
    if done {
        ex.gs.regs.rip += ins.len;
    }
}

/// To a register as much as the operand's size says and not a bit more, which is the kernel's
/// way; to memory two bytes of a word, or all of a table's ten. False: it faulted.
fn store(ex: &mut Executor, ins: &Encoded, image: &[u8]) -> bool {
    match ins.operand {
        Operand::Register(number) => {
            let mut value = ex.gs.regs.gpr[number].to_le_bytes();
            let size = ins.size();
            value[..size].copy_from_slice(&image[..size]);
            ex.gs.regs.gpr[number] = u64::from_le_bytes(value);
            true
        }
        Operand::Memory { addr, .. } => {
            let len = if image.len() == 10 { 10 } else { 2 };
            match state::write(ex, addr, &image[..len]) {
                Ok(()) => true,
                Err(at) => {
                    write_fault(ex, at);
                    false
                }
            }
        }
    }
}

fn ask(ex: &mut Executor, ins: &Encoded, question: Question) -> bool {
    let selector = match ins.operand {
        Operand::Register(number) => ex.gs.regs.gpr[number] as u16,
        Operand::Memory { addr, .. } => match access::read::<u16>(addr) {
            Ok(selector) => selector,
            Err(_) => {
                read_fault(ex, addr);
                return false;
            }
        },
    };
    let (known, value) = segment(question, selector);
    const ZERO_FLAG: u64 = 0x40;
    let regs = &mut ex.gs.regs;
    regs.rflags = regs.rflags & !ZERO_FLAG | if known { ZERO_FLAG } else { 0 };
    if known && matches!(question, Question::Limit | Question::Rights) {
        let slot = &mut regs.gpr[ins.reg];
        *slot = if ins.size() == 2 {
            *slot & !0xffff | value & 0xffff
        } else {
            value
        };
    }
    true
}

/// What the CPU says about a segment: whether it may be asked about, and the answer.
fn segment(question: Question, selector: u16) -> (bool, u64) {
    let mut value = 0u64;
    let known: u8;
    // SAFETY: these only look into the descriptor tables; they never fault with a register.
    unsafe {
        match question {
            Question::Limit => asm!("lsl {v:e}, {s:e}", "setz {k}", v = inout(reg) value,
                s = in(reg) selector as u32, k = out(reg_byte) known),
            Question::Rights => asm!("lar {v:e}, {s:e}", "setz {k}", v = inout(reg) value,
                s = in(reg) selector as u32, k = out(reg_byte) known),
            Question::Readable => asm!("verr {s:x}", "setz {k}",
                s = in(reg) selector as u32, k = out(reg_byte) known),
            Question::Writable => asm!("verw {s:x}", "setz {k}",
                s = in(reg) selector as u32, k = out(reg_byte) known),
        }
    }
    (known != 0, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments() {
        // 64-bit user code and user data, and nothing.
        assert_eq!(segment(Question::Limit, 0x33), (true, 0xffff_ffff));
        assert_eq!(segment(Question::Rights, 0x2b).1 & 0xf0_ff00, 0xc0_f300);
        assert!(segment(Question::Readable, 0x33).0);
        assert!(!segment(Question::Writable, 0x33).0);
        assert!(segment(Question::Writable, 0x2b).0);
        assert_eq!(segment(Question::Limit, 0), (false, 0));
    }
}

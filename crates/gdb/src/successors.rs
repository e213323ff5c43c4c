//! Where an instruction can lead. In: its bytes and the registers. Out: the addresses that may come next.
//!
//! Single steps in a what-if are made with these: breakpoints there, and then it runs.

use clew_recording::event::ThreadId;
use clew_timeline::Registers;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

use crate::Result;
use crate::registers::{RIP, RSP};
use crate::session::Session;

const LONGEST_INSTRUCTION: usize = 15;
const FS_BASE: usize = 18;
const GS_BASE: usize = 19;

impl Session<'_> {
    /// The addresses at which the thread can be after its next instruction.
    pub(crate) fn successors(&mut self, thread: ThreadId) -> Result<Vec<u64>> {
        let Some(registers) = self.registers(thread)? else {
            return Ok(Vec::new());
        };
        let mut bytes = [0; LONGEST_INSTRUCTION];
        let len = self.read(registers.words[RIP], &mut bytes)?;
        let mut read = |addr: u64| {
            let mut word = [0; 8];
            self.read_exactly(addr, &mut word)
                .then(|| u64::from_le_bytes(word))
        };
        Ok(after(&bytes[..len], &registers, &mut read))
    }
}

/// `read` gives a word of memory.
fn after(
    bytes: &[u8],
    registers: &Registers,
    read: &mut dyn FnMut(u64) -> Option<u64>,
) -> Vec<u64> {
    let pc = registers.words[RIP];
    let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
    let instruction = decoder.decode();
    let next = instruction.next_ip();
    match instruction.flow_control() {
        // A system call is a call too, but not to somewhere.
        FlowControl::UnconditionalBranch | FlowControl::Call => {
            match instruction.op0_kind() == OpKind::NearBranch64 {
                true => vec![instruction.near_branch_target()],
                false => vec![next],
            }
        }
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
            vec![next, instruction.near_branch_target()]
        }
        FlowControl::IndirectBranch | FlowControl::IndirectCall => {
            target(&instruction, registers, read).into_iter().collect()
        }
        FlowControl::Return => read(registers.words[RSP]).into_iter().collect(),
        FlowControl::Next | FlowControl::Interrupt | FlowControl::Exception => vec![next],
    }
}

/// Where an indirect branch goes.
fn target(
    instruction: &Instruction,
    registers: &Registers,
    read: &mut dyn FnMut(u64) -> Option<u64>,
) -> Option<u64> {
    let value = |register: Register| {
        Some(match register {
            Register::RIP => registers.words[RIP],
            Register::FS => registers.words[FS_BASE],
            Register::GS => registers.words[GS_BASE],
            _ if register.is_segment_register() => 0,
            _ if register.is_gpr64() => registers.words[register.number()],
            _ if register.is_gpr32() => registers.words[register.number()] & 0xffff_ffff,
            _ => return None,
        })
    };
    match instruction.op0_kind() {
        OpKind::Register => value(instruction.op0_register()),
        OpKind::Memory => {
            let addr = instruction.virtual_address(0, 0, |register, _, _| value(register))?;
            read(addr)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers() -> Registers {
        let mut words = [0; 20];
        words[RIP] = 0x1000;
        words[RSP] = 0x8000;
        // rax, rbx
        words[0] = 0x2000;
        words[3] = 2;
        words[FS_BASE] = 0x7000;
        Registers {
            words,
            extended: Vec::new(),
        }
    }

    fn next(bytes: &[u8]) -> Vec<u64> {
        after(bytes, &registers(), &mut |addr| Some(addr + 0x10_0000))
    }

    #[test]
    fn all_kinds() {
        assert_eq!(next(&[0x90]), [0x1001]);
        // jmp +2; call +0; je +4
        assert_eq!(next(&[0xeb, 2]), [0x1004]);
        assert_eq!(next(&[0xe8, 0, 0, 0, 0]), [0x1005]);
        assert_eq!(next(&[0x74, 4]), [0x1002, 0x1006]);
        // ret; jmp rax; call [rax+rbx*8]; jmp fs:[0x10]
        assert_eq!(next(&[0xc3]), [0x10_8000]);
        assert_eq!(next(&[0xff, 0xe0]), [0x2000]);
        assert_eq!(next(&[0xff, 0x14, 0xd8]), [0x10_2010]);
        assert_eq!(next(&[0x64, 0xff, 0x24, 0x25, 0x10, 0, 0, 0]), [0x10_7010]);
        // jmp [rip+2]; syscall; rep movsb
        assert_eq!(next(&[0xff, 0x25, 2, 0, 0, 0]), [0x10_1008]);
        assert_eq!(next(&[0x0f, 0x05]), [0x1002]);
        assert_eq!(next(&[0xf3, 0xa4]), [0x1002]);
    }
}

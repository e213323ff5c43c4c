//! The frame that the kernel makes for a signal handler: recognised by its code where the C
//! library gives no unwind information for it; the interrupted registers come out.

use super::{Caller, Memory};
use crate::Registers;
use gimli::Register;

/// `mov $15, %rax` (or `%eax`) before `syscall`: rt_sigreturn.
const CODES: [&[u8]; 2] = [
    &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
    &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05],
];

/// Where `struct ucontext` has the registers.
const REGISTERS_AT: u64 = 40;
/// The order in which it has them, as DWARF numbers: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx,
/// rsp, rip.
const ORDER: [u16; 17] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16];

/// The interrupted frame, if the frame is about to return from a signal handler.
pub(super) fn caller(registers: &Registers, memory: Memory<'_>) -> Option<Caller> {
    let (pc, sp) = (registers.pc()?, registers.sp()?);
    let at = |memory: Memory<'_>, start: u64, code: &[u8]| {
        let mut bytes = [0; 9];
        let part = &mut bytes[..code.len()];
        memory(start, part) == code.len() && part == code
    };
    // Before its first instruction, or before the system call.
    let returns = CODES.iter().any(|code| {
        let before_call = pc.wrapping_sub(code.len() as u64 - 2);
        at(memory, pc, code) || at(memory, before_call, code)
    });
    if !returns {
        return None;
    }
    let mut saved = [0; 17 * 8];
    if memory(sp.wrapping_add(REGISTERS_AT), &mut saved) != saved.len() {
        return None;
    }
    let mut outer = Registers::new();
    for (number, bytes) in ORDER.iter().zip(saved.as_chunks::<8>().0) {
        outer.set(Register(*number), Some(u64::from_le_bytes(*bytes)));
    }
    Some(Caller {
        cfa: Some(sp),
        is_signal: true,
        registers: Ok(outer),
        guessed: false,
    })
}

//! Callers of code without unwind information: frame pointers and what the stack's top looks like
//! in, a likely caller out, marked as guessed.

use super::{Caller, Memory, word};
use crate::{Modules, Registers, StackEnd};

/// A frame this large is no frame.
const MAX_FRAME: u64 = 64 << 20;

pub(super) fn caller(
    modules: &Modules,
    registers: &Registers,
    lookup: u64,
    memory: Memory<'_>,
) -> Caller {
    let none = |end| Caller {
        cfa: None,
        is_signal: false,
        registers: Err(end),
        guessed: true,
    };
    let (Some(pc), Some(sp)) = (registers.pc(), registers.sp()) else {
        return none(StackEnd::Lost);
    };
    let interrupted = pc == lookup;
    if interrupted && let Some(depth) = at_edge(modules, pc, memory) {
        // The return address is still, or again, near the top of the stack.
        if let Some(found) = above(modules, registers, sp.wrapping_add(8 * depth), memory) {
            let mut outer = found;
            if depth == 1 {
                outer.set(Registers::RBP, word(memory, sp));
            }
            return guessed(outer);
        }
    }
    // A function without a frame, which the instruction before the return address calls.
    if interrupted
        && let Some(outer) = above(modules, registers, sp, memory)
        && let Some(address) = outer.pc()
        && calls_function_of(modules, address, pc, memory)
    {
        return guessed(outer);
    }
    let pointer = registers.get(Registers::RBP);
    // Programs and threads start with a frame pointer of 0.
    if !interrupted && pointer == Some(0) {
        return none(StackEnd::Outermost);
    }
    if let Some(pointer) = pointer
        && pointer.is_multiple_of(8)
        && pointer.checked_sub(sp).is_some_and(|size| size < MAX_FRAME)
        && let Some(outer_pointer) = word(memory, pointer)
        && let Some(mut outer) = above(modules, &Registers::new(), pointer.wrapping_add(8), memory)
    {
        outer.set(Registers::RBP, Some(outer_pointer));
        return guessed(outer);
    }
    // A function without a frame that calls nothing.
    if interrupted && let Some(outer) = above(modules, registers, sp, memory) {
        return guessed(outer);
    }
    none(StackEnd::Lost)
}

fn guessed(outer: Registers) -> Caller {
    Caller {
        cfa: outer.sp(),
        is_signal: false,
        registers: Ok(outer),
        guessed: true,
    }
}

/// The caller, if a return address lies at `slot`. Registers that functions keep are taken over.
fn above(
    modules: &Modules,
    registers: &Registers,
    slot: u64,
    memory: Memory<'_>,
) -> Option<Registers> {
    let address = word(memory, slot)?;
    if !returns_to(modules, address, memory) {
        return None;
    }
    let mut outer = Registers::new();
    for register in [3, 6, 12, 13, 14, 15].map(gimli::Register) {
        outer.set(register, registers.get(register));
    }
    outer.set(Registers::RSP, Some(slot.wrapping_add(8)));
    outer.set(Registers::RIP, Some(address));
    Some(outer)
}

/// How many words lie above the return address, if pc is where a function starts or ends, or in
/// no code at all (a call through a bad pointer).
fn at_edge(modules: &Modules, pc: u64, memory: Memory<'_>) -> Option<u64> {
    let mut code = [0; 8];
    let read = memory(pc, &mut code);
    if read == 0 {
        return Some(0);
    }
    let local = modules.find(pc).map(|image| (image, image.local(pc)));
    if let Some((image, local)) = local {
        if !image.module.is_code(local) {
            return Some(0);
        }
        if image
            .module
            .symbol_at(local)
            .ok()
            .flatten()
            .is_some_and(|symbol| symbol.address == local)
        {
            return Some(0);
        }
    }
    let code = &code[..read];
    const ENTRIES: [&[u8]; 5] = [
        &[0x55],                   // push %rbp
        &[0xf3, 0x0f, 0x1e, 0xfa], // endbr64
        &[0xc3],                   // ret
        &[0xf3, 0xc3],             // rep ret
        &[0xff, 0x25],             // jmp *x(%rip): a PLT entry
    ];
    if ENTRIES.iter().any(|entry| code.starts_with(entry)) {
        return Some(0);
    }
    // Between push %rbp and mov %rsp, %rbp.
    let mut before = [0];
    let pushed = memory(pc.wrapping_sub(1), &mut before) == 1 && before == [0x55];
    let moves = code.starts_with(&[0x48, 0x89, 0xe5]) || code.starts_with(&[0x48, 0x8b, 0xec]);
    (pushed && moves).then_some(1)
}

/// Whether the address follows a call instruction, in code as far as modules tell.
fn returns_to(modules: &Modules, address: u64, memory: Memory<'_>) -> bool {
    if let Some(image) = modules.find(address)
        && !image.module.is_code(image.local(address))
    {
        return false;
    }
    let mut code = [0; 7];
    if memory(address.wrapping_sub(7), &mut code) != 7 {
        return false;
    }
    // call rel32; then call *r/m, whose bytes after the opcode say how long it is.
    code[2] == 0xe8 || (2..=7).any(|length| is_indirect_call(&code[7 - length..]))
}

/// Whether a direct call before the address leads to the start of the function around `pc`.
fn calls_function_of(modules: &Modules, address: u64, pc: u64, memory: Memory<'_>) -> bool {
    /// Without symbols a function is taken to be no longer than this.
    const LONG: u64 = 1 << 16;
    let mut code = [0; 5];
    if memory(address.wrapping_sub(5), &mut code) != 5 || code[0] != 0xe8 {
        return false;
    }
    let distance = i32::from_le_bytes([code[1], code[2], code[3], code[4]]);
    let target = address.wrapping_add_signed(i64::from(distance));
    let symbol = modules.find(pc).and_then(|image| {
        let symbol = image.module.symbol_at(image.local(pc)).ok().flatten()?;
        Some(symbol.address.wrapping_add(image.bias))
    });
    match symbol {
        Some(start) => start == target,
        None => pc.checked_sub(target).is_some_and(|inside| inside < LONG),
    }
}

fn is_indirect_call(code: &[u8]) -> bool {
    let [0xff, modrm, rest @ ..] = code else {
        return false;
    };
    if modrm >> 3 & 7 != 2 {
        return false;
    }
    let (mode, base) = (modrm >> 6, modrm & 7);
    let sib = usize::from(mode != 3 && base == 4);
    let displacement = match (mode, base) {
        (0, 5) => 4,
        (0, 4) if rest.first().is_some_and(|sib| sib & 7 == 5) => 4,
        (1, _) => 1,
        (2, _) => 4,
        _ => 0,
    };
    rest.len() == sib + displacement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indirect_calls_are_told_by_their_length() {
        assert!(is_indirect_call(&[0xff, 0xd0])); // call *%rax
        assert!(is_indirect_call(&[0xff, 0x50, 0x18])); // call *0x18(%rax)
        assert!(is_indirect_call(&[0xff, 0x15, 1, 2, 3, 4])); // call *x(%rip)
        assert!(is_indirect_call(&[0xff, 0x14, 0xc5, 1, 2, 3, 4])); // call *x(,%rax,8)
        assert!(is_indirect_call(&[0xff, 0x94, 0x24, 1, 2, 3, 4])); // call *x(%rsp)
        assert!(!is_indirect_call(&[0xff, 0xe0])); // jmp *%rax
        assert!(!is_indirect_call(&[0xff, 0xd0, 0x90]));
    }
}

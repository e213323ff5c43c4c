//! Registers that a function saves and gives back. In: an instruction, and unwind information. Out: whether it does either.

use clew_symbols::{Modules, gimli};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// Whether it is the save or the restore of a register that a function has to keep for its caller. Where that is saved
/// behind the instruction, and wasn't before it, the instruction saves it; where it is saved before, a load from there
/// gives it back.
pub fn plumbing(modules: &Modules, ins: &Instruction) -> Option<bool> {
    let kept = |register: Register| {
        const KEPT: [Register; 6] = [
            Register::RBX,
            Register::RBP,
            Register::R12,
            Register::R13,
            Register::R14,
            Register::R15,
        ];
        KEPT.contains(&register).then(|| dwarf(register))
    };
    let at_operand = |saved: &clew_symbols::Saved| {
        saved.base == dwarf(ins.memory_base())
            && ins.memory_index() == Register::None
            && saved.displacement as u64 == ins.memory_displacement64()
    };
    let saved = |pc, register| {
        let all = modules.saved(pc);
        all.into_iter().find(|saved| saved.register == register)
    };
    match ins.mnemonic() {
        Mnemonic::Push if ins.op0_kind() == OpKind::Register => {
            let register = kept(ins.op0_register())?;
            Some(saved(ins.next_ip(), register).is_some() && saved(ins.ip(), register).is_none())
        }
        Mnemonic::Pop if ins.op0_kind() == OpKind::Register => {
            let register = kept(ins.op0_register())?;
            Some(saved(ins.ip(), register).is_some())
        }
        Mnemonic::Leave => Some(saved(ins.ip(), dwarf(Register::RBP)).is_some()),
        Mnemonic::Mov if ins.op0_kind() == OpKind::Memory => {
            let register = kept(ins.op1_register())?;
            let found = saved(ins.next_ip(), register)?;
            Some(at_operand(&found) && saved(ins.ip(), register).is_none())
        }
        Mnemonic::Mov if ins.op1_kind() == OpKind::Memory => {
            let register = kept(ins.op0_register())?;
            Some(at_operand(&saved(ins.ip(), register)?))
        }
        _ => None,
    }
}

/// A general register's number in debugging information.
fn dwarf(register: Register) -> gimli::Register {
    const NUMBERS: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
    let number = match register.is_gpr64() {
        true => NUMBERS[register.number()],
        false => u16::MAX,
    };
    gimli::Register(number)
}

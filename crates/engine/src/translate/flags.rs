//! Are the flags dead? Looks ahead in guest code from a place where the translator would like to
//! use an instruction that spoils them.
//!
//! Only what is certain counts: a path that ends in an unknown place (return, indirect branch,
//! system call, too far ahead) keeps them alive.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, RflagsBits};

/// What `dec` spoils.
pub const DEC: u32 =
    RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::PF;
/// What `cmp` spoils.
pub const ALL: u32 = DEC | RflagsBits::CF;

const LOOKAHEAD: usize = 24;

/// The same flags, by their bits in the register.
pub fn hardware(flags: u32) -> u32 {
    [
        (RflagsBits::CF, 1),
        (RflagsBits::PF, 1 << 2),
        (RflagsBits::AF, 1 << 4),
        (RflagsBits::ZF, 1 << 6),
        (RflagsBits::SF, 1 << 7),
        (RflagsBits::OF, 1 << 11),
    ]
    .iter()
    .filter(|(flag, _)| flags & flag != 0)
    .fold(0, |bits, (_, bit)| bits | bit)
}

/// Which of `ALL` may still be read from `pc` on. `decode` gives the instruction at an address,
/// or None where it can't be executed.
pub fn live_at(pc: u64, mut decode: impl FnMut(u64) -> Option<Instruction>) -> u32 {
    let mut open = ALL;
    let mut live = 0;
    let mut pc = pc;
    for _ in 0..LOOKAHEAD {
        let Some(ins) = decode(pc) else {
            return live | open;
        };
        live |= ins.rflags_read() & open;
        match ins.flow_control() {
            FlowControl::Next => {}
            FlowControl::UnconditionalBranch | FlowControl::Call if is_near_direct(&ins) => {
                pc = ins.near_branch_target();
                continue;
            }
            _ => return live | open,
        }
        // A fault here shows the flags to a handler, but dead ones as 0; a system call or software
        // interrupt stores them as they are.
        open &= !kills(&ins);
        if open == 0 {
            return live;
        }
        pc = ins.next_ip();
    }
    live | open
}

fn is_near_direct(ins: &Instruction) -> bool {
    matches!(ins.op0_kind(), OpKind::NearBranch64)
}

/// Flags that the instruction overwrites for certain. What the manual calls undefined isn't: some CPUs
/// write it, others leave it as it was (`imul` on AMD), and then what came before shows.
pub(crate) fn kills(ins: &Instruction) -> u32 {
    if ins.has_rep_prefix() || ins.has_repne_prefix() {
        // With a count of zero nothing is written.
        return 0;
    }
    use Mnemonic::*;
    let defined = ins.rflags_written() | ins.rflags_cleared() | ins.rflags_set();
    match ins.mnemonic() {
        // A shift by zero leaves all flags alone.
        Shl | Shr | Sar | Sal | Rol | Ror | Rcl | Rcr | Shld | Shrd
            if !shift_count_is_nonzero(ins) =>
        {
            0
        }
        // Of more than one bit, the overflow flag is undefined.
        Shl | Shr | Sar | Sal | Rol | Ror | Rcl | Rcr | Shld | Shrd if !shift_count_is_one(ins) => {
            defined & !RflagsBits::OF
        }
        // Of zero, the source's only flag is ZF.
        Bsf | Bsr => defined & RflagsBits::ZF,
        _ => defined,
    }
}

fn shift_count_is_nonzero(ins: &Instruction) -> bool {
    let last = ins.op_count() - 1;
    match ins.op_kind(last) {
        // 64-bit shifts mask with 63, others with 31; what is nonzero under both will do.
        OpKind::Immediate8 => ins.immediate8() & 31 != 0,
        _ => false,
    }
}

fn shift_count_is_one(ins: &Instruction) -> bool {
    let last = ins.op_count() - 1;
    ins.op_kind(last) == OpKind::Immediate8 && ins.immediate8() == 1
}

#[cfg(test)]
mod tests;

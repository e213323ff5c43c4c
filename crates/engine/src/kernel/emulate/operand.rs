//! Takes an instruction apart without the decoder, whose tables take a millisecond to build: a
//! program with saved translations needs them for nothing else, and the dynamic loader saves the
//! vector state at its first lazily bound call.
//!
//! In: bytes of an instruction that the translator left to the engine, and registers. Out: its
//! opcode, and which register or which address its operand is.

use super::LONGEST;
use crate::context::{RBP, RSP, Regs};

/// A legacy-encoded instruction with a ModRM byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Behind an 0x0f.
    pub two_bytes: bool,
    pub opcode: u8,
    /// The middle field: a register, or (its low three bits) a part of the opcode.
    pub reg: usize,
    pub operand: Operand,
    /// 66, and REX.W.
    pub short: bool,
    pub wide: bool,
    /// f2 or f3.
    pub repeat: bool,
    pub len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    Register(usize),
    Memory {
        addr: u64,
        /// Relative to rsp or rbp: a bad address is a fault of the stack segment.
        stack: bool,
    },
}

impl Encoded {
    /// Size in bytes of a general operand.
    pub fn size(&self) -> usize {
        match (self.wide, self.short) {
            (true, _) => 8,
            (_, true) => 2,
            _ => 4,
        }
    }
}

/// None if the bytes end before the instruction does.
pub fn decode(bytes: &[u8; LONGEST], regs: &Regs) -> Option<Encoded> {
    let mut at = 0;
    let mut next = || {
        let byte = bytes.get(at).copied();
        at += 1;
        byte
    };
    let (mut short, mut narrow, mut repeat, mut rex) = (false, false, false, 0u8);
    let mut segment_base = None;
    let mut opcode;
    loop {
        opcode = next()?;
        match opcode {
            0x66 => short = true,
            0x67 => narrow = true,
            0xf2 | 0xf3 => repeat = true,
            0x64 => segment_base = Some(regs.fs_base),
            0x65 => segment_base = Some(regs.gs_base),
            // Without effect in 64-bit mode.
            0x26 | 0x2e | 0x36 | 0x3e => {}
            0x40..=0x4f => {
                rex = opcode;
                opcode = next()?;
                break;
            }
            _ => break,
        }
    }
    let two_bytes = opcode == 0x0f;
    if two_bytes {
        opcode = next()?;
    }
    let modrm = next()?;
    let (mode, low) = (modrm >> 6, modrm & 7);
    let high = |bit: u8, low: u8| (rex >> bit & 1) << 3 | low;
    let mut encoded = Encoded {
        two_bytes,
        opcode,
        reg: high(2, modrm >> 3 & 7) as usize,
        operand: Operand::Register(high(0, low) as usize),
        short,
        wide: rex & 8 != 0,
        repeat,
        len: 0,
    };
    if mode == 3 {
        encoded.len = at as u64;
        return Some(encoded);
    }
    let mut base = Some(high(0, low) as usize);
    let mut index = 0;
    let mut of_next = false;
    if low == 4 {
        let sib = next()?;
        base = Some(high(0, sib & 7) as usize);
        let register = high(1, sib >> 3 & 7) as usize;
        if register != RSP {
            index = regs.gpr[register] << (sib >> 6);
        }
        if mode == 0 && sib & 7 == 5 {
            base = None;
        }
    } else if mode == 0 && low == 5 {
        base = None;
        of_next = true;
    }
    let displacement = match mode {
        1 => next()? as i8 as i64,
        0 if base.is_some() => 0,
        _ => {
            let bytes = [next()?, next()?, next()?, next()?];
            i32::from_le_bytes(bytes) as i64
        }
    };
    encoded.len = at as u64;
    let mut addr = base.map_or(0, |register| regs.gpr[register]);
    if of_next {
        addr = regs.rip.wrapping_add(encoded.len);
    }
    addr = addr.wrapping_add(index).wrapping_add(displacement as u64);
    if narrow {
        addr &= u32::MAX as u64;
    }
    encoded.operand = Operand::Memory {
        addr: addr.wrapping_add(segment_base.unwrap_or(0)),
        stack: segment_base.is_none() && matches!(base, Some(RSP | RBP)),
    };
    Some(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, OpKind, Register};

    fn regs() -> Regs {
        let mut regs = Regs {
            rip: 0x1234_5678,
            fs_base: 0x7000_0000_0000,
            gs_base: 0x1111_2222_3333,
            ..Regs::default()
        };
        for (k, register) in regs.gpr.iter_mut().enumerate() {
            *register = 0x0101_0101_0101 * (k as u64 + 3);
        }
        regs
    }

    #[test]
    fn it_agrees_with_the_decoder_on_every_operand() {
        let regs = regs();
        let mut seen = 0;
        for prefix in [&[][..], &[0x64], &[0x65], &[0x67], &[0x66], &[0x3e]] {
            for rex in [0, 0x40, 0x41, 0x42, 0x43, 0x44, 0x48, 0x4f] {
                for modrm in 0..=255u8 {
                    for sib in [0x00, 0x24, 0x25, 0x6c, 0xa5, 0xdf, 0xe4] {
                        let mut bytes = [0; LONGEST];
                        let mut all = prefix.to_vec();
                        all.extend((rex != 0).then_some(rex));
                        // lar: valid with every operand.
                        all.extend([0x0f, 0x02, modrm, sib, 0x85, 0xf6, 0x77, 0x80, 0x91]);
                        bytes[..all.len()].copy_from_slice(&all);
                        check(&bytes, &regs);
                        seen += 1;
                    }
                }
            }
        }
        assert!(seen > 80_000);
    }

    fn check(bytes: &[u8; LONGEST], regs: &Regs) {
        let mine = decode(bytes, regs).unwrap();
        let ins = Decoder::with_ip(64, bytes, regs.rip, DecoderOptions::NONE).decode();
        assert_eq!(mine.len, ins.len() as u64, "{bytes:x?}");
        assert_eq!(mine.reg, ins.op0_register().full_register().number());
        match mine.operand {
            Operand::Register(number) => {
                assert_eq!(number, ins.op1_register().full_register().number());
            }
            Operand::Memory { addr, .. } => {
                assert_eq!(ins.op1_kind(), OpKind::Memory);
                let theirs = ins.virtual_address(1, 0, |register, _, _| {
                    Some(match register {
                        Register::FS => regs.fs_base,
                        Register::GS => regs.gs_base,
                        register if register.is_segment_register() => 0,
                        Register::RIP | Register::EIP => regs.rip,
                        register => {
                            let value = regs.gpr[register.full_register().number()];
                            match register.size() {
                                4 => value & u32::MAX as u64,
                                _ => value,
                            }
                        }
                    })
                });
                assert_eq!(Some(addr), theirs, "{ins} {bytes:x?}");
            }
        }
    }

    #[test]
    fn bad_stack_addresses_are_told_apart() {
        let stack = |bytes: &[u8]| {
            let mut all = [0; LONGEST];
            all[..bytes.len()].copy_from_slice(bytes);
            matches!(
                decode(&all, &regs()).unwrap().operand,
                Operand::Memory { stack: true, .. }
            )
        };
        // xsavec [rsp+0x40]; fnstenv [rbp-8]; fnstenv [rax]; fnstenv gs:[rsp]
        assert!(stack(&[0x0f, 0xc7, 0x64, 0x24, 0x40]));
        assert!(stack(&[0xd9, 0x75, 0xf8]));
        assert!(!stack(&[0xd9, 0x30]));
        assert!(!stack(&[0x65, 0xd9, 0x34, 0x24]));
    }

    #[test]
    fn what_ends_too_early_is_nothing() {
        assert_eq!(decode(&[0x66; LONGEST], &regs()), None);
    }
}

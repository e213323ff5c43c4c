//! Cells: the bytes that registers are made of, each flag among them, as sets.

use iced_x86::{Register, RflagsBits};

/// A set of register cells of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cells {
    /// Eight for each general register.
    general: u128,
    /// 32 for each vector register.
    vector: [u64; 8],
    /// Flags, and what is known as one: [`X87`], [`ROUNDING`], [`EXCEPTIONS`].
    other: u16,
}

/// In the order of their cells.
const FLAGS: [u32; 7] = [
    RflagsBits::CF,
    RflagsBits::PF,
    RflagsBits::AF,
    RflagsBits::ZF,
    RflagsBits::SF,
    RflagsBits::OF,
    RflagsBits::DF,
];
/// The x87's registers and words, MMX's among them: all of it is one cell.
const X87: u16 = 1 << 7;
/// How SSE's arithmetic rounds, and what it noted of exceptions: everybody reads the one, and adds to the other.
const ROUNDING: u16 = 1 << 8;
const EXCEPTIONS: u16 = 1 << 9;

impl Cells {
    pub const NONE: Cells = Cells {
        general: 0,
        vector: [0; 8],
        other: 0,
    };

    /// Registers that are told apart where it is about who wants them: general, vector, and all others.
    pub const GROUPS: usize = 33;

    /// The groups with cells in the set.
    pub fn groups(&self, mut each: impl FnMut(usize)) {
        let mut general = self.general;
        while general != 0 {
            let register = general.trailing_zeros() as usize / 8;
            each(register);
            general &= !(0xff << (8 * register));
        }
        for (n, word) in self.vector.iter().enumerate() {
            for half in (0..2).filter(|half| word >> (32 * half) & 0xffff_ffff != 0) {
                each(16 + 2 * n + half);
            }
        }
        if self.other != 0 {
            each(32);
        }
    }

    /// Everything.
    pub fn all() -> Cells {
        Cells {
            general: u128::MAX,
            vector: [u64::MAX; 8],
            other: u16::MAX,
        }
    }

    /// Some bytes of a general register, by number.
    pub fn general(register: usize, first: usize, len: usize) -> Cells {
        let bits = (1u128 << len) - 1;
        Cells {
            general: bits << (8 * register + first),
            ..Cells::NONE
        }
    }

    /// Some bytes of a vector register.
    pub fn vector(register: usize, first: usize, len: usize) -> Cells {
        let mut cells = Cells::NONE;
        let bits = match len {
            64.. => u64::MAX,
            len => (1u64 << len) - 1,
        };
        let at = 32 * register + first;
        if let Some(word) = cells.vector.get_mut(at / 64) {
            *word = bits << (at % 64);
        }
        cells
    }

    /// The flags of a mask of the decoder's.
    pub fn flags(mask: u32) -> Cells {
        let set = FLAGS.iter().enumerate();
        let set = set.filter(|(_, flag)| mask & **flag != 0);
        Cells {
            other: set.fold(0, |all, (n, _)| all | 1 << n),
            ..Cells::NONE
        }
    }

    pub fn x87() -> Cells {
        Cells {
            other: X87,
            ..Cells::NONE
        }
    }

    pub fn rounding() -> Cells {
        Cells {
            other: ROUNDING,
            ..Cells::NONE
        }
    }

    pub fn exceptions() -> Cells {
        Cells {
            other: EXCEPTIONS,
            ..Cells::NONE
        }
    }

    /// All of SSE's control and status.
    pub fn mxcsr() -> Cells {
        Cells {
            other: ROUNDING | EXCEPTIONS,
            ..Cells::NONE
        }
    }

    /// The cells of a register as the decoder names it; none for what isn't followed.
    pub fn of(register: Register) -> Cells {
        if register.is_gpr() {
            let number = register.full_register().number();
            let high = matches!(
                register,
                Register::AH | Register::BH | Register::CH | Register::DH
            );
            return Cells::general(number, high as usize, register.size());
        }
        if register.is_vector_register() {
            let number = register.number();
            return match number {
                0..16 => Cells::vector(number, 0, register.size().min(32)),
                _ => Cells::NONE,
            };
        }
        match register {
            register if register.is_st() || register.is_mm() => Cells::x87(),
            _ => Cells::NONE,
        }
    }

    /// A bit for each byte of the general registers.
    pub fn of_general(&self) -> u128 {
        self.general
    }

    pub fn is_empty(&self) -> bool {
        self.general == 0 && self.other == 0 && self.vector == [0; 8]
    }

    pub fn meets(&self, other: &Cells) -> bool {
        let vector = self.vector.iter().zip(other.vector);
        self.general & other.general != 0
            || self.other & other.other != 0
            || vector.fold(0, |met, (one, other)| met | one & other) != 0
    }

    pub fn both(&self, other: &Cells) -> Cells {
        Cells {
            general: self.general & other.general,
            vector: std::array::from_fn(|n| self.vector[n] & other.vector[n]),
            other: self.other & other.other,
        }
    }

    pub fn add(&mut self, other: &Cells) {
        self.general |= other.general;
        self.other |= other.other;
        for (word, more) in self.vector.iter_mut().zip(other.vector) {
            *word |= more;
        }
    }

    pub fn remove(&mut self, other: &Cells) {
        self.general &= !other.general;
        self.other &= !other.other;
        for (word, less) in self.vector.iter_mut().zip(other.vector) {
            *word &= !less;
        }
    }

    /// Which bytes of a register are in the set, from its first.
    pub fn bytes_of(&self, register: Register) -> u32 {
        self.bytes_within(&Cells::of(register))
    }

    /// The same of a register's cells.
    pub fn bytes_within(&self, of: &Cells) -> u32 {
        if of.general != 0 {
            let first = of.general.trailing_zeros();
            return (self.general & of.general).checked_shr(first).unwrap_or(0) as u32;
        }
        let word = of.vector.iter().position(|&word| word != 0);
        word.map_or(0, |n| {
            let first = of.vector[n].trailing_zeros();
            (self.vector[n] & of.vector[n])
                .checked_shr(first)
                .unwrap_or(0) as u32
        })
    }

    /// These bytes of a register, from its first.
    pub fn some_of(register: Register, bytes: u32) -> Cells {
        let mut cells = Cells::of(register);
        if cells.general != 0 {
            let first = cells.general.trailing_zeros();
            cells.general &= u128::from(bytes) << first;
        } else if let Some(n) = cells.vector.iter().position(|&word| word != 0) {
            let first = cells.vector[n].trailing_zeros();
            cells.vector[n] &= u64::from(bytes) << first;
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_parts_of_each_other() {
        let rax = Cells::of(Register::RAX);
        for part in [Register::AL, Register::AH, Register::AX, Register::EAX] {
            assert!(rax.meets(&Cells::of(part)));
            assert_eq!(rax.both(&Cells::of(part)), Cells::of(part));
        }
        assert!(!Cells::of(Register::AL).meets(&Cells::of(Register::AH)));
        assert!(!rax.meets(&Cells::of(Register::RBX)));
        assert!(Cells::of(Register::YMM7).meets(&Cells::of(Register::XMM7)));
        assert!(!Cells::of(Register::YMM7).meets(&Cells::of(Register::XMM6)));
        assert!(Cells::of(Register::MM2).meets(&Cells::of(Register::ST0)));
    }

    #[test]
    fn bytes_are_counted_from_a_registers_first() {
        let mut live = Cells::of(Register::AH);
        assert_eq!(live.bytes_of(Register::RAX), 0b10);
        assert_eq!(live.bytes_of(Register::AH), 0b1);
        assert_eq!(live.bytes_of(Register::AL), 0);
        live.add(&Cells::some_of(Register::YMM3, 0xff00_0000));
        assert_eq!(live.bytes_of(Register::YMM3), 0xff00_0000);
        assert_eq!(live.bytes_of(Register::XMM3), 0);
        live.remove(&Cells::of(Register::RAX));
        assert_eq!(live.bytes_of(Register::RAX), 0);
    }

    #[test]
    fn each_flag_is_its_own() {
        let carry = Cells::flags(RflagsBits::CF);
        let others = Cells::flags(RflagsBits::ZF | RflagsBits::SF);
        assert!(!carry.meets(&others));
        assert!(Cells::flags(u32::MAX).meets(&carry));
    }
}

//! gdb's agent code, as it is written: operations in, bytes out. (gdb's manual, "The GDB Agent Expression Mechanism".)

use gimli::Register;

pub const ADD: u8 = 0x02;
pub const SUB: u8 = 0x03;
pub const MUL: u8 = 0x04;
pub const LOG_NOT: u8 = 0x0e;
pub const BIT_AND: u8 = 0x0f;
pub const BIT_OR: u8 = 0x10;
pub const BIT_XOR: u8 = 0x11;
pub const BIT_NOT: u8 = 0x12;
pub const EQUAL: u8 = 0x13;
pub const LESS_SIGNED: u8 = 0x14;
pub const LESS_UNSIGNED: u8 = 0x15;
pub const EXTEND: u8 = 0x16;
pub const LOAD: [(u64, u8); 4] = [(1, 0x17), (2, 0x18), (4, 0x19), (8, 0x1a)];
pub const IF_GOTO: u8 = 0x20;
pub const GOTO: u8 = 0x21;
pub const CONST8: u8 = 0x22;
pub const CONST64: u8 = 0x25;
pub const REGISTER: u8 = 0x26;
pub const END: u8 = 0x27;
pub const ZERO_EXTEND: u8 = 0x2a;
pub const SWAP: u8 = 0x2b;

/// Code in the making.
#[derive(Default)]
pub struct Code(pub Vec<u8>);

impl Code {
    pub fn constant(&mut self, value: u64) {
        match u8::try_from(value) {
            Ok(small) => self.0.extend([CONST8, small]),
            Err(_) => {
                self.0.push(CONST64);
                self.0.extend(value.to_be_bytes());
            }
        }
    }

    /// gdb counts rbx before rcx and rdx.
    pub fn register(&mut self, register: Register) -> Option<()> {
        let number = match register.0 {
            1 => 3,
            3 => 1,
            other if other < 16 => other,
            _ => return None,
        };
        self.0.push(REGISTER);
        self.0.extend(number.to_be_bytes());
        Some(())
    }

    pub fn op(&mut self, op: u8) {
        self.0.push(op);
    }

    /// Makes a number of so many bits one of 64.
    pub fn extend(&mut self, bits: u8, signed: bool) {
        if bits < 64 {
            let op = match signed {
                true => EXTEND,
                false => ZERO_EXTEND,
            };
            self.0.extend([op, bits]);
        }
    }

    pub fn truth(&mut self) {
        self.0.extend([LOG_NOT, LOG_NOT]);
    }

    /// A jump whose target is told later.
    pub fn jump(&mut self, op: u8) -> usize {
        self.0.extend([op, 0, 0]);
        self.0.len() - 2
    }

    pub fn lands(&mut self, jump: usize) {
        let here = self.0.len() as u16;
        self.0[jump..jump + 2].copy_from_slice(&here.to_be_bytes());
    }
}

//! The emitter: machine code for the few sequences that the translator writes itself.
//!
//! In: calls that name what is wanted. Out: bytes for a known host address. Everything here is
//! hand-encoded because these dozen forms are all there is, and translation speed is start-up time.
//! The block at `gs` has a fixed address below 2 GiB and is addressed absolutely: a byte shorter
//! than through gs at every use.

use crate::context::{EXIT_ARG, EXITS, SOURCE, SPILL, TARGET, TICKS_LEFT};
use crate::layout;

pub const RCX: u8 = 1;
pub const RSP: u8 = 4;

/// Condition codes as in the low nibble of `jcc`.
pub const CC_Z: u8 = 4;
pub const CC_NZ: u8 = 5;

pub struct Emitter {
    base: u32,
    pub bytes: Vec<u8>,
}

/// A rel32 field that waits for its target, as an offset into the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Rel32(pub usize);

/// A rel8 field that waits for its target.
#[derive(Clone, Copy, Debug)]
pub struct Rel8(usize);

impl Emitter {
    pub fn new(base: u32) -> Emitter {
        Emitter {
            base,
            bytes: Vec::with_capacity(512),
        }
    }

    /// One that may never be used.
    pub fn empty() -> Emitter {
        Emitter {
            base: 0,
            bytes: Vec::new(),
        }
    }

    pub fn clear(&mut self, base: u32) {
        self.base = base;
        self.bytes.clear();
    }

    /// Host address of the next byte.
    pub fn here(&self) -> u32 {
        self.base + self.bytes.len() as u32
    }

    pub fn address(&self, offset: usize) -> u32 {
        self.base + offset as u32
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn imm32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    /// The address of a field of the block at `gs`.
    fn gs_address(&mut self, offset: usize) {
        self.imm32(layout::GS_BLOCK as u32 + offset as u32);
    }

    /// `mov gs:[offset], reg`
    pub fn store_gs(&mut self, offset: usize, reg: u8) {
        self.raw(&[0x48 | (reg >> 3) << 2, 0x89, 0x04 | (reg & 7) << 3, 0x25]);
        self.gs_address(offset);
    }

    /// `mov reg, gs:[offset]`
    pub fn load_gs(&mut self, reg: u8, offset: usize) {
        self.raw(&[0x48 | (reg >> 3) << 2, 0x8b, 0x04 | (reg & 7) << 3, 0x25]);
        self.gs_address(offset);
    }

    /// `mov dword gs:[offset], imm32`
    pub fn store_gs_imm(&mut self, offset: usize, value: u32) {
        self.raw(&[0xc7, 0x04, 0x25]);
        self.gs_address(offset);
        self.imm32(value);
    }

    /// `mov qword gs:[offset], 0`
    pub fn zero_gs(&mut self, offset: usize) {
        self.raw(&[0x48, 0xc7, 0x04, 0x25]);
        self.gs_address(offset);
        self.imm32(0);
    }

    /// `dec reg`
    pub fn dec_reg(&mut self, reg: u8) {
        self.raw(&[0x48 | reg >> 3, 0xff, 0xc8 | (reg & 7)]);
    }

    /// `call gs:[offset]`
    pub fn call_gs(&mut self, offset: usize) {
        self.raw(&[0xff, 0x14, 0x25]);
        self.gs_address(offset);
    }

    pub fn spill(&mut self, slot: usize, reg: u8) {
        self.store_gs(SPILL + 8 * slot, reg);
    }

    pub fn unspill(&mut self, reg: u8, slot: usize) {
        self.load_gs(reg, SPILL + 8 * slot);
    }

    /// `mov reg, imm` in its shortest form that leaves flags alone.
    pub fn mov_imm(&mut self, reg: u8, value: u64) {
        if value <= u32::MAX as u64 {
            if reg >= 8 {
                self.raw(&[0x41]);
            }
            self.raw(&[0xb8 | (reg & 7)]);
            self.imm32(value as u32);
        } else {
            self.raw(&[0x48 | reg >> 3, 0xb8 | (reg & 7)]);
            self.raw(&value.to_le_bytes());
        }
    }

    /// `mov dst, src` (64 bit)
    pub fn mov_reg(&mut self, dst: u8, src: u8) {
        self.raw(&[
            0x48 | (src >> 3) << 2 | dst >> 3,
            0x89,
            0xc0 | (src & 7) << 3 | (dst & 7),
        ]);
    }

    /// `lea rsp, [rsp + disp]`
    pub fn adjust_rsp(&mut self, disp: i32) {
        if let Ok(disp) = i8::try_from(disp) {
            self.raw(&[0x48, 0x8d, 0x64, 0x24, disp as u8]);
        } else {
            self.raw(&[0x48, 0x8d, 0xa4, 0x24]);
            self.imm32(disp as u32);
        }
    }

    /// `lea rcx, [rcx + disp32]`
    pub fn lea_rcx(&mut self, disp: i32) {
        self.raw(&[0x48, 0x8d, 0x89]);
        self.imm32(disp as u32);
    }

    /// Pushes a guest address below 2 GiB as `call` would.
    pub fn push_near(&mut self, pc: u32) {
        self.raw(&[0x68]);
        self.imm32(pc);
    }

    /// Pushes what is at a host address.
    pub fn push_at(&mut self, at: u32) {
        self.raw(&[0xff, 0x34, 0x25]);
        self.imm32(at);
    }

    /// `jmp rel32`, target to come.
    pub fn jmp(&mut self) -> Rel32 {
        self.raw(&[0xe9]);
        self.imm32(0);
        Rel32(self.bytes.len() - 4)
    }

    /// `jcc rel32`, target to come.
    pub fn jcc(&mut self, cc: u8) -> Rel32 {
        self.raw(&[0x0f, 0x80 | cc]);
        self.imm32(0);
        Rel32(self.bytes.len() - 4)
    }

    /// `jcc rel8`, target to come.
    pub fn jcc_short(&mut self, cc: u8) -> Rel8 {
        self.raw(&[0x70 | cc, 0]);
        Rel8(self.bytes.len() - 1)
    }

    pub fn jmp_short(&mut self) -> Rel8 {
        self.raw(&[0xeb, 0]);
        Rel8(self.bytes.len() - 1)
    }

    pub fn jrcxz(&mut self) -> Rel8 {
        self.raw(&[0xe3, 0]);
        Rel8(self.bytes.len() - 1)
    }

    /// `jrcxz` back to a place that is already there.
    pub fn jrcxz_back(&mut self, target: u32) {
        let rel = target as i64 - (self.here() as i64 + 2);
        let rel = i8::try_from(rel).expect("short jump reaches");
        self.raw(&[0xe3, rel as u8]);
    }

    pub fn bind_short(&mut self, at: Rel8) {
        let rel = self.bytes.len() - (at.0 + 1);
        self.bytes[at.0] = u8::try_from(rel)
            .ok()
            .filter(|r| *r < 128)
            .expect("short jump reaches");
    }

    pub fn bind(&mut self, at: Rel32, target: u32) {
        let next = self.address(at.0 + 4);
        let rel = target.wrapping_sub(next);
        self.bytes[at.0..at.0 + 4].copy_from_slice(&rel.to_le_bytes());
    }

    pub fn bind_here(&mut self, at: Rel32) {
        self.bind(at, self.here());
    }

    /// `jmp gs:[exits[routine]]`
    pub fn exit(&mut self, routine: usize) {
        self.raw(&[0xff, 0x24, 0x25]);
        self.gs_address(EXITS + 8 * routine);
    }

    /// Tells the engine which guest pc this exit stands for (or which stub).
    pub fn exit_arg(&mut self, value: u64) {
        self.store_gs_imm(EXIT_ARG, value as u32);
        if value > u32::MAX as u64 {
            self.store_gs_imm(EXIT_ARG + 4, (value >> 32) as u32);
        }
    }

    /// `dec qword gs:[ticks_left]`: spoils all arithmetic flags but CF.
    pub fn tick_dec(&mut self) {
        self.raw(&[0x48, 0xff, 0x0c, 0x25]);
        self.gs_address(TICKS_LEFT);
    }

    /// Counts a tick without touching flags; rcx is free and holds what is left afterwards.
    /// A signal handler that interrupts this recognises the two instructions between load and
    /// store (`host::handlers`), since the counter is in flight there.
    pub fn tick_rcx(&mut self) {
        self.load_gs(RCX, TICKS_LEFT);
        self.raw(&TICK_LEA);
        self.store_gs(TICKS_LEFT, RCX);
    }

    /// The common end of every indirect branch: `target` holds the guest target, the guest's rcx is
    /// in spill 0.
    pub fn dispatch(&mut self, target: u8, table: u64) {
        self.store_gs_imm(SOURCE, self.here());
        self.store_gs(TARGET, target);
        // movzx ecx, target16
        if target >= 8 {
            self.raw(&[0x41]);
        }
        self.raw(&[0x0f, 0xb7, 0xc8 | (target & 7)]);
        // jmp [rcx*8 + dispatch]
        self.raw(&[0xff, 0x24, 0xcd]);
        self.imm32(table as u32);
    }
}

/// `lea rcx, [rcx - 1]`, the middle of [`Emitter::tick_rcx`].
pub const TICK_LEA: [u8; 4] = [0x48, 0x8d, 0x49, 0xff];

/// Does a register hold the tick counter where translated code was interrupted before `code` and
/// after `before`? If so which, and what it must be lowered to so that the next tick is the last.
pub fn counter_at(before: &[u8], code: &[u8]) -> Option<(u8, i64)> {
    let is_ticks =
        |bytes: &[u8]| bytes == (layout::GS_BLOCK as u32 + TICKS_LEFT as u32).to_le_bytes();
    // mov [ticks], reg or mov reg, [ticks]; the register.
    let moves = |bytes: &[u8], opcode: u8| {
        let form = bytes[0] & 0xfb == 0x48 && bytes[1] == opcode && bytes[2] & 0xc7 == 0x04;
        (form && bytes[3] == 0x25 && is_ticks(&bytes[4..8]))
            .then_some((bytes[0] & 4) << 1 | bytes[2] >> 3 & 7)
    };
    if let Some(register) = moves(code, 0x89) {
        return Some((register, 1));
    }
    if code.starts_with(&TICK_LEA) && moves(&code[TICK_LEA.len()..], 0x89) == Some(RCX) {
        return Some((RCX, 2));
    }
    // Between load and `mov qword [ticks], 0` of a loop.
    if code[..4] == [0x48, 0xc7, 0x04, 0x25] && is_ticks(&code[4..8]) {
        return moves(before, 0x8b).map(|register| (register, 1));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_in_flight_is_found_at_every_place() {
        let mut code = Emitter::new(0x5800_0000);
        code.raw(&[0x90; 8]);
        code.tick_rcx();
        let look = |code: &Emitter, at: usize| {
            let mut bytes = code.bytes.clone();
            bytes.extend([0x90; 16]);
            counter_at(&bytes[at - 8..at], &bytes[at..at + 16])
        };
        assert_eq!(look(&code, 8), None, "not loaded yet");
        assert_eq!(look(&code, 16), Some((RCX, 2)));
        assert_eq!(look(&code, 20), Some((RCX, 1)));
        assert_eq!(look(&code, 28), None, "stored");
        for register in [0, 3, 8, 15] {
            let mut code = Emitter::new(0x5800_0000);
            code.raw(&[0x90; 8]);
            code.load_gs(register, TICKS_LEFT);
            code.zero_gs(TICKS_LEFT);
            code.store_gs(TICKS_LEFT, register);
            assert_eq!(look(&code, 8), None);
            assert_eq!(look(&code, 16), Some((register, 1)));
            assert_eq!(look(&code, 28), Some((register, 1)));
        }
    }
}

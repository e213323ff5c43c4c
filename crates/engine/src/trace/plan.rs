//! Which registers an entry of a trace has. In: a block's instructions, one after the other. Out: what is to be noted
//! before each, and for each access of memory from which slots its address follows.
//!
//! A register is noted where memory is first addressed by it, and again only after it has changed to something that
//! doesn't follow from slots: sums with constants, moves, and the stack pointer's way through `push` and `call` do.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

use crate::cache::accesses::mask_of;
use crate::context::{RCX, RSP};
use crate::translate::touches::{Kind, Touch};

/// What a general register holds, in terms of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Where its part that isn't constant stands.
    pub slot: Option<u16>,
    pub plus: u64,
}

impl Known {
    fn constant(plus: u64) -> Known {
        Known { slot: None, plus }
    }

    fn and(self, more: u64) -> Known {
        Known {
            plus: self.plus.wrapping_add(more),
            ..self
        }
    }

    /// The value, from an entry's slots; none if it has no such slot.
    pub fn value(self, slots: &[u8]) -> Option<u64> {
        let held = match self.slot {
            None => 0,
            Some(slot) => word(slots, slot)?,
        };
        Some(held.wrapping_add(self.plus))
    }
}

/// The eight bytes there.
pub fn word(slots: &[u8], at: u16) -> Option<u64> {
    let bytes = slots.get(at as usize..at as usize + 8)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// Something to be noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A general register.
    Register(u8),
    /// Which way string instructions go: [`DOWNWARDS`] or something else.
    Direction,
}

/// The direction is noted as how far `lods` moves rsi.
pub const DOWNWARDS: u64 = u64::MAX;

/// Notes and where they go; no instruction needs more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Notes {
    notes: [Option<(Note, u16)>; MOST],
}

const MOST: usize = 8;

impl Notes {
    fn push(&mut self, note: Note, slot: u16) {
        let free = self.notes.iter_mut().find(|note| note.is_none());
        *free.expect("four touches have no more registers") = Some((note, slot));
    }

    pub fn iter(&self) -> impl Iterator<Item = (Note, u16)> {
        self.notes.iter().flatten().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.notes[0].is_none()
    }
}

/// Where an access lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    pub touch: Touch,
    pub base: Option<Known>,
    pub index: Option<Known>,
    /// Of a repeated one.
    pub repeats: Option<Repeats>,
}

/// How often a string instruction repeats: rcx before and after, and the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeats {
    pub before: Known,
    pub after: u16,
    pub direction: u16,
}

/// An entry under construction.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    known: [Option<Known>; 16],
    size: u16,
}

/// Whether only the instruction's execution tells what it touches: it is alone in its block.
pub fn is_odd(ins: &Instruction, touches: &[Touch]) -> bool {
    touches.iter().any(|touch| touch.kind == Kind::Odd) || mask_of(ins).is_some()
}

fn repeats(touches: &[Touch]) -> bool {
    touches.iter().any(|touch| touch.kind == Kind::Repeated)
}

impl Plan {
    /// Bytes of slots so far.
    pub fn size(&self) -> u16 {
        self.size
    }

    fn slot(&mut self) -> u16 {
        let slot = self.size;
        self.size += 8;
        slot
    }

    fn want(&mut self, register: u8, notes: &mut Notes) -> Known {
        let known = self.known[register as usize].unwrap_or_else(|| {
            let slot = self.slot();
            notes.push(Note::Register(register), slot);
            Known {
                slot: Some(slot),
                plus: 0,
            }
        });
        self.known[register as usize] = Some(known);
        known
    }

    /// What is to be noted before an instruction with these accesses, and where they lie.
    pub fn before(&mut self, touches: &[Touch], mut operand: impl FnMut(Operand)) -> Notes {
        let mut notes = Notes::default();
        let direction = repeats(touches).then(|| {
            let slot = self.slot();
            notes.push(Note::Direction, slot);
            slot
        });
        let count = direction.map(|_| self.want(RCX as u8, &mut notes));
        let known = touches.iter().filter(|touch| touch.kind != Kind::Odd);
        for register in known.clone().flat_map(|touch| [touch.base, touch.index]) {
            register.map(|register| self.want(register, &mut notes));
        }
        let repeats = direction.zip(count).map(|(direction, before)| Repeats {
            before,
            // What is noted behind the instruction comes next.
            after: self.size,
            direction,
        });
        let value = |register: Option<u8>| register.and_then(|n| self.known[n as usize]);
        for touch in known {
            operand(Operand {
                touch: *touch,
                base: value(touch.base),
                index: value(touch.index),
                repeats,
            });
        }
        notes
    }

    /// The instruction was executed; it has written these general registers, a bit each. What is to be noted behind
    /// it.
    pub fn after(&mut self, ins: &Instruction, touches: &[Touch], written: u32) -> Notes {
        let follows = self.follows(ins);
        for register in (0..16).filter(|register| written & 1 << register != 0) {
            self.known[register] = None;
        }
        if let Some((register, known)) = follows {
            self.known[register] = known;
        }
        let mut notes = Notes::default();
        if repeats(touches) {
            let slot = self.slot();
            notes.push(Note::Register(RCX as u8), slot);
            self.known[RCX] = Some(Known {
                slot: Some(slot),
                plus: 0,
            });
        }
        notes
    }

    fn of(&self, register: Register) -> Option<Known> {
        match register {
            Register::None => Some(Known::constant(0)),
            register if register.is_gpr64() => self.known[register.number()],
            _ => None,
        }
    }

    /// The register whose new value follows from what is known, and that value.
    fn follows(&self, ins: &Instruction) -> Option<(usize, Option<Known>)> {
        let register = |n| match ins.op_kind(n) {
            OpKind::Register if ins.op_register(n).is_gpr64() => Some(ins.op_register(n).number()),
            _ => None,
        };
        match ins.code() {
            Code::Mov_r64_rm64 | Code::Mov_rm64_r64 => {
                let (to, from) = (register(0)?, register(1)?);
                Some((to, self.known[from]))
            }
            Code::Lea_r64_m => {
                let to = register(0)?;
                if ins.memory_base() == Register::RIP {
                    return Some((to, Some(Known::constant(ins.ip_rel_memory_address()))));
                }
                let plain = ins.memory_index() == Register::None && !ins.has_segment_prefix();
                let base = plain.then(|| self.of(ins.memory_base())).flatten();
                let displacement = ins.memory_displacement64();
                Some((to, base.map(|base| base.and(displacement))))
            }
            Code::Mov_r64_imm64 => Some((register(0)?, Some(Known::constant(ins.immediate64())))),
            Code::Mov_rm64_imm32 => {
                let value = ins.immediate32to64() as u64;
                Some((register(0)?, Some(Known::constant(value))))
            }
            Code::Mov_r32_imm32 => {
                let to = ins.op0_register().full_register().number();
                Some((to, Some(Known::constant(u64::from(ins.immediate32())))))
            }
            _ => self.moved(ins, register(0)),
        }
    }

    fn moved(&self, ins: &Instruction, first: Option<usize>) -> Option<(usize, Option<Known>)> {
        let by = |more: u64| {
            let register = first?;
            Some((register, self.known[register].map(|known| known.and(more))))
        };
        let constant = || {
            let kind = ins.op_kind(1);
            let immediate = kind == OpKind::Immediate8to64 || kind == OpKind::Immediate32to64;
            immediate.then(|| ins.immediate(1))
        };
        match ins.mnemonic() {
            Mnemonic::Add => by(constant()?),
            Mnemonic::Sub => by(constant()?.wrapping_neg()),
            Mnemonic::Inc => by(1),
            Mnemonic::Dec => by(u64::MAX),
            Mnemonic::Push
            | Mnemonic::Pushfq
            | Mnemonic::Call
            | Mnemonic::Ret
            | Mnemonic::Popfq => self.stack(ins),
            // Into the stack pointer itself: nothing follows.
            Mnemonic::Pop if first == Some(RSP) => None,
            Mnemonic::Pop => self.stack(ins),
            Mnemonic::Leave => {
                const RBP: usize = 5;
                Some((RSP, self.known[RBP].map(|known| known.and(8))))
            }
            _ => None,
        }
    }

    fn stack(&self, ins: &Instruction) -> Option<(usize, Option<Known>)> {
        let by = ins.stack_pointer_increment() as i64 as u64;
        Some((RSP, self.known[RSP].map(|known| known.and(by))))
    }
}

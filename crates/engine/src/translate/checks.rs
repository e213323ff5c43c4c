//! Checks compiled in before instructions: breakpoints, and accesses to memory that may be watched.
//!
//! No check touches flags or the guest's stack. A breakpoint leaves the cache unconditionally. An
//! access is looked up in a table of granules, by the middle bits of its address ([`Filter`]): for
//! nearly all of them that is the end of it. Where the table says yes, a stub has the exact ranges
//! compared (`context::CHECK`), still inside the cache.

use std::ops::Range;

use iced_x86::Instruction;

use super::Translation;
use super::emit::{Emitter, RCX};
use super::touches::{Kind, Segment, Touch, concerns, is_locked};
use crate::cache::shadow::Shadow;
use crate::context::{
    CHECK, CHECK_STRING, CHECKED_BACK, CHECKED_LEN, CHECKED_LIST, CHECKED_PC, Exit, GsBlock, Regs,
};
use crate::layout;
use std::mem::offset_of;

const FS_BASE: usize = offset_of!(GsBlock, regs) + offset_of!(Regs, fs_base);
const GS_BASE: usize = offset_of!(GsBlock, regs) + offset_of!(Regs, gs_base);
const RDX: u8 = 2;
/// An access whose states take more looks than this leaves always.
const MOST_LOOKS: u32 = 4;

/// What is compiled into a body of code. Nothing is what ordinary translations have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Guest addresses, in order.
    pub breaks: Vec<u64>,
    /// Breakpoints where a register plus a displacement is what the filter has, in order.
    pub gates: Vec<(u64, u8, i32)>,
    /// Also at one of so many instructions, for tests.
    pub every: Option<u64>,
    /// Which accesses to memory are looked at.
    pub reads: bool,
    pub writes: bool,
    /// All of them, and by the state of what they touch ([`Shadow`]).
    pub shadow: bool,
    /// Instructions that are atomic for other processors, too.
    pub locked: bool,
    /// Flags are right after each instruction, even where nobody will read them.
    pub exact: bool,
    /// Translated code writes a trace (`crate::trace`).
    pub trace: bool,
    /// Writes to other memory than a probe's own leave, and indirect branches are looked up in a table of this code's
    /// own: none leads to code without these checks.
    pub confined: Option<Confined>,
}

/// Code of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confined {
    /// Its module.
    Module,
    /// What the module calls of the guest.
    Guest,
}

impl Confined {
    /// Where its indirect branches are looked up.
    pub const fn table(self) -> u64 {
        let half = (layout::CONFINED_TABLES.end - layout::CONFINED_TABLES.start) / 2;
        match self {
            Confined::Module => layout::CONFINED_TABLES.start,
            Confined::Guest => layout::CONFINED_TABLES.start + half,
        }
    }
}

impl Checks {
    pub fn is_none(&self) -> bool {
        self.breaks.is_empty()
            && self.gates.is_empty()
            && self.every.is_none()
            && !self.watch()
            && !self.locked
            && !self.exact
            && !self.trace
            && self.confined.is_none()
    }

    pub fn watch(&self) -> bool {
        self.reads || self.writes || self.shadow
    }

    pub fn breaks_at(&self, pc: u64) -> bool {
        self.breaks.binary_search(&pc).is_ok() || self.samples(pc)
    }

    pub fn breaks_in(&self, range: Range<u64>) -> bool {
        let first = self.breaks.partition_point(|&pc| pc < range.start);
        self.breaks.get(first).is_some_and(|pc| range.contains(pc))
            || !self.gates_in(range.clone()).is_empty()
            || (self.every.is_some() && range.into_iter().any(|pc| self.samples(pc)))
    }

    /// Gates at an instruction.
    fn gates_in(&self, range: Range<u64>) -> &[(u64, u8, i32)] {
        let at = |pc: u64| self.gates.partition_point(|gate| gate.0 < pc);
        &self.gates[at(range.start)..at(range.end)]
    }

    fn samples(&self, pc: u64) -> bool {
        self.every
            .is_some_and(|n| (pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(n))
    }
}

/// Which granules of guest memory may hold something that is watched, by the middle bits of the
/// address: a byte for each that isn't zero if one does. An access of up to [`Filter::LONGEST`] bytes
/// is looked up at its first byte.
pub struct Filter;

impl Filter {
    /// A granule has `1 << SHIFT` bytes.
    pub const SHIFT: u32 = 6;
    pub const ENTRIES: usize = 1 << 16;
    pub const LONGEST: u64 = 64;
    /// Where it is, in reach of all translations.
    pub const PLACE: u64 = layout::WATCH_FILTER;
}

impl Translation<'_> {
    /// Emits what is to be checked before an instruction.
    pub(super) fn checks_before(&mut self, ins: &Instruction) {
        if self.checks.is_none() || self.shape.unchecked {
            return;
        }
        let start = self.code.here();
        if self.checks.breaks_at(ins.ip()) {
            self.code.exit_arg(ins.ip());
            self.code.exit(Exit::Break as usize);
        } else {
            let gates = self.checks.gates_in(ins.ip()..ins.ip() + 1).len();
            for n in 0..gates {
                let (pc, register, displacement) = self.checks.gates_in(ins.ip()..ins.ip() + 1)[n];
                self.gate(pc, register, displacement);
            }
        }
        if self.is_told() || self.checks.locked && is_locked(ins) {
            self.code.exit_arg(ins.ip());
            self.code.exit(Exit::Watch as usize);
        }
        if self.checks.confined.is_some() {
            for n in 0..self.finder.touches(ins).len() {
                let touch = self.finder.found(n);
                if touch.write {
                    self.check_confined(ins.ip(), &touch);
                }
            }
        }
        if self.checks.watch() {
            for n in 0..self.finder.touches(ins).len() {
                let touch = self.finder.found(n);
                if self.checks.shadow {
                    self.check_state(ins.ip(), &touch);
                } else if touch.read && self.checks.reads || touch.write && self.checks.writes {
                    self.check(ins.ip(), &touch);
                }
            }
        }
        if self.code.here() != start {
            self.passed.push((start, self.code.here()));
        }
    }

    fn check(&mut self, pc: u64, touch: &Touch) {
        match touch.kind {
            Kind::Odd => {
                self.code.exit_arg(pc);
                self.code.exit(Exit::Watch as usize);
            }
            Kind::Plain if touch.len as u64 <= Filter::LONGEST => self.filtered(pc, touch),
            Kind::Plain => self.compared(pc, touch, CHECK),
            Kind::Repeated => self.compared(pc, touch, CHECK_STRING),
        }
    }

    /// Leaves unless the state of what is touched says that this thread may pass.
    fn check_state(&mut self, pc: u64, touch: &Touch) {
        let looks = Shadow::looks(touch.len);
        let last = touch.displacement as i64 + Shadow::GRANULE as i64 * looks as i64;
        let near = i32::try_from(last).is_ok() || (touch.base.is_none() && touch.index.is_none());
        if touch.kind != Kind::Plain || looks > MOST_LOOKS || !near {
            self.code.exit_arg(pc);
            self.code.exit(Exit::Watch as usize);
            return;
        }
        self.scratch.clear(0);
        self.scratch.unspill(RCX, 0);
        self.scratch.exit_arg(pc);
        self.scratch.exit(Exit::Watch as usize);
        let stub = self.region.place_cold_bytes(&self.scratch.bytes);
        let table = match touch.write {
            true => Shadow::WRITES,
            false => Shadow::READS,
        };
        for n in 0..looks as u64 {
            let displacement = touch.displacement.wrapping_add(n * Shadow::GRANULE);
            self.code.spill(0, RCX);
            address(
                &mut self.code,
                &Touch {
                    displacement,
                    ..*touch
                },
            );
            // rorx rcx, rcx, SHIFT; mov ecx, ecx
            self.code
                .raw(&[0xc4, 0xe3, 0xfb, 0xf0, 0xc9, Shadow::SHIFT as u8]);
            self.code.raw(&[0x89, 0xc9]);
            self.code.spill(1, RDX);
            self.code.mov_imm(RDX, Shadow::PLACE);
            // movzx ecx, word [rdx + rcx]
            self.code.raw(&[0x0f, 0xb7, 0x0c, 0x0a]);
            self.code.unspill(RDX, 1);
            // movzx ecx, byte [rcx + table]
            self.code.raw(&[0x0f, 0xb6, 0x89]);
            self.code.imm32(table as u32);
            let usual = self.code.jrcxz();
            let look = self.code.jmp();
            self.code.bind(look, stub);
            self.code.bind_short(usual);
            self.code.unspill(RCX, 0);
        }
    }

    /// Leaves unless what is written begins in a probe's own memory. What begins there ends there, or faults: there is
    /// nothing next to it.
    fn check_confined(&mut self, pc: u64, touch: &Touch) {
        if touch.kind == Kind::Odd {
            self.code.exit_arg(pc);
            self.code.exit(Exit::Watch as usize);
            return;
        }
        const _: () = assert!(layout::PROBE.end - layout::PROBE.start == 1 << 32);
        const UPPER: i32 = (layout::PROBE.start >> 32) as i32;
        self.scratch.clear(0);
        self.scratch.unspill(RCX, 0);
        self.scratch.exit_arg(pc);
        self.scratch.exit(Exit::Watch as usize);
        let stub = self.region.place_cold_bytes(&self.scratch.bytes);
        self.code.spill(0, RCX);
        address(&mut self.code, touch);
        // rorx rcx, rcx, 32; mov ecx, ecx: the upper half
        self.code.raw(&[0xc4, 0xe3, 0xfb, 0xf0, 0xc9, 32]);
        self.code.raw(&[0x89, 0xc9]);
        self.code.lea_rcx(-UPPER);
        let usual = self.code.jrcxz();
        let leave = self.code.jmp();
        self.code.bind(leave, stub);
        self.code.bind_short(usual);
        self.code.unspill(RCX, 0);
    }

    /// Looks into the filter; on to the exact comparison only if it says so.
    fn filtered(&mut self, pc: u64, touch: &Touch) {
        self.code.spill(0, RCX);
        address(&mut self.code, touch);
        self.look_into_filter();
        let usual = self.code.jrcxz();
        let look = self.code.jmp();
        self.code.bind_short(usual);
        self.code.unspill(RCX, 0);
        let back = self.code.here();
        self.scratch.clear(0);
        self.scratch.unspill(RCX, 0);
        compare(&mut self.scratch, pc, touch, CHECK, back);
        let stub = self.region.place_cold_bytes(&self.scratch.bytes);
        self.code.bind(look, stub);
    }

    /// Leaves if the filter has a register plus a displacement.
    fn gate(&mut self, pc: u64, register: u8, displacement: i32) {
        self.code.spill(0, RCX);
        lea(&mut self.code, Some(register), None, 1, displacement);
        self.look_into_filter();
        let usual = self.code.jrcxz();
        let look = self.code.jmp();
        self.code.bind_short(usual);
        self.code.unspill(RCX, 0);
        self.scratch.clear(0);
        self.scratch.unspill(RCX, 0);
        self.scratch.exit_arg(pc);
        self.scratch.exit(Exit::Break as usize);
        let stub = self.region.place_cold_bytes(&self.scratch.bytes);
        self.code.bind(look, stub);
    }

    /// rcx, an address, becomes what the filter has for it.
    fn look_into_filter(&mut self) {
        // rorx rcx, rcx, SHIFT; movzx ecx, cx
        self.code
            .raw(&[0xc4, 0xe3, 0xfb, 0xf0, 0xc9, Filter::SHIFT as u8]);
        self.code.raw(&[0x0f, 0xb7, 0xc9]);
        // movzx ecx, byte [rcx + filter]
        self.code.raw(&[0x0f, 0xb6, 0x89]);
        self.code.imm32(Filter::PLACE as u32);
    }

    /// Compares exactly, without the filter.
    fn compared(&mut self, pc: u64, touch: &Touch, routine: usize) {
        self.code.spill(0, RCX);
        self.scratch.clear(0);
        compare(&mut self.scratch, pc, touch, routine, 0);
        let back = self.code.here() + self.scratch.bytes.len() as u32;
        compare(&mut self.code, pc, touch, routine, back);
    }

    /// A loop that counts its ticks in a register has no room for checks, nor shows flags at its
    /// last tick.
    pub(super) fn may_be_tight(&mut self, body: &[Instruction], range: Range<u64>) -> bool {
        if self.checks.is_none() {
            return true;
        }
        let all = self.checks.shadow;
        let writes = self.checks.writes || all || self.checks.confined.is_some();
        let reads = self.checks.reads || all;
        let seen = self.checks.exact || self.checks.trace || self.checks.breaks_in(range);
        let locked = self.checks.locked && body.iter().any(is_locked);
        let mut all = body.iter();
        !seen && !locked && !all.any(|ins| concerns(&mut self.finder, ins, reads, writes))
    }
}

/// Calls the routine that compares, the guest's rcx being in rcx and in its spill slot. Contains no
/// address relative to itself.
fn compare(code: &mut Emitter, pc: u64, touch: &Touch, routine: usize, back: u32) {
    address(code, touch);
    code.store_gs_imm(CHECKED_LEN, touch.len);
    let list = match (touch.read, touch.write) {
        (true, false) => 0,
        (false, _) => 1,
        (true, true) => 2,
    };
    code.store_gs_imm(CHECKED_LIST, list);
    code.store_gs_imm(CHECKED_BACK, back);
    code.store_gs_imm(CHECKED_PC, pc as u32);
    code.store_gs_imm(CHECKED_PC + 4, (pc >> 32) as u32);
    code.exit(routine);
}

/// rcx ← the address; all registers are the guest's before, and all others after.
fn address(code: &mut Emitter, touch: &Touch) {
    let segment = match touch.segment {
        Segment::None => None,
        Segment::Fs => Some(FS_BASE),
        Segment::Gs => Some(GS_BASE),
    };
    match (touch.base, touch.index) {
        (None, None) => match segment {
            None => code.mov_imm(RCX, touch.displacement),
            Some(base) => {
                code.load_gs(RCX, base);
                lea(code, Some(RCX), None, 1, touch.displacement as i32);
            }
        },
        (base, index) => {
            lea(code, base, index, touch.scale, touch.displacement as i32);
            if let Some(segment) = segment {
                code.spill(1, RDX);
                code.load_gs(RDX, segment);
                lea(code, Some(RCX), Some(RDX), 1, 0);
                code.unspill(RDX, 1);
            }
        }
    }
}

/// `lea rcx, [base + index * scale + displacement]`
fn lea(code: &mut Emitter, base: Option<u8>, index: Option<u8>, scale: u8, displacement: i32) {
    const NO_INDEX: u8 = 4;
    const NO_BASE: u8 = 5;
    let (b, i) = (base.unwrap_or(NO_BASE), index.unwrap_or(NO_INDEX));
    let mode = if base.is_some() { 0x80 } else { 0 };
    code.raw(&[
        0x48 | (i >> 3) << 1 | b >> 3,
        0x8d,
        mode | RCX << 3 | 4,
        (scale.trailing_zeros() as u8) << 6 | (i & 7) << 3 | (b & 7),
    ]);
    code.imm32(displacement as u32);
}

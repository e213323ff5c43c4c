//! What tracing adds to a block: the registers that an entry has, noted before the instructions that use them, and the
//! entry's end on each way out. Flags and the guest's stack aren't touched; scratch registers are put back at once.
//!
//! In: instructions as they are translated. Out: code between them. A traced block is entered at its head alone, where an
//! entry begins.

use std::mem::offset_of;

use iced_x86::Instruction;

use super::Translation;
use super::emit::{Emitter, RCX};
use crate::cache::region::patch_rel32;
use crate::context::{GsBlock, SPILL, TRACE_AT, TRACE_COUNT};
use crate::layout;
use crate::trace::book::{Book, Open};
use crate::trace::plan::{Note, Notes, Plan, is_odd};

/// A block that is being translated for tracing.
pub(super) struct Tracing<'a> {
    pub book: &'a mut Book,
    pub open: Open,
    plan: Plan,
    /// Instructions so far, the one at hand not among them.
    count: usize,
    /// The one at hand is one whose accesses the engine tells.
    odd: bool,
}

pub(super) const RAX: u8 = 0;
pub(super) const RDX: u8 = 2;
const RSI: u8 = 6;
/// Where scratch registers are kept meanwhile: slots that no instruction's own code uses across these places.
const KEEP: usize = SPILL + 16;
const KEEP_TOO: usize = SPILL + 24;
const TIME: u64 = layout::GS_BLOCK + offset_of!(GsBlock, time) as u64;
/// Registers that need no further byte as a base.
const SCRATCH: [u8; 7] = [RCX, RDX, RAX, RSI, 7, 3, 5];
/// Size of what [`end`] emits where the scratch register is kept.
const END: u32 = 4 * 8 + 11 + 7;

impl<'a> Tracing<'a> {
    pub fn new(book: &'a mut Book) -> Tracing<'a> {
        Tracing {
            open: book.open(),
            book,
            plan: Plan::default(),
            count: 0,
            odd: false,
        }
    }
}

impl Translation<'_> {
    /// Whether an instruction may follow in this block: where only the engine tells what one touches, it is alone.
    pub(super) fn joins(&mut self, ins: &Instruction) -> bool {
        let Some(tracing) = &mut self.tracing else {
            return true;
        };
        self.finder.look(ins);
        let odd = is_odd(ins, self.finder.all());
        let joins = tracing.count == 0 || !odd && !tracing.odd;
        tracing.odd = odd;
        joins
    }

    /// After [`Translation::joins`].
    pub(super) fn trace_before(&mut self, ins: &Instruction) {
        let Some(tracing) = &mut self.tracing else {
            return;
        };
        tracing.open.place(ins.ip(), tracing.plan.size());
        let notes = tracing.plan.before(self.finder.all(), |_| {});
        note(&mut self.code, &notes);
    }

    /// Whether the engine is to tell what the instruction at hand touches.
    pub(super) fn is_told(&self) -> bool {
        self.tracing.as_ref().is_some_and(|tracing| tracing.odd)
    }

    /// The instruction's own code is complete.
    pub(super) fn trace_after(&mut self, ins: &Instruction) {
        let Some(tracing) = &mut self.tracing else {
            return;
        };
        tracing.count += 1;
        let notes = tracing
            .plan
            .after(ins, self.finder.all(), self.finder.written());
        note(&mut self.code, &notes);
    }

    /// The block is left here: behind the instruction at hand if it is `through`, which counts so many ticks.
    pub(super) fn trace_end(&mut self, through: bool, ticks: u8) {
        self.trace_end_with(through, ticks, RCX);
    }

    /// The same with another scratch register, which is put back.
    pub(super) fn trace_end_with(&mut self, through: bool, ticks: u8, scratch: u8) {
        if let Some((id, size)) = self.new_end(through, ticks) {
            self.code.store_gs(KEEP, scratch);
            end(&mut self.code, id, size, scratch);
            self.code.load_gs(scratch, KEEP);
        }
    }

    /// The same with a scratch register that nobody needs.
    pub(super) fn trace_end_free(&mut self, through: bool, ticks: u8, scratch: u8) {
        if let Some((id, size)) = self.new_end(through, ticks) {
            end(&mut self.code, id, size, scratch);
        }
    }

    /// A new end, and the size of its slots, if this is traced.
    pub(super) fn new_end(&mut self, through: bool, ticks: u8) -> Option<(u32, u16)> {
        let tracing = self.tracing.as_mut()?;
        let size = tracing.plan.size();
        let count = tracing.count + through as usize;
        let id = tracing.book.end(&tracing.open, count, size, ticks);
        Some((id, size))
    }

    /// A stub that ends the entry and goes to `target`, for branches that are rarely taken.
    pub(super) fn traced_way_out(&mut self, target: u64) -> Option<u32> {
        let (id, size) = self.new_end(true, 0)?;
        let build = |stub: &mut Emitter| {
            end_kept(stub, id, size);
            stub.jmp();
        };
        let at = self.region.place_cold(build, END + 5);
        let site = at + END + 1;
        let to = self
            .find(target)
            .unwrap_or_else(|| self.region.link_stub(target, site));
        patch_rel32(site, to);
        Some(at)
    }
}

/// Ends an entry; all registers stay.
pub(super) fn end_kept(code: &mut Emitter, id: u32, size: u16) {
    code.store_gs(KEEP, RCX);
    end(code, id, size, RCX);
    code.load_gs(RCX, KEEP);
}

fn end(code: &mut Emitter, id: u32, size: u16, scratch: u8) {
    code.load_gs(scratch, TRACE_AT);
    // mov qword [scratch + size], id
    code.raw(&[0x48, 0xc7, 0x80 | scratch]);
    code.imm32(u32::from(size));
    code.imm32(id);
    // lea scratch, [scratch + size + 8]
    code.raw(&[0x48, 0x8d, 0x80 | scratch << 3 | scratch]);
    code.imm32(u32::from(size) + 8);
    code.store_gs(TRACE_AT, scratch);
}

/// Emits the stores into an entry's slots.
fn note(code: &mut Emitter, notes: &Notes) {
    if notes.is_empty() {
        return;
    }
    let mut used = 0u32;
    for (note, slot) in notes.iter() {
        match note {
            Note::Register(register) => used |= 1 << register,
            Note::Direction => {
                direction(code, slot);
                code.store_gs(TRACE_COUNT, RCX);
            }
        }
    }
    let scratch = SCRATCH.into_iter().find(|n| used & 1 << n == 0);
    let scratch = scratch.expect("no instruction addresses memory by all of these");
    let registers = notes.iter().filter_map(|(note, slot)| match note {
        Note::Register(register) => Some((register, slot)),
        Note::Direction => None,
    });
    if used == 0 {
        return;
    }
    code.store_gs(KEEP, scratch);
    code.load_gs(scratch, TRACE_AT);
    for (register, slot) in registers {
        store(code, scratch, slot, register);
    }
    code.load_gs(scratch, KEEP);
}

/// Which way string instructions go: `lodsb` tells, and no flag is touched.
fn direction(code: &mut Emitter, slot: u16) {
    code.store_gs(KEEP, RSI);
    code.store_gs(KEEP_TOO, RAX);
    code.mov_imm(RSI, TIME);
    // lodsb; lea rsi, [rsi - TIME]
    code.raw(&[0xac, 0x48, 0x8d, 0xb6]);
    code.imm32((TIME as u32).wrapping_neg());
    code.load_gs(RAX, TRACE_AT);
    store(code, RAX, slot, RSI);
    code.load_gs(RAX, KEEP_TOO);
    code.load_gs(RSI, KEEP);
}

/// `mov [base + slot], register`; the base is one of the first eight that need no further byte.
fn store(code: &mut Emitter, base: u8, slot: u16, register: u8) {
    code.raw(&[0x48 | (register >> 3) << 2, 0x89]);
    let fields = (register & 7) << 3 | base;
    match i8::try_from(slot) {
        Ok(near) => code.raw(&[0x40 | fields, near as u8]),
        Err(_) => {
            code.raw(&[0x80 | fields]);
            code.imm32(u32::from(slot));
        }
    }
}

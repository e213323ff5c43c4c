//! The cache while it is traced: entries that translated code leaves open, and what the engine executes by itself.
//!
//! In: exits of traced code. Out: entries in the buffer ([`crate::trace`]).

use iced_x86::{Decoder, DecoderOptions};

use super::CodeCache;
use super::accesses::Access;
use crate::context::{GsBlock, RCX, RDI, RSI};
use crate::guest::access;
use crate::trace::Special;
use crate::trace::book::Book;
use crate::trace::buffer::Buffer;
use crate::trace::read::words_of;
use crate::translate::touches::{Finder, Segment, repeated_element};

/// What a cache needs for tracing.
#[derive(Default)]
pub(super) struct Tracer {
    pub(super) book: Book,
    buffer: Option<Buffer>,
    /// There was no room for rows: entries don't tell any more what they mean.
    incomplete: bool,
}

/// An instruction that the engine is about to execute by itself.
pub struct Stepping {
    pc: u64,
    ticks: i64,
    accesses: Vec<Access>,
}

impl CodeCache {
    /// Traces from here on, once there are instruments for it; `None` ends that. What wasn't seen yet is given to who
    /// reads.
    pub fn trace_into(&mut self, gs: &mut GsBlock, buffer: Option<Buffer>) {
        self.trace_flush(gs);
        self.tracer.incomplete = false;
        self.tracer.buffer = buffer;
        self.tracer.book.new_reader();
        if let Some(buffer) = &mut self.tracer.buffer {
            buffer.begin(gs);
        }
    }

    pub fn is_traced(&self) -> bool {
        self.tracer.buffer.is_some() && self.instruments.wanted.trace
    }

    /// Gives all entries so far to who reads them; whether they can be understood.
    pub fn trace_flush(&mut self, gs: &mut GsBlock) -> bool {
        self.tell_rows();
        if let Some(buffer) = &mut self.tracer.buffer {
            buffer.flush(gs);
        }
        !self.tracer.incomplete
    }

    /// Tells of new blocks before anybody can read entries of them.
    pub(super) fn tell_rows(&mut self) {
        if let Some(buffer) = &mut self.tracer.buffer {
            let rows = self.tracer.book.take_rows();
            self.tracer.incomplete |= !rows.is_empty() && !buffer.add_rows(rows);
        }
    }

    /// An event, a thread, or the like.
    pub fn trace_put(&mut self, gs: &mut GsBlock, special: Special, words: &[u64]) {
        if self.is_traced()
            && let Some(buffer) = &mut self.tracer.buffer
        {
            buffer.put(gs, special, words);
        }
    }

    /// A fault at the end of a segment: the store can be made again where it is.
    pub(super) fn is_trace_full(&mut self, gs: &mut GsBlock) -> bool {
        if self.tracer.buffer.is_none() {
            return false;
        }
        self.tell_rows();
        let buffer = self.tracer.buffer.as_mut().expect("it was just there");
        buffer.is_full(gs)
    }

    /// The instruction at `gs.regs.rip` has faulted: the open entry ends before it.
    pub(super) fn trace_fault(&mut self, gs: &mut GsBlock) {
        let host = gs.fault.host_pc as u32;
        let Some(buffer) = &mut self.tracer.buffer else {
            return;
        };
        let Some((end, size)) = self.tracer.book.fault(host, gs.regs.rip) else {
            return;
        };
        buffer.close(gs, end, size);
        self.step_faulted(gs);
    }

    /// A string instruction may have done a part of its work.
    pub fn step_faulted(&mut self, gs: &mut GsBlock) {
        if self.is_traced()
            && let Some((code, accesses)) = part_done(gs)
        {
            let pc = gs.regs.rip;
            let ticks = gs.ticks_left;
            let part = Stepping {
                pc,
                ticks,
                accesses,
            };
            self.trace_step(gs, Special::Part, &part, code);
        }
    }

    /// What the only instruction of the next block is going to touch.
    pub(super) fn trace_touched(&mut self, gs: &mut GsBlock) {
        let words = words_of(&self.accesses(gs));
        self.trace_put(gs, Special::Touched, &words);
    }

    /// Before an instruction that the engine executes by itself; if it is through, [`CodeCache::stepped`].
    pub fn stepping(&mut self, gs: &mut GsBlock) -> Option<Stepping> {
        gs.trace_count = gs.regs.gpr[RCX];
        self.is_traced().then(|| Stepping {
            pc: gs.regs.rip,
            ticks: gs.ticks_left,
            accesses: self.accesses(gs),
        })
    }

    pub fn stepped(&mut self, gs: &mut GsBlock, step: Option<Stepping>) {
        if let Some(step) = step {
            let code = code_at(step.pc);
            self.trace_step(gs, Special::Step, &step, code);
        }
    }

    fn trace_step(&mut self, gs: &mut GsBlock, kind: Special, step: &Stepping, mut code: [u8; 16]) {
        // No instruction is longer than fifteen bytes; the last one says whether it has ticked.
        code[15] = (gs.ticks_left != step.ticks) as u8;
        let code = code.as_chunks::<8>().0;
        let mut words = vec![step.pc];
        words.extend(code.iter().map(|word| u64::from_le_bytes(*word)));
        words.extend(words_of(&step.accesses));
        self.trace_put(gs, kind, &words);
    }
}

fn code_at(pc: u64) -> [u8; 16] {
    let mut code = [0; 16];
    let whole = access::read_bytes(pc, &mut code).is_ok();
    if !whole {
        // What follows on the next page isn't there.
        let room = (0x1000 - pc % 0x1000).min(16) as usize;
        let _ = access::read_bytes(pc, &mut code[..room]);
    }
    code
}

/// What a string instruction has done that was stopped by a fault on its way.
fn part_done(gs: &GsBlock) -> Option<([u8; 16], Vec<Access>)> {
    const DIRECTION: u64 = 1 << 10;
    let code = code_at(gs.regs.rip);
    let ins = Decoder::with_ip(64, &code, gs.regs.rip, DecoderOptions::NONE).decode();
    let element = u64::from(repeated_element(&ins));
    let count = gs.trace_count.wrapping_sub(gs.regs.gpr[RCX]);
    if element == 0 || count == 0 {
        return None;
    }
    let len = count.saturating_mul(element);
    let mut finder = Finder::default();
    let accesses = finder.touches(&ins).iter().filter_map(|touch| {
        let base = touch.base.filter(|&n| [RSI, RDI].contains(&(n as usize)))?;
        let segment = match touch.segment {
            Segment::None => 0,
            Segment::Fs => gs.regs.fs_base,
            Segment::Gs => gs.regs.gs_base,
        };
        let now = gs.regs.gpr[base as usize].wrapping_add(segment);
        let addr = match gs.regs.rflags & DIRECTION {
            0 => now.wrapping_sub(len),
            _ => now.wrapping_add(element),
        };
        Some(Access {
            addr,
            len,
            read: touch.read,
            write: touch.write,
        })
    });
    Some((code, accesses.collect()))
}

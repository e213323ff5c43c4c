//! The translator: guest instructions in, host code in a region out.
//!
//! Ordinary instructions are copied as they are, RIP-relative operands adjusted. Rewritten are
//! control flow, system calls, and instructions whose answer the engine must give. A *block* is
//! decoded from one guest address along the likely path: through direct jumps and calls, past
//! conditional branches, back out of a followed call. No state is carried from one instruction to
//! the next, so any translated instruction of immutable code may be entered.
//!
//! Ticks: each jump to the same or a lower address, each return and each other indirect branch
//! counts one. A direct call doesn't: its return will. In between control only moves forward or
//! deeper into the stack, so (ticks, pc, sp) names one instruction of a run.

mod branches;
pub mod checks;
pub mod dump;
pub mod emit;
pub mod flags;
mod loops;
mod rewrite;
pub mod stubs;
mod time;
pub mod touches;
mod trace;

use iced_x86::{
    Code, Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, Mnemonic, OpKind,
    Register,
};

use crate::cache::region::{Lengths, Region, Run, Spilled, encode_lengths};
use crate::context::Exit;
use crate::trace::book::Book;
use crate::vdso;
use checks::Checks;
use emit::{CC_Z, Emitter};
use trace::Tracing;

/// Most instructions in a block: long blocks save jumps, too long ones waste translation on paths
/// never taken.
const MAX_INSTRUCTIONS: usize = 64;
/// Most calls that a block follows at a time.
const MAX_CALL_DEPTH: usize = 6;

/// How a block is to be translated.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Code that may change: one entry, with a head that can be patched.
    pub mutable: bool,
    /// Put the dispatch stub for indirect branches in front.
    pub stub: bool,
    /// Stop after that many instructions and tell the engine, without linking.
    pub single: Option<usize>,
    /// Code that others can change unseen: compared at each entry, so that no branch may lead into it, nor out
    /// of it other than by way of the engine or the dispatch table.
    pub shared: bool,
    /// Follow calls and jumps, use flag-spoiling ticks. Off, a block is as plain as can be: the
    /// bisecting switch tells whether an optimisation is at fault.
    pub optimise: bool,
    /// Leave out all [`Checks`].
    pub unchecked: bool,
}

/// What became of a request.
#[derive(Debug)]
pub struct Block {
    /// Where to enter.
    pub entry: u32,
    /// Guest ranges that it was made from.
    pub guest: Vec<std::ops::Range<u64>>,
    pub instructions: usize,
}

/// Executable guest memory as the translator sees it.
pub trait Fetch {
    /// End of the readable, executable bytes that start at `pc`; None if `pc` has none.
    fn code_end(&self, pc: u64) -> Option<u64>;

    /// Are both addresses in one image, or both in code that may change? Only there do direct
    /// branches stay direct; elsewhere they go through the dispatch table (and count a tick), so
    /// that an image's translations can be dropped without looking for links into them.
    fn same_body(&self, a: u64, b: u64) -> bool;

    /// Can the code at `pc` be changed where the engine doesn't see it?
    fn shared(&self, pc: u64) -> bool;
}

/// Where a followed call returns to, and how the block got there.
struct Frame {
    returns_to: u64,
}

struct Translation<'a> {
    region: &'a mut Region,
    fetch: &'a dyn Fetch,
    shape: Shape,
    code: Emitter,
    runs: Vec<Run>,
    lengths: Vec<u8>,
    /// Lengths already in the region, so that offsets in new runs are right.
    lengths_base: u32,
    frames: Vec<Frame>,
    /// Which runs are copies of tight loops: those can't be entered from elsewhere.
    loop_runs: Vec<usize>,
    count: usize,
    /// Byte offset of the RIP-relative displacement in the instruction at hand.
    displacement: usize,
    checks: &'a Checks,
    finder: touches::Finder,
    /// For code whose place is known when it is done.
    scratch: Emitter,
    /// Where instructions with checks start, and where they go on behind their checks.
    passed: Vec<(u32, u32)>,
    /// If it is to be traced.
    tracing: Option<Tracing<'a>>,
    /// Where the block starts, in the guest and in the host.
    head: (u64, u32),
}

/// Translates a block that starts at `pc`. None if there is no code at `pc`.
pub fn translate(
    region: &mut Region,
    fetch: &dyn Fetch,
    pc: u64,
    shape: Shape,
    checks: &Checks,
    book: Option<&mut Book>,
) -> Option<Block> {
    decode(fetch, pc)?;
    let lengths_base = region.lengths_end();
    region.hot = region.hot.next_multiple_of(16);
    let mut t = Translation {
        code: Emitter::new(region.hot),
        region,
        fetch,
        shape,
        runs: Vec::new(),
        lengths: Vec::new(),
        lengths_base,
        frames: Vec::new(),
        loop_runs: Vec::new(),
        count: 0,
        displacement: 0,
        checks,
        finder: touches::Finder::default(),
        scratch: Emitter::empty(),
        passed: Vec::new(),
        tracing: book.filter(|_| checks.trace).map(Tracing::new),
        head: (pc, 0),
    };
    let entry = t.block(pc);
    Some(t.finish(entry))
}

/// The time call that is answered inside translated code in place of the `syscall` instruction at `pc`.
fn time_call(pc: u64) -> Option<vdso::VdsoCall> {
    // In the vdso, `mov eax, nr` comes before.
    let call = vdso::entry(pc.wrapping_sub(vdso::SYSCALL_OFFSET));
    call.filter(|&call| time::is_fast(call))
}

pub(crate) fn is_time_call(pc: u64) -> bool {
    time_call(pc).is_some()
}

pub(crate) fn live_flags(fetch: &dyn Fetch, start: u64) -> u32 {
    flags::live_at(start, |pc| {
        if fetch.same_body(start, pc) {
            decode(fetch, pc)
        } else {
            None
        }
    })
}

/// The instruction at `pc`, or None if not all of it is executable.
pub fn decode(fetch: &dyn Fetch, pc: u64) -> Option<Instruction> {
    Some(decode_with_offset(fetch, pc)?.0)
}

/// Also tells where the displacement of a RIP-relative operand is.
fn decode_with_offset(fetch: &dyn Fetch, pc: u64) -> Option<(Instruction, usize)> {
    let end = fetch.code_end(pc)?;
    let len = (end - pc).min(15) as usize;
    // SAFETY: `code_end` says that these bytes are mapped and readable.
    let bytes = unsafe { std::slice::from_raw_parts(pc as *const u8, len) };
    let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
    let ins = decoder.decode();
    if ins.is_invalid() && len < 15 && decoder.last_error() == iced_x86::DecoderError::NoMoreBytes {
        return None;
    }
    let offset = if ins.is_ip_rel_memory_operand() {
        decoder.get_constant_offsets(&ins).displacement_offset()
    } else {
        0
    };
    Some((ins, offset))
}

/// What comes after an instruction.
enum Next {
    /// Go on decoding at this address, which follows in the same run.
    Sequential,
    /// Go on decoding elsewhere.
    Follow(u64),
    /// The block is complete.
    End,
}

impl Translation<'_> {
    /// Emits the whole block, returns where to enter it.
    fn block(&mut self, pc: u64) -> u32 {
        if self.shape.stub {
            let live = self.live_flags(pc);
            stubs::dispatch_stub(self.region, &mut self.code, pc, live);
        }
        let entry = self.code.here();
        self.head.1 = entry;
        if self.shape.mutable {
            // The head: five bytes that invalidation turns into a jump.
            self.code.raw(&HEAD);
        }
        let mut pc = pc;
        loop {
            match self.run(pc) {
                Some(next) => pc = next,
                None => return entry,
            }
        }
    }

    /// Translates sequential instructions from `pc`; returns where the block goes on, if it does.
    fn run(&mut self, start: u64) -> Option<u64> {
        self.runs.push(Run {
            guest: start,
            host: self.code.here(),
            lengths: self.lengths_base + self.lengths.len() as u32,
            guest_len: 0,
            host_len: 0,
        });
        // Code that is translated already is joined, not translated again.
        let join = if self.shape.mutable || self.shape.single.is_some() || self.tracing.is_some() {
            u64::MAX
        } else {
            self.region.next_translated(start + 1)
        };
        let mut pc = start;
        loop {
            let stop = self.count >= self.shape.single.unwrap_or(MAX_INSTRUCTIONS)
                || pc >= join
                || (pc != start && !(self.is_ours(pc) && self.keeps_up_with(pc)));
            let decoded = if stop {
                None
            } else {
                decode_with_offset(self.fetch, pc).filter(|(ins, _)| self.joins(ins))
            };
            let Some((ins, displacement)) = decoded else {
                // Never at the very first instruction: `translate` has decoded it. Falling from
                // one body of code into another isn't a branch and counts no tick.
                self.trace_end(false, 0);
                self.fall_to(pc);
                self.close_run();
                return None;
            };
            let before = self.code.bytes.len();
            self.checks_before(&ins);
            self.trace_before(&ins);
            if let Some(branch) = self.fusible(&ins, join) {
                self.compare_and_branch(&ins, &branch);
                self.count += 2;
                let len = ins.len() + branch.len();
                self.push_lengths(len, self.code.bytes.len() - before, Spilled::None);
                pc = branch.next_ip();
                continue;
            }
            if let Some(tight) = self.tight_loop(&ins) {
                self.tight_loop_branch(&ins, &tight);
                self.count += 1;
                let goes_on = ins.flow_control() == FlowControl::ConditionalBranch;
                return goes_on.then(|| ins.next_ip());
            }
            let mut spilled = Spilled::None;
            self.displacement = displacement;
            let next = self.instruction(&ins, &mut spilled);
            self.count += 1;
            self.trace_after(&ins);
            self.push_lengths(ins.len(), self.code.bytes.len() - before, spilled);
            match next {
                Next::Sequential => pc = ins.next_ip(),
                Next::Follow(target) => {
                    self.close_run();
                    return Some(target);
                }
                Next::End => {
                    self.close_run();
                    return None;
                }
            }
        }
    }

    fn push_lengths(&mut self, guest: usize, host: usize, spilled: Spilled) {
        let lengths = Lengths {
            guest: guest as u8,
            host: host as u32,
            spilled,
        };
        encode_lengths(&mut self.lengths, lengths);
        let run = self.runs.last_mut().expect("a run is open");
        run.guest_len += guest as u32;
    }

    fn close_run(&mut self) {
        let here = self.code.here();
        let run = self.runs.last_mut().expect("a run is open");
        run.host_len = here - run.host;
    }

    fn is_ours(&self, pc: u64) -> bool {
        if self.shape.mutable || self.shape.single.is_some() {
            let here = self.runs.last().expect("a run is open").guest;
            self.fetch.same_body(here, pc)
        } else {
            self.region.guest.contains(&pc)
        }
    }

    /// May code at `pc` become a part of this block? What is write-protected can't have a part that is
    /// compared.
    fn keeps_up_with(&self, pc: u64) -> bool {
        !self.shape.mutable || self.shape.shared || !self.fetch.shared(pc)
    }

    /// Do direct branches leave to the engine?
    fn leaves(&self) -> bool {
        self.shape.single.is_some() || self.shape.shared
    }

    fn instruction(&mut self, ins: &Instruction, spilled: &mut Spilled) -> Next {
        if ins.is_invalid() || !shown_to_guest(ins) {
            // What this CPU claims not to have is an invalid opcode.
            self.code.raw(&[0x0f, 0x0b]);
            return Next::End;
        }
        match ins.flow_control() {
            FlowControl::Next => self.ordinary(ins, spilled),
            FlowControl::ConditionalBranch => self.conditional(ins),
            FlowControl::UnconditionalBranch => self.jump(ins.near_branch_target(), ins.ip()),
            FlowControl::Call if ins.mnemonic() == Mnemonic::Syscall => self.syscall(ins, spilled),
            FlowControl::Call if ins.op0_kind() == OpKind::NearBranch64 => self.call(ins),
            FlowControl::Return if branches::is_near_return(ins) => self.ret(ins),
            FlowControl::IndirectBranch if branches::is_near_indirect(ins) => {
                self.indirect(ins, spilled)
            }
            FlowControl::IndirectCall if branches::is_near_indirect(ins) => {
                self.indirect(ins, spilled)
            }
            FlowControl::Interrupt if matches!(ins.code(), Code::Int3 | Code::Int1) => {
                self.copy_and_end(ins)
            }
            FlowControl::Interrupt if ins.code() == Code::Int_imm8 && ins.immediate8() != 0x80 => {
                self.copy_and_end(ins)
            }
            FlowControl::Exception => self.copy_and_end(ins),
            // int 0x80, sysenter, far transfers, TSX: the engine answers or refuses.
            _ => self.emulate(ins),
        }
    }

    fn copy_and_end(&mut self, ins: &Instruction) -> Next {
        self.copy(ins);
        if ins.code() == Code::Int1 {
            self.code.raw(&BEHIND_INT1);
        }
        Next::End
    }

    /// Leaves to the engine, which carries the instruction out and goes on behind it.
    fn emulate(&mut self, ins: &Instruction) -> Next {
        self.trace_end(false, 0);
        self.code.exit_arg(ins.ip());
        self.code.exit(Exit::Emulate as usize);
        Next::End
    }

    fn syscall(&mut self, ins: &Instruction, spilled: &mut Spilled) -> Next {
        let end = self.new_end(false, 0);
        let leave = |code: &mut Emitter| {
            if let Some((id, size)) = end {
                trace::end_kept(code, id, size);
            }
            // rcx and r11 are the kernel's to spoil; the engine sets them.
            code.exit_arg(ins.next_ip());
            code.exit(Exit::Syscall as usize);
        };
        if let Some(call) = time_call(ins.ip()) {
            time::emit(&mut self.code, call, leave);
            *spilled = Spilled::Rcx;
            return Next::Sequential;
        }
        leave(&mut self.code);
        Next::End
    }

    fn ordinary(&mut self, ins: &Instruction, spilled: &mut Spilled) -> Next {
        if rewrite::is_engine_matter(ins) {
            return self.emulate(ins);
        }
        if matches!(ins.mnemonic(), Mnemonic::Popfq | Mnemonic::Popf) {
            self.pop_flags(ins);
        } else if rewrite::is_xrstor(ins) {
            *spilled = rewrite::xrstor(&mut self.code, ins);
        } else if ins.segment_prefix() == Register::GS && rewrite::displaces(ins) {
            *spilled = rewrite::string_through_guest_gs(&mut self.code, ins);
        } else if ins.segment_prefix() == Register::GS && rewrite::accesses_memory(ins) {
            *spilled = rewrite::through_guest_gs(&mut self.code, ins);
        } else if ins.is_ip_rel_memory_operand() && !self.copy_ip_relative(ins) {
            *spilled = rewrite::far_operand(&mut self.code, ins);
        } else if !ins.is_ip_rel_memory_operand() {
            self.copy(ins);
        }
        Next::Sequential
    }

    /// The trap flag must not reach the CPU: a value that has it is the engine's matter. The test
    /// may spoil the flags, which are about to be replaced.
    fn pop_flags(&mut self, ins: &Instruction) {
        // test dword [rsp], TF
        self.code.raw(&[0xf7, 0x04, 0x24, 0x00, 0x01, 0x00, 0x00]);
        // A trace adds some fifty bytes: a short jump still reaches.
        let usual = self.code.jcc_short(CC_Z);
        self.emulate(ins);
        self.code.bind_short(usual);
        self.copy(ins);
    }

    fn copy(&mut self, ins: &Instruction) {
        // SAFETY: these bytes were just decoded.
        let bytes = unsafe { std::slice::from_raw_parts(ins.ip() as *const u8, ins.len()) };
        self.code.raw(bytes);
    }

    /// Copies with the displacement adjusted; false (and nothing emitted) if it doesn't reach.
    fn copy_ip_relative(&mut self, ins: &Instruction) -> bool {
        let next = self.code.here() as u64 + ins.len() as u64;
        let Ok(disp) = i32::try_from(ins.ip_rel_memory_address().wrapping_sub(next) as i64) else {
            return false;
        };
        if ins.memory_base() != Register::RIP {
            return false;
        }
        let at = self.code.bytes.len();
        self.copy(ins);
        let offset = at + self.displacement;
        self.code.bytes[offset..offset + 4].copy_from_slice(&disp.to_le_bytes());
        true
    }

    fn find(&self, target: u64) -> Option<u32> {
        if self.shape.mutable {
            return None;
        }
        if self.tracing.is_some() {
            let (pc, entry) = self.head;
            return self.region.find(target).or((target == pc).then_some(entry));
        }
        self.region
            .find(target)
            .or_else(|| self.find_in_progress(target))
    }

    /// Looks in the block under construction.
    fn find_in_progress(&self, target: u64) -> Option<u32> {
        let (_, run) = self.runs.iter().enumerate().find(|(number, run)| {
            run.guest <= target
                && target < run.guest + run.guest_len as u64
                && !self.loop_runs.contains(number)
        })?;
        let mut guest = run.guest;
        let mut host = run.host;
        let mut at = (run.lengths - self.lengths_base) as usize;
        while guest < target {
            let (lengths, used) = crate::cache::region::decode_lengths(&self.lengths[at..]);
            guest += lengths.guest as u64;
            host += lengths.host;
            at += used;
        }
        (guest == target).then_some(host)
    }

    /// Flags that code at `pc` may read. Code that may change tells nothing: what is dead there
    /// now may be live when this block is still in use.
    fn live_flags(&self, pc: u64) -> u32 {
        if self.shape.optimise && !self.shape.mutable && self.checks.is_none() {
            live_flags(self.fetch, pc)
        } else {
            flags::ALL
        }
    }

    /// Copies the block into the region and makes it known.
    fn finish(self, entry: u32) -> Block {
        let region = self.region;
        let host = self.code.address(0)..self.code.here();
        region.place_hot(&self.code);
        region.add_lengths(&self.lengths);
        region.add_passed(&self.passed);
        let traced = self.tracing.is_some();
        let enterable = !self.shape.mutable && self.shape.single.is_none() && !traced;
        let mut guest = Vec::with_capacity(self.runs.len());
        for (number, run) in self
            .runs
            .iter()
            .enumerate()
            .filter(|(_, run)| run.guest_len > 0)
        {
            region.add_run(*run, enterable && !self.loop_runs.contains(&number));
            guest.push(run.guest..run.guest + run.guest_len as u64);
        }
        if let Some(tracing) = self.tracing {
            let piece = |run: &std::ops::Range<u64>| {
                // SAFETY: these bytes were just decoded.
                let bytes = unsafe {
                    let len = (run.end - run.start) as usize;
                    std::slice::from_raw_parts(run.start as *const u8, len)
                };
                (run.start, bytes.to_vec())
            };
            tracing
                .book
                .close(tracing.open, host, guest.iter().map(piece).collect());
            if !self.shape.mutable {
                region.add_head(self.head.0, entry);
            }
        }
        Block {
            entry,
            guest,
            instructions: self.count,
        }
    }
}

/// Follows `int1`, by which it can be told whether the CPU reports its address or the next: Intel's say the
/// next, AMD's its own.
pub const BEHIND_INT1: [u8; 2] = [0x0f, 0x0b];

/// The head of a mutable block: a five-byte nop.
pub const HEAD: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// The guest is shown a CPU up to AVX2 and its companions; AVX-512 and AMX don't exist for it,
/// because their state isn't kept.
fn shown_to_guest(ins: &Instruction) -> bool {
    if rewrite::is_hidden(ins) {
        return false;
    }
    match ins.encoding() {
        EncodingKind::Legacy | EncodingKind::XOP | EncodingKind::D3NOW => true,
        EncodingKind::VEX => !(0..ins.op_count()).any(|op| {
            ins.op_kind(op) == OpKind::Register
                && (ins.op_register(op).is_k() || ins.op_register(op).is_tmm())
        }),
        _ => false,
    }
}

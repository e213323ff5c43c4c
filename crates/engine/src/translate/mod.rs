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

pub mod dump;
pub mod emit;
pub mod flags;
mod loops;
mod rewrite;
mod time;

use iced_x86::{
    Code, ConditionCode, Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, Mnemonic,
    OpKind, Register,
};

use crate::cache::region::{Lengths, Region, Run, Spilled, Stub, bind_or_link, encode_lengths};
use crate::context::{BUDGET_RCX, Exit, SOURCE, TARGET};
use crate::vdso;
use emit::{CC_NZ, CC_Z, Emitter, RCX, Rel32};

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
    /// Follow calls and jumps, use flag-spoiling ticks. Off, a block is as plain as can be: the
    /// bisecting switch tells whether an optimisation is at fault.
    pub optimise: bool,
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
}

/// Translates a block that starts at `pc`. None if there is no code at `pc`.
pub fn translate(region: &mut Region, fetch: &dyn Fetch, pc: u64, shape: Shape) -> Option<Block> {
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
    };
    let entry = t.block(pc);
    Some(t.finish(entry))
}

/// Adds a dispatch stub for `pc`, whose translation starts at `entry`.
/// `look`: the code at `pc` can't change, so it may tell which flags are dead.
pub fn add_stub(region: &mut Region, fetch: &dyn Fetch, pc: u64, entry: u32, look: bool) {
    let mut code = Emitter::new(region.hot);
    let live = if look {
        live_flags(fetch, pc)
    } else {
        flags::ALL
    };
    dispatch_stub(region, &mut code, pc, live);
    let jump = code.jmp();
    code.bind(jump, entry);
    region.place_hot(&code);
}

/// Emits the stub that an indirect branch to `pc` goes through; falls through on a match.
fn dispatch_stub(region: &mut Region, code: &mut Emitter, pc: u64, live: u32) {
    let keeps_flags = live & flags::DEC != 0;
    // The way out comes first, where a short jump reaches it and nobody else runs through it.
    let spent = code.here();
    if keeps_flags {
        let out = code.jmp();
        code.bind(out, budget_stub(region, pc, BUDGET_RCX));
    }
    let host = code.here();
    // Others pass through here on their way to a target whose flags may be live: the comparison
    // touches none.
    if pc <= i32::MAX as u64 {
        code.load_gs(RCX, TARGET);
        code.lea_rcx(-(pc as i32));
    } else {
        const RDX: u8 = 2;
        code.spill(1, RDX);
        code.mov_imm(RDX, pc.wrapping_neg());
        code.load_gs(RCX, TARGET);
        // lea rcx, [rcx + rdx]
        code.raw(&[0x48, 0x8d, 0x0c, 0x11]);
        code.unspill(RDX, 1);
    }
    let hit = code.jrcxz();
    let next = code.jmp();
    code.bind_short(hit);
    if keeps_flags {
        code.tick_rcx();
        code.jrcxz_back(spent);
        code.unspill(RCX, 0);
    } else {
        code.unspill(RCX, 0);
        code.tick_dec();
        let out = code.jcc(CC_Z);
        code.bind(out, budget_stub(region, pc, Exit::Budget as usize));
    }
    code.bind(next, region.miss_thunk);
    let next = code.address(next.0);
    region.add_stub(pc, Stub { host, next });
}

/// A stub that leaves the cache because the budget is used up; the guest goes on at `pc`.
fn budget_stub(region: &mut Region, pc: u64, routine: usize) -> u32 {
    region.place_cold(
        |stub| {
            stub.exit_arg(pc);
            stub.exit(routine);
        },
        exit_stub_len(pc),
    )
}

/// Size of a stub that names a guest pc and leaves.
pub(crate) fn exit_stub_len(pc: u64) -> u32 {
    if pc > u32::MAX as u64 { 29 } else { 18 }
}

fn live_flags(fetch: &dyn Fetch, start: u64) -> u32 {
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
            dispatch_stub(self.region, &mut self.code, pc, live);
        }
        let entry = self.code.here();
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
        let join = if self.shape.mutable || self.shape.single.is_some() {
            u64::MAX
        } else {
            self.region.next_translated(start + 1)
        };
        let mut pc = start;
        loop {
            let stop = self.count >= self.shape.single.unwrap_or(MAX_INSTRUCTIONS)
                || pc >= join
                || (pc != start && !self.is_ours(pc));
            let decoded = if stop {
                None
            } else {
                decode_with_offset(self.fetch, pc)
            };
            let Some((ins, displacement)) = decoded else {
                // Never at the very first instruction: `translate` has decoded it. Falling from
                // one body of code into another isn't a branch and counts no tick.
                self.fall_to(pc);
                self.close_run();
                return None;
            };
            let before = self.code.bytes.len();
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

    /// A comparison of registers whose flags a backward branch uses and code behind it may use
    /// again: the tick may spoil them, since the comparison can be repeated. The two become one
    /// place: nobody may enter at the branch with other flags.
    fn fusible(&self, ins: &Instruction, join: u64) -> Option<Instruction> {
        let compares = matches!(ins.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
            && (0..ins.op_count()).all(|op| ins.op_kind(op) != OpKind::Memory);
        if !compares || !self.shape.optimise || self.shape.single.is_some() || ins.next_ip() >= join
        {
            return None;
        }
        let branch = decode(self.fetch, ins.next_ip())?;
        let target = branch.near_branch_target();
        let fits = branch.flow_control() == FlowControl::ConditionalBranch
            && (branch.is_jcc_short() || branch.is_jcc_near())
            && target <= branch.ip()
            && ins.len() + branch.len() < 16
            && self.is_ours(branch.ip())
            && self.is_ours(target)
            && self.live_flags(target) & flags::DEC != 0;
        fits.then_some(branch)
    }

    fn compare_and_branch(&mut self, compare: &Instruction, branch: &Instruction) {
        let target = branch.near_branch_target();
        self.copy(compare);
        let skip = self.code.jcc_short((branch.condition_code() as u8 - 1) ^ 1);
        self.code.tick_dec();
        let out = self.code.jcc(CC_Z);
        // SAFETY: these bytes were just decoded.
        let again = unsafe { std::slice::from_raw_parts(compare.ip() as *const u8, compare.len()) };
        let len = again.len() as u32 + exit_stub_len(target);
        let stub = self.region.place_cold(
            |stub| {
                stub.raw(again);
                stub.exit_arg(target);
                stub.exit(Exit::Budget as usize);
            },
            len,
        );
        self.code.bind(out, stub);
        self.copy(compare);
        self.go_to(target);
        self.code.bind_short(skip);
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

    /// The end of an indirect branch: `target` holds the guest target, rcx is spilled to slot 0.
    fn dispatch(&mut self, target: u8) {
        if self.shape.single.is_some() {
            self.code.store_gs_imm(SOURCE, self.code.here());
            self.code.store_gs(TARGET, target);
            self.code.exit(Exit::Indirect as usize);
        } else {
            self.code.dispatch(target);
        }
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
            FlowControl::Return if is_near_return(ins) => self.ret(ins),
            FlowControl::IndirectBranch if is_near_indirect(ins) => self.indirect(ins, spilled),
            FlowControl::IndirectCall if is_near_indirect(ins) => self.indirect(ins, spilled),
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
        Next::End
    }

    /// Leaves to the engine, which carries the instruction out and goes on behind it.
    fn emulate(&mut self, ins: &Instruction) -> Next {
        self.code.exit_arg(ins.ip());
        self.code.exit(Exit::Emulate as usize);
        Next::End
    }

    fn syscall(&mut self, ins: &Instruction, spilled: &mut Spilled) -> Next {
        let leave = |code: &mut Emitter| {
            // rcx and r11 are the kernel's to spoil; the engine sets them.
            code.exit_arg(ins.next_ip());
            code.exit(Exit::Syscall as usize);
        };
        // In the vdso, `mov eax, nr` comes before.
        let call = vdso::entry(ins.ip().wrapping_sub(vdso::SYSCALL_OFFSET));
        if let Some(call) = call.filter(|&call| time::is_fast(call)) {
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
        } else if rewrite::is_xsave(ins) {
            *spilled = rewrite::xsave(&mut self.code, ins);
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

    /// Ends the block by going to `target`.
    fn go_to(&mut self, target: u64) {
        if !self.is_ours(target) {
            self.code.spill(0, RCX);
            self.code.mov_imm(RCX, target);
            self.dispatch(RCX);
        } else if self.shape.single.is_some() {
            self.code.exit_arg(target);
            self.code.exit(Exit::Step as usize);
        } else {
            let jump = self.code.jmp();
            self.bind_guest(jump, target);
        }
    }

    /// Ends the block where the next instruction is at `pc`.
    fn fall_to(&mut self, pc: u64) {
        if self.shape.single.is_some() || !self.is_ours(pc) {
            self.code.exit_arg(pc);
            self.code.exit(Exit::Step as usize);
        } else {
            let jump = self.code.jmp();
            self.bind_guest(jump, pc);
        }
    }

    /// Lets a branch lead to the translation of `target`, now or when there is one.
    fn bind_guest(&mut self, at: Rel32, target: u64) {
        let found = self.find(target);
        bind_or_link(self.region, &mut self.code, at, target, found);
    }

    fn find(&self, target: u64) -> Option<u32> {
        if self.shape.mutable {
            return None;
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

    /// Goes to `target` counting a tick.
    fn tick_and_go(&mut self, target: u64) {
        if !self.is_ours(target) {
            // The dispatch stub counts.
            self.go_to(target);
            return;
        }
        let live = self.live_flags(target);
        if live & flags::DEC == 0 {
            self.code.tick_dec();
            if self.shape.single.is_some() {
                let out = self.code.jcc(CC_Z);
                self.bind_budget(out, target, Exit::Budget as usize);
                self.go_to(target);
                return;
            }
            let go = self.code.jcc(CC_NZ);
            self.bind_guest(go, target);
            let out = self.code.jmp();
            self.bind_budget(out, target, Exit::Budget as usize);
        } else {
            self.code.spill(0, RCX);
            self.code.tick_rcx();
            let spent = self.code.jrcxz();
            self.code.unspill(RCX, 0);
            self.go_to(target);
            self.code.bind_short(spent);
            let out = self.code.jmp();
            self.bind_budget(out, target, BUDGET_RCX);
        }
    }

    /// Flags that code at `pc` may read. Code that may change tells nothing: what is dead there
    /// now may be live when this block is still in use.
    fn live_flags(&self, pc: u64) -> u32 {
        if self.shape.optimise && !self.shape.mutable {
            live_flags(self.fetch, pc)
        } else {
            flags::ALL
        }
    }

    fn bind_budget(&mut self, at: Rel32, pc: u64, routine: usize) {
        let stub = budget_stub(self.region, pc, routine);
        self.code.bind(at, stub);
    }

    fn conditional(&mut self, ins: &Instruction) -> Next {
        let target = ins.near_branch_target();
        let backward = target <= ins.ip();
        let cc = ins.condition_code();
        if cc == ConditionCode::None || ins.is_jcx_short() || ins.is_loop() || ins.is_loopcc() {
            // jrcxz and loop exist with rel8 only: they jump over a jump.
            self.code.raw(counted_branch(ins));
            let taken = self.code.bytes.len() - 1;
            let skip = self.code.jmp_short();
            let distance = self.code.bytes.len() - (taken + 1);
            self.code.bytes[taken] = distance as u8;
            self.branch_to(target, backward);
            self.code.bind_short(skip);
            return Next::Sequential;
        }
        let cc = cc as u8 - 1;
        if backward || self.shape.single.is_some() || !self.is_ours(target) {
            let skip = self.code.jcc_short(cc ^ 1);
            self.branch_to(target, backward);
            self.code.bind_short(skip);
        } else {
            let taken = self.code.jcc(cc);
            self.bind_guest(taken, target);
        }
        Next::Sequential
    }

    fn branch_to(&mut self, target: u64, backward: bool) {
        if backward {
            self.tick_and_go(target)
        } else {
            self.go_to(target)
        }
    }

    fn jump(&mut self, target: u64, from: u64) -> Next {
        if target <= from {
            self.tick_and_go(target);
            return Next::End;
        }
        self.follow_or_go(target)
    }

    /// Goes on decoding at `target` if that is new code of this region.
    fn follow_or_go(&mut self, target: u64) -> Next {
        let new = self.shape.optimise
            && self.shape.single.is_none()
            && self.count + 1 < MAX_INSTRUCTIONS
            && self.is_ours(target)
            && self.fetch.code_end(target).is_some()
            && decode(self.fetch, target).is_some()
            && !self
                .runs
                .iter()
                .any(|run| (run.guest..run.guest + run.guest_len.max(1) as u64).contains(&target))
            && (self.shape.mutable || self.region.find(target).is_none());
        if new {
            Next::Follow(target)
        } else {
            self.go_to(target);
            Next::End
        }
    }

    fn call(&mut self, ins: &Instruction) -> Next {
        let target = ins.near_branch_target();
        self.push_return(ins.next_ip());
        let next = self.follow_or_go(target);
        if matches!(next, Next::Follow(_)) {
            if self.frames.len() >= MAX_CALL_DEPTH {
                self.frames.remove(0);
            }
            self.frames.push(Frame {
                returns_to: ins.next_ip(),
            });
        }
        next
    }

    /// Pushes a return address as `call` would: in one store, from which a return can be forwarded.
    fn push_return(&mut self, pc: u64) {
        if pc <= i32::MAX as u64 {
            self.code.push_near(pc as u32);
        } else {
            let literal = self
                .region
                .place_cold(|cold| cold.raw(&pc.to_le_bytes()), 8);
            self.code.push_at(literal);
        }
    }

    fn ret(&mut self, ins: &Instruction) -> Next {
        let extra = if ins.op_count() == 1 {
            ins.immediate16() as i32
        } else {
            0
        };
        if let Some(frame) = self.frames.pop()
            && extra == 0
            && frame.returns_to <= i32::MAX as u64
        {
            return self.ret_expected(frame.returns_to);
        }
        self.frames.clear();
        self.ret_anywhere(extra);
        Next::End
    }

    fn ret_anywhere(&mut self, extra: i32) {
        self.code.spill(0, RCX);
        // pop rcx: if it faults nothing has changed.
        self.code.raw(&[0x59]);
        if extra != 0 {
            self.code.adjust_rsp(extra);
        }
        self.dispatch(RCX);
    }

    /// The return of a call that this block followed: it nearly always goes back there. Where it
    /// doesn't (others may have come to this return), flags may be live, so none are touched.
    fn ret_expected(&mut self, back: u64) -> Next {
        self.code.spill(0, RCX);
        // mov rcx, [rsp]: if it faults nothing has changed.
        self.code.raw(&[0x48, 0x8b, 0x0c, 0x24]);
        self.code.lea_rcx(-(back as i32));
        let expected = self.code.jrcxz();
        self.code.lea_rcx(back as i32);
        self.code.adjust_rsp(8);
        self.dispatch(RCX);
        let keeps_flags = self.live_flags(back) & flags::DEC != 0;
        let spent = self.code.here();
        if keeps_flags {
            let out = self.code.jmp();
            self.bind_budget(out, back, BUDGET_RCX);
        }
        self.code.bind_short(expected);
        self.code.adjust_rsp(8);
        if keeps_flags {
            self.code.tick_rcx();
            self.code.jrcxz_back(spent);
            self.code.unspill(RCX, 0);
        } else {
            self.code.unspill(RCX, 0);
            self.code.tick_dec();
            let out = self.code.jcc(CC_Z);
            self.bind_budget(out, back, Exit::Budget as usize);
        }
        self.follow_or_go(back)
    }

    /// `jmp` or `call` through a register or memory.
    fn indirect(&mut self, ins: &Instruction, spilled: &mut Spilled) -> Next {
        *spilled = Spilled::Rcx;
        self.code.spill(0, RCX);
        // A register is used where it is, but for rsp, which a call changes.
        let register = ins.op0_register();
        let target = match ins.op0_kind() {
            OpKind::Register if register != Register::RSP => register.number() as u8,
            _ => {
                rewrite::load_target(&mut self.code, ins);
                RCX
            }
        };
        if ins.flow_control() == FlowControl::IndirectCall {
            self.push_return(ins.next_ip());
        }
        self.dispatch(target);
        Next::End
    }

    /// Copies the block into the region and makes it known.
    fn finish(self, entry: u32) -> Block {
        let region = self.region;
        region.place_hot(&self.code);
        region.add_lengths(&self.lengths);
        let enterable = !self.shape.mutable && self.shape.single.is_none();
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
        Block {
            entry,
            guest,
            instructions: self.count,
        }
    }
}

/// The head of a mutable block: a five-byte nop.
pub const HEAD: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// jrcxz, jecxz, loop, loope, loopne as they are, rel8 to be filled in.
fn counted_branch(ins: &Instruction) -> &'static [u8] {
    // SAFETY: these bytes were just decoded, and the guest can't run meanwhile to change them.
    unsafe { std::slice::from_raw_parts(ins.ip() as *const u8, ins.len()) }
}

fn is_near_return(ins: &Instruction) -> bool {
    matches!(ins.code(), Code::Retnq | Code::Retnq_imm16)
}

fn is_near_indirect(ins: &Instruction) -> bool {
    matches!(ins.code(), Code::Jmp_rm64 | Code::Call_rm64)
}

/// The guest is shown a CPU up to AVX2 and its companions; AVX-512 and AMX don't exist for it,
/// because their state isn't kept.
fn shown_to_guest(ins: &Instruction) -> bool {
    match ins.encoding() {
        EncodingKind::Legacy | EncodingKind::XOP | EncodingKind::D3NOW => true,
        EncodingKind::VEX => !(0..ins.op_count()).any(|op| {
            ins.op_kind(op) == OpKind::Register
                && (ins.op_register(op).is_k() || ins.op_register(op).is_tmm())
        }),
        _ => false,
    }
}

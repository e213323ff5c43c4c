//! Branches: how control goes on, within the block, to another, or through the dispatch table.

use iced_x86::{Code, ConditionCode, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::emit::{CC_NZ, CC_Z, RCX, Rel8, Rel32};
use super::stubs::{budget_stub, exit_stub_len};
use super::trace::{RAX, RDX};
use super::{Frame, MAX_CALL_DEPTH, MAX_INSTRUCTIONS, Next, Translation, decode, flags, rewrite};
use crate::cache::region::{Spilled, bind_or_link};
use crate::context::{BUDGET_RCX, DISPATCH, Exit, SOURCE, TARGET};
use crate::layout;

/// A jump whose target is to come.
enum Skip {
    Short(Rel8),
    Far(Rel32),
}

impl Translation<'_> {
    /// A comparison of registers whose flags a backward branch uses and code behind it may use
    /// again: the tick may spoil them, since the comparison can be repeated. The two become one
    /// place: nobody may enter at the branch with other flags.
    pub(super) fn fusible(&self, ins: &Instruction, join: u64) -> Option<Instruction> {
        let compares = matches!(ins.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
            && (0..ins.op_count()).all(|op| ins.op_kind(op) != OpKind::Memory);
        let plain = self.shape.optimise && self.tracing.is_none();
        if !compares || !plain || self.leaves() || ins.next_ip() >= join {
            return None;
        }
        let branch = decode(self.fetch, ins.next_ip())?;
        let target = branch.near_branch_target();
        let fits = branch.flow_control() == FlowControl::ConditionalBranch
            && (branch.is_jcc_short() || branch.is_jcc_near())
            && target <= branch.ip()
            && !self.checks.breaks_in(branch.ip()..branch.ip() + 1)
            && ins.len() + branch.len() < 16
            && self.is_ours(branch.ip())
            && self.is_ours(target)
            && self.live_flags(target) & flags::DEC != 0;
        fits.then_some(branch)
    }

    pub(super) fn compare_and_branch(&mut self, compare: &Instruction, branch: &Instruction) {
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

    /// The end of an indirect branch: `target` holds the guest target, rcx is spilled to slot 0.
    pub(super) fn dispatch(&mut self, target: u8) {
        if self.shape.single.is_some() {
            self.code.store_gs_imm(SOURCE, self.code.here());
            self.code.store_gs(TARGET, target);
            self.code.exit(Exit::Indirect as usize);
        } else {
            let table = match self.checks.confined {
                None => layout::GS_BLOCK + DISPATCH as u64,
                Some(confined) => confined.table(),
            };
            self.code.dispatch(target, table);
        }
    }

    /// Ends the block by going to `target`.
    pub(super) fn go_to(&mut self, target: u64) {
        if !self.is_ours(target) {
            self.code.spill(0, RCX);
            self.code.mov_imm(RCX, target);
            self.dispatch(RCX);
        } else if self.leaves() {
            self.code.exit_arg(target);
            self.code.exit(Exit::Step as usize);
        } else {
            let jump = self.code.jmp();
            self.bind_guest(jump, target);
        }
    }

    /// Ends the block where the next instruction is at `pc`.
    pub(super) fn fall_to(&mut self, pc: u64) {
        if self.leaves() || !self.is_ours(pc) {
            self.code.exit_arg(pc);
            self.code.exit(Exit::Step as usize);
        } else {
            let jump = self.code.jmp();
            self.bind_guest(jump, pc);
        }
    }

    /// Lets a branch lead to the translation of `target`, now or when there is one.
    pub(super) fn bind_guest(&mut self, at: Rel32, target: u64) {
        let found = self.find(target);
        bind_or_link(self.region, &mut self.code, at, target, found);
    }

    /// Goes to `target` counting a tick.
    pub(super) fn tick_and_go(&mut self, target: u64) {
        if !self.is_ours(target) {
            // The dispatch stub counts.
            self.go_to(target);
            return;
        }
        let live = self.live_flags(target);
        if live & flags::DEC == 0 {
            self.code.tick_dec();
            if self.leaves() {
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

    pub(super) fn bind_budget(&mut self, at: Rel32, pc: u64, routine: usize) {
        let stub = budget_stub(self.region, pc, routine);
        self.code.bind(at, stub);
    }

    pub(super) fn conditional(&mut self, ins: &Instruction) -> Next {
        let target = ins.near_branch_target();
        let backward = target <= ins.ip();
        let cc = ins.condition_code();
        if cc == ConditionCode::None || ins.is_jcx_short() || ins.is_loop() || ins.is_loopcc() {
            // jrcxz and loop exist with rel8 only: they jump over a jump.
            self.code.raw(counted_branch(ins));
            let taken = self.code.bytes.len() - 1;
            let skip = self.skip(None);
            let distance = self.code.bytes.len() - (taken + 1);
            self.code.bytes[taken] = distance as u8;
            self.branch_to(target, backward);
            self.end_skip(skip);
            return Next::Sequential;
        }
        let cc = cc as u8 - 1;
        if !backward
            && !self.leaves()
            && self.is_ours(target)
            && let Some(out) = self.traced_way_out(target)
        {
            let taken = self.code.jcc(cc);
            self.code.bind(taken, out);
        } else if backward || self.leaves() || !self.is_ours(target) {
            let skip = self.skip(Some(cc ^ 1));
            self.branch_to(target, backward);
            self.end_skip(skip);
        } else {
            let taken = self.code.jcc(cc);
            self.bind_guest(taken, target);
        }
        Next::Sequential
    }

    /// Jumps over a way out, if the condition holds; what a trace adds is too long for a short jump.
    fn skip(&mut self, cc: Option<u8>) -> Skip {
        match (self.tracing.is_some(), cc) {
            (false, Some(cc)) => Skip::Short(self.code.jcc_short(cc)),
            (false, None) => Skip::Short(self.code.jmp_short()),
            (true, Some(cc)) => Skip::Far(self.code.jcc(cc)),
            (true, None) => Skip::Far(self.code.jmp()),
        }
    }

    fn end_skip(&mut self, skip: Skip) {
        match skip {
            Skip::Short(at) => self.code.bind_short(at),
            Skip::Far(at) => self.code.bind_here(at),
        }
    }

    pub(super) fn branch_to(&mut self, target: u64, backward: bool) {
        let ticks = backward || !self.is_ours(target);
        self.trace_end(true, ticks as u8);
        if backward {
            self.tick_and_go(target)
        } else {
            self.go_to(target)
        }
    }

    pub(super) fn jump(&mut self, target: u64, from: u64) -> Next {
        if target <= from {
            self.trace_end(true, 1);
            self.tick_and_go(target);
            return Next::End;
        }
        self.follow_or_go(target, false)
    }

    /// Goes on decoding at `target` if that is new code of this region. `ticked`: the instruction has counted a tick.
    pub(super) fn follow_or_go(&mut self, target: u64, ticked: bool) -> Next {
        let new = self.shape.optimise
            && !self.leaves()
            && self.keeps_up_with(target)
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
            let ticks = ticked || !self.is_ours(target);
            self.trace_end(true, ticks as u8);
            self.go_to(target);
            Next::End
        }
    }

    pub(super) fn call(&mut self, ins: &Instruction) -> Next {
        let target = ins.near_branch_target();
        self.push_return(ins.next_ip());
        let next = self.follow_or_go(target, false);
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
    pub(super) fn push_return(&mut self, pc: u64) {
        if pc <= i32::MAX as u64 {
            self.code.push_near(pc as u32);
        } else {
            let literal = self
                .region
                .place_cold(|cold| cold.raw(&pc.to_le_bytes()), 8);
            self.code.push_at(literal);
        }
    }

    pub(super) fn ret(&mut self, ins: &Instruction) -> Next {
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

    pub(super) fn ret_anywhere(&mut self, extra: i32) {
        self.code.spill(0, RCX);
        // pop rcx: if it faults nothing has changed.
        self.code.raw(&[0x59]);
        if extra != 0 {
            self.code.adjust_rsp(extra);
        }
        self.trace_end_with(true, 1, RDX);
        self.dispatch(RCX);
    }

    /// The return of a call that this block followed: it nearly always goes back there. Where it
    /// doesn't (others may have come to this return), flags may be live, so none are touched.
    pub(super) fn ret_expected(&mut self, back: u64) -> Next {
        self.code.spill(0, RCX);
        // mov rcx, [rsp]: if it faults nothing has changed.
        self.code.raw(&[0x48, 0x8b, 0x0c, 0x24]);
        self.code.lea_rcx(-(back as i32));
        let expected = self.code.jrcxz();
        // What a trace adds is too long for a short jump.
        let far = self.tracing.is_some().then(|| {
            let other = self.code.jmp();
            self.code.bind_short(expected);
            let far = self.code.jmp();
            self.code.bind_here(other);
            far
        });
        self.code.lea_rcx(back as i32);
        self.code.adjust_rsp(8);
        self.trace_end_with(true, 1, RDX);
        self.dispatch(RCX);
        let keeps_flags = self.live_flags(back) & flags::DEC != 0;
        let spent = self.code.here();
        if keeps_flags {
            self.trace_end_free(true, 1, RCX);
            let out = self.code.jmp();
            self.bind_budget(out, back, BUDGET_RCX);
        }
        match far {
            Some(far) => self.code.bind_here(far),
            None => self.code.bind_short(expected),
        }
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
        self.follow_or_go(back, true)
    }

    /// `jmp` or `call` through a register or memory.
    pub(super) fn indirect(&mut self, ins: &Instruction, spilled: &mut Spilled) -> Next {
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
        let scratch = if target == RDX { RAX } else { RDX };
        self.trace_end_with(true, 1, scratch);
        self.dispatch(target);
        Next::End
    }
}

/// jrcxz, jecxz, loop, loope, loopne as they are, rel8 to be filled in.
fn counted_branch(ins: &Instruction) -> &'static [u8] {
    // SAFETY: these bytes were just decoded, and the guest can't run meanwhile to change them.
    unsafe { std::slice::from_raw_parts(ins.ip() as *const u8, ins.len()) }
}

pub(super) fn is_near_return(ins: &Instruction) -> bool {
    matches!(ins.code(), Code::Retnq | Code::Retnq_imm16)
}

pub(super) fn is_near_indirect(ins: &Instruction) -> bool {
    matches!(ins.code(), Code::Jmp_rm64 | Code::Call_rm64)
}

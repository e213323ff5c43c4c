//! Tight loops: the tick counter in a register while they run.
//!
//! Counting in memory costs a loop at least the latency of a load, a decrement and a store in each
//! iteration: more than many inner loops take. So a loop without branches inside it, apart from
//! ways out, gets a copy that is entered at its first backward branch and keeps the counter in a
//! register that it doesn't use. The register's own value is in spill slot 3 meanwhile, and
//! `ticks_left` is zero, which tells a kick to look for the register (`GsBlock::kick_in_cache`).
//! Every way out puts both back.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, Register};

use super::emit::{CC_NZ, CC_Z, Emitter};
use super::stubs::exit_stub_len;
use super::{Translation, decode_with_offset, flags, rewrite};
use crate::cache::region::{Run, Spilled, patch_rel32};
use crate::context::{Exit, TICKS_LEFT};

/// Longest body in instructions: longer ones hide the latency.
const MAX_BODY: usize = 24;

/// A loop that can count in a register.
pub(super) struct Loop {
    /// Its instructions but for the closing branch, each with the offset of its displacement.
    body: Vec<(Instruction, usize)>,
    counter: u8,
}

impl Translation<'_> {
    /// The loop that the backward branch `close` closes, if it is of the right kind.
    pub(super) fn tight_loop(&mut self, close: &Instruction) -> Option<Loop> {
        let closes = match close.flow_control() {
            FlowControl::ConditionalBranch => close.is_jcc_short() || close.is_jcc_near(),
            FlowControl::UnconditionalBranch => true,
            _ => false,
        };
        let head = close.near_branch_target();
        let usable = closes && self.shape.optimise && self.shape.single.is_none();
        if !usable || head > close.ip() || close.ip() - head > 15 * MAX_BODY as u64 {
            return None;
        }
        let mut body = Vec::new();
        let mut pc = head;
        while pc != close.ip() {
            if pc > close.ip() || body.len() == MAX_BODY || !self.is_ours(pc) {
                return None;
            }
            let (ins, displacement) = decode_with_offset(self.fetch, pc)?;
            if !self.fits_in_loop(&ins, head, close) {
                return None;
            }
            pc = ins.next_ip();
            body.push((ins, displacement));
        }
        // The decrement spoils flags: the body must set them before it uses any. What comes after
        // a way out doesn't matter, since none of them is taken between the decrement and there.
        let mut known = body.iter().map(|(ins, _)| *ins).chain([*close]);
        let live = flags::live_at(head, |_| known.next());
        if live & flags::DEC != 0 {
            return None;
        }
        let instructions: Vec<Instruction> = body.iter().map(|(ins, _)| *ins).collect();
        if !self.may_be_tight(&instructions, head..close.next_ip()) {
            return None;
        }
        let counter = unused_register(body.iter().map(|(ins, _)| ins).chain([close]))?;
        Some(Loop { body, counter })
    }

    /// Plain instructions, and branches that leave the loop.
    fn fits_in_loop(&self, ins: &Instruction, head: u64, close: &Instruction) -> bool {
        match ins.flow_control() {
            FlowControl::Next => {
                let far = ins.is_ip_rel_memory_operand()
                    && (ins.memory_base() != Register::RIP
                        || !is_near(ins.ip_rel_memory_address()));
                !ins.is_invalid()
                    && super::shown_to_guest(ins)
                    && !rewrite::is_engine_matter(ins)
                    && !rewrite::is_xrstor(ins)
                    && ins.segment_prefix() != Register::GS
                    && !matches!(ins.mnemonic(), Mnemonic::Popfq | Mnemonic::Popf)
                    && !far
            }
            FlowControl::ConditionalBranch => {
                let target = ins.near_branch_target();
                (ins.is_jcc_short() || ins.is_jcc_near())
                    && target > ins.ip()
                    && !(head..=close.ip()).contains(&target)
                    && self.is_ours(target)
            }
            _ => false,
        }
    }

    /// Emits the closing branch of a loop together with the loop's copy. The branch itself belongs
    /// to the open run, the copy gets its own; afterwards no run is open.
    pub(super) fn tight_loop_branch(&mut self, close: &Instruction, tight: &Loop) {
        let head = close.near_branch_target();
        let conditional = close.flow_control() == FlowControl::ConditionalBranch;
        let over = (close.condition_code() as u8).wrapping_sub(1) ^ 1;
        let counter = tight.counter;
        let before = self.code.bytes.len();

        let skip = conditional.then(|| self.code.jcc(over));
        self.code.spill(3, counter);
        self.code.load_gs(counter, TICKS_LEFT);
        self.code.zero_gs(TICKS_LEFT);
        self.code.dec_reg(counter);
        let spent = self.code.jcc(CC_Z);
        // Nothing here can fault, but a signal handler wants to know where the counter is.
        self.push_lengths(
            close.len(),
            self.code.bytes.len() - before,
            Spilled::Loop(counter),
        );
        self.close_run();

        self.open_loop_run(head);
        let top = self.code.here();
        for (ins, displacement) in &tight.body {
            let before = self.code.bytes.len();
            if ins.flow_control() == FlowControl::ConditionalBranch {
                let out = self.code.jcc(ins.condition_code() as u8 - 1);
                let stub = self.way_out(counter, ins.near_branch_target());
                self.code.bind(out, stub);
            } else if ins.is_ip_rel_memory_operand() {
                self.displacement = *displacement;
                let copied = self.copy_ip_relative(ins);
                assert!(copied, "checked to be near");
            } else {
                self.copy(ins);
            }
            self.push_lengths(
                ins.len(),
                self.code.bytes.len() - before,
                Spilled::Loop(counter),
            );
        }
        let before = self.code.bytes.len();
        let done = conditional.then(|| self.code.jcc(over));
        self.code.dec_reg(counter);
        let again = self.code.jcc(CC_NZ);
        self.code.bind(again, top);
        let spent_here = self.code.jmp();
        let stub = self.region.place_cold(
            |stub| {
                put_back(stub, counter);
                stub.exit_arg(head);
                stub.exit(Exit::Budget as usize);
            },
            2 * MOVE + exit_stub_len(head),
        );
        self.code.bind(spent, stub);
        self.code.bind(spent_here, stub);
        if let Some(done) = done {
            self.code.bind_here(done);
            put_back(&mut self.code, counter);
        }
        self.push_lengths(
            close.len(),
            self.code.bytes.len() - before,
            Spilled::Loop(counter),
        );
        self.close_run();
        if let Some(skip) = skip {
            self.code.bind_here(skip);
        }
    }

    /// A stub that puts counter and register back and goes to `target`.
    fn way_out(&mut self, counter: u8, target: u64) -> u32 {
        let at = self.region.place_cold(
            |stub| {
                put_back(stub, counter);
                stub.jmp();
            },
            2 * MOVE + 5,
        );
        let site = at + 2 * MOVE + 1;
        let to = self
            .find(target)
            .unwrap_or_else(|| self.region.link_stub(target, site));
        patch_rel32(site, to);
        at
    }

    fn open_loop_run(&mut self, head: u64) {
        self.loop_runs.push(self.runs.len());
        self.runs.push(Run {
            guest: head,
            host: self.code.here(),
            lengths: self.lengths_base + self.lengths.len() as u32,
            guest_len: 0,
            host_len: 0,
        });
    }
}

/// Size of a move between a register and the block at `gs`.
const MOVE: u32 = 8;

fn put_back(code: &mut Emitter, counter: u8) {
    code.store_gs(TICKS_LEFT, counter);
    code.unspill(counter, 3);
}

fn is_near(addr: u64) -> bool {
    addr <= i32::MAX as u64
}

/// A general register that none of the instructions touches in any way.
fn unused_register<'a>(instructions: impl Iterator<Item = &'a Instruction>) -> Option<u8> {
    let mut info = InstructionInfoFactory::new();
    let mut used = 1u32 << Register::RSP.number();
    for ins in instructions {
        for register in info.info(ins).used_registers() {
            let full = register.register().full_register();
            if full.is_gpr64() {
                used |= 1 << full.number();
            }
        }
    }
    (0..16).rev().find(|n| used & 1 << n == 0)
}

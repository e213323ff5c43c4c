//! What is known of traced blocks. In: a block of a trace. Out: what flows in each of its instructions, what all of it
//! defines, where it decides, calls and returns; worked out once.

use std::rc::Rc;

use clew_engine::trace::read::Block;
use iced_x86::{FlowControl, Instruction};

use crate::cells::Cells;
use crate::flows::{Finder, Flows};
use crate::live::Live;
use crate::walk::Run;

/// A block.
pub struct Known {
    pub flows: Vec<Flows>,
    pub defines: Cells,
    /// Register cells that it reads or writes; and of each instruction.
    pub touches: Cells,
    pub each: Vec<Cells>,
    /// Instructions that write memory, and which of their accesses.
    pub writes: Vec<(u16, u8)>,
    /// Instructions after which something else than the next may come.
    pub turns: Vec<(u16, Turn)>,
}

/// How an instruction goes elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A conditional branch.
    Decides,
    Jumps,
    /// By a register or memory.
    JumpsIndirectly,
    Calls,
    CallsIndirectly,
    Returns,
}

pub fn turn(ins: &Instruction) -> Option<Turn> {
    Some(match ins.flow_control() {
        FlowControl::ConditionalBranch => Turn::Decides,
        FlowControl::UnconditionalBranch => Turn::Jumps,
        FlowControl::IndirectBranch => Turn::JumpsIndirectly,
        FlowControl::Call if ins.is_call_near() => Turn::Calls,
        FlowControl::IndirectCall => Turn::CallsIndirectly,
        FlowControl::Return => Turn::Returns,
        _ => return None,
    })
}

/// All blocks of a trace, as they are asked for.
#[derive(Default)]
pub struct Blocks {
    finder: Finder,
    /// By number.
    known: Vec<Option<Rc<Known>>>,
}

impl Blocks {
    /// Another trace has other blocks.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    pub fn flows(&mut self, ins: &Instruction) -> Flows {
        self.finder.find(ins)
    }

    pub fn known(&mut self, run: &Run<'_>) -> &Rc<Known> {
        let number = run.end.block as usize;
        if self.known.len() <= number {
            self.known.resize(number + 1, None);
        }
        let finder = &mut self.finder;
        self.known[number].get_or_insert_with(|| Rc::new(know(finder, run.block)))
    }

    /// Whether anything that counts may have been defined in a run.
    pub fn concerns(&mut self, run: &Run<'_>, live: &mut Live) -> bool {
        let known = self.known(run);
        run.told() || live.meets(run.thread, &known.defines) || self.writes_any(run, live)
    }

    /// Whether anything that counts may have been written to memory in a run.
    pub fn writes_any(&mut self, run: &Run<'_>, live: &mut Live) -> bool {
        let known = self.known(run);
        if !live.has_memory() {
            return false;
        }
        known.writes.iter().any(|&(n, which)| {
            if n >= run.end.count {
                return false;
            }
            let Some(traced) = run.block.instructions.get(n as usize) else {
                return true;
            };
            let accesses = run.block.accesses(traced, run.slots, run.bases);
            let mut written = accesses.enumerate().filter(|(n, _)| which & 1 << n != 0);
            written.any(|(_, access)| match access {
                Some(access) => live.has(access.addr, access.len),
                None => true,
            })
        })
    }
}

fn know(finder: &mut Finder, block: &Block) -> Known {
    let instructions = block.instructions.iter().map(|traced| &traced.ins);
    let flows: Vec<Flows> = instructions.clone().map(|ins| finder.find(ins)).collect();
    let mut defines = Cells::NONE;
    let mut writes = Vec::new();
    let (mut touches, mut each) = (Cells::NONE, Vec::new());
    for flow in &flows {
        let mut touched = flow.defines;
        touched.add(&flow.addresses);
        let from = flow.flows.iter().flat_map(|flow| &flow.from);
        for cells in from.chain(&flow.reads).filter_map(|site| site.cells()) {
            touched.add(&cells);
        }
        touches.add(&touched);
        each.push(touched);
    }
    for (n, flow) in flows.iter().enumerate() {
        defines.add(&flow.defines);
        if flow.writes != 0 {
            writes.push((n as u16, flow.writes));
        }
    }
    let turns = instructions
        .enumerate()
        .filter_map(|(n, ins)| Some((n as u16, turn(ins)?)))
        .collect();
    Known {
        flows,
        defines,
        touches,
        each,
        writes,
        turns,
    }
}

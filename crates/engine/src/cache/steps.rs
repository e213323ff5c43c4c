//! Single steps: one instruction, or a few, of the current thread, without instruments.
//!
//! A step of an instruction that can't change is kept, since debuggers step through the same code again
//! and again; every other one is a throw-away translation.

use rustc_hash::FxHashMap;

use super::region::{Place, Region};
use super::room::{map_anywhere, unmap_code};
use super::run::{fetch_fault, is_canonical};
use super::view::is_immutable;
use super::{CodeCache, View};
use crate::context::{Exit, GsBlock, R11, RCX};
use crate::host::switch;
use crate::memory::Memory;
use crate::stats::Stats;
use crate::translate::checks::Checks;
use crate::translate::{self, Shape};

/// Steps that are kept, by guest address.
struct Kept {
    region: Region,
    entries: FxHashMap<u64, u32>,
}

/// Made when first used: an ordinary run has few steps.
#[derive(Default)]
pub(super) struct Steps(Option<Kept>);

/// Room for some ten thousand instructions.
const ROOM: u64 = 1 << 20;

impl Steps {
    fn find(&self, pc: u64) -> Option<u32> {
        self.0.as_ref()?.entries.get(&pc).copied()
    }

    fn add(&mut self, pc: u64, shape: Shape, memory: &Memory) -> Option<u32> {
        let kept = self.0.get_or_insert_with(|| Kept {
            region: Region::new(0..u64::MAX, map_anywhere(ROOM)),
            entries: FxHashMap::default(),
        });
        if kept.region.is_full() {
            kept.region.clear();
            kept.entries.clear();
        }
        let (region, view) = (&mut kept.region, View::of(memory));
        let block = translate::translate(region, &view, pc, shape, &Checks::default(), None)?;
        kept.entries.insert(pc, block.entry);
        Some(block.entry)
    }

    /// Mappings changed.
    pub(super) fn forget(&mut self) {
        if let Some(kept) = &mut self.0
            && !kept.entries.is_empty()
        {
            kept.region.clear();
            kept.entries.clear();
        }
    }

    pub(super) fn place_of(&self, host: u32) -> Option<Place> {
        let region = &self.0.as_ref()?.region;
        region
            .host
            .contains(&host)
            .then(|| region.place_of(host))
            .flatten()
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(kept) = &self.0 {
            unmap_code(&kept.region.host);
        }
    }
}

impl CodeCache {
    /// [`CodeCache::step`] of one instruction, whatever signals wait: it never ends with
    /// [`Exit::Attention`].
    pub fn step_on(&mut self, gs: &mut GsBlock, memory: &mut Memory, stats: &mut Stats) -> Exit {
        let mut called = gs.take_attention();
        let exit = loop {
            match self.step(gs, memory, stats, 1) {
                Exit::Attention => called |= gs.take_attention(),
                exit => break exit,
            }
        };
        if called {
            gs.attention = 1;
        }
        exit
    }

    /// Runs `count` instructions of the current thread, whatever instruments there are.
    pub fn step(
        &mut self,
        gs: &mut GsBlock,
        memory: &mut Memory,
        stats: &mut Stats,
        count: usize,
    ) -> Exit {
        if memory.stale_pending() {
            self.forget_stale(memory);
        }
        let pc = gs.regs.rip;
        let shape = Shape {
            mutable: false,
            stub: false,
            single: Some(count),
            shared: false,
            optimise: false,
            unchecked: true,
        };
        if count == 1 {
            if let Some(entry) = self.steps.find(pc) {
                return self.step_from(entry, gs, stats);
            }
            if is_immutable(memory, pc) {
                let Some(entry) = self.steps.add(pc, shape, memory) else {
                    return fetch_fault(gs, memory, pc);
                };
                return self.step_from(entry, gs, stats);
            }
        }
        let mark = self.mutable.region.mark();
        let (region, view) = (&mut self.mutable.region, View::across(memory));
        let Some(block) = translate::translate(region, &view, pc, shape, &Checks::default(), None)
        else {
            return fetch_fault(gs, memory, pc);
        };
        let exit = self.step_from(block.entry, gs, stats);
        // Nothing is linked to the fragment, so it can go.
        self.mutable.region.rollback(mark);
        exit
    }

    fn step_from(&mut self, entry: u32, gs: &mut GsBlock, stats: &mut Stats) -> Exit {
        gs.resume = entry as u64;
        gs.code = &raw const *self;
        stats.entering();
        // SAFETY: `entry` is a translation of the instruction at `gs.regs.rip`, and gs is set.
        let exit = unsafe { switch::enter(gs) };
        stats.left(exit);
        let arg = std::mem::take(&mut gs.exit_arg);
        match exit {
            Exit::Indirect if !is_canonical(gs.target) => return self.refused_branch(gs),
            Exit::Indirect => {
                gs.regs.rip = gs.target;
                gs.add_ticks(-1);
            }
            Exit::Syscall => {
                gs.regs.rip = arg;
                self.before_call = [gs.regs.gpr[RCX], gs.regs.gpr[R11]];
                gs.regs.gpr[RCX] = arg;
                gs.regs.gpr[R11] = gs.regs.rflags;
            }
            Exit::Fault => self.recover(gs),
            Exit::Attention => {}
            _ => gs.regs.rip = arg,
        }
        if exit == Exit::Indirect && gs.ticks_left == 0 {
            Exit::Budget
        } else {
            exit
        }
    }
}

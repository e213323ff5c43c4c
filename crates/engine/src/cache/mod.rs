//! The code cache.
use crate::context::{Exit, GsBlock};
use crate::memory::Memory;
use crate::stats::Stats;

#[derive(Default)]
pub struct CodeCache {}

impl CodeCache {
    /// Runs translated code for `gs.regs` until something needs the executor.
    pub fn enter(&mut self, _gs: &mut GsBlock, _memory: &mut Memory, _stats: &mut Stats) -> Exit {
        Exit::Step
    }
}

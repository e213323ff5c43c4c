//! Instructions whose answer the engine gives: cpuid, xgetbv, ...
use crate::executor::Executor;

/// Executes the instruction at `gs.exit_arg` (also `gs.regs.rip`) and steps over it.
pub fn instruction(_ex: &mut Executor) {}

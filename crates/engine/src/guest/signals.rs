//! Signal dispositions, queues and delivery, in the guest's terms.
use crate::executor::Executor;

#[derive(Default)]
pub struct Signals {}

impl Executor {
    pub fn deliver_signals(&mut self) {}
    /// A synchronous fault happened at `gs.fault`; `gs.regs` are recovered guest registers.
    pub fn fault(&mut self) {}
    /// Puts the current thread back onto its `syscall` instruction.
    pub fn restart_syscall(&mut self) {}
}

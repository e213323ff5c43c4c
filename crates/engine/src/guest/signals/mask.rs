//! Keeps the kernel's mask in step with the guest's.
//!
//! With one guest thread the executor's own kernel thread has the guest's mask (less the
//! synchronous signals), set at once. With more, a proxy has it, and asking it costs a round
//! trip. Blocking is therefore lazy there: nothing is asked of the proxy until the thread waits
//! in the kernel or asks about signals; a signal that comes in spite of the guest's mask is put
//! back into the kernel with the mask made true. Unblocking is immediate: what was pending must
//! arrive before the guest goes on.

use crate::executor::Executor;
use crate::host::proxy::{Command, Task};
use crate::host::sigset::{self, SigSet};

impl Executor {
    /// Changes the current thread's mask.
    pub fn set_guest_mask(&mut self, mask: SigSet) {
        self.current().signals.mask = mask.blockable();
        self.unblock_in_kernel();
    }

    /// Lets through what the guest doesn't block.
    pub fn unblock_in_kernel(&mut self) {
        let signals = &self.current().signals;
        let lazy = signals.kernel_mask.minus(signals.mask).is_empty();
        if !(self.multi_threaded() && lazy) {
            self.sync_mask();
        }
    }

    /// Makes the kernel's mask exactly the guest's.
    pub fn sync_mask(&mut self) {
        self.sync_mask_of(self.threads.current_slot());
    }

    /// The same for any thread whose proxy is idle.
    pub fn sync_mask_of(&mut self, slot: usize) {
        let Some(thread) = self.threads.get_mut(slot) else {
            return;
        };
        let signals = &mut thread.signals;
        let Some(proxy) = thread.proxy else {
            let wanted = signals.mask.on_executor();
            // With a signal in hand everything stays blocked until that one is dealt with.
            if signals.kernel_mask != wanted && !self.gs.host.any() {
                signals.kernel_mask = wanted;
                sigset::set_kernel_mask(wanted);
            }
            return;
        };
        if signals.kernel_mask != signals.mask {
            let mask = signals.mask;
            let reply = proxy.ask(Command {
                task: Task::Mask,
                mask: Some(mask),
                ..Command::default()
            });
            signals.kernel_mask = if reply.masked { mask } else { SigSet::ALL };
        }
    }
}

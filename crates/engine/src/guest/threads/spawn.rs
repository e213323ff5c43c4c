//! New guest threads.

use std::sync::atomic::Ordering;

use super::{State, Thread};
use crate::context::{RAX, RSP};
use crate::executor::Executor;
use crate::host::sigset::{SigSet, set_kernel_mask};
use crate::host::{altstack, proxy, swap, switch};
use crate::kernel::Outcome;
use crate::sys::{err, is_err};

impl Executor {
    /// `clone` with CLONE_THREAD: a new context with a proxy of its own.
    pub fn spawn_thread(
        &mut self,
        flags: u64,
        stack: u64,
        parent_tid: u64,
        child_tid: u64,
        tls: u64,
    ) -> Outcome {
        if !self.threads.multi {
            let ret = self.become_multi_threaded();
            if is_err(ret) {
                return Outcome::Return(ret);
            }
            self.look_at_rank();
        }
        let asked = |flag: libc::c_int| flags & flag as u32 as u64 != 0;
        let mut thread = Thread::new(0);
        let parent = self.current();
        thread.signals.mask = parent.signals.mask;
        thread.tsc_faults = parent.tsc_faults;
        thread.rules = parent.rules.clone();
        // A creator usually blocks everything, lazily, around the creation, and the new thread
        // unblocks it again at once. It starts with what the creator's proxy really has, unless
        // that has a signal in hand.
        let inherited = parent.signals.kernel_mask;
        thread.signals.kernel_mask = if inherited == SigSet::ALL {
            thread.signals.mask
        } else {
            inherited
        };
        let mask = thread.signals.kernel_mask;
        let slot = self.threads.add(thread);
        let Some(proxy) = self.threads.pool.block(&self.gs.hub, slot) else {
            self.threads.remove(slot);
            return Outcome::Return(err(libc::EAGAIN));
        };
        set_kernel_mask(SigSet::ALL);
        let tid = proxy::spawn(proxy, mask);
        set_kernel_mask(SigSet::ASYNCHRONOUS);
        if is_err(tid) {
            self.threads.pool.give_back(proxy);
            self.threads.remove(slot);
            return Outcome::Return(tid);
        }
        super::priority::inherit(self.current().tid, tid as i32);
        let mut regs = self.gs.regs;
        regs.gpr[RAX] = 0;
        if stack != 0 {
            regs.gpr[RSP] = stack;
        }
        if asked(libc::CLONE_SETTLS) {
            regs.fs_base = tls;
        }
        let gs = &mut *self.gs;
        let thread = self.threads.slots[slot].as_deref_mut().expect("just added");
        switch::save_extended(gs, &mut thread.xsave);
        thread.regs = regs;
        thread.tid = tid as i32;
        thread.proxy = Some(proxy);
        thread.state = State::Runnable;
        if asked(libc::CLONE_CHILD_CLEARTID) {
            thread.clear_child_tid = child_tid;
        }
        // The kernel ignores failures of these two as well.
        if asked(libc::CLONE_PARENT_SETTID) {
            let _ = self.put(parent_tid, &(tid as i32));
        }
        if asked(libc::CLONE_CHILD_SETTID) {
            let _ = self.put(child_tid, &(tid as i32));
        }
        self.threads.queue.push_back(slot);
        self.threads.policy.begins();
        self.record_new_thread(slot);
        Outcome::Return(tid)
    }

    /// Moves the executor to a kernel thread of its own; the first one becomes the proxy of the
    /// only guest thread there is.
    fn become_multi_threaded(&mut self) -> i64 {
        let slot = self.threads.current;
        let Some(proxy) = self.threads.pool.block(&self.gs.hub, slot) else {
            return err(libc::EAGAIN);
        };
        let mask = self.current().signals.mask;
        proxy.set_first_mask(mask);
        set_kernel_mask(SigSet::ALL);
        let ret = swap::swap(proxy);
        if is_err(ret) {
            self.threads.pool.give_back(proxy);
            let kernel_mask = self.current().signals.kernel_mask;
            set_kernel_mask(kernel_mask);
            return ret;
        }
        // From here on we are another kernel thread.
        let stack = self.gs.hub.handler_stack.load(Ordering::Relaxed);
        altstack::install(stack, altstack::EXECUTOR_SIZE);
        // SAFETY: asks for this kernel thread's tid.
        let tid = unsafe { crate::syscall!(libc::SYS_gettid) };
        self.gs
            .hub
            .executor_tid
            .store(tid as i32, Ordering::Relaxed);
        set_kernel_mask(SigSet::ASYNCHRONOUS);
        if let Some(recorder) = &mut self.recorder {
            recorder.on_this_thread();
        }
        let main = self.current();
        main.proxy = Some(proxy);
        main.signals.kernel_mask = mask;
        // What it did alone is nobody's turn.
        self.count_ticks();
        self.threads.multi = true;
        self.start_clock();
        ret
    }
}

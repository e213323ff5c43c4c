//! Calls that the kernel makes for a guest thread: in place while the process has one thread, by
//! its proxy when they may wait or depend on who makes them.

use super::{Finish, State};
use crate::executor::Executor;
use crate::guest::virtual_time::{self, RESTART};
use crate::host::blocking::{self, Ended};
use crate::host::borrower;
use crate::host::handlers::{self, Action};
use crate::host::proxy::{Command, During, Task};
use crate::host::sigset::{SigSet, set_kernel_mask};
use crate::kernel::scratch::Scratch;
use crate::kernel::{Outcome, outputs, table};
use crate::memory::govern;

impl Executor {
    /// Makes a call that may wait. With one thread it is made in place and returns its result, or
    /// [`Outcome::Restart`] if a signal is to be delivered first. With more the thread is parked
    /// and finds the result in rax when it runs again.
    pub fn call_blocking(&mut self, nr: i64, args: [u64; 6]) -> Outcome {
        self.call_blocking_then(nr, args, None)
    }

    /// The same; `finish` sees the kernel's answer in the thread's own turn and gives the guest's.
    /// It isn't called if the call was undone for a signal's sake.
    pub fn call_blocking_then(
        &mut self,
        nr: i64,
        args: [u64; 6],
        finish: Option<Finish>,
    ) -> Outcome {
        if self.threads.multi {
            self.park_on_proxy(nr, args, None, finish);
            return Outcome::Parked;
        }
        let (mut args, mut finish) = (args, finish);
        if govern::active() && self.uses_governed(nr, &args) {
            (args, finish) = self.with_scratch(nr, args, finish);
        }
        let ended = self.wait_in_place(nr, args);
        if ended.aborted != 0 {
            return Outcome::Restart;
        }
        Outcome::Return(finish.map_or(ended.value, |finish| finish(self, ended.value)))
    }

    /// The only thread waits until the kernel has something to say of `poll`.
    pub fn wait_for_room(&mut self, poll: &libc::pollfd) -> Ended {
        let args = [std::ptr::from_ref(poll) as u64, 1, u64::MAX, 0, 0, 0];
        self.wait_in_place(libc::SYS_poll, args)
    }

    /// Of a call that the kernel's rules undo for a signal with SA_RESTART, and end for one without: whether
    /// what has just interrupted the only thread undoes it.
    pub fn interrupted_call_restarts(&self) -> bool {
        let mut restarts = true;
        self.gs.host.each(|info| {
            restarts &= self.signals.restarts(info.signo());
        });
        restarts
    }

    /// Parks the current thread until there is room for the rest of what it writes; `done` bytes have gone out.
    /// `args` are those of a poll, `finish` goes on writing, or parks it again.
    pub fn park_for_room(&mut self, args: [u64; 6], done: u64, finish: Finish) {
        self.current().writes = Some(done);
        self.park_on_proxy(libc::SYS_poll, args, None, Some(finish));
    }

    /// Makes a waiting call on the executor's kernel thread. Meanwhile pages of shared memory may be taken from this
    /// process, unless the kernel uses them itself.
    pub(in crate::guest) fn wait_in_place(&mut self, nr: i64, args: [u64; 6]) -> Ended {
        if !virtual_time::waits_for_signals(nr) {
            self.give_timers_to_kernel();
        }
        let stays = govern::active() && self.uses_governed(nr, &args);
        if stays {
            let call = table::lookup(nr as u64);
            govern::acquire_all(&Scratch::ranges(self, call, &args));
        } else {
            govern::park();
        }
        borrower::rests();
        // SAFETY: the guest's own call, which the table has checked.
        let ended = unsafe { blocking::call(nr, args) };
        borrower::works();
        if !stays {
            govern::unpark();
        }
        ended
    }

    /// Whether the kernel reads or writes governed memory for a call.
    fn uses_governed(&self, nr: i64, args: &[u64; 6]) -> bool {
        let ranges = Scratch::ranges(self, table::lookup(nr as u64), args);
        let governed =
            |&(addr, len): &(u64, u64)| govern::governs(&(addr..addr.saturating_add(len)));
        ranges.iter().any(governed)
    }

    /// Makes a call that doesn't wait as the guest's thread: one about the thread's identity
    /// (name, scheduling, credentials, timers, signals).
    pub fn call_on_proxy(&mut self, nr: i64, args: [u64; 6]) -> i64 {
        match self.current().proxy {
            Some(proxy) => {
                proxy
                    .ask(Command {
                        task: Task::Plain,
                        nr,
                        args,
                        ..Command::default()
                    })
                    .value
            }
            None => {
                borrower::rests();
                // SAFETY: the guest's own call, which the table has checked.
                let value = unsafe { crate::sys::call(nr, args) };
                borrower::works();
                value
            }
        }
    }

    /// For calls that change what the executor needs too, such as credentials: the guest's
    /// thread first, and if that worked the executor.
    pub fn call_on_both(&mut self, nr: i64, args: [u64; 6]) -> i64 {
        let value = self.call_on_proxy(nr, args);
        if self.threads.multi && !crate::sys::is_err(value) {
            // SAFETY: as above.
            unsafe { crate::sys::call(nr, args) };
        }
        value
    }

    /// Parks the current thread until its timer ends the wait.
    pub(in crate::guest) fn park_for_sleep(&mut self, finish: Finish) {
        let thread = self.current();
        thread.state = State::OnFutex {
            restartable: RESTART,
        };
        thread.finish = Some(finish);
    }

    pub(in crate::guest) fn park_on_proxy(
        &mut self,
        nr: i64,
        args: [u64; 6],
        masked: Option<(SigSet, During)>,
        finish: Option<Finish>,
    ) {
        let (args, finish) = self.with_scratch(nr, args, finish);
        let thread = self.current();
        let proxy = thread.proxy.expect("every thread has a proxy by now");
        let mask = masked.map_or(thread.signals.mask, |(own, _)| own);
        let mask = (thread.signals.kernel_mask != mask).then_some(mask);
        if let Some(mask) = mask {
            thread.signals.kernel_mask = mask;
        }
        thread.posted_mask = mask;
        thread.masked_call = masked.is_some();
        thread.finish = finish;
        thread.state = State::OnProxy;
        thread.proxy_call = nr;
        let during = masked.map(|(_, during)| during);
        proxy.post(Command {
            task: Task::Interruptible,
            nr,
            args,
            mask,
            during,
            waited_for: false,
        });
    }

    /// Arguments for a call that is made while other threads run: what it reads is copied now, what
    /// it writes goes to the guest when the thread has its turn.
    fn with_scratch(
        &mut self,
        nr: i64,
        args: [u64; 6],
        finish: Option<Finish>,
    ) -> ([u64; 6], Option<Finish>) {
        let call = table::lookup(nr as u64);
        let Some(scratch) = Scratch::take(self, call, &args) else {
            // The proxy's write would fail at a protected page, long after this moment.
            outputs::unprotect(self, call, &args);
            return (args, finish);
        };
        let args = scratch.args();
        let then = move |ex: &mut Executor, value| {
            let value = scratch.give_back(ex, value);
            finish.map_or(value, |finish| finish(ex, value))
        };
        (args, Some(Box::new(then)))
    }

    /// Makes execve or execveat on the executor: with the guest's mask and ignored signals, which
    /// the new program inherits, and so that a signal that comes first is delivered first. Returns
    /// only if the call failed.
    pub fn call_exec(&mut self, nr: i64, args: [u64; 6]) -> Outcome {
        self.before_exec();
        govern::leave();
        borrower::leaves();
        // SAFETY: the guest's own call; if it succeeds nothing of us is left.
        let ended = unsafe { blocking::call(nr, args) };
        borrower::works();
        govern::unpark();
        self.after_failed_exec();
        if ended.aborted != 0 {
            Outcome::Restart
        } else {
            Outcome::Return(ended.value)
        }
    }

    /// Gives the kernel what a new program shall inherit.
    pub fn before_exec(&mut self) {
        for sig in 1..=64 {
            let ignored = |ex: &Executor| ex.signals.action(sig).handler == libc::SIG_IGN as u64;
            if SigSet::SYNCHRONOUS.contains(sig) && ignored(self) {
                let action = Action {
                    handler: libc::SIG_IGN as u64,
                    ..Action::default()
                };
                handlers::set_kernel_action(sig, &action);
            }
        }
        // With a signal in hand the call is going to be aborted: let no second one in.
        if !self.gs.host.any() {
            set_kernel_mask(self.current().signals.mask);
        }
    }

    pub fn after_failed_exec(&mut self) {
        set_kernel_mask(SigSet::ASYNCHRONOUS);
        for sig in 1..=64 {
            if SigSet::SYNCHRONOUS.contains(sig) {
                handlers::set_for_guest(sig, self.signals.action(sig), self.signals.hooked);
            }
        }
        if !self.threads.multi {
            self.current().signals.kernel_mask = SigSet::ASYNCHRONOUS;
            self.sync_mask();
        }
    }
}

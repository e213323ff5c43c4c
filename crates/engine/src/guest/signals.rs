//! Stand-in: signal dispositions, queues and delivery, in the guest's terms.
use crate::executor::Executor;
use crate::kernel::Outcome;
use crate::sys;

#[derive(Clone, Default)]
pub struct Signals {}

impl Signals {
    pub fn snapshot(&self) -> Signals {
        self.clone()
    }
    pub fn restore(&mut self, saved: Signals) {
        *self = saved;
    }
}

impl Executor {
    pub fn deliver_signals(&mut self) {}
    /// A synchronous fault happened at `gs.fault`; `gs.regs` are recovered guest registers.
    pub fn fault(&mut self) {
        crate::kernel::stop::refuse(self, &format!("fault {:?}", self.gs.fault))
    }
    /// Puts the current thread back onto its `syscall` instruction.
    pub fn restart_syscall(&mut self) {}
}

macro_rules! pass {
    ($($name:ident $nr:ident)*) => { $(
        pub fn $name(_: &mut Executor, a: [u64; 6]) -> Outcome {
            // SAFETY: stand-in; the guest's own call.
            Outcome::Return(unsafe { sys::call(libc::$nr, a) })
        }
    )* };
}
macro_rules! nothing {
    ($($name:ident)*) => { $(
        pub fn $name(_: &mut Executor, _: [u64; 6]) -> Outcome {
            Outcome::Return(0)
        }
    )* };
}
nothing!(sys_rt_sigaction sys_rt_sigreturn sys_sigaltstack sys_pause);
pass!(sys_rt_sigprocmask SYS_rt_sigprocmask sys_rt_sigpending SYS_rt_sigpending
    sys_rt_sigtimedwait SYS_rt_sigtimedwait sys_rt_sigsuspend SYS_rt_sigsuspend
    sys_ppoll SYS_ppoll sys_pselect6 SYS_pselect6 sys_epoll_pwait SYS_epoll_pwait
    sys_epoll_pwait2 SYS_epoll_pwait2);

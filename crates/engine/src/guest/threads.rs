//! Stand-in: guest threads and whose turn it is.
use crate::executor::Executor;
use crate::kernel::{Outcome, stop};
use crate::sys::{self, err};

#[derive(Clone, Default)]
pub struct Threads {}

impl Threads {
    /// The current thread has used up its budget.
    pub fn turn_over(&mut self) {}
    pub fn enter_vfork(&mut self) -> Threads {
        self.clone()
    }
    pub fn leave_vfork(&mut self, saved: Threads) {
        *self = saved;
    }
}

const BUDGET: i64 = 1_000_000;

impl Executor {
    pub fn schedule(&mut self) {
        self.stats.ticks += (BUDGET - self.gs.ticks_left) as u64;
        self.gs.ticks_left = BUDGET;
    }
    pub fn multi_threaded(&self) -> bool {
        false
    }
    pub fn call_blocking(&mut self, nr: i64, a: [u64; 6]) -> Outcome {
        // SAFETY: stand-in; the guest's own call.
        Outcome::Return(unsafe { sys::call(nr, a) })
    }
    pub fn call_on_proxy(&mut self, nr: i64, a: [u64; 6]) -> i64 {
        // SAFETY: stand-in; the guest's own call.
        unsafe { sys::call(nr, a) }
    }
    pub fn spawn_thread(&mut self, _: u64, _: u64, _: u64, _: u64, _: u64) -> Outcome {
        Outcome::Return(err(libc::EAGAIN))
    }
    pub fn yield_turn(&mut self) {}
    pub fn after_fork_child(&mut self) {}
    pub fn before_exec(&mut self) {}
}

macro_rules! nothing {
    ($($name:ident)*) => { $(
        pub fn $name(_: &mut Executor, _: [u64; 6]) -> Outcome {
            Outcome::Return(0)
        }
    )* };
}
nothing!(sys_set_robust_list sys_get_robust_list);

pub fn sys_set_tid_address(ex: &mut Executor, a: [u64; 6]) -> Outcome {
    sys_gettid(ex, a)
}

pub fn sys_gettid(_: &mut Executor, _: [u64; 6]) -> Outcome {
    // SAFETY: gettid touches no memory.
    Outcome::Return(unsafe { crate::syscall!(libc::SYS_gettid) })
}

pub fn sys_exit(ex: &mut Executor, a: [u64; 6]) -> Outcome {
    sys_exit_group(ex, a)
}

pub fn sys_exit_group(ex: &mut Executor, a: [u64; 6]) -> Outcome {
    if !ex.kernel.own.in_vfork {
        ex.code.save();
    }
    ex.stats.ticks += (BUDGET - ex.gs.ticks_left) as u64;
    ex.report_stats();
    stop::exit(a[0] as i32)
}

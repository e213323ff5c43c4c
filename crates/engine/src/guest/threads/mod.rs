//! Guest threads: who there is, who runs, who waits.
//!
//! All of them run on the executor. The registers of the current one are in the gs block; those of
//! the others here. As long as there is one thread, nothing here costs anything; the first `clone`
//! makes the process *multi-threaded* (see [`crate::host::swap`]) for good.

pub mod aim;
mod attributes;
pub mod calls;
pub mod clock;
mod deadlock;
pub mod exit;
mod follow;
pub mod identity;
pub mod life;
pub mod lifecycle;
pub mod policy;
pub mod priority;
pub mod robust;
pub mod schedule;
pub mod spawn;
pub mod turns;

pub use attributes::Attributes;
pub use exit::{sys_exit, sys_exit_group};
pub use identity::*;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::context::{Regs, Xsave};
use crate::executor::Executor;
use crate::guest::futex::queues::Queues;
use crate::guest::signals::ThreadSignals;
use crate::host::proxy::{Command, Pool, Proxy, Task};
use crate::host::sigset::SigSet;
use crate::kernel::chaos::Chaos;

/// What is done with the result of a call that had to wait, in the thread's own turn: gets the
/// kernel's answer, gives the guest's.
pub type Finish = Box<dyn FnOnce(&mut Executor, i64) -> i64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Runnable,
    /// Its proxy makes a call that may wait.
    OnProxy,
    /// In an emulated futex's queue. `restartable`: a signal may have the call made again.
    OnFutex {
        restartable: Restart,
    },
}

/// What a signal with a handler does to a waiting futex call, as in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Always made again.
    Always,
    /// Made again if the handler was installed with SA_RESTART.
    Flagged,
    /// Ends with EINTR (it has a timeout).
    Never,
}

/// How a wait ended.
pub struct Wake {
    pub value: i64,
    /// The call was undone; the thread makes it again.
    pub aborted: bool,
    /// The number of the thread that woke it, where one did.
    pub by: Option<u32>,
}

pub struct Thread {
    pub tid: i32,
    /// Its number in the recording.
    pub number: u32,
    /// Registers while another thread is current.
    pub regs: Regs,
    pub xsave: Xsave,
    pub signals: ThreadSignals,
    pub state: State,
    /// None while the process has one thread.
    pub proxy: Option<Proxy>,
    pub clear_child_tid: u64,
    pub robust_list: u64,
    /// `prctl(PR_SET_TSC)`: reading the time-stamp counter is a fault.
    pub tsc_faults: bool,
    /// Ticks of its finished turns.
    pub ticks: u64,
    life: life::Life,
    wake: Option<Wake>,
    finish: Option<Finish>,
    /// It waits for room for the rest of what a call writes, of which so many bytes have gone out.
    pub writes: Option<u64>,
    /// The call that its proxy makes, or made last.
    pub proxy_call: i64,
    /// When its timed wait ends by the guest's clock.
    deadline: u64,
    /// The waiting call has a temporary mask.
    masked_call: bool,
    /// The mask that the waiting call was given to set first.
    posted_mask: Option<SigSet>,
    /// Numbers its waits, so that old timeouts are told from current ones.
    wait: u64,
    /// What the scheduling policy knows about it.
    standing: policy::Standing,
    /// Time-stamp cycles of its turns, and the processor time it was last told.
    cycles: u64,
    cpu_time: u64,
}

impl Thread {
    fn new(tid: i32) -> Box<Thread> {
        Box::new(Thread {
            tid,
            number: 0,
            regs: Regs::default(),
            xsave: Xsave::default(),
            signals: ThreadSignals::default(),
            state: State::Runnable,
            proxy: None,
            clear_child_tid: 0,
            robust_list: 0,
            tsc_faults: false,
            ticks: 0,
            life: life::Life::default(),
            wake: None,
            finish: None,
            writes: None,
            proxy_call: 0,
            deadline: 0,
            masked_call: false,
            posted_mask: None,
            wait: 0,
            standing: policy::Standing::default(),
            cycles: 0,
            cpu_time: 0,
        })
    }

    /// Has its proxy take the signals that the kernel has for it; one that makes a call takes them when it can.
    fn take_signals(&self) {
        if let (Some(proxy), true) = (self.proxy, self.state != State::OnProxy) {
            proxy.ask(Command {
                task: Task::Plain,
                nr: libc::SYS_gettid,
                ..Command::default()
            });
        }
    }

    /// Whether a call that it waited for has ended and rax doesn't have the result yet.
    pub fn has_result(&self) -> bool {
        self.wake.is_some()
    }
}

/// Deadline (monotonic nanoseconds), slot, wait number.
type Timer = Reverse<(u64, usize, u64)>;

pub struct Threads {
    slots: Vec<Option<Box<Thread>>>,
    free: Vec<usize>,
    /// How many there have been, counted as recordings do.
    pub(crate) begun: u32,
    current: usize,
    /// Runnable threads except the current one, next first.
    queue: VecDeque<usize>,
    multi: bool,
    turn_over: bool,
    /// The current thread said that it has nothing to do for now.
    gave_way: bool,
    /// The budget of this turn.
    budget: i64,
    turn: turns::Turn,
    /// Single steps since the guest last left the cache at a tick. 0 after any other exit.
    pub steps: u32,
    midway: bool,
    /// That nobody can ever go on was noted.
    deadlock_told: bool,
    policy: policy::Policy,
    timers: BinaryHeap<Timer>,
    waits: u64,
    clock: clock::TurnClock,
    pool: Pool,
    /// Some thread may have a real-time priority.
    ranked: bool,
    pub(in crate::guest) futexes: Queues,
    pub(in crate::guest) pi: Queues,
}

impl Default for Threads {
    /// One thread; its tid is filled in when the process is taken over.
    fn default() -> Threads {
        Threads {
            slots: vec![Some(Thread::new(0))],
            free: Vec::new(),
            begun: 1,
            current: 0,
            queue: VecDeque::new(),
            multi: false,
            turn_over: false,
            gave_way: false,
            budget: 0,
            turn: turns::Turn::default(),
            steps: 0,
            midway: false,
            deadlock_told: false,
            policy: policy::Policy::default(),
            timers: BinaryHeap::new(),
            waits: 0,
            clock: clock::TurnClock::default(),
            pool: Pool::default(),
            ranked: false,
            futexes: Queues::default(),
            pi: Queues::default(),
        }
    }
}

impl Threads {
    pub fn get(&self, slot: usize) -> Option<&Thread> {
        self.slots.get(slot)?.as_deref()
    }
    pub fn get_mut(&mut self, slot: usize) -> Option<&mut Thread> {
        self.slots.get_mut(slot)?.as_deref_mut()
    }
    pub fn current_slot(&self) -> usize {
        self.current
    }
    /// Number of guest threads.
    pub fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
    pub fn slot_of(&self, tid: i32) -> Option<usize> {
        self.iter()
            .find(|(_, thread)| thread.tid == tid)
            .map(|(slot, _)| slot)
    }
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Thread)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(slot, thread)| Some((slot, thread.as_deref()?)))
    }

    /// A thread that doesn't block `sig`: the current one, or another, or else the current one
    /// all the same.
    pub fn slot_accepting(&self, sig: i32) -> usize {
        let accepts = |thread: &Thread| !thread.signals.mask.contains(sig);
        if self.get(self.current).is_some_and(accepts) {
            return self.current;
        }
        let other = self.iter().find(|(_, thread)| accepts(thread));
        let any = other
            .or_else(|| self.iter().find(|&(slot, _)| slot == self.current))
            .or_else(|| self.iter().next());
        any.map_or(self.current, |(slot, _)| slot)
    }

    /// The futex word that a thread waits at.
    fn waits_at(&self, slot: usize) -> Option<u64> {
        self.futexes.place_of(slot).or(self.pi.place_of(slot))
    }

    fn add(&mut self, thread: Box<Thread>) -> usize {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = Some(thread);
                slot
            }
            None => {
                self.slots.push(Some(thread));
                self.slots.len() - 1
            }
        }
    }

    fn remove(&mut self, slot: usize) -> Option<Box<Thread>> {
        let thread = self.slots[slot].take();
        if thread.is_some() {
            self.free.push(slot);
        }
        thread
    }

    /// The current thread has used up its budget, or gives the rest away.
    pub fn turn_over(&mut self) {
        self.turn_over = true;
    }
}

impl Executor {
    /// The current guest thread.
    pub fn current(&mut self) -> &mut Thread {
        let slot = self.threads.current;
        self.threads
            .get_mut(slot)
            .expect("there is a current thread")
    }

    pub fn current_is_runnable(&self) -> bool {
        let current = self.threads.get(self.threads.current);
        current.is_some_and(|thread| thread.state == State::Runnable)
    }

    /// Whether the guest has ever had a second thread (and the process wasn't forked since).
    pub fn multi_threaded(&self) -> bool {
        self.threads.multi
    }

    /// The tid that the guest's current thread has.
    pub fn tid(&self) -> i32 {
        self.threads
            .get(self.threads.current)
            .map_or(0, |thread| thread.tid)
    }

    /// The current thread has sent a signal to that one. Under policies that make schedules again it isn't a matter of
    /// time when it comes.
    pub(in crate::guest) fn await_signal(&self, tid: i32) {
        let slot = self.threads.slot_of(tid);
        if let Some(slot) = slot.filter(|&slot| slot != self.threads.current)
            && self.threads.policy.hunts()
            && let Some(thread) = self.threads.get(slot)
        {
            thread.take_signals();
        }
    }

    /// Where decisions about what the kernel seldom does come from.
    pub fn chaos(&mut self) -> &mut Chaos {
        &mut self.threads.policy.chaos
    }

    /// The current thread has to wait for long.
    pub fn lose_turn(&mut self) {
        self.threads.policy.delays();
        self.pause_turn();
    }

    /// The current thread says that others should run, which a script knows better.
    pub fn pause_turn(&mut self) {
        if !self.threads.policy.has_turn() {
            self.yield_turn();
        }
    }

    /// Ends the turn of the current thread: `sched_yield`, `pause`.
    pub fn yield_turn(&mut self) {
        self.threads.turn_over();
        self.threads.gave_way = true;
    }
}

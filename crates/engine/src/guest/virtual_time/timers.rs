//! The guest's timers in virtual time. In: calls that set them, and the clock. Out: their signals.
//!
//! A policy that hunts chooses how much work is done before a timer goes off: when a signal comes is a part of the schedule. Before
//! the process waits for the outside world in the kernel, timers are given to the kernel, in which they go on in real time.

use std::collections::BTreeMap;

use super::{EFAULT, EINVAL, SECOND, monotonic, put};
use crate::executor::Executor;
use crate::guest::access::{self, Fault};
use crate::guest::threads::State;
use crate::host::siginfo::{self, SI_KERNEL, Siginfo};
use crate::host::virtual_clock;
use crate::kernel::Outcome;
use crate::kernel::table::Args;
use crate::sys::err;
use crate::syscall;

const SI_TIMER: i32 = -2;
/// Standard signals come once, however often they are sent.
const STANDARD: i32 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    /// `setitimer(ITIMER_REAL)` and `alarm`.
    Alarm,
    /// `timer_create`, by its number.
    Made(i32),
}

/// What a timer made by `timer_create` does.
#[derive(Clone, Copy, Debug)]
struct Effect {
    signal: i32,
    /// The thread that is meant.
    tid: Option<i32>,
    value: u64,
    clock: libc::clockid_t,
}

#[derive(Clone, Copy, Debug)]
struct Armed {
    /// When it goes off.
    due: u64,
    /// When the guest thinks that it does.
    deadline: u64,
    interval: u64,
}

#[derive(Default)]
pub struct Timers {
    armed: BTreeMap<Whose, Armed>,
    made: BTreeMap<i32, Effect>,
}

impl Timers {
    /// When the first one goes off.
    pub fn first(&self) -> Option<u64> {
        self.armed.values().map(|armed| armed.due).min()
    }

    /// In the child of a fork.
    pub fn clear(&mut self) {
        *self = Timers::default();
    }

    fn left(&self, whose: Whose) -> [u64; 2] {
        match self.armed.get(&whose) {
            // A timer that is set has something left.
            Some(armed) => [
                armed.interval,
                armed.deadline.saturating_sub(monotonic()).max(1),
            ],
            None => [0, 0],
        }
    }
}

/// The answer to a call about timers; None for all others.
pub fn answer(ex: &mut Executor, nr: i64, args: &Args) -> Option<Outcome> {
    let real = args[0] as i32 == libc::ITIMER_REAL;
    Some(match nr {
        libc::SYS_alarm => {
            let [_, left] = ex.kernel.timers.left(Whose::Alarm);
            set(ex, Whose::Alarm, args[0] as u32 as u64 * SECOND, 0);
            Outcome::Return(left.div_ceil(SECOND) as i64)
        }
        libc::SYS_getitimer if real => put_timer(ex, args[1], Whose::Alarm, 1000),
        libc::SYS_setitimer if real => {
            let new = match args[1] {
                0 => [0; 4],
                at => match access::read::<[u64; 4]>(at) {
                    Ok(new) => new,
                    Err(Fault) => return Some(EFAULT),
                },
            };
            let [interval, value] = match times(new, 1000) {
                Some(times) => times,
                None => return Some(EINVAL),
            };
            if args[2] != 0 {
                let told = put_timer(ex, args[2], Whose::Alarm, 1000);
                if told != Outcome::Return(0) {
                    return Some(told);
                }
            }
            set(ex, Whose::Alarm, value, interval);
            Outcome::Return(0)
        }
        libc::SYS_timer_create => return create(ex, args),
        libc::SYS_timer_settime => {
            let id = args[0] as i32;
            let effect = *ex.kernel.timers.made.get(&id)?;
            let new = match access::read::<[u64; 4]>(args[2]) {
                Ok(new) => new,
                Err(Fault) => return Some(EFAULT),
            };
            let [interval, mut value] = match times(new, 1) {
                Some(times) => times,
                None => return Some(EINVAL),
            };
            if args[3] != 0 {
                let told = put_timer(ex, args[3], Whose::Made(id), 1);
                if told != Outcome::Return(0) {
                    return Some(told);
                }
            }
            if args[1] as i32 & libc::TIMER_ABSTIME != 0 && value != 0 {
                let now = virtual_clock::now(effect.clock).unwrap_or(0);
                value = value.saturating_sub(now).max(1);
            }
            set(ex, Whose::Made(id), value, interval);
            Outcome::Return(0)
        }
        libc::SYS_timer_gettime => {
            let id = args[0] as i32;
            ex.kernel.timers.made.get(&id)?;
            put_timer(ex, args[1], Whose::Made(id), 1)
        }
        libc::SYS_timer_delete => {
            let id = args[0] as i32;
            ex.kernel.timers.made.remove(&id);
            ex.kernel.timers.armed.remove(&Whose::Made(id));
            return None;
        }
        _ => return None,
    })
}

/// Interval and value in nanoseconds, from seconds and parts of them.
fn times([a, b, c, d]: [u64; 4], unit: u64) -> Option<[u64; 2]> {
    let time = |seconds: u64, parts: u64| {
        let valid = seconds >> 33 == 0 && parts < SECOND / unit;
        valid.then(|| seconds * SECOND + parts * unit)
    };
    Some([time(a, b)?, time(c, d)?])
}

fn put_timer(ex: &mut Executor, at: u64, whose: Whose, unit: u64) -> Outcome {
    let [interval, left] = ex.kernel.timers.left(whose);
    let parts = |time: u64| [time / SECOND, (time % SECOND).div_ceil(unit)];
    match put(ex, at, parts(interval)) {
        Outcome::Return(0) => put(ex, at + 16, parts(left)),
        failed => failed,
    }
}

/// The kernel makes it, for its number, and never gets to know when it is set.
fn create(ex: &mut Executor, args: &Args) -> Option<Outcome> {
    const CLOCKS: [libc::clockid_t; 3] = [
        libc::CLOCK_REALTIME,
        libc::CLOCK_MONOTONIC,
        libc::CLOCK_BOOTTIME,
    ];
    let clock = args[0] as libc::clockid_t;
    if !CLOCKS.contains(&clock) {
        return None;
    }
    // struct sigevent: value, signal, what to do, thread.
    let event = match args[1] {
        0 => None,
        at => Some(access::read::<[u64; 3]>(at).ok()?),
    };
    let effect = event.map(|[value, how, thread]| (value, how as i32, (how >> 32) as i32, thread));
    let effect = match effect {
        None => None,
        Some((value, signal, libc::SIGEV_SIGNAL, _)) => Some((value, signal, None)),
        Some((value, signal, libc::SIGEV_THREAD_ID, thread)) => {
            Some((value, signal, Some(thread as i32)))
        }
        Some(_) => return None,
    };
    let value = ex.call_on_proxy(libc::SYS_timer_create, *args);
    if value == 0
        && let Ok(id) = access::read::<i32>(args[2])
    {
        access::note_write(args[2], 4);
        let (value, signal, tid) = effect.unwrap_or((id as u64, libc::SIGALRM, None));
        let made = Effect {
            signal,
            tid,
            value,
            clock,
        };
        ex.kernel.timers.made.insert(id, made);
    }
    Some(Outcome::Return(value))
}

/// Sets a timer, or takes it back if `value` is 0.
fn set(ex: &mut Executor, whose: Whose, value: u64, interval: u64) {
    ex.kernel.timers.armed.remove(&whose);
    if value != 0 {
        arm(ex, whose, monotonic().saturating_add(value), interval);
    }
}

fn arm(ex: &mut Executor, whose: Whose, deadline: u64, interval: u64) {
    let armed = Armed {
        due: ex.choose_moment(deadline),
        deadline,
        interval,
    };
    ex.kernel.timers.armed.insert(whose, armed);
    // The turn that goes on ends at that moment at the latest.
    ex.threads.turn_over();
}

/// The only thread is going to wait for signals: the next timer's is one. What to answer, if that is all.
pub fn before_signal_wait(ex: &mut Executor, nr: i64) -> Option<Outcome> {
    if ex.multi_threaded() || ex.kernel.timers.first().is_none() {
        return None;
    }
    if ex.current().signals.pending.is_empty() {
        ex.jump_to_timer();
    }
    let caught = nr == libc::SYS_pause && !ex.current().signals.pending.is_empty();
    caught.then_some(Outcome::Return(err(libc::EINTR)))
}

impl Executor {
    /// On to where the first timer goes off.
    pub(super) fn jump_to_timer(&mut self) {
        if let Some(due) = self.kernel.timers.first() {
            virtual_clock::jump(due);
            self.fire_timers();
        }
    }

    /// Sends the signals of timers that have gone off.
    pub(in crate::guest) fn fire_timers(&mut self) {
        if self.kernel.timers.armed.is_empty() {
            return;
        }
        let now = monotonic();
        let due = |(_, armed): &(&Whose, &Armed)| armed.due <= now;
        let armed = self.kernel.timers.armed.iter();
        let due: Vec<(Whose, Armed)> = armed.filter(due).map(|(w, a)| (*w, *a)).collect();
        for (whose, armed) in due {
            self.kernel.timers.armed.remove(&whose);
            virtual_clock::jump(armed.deadline);
            let behind = monotonic().saturating_sub(armed.deadline);
            if let Some(behind) = behind.checked_div(armed.interval) {
                let next = armed.deadline + armed.interval * (behind + 1);
                arm(self, whose, next, armed.interval);
            }
            self.send_timer(whose);
        }
    }

    fn send_timer(&mut self, whose: Whose) {
        let (info, tid) = match whose {
            Whose::Alarm => (Siginfo::queued(libc::SIGALRM, SI_KERNEL, 0), None),
            Whose::Made(id) => {
                let Some(effect) = self.kernel.timers.made.get(&id) else {
                    return;
                };
                let info = Siginfo::queued(effect.signal, SI_TIMER, effect.value);
                (info, effect.tid)
            }
        };
        let sig = info.signo();
        let slot = match tid.map(|tid| self.threads.slot_of(tid)) {
            Some(None) => return,
            Some(Some(slot)) => slot,
            None => self.threads.slot_accepting(sig),
        };
        let only = !self.multi_threaded();
        let Some(thread) = self.threads.get(slot) else {
            return;
        };
        let waits = thread.signals.pending.iter();
        let already = sig < STANDARD && waits.clone().any(|other| other.signo() == sig);
        if already {
            return;
        }
        if thread.state == State::OnProxy {
            siginfo::send_to_thread(thread.tid, sig);
        } else if only && thread.signals.mask.contains(sig) {
            // It waits here, where calls that wait for signals look.
            let slot = self.threads.current_slot();
            if let Some(thread) = self.threads.get_mut(slot) {
                thread.signals.pending.push_back(info);
            }
        } else {
            self.give_signal(slot, info);
        }
    }

    /// Before the only thread waits in the kernel: its timers go on there.
    pub(in crate::guest) fn give_timers_to_kernel(&mut self) {
        let now = monotonic();
        for (whose, armed) in std::mem::take(&mut self.kernel.timers.armed) {
            let left = armed.due.saturating_sub(now).max(1000);
            let unit = if whose == Whose::Alarm { 1000 } else { 1 };
            let parts = |time: u64| [time / SECOND, time % SECOND / unit];
            let new = [parts(armed.interval), parts(left)];
            // SAFETY: the kernel reads four words, which are alive.
            unsafe {
                match whose {
                    Whose::Alarm => {
                        syscall!(libc::SYS_setitimer, libc::ITIMER_REAL, &raw const new, 0)
                    }
                    Whose::Made(id) => {
                        syscall!(libc::SYS_timer_settime, id, 0, &raw const new, 0)
                    }
                }
            };
        }
    }
}

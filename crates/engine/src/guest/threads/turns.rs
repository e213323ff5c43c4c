//! Turns: how many ticks they get, how they are counted, and where they end.
//!
//! A turn ends, and a signal is delivered, only at places that can be found again: right after an
//! event (a system call, an instruction that the engine answers, a fault), or when the budget is
//! exactly used up, or a known number of single instructions after one of these. The single steps are there
//! so that any instruction can be a turn's last; races lie between instructions, and ticks alone
//! would hide most of them.

use clew_recording::event::ThreadId;
use clew_recording::script::Point;

use super::aim::Ending;
use super::policy::{Standing, Standings};
use super::{Thread, Threads};
use crate::context::Exit;
use crate::executor::Executor;
use crate::guest::trap_flag::TRAP_FLAG;
use crate::guest::virtual_time;
use crate::host::virtual_clock;
use crate::kernel::stop;
use crate::memory::govern;

/// Ticks of a turn when nobody else wants to run. Only bounds how long a request to stop may go
/// unnoticed: some milliseconds.
const ALONE: i64 = 2_000_000;
/// When somebody waits with a timeout: it is looked at when the turn ends.
const TIMED: i64 = 200_000;
/// More than any number of single steps can use up.
const PLENTY: i64 = 1 << 40;

/// Who else is there, from least to most urgent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Company {
    #[default]
    Nobody,
    /// Threads that wait with a timeout.
    Timers,
    /// Runnable threads.
    Others,
}

impl Turn {
    /// Its end isn't the budget's.
    pub(super) fn begins_part(&mut self, company: Company) {
        self.company = company;
        self.calls = 0;
        self.to_come = 0;
        self.glance = Glance::Done;
        self.tickless = false;
    }
}

/// The turn of the current thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    company: Company,
    /// System calls since the budget was set.
    calls: u64,
    /// Ticks so far, for the trace.
    ticks: u64,
    /// Ticks that will be added when the budget is used up, before the turn is over.
    to_come: i64,
    glance: Glance,
    /// It ends some steps after the event that it begins with.
    tickless: bool,
}

/// Looking at a thread at the beginning of its turn: has anything changed between two ticks? One
/// that waits for others by spinning shall not use up whole turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Glance {
    #[default]
    Done,
    First,
    /// What was seen at the first: instruction and registers.
    Second(u64, [u64; 16]),
}

pub(super) enum Glanced {
    /// There is nothing (more) to look for: the turn is over.
    NotNow,
    GoesOn,
    Spins,
}

impl Standings for Vec<Option<Box<Thread>>> {
    fn of(&mut self, slot: usize) -> &mut Standing {
        let thread = self[slot].as_deref_mut();
        &mut thread.expect("only living threads are runnable").standing
    }
    fn whose(&self, slot: usize) -> (ThreadId, Point) {
        let thread = self[slot].as_deref();
        let thread = thread.expect("only living threads are runnable");
        (thread.number, thread.life.point(thread.ticks))
    }
}

impl Threads {
    /// The current thread makes a system call.
    pub(super) fn count_call(&mut self) {
        self.turn.calls += 1;
        if self.multi {
            self.policy.count_work(self.policy.call_cost());
        }
        virtual_clock::advance(virtual_clock::CALL);
    }

    /// The guest was left at a place that can't be found again: it must go on.
    pub fn set_midway(&mut self) {
        self.midway = true;
    }
    pub fn take_midway(&mut self) -> bool {
        std::mem::take(&mut self.midway)
    }

    pub(super) fn company(&self) -> Company {
        if !self.queue.is_empty() {
            Company::Others
        } else if !self.timers.is_empty() {
            Company::Timers
        } else {
            Company::Nobody
        }
    }
}

impl Executor {
    /// The tick counter reached zero. If a kick had cut it the turn isn't over, but something has
    /// come that may end it.
    pub fn budget_spent(&mut self) {
        self.note_budget();
        let kicked = self.gs.kicked != 0;
        if self.scripted_budget_spent(kicked) {
            return;
        }
        if !kicked {
            match self.glance() {
                Glanced::GoesOn => return,
                // It only waits: no matter where.
                Glanced::Spins => return self.yield_turn(),
                Glanced::NotNow => {}
            }
            self.threads.turn_over();
            self.watch_for_spinning();
        }
        let exact = self.recording() || self.threads.policy.hunts();
        if exact
            && self.lockstep.is_none()
            && (kicked || self.timer_is_due() || !self.threads.queue.is_empty())
        {
            let mut ending = self.threads.policy.ending(kicked);
            self.take_steps(&mut ending);
        }
    }

    /// The budget is used up, which may be a part of the turn's only.
    pub(super) fn glance(&mut self) -> Glanced {
        let (pc, registers) = (self.gs.regs.rip, self.gs.regs.gpr);
        let threads = &mut self.threads;
        let ticks = match threads.turn.glance {
            Glance::Done => return Glanced::NotNow,
            Glance::First => {
                threads.turn.glance = Glance::Second(pc, registers);
                threads.policy.glance().map_or(1, |ticks| ticks as i64)
            }
            Glance::Second(first_pc, first) => {
                threads.turn.glance = Glance::Done;
                let same = first_pc == pc && first == registers;
                if same && threads.turn.calls == 0 && threads.company() == Company::Others {
                    return Glanced::Spins;
                }
                threads.turn.to_come
            }
        };
        let ticks = ticks.min(threads.turn.to_come);
        if ticks <= 0 {
            return Glanced::NotNow;
        }
        threads.turn.to_come -= ticks;
        self.count_ticks();
        self.threads.budget += ticks;
        self.gs.add_ticks(ticks);
        Glanced::GoesOn
    }

    /// Runs single instructions to the turn's end. One that leads to an event is the last; then the end may not be
    /// reached, and this is false.
    pub(super) fn take_steps(&mut self, ending: &mut Ending) -> bool {
        while !self.ends_here(ending) {
            // Those are stepped anyway, each with an event.
            if self.gs.regs.rflags & TRAP_FLAG != 0 {
                return true;
            }
            // A kick may cut even this, and then the step ends with `Budget`: it's still one step.
            let before = self.ticks_now();
            let point = self.point();
            self.gs.give_back();
            self.gs.add_ticks(PLENTY);
            self.threads.budget += PLENTY;
            let exit = self
                .code
                .step_on(self.gs, &mut self.memory, &mut self.stats);
            self.gs.give_back();
            self.gs.add_ticks(-PLENTY);
            self.threads.budget -= PLENTY;
            let done = self.threads.steps + 1;
            self.threads.steps = 0;
            match exit {
                Exit::Step | Exit::Link | Exit::Indirect | Exit::Stale | Exit::Budget => {}
                _ => {
                    self.handle(exit);
                    // No event: the step wrote to code, which takes a detour.
                    if !self.threads.take_midway() {
                        // A call is a point of its own.
                        if self.point() == point {
                            self.count_step(before);
                        }
                        return false;
                    }
                }
            }
            self.count_step(before);
            // Steps are counted from the last tick, so that every place has one name.
            if self.ticks_now() == before {
                self.threads.steps = done;
            } else {
                self.note_tick();
            }
        }
        true
    }

    /// Gives back what kicks took away; starts the count anew when nothing is left, or when
    /// somebody has come for whom the turn is too long.
    pub(super) fn refill(&mut self) {
        if self.scripted_refill() {
            return;
        }
        self.gs.give_back();
        let left = self.gs.ticks_in_hand();
        let company = self.threads.company();
        let limit = self.ticks_to_timer();
        let in_time = limit.is_none_or(|limit| left <= limit);
        if left > 0 && company <= self.threads.turn.company && in_time {
            return;
        }
        self.count_ticks();
        let threads = &mut self.threads;
        let length = match company {
            Company::Nobody => ALONE,
            Company::Timers => TIMED,
            Company::Others => {
                let standing = threads.slots.of(threads.current);
                threads.policy.turn_length(standing) as i64
            }
        };
        let length = limit.map_or(length, |limit| length.min(limit));
        threads.turn.tickless = length == 0;
        let length = length.max(1);
        let glance = (company == Company::Others)
            .then(|| threads.policy.glance())
            .flatten();
        let budget = glance.map_or(length, |ticks| length.min(ticks as i64));
        threads.turn.to_come = length - budget;
        threads.turn.glance = if glance.is_some() {
            Glance::First
        } else {
            Glance::Done
        };
        threads.turn.company = company;
        threads.turn.calls = 0;
        threads.budget = budget;
        self.gs.add_ticks(budget - left);
    }

    /// In virtual time: ticks until the next timer's signal.
    pub(super) fn ticks_to_timer(&self) -> Option<i64> {
        let due = self.kernel.timers.first()?;
        let left = due.saturating_sub(virtual_time::monotonic());
        Some(left.div_ceil(virtual_clock::TICK).clamp(1, 1 << 40) as i64)
    }

    /// Whether a timer's signal comes when this turn ends.
    fn timer_is_due(&self) -> bool {
        let now = || {
            let used = (self.threads.budget - self.gs.ticks_in_hand()).max(0) as u64;
            virtual_time::monotonic() + used * virtual_clock::TICK
        };
        self.kernel.timers.first().is_some_and(|due| due <= now())
    }

    /// A turn without ticks: a step or more, and it is over. False if this isn't one.
    pub(super) fn tickless_turn(&mut self) -> bool {
        if !std::mem::take(&mut self.threads.turn.tickless) || self.lockstep.is_some() {
            return false;
        }
        // Steps are counted from an event or a tick. If nobody else could run, the turn before ended in between.
        if self.threads.steps != 0 {
            return false;
        }
        self.before_steps();
        let mut ending = self.threads.policy.ending(false);
        ending.most = ending.most.max(1);
        self.threads.turn_over();
        self.take_steps(&mut ending);
        true
    }

    /// The current thread is about to make single steps from where it is.
    pub(super) fn before_steps(&mut self) {
        self.record_loose_effects();
        govern::runs_guest();
        // Steps behind a quiet instruction can only be counted from there.
        self.tell_quiet();
        self.note_budget();
    }

    /// The ticks of the current thread so far.
    pub fn ticks_now(&self) -> u64 {
        let used = (self.threads.budget - self.gs.ticks_in_hand()).max(0) as u64;
        let current = self.threads.get(self.threads.current);
        current.map_or(0, |thread| thread.ticks + used)
    }

    /// Books the ticks of the turn so far.
    pub fn count_ticks(&mut self) {
        let left = self.gs.ticks_in_hand();
        let used = (self.threads.budget - left).max(0) as u64;
        let threads = &mut self.threads;
        threads.budget = left;
        threads.turn.ticks += used;
        virtual_clock::advance(used * virtual_clock::TICK);
        self.stats.ticks += used;
        if threads.multi {
            threads.policy.count_work(used);
        }
        let slot = threads.current;
        if let Some(thread) = threads.get_mut(slot) {
            thread.ticks += used;
        }
    }

    /// Whether the current thread has had its share although ticks are left: it makes many calls,
    /// or long ones, or one with a higher priority has come.
    pub(super) fn turn_is_up(&mut self) -> bool {
        if let Some(is_up) = self.scripted_turn_is_up() {
            return is_up;
        }
        let company = self.threads.company();
        if company == Company::Nobody {
            return false;
        }
        let calls = self.threads.turn.calls;
        if calls != 0 {
            let spent = calls * self.threads.policy.call_cost();
            let left = self.gs.ticks_in_hand() + self.threads.turn.to_come;
            if company <= self.threads.turn.company && left <= spent as i64 {
                return true;
            }
        }
        if self.threads.policy.watches_time() {
            return self.turn_is_long();
        }
        self.count_ticks();
        let threads = &self.threads;
        let standing = |&slot: &usize| Some(&threads.get(slot)?.standing);
        standing(&threads.current).is_some_and(|current| {
            let others = threads.queue.iter().filter_map(standing);
            threads.policy.overdue(current, others)
        })
    }

    /// Before the next thread is chosen: what the turn of `current` says about it.
    pub(super) fn judge_turn(&mut self, current: Option<usize>) {
        self.count_ticks();
        let threads = &mut self.threads;
        let gave_way = std::mem::take(&mut threads.gave_way);
        if let (true, Some(slot)) = (gave_way, current) {
            threads.policy.gives_way(threads.slots.of(slot));
        }
        // If it is chosen again its budget starts anew.
        threads.turn.calls = 0;
        threads.turn.company = Company::Nobody;
    }

    /// A whole turn is over. Has the thread been waiting for others all the time?
    pub(super) fn watch_for_spinning(&mut self) -> bool {
        if self.threads.company() != Company::Others {
            return false;
        }
        let regs = &self.gs.regs;
        let quiet = self.threads.turn.calls == 0;
        let threads = &mut self.threads;
        let standing = threads.slots.of(threads.current);
        let spins = standing.turn_ended(regs.rip, &regs.gpr, quiet);
        if spins {
            threads.policy.gives_way(standing);
        }
        spins
    }

    /// Before waiters of a futex are woken: under some policies any may be the first.
    pub(in crate::guest) fn mix_waiters(&mut self, word: u64) {
        let Threads {
            futexes,
            policy,
            slots,
            ..
        } = &mut self.threads;
        if let Some(follower) = policy.follower() {
            // Whoever's turn comes first; of those without one, the oldest.
            let turn = |slot| follower.next_of(slots.whose(slot)).unwrap_or(usize::MAX);
            futexes.sort(word, turn);
        } else if policy.wakes_at_random() {
            futexes.mix(word, |count| policy.choose(count));
        }
    }

    /// `--debug turns`: a line for each turn.
    pub(super) fn trace_turn(&self) {
        let threads = &self.threads;
        if self.options.turns && threads.multi {
            stop::warn(&format!(
                "turn: thread {}, {} ticks, {} steps",
                threads.current, threads.turn.ticks, threads.steps
            ));
        }
    }
}

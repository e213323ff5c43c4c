//! Turns of a script. In: how far the policy says that a turn goes. Out: budgets and steps that take the current thread
//! exactly there.

use clew_recording::event::ThreadId;
use clew_recording::script::Point;

use super::State;
use super::policy::Standings;
use super::policy::script::{Goal, MOST_WAITING};
use super::turns::Glanced;
use crate::executor::Executor;
use crate::guest::futex::time::now;
use crate::memory::govern;

/// A turn that goes on for so many ticks is looked at for spinning: it may wait for somebody whom the schedule forgot.
const LONG: u64 = 1_000_000;

/// How long the executor sleeps at once for a call that has to end, in nanoseconds; an end wakes it.
const WAITING: u64 = 5_000_000;

impl Executor {
    /// Where in its own life the current thread is.
    pub(super) fn point(&self) -> Point {
        let current = self.threads.get(self.threads.current);
        current.map_or_else(Point::default, |thread| thread.life.point(self.ticks_now()))
    }

    /// The current thread makes a system call.
    pub(crate) fn count_call(&mut self) {
        let now = self.ticks_now();
        self.current().life.call(now);
        self.threads.count_call();
    }

    /// The engine carries out an instruction for the current thread: as good a point as a call.
    pub(crate) fn count_answer(&mut self) {
        let now = self.ticks_now();
        self.current().life.call(now);
    }

    /// The current thread has made a single step, which began at `before` ticks.
    pub(super) fn count_step(&mut self, before: u64) {
        let (slot, now) = (self.threads.current, self.ticks_now());
        if let Some(thread) = self.threads.get_mut(slot) {
            thread.life.step(before, now);
        }
    }

    fn goal(&mut self) -> Option<Goal> {
        self.threads.policy.follower()?;
        let at = self.point();
        self.threads.policy.goal(at)
    }

    /// Sets the budget for a turn with an end. False if there is none.
    pub(super) fn scripted_refill(&mut self) -> bool {
        let ticks = match self.goal() {
            None | Some(Goal::Free) => return false,
            Some(Goal::Ticks(ticks)) => ticks.min(LONG) as i64,
            // If a tick comes first, the end is behind.
            Some(Goal::Call | Goal::Steps(_)) => 1,
        };
        let ticks = self.ticks_to_timer().map_or(ticks, |most| ticks.min(most));
        self.gs.give_back();
        let left = self.gs.ticks_in_hand();
        self.count_ticks();
        let company = self.threads.company();
        self.threads.turn.begins_part(company);
        self.threads.budget = ticks;
        self.gs.add_ticks(ticks - left);
        true
    }

    /// If the next turn in the schedule is that of a thread whose call is being made by the kernel, the call had ended by
    /// now when the schedule was made: gives it some time. False if there is nothing to wait for.
    pub(super) fn await_outside(&mut self) -> bool {
        let Some(follower) = self.threads.policy.follower() else {
            return false;
        };
        if follower.waited >= MOST_WAITING {
            return false;
        }
        self.count_ticks();
        let (runnable, at) = (self.current_is_runnable(), self.point());
        let threads = &mut self.threads;
        let slots = threads.slots.iter().enumerate();
        let living = slots.filter_map(|(slot, thread)| Some((slot, thread.as_ref()?.state)));
        let living: Vec<(usize, State)> = living.collect();
        let Some(follower) = threads.policy.follower() else {
            return false;
        };
        if runnable && follower.goes_on(at) {
            return false;
        }
        let turns = living.iter().filter_map(|&(slot, state)| {
            Some((follower.next_of(threads.slots.whose(slot))?, state))
        });
        let Some((place, State::OnProxy)) = turns.min_by_key(|&(place, _)| place) else {
            return false;
        };
        if !follower.waits_for(place) {
            return false;
        }
        govern::park();
        let begun = now(libc::CLOCK_MONOTONIC);
        self.gs.hub.sleep(Some(WAITING));
        let took = now(libc::CLOCK_MONOTONIC).saturating_sub(begun);
        govern::unpark();
        if let Some(follower) = self.threads.policy.follower() {
            follower.has_waited(took);
        }
        true
    }

    /// The single steps at the end of a turn. False if it isn't there yet.
    pub(super) fn scripted_steps(&mut self) -> bool {
        if self.lockstep.is_some() {
            return false;
        }
        let Some(Goal::Steps(mut ending)) = self.goal() else {
            return false;
        };
        self.before_steps();
        // In a recording a place is only so many steps behind a tick.
        const MOST_STEPS: u32 = 4090;
        ending.most = ending
            .most
            .min(MOST_STEPS.saturating_sub(self.threads.steps));
        let most = ending.most;
        let arrived = self.take_steps(&mut ending);
        let steps = most.saturating_sub(ending.most);
        if let Some(follower) = self.threads.policy.follower() {
            follower.stepped(steps, arrived);
        }
        if arrived {
            self.threads.turn_over();
        }
        true
    }

    /// The budget is used up. False without a script.
    pub(super) fn scripted_budget_spent(&mut self, kicked: bool) -> bool {
        let Some(goal) = self.goal() else {
            return false;
        };
        // The turn isn't over because something came.
        if kicked {
            return true;
        }
        let spins = match goal {
            Goal::Free => {
                match self.glance() {
                    Glanced::GoesOn => return true,
                    Glanced::Spins => {
                        self.yield_turn();
                        return true;
                    }
                    Glanced::NotNow => self.threads.turn_over(),
                }
                self.watch_for_spinning();
                if let Some(follower) = self.threads.policy.follower() {
                    follower.looked_at();
                }
                false
            }
            Goal::Ticks(_) => self.watch_for_spinning(),
            Goal::Call | Goal::Steps(_) => false,
        };
        if let (true, Some(follower)) = (spins, self.threads.policy.follower()) {
            follower.yields();
            self.threads.turn_over();
        }
        true
    }

    /// Whether somebody is to be chosen now. None without a script.
    pub(super) fn scripted_turn_is_up(&mut self) -> Option<bool> {
        self.threads.policy.follower()?;
        self.count_ticks();
        let threads = &mut self.threads;
        let whose = |&slot: &usize| threads.slots.whose(slot);
        let current: (ThreadId, Point) = whose(&threads.current);
        let others = threads.queue.iter().map(whose);
        Some(threads.policy.follower()?.overdue(current, others))
    }
}

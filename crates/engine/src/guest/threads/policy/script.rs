//! Following a schedule that is written down. In: its turns, and where in their lives the threads are. Out: who is next,
//! and how far its turn goes.
//!
//! The program may go another way than when the schedule was made, so nothing here is an error: a turn of a thread that
//! can't run waits for its time, one whose end is behind the thread is dropped, and when no turn is left whose thread can
//! run, threads run as they come.

use std::collections::VecDeque;

use clew_recording::event::ThreadId;
use clew_recording::script::{End, Point, Script};
use rustc_hash::FxHashMap;

use super::{PATIENCE, Standings, TURNS_IN_A_ROW};
use crate::guest::threads::aim::{Aim, Ending};

/// A turn that looks for an instruction gives up after so many steps; more than 4096 a replay wouldn't follow.
const MOST_STEPS: u32 = 4000;

/// What is to be done for the turn's next part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Nothing in particular: the thread runs until it waits.
    Free,
    /// It runs for so many ticks.
    Ticks(u64),
    /// It runs to its next call or tick.
    Call,
    Steps(Ending),
}

/// The turn under way.
#[derive(Clone, Copy, Debug)]
struct Under {
    end: End,
    /// The point from which an instruction is looked for was reached.
    looking: bool,
    /// Steps left for that.
    steps: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Follower {
    /// The turns to come of each thread, with their places in the schedule.
    lists: FxHashMap<ThreadId, VecDeque<(usize, End)>>,
    /// None: whoever runs has no turn in the schedule now.
    turn: Option<Under>,
    /// The turn is over, wherever the thread is.
    over: bool,
    /// The current thread has nothing to do before others were there.
    gave_way: bool,
    /// How often the thread was looked at since its turn began.
    looks: u32,
}

impl Follower {
    pub fn new(script: &Script) -> Follower {
        let mut follower = Follower::default();
        for (place, turn) in script.turns.iter().enumerate() {
            let list = follower.lists.entry(turn.thread).or_default();
            list.push_back((place, turn.end));
        }
        follower
    }

    /// The place in the schedule of a thread's next turn.
    pub fn next_of(&mut self, (thread, at): (ThreadId, Point)) -> Option<usize> {
        let list = self.lists.get_mut(&thread)?;
        while list.front().is_some_and(|&(_, end)| is_behind(end, at)) {
            list.pop_front();
        }
        list.front().map(|&(place, _)| place)
    }

    fn is_over(&self, at: Point) -> bool {
        let reached = |turn: &Under| matches!(turn.end, End::At(end) if end <= at);
        self.over || self.turn.as_ref().is_some_and(reached)
    }

    /// What the current thread, which is at that point, does next.
    pub fn goal(&mut self, at: Point) -> Goal {
        let Some(turn) = &mut self.turn else {
            return Goal::Free;
        };
        match turn.end {
            End::Free => Goal::Free,
            End::At(end) => towards(end, at),
            End::Near { from, pc, after } => {
                turn.looking |= at >= from;
                if !turn.looking {
                    return towards(from, at);
                }
                Goal::Steps(Ending {
                    aim: Aim::Pc { pc, after },
                    most: turn.steps,
                })
            }
        }
    }

    /// Steps were taken for the goal; `arrived`: to the turn's end, or as far as there is any point.
    pub fn stepped(&mut self, steps: u32, arrived: bool) {
        self.over |= arrived;
        if let Some(turn) = &mut self.turn {
            turn.steps = turn.steps.saturating_sub(steps.max(1));
        }
    }

    /// The current thread waits for others in a way that isn't a call. A turn with an end goes there all the same.
    pub fn gives_way(&mut self) {
        if self.turn.is_none_or(|turn| turn.end == End::Free) {
            self.yields();
        }
    }

    /// The current thread's turn is over as if it waited.
    pub fn yields(&mut self) {
        self.over = true;
        self.gave_way = true;
    }

    /// The current thread has run for long without an end in sight. It may be polling in ways that nobody recognises.
    pub fn looked_at(&mut self) {
        self.looks += 1;
        if self.looks >= TURNS_IN_A_ROW {
            self.gives_way();
        }
    }

    /// Whether the current thread must not go on before somebody is chosen.
    pub fn overdue(
        &mut self,
        current: (ThreadId, Point),
        mut others: impl Iterator<Item = (ThreadId, Point)>,
    ) -> bool {
        if self.turn.is_some() || self.over {
            return self.is_over(current.1);
        }
        self.next_of(current).is_some() || others.any(|other| self.next_of(other).is_some())
    }

    /// As [`super::Policy::next`].
    pub fn next(
        &mut self,
        queue: &mut VecDeque<usize>,
        current: Option<usize>,
        standings: &mut impl Standings,
    ) -> Option<usize> {
        let goes_on = current.is_some_and(|slot| !self.is_over(standings.whose(slot).1));
        if goes_on && self.turn.is_some() {
            return None;
        }
        let turns = current.iter().chain(queue.iter());
        let turns = turns.filter_map(|&slot| Some((self.next_of(standings.whose(slot))?, slot)));
        if let Some((_, slot)) = turns.min() {
            self.begin(standings.whose(slot).0);
            let at = queue.iter().position(|&other| other == slot)?;
            return queue.remove(at);
        }
        if goes_on || (current.is_some() && !self.gave_way) {
            self.begin_any();
            return None;
        }
        let oldest_first = self.gave_way;
        self.begin_any();
        let at = if oldest_first {
            0
        } else {
            any(queue, standings)
        };
        let slot = queue.remove(at);
        for &other in queue.iter() {
            standings.of(other).passed_over += 1;
        }
        slot.inspect(|&slot| standings.of(slot).passed_over = 0)
    }

    /// A turn that isn't in the schedule begins, or goes on.
    fn begin_any(&mut self) {
        if self.over || self.turn.is_some() {
            self.looks = 0;
        }
        (self.turn, self.over, self.gave_way) = (None, false, false);
    }

    /// The next turn of that thread begins.
    fn begin(&mut self, thread: ThreadId) {
        let list = self.lists.get_mut(&thread);
        let turn = list.and_then(VecDeque::pop_front);
        self.turn = turn.map(|(_, end)| Under {
            end,
            looking: false,
            steps: MOST_STEPS,
        });
        (self.over, self.gave_way, self.looks) = (false, false, 0);
    }
}

/// Where in the queue the thread is that goes on when the schedule says nothing: the one with the lowest number, unless
/// one has been left out for long.
fn any(queue: &VecDeque<usize>, standings: &mut impl Standings) -> usize {
    let mut waited = |at: &usize| standings.of(queue[*at]).passed_over >= PATIENCE;
    if let Some(at) = (0..queue.len()).find(|at| waited(at)) {
        return at;
    }
    let number = |at: &usize| standings.whose(queue[*at]).0;
    (0..queue.len()).min_by_key(number).unwrap_or(0)
}

/// Whether a thread at that point can't come to the turn's end any more. Of an instruction only the tick is known.
fn is_behind(end: End, at: Point) -> bool {
    match end {
        End::Free => false,
        End::At(end) => end <= at,
        End::Near { from, .. } => from.ticks < at.ticks,
    }
}

/// The way from one point to a later one.
fn towards(end: Point, at: Point) -> Goal {
    if at.ticks < end.ticks {
        Goal::Ticks(end.ticks - at.ticks)
    } else if at.calls < end.calls {
        Goal::Call
    } else {
        let most = end.steps.saturating_sub(at.steps).min(MOST_STEPS);
        Goal::Steps(Ending {
            aim: Aim::Steps,
            most,
        })
    }
}

//! Scheduling policies: how long a turn is, who is next, where in the code it ends.
//!
//! In: what the scheduler sees (ticks, calls, who is runnable). Out: decisions. They depend on the
//! seed and on what the guest does, never on time, on process ids or on the engine's addresses: the
//! same seed and the same inputs give the same schedule. (The fair policy alone also ends a turn
//! that takes too much time, see `clock`.)

pub mod generator;
pub mod script;
#[cfg(test)]
mod tests;

pub use generator::{Generator, lineage_of, lineage_of_child};

use std::collections::VecDeque;

use clew_recording::event::ThreadId;
use clew_recording::script::Point;

use super::aim::{Aim, Ending};
use generator::mix;
use script::{Follower, Goal};

use crate::kernel::chaos::Chaos;
use crate::program::{Options, Sched};

/// A turn of the fair policy when others wait: about half a millisecond, so that a switch (half a
/// microsecond) is lost in the noise and no thread waits long.
const FAIR_TURN: u64 = 200_000;
/// The same for a thread that stays in one small loop: it may be waiting for somebody.
const SUSPECT_TURN: u64 = 50_000;
/// A long turn begins with two short parts, after each of which the thread is looked at: at least so
/// long, and at most twice that. At random, since a loop with a round number of rounds may look the
/// same after a round number of ticks.
const GLANCE: u64 = 700;
/// The longest turn of a priority: after that, the thread is looked at for spinning.
const PRIORITY_TURN: u64 = 50_000;
/// So many of these in a row and it isn't let go on any longer: it may poll in ways that nobody
/// recognises.
const TURNS_IN_A_ROW: u32 = 20;

/// What a system call counts for, in ticks. A thread's turn ends also when it makes many calls.
const FAIR_CALL: u64 = 1_000;
const HUNTING_CALL: u64 = 64;

/// Single steps after a turn's last tick are fewer than one of these, which is so likely (in 64ths). The first is
/// more than most stretches between two ticks have; straight-line code may be longer, so under policies that hunt
/// a few turns end far behind a tick. More than a replay would follow: 4096.
const FAIR_STEPS: [(u64, u64); 1] = [(64, 16)];
const HUNTING_STEPS: [(u64, u64); 3] = [(54, 16), (8, 64), (2, 512)];

/// Turns that look for a certain instruction to end at give up after so many steps: few where there are many
/// turns (a step takes a microsecond), more where every one counts. They count up to the last.
const SHORT_AIM: u32 = 128;
const LONG_AIM: u32 = 1500;
const FEW_POINTS: usize = 12;
const MOST_COUNTED: u64 = 4;

/// Log2 of the least work for which a delay lasts, and of how many times as much it may last.
const DELAY: u64 = 8;
/// Log2 of the least work for which `random` holds a thread back at the end of its turn.
const HELD: u64 = 3;

/// One turn in so many, under `random`, ends before its first tick: some steps after the event that it began with.
const TICKLESS_TURNS: u64 = 8;
/// `random` without a length: turns are shorter than 2 to this.
const OCTAVES: u64 = 16;

/// For `pct`, when nothing else is said.
const DEPTH: u32 = 3;
/// `pct` without a length: 2,000 ticks to 2 million, each order of magnitude as likely as the next.
const SHORTEST_RUN: u64 = 2_000;
const RUN_OCTAVES: u64 = 10;
/// What a new thread counts for as it begins, so that a change point may well fall there.
const NEW_THREAD: u64 = 64;
/// `pct`: a runnable thread that wasn't chosen for this many times (and up to 16 times as many, by seed) is put
/// first once. Otherwise threads that come and go for ever could keep the others waiting for ever.
const PATIENCE: u32 = 64;

/// Priorities: those given at first are above `HIGH`, those after a change point between 1 and the
/// depth, those of threads that gave way below 0, each lower than the one before, those of threads
/// that waited for too long above `HIGHEST`, each higher than the one before.
const HIGH: i64 = 1 << 32;
const HIGHEST: i64 = 1 << 34;

/// What the policy remembers of a thread.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    priority: Option<i64>,
    spins: bool,
    /// Where it was when its last whole turn ended: instruction and registers.
    last: (u64, [u64; 16]),
    suspicion: u32,
    /// How often another was chosen while it could have been.
    passed_over: u32,
    /// `random`: it isn't chosen before so much work is done, as long as there are others.
    held_until: u64,
}

/// Where a policy finds what it remembers of each thread.
pub trait Standings {
    fn of(&mut self, slot: usize) -> &mut Standing;
    /// Its number, and where in its life it is.
    fn whose(&self, slot: usize) -> (ThreadId, Point);
}

impl Standing {
    /// A whole turn ended at `pc`, without a system call if `quiet`. Whether the thread seems to
    /// spin: it is where it was, and at most one register, which may count, isn't what it was. Most
    /// loops that compute change more.
    pub fn turn_ended(&mut self, pc: u64, registers: &[u64; 16], quiet: bool) -> bool {
        const SMALL: u64 = 128;
        let (last_pc, last) = std::mem::replace(&mut self.last, (pc, *registers));
        let changed = registers.iter().zip(&last).filter(|(a, b)| a != b).count();
        let near = quiet && pc.abs_diff(last_pc) <= SMALL && changed <= 1;
        self.suspicion = if near { self.suspicion + 1 } else { 0 };
        self.spins = self.suspicion >= 2 || (near && changed == 0 && pc == last_pc);
        self.spins
    }
}

#[derive(Clone, Debug)]
pub struct Policy {
    sched: Sched,
    /// For decisions about turns.
    turns: Generator,
    /// For what the kernel is made to do.
    pub chaos: Chaos,
    /// For what comes from outside (signals, ended calls), so that it doesn't shift the rest.
    outside: Generator,
    /// For moments at which time passes.
    alarms: Generator,
    /// Work so far: ticks, and calls by what they count for.
    work: u64,
    /// `random`: turns are shorter than 2 to this.
    octaves: u64,
    /// `random`: for how much work the thread is held whose turn ends.
    hold: Option<u64>,
    /// For how long at most: less than 2 to this times the least.
    hold_octaves: u64,
    /// How many turns in eight end so.
    holding: u64,
    /// How many turns in 64 end at a certain instruction.
    aiming: u64,
    /// `pct`: where priorities change, last first.
    points: Vec<u64>,
    /// The lowest and the highest priority given so far.
    lowest: i64,
    highest: i64,
    patience: u32,
    turns_in_a_row: u32,
    /// `script`.
    follower: Option<Box<Follower>>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::new(&Options::default(), 0)
    }
}

impl Policy {
    /// For the process with this `lineage`; 0 is the first of a run.
    pub fn new(options: &Options, lineage: u64) -> Policy {
        let mut seeds = Generator::new(options.seed.unwrap_or(0) ^ mix(lineage));
        let script = options.script.as_deref();
        let followed = script.filter(|script| lineage_of(&script.process) == lineage);
        let mut policy = Policy {
            sched: match options.sched {
                Sched::Script if followed.is_none() => Sched::Fair,
                sched => sched,
            },
            turns: Generator::new(seeds.number()),
            outside: Generator::new(seeds.number()),
            chaos: Chaos::new(options.chaos, seeds.number()),
            alarms: Generator::new(seeds.number()),
            work: 0,
            octaves: OCTAVES,
            hold: None,
            hold_octaves: 1,
            holding: 0,
            aiming: 0,
            points: Vec::new(),
            lowest: 0,
            highest: HIGHEST,
            patience: PATIENCE,
            turns_in_a_row: 0,
            follower: None,
        };
        match policy.sched {
            Sched::Fair => {}
            Sched::Script => {
                policy.follower = followed.map(|script| Box::new(Follower::new(script)));
            }
            Sched::Random => policy.choose_octaves(options.length),
            Sched::Pct => {
                policy.choose_points(options.depth.unwrap_or(DEPTH), options.length);
                policy.patience <<= policy.turns.below(5);
                policy.aiming = 44;
            }
        }
        policy
    }

    /// How long the longest turns are and how many end with the thread held back, once for the whole run: some bugs
    /// need threads that are hardly apart, others one that stays where it is while others get far ahead.
    fn choose_octaves(&mut self, length: Option<u64>) {
        let magnitude = length.map_or(OCTAVES, |length| u64::from(length.max(4).ilog2()));
        let most = magnitude.min(OCTAVES);
        // Most bugs need some work between two switches, and not much.
        self.octaves = match self.turns.below(2) {
            0 if most > 8 => 3 + self.turns.below(6),
            _ => 1 + self.turns.below(most),
        };
        self.hold_octaves = 1 + self.turns.below(magnitude.saturating_sub(HELD + 1).max(1));
        self.holding = [0, 1, 4, 4, 4, 4][self.turns.below(6) as usize];
        self.aiming = [8, 40, 60][self.turns.below(3) as usize];
    }

    /// Change points, uniformly over the length of a run; without one it is guessed.
    fn choose_points(&mut self, depth: u32, length: Option<u64>) {
        let length = length.unwrap_or_else(|| {
            let base = SHORTEST_RUN << self.turns.below(RUN_OCTAVES);
            base + self.turns.below(base)
        });
        let count = depth.saturating_sub(1);
        self.points = (0..count).map(|_| self.turns.below(length)).collect();
        self.points.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Whether turns may end between two ticks although nothing is recorded.
    pub fn hunts(&self) -> bool {
        self.sched != Sched::Fair
    }

    /// After how many ticks a wait of so many is over, in virtual time: None if the clock says. Each order of magnitude is as
    /// likely as the next.
    pub fn patience_of(&mut self, ticks: u64) -> Option<u64> {
        if self.sched == Sched::Fair || self.alarms.below(4) == 0 {
            return None;
        }
        let base = 1 << self.alarms.below(u64::from(ticks.max(2).ilog2()));
        Some(base + self.alarms.below(base))
    }

    /// Whether only time tells that a turn is too long.
    pub fn watches_time(&self) -> bool {
        self.sched == Sched::Fair
    }

    /// Ticks of a turn while others could run.
    pub fn turn_length(&mut self, standing: &Standing) -> u64 {
        match self.sched {
            Sched::Fair => {
                let usual = if standing.spins {
                    SUSPECT_TURN
                } else {
                    FAIR_TURN
                };
                usual / 2 + self.turns.below(usual)
            }
            // From none to as many as was chosen, each order of magnitude as likely as the next.
            Sched::Random if self.turns.below(TICKLESS_TURNS) == 0 => 0,
            Sched::Random => {
                let base = 1 << self.turns.below(self.octaves);
                base + self.turns.below(base)
            }
            Sched::Script => PRIORITY_TURN,
            Sched::Pct => match self.points.last() {
                Some(&point) => point.saturating_sub(self.work).clamp(1, PRIORITY_TURN),
                None => PRIORITY_TURN,
            },
        }
    }

    /// Ticks after which the thread is looked at, at the beginning of its turn; None if it isn't.
    pub fn glance(&mut self) -> Option<u64> {
        (self.sched != Sched::Random).then(|| GLANCE + self.turns.below(GLANCE))
    }

    /// How a turn ends after its last tick; `outside`: it ends because something came from there.
    pub fn ending(&mut self, outside: bool) -> Ending {
        let generator = if outside {
            &mut self.outside
        } else {
            &mut self.turns
        };
        if self.holding != 0 && !outside && generator.below(8) < self.holding {
            let base = 1 << (HELD + generator.below(self.hold_octaves));
            self.hold = Some(base + generator.below(base));
        }
        // Often at once: at a tick itself, data is as likely to be half done as anywhere.
        if generator.below(4) == 0 {
            return Ending::AT_TICK;
        }
        let most = match self.sched {
            Sched::Pct if self.points.len() < FEW_POINTS => LONG_AIM,
            _ => SHORT_AIM,
        };
        let mut which = generator.below(64);
        if which < self.aiming {
            let count = 1 + generator.below(MOST_COUNTED) as u32;
            let aim = match which % 4 {
                0 => Aim::Lock {
                    count,
                    after: false,
                },
                1 => Aim::Lock { count, after: true },
                _ => Aim::Access(count),
            };
            return Ending { aim, most };
        }
        let likely: &[(u64, u64)] = match self.sched {
            Sched::Fair => &FAIR_STEPS,
            Sched::Random | Sched::Pct => &HUNTING_STEPS,
            Sched::Script => &[],
        };
        which = generator.below(64);
        let mut most = 0;
        for &(share, steps) in likely {
            if which < share {
                most = generator.below(steps) as u32;
                break;
            }
            which -= share;
        }
        let aim = Aim::Steps;
        Ending { aim, most }
    }

    /// A thread begins.
    pub fn begins(&mut self) {
        if self.sched == Sched::Pct {
            self.count_work(NEW_THREAD);
        }
    }

    /// What a system call counts for, in ticks.
    pub fn call_cost(&self) -> u64 {
        match self.sched {
            Sched::Fair => FAIR_CALL,
            Sched::Random | Sched::Pct | Sched::Script => HUNTING_CALL,
        }
    }

    pub fn count_work(&mut self, ticks: u64) {
        self.work += ticks;
    }

    /// Whether the current thread must not go on while others are runnable.
    pub fn overdue<'a>(
        &self,
        current: &Standing,
        mut others: impl Iterator<Item = &'a Standing>,
    ) -> bool {
        if self.sched != Sched::Pct {
            return false;
        }
        // One without a priority is new, and gets its own at the choice.
        self.points.last().is_some_and(|&point| point <= self.work)
            || others.any(|other| other.priority.is_none() || other.priority > current.priority)
    }

    /// The current thread waits by spinning or said that it gives way.
    pub fn gives_way(&mut self, standing: &mut Standing) {
        if self.sched == Sched::Pct {
            self.lowest -= 1;
            standing.priority = Some(self.lowest);
        }
        if let Some(follower) = &mut self.follower {
            follower.gives_way();
        }
    }

    /// Of `script` only: what follows it.
    pub fn follower(&mut self) -> Option<&mut Follower> {
        self.follower.as_deref_mut()
    }

    /// Whether the current thread's turn is one of a script.
    pub fn has_turn(&self) -> bool {
        self.follower.as_ref().is_some_and(|f| f.has_turn())
    }

    /// What the current thread, which is at that point, does next by the script; None without one.
    pub fn goal(&mut self, at: Point) -> Option<Goal> {
        Some(self.follower()?.goal(at))
    }

    /// Takes the next thread out of `queue`, oldest first there. `current`, if it can go on, is a
    /// candidate for policies with priorities only. None: it goes on.
    pub fn next(
        &mut self,
        queue: &mut VecDeque<usize>,
        current: Option<usize>,
        standings: &mut impl Standings,
    ) -> Option<usize> {
        match self.sched {
            Sched::Fair => queue.pop_front(),
            Sched::Script => self.follower.as_mut()?.next(queue, current, standings),
            Sched::Random => {
                let hold = self.hold.take().map_or(0, |hold| self.work + hold);
                if let Some(current) = current {
                    standings.of(current).held_until = hold;
                }
                let work = self.work;
                let mut held = |at: &usize| standings.of(queue[*at]).held_until > work;
                let free: Vec<usize> = (0..queue.len()).filter(|at| !held(at)).collect();
                let at = match free.len() {
                    0 if current.is_some() => return None,
                    0 => self.turns.below(queue.len().max(1) as u64) as usize,
                    count => free[self.turns.below(count as u64) as usize],
                };
                queue.remove(at)
            }
            Sched::Pct => {
                for &slot in current.iter().chain(queue.iter()) {
                    let priority = &mut standings.of(slot).priority;
                    if priority.is_none() {
                        *priority = Some(HIGH + (self.turns.number() >> 32) as i64);
                    }
                }
                self.pass_points(current.map(|slot| standings.of(slot)));
                let mut priority = |slot: usize| standings.of(slot).priority;
                // Equal ones (most unlikely): the older in the queue.
                let best = (0..queue.len()).rev().max_by_key(|&at| priority(queue[at]));
                match (best, current) {
                    (Some(at), Some(current)) if priority(queue[at]) <= priority(current) => {
                        self.turns_in_a_row += 1;
                        if self.turns_in_a_row < TURNS_IN_A_ROW {
                            return None;
                        }
                        self.gives_way(standings.of(current));
                    }
                    _ => {}
                }
                self.turns_in_a_row = 0;
                let chosen = self.neglected(queue, standings).or(best)?;
                let slot = queue.remove(chosen);
                queue
                    .iter()
                    .for_each(|&other| standings.of(other).passed_over += 1);
                slot.inspect(|&slot| standings.of(slot).passed_over = 0)
            }
        }
    }

    /// Where in the queue one is that has waited for too long; it gets the highest priority.
    fn neglected(
        &mut self,
        queue: &VecDeque<usize>,
        standings: &mut impl Standings,
    ) -> Option<usize> {
        let patience = self.patience;
        let at = queue
            .iter()
            .position(|&slot| standings.of(slot).passed_over >= patience)?;
        self.highest += 1;
        standings.of(queue[at]).priority = Some(self.highest);
        Some(at)
    }

    /// Change points that were reached lower the priority of whoever reached them.
    fn pass_points(&mut self, current: Option<&mut Standing>) {
        let mut lowered = None;
        while self.points.last().is_some_and(|&point| point <= self.work) {
            self.points.pop();
            lowered = Some(self.points.len() as i64 + 1);
        }
        if let (Some(standing), Some(priority)) = (current, lowered)
            && standing.priority > Some(priority)
        {
            standing.priority = Some(priority);
        }
    }

    /// Whether any waiter may be woken, rather than the one that waits longest.
    pub fn wakes_at_random(&self) -> bool {
        self.sched == Sched::Random || self.chaos.mixes_wakes()
    }

    /// The current thread is to be held back for long.
    pub fn delays(&mut self) {
        let base = 1 << (DELAY + self.turns.below(DELAY));
        self.hold = Some(base + self.turns.below(base));
    }

    /// A choice out of `count`.
    pub fn choose(&mut self, count: usize) -> usize {
        self.turns.below(count as u64) as usize
    }
}

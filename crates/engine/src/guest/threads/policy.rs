//! Scheduling policies: how long a turn is, who is next, where in the code it ends.
//!
//! In: what the scheduler sees (ticks, calls, who is runnable). Out: decisions. They depend on the
//! seed and on what the guest does, never on time, on process ids or on the engine's addresses: the
//! same seed and the same inputs give the same schedule. (The fair policy alone also ends a turn
//! that takes too much time, see `clock`.)

use std::collections::VecDeque;

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

/// Single steps after a turn's last tick are fewer than this: more than most stretches between
/// two ticks have, so that any instruction can be the last.
const MOST_STEPS: u64 = 16;

/// For `pct`, when nothing else is said.
const DEPTH: u32 = 3;

/// Priorities: those given at first are above `HIGH`, those after a change point between 1 and the
/// depth, those of threads that gave way below 0, each lower than the one before.
const HIGH: i64 = 1 << 32;

/// SplitMix64 (Steele, Lea, Flood 2014). Our own, because a seed written down once must mean the
/// same schedule in every later version: no library promises that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generator(u64);

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound` (which isn't 0); as good as uniform for the small bounds here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Which process of the tree this is, without its pid: made of the parent's and how many children
/// that had before.
pub fn lineage_of_child(parent: u64, children_before: u64) -> u64 {
    mix(parent
        .wrapping_add(children_before)
        .wrapping_add(0x632b_e59b_d9b4_e019))
}

/// What the policy remembers of a thread.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    priority: Option<i64>,
    spins: bool,
    /// Where it was when its last whole turn ended: instruction and registers.
    last: (u64, [u64; 16]),
    suspicion: u32,
}

/// Where a policy finds what it remembers of each thread.
pub trait Standings {
    fn of(&mut self, slot: usize) -> &mut Standing;
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
    /// For what comes from outside (signals, ended calls), so that it doesn't shift the rest.
    outside: Generator,
    /// Work so far: ticks, and calls by what they count for.
    work: u64,
    /// `pct`: where priorities change, last first.
    points: Vec<u64>,
    /// The lowest priority given so far.
    lowest: i64,
    turns_in_a_row: u32,
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
        let mut policy = Policy {
            sched: options.sched,
            turns: Generator::new(seeds.number()),
            outside: Generator::new(seeds.number()),
            work: 0,
            points: Vec::new(),
            lowest: 0,
            turns_in_a_row: 0,
        };
        if options.sched == Sched::Pct {
            policy.choose_points(options.depth.unwrap_or(DEPTH));
        }
        policy
    }

    /// Change points over the length of a run, which is guessed: 100,000 to 1.6 million ticks,
    /// each order of magnitude as likely as the next.
    fn choose_points(&mut self, depth: u32) {
        let base = 100_000 << self.turns.below(4);
        let length = base + self.turns.below(base);
        let count = depth.saturating_sub(1);
        self.points = (0..count).map(|_| self.turns.below(length)).collect();
        self.points.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Whether turns may end between two ticks although nothing is recorded.
    pub fn hunts(&self) -> bool {
        self.sched != Sched::Fair
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
            // From a few ticks to tens of thousands, each order of magnitude as likely as the next.
            Sched::Random => {
                let base = 4 << self.turns.below(14);
                base + self.turns.below(base)
            }
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

    /// How many instructions a turn goes on after its last tick; `outside`: it ends because
    /// something came from there.
    pub fn steps(&mut self, outside: bool) -> u32 {
        let generator = if outside {
            &mut self.outside
        } else {
            &mut self.turns
        };
        // Often none: at a tick itself, data is as likely to be half done as anywhere.
        if generator.below(4) == 0 {
            0
        } else {
            generator.below(MOST_STEPS) as u32
        }
    }

    /// What a system call counts for, in ticks.
    pub fn call_cost(&self) -> u64 {
        match self.sched {
            Sched::Fair => FAIR_CALL,
            Sched::Random | Sched::Pct => HUNTING_CALL,
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
            Sched::Random if queue.is_empty() => None,
            Sched::Random => queue.remove(self.turns.below(queue.len() as u64) as usize),
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
                best.and_then(|at| queue.remove(at))
            }
        }
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
        self.sched == Sched::Random
    }

    /// A choice out of `count`.
    pub fn choose(&mut self, count: usize) -> usize {
        self.turns.below(count as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Standings for Vec<Standing> {
        fn of(&mut self, slot: usize) -> &mut Standing {
            &mut self[slot]
        }
    }

    fn policy(sched: Sched, seed: u64) -> Policy {
        let options = Options {
            sched,
            seed: Some(seed),
            ..Options::default()
        };
        Policy::new(&options, 0)
    }

    #[test]
    fn the_generator_is_splitmix64() {
        // The published test vector for seed 1234567.
        let mut generator = Generator::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| generator.number()).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
        assert!((0..1000).all(|_| generator.below(7) < 7));
    }

    #[test]
    fn a_seed_is_a_schedule() {
        for sched in [Sched::Fair, Sched::Random, Sched::Pct] {
            let lengths = |seed, lineage| {
                let options = Options {
                    sched,
                    seed: Some(seed),
                    ..Options::default()
                };
                let mut policy = Policy::new(&options, lineage);
                let decide = |_| {
                    (
                        policy.turn_length(&Standing::default()),
                        policy.steps(false),
                    )
                };
                (0..50).map(decide).collect::<Vec<_>>()
            };
            assert_eq!(lengths(7, 0), lengths(7, 0));
            assert_ne!(lengths(7, 0), lengths(8, 0));
            assert_ne!(lengths(7, 0), lengths(7, lineage_of_child(0, 0)));
        }
    }

    #[test]
    fn children_have_schedules_of_their_own() {
        let first = lineage_of_child(0, 0);
        let second = lineage_of_child(0, 1);
        assert!(first != second && first != 0);
        assert_ne!(lineage_of_child(first, 0), lineage_of_child(second, 0));
    }

    #[test]
    fn random_turns_are_short_and_long() {
        let mut policy = policy(Sched::Random, 1);
        let lengths: Vec<u64> = (0..1000)
            .map(|_| policy.turn_length(&Standing::default()))
            .collect();
        assert!(lengths.iter().any(|&l| l < 16) && lengths.iter().any(|&l| l > 20_000));
        assert!(lengths.iter().all(|&l| (4..65_536).contains(&l)));
    }

    #[test]
    fn any_of_sixteen_instructions_can_be_last() {
        let mut policy = policy(Sched::Fair, 3);
        let mut seen = [0; MOST_STEPS as usize];
        for _ in 0..2000 {
            seen[policy.steps(false) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| n > 0) && seen[0] > 400);
    }

    #[test]
    fn what_comes_from_outside_shifts_nothing() {
        let (mut quiet, mut disturbed) = (policy(Sched::Random, 5), policy(Sched::Random, 5));
        for _ in 0..20 {
            disturbed.steps(true);
            let standing = Standing::default();
            assert_eq!(
                quiet.turn_length(&standing),
                disturbed.turn_length(&standing)
            );
        }
    }

    #[test]
    fn spinning_is_noticed_and_computing_is_not() {
        let registers = |counter: u64, sum: u64| {
            let mut registers = [7; 16];
            (registers[1], registers[2]) = (counter, sum);
            registers
        };
        let mut standing = Standing::default();
        assert!(!standing.turn_ended(0x1000, &registers(1, 1), true));
        assert!(standing.turn_ended(0x1000, &registers(1, 1), true));
        // A counter in the loop: it takes longer to be sure.
        let mut standing = Standing::default();
        let turns: Vec<bool> = (0..4)
            .map(|n| standing.turn_ended(0x1000 + n, &registers(n, 1), true))
            .collect();
        assert_eq!(turns, [false, false, true, true]);
        // System calls, code that moves about, more that changes.
        let mut standing = Standing::default();
        assert!((0..5).all(|_| !standing.turn_ended(0x1000, &registers(1, 1), false)));
        assert!((0..5).all(|n| !standing.turn_ended(0x1000 * n, &registers(1, 1), true)));
        assert!((0..5).all(|n| !standing.turn_ended(0x1000, &registers(n, n), true)));
    }

    #[test]
    fn highest_priority_runs_until_it_changes() {
        let mut policy = policy(Sched::Pct, 9);
        let mut standings = vec![Standing::default(); 3];
        let mut queue = VecDeque::from([1, 2]);
        let first = policy.next(&mut queue, Some(0), &mut standings);
        let current = first.unwrap_or(0);
        if first.is_some() {
            queue.push_back(0);
        }
        // It stays, until a change point.
        assert_eq!(policy.next(&mut queue, Some(current), &mut standings), None);
        policy.count_work(2_000_000);
        let second = policy.next(&mut queue, Some(current), &mut standings);
        assert!(second.is_some() && second != Some(current));
    }

    #[test]
    fn one_that_never_waits_is_lowered_in_the_end() {
        let mut policy = policy(Sched::Pct, 9);
        policy.points.clear();
        let mut standings = vec![Standing::default(); 2];
        standings[0].priority = Some(HIGH + 5);
        standings[1].priority = Some(HIGH + 1);
        let mut queue = VecDeque::from([1]);
        let goes = |_| policy.next(&mut queue, Some(0), &mut standings).is_some();
        let turns = (0..100).position(goes);
        assert_eq!(turns, Some(TURNS_IN_A_ROW as usize - 1));
        assert!(standings[0].priority < Some(0));
    }
}

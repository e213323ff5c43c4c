//! Which run of a hunt tries which order. In: profiles of runs. Out: schedules, one after the other, and how many orders there are.
//!
//! Runs come in rounds. A round begins with a few random runs that are profiled (the first one has the hunt's ordinary run for that),
//! then come the schedules that all profiles so far give and that weren't tried yet. Everything in a round follows from the
//! profiles of its beginning, so that it is the same with any number of jobs.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clew_recording::script::Script;

use super::predict::{self, Key, View};
use super::profile::Profile;
use super::steer::{Course, Steer};
use crate::strategy::Shard;

/// Random runs that are profiled at the beginning of a round.
const PROFILED: u64 = 4;
/// How many schedules a round has, for each shard.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub first: usize,
    /// Of all others.
    pub others: usize,
    /// No orders are predicted: rounds have as many random runs, which others may use as they like.
    pub profiles_only: bool,
}

impl Sizes {
    /// For hunts that are led by orders of accesses alone: a quarter of the later runs is random, because not every bug is one.
    pub const ALONE: Sizes = Sizes {
        first: 30,
        others: 12,
        profiles_only: false,
    };
    /// For hunts that do much else.
    pub const AMONG_OTHERS: Sizes = Sizes {
        first: 16,
        others: 12,
        profiles_only: false,
    };
    pub const PROFILES: Sizes = Sizes {
        first: 20,
        others: 36,
        profiles_only: true,
    };
}
/// Random runs of a round that has no schedules, and how many of these follow each other at most.
const WITHOUT: u64 = 6;
const MOST_WITHOUT: u64 = 96;
/// Schedules kept for later rounds.
const MOST_WAITING: usize = 4_000;
/// How often somebody who waits for a round to begin looks whether the hunt is over.
const LOOK: Duration = Duration::from_millis(50);

/// What a run does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A random run, profiled: its number among all of those.
    Profile(u64),
    Random,
    Follow(Script),
}

/// How many orders of accesses there are, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// In profiled runs.
    pub seen: usize,
    /// Predicted and neither seen nor tried yet.
    pub untested: usize,
    /// Runs were led to them; whether they came about wasn't looked at.
    pub tried: usize,
}

pub struct Explorer {
    seed: u64,
    shard: Shard,
    sizes: Sizes,
    rounds: Mutex<Rounds>,
    changed: Condvar,
}

struct Rounds {
    rounds: Vec<Round>,
    known: Known,
    /// Random runs of the next round without schedules.
    without: u64,
}

struct Round {
    /// Its first run.
    start: u64,
    profiles: u64,
    /// What came of them; None for one that couldn't be profiled.
    came: BTreeMap<u64, Option<Profile>>,
    /// Once all came: the steps, and which orders they try.
    then: Option<Vec<(Step, Option<Key>)>>,
}

/// A schedule that may be tried.
struct Waiting {
    key: Key,
    tier: u32,
    /// Its place among the ways to bring its order about.
    way: u32,
    count: usize,
    steer: Steer,
    course: Arc<Course>,
}

#[derive(Default)]
struct Known {
    seen: BTreeSet<Key>,
    predicted: BTreeSet<Key>,
    /// In rounds that have begun, and how often.
    chosen: BTreeMap<Key, u32>,
    /// In runs.
    tried: BTreeSet<Key>,
    /// What was learned from, with the round.
    courses: Vec<(usize, Arc<Course>)>,
    /// Schedules of all rounds, by their hashes.
    made: HashSet<u64>,
    waiting: Vec<Waiting>,
}

fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl Known {
    fn learn(&mut self, round: usize, profiles: Vec<Profile>, predicts: bool) {
        let courses: Vec<Arc<Course>> = profiles
            .into_iter()
            .map(|profile| Arc::new(Course::new(profile)))
            .collect();
        let learned = courses.iter().map(|course| (round, course.clone()));
        self.courses.extend(learned);
        if !predicts {
            return;
        }
        let views: Vec<View> = courses.iter().map(|c| View::new(c.profile())).collect();
        for view in &views {
            self.seen.extend(predict::seen(view));
        }
        for (view, course) in views.iter().zip(&courses) {
            for candidate in predict::predict(view, &self.seen) {
                self.predicted.insert(candidate.key);
                let steers = candidate.steers.into_iter().zip(0..);
                self.waiting.extend(steers.map(|(steer, way)| Waiting {
                    key: candidate.key,
                    tier: candidate.tier,
                    way,
                    count: candidate.count,
                    steer,
                    course: course.clone(),
                }));
            }
        }
        let seen = &self.seen;
        self.waiting.retain(|waiting| !seen.contains(&waiting.key));
    }

    /// The best schedules, at most so many, and what they try.
    fn choose(&mut self, most: usize, seed: u64) -> Vec<(Script, Key)> {
        let chosen = &self.chosen;
        let order = |one: &Waiting| {
            let before = chosen.get(&one.key).copied().unwrap_or(0);
            // Every way that was tried in vain makes the next one less promising.
            let turn = one.tier + 3 * before.max(one.way) / 2;
            (turn, one.tier, one.count, hash(&(seed, one.key)), one.way)
        };
        self.waiting.sort_by_cached_key(order);
        self.waiting.truncate(MOST_WAITING);
        let mut schedules = Vec::new();
        let mut looked_at = 0;
        for one in &self.waiting {
            if schedules.len() == most {
                break;
            }
            looked_at += 1;
            let script = one.course.script(&one.steer);
            // Ways to different orders may be the same.
            let new = |script: &Script| self.made.insert(hash(&script.to_string()));
            if let Some(script) = script.filter(new) {
                schedules.push((script, one.key));
                *self.chosen.entry(one.key).or_default() += 1;
            }
        }
        self.waiting.drain(..looked_at);
        schedules
    }

    fn coverage(&self) -> Coverage {
        let untested = |key: &&Key| !self.seen.contains(key) && !self.tried.contains(key);
        Coverage {
            seen: self.seen.len(),
            untested: self.predicted.iter().filter(untested).count(),
            tried: self.tried.len(),
        }
    }
}

impl Round {
    fn end(&self) -> Option<u64> {
        let then = self.then.as_ref()?;
        Some(self.start + self.profiles + then.len() as u64)
    }
}

impl Explorer {
    /// `first`: of the hunt's ordinary run, if it could be profiled.
    pub fn new(seed: u64, shard: Shard, sizes: Sizes, first: Option<Profile>) -> Explorer {
        let explorer = Explorer {
            seed,
            shard,
            sizes,
            rounds: Mutex::new(Rounds {
                rounds: vec![Round {
                    start: 0,
                    profiles: 0,
                    came: BTreeMap::new(),
                    then: None,
                }],
                known: Known::default(),
                without: WITHOUT,
            }),
            changed: Condvar::new(),
        };
        let mut rounds = explorer.lock();
        explorer.complete(&mut rounds, 0, first.into_iter().collect());
        drop(rounds);
        explorer
    }

    fn lock(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this shard's run `n`, from 0, does. Waits for the profiles that it depends on; None if the hunt is over.
    pub fn step(&self, n: u64, is_over: &dyn Fn() -> bool) -> Option<Step> {
        let mut rounds = self.lock();
        loop {
            let number = rounds.rounds.partition_point(|round| round.start <= n);
            let round = &rounds.rounds[number.checked_sub(1)?];
            let at = n - round.start;
            if at < round.profiles {
                // The first round has none.
                return Some(Step::Profile((number as u64 - 2) * PROFILED + at));
            }
            if let Some(then) = &round.then {
                let step = usize::try_from(at - round.profiles).ok()?;
                if let Some((step, key)) = then.get(step).cloned() {
                    rounds.known.tried.extend(key);
                    return Some(step);
                }
                let next = Round {
                    start: round.end()?,
                    profiles: PROFILED,
                    came: BTreeMap::new(),
                    then: None,
                };
                rounds.rounds.push(next);
                continue;
            }
            if is_over() {
                return None;
            }
            let waited = self.changed.wait_timeout(rounds, LOOK);
            rounds = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What all profiled runs before this shard's run `n` showed. Waits for them; None if the hunt is over.
    pub fn courses(&self, n: u64, is_over: &dyn Fn() -> bool) -> Option<Vec<Arc<Course>>> {
        // Whoever makes the run before may not have come so far.
        if let Some(before) = n.checked_sub(1) {
            self.step(before, is_over)?;
        }
        let mut rounds = self.lock();
        loop {
            let begun = |round: &&Round| round.start + round.profiles <= n;
            let count = rounds.rounds.iter().take_while(begun).count();
            if rounds.rounds[..count].iter().all(|r| r.then.is_some()) {
                let known = rounds.known.courses.iter();
                let known = known.filter(|(round, _)| *round < count);
                return Some(known.map(|(_, course)| course.clone()).collect());
            }
            if is_over() {
                return None;
            }
            let waited = self.changed.wait_timeout(rounds, LOOK);
            rounds = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What came of this shard's run `n`, which was to be profiled.
    pub fn profiled(&self, n: u64, profile: Option<Profile>) {
        let mut rounds = self.lock();
        let number = rounds.rounds.partition_point(|round| round.start <= n) - 1;
        let round = &mut rounds.rounds[number];
        round.came.insert(n, profile);
        if round.came.len() as u64 == round.profiles {
            // In the order of their numbers, whoever was done first.
            let came = std::mem::take(&mut round.came);
            let profiles = came.into_values().flatten().collect();
            self.complete(&mut rounds, number, profiles);
        }
    }

    /// All profiles of a round are there.
    fn complete(&self, rounds: &mut Rounds, number: usize, profiles: Vec<Profile>) {
        let predicts = !self.sizes.profiles_only;
        rounds.known.learn(number, profiles, predicts);
        let parts = usize::try_from(self.shard.parts()).unwrap_or(usize::MAX);
        let most = if number == 0 {
            self.sizes.first
        } else {
            self.sizes.others
        };
        if !predicts {
            rounds.rounds[number].then = Some(vec![(Step::Random, None); most]);
            self.changed.notify_all();
            return;
        }
        let all = most.saturating_mul(parts);
        let schedules = rounds.known.choose(all, self.seed);
        let mut then: Vec<(Step, Option<Key>)> = Vec::new();
        for (place, (script, key)) in schedules.into_iter().enumerate() {
            if self.shard.has(place as u64) {
                then.push((Step::Follow(script), Some(key)));
            }
        }
        if then.is_empty() && number > 0 {
            then = vec![(Step::Random, None); rounds.without as usize];
            rounds.without = (rounds.without * 2).min(MOST_WITHOUT);
        }
        rounds.rounds[number].then = Some(then);
        self.changed.notify_all();
    }

    pub fn coverage(&self) -> Coverage {
        self.lock().known.coverage()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idiom::testing::Story;

    fn lost_update(pcs: u64) -> Profile {
        let mut story = Story::default();
        story.made(1, 0).made(2, 0);
        for thread in [1, 2] {
            for _ in 0..3 {
                story.read(thread, pcs, 0x9000);
                story.write(thread, pcs + 4, 0x9000);
            }
        }
        story.profile()
    }

    fn steps(explorer: &Explorer, runs: std::ops::Range<u64>) -> Vec<Step> {
        let step = |n| {
            let step = explorer.step(n, &|| true).unwrap();
            if matches!(step, Step::Profile(_)) {
                explorer.profiled(n, Some(lost_update(0x40)));
            }
            step
        };
        runs.map(step).collect()
    }

    #[test]
    fn schedules_then_profiles_then_what_they_show() {
        let explorer = Explorer::new(1, Shard::default(), Sizes::ALONE, Some(lost_update(0x10)));
        let all = steps(&explorer, 0..200);
        assert!(matches!(all[0], Step::Follow(_)));
        let first = all.iter().position(|s| *s == Step::Profile(0)).unwrap();
        assert_eq!(all[first + 1], Step::Profile(1));
        assert!(matches!(all[first + PROFILED as usize], Step::Follow(_)));
        // What doesn't fit into that round is in the next ones; then nothing new comes.
        let last = all.iter().rposition(|step| matches!(step, Step::Follow(_)));
        let rest = &all[last.unwrap()..];
        assert!(rest.contains(&Step::Profile(3 * PROFILED)));
        let random = rest.iter().filter(|step| **step == Step::Random);
        assert!(random.count() > 80);
        let coverage = explorer.coverage();
        assert_eq!(coverage.untested, 0);
        assert!(coverage.seen >= 2 && coverage.tried >= 2, "{coverage:?}");
    }

    #[test]
    fn no_schedule_comes_twice() {
        let explorer = Explorer::new(1, Shard::default(), Sizes::ALONE, Some(lost_update(0x10)));
        let mut scripts = HashSet::new();
        for step in steps(&explorer, 0..100) {
            if let Step::Follow(script) = step {
                assert!(scripts.insert(script.to_string()));
            }
        }
        assert!(scripts.len() >= 8);
    }

    #[test]
    fn shards_share_the_schedules() {
        let scripts = |shard: &str| {
            let explorer = Explorer::new(
                1,
                shard.parse().unwrap(),
                Sizes::ALONE,
                Some(lost_update(0x10)),
            );
            let all = steps(&explorer, 0..60).into_iter();
            let all = all.take_while(|step| matches!(step, Step::Follow(_)));
            let script = |step| match step {
                Step::Follow(script) => script.to_string(),
                other => panic!("{other:?}"),
            };
            all.map(script).collect::<BTreeSet<_>>()
        };
        let parts: Vec<_> = ["1/3", "2/3", "3/3"].map(scripts).into();
        let together: BTreeSet<_> = parts.iter().flatten().cloned().collect();
        assert_eq!(together, scripts("1/1"));
        assert_eq!(
            together.len(),
            parts.iter().map(BTreeSet::len).sum::<usize>()
        );
    }

    #[test]
    fn a_program_that_cant_be_profiled_gets_random_runs() {
        let explorer = Explorer::new(1, Shard::default(), Sizes::ALONE, None);
        let step = |n| {
            let step = explorer.step(n, &|| true).unwrap();
            if matches!(step, Step::Profile(_)) {
                explorer.profiled(n, None);
            }
            step
        };
        let all: Vec<Step> = (0..40).map(step).collect();
        assert!(!all.iter().any(|step| matches!(step, Step::Follow(_))));
        assert!(all.contains(&Step::Random));
    }

    #[test]
    fn what_is_known_before_a_run() {
        let sizes = Sizes {
            first: 2,
            others: 3,
            profiles_only: true,
        };
        let explorer = Explorer::new(1, Shard::default(), sizes, Some(lost_update(0x10)));
        let known = |n| explorer.courses(n, &|| true).map(|known| known.len());
        assert_eq!((known(0), known(2)), (Some(1), Some(1)));
        assert_eq!(steps(&explorer, 0..2), vec![Step::Random; 2]);
        // The second round's profiles aren't there.
        assert_eq!(explorer.step(2, &|| true), Some(Step::Profile(0)));
        assert_eq!(known(6), None);
        steps(&explorer, 2..6);
        assert_eq!(known(6), Some(5));
        assert_eq!(known(5), Some(1));
    }

    #[test]
    fn whoever_waits_for_profiles_ends_with_the_hunt() {
        let explorer = Explorer::new(1, Shard::default(), Sizes::ALONE, None);
        assert_eq!(explorer.step(0, &|| true), Some(Step::Profile(0)));
        assert_eq!(explorer.step(PROFILED, &|| true), None);
    }
}

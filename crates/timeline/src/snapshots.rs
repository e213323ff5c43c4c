//! Who stands where. In: workers that are left behind on journeys. Out: the nearest one before a position.
//!
//! *Regular* ones lie along the way at a distance in time, *near* ones where the user works: those used
//! longest ago go first. If there are too many, or they take too much memory, the least missed ones go
//! ([`Spacing`]). Timelines of the same stream share them, and the budget ([`Shared`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clew_engine::replay::worker::protocol::{Command, Diverged};

use crate::divergence::is_before;
use crate::pool::Pool;
use crate::usage;
use crate::worker::Worker;
use crate::{Position, Result};

/// Each is a process; channels and the kernel's tables have an end.
pub const MOST_REGULAR: usize = 180;
/// Near ones in addition.
const MOST_NEAR: usize = 48;

pub type SnapshotId = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The stream's start: never given up.
    Start,
    Regular,
    Near,
}

pub struct Snapshot {
    pub id: SnapshotId,
    pub worker: Worker,
    pub position: Position,
    pub kind: Kind,
    /// When it was last of use.
    used: u64,
}

impl Snapshot {
    pub fn work(&self) -> u64 {
        self.worker.at.work
    }
}

pub struct Snapshots {
    /// Whom they serve: no timeline in particular.
    home: Arc<Pool>,
    /// In order of their positions, none of which is there twice.
    list: Vec<Snapshot>,
    clock: u64,
    budget: u64,
    /// Bytes that they took when this was last measured, and at most so much came since.
    measured: u64,
    grown: u64,
    /// Where the replay diverges, once a timeline came there: none of them goes further.
    divergence: Option<Box<Diverged>>,
}

/// The snapshots of all timelines of one stream. Nobody may travel while it holds them: the others wait.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<Snapshots>>);

impl Shared {
    pub fn new(start: Worker, budget: u64) -> Shared {
        Shared(Arc::new(Mutex::new(Snapshots::new(start, budget))))
    }

    pub fn hold(&self) -> MutexGuard<'_, Snapshots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What one of them has to say.
    pub fn tell<T>(&self, ask: impl FnOnce(&Snapshots) -> T) -> T {
        ask(&self.hold())
    }

    /// Keeps a worker as a snapshot, if its position is known and nobody is there already.
    pub fn insert(&self, worker: Worker, kind: Kind) {
        self.hold().insert(worker, kind);
    }
}

impl Snapshots {
    pub fn new(start: Worker, budget: u64) -> Snapshots {
        let mut snapshots = Snapshots {
            home: Arc::new(start.pool().another()),
            list: Vec::new(),
            clock: 0,
            budget,
            measured: 0,
            grown: 0,
            divergence: None,
        };
        snapshots.insert(start, Kind::Start);
        snapshots
    }

    /// Keeps a worker as a snapshot, if its position is known and nobody is there already.
    pub fn insert(&mut self, mut worker: Worker, kind: Kind) {
        let Some(position) = exact(&worker) else {
            return;
        };
        worker.serve(&self.home);
        if let Some(limit) = self.divergence.as_deref().map(Diverged::limit) {
            // It may have set out before this was known.
            if position.event > limit.event || worker.send(&Command::Limit(limit)).is_err() {
                return;
            }
        }
        self.clock += 1;
        let found = self.list.binary_search_by_key(&position, |s| s.position);
        let index = match found {
            Ok(there) => {
                self.list[there].used = self.clock;
                if kind == Kind::Regular && self.list[there].kind == Kind::Near {
                    self.list[there].kind = kind;
                }
                return;
            }
            Err(index) => index,
        };
        let pid = worker.pid();
        let resident = usage::resident(pid).unwrap_or(0);
        self.grown += usage::bound(usage::faults(pid).unwrap_or(0), resident);
        let snapshot = Snapshot {
            id: self.clock,
            worker,
            position,
            kind,
            used: self.clock,
        };
        self.list.insert(index, snapshot);
        self.forget_near();
    }

    /// The runner, from which snapshots are forked, had so many faults since the last one: as many
    /// pages are no longer shared with it.
    pub fn note_faults(&mut self, faults: u64) {
        self.grown += usage::bound(faults, 0);
    }

    /// As many near ones as are allowed: those that were used last.
    fn forget_near(&mut self) {
        let near = |s: &Snapshot| s.kind == Kind::Near;
        while self.list.iter().filter(|s| near(s)).count() > MOST_NEAR {
            let oldest = self.list.iter().filter(|s| near(s)).map(|s| s.used).min();
            self.list
                .retain(|s| s.kind != Kind::Near || Some(s.used) != oldest);
        }
    }

    pub fn by_id(&mut self, id: SnapshotId) -> Option<&mut Snapshot> {
        self.list.iter_mut().find(|s| s.id == id)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Snapshot> {
        self.list.iter()
    }

    /// The last one at or before a position.
    pub fn before(&self, position: Position) -> Option<&Snapshot> {
        let index = self.list.partition_point(|s| s.position <= position);
        self.list[..index].last()
    }

    /// The first one at or behind a position.
    pub fn behind(&self, position: Position) -> Option<&Snapshot> {
        let index = self.list.partition_point(|s| s.position < position);
        self.list.get(index)
    }

    /// A new worker in the state of a snapshot, for one of the timelines that share it.
    pub fn fork(&mut self, id: SnapshotId, pool: &Arc<Pool>) -> Result<Worker> {
        self.clock += 1;
        let clock = self.clock;
        let Some(snapshot) = self.by_id(id) else {
            return Err(crate::Error::Lost);
        };
        snapshot.used = clock;
        let mut worker = snapshot.worker.fork()?;
        worker.serve(pool);
        Ok(worker)
    }

    /// This one is of no use any more: its process has died.
    pub fn forget(&mut self, id: SnapshotId) {
        self.list.retain(|s| s.id != id);
    }

    pub fn divergence(&self) -> Option<&Diverged> {
        self.divergence.as_deref()
    }

    /// The replay diverges there: no snapshot stands behind it, or leads beyond.
    pub fn end_at(&mut self, found: Box<Diverged>) {
        if (self.divergence()).is_some_and(|known| !is_before(&found, known)) {
            return;
        }
        let limit = found.limit();
        self.divergence = Some(found);
        self.list.retain(|snapshot| {
            snapshot.kind == Kind::Start || snapshot.position.event <= limit.event
        });
        for snapshot in &mut self.list {
            // One that is dead is noticed when it is needed.
            let _ = snapshot.worker.send(&Command::Limit(limit));
        }
    }

    pub fn works(&self) -> Vec<u64> {
        self.list.iter().map(Snapshot::work).collect()
    }

    /// Gives up as many as it takes to stay within what is allowed. `present`: where the user is, as work;
    /// `interval`: the distance of regular ones; `others`: processes that count too.
    pub fn fit(&mut self, present: u64, interval: u64, others: &[i32]) {
        let regular = |list: &[Snapshot]| list.iter().filter(|s| s.kind != Kind::Near).count();
        while regular(&self.list) > MOST_REGULAR {
            if !self.give_up(present, interval, |s| s.kind == Kind::Regular) {
                break;
            }
        }
        // Somewhat below the budget: what is under way takes memory too, until it is looked at again.
        let (high, low) = (self.budget / 4 * 3, self.budget / 2);
        if self.measured + self.grown <= high {
            return;
        }
        loop {
            if let Some(first) = self.list.first() {
                first.worker.pool().reap_all();
            }
            let all = self.list.iter().map(|s| s.worker.pid());
            self.measured = usage::together(all.chain(others.iter().copied()));
            self.grown = 0;
            if self.measured <= low || (self.measured <= high && self.list.len() < 4) {
                return;
            }
            // Each takes about the same; those that are left take over what they shared.
            let keep = self.list.len() as u64 * low / self.measured;
            let drop = (self.list.len() as u64 - keep).div_ceil(2).max(1);
            for _ in 0..drop {
                if !self.give_up(present, interval, |s| s.kind != Kind::Start) {
                    return;
                }
            }
        }
    }

    fn give_up(&mut self, present: u64, interval: u64, may: impl Fn(&Snapshot) -> bool) -> bool {
        let works = self.works();
        let spacing = Spacing { present, interval };
        let victim = spacing.least_missed(&works, |n| may(&self.list[n]));
        if let Some(victim) = victim {
            self.list.remove(victim);
        }
        victim.is_some()
    }
}

/// The position of a worker, if its instructions are counted.
pub fn exact(worker: &Worker) -> Option<Position> {
    crate::seek::position_of(&worker.at)
}

/// Which snapshots are worth most: half of them evenly spread over everything, half of them the denser the
/// nearer the user is.
pub struct Spacing {
    pub present: u64,
    pub interval: u64,
}

impl Spacing {
    /// Of snapshots at these places (ascending), the one whose absence leaves the most bearable gap. The first
    /// is never it.
    pub fn least_missed(&self, works: &[u64], may: impl Fn(usize) -> bool) -> Option<usize> {
        let first = works.first().copied().unwrap_or(0);
        let end = works.last().copied().unwrap_or(0).max(self.present);
        let whole = (end - first).max(1) as f64;
        let interval = self.interval.max(1) as f64;
        let near = 1.0 / (1.0 + whole / interval).ln().max(f64::EPSILON);
        let weight = |n: usize| {
            let next = works.get(n + 1).copied().unwrap_or(end).max(works[n]);
            let gap = (next - works[n - 1]) as f64;
            let away = works[n].abs_diff(self.present) as f64;
            gap * (1.0 / whole + near / (interval + away))
        };
        (1..works.len())
            .filter(|&n| may(n))
            .map(|n| (n, weight(n)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(n, _)| n)
    }
}

/// Where, going forward from `from`, the next snapshot is wanted: an interval behind the last one, where
/// none is about there already.
pub fn next_wanted(works: &[u64], from: u64, interval: u64) -> u64 {
    let index = works.partition_point(|&work| work <= from);
    let before = works[..index].last().copied().unwrap_or(0);
    let mut wanted = before.saturating_add(interval).max(from + 1);
    for &there in &works[index..] {
        if there > wanted.saturating_add(interval / 2) {
            break;
        }
        wanted = wanted.max(there.saturating_add(interval));
    }
    wanted
}

/// How far before `to` to leave near snapshots, ascending: a search from there back looks at little
/// first, then at ever more.
pub fn distances(length: u64) -> Vec<u64> {
    /// Some hundred microseconds of replay, instrumented.
    const FIRST: u64 = 10_000;
    const TIMES: u64 = 4;
    let mut all = Vec::new();
    let mut distance = FIRST;
    while distance < length / 2 {
        all.push(distance);
        distance *= TIMES;
    }
    // One that halves what is left.
    if length > 4 * FIRST && all.last().is_some_and(|&last| last < length / 3) {
        all.push(length / 2);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thinned(mut works: Vec<u64>, present: u64, interval: u64, keep: usize) -> Vec<u64> {
        let spacing = Spacing { present, interval };
        while works.len() > keep {
            let n = spacing.least_missed(&works, |_| true).unwrap();
            works.remove(n);
        }
        works
    }

    #[test]
    fn thinning_keeps_the_start_and_the_whole() {
        let works: Vec<u64> = (0..1000).map(|n| n * 100).collect();
        let kept = thinned(works, 99_900, 100, 50);
        assert_eq!(kept[0], 0);
        let gaps: Vec<u64> = kept.windows(2).map(|w| w[1] - w[0]).collect();
        // An even spread would have gaps of 2,000.
        assert!(gaps.iter().all(|&gap| gap <= 6_000), "{gaps:?}");
    }

    #[test]
    fn denser_near_the_present() {
        let works: Vec<u64> = (0..1000).map(|n| n * 100).collect();
        for present in [0, 50_000, 99_900] {
            let kept = thinned(works.clone(), present, 100, 60);
            let within = |distance: u64| {
                let near = kept.iter().filter(|w| w.abs_diff(present) <= distance);
                near.count()
            };
            // An even spread would have one or two there.
            assert!(within(1_000) >= 5, "{present}: {kept:?}");
        }
    }

    #[test]
    fn going_forward_while_thinning_stays_even() {
        let (interval, most) = (100, 40);
        let mut works = vec![0];
        for n in 1..5_000u64 {
            works.push(n * interval);
            while works.len() > most {
                let spacing = Spacing {
                    present: n * interval,
                    interval,
                };
                let n = spacing.least_missed(&works, |_| true).unwrap();
                works.remove(n);
            }
        }
        let gaps: Vec<u64> = works.windows(2).map(|w| w[1] - w[0]).collect();
        let even = 5_000 * interval / most as u64;
        assert!(gaps.iter().all(|&gap| gap < 5 * even), "{gaps:?}");
        assert!(gaps.last().unwrap() <= &(2 * interval), "{gaps:?}");
    }

    #[test]
    fn wanted_on_new_ground_and_in_gaps() {
        assert_eq!(next_wanted(&[0], 0, 100), 100);
        assert_eq!(next_wanted(&[0], 99, 100), 100);
        assert_eq!(next_wanted(&[0], 100, 100), 101);
        // Old ground: nothing to do up to its end.
        assert_eq!(next_wanted(&[0, 100, 210, 290], 5, 100), 390);
        // A gap that was thinned out.
        assert_eq!(next_wanted(&[0, 100, 1000], 100, 100), 200);
        assert_eq!(next_wanted(&[0, 100, 1000], 650, 100), 651);
        assert_eq!(next_wanted(&[0, 100, 1000], 960, 100), 1100);
    }

    #[test]
    fn distances_grow_and_stay_inside() {
        assert!(distances(1_000).is_empty());
        assert!(distances(19_000).is_empty());
        let all = distances(10_000_000);
        assert_eq!(all[..3], [10_000, 40_000, 160_000]);
        assert!(
            all.is_sorted() && *all.last().unwrap() <= 5_000_000,
            "{all:?}"
        );
    }
}

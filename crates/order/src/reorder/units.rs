//! What is executed in one piece. In: the lives of threads, and places where it matters who is next. Out: *units*, in the
//! order in which they happened, each with those of other threads that must come before it.
//!
//! A unit ends at a tick, at an event, or where a switch was in the log: all of them are places that a log can tell. Whatever
//! was executed in one piece when it was recorded may be one here; so each unit needs only earlier ones, and there is no circle.

use std::collections::BTreeMap;
use std::ops::Range;

use clew_recording::event::ThreadId;
use clew_timeline::Mark;

use super::lives::{Lives, Spot};

/// Number of a unit, in the order in which they happened.
pub type UnitId = u32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub thread: ThreadId,
    /// Which stretch it is a part of.
    pub stretch: usize,
    pub start: Spot,
    pub end: Spot,
    /// It comes to the stretch's event.
    pub last: bool,
    /// The latest of each other thread that must come before it.
    pub needs: Vec<UnitId>,
}

#[derive(Default)]
pub struct Units {
    pub all: Vec<Unit>,
    /// Of each stretch.
    of_stretch: Vec<Range<UnitId>>,
    /// Of each thread, in order.
    pub of_thread: BTreeMap<ThreadId, Vec<UnitId>>,
}

/// Places where a stretch may be parted: ticks since its beginning.
#[derive(Default)]
pub struct Cuts {
    of_stretch: BTreeMap<usize, Vec<u64>>,
}

impl Cuts {
    /// Something happens after that tick: the thread can be stopped before and after it.
    pub fn at(&mut self, lives: &Lives, mark: Mark) {
        self.before(lives, mark);
        self.add(lives, mark.event, mark.ticks.saturating_add(1));
    }

    /// The thread can be stopped at that tick.
    pub fn before(&mut self, lives: &Lives, mark: Mark) {
        self.add(lives, mark.event, mark.ticks);
    }

    fn add(&mut self, lives: &Lives, event: u64, ticks: u64) {
        if event < lives.head || ticks == 0 {
            return;
        }
        let Some(stretch) = lives.stretch(event) else {
            return;
        };
        let one = &lives.stretches[stretch];
        // Ticks of the stretch itself, to where it ends.
        let most = one.end.from(one.start).ticks;
        if !one.whole && ticks <= most {
            self.of_stretch.entry(stretch).or_default().push(ticks);
        }
    }
}

impl Units {
    pub fn of(lives: &Lives, cuts: Cuts) -> Units {
        let mut units = Units::default();
        let mut cuts = cuts.of_stretch;
        for (n, stretch) in lives.stretches.iter().enumerate() {
            let first = units.all.len() as UnitId;
            let mut ticks = cuts.remove(&n).unwrap_or_default();
            ticks.sort_unstable();
            ticks.dedup();
            let mut start = stretch.start;
            let add = |units: &mut Units, start, end, last| {
                let id = units.all.len() as UnitId;
                units.of_thread.entry(stretch.thread).or_default().push(id);
                units.all.push(Unit {
                    thread: stretch.thread,
                    stretch: n,
                    start,
                    end,
                    last,
                    needs: Vec::new(),
                });
            };
            for ticks in ticks {
                let end = Spot {
                    ticks: stretch.start.ticks.saturating_add(ticks),
                    steps: 0,
                };
                let inside = end < stretch.end || end == stretch.end && !stretch.switched;
                if start < end && inside {
                    add(&mut units, start, end, false);
                    start = end;
                }
            }
            add(&mut units, start, stretch.end, true);
            let end = units.all.len() as UnitId;
            units.of_stretch.push(first..end);
        }
        units
    }

    /// The unit in which something happens so many ticks after the events before it; none if that is in the head.
    pub fn at(&self, lives: &Lives, event: u64, ticks: u64) -> Option<UnitId> {
        if event < lives.head {
            return None;
        }
        let stretch = lives.stretch(event)?;
        let start = lives.stretches[stretch].start.ticks;
        let range = self.of_stretch[stretch].clone();
        let units = &self.all[range.start as usize..range.end as usize];
        let ticks = start.saturating_add(ticks);
        let behind = units.partition_point(|unit| unit.start.ticks <= ticks);
        Some(range.start + behind.saturating_sub(1) as UnitId)
    }

    /// The unit that comes to an event.
    pub fn event(&self, lives: &Lives, event: u64) -> Option<UnitId> {
        if event < lives.head {
            return None;
        }
        let range = self.of_stretch.get(lives.stretch(event)?)?;
        Some(range.end - 1)
    }

    /// The unit of the same thread before it.
    pub fn previous(&self, unit: UnitId) -> Option<UnitId> {
        let own = &self.of_thread[&self.all[unit as usize].thread];
        let at = own.partition_point(|&one| one < unit);
        at.checked_sub(1).map(|at| own[at])
    }

    /// The unit after which a thread stands at a tick, or behind it where it can't be stopped there.
    pub fn up_to(&self, lives: &Lives, event: u64, ticks: u64) -> Option<UnitId> {
        let at = self.at(lives, event, ticks)?;
        let stretch = &lives.stretches[self.all[at as usize].stretch];
        let here = stretch.start.ticks.saturating_add(ticks);
        let unit = &self.all[at as usize];
        match unit.start.ticks == here && (unit.start.steps == 0 || ticks == 0) {
            true => self.previous(at),
            false => Some(at),
        }
    }

    /// `first` must be executed before `unit`, if that is another thread's and was.
    pub fn need(&mut self, unit: UnitId, first: UnitId) {
        let thread = self.all[first as usize].thread;
        if first >= unit || self.all[unit as usize].thread == thread {
            return;
        }
        let mut needs = std::mem::take(&mut self.all[unit as usize].needs);
        match needs
            .iter_mut()
            .find(|one| self.all[**one as usize].thread == thread)
        {
            Some(known) => *known = (*known).max(first),
            None => needs.push(first),
        }
        self.all[unit as usize].needs = needs;
    }
}

/// Executes units in another order: each once, none before what it needs.
pub struct Schedule<'a> {
    units: &'a Units,
    /// Of each thread, how many are done.
    done: BTreeMap<ThreadId, usize>,
    pub order: Vec<UnitId>,
}

impl Schedule<'_> {
    pub fn new(units: &Units) -> Schedule<'_> {
        Schedule {
            units,
            done: BTreeMap::new(),
            order: Vec::with_capacity(units.all.len()),
        }
    }

    pub fn is_done(&self, unit: UnitId) -> bool {
        let next = self.next(self.units.all[unit as usize].thread);
        next.is_none_or(|next| unit < next)
    }

    fn next(&self, thread: ThreadId) -> Option<UnitId> {
        let done = self.done.get(&thread).copied().unwrap_or(0);
        self.units.of_thread[&thread].get(done).copied()
    }

    /// Goes on until this one is done: the paper's ProceedToEvent.
    pub fn proceed(&mut self, target: UnitId) {
        let mut open = vec![target];
        while let Some(&target) = open.last() {
            if self.is_done(target) {
                open.pop();
                continue;
            }
            let thread = self.units.all[target as usize].thread;
            let Some(next) = self.next(thread) else {
                open.pop();
                continue;
            };
            let needs = &self.units.all[next as usize].needs;
            match needs.iter().find(|&&need| !self.is_done(need)) {
                Some(&need) => open.push(need),
                None => {
                    *self.done.entry(thread).or_default() += 1;
                    self.order.push(next);
                }
            }
        }
    }

    /// All that is left, in the order in which it happened.
    pub fn finish(mut self) -> Vec<UnitId> {
        for unit in 0..self.units.all.len() as UnitId {
            self.proceed(unit);
        }
        self.order
    }
}

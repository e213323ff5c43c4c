//! Whether a suspect is the cause. In: a suspect, and a program that can be run again. Out: how often it fails with the
//! suspect order forced on a run that passed, and how often with that order forbidden in the run that failed.
//!
//! Both are schedules: those of a recorded run up to where a thread is held, and on without it until another has come by.
//! Where a schedule can't say it (when a timer's signal comes, who gets a lock), the schedules of the two runs are followed as they are.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use clew_debugger::Debugger;
use clew_hunt::idiom::profile::{self, Access, Profile};
use clew_hunt::idiom::steer::{Course, Place, Steer, Then};
use clew_hunt::{Follower, HuntError, Plan, turns};
use clew_recording::script::Script;
use clew_timeline::TouchLimits;

use super::Confirmed;
use super::patterns::{Key, Shape};
use super::signals::handled;
use super::trace::numbered;
use crate::Result;

const LIMITS: TouchLimits = TouchLimits {
    accesses: 200_000,
    time: Duration::from_secs(15),
};
/// Passing runs and places in each that are tried.
const MOST_RUNS: usize = 4;
const MOST_PLACES: usize = 4;

/// A recorded run that can be made again.
pub struct Again<'a> {
    pub folder: &'a Path,
    pub plan: &'a Plan,
}

/// Why nothing is confirmed.
#[derive(Debug, thiserror::Error)]
pub enum Unconfirmed {
    #[error(transparent)]
    Recording(#[from] crate::Error),
    #[error(transparent)]
    Hunt(#[from] HuntError),
}

/// Tries both, so often each. `ranges`: memory that handlers touch.
#[allow(clippy::too_many_arguments)]
pub fn confirm(
    follower: &Follower<'_>,
    key: &Key,
    failing: &Again<'_>,
    passing: &[Again<'_>],
    ranges: &[Range<u64>],
    open: &dyn Fn(&Path) -> Result<Debugger>,
    times: u64,
) -> std::result::Result<Confirmed, Unconfirmed> {
    let mut confirmed = Confirmed::default();
    let by_handler = key.sites.iter().any(|(_, handler)| *handler);
    let by_accesses = !by_handler && !matches!(key.shape, Shape::Deadlock | Shape::LostSignal);
    if by_accesses {
        let mut tried = 0;
        'runs: for run in passing.iter().take(MOST_RUNS) {
            let course = profiled(run.folder, open)?;
            for steer in forced(key, &course) {
                let Some(script) = course.course.script(&steer) else {
                    continue;
                };
                tried += 1;
                match follower.fails(run.plan, &script)? {
                    Some(true) => {
                        confirmed.with = follower.times(run.plan, &script, times)?;
                        break 'runs;
                    }
                    Some(false) => {}
                    None => return Ok(confirmed),
                }
            }
        }
        if confirmed.with.is_none() && tried > 0 {
            confirmed.with = Some((0, tried));
        }
        let course = profiled(failing.folder, open)?;
        let script = forbidden(key, &course).and_then(|steer| course.course.script(&steer));
        if let Some(script) = script {
            confirmed.without = follower.times(failing.plan, &script, times)?;
        }
    }
    if by_handler {
        let mut tried = 0;
        'sent: for run in passing.iter().take(MOST_RUNS) {
            for script in handled(run.folder, ranges, open)?.forced(key) {
                tried += 1;
                match follower.fails(run.plan, &script)? {
                    Some(true) => {
                        confirmed.with = follower.times(run.plan, &script, times)?;
                        break 'sent;
                    }
                    Some(false) => {}
                    None => return Ok(confirmed),
                }
            }
        }
        if confirmed.with.is_none() && tried > 0 {
            confirmed.with = Some((0, tried));
        }
        if let Some(script) = handled(failing.folder, ranges, open)?.forbidden(key) {
            confirmed.without = follower.times(failing.plan, &script, times)?;
        }
    }
    // A plan makes the same run again; where it isn't known, the turns of the run are followed.
    let whole = |again: &Again<'_>| -> std::result::Result<Option<(u64, u64)>, Unconfirmed> {
        if again.plan.is_schedule() {
            return Ok(follower.again(again.plan, times)?);
        }
        let script: Script = turns::of(again.folder)?;
        Ok(follower.times(again.plan, &script, times)?)
    };
    confirmed.forced = confirmed.with.is_some();
    confirmed.forbidden = confirmed.without.is_some();
    if confirmed.with.is_none() {
        confirmed.with = whole(failing)?;
    }
    if confirmed.without.is_none()
        && let Some(run) = passing.first()
    {
        confirmed.without = whole(run)?;
    }
    Ok(confirmed)
}

/// Accesses of a run to memory that threads share, as schedules know them.
fn profiled(
    folder: &Path,
    open: &dyn Fn(&Path) -> Result<Debugger>,
) -> std::result::Result<Lined, Unconfirmed> {
    let mut debugger = open(folder)?;
    let (_, lives) = profile::busiest(debugger.recording())?;
    let touches = debugger
        .timeline()
        .touches(&LIMITS)
        .map_err(crate::Error::from)?;
    let accesses = touches.touches.iter().map(|touch| Access {
        thread: touch.thread,
        point: touch.point,
        pc: touch.pc,
        addr: touch.addr,
        len: touch.len,
        write: touch.write,
        locked: touch.locked,
        event: touch.position.event,
    });
    let profile = Profile {
        process: turns::of(folder)?.process,
        lives,
        own: Vec::new(),
        accesses: accesses.collect(),
        length: None,
    };
    let mut known: HashMap<u64, u64> = HashMap::new();
    let mut lines = Vec::new();
    for access in &profile.accesses {
        let line = match known.get(&access.pc) {
            Some(line) => *line,
            None => {
                let at = debugger.location_ever(access.pc)?;
                let line = numbered(at.file.as_deref(), at.line, access.pc);
                known.insert(access.pc, line);
                line
            }
        };
        lines.push(line);
    }
    Ok(Lined {
        course: Course::new(profile),
        lines,
    })
}

/// A profile, and the line of each of its accesses.
struct Lined {
    course: Course,
    lines: Vec<u64>,
}

/// Where a line is in a profile.
fn executed(course: &Lined, line: u64) -> Vec<usize> {
    let all = course.lines.iter().enumerate();
    all.filter(|(_, one)| **one == line)
        .map(|(n, _)| n)
        .collect()
}

fn one(course: &Lined, n: usize) -> &Access {
    &course.course.profile().accesses[n]
}

/// Where a thread has given up the lock that it has at one access, before it takes it again for the next.
fn free_between(course: &Lined, p: usize, c: usize) -> Option<Place> {
    let thread = one(course, p).thread;
    let locks = |n: &usize| one(course, *n).thread == thread && one(course, *n).locked;
    let all: Vec<usize> = (p + 1..c).filter(locks).collect();
    let again = *all.last()?;
    let same = |n: &&usize| **n != again && one(course, **n).addr == one(course, again).addr;
    // Given up by one, and taken by another.
    all.iter().find(same).map(|_| Place::before(again))
}

/// Where a thread took the lock that it has at an access, if that is behind `from`; else the access itself.
fn lock_before(course: &Lined, from: usize, r: usize) -> usize {
    let thread = one(course, r).thread;
    let before = (from + 1..r).rev();
    let mut locks = before.filter(|&n| one(course, n).thread == thread && one(course, n).locked);
    locks.next().unwrap_or(r)
}

/// Ways to bring the order about in a run that doesn't have it.
fn forced(key: &Key, course: &Lined) -> Vec<Steer> {
    let at = |n: usize| executed(course, key.sites[n].0);
    let others = |a: usize, b: usize| one(course, a).thread != one(course, b).thread;
    let overlap = |a: usize, b: usize| one(course, a).overlaps(one(course, b));
    let mut all = Vec::new();
    let held = |hold, until| Steer {
        hold,
        until,
        then: Then::Held,
    };
    match (key.shape, key.sites.len()) {
        (Shape::Rwr | Shape::Rww | Shape::Wwr | Shape::Wrw, 3) => {
            for p in at(0) {
                // The nearest one of another thread, behind it or before it.
                let there = |r: &usize| others(p, *r) && overlap(p, *r);
                let all_r: Vec<usize> = at(1).into_iter().filter(there).collect();
                if let Some(&r) = all_r.iter().find(|&&r| r > p) {
                    let c = at(2).into_iter().find(|&c| c > p && !others(p, c));
                    let hold = c.and_then(|c| free_between(course, p, c));
                    all.push((
                        r - p,
                        held(hold.unwrap_or(Place::after(p)), Place::after(r)),
                    ));
                }
                if let Some(&r) = all_r.iter().rev().find(|&&r| r < p) {
                    let steer = Steer {
                        hold: Place::before(r),
                        until: Place::after(p),
                        then: Then::HeldTo(Place::after(r)),
                    };
                    all.push((p - r, steer));
                }
            }
        }
        (Shape::Rw | Shape::Wr | Shape::Ww, 2) => {
            for b in at(1) {
                let there = |a: &usize| *a > b && others(*a, b) && overlap(*a, b);
                if let Some(a) = at(0).into_iter().find(there) {
                    all.push((a - b, held(Place::before(b), Place::after(a))));
                }
            }
        }
        (Shape::Early, 1) => {
            for s in at(0) {
                let accesses = &course.course.profile().accesses;
                let write = (0..s)
                    .rev()
                    .find(|&w| accesses[w].write && others(w, s) && overlap(w, s));
                if let Some(w) = write {
                    all.push((s - w, held(Place::before(w), Place::after(s))));
                }
            }
        }
        (Shape::Pair, 4) => {
            for wx in at(0) {
                let there = |r: &usize| *r > wx && others(*r, wx);
                if let Some(ry) = at(3).into_iter().find(there) {
                    let wy = at(1).into_iter().find(|&wy| wy > wx && !others(wy, wx));
                    let hold = wy.and_then(|wy| free_between(course, wx, wy));
                    all.push((
                        ry - wx,
                        held(hold.unwrap_or(Place::after(wx)), Place::after(ry)),
                    ));
                }
            }
        }
        _ => {}
    }
    // Those near each other first; of several like these, the last ones are nearest to the end.
    all.sort_by_key(|(distance, steer)| (*distance, usize::MAX - steer.hold.access));
    let mut seen: HashMap<Steer, ()> = HashMap::new();
    let new = all.into_iter().map(|(_, steer)| steer);
    let new = new.filter(|steer| seen.insert(*steer, ()).is_none());
    new.take(MOST_PLACES).collect()
}

/// A way to forbid the order in a run that has it: the last time it came about, the one in between is held.
fn forbidden(key: &Key, course: &Lined) -> Option<Steer> {
    let at = |n: usize| executed(course, key.sites[n].0);
    let others = |a: usize, b: usize| one(course, a).thread != one(course, b).thread;
    let same = |a: usize, b: usize| one(course, a).thread == one(course, b).thread;
    let held = |hold, until| Steer {
        hold,
        until,
        then: Then::Held,
    };
    match (key.shape, key.sites.len()) {
        (Shape::Rwr | Shape::Rww | Shape::Wwr | Shape::Wrw, 3) => {
            let c = *at(2).last()?;
            let p = at(0).into_iter().rev().find(|&p| p < c && same(p, c))?;
            let r = at(1)
                .into_iter()
                .find(|&r| p < r && r < c && others(r, c))?;
            Some(held(
                Place::before(lock_before(course, p, r)),
                Place::after(c),
            ))
        }
        (Shape::Rw | Shape::Wr | Shape::Ww, 2) => {
            let b = *at(1).last()?;
            let a = at(0).into_iter().rev().find(|&a| a < b && others(a, b))?;
            Some(held(Place::before(a), Place::after(b)))
        }
        (Shape::Pair, 4) => {
            let (rx, ry) = (*at(2).last()?, *at(3).last()?);
            let wx = at(0).into_iter().rev().find(|&w| w < ry.max(rx))?;
            let wy = at(1).into_iter().find(|&w| w > wx)?;
            match wx < rx.min(ry) {
                true => {
                    let hold = lock_before(course, wx, rx.min(ry));
                    Some(held(Place::before(hold), Place::after(wy)))
                }
                false => {
                    let hold = lock_before(course, rx.min(ry), wx);
                    Some(held(Place::before(hold), Place::after(rx.max(ry))))
                }
            }
        }
        _ => None,
    }
}

//! One question about a long way, on all cores. In: what to ask of a stretch, and how answers are put together. Out: the
//! answers, put together in the order of the way.
//!
//! A scout goes ahead and leaves snapshots, as any journey does. Whoever is idle takes the next stretch between the places
//! that the scout has come to and asks there. Each helper is a thread with a timeline of its own on the same snapshots.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use clew_engine::replay::worker::protocol::{BUFFERS, Goal, Take, Why};

use crate::pool::WATCH;
use crate::seek::position_of;
use crate::{Error, Position, Result, Timeline};

/// A stretch has so many times the work that lies between two snapshots.
const INTERVALS: u64 = 4;
/// Each needs a buffer, and others may be at work.
const MOST_HELPERS: usize = BUFFERS - 2;

/// A part of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub from: Position,
    /// None: the stream's end.
    pub to: Option<Position>,
    /// How much work is done at its end, as far as that is known.
    work: u64,
}

impl Stretch {
    pub fn between(from: Position, to: Option<Position>) -> Stretch {
        Stretch { from, to, work: 0 }
    }

    pub fn goal(&self) -> Goal {
        self.to.map_or(Goal::End, Goal::Position)
    }
}

/// What to do with the rest of the way after an answer.
pub enum Then {
    GoOn,
    /// Nothing more is wanted.
    Enough,
    /// The answers depend on each other: the rest is better asked in one go.
    Alone,
}

/// How far the answers go.
pub struct Came {
    /// From here on nobody was asked; none if all were.
    pub rest: Option<Position>,
    pub interrupted: bool,
}

struct Plan<R> {
    state: Mutex<State<R>>,
    changed: Condvar,
}

struct State<R> {
    stretches: Vec<(Stretch, Answer<R>)>,
    /// No more stretches come.
    over: bool,
    /// Nobody begins another one.
    closed: bool,
}

enum Answer<R> {
    Waits,
    Asked,
    Told(Result<R>),
    /// It was put together with the others.
    Used,
}

impl<R> Plan<R> {
    fn hold(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, stretch: Stretch) {
        self.hold().stretches.push((stretch, Answer::Waits));
        self.changed.notify_all();
    }

    fn close(&self) {
        self.hold().closed = true;
        self.changed.notify_all();
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<R>>) -> MutexGuard<'a, State<R>> {
        let waited = self.changed.wait_timeout(state, WATCH);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// The next stretch that nobody has taken; waits for one. None at the end.
    fn take(&self) -> Option<(usize, Stretch)> {
        let mut state = self.hold();
        loop {
            if state.closed {
                return None;
            }
            let waits = |(_, answer): &(Stretch, Answer<R>)| matches!(answer, Answer::Waits);
            if let Some(n) = state.stretches.iter().position(waits) {
                state.stretches[n].1 = Answer::Asked;
                return Some((n, state.stretches[n].0));
            }
            if state.over {
                return None;
            }
            state = self.wait(state);
        }
    }

    fn told(&self, n: usize, answer: Result<R>) {
        self.hold().stretches[n].1 = Answer::Told(answer);
        self.changed.notify_all();
    }

    /// The answer of a stretch, if it is there.
    fn answer(&self, n: usize) -> Option<(Stretch, Result<R>)> {
        let mut state = self.hold();
        let (stretch, answer) = state.stretches.get_mut(n)?;
        match std::mem::replace(answer, Answer::Used) {
            Answer::Told(told) => Some((*stretch, told)),
            other => {
                *answer = other;
                None
            }
        }
    }
}

impl Timeline {
    /// Asks all stretches of a way, several at once. `put` gets the answers in order, and may ask again what depends on
    /// answers before. The timeline stays where it is.
    pub(crate) fn in_stretches<R: Send>(
        &mut self,
        from: Position,
        to: Option<Position>,
        ask: impl Fn(&mut Timeline, &Stretch) -> Result<R> + Sync,
        mut put: impl FnMut(&mut Timeline, &Stretch, Result<R>) -> Result<Then>,
    ) -> Result<Came> {
        let mut helpers = Vec::new();
        for _ in 0..self.jobs.min(MOST_HELPERS) {
            helpers.push(self.helper());
        }
        let plan = Plan {
            state: Mutex::new(State {
                stretches: Vec::new(),
                over: false,
                closed: false,
            }),
            changed: Condvar::new(),
        };
        let done = std::thread::scope(|scope| {
            for mut helper in helpers {
                let (plan, ask) = (&plan, &ask);
                scope.spawn(move || {
                    while let Some((n, stretch)) = plan.take() {
                        let answer = match helper.pool.interrupted() {
                            true => Err(Error::Interrupted),
                            false => ask(&mut helper, &stretch),
                        };
                        plan.told(n, answer);
                    }
                });
            }
            let done = self.lead(&plan, from, to, &mut put);
            plan.close();
            done
        });
        self.share = (0.0, 1.0);
        done
    }

    /// Scouts, and puts together what there is meanwhile.
    fn lead<R>(
        &mut self,
        plan: &Plan<R>,
        from: Position,
        to: Option<Position>,
        put: &mut impl FnMut(&mut Timeline, &Stretch, Result<R>) -> Result<Then>,
    ) -> Result<Came> {
        let mut scout = Some(self.worker_at(Goal::Position(from))?);
        let mut begins = from;
        let mut next = 0;
        let mut interrupted = false;
        loop {
            if let Some(mut worker) = scout.take() {
                let usual = self.pace.interval().saturating_mul(INTERVALS);
                let step = self.stretch.unwrap_or(usual);
                let goal = Goal::Work(worker.at.work.saturating_add(step));
                let stopped = self.travel(&mut worker, goal, Take::None)?;
                interrupted |= stopped.why == Why::Interrupted;
                let at = position_of(&worker.at).filter(|_| stopped.why == Why::Goal);
                let beyond = |at: &Position| to.is_some_and(|to| *at >= to);
                let ends = at.filter(|at| !beyond(at) && *at > begins);
                let stretch = Stretch {
                    from: begins,
                    to: ends.or(to),
                    work: worker.at.work,
                };
                match ends {
                    Some(ends) => {
                        begins = ends;
                        scout = Some(worker);
                    }
                    None => plan.hold().over = true,
                }
                if !interrupted {
                    plan.add(stretch);
                }
            }
            loop {
                let Some((stretch, answer)) = plan.answer(next) else {
                    break;
                };
                next += 1;
                let rest = stretch.to.filter(|_| stretch.to != to);
                if matches!(answer, Err(Error::Interrupted)) {
                    return Ok(Came {
                        rest: Some(stretch.from),
                        interrupted: true,
                    });
                }
                match put(self, &stretch, answer)? {
                    Then::GoOn => {}
                    Then::Enough => {
                        return Ok(Came {
                            rest: None,
                            interrupted: false,
                        });
                    }
                    Then::Alone => {
                        return Ok(Came {
                            rest,
                            interrupted: false,
                        });
                    }
                }
                let whole = self.end.as_ref().map_or(self.expected, |end| end.work);
                if whole > 0 {
                    let done = stretch.work as f64 / whole as f64;
                    self.share = (done / 2.0, 0.5);
                    if scout.is_none() {
                        self.pool.set_progress(0.5 + done / 2.0);
                    }
                }
            }
            interrupted |= self.pool.interrupted();
            let state = plan.hold();
            let left = state.stretches.len() - next;
            if interrupted {
                // Those who were asked are about to answer.
                let begun = state.stretches.get(next);
                if !matches!(begun, Some((_, Answer::Asked | Answer::Told(_)))) {
                    let rest = begun.map_or(begins, |(stretch, _)| stretch.from);
                    return Ok(Came {
                        rest: Some(rest),
                        interrupted: true,
                    });
                }
            } else if scout.is_none() && left == 0 {
                return Ok(Came {
                    rest: None,
                    interrupted: false,
                });
            }
            if scout.is_none() || interrupted {
                scout = scout.filter(|_| !interrupted);
                drop(plan.wait(state));
            }
        }
    }

    /// Does something for each of these, on all cores; what comes of it, in order. For what is quickly done.
    pub(crate) fn for_each<T: Sync, R: Send>(
        &mut self,
        all: &[T],
        act: impl Fn(&mut Timeline, &T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        if self.jobs <= 1 || all.len() <= 1 {
            return all.iter().map(|one| act(self, one)).collect();
        }
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<(usize, Result<R>)>> = Mutex::default();
        let helpers: Vec<Timeline> = (0..self.jobs.min(all.len()))
            .map(|_| self.helper())
            .collect();
        std::thread::scope(|scope| {
            for mut helper in helpers {
                let (next, results, act) = (&next, &results, &act);
                scope.spawn(move || {
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        let Some(one) = all.get(n) else {
                            break;
                        };
                        let done = act(&mut helper, one);
                        let failed = done.is_err();
                        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                        results.push((n, done));
                        let so_far = results.len() as f64;
                        helper.pool.set_progress(so_far / all.len() as f64);
                        if failed {
                            next.store(all.len(), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_by_key(|(n, _)| *n);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

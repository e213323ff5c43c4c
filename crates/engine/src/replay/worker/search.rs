//! Looks for what was asked for on the way: breakpoints, watched memory, events ([`Wanted`]).
//!
//! What an instruction changes is found by comparing before and after: of many in a row, only when the next one comes
//! to the same memory, since nothing else can have written to it meanwhile.

use clew_recording::event::{Record, ThreadId};

use super::limit::ahead;
use super::observe::{Observer, Sight, Stays};
use super::protocol::{EventStop, Goal, Hit, HitKind, Mark, Stopped, Take, Why};
use super::serve::Worker;
use super::stops::{Seen, Wanted};
use super::travel::Done;
use crate::cache::instruments::Instruments;
use crate::context::RAX;
use crate::replay::Machine;
use crate::replay::approach::{Lies, place_of};

struct Search {
    first: bool,
    /// What is at this place doesn't count.
    start: Option<Mark>,
    last: Option<Hit>,
    /// The last instruction that may have changed what is watched, and its thread.
    pending: Option<(Mark, ThreadId)>,
    /// What is to be told at the place behind an event.
    behind: Option<HitKind>,
    /// The instruction that was told last: a breakpoint of it counts.
    breaks: bool,
    /// A single instruction: where, whose, and what it touches of what is watched for that.
    at: Option<(Mark, ThreadId)>,
    touched: Option<Seen>,
}

impl Worker {
    /// Puts what stops need into translated code, or takes it out.
    pub(super) fn instrument(&mut self, on: bool) {
        let wanted = match on {
            true => self.wanted.instruments(),
            false => Instruments::default(),
        };
        self.instrument_with(wanted);
    }

    pub(super) fn search(&mut self, goal: Goal, take: Take) -> Done<Stopped> {
        self.wanted.remember(&self.machine.memory);
        self.kernel_wrote = None;
        let first = take == Take::First;
        let mut search = Search {
            first,
            start: first.then(|| self.mark()),
            last: None,
            pending: None,
            // Whoever looks for the last one has come here by no search.
            behind: (!first).then(|| self.stop_behind_here()).flatten(),
            breaks: false,
            at: None,
            touched: None,
        };
        let mut stopped = self.observe(goal, &mut search)?;
        stopped.last = search.last;
        Ok(stopped)
    }

    /// The stop at this very place, if there is one that counts.
    fn stop_here(&mut self, search: &Search) -> Done<Option<Hit>> {
        if search.start == Some(self.mark()) {
            return Ok(None);
        }
        let (mut executes, mut kind) = (true, None);
        if self.looks_due()?
            && let Some(Record::Event(event)) = ahead(&mut self.reader, &self.limit)?
        {
            executes = matches!(place_of(event), Lies::Ahead { .. });
            let rax = self.machine.registers_now().gpr[RAX];
            let stop = self.wanted.before(event, rax);
            // A fork, or an exec that failed, is told of before its call: that one is entered already.
            let entered = matches!(
                self.came_by,
                Some(EventStop::Forked { .. } | EventStop::Exec)
            ) && matches!(stop, Some(EventStop::CallIn { .. }))
                && self.machine.since() == 0
                && self.steps == Some(0);
            kind = stop.filter(|_| !entered).map(HitKind::Event);
        }
        if executes && !self.past && self.breaks_here() {
            kind = Some(HitKind::Break);
        }
        Ok(kind.map(|kind| self.hit(kind)))
    }

    fn breaks_here(&self) -> bool {
        let regs = self.machine.registers_now();
        self.wanted.breaks_at(self.machine.current, &regs)
    }

    /// The stop behind the event that led here.
    fn stop_behind_here(&self) -> Option<HitKind> {
        let stop = self.came_by.filter(|&stop| self.wanted.behind(stop))?;
        (self.machine.since() == 0 && self.steps == Some(0)).then_some(HitKind::Event(stop))
    }

    /// Has the last event changed what is watched?
    fn compare_after_event(&mut self) {
        if self.wanted.any_watch() {
            let changed = self.wanted.changed(&self.machine.memory);
            self.kernel_wrote = self.kernel_wrote.or(changed);
        }
    }

    /// What the next instruction will touch of what is watched for that.
    pub(super) fn touched_here(&mut self) -> Option<Seen> {
        touched(&mut self.machine, &self.wanted)
    }

    fn hit(&self, kind: HitKind) -> Hit {
        Hit {
            at: self.mark(),
            steps: self.steps,
            thread: self.machine.current,
            kind,
        }
    }
}

impl Observer for Search {
    fn instruments(&mut self, worker: &Worker) -> Instruments {
        worker.wanted.instruments()
    }

    /// Where a search for the first begins, breakpoints don't count, but what the instruction does.
    fn begins_by_hand(&self) -> bool {
        self.first
    }

    fn here(&mut self, worker: &mut Worker, reached: bool) -> Done<Option<Why>> {
        if let Some(seen) = worker.kernel_wrote.take() {
            let (mark, thread) = worker.came_from;
            let hit = watch_hit(mark, thread, seen, true);
            if self.take(hit) {
                return Ok(Some(Why::Watch(hit)));
            }
        }
        if let Some(kind) = self.behind.take() {
            let hit = worker.hit(kind);
            if self.first || !reached {
                self.last = Some(hit);
            }
            if self.first {
                return Ok(Some(why_of(hit)));
            }
        }
        Ok((reached && !self.first).then_some(Why::Goal))
    }

    fn over(&mut self, worker: &mut Worker, why: Why) -> Done<Why> {
        Ok(match self.first {
            true => worker.stop_here(self)?.map_or(why, why_of),
            false => why,
        })
    }

    fn due(&mut self, worker: &mut Worker) -> Done<Option<Why>> {
        self.settle(&worker.machine, &mut worker.wanted);
        if let Some(hit) = worker.stop_here(self)?
            && self.take(hit)
        {
            return Ok(Some(why_of(hit)));
        }
        worker.came_from = (worker.mark(), worker.machine.current);
        Ok(None)
    }

    fn done(&mut self, worker: &mut Worker) -> Done {
        worker.compare_after_event();
        self.behind = worker.stop_behind_here();
        Ok(())
    }

    fn silent(&mut self, worker: &mut Worker, done: bool) {
        if done {
            worker.compare_after_event();
            return;
        }
        self.settle(&worker.machine, &mut worker.wanted);
        if worker.kernel_wrote.is_none() {
            worker.came_from = (worker.mark(), worker.machine.current);
        }
    }

    fn single(&mut self, worker: &mut Worker) -> Done<Option<Why>> {
        self.settle(&worker.machine, &mut worker.wanted);
        let mark = worker.mark();
        if !worker.past && self.start != Some(mark) && worker.breaks_here() {
            let hit = worker.hit(HitKind::Break);
            if self.take(hit) {
                return Ok(Some(Why::Break));
            }
        }
        self.touched = worker.touched_here();
        self.at = Some((mark, worker.machine.current));
        Ok(None)
    }

    fn stepped(&mut self, worker: &mut Worker) -> Done<Option<Why>> {
        let touched = self.touched.take();
        let Some((mark, thread)) = self.at.take().filter(|_| worker.wanted.any_watch()) else {
            return Ok(None);
        };
        let changed = worker.wanted.changed(&worker.machine.memory);
        if let Some(seen) = changed.or(touched) {
            let hit = watch_hit(mark, thread, seen, false);
            if self.take(hit) {
                return Ok(Some(Why::Watch(hit)));
            }
        }
        Ok(None)
    }

    /// Notes what is to be noted.
    fn passes(&mut self, sight: Sight<'_>) -> bool {
        let (machine, wanted) = (sight.machine, sight.wanted);
        self.breaks = wanted.breaks_at(machine.current, &machine.gs.regs);
        let watches = wanted.any_watch();
        if !self.breaks && !watches {
            return true;
        }
        self.settle(machine, wanted);
        let (pc, sp) = machine.place_now();
        let mark = Mark {
            event: sight.events,
            ticks: machine.since(),
            pc,
            sp,
        };
        let thread = machine.current;
        if self.breaks {
            self.last = Some(Hit {
                at: mark,
                steps: None,
                thread,
                kind: HitKind::Break,
            });
        }
        if watches && !self.first {
            if let Some(seen) = touched(machine, wanted) {
                self.last = Some(watch_hit(mark, thread, seen, false));
            }
            self.pending = Some((mark, thread));
        }
        !self.first
    }

    fn stays(&mut self, _worker: &mut Worker) -> Stays {
        match self.breaks {
            true => Stays::Stop(Why::Break),
            false => Stays::Single,
        }
    }

    fn ends(&mut self, worker: &mut Worker) {
        self.settle(&worker.machine, &mut worker.wanted);
    }
}

impl Search {
    /// Has the last instruction that came to watched memory changed it?
    fn settle(&mut self, machine: &Machine, wanted: &mut Wanted) {
        let Some((mark, thread)) = self.pending.take() else {
            return;
        };
        if let Some(seen) = wanted.changed(&machine.memory) {
            self.last = Some(watch_hit(mark, thread, seen, false));
        }
    }

    /// Keeps a hit; whether to stay there.
    fn take(&mut self, hit: Hit) -> bool {
        self.last = Some(hit);
        self.first
    }
}

fn watch_hit(at: Mark, thread: ThreadId, seen: Seen, by_event: bool) -> Hit {
    Hit {
        at,
        steps: None,
        thread,
        kind: HitKind::Watch {
            watch: seen.watch,
            addr: seen.addr,
            by_event,
            read: seen.read,
        },
    }
}

fn touched(machine: &mut Machine, wanted: &Wanted) -> Option<Seen> {
    if !wanted.any_access() {
        return None;
    }
    let accesses = machine.code.accesses(machine.gs);
    wanted.touched(&accesses)
}

fn why_of(hit: Hit) -> Why {
    match hit.kind {
        HitKind::Break => Why::Break,
        HitKind::Watch { .. } => Why::Watch(hit),
        HitKind::Event(stop) => Why::Event(stop),
    }
}

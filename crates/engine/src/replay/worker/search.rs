//! Going forward with an eye on what was asked for: breakpoints, watched memory, events.
//!
//! Translated code leaves at instruments; single instructions are looked at by hand. What an instruction
//! changes is found by comparing before and after: of many in a row, only when the next one comes to the same
//! memory, since nothing else can have written to it meanwhile.

use clew_recording::event::{Event, Record, ThreadId};

use super::limit::ahead;
use super::protocol::{Goal, Hit, HitKind, Mark, Stopped, Take, Why};
use super::serve::Worker;
use super::stops::{Seen, Wanted};
use super::travel::{Done, Leg};
use crate::cache::instruments::Instruments;
use crate::replay::Machine;
use crate::replay::approach::{Came, Lies, Stepped, place_of};

struct Search {
    goal: Goal,
    first: bool,
    /// What is at this place doesn't count.
    start: Option<Mark>,
    /// Instruments of the instruction that the thread stands on have been looked at.
    past: bool,
    last: Option<Hit>,
    /// The last instruction that may have changed what is watched, and its thread.
    pending: Option<(Mark, ThreadId)>,
    /// What is to be told at the place behind an event.
    behind: Option<HitKind>,
}

impl Worker {
    /// Puts instruments into translated code, or takes them out.
    pub(super) fn instrument(&mut self, on: bool) {
        let wanted = match on {
            true => self.wanted.instruments(),
            false => Instruments::default(),
        };
        let machine = &mut self.machine;
        machine.code.instrument(machine.gs, &machine.memory, wanted);
    }

    pub(super) fn search(&mut self, goal: Goal, take: Take) -> Done<Stopped> {
        self.instrument(true);
        self.wanted.remember(&self.machine.memory);
        let first = take == Take::First;
        let mut search = Search {
            goal,
            first,
            start: first.then(|| self.mark()),
            past: false,
            last: None,
            pending: None,
            // Whoever looks for the last one has come here by no search.
            behind: (!first).then(|| self.stop_behind_here()).flatten(),
        };
        // Where a search for the first begins, breakpoints don't count, but what the instruction does.
        let mut by_hand = first;
        loop {
            if let Some(why) = self.search_on(&mut search, std::mem::take(&mut by_hand))? {
                self.settle(&mut search);
                let mut stopped = self.stopped(why)?;
                stopped.last = search.last;
                return Ok(stopped);
            }
            if self.is_silent_next()? {
                self.settle(&mut search);
                if self.kernel_wrote.is_none() {
                    self.came_from = (self.mark(), self.machine.current);
                }
                self.pass_silent()?;
                self.compare_after_event();
            }
            if let Some(seen) = self.kernel_wrote.take() {
                let (mark, thread) = self.came_from;
                let hit = watch_hit(mark, thread, seen, true);
                if search.take(hit) {
                    return self.stopped(Why::Watch(hit));
                }
            }
        }
    }

    /// Some way; why it ends.
    fn search_on(&mut self, search: &mut Search, by_hand: bool) -> Done<Option<Why>> {
        let reached = self.is_reached(search.goal);
        if let Some(kind) = search.behind.take() {
            let hit = self.hit(kind);
            if search.first || !reached {
                search.last = Some(hit);
            }
            if search.first {
                return Ok(Some(why_of(hit)));
            }
        }
        if reached && !search.first {
            return Ok(Some(Why::Goal));
        }
        let leg = match reached {
            true => Leg::Over(Why::Goal),
            false => self.leg(search.goal)?,
        };
        if self.shall_stop() {
            return Ok(Some(Why::Interrupted));
        }
        match leg {
            Leg::Over(why) => Ok(Some(match search.first {
                true => self.stop_here(search)?.map_or(why, why_of),
                false => why,
            })),
            Leg::Event => self.search_event(search),
            Leg::Single => self.search_single(search),
            Leg::Run { .. } if by_hand => self.search_single(search),
            Leg::Run { limit, .. } => self.search_running(search, limit),
        }
    }

    /// Runs at most to `limit` ticks after the last event.
    fn search_running(&mut self, search: &mut Search, limit: u64) -> Done<Option<Why>> {
        let events = self.reader.position();
        let Some(Record::Event(event)) = ahead(&mut self.reader, &self.limit)? else {
            return Ok(None);
        };
        let wanted = &mut self.wanted;
        let (mut breaks, past) = (false, search.past);
        let came = self
            .machine
            .approach_past(event, limit, past, &mut |machine| {
                breaks = wanted.breaks_at(machine.current, &machine.gs.regs);
                search.passes(machine, wanted, events, breaks)
            })?;
        self.steps = (came == Came::Limit).then_some(0);
        search.past = came == Came::Due;
        match came {
            Came::Limit | Came::Due => Ok(None),
            Came::Instrument(_) if breaks => Ok(Some(Why::Break)),
            Came::Instrument(_) => self.watched_single(search, self.mark()),
        }
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
            kind = self.wanted.before(event).map(HitKind::Event);
        }
        if executes && !search.past && self.breaks_here() {
            kind = Some(HitKind::Break);
        }
        Ok(kind.map(|kind| self.hit(kind)))
    }

    fn breaks_here(&self) -> bool {
        let regs = self.machine.registers_now();
        self.wanted.breaks_at(self.machine.current, &regs)
    }

    fn search_event(&mut self, search: &mut Search) -> Done<Option<Why>> {
        self.settle(search);
        if let Some(hit) = self.stop_here(search)?
            && search.take(hit)
        {
            return Ok(Some(why_of(hit)));
        }
        let Some(Record::Event(event)) = self.reader.peek()? else {
            return Ok(None);
        };
        // The instruction that touched shared memory will be executed now: it isn't new.
        search.past = matches!(event, Event::Shared { .. });
        self.came_from = (self.mark(), self.machine.current);
        self.apply()?;
        self.compare_after_event();
        search.behind = self.stop_behind_here();
        Ok(None)
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

    fn search_single(&mut self, search: &mut Search) -> Done<Option<Why>> {
        self.settle(search);
        let mark = self.mark();
        if !search.past && search.start != Some(mark) && self.breaks_here() {
            let hit = self.hit(HitKind::Break);
            if search.take(hit) {
                return Ok(Some(Why::Break));
            }
        }
        self.watched_single(search, mark)
    }

    /// One instruction that may touch what is watched.
    fn watched_single(&mut self, search: &mut Search, mark: Mark) -> Done<Option<Why>> {
        let touched = self.touched_here();
        let thread = self.machine.current;
        if self.single()? == Stepped::Due {
            search.past = true;
            return Ok(None);
        }
        search.past = false;
        if !self.wanted.any_watch() {
            return Ok(None);
        }
        let changed = self.wanted.changed(&self.machine.memory);
        if let Some(seen) = changed.or(touched) {
            let hit = watch_hit(mark, thread, seen, false);
            if search.take(hit) {
                return Ok(Some(Why::Watch(hit)));
            }
        }
        Ok(None)
    }

    /// What the next instruction will touch of what is watched for that.
    pub(super) fn touched_here(&mut self) -> Option<Seen> {
        touched(&mut self.machine, &self.wanted)
    }

    /// Has the last instruction that came to watched memory changed it?
    fn settle(&mut self, search: &mut Search) {
        search.settle(&self.machine, &mut self.wanted);
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

impl Search {
    /// The thread has come to an instruction with an instrument, and maybe to a breakpoint that counts.
    /// Notes what is to be noted; whether to go on past it.
    fn passes(
        &mut self,
        machine: &mut Machine,
        wanted: &mut Wanted,
        events: u64,
        breaks: bool,
    ) -> bool {
        let watches = wanted.any_watch();
        if !breaks && !watches {
            return true;
        }
        self.settle(machine, wanted);
        let (pc, sp) = machine.place_now();
        let mark = Mark {
            event: events,
            ticks: machine.since(),
            pc,
            sp,
        };
        let thread = machine.current;
        if breaks {
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

fn why_of(hit: Hit) -> Why {
    match hit.kind {
        HitKind::Break => Why::Break,
        HitKind::Watch { .. } => Why::Watch(hit),
        HitKind::Event(stop) => Why::Event(stop),
    }
}

//! What a value influences. In: values at a place. Out: the instructions whose results were made of them, transitively, oldest
//! first; the branches that went by them; the calls that gave them away.
//!
//! What is executed because of such a branch isn't followed: it is told that the branch was.

use clew_engine::cache::accesses::Access;
use clew_recording::reader::StreamReader;
use clew_timeline::{Position, Timeline};

use crate::cells::Cells;
use crate::closure::{Bounds, Input, Kinds, Member, Question, Repeated, Slice, Why, left, member};
use crate::events::{Events, Fact, Kind};
use crate::flows::{Flow, Flows, Site};
use crate::known::{Blocks, Turn, turn};
use crate::live::{Live, Who};
use crate::stretches::{Lengths, ask};
use crate::taken::{bytes_of, overlaps, ranges, some_of};
use crate::walk::{Executed, Go, Intervals, Place, Run, Visitor, When, forth};
use crate::{Error, Result};

/// What a value influences from where the timeline stands to the end. It stays there.
pub fn influence(
    timeline: &mut Timeline,
    log: StreamReader,
    question: &Question,
    kinds: Kinds,
    bounds: Bounds,
) -> Result<Slice> {
    let events = Events::read(log)?;
    let mut search = Search {
        kinds,
        bounds,
        marked: Live::default(),
        events: &events,
        blocks: Blocks::default(),
        found: Vec::new(),
        slice: Slice::default(),
        accesses: Vec::new(),
        results: Vec::new(),
    };
    ask(&mut search.marked, &question.values, ASKED);
    let mut from = timeline.at();
    let mut begin = timeline.position()?;
    let mut lengths = Lengths::forwards();
    loop {
        if search.marked.is_empty() {
            return Ok(search.finish(true));
        }
        let traced = timeline.trace_forth(&from, lengths.next());
        let traced = traced.and_then(|trace| match (trace, bounds.to) {
            // No farther than one looks.
            (Some(trace), Some(to)) if trace.end >= to => {
                timeline.trace(begin, to).map(|trace| (Some(trace), true))
            }
            (trace, _) => Ok((trace, false)),
        });
        let (trace, far) = match traced {
            Ok((Some(trace), far)) => (trace, far),
            Ok((None, _)) => return Ok(search.finish(true)),
            Err(clew_timeline::Error::Interrupted) => return Ok(search.finish(false)),
            Err(error) => return Err(error.into()),
        };
        search.blocks.forget();
        let mut intervals = Intervals::default();
        let ticks_of = |number| events.ticks(number);
        forth(&trace, &mut intervals, &ticks_of, &mut search)?;
        search.place_all(&intervals)?;
        if far || !trace.complete {
            return Ok(search.finish(trace.complete));
        }
        begin = trace.end;
        from = trace.stopped;
    }
}

/// The question itself has marked it; members are numbered from one.
const ASKED: Who = 0;

struct Search<'a> {
    kinds: Kinds,
    bounds: Bounds,
    /// What was made of the value, and by which member.
    marked: Live,
    events: &'a Events,
    blocks: Blocks,
    found: Vec<(Place, Member)>,
    slice: Slice,
    /// Room for a run's accesses, and for what an instruction leaves.
    accesses: Vec<Access>,
    results: Vec<(usize, Marks)>,
}

/// What of a destination is marked.
struct Marks {
    who: Who,
    /// Bytes that were moved: of registers, or offsets in memory; none if all of it is.
    moved: Option<(u32, Vec<u64>)>,
}

impl Search<'_> {
    fn finish(mut self, complete: bool) -> Slice {
        self.slice.complete = complete;
        (self.slice.rest, self.slice.registers) = left(&self.marked);
        self.slice
    }

    fn place_all(&mut self, intervals: &Intervals) -> Result<()> {
        for (place, mut member) in self.found.drain(..) {
            member.position = intervals.position(place).ok_or(Error::Nonsense)?;
            self.slice.members.push(member);
        }
        Ok(())
    }

    fn include(&mut self, executed: &Executed<'_>, why: Why, by: Who) -> Who {
        self.slice.count += 1;
        let repeated = self.slice.code.entry(executed.ins.ip());
        let repeated = repeated.or_insert(Repeated {
            ins: *executed.ins,
            count: 0,
            why,
        });
        repeated.count += 1;
        let number = self.slice.members.len() + self.found.len();
        if number >= self.bounds.members {
            return by;
        }
        let new = Member {
            position: Position::after(0),
            thread: executed.thread as u32,
            pc: executed.ins.ip(),
            why,
            by: member(by),
        };
        self.found.push((executed.place.place(), new));
        number as Who + 1
    }

    /// Who has marked any of these.
    fn marked(&mut self, executed: &Executed<'_>, sites: &[Site]) -> Option<Who> {
        for site in sites {
            let who = match site.cells() {
                Some(cells) => self.marked.who_of(executed.thread, &cells),
                None => ranges(executed, site, false)
                    .find_map(|(addr, len)| self.marked.who_at(addr, len)),
            };
            if who.is_some() {
                return who;
            }
        }
        None
    }

    /// What is marked of a destination after the instruction.
    fn marks(&mut self, executed: &Executed<'_>, flow: &Flow, addresses: &Cells) -> Option<Marks> {
        let by_address = self.marked.who_of(executed.thread, addresses);
        if let Some(who) = by_address.filter(|_| self.kinds.addresses) {
            return Some(Marks { who, moved: None });
        }
        let who = self.marked(executed, &flow.from)?;
        let [from] = &flow.from[..] else {
            return Some(Marks { who, moved: None });
        };
        if !flow.moved {
            return Some(Marks { who, moved: None });
        }
        let width = u64::from(flow.width);
        let mut offsets = Vec::new();
        match from.cells() {
            Some(_) => {
                let bytes = bytes_of(from, &self.marked.cells(executed.thread));
                offsets.extend((0..32u64).filter(|n| bytes & 1 << n != 0 && *n < width));
            }
            None => {
                for (addr, len) in ranges(executed, from, false) {
                    if overlaps(executed, &flow.to, addr, len) {
                        return Some(Marks { who, moved: None });
                    }
                    let wide = flow.width == u8::MAX;
                    let offset = |n: &u64| wide || *n < width;
                    self.marked.offsets(addr, len, &mut offsets);
                    offsets.retain(offset);
                }
            }
        }
        let low = offsets.iter().filter(|offset| **offset < 32);
        let bytes = low.fold(0, |all, offset| all | 1 << offset);
        (!offsets.is_empty()).then_some(Marks {
            who,
            moved: Some((bytes, offsets)),
        })
    }

    fn looked_at(&mut self, executed: &Executed<'_>, flows: &Flows, turn: Option<Turn>) {
        let decides = matches!(
            turn,
            Some(Turn::Decides | Turn::JumpsIndirectly | Turn::CallsIndirectly)
        );
        if decides
            && self.kinds.control
            && let Some(who) = self.marked(executed, &flows.reads)
        {
            self.include(executed, Why::Control, who);
        }
        // All results before any is put down: what one destination gets may be what another had.
        let mut results = std::mem::take(&mut self.results);
        results.clear();
        for (n, flow) in flows.flows.iter().enumerate() {
            if let Some(marks) = self.marks(executed, flow, &flows.addresses) {
                results.push((n, marks));
            }
        }
        for flow in flows.flows.iter().filter(|flow| !flow.maybe) {
            self.clear(executed, &flow.to);
        }
        let mut computed = None;
        for (n, marks) in &results {
            let flow = &flows.flows[*n];
            // The stack pointer of push and pop is everywhere made of the one before.
            let who = match flow.moved {
                true => {
                    self.slice.moves += 1;
                    match self.kinds.moves {
                        true => self.include(executed, Why::Move, marks.who),
                        false => marks.who,
                    }
                }
                false => match computed {
                    Some(who) => who,
                    None => {
                        let who = self.include(executed, Why::Value, marks.who);
                        computed = Some(who);
                        who
                    }
                },
            };
            self.put(executed, &flow.to, marks, who);
        }
        self.results = results;
    }

    fn clear(&mut self, executed: &Executed<'_>, to: &Site) {
        match to.cells() {
            Some(cells) => {
                self.marked.take_cells(executed.thread, &cells);
            }
            None => {
                let mut offsets = Vec::new();
                for (addr, len) in ranges(executed, to, true) {
                    self.marked.take(addr, len, &mut offsets);
                }
            }
        }
    }

    fn put(&mut self, executed: &Executed<'_>, to: &Site, marks: &Marks, who: Who) {
        match (to.cells(), &marks.moved) {
            (Some(cells), None) => self.marked.add_cells(executed.thread, &cells, who),
            (Some(_), Some((bytes, _))) => {
                let cells = some_of(to, *bytes);
                self.marked.add_cells(executed.thread, &cells, who);
            }
            (None, moved) => {
                for (addr, len) in ranges(executed, to, true) {
                    match moved {
                        None => self.marked.add(addr, len, who),
                        Some((_, offsets)) => {
                            for offset in offsets.iter().filter(|offset| **offset < len) {
                                self.marked.add(addr.wrapping_add(*offset), 1, who);
                            }
                        }
                    }
                }
            }
        }
    }

    /// A call that gives bytes away.
    fn given_away(&mut self, number: u64, thread: u64, fact: &Fact) {
        let Kind::Call(call) = &fact.kind else {
            return;
        };
        let clew_recording::event::End::Returned(len) = call.end else {
            return;
        };
        const WRITE: u32 = 1;
        const PWRITE: u32 = 18;
        const SENDTO: u32 = 44;
        if !matches!(call.nr, WRITE | PWRITE | SENDTO) || len <= 0 {
            return;
        }
        let mut offsets = Vec::new();
        let (addr, len) = (call.args[1], len as u64);
        self.marked.offsets(addr, len, &mut offsets);
        let (Some(first), Some(who)) = (offsets.first(), self.marked.who_at(addr, len)) else {
            return;
        };
        self.slice.inputs.push(Input {
            position: Position {
                event: number,
                ticks: fact.ticks,
                steps: 0,
            },
            thread: thread as u32,
            kind: fact.kind.clone(),
            bytes: offsets.len() as u64,
            addr: Some(addr + first),
            by: member(who),
        });
    }
}

impl Visitor for Search<'_> {
    fn run(&mut self, run: &Run<'_>) -> Result<Go> {
        self.slice.instructions += run.len() as u64;
        let known = self.blocks.known(run).clone();
        let cells = self.marked.cells(run.thread);
        let memory = self.marked.has_memory();
        if !run.told() && !memory && !cells.meets(&known.touches) {
            return Ok(Go::On);
        }
        let mut accesses = std::mem::take(&mut self.accesses);
        for n in 0..run.len() {
            let flows = &known.flows[n];
            let told = run.accesses(n, &mut accesses)?;
            let concerned = self.marked.meets(run.thread, &known.each[n])
                || accesses
                    .iter()
                    .any(|access| self.marked.has(access.addr, access.len));
            if !concerned {
                continue;
            }
            let ins = run.instruction(n);
            let executed = Executed {
                thread: run.thread,
                ins,
                accesses: &accesses,
                told,
                place: When::Of(run, n),
            };
            self.looked_at(&executed, flows, turn(ins));
        }
        self.accesses = accesses;
        match self.marked.is_empty() {
            true => Ok(Go::Stop),
            false => Ok(Go::On),
        }
    }

    fn step(&mut self, executed: &Executed<'_>) -> Result<Go> {
        self.slice.instructions += 1;
        let flows = self.blocks.flows(executed.ins);
        self.looked_at(executed, &flows, turn(executed.ins));
        Ok(Go::On)
    }

    fn event(&mut self, number: u64, thread: u64, _pc: u64) -> Result<Go> {
        let Some(fact) = self.events.get(number) else {
            return Ok(Go::On);
        };
        self.given_away(number, thread, fact);
        let whose = fact.thread.unwrap_or(thread);
        if fact.kind == Kind::NewThread {
            // All else it has from its maker.
            let cells = self.marked.cells(thread);
            if let Some(who) = self.marked.who_of(thread, &cells) {
                self.marked.add_cells(whose, &cells, who);
            }
        }
        self.marked.take_cells(whose, &fact.cells);
        let mut offsets = Vec::new();
        for &(addr, len) in self.events.memory(fact) {
            self.marked.take(addr, len, &mut offsets);
        }
        Ok(Go::On)
    }
}

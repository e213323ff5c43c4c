//! The slice of a value: all that it was made of, and what decided that it was made so. In: values at a place. Out: the
//! instructions that computed them and what those used, transitively, newest first; where values came in.
//!
//! Values that are only moved are followed, and their moves are no members unless one asks. A register that a function
//! saves and gives back depends on nothing of that function.

use clew_engine::cache::accesses::Access;
use clew_recording::reader::StreamReader;
use clew_symbols::Modules;
use clew_timeline::trace::{Ahead, Trace};
use clew_timeline::{Position, Timeline};
use iced_x86::Instruction;
use rustc_hash::FxHashMap;

use crate::cells::Cells;
use crate::code::Code;
use crate::events::{Events, Kind};
use crate::flows::Flows;
use crate::frames::{Frames, Threads};
use crate::known::{Blocks, Known, Turn, turn};
use crate::live::{Live, Who};
use crate::origin::Value;
use crate::pairs::plumbing;
use crate::stretches::{Lengths, ask};
use crate::taken::{Taken, want};
use crate::walk::{Executed, Go, Intervals, Place, Run, Visitor, When, back};
use crate::{Error, Result};

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Question {
    pub values: Vec<Value>,
    /// And why the thread that runs came here at all.
    pub here: bool,
}

/// What counts as a dependence.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    /// Branches and calls that decided.
    pub control: bool,
    /// What addresses were made of.
    pub addresses: bool,
    /// Moves are members, too.
    pub moves: bool,
    /// What decides within the system's libraries: otherwise only who called them does. And what the dynamic linker puts
    /// into files in memory.
    pub libraries: bool,
    /// Registers that are saved and given back are told from values that are moved.
    pub pairs: bool,
    /// Where indirect jumps lead is found out, by tables and by what was met.
    pub jumps: bool,
}

impl Default for Kinds {
    fn default() -> Kinds {
        Kinds {
            control: true,
            addresses: false,
            moves: false,
            libraries: false,
            pairs: true,
            jumps: true,
        }
    }
}

/// How far one looks.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Not before this.
    pub from: Option<Position>,
    /// Not behind this, on the way forth.
    pub to: Option<Position>,
    /// So many members are kept; all are counted.
    pub members: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            from: None,
            to: None,
            members: 4_000_000,
        }
    }
}

/// Why something is in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A value was computed from it.
    Value,
    /// It decided that something was executed.
    Control,
    /// It called what was.
    Call,
    /// It moved a value.
    Move,
}

/// An instruction, as it was executed once.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Before it.
    pub position: Position,
    pub thread: u32,
    pub pc: u64,
    pub why: Why,
    /// Which member it is wanted by; none if by the question itself.
    pub by: Option<u32>,
}

/// An instruction of the program, with how often it is a member.
#[derive(Clone, Copy, Debug)]
pub struct Repeated {
    pub ins: Instruction,
    pub count: u64,
    pub why: Why,
}

/// Where a value came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The event, and where it was due.
    pub position: Position,
    pub thread: u32,
    pub kind: Kind,
    /// How many bytes of memory, or registers, counted, and where memory begins.
    pub bytes: u64,
    pub addr: Option<u64>,
    pub by: Option<u32>,
}

/// Something that nobody wrote as far as one looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    pub addr: u64,
    pub len: u64,
    pub by: Option<u32>,
}

#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Newest first; not all of them if there are very many.
    pub members: Vec<Member>,
    /// All instructions with members, by address.
    pub code: FxHashMap<u64, Repeated>,
    pub inputs: Vec<Input>,
    /// Memory that was there from the beginning, or where one stopped looking; on the way forth, what is influenced at its end.
    pub rest: Vec<Rest>,
    /// Registers that were, by thread: a bit for each byte of the sixteen general ones.
    pub registers: Vec<(u32, u128)>,
    /// How many members there are.
    pub count: u64,
    /// Instructions that were looked through, and moves of values.
    pub instructions: u64,
    pub moves: u64,
    /// Saved registers that were passed by.
    pub pairs: u64,
    /// Values that the dynamic linker put into the program's files in memory.
    pub linked: u64,
    /// It goes back to the beginning, or as far as was asked; else somebody stopped it, or the recording ends.
    pub complete: bool,
}

/// Ranges of memory that are told of the rest.
const MOST_REST: usize = 10_000;

/// The slice of values where the timeline stands. It stays there. `modules`: what is mapped.
pub fn slice(
    timeline: &mut Timeline,
    log: StreamReader,
    modules: Modules,
    question: &Question,
    kinds: Kinds,
    bounds: Bounds,
) -> Result<Slice> {
    let events = Events::read(log)?;
    let mut search = Search::new(&events, modules, kinds, bounds);
    search.ask(question, &timeline.at());
    let mut to = timeline.at();
    let mut end = timeline.position()?;
    let mut lengths = Lengths::backwards();
    let mut intervals = Intervals::default();
    // While one stretch is looked at, the one before it is traced, on another core.
    let mut ahead: Option<Ahead> = None;
    loop {
        if search.is_done() {
            return Ok(search.finish(true));
        }
        let traced = match ahead.take() {
            Some(ahead) => ahead.trace(timeline),
            None => timeline.trace_back(&to, lengths.next()),
        };
        let traced = traced.and_then(|trace| {
            match (trace, bounds.from) {
                // No farther than one looks.
                (Some(trace), Some(from)) if start_of(&trace) < from => {
                    timeline.trace(from, end).map(|trace| (Some(trace), true))
                }
                (trace, _) => Ok((trace, false)),
            }
        });
        let (trace, far) = match traced {
            Ok((Some(trace), far)) => (trace, far),
            Ok((None, _)) => return Ok(search.finish(true)),
            // What was found until then is worth something.
            Err(clew_timeline::Error::Interrupted) => return Ok(search.finish(false)),
            Err(error) => return Err(error.into()),
        };
        if bounds.from.is_none() && trace.complete {
            let length = lengths.next_if_longest();
            ahead = length.map(|length| timeline.trace_ahead(trace.start, length));
        }
        search.begin();
        let ticks_of = |number| events.ticks(number);
        back(&trace, &mut intervals, &ticks_of, &mut search)?;
        search.place_all(&intervals)?;
        if far || !trace.complete {
            return Ok(search.finish(trace.complete));
        }
        end = start_of(&trace);
        to = trace.start;
    }
}

/// Stretches begin at ticks.
fn start_of(trace: &Trace) -> Position {
    Position {
        event: trace.start.event,
        ticks: trace.start.ticks,
        steps: 0,
    }
}

struct Search<'a> {
    kinds: Kinds,
    bounds: Bounds,
    live: Live,
    events: &'a Events,
    blocks: Blocks,
    code: Code,
    threads: Threads,
    /// Members with their places in the stretch that is looked at.
    found: Vec<(Place, Member)>,
    members: Vec<Member>,
    repeated: Vec<Repeated>,
    /// Of instructions by address, and of those that were members lately.
    numbers: FxHashMap<u64, usize>,
    recent: Box<[(u64, usize)]>,
    inputs: Vec<Input>,
    count: u64,
    instructions: u64,
    moves: u64,
    pairs: u64,
    linked: u64,
    /// Instructions that save registers or give them back.
    plumbing: FxHashMap<u64, bool>,
    /// Room for a run's accesses, and for the bytes that an instruction defines.
    accesses: Vec<Access>,
    taken: Taken,
    offsets: Vec<u64>,
    /// Changes with all that decides what becomes of an instruction: what counts, and what is open.
    version: u64,
    /// Runs that did nothing, but for what they may write to memory, with the version of then: loops do nothing again and
    /// again.
    idle: Box<[(u32, u16, u64, u64)]>,
}

/// Idle runs that are remembered.
const IDLE: usize = 1024;

/// Instructions that are found without a search.
const RECENT: usize = 1024;

/// The question itself wants something; members are numbered from one.
const ASKED: Who = 0;

/// What still counts when one has looked far enough: memory, and general registers.
pub(crate) fn left(live: &Live) -> (Vec<Rest>, Vec<(u32, u128)>) {
    let rest = live.memory(MOST_REST).into_iter();
    let rest = rest.map(|(addr, len, who)| Rest {
        addr,
        len,
        by: member(who),
    });
    let registers = live.threads();
    let registers = registers.map(|(thread, cells)| (thread as u32, cells.of_general()));
    (rest.collect(), registers.collect())
}

pub(crate) fn member(who: Who) -> Option<u32> {
    who.checked_sub(1)
}

impl<'a> Search<'a> {
    fn new(events: &'a Events, modules: Modules, kinds: Kinds, bounds: Bounds) -> Search<'a> {
        Search {
            kinds,
            bounds,
            live: Live::default(),
            events,
            blocks: Blocks::default(),
            code: Code::new(modules, kinds.jumps),
            threads: Threads::default(),
            found: Vec::new(),
            members: Vec::new(),
            repeated: Vec::new(),
            numbers: FxHashMap::default(),
            recent: vec![(u64::MAX, 0); RECENT].into(),
            inputs: Vec::new(),
            count: 0,
            instructions: 0,
            moves: 0,
            pairs: 0,
            linked: 0,
            plumbing: FxHashMap::default(),
            accesses: Vec::new(),
            taken: Taken::default(),
            offsets: Vec::new(),
            version: 1,
            idle: vec![(0, 0, 0, 0); IDLE].into(),
        }
    }

    /// Another stretch, whose blocks have other numbers.
    fn begin(&mut self) {
        self.blocks.forget();
        self.version += 1;
    }

    fn ask(&mut self, question: &Question, at: &clew_timeline::At) {
        ask(&mut self.live, &question.values, ASKED);
        if question.here && self.kinds.control {
            let frames = self.threads.of(u64::from(at.thread));
            frames.open(&mut self.code, at.pc, ASKED);
            frames.set_next(Some(at.pc));
        }
    }

    fn is_done(&self) -> bool {
        self.live.is_empty() && !self.threads.iter().any(|(_, frames)| frames.is_wanted())
    }

    fn finish(self, complete: bool) -> Slice {
        let (rest, registers) = left(&self.live);
        Slice {
            members: self.members,
            code: self
                .repeated
                .into_iter()
                .map(|one| (one.ins.ip(), one))
                .collect(),
            inputs: self.inputs,
            rest,
            registers,
            count: self.count,
            instructions: self.instructions,
            moves: self.moves,
            pairs: self.pairs,
            linked: self.linked,
            complete,
        }
    }

    /// Gives the members of a stretch their positions.
    fn place_all(&mut self, intervals: &Intervals) -> Result<()> {
        for (place, mut member) in self.found.drain(..) {
            member.position = intervals.position(place).ok_or(Error::Nonsense)?;
            if let Some(kind) = Kind::of_time_call(member.pc) {
                self.inputs.push(Input {
                    position: member.position,
                    thread: member.thread,
                    kind,
                    bytes: 0,
                    addr: None,
                    by: Some(self.members.len() as u32),
                });
            }
            self.members.push(member);
        }
        Ok(())
    }

    /// A new member; its number for those that it wants.
    fn include(&mut self, executed: &Executed<'_>, why: Why, by: Who) -> Who {
        self.count += 1;
        let pc = executed.ins.ip();
        // The same few instructions come again and again.
        let slot = pc as usize % RECENT;
        if self.recent[slot].0 != pc {
            let at = *self.numbers.entry(pc).or_insert_with(|| {
                self.repeated.push(Repeated {
                    ins: *executed.ins,
                    count: 0,
                    why,
                });
                self.repeated.len() - 1
            });
            self.recent[slot] = (pc, at);
        }
        self.repeated[self.recent[slot].1].count += 1;
        let number = self.members.len() + self.found.len();
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

    /// An instruction was executed: takes out what it defines of what counts, and wants what that was made of.
    fn defined(&mut self, executed: &Executed<'_>, flows: &Flows) {
        let mut taken = std::mem::take(&mut self.taken);
        taken.take(&mut self.live, executed, &flows.flows);
        if !taken.met.is_empty() {
            self.met(executed, flows, &taken);
        }
        self.taken = taken;
    }

    /// Some of its destinations counted.
    fn met(&mut self, executed: &Executed<'_>, flows: &Flows, taken: &Taken) {
        self.version += 1;
        let mut written = executed.accesses.iter().filter(|access| access.write);
        let links = |access: &Access| self.code.links(executed.ins.ip(), access.addr);
        if !self.kinds.libraries && written.any(links) {
            self.linked += 1;
            return;
        }
        let mut computed: Option<Who> = None;
        for met in &taken.met {
            let flow = &flows.flows[met.flow];
            if flow.maybe {
                taken.put_back(&mut self.live, executed, met, &flow.to);
            }
            let who = match flow.moved {
                true => self.moved(executed, met.who),
                false => match computed {
                    Some(who) => who,
                    None => {
                        let who = self.include(executed, Why::Value, met.who);
                        computed = Some(who);
                        self.decided(executed, who);
                        who
                    }
                },
            };
            match flow.moved {
                true => taken.follow(&mut self.live, executed, flow, met, who),
                false => want(&mut self.live, executed, &flow.from, who),
            }
            if self.kinds.addresses {
                let cells = flows.addresses;
                self.live.add_cells(executed.thread, &cells, who);
            }
        }
    }

    /// A value was moved: who wants it before.
    fn moved(&mut self, executed: &Executed<'_>, who: Who) -> Who {
        self.moves += 1;
        if self.kinds.pairs && self.is_plumbing(executed.ins) {
            self.pairs += 1;
            return who;
        }
        let who = match self.kinds.moves {
            true => self.include(executed, Why::Move, who),
            false => who,
        };
        self.decided(executed, who);
        who
    }

    /// What decided that this was executed counts, too.
    fn decided(&mut self, executed: &Executed<'_>, who: Who) {
        self.decided_at(executed.thread, executed.ins.ip(), who);
    }

    fn decided_at(&mut self, thread: u64, pc: u64, who: Who) {
        if !self.kinds.control {
            return;
        }
        let frames = self.threads.get(thread);
        let open = frames.is_some_and(|frames| frames.has_open(&self.code, pc, who));
        if open || self.code.starts(pc) {
            return;
        }
        let passed = self.is_passed(pc);
        let frames = self.threads.of(thread);
        match passed {
            true => frames.called(who),
            false => frames.open(&mut self.code, pc, who),
        }
    }

    /// Whether what decides there doesn't count, only who called it.
    fn is_passed(&mut self, pc: u64) -> bool {
        !self.kinds.libraries && self.code.is_library(pc) || self.code.only_moves(pc)
    }

    /// Whether an instruction saves a register for its caller, or gives it back, by what unwind information says.
    fn is_plumbing(&mut self, ins: &Instruction) -> bool {
        let modules = self.code.modules();
        *self
            .plumbing
            .entry(ins.ip())
            .or_insert_with(|| plumbing(modules, ins).unwrap_or(false))
    }

    /// Control went elsewhere: whether that is what something depends on.
    fn turned(&mut self, executed: &Executed<'_>, flows: &Flows, turn: Turn) {
        let pc = executed.ins.ip();
        if !matches!(turn, Turn::Decides | Turn::Jumps) {
            self.version += 1;
        }
        let frames = self.threads.of(executed.thread);
        let code = &mut self.code;
        let slot = |write: bool| {
            let mut all = executed.accesses.iter();
            let found = all.rfind(|access| if write { access.write } else { access.read });
            found.map(|access| access.addr)
        };
        let (who, why) = match turn {
            Turn::Decides => (frames.branch(code, pc, false), Why::Control),
            Turn::JumpsIndirectly => (frames.branch(code, pc, true), Why::Control),
            Turn::Jumps => {
                let target = executed.ins.near_branch_target();
                (frames.jump(code, pc, target), Why::Call)
            }
            Turn::Calls | Turn::CallsIndirectly => match slot(true) {
                Some(slot) => (frames.call(code, pc, slot), Why::Call),
                None => (None, Why::Call),
            },
            Turn::Returns => {
                if let Some(slot) = slot(false) {
                    frames.returned(slot);
                }
                (None, Why::Control)
            }
        };
        let Some(who) = who else {
            return;
        };
        self.version += 1;
        if why == Why::Call && self.is_passed(pc) {
            self.threads.of(executed.thread).called(who);
            return;
        }
        let who = self.include(executed, why, who);
        // A direct call or jump decides nothing; where the others lead follows from values.
        if turn != Turn::Jumps && turn != Turn::Calls {
            want(&mut self.live, executed, &flows.reads, who);
        }
        self.decided(executed, who);
    }

    fn looked_at(&mut self, executed: &Executed<'_>, flows: &Flows, turn: Option<Turn>) {
        if let Some(turn) = turn.filter(|_| self.kinds.control) {
            self.turned(executed, flows, turn);
            // What it reads may be what it defines.
            if flows.writes == 0 && !self.live.meets(executed.thread, &flows.defines) {
                return;
            }
        }
        self.defined(executed, flows);
    }

    /// Whether a run has to be looked at for its branches, calls and returns.
    fn has_turns(&mut self, run: &Run<'_>, known: &Known) -> bool {
        if !self.kinds.control || known.turns.is_empty() {
            return false;
        }
        let Some(frames) = self.threads.get_mut(run.thread) else {
            return false;
        };
        if !frames.is_wanted() {
            // Whose it was doesn't matter any more.
            frames.forget();
            return false;
        }
        let open = frames.is_open();
        known.turns.iter().any(|(n, turn)| {
            let decides = matches!(turn, Turn::Decides | Turn::Jumps);
            *n < run.end.count && (open || !decides)
        })
    }
}

impl Visitor for Search<'_> {
    fn run(&mut self, run: &Run<'_>) -> Result<Go> {
        self.instructions += run.len() as u64;
        let number = run.end.block as usize % IDLE;
        let this = (run.end.block, run.end.count, run.thread, self.version);
        if self.idle[number] == this && !self.blocks.writes_any(run, &mut self.live) {
            if self.kinds.control {
                self.goes_on(run.thread, run.instruction(0).ip());
            }
            return Ok(Go::On);
        }
        let known = self.blocks.known(run).clone();
        if self.blocks.concerns(run, &mut self.live) || self.has_turns(run, &known) {
            let mut accesses = std::mem::take(&mut self.accesses);
            let behind = |(at, _): &&(u16, Turn)| *at >= run.end.count;
            let mut turns = known.turns.iter().rev().skip_while(behind).peekable();
            for n in (0..run.len()).rev() {
                let turn = turns.next_if(|(at, _)| usize::from(*at) == n);
                let turn = turn.map(|(_, turn)| *turn);
                if turn.is_some() && n + 1 < run.len() {
                    self.goes_on(run.thread, run.instruction(n + 1).ip());
                }
                let flows = &known.flows[n];
                let concerns = turn.is_some()
                    || flows.writes != 0
                    || self.live.meets(run.thread, &flows.defines);
                if !concerns {
                    continue;
                }
                let told = run.accesses(n, &mut accesses)?;
                let executed = Executed {
                    thread: run.thread,
                    ins: run.instruction(n),
                    accesses: &accesses,
                    told,
                    place: When::Of(run, n),
                };
                self.looked_at(&executed, flows, turn);
            }
            self.accesses = accesses;
        }
        if self.version == this.3 && !run.told() {
            self.idle[number] = this;
        }
        if self.kinds.control {
            self.goes_on(run.thread, run.instruction(0).ip());
        }
        Ok(Go::On)
    }

    fn step(&mut self, executed: &Executed<'_>) -> Result<Go> {
        self.instructions += 1;
        let flows = self.blocks.flows(executed.ins);
        self.looked_at(executed, &flows, turn(executed.ins));
        if self.kinds.control {
            self.goes_on(executed.thread, executed.ins.ip());
        }
        Ok(Go::On)
    }

    fn event(&mut self, number: u64, thread: u64, pc: u64) -> Result<Go> {
        self.version += 1;
        let Some(fact) = self.events.get(number) else {
            return Ok(Go::On);
        };
        if self.kinds.control {
            let frames = self.threads.of(thread);
            match &fact.kind {
                Kind::Signal { .. } => frames.interrupted(&mut self.code),
                Kind::Call(call) if call.nr == RT_SIGRETURN => frames.handled(),
                _ => {}
            }
        }
        let whose = fact.thread.unwrap_or(thread);
        let (mut bytes, mut addr) = (0, None);
        let (cells, by_cells) = self.live.take_cells(whose, &fact.cells);
        let mut who = (!cells.is_empty()).then_some(by_cells);
        let mut offsets = std::mem::take(&mut self.offsets);
        for &(start, len) in self.events.memory(fact) {
            offsets.clear();
            if let Some(by) = self.live.take(start, len, &mut offsets) {
                who = Some(by);
                bytes += offsets.len() as u64;
                addr = addr.or(offsets.first().map(|offset| start + offset));
            }
        }
        self.offsets = offsets;
        if fact.kind == Kind::NewThread {
            // All else it has from its maker, who has decided that it runs.
            let (cells, by) = self.live.take_cells(whose, &Cells::all());
            self.live.add_cells(thread, &cells, by);
            let begun = self.threads.get_mut(whose).and_then(Frames::begun);
            if let Some(who) = begun.filter(|_| self.kinds.control) {
                self.threads.of(thread).called(who);
            }
        }
        let Some(who) = who else {
            return Ok(Go::On);
        };
        self.inputs.push(Input {
            position: Position {
                event: number,
                ticks: fact.ticks,
                steps: 0,
            },
            thread: thread as u32,
            kind: fact.kind.clone(),
            bytes,
            addr,
            by: member(who),
        });
        if matches!(fact.kind, Kind::Call(_) | Kind::Instruction) {
            self.decided_at(thread, pc, who);
        }
        Ok(Go::On)
    }
}

const RT_SIGRETURN: u32 = 15;

impl Search<'_> {
    fn goes_on(&mut self, thread: u64, pc: u64) {
        self.threads.of(thread).set_next(Some(pc));
    }
}

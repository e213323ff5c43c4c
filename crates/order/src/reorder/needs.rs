//! What must stay in order, whatever else is changed. In: a replay that hears of every access to memory by which threads
//! synchronise, the log, and the interactions. Out: units, and for each what must come before it.
//!
//! * the program's own interactions: the edges of the graph;
//! * accesses to words that atomic instructions touch, that the kernel clears, that the C library and the loader have for
//!   themselves, and that the program's text says are atomic: locks are made of them;
//! * mappings of the same addresses;
//! * a thread's making before its life, a waking before who was woken goes on, everything before the process's end.
//!
//! What the program does to its data isn't here: if its order matters, that is a race.

use std::collections::BTreeMap;
use std::ops::Range;

use clew_recording::event::{Event, ThreadId};
use clew_recording::maps::Change;
use clew_symbols::Modules;
use clew_timeline::program::Program;
use clew_timeline::{Granules, Hears, Interactions, Mark, Timeline, Told};
use rustc_hash::{FxHashMap, FxHashSet};

use super::lives::{KeptEffect, Lives};
use super::units::{Cuts, UnitId, Units};
use super::{Reached, Refused};
use crate::declared::declared;
use crate::gather::Gathered;
use crate::graph::Graph;
use crate::names::{is_c_library, is_loader};
use crate::{Error, Result};

/// More accesses aren't kept.
const MOST: usize = 30_000_000;
const GRANULE: u64 = 16;
/// Accesses are told apart by words of this size.
const WORD: u64 = 4;
/// Where the loader writes addresses of functions that are bound when they are first called.
const BOUND: &[&str] = &[".got", ".got.plt"];
const EXIT: u32 = 60;
const FUTEX: u32 = 202;

/// One access to a word that counts.
#[derive(Clone, Copy)]
struct Access {
    event: u64,
    ticks: u64,
    word: u64,
    write: bool,
}

/// Hears which words atomic instructions touch.
#[derive(Default)]
struct Locked(FxHashSet<u64>);

impl Hears for Locked {
    fn begins(&mut self) {
        self.0.clear();
    }

    fn hears(&mut self, told: Told) {
        if let Told::Access {
            addr, len, locked, ..
        } = told
            && locked
        {
            self.0.extend(words(addr, len));
        }
    }
}

/// Hears of accesses to words that count.
struct Heard<'a> {
    words: &'a FxHashSet<u64>,
    head: u64,
    all: Vec<Access>,
}

impl Hears for Heard<'_> {
    fn begins(&mut self) {
        self.all.clear();
    }

    fn hears(&mut self, told: Told) {
        let Told::Access {
            at,
            addr,
            len,
            write,
            ..
        } = told
        else {
            return;
        };
        if at.event < self.head || self.all.len() >= MOST {
            return;
        }
        for word in words(addr, len).filter(|word| self.words.contains(word)) {
            self.all.push(Access {
                event: at.event,
                ticks: at.ticks,
                word,
                write,
            });
        }
    }
}

fn words(addr: u64, len: u64) -> impl Iterator<Item = u64> {
    let last = addr.saturating_add(len.max(1) - 1);
    (addr / WORD)..=(last / WORD)
}

/// Which granules several threads touch.
struct Shared(Vec<Range<u32>>);

impl Shared {
    fn of(granules: &[Granules]) -> Shared {
        let mut all: Vec<Range<u32>> = granules
            .iter()
            .map(|one| one.first..one.first.saturating_add(one.count))
            .collect();
        all.sort_by_key(|range| range.start);
        Shared(all)
    }

    fn has(&self, granule: u32) -> bool {
        let behind = self.0.partition_point(|range| range.start <= granule);
        behind > 0 && self.0[behind - 1].contains(&granule)
    }
}

/// The granule of an address, as workers number them.
fn granule(addr: u64) -> u32 {
    (addr / GRANULE) as u32
}

/// Words by whose order threads synchronise.
fn words_that_count(
    timeline: &mut Timeline,
    program: &mut Program,
    modules: &Modules,
    lives: &Lives,
    shared: &Shared,
) -> Result<FxHashSet<u64>> {
    let mut locked = Locked::default();
    let asked = Interactions {
        functions: Vec::new(),
        accesses: None,
        every: false,
    };
    timeline.interactions(&asked, &mut locked)?;
    let mut words_ = locked.0;
    for addr in declared(program.catalog(), modules) {
        words_.extend(words(addr, 8));
    }
    for image in modules.modules() {
        let name = image.module.name().to_string_lossy().into_owned();
        let own = is_c_library(&name) || is_loader(&name);
        let sections: &[&str] = match own {
            true => &[".got", ".got.plt", ".data", ".bss", ".data.rel.ro"],
            false => BOUND,
        };
        for section in sections {
            let Some(range) = image.module.section(section) else {
                continue;
            };
            words_.extend(words(
                range.start.wrapping_add(image.bias),
                range.end - range.start,
            ));
        }
    }
    words_.retain(|&word| shared.has(granule(word * WORD)));
    // What the kernel touches isn't among what is shared.
    for stretch in &lives.stretches {
        let kept = lives.kept(stretch.event);
        match kept.event() {
            Event::Call(call) if call.nr == EXIT => {
                for effect in &kept.effects {
                    if let KeptEffect::Memory { addr, bytes } = effect {
                        words_.extend(words(*addr, bytes.len() as u64));
                    }
                }
            }
            Event::Call(call) if call.nr == FUTEX => words_.extend(words(call.args[0], WORD)),
            _ => {}
        }
    }
    Ok(words_)
}

/// What comes of it.
pub struct Constrained {
    pub units: Units,
    /// For each interaction, what must be executed so that it has happened; and so that it is over.
    pub reached: Vec<Reached>,
}

/// Finds all that must stay in order.
pub fn constrain(
    timeline: &mut Timeline,
    program: &mut Program,
    modules: &Modules,
    gathered: &Gathered,
    lives: &Lives,
) -> Result<Constrained> {
    let (granules, all) = timeline.sharing()?;
    if !all {
        return Err(Error::Refused(Refused::TooLong));
    }
    let shared = Shared::of(&granules);
    let words = words_that_count(timeline, program, modules, lives, &shared)?;
    let mut looked: Vec<u32> = words.iter().map(|&word| granule(word * WORD)).collect();
    looked.sort_unstable();
    looked.dedup();
    let one = |&first: &u32| Granules { first, count: 1 };
    let mut heard = Heard {
        words: &words,
        head: lives.head,
        all: Vec::new(),
    };
    let asked = Interactions {
        functions: Vec::new(),
        accesses: Some(looked.iter().map(one).collect()),
        every: true,
    };
    timeline.interactions(&asked, &mut heard)?;
    let accesses = heard.all;
    if accesses.len() >= MOST {
        return Err(Error::Refused(Refused::TooLong));
    }
    let mut cuts = Cuts::default();
    for access in &accesses {
        cuts.at(lives, mark(access.event, access.ticks));
    }
    for one in &gathered.interactions {
        if one.at.pc != 0 {
            cuts.at(lives, one.at);
            cuts.before(lives, one.over);
        }
    }
    let mut units = Units::of(lives, cuts);
    by_memory(&mut units, lives, &words, &accesses);
    by_log(&mut units, lives);
    let reached: Vec<Reached> = gathered
        .interactions
        .iter()
        .map(|one| Reached::of(&units, lives, one))
        .collect();
    for (before, after) in Graph::of(&gathered.interactions).edges() {
        if let (Some(first), Some(then)) = (reached[before].happened, reached[after].happened) {
            units.need(then, first);
        }
    }
    Ok(Constrained { units, reached })
}

fn mark(event: u64, ticks: u64) -> Mark {
    Mark {
        event,
        ticks,
        pc: 0,
        sp: 0,
    }
}

/// Who wrote a word last, and who has read it since.
#[derive(Default)]
struct Word {
    write: Option<UnitId>,
    reads: Vec<UnitId>,
}

impl Word {
    fn touch(&mut self, units: &mut Units, unit: UnitId, write: bool) {
        if let Some(before) = self.write {
            units.need(unit, before);
        }
        if write {
            for read in self.reads.drain(..) {
                units.need(unit, read);
            }
            self.write = Some(unit);
            return;
        }
        let thread = units.all[unit as usize].thread;
        let own = |read: &&mut UnitId| units.all[**read as usize].thread == thread;
        match self.reads.iter_mut().find(own) {
            Some(read) => *read = unit,
            None => self.reads.push(unit),
        }
    }
}

fn by_memory(units: &mut Units, lives: &Lives, words_: &FxHashSet<u64>, accesses: &[Access]) {
    let mut state: FxHashMap<u64, Word> = FxHashMap::default();
    let mut next = accesses.iter().peekable();
    for stretch in &lives.stretches {
        while let Some(access) = next.next_if(|access| access.event <= stretch.event) {
            if let Some(unit) = units.at(lives, access.event, access.ticks) {
                let word = state.entry(access.word).or_default();
                word.touch(units, unit, access.write);
            }
        }
        // What the kernel read, to see whether to wait; and wrote.
        if let Event::Call(call) = lives.kept(stretch.event).event()
            && call.nr == FUTEX
            && let Some(unit) = units.event(lives, stretch.event)
        {
            for word in words(call.args[0], WORD) {
                state.entry(word).or_default().touch(units, unit, false);
            }
        }
        for effect in &lives.kept(stretch.event).effects {
            let KeptEffect::Memory { addr, bytes } = effect else {
                continue;
            };
            let touched = words(*addr, bytes.len() as u64);
            for word in touched.filter(|word| words_.contains(word)) {
                if let Some(unit) = units.event(lives, stretch.event) {
                    let word = state.entry(word).or_default();
                    word.touch(units, unit, true);
                }
            }
        }
    }
}

/// Addresses whose mapping was changed, and by whom last.
#[derive(Default)]
struct Mapped(BTreeMap<u64, (u64, UnitId)>);

impl Mapped {
    fn touch(&mut self, units: &mut Units, range: Range<u64>, unit: UnitId) {
        let before = self.0.range(..range.end).rev();
        let overlaps: Vec<(u64, u64, UnitId)> = before
            .map(|(&start, &(end, by))| (start, end, by))
            .take_while(|&(_, end, _)| end > range.start)
            .collect();
        for (start, end, by) in overlaps {
            units.need(unit, by);
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, (range.start, by));
            }
            if end > range.end {
                self.0.insert(range.end, (end, by));
            }
        }
        self.0.insert(range.start, (range.end, unit));
    }
}

/// What is changed by a change of mappings, in up to two places; all of it where that isn't told.
fn changed(bytes: &[u8]) -> [Range<u64>; 2] {
    let one = |start: u64, end: u64| [start..end, 0..0];
    match Change::decode(bytes) {
        Ok(Change::Map { mapping, .. }) => one(mapping.pages.start, mapping.pages.end),
        Ok(
            Change::Image { pages, .. }
            | Change::Unmap(pages)
            | Change::Protect { pages, .. }
            | Change::Discard { pages, .. }
            | Change::OnFork { pages, .. },
        ) => one(pages.start, pages.end),
        Ok(Change::Move {
            old,
            old_len,
            new,
            new_len,
            ..
        }) => [
            old..old.saturating_add(old_len),
            new..new.saturating_add(new_len),
        ],
        // The heap has one end, whoever moves it.
        Ok(Change::Break(_)) => one(0, 1),
        _ => one(0, u64::MAX),
    }
}

fn by_log(units: &mut Units, lives: &Lives) {
    let mut mapped = Mapped::default();
    let mut waits: FxHashMap<ThreadId, u64> = FxHashMap::default();
    // Of each thread, the last units that could have woken somebody: at a word, or at all.
    let mut woke: FxHashMap<(ThreadId, Option<u64>), UnitId> = FxHashMap::default();
    let mut made: FxHashMap<ThreadId, UnitId> = FxHashMap::default();
    for (n, stretch) in lives.stretches.iter().enumerate() {
        let Some(unit) = units.event(lives, stretch.event) else {
            continue;
        };
        let thread = stretch.thread;
        // The first of a thread's life.
        if let Some(maker) = made.remove(&thread)
            && let Some(first) = units.at(lives, lives.stretches[n].event, 0)
        {
            units.need(first, maker);
        }
        let kept = lives.kept(stretch.event);
        match kept.event() {
            Event::NewThread { thread, .. } => {
                made.insert(thread, unit);
            }
            Event::Call(call) => {
                waits.insert(thread, call.args[0]);
                if call.nr == FUTEX || call.nr == EXIT {
                    woke.insert((thread, Some(call.args[0])), unit);
                    woke.insert((thread, None), unit);
                }
            }
            Event::Resumed { by: Some(by), .. } => {
                let word = waits.get(&thread).copied();
                let at_word = woke.get(&(by, word));
                if let Some(&waker) = at_word.or_else(|| woke.get(&(by, None))) {
                    units.need(unit, waker);
                }
            }
            Event::Exited { .. } | Event::Killed { .. } | Event::Exec { .. } => {
                let last: Vec<UnitId> = units
                    .of_thread
                    .values()
                    .filter_map(|own| own.last().copied())
                    .collect();
                for last in last {
                    units.need(unit, last);
                }
            }
            _ => {}
        }
        for effect in &kept.effects {
            if let KeptEffect::Map(bytes) = effect {
                let changed = changed(bytes).into_iter();
                for range in changed.filter(|range| !range.is_empty()) {
                    mapped.touch(units, range, unit);
                }
            }
        }
    }
}

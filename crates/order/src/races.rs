//! Data races as people read them. In: a timeline. Out: pairs of accesses without order, each with lines, stacks, threads and
//! positions, what memory it is, and which locks were held; the same pair of lines once.

use std::collections::BTreeMap;

use clew_recording::event::ThreadId;
use clew_recording::reader::StreamReader;
use clew_symbols::Frame;
use clew_timeline::program::Program;
use clew_timeline::{Interactions, Mark, Position, Target, Timeline};
use serde::Serialize;

use crate::declared::declared;
use crate::detect::{Detector, Pair, Touched};
use crate::gather::{Gathered, Gatherer, known};
use crate::names::{Line, Names, is_c_library, is_loader};
use crate::{Error, Result};

mod suppress;

pub use suppress::Suppressions;

/// Races with stacks; of more than these, lines alone are told.
const MOST_STACKS: usize = 200;
const MOST_FRAMES: usize = 24;
/// Memory may turn out to be atomic one after the other.
const MOST_PASSES: usize = 8;
/// Functions of languages' libraries that load and store atomically, as parts of their names.
const ATOMIC: &[&str] = &["core::sync::atomic::", "std::atomic", "std::__atomic_base"];
const ATOMICALLY: &[&str] = &["load", "store"];

/// What a process's threads did to the same memory, without order.
#[derive(Debug, Serialize)]
pub struct Races {
    pub races: Vec<Race>,
    /// Nothing was left out.
    pub complete: bool,
    /// Accesses to shared memory that were looked at.
    pub accesses: u64,
    /// How often the recording was replayed for them.
    pub passes: usize,
}

#[derive(Debug, Serialize)]
pub struct Race {
    pub first: Side,
    pub second: Side,
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    pub bytes: u64,
    /// `total`, `queue.head`; none if it has no name.
    pub variable: Option<String>,
    pub block: Option<BlockTold>,
    /// How often these lines met without order.
    pub count: u64,
    /// Variables and blocks that are one to people: what tells races of the same lines apart.
    #[serde(skip)]
    what: String,
    /// What would have to be between them.
    pub missing: String,
    /// Left out if nobody asks for all: why.
    pub hidden: Option<String>,
}

/// One of the two accesses.
#[derive(Debug, Serialize)]
pub struct Side {
    pub thread: ThreadId,
    pub name: String,
    /// `read`, `write` or `free`.
    pub what: &'static str,
    /// Before the instruction.
    pub position: Option<String>,
    #[serde(serialize_with = "hexadecimal")]
    pub pc: u64,
    #[serde(flatten)]
    pub line: Line,
    /// Innermost first.
    pub stack: Vec<Line>,
    /// Locks that the thread had.
    pub locks: Vec<String>,
}

/// A block that the memory is in.
#[derive(Debug, Serialize)]
pub struct BlockTold {
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    pub size: u64,
    pub offset: u64,
    pub thread: ThreadId,
    #[serde(flatten)]
    pub line: Line,
}

fn hexadecimal<S: serde::Serializer>(
    address: &u64,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{address:#x}"))
}

/// Finds the races of a timeline's process.
pub fn races(
    timeline: &mut Timeline,
    program: &mut Program,
    log: StreamReader,
    suppressions: &Suppressions,
) -> Result<Races> {
    let (granules, all) = timeline.sharing()?;
    let mut detector = Detector::default();
    timeline.seek(Target::End)?;
    let modules = program.modules(timeline)?;
    detector.knows(declared(program.catalog(), &modules));
    let mut passes = 0;
    loop {
        passes += 1;
        let (known, modules) = known(timeline, program, true)?;
        let end = timeline.end()?.event;
        let fresh = program.is_fresh(timeline.stream());
        let mut gatherer = Gatherer::new(known, log.clone(), fresh, Some(detector));
        let asked = Interactions {
            functions: gatherer.functions(),
            accesses: Some(granules.clone()),
            every: false,
        };
        timeline.interactions(&asked, &mut gatherer)?;
        let (gathered, found) = gatherer.end(end)?;
        let mut found = found.ok_or_else(|| Error::Log("no accesses were told".into()))?;
        if passes < MOST_PASSES && found.learns() {
            detector = found;
            continue;
        }
        let pairs = found.pairs();
        // Atomic loads and stores look like others; where they were put into the program, its debugging information says so.
        let told: Vec<u64> = pairs
            .iter()
            .filter(|pair| {
                [pair.first.site, pair.second.site]
                    .iter()
                    .any(|&s| is_atomic(&modules, s))
            })
            .map(|pair| pair.addr)
            .collect();
        if found.knows(told) && passes < MOST_PASSES {
            detector = found;
            continue;
        }
        let mut teller = Teller {
            timeline,
            detector: &found,
            gathered: &gathered,
        };
        let mut races = teller.tell(program, &modules, &pairs)?;
        for race in &mut races {
            if race.hidden.is_none() {
                race.hidden = suppressions.matches(race);
            }
        }
        return Ok(Races {
            races,
            complete: all && found.complete && gathered.complete,
            accesses: found.accesses,
            passes: passes + 1,
        });
    }
}

/// Whether an instruction is of an atomic load or store that was put into the program.
fn is_atomic(modules: &clew_symbols::Modules, site: u64) -> bool {
    let Some(image) = modules.find(site) else {
        return false;
    };
    let places = image.module.places_at(image.local(site));
    let places = places.unwrap_or_default();
    places
        .iter()
        .filter_map(|place| place.function.as_deref())
        .any(|name| {
            let last = name.rsplit("::").find(|part| !part.starts_with('<'));
            let last = last.unwrap_or(name);
            ATOMIC.iter().any(|known| name.contains(known))
                && ATOMICALLY.iter().any(|known| last.contains(known))
        })
}

struct Teller<'a> {
    timeline: &'a mut Timeline,
    detector: &'a Detector,
    gathered: &'a Gathered,
}

impl Teller<'_> {
    fn tell(
        &mut self,
        program: &mut Program,
        modules: &clew_symbols::Modules,
        pairs: &[Pair],
    ) -> Result<Vec<Race>> {
        // The same pair of lines once, whichever came first.
        let mut groups: BTreeMap<([String; 2], String), (usize, u64)> = BTreeMap::new();
        let mut order = Vec::new();
        {
            let names = Names::new(program.catalog(), modules, &self.gathered.threads);
            for (n, pair) in pairs.iter().enumerate() {
                let side = |touched: &Touched| {
                    let line = names.line(touched.site);
                    match (&line.file, line.line) {
                        (Some(file), Some(line)) => format!("{file}:{line}"),
                        _ => format!("{:#x}", touched.site),
                    }
                };
                let mut sides = [side(&pair.first), side(&pair.second)];
                sides.sort();
                let key = (sides, self.what(&names, pair));
                let group = groups.entry(key.clone()).or_insert((n, 0));
                if group.1 == 0 {
                    order.push(key);
                }
                group.1 += pair.count;
            }
        }
        let mut races: Vec<Race> = Vec::new();
        for (told, key) in order.iter().enumerate() {
            let (n, count) = groups[key];
            let race = self.race(program, modules, &pairs[n], count, told < MOST_STACKS)?;
            // What the library did is the business of who called it.
            let same = |other: &&mut Race| {
                let place = |side: &Side| (side.line.file.clone(), side.line.line);
                let places = |race: &Race| {
                    let mut both = [place(&race.first), place(&race.second)];
                    both.sort();
                    both
                };
                race.first.line.line.is_some()
                    && race.second.line.line.is_some()
                    && places(other) == places(&race)
                    && other.hidden == race.hidden
                    && other.what == race.what
            };
            match races.iter_mut().find(same) {
                Some(other) => other.count += race.count,
                None => races.push(race),
            }
        }
        Ok(races)
    }

    /// The variable, without which of its elements; or who asked for the block.
    fn what(&self, names: &Names<'_>, pair: &Pair) -> String {
        match (names.variable(pair.addr), pair.block) {
            (Some(name), _) => name.split('[').next().unwrap_or_default().to_string(),
            (None, Some(block)) => format!("{:#x}", block.back),
            (None, None) => String::new(),
        }
    }

    fn race(
        &mut self,
        program: &mut Program,
        modules: &clew_symbols::Modules,
        pair: &Pair,
        count: u64,
        stacks: bool,
    ) -> Result<Race> {
        let mut seen = [(None, Vec::new()), (None, Vec::new())];
        if stacks {
            for (seen, touched) in seen.iter_mut().zip([&pair.first, &pair.second]) {
                *seen = self.seen(program, touched.thread, touched.at)?;
            }
        }
        let names = Names::new(program.catalog(), modules, &self.gathered.threads);
        let [first, second] = seen;
        let first = self.side(&names, &pair.first, first);
        let second = self.side(&names, &pair.second, second);
        let block = pair.block.map(|block| BlockTold {
            address: block.addr,
            size: block.size,
            offset: pair.addr - block.addr,
            thread: block.thread,
            line: names.line(block.back.wrapping_sub(1)),
        });
        let hidden = hidden(&names, pair, [&first, &second]);
        Ok(Race {
            missing: missing(&first, &second),
            what: self.what(&names, pair),
            first,
            second,
            address: pair.addr,
            bytes: pair.len,
            variable: names.variable(pair.addr),
            block,
            count,
            hidden,
        })
    }

    /// The position of a mark, and the stack there.
    fn seen(
        &mut self,
        program: &mut Program,
        thread: ThreadId,
        at: Mark,
    ) -> Result<(Option<Position>, Vec<Line>)> {
        let Some(position) = self.timeline.positions(&[at])?.first().copied() else {
            return Ok((None, Vec::new()));
        };
        self.timeline.seek(Target::Position(position))?;
        let stack = program.stack(self.timeline, thread)?;
        let frames = stack.frames.iter().take(MOST_FRAMES).map(frame);
        Ok((Some(position), frames.collect()))
    }

    fn side(
        &self,
        names: &Names<'_>,
        touched: &Touched,
        (position, stack): (Option<Position>, Vec<Line>),
    ) -> Side {
        let own = |line: &&Line| {
            let library = line.module.as_deref().is_none_or(is_c_library);
            let text = line.file.as_deref().unwrap_or_default();
            !library && line.line.is_some() && !text.contains("/include/")
        };
        let line = names.line(touched.site);
        let line = match own(&&line) {
            true => line,
            false => stack.iter().find(own).cloned().unwrap_or(line),
        };
        let locks = self.detector.locks(touched.locks).iter();
        Side {
            thread: touched.thread,
            name: names.thread(touched.thread),
            what: match touched {
                Touched { freed: true, .. } => "free",
                Touched { write: true, .. } => "write",
                _ => "read",
            },
            position: position.map(|position| position.to_string()),
            pc: touched.site,
            line,
            stack,
            locks: locks
                .map(|&lock| names.object(&self.gathered.objects[lock as usize]))
                .collect(),
        }
    }
}

fn frame(frame: &Frame) -> Line {
    let line = frame.line.as_ref().filter(|line| line.line != 0);
    let module = frame.module.as_ref();
    Line {
        function: frame.function.clone(),
        file: line.map(|line| line.file.to_string()),
        line: line.map(|line| line.line),
        module: module.map(|module| module.name().display().to_string()),
    }
}

/// What the C library does to its own memory is known to be meant: its locks are made of such accesses.
fn hidden(names: &Names<'_>, pair: &Pair, sides: [&Side; 2]) -> Option<String> {
    let library = |address: u64| {
        let image = names.image(address)?;
        Some(is_c_library(&image.module.name().to_string_lossy()))
    };
    let loader = |address: u64| {
        let image = names.image(address);
        image.is_some_and(|image| is_loader(&image.module.name().to_string_lossy()))
    };
    // Two threads may bind the same call: both write the same word, and who reads it sees the old or the new one.
    if loader(pair.first.site) || loader(pair.second.site) {
        return Some("the loader binds a call".into());
    }
    if library(pair.first.site) != Some(true) || library(pair.second.site) != Some(true) {
        return None;
    }
    let own_data = library(pair.addr) == Some(true);
    let own_block = pair
        .block
        .is_some_and(|block| library(block.back) == Some(true));
    // A function like `memcpy` works for its caller.
    let for_itself = |side: &&Side| {
        let caller = side.stack.get(1).and_then(|line| line.module.as_deref());
        caller.is_none_or(is_c_library)
    };
    let nobodys = pair.block.is_none() && library(pair.addr).is_none();
    let both = sides.iter().all(for_itself);
    (own_data || own_block || nobodys && both).then(|| "the C library's own memory".to_string())
}

/// What isn't there between two accesses.
fn missing(first: &Side, second: &Side) -> String {
    let held = |side: &Side| match side.locks.as_slice() {
        [] => format!("thread {} holds no lock", side.thread),
        locks => format!("thread {} holds {}", side.thread, locks.join(", ")),
    };
    let common = first.locks.iter().find(|lock| second.locks.contains(lock));
    let locks = match common {
        // Both read-locked it, or it was given and taken in between by others.
        Some(lock) => format!("both hold {lock}, for reading"),
        None if first.locks.is_empty() && second.locks.is_empty() => "neither holds a lock".into(),
        None => format!("{}, {}", held(first), held(second)),
    };
    format!("no lock, semaphore, join or atomic orders them: {locks}")
}

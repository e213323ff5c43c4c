//! Breakpoints. In: a line, a function or an address, with a condition. Out: addresses, wherever in the program's life
//! they are code; and whether a stop there counts.

use std::collections::HashMap;
use std::sync::Arc;

use clew_recording::event::ThreadId;
use clew_symbols::expr::{Bindings, Evaluator, Problem, ProblemKind};
use clew_symbols::variables::Kind;
use clew_symbols::{Image, Modules, Registers};
use clew_timeline::Break;
use serde::{Deserialize, Serialize};

use crate::calls::Captured;
use crate::debugger::{Debugger, Location, location_at};
use crate::{Error, Result};

pub type BreakpointId = u32;

/// Names that are offered for one that isn't there.
const MOST_LIKE: usize = 3;

/// Where to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spot {
    /// `file`: the last parts of its path. A line without code means the next one with.
    Line {
        file: String,
        line: u32,
    },
    /// With its namespaces, or without: behind the code that makes its frame.
    Function(String),
    Address(u64),
}

impl std::str::FromStr for Spot {
    type Err = Error;

    /// `file.c:12`, `0x401136`, or a function.
    fn from_str(text: &str) -> Result<Spot> {
        let text = text.trim();
        let address = text.strip_prefix('*').unwrap_or(text);
        if let Some(digits) = address.strip_prefix("0x") {
            let parsed = u64::from_str_radix(digits, 16);
            return parsed
                .map(Spot::Address)
                .map_err(|_| Error::Place(format!("{text} is no address")));
        }
        if let Some((file, line)) = text.rsplit_once(':')
            && !file.is_empty()
            && !file.ends_with(':')
            && let Ok(line) = line.parse()
        {
            let file = file.into();
            return Ok(Spot::Line { file, line });
        }
        match text.is_empty() {
            true => Err(Error::Place(
                "a place is FILE:LINE, a function or an address as 0x401136".into(),
            )),
            false => Ok(Spot::Function(text.into())),
        }
    }
}

/// A breakpoint as somebody wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    pub spot: Spot,
    /// A C expression, evaluated in the innermost frame there: it counts where that is true, or can't be evaluated.
    pub condition: Option<String>,
    pub thread: Option<ThreadId>,
    /// So many times it doesn't count.
    pub ignore: u64,
}

impl Wanted {
    pub fn at(spot: Spot) -> Wanted {
        Wanted {
            spot,
            condition: None,
            thread: None,
            ignore: 0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Breakpoint {
    pub id: BreakpointId,
    #[serde(flatten)]
    pub wanted: Wanted,
    pub enabled: bool,
    /// One for each function, or copy of one, that has code there.
    pub locations: Vec<Location>,
    /// How often it has stopped somebody, or was ignored.
    pub hits: u64,
    /// Whether its condition is asked in the midst of a run: where it is false, that costs little.
    pub quick: bool,
}

#[derive(Default)]
pub(crate) struct Breakpoints {
    pub all: Vec<Breakpoint>,
    last: BreakpointId,
    /// Conditions that can be asked in the midst of a run, for each place: false ones don't end it.
    codes: HashMap<(BreakpointId, u64), Vec<u8>>,
}

impl Debugger {
    pub fn breakpoints(&self) -> &[Breakpoint] {
        &self.breakpoints.all
    }

    pub fn add_breakpoint(&mut self, wanted: Wanted) -> Result<Breakpoint> {
        if let Some(condition) = &wanted.condition {
            let text = condition.trim();
            clew_symbols::expr::check(text)
                .map_err(|problem| Error::Expression(problem.pointed(text)))?;
        }
        let addresses = self.addresses_of(&wanted.spot)?;
        let images = self.images()?;
        self.breakpoints.last += 1;
        let mut breakpoint = Breakpoint {
            id: self.breakpoints.last,
            wanted,
            enabled: true,
            locations: addresses
                .into_iter()
                .map(|address| location_at(&images.modules, address))
                .collect(),
            hits: 0,
            quick: true,
        };
        if let Some(condition) = &breakpoint.wanted.condition {
            for location in &breakpoint.locations {
                let code = self.condition_code(&images.modules, location.address, condition);
                breakpoint.quick &= code.is_some();
                let key = (breakpoint.id, location.address);
                self.breakpoints.codes.extend(code.map(|code| (key, code)));
            }
        }
        self.breakpoints.all.push(breakpoint.clone());
        Ok(breakpoint)
    }

    /// A condition as a worker can evaluate it at an address; none if it isn't simple enough.
    fn condition_code(&self, modules: &Modules, address: u64, condition: &str) -> Option<Vec<u8>> {
        let mut there = Captured {
            registers: Registers::from_encoding_order([0; 16], address),
            pieces: Vec::new(),
        };
        let names = &mut Bindings::new();
        let catalog = self.program.catalog();
        let mut evaluator = Evaluator::new(catalog, modules, &mut there, names);
        evaluator.choose_frame(0).then_some(())?;
        evaluator.agent(condition.trim())
    }

    pub fn remove_breakpoint(&mut self, id: BreakpointId) -> Result<()> {
        let all = &mut self.breakpoints.all;
        let before = all.len();
        all.retain(|breakpoint| breakpoint.id != id);
        let codes = &mut self.breakpoints.codes;
        codes.retain(|(of, _), _| *of != id);
        let all = &self.breakpoints.all;
        match all.len() == before {
            true => Err(Error::Breakpoint(id)),
            false => Ok(()),
        }
    }

    pub fn enable_breakpoint(&mut self, id: BreakpointId, enabled: bool) -> Result<()> {
        let mut all = self.breakpoints.all.iter_mut();
        let found = all.find(|breakpoint| breakpoint.id == id);
        found.ok_or(Error::Breakpoint(id))?.enabled = enabled;
        Ok(())
    }

    /// Where a place has code, at any time of the program's life.
    pub(crate) fn addresses_of(&mut self, spot: &Spot) -> Result<Vec<u64>> {
        let images = self.images()?;
        let modules = &images.modules;
        let mut addresses = Vec::new();
        match spot {
            Spot::Address(address) => {
                if modules.find(*address).is_none() {
                    return Err(Error::Place(format!(
                        "no program or library was ever mapped at {address:#x}"
                    )));
                }
                addresses.push(*address);
            }
            Spot::Line { file, line } => {
                for image in modules.modules() {
                    let found = image.module.addresses_of(file, *line).unwrap_or_default();
                    let found = found.iter();
                    addresses
                        .extend(found.filter_map(|one| in_process(modules, image, one.address)));
                }
                if addresses.is_empty() {
                    let of_file = |image: &clew_symbols::Image| {
                        let any = image.module.addresses_of(file, 1);
                        any.is_ok_and(|any| !any.is_empty())
                    };
                    return Err(Error::Line {
                        known: modules.modules().any(of_file),
                        file: file.clone(),
                        line: *line,
                    });
                }
            }
            Spot::Function(name) => {
                for (image, function) in modules.functions_named(name)? {
                    let body = match function.die {
                        Some(_) => image.module.body_of(function.entry)?,
                        None => function.entry,
                    };
                    addresses.extend(in_process(modules, &image, body));
                }
                if addresses.is_empty() {
                    return Err(self.no_function(modules, name));
                }
            }
        }
        addresses.sort_unstable();
        addresses.dedup();
        Ok(addresses)
    }

    /// That there is no such function, and what is called alike.
    pub(crate) fn no_function(&self, modules: &Modules, name: &str) -> Error {
        Error::Function {
            name: name.into(),
            like: self.alike(modules, name, Kind::Function),
        }
    }

    /// Names of that kind that are nearly this one, the nearest first.
    pub(crate) fn alike(&self, modules: &Modules, name: &str, kind: Kind) -> Vec<String> {
        let catalog = self.program.catalog();
        let last = |name: &str| name.rsplit("::").next().unwrap_or(name).to_lowercase();
        let wanted = last(name);
        let mut like: Vec<(usize, String)> = Vec::new();
        for image in modules.modules() {
            for known in catalog.names_of(&image.module, kind).unwrap_or_default() {
                let distance = distance(&wanted, &last(&known));
                if distance <= (wanted.chars().count() / 3).max(1) {
                    like.push((distance, known.to_string()));
                }
            }
        }
        like.sort();
        like.dedup();
        like.into_iter()
            .map(|(_, name)| name)
            .take(MOST_LIKE)
            .collect()
    }

    /// What is wrong with an expression, and for a name that isn't there, what is called alike.
    pub(crate) fn wrong(&mut self, problem: &Problem, text: &str) -> Error {
        let mut message = problem.pointed(text);
        let name = text.get(problem.at.clone()).unwrap_or_default();
        if problem.kind == ProblemKind::Unknown
            && !name.is_empty()
            && let Ok(images) = self.images()
        {
            let like = self.alike(&images.modules, name, Kind::Variable);
            if !like.is_empty() {
                message.push_str(&format!("\ndid you mean {}?", like.join(" or ")));
            }
        }
        Error::Expression(message)
    }

    /// For the timeline.
    pub(crate) fn breaks(&self) -> Vec<Break> {
        let enabled = self.breakpoints.all.iter();
        let enabled = enabled.filter(|breakpoint| breakpoint.enabled);
        enabled
            .flat_map(|breakpoint| {
                let thread = breakpoint.wanted.thread;
                breakpoint.locations.iter().map(move |location| {
                    let key = (breakpoint.id, location.address);
                    let code = self.breakpoints.codes.get(&key);
                    Break {
                        addr: location.address,
                        thread,
                        conditions: code.cloned().into_iter().collect(),
                    }
                })
            })
            .collect()
    }

    /// Which breakpoints count for a thread that has stopped at an address. Counts their hits.
    pub(crate) fn hits(&mut self, thread: ThreadId, pc: u64) -> Result<Vec<BreakpointId>> {
        let concerned: Vec<(usize, Option<String>)> = self
            .breakpoints
            .all
            .iter()
            .enumerate()
            .filter(|(_, breakpoint)| {
                let here = |location: &Location| location.address == pc;
                breakpoint.enabled
                    && breakpoint.locations.iter().any(here)
                    && breakpoint
                        .wanted
                        .thread
                        .is_none_or(|wanted| wanted == thread)
            })
            .map(|(n, breakpoint)| (n, breakpoint.wanted.condition.clone()))
            .collect();
        let mut hits = Vec::new();
        for (n, condition) in concerned {
            let counts = match condition {
                None => true,
                Some(condition) => self.look(thread, |evaluator| {
                    let value = evaluator.evaluate(condition.trim());
                    // As gdb does, it stops where nobody can say.
                    value
                        .and_then(|value| evaluator.truth(&value))
                        .unwrap_or(true)
                })?,
            };
            let breakpoint = &mut self.breakpoints.all[n];
            if counts {
                breakpoint.hits += 1;
                if breakpoint.hits > breakpoint.wanted.ignore {
                    hits.push(breakpoint.id);
                }
            }
        }
        Ok(hits)
    }
}

/// A module's address in the process, if that part of it is mapped there. Where parts of a file overlap in its pages, a
/// mapping may seem to be of another part.
pub(crate) fn in_process(modules: &Modules, image: &Image, address: u64) -> Option<u64> {
    let moved = address.wrapping_add(image.bias);
    let found = modules.find(moved)?;
    (found.bias == image.bias && Arc::ptr_eq(&found.module, &image.module)).then_some(moved)
}

/// How many letters must be changed, added, taken away or swapped to make one of the other.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // Of names that long nobody has misspelt one for the other.
    if a.len().abs_diff(b.len()) > 8 || a.len() > 200 || b.len() > 200 {
        return usize::MAX;
    }
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (n, row) in rows.iter_mut().enumerate() {
        row[0] = n;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut best = rows[i - 1][j - 1] + change;
            best = best.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let read = |text: &str| text.parse::<Spot>().unwrap();
        let file = "src/a.c".to_string();
        assert_eq!(read("src/a.c:12"), Spot::Line { file, line: 12 });
        assert_eq!(read("ns::run"), Spot::Function("ns::run".into()));
        assert_eq!(read("*0x40"), Spot::Address(0x40));
        assert!("".parse::<Spot>().is_err());
        assert!("0xzz".parse::<Spot>().is_err());
    }

    #[test]
    fn names_are_alike() {
        assert_eq!(distance("main", "main"), 0);
        assert_eq!(distance("mian", "main"), 1);
        assert_eq!(distance("push_bakc", "push_back"), 1);
        assert_eq!(distance("", "abc"), 3);
    }
}

//! The accesses of one run. In: a debugger on a recording, and which memory counts. Out: accesses with names of variables,
//! and what threads wait for at the end; the patterns of the run.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use clew_debugger::Debugger;
use clew_order::story::{Accessed, Story, granules, story};
use clew_order::{Names, is_c_library_at};
use clew_recording::event::ThreadId;

use super::patterns::{Accesses, Act, Patterns, What};
use super::sync;
use crate::Result;

/// Accesses of more bytes aren't to one variable; they touch all that lie within.
const WIDE: u64 = 16;
const MOST_CELLS: usize = 64;
/// Larger blocks are taken for arrays.
const STRUCTURE: u64 = 256;

/// What one run did.
pub struct Run {
    pub patterns: Patterns,
    /// Accesses in all, and the lines that made them.
    pub accesses: usize,
    pub lines: HashSet<u64>,
    pub story: Story,
}

/// Where a run crashed, if it touched memory there.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    pub thread: ThreadId,
    /// In the program's own code.
    pub site: u64,
    pub addr: u64,
    pub write: bool,
}

/// Ordinary errors of `order` in terms of this crate.
pub fn ordered(error: clew_order::Error) -> crate::Error {
    match error {
        clew_order::Error::Timeline(error) => error.into(),
        clew_order::Error::Log(why) => crate::Error::Recording(why),
        clew_order::Error::Refused(why) => crate::Error::Recording(why.to_string()),
    }
}

/// Traces a recording: memory that several threads touch and one writes, and these ranges.
pub fn trace(debugger: &mut Debugger, ranges: &[Range<u64>], crash: Option<Crash>) -> Result<Run> {
    let stream = debugger.stream();
    let log = debugger.recording().stream(stream);
    let log = log.map_err(|error| crate::Error::Recording(error.to_string()))?;
    let (timeline, program) = debugger.timeline_and_program();
    let (mut memory, _) = timeline.sharing()?;
    memory.extend(granules(ranges));
    let story = story(timeline, program, log, memory).map_err(ordered)?;
    let mut accesses = Accesses::default();
    let synced;
    {
        let names = Names::new(program.catalog(), &story.modules, &story.gathered.threads);
        let mut teller = Teller {
            names: &names,
            story: &story,
            known: HashMap::new(),
            libraries: HashMap::new(),
            numbers: HashMap::new(),
        };
        let own: Vec<&Accessed> = story
            .accesses
            .iter()
            .filter(|one| teller.counts(one))
            .collect();
        let cells = Cells::of(&own);
        for one in &own {
            let name = teller.number(&mut accesses.names, one);
            let line = line_number(&names, one.site);
            for cell in cells.touched(one) {
                accesses.acts.push(act(one, line, name, cell));
            }
        }
        if let Some(crash) = crash {
            teller.crashed(&mut accesses, &cells, &crash);
        }
        synced = sync::patterns(&story, &names);
    }
    let mut patterns = accesses.patterns();
    patterns.extend(synced);
    Ok(Run {
        patterns,
        accesses: accesses.acts.len(),
        lines: accesses.acts.iter().map(|act| act.line).collect(),
        story,
    })
}

fn act(one: &Accessed, line: u64, name: u32, cell: u32) -> Act {
    Act {
        what: match (one.freed, one.write) {
            (true, _) => What::Free,
            (false, true) => What::Write,
            (false, false) => What::Read,
        },
        thread: one.thread,
        handler: one.handler.map(|handler| (handler.signo, handler.number)),
        at: one.at,
        site: one.site,
        line,
        addr: one.addr,
        len: one.len,
        reads: one.read,
        locked: one.locked,
        value: one.value,
        locks: one.locks,
        name,
        cell,
    }
}

/// A number for the line of an instruction; where there are no lines, the instruction itself.
pub fn line_number(names: &Names<'_>, site: u64) -> u64 {
    let line = names.line(site);
    numbered(line.file.as_deref(), line.line, site)
}

pub fn numbered(file: Option<&str>, line: Option<u32>, site: u64) -> u64 {
    let (Some(file), Some(line)) = (file, line) else {
        return site;
    };
    // The same in every run, and no address of code: FNV-1a.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in file.bytes().chain(line.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    hash | 1 << 63
}

/// A variable without which element of it: `requests[]`, `buffers[].users`.
pub fn without_elements(name: &str) -> String {
    let (mut out, mut inside) = (String::new(), false);
    for c in name.chars() {
        match c {
            '[' => {
                inside = true;
                out.push_str("[]");
            }
            ']' => inside = false,
            c if !inside => out.push(c),
            _ => {}
        }
    }
    out
}

struct Teller<'a> {
    names: &'a Names<'a>,
    story: &'a Story,
    known: HashMap<u64, Option<String>>,
    libraries: HashMap<u64, bool>,
    numbers: HashMap<String, u32>,
}

impl Teller<'_> {
    fn library(&mut self, address: u64) -> bool {
        let modules = &self.story.modules;
        let known = self.libraries.entry(address);
        *known.or_insert_with(|| is_c_library_at(modules, address))
    }

    fn variable(&mut self, addr: u64) -> Option<String> {
        let names = self.names;
        let known = self.known.entry(addr);
        let name =
            known.or_insert_with(|| names.variable(addr).map(|name| without_elements(&name)));
        name.clone()
    }

    /// Whether an access is the program's business, and not the C library's own.
    fn counts(&mut self, one: &Accessed) -> bool {
        let by_library = self.library(one.site);
        if let Some(block) = one.block {
            return !self.library(block.back);
        }
        if self.library(one.addr) {
            return false;
        }
        !by_library || self.variable(one.addr).is_some()
    }

    fn number(&mut self, names: &mut Vec<String>, one: &Accessed) -> u32 {
        let name = match one.block {
            // Of a structure, the member; of what may be an array, all of it.
            Some(block) if block.size <= STRUCTURE && !one.freed => {
                let offset = one.addr.wrapping_sub(block.addr);
                format!("block {:#x} {offset}", block.back)
            }
            Some(block) => format!("block {:#x}", block.back),
            None => {
                let known = self.variable(one.addr);
                known.unwrap_or_else(|| format!("memory {:#x}", one.addr))
            }
        };
        self.interned(names, name)
    }

    fn interned(&mut self, names: &mut Vec<String>, name: String) -> u32 {
        let next = names.len() as u32;
        let number = *self.numbers.entry(name.clone()).or_insert(next);
        if number == next {
            names.push(name);
        }
        number
    }

    /// The access that crashed the program comes last; its memory may be nobody's any more.
    fn crashed(&mut self, accesses: &mut Accesses, cells: &Cells, crash: &Crash) {
        let inside = |one: &&Accessed| crash.addr.wrapping_sub(one.addr) < one.len;
        let free = self.story.accesses.iter().rev().filter(|one| one.freed);
        let Some(free) = free.clone().find(inside).copied() else {
            return;
        };
        let name = self.number(&mut accesses.names, &free);
        // A cell of its own, that the free touched and the crash did.
        let cell = cells.count;
        let line = line_number(self.names, free.site);
        accesses.acts.push(act(&free, line, name, cell));
        let last = Act {
            what: if crash.write { What::Write } else { What::Read },
            thread: crash.thread,
            handler: None,
            site: crash.site,
            line: line_number(self.names, crash.site),
            addr: crash.addr,
            len: 1,
            reads: !crash.write,
            locked: false,
            value: None,
            locks: 0,
            at: Default::default(),
            name,
            cell,
        };
        accesses.acts.push(last);
    }
}

/// Pieces of memory that are accessed as one.
struct Cells {
    /// By their starts: the end, and the number.
    all: BTreeMap<u64, (u64, u32)>,
    count: u32,
}

impl Cells {
    fn of(accesses: &[&Accessed]) -> Cells {
        let narrow = accesses.iter().filter(|one| !one.freed && one.len <= WIDE);
        let mut ranges: Vec<(u64, u64)> = narrow
            .map(|one| (one.addr, one.addr.saturating_add(one.len.max(1))))
            .collect();
        ranges.sort_unstable();
        ranges.dedup();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in ranges {
            match merged.last_mut() {
                Some(last) if start < last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        let count = merged.len() as u32;
        let numbered = merged.into_iter().zip(0..);
        let all = numbered
            .map(|((start, end), n)| (start, (end, n)))
            .collect();
        Cells { all, count }
    }

    fn touched(&self, one: &Accessed) -> Vec<u32> {
        let end = one.addr.saturating_add(one.len.max(1));
        let before = self.all.range(..=one.addr).next_back();
        let before = before.filter(|(_, (stop, _))| *stop > one.addr);
        let inside = self
            .all
            .range(one.addr.saturating_add(1)..end.max(one.addr + 1));
        let all = before.into_iter().chain(inside);
        all.map(|(_, (_, n))| *n).take(MOST_CELLS).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_one_variable() {
        assert_eq!(without_elements("requests[3]"), "requests[]");
        assert_eq!(without_elements("buffers[12].users"), "buffers[].users");
        assert_eq!(without_elements("view.start"), "view.start");
    }
}

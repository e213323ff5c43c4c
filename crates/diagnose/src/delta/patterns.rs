//! Patterns of conflicting accesses. In: the accesses of one run, with the memory that they are about. Out: which patterns
//! it has, each with the last time that it came about.
//!
//! A thread of control is a thread, or a handler that interrupts one. A local pair is two accesses of one thread of control to
//! the same memory, one after the other; what another one does in between may make them see what no order of whole pairs
//! would show (RWR, RWW, WWR, WRW). Two accesses of different ones are an order (RW, WR, WW). A read that nobody else's write
//! came before is early. Two variables that are written together and read together are a pair, torn if a reader sees one
//! of them old and one new.

use std::collections::{BTreeMap, HashMap};

use clew_recording::event::ThreadId;
use clew_timeline::Mark;
use serde::Serialize;

/// What somebody did to memory or to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    Read,
    Write,
    Free,
    Lock,
    Wait,
    Signal,
}

/// Who did what, where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    pub what: What,
    pub thread: ThreadId,
    /// The signal whose handler it is, and which of all handlers.
    pub handler: Option<(i32, u32)>,
    pub at: Mark,
    pub site: u64,
    /// The line of the site, as a number that is the same in every run: a compiler makes several instructions of one access.
    pub line: u64,
    pub addr: u64,
    pub len: u64,
    pub reads: bool,
    pub locked: bool,
    /// What was read, or what stood there before.
    pub value: Option<u64>,
    /// The number of the set of locks that were held.
    pub locks: u32,
    /// Which variable, by its number in [`Accesses::names`].
    pub name: u32,
    /// Which memory, by its number: accesses to the same bytes have the same.
    pub cell: u32,
}

impl Act {
    pub fn writes(&self) -> bool {
        matches!(self.what, What::Write | What::Free)
    }

    fn control(&self) -> (ThreadId, u32) {
        (self.thread, self.handler.map_or(0, |(_, number)| number))
    }
}

/// The kinds of patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Shape {
    #[serde(rename = "RW")]
    Rw,
    #[serde(rename = "WR")]
    Wr,
    #[serde(rename = "WW")]
    Ww,
    #[serde(rename = "RWR")]
    Rwr,
    #[serde(rename = "RWW")]
    Rww,
    #[serde(rename = "WWR")]
    Wwr,
    #[serde(rename = "WRW")]
    Wrw,
    /// A handler reads between a read and a write: it sees what is about to be written over.
    #[serde(rename = "RRW")]
    Rrw,
    /// A read before the write that it needs.
    #[serde(rename = "early")]
    Early,
    /// Two variables, one seen old and one new.
    #[serde(rename = "pair")]
    Pair,
    #[serde(rename = "deadlock")]
    Deadlock,
    #[serde(rename = "lost-signal")]
    LostSignal,
}

impl Shape {
    pub fn name(self) -> &'static str {
        match self {
            Shape::Rw => "RW",
            Shape::Wr => "WR",
            Shape::Ww => "WW",
            Shape::Rwr => "RWR",
            Shape::Rww => "RWW",
            Shape::Wwr => "WWR",
            Shape::Wrw => "WRW",
            Shape::Rrw => "RRW",
            Shape::Early => "early",
            Shape::Pair => "pair",
            Shape::Deadlock => "deadlock",
            Shape::LostSignal => "lost-signal",
        }
    }

    fn local(first: bool, between: bool, last: bool, handler: bool) -> Option<Shape> {
        match (first, between, last) {
            (false, true, false) => Some(Shape::Rwr),
            (false, true, true) => Some(Shape::Rww),
            (true, true, false) => Some(Shape::Wwr),
            (true, false, true) => Some(Shape::Wrw),
            (false, false, true) if handler => Some(Shape::Rrw),
            _ => None,
        }
    }
}

/// What else must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Note {
    Any,
    /// The last access finds this value.
    Value(u64),
    /// The last access finds what the first one found, although it was written in between.
    Again,
}

/// A pattern, as it is the same in every run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub shape: Shape,
    /// The variable, without which element of it; two for a pair.
    pub names: Vec<String>,
    /// Their lines, and whether a handler executes them.
    pub sites: Vec<(u64, bool)>,
    pub note: Note,
}

/// The last time that a pattern came about in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    pub acts: Vec<Act>,
    /// The place of its last access among all.
    pub last: usize,
    /// So many accesses lie between the first and the last.
    pub span: usize,
}

pub type Patterns = HashMap<Key, Instance>;

/// All accesses of a run.
#[derive(Clone, Debug, Default)]
pub struct Accesses {
    pub acts: Vec<Act>,
    pub names: Vec<String>,
}

/// Values that may be the same in several runs, and mean something.
const SMALL: u64 = 16;
/// So many accesses to one cell by others are looked at between two.
const MOST_BETWEEN: usize = 64;
/// Accesses of a thread that count as near each other.
const NEAR: usize = 4;
const MOST_PAIRS: usize = 200_000;
/// In the place of an access that didn't come about any more: behind all others, with the number of one like it.
const NEVER: usize = 1 << (usize::BITS - 1);

impl Accesses {
    /// Everything that is there.
    pub fn patterns(&self) -> Patterns {
        let mut found = Found {
            all: HashMap::new(),
            of: self,
        };
        let mut cells: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (n, act) in self.acts.iter().enumerate() {
            cells.entry(act.cell).or_default().push(n);
        }
        for cell in cells.values() {
            found.orders(cell);
            found.locals(cell);
            found.early(cell);
        }
        found.pairs();
        found.all
    }
}

struct Found<'a> {
    all: Patterns,
    of: &'a Accesses,
}

impl Found<'_> {
    fn add(&mut self, shape: Shape, numbers: &[usize]) {
        let acts: Vec<Act> = numbers.iter().map(|&n| self.of.acts[n]).collect();
        let Some(last) = acts.last().copied() else {
            return;
        };
        let mut notes = vec![Note::Any];
        if let Some(value) = last.value.filter(|&value| last.reads && value <= SMALL) {
            notes.push(Note::Value(value));
        }
        let first = acts[0];
        if acts.len() == 3 && last.locked && last.value == first.value && acts[1].writes() {
            notes.push(Note::Again);
        }
        let mut names: Vec<String> = Vec::new();
        for act in &acts {
            let name = &self.of.names[act.name as usize];
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let site = |act: &Act| (act.line, act.handler.is_some());
        let sites: Vec<(u64, bool)> = acts.iter().map(site).collect();
        let instance = Instance {
            last: numbers.iter().copied().max().unwrap_or(0),
            span: numbers.iter().max().unwrap_or(&0) - numbers.iter().min().unwrap_or(&0),
            acts,
        };
        for note in notes {
            let key = Key {
                shape,
                names: names.clone(),
                sites: sites.clone(),
                note,
            };
            self.all.insert(key, instance.clone());
        }
    }

    /// Neighbours of different threads of control.
    fn orders(&mut self, cell: &[usize]) {
        for two in cell.windows(2) {
            let (a, b) = (&self.of.acts[two[0]], &self.of.acts[two[1]]);
            if a.control() == b.control() {
                continue;
            }
            let shape = match (a.writes(), b.writes() && !b.reads) {
                (true, true) => Shape::Ww,
                (true, false) => Shape::Wr,
                (false, true) => Shape::Rw,
                (false, false) if b.writes() => Shape::Rw,
                (false, false) => continue,
            };
            self.add(shape, two);
        }
    }

    /// What others do between two accesses of one.
    fn locals(&mut self, cell: &[usize]) {
        let mut before: HashMap<(ThreadId, u32), usize> = HashMap::new();
        for (place, &n) in cell.iter().enumerate() {
            let act = self.of.acts[n];
            let Some(first) = before.insert(act.control(), place) else {
                continue;
            };
            let between = &cell[first + 1..place];
            let (p, c) = (cell[first], n);
            let mut seen: Vec<u64> = Vec::new();
            for &r in between.iter().rev().take(MOST_BETWEEN) {
                let other = self.of.acts[r];
                let first = self.of.acts[p];
                let last = act.writes() && !act.reads;
                let shape = Shape::local(
                    first.writes(),
                    other.writes(),
                    last,
                    other.handler.is_some(),
                );
                if let Some(shape) = shape.filter(|_| !seen.contains(&other.line)) {
                    seen.push(other.line);
                    self.add(shape, &[p, r, c]);
                }
            }
        }
    }

    /// Reads that nobody else's write came before.
    fn early(&mut self, cell: &[usize]) {
        let mut wrote: Vec<(ThreadId, u32)> = Vec::new();
        let mut told: Vec<u64> = Vec::new();
        for &n in cell {
            let act = self.of.acts[n];
            let control = act.control();
            let others = wrote.iter().any(|one| *one != control);
            if act.reads && !others && !wrote.contains(&control) && !told.contains(&act.line) {
                told.push(act.line);
                self.add(Shape::Early, &[n]);
            }
            if act.writes() && !wrote.contains(&control) {
                wrote.push(control);
            }
        }
    }

    /// Two variables that belong together.
    fn pairs(&mut self) {
        type Two = (u32, u32);
        let mut lists: BTreeMap<(ThreadId, u32), Vec<usize>> = BTreeMap::new();
        for (n, act) in self.of.acts.iter().enumerate() {
            lists.entry(act.control()).or_default().push(n);
        }
        // By the two cells: who, and the two accesses in their order, which tells what belongs together from what only
        // follows.
        type Uses = HashMap<Two, Vec<((ThreadId, u32), [usize; 2])>>;
        let (mut writers, mut readers): (Uses, Uses) = (HashMap::new(), HashMap::new());
        let mut count = 0;
        for (control, list) in &lists {
            for (at, &a) in list.iter().enumerate() {
                for &b in list.iter().skip(at + 1).take(NEAR) {
                    let (x, y) = (&self.of.acts[a], &self.of.acts[b]);
                    if x.cell == y.cell {
                        break;
                    }
                    if x.locked || y.locked || x.writes() != y.writes() || count > MOST_PAIRS {
                        continue;
                    }
                    count += 1;
                    let key = (x.cell.min(y.cell), x.cell.max(y.cell));
                    let two = [a, b];
                    let uses = match x.writes() {
                        true => &mut writers,
                        false => &mut readers,
                    };
                    uses.entry(key).or_default().push((*control, two));
                }
            }
        }
        // Who wrote one of two at its end would have written the other: a failure may come before that.
        for (control, list) in &lists {
            let Some(&last) = list.last() else {
                continue;
            };
            let open = |(who, [w1, _]): &&((ThreadId, u32), [usize; 2])| {
                let (first, last) = (&self.of.acts[*w1], &self.of.acts[last]);
                who == control
                    && (first.line, first.cell) == (last.line, last.cell)
                    && last.writes()
            };
            for uses in writers.values_mut() {
                if let Some((_, [_, w2])) = uses.iter().find(open).copied() {
                    uses.push((*control, [last, NEVER | w2]));
                }
            }
        }
        for (cells, reads) in &readers {
            let Some(writes) = writers.get(cells) else {
                continue;
            };
            for (reader, [r1, r2]) in reads {
                for (writer, [w1, w2]) in writes {
                    if writer == reader || w2 < r1 || r2 < w1 {
                        continue;
                    }
                    // Who writes the one that was read first, and was it before?
                    let first = self.of.acts[*w1].cell == self.of.acts[*r1].cell;
                    let (of_first, of_second) = if first { (w1, w2) } else { (w2, w1) };
                    if (of_first < r1) != (of_second < r2) {
                        self.add(Shape::Pair, &[*w1, *w2 & !NEVER, *r1, *r2]);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `1r10 h1w20 1w11`: thread, what, cell and site from 0 on.
    fn run(text: &str) -> Vec<String> {
        let mut all = Accesses::default();
        for (n, word) in text.split(' ').enumerate() {
            let handler = word.starts_with('h');
            let word = word.trim_start_matches('h').as_bytes();
            let digit = |n: usize| u32::from(word[n] - b'0');
            let write = word[1] == b'w';
            all.acts.push(Act {
                what: if write { What::Write } else { What::Read },
                thread: digit(0),
                handler: handler.then_some((10, 1)),
                at: Mark::default(),
                site: u64::from(digit(3)),
                line: u64::from(digit(3)),
                addr: 0,
                len: 4,
                reads: !write,
                locked: false,
                value: Some(100 + n as u64),
                locks: 0,
                name: digit(2),
                cell: digit(2),
            });
        }
        all.names = (0..10).map(|n| format!("v{n}")).collect();
        let patterns = all.patterns();
        let tell = |key: &Key| {
            let sites: Vec<String> = key.sites.iter().map(|site| site.0.to_string()).collect();
            format!("{} {}", key.shape.name(), sites.join(" "))
        };
        let mut told: Vec<String> = patterns.keys().map(tell).collect();
        told.sort();
        told
    }

    #[test]
    fn an_access_between_two() {
        assert_eq!(
            run("1r01 2w02 1r03"),
            ["RW 1 2", "RWR 1 2 3", "WR 2 3", "early 1"]
        );
        assert_eq!(
            run("1r01 2w02 1w03"),
            ["RW 1 2", "RWW 1 2 3", "WW 2 3", "early 1"]
        );
        assert_eq!(run("1w01 2w02 1r03"), ["WR 2 3", "WW 1 2", "WWR 1 2 3"]);
        assert_eq!(run("1w01 2r02 1w03"), ["RW 2 3", "WR 1 2", "WRW 1 2 3"]);
        // What could as well have come before or after isn't one.
        assert_eq!(run("1r01 2r02 1r03"), ["early 1", "early 2", "early 3"]);
        assert_eq!(run("1w01 2r02 1r03"), ["WR 1 2"]);
    }

    #[test]
    fn a_handler_is_a_thread_of_control() {
        let found = run("1r01 h1r02 1w03");
        assert!(found.contains(&"RRW 1 2 3".into()), "{found:?}");
        assert!(!run("1r01 2r02 1w03").contains(&"RRW 1 2 3".into()));
        assert!(run("1r01 h1w02 1w03").contains(&"RWW 1 2 3".into()));
        // Of one thread of control there is nothing to tell.
        assert_eq!(run("1w01 1r02 1w03"), [""; 0]);
    }

    #[test]
    fn other_memory_is_no_conflict() {
        let found = run("1r01 2w12 1r03");
        assert!(!found.iter().any(|one| one.starts_with("RWR")), "{found:?}");
    }

    #[test]
    fn the_second_write_may_never_come() {
        let found = run("1w01 1w12 2r03 2r14 1w01 2r03 2r14");
        assert!(found.contains(&"pair 1 2 3 4".into()), "{found:?}");
        let found = run("1w01 1w12 2r03 2r14 2r03 2r14");
        assert!(!found.contains(&"pair 1 2 3 4".into()), "{found:?}");
    }

    /// All interleavings of a writer and a reader of two variables: torn ones are those that no order of the whole pairs
    /// shows to the reader.
    #[test]
    fn torn_pairs_by_all_interleavings() {
        let (writer, reader) = (["1w01", "1w12"], ["2r03", "2r14"]);
        for order in 0..6u32 {
            // Which two of four places the writer has.
            let places = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)][order as usize];
            let (mut w, mut r) = (writer.iter(), reader.iter());
            let words: Vec<&str> = (0..4)
                .map(|n| match n == places.0 || n == places.1 {
                    true => *w.next().unwrap(),
                    false => *r.next().unwrap(),
                })
                .collect();
            // Which version of each the reader sees, by walking through.
            let (mut now, mut seen) = ([0, 0], [0, 0]);
            for word in &words {
                match *word {
                    "1w01" => now[0] = 1,
                    "1w12" => now[1] = 1,
                    "2r03" => seen[0] = now[0],
                    _ => seen[1] = now[1],
                }
            }
            let torn = seen[0] != seen[1];
            let found = run(&words.join(" "));
            assert_eq!(found.contains(&"pair 1 2 3 4".into()), torn, "{words:?}");
        }
    }
}

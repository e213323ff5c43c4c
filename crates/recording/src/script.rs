//! A schedule, written down: whose turns follow each other, and where each of them ends.
//!
//! Turns end at points of the thread's own life, not of the whole run, so that a schedule still says something when
//! some of its turns are taken out or the program goes another way. As text, one turn a line:
//!
//! ```text
//! clew schedule 1
//! process 2.1
//! 3 at 120+0+4
//! 2 before 0x401136 from 88
//! 2 after 0x401140 from 91+1
//! 1 free
//! ```
//!
//! `#` begins a comment. `process` is left out for the first one of a run.

use std::fmt;
use std::str::FromStr;

use crate::event::ThreadId;

const HEAD: &str = "clew schedule 1";

/// A point in the life of a thread: so many ticks, then that many calls, then single instructions. Calls are those of the
/// system, and instructions that the engine carries out (`pause`, `cpuid`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    pub ticks: u64,
    /// Since the tick.
    pub calls: u32,
    /// Since the call, or the tick if there was none.
    pub steps: u32,
}

/// Where a turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where the thread waits, ends or gives way by itself.
    Free,
    At(Point),
    /// At the first execution of an instruction behind that point: before it, or right after it.
    Near {
        from: Point,
        pc: u64,
        after: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Threads are numbered as they begin; the first is 0.
    pub thread: ThreadId,
    pub end: End,
}

/// Turns of one process. Whoever isn't named by them, or is left when they are used up, runs when nobody else can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Which process: the so-manieth child (from 0) of the so-manieth child of … the first, which is empty.
    pub process: Vec<u64>,
    pub turns: Vec<Turn>,
}

impl Script {
    /// How many turns end although the thread could go on.
    pub fn preemptions(&self) -> usize {
        let forced = |turn: &&Turn| turn.end != End::Free;
        self.turns.iter().filter(forced).count()
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ticks)?;
        match (self.calls, self.steps) {
            (0, 0) => Ok(()),
            (calls, 0) => write!(f, "+{calls}"),
            (calls, steps) => write!(f, "+{calls}+{steps}"),
        }
    }
}

impl FromStr for Point {
    type Err = ();

    fn from_str(text: &str) -> Result<Point, ()> {
        let mut numbers = text.split('+').map(str::parse::<u64>);
        let mut next = || numbers.next().unwrap_or(Ok(0)).map_err(|_| ());
        let (ticks, calls, steps) = (next()?, next()?, next()?);
        if numbers.next().is_some() {
            return Err(());
        }
        Ok(Point {
            ticks,
            calls: u32::try_from(calls).map_err(|_| ())?,
            steps: u32::try_from(steps).map_err(|_| ())?,
        })
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thread = self.thread;
        match self.end {
            End::Free => write!(f, "{thread} free"),
            End::At(point) => write!(f, "{thread} at {point}"),
            End::Near { from, pc, after } => {
                let side = if after { "after" } else { "before" };
                write!(f, "{thread} {side} {pc:#x} from {from}")
            }
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        if !self.process.is_empty() {
            let path: Vec<String> = self.process.iter().map(u64::to_string).collect();
            writeln!(f, "process {}", path.join("."))?;
        }
        self.turns.iter().try_for_each(|turn| writeln!(f, "{turn}"))
    }
}

/// The line, from 1, that can't be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {0} isn't part of a schedule (clew schedule 1)")]
pub struct BadLine(pub usize);

impl FromStr for Script {
    type Err = BadLine;

    fn from_str(text: &str) -> Result<Script, BadLine> {
        let mut script = Script::default();
        let mut begun = false;
        for (number, line) in text.lines().enumerate() {
            let bad = BadLine(number + 1);
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            if !begun {
                begun = line == HEAD;
                if !begun {
                    return Err(bad);
                }
            } else if let Some(path) = line.strip_prefix("process ") {
                let path: Result<Vec<u64>, _> = path.split('.').map(str::parse).collect();
                script.process = path.map_err(|_| bad)?;
            } else {
                script.turns.push(turn(line).ok_or(bad)?);
            }
        }
        begun.then_some(script).ok_or(BadLine(1))
    }
}

fn turn(line: &str) -> Option<Turn> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let end = match words[1..] {
        ["free"] => End::Free,
        ["at", point] => End::At(point.parse().ok()?),
        [side @ ("before" | "after"), pc, "from", point] => End::Near {
            from: point.parse().ok()?,
            pc: u64::from_str_radix(pc.strip_prefix("0x")?, 16).ok()?,
            after: side == "after",
        },
        _ => return None,
    };
    let thread = words[0].parse().ok()?;
    Some(Turn { thread, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_read_again() {
        let point = |ticks, calls, steps| Point {
            ticks,
            calls,
            steps,
        };
        let ends = [
            End::Free,
            End::At(point(120, 0, 4)),
            End::At(point(7, 2, 0)),
            End::At(point(u64::MAX, 0, 0)),
            End::Near {
                from: point(88, 0, 0),
                pc: 0x40_1136,
                after: false,
            },
            End::Near {
                from: point(91, 1, 0),
                pc: 0xffff_ffff_ff60_0000,
                after: true,
            },
        ];
        let turns = ends.iter().zip(0..);
        let turns = turns.map(|(&end, thread)| Turn { thread, end }).collect();
        for process in [vec![], vec![2, 1]] {
            let script = Script {
                process,
                turns: Vec::clone(&turns),
            };
            assert_eq!(script.to_string().parse(), Ok(script));
        }
    }

    #[test]
    fn what_people_write() {
        let text = "# found by hand\n\nclew schedule 1\n  3 at 120+0+4 # the reader\n1 free\n";
        let script: Script = text.parse().unwrap();
        assert_eq!(script.turns.len(), 2);
        assert_eq!(script.preemptions(), 1);
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        for (text, line) in [
            ("", 1),
            ("clew schedule 2\n", 1),
            ("clew schedule 1\n3\n", 2),
            ("clew schedule 1\n3 at\n", 2),
            ("clew schedule 1\n1 free\n3 at 1+2+3+4\n", 3),
            ("clew schedule 1\nx free\n", 2),
            ("clew schedule 1\n1 before 401136 from 2\n", 2),
            ("clew schedule 1\nprocess x\n", 2),
            ("clew schedule 1\n1 at 1+99999999999\n", 2),
        ] {
            assert_eq!(text.parse::<Script>(), Err(BadLine(line)), "{text:?}");
        }
    }
}

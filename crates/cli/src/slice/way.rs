//! The statements of an execution slice, as they are executed. In: its folder, and where one stands. Out: where the next one is.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use clew_slice::closure::Slice;
use clew_slice::execution::Leaps;
use clew_slice::statements::place;
use clew_symbols::Modules;
use clew_timeline::Position;
use serde::{Deserialize, Serialize};

use crate::asking::{Failed, NOT_FOUND};

/// In the folder of an execution slice.
const FILE: &str = "slice.json";
/// No more of them are written down.
const MOST: usize = 100_000;
/// A stranger's file of more than this isn't read.
const LARGEST: u64 = 256 << 20;
/// Statements around the one that one stands at.
const AROUND: usize = 10;

#[derive(Debug, Serialize, Deserialize)]
pub struct Way {
    /// What was sliced for, with its value.
    pub what: String,
    /// Oldest first.
    pub statements: Vec<Statement>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Statement {
    at: String,
    thread: u32,
    place: String,
}

impl Statement {
    fn position(&self) -> Position {
        self.at.parse().unwrap_or_default()
    }
}

impl Way {
    /// Members of a slice that follow each other on one line are one statement.
    pub fn new(what: &str, slice: &Slice, modules: &Modules, leaps: &Leaps) -> Way {
        let mut places: HashMap<u64, String> = HashMap::default();
        let mut statements: Vec<Statement> = Vec::new();
        for member in slice.members.iter().rev() {
            let text = places
                .entry(member.pc)
                .or_insert_with(|| place(modules, member.pc, false).to_string());
            let same = |last: &Statement| last.thread == member.thread && last.place == *text;
            if statements.last().is_some_and(same) {
                continue;
            }
            let Some(at) = leaps.moved(member.position) else {
                continue;
            };
            statements.push(Statement {
                at: at.to_string(),
                thread: member.thread,
                place: text.clone(),
            });
        }
        // The question is at the end: what is near it stays.
        let more = statements.len().saturating_sub(MOST);
        statements.drain(..more);
        Way {
            what: what.into(),
            statements,
        }
    }

    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        let text = serde_json::to_string(self).expect("plain data");
        std::fs::write(folder.join(FILE), text + "\n")
    }

    /// Of a recording, if it is an execution slice.
    pub fn of(folder: &Path) -> Result<Option<Way>, Failed> {
        let file = folder.join(FILE);
        let Ok(meta) = std::fs::metadata(&file) else {
            return Ok(None);
        };
        let text = (meta.len() <= LARGEST).then(|| std::fs::read(&file).ok());
        let way = text
            .flatten()
            .and_then(|text| serde_json::from_slice(&text).ok());
        let damaged = || Failed(NOT_FOUND, format!("{}: damaged", file.display()));
        way.map(Some).ok_or_else(damaged)
    }

    /// Where to go, and what to say.
    pub fn go(&self, words: &str, here: Position) -> Result<(Option<Position>, String), String> {
        let (word, rest) = words.split_once(' ').unwrap_or((words, ""));
        let count = match rest.trim() {
            "" => 1,
            rest => rest.parse().map_err(|_| format!("{rest:?} is no number"))?,
        };
        // The first that isn't behind this place, and the first that is.
        let from = self.statements.partition_point(|one| one.position() < here);
        let behind = self
            .statements
            .partition_point(|one| one.position() <= here);
        let to = match word {
            "next" => Some(behind + count.max(1) - 1).filter(|n| *n < self.statements.len()),
            "prev" => from.checked_sub(count.max(1)),
            "list" => return Ok((None, self.list(behind))),
            word => match word.parse() {
                Ok(n) if n < self.statements.len() => Some(n),
                Ok(_) => return Err(format!("there are {} statements", self.statements.len())),
                Err(_) => {
                    return Err("in an execution slice: next [N], prev [N], list or a number; clew slice EXPRESSION asks anew".into());
                }
            },
        };
        let to = to.ok_or(match word {
            "next" => {
                "no statement of the slice lies behind this place; clew slice 0 goes to the first"
            }
            _ => "no statement of the slice lies before this place",
        })?;
        Ok((Some(self.statements[to].position()), self.line(to, true)))
    }

    fn list(&self, behind: usize) -> String {
        let here = behind.saturating_sub(1);
        let from = here.saturating_sub(AROUND);
        let to = (here + AROUND + 1).min(self.statements.len());
        let mut text: String = (from..to).map(|n| self.line(n, n + 1 == behind)).collect();
        let _ = writeln!(
            text,
            "{} statements, for {}",
            self.statements.len(),
            self.what
        );
        text
    }

    fn line(&self, n: usize, here: bool) -> String {
        let Statement { at, thread, place } = &self.statements[n];
        let here = if here { "=>" } else { "  " };
        format!("{here}{n:4}  {at}  thread {thread}  {place}\n")
    }
}

//! A slice, gone through statement by statement. In: a slice, and words that say where to. Out: the statement that one stands
//! at, its position, and a list.

use std::fmt::Write as _;

use clew_symbols::Modules;
use clew_timeline::Position;

use crate::closure::{Slice, Why};
use crate::statements::{Statement, statements};

pub struct Tour {
    slice: Slice,
    statements: Vec<Statement>,
    at: usize,
}

/// Statements around the one that one stands at.
const AROUND: usize = 10;

impl Tour {
    /// Begins at the newest statement; none if there is no statement.
    pub fn new(slice: Slice, modules: &Modules) -> Option<Tour> {
        let statements = statements(&slice, modules, false);
        (!statements.is_empty()).then_some(Tour {
            slice,
            statements,
            at: 0,
        })
    }

    /// Whether it is a word that says where to go in a slice, and not a value.
    pub fn is_word(word: &str) -> bool {
        matches!(word, "up" | "down" | "next" | "prev" | "list")
    }

    /// Goes: `up` to what uses this, `down [N]` to what it uses (the Nth of them), `next` and `prev` in the list, to a number.
    pub fn go(&mut self, words: &str) -> Result<(), String> {
        let (word, rest) = words.split_once(' ').unwrap_or((words, ""));
        let rest = rest.trim();
        let number = match rest {
            "" => None,
            rest => Some(
                rest.parse::<usize>()
                    .map_err(|_| format!("{rest:?} is no number"))?,
            ),
        };
        let here = &self.statements[self.at];
        let of = |all: &[u32], none: &str| {
            let chosen = number.unwrap_or(0);
            match all.get(chosen) {
                Some(&other) => Ok(other as usize),
                None if all.is_empty() => Err(none.to_owned()),
                None => Err(format!("there are only {}", all.len())),
            }
        };
        let count = number.unwrap_or(1);
        self.at = match word {
            "up" => of(
                &here.used_by,
                "nothing in the slice uses this: it is what was asked for",
            )?,
            "down" => of(&here.uses, "this uses nothing else in the slice")?,
            "next" => {
                let to = self.at + count;
                match to < self.statements.len() {
                    true => to,
                    false => return Err("this is the oldest statement of the slice".into()),
                }
            }
            "prev" => match self.at.checked_sub(count) {
                Some(to) => to,
                None => return Err("this is the newest statement of the slice".into()),
            },
            word => match word.parse::<usize>() {
                Ok(to) if to < self.statements.len() => to,
                Ok(_) => return Err(format!("there are {} statements", self.statements.len())),
                Err(_) => return Err("up, down, next, prev, list or a statement's number".into()),
            },
        };
        Ok(())
    }

    /// Where the statement is, its newest time.
    pub fn position(&self) -> Position {
        let newest = self.statements[self.at].newest;
        self.slice.members[newest as usize].position
    }

    pub fn thread(&self) -> u32 {
        self.statements[self.at].thread
    }

    /// The statement that one stands at, in a line or two.
    pub fn here(&self) -> String {
        let mut text = self.line(self.at);
        let here = &self.statements[self.at];
        let numbers = |all: &[u32]| {
            let all: Vec<String> = all.iter().map(|n| n.to_string()).collect();
            all.join(", ")
        };
        if !here.uses.is_empty() {
            let _ = writeln!(text, "      uses {}", numbers(&here.uses));
        }
        if !here.used_by.is_empty() {
            let _ = writeln!(text, "      used by {}", numbers(&here.used_by));
        }
        text
    }

    /// The statements around.
    pub fn list(&self) -> String {
        let from = self.at.saturating_sub(AROUND);
        let to = (self.at + AROUND + 1).min(self.statements.len());
        let mut text: String = (from..to).map(|n| self.line(n)).collect();
        let _ = writeln!(text, "{} statements", self.statements.len());
        text
    }

    fn line(&self, n: usize) -> String {
        let statement = &self.statements[n];
        let position = self.slice.members[statement.newest as usize].position;
        let here = if n == self.at { "=>" } else { "  " };
        let times = match statement.count {
            1 => String::new(),
            count => format!("  x{count}"),
        };
        let whys = statement.why.iter().map(|why| match why {
            Why::Value => "computed",
            Why::Control => "decided",
            Why::Call => "called",
            Why::Move => "moved",
        });
        let whys: Vec<&str> = whys.collect();
        let (thread, place, whys) = (statement.thread, &statement.place, whys.join(", "));
        format!("{here}{n:4}  {position}  thread {thread}  {place}{times}  {whys}\n")
    }
}

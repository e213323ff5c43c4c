//! A slice as it is printed: statements with their values, where values came in; for people, programs and dot.

use std::collections::HashMap;
use std::fmt::Write as _;

use clew_recording::event::StreamId;
use clew_slice::closure::{Member, Slice as Found, Why};
use clew_slice::statements::Statement;
use clew_slice::tell::Told;
use clew_timeline::Position;
use serde_json::json;

use super::Slice;
use crate::text;

/// Ways in that are shown.
const MOST_ENDS: usize = 16;

/// What is told.
pub(super) struct Answer {
    /// What was asked, with its value.
    pub title: String,
    /// Whose.
    pub stream: StreamId,
    pub found: Found,
    pub statements: Vec<Statement>,
    /// Of the first statements: their newest instruction, with values.
    pub told: Vec<Told>,
    /// Where values came in, with how often, and who wants them first.
    pub inputs: Vec<(String, Position, u64, Option<u32>)>,
    pub rest: Vec<(String, u64, Option<u32>)>,
    pub sources: Sources,
    pub forward: bool,
}

fn why(why: &Why) -> &'static str {
    match why {
        Why::Value => "computed",
        Why::Control => "decided",
        Why::Call => "called",
        Why::Move => "moved",
    }
}

impl Answer {
    /// The number of the statement of a member.
    fn number_of(&self, member: Option<u32>) -> Option<usize> {
        let member = self.found.members.get(member? as usize)?;
        let same = |statement: &&Statement| {
            statement.thread == member.thread && {
                let newest = self.found.members[statement.newest as usize];
                newest.pc == member.pc || statement.place == self.place_of(member)
            }
        };
        self.statements
            .iter()
            .position(|statement| same(&statement))
    }

    fn place_of(&self, member: &Member) -> clew_slice::statements::Where {
        let same = |statement: &&Statement| {
            let newest = self.found.members[statement.newest as usize];
            newest.pc == member.pc
        };
        let found = self.statements.iter().find(same);
        found.map(|found| found.place.clone()).unwrap_or_default()
    }

    pub fn into_text(mut self, line: &Slice) -> String {
        let style = text::Style::stdout();
        let mut all = format!("{}\n", style.bold(&text::plain(&self.title)));
        for (n, told) in self.told.iter().enumerate() {
            let statement = &self.statements[n];
            let position = style.good(&told.position.to_string());
            let place = text::plain(&statement.place.to_string());
            let times = match statement.count {
                1 => String::new(),
                count => format!("  x{}", text::count(count)),
            };
            let whys: Vec<&str> = statement.why.iter().map(why).collect();
            let _ = writeln!(
                all,
                "{n:4}  {position}  thread {}  {place}{times}  {}",
                statement.thread,
                style.faint(&whys.join(", "))
            );
            for (function, at) in &statement.place.inlined {
                let at = at.as_ref().map(|(file, line)| {
                    let file = file.rsplit('/').next().unwrap_or(file);
                    format!(" {file}:{line}")
                });
                let into = format!("        inlined into {function}{}", at.unwrap_or_default());
                let _ = writeln!(all, "{}", style.faint(&text::plain(&into)));
            }
            let place = &statement.place;
            let source = place.file.as_deref().zip(place.line);
            if let Some(source) = source.and_then(|(file, line)| self.sources.line(file, line)) {
                let source = text::shortened(source.trim(), 100);
                let _ = writeln!(all, "          {}", text::plain(&source));
            }
            if source.is_none() || line.instructions {
                let _ = writeln!(all, "          {}", style.faint(&told.text));
            }
            let values = values(told);
            if !values.is_empty() {
                let _ = writeln!(all, "          {}", style.faint(&values));
            }
            let uses = |n: &u32| -> String {
                let other = &self.statements[*n as usize];
                match other.thread == statement.thread {
                    true => format!("{n}"),
                    false => format!("{n} (thread {})", other.thread),
                }
            };
            const MOST: usize = 12;
            // Forwards, members know what they are made of; backwards, what wants them.
            let others = match line.forward {
                true => &statement.used_by,
                false => &statement.uses,
            };
            let mut used: Vec<String> = others.iter().take(MOST).map(uses).collect();
            if others.len() > MOST {
                used.push(format!("{} more", others.len() - MOST));
            }
            if !used.is_empty() {
                let _ = writeln!(
                    all,
                    "          {}",
                    style.faint(&format!("uses {}", used.join(", ")))
                );
            }
        }
        let left = self.statements.len().saturating_sub(self.told.len());
        if left > 0 {
            let more = text::counted(left as u64, "statement");
            let _ = writeln!(all, "      ... {more} more (--depth)");
        }
        let by = |member: &Option<u32>| match self.number_of(*member) {
            Some(n) => format!(", for {n}"),
            None => String::new(),
        };
        for (words, position, bytes, member) in self.inputs.iter().take(MOST_ENDS) {
            let bytes = match bytes {
                0 => String::new(),
                bytes => format!(", {}", text::counted(*bytes, "byte")),
            };
            let (way, by) = match (line.forward, self.number_of(*member)) {
                (true, Some(n)) => ("given away", format!(", from {n}")),
                (true, None) => ("given away", String::new()),
                (false, _) => ("came in", by(member)),
            };
            let input = format!("  {way} by {words} at {position}{bytes}{by}");
            let _ = writeln!(all, "{}", text::plain(&input));
        }
        let more = self.inputs.len().saturating_sub(MOST_ENDS);
        if more > 0 {
            let _ = writeln!(all, "      ... {more} more ways (--json has all)");
        }
        for (words, bytes, member) in self.rest.iter().take(MOST_ENDS) {
            let since = match line.from {
                Some(_) => "from before",
                None => "from the beginning",
            };
            let rest = format!(
                "  {since}: {words}, {}{}",
                text::counted(*bytes, "byte"),
                by(member)
            );
            let _ = writeln!(all, "{}", text::plain(&rest));
        }
        let more = self.rest.len().saturating_sub(MOST_ENDS);
        if more > 0 {
            let _ = writeln!(all, "      ... {more} more beginnings (--json has all)");
        }
        if !self.found.complete {
            let _ = writeln!(all, "  {}", style.bold("not followed any further"));
        }
        let note = format!(
            "  {} in {}, {} passed by, {} looked through",
            text::counted(self.found.count, "instruction"),
            text::counted(self.statements.len() as u64, "statement"),
            text::counted(self.found.moves, "move"),
            text::count(self.found.instructions),
        );
        let _ = writeln!(all, "{}", style.faint(&note));
        all
    }

    pub fn as_json(&self) -> serde_json::Value {
        let named = |(name, value): &(String, Option<u64>)| json!({ "name": name, "value": value.map(|value| format!("{value:#x}")) });
        let statements = self.statements.iter().enumerate().map(|(n, statement)| {
            let newest = self.found.members[statement.newest as usize];
            let oldest = self.found.members[statement.oldest as usize];
            let told = self.told.get(n);
            json!({
                "function": statement.place.function,
                "file": statement.place.file,
                "line": statement.place.line,
                "module": statement.place.module,
                "pc": format!("{:#x}", newest.pc),
                "inlined": statement.place.inlined.iter().map(|(function, at)| json!({
                    "function": function,
                    "file": at.as_ref().map(|at| &at.0),
                    "line": at.as_ref().map(|at| at.1),
                })).collect::<Vec<_>>(),
                "thread": statement.thread,
                "count": statement.count,
                "position": newest.position.to_string(),
                "oldest": oldest.position.to_string(),
                "why": statement.why.iter().map(why).collect::<Vec<_>>(),
                "uses": if self.forward { &statement.used_by } else { &statement.uses },
                "used_by": if self.forward { &statement.uses } else { &statement.used_by },
                "instruction": told.map(|told| &told.text),
                "used": told.map(|told| told.used.iter().map(named).collect::<Vec<_>>()),
                "wrote": told.and_then(|told| told.wrote.as_ref().map(named)),
            })
        });
        json!({
            "what": self.title,
            "statements": statements.collect::<Vec<_>>(),
            (if self.forward { "outputs" } else { "inputs" }): self.inputs.iter().map(|(words, position, bytes, by)| json!({
                "what": words,
                "position": position.to_string(),
                "bytes": bytes,
                "statement": self.number_of(*by),
            })).collect::<Vec<_>>(),
            "rest": self.rest.iter().map(|(words, bytes, by)| json!({
                "what": words,
                "bytes": bytes,
                "statement": self.number_of(*by),
            })).collect::<Vec<_>>(),
            "count": self.found.count,
            "moves": self.found.moves,
            "saved": self.found.pairs,
            "instructions": self.found.instructions,
            "complete": self.found.complete,
        })
    }

    pub fn as_dot(&self, most: usize) -> String {
        let mut all = String::from("digraph slice {\n  node [shape=box, fontname=monospace];\n");
        let quoted = |text: &str| text::plain(text).replace('\\', "\\\\").replace('"', "\\\"");
        for (n, statement) in self.statements.iter().take(most).enumerate() {
            let label = format!(
                "{} (thread {}) x{}",
                statement.place, statement.thread, statement.count
            );
            let _ = writeln!(all, "  s{n} [label=\"{}\"];", quoted(&label));
            for &used in statement
                .uses
                .iter()
                .filter(|used| (**used as usize) < most)
            {
                let other = self.statements[used as usize].thread != statement.thread;
                let style = if other {
                    " [style=bold, color=red]"
                } else {
                    ""
                };
                let _ = writeln!(all, "  s{n} -> s{used}{style};");
            }
        }
        all.push_str("}\n");
        all
    }
}

/// What an instruction made of what.
fn values(told: &Told) -> String {
    let one = |(name, value): &(String, Option<u64>)| match value {
        Some(value) => format!("{name} = {value:#x}"),
        None => name.clone(),
    };
    let used: Vec<String> = told.used.iter().map(one).collect();
    match &told.wrote {
        Some(wrote) if used.is_empty() => one(wrote),
        Some(wrote) => format!("{}, from {}", one(wrote), used.join(", ")),
        None if used.is_empty() => String::new(),
        None => format!("from {}", used.join(", ")),
    }
}

/// Lines of source files, where they are still there.
#[derive(Default)]
pub(super) struct Sources(HashMap<String, Vec<String>>);

impl Sources {
    fn line(&mut self, file: &str, line: u32) -> Option<String> {
        const LARGEST: u64 = 16 << 20;
        let lines = self.0.entry(file.into()).or_insert_with(|| {
            let small = std::fs::metadata(file).is_ok_and(|at| at.is_file() && at.len() < LARGEST);
            let text = small.then(|| std::fs::read(file).ok()).flatten();
            let text = text.unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            text.lines().map(str::to_owned).collect()
        });
        lines.get(line.checked_sub(1)? as usize).cloned()
    }
}

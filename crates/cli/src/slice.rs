//! `clew slice`: all that a value depends on, in a recorded run.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::fmt::Write as _;

use clap::Args;
use clew_slice::closure::{Bounds, Kinds, Member, Question, Slice as Found, Why, slice as closure};
use clew_slice::events::Events;
use clew_slice::failure::what_failed;
use clew_slice::inputs::{self, Given};
use clew_slice::statements::{Statement, statements};
use clew_slice::tell::{self, Told};
use clew_timeline::{Position, Target};
use serde_json::json;

use crate::answers::arguments::Which;
use crate::asking::{Asked, Failed, NOT_FOUND, WRONG};
use crate::text;

pub const HELP: &str = "\
REC is a recording's name or its folder; without it, the latest one. WHAT is a C expression that is in memory \
(job->client, x[3]), a register of the thread that runs there ($rax, $xmm0), or bytes (*0x7f1200:8); without it, what \
failed: the address of a crash, what decided that an assertion failed, the last bytes of output. POS is where it is \
looked at: start, end (the default), an event's number, or a position as other commands tell it.

Shown are the statements that the value was computed by, and those that decided that they were executed, newest first, \
each with the position of its last time, how often it counts, the thread, and the numbers of the statements that it \
uses. Values that are only moved are followed without being shown (--moves shows them). What the system's libraries compute \
counts; what decides in them doesn't, only who called them (--libraries).

Exit status: 0 if there is a slice; 1 if there is nothing to ask about, or it was interrupted; 2 for a wrong command line \
or expression; 124 if the replay diverged; 125 if the recording can't be read, or replayed here.

Examples:
  clew slice
  clew slice crash 'job->client'
  clew slice crash total --data --depth 100
  clew slice crash '$rdi' --at 812+40 --instructions
  clew slice crash total --dot | dot -Tsvg > total.svg";

#[derive(Debug, Args)]
pub struct Slice {
    /// The recording (default: the latest), and the value (default: what failed)
    #[arg(value_name = "REC WHAT", num_args = 0..=2)]
    pub words: Vec<String>,

    /// Where the value is looked at
    #[arg(long, value_name = "POS", value_parser = clew_gdb::parse_target)]
    pub at: Option<Target>,

    /// Don't look before this position
    #[arg(long, value_name = "POS", value_parser = clew_gdb::parse_target)]
    pub from: Option<Target>,

    /// Values only: not what decided about them
    #[arg(long)]
    pub data: bool,

    /// What addresses were computed from counts, too
    #[arg(long, conflicts_with = "no_address")]
    pub address: bool,

    /// What addresses were computed from doesn't count (the default)
    #[arg(long)]
    pub no_address: bool,

    /// Ask why this place was come to, not (only) for a value
    #[arg(long, conflicts_with = "data")]
    pub control: bool,

    /// What decided within the system's libraries counts, too, and not only who called them
    #[arg(long)]
    pub libraries: bool,

    /// Moves are shown, too
    #[arg(long)]
    pub moves: bool,

    /// Instructions instead of statements
    #[arg(long)]
    pub instructions: bool,

    /// Show at most so many statements
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub depth: usize,

    /// Print a graph for dot
    #[arg(long, conflicts_with = "json")]
    pub dot: bool,

    #[command(flatten)]
    pub which: Which,
}

pub fn slice(line: &Slice, envp: &[&CStr]) -> i32 {
    answer(line, envp).unwrap_or_else(|failed| failed.tell())
}

/// Ways in that are shown.
const MOST_ENDS: usize = 16;

/// What is told.
struct Answer {
    /// What was asked, with its value.
    title: String,
    found: Found,
    statements: Vec<Statement>,
    /// Of the first statements: their newest instruction, with values.
    told: Vec<Told>,
    /// Where values came in, with how often, and who wants them first.
    inputs: Vec<(String, Position, u64, Option<u32>)>,
    rest: Vec<(String, u64, Option<u32>)>,
    sources: Sources,
}

fn answer(line: &Slice, envp: &[&CStr]) -> Result<i32, Failed> {
    // One word is a recording if there is one of that name.
    let (recording, what) = match &line.words[..] {
        [] => (None, None),
        [word] => match crate::recordings::find_exactly(envp, OsStr::new(word)).is_ok() {
            true => (Some(OsStr::new(word)), None),
            false => (None, Some(word)),
        },
        [recording, what, ..] => (Some(OsStr::new(recording)), Some(what)),
    };
    let at = line.at.unwrap_or(Target::End);
    let mut asked = Asked::open(recording, &line.which, at, envp)?;
    let (question, title) = match what {
        Some(what) => {
            let (value, shown) = asked.meant(what)?;
            let title = match shown.as_str() {
                "" => what.clone(),
                shown => format!("{what} = {shown}"),
            };
            let question = Question {
                values: vec![value],
                here: line.control,
            };
            (question, title)
        }
        None if line.control || line.at.is_some() => {
            let question = Question {
                values: Vec::new(),
                here: true,
            };
            (question, "why this place was come to".into())
        }
        None => {
            let (timeline, program) = (&mut asked.timeline, &mut asked.program);
            let failed = what_failed(timeline, program, &asked.recording)?;
            let failed = failed.ok_or_else(|| {
                Failed(
                    NOT_FOUND,
                    "nothing failed in this recording, and nothing was written out\nask for a value: clew slice REC WHAT"
                        .into(),
                )
            })?;
            (failed.question, failed.words)
        }
    };
    let kinds = Kinds {
        control: !line.data,
        addresses: line.address,
        moves: line.moves,
        libraries: line.libraries,
        ..Kinds::default()
    };
    let mut bounds = Bounds::default();
    if let Some(from) = line.from {
        let here = asked.timeline.position()?;
        asked.timeline.seek(from)?;
        bounds.from = Some(asked.timeline.position()?);
        asked.timeline.seek(Target::Position(here))?;
        if bounds.from >= Some(here) {
            let why = "--from must lie before the place where the value is looked at";
            return Err(Failed(WRONG, why.into()));
        }
    }
    let log = asked.log()?;
    let modules = asked.program.modules(&mut asked.timeline)?;
    let mappings = asked.timeline.mappings()?;
    let found = closure(
        &mut asked.timeline,
        log,
        modules.clone(),
        &question,
        kinds,
        bounds,
    )?;
    let statements = statements(&found, &modules, line.instructions);
    let mut told = Vec::new();
    for statement in statements.iter().take(line.depth) {
        let member = found.members[statement.newest as usize];
        let ins = found.code[&member.pc].ins;
        let (timeline, program) = (&mut asked.timeline, &mut asked.program);
        told.push(tell::executed(
            timeline,
            program,
            member.position,
            member.thread,
            &ins,
        )?);
    }
    let (inputs, rest) = came_in(&mut asked, &found, mappings)?;
    asked.done();
    let complete = found.complete;
    let answer = Answer {
        title,
        found,
        statements,
        told,
        inputs,
        rest,
        sources: Sources::default(),
    };
    let text = match (line.which.json, line.dot) {
        (true, _) => format!("{:#}\n", answer.as_json()),
        (_, true) => answer.as_dot(line.depth),
        _ => answer.into_text(line),
    };
    text::print(&text);
    Ok(if complete { 0 } else { NOT_FOUND })
}

type CameIn = (
    Vec<(String, Position, u64, Option<u32>)>,
    Vec<(String, u64, Option<u32>)>,
);

/// Inputs and the rest in words, the same ones once.
fn came_in(
    asked: &mut Asked,
    found: &Found,
    mappings: Vec<clew_timeline::Mapping>,
) -> Result<CameIn, Failed> {
    let events = Events::read(asked.log()?)?;
    let mut inputs: Vec<(String, Position, u64, Option<u32>)> = Vec::new();
    // More than anybody reads, and each may take a seek.
    const MOST: usize = 200;
    for input in found.inputs.iter().take(MOST) {
        let words = inputs::input(&mut asked.timeline, &events, input)?;
        match inputs.iter_mut().find(|(known, ..)| *known == words) {
            Some((_, _, bytes, _)) => *bytes += input.bytes,
            None => inputs.push((words, input.position, input.bytes, input.by)),
        }
    }
    let mut rest: Vec<(String, u64, Option<u32>)> = Vec::new();
    if !found.rest.is_empty() && found.complete {
        let given = Given::read(&mut asked.timeline, mappings)?;
        for range in &found.rest {
            let words = given.rest(range);
            match rest.iter_mut().find(|(known, ..)| *known == words) {
                Some((_, bytes, _)) => *bytes += range.len,
                None => rest.push((words, range.len, range.by)),
            }
        }
    }
    Ok((inputs, rest))
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

    fn into_text(mut self, line: &Slice) -> String {
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
            let mut used: Vec<String> = statement.uses.iter().take(MOST).map(uses).collect();
            if statement.uses.len() > MOST {
                used.push(format!("{} more", statement.uses.len() - MOST));
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
            let input = format!("  came in by {words} at {position}{bytes}{}", by(member));
            let _ = writeln!(all, "{}", text::plain(&input));
        }
        let more = self.inputs.len().saturating_sub(MOST_ENDS);
        if more > 0 {
            let _ = writeln!(all, "      ... {more} more ways in (--json has all)");
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

    fn as_json(&self) -> serde_json::Value {
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
                "uses": statement.uses,
                "used_by": statement.used_by,
                "instruction": told.map(|told| &told.text),
                "used": told.map(|told| told.used.iter().map(named).collect::<Vec<_>>()),
                "wrote": told.and_then(|told| told.wrote.as_ref().map(named)),
            })
        });
        json!({
            "what": self.title,
            "statements": statements.collect::<Vec<_>>(),
            "inputs": self.inputs.iter().map(|(words, position, bytes, by)| json!({
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

    fn as_dot(&self, most: usize) -> String {
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
struct Sources(HashMap<String, Vec<String>>);

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

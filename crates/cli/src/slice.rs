//! `clew slice`: all that a value depends on, in a recorded run.

pub mod walk;

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::fmt::Write as _;

use clap::Args;
use clew_recording::event::StreamId;
use clew_slice::closure::{Bounds, Kinds, Member, Question, Slice as Found, Why, slice as closure};
use clew_slice::events::Events;
use clew_slice::failure::what_failed;
use clew_slice::forward::influence;
use clew_slice::inputs::{self, Given};
use clew_slice::origin::Value;
use clew_slice::passages::{self, Passages, Piece};
use clew_slice::statements::{Statement, statements};
use clew_slice::tell::{self, Told};
use clew_slice::tour::Tour;
use clew_timeline::{Position, Target};
use serde_json::json;

use crate::answers::arguments::Which;
use crate::asking::{Asked, Failed, NOT_FOUND, WRONG};
use crate::replay::CANT_REPLAY;
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

With --forward it goes the other way: what was made of the value from that place on, oldest first, the branches that went by \
it, and the calls that gave it away. What is executed because of such a branch isn't followed.

Exit status: 0 if there is a slice; 1 if there is nothing to ask about, or it was interrupted; 2 for a wrong command line \
or expression; 124 if the replay diverged; 125 if the recording can't be read, or replayed here.

Examples:
  clew slice
  clew slice crash 'job->client'
  clew slice crash total --data --depth 100
  clew slice crash total --forward --at 812+40
  clew slice crash -i
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

    /// The other way: what the value influences from there on
    #[arg(long, requires = "at", conflicts_with_all = ["control", "from", "dot"])]
    pub forward: bool,

    /// With --forward: don't look behind this position
    #[arg(long, value_name = "POS", requires = "forward", value_parser = clew_gdb::parse_target)]
    pub to: Option<Target>,

    /// Ask why this place was come to, not (only) for a value
    #[arg(long, conflicts_with = "data")]
    pub control: bool,

    /// What decided within the system's libraries counts, too, and not only who called them
    #[arg(long)]
    pub libraries: bool,

    /// For measurements: without telling saved registers from values
    #[arg(long, hide = true)]
    pub no_pairs: bool,

    /// For measurements: without finding out where indirect jumps lead
    #[arg(long, hide = true)]
    pub no_jumps: bool,

    /// Moves are shown, too
    #[arg(long)]
    pub moves: bool,

    /// Instructions instead of statements
    #[arg(long)]
    pub instructions: bool,

    /// Show at most so many statements
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub depth: usize,

    /// Go along it, statement by statement, the program standing there
    #[arg(short, long, conflicts_with_all = ["json", "dot", "forward"])]
    pub interactive: bool,

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
    /// Whose.
    stream: StreamId,
    found: Found,
    statements: Vec<Statement>,
    /// Of the first statements: their newest instruction, with values.
    told: Vec<Told>,
    /// Where values came in, with how often, and who wants them first.
    inputs: Vec<(String, Position, u64, Option<u32>)>,
    rest: Vec<(String, u64, Option<u32>)>,
    sources: Sources,
    forward: bool,
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
        None if line.forward => {
            let why = "--forward asks what a value influences: name it, and the place to begin from\nas in: clew slice REC total --forward --at 812+40";
            return Err(Failed(WRONG, why.into()));
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
        pairs: !line.no_pairs,
        jumps: !line.no_jumps,
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
    if let Some(to) = line.to {
        let here = asked.timeline.position()?;
        asked.timeline.seek(to)?;
        bounds.to = Some(asked.timeline.position()?);
        asked.timeline.seek(Target::Position(here))?;
        if bounds.to <= Some(here) {
            let why = "--to must lie behind the place where the value is looked at";
            return Err(Failed(WRONG, why.into()));
        }
    }
    let mut all = vec![sliced(&mut asked, title, &question, kinds, bounds, line)?];
    if line.interactive {
        asked.done();
        let (found, modules) = (
            all.remove(0).found,
            asked.program.modules(&mut asked.timeline)?,
        );
        let tour = Tour::new(found, &modules).ok_or_else(|| {
            Failed(
                NOT_FOUND,
                "nothing was computed for it: there is no statement to go to".into(),
            )
        })?;
        walk::interactively(&mut asked, tour)?;
        return Ok(0);
    }
    if !line.forward && line.from.is_none() {
        others(&mut asked, &mut all, kinds, line)?;
    }
    asked.done();
    let complete = all.iter().all(|answer| answer.found.complete);
    let text = match (line.which.json, line.dot) {
        (true, _) => {
            let mut json: Vec<serde_json::Value> = all.iter().map(Answer::as_json).collect();
            let mut first = json.remove(0);
            first["processes"] = json.into();
            format!("{first:#}\n")
        }
        (_, true) => all[0].as_dot(line.depth),
        _ => all
            .into_iter()
            .map(|answer| answer.into_text(line))
            .collect(),
    };
    text::print(&text);
    Ok(if complete { 0 } else { NOT_FOUND })
}

/// Asks, where the timeline stands.
fn sliced(
    asked: &mut Asked,
    title: String,
    question: &Question,
    kinds: Kinds,
    bounds: Bounds,
    line: &Slice,
) -> Result<Answer, Failed> {
    let log = asked.log()?;
    let modules = asked.program.modules(&mut asked.timeline)?;
    let mappings = asked.timeline.mappings()?;
    let timeline = &mut asked.timeline;
    let found = match line.forward {
        true => influence(timeline, log, question, kinds, bounds)?,
        false => closure(timeline, log, modules.clone(), question, kinds, bounds)?,
    };
    let statements = statements(&found, &modules, line.instructions);
    let mut told = Vec::new();
    let shown = match line.interactive {
        true => 0,
        false => line.depth,
    };
    for statement in statements.iter().take(shown) {
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
    let (inputs, rest) = match line.interactive {
        true => Default::default(),
        false => came_in(asked, &found, mappings, line.forward)?,
    };
    Ok(Answer {
        title,
        stream: asked.timeline.stream(),
        found,
        statements,
        told,
        inputs,
        rest,
        sources: Sources::default(),
        forward: line.forward,
    })
}

/// Other processes whose bytes came in are asked about those, and so on.
fn others(
    asked: &mut Asked,
    all: &mut Vec<Answer>,
    kinds: Kinds,
    line: &Slice,
) -> Result<(), Failed> {
    if asked.recording.streams().len() < 2 {
        return Ok(());
    }
    const MOST: usize = 8;
    let passages = Passages::read(&asked.recording);
    let mut done = 0;
    while done < all.len() && all.len() < MOST {
        let answer = &all[done];
        let stream = answer.stream;
        let log = asked.recording.stream(stream);
        let log = log.map_err(|error| Failed(CANT_REPLAY, error.to_string()))?;
        let events = Events::read(log)?;
        let mut wanted: Vec<(Piece, u64, u64)> = Vec::new();
        for input in &answer.found.inputs {
            let (Some(addr), Some(fact)) = (input.addr, events.get(input.position.event)) else {
                continue;
            };
            let ranges = events.memory(fact);
            let event = input.position.event;
            let found = passages.elsewhere(stream, event, ranges, addr, input.bytes);
            if let Some((piece, at, len)) = found
                && !wanted.iter().any(|(known, ..)| known == piece)
            {
                wanted.push((piece.clone(), at, len));
            }
        }
        for (piece, at, len) in wanted.into_iter().take(MOST - all.len()) {
            let mut other = asked.another(piece.stream, Target::Position(piece.position))?;
            let place = piece.place(&mut other.timeline, at, len)?;
            let Some((addr, len)) = place else {
                continue;
            };
            let title = format!(
                "in {}: {} that it wrote at {}",
                process_named(asked, piece.stream),
                text::counted(len, "byte"),
                piece.position
            );
            let question = Question {
                values: vec![Value::Memory { addr, len }],
                here: false,
            };
            let bounds = Bounds::default();
            all.push(sliced(&mut other, title, &question, kinds, bounds, line)?);
            other.done();
        }
        before_fork(asked, all, done, kinds, line)?;
        done += 1;
    }
    Ok(())
}

/// What a process had from the beginning was its parent's, if it was forked.
fn before_fork(
    asked: &Asked,
    all: &mut Vec<Answer>,
    child: usize,
    kinds: Kinds,
    line: &Slice,
) -> Result<(), Failed> {
    let Some((parent, position)) = passages::forked(&asked.recording, all[child].stream) else {
        return Ok(());
    };
    let found = &all[child].found;
    if !found.complete || found.rest.is_empty() && found.registers.is_empty() {
        return Ok(());
    }
    let mut other = asked.another(parent, Target::Position(position))?;
    let thread = other.timeline.at().thread;
    let rest = found.rest.iter().map(|rest| Value::Memory {
        addr: rest.addr,
        len: rest.len,
    });
    let mut values: Vec<Value> = rest.collect();
    for (_, bytes) in &found.registers {
        for n in (0..16u32).filter(|n| bytes >> (8 * n) & 0xff != 0) {
            values.push(Value::Register {
                thread,
                register: iced_x86::Register::RAX + n,
                bytes: 0..8,
            });
        }
    }
    let title = format!(
        "in {}: what {} had when it was forked, at {position}",
        process_named(asked, parent),
        process_named(asked, all[child].stream),
    );
    let question = Question {
        values,
        here: false,
    };
    all[child].rest.clear();
    let bounds = Bounds::default();
    all.push(sliced(&mut other, title, &question, kinds, bounds, line)?);
    other.done();
    Ok(())
}

fn process_named(asked: &Asked, stream: StreamId) -> String {
    let info = asked.recording.info(stream);
    let named = info.map(|info| {
        let exe = String::from_utf8_lossy(&info.start.exe).into_owned();
        let name = exe.rsplit('/').next().unwrap_or_default().to_owned();
        format!("process {} ({name})", info.start.pid)
    });
    named.unwrap_or_default()
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
    forward: bool,
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
    if !found.rest.is_empty() && found.complete && !forward {
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

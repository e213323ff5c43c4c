//! `clew slice`: all that a value depends on, in a recorded run.

mod answer;
mod others;
mod run;
mod saved;
pub mod walk;
mod way;

use std::ffi::{CStr, OsStr};

use clap::Args;
use clew_slice::closure::{Bounds, Kinds, Question, Slice as Found, slice as closure};
use clew_slice::events::Events;
use clew_slice::failure::what_failed;
use clew_slice::forward::influence;
use clew_slice::inputs::{self, Given};
use clew_slice::statements::statements;
use clew_slice::tell;
use clew_slice::tour::Tour;
use clew_timeline::{Position, Target};

use crate::answers::arguments::Which;
use crate::asking::{Asked, Failed, NOT_FOUND, WRONG};
use crate::text;
use crate::when::When;
use answer::{Answer, Sources};
use others::others;
use saved::Saved;

pub const HELP: &str = "\
REC is a recording's name or its folder; without it, the latest one. WHAT is a C expression that is in memory \
(job->client, x[3]), a register of the thread that runs there ($rax, $xmm0), or bytes (*0x7f1200:8); without it, what \
failed: the address of a crash, what decided that an assertion failed, the last bytes of output. WHEN is where it is \
looked at: start, end (the default), an event's number, a position as other commands tell it, FILE:LINE or its Nth time \
FILE:LINE#N, a function's entry FUNCTION#N or return FUNCTION#N$ (`clew cut --help` has all).

Shown are the statements that the value was computed by, and those that decided that they were executed, newest first, \
each with the position of its last time, how often it counts, the thread, and the numbers of the statements that it \
uses. Values that are only moved are followed without being shown (--moves shows them). What the system's libraries compute \
counts; what decides in them doesn't, only who called them (--libraries).

With --forward it goes the other way: what was made of the value from that place on, oldest first, the branches that went by \
it, and the calls that gave it away. What is executed because of such a branch isn't followed.

clew slice run [REC] NAME makes a new recording of the slice that was saved as NAME (--save): what lies between its \
instructions is left out, and what that did to registers and memory is put there instead. It replays like any other; in clew debug, \
clew slice next goes from statement to statement of it. That the value is the same in it is checked.

Exit status: 0 if there is a slice; 1 if there is nothing to ask about, or it was interrupted; 2 for a wrong command line \
or expression; 124 if the replay diverged; 125 if the recording can't be read, or replayed here.

Examples:
  clew slice
  clew slice crash 'job->client'
  clew slice crash total --data --depth 100
  clew slice crash total --forward --at 812+40
  clew slice crash -i
  clew slice crash total --save total; clew slice run crash total
  clew slice crash '$rdi' --at 812+40 --instructions
  clew slice crash total --dot | dot -Tsvg > total.svg";

#[derive(Debug, Args)]
pub struct Slice {
    /// The recording (default: the latest), and the value (default: what failed)
    #[arg(value_name = "REC WHAT", num_args = 0..=3)]
    pub words: Vec<String>,

    /// Where the value is looked at
    #[arg(long, value_name = "WHEN", value_parser = str::parse::<When>)]
    pub at: Option<When>,

    /// The thread whose times and registers are meant (default: all, and the one that runs there)
    #[arg(long, value_name = "T", requires = "at")]
    pub thread: Option<u32>,

    /// Don't look before this position
    #[arg(long, value_name = "WHEN", value_parser = str::parse::<When>)]
    pub from: Option<When>,

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
    #[arg(long, value_name = "WHEN", requires = "forward", value_parser = str::parse::<When>)]
    pub to: Option<When>,

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

    /// Save the question beside the recording, for `clew slice run [REC] NAME`
    #[arg(long, value_name = "NAME", conflicts_with = "forward")]
    pub save: Option<String>,

    /// With run: the folder of the new recording (default: REC-NAME among your recordings)
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<std::path::PathBuf>,

    /// With run: parts of fewer instructions are executed, though they aren't in the slice
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub shortest: u64,

    /// Print a graph for dot
    #[arg(long, conflicts_with = "json")]
    pub dot: bool,

    #[command(flatten)]
    pub which: Which,
}

pub fn slice(line: &Slice, envp: &[&CStr]) -> i32 {
    answer(line, envp).unwrap_or_else(|failed| failed.tell())
}

fn answer(line: &Slice, envp: &[&CStr]) -> Result<i32, Failed> {
    if line.words.first().is_some_and(|word| word == "run") {
        return run::run(line, &line.words[1..], envp);
    }
    if line.words.len() > 2 || line.output.is_some() {
        let why = "clew slice takes a recording and a value\nan execution slice is made by: clew slice run [REC] NAME";
        return Err(Failed(WRONG, why.into()));
    }
    // One word is a recording if there is one of that name.
    let (recording, what) = match &line.words[..] {
        [] => (None, None),
        [word] => match crate::recordings::find_exactly(envp, OsStr::new(word)).is_ok() {
            true => (Some(OsStr::new(word)), None),
            false => (None, Some(word)),
        },
        [recording, what, ..] => (Some(OsStr::new(recording)), Some(what)),
    };
    let mut asked = Asked::open_at(recording, &line.which, line.at.as_ref(), line.thread, envp)?;
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
    if let Some(from) = &line.from {
        let here = asked.timeline.position()?;
        asked.go(from)?;
        bounds.from = Some(asked.timeline.position()?);
        asked.timeline.seek(Target::Position(here))?;
        if bounds.from >= Some(here) {
            let why = "--from must lie before the place where the value is looked at";
            return Err(Failed(WRONG, why.into()));
        }
    }
    if let Some(to) = &line.to {
        let here = asked.timeline.position()?;
        asked.go(to)?;
        bounds.to = Some(asked.timeline.position()?);
        asked.timeline.seek(Target::Position(here))?;
        if bounds.to <= Some(here) {
            let why = "--to must lie behind the place where the value is looked at";
            return Err(Failed(WRONG, why.into()));
        }
    }
    if let Some(name) = &line.save {
        let at = asked.timeline.position()?;
        let saved = Saved::new(&title, asked.timeline.stream(), at, &question, line, bounds);
        saved.write(asked.recording.folder(), name)?;
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

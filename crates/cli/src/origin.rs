//! `clew origin`: where a value comes from, in a recorded run.

use std::ffi::{CStr, OsStr};

use clap::Args;
use clew_recording::reader::Recording;
use clew_slice::EventKind;
use clew_slice::origin::{Chain, Ending};
use clew_slice::tell::{Told, tell};
use clew_timeline::Timeline;
use clew_timeline::program::Program;
use serde_json::json;

use crate::answers::arguments::Which;
use crate::asking::{Asked, Failed, NOT_FOUND, WRONG, meant};
use crate::text;
use crate::when::When;

pub const HELP: &str = "\
REC is a recording's name or its folder; without it, the latest one. WHAT is a C expression that is in memory \
(job->client, x[3]), a register of the thread that runs there ($rax, $xmm0), or bytes (*0x7f1200:8). WHEN is where it is \
looked at: start, end (the default: the crash, or the exit), an event's number, a position as other commands tell it, \
FILE:LINE or its Nth time FILE:LINE#N, a function's entry FUNCTION#N or return FUNCTION#N$ (`clew cut --help` has all).

The value is followed backwards through registers, memory, system calls and all threads: moves are left out (--moves \
shows them), computations with one operand are followed, and where it is computed from several values, was read, \
or is a constant, the chain ends. Each line has the position before its instruction, for `clew debug --at`.

Exit status: 0 if the origin is found; 1 if it isn't; 2 for a wrong command line or expression; 124 if the replay \
diverged; 125 if the recording can't be read, or replayed here.

Examples:
  clew origin crash 'job->client'
  clew origin '$rdi'
  clew origin crash 'total' --at 812+40 --moves
  clew origin crash '*0x20000000a010:4' --json";

#[derive(Debug, Args)]
pub struct Origin {
    /// The recording (default: the latest), and the value
    #[arg(value_name = "REC WHAT", num_args = 1..=2, required = true)]
    pub words: Vec<String>,

    /// Where the value is looked at
    #[arg(long, value_name = "WHEN", value_parser = str::parse::<When>)]
    pub at: Option<When>,

    /// The thread whose times and registers are meant (default: all, and the one that runs there)
    #[arg(long, value_name = "T", requires = "at")]
    pub thread: Option<u32>,

    /// Show moves, too
    #[arg(long)]
    pub moves: bool,

    /// Show at most so many steps
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub depth: usize,

    #[command(flatten)]
    pub which: Which,
}

pub fn origin(line: &Origin, envp: &[&CStr]) -> i32 {
    answer(line, envp).unwrap_or_else(|failed| failed.tell())
}

fn answer(line: &Origin, envp: &[&CStr]) -> Result<i32, Failed> {
    let (recording, what) = match &line.words[..] {
        [what] => (None, what),
        [recording, what] => (Some(OsStr::new(recording)), what),
        _ => return Err(Failed(WRONG, "a recording and a value, no more".into())),
    };
    let mut asked = Asked::open_at(recording, &line.which, line.at.as_ref(), line.thread, envp)?;
    let (value, shown) = asked.meant(what)?;
    let log = asked.log()?;
    let chain = clew_slice::origin::origin(&mut asked.timeline, log, &value)?;
    let (timeline, program) = (&mut asked.timeline, &mut asked.program);
    let told = tell(timeline, program, &chain, line.moves, line.depth)?;
    asked.done();
    match line.which.json {
        true => text::print(&format!("{:#}\n", as_json(what, &shown, &chain, &told))),
        false => text::print(&as_text(what, &shown, &chain, &told)),
    }
    Ok(match chain.ending {
        Ending::Interrupted => NOT_FOUND,
        _ => 0,
    })
}

/// The same for a timeline that stands where the question is asked, as text.
pub fn told(
    timeline: &mut Timeline,
    program: &mut Program,
    recording: &Recording,
    what: &str,
) -> Result<String, String> {
    const DEPTH: usize = 16;
    let (value, shown) = meant(timeline, program, what).map_err(|failed| failed.1)?;
    let log = recording.stream(timeline.stream());
    let log = log.map_err(|error| error.to_string())?;
    let chain = clew_slice::origin::origin(timeline, log, &value);
    let chain = chain.map_err(|error| error.to_string())?;
    let told = tell(timeline, program, &chain, false, DEPTH).map_err(|error| error.to_string())?;
    Ok(as_text(what, &shown, &chain, &told))
}

fn place_of(told: &Told) -> String {
    let function = told.function.as_deref().unwrap_or("??");
    match (&told.file, told.line) {
        (Some(file), Some(line)) => {
            let file = file.rsplit('/').next().unwrap_or(file);
            format!("{function} {file}:{line}")
        }
        _ => format!("{function} {:#x}", told.pc),
    }
}

fn values(told: &Told) -> String {
    let one = |(name, value): &(String, Option<u64>)| match value {
        Some(value) => format!("{name} = {value:#x}"),
        None => name.clone(),
    };
    let used: Vec<String> = told.used.iter().map(one).collect();
    match &told.wrote {
        Some(wrote) if used.is_empty() => one(wrote),
        Some(wrote) => format!("{} from {}", one(wrote), used.join(", ")),
        None if used.is_empty() => String::new(),
        None => format!("from {}", used.join(", ")),
    }
}

fn as_text(what: &str, shown: &str, chain: &Chain, told: &[Told]) -> String {
    let style = text::Style::stdout();
    let mut all = match shown {
        "" => format!("{}\n", style.bold(&text::plain(what))),
        shown => {
            let value = format!("{what} = {shown}");
            format!("{}\n", style.bold(&text::plain(&value)))
        }
    };
    for told in told {
        let position = style.good(&told.position.to_string());
        let place = text::plain(&place_of(told));
        let line = format!("  {position}  thread {}  {place}\n", told.thread);
        all.push_str(&line);
        let values = values(told);
        let code = format!("      {}  ; {values}\n", told.text);
        all.push_str(&style.faint(&code));
    }
    let moves = chain.steps.iter().filter(|step| step.moved).count();
    let shown_moves = told.iter().filter(|told| told.moved).count();
    let left = chain.steps.len() - moves - (told.len() - shown_moves);
    if left > 0 {
        let more = text::counted(left as u64, "step");
        all.push_str(&format!("  ... {more} more (--depth)\n"));
    }
    let end = match &chain.ending {
        Ending::Computed => "computed there, from several values".into(),
        Ending::Constant => "a constant of the program".into(),
        Ending::Beginning => {
            "there from the beginning: of the program's file, its arguments, or never written"
                .into()
        }
        Ending::Interrupted => "not followed any further".into(),
        Ending::Event {
            position,
            thread,
            kind,
        } => format!("came in by {} at {position}, thread {thread}", event(kind)),
    };
    all.push_str(&format!("  {}\n", style.bold(&end)));
    let looked = text::count(chain.instructions);
    let note = format!(
        "  {}, {looked} instructions looked through\n",
        text::counted(moves as u64, "move")
    );
    all.push_str(&style.faint(&note));
    all
}

fn event(kind: &EventKind) -> String {
    match kind {
        EventKind::Call(call) => {
            format!("{}()", clew_calls::table::lookup(u64::from(call.nr)).name)
        }
        EventKind::Signal { signo } => format!("signal {signo}, whose frame it is in"),
        other => other.words().into(),
    }
}

fn as_json(what: &str, shown: &str, chain: &Chain, told: &[Told]) -> serde_json::Value {
    let named = |(name, value): &(String, Option<u64>)| json!({ "name": name, "value": value.map(|value| format!("{value:#x}")) });
    let steps: Vec<serde_json::Value> = told
        .iter()
        .map(|told| {
            json!({
                "position": told.position.to_string(),
                "thread": told.thread,
                "pc": format!("{:#x}", told.pc),
                "instruction": told.text,
                "moved": told.moved,
                "function": told.function,
                "file": told.file,
                "line": told.line,
                "used": told.used.iter().map(named).collect::<Vec<_>>(),
                "wrote": told.wrote.as_ref().map(named),
            })
        })
        .collect();
    let ending = match &chain.ending {
        Ending::Computed => json!({ "kind": "computed" }),
        Ending::Constant => json!({ "kind": "constant" }),
        Ending::Beginning => json!({ "kind": "beginning" }),
        Ending::Interrupted => json!({ "kind": "interrupted" }),
        Ending::Event {
            position,
            thread,
            kind,
        } => json!({
            "kind": "event",
            "position": position.to_string(),
            "thread": thread,
            "call": match kind {
                EventKind::Call(call) => Some(clew_calls::table::lookup(u64::from(call.nr)).name),
                EventKind::Time(_) => Some(kind.words().trim_end_matches("()")),
                _ => None,
            },
        }),
    };
    json!({
        "what": what,
        "value": shown,
        "steps": steps,
        "ending": ending,
        "instructions": chain.instructions,
    })
}

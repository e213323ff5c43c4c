//! `clew races`: accesses to the same memory that nothing orders, in a recorded run.

use std::ffi::{CStr, OsStr};
use std::path::PathBuf;

use clap::Args;
use clew_order::races::{Race, Races, Side, Suppressions, races as find};
use clew_timeline::Target;

use crate::answers::arguments::Which;
use crate::asking::{Asked, Failed, WRONG};
use crate::text;

pub const HELP: &str = "\
REC is a recording's name or its folder; without it, the latest one. A race is two accesses of different threads to the same \
bytes, one of them a write, with nothing between them that orders them: no lock, semaphore, join, message or atomic access. \
What is told would be a race under any schedule with the same interactions, whichever access came first here.

The program needs no recompiling; with debugging information (-g) there are lines and variables. Atomic loads and stores look \
like ordinary ones in machine code: memory that is never touched by an atomic instruction counts as data.

Exit status: 0 if there is no race; 1 if there are some; 2 for a wrong command line; 124 if the replay diverged before \
anything was found; 125 if the recording can't be read, or replayed here.

Examples:
  clew races
  clew races crash --json
  clew races crash --suppressions tsan.supp";

#[derive(Debug, Args)]
pub struct RacesLine {
    /// The recording (default: the latest)
    #[arg(value_name = "REC")]
    pub recording: Option<String>,

    /// Also those that are known to be meant: the C library's own, and suppressed ones
    #[arg(long)]
    pub all: bool,

    /// Leave out what this file says, in ThreadSanitizer's format
    #[arg(long, value_name = "FILE")]
    pub suppressions: Option<PathBuf>,

    #[command(flatten)]
    pub which: Which,
}

const FOUND: i32 = 1;

pub fn races(line: &RacesLine, envp: &[&CStr]) -> i32 {
    match answer(line, envp) {
        Ok(status) => status,
        Err(failed) => failed.tell(),
    }
}

fn answer(line: &RacesLine, envp: &[&CStr]) -> Result<i32, Failed> {
    let suppressions = match &line.suppressions {
        Some(file) => {
            let wrong = |why: String| Failed(WRONG, format!("{}: {why}", file.display()));
            let words = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
            Suppressions::parse(&words).map_err(wrong)?
        }
        None => Suppressions::default(),
    };
    let word = line.recording.as_deref().map(OsStr::new);
    let mut asked = Asked::open(word, &line.which, Target::Start, envp)?;
    let log = asked.log()?;
    let mut found = find(&mut asked.timeline, &mut asked.program, log, &suppressions)?;
    asked.done();
    let hidden = found
        .races
        .iter()
        .filter(|race| race.hidden.is_some())
        .count();
    if !line.all {
        found.races.retain(|race| race.hidden.is_none());
    }
    match line.which.json {
        true => {
            let all =
                serde_json::to_value(&found).map_err(|error| Failed(WRONG, error.to_string()))?;
            text::print(&format!("{all:#}\n"));
        }
        false => text::print(&as_text(&asked.name, &found, hidden, line.all)),
    }
    let real = found.races.iter().any(|race| race.hidden.is_none());
    Ok(if real { FOUND } else { 0 })
}

/// One race, with both of its accesses.
pub fn told(name: &str, head: &str, race: &Race, style: text::Style) -> String {
    let times = match race.count {
        1 => "once".to_string(),
        count => format!("{} times", text::count(count)),
    };
    let head = format!("{head}: {}, {times}", what(race));
    let mut out = format!("{}\n", style.bold(&text::plain(&head)));
    if let Some(why) = &race.hidden {
        out.push_str(&format!(
            "  {}\n",
            style.faint(&text::plain(&format!("({why})")))
        ));
    }
    for side in [&race.first, &race.second] {
        out.push_str(&of_side(name, side, style));
    }
    if let Some(block) = &race.block {
        let line = block.line.short().unwrap_or_else(|| "?".into());
        let told = format!(
            "  {} bytes into a block of {}, which thread {} asked for at {line}",
            block.offset, block.size, block.thread
        );
        out.push_str(&format!("{}\n", text::plain(&told)));
    }
    out.push_str(&format!("  {}\n", text::plain(&race.missing)));
    out
}

fn as_text(name: &str, found: &Races, hidden: usize, all: bool) -> String {
    let style = text::Style::stdout();
    let mut out = String::new();
    for (n, race) in found.races.iter().enumerate() {
        out.push_str(&told(name, &format!("race {}", n + 1), race, style));
        out.push('\n');
    }
    let real = found
        .races
        .iter()
        .filter(|race| race.hidden.is_none())
        .count();
    let mut end = match real {
        0 => "no race".to_string(),
        n => text::counted(n as u64, "race"),
    };
    end.push_str(&format!(
        " in {} to shared memory",
        text::counted(found.accesses, "access")
    ));
    if hidden > 0 && !all {
        end.push_str(&format!("; {hidden} hidden (--all)"));
    }
    if !found.complete {
        end.push_str("; not all of it could be looked at");
    }
    out.push_str(&format!("{}\n", style.faint(&end)));
    out
}

/// The memory that it is about.
fn what(race: &Race) -> String {
    let bytes = text::counted(race.bytes, "byte");
    match &race.variable {
        Some(name) => format!("{name} ({bytes} at {:#x})", race.address),
        None => format!("{bytes} at {:#x}", race.address),
    }
}

fn of_side(name: &str, side: &Side, style: text::Style) -> String {
    let line = side
        .line
        .short()
        .unwrap_or_else(|| format!("{:#x}", side.pc));
    let function = side.line.function.as_deref().unwrap_or("??");
    let told = format!(
        "  {:<5} by thread {} at {line} in {function}",
        side.what, side.name
    );
    let mut out = text::plain(&told);
    if let Some(position) = &side.position {
        let at = format!("  clew debug {name} --at {position}");
        out.push_str(&style.faint(&text::plain(&at)));
    }
    out.push('\n');
    for frame in side.stack.iter().skip(1).take(8) {
        let line = frame.short().unwrap_or_else(|| "?".into());
        let function = frame.function.as_deref().unwrap_or("??");
        let told = format!("          called from {function} {line}\n");
        out.push_str(&style.faint(&text::plain(told.trim_end())));
        out.push('\n');
    }
    out
}

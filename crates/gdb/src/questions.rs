//! Commands of ours that the debugger answers (`clew-debugger`). In: a command's words, with the thread and frame that gdb has
//! chosen. Out: text; or a move, for a step from line to line, which is one search however long the line takes.
//!
//! The debugger stands on a timeline of its own, beside that of the session. Both use the same snapshots.

use std::fmt::Write;

use clew_debugger::{Change, Debugger, Left, Step, StopReason};
use clew_timeline::{Direction, Position, Reason, Stop, Target};

use crate::session::Session;
use crate::{Error, Result, plain};

/// So many are told, unless gdb's user says otherwise.
const MOST: u64 = 200;
/// Values are shown this long.
const LONGEST: usize = 100;

/// Who is asked about: as gdb's script says it, `@TID.FRAME` in front of the rest. Without it, whoever runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whose {
    pub tid: Option<i32>,
    pub frame: usize,
}

impl Whose {
    /// Takes it off the front.
    pub fn split(text: &str) -> (Whose, &str) {
        let parsed = text.strip_prefix('@').and_then(|rest| {
            let (whose, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            let (tid, frame) = whose.split_once('.')?;
            let whose = Whose {
                tid: Some(tid.parse().ok()?),
                frame: frame.parse().ok()?,
            };
            Some((whose, rest.trim()))
        });
        parsed.unwrap_or((Whose::default(), text))
    }
}

/// `[NUMBER] REST` or `REST`: how many are wanted.
fn most(text: &str) -> (u64, &str) {
    match text.rsplit_once(" -n ") {
        Some((rest, number)) => match number.trim().parse() {
            Ok(most) => (most, rest.trim()),
            Err(_) => (MOST, text),
        },
        None => (MOST, text),
    }
}

fn refused(error: clew_debugger::Error) -> Error {
    match error {
        clew_debugger::Error::Timeline(error) => Error::Timeline(error),
        error => Error::Command(error.to_string()),
    }
}

/// On one line, and not endless.
fn shown(text: &str) -> String {
    let text = plain(text);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

impl Session<'_> {
    /// The debugger, where the session stands; and that place.
    pub(crate) fn debugger(&mut self, whose: Whose) -> Result<(&mut Debugger, Position)> {
        let position = self.timeline.position()?;
        let thread = self.or_running(whose.tid)?;
        let watcher = self.watcher();
        if self.debugger.is_none() {
            let timeline = self.timeline.another()?;
            self.debugger = Some(Debugger::on(self.recording.clone(), timeline));
        }
        let Some(debugger) = &mut self.debugger else {
            return Err(Error::Command("there is no debugger".into()));
        };
        debugger.set_watcher(watcher);
        debugger.seek(&position.to_string()).map_err(refused)?;
        debugger.choose_thread(thread).map_err(refused)?;
        Ok((debugger, position))
    }

    pub(crate) fn all_calls(&mut self, rest: &str) -> Result<String> {
        let (most, name) = most(rest);
        if name.is_empty() {
            return Err(Error::Command("calls takes a function".into()));
        }
        let (debugger, _) = self.debugger(Whose::default())?;
        let found = debugger.calls(name, most).map_err(refused)?;
        let mut text = String::new();
        for call in &found.calls {
            let arguments = call.arguments.iter();
            let arguments: Vec<String> = arguments
                .map(|one| format!("{}={}", one.name, one.text))
                .collect();
            let indent = "  ".repeat((call.depth as usize).min(20));
            let function = call.function.split('(').next().unwrap_or(&call.function);
            let what = shown(&format!("{function}({})", arguments.join(", ")));
            let returned = match &call.left {
                Left::Returned { value, .. } => {
                    let value = value.as_ref().map(|value| shown(&value.text));
                    value.map_or(String::new(), |value| format!(" = {value}"))
                }
                Left::Unwound => " (unwound)".into(),
                Left::Never => " (didn't return)".into(),
            };
            let from = plain(&call.caller.to_string());
            let _ = writeln!(
                text,
                "{}  thread {}  {indent}{what}{returned}  from {from}",
                call.position, call.thread
            );
        }
        if found.calls.is_empty() {
            let _ = writeln!(text, "{} isn't called", plain(name));
        }
        let mut copies: Vec<String> = found.inlined.iter().map(|at| at.to_string()).collect();
        copies.dedup();
        for copy in copies {
            let copy = plain(&copy);
            let _ = writeln!(text, "inlined, so that calls there aren't told: {copy}");
        }
        text.push_str(&more(found.complete, found.interrupted, found.calls.len()));
        Ok(text)
    }

    pub(crate) fn all_writes(&mut self, rest: &str) -> Result<String> {
        let (whose, rest) = Whose::split(rest);
        let (most, expression) = most(rest);
        if expression.is_empty() {
            return Err(Error::Command("writes takes an expression".into()));
        }
        let (debugger, _) = self.debugger(whose)?;
        let thread = debugger.thread();
        let found = debugger.changes(thread, whose.frame, expression, most);
        let found = found.map_err(refused)?;
        let within = found.function.as_ref();
        let within = within.map_or(String::new(), |name| format!(", in a call of {name}"));
        let mut text = format!(
            "{}: {} at {:#x}{}\n",
            plain(expression),
            plain(&found.of),
            found.address,
            plain(&within)
        );
        for change in &found.changes {
            text.push_str(&told(change));
        }
        if found.changes.is_empty() {
            text.push_str("it doesn't change\n");
        }
        let count = found.changes.len();
        text.push_str(&more(found.complete, found.interrupted, count));
        Ok(text)
    }

    pub(crate) fn all_output(&mut self, rest: &str) -> Result<String> {
        let most = match rest.parse() {
            Ok(most) => most,
            Err(_) if rest.is_empty() => MOST as usize,
            Err(_) => return Err(Error::Command("output takes a number".into())),
        };
        let (debugger, _) = self.debugger(Whose::default())?;
        let mut written = debugger.output(most + 1).map_err(refused)?;
        let complete = written.len() <= most;
        written.truncate(most);
        let mut text = String::new();
        for one in &written {
            let to = match one.to {
                2 => "stderr",
                _ => "stdout",
            };
            let shown = shown(&format!("{:?}", one.text));
            let _ = writeln!(
                text,
                "{}  thread {}  {to}  {shown}",
                one.position, one.thread
            );
        }
        if written.is_empty() {
            text.push_str("it wrote nothing to standard output and error\n");
        }
        text.push_str(&more(complete, false, written.len()));
        Ok(text)
    }

    /// Where a value comes from: `*ADDR:LEN`, `$register` or an expression.
    pub(crate) fn origin_of(&mut self, what: &str) -> Result<String> {
        if what.is_empty() {
            return Err(Error::Command("origin takes a value".into()));
        }
        let mut timeline = self.timeline.another()?;
        timeline.set_watcher(self.watcher());
        let found = self.helper.origin(&mut timeline, what);
        found.map_err(Error::Command)
    }

    /// All that a value depends on, or along it. The first line says where to go, if anywhere: the script for gdb does.
    pub(crate) fn slice_of(&mut self, words: &str) -> Result<String> {
        let mut timeline = self.timeline.another()?;
        timeline.set_watcher(self.watcher());
        let found = self.helper.slice(&mut timeline, words);
        let (position, text) = found.map_err(Error::Command)?;
        Ok(match position {
            Some(position) => format!("at {position}\n{text}"),
            None => text,
        })
    }

    /// What is asked about the order of threads; the run in another order, if it is that.
    pub(crate) fn order_of(&mut self, words: &str) -> Result<String> {
        let thread = self.meant()?;
        let mut timeline = self.timeline.another()?;
        timeline.set_watcher(self.watcher());
        let found = self.helper.order(&mut timeline, thread, words);
        let found = found.map_err(Error::Command)?;
        if let Some((recording, mut timeline)) = found.other {
            timeline.set_watcher(self.watcher());
            // gdb asks for its thread before it goes there.
            if let Some(position) = found.position {
                timeline.seek(Target::Position(position))?;
            }
            (self.whatif, self.debugger, self.events_in_all) = (None, None, None);
            (self.recording, self.timeline) = (recording, timeline);
            self.forget();
        }
        Ok(match found.position {
            Some(position) => format!("at {position}\n{}", found.text),
            None => found.text,
        })
    }

    /// Makes a step from line to line.
    pub(crate) fn step_lines(
        &mut self,
        step: Step,
        direction: Direction,
        whose: Whose,
    ) -> Result<Stop> {
        let breaks = self.points.stops(self.events()).breaks;
        let (debugger, _) = self.debugger(whose)?;
        debugger.set_foreign_breaks(breaks);
        let stop = debugger
            .step(step, direction, whose.frame)
            .map_err(refused)?;
        let position: Position = stop.here.position.parse().unwrap_or_default();
        let thread = debugger.thread();
        if let Some(value) = &stop.returned {
            let text = shown(&value.text);
            self.say(&format!("Value returned: {text}\n"))?;
        }
        match stop.reason {
            StopReason::Start => self.say("[clew: this is the start of the program]\n")?,
            StopReason::End => {
                if let Some(next) = self
                    .timeline
                    .seek(Target::End)
                    .ok()
                    .map(|_| self.timeline.at().next)
                    && let Some(next) = next
                {
                    let text = self.ending(next);
                    self.say(&format!("[clew: {text}]\n"))?;
                }
            }
            _ => {}
        }
        let arrived = self.timeline.seek(Target::Position(position))?;
        Ok(match (&stop.reason, arrived.reason) {
            (_, Reason::Interrupted) => arrived,
            (StopReason::Breakpoints(_), _) => Stop {
                reason: Reason::Break,
                thread,
                ..arrived
            },
            (StopReason::Interrupted, _) => Stop {
                reason: Reason::Interrupted,
                ..arrived
            },
            _ => Stop { thread, ..arrived },
        })
    }

    /// Back to the last change of a piece of memory.
    pub(crate) fn last_change(&mut self, addr: u64, len: u64) -> Result<Stop> {
        let (debugger, before) = self.debugger(Whose::default())?;
        let found = match debugger.last_change_of(addr, len) {
            Err(clew_debugger::Error::Timeline(clew_timeline::Error::Interrupted)) => {
                let at = self.timeline.at();
                return Ok(Stop {
                    reason: Reason::Interrupted,
                    thread: at.thread,
                    pc: at.pc,
                });
            }
            found => found.map_err(refused)?,
        };
        let position = debugger.here().map_err(refused)?.position;
        let Some(thread) = found else {
            self.say("[clew: this memory doesn't change before here]\n")?;
            return Ok(self.timeline.seek(Target::Position(before))?);
        };
        let position: Position = position.parse().unwrap_or(before);
        let arrived = self.timeline.seek(Target::Position(position))?;
        Ok(Stop { thread, ..arrived })
    }
}

fn told(change: &Change) -> String {
    let value = |text: &Option<String>| shown(text.as_deref().unwrap_or("(no memory)"));
    let by = match change.by_event {
        true => ", by an event there",
        false => "",
    };
    format!(
        "{}  thread {}  {} -> {}  {}{by}\n",
        change.position,
        change.thread,
        value(&change.before),
        value(&change.after),
        plain(&change.location.to_string())
    )
}

fn more(complete: bool, interrupted: bool, count: usize) -> String {
    match (complete, interrupted) {
        (true, _) => String::new(),
        (_, true) => format!("(interrupted: the first {count}, there may be more)\n"),
        (false, false) => format!("(the first {count}; more with -n N behind it)\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_apart() {
        let whose = |tid, frame| Whose {
            tid: Some(tid),
            frame,
        };
        assert_eq!(Whose::split("@12.3 a + b"), (whose(12, 3), "a + b"));
        assert_eq!(Whose::split("@12.0"), (whose(12, 0), ""));
        assert_eq!(Whose::split("a@2"), (Whose::default(), "a@2"));
        assert_eq!(most("f -n 12"), (12, "f"));
        assert_eq!(most("f"), (MOST, "f"));
        assert_eq!(shown(&"x".repeat(200)).len(), LONGEST + 3);
    }
}

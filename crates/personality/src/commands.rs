//! Commands of the prompt. In: a line that somebody typed. Out: what to print.

use std::collections::HashMap;
use std::fmt::Write;

use clew_timeline::{Direction, Next, Position, Reason, Target};

use crate::going::{Stop, Why};
use crate::transition::{Flip, Sought};
use crate::{Error, Frame, Result, Session, Spot, Value, What};

/// What came of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub text: String,
    pub quits: bool,
}

/// A prompt's state around a session.
pub struct Commands {
    pub session: Session,
    /// The frame that is looked at, in the stack of the thread that runs.
    frame: usize,
    displays: Vec<String>,
    /// Where `list` goes on.
    listed: Option<u32>,
    sources: HashMap<String, Option<Vec<String>>>,
}

const MOST_COUNT: u32 = 100_000;
/// Lines that `list` shows.
const LISTED: u32 = 11;
const LARGEST_SOURCE: u64 = 16 << 20;
/// Values longer than this are written on several lines by `pp`.
const WIDE: usize = 78;

/// Names, short names, arguments, what it does.
pub const COMMANDS: [(&str, &str, &str, &str); 33] = [
    (
        "next",
        "n",
        "[N]",
        "to the next line of this function, or of its caller",
    ),
    (
        "step",
        "s",
        "[N]",
        "to the next line, also into functions that are called",
    ),
    ("finish", "r return", "", "until this function returns"),
    (
        "until",
        "unt",
        "[LINE]",
        "to a line behind this one, out of a loop",
    ),
    ("continue", "c cont", "", "to a breakpoint, or the end"),
    (
        "reverse-next",
        "rn",
        "[N]",
        "to the line before in this function, or where it was called",
    ),
    (
        "reverse-step",
        "rs",
        "[N]",
        "to the line before, also into functions that have returned",
    ),
    (
        "reverse-finish",
        "rf",
        "",
        "to where this function was called",
    ),
    (
        "reverse-continue",
        "rc",
        "",
        "back to a breakpoint, or the start",
    ),
    ("undo", "", "", "to where you were before the last move"),
    (
        "raised",
        "",
        "",
        "back to where the last exception was raised; from the end, the one that ended it",
    ),
    (
        "exceptions",
        "",
        "on|off",
        "stop wherever an exception is raised",
    ),
    (
        "break",
        "b",
        "[FILE:LINE|LINE|FUNCTION [if COND]]",
        "stop there; without a place, tell all breakpoints",
    ),
    ("tbreak", "", "PLACE [if COND]", "stop there once"),
    ("clear", "cl delete", "NUMBER", "forget a breakpoint"),
    (
        "watch",
        "",
        "EXPR",
        "to the line that made EXPR what it is here",
    ),
    (
        "where",
        "w bt",
        "[THREAD]",
        "the calls under way, of this thread or another one, outermost first",
    ),
    ("up", "u", "[N]", "look at the caller"),
    ("down", "d", "[N]", "look at what it called"),
    ("threads", "", "", "the threads, and where they are"),
    ("list", "l", "[LINE]", "the program's text"),
    (
        "p",
        "",
        "EXPR",
        "the value of EXPR, in a copy of the program: nothing it does lasts",
    ),
    ("pp", "", "EXPR", "the same, on several lines"),
    ("args", "a", "", "what this function was called with"),
    ("locals", "", "", "this function's variables"),
    ("display", "", "[EXPR]", "show EXPR after each move"),
    ("undisplay", "", "[EXPR]", "don't"),
    ("when", "", "", "the position in the recording"),
    ("seek", "", "start|end|POS", "go there"),
    ("start", "", "", "to the main program's first line"),
    ("end", "", "", "to the end of the program"),
    ("help", "h ?", "", "this"),
    ("quit", "q exit EOF", "", "leave"),
];

/// The command that a word is meant for: its name, a short name, or an unambiguous beginning.
pub fn meant(word: &str) -> Option<&'static str> {
    let exact = COMMANDS
        .iter()
        .find(|(name, short, ..)| *name == word || short.split(' ').any(|short| short == word));
    exact.map(|found| found.0)
}

impl Commands {
    pub fn new(session: Session) -> Commands {
        Commands {
            session,
            frame: 0,
            displays: Vec::new(),
            listed: None,
            sources: HashMap::new(),
        }
    }

    /// Where it stands, as after a move.
    pub fn greet(&mut self) -> String {
        self.arrive(None)
            .unwrap_or_else(|error| format!("{error}\n"))
    }

    /// Carries out a command. What can't be done is told in the text.
    pub fn execute(&mut self, line: &str) -> Answer {
        let line = line.trim();
        let line = line.strip_prefix("clew ").unwrap_or(line).trim();
        if line.is_empty() || line.starts_with('#') {
            return Answer::default();
        }
        let (word, rest) = match line.split_once(char::is_whitespace) {
            Some((word, rest)) => (word, rest.trim()),
            None => (line, ""),
        };
        if meant(word) == Some("quit") && rest.is_empty() {
            return Answer {
                quits: true,
                ..Answer::default()
            };
        }
        let text = match meant(word) {
            Some(name) => self.command(name, rest),
            // As in pdb, what is no command is the program's.
            None => self.print(line.strip_prefix('!').unwrap_or(line), false),
        };
        let text = text.unwrap_or_else(|error| format!("{error}\n"));
        Answer { text, quits: false }
    }

    fn command(&mut self, name: &str, rest: &str) -> Result<String> {
        use Direction::{Backward, Forward};
        match name {
            "next" => self.times(rest, |session| session.next(Forward)),
            "step" => self.times(rest, |session| session.step(Forward)),
            "finish" => self.times("", |session| session.finish(Forward)),
            "continue" => self.times("", |session| session.run(Forward)),
            "reverse-next" => self.times(rest, |session| session.next(Backward)),
            "reverse-step" => self.times(rest, |session| session.step(Backward)),
            "reverse-finish" => self.times("", |session| session.finish(Backward)),
            "reverse-continue" => self.times("", |session| session.run(Backward)),
            "until" => {
                let line = rest.parse().ok();
                if line.is_none() && !rest.is_empty() {
                    return Ok(format!("{rest:?} is no line's number\n"));
                }
                self.times("", |session| session.until(line))
            }
            "undo" => match self.session.undo()? {
                true => self.arrive(None),
                false => Ok("nothing to undo\n".into()),
            },
            "raised" => self.raised(),
            "exceptions" => {
                let on = match rest {
                    "on" | "" => true,
                    "off" => false,
                    _ => return Ok("exceptions on, or exceptions off\n".into()),
                };
                self.session.stop_at_raises(on);
                Ok(match on {
                    true => "stops where exceptions are raised\n".into(),
                    false => "doesn't stop where exceptions are raised\n".into(),
                })
            }
            "break" if rest.is_empty() => Ok(self.breakpoints()),
            "break" => self.breaks(rest, false),
            "tbreak" => self.breaks(rest, true),
            "clear" => match rest.parse() {
                Ok(number) if self.session.remove_breakpoint(number) => {
                    Ok(format!("breakpoint {number} is gone\n"))
                }
                _ => Ok("there is no such breakpoint; break tells all\n".into()),
            },
            "watch" => self.watch(rest),
            "where" => self.stack(rest),
            "up" => self.look(rest, 1),
            "down" => self.look(rest, -1),
            "threads" => self.threads(),
            "list" => self.list(rest),
            "p" => self.print(rest, false),
            "pp" => self.print(rest, true),
            "args" => self.variables(What::Arguments),
            "locals" => self.variables(What::Locals),
            "display" => {
                if !rest.is_empty() && !self.displays.iter().any(|one| one == rest) {
                    self.displays.push(rest.into());
                }
                self.shown()
            }
            "undisplay" => {
                self.displays.retain(|one| !rest.is_empty() && one != rest);
                Ok(String::new())
            }
            "when" => {
                let position = self.session.position()?;
                Ok(format!("{position}\n"))
            }
            "seek" => self.seek(rest),
            "start" => {
                self.session.remember();
                self.session.begin()?;
                self.arrive(None)
            }
            // Not back to a line: what the last one did, an exception perhaps, lies behind its beginning.
            "end" => {
                self.session.remember();
                let stop = self.session.view.timeline.seek(Target::End)?;
                let next = match stop.reason {
                    Reason::End(next) => Some(next),
                    _ => None,
                };
                self.arrive(Some(&Stop {
                    why: Why::End(next),
                }))
            }
            _ => Ok(help(rest)),
        }
    }

    /// Moves so many times, or until something is in the way.
    fn times(
        &mut self,
        count: &str,
        step: impl Fn(&mut Session) -> Result<Stop>,
    ) -> Result<String> {
        let count = match count {
            "" => 1,
            count => match count.parse::<u32>() {
                Ok(count) => count.clamp(1, MOST_COUNT),
                Err(_) => return Ok(format!("{count:?} is no number\n")),
            },
        };
        let mut stop = step(&mut self.session)?;
        for _ in 1..count {
            if stop.why != Why::Line {
                break;
            }
            stop = step(&mut self.session)?;
        }
        self.arrive(Some(&stop))
    }

    /// Tells where it came to, and shows what is to be shown there.
    fn arrive(&mut self, stop: Option<&Stop>) -> Result<String> {
        self.listed = None;
        // Before the interpreter is ready, and when it has ended, there is nothing to be understood.
        let stack = match self.session.stack() {
            Err(Error::Refused(_)) => Vec::new(),
            stack => stack?,
        };
        self.frame = stack.iter().position(|frame| !frame.hidden).unwrap_or(0);
        let mut text = String::new();
        match stop.map(|stop| &stop.why) {
            Some(Why::Breakpoint(number)) => writeln!(text, "breakpoint {number}"),
            Some(Why::Condition(number, why)) => writeln!(
                text,
                "breakpoint {number}: its condition can't be evaluated here: {why}"
            ),
            Some(Why::Raised) => {
                let told = self.session.ask(0, What::Exception)?;
                let what = told.values.first().map(|(_, value)| value.text());
                writeln!(text, "raised: {}", what.unwrap_or("an exception".into()))
            }
            Some(Why::Start) => writeln!(text, "the beginning of the program"),
            Some(Why::End(next)) => writeln!(text, "{}", ended(*next)),
            Some(Why::Interrupted) => writeln!(text, "interrupted"),
            _ => Ok(()),
        }
        .ok();
        match stack.get(self.frame) {
            Some(frame) => text.push_str(&self.place(frame)),
            None => writeln!(text, "no line is executed here").unwrap_or_default(),
        }
        if !self.displays.is_empty() {
            text.push_str(&self.shown()?);
        }
        Ok(text)
    }

    /// As pdb tells it: file, line, function, text.
    fn place(&mut self, frame: &Frame) -> String {
        let Frame {
            file,
            line,
            function,
            ..
        } = frame;
        let text = self.text(file, *line).unwrap_or_default();
        let several = self.session.threads().map_or(0, |all| all.len()) > 1;
        let thread = match several {
            true => format!("thread {}: ", self.session.thread()),
            false => String::new(),
        };
        let plain = function.starts_with('<') || function.contains(' ');
        let call = if plain { "" } else { "()" };
        format!(
            "{thread}> {file}({line}){function}{call}\n-> {}\n",
            text.trim()
        )
    }

    fn raised(&mut self) -> Result<String> {
        let stop = self.session.raised()?;
        self.arrive(Some(&stop))
    }

    fn breaks(&mut self, text: &str, temporary: bool) -> Result<String> {
        let (place, condition) = match text.split_once(" if ") {
            Some((place, condition)) => (place, Some(condition.trim().to_string())),
            None => match text.split_once(", ") {
                Some((place, condition)) => (place, Some(condition.trim().to_string())),
                None => (text, None),
            },
        };
        let stack = self.session.stack()?;
        let here = stack.get(self.frame).map(|frame| frame.file.as_str());
        let spot = Spot::parse(place, here)?;
        let added = self.session.add_breakpoint(spot, condition, temporary);
        Ok(format!("breakpoint {}: {}\n", added.number, added.spot))
    }

    fn breakpoints(&self) -> String {
        let mut text = String::new();
        for one in self.session.breakpoints() {
            let condition = one.condition.as_ref();
            let condition = condition.map_or(String::new(), |text| format!(" if {text}"));
            let once = if one.temporary { ", once" } else { "" };
            let number = one.number;
            writeln!(
                text,
                "{number}: {}{condition}{once}, hit {} times",
                one.spot, one.hits
            )
            .unwrap_or_default();
        }
        match text.is_empty() {
            true => "no breakpoints\n".into(),
            false => text,
        }
    }

    fn watch(&mut self, expression: &str) -> Result<String> {
        if expression.is_empty() {
            return Ok("watch EXPR: to the line that made EXPR what it is here\n".into());
        }
        let to = self.session.position()?;
        self.session.remember();
        let sought = Sought {
            expression,
            to: Some(Target::Position(to)),
            ..Sought::default()
        };
        let found = self.session.transition(&sought)?;
        match found.flip {
            Some(flip) => {
                let text = told(&flip);
                Ok(text + &self.arrive(None)?)
            }
            None => {
                self.session.undo()?;
                Ok(format!(
                    "{expression} was {} at all {} places that were looked at where it is defined\n",
                    found.last.value.text(),
                    found.probes
                ))
            }
        }
    }

    fn stack(&mut self, of: &str) -> Result<String> {
        let running = self.session.thread();
        let thread = match of.parse() {
            Ok(thread) => thread,
            Err(_) if of.is_empty() => running,
            Err(_) => {
                return Ok(format!(
                    "{of:?} is no thread's number; threads tells them\n"
                ));
            }
        };
        if !self.session.threads()?.contains(&thread) && thread != running {
            return Ok(format!(
                "there is no thread {thread} here; threads tells them\n"
            ));
        }
        let stack = self.session.stack_of(thread)?;
        let mut text = String::new();
        for (n, frame) in stack.iter().enumerate().rev() {
            let looked_at = n == self.frame && thread == running;
            let mark = if looked_at { '>' } else { ' ' };
            let source = self.text(&frame.file, frame.line).unwrap_or_default();
            let Frame {
                file,
                line,
                function,
                ..
            } = frame;
            writeln!(text, "{mark} {file}({line}){function}").unwrap_or_default();
            if !source.trim().is_empty() {
                writeln!(text, "  -> {}", source.trim()).unwrap_or_default();
            }
        }
        Ok(match text.is_empty() {
            true => "no line is executed here\n".into(),
            false => text,
        })
    }

    fn look(&mut self, count: &str, direction: isize) -> Result<String> {
        let count: isize = count.parse().unwrap_or(1);
        let stack = self.session.stack()?;
        let wanted = self.frame as isize + direction * count;
        match usize::try_from(wanted).ok().and_then(|at| stack.get(at)) {
            Some(frame) => {
                self.frame = wanted as usize;
                self.listed = None;
                Ok(self.place(frame))
            }
            None => Ok(match direction > 0 {
                true => "the outermost frame\n".into(),
                false => "the innermost frame\n".into(),
            }),
        }
    }

    fn threads(&mut self) -> Result<String> {
        let mut text = String::new();
        let running = self.session.thread();
        for thread in self.session.threads()? {
            let stack = self.session.stack_of(thread)?;
            let mark = if thread == running { '>' } else { ' ' };
            match stack.iter().find(|frame| !frame.hidden) {
                Some(Frame {
                    file,
                    line,
                    function,
                    ..
                }) => {
                    writeln!(text, "{mark} thread {thread}: {file}({line}){function}")
                }
                None => writeln!(text, "{mark} thread {thread}: no line"),
            }
            .unwrap_or_default();
        }
        Ok(text)
    }

    fn list(&mut self, from: &str) -> Result<String> {
        let stack = self.session.stack()?;
        let Some(frame) = stack.get(self.frame) else {
            return Ok("no line is executed here\n".into());
        };
        let middle = LISTED / 2;
        let first = match (from.parse::<u32>(), self.listed) {
            (Ok(line), _) => line.saturating_sub(middle),
            (_, Some(line)) => line,
            _ => frame.line.saturating_sub(middle),
        };
        let first = first.max(1);
        let mut text = String::new();
        for line in first..first + LISTED {
            let Some(source) = self.text(&frame.file, line) else {
                break;
            };
            let mark = if line == frame.line { "->" } else { "  " };
            writeln!(text, "{line:4} {mark} {source}").unwrap_or_default();
        }
        self.listed = Some(first + LISTED);
        Ok(match text.is_empty() {
            true => format!("no text of {} from there on\n", frame.file),
            false => text,
        })
    }

    fn print(&mut self, expression: &str, wide: bool) -> Result<String> {
        if expression.is_empty() {
            return Ok("p EXPR\n".into());
        }
        let (value, mut output) = self.session.value(self.frame, expression)?;
        if !output.is_empty() && !output.ends_with('\n') {
            output.push('\n');
        }
        let text = match &value {
            Value::Is { text, .. } if wide => spread(text),
            value => value.text(),
        };
        Ok(match text.is_empty() {
            true => output,
            false => format!("{output}{text}\n"),
        })
    }

    fn variables(&mut self, what: What<'_>) -> Result<String> {
        let told = self.session.ask(self.frame, what)?;
        let lines = told
            .values
            .iter()
            .map(|(name, value)| match name.is_empty() {
                true => format!("{}\n", value.text()),
                false => format!("{name} = {}\n", value.text()),
            });
        let text: String = lines.collect();
        Ok(match text.is_empty() {
            true => "none\n".into(),
            false => text,
        })
    }

    fn shown(&mut self) -> Result<String> {
        let mut text = String::new();
        for expression in self.displays.clone() {
            let (value, _) = self.session.value(self.frame, &expression)?;
            writeln!(text, "{expression} = {}", value.text()).unwrap_or_default();
        }
        Ok(text)
    }

    fn seek(&mut self, to: &str) -> Result<String> {
        let target = match to {
            "start" => Target::Start,
            "end" => Target::End,
            position => match position.parse::<Position>() {
                Ok(position) => Target::Position(position),
                Err(_) => {
                    return Ok(
                        "seek start, end, or a position as when tells it: EVENT+TICKS+STEPS\n"
                            .into(),
                    );
                }
            },
        };
        let stop = self.session.seek(target)?;
        self.arrive(Some(&stop))
    }

    /// A line of a file, as it is on disk now.
    pub fn text(&mut self, file: &str, line: u32) -> Option<String> {
        if !self.sources.contains_key(file) {
            let read = read(file, self.session.view.folder.as_deref());
            self.sources.insert(file.into(), read);
        }
        let lines = self.sources.get(file)?.as_ref()?;
        lines.get((line as usize).checked_sub(1)?).cloned()
    }
}

fn read(file: &str, folder: Option<&str>) -> Option<Vec<String>> {
    let path = std::path::Path::new(file);
    let path = match folder {
        Some(folder) if path.is_relative() => std::path::Path::new(folder).join(path),
        _ => path.to_path_buf(),
    };
    let metadata = std::fs::metadata(&path).ok()?;
    if !metadata.is_file() || metadata.len() > LARGEST_SOURCE {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(text.lines().map(String::from).collect())
}

fn ended(next: Option<Next>) -> String {
    match next {
        Some(Next::Exit { status }) => format!("the end of the program: exit {status}"),
        Some(Next::Killed { signo, .. }) => format!("the end of the program: signal {signo}"),
        Some(Next::Exec) => "the program becomes another one here (exec)".into(),
        Some(Next::CutOff) => "the recording ends here".into(),
        Some(Next::Diverges) => "from here on the replay isn't what was recorded".into(),
        _ => "the end".into(),
    }
}

/// A flip in words.
pub fn told(flip: &Flip) -> String {
    let mut text = String::new();
    if flip.across {
        writeln!(text, "it was undefined just before").unwrap_or_default();
    }
    for changed in &flip.values {
        let (before, after) = (changed.before.text(), changed.after.text());
        let expression = &changed.expression;
        match before == after {
            true => writeln!(text, "{expression}: {after}"),
            false => writeln!(text, "{expression}: {before}, then {after}"),
        }
        .unwrap_or_default();
    }
    text
}

/// One element a line, of what is long and has elements.
fn spread(text: &str) -> String {
    if text.chars().count() <= WIDE || !text.starts_with(['[', '{', '(']) {
        return text.into();
    }
    let (mut depth, mut quote, mut escaped) = (0, None, false);
    let mut out = String::new();
    let mut after = false;
    for c in text.chars() {
        if after && c == ' ' {
            after = false;
            continue;
        }
        after = false;
        out.push(c);
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, ',') if depth == 1 => {
                out.push_str("\n ");
                after = true;
            }
            _ => {}
        }
    }
    out
}

fn help(word: &str) -> String {
    let mut text = String::new();
    for (name, short, arguments, what) in COMMANDS {
        if !word.is_empty() && meant(word) != Some(name) {
            continue;
        }
        let short = short.replace(' ', ", ");
        let names = match short.is_empty() {
            true => name.to_string(),
            false => format!("{name} ({short})"),
        };
        let left = format!("{names} {arguments}");
        writeln!(text, "  {left:<38} {what}").unwrap_or_default();
    }
    if word.is_empty() {
        text.push_str("Anything else is evaluated, or executed, in a copy of the program.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_short_names_are_known() {
        assert_eq!(meant("n"), Some("next"));
        assert_eq!(meant("return"), Some("finish"));
        assert_eq!(meant("rc"), Some("reverse-continue"));
        assert_eq!(meant("x"), None);
    }

    #[test]
    fn long_values_are_spread() {
        let long = format!("[{}]", vec!["'a, b'"; 20].join(", "));
        assert_eq!(spread(&long).lines().count(), 20);
        assert_eq!(spread("[1, 2]"), "[1, 2]");
    }
}

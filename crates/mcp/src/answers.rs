//! What each tool says. In: its arguments. Out: text with positions that can be passed back, or what to ask instead.

use clew_debugger::{
    Debugger, Direction, Here, Left, Node, ScopeKind, Spot, Step, Stop, StopReason, Wanted,
};
use serde_json::{Map, Value};

use crate::Host;
use crate::pages::Pages;
use crate::tools::Tool;

/// Items that are told at once.
const MOST: u64 = 50;
/// Steps made for one question.
const MOST_STEPS: u64 = 1_000;
/// Lines of source around a place.
const AROUND: u64 = 10;
/// Runs of a hunt.
const RUNS: u64 = 200;

type Told = Result<String, String>;

pub struct Answers {
    host: Box<dyn Host>,
    pages: Pages,
    open: Option<Open>,
}

/// What was asked about last.
struct Open {
    recording: String,
    process: Option<String>,
    debugger: Debugger,
}

/// What an agent gave.
struct Given<'a>(&'a Map<String, Value>);

impl Given<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(Value::as_u64)
    }

    fn words(&self, name: &str) -> Vec<String> {
        let all = self.0.get(name).and_then(Value::as_array);
        let all = all.into_iter().flatten().filter_map(Value::as_str);
        all.map(String::from).collect()
    }

    fn most(&self) -> u64 {
        self.number("most").unwrap_or(MOST).clamp(1, 10_000)
    }

    fn direction(&self) -> Result<Direction, String> {
        match self.text("direction") {
            None | Some("forward") => Ok(Direction::Forward),
            Some("backward") => Ok(Direction::Backward),
            Some(other) => Err(format!("{other:?} is no direction: forward or backward")),
        }
    }
}

impl Answers {
    pub fn new(host: Box<dyn Host>) -> Answers {
        Answers {
            host,
            pages: Pages::default(),
            open: None,
        }
    }

    pub fn answer(
        &mut self,
        tool: &Tool,
        given: &Map<String, Value>,
        cancelled: Box<dyn Fn() -> bool + Send>,
    ) -> Told {
        tool.check(given)?;
        let given = Given(given);
        if tool.name == "more" {
            return self.pages.next(given.number("token").unwrap_or(0));
        }
        let text = match tool.name {
            "list" => self.command(&["ls".into()]),
            "record" | "hunt" => self.run(tool.name, &given),
            "info" | "why" | "alerts" | "watch" | "slice" | "origin" | "races" | "order"
            | "heap" => self.analyse(tool.name, &given),
            _ => {
                let debugger = self.stand(&given, cancelled)?;
                let told = look(debugger, tool.name, &given);
                debugger.set_watcher(Box::new(|_| false));
                told
            }
        }?;
        Ok(self.pages.first(text))
    }

    fn command(&mut self, words: &[String]) -> Told {
        let printed = self.host.command(words)?;
        let mut text = printed.output;
        if text.trim().is_empty() {
            text = printed.errors;
        } else if printed.status > 1 {
            text.push_str(&printed.errors);
        }
        match text.trim() {
            "" => Ok("nothing".into()),
            // Statuses from 2 on are about the question or the recording, not about what was found.
            text if matches!(printed.status, 2 | 123..=126) => Err(text.into()),
            text => Ok(text.into()),
        }
    }

    fn run(&mut self, name: &str, given: &Given) -> Told {
        let mut words = vec![name.to_string()];
        if name == "hunt" {
            let runs = given.number("runs").unwrap_or(RUNS);
            words.extend(["--runs".into(), runs.to_string(), "--minimize".into()]);
        }
        words.push("--".into());
        words.extend(given.text("program").map(String::from));
        words.extend(given.words("arguments"));
        let printed = self.host.command(&words)?;
        self.open = None;
        Ok(format!(
            "status {}\n{}{}",
            printed.status, printed.output, printed.errors
        ))
    }

    /// A command that tells about a recording by itself.
    fn analyse(&mut self, name: &str, given: &Given) -> Told {
        let recording = match (given.text("recording"), &self.open) {
            (Some(name), _) => Some(name.to_string()),
            (None, Some(open)) => Some(open.recording.clone()),
            (None, None) => None,
        };
        let mut words = vec![name.to_string()];
        let asked = match name {
            "watch" => given.text("condition"),
            "heap" => given.text("address"),
            _ => given.text("expression"),
        };
        // A question that is alone would be taken for a recording.
        let recording = match (recording, asked) {
            (None, Some(_)) => {
                let (_, name) = self.host.open(None, None)?;
                Some(name)
            }
            (recording, _) => recording,
        };
        words.extend(recording);
        words.extend(asked.map(String::from));
        if name == "heap" && asked.is_none() {
            words.push("--leaks".into());
        }
        if let Some(process) = given.text("process") {
            words.extend(["--pid".into(), process.into()]);
        }
        if let Some(at) = given.text("at")
            && matches!(name, "slice" | "origin" | "heap")
        {
            words.extend(["--at".into(), at.into()]);
        }
        self.command(&words)
    }

    /// A debugger that stands where this question is about.
    fn stand(
        &mut self,
        given: &Given,
        cancelled: Box<dyn Fn() -> bool + Send>,
    ) -> Result<&mut Debugger, String> {
        let process = given.text("process");
        let same = self.open.as_ref().is_some_and(|open| {
            let named = given
                .text("recording")
                .is_none_or(|name| name == open.recording);
            named && (process.is_none() || process == open.process.as_deref())
        });
        if !same {
            let (debugger, recording) = self.host.open(given.text("recording"), process)?;
            self.open = Some(Open {
                recording,
                process: process.map(String::from),
                debugger,
            });
        }
        let Some(open) = &mut self.open else {
            return Err("no recording is open".into());
        };
        let debugger = &mut open.debugger;
        debugger.set_watcher(Box::new(move |_| cancelled()));
        if let Some(at) = given.text("at") {
            debugger.seek(at).map_err(said)?;
        }
        Ok(debugger)
    }
}

fn said(error: clew_debugger::Error) -> String {
    error.to_string()
}

/// Tools that ask the debugger.
fn look(debugger: &mut Debugger, name: &str, given: &Given) -> Told {
    let thread = match given.number("thread") {
        Some(number) => {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            debugger.choose_thread(number).map_err(said)?;
            number
        }
        None => debugger.thread(),
    };
    let frame = given.number("frame").unwrap_or(0) as usize;
    let expression = given.text("expression").unwrap_or_default();
    match name {
        "where" => {
            let here = debugger.here().map_err(said)?;
            Ok(place(&here, AROUND))
        }
        "threads" => {
            let all = debugger.threads().map_err(said)?;
            let mut text = position(debugger)?;
            for one in all {
                let mark = if one.runs { "*" } else { " " };
                let waits = one.waits.map(|call| format!(", waits in {call}"));
                text.push_str(&format!(
                    "{mark} thread {} ({}, tid {}): {}{}\n",
                    one.number,
                    one.name,
                    one.tid,
                    one.location,
                    waits.unwrap_or_default()
                ));
            }
            Ok(text)
        }
        "stack" => {
            let stack = debugger.stack(thread).map_err(said)?;
            let mut text = position(debugger)?;
            text.push_str(&format!("thread {thread}\n"));
            for one in &stack.frames {
                let inlined = if one.inlined { " (inlined)" } else { "" };
                text.push_str(&format!("#{} {}{inlined}\n", one.number, one.location));
            }
            text.extend(stack.cut.map(|why| format!("({why})\n")));
            Ok(text)
        }
        "locals" => locals(debugger, thread, frame),
        "evaluate" => {
            let node = debugger.evaluate(thread, frame, expression).map_err(said)?;
            let mut text = position(debugger)?;
            text.push_str(&value(&node));
            // What is within, one level deep: a pointer's target, members, elements.
            if let Some(id) = node.id {
                let parts = debugger.children(id, 0, MOST).map_err(said)?;
                for part in &parts {
                    text.push_str(&format!("  {}", value(part)));
                }
                if node.children > parts.len() as u64 {
                    text.push_str(&format!("  ... {} in all\n", node.children));
                }
            }
            Ok(text)
        }
        "source" => source(debugger, given),
        "run_to" => run_to(debugger, given),
        "step" => step(debugger, given),
        "last_change" => {
            let before = debugger.here().map_err(said)?.position;
            let change = debugger.last_change(thread, frame, expression);
            let Some(change) = change.map_err(said)? else {
                return Ok(format!("{expression} doesn't change before {before}"));
            };
            let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".into());
            let by = match change.by_event {
                true => " by the system call or event there",
                false => "",
            };
            let here = debugger.here().map_err(said)?;
            Ok(format!(
                "{expression} changed from {} to {} by thread {}, {}{by}\nnow before that change:\n{}",
                known(change.before),
                known(change.after),
                change.thread,
                change.location,
                place(&here, 5)
            ))
        }
        "history" => {
            let most = given.most();
            let found = debugger.changes(thread, frame, expression, most);
            let found = found.map_err(said)?;
            let mut text = String::new();
            for one in &found.changes {
                let after = one.after.clone().unwrap_or_else(|| "unknown".into());
                text.push_str(&format!(
                    "{}  thread {}  {expression} = {after}  {}\n",
                    one.position, one.thread, one.location
                ));
            }
            Ok(ended(text, found.complete, most))
        }
        "calls" => calls(debugger, given),
        "output" => {
            let most = given.most();
            let written = debugger.output(usize::try_from(most).unwrap_or(usize::MAX));
            let written = written.map_err(said)?;
            let mut text = String::new();
            for one in &written {
                let to = if one.to == 2 { "stderr" } else { "stdout" };
                text.push_str(&format!(
                    "{}  thread {}  {to}: {:?}\n",
                    one.position, one.thread, one.text
                ));
            }
            Ok(ended(text, (written.len() as u64) < most, most))
        }
        other => Err(format!("{other} isn't about a place in a recording")),
    }
}

fn ended(mut text: String, complete: bool, most: u64) -> String {
    if text.is_empty() {
        text.push_str("none\n");
    }
    if !complete {
        text.push_str(&format!("(the first {most}; ask for more with `most`)\n"));
    }
    text
}

fn position(debugger: &mut Debugger) -> Told {
    let here = debugger.here().map_err(said)?;
    Ok(format!("position {}\n", here.position))
}

fn value(node: &Node) -> String {
    format!("{} = {}  ({})\n", node.name, node.text, node.of)
}

/// Where somebody stands, with the lines around.
fn place(here: &Here, around: u64) -> String {
    let mut text = format!(
        "position {}, thread {}: {}",
        here.position, here.thread, here.location
    );
    text.extend(here.next.as_ref().map(|next| format!("; next: {next}")));
    text.push('\n');
    if let (Some(file), Some(line)) = (&here.location.file, here.location.line)
        && let Ok(lines) = lines(file, u64::from(line), around)
    {
        text.push_str(&lines);
    }
    text
}

/// Lines of a file around one.
fn lines(file: &str, line: u64, around: u64) -> Told {
    let text = std::fs::read(file).map_err(|error| {
        format!("{file} can't be read here: {error}; ask for `stack` and `locals` instead")
    })?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let first = line.saturating_sub(around).max(1);
    let last = line.saturating_add(around);
    let mut shown = String::new();
    for (number, content) in (1..).zip(text.lines()) {
        if (first..=last).contains(&number) {
            let mark = if number == line { ">" } else { " " };
            shown.push_str(&format!("{mark}{number:5}  {content}\n"));
        }
    }
    match shown.is_empty() {
        true => Err(format!("{file} has no line {line}")),
        false => Ok(shown),
    }
}

/// Only files that the program was compiled from are shown.
fn source(debugger: &mut Debugger, given: &Given) -> Told {
    let here = debugger.here().map_err(said)?.location;
    let around = given.number("around").unwrap_or(AROUND).min(500);
    let line = given
        .number("line")
        .or(here.line.map(u64::from))
        .unwrap_or(1);
    let Some(file) = given.text("file") else {
        let Some(file) = here.file else {
            return Err("no source is known for this place; `stack` tells of others".into());
        };
        return lines(&file, line, around);
    };
    // A line of it, or one behind that, must have code.
    let mut known = None;
    for line in [line, 1] {
        let spot = Spot::Line {
            file: file.into(),
            line: u32::try_from(line).unwrap_or(u32::MAX),
        };
        if let Ok(made) = debugger.add_breakpoint(Wanted::at(spot)) {
            known = made.locations.into_iter().find_map(|at| at.file);
            debugger.remove_breakpoint(made.id).map_err(said)?;
            break;
        }
    }
    match known {
        Some(file) => lines(&file, line, around),
        None => Err(format!(
            "the program wasn't compiled from a file {file}; `stack` tells which there are"
        )),
    }
}

fn locals(debugger: &mut Debugger, thread: u32, frame: usize) -> Told {
    let scopes = debugger.scopes(thread, frame).map_err(said)?;
    let mut text = position(debugger)?;
    for scope in &scopes {
        let name = match scope.kind {
            ScopeKind::Arguments => "arguments",
            ScopeKind::Locals => "locals",
            ScopeKind::Statics => "statics of the file",
            // `evaluate` tells `$rax`; nobody asked for all of them.
            ScopeKind::Registers => continue,
        };
        if scope.variables.is_empty() {
            continue;
        }
        text.push_str(&format!("{name}:\n"));
        for node in &scope.variables {
            text.push_str(&format!("  {}", value(node)));
        }
    }
    Ok(text)
}

fn run_to(debugger: &mut Debugger, given: &Given) -> Told {
    let direction = given.direction()?;
    let wanted = given.text("place").unwrap_or_default();
    let spot: Spot = wanted.parse().map_err(said)?;
    let wanted = Wanted {
        condition: given.text("condition").map(String::from),
        ..Wanted::at(spot)
    };
    let before = debugger.here().map_err(said)?;
    let made = debugger.add_breakpoint(wanted).map_err(said)?;
    let stop = debugger.go(direction);
    debugger.remove_breakpoint(made.id).map_err(said)?;
    let stop = stop.map_err(said)?;
    match stop.reason {
        StopReason::Breakpoints(_) => Ok(place(&stop.here, AROUND)),
        StopReason::Interrupted => Err("interrupted on the way".into()),
        _ => {
            // It stays where it was: the end isn't what was asked for.
            debugger.seek(&before.position).map_err(said)?;
            let way = match direction {
                Direction::Forward => "after",
                Direction::Backward => "before",
            };
            Ok(format!(
                "that is never reached {way} {}; still there",
                before.position
            ))
        }
    }
}

fn step(debugger: &mut Debugger, given: &Given) -> Told {
    let direction = given.direction()?;
    let kind = match given.text("kind") {
        None | Some("over") => Step::Over,
        Some("into") => Step::Into,
        Some("out") => Step::Out,
        Some("instruction") => Step::Instruction,
        Some(other) => {
            return Err(format!(
                "{other:?} is no step: over, into, out, instruction"
            ));
        }
    };
    let count = given.number("count").unwrap_or(1).clamp(1, MOST_STEPS);
    let mut last: Option<Stop> = None;
    for _ in 0..count {
        let stop = debugger.step(kind, direction, 0).map_err(said)?;
        let goes_on = matches!(stop.reason, StopReason::Step | StopReason::Arrived);
        last = Some(stop);
        if !goes_on {
            break;
        }
    }
    let Some(stop) = last else {
        return Err("no step was made".into());
    };
    let mut text = match stop.reason {
        StopReason::Start => "this is the start of the recording\n".into(),
        StopReason::End => "this is the end of the recording\n".into(),
        StopReason::Interrupted => "interrupted\n".into(),
        _ => String::new(),
    };
    text.extend(
        stop.returned
            .iter()
            .map(|node| format!("returned {}\n", node.text)),
    );
    text.push_str(&place(&stop.here, 5));
    Ok(text)
}

fn calls(debugger: &mut Debugger, given: &Given) -> Told {
    let most = given.most();
    let found = debugger.calls(given.text("function").unwrap_or_default(), most);
    let found = found.map_err(said)?;
    let mut text = String::new();
    for one in &found.calls {
        let arguments: Vec<String> = one
            .arguments
            .iter()
            .map(|argument| format!("{}={}", argument.name, argument.text))
            .collect();
        let left = match &one.left {
            Left::Returned {
                value: Some(value), ..
            } => format!(" = {}", value.text),
            Left::Returned { value: None, .. } => String::new(),
            Left::Unwound => " left by a jump or exception".into(),
            Left::Never => " never returned".into(),
        };
        text.push_str(&format!(
            "{}  thread {}  {}({}){left}  called by {}\n",
            one.position,
            one.thread,
            one.function,
            arguments.join(", "),
            one.caller
        ));
    }
    if !found.inlined.is_empty() {
        let copies = found.inlined.len();
        text.push_str(&format!(
            "({copies} copies of it are inlined: calls of those aren't told)\n"
        ));
    }
    Ok(ended(text, found.complete, most))
}

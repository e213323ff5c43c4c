//! What a person types. In: an expression, or a command that begins with `clew`. Out: its value, text, or a way to go.

use clew_debugger::{Direction, Left, Node, Step};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::session::{Answer, Failed, Go, Open, arguments};
use crate::wire::{Outbox, Request};

/// Commands, and what they do.
const COMMANDS: &[(&str, &str)] = &[
    (
        "when",
        "where this is: a position that can be given to seek",
    ),
    ("seek", "POS: goes there; also start, end"),
    ("last", "EXPR: goes back to before its last change"),
    ("writes", "EXPR: all changes of it"),
    ("calls", "FUNCTION: all calls of it"),
    ("output", "what the program wrote"),
    ("reverse-step", "back into the line before"),
    ("reverse-finish", "back to where this function was called"),
    ("help", "this list"),
];
/// More isn't told at once.
const MOST: u64 = 200;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    expression: String,
    frame_id: Option<u64>,
    context: Option<String>,
}

impl Open {
    pub fn evaluate(
        &mut self,
        request: &Request,
        out: &Outbox,
    ) -> Result<(Value, Option<Go>), Failed> {
        let asked: Asked = arguments(request)?;
        let text = asked.expression.trim();
        let (thread, frame) = self.frame_or_first(asked.frame_id)?;
        let typed = matches!(asked.context.as_deref(), Some("repl") | None);
        if typed && let Some(command) = text.strip_prefix("clew ") {
            let (said, go) = self.command(command.trim(), thread, frame, out)?;
            return Ok((json!({"result": said, "variablesReference": 0}), go));
        }
        let node = self.debugger.evaluate(thread, frame, text)?;
        Ok((self.told_result(thread, frame, &node), None))
    }

    fn command(
        &mut self,
        command: &str,
        thread: u32,
        frame: usize,
        out: &Outbox,
    ) -> Result<(String, Option<Go>), Failed> {
        let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
        let rest = rest.trim();
        let wants = |what: &str| Failed::Because(format!("clew {word} {what}: which one?"));
        Ok(match (word, rest) {
            ("when", _) => {
                let here = self.debugger.here()?;
                (format!("{} ({})", here.position, here.location), None)
            }
            ("seek", "") => return Err(wants("POS")),
            ("seek", position) => (
                format!("to {position}"),
                Some(Go::Position(position.into())),
            ),
            ("last" | "writes", "") => return Err(wants("EXPR")),
            ("calls", "") => return Err(wants("FUNCTION")),
            ("last", expression) => {
                let before = self.debugger.here()?.position;
                match self.debugger.last_change(thread, frame, expression)? {
                    Some(change) => {
                        let known = |text: Option<String>| text.unwrap_or_else(|| "?".into());
                        let said = format!(
                            "{expression}: {} -> {} at {}, {}",
                            known(change.before),
                            known(change.after),
                            change.position,
                            change.location
                        );
                        (said, Some(Go::Position(change.position)))
                    }
                    None => (format!("{expression} doesn't change before {before}"), None),
                }
            }
            ("writes", expression) => {
                let found = self.debugger.changes(thread, frame, expression, MOST)?;
                let lines = found.changes.iter().map(|change| {
                    let after = change.after.clone().unwrap_or_else(|| "?".into());
                    format!("{:<16} {after}  {}", change.position, change.location)
                });
                (told(lines, found.complete), None)
            }
            ("calls", function) => {
                let found = self.debugger.calls(function, MOST)?;
                let lines = found.calls.iter().map(|call| {
                    let arguments: Vec<String> = call
                        .arguments
                        .iter()
                        .map(|one| format!("{}={}", one.name, one.text))
                        .collect();
                    let left = match &call.left {
                        Left::Returned {
                            value: Some(value), ..
                        } => format!(" = {}", value.text),
                        Left::Returned { .. } => String::new(),
                        Left::Unwound => " left by a jump".into(),
                        Left::Never => " never returns".into(),
                    };
                    let arguments = arguments.join(", ");
                    let (position, function) = (&call.position, &call.function);
                    format!(
                        "{position:<16} {function}({arguments}){left}  {}",
                        call.caller
                    )
                });
                (told(lines, found.complete), None)
            }
            ("output", _) => {
                let written = self.debugger.output(1 << 20)?;
                for one in &written {
                    let category = match one.to {
                        2 => "stderr",
                        _ => "stdout",
                    };
                    let body = json!({"category": category, "output": one.text});
                    out.event("output", body);
                }
                (format!("{} writes", written.len()), None)
            }
            ("reverse-step" | "reverse-finish", _) => {
                let step = match word {
                    "reverse-step" => Step::Into,
                    _ => Step::Out,
                };
                let go = Go::Step {
                    thread: u64::from(thread) + 1,
                    step,
                    direction: Direction::Backward,
                };
                ("back".into(), Some(go))
            }
            ("help", _) => {
                let lines = COMMANDS
                    .iter()
                    .map(|(word, what)| format!("clew {word:<15} {what}"));
                (told(lines, true), None)
            }
            (other, _) => {
                return Err(Failed::Because(format!(
                    "clew has no command {other:?} here; `clew help` tells which there are"
                )));
            }
        })
    }

    pub fn completions(&mut self, request: &Request) -> Answer {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Typed {
            text: String,
            column: usize,
            frame_id: Option<u64>,
        }
        let typed: Typed = arguments(request)?;
        let first = self.references.first_column as usize;
        let typed_chars = typed.column.saturating_sub(first);
        let before: String = typed.text.chars().take(typed_chars).collect();
        if let Some(word) = before.strip_prefix("clew ") {
            let fits = COMMANDS.iter().filter(|(name, _)| name.starts_with(word));
            let targets: Vec<Value> = fits
                .map(|(name, _)| json!({"label": name, "text": name, "start": 5, "length": word.len()}))
                .collect();
            return Ok(json!({"targets": targets}));
        }
        let word_at = before
            .rfind(|c: char| !c.is_alphanumeric() && c != '_')
            .map_or(0, |at| {
                at + before[at..].chars().next().map_or(1, char::len_utf8)
            });
        let word = &before[word_at..];
        let (thread, frame) = self.frame_or_first(typed.frame_id)?;
        let mut names: Vec<String> = Vec::new();
        for scope in self.debugger.scopes(thread, frame)? {
            let fits = |node: &Node| node.name.starts_with(word);
            names.extend(
                scope
                    .variables
                    .iter()
                    .filter(|one| fits(one))
                    .map(|one| one.name.clone()),
            );
        }
        names.dedup();
        let start = before[..word_at].chars().count();
        let length = word.chars().count();
        let targets: Vec<Value> = names
            .iter()
            .map(
                |name| json!({"label": name, "start": start, "length": length, "type": "variable"}),
            )
            .collect();
        Ok(json!({"targets": targets}))
    }
}

fn told(lines: impl Iterator<Item = String>, complete: bool) -> String {
    let mut lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        lines.push("none".into());
    }
    if !complete {
        lines.push(format!("(the first {MOST}; the command line tells more)"));
    }
    lines.join("\n")
}

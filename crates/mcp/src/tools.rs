//! Which tools there are: name, what it is for, what it takes. The same table is told to agents and used to read what they
//! ask.

use serde_json::{Map, Value, json};

/// A tool's argument.
pub struct Argument {
    pub name: &'static str,
    /// Of JSON's schema: string, integer.
    pub of: &'static str,
    pub what: &'static str,
    pub needed: bool,
}

pub struct Tool {
    pub name: &'static str,
    pub what: &'static str,
    pub arguments: &'static [Argument],
    /// It runs programs.
    pub runs: bool,
}

const fn needs(name: &'static str, of: &'static str, what: &'static str) -> Argument {
    Argument {
        name,
        of,
        what,
        needed: true,
    }
}

const fn may(name: &'static str, of: &'static str, what: &'static str) -> Argument {
    Argument {
        name,
        of,
        what,
        needed: false,
    }
}

const fn tool(name: &'static str, what: &'static str, arguments: &'static [Argument]) -> Tool {
    Tool {
        name,
        what,
        arguments,
        runs: false,
    }
}

const EXPRESSION: Argument = needs(
    "expression",
    "string",
    "a C expression, as in `job->refs` or `list[2].name`; may call the program's functions, in a copy that is thrown away",
);
const MOST: Argument = may("most", "integer", "at most so many (default 50)");
const THREAD: Argument = may(
    "thread",
    "integer",
    "a thread's number, as `threads` tells it (default: the one that runs)",
);
const FRAME: Argument = may(
    "frame",
    "integer",
    "a frame of the stack, 0 is the innermost (default)",
);

/// Every tool that is about a recording takes these.
pub const COMMON: &[Argument] = &[
    may(
        "recording",
        "string",
        "the recording's name, as `list` tells it (default: the one asked about last, else the latest)",
    ),
    may(
        "process",
        "string",
        "which process of it: a pid, as `info` tells it (default: the program that was recorded)",
    ),
    may(
        "at",
        "string",
        "a position: where to stand first; `start`, `end`, or one that was told, such as 1204+77+3 (default: where the last answer left off)",
    ),
];

pub const TOOLS: &[Tool] = &[
    tool(
        "list",
        "The recordings there are: name, program, when, how it ended.",
        &[],
    ),
    tool(
        "info",
        "What a recording holds: processes, threads, how they ended, counts.",
        &[],
    ),
    tool(
        "why",
        "How it came to the failure of a recorded program, in sentences with positions. Ask this first.",
        &[],
    ),
    tool(
        "alerts",
        "Everything notable in a recording, with positions: crashes, assertions, exceptions, failed system calls, children that failed.",
        &[],
    ),
    tool(
        "where",
        "The place that the last answer left off at, with its source lines.",
        &[],
    ),
    tool(
        "threads",
        "All threads at a position: what each waits for, where it is.",
        &[],
    ),
    tool("stack", "The stack of a thread at a position.", &[THREAD]),
    tool(
        "locals",
        "Arguments, variables and statics in sight of a frame, with their values.",
        &[THREAD, FRAME],
    ),
    tool(
        "evaluate",
        "The value of an expression at a position.",
        &[EXPRESSION, THREAD, FRAME],
    ),
    tool(
        "source",
        "Lines of a source file that the program was compiled from.",
        &[
            may(
                "file",
                "string",
                "the file, or the end of its path (default: that of the place)",
            ),
            may(
                "line",
                "integer",
                "the line in the midst (default: that of the place)",
            ),
            may(
                "around",
                "integer",
                "so many lines before and behind it (default 10)",
            ),
        ],
    ),
    tool(
        "run_to",
        "Goes on, or back, to the next time that a line or function is reached, and tells where that is.",
        &[
            needs("place", "string", "FILE:LINE, a function, or *ADDRESS"),
            may(
                "condition",
                "string",
                "a C expression that must be true there",
            ),
            may("direction", "string", "forward (default) or backward"),
        ],
    ),
    tool(
        "step",
        "Makes steps of the thread that runs, forwards or backwards, and tells where it stands then.",
        &[
            may("kind", "string", "over (default), into, out, instruction"),
            may("direction", "string", "forward (default) or backward"),
            may("count", "integer", "so many (default 1)"),
            THREAD,
        ],
    ),
    tool(
        "last_change",
        "Goes back to the last change of an expression's value, and tells what it was before and after, and who did it.",
        &[EXPRESSION, THREAD, FRAME],
    ),
    tool(
        "history",
        "All changes of a variable over the whole recording: position, line, value.",
        &[EXPRESSION, THREAD, FRAME, MOST],
    ),
    tool(
        "calls",
        "All calls of a function over the whole recording: position, arguments, result, caller.",
        &[
            needs("function", "string", "its name, with namespaces or without"),
            MOST,
        ],
    ),
    tool(
        "output",
        "What the program wrote to standard output and error, with positions.",
        &[MOST],
    ),
    tool(
        "watch",
        "When a condition over the program's variables became false (or true) for good: the statement that broke it.",
        &[needs(
            "condition",
            "string",
            "a C expression, as in `head->next->prev == head`",
        )],
    ),
    tool(
        "slice",
        "All statements that a value depends on, newest first; without an expression, why the program failed.",
        &[may("expression", "string", "a C expression")],
    ),
    tool(
        "origin",
        "Where a value comes from: back through moves to where it was computed or came in.",
        &[EXPRESSION],
    ),
    tool(
        "races",
        "Accesses of several threads to the same memory that nothing orders.",
        &[],
    ),
    tool(
        "order",
        "Interactions of threads (locks, conditions, pipes, ...), and the order between them.",
        &[],
    ),
    tool(
        "heap",
        "Who allocated and freed memory at an address; without one, what was never freed and what was freed wrongly.",
        &[may("address", "string", "an address, as in 0x5555555592a0")],
    ),
    tool(
        "more",
        "The rest of an answer that was too long.",
        &[needs("token", "integer", "as the answer told it")],
    ),
    Tool {
        name: "record",
        what: "Runs a program and records it. Tells the recording's name and how the program ended.",
        arguments: &[
            needs("program", "string", "the program's path"),
            may("arguments", "array", "its arguments"),
        ],
        runs: true,
    },
    Tool {
        name: "hunt",
        what: "Runs a program under many schedules until it fails, and keeps that recording.",
        arguments: &[
            needs("program", "string", "the program's path"),
            may("arguments", "array", "its arguments"),
            may("runs", "integer", "how many runs at most (default 200)"),
        ],
        runs: true,
    },
];

/// Tools that aren't about one recording.
fn is_apart(tool: &Tool) -> bool {
    tool.runs || matches!(tool.name, "list" | "more")
}

impl Tool {
    pub fn all_arguments(&self) -> impl Iterator<Item = &Argument> {
        let common: &[Argument] = match is_apart(self) {
            true => &[],
            false => COMMON,
        };
        self.arguments.iter().chain(common)
    }

    /// Its arguments, as JSON's schema says it.
    pub fn schema(&self) -> Map<String, Value> {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for argument in self.all_arguments() {
            let mut of = json!({"type": argument.of, "description": argument.what});
            if argument.of == "array" {
                of["items"] = json!({"type": "string"});
            }
            properties.insert(argument.name.into(), of);
            if argument.needed {
                required.push(Value::from(argument.name));
            }
        }
        let mut schema = Map::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), properties.into());
        schema.insert("required".into(), required.into());
        schema.insert("additionalProperties".into(), false.into());
        schema
    }

    /// Whether what an agent gave is what the tool takes; if not, what it takes.
    pub fn check(&self, given: &Map<String, Value>) -> Result<(), String> {
        let takes: Vec<&Argument> = self.all_arguments().collect();
        let names = || {
            takes
                .iter()
                .map(|one| one.name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        for (name, value) in given {
            let Some(argument) = takes.iter().find(|one| one.name == name) else {
                let name_of_tool = self.name;
                return Err(format!(
                    "{name_of_tool} takes no {name}; it takes: {}",
                    names()
                ));
            };
            let fits = match argument.of {
                "integer" => value.is_u64(),
                "array" => value
                    .as_array()
                    .is_some_and(|all| all.iter().all(Value::is_string)),
                _ => value.is_string(),
            };
            if !fits && !value.is_null() {
                return Err(format!(
                    "{name} must be of type {}: {}",
                    argument.of, argument.what
                ));
            }
        }
        let lacks = takes
            .iter()
            .find(|one| one.needed && given.get(one.name).is_none_or(Value::is_null));
        match lacks {
            Some(one) => Err(format!("{} needs {}: {}", self.name, one.name, one.what)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_checked() {
        let tool = TOOLS.iter().find(|tool| tool.name == "calls").unwrap();
        let check = |given: Value| tool.check(given.as_object().unwrap());
        assert!(check(json!({"function": "main", "most": 3, "at": "end"})).is_ok());
        assert!(check(json!({"function": "main", "most": null})).is_ok());
        assert!(check(json!({})).unwrap_err().contains("needs function"));
        assert!(
            check(json!({"function": 3}))
                .unwrap_err()
                .contains("string")
        );
        assert!(
            check(json!({"function": "f", "moist": 3}))
                .unwrap_err()
                .contains("most")
        );
    }
}

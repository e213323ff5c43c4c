//! An agent's sessions with `clew mcp`: what the debugger says of the same recording is what must arrive.

#[path = "../../debugger/tests/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use common::Guest;
use serde_json::{Value, json};

fn main() {
    common::tests(vec![
        common::test("tools", tools),
        common::test("looking", looking),
        common::test("going", going),
        common::test("wholes", wholes),
        common::test("commands", commands),
        common::test("threads_and_memory", threads_and_memory),
        common::test("pages", pages),
        common::test("recording", recording),
        common::test("wrong", wrong),
        common::test("inspector", inspector).with_ignored_flag(true),
    ])
}

struct Agent {
    child: Child,
    output: ChildStdin,
    input: BufReader<ChildStdout>,
    id: u64,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Agent {
    fn start(guest: &Guest, flags: &[&str]) -> Agent {
        let mut child = Command::new(common::clew())
            .arg("mcp")
            .args(flags)
            .env("CLEW_DIR", &guest.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut agent = Agent {
            output: child.stdin.take().unwrap(),
            input: BufReader::new(child.stdout.take().unwrap()),
            child,
            id: 0,
        };
        let told = agent.request(
            "initialize",
            json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            }),
        );
        assert_eq!(told["result"]["serverInfo"]["name"], "clew", "{told}");
        agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        agent
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.output, "{message}").unwrap();
        self.output.flush().unwrap();
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.id += 1;
        let id = self.id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert!(self.input.read_line(&mut line).unwrap() > 0, "it left");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message;
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: Value) -> (bool, String) {
        let told = self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        let result = &told["result"];
        let text = result["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("{told}")).to_string();
        (result["isError"] != true, text)
    }

    fn ask(&mut self, tool: &str, arguments: Value) -> String {
        let (good, text) = self.call(tool, arguments);
        assert!(good, "{tool}: {text}");
        text
    }

    fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let (good, text) = self.call(tool, arguments);
        assert!(!good, "{tool}: {text}");
        text
    }
}

/// The position that an answer tells first.
fn position(text: &str) -> String {
    let rest = text.split("position ").nth(1);
    let rest = rest.unwrap_or_else(|| panic!("{text}"));
    rest.split([',', '\n', ' ']).next().unwrap().into()
}

fn guest() -> Guest {
    Guest::new("lines.c", &["-O0", "-DLOOPS=9"])
}

fn tools() {
    let guest = guest();
    for (flags, runs) in [(&[][..], false), (&["--allow-record"], true)] {
        let mut agent = Agent::start(&guest, flags);
        let told = agent.request("tools/list", json!({}));
        let tools = told["result"]["tools"].as_array().unwrap().clone();
        let names: Vec<&str> = tools
            .iter()
            .filter_map(|tool| tool["name"].as_str())
            .collect();
        for name in ["why", "evaluate", "step", "races"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert_eq!(names.contains(&"record"), runs);
        for tool in &tools {
            assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
            assert!(tool["description"].as_str().unwrap().len() > 20, "{tool}");
        }
    }
}

fn looking() {
    let guest = guest();
    let recording = guest.folder.join("rec");
    let mut agent = Agent::start(&guest, &[]);
    let asked = json!({"recording": recording, "place": "leaf", "condition": "n == 7"});
    let text = agent.ask("run_to", asked);
    assert!(text.contains("int twice = n * 2;"), "{text}");
    let there = position(&text);
    // As the debugger has it.
    let mut debugger = guest.open();
    let calls = debugger.calls("leaf", 100).unwrap().calls;
    assert_eq!(there, calls[7].position);
    let text = agent.ask("evaluate", json!({"expression": "n * 2"}));
    assert!(text.contains("= 14"), "{text}");
    let text = agent.ask("stack", json!({}));
    assert!(
        text.contains("#0 leaf") && text.contains("#1 main"),
        "{text}"
    );
    let text = agent.ask("locals", json!({"frame": 1}));
    assert!(
        text.contains("i = 7") && text.contains("values = {5, 3, 1, 4, 2}"),
        "{text}"
    );
    let text = agent.ask("evaluate", json!({"expression": "values", "frame": 1}));
    assert!(text.contains("[3] = 4"), "{text}");
    assert!(agent.ask("threads", json!({})).contains("* thread 0"));
    let text = agent.ask("source", json!({"around": 0}));
    assert_eq!(text.lines().count(), 1, "{text}");
    let line = guest.line("sum += fib(6);");
    let asked = json!({"file": "lines.c", "line": line, "around": 1});
    let text = agent.ask("source", asked);
    assert!(
        text.contains("sum += fib(6);") && text.lines().count() == 3,
        "{text}"
    );
    // Nothing but what the program was compiled from.
    agent.refused("source", json!({"file": "/etc/passwd", "line": 1}));
    // Where one was before.
    agent.ask("where", json!({"at": "end"}));
    assert_eq!(position(&agent.ask("where", json!({"at": there}))), there);
}

fn going() {
    let guest = guest();
    let recording = guest.folder.join("rec");
    let mut agent = Agent::start(&guest, &[]);
    let asked = json!({"recording": recording, "place": "main"});
    let first = agent.ask("run_to", asked);
    let there = agent.ask("step", json!({"count": 3}));
    let back = agent.ask("step", json!({"count": 3, "direction": "backward"}));
    assert_eq!(position(&back), position(&first));
    let again = agent.ask("step", json!({"count": 3}));
    assert_eq!(again, there);
    let text = agent.ask("run_to", json!({"place": "fib", "at": "start"}));
    assert!(text.contains("fib at lines.c"), "{text}");
    let text = agent.ask("step", json!({"kind": "out"}));
    assert!(text.contains("returned 8"), "{text}");
    let here = position(&text);
    let text = agent.ask("run_to", json!({"place": "main"}));
    assert!(text.contains("never reached after"), "{text}");
    assert_eq!(position(&agent.ask("where", json!({}))), here);
    let asked = json!({"place": "main", "direction": "backward"});
    let text = agent.ask("run_to", asked);
    assert_eq!(position(&text), position(&first));
    let text = agent.ask("step", json!({"kind": "instruction", "count": 4}));
    assert!(text.contains("main at"), "{text}");
}

fn wholes() {
    let guest = guest();
    let recording = guest.folder.join("rec");
    let mut agent = Agent::start(&guest, &[]);
    let asked = json!({"recording": recording, "function": "fib"});
    let text = agent.ask("calls", asked);
    let mut debugger = guest.open();
    let calls = debugger.calls("fib", 1000).unwrap().calls;
    assert_eq!(text.lines().count(), calls.len());
    for (line, call) in text.lines().zip(&calls) {
        assert!(line.starts_with(&call.position), "{line}\n{call:?}");
    }
    let text = agent.ask("calls", json!({"function": "fib", "most": 2}));
    assert!(text.lines().count() == 3 && text.contains("most"), "{text}");
    let text = agent.ask("history", json!({"expression": "sink", "at": "end"}));
    debugger.seek("end").unwrap();
    let changes = debugger.changes(debugger.thread(), 0, "sink", 1000);
    let changes = changes.unwrap().changes;
    assert_eq!(text.lines().count(), changes.len());
    let asked = json!({"expression": "sink", "at": "end"});
    let text = agent.ask("last_change", asked);
    assert!(text.contains(&changes.last().unwrap().position), "{text}");
    assert!(text.contains("now before that change"), "{text}");
    let text = agent.ask("output", json!({}));
    assert!(text.contains("stdout"), "{text}");
}

/// What other commands answer, as they do.
fn commands() {
    let guest = guest();
    let source = guest.folder.join("crash.c");
    let program = guest.folder.join("crash");
    let text = "struct s { int *p; } *s;\nint main(void) { return *s->p; }\n";
    std::fs::write(&source, text).unwrap();
    let mut made = Command::new("cc");
    made.arg("-g").arg("-o").arg(&program).arg(&source);
    assert!(made.status().unwrap().success());
    let recorded = Command::new(common::clew())
        .args(["record", "--name", "crashed", "--"])
        .arg(&program)
        .env("CLEW_DIR", &guest.folder)
        .stderr(Stdio::null())
        .status();
    assert!(!recorded.unwrap().success());
    let mut agent = Agent::start(&guest, &[]);
    let text = agent.ask("list", json!({}));
    assert!(text.contains("crashed"), "{text}");
    let text = agent.ask("why", json!({}));
    assert!(
        text.contains("crash.c:2") && text.contains("null"),
        "{text}"
    );
    let text = agent.ask("info", json!({"recording": "crashed"}));
    assert!(text.contains("SIGSEGV"), "{text}");
    let text = agent.ask("alerts", json!({"recording": "crashed"}));
    assert!(text.contains("SIGSEGV"), "{text}");
    let text = agent.ask("slice", json!({"recording": "crashed"}));
    assert!(text.contains("the address that it crashed at"), "{text}");
    let text = agent.ask("origin", json!({"expression": "s", "at": "end"}));
    assert!(!text.is_empty());
    let text = agent.ask("races", json!({"recording": "crashed"}));
    assert!(!text.is_empty());
    let asked = json!({"expression": "nobody", "recording": "crashed"});
    let why = agent.refused("slice", asked);
    assert!(why.contains("nobody"), "{why}");
}

/// Watch, heap, order and races on two threads with a lock and a block of memory: places that the source marks.
fn threads_and_memory() {
    let guest = Guest::new("pair.c", &["-O0"]);
    let mut agent = Agent::start(&guest, &[]);
    let recording = guest.folder.join("rec");
    let line = |text: &str| format!("pair.c:{}", guest.line(text));
    for (tool, question, expected) in pair_questions(&recording) {
        let text = agent.ask(tool, question);
        for mark in expected {
            let place = line(mark);
            assert!(text.contains(&place), "{tool}: no {place} in\n{text}");
        }
    }
    // What it says when there is nothing to say.
    let text = agent.ask("races", json!({"recording": recording}));
    assert!(!text.contains("pair.c"), "{text}");
    let asked = json!({"recording": recording, "condition": "level <"});
    assert!(agent.refused("watch", asked).contains("level <"));
    let asked = json!({"recording": recording, "address": "nobody"});
    assert!(agent.refused("heap", asked).contains("nobody"));
}

/// Questions about `pair.c`, and the lines that answers must name.
fn pair_questions(recording: &std::path::Path) -> Vec<(&'static str, Value, Vec<&'static str>)> {
    vec![
        (
            "watch",
            json!({"recording": recording, "condition": "level < 2"}),
            vec!["// breaks level < 2"],
        ),
        (
            "heap",
            json!({"recording": recording, "address": "block"}),
            vec!["// allocates", "// frees"],
        ),
        (
            "order",
            json!({"recording": recording}),
            vec![
                "pthread_create",
                "pthread_mutex_lock(&lock);",
                "pthread_join",
            ],
        ),
    ]
}

fn pages() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=900"]);
    let recording = guest.folder.join("rec");
    let mut agent = Agent::start(&guest, &[]);
    let asked = json!({"recording": recording, "function": "leaf", "most": 900});
    let mut text = agent.ask("calls", asked);
    let mut lines = 0;
    while let Some(at) = text.find("call `more` with token ") {
        let token: u64 = text[at + 23..].trim_end_matches(')').parse().unwrap();
        lines += text.lines().filter(|line| line.contains("leaf(")).count();
        text = agent.ask("more", json!({"token": token}));
    }
    lines += text.lines().filter(|line| line.contains("leaf(")).count();
    assert_eq!(lines, 900);
    agent.refused("more", json!({"token": 12345}));
}

fn recording() {
    let guest = guest();
    let mut agent = Agent::start(&guest, &["--allow-record"]);
    let text = agent.ask("record", json!({"program": guest.program}));
    assert!(
        text.contains("status 0") && text.contains(guest.output.trim()),
        "{text}"
    );
    assert!(agent.ask("list", json!({})).contains("guest"));
    let text = agent.ask("hunt", json!({"program": "/bin/false", "runs": 5}));
    assert!(text.contains("status 0"), "{text}");
}

fn wrong() {
    let guest = guest();
    let mut agent = Agent::start(&guest, &[]);
    let recording = guest.folder.join("rec");
    let unknown = json!({"expression": "x", "recording": "nobody"});
    let backwards = json!({"place": "fib", "direction": "up"});
    for (tool, arguments, word) in [
        ("dance", json!({}), "evaluate"),
        ("record", json!({"program": "/bin/true"}), "--allow-record"),
        ("evaluate", json!({}), "needs expression"),
        ("evaluate", unknown, "nobody"),
        (
            "stack",
            json!({"recording": recording, "thread": 50}),
            "thread 50",
        ),
        ("stack", json!({"at": "banana"}), "no position"),
        ("locals", json!({"frame": 99}), "frame 99"),
        ("run_to", json!({"place": "fibb"}), "did you mean fib"),
        ("run_to", backwards, "forward or backward"),
        ("step", json!({"kind": "long"}), "instruction"),
        ("step", json!({"count": "many"}), "integer"),
    ] {
        let why = agent.refused(tool, arguments);
        assert!(why.contains(word), "{tool}: {why}");
    }
    // It goes on.
    agent.ask("where", json!({}));
}

/// The protocol's own inspector, on the command line; needs npm.
fn inspector() {
    let guest = guest();
    let run = |words: &[&str]| -> Value {
        let ran = Command::new("npx")
            .args(["--yes", "@modelcontextprotocol/inspector", "--cli"])
            .arg(common::clew())
            .arg("mcp")
            .args(words)
            .env("CLEW_DIR", &guest.folder)
            .current_dir(&guest.folder)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        let errors = String::from_utf8_lossy(&ran.stderr).into_owned();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}\n{errors}"))
    };
    let told = run(&["--method", "tools/list"]);
    assert!(told["tools"].as_array().unwrap().len() > 15, "{told}");
    let recording = format!("recording={}", guest.folder.join("rec").display());
    let told = run(&[
        "--method",
        "tools/call",
        "--tool-name",
        "calls",
        "--tool-arg",
        &recording,
        "function=outer",
    ]);
    let text = told["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("outer(n=4)"), "{text}");
    // Tools that are commands of clew.
    let pair = Guest::new("pair.c", &["-O0"]);
    for (tool, question, expected) in pair_questions(&pair.folder.join("rec")) {
        let mut words = vec!["--method".to_string(), "tools/call".into()];
        words.extend(["--tool-name".into(), tool.into()]);
        for (name, value) in question.as_object().unwrap() {
            let value = value.as_str().unwrap();
            words.extend(["--tool-arg".into(), format!("{name}={value}")]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let told = run(&words);
        let text = told["content"][0]["text"].as_str().unwrap();
        for mark in expected {
            let place = format!("pair.c:{}", pair.line(mark));
            assert!(text.contains(&place), "{tool}: no {place} in\n{text}");
        }
    }
}

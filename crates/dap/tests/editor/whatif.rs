//! Values that are set, calls to step into, sources, and log points.

use clew_debugger::Spot;
use serde_json::{Value, json};

use crate::client::Editor;
use crate::common::{self, Guest};

/// The value that a scope or a value has for a name.
fn variable(editor: &mut Editor, reference: &Value, name: &str) -> Value {
    let asked = json!({"variablesReference": reference});
    let all = editor.ask("variables", asked)["variables"].clone();
    let mut all = all.as_array().unwrap().iter();
    all.find(|one| one["name"] == name).unwrap().clone()
}

fn scope(editor: &mut Editor, name: &str) -> Value {
    let frame = editor.top()["id"].clone();
    let scopes = editor.ask("scopes", json!({"frameId": frame}))["scopes"].clone();
    let mut scopes = scopes.as_array().unwrap().iter();
    let found = scopes.find(|one| one["name"] == name);
    found.unwrap()["variablesReference"].clone()
}

/// What is set is so in all that is asked there, calls of functions too, until the program moves; the recording stays as it was.
pub fn set() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=5"]);
    let mut editor = Editor::attach(common::clew(), &guest.folder);
    let line = guest.line("sum += fib(6);");
    let source = json!({"path": guest.source});
    let asked = json!({"source": source, "breakpoints": [{"line": line}]});
    editor.ask("setBreakpoints", asked);
    editor.go("continue");
    let before = editor.evaluate("sum")["result"].clone();
    let locals = scope(&mut editor, "Locals");
    let set = json!({"variablesReference": locals, "name": "sum", "value": "40 + 2"});
    assert_eq!(editor.ask("setVariable", set)["value"], "42");
    assert_eq!(editor.event("output")["category"], "console");
    assert_eq!(variable(&mut editor, &locals, "sum")["value"], "42");
    assert_eq!(editor.evaluate("sum * 2")["result"], "84");
    // An element of an array, by what another says.
    let values = variable(&mut editor, &locals, "values");
    let values = values["variablesReference"].clone();
    let set = json!({"variablesReference": values, "name": "[1]", "value": "sum + 1"});
    assert_eq!(editor.ask("setVariable", set)["value"], "43");
    assert_eq!(editor.evaluate("values[1]")["result"], "43");
    // Memory shows it as well.
    let address = editor.evaluate("sum")["memoryReference"].clone();
    let read = editor.ask(
        "readMemory",
        json!({"memoryReference": address, "count": 3}),
    );
    assert_eq!(read["data"], "KgAA");
    // What the program's own functions make of it.
    let set = json!({"expression": "sink", "value": "7"});
    assert_eq!(editor.ask("setExpression", set)["value"], "7");
    // It sets `sink` to 40 and returns 41; the next question finds all as it was set here.
    assert_eq!(editor.evaluate("leaf(20) + sink")["result"], "81");
    assert_eq!(editor.evaluate("sink")["result"], "7");
    // What can't be set is refused, and nothing changes by that.
    for (name, value) in [("nobody", "1"), ("sum", "nobody"), ("sum + 1", "2")] {
        let set = json!({"expression": name, "value": value});
        let why = editor.refused("setExpression", set);
        assert!(!why.is_empty());
    }
    let registers = scope(&mut editor, "Registers");
    let set = json!({"variablesReference": registers, "name": "rax", "value": "1"});
    editor.refused("setVariable", set);
    assert_eq!(editor.evaluate("sum")["result"], "42");
    // The program goes as it went.
    editor.go("next");
    editor.go("stepBack");
    assert_eq!(editor.top()["line"], line);
    assert_eq!(editor.evaluate("sum")["result"], before);
    editor.go("restart");
    editor.ask(
        "setBreakpoints",
        json!({"source": source, "breakpoints": []}),
    );
    editor.go("continue");
    editor.typed("clew output");
    let body = loop {
        let body = editor.event("output");
        if body["category"] == "stdout" {
            break body;
        }
    };
    assert_eq!(body["output"].as_str(), Some(&*guest.output));
}

/// A line that calls two functions: into the one that is wanted, over the other.
pub fn targets() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=5"]);
    let source = guest.folder.join("two.c");
    std::fs::write(
        &source,
        "int one(int n) {\n    return n + 1;\n}\nint two(int n) {\n    return n * 2;\n}\nint main(void) {\n    int x = two(one(3)) + one(4);\n    return x == 13 ? 0 : 1;\n}\n",
    )
    .unwrap();
    guest.record_another(&source, "two");
    let mut editor = Editor::start(common::clew(), &guest.folder);
    editor.begin(json!({"recording": guest.folder.join("two.rec")}));
    editor.ask("configurationDone", json!({}));
    editor.event("stopped");
    assert_eq!(editor.top()["line"], 8);
    let frame = editor.top()["id"].clone();
    let told = editor.ask("stepInTargets", json!({"frameId": frame}))["targets"].clone();
    let labels: Vec<&str> = told
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["label"].as_str())
        .collect();
    assert_eq!(labels, ["one", "two"]);
    for (n, value) in [("one", "3"), ("two", "4")] {
        editor.go("restart");
        let told = told.as_array().unwrap().iter();
        let target = told.clone().find(|one| one["label"] == n).unwrap();
        editor.ask("stepIn", json!({"threadId": 1, "targetId": target["id"]}));
        assert_eq!(editor.event("stopped")["reason"], "step");
        assert_eq!(editor.top()["name"], n);
        assert_eq!(editor.evaluate("n")["result"], value);
    }
    // From there the line isn't in sight, and a target that nobody told of is none.
    let why = editor.refused("stepIn", json!({"threadId": 1, "targetId": 99}));
    assert!(why.contains("stepInTargets"), "{why}");
    let frame = editor.top()["id"].clone();
    let none = editor.ask("stepInTargets", json!({"frameId": frame}));
    assert_eq!(none["targets"], json!([]));
}

/// Files that the program was compiled from, as its compiler says.
pub fn sources() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=5"]);
    let mut editor = Editor::attach(common::clew(), &guest.folder);
    let all = editor.ask("loadedSources", json!({}))["sources"].clone();
    let all = all.as_array().unwrap();
    let own = all.iter().find(|one| one["name"] == "lines.c").unwrap();
    assert_eq!(own["path"], editor.top()["source"]["path"]);
}

/// A log point prints for all times that its line is come to, at once, wherever the program stands; and stops nobody.
pub fn log_points() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=9"]);
    let mut editor = Editor::attach(common::clew(), &guest.folder);
    let line = guest.line("int twice = n * 2;");
    let here = editor.place();
    let reference = scope(&mut editor, "Locals");
    let set = |editor: &mut Editor, breakpoints: Value| {
        let source = json!({"path": guest.source});
        let asked = json!({"source": source, "breakpoints": breakpoints});
        editor.ask("setBreakpoints", asked)
    };
    // As the debugger says by itself.
    let mut debugger = guest.open();
    let spot = Spot::Line {
        file: "lines.c".into(),
        line,
    };
    let expected = debugger
        .executions(&spot, None, &["n".into()], 100)
        .unwrap();
    assert_eq!(expected.executions.len(), 11);
    let message = json!({"line": line, "logMessage": "n is {n}, twice that {n * 2}; {nobody}"});
    set(&mut editor, json!([message]));
    for execution in &expected.executions {
        let body = editor.event("output");
        let text = body["output"].as_str().unwrap();
        let n: i64 = execution.values[0].as_ref().unwrap().parse().unwrap();
        let position = &execution.position;
        let start = format!("{position}  n is {n}, twice that {}; <", n * 2);
        assert!(text.starts_with(&start), "{text}, not {start}");
        assert_eq!(body["line"], line);
    }
    // It stands where it stood, and what was told there is still known.
    assert_eq!(editor.place(), here);
    variable(&mut editor, &reference, "sum");
    // Set again beside another, only the other prints; with a condition and a count, the times that are meant.
    let other = json!({"line": line, "logMessage": "even {n}", "condition": "n % 2 == 0", "hitCondition": "% 2"});
    set(&mut editor, json!([message, other]));
    let said: Vec<String> = (0..3)
        .map(|_| editor.event("output")["output"].as_str().unwrap().into())
        .collect();
    let said: Vec<&str> = said
        .iter()
        .map(|one| one.split_once("  ").unwrap().1.trim_end())
        .collect();
    assert_eq!(said, ["even 2", "even 6", "even 4"]);
    assert!(editor.events.is_empty());
    // Nobody stops there.
    assert_eq!(editor.go("continue")["reason"], "pause");
    let never = guest.line("sum += 100000;");
    set(&mut editor, json!([{"line": never, "logMessage": "never"}]));
    let said = editor.event("output")["output"].clone();
    assert!(said.as_str().unwrap().contains("nothing comes"), "{said}");
    // Those that are set first print as soon as it stands somewhere.
    let mut editor = Editor::start(common::clew(), &guest.folder);
    editor.begin(json!({"recording": guest.folder.join("rec")}));
    set(&mut editor, json!([{"line": line, "logMessage": "{n}"}]));
    editor.ask("configurationDone", json!({}));
    editor.event("stopped");
    for _ in 0..11 {
        editor.event("output");
    }
}

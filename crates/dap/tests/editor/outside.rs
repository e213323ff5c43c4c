//! What others say of the protocol: its published types, and the client that the protocol's makers test adapters with. Both come by npm.

use std::process::Command;

use serde_json::{Value, json};

use crate::client::Editor;
use crate::common::{self, Guest};

/// Every message is as the protocol's own schema says; needs npm.
pub fn schema() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=5"]);
    let mut editor = Editor::attach(common::clew(), &guest.folder);
    let source = json!({"path": guest.source});
    let line = guest.line("int twice = n * 2;");
    let asked = json!({"source": source, "breakpoints": [{"line": line}, {"line": 4000}]});
    editor.ask("setBreakpoints", asked);
    editor.ask(
        "setFunctionBreakpoints",
        json!({"breakpoints": [{"name": "fib"}]}),
    );
    editor.ask("setExceptionBreakpoints", json!({"filters": ["throw"]}));
    editor.go("continue");
    let top = editor.top();
    editor.ask("threads", json!({}));
    let scopes = editor.ask("scopes", json!({"frameId": top["id"]}));
    for scope in scopes["scopes"].as_array().unwrap() {
        let asked = json!({"variablesReference": scope["variablesReference"]});
        editor.ask("variables", asked);
    }
    editor.evaluate("n * 2");
    let frame = json!({"frameId": top["id"]});
    editor.ask("stepInTargets", frame);
    let set = json!({"expression": "n", "value": "5", "frameId": top["id"]});
    editor.ask("setExpression", set);
    let locals = &scopes["scopes"][0]["variablesReference"];
    let set = json!({"variablesReference": locals, "name": "n", "value": "n + 1"});
    editor.ask("setVariable", set);
    editor.ask("loadedSources", json!({}));
    let info = editor.ask("dataBreakpointInfo", json!({"name": "sink"}));
    let asked = json!({"breakpoints": [{"dataId": info["dataId"]}]});
    editor.ask("setDataBreakpoints", asked);
    editor.go("continue");
    editor.go("stepBack");
    editor.go("reverseContinue");
    let here = editor.top()["instructionPointerReference"].clone();
    let asked = json!({"memoryReference": here, "instructionCount": 5, "instructionOffset": -2});
    editor.ask("disassemble", asked);
    editor.ask("readMemory", json!({"memoryReference": here, "count": 16}));
    editor.ask("modules", json!({}));
    editor.ask("completions", json!({"text": "n", "column": 2}));
    let targets = editor.ask("gotoTargets", json!({"source": source, "line": line}));
    let target = targets["targets"][0]["id"].clone();
    editor.ask("goto", json!({"threadId": 1, "targetId": target}));
    editor.event("stopped");
    editor.refused("dance", json!({}));
    editor.ask("disconnect", json!({}));
    editor.event("terminated");
    let said = guest.folder.join("said.json");
    let all: Vec<&Value> = editor
        .said
        .iter()
        .filter(|one| one["command"] != "dance")
        .collect();
    std::fs::write(&said, serde_json::to_string(&all).unwrap()).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/editor/schema.mjs");
    let checked = Command::new("sh")
        .current_dir(&guest.folder)
        .args(["-c", "npm install --silent --no-audit --no-fund @vscode/debugprotocol ajv@8 ts-json-schema-generator@2 typescript@5 && cp \"$0\" check.mjs && node check.mjs said.json"])
        .arg(script)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    let errors = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success(), "{text}\n{errors}");
    let counted = text.lines().last().unwrap_or_default().to_string();
    assert!(counted.starts_with("valid: "), "{text}");
}

/// The makers' own client goes through a recording.
pub fn testsupport() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=5"]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/editor/testsupport.mjs");
    let line = guest.line("int twice = n * 2;").to_string();
    let ran = Command::new("sh")
        .current_dir(&guest.folder)
        .args(["-c", "npm install --silent --no-audit --no-fund @vscode/debugadapter-testsupport && cp \"$0\" walk.mjs && exec node walk.mjs \"$@\""])
        .arg(script)
        .arg(common::clew())
        .arg(guest.folder.join("rec"))
        .arg(&guest.source)
        .arg(line)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{text}\n{errors}");
    assert_eq!(text.lines().last(), Some("walked"), "{text}");
}

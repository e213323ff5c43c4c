//! Work that takes long: it is shown, and can be ended.

use serde_json::{Value, json};

use crate::client::Editor;
use crate::common::{self, Guest};

/// A search that can't be over before somebody interrupts it.
fn searching(guest: &Guest) -> Editor {
    let mut editor = Editor::attach(common::clew(), &guest.folder);
    let source = json!({"path": guest.source});
    let line = guest.line("int twice = n * 2;");
    let breakpoint = json!({"line": line, "condition": "n % 2 == 7"});
    let asked = json!({"source": source, "breakpoints": [breakpoint]});
    editor.ask("setBreakpoints", asked);
    editor.ask("continue", json!({"threadId": 1}));
    editor
}

fn goes_on(editor: &mut Editor, guest: &Guest) {
    let source = json!({"path": guest.source});
    editor.ask(
        "setBreakpoints",
        json!({"source": source, "breakpoints": []}),
    );
    editor.go("next");
    assert!(!editor.frames().is_empty());
}

/// Long work can be interrupted, and the session goes on.
pub fn pause() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=30000000"]);
    let mut editor = searching(&guest);
    let seq = editor.send("pause", json!({"threadId": 1}));
    let told = editor.event("stopped");
    assert_eq!(told["reason"], "pause", "{told}");
    let answer = editor.response(seq);
    assert_eq!(answer["success"], true);
    editor.event("stopped");
    goes_on(&mut editor, &guest);
}

/// A long search tells how far it is, and ends when its progress is cancelled; so does a log point.
pub fn progress_and_cancel() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=30000000"]);
    let mut editor = searching(&guest);
    let begun = editor.event("progressStart");
    assert_eq!(begun["cancellable"], true);
    assert!(
        begun["title"].as_str().unwrap().contains("continue"),
        "{begun}"
    );
    let id = begun["progressId"].clone();
    let update = editor.event("progressUpdate");
    assert_eq!(update["progressId"], id);
    let percentage = |value: &Value| value["percentage"].as_f64().unwrap();
    assert!((0.0..=100.0).contains(&percentage(&update)), "{update}");
    let seq = editor.send("cancel", json!({"progressId": id}));
    assert_eq!(editor.event("progressEnd")["progressId"], id);
    assert_eq!(editor.event("stopped")["reason"], "pause");
    assert_eq!(editor.response(seq)["success"], true);
    // A log point over the whole recording: as much of it as was found is told.
    let source = json!({"path": guest.source});
    let line = guest.line("int twice = n * 2;");
    let print = json!({"line": line, "logMessage": "{n}", "condition": "n % 2 == 7 || n == 0"});
    editor.events.clear();
    editor.ask(
        "setBreakpoints",
        json!({"source": source, "breakpoints": [print]}),
    );
    let id = editor.event("progressStart")["progressId"].clone();
    let seq = editor.send("cancel", json!({"progressId": id}));
    let said = editor.event("output")["output"].clone();
    assert!(said.as_str().unwrap().ends_with("  0\n"), "{said}");
    let said = editor.event("output")["output"].clone();
    assert!(said.as_str().unwrap().contains("interrupted"), "{said}");
    assert_eq!(editor.event("progressEnd")["progressId"], id);
    assert_eq!(editor.response(seq)["success"], true);
    goes_on(&mut editor, &guest);
}

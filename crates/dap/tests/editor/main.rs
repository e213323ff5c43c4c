//! An editor's sessions with `clew dap`: what the debugger says of the same recording is what must arrive.

mod client;
#[path = "../../../debugger/tests/common/mod.rs"]
mod common;
mod long;
mod outside;
mod whatif;

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use clew_debugger::{Debugger, Direction, Spot, Step, Stop, StopReason, Wanted};
use client::Editor;
use common::Guest;
use serde_json::{Value, json};

fn main() {
    common::tests(vec![
        common::test("walks", walks),
        common::test("breakpoints", breakpoints),
        common::test("values", values),
        common::test("data", data),
        common::test("code", code),
        common::test("console", console),
        common::test("crash", crash),
        common::test("launch", launch),
        common::test("socket", socket),
        common::test("nonsense", nonsense),
        common::test("set", whatif::set),
        common::test("targets", whatif::targets),
        common::test("sources", whatif::sources),
        common::test("log_points", whatif::log_points),
        common::test("pause", long::pause),
        common::test("progress_and_cancel", long::progress_and_cancel),
        common::test("schema", outside::schema).with_ignored_flag(true),
        common::test("testsupport", outside::testsupport).with_ignored_flag(true),
    ])
}

fn place(stop: &Stop) -> String {
    let location = &stop.here.location;
    let name = location.function.clone().unwrap_or_default();
    format!(
        "{name} {} {}",
        location.line.unwrap_or(0),
        stop.here.position
    )
}

fn at_main(guest: &Guest) -> (Debugger, Stop) {
    let mut debugger = guest.open();
    let main = Spot::Function("main".into());
    let stop = debugger.run_to(Direction::Forward, &main).unwrap();
    (debugger, stop)
}

/// The same steps lead to the same places, there and back.
fn walks() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=5"]);
    let (mut debugger, first) = at_main(&guest);
    let mut editor = Editor::attach(common::clew(), &guest.folder);
    assert_eq!(editor.place(), place(&first));
    let steps = [
        ("next", Step::Over, Direction::Forward, 6),
        ("stepIn", Step::Into, Direction::Forward, 25),
        ("stepOut", Step::Out, Direction::Forward, 1),
        ("stepBack", Step::Over, Direction::Backward, 12),
        ("next", Step::Over, Direction::Forward, 4),
    ];
    for (command, step, direction, times) in steps {
        for n in 0..times {
            let stop = debugger.step(step, direction, 0).unwrap();
            let told = editor.go(command);
            assert_eq!(editor.place(), place(&stop), "{command} {n}");
            assert_eq!(told["reason"], "step", "{told}");
        }
    }
    // Instructions.
    for direction in [Direction::Forward, Direction::Backward] {
        let command = match direction {
            Direction::Forward => "next",
            Direction::Backward => "stepBack",
        };
        for _ in 0..5 {
            let stop = debugger.step(Step::Instruction, direction, 0).unwrap();
            let asked = json!({"threadId": 1, "granularity": "instruction"});
            editor.ask(command, asked);
            editor.event("stopped");
            assert_eq!(editor.place(), place(&stop));
        }
    }
    // A line of the program, wherever that is.
    let line = guest.line("sum += fib(6);");
    let source = json!({"path": guest.source});
    let targets = editor.ask("gotoTargets", json!({"source": source, "line": line}));
    let target = targets["targets"][0]["id"].clone();
    editor.ask("goto", json!({"threadId": 1, "targetId": target}));
    assert_eq!(editor.event("stopped")["reason"], "goto");
    assert_eq!(editor.top()["line"], line);
    // Back to the beginning.
    editor.go("restart");
    assert_eq!(editor.place(), place(&first));
    assert_eq!(editor.go("continue")["reason"], "pause");
    assert_eq!(editor.go("reverseContinue")["reason"], "entry");
    editor.ask("disconnect", json!({}));
    editor.event("terminated");
    assert!(editor.child.take().unwrap().wait().unwrap().success());
}

fn breakpoints() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=9"]);
    let mut editor = Editor::attach(common::clew(), &guest.folder);
    let line = guest.line("int twice = n * 2;");
    let set = |editor: &mut Editor, breakpoint: Value| -> Value {
        let source = json!({"path": guest.source});
        let asked = json!({"source": source, "breakpoints": [breakpoint]});
        editor.ask("setBreakpoints", asked)["breakpoints"][0].clone()
    };
    let made = set(&mut editor, json!({"line": line, "condition": "n > 5"}));
    assert_eq!(
        (&made["verified"], &made["line"]),
        (&true.into(), &line.into())
    );
    // As the debugger has it.
    let (mut debugger, _) = at_main(&guest);
    let wanted = Wanted {
        condition: Some("n > 5".into()),
        ..Wanted::at(Spot::Line {
            file: "lines.c".into(),
            line,
        })
    };
    debugger.add_breakpoint(wanted).unwrap();
    for direction in [Direction::Forward, Direction::Backward] {
        loop {
            let stop = debugger.go(direction).unwrap();
            let told = editor.go(match direction {
                Direction::Forward => "continue",
                Direction::Backward => "reverseContinue",
            });
            let StopReason::Breakpoints(_) = stop.reason else {
                assert_ne!(told["reason"], "breakpoint");
                break;
            };
            assert_eq!(told["reason"], "breakpoint");
            assert_eq!(told["hitBreakpointIds"], json!([made["id"]]));
            assert_eq!(editor.place(), place(&stop));
        }
    }
    // The third time; every fourth time.
    for (count, expected) in [("==3", vec!["2"]), ("% 4", vec!["3", "7"])] {
        editor.go("restart");
        set(&mut editor, json!({"line": line, "hitCondition": count}));
        for n in expected {
            assert_eq!(editor.go("continue")["reason"], "breakpoint");
            assert_eq!(editor.evaluate("n")["result"], n, "{count}");
        }
    }
    set(&mut editor, json!({"line": 1000}));
    // Functions; what isn't there is told.
    editor.go("restart");
    let asked = json!({"breakpoints": [{"name": "fib"}, {"name": "fibb"}]});
    let made = editor.ask("setFunctionBreakpoints", asked)["breakpoints"].clone();
    assert_eq!(made[0]["verified"], true);
    let why = made[1]["message"].as_str().unwrap();
    assert!(why.contains("did you mean fib"), "{why}");
    editor.go("continue");
    assert_eq!(editor.top()["name"], "fib");
    // An instruction.
    let here = editor.top()["instructionPointerReference"].clone();
    let none = json!({"breakpoints": []});
    editor.ask("setFunctionBreakpoints", none);
    let asked = json!({"breakpoints": [{"instructionReference": here}]});
    editor.ask("setInstructionBreakpoints", asked);
    editor.go("continue");
    assert_eq!(editor.top()["instructionPointerReference"], here);
    // The beginning of a frame.
    editor.go("next");
    let frame = editor.top()["id"].clone();
    editor.ask("restartFrame", json!({"frameId": frame}));
    editor.event("stopped");
    let top = editor.top();
    assert_eq!(top["name"], "fib");
    // Nothing of the kind in this program.
    let set = editor.ask("setExceptionBreakpoints", json!({"filters": ["throw"]}));
    assert_eq!(set["breakpoints"][0]["verified"], false);
    let guest = Guest::new("throws.cpp", &["-O0"]);
    let mut editor = Editor::attach(common::clew(), &guest.folder);
    let set = editor.ask("setExceptionBreakpoints", json!({"filters": ["throw"]}));
    assert_eq!(set["breakpoints"][0]["verified"], true);
    assert_eq!(editor.go("continue")["reason"], "exception");
    assert_eq!(editor.top()["name"], "__cxa_throw");
}

/// Each line that the guest prints is an expression and what a debugger must show for it.
fn values() {
    for source in ["shapes.cpp", "shapes.rs"] {
        let flags: &[&str] = match source {
            "shapes.cpp" => &["-O0", "-std=c++17"],
            _ => &["-Copt-level=0"],
        };
        let guest = Guest::new(source, flags);
        let mut editor = Editor::attach(common::clew(), &guest.folder);
        editor.ask(
            "setFunctionBreakpoints",
            json!({"breakpoints": [{"name": "look"}]}),
        );
        assert_eq!(editor.go("continue")["reason"], "breakpoint");
        editor.go("stepOut");
        let top = editor.top();
        let scopes = editor.ask("scopes", json!({"frameId": top["id"]}))["scopes"].clone();
        let mut scopes = scopes.as_array().unwrap().iter();
        let locals = scopes.find(|scope| scope["name"] == "Locals").unwrap();
        let locals = editor.ask(
            "variables",
            json!({"variablesReference": locals["variablesReference"]}),
        );
        let locals = locals["variables"].as_array().unwrap().clone();
        let mut compared = 0;
        for line in guest.output.lines() {
            let (way, expected) = line.split_once(" = ").unwrap();
            let mut parts = way.split('/');
            let name = parts.next().unwrap();
            let Some(mut found) = locals.iter().find(|one| one["name"] == name).cloned() else {
                continue;
            };
            for part in parts {
                let asked = json!({"variablesReference": found["variablesReference"]});
                let within = editor.ask("variables", asked)["variables"].clone();
                let mut all = within.as_array().unwrap().iter();
                let next = all.find(|one| one["name"] == part);
                found = next.unwrap_or_else(|| panic!("{way}: {within}")).clone();
            }
            assert_eq!(found["value"], expected, "{way}");
            compared += 1;
        }
        assert!(compared > 10, "{source}: {compared}");
        // A page of a long one.
        if source == "shapes.rs" {
            let ordered = locals.iter().find(|one| one["name"] == "ordered").unwrap();
            assert_eq!(ordered["indexedVariables"], 2000);
            let page = editor.ask(
                "variables",
                json!({
                    "variablesReference": ordered["variablesReference"],
                    "filter": "indexed",
                    "start": 1000,
                    "count": 3,
                }),
            );
            let page = page["variables"].as_array().unwrap().clone();
            let names: Vec<&Value> = page.iter().map(|one| &one["name"]).collect();
            assert_eq!(names, ["[3000]", "[3003]", "[3006]"]);
        }
        let gone = editor.refused("variables", json!({"variablesReference": 99_999}));
        assert!(gone.contains("scopes"), "{gone}");
    }
}

/// Data breakpoints stop where the debugger's history of the variable says that it changed.
fn data() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=6"]);
    let mut editor = Editor::attach(common::clew(), &guest.folder);
    let info = editor.ask("dataBreakpointInfo", json!({"name": "sink"}));
    let asked = json!({"breakpoints": [{"dataId": info["dataId"], "accessType": "write"}]});
    let made = editor.ask("setDataBreakpoints", asked)["breakpoints"][0].clone();
    assert_eq!(made["verified"], true);
    let mut debugger = guest.open();
    debugger.seek("end").unwrap();
    let changes = debugger.changes(debugger.thread(), 0, "sink", 1000);
    let changes = changes.unwrap().changes;
    assert!(changes.len() > 6, "{changes:?}");
    for change in &changes {
        let told = editor.go("continue");
        assert_eq!(told["reason"], "data breakpoint", "{change:?}");
        assert_eq!(told["hitBreakpointIds"], json!([made["id"]]));
        let value = editor.evaluate("sink");
        assert_eq!(value["result"].as_str(), change.after.as_deref());
    }
    assert_ne!(editor.go("continue")["reason"], "data breakpoint");
    // Backwards it stands before each.
    for change in changes.iter().rev() {
        editor.go("reverseContinue");
        assert_eq!(
            editor.typed("clew when").split(' ').next(),
            Some(&*change.position)
        );
    }
    let none = editor.ask("dataBreakpointInfo", json!({"name": "1 + 1"}));
    assert_eq!(none["dataId"], Value::Null);
}

fn code() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=5"]);
    let mut editor = Editor::attach(common::clew(), &guest.folder);
    let here = editor.top()["instructionPointerReference"].clone();
    let asked = json!({
        "memoryReference": here,
        "instructionOffset": -3,
        "instructionCount": 20,
    });
    let lines = editor.ask("disassemble", asked)["instructions"].clone();
    let lines = lines.as_array().unwrap();
    assert_eq!(lines.len(), 20);
    assert_eq!(lines[3]["address"], here);
    assert_eq!(lines[3]["symbol"], "main");
    // Every instruction is followed by the next.
    let number = |value: &Value| u64::from_str_radix(&value.as_str().unwrap()[2..], 16).unwrap();
    for pair in lines.windows(2) {
        let length = pair[0]["instructionBytes"]
            .as_str()
            .unwrap()
            .split(' ')
            .count();
        let next = number(&pair[0]["address"]) + length as u64;
        assert_eq!(number(&pair[1]["address"]), next, "{pair:?}");
    }
    // Its bytes are what is in memory.
    let read = editor.ask("readMemory", json!({"memoryReference": here, "count": 4}));
    let first = lines[3]["instructionBytes"].as_str().unwrap();
    let first = u8::from_str_radix(first.split(' ').next().unwrap(), 16).unwrap();
    let data = read["data"].as_str().unwrap();
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let sextet = |n: usize| alphabet.find(data.as_bytes()[n] as char).unwrap() as u8;
    assert_eq!(sextet(0) << 2 | sextet(1) >> 4, first);
    let nowhere = json!({"memoryReference": "0x10", "count": 8});
    assert_eq!(editor.ask("readMemory", nowhere)["unreadableBytes"], 8);
    let nowhere = json!({"memoryReference": "0x10", "instructionCount": 5});
    let lines = editor.ask("disassemble", nowhere)["instructions"].clone();
    assert_eq!(lines.as_array().unwrap().len(), 5);
    let modules = editor.ask("modules", json!({}))["modules"].clone();
    let names: Vec<&str> = modules
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert!(
        names.contains(&"guest") && names.contains(&"libc.so.6"),
        "{names:?}"
    );
    let threads = editor.ask("threads", json!({}))["threads"].clone();
    assert_eq!(threads.as_array().unwrap().len(), 1);
}

fn console() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=5"]);
    let mut editor = Editor::attach(common::clew(), &guest.folder);
    assert_eq!(editor.typed("2 + 3"), "5");
    let said = editor.typed("clew calls leaf");
    assert_eq!(said.lines().count(), 7, "{said}");
    assert!(
        said.lines().next().unwrap().contains("leaf(n=0) = 1"),
        "{said}"
    );
    // A position that was told can be gone to.
    let third = said
        .lines()
        .nth(2)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .to_string();
    editor.typed(&format!("clew seek {third}"));
    assert_eq!(editor.event("stopped")["reason"], "goto");
    assert_eq!(editor.evaluate("n")["result"], "2");
    editor.typed("clew seek end");
    editor.event("stopped");
    let said = editor.typed("clew last sink");
    assert!(said.starts_with("sink: "), "{said}");
    editor.event("stopped");
    let said = editor.typed("clew writes sink");
    assert!(said.contains("leaf at lines.c"), "{said}");
    editor.typed("clew reverse-finish");
    editor.event("stopped");
    assert!(editor.typed("clew help").contains("clew seek"));
    let wrong = editor.refused(
        "evaluate",
        json!({"expression": "clew dance", "context": "repl"}),
    );
    assert!(wrong.contains("clew help"), "{wrong}");
    let wrong = editor.refused(
        "evaluate",
        json!({"expression": "nobody + 1", "context": "watch"}),
    );
    assert!(wrong.contains("nobody"), "{wrong}");
    let said = editor.typed("clew output");
    assert!(said.ends_with("writes"), "{said}");
    let body = editor.event("output");
    assert_eq!(body["category"], "stdout");
    assert_eq!(body["output"].as_str(), Some(&*guest.output));
    editor.typed("clew seek start");
    editor.event("stopped");
    let fits = editor.ask("completions", json!({"text": "clew se", "column": 8}));
    assert_eq!(fits["targets"][0]["label"], "seek");
}

/// The end of a program that is killed is an exception.
fn crash() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=5"]);
    let source = guest.folder.join("crash.c");
    std::fs::write(&source, "int main(void) { return *(volatile int *)8; }\n").unwrap();
    guest.record_another(&source, "crash");
    let mut editor = Editor::start(common::clew(), &guest.folder);
    editor.begin(json!({"recording": guest.folder.join("crash.rec"), "stopOnEntry": false}));
    editor.ask("configurationDone", json!({}));
    let told = editor.event("stopped");
    assert_eq!(told["reason"], "exception", "{told}");
    assert!(
        told["description"].as_str().unwrap().contains("signal 11"),
        "{told}"
    );
    assert_eq!(editor.top()["line"], 1);
    let info = editor.ask("exceptionInfo", json!({"threadId": 1}));
    assert!(
        info["description"].as_str().unwrap().contains("signal 11"),
        "{info}"
    );
}

/// A program is recorded first; then it is like any recording.
fn launch() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=5"]);
    let mut editor = Editor::start(common::clew(), &guest.folder);
    editor.ask("initialize", json!({"adapterID": "clew"}));
    let wrong = editor.refused("launch", json!({"program": "/nowhere/at/all"}));
    assert!(wrong.contains("/nowhere/at/all"), "{wrong}");
    assert!(editor.refused("launch", json!({})).contains("program"));
    editor.events.clear();
    editor.ask(
        "launch",
        json!({"program": guest.program, "args": ["x"], "stopOnEntry": true}),
    );
    let body = editor.event("output");
    assert_eq!(body["output"].as_str(), Some(&*guest.output));
    editor.event("initialized");
    editor.ask("configurationDone", json!({}));
    assert_eq!(editor.event("stopped")["reason"], "entry");
    assert_eq!(editor.top()["name"], "main");
}

/// Over a socket, only who knows the token is served.
fn socket() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=5"]);
    let mut child = Command::new(common::clew())
        .args(["dap", "--listen", "0"])
        .env("CLEW_DIR", &guest.folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut printed = BufReader::new(child.stdout.take().unwrap());
    printed.read_line(&mut line).unwrap();
    let (address, token) = line.trim().split_once(", token ").unwrap();
    let address = address.strip_prefix("listening on ").unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let mut child = Some(child);
    for known in [false, true] {
        let stream = TcpStream::connect(address).unwrap();
        let input = Box::new(stream.try_clone().unwrap());
        let mut editor = Editor::over(None, Box::new(stream), input);
        editor.ask("initialize", json!({"adapterID": "clew"}));
        let mut asked = json!({"recording": guest.folder.join("rec")});
        if known {
            asked["token"] = token.into();
            editor.ask("attach", asked);
            editor.ask("configurationDone", json!({}));
            editor.event("stopped");
            editor.child = child.take();
        } else {
            assert!(editor.refused("attach", asked).contains("token"));
            editor.ask("disconnect", json!({}));
        }
    }
}

/// Requests out of order, without arguments or of no kind get words, and the session goes on.
fn nonsense() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=5"]);
    let mut editor = Editor::start(common::clew(), &guest.folder);
    assert!(editor.refused("threads", json!({})).contains("attach"));
    assert!(
        editor
            .refused("attach", json!({"recording": "nobody"}))
            .contains("nobody")
    );
    assert!(
        editor
            .refused("attach", json!({"recording": 7}))
            .contains("arguments")
    );
    editor.begin(json!({"recording": guest.folder.join("rec"), "at": "end"}));
    editor.ask("configurationDone", json!({}));
    editor.event("stopped");
    for (command, arguments) in [
        ("dance", json!({})),
        ("stackTrace", json!({})),
        ("stackTrace", json!({"threadId": 77})),
        ("scopes", json!({"frameId": 5_000_000_000_u64})),
        ("setBreakpoints", json!({"source": {}})),
        ("goto", json!({"targetId": 9})),
        ("gotoTargets", json!({"source": {"path": "x.c"}, "line": 3})),
        ("readMemory", json!({"memoryReference": "zzz", "count": 8})),
        ("disassemble", json!({})),
        ("evaluate", json!({})),
        ("restartFrame", json!({})),
        ("setFunctionBreakpoints", json!({"breakpoints": 7})),
    ] {
        let why = editor.refused(command, arguments);
        assert!(!why.is_empty());
    }
    // A step of a thread that isn't there stops where it was, with a word.
    editor.ask("next", json!({"threadId": 77}));
    assert_eq!(editor.event("stopped")["reason"], "exception");
    assert!(!editor.frames().is_empty());
}

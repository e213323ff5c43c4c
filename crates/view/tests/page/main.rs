//! What `clew view` answers: the same as the debugger says of the same recording, to who may ask, and to nobody else.

mod browser;
mod client;
#[path = "../../../debugger/tests/common/mod.rs"]
mod common;
mod lives;
mod safety;

use clew_debugger::{Direction, Spot, Step};
use client::View;
use common::Guest;
use serde_json::{Value, json};

fn main() {
    common::tests(vec![
        common::test("who_may_ask", safety::who_may_ask),
        common::test("files", safety::files),
        common::test("standing", standing),
        common::test("walks", walks),
        common::test("values", values),
        common::test("whole_lives", lives::whole_lives),
        common::test("counts", lives::counts),
        common::test("overview", lives::overview),
        common::test("analyses", lives::analyses),
        common::test("logged", lives::logged),
        common::test("trees", lives::trees),
        common::test("threads", lives::threads),
        common::test("progress", lives::progress),
        common::test("notebook", notebook),
        common::test("cancelling", cancelling),
        common::test("nonsense", safety::nonsense),
        common::test("hostile", safety::hostile),
        common::test("browser", browser::browser).with_ignored_flag(true),
    ])
}

fn guest() -> Guest {
    Guest::new("lines.c", &["-O0"])
}

fn standing() {
    let guest = guest();
    let view = View::start(&guest);
    let mut debugger = guest.open();
    let recording = view.ask("recording", json!({}));
    let stream = recording["main"].clone();
    assert_eq!(
        recording["streams"][0]["exe"],
        guest.program.to_str().unwrap()
    );
    for at in ["start", "end"] {
        let told = view.ask("stand", json!({"stream": stream, "at": at}));
        let here = debugger.seek(at).unwrap();
        assert_eq!(told["here"], serde_json::to_value(&here).unwrap());
        let stack = debugger.stack(here.thread).unwrap();
        assert_eq!(told["stack"], serde_json::to_value(&stack).unwrap());
        let threads = debugger.threads().unwrap();
        assert_eq!(told["threads"], serde_json::to_value(&threads).unwrap());
        assert!(told["x"].is_number());
    }
    // A thread that isn't there: who runs is told of.
    let told = view.ask(
        "stand",
        json!({"stream": stream, "at": "end", "thread": 77}),
    );
    assert_eq!(told["thread"], 0);
    let text = view.ask("source", json!({"stream": stream, "file": &guest.source}));
    assert_eq!(
        text["text"],
        std::fs::read_to_string(&guest.source).unwrap()
    );
    for file in ["/etc/passwd", "lines.c", "../lines.c", ""] {
        let why = view.tries("source", json!({"stream": stream, "file": file}));
        assert!(why.unwrap_err().contains("wasn't compiled from"), "{file}");
    }
}

fn walks() {
    let guest = guest();
    let view = View::start(&guest);
    let mut debugger = guest.open();
    debugger
        .run_to(Direction::Forward, &Spot::Function("main".into()))
        .unwrap();
    let place = json!({"stream": 1, "at": "start"});
    let with = |place: &Value, more: Value| {
        let mut all = place.clone();
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        all
    };
    let mut told = view.ask(
        "run_to",
        with(&place, json!({"way": "forward", "spot": "main"})),
    );
    let steps = [
        (Step::Over, Direction::Forward),
        (Step::Into, Direction::Forward),
        (Step::Into, Direction::Forward),
        (Step::Over, Direction::Forward),
        (Step::Out, Direction::Forward),
        (Step::Over, Direction::Backward),
        (Step::Into, Direction::Backward),
        (Step::Instruction, Direction::Forward),
        (Step::Instruction, Direction::Backward),
        (Step::Out, Direction::Backward),
    ];
    for (step, direction) in steps {
        let stride = match step {
            Step::Over => "over",
            Step::Into => "into",
            Step::Out => "out",
            Step::Instruction => "instruction",
        };
        let way = match direction {
            Direction::Forward => "forward",
            Direction::Backward => "backward",
        };
        let place = json!({"stream": 1, "at": told["here"]["position"], "thread": told["thread"], "hidden": told["hidden"]});
        // Another window, elsewhere.
        view.ask("stand", json!({"stream": 1, "at": "end"}));
        told = view.ask("step", with(&place, json!({"stride": stride, "way": way})));
        let stop = debugger.step(step, direction, 0).unwrap();
        assert_eq!(
            told["here"]["position"], stop.here.position,
            "{stride} {way}"
        );
        assert_eq!(
            told["here"]["location"]["line"],
            json!(stop.here.location.line)
        );
    }
    // Instruction by instruction, as the overview shows it at its highest zoom.
    let from = debugger.here().unwrap().position;
    let question = json!({"stream": 1, "from": from, "most": 40});
    let executed = view.ask("executed", question);
    assert_eq!(executed.as_array().unwrap().len(), 40);
    for one in executed.as_array().unwrap() {
        let here = debugger.here().unwrap();
        assert_eq!(one["position"], here.position);
        assert_eq!(one["address"], format!("{:#x}", here.location.address));
        let code = debugger.code(here.location.address, 0, 1).unwrap();
        assert_eq!(one["text"], code[0].text);
        let next = debugger.step(Step::Instruction, Direction::Forward, 0);
        next.unwrap();
    }
    let place = json!({"stream": 1, "at": "start", "way": "forward"});
    let stops = json!({"stops": [{"spot": "outer"}]});
    let told = view.ask("go", with(&place, stops));
    let mut debugger = guest.open();
    debugger
        .add_breakpoint(clew_debugger::Wanted::at(Spot::Function("outer".into())))
        .unwrap();
    let stop = debugger.go(Direction::Forward).unwrap();
    assert_eq!(told["here"]["position"], stop.here.position);
    // None is left behind.
    let told = view.ask("go", with(&place, json!({})));
    assert_eq!(told["reason"], "end");
}

fn values() {
    let guest = Guest::new("shapes.cpp", &["-O0"]);
    let view = View::start(&guest);
    let place = json!({"stream": 1, "at": "end"});
    let told = view.ask("stand", place);
    let frames = told["stack"]["frames"].as_array().unwrap().clone();
    // The last time in main.
    let told = view.ask(
        "run_to",
        json!({"stream": 1, "at": "end", "way": "backward", "spot": "main"}),
    );
    let at = &told["here"]["position"];
    let place = json!({"stream": 1, "at": at, "frame": 0});
    let scopes = view.ask("scopes", place.clone());
    assert!(
        !frames.is_empty()
            && scopes
                .as_array()
                .unwrap()
                .iter()
                .any(|scope| scope["kind"] == "locals"),
        "{scopes}"
    );
    let mut asked = 0;
    for (s, scope) in scopes.as_array().unwrap().iter().enumerate() {
        for (v, node) in scope["variables"]
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
            .take(12)
        {
            if node["children"].as_u64().unwrap() == 0 {
                continue;
            }
            let mut question = place.clone();
            question["root"] = json!({"variable": [s, v]});
            question["path"] = json!([]);
            question["most"] = 3.into();
            let parts = view.ask("children", question.clone());
            for (n, part) in parts.as_array().unwrap().iter().enumerate() {
                question["path"] = json!([n]);
                view.ask("stand", json!({"stream": 1, "at": "start"}));
                let deeper = view.ask("children", question.clone());
                assert!(
                    deeper.as_array().unwrap().len() as u64 <= part["children"].as_u64().unwrap()
                );
                asked += 1;
            }
        }
    }
    assert!(asked > 5, "{scopes}");
    let mut question = place.clone();
    question["expressions"] = json!(["1 + 2", "no_such_thing"]);
    let told = view.ask("evaluate", question);
    assert_eq!(told[0]["value"]["text"], "3");
    assert!(told[1]["error"].as_str().unwrap().contains("no_such_thing"));
    let mut question = place.clone();
    question["before"] = 4.into();
    question["count"] = 10.into();
    let code = view.ask("code", question);
    let all = code["code"].as_array().unwrap();
    assert!(
        all.len() == 10 && all.iter().any(|one| one["address"] == code["address"]),
        "{code}"
    );
    let mut question = place;
    question["address"] = code["address"].clone();
    question["size"] = 16.into();
    let memory = view.ask("memory", question);
    assert_eq!(memory["bytes"].as_array().unwrap().len(), 16);
}

fn notebook() {
    let guest = guest();
    let view = View::start(&guest);
    let first = view.ask("notes", json!({}));
    let note = json!({"at": "3", "text": "<b>here</b>"});
    let told = view.ask(
        "note",
        json!({"version": first["version"], "notes": [note]}),
    );
    assert_eq!(told["notes"][0], note);
    // Another window that hadn't seen it doesn't lose it.
    let late = view.ask("note", json!({"version": first["version"], "notes": []}));
    assert_eq!((&late["late"], &late["notes"][0]), (&json!(true), &note));
    drop(view);
    let view = View::start(&guest);
    assert_eq!(view.ask("notes", json!({}))["notes"][0], note);
    // The recording is as good as before.
    assert_eq!(guest.clew(&["replay", "REC"]).0, 0);
}

fn cancelling() {
    let guest = guest();
    let view = View::start(&guest);
    let many: Vec<String> = (0..150).map(|n| format!("{n}+1")).collect();
    let question =
        json!({"what": "executions", "stream": 1, "spot": "main", "expressions": many, "most": 10});
    let mut told = view.asked("POST", "/api/ask", &question.to_string());
    if let Some(job) = told["job"].as_u64() {
        let path = format!("/api/job/{job}");
        assert!(told["progress"].is_number());
        assert_eq!(view.asked("DELETE", &path, "")["cancelled"], true);
        told = view.asked("GET", &path, "");
        assert!(told["error"].is_string(), "{told}");
    }
    assert_eq!(
        view.asked("DELETE", "/api/job/9999", "")["cancelled"],
        false
    );
    // It goes on.
    view.ask("stand", json!({"stream": 1, "at": "end"}));
}

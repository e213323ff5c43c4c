//! What `clew view` answers: the same as the debugger says of the same recording, to who may ask, and to nobody else.

#[path = "../../debugger/tests/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use clew_debugger::{Direction, Spot, Step};
use common::Guest;
use serde_json::{Value, json};

fn main() {
    common::tests(vec![
        common::test("who_may_ask", who_may_ask),
        common::test("files", files),
        common::test("standing", standing),
        common::test("walks", walks),
        common::test("values", values),
        common::test("whole_lives", whole_lives),
        common::test("counts", counts),
        common::test("overview", overview),
        common::test("analyses", analyses),
        common::test("notebook", notebook),
        common::test("cancelling", cancelling),
        common::test("nonsense", nonsense),
        common::test("hostile", hostile),
        common::test("browser", browser).with_ignored_flag(true),
    ])
}

/// A server, and a client of its own.
struct View {
    child: Child,
    port: u16,
    token: String,
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Response {
    status: u16,
    head: String,
    body: String,
}

impl View {
    fn start(guest: &Guest) -> View {
        View::on(&guest.folder.join("rec"), &guest.folder)
    }

    fn on(recording: &Path, folder: &Path) -> View {
        let mut child = Command::new(common::clew())
            .args(["view", "--no-open"])
            .arg(recording)
            .env("CLEW_DIR", folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let rest = line.trim().strip_prefix("http://127.0.0.1:").unwrap();
        let (port, token) = rest.split_once("/?token=").unwrap();
        View {
            child,
            port: port.parse().unwrap(),
            token: token.into(),
        }
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        stream.write_all(text.as_bytes()).unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        let (head, body) = all.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response {
            status,
            head: head.to_lowercase(),
            body: body.into(),
        }
    }

    fn asked(&self, method: &str, path: &str, body: &str) -> Value {
        let host = format!("127.0.0.1:{}", self.port);
        let headers = [
            ("host", host.as_str()),
            ("x-clew-token", self.token.as_str()),
            ("content-type", "application/json"),
        ];
        let response = self.request(method, path, &headers, body);
        serde_json::from_str(&response.body).unwrap_or_else(|_| panic!("{}", response.body))
    }

    /// The answer, however long it takes; or why there is none.
    fn tries(&self, what: &str, about: Value) -> Result<Value, String> {
        let mut question = about;
        question["what"] = what.into();
        let mut told = self.asked("POST", "/api/ask", &question.to_string());
        while let Some(job) = told["job"].as_u64() {
            told = self.asked("GET", &format!("/api/job/{job}"), "");
        }
        match told["error"].as_str() {
            Some(why) => Err(why.into()),
            None => Ok(told["answer"].take()),
        }
    }

    fn ask(&self, what: &str, about: Value) -> Value {
        self.tries(what, about)
            .unwrap_or_else(|why| panic!("{what}: {why}"))
    }
}

fn guest() -> Guest {
    Guest::new("lines.c", &["-O0"])
}

fn who_may_ask() {
    let guest = guest();
    let view = View::start(&guest);
    let host = format!("127.0.0.1:{}", view.port);
    let local = format!("localhost:{}", view.port);
    let origin = format!("http://{host}");
    let question = r#"{"what": "recording"}"#;
    let of = ("content-type", "application/json");
    let token = ("x-clew-token", view.token.as_str());
    let ask = |headers: &[(&str, &str)]| view.request("POST", "/api/ask", headers, question).status;
    assert_eq!(ask(&[("host", &host), token, of]), 200);
    assert_eq!(ask(&[("host", &local), token, of]), 200);
    assert_eq!(ask(&[("host", &host), ("origin", &origin), token, of]), 200);
    let longer = format!("{}0", view.token);
    let other = view.token.replace(['0', '1', '2', '3'], "f");
    for wrong in ["", "0", &view.token[1..], &longer, &other] {
        assert_eq!(ask(&[("host", &host), ("x-clew-token", wrong), of]), 401);
    }
    assert_eq!(ask(&[("host", &host), of]), 401);
    // A name that is made to mean this machine, and pages of others, though they know the token.
    for wrong in ["evil.example", "127.0.0.1", "127.0.0.1:1", ""] {
        assert_eq!(ask(&[("host", wrong), token, of]), 403, "{wrong}");
    }
    let port = format!("http://evil.example:{}", view.port);
    let secure = format!("https://{host}");
    for wrong in [
        "http://evil.example",
        "null",
        &port,
        &secure,
        "http://127.0.0.1:1",
    ] {
        let headers = [("host", host.as_str()), ("origin", wrong), token, of];
        assert_eq!(ask(&headers), 403, "{wrong}");
    }
    let cross = ("sec-fetch-site", "cross-site");
    assert_eq!(ask(&[("host", &host), cross, token, of]), 403);
    // What a form of another page can send.
    let plain = ("content-type", "text/plain");
    assert_eq!(ask(&[("host", &host), token, plain]), 415);
    for (method, path) in [("GET", "/api/job/1"), ("DELETE", "/api/job/1")] {
        let response = view.request(method, path, &[("host", &host)], "");
        assert_eq!(response.status, 401, "{path}");
    }
    // The page is there without a token, but not for other names, and says nothing of the recording.
    let page = view.request("GET", "/", &[("host", &host), cross], "");
    assert_eq!(page.status, 200);
    assert!(!page.body.contains(&view.token));
    let page = view.request("GET", "/", &[("host", "evil.example")], "");
    assert_eq!(page.status, 403);
    for path in [
        "/../Cargo.toml",
        "/src/http.rs",
        "/%2e%2e/x",
        "/api",
        "/api/ask",
    ] {
        let response = view.request("GET", path, &[("host", &host), token], "");
        assert!(matches!(response.status, 404 | 405), "{path}");
    }
}

/// All that browsers are told to refuse, and that the page itself has nothing that makes markup of text.
fn files() {
    let guest = guest();
    let view = View::start(&guest);
    let host = format!("127.0.0.1:{}", view.port);
    let get = |path: &str| view.request("GET", path, &[("host", &host)], "");
    let page = get("/");
    for path in ["/", "/main.js", "/style.css", "/missing.js"] {
        let head = get(path).head;
        for wanted in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';",
            "require-trusted-types-for 'script'",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cross-origin-opener-policy: same-origin",
            "cache-control: no-store",
        ] {
            assert!(head.contains(wanted), "{path}: {wanted}: {head}");
        }
        assert!(!head.contains("unsafe"), "{head}");
        assert!(!head.contains("access-control"), "{head}");
    }
    let mut names: Vec<String> = vec!["main.js".into(), "style.css".into()];
    let mut seen = 0;
    while seen < names.len() {
        let response = get(&format!("/{}", names[seen]));
        assert_eq!(response.status, 200, "{}", names[seen]);
        for part in response.body.split("from './").skip(1) {
            let name = part.split('\'').next().unwrap().to_string();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        for never in [
            "innerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "srcdoc",
            "javascript:",
            "createContextualFragment",
            "https://",
            "DOMParser",
        ] {
            assert!(!response.body.contains(never), "{}: {never}", names[seen]);
        }
        seen += 1;
    }
    assert!(names.len() > 10, "{names:?}");
    assert!(!page.body.contains("onclick") && !page.body.contains("style="));
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

fn whole_lives() {
    let guest = Guest::new("answers.cpp", &["-O0"]);
    let view = View::start(&guest);
    let mut debugger = guest.open();
    let written = view.ask("output", json!({"stream": 1, "most": 1000}));
    let printed = written.as_array().unwrap().iter();
    let printed = printed.filter(|one| one["to"] == 1);
    let text: String = printed.map(|one| one["text"].as_str().unwrap()).collect();
    assert_eq!(text, guest.output);
    assert_eq!(
        written,
        serde_json::to_value(debugger.output(1000).unwrap()).unwrap()
    );
    let sources = view.ask("sources", json!({"stream": 1}));
    let own = &guest.source;
    assert!(
        sources
            .as_array()
            .unwrap()
            .iter()
            .any(|file| file == own.to_str().unwrap())
    );
    let found = view.ask(
        "calls",
        json!({"stream": 1, "function": "main", "most": 10}),
    );
    assert_eq!(
        found,
        serde_json::to_value(debugger.calls("main", 10).unwrap()).unwrap()
    );
    let events = view.ask(
        "search",
        json!({"stream": 1, "text": "WRITE(", "most": 100}),
    );
    let writes = events["events"].as_array().unwrap();
    assert!(!writes.is_empty());
    for one in writes {
        assert!(
            one["text"]
                .as_str()
                .unwrap()
                .to_lowercase()
                .contains("write("),
            "{one}"
        );
        // It leads to where the call is next.
        let told = view.ask("stand", json!({"stream": 1, "at": one["position"]}));
        assert!(told["here"]["position"].is_string());
    }
    // Calls within main: all functions that it calls, and nothing of the system's libraries.
    let told = view.ask(
        "run_to",
        json!({"stream": 1, "at": "start", "way": "forward", "spot": "main"}),
    );
    let at = &told["here"]["position"];
    let tree = view.ask("tree", json!({"stream": 1, "at": at, "most": 1000}));
    let calls = tree["calls"].as_array().unwrap();
    assert!(!calls.is_empty() && tree["complete"] == true, "{tree}");
    assert_eq!(calls[0]["depth"], 0);
    for name in ["main", "malloc", "printf"] {
        assert!(calls.iter().all(|call| call["function"] != name), "{name}");
    }
    for one in calls.iter().take(20) {
        let told = view.ask("stand", json!({"stream": 1, "at": one["position"]}));
        let within = told["stack"]["frames"]
            .as_array()
            .unwrap()
            .iter()
            .any(|frame| frame["function"] == "main");
        assert!(within, "{one}");
    }
}

/// How often lines were executed, against all stops at each of them.
fn counts() {
    for flags in ["-O0", "-O2"] {
        let guest = Guest::new("lines.c", &[flags, "-DLOOPS=20"]);
        let view = View::start(&guest);
        let file = &guest.source;
        let told = view.ask("coverage", json!({"stream": 1, "file": file}));
        let lines = told.as_array().unwrap();
        assert!(lines.len() > 10, "{told}");
        let mut executed = 0;
        for one in lines {
            let spot = format!("{}:{}", file.display(), one["line"]);
            let question =
                json!({"stream": 1, "spot": spot, "expressions": ["$rip"], "most": 5000});
            let found = view.ask("executions", question);
            let times = found["executions"].as_array().unwrap();
            assert_eq!(found["complete"], true);
            assert_eq!(
                times.len() as u64,
                one["count"].as_u64().unwrap(),
                "{flags} {spot}"
            );
            executed += u32::from(!times.is_empty());
            for (before, after) in times.iter().zip(times.iter().skip(1)) {
                assert_ne!(before["position"], after["position"]);
            }
        }
        assert!(executed > 8, "{told}");
    }
}

fn overview() {
    let guest = guest();
    let view = View::start(&guest);
    let all = view.ask("overview", json!({}));
    assert_eq!(all["lanes"].as_array().unwrap().len(), 1);
    let (from, to) = (all["from"].as_f64().unwrap(), all["to"].as_f64().unwrap());
    assert!(from < to);
    let part = view.ask(
        "lanes",
        json!({"from": from, "to": to, "parts": 100, "first": 0, "last": 5}),
    );
    let lane = &part["lanes"][0];
    let marks = lane["marks"]["each"].as_array().unwrap();
    let calls = guest.clew(&["info", "REC", "--json"]).1;
    let calls: Value = serde_json::from_str(&calls).unwrap();
    let count = calls["summary"]["kinds"]["call"].as_u64().unwrap();
    let told = marks
        .iter()
        .filter(|mark| mark[1].as_u64().unwrap() <= 2)
        .count() as u64;
    assert_eq!(told, count);
    // Each mark leads to the event that it is.
    for mark in marks.iter().step_by(7) {
        let found = view.ask("locate", json!({"lane": 0, "x": mark[0]}));
        let at = found["at"].as_str().unwrap();
        let event: u64 = at.split('+').next().unwrap().parse().unwrap();
        let wanted = mark[3].as_u64().unwrap();
        assert!(
            event < wanted.max(2) && event + 3 > wanted.min(4),
            "{mark} {at}"
        );
        let told = view.ask("stand", json!({"stream": found["stream"], "at": at}));
        let x = view.ask(
            "places",
            json!({"stream": 1, "positions": [told["here"]["position"]]}),
        );
        assert!(x[0].is_number());
    }
    let locate = |x: f64| view.ask("locate", json!({"lane": 0, "x": x}));
    assert_ne!(locate(from)["at"], locate(to)["at"]);
    assert!(view.tries("locate", json!({"lane": 9, "x": 0.0})).is_err());
}

fn analyses() {
    let guest = guest();
    let view = View::start(&guest);
    for (analysis, of) in [
        ("alerts", "alerts"),
        ("races", "races"),
        ("order", "events"),
        ("heap", "places"),
    ] {
        let flags = match analysis {
            "heap" => json!(["--leaks"]),
            _ => json!([]),
        };
        let told = view.ask(
            "analyse",
            json!({"stream": 1, "at": "end", "analysis": analysis, "flags": flags}),
        );
        assert!(told[of].is_array(), "{analysis}: {told}");
    }
    let why = view.tries(
        "analyse",
        json!({"stream": 1, "at": "end", "analysis": "order", "flags": ["--html=/tmp/x"]}),
    );
    assert!(why.unwrap_err().contains("--html"));
    let recordings = view.ask("recordings", json!({}));
    assert!(recordings["recordings"].is_array());
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

fn nonsense() {
    let guest = guest();
    let view = View::start(&guest);
    for body in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"what": "nothing"}"#,
        r#"{"what": "stand"}"#,
        "\u{0}",
    ] {
        let told = view.asked("POST", "/api/ask", body);
        assert!(
            told["error"].as_str().unwrap().contains("no question"),
            "{body:?}: {told}"
        );
    }
    for (what, about) in [
        ("stand", json!({"stream": 99, "at": "end"})),
        ("stand", json!({"stream": 1, "at": "nowhere"})),
        (
            "calls",
            json!({"stream": 1, "function": "no_such", "most": 5}),
        ),
        (
            "executions",
            json!({"stream": 1, "spot": "lines.c:99999", "most": 5}),
        ),
        (
            "executions",
            json!({"stream": 1, "spot": "main", "expressions": ["1 +"], "most": 5}),
        ),
        (
            "memory",
            json!({"stream": 1, "at": "end", "address": "no_such", "size": 5}),
        ),
        (
            "children",
            json!({"stream": 1, "at": "end", "root": {"variable": [9, 9]}, "path": [], "most": 1}),
        ),
        (
            "run_to",
            json!({"stream": 1, "at": "end", "way": "forward", "spot": "main"}),
        ),
        (
            "go",
            json!({"stream": 1, "at": "start", "way": "forward", "stops": [{"spot": "no_such"}]}),
        ),
    ] {
        let why = view.tries(what, about.clone()).unwrap_err();
        assert!(
            !why.is_empty() && !why.contains("panic"),
            "{what} {about}: {why}"
        );
    }
    let part = json!({"from": 5.0, "to": 5.0, "parts": 0, "first": 7, "last": 2});
    assert_eq!(view.ask("lanes", part)["lanes"], json!([]));
    view.ask("stand", json!({"stream": 1, "at": "end"}));
}

/// What it says of itself is markup; it is told as it is, as data, and as nothing else.
const HOSTILE: &str = "<img src=x onerror=alert(1)></script><script>alert(2)</script>";

fn hostile_guest() -> (Guest, std::path::PathBuf) {
    let guest = guest();
    let folder = guest.folder.join("<img src=x onerror=alert(3)>");
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join("<b>bold<b>.c");
    // Without debugging information a function is called as the linker calls it.
    let label = r#"__asm__("\"<script>alert(4)</script>\"")"#;
    let main = format!(
        "void evil(const char *markup) {label};\n\
         int main(int argc, char **argv) {{ evil(argv[1]); return argc - 2; }}\n"
    );
    let evil = format!(
        "#include <stdio.h>\n\
         void evil(const char *markup) {label};\n\
         void evil(const char *markup) {{ puts(markup); fflush(stdout); }}\n"
    );
    std::fs::write(&source, main).unwrap();
    std::fs::write(folder.join("evil.c"), evil).unwrap();
    let compile = |words: &[&str]| {
        let made = Command::new("cc").args(words).current_dir(&folder).status();
        assert!(made.unwrap().success(), "{words:?}");
    };
    compile(&["-c", "evil.c"]);
    compile(&["-g", "-o", "<i>prog", source.to_str().unwrap(), "evil.o"]);
    let program = folder.join("<i>prog");
    let recording = guest.folder.join("hostile");
    let recorded = Command::new(common::clew())
        .args(["record", "-o"])
        .arg(&recording)
        .arg("--")
        .arg(&program)
        .arg(HOSTILE)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(recorded.success());
    (guest, recording)
}

fn hostile() {
    let (guest, recording) = hostile_guest();
    let view = View::on(&recording, &guest.folder);
    let told = view.ask("recording", json!({}));
    assert_eq!(told["streams"][0]["argv"][1], HOSTILE);
    let written = view.ask("output", json!({"stream": 1, "most": 10}));
    assert_eq!(written[0]["text"], format!("{HOSTILE}\n"));
    let told = view.ask("stand", json!({"stream": 1, "at": written[0]["position"]}));
    let frames = told["stack"]["frames"].as_array().unwrap();
    let name = "<script>alert(4)</script>";
    assert!(
        frames.iter().any(|frame| frame["function"] == name),
        "{told}"
    );
    let host = format!("127.0.0.1:{}", view.port);
    let headers = [
        ("host", host.as_str()),
        ("x-clew-token", &view.token),
        ("content-type", "application/json"),
    ];
    let response = view.request("POST", "/api/ask", &headers, r#"{"what": "recording"}"#);
    assert!(
        response.head.contains("content-type: application/json"),
        "{}",
        response.head
    );
    assert!(response.head.contains("nosniff"));
}

/// The same in Chromium, by Playwright; needs npm and chromium.
fn browser() {
    let (guest, recording) = hostile_guest();
    let evil = View::on(&recording, &guest.folder);
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/demo/jobs.c");
    let program = guest.folder.join("jobs");
    let compiled = Command::new("cc")
        .args(["-O2", "-g", "-pthread", "-o"])
        .arg(&program)
        .arg(demo)
        .status()
        .unwrap();
    assert!(compiled.success());
    let hunted = Command::new(common::clew())
        .arg("hunt")
        .arg(&program)
        .env("CLEW_DIR", &guest.folder)
        .current_dir(&guest.folder)
        .output()
        .unwrap();
    assert!(hunted.status.success(), "{hunted:?}");
    let jobs = View::on(&guest.folder.join("jobs-1"), &guest.folder);
    // A million events and more.
    let many = guest.folder.join("many");
    let source = guest.folder.join("many.c");
    let code = "#include <unistd.h>\n#include <sys/syscall.h>\nint main(void) { for (int i = 0; i < 1000000; i++) syscall(SYS_getppid); return 0; }\n";
    std::fs::write(&source, code).unwrap();
    let made = Command::new("cc")
        .args(["-g", "-o"])
        .arg(guest.folder.join("calls"))
        .arg(&source)
        .status()
        .unwrap();
    assert!(made.success());
    let recorded = Command::new(common::clew())
        .args(["record", "-o"])
        .arg(&many)
        .arg("--")
        .arg(guest.folder.join("calls"))
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(recorded.success());
    let long = View::on(&many, &guest.folder);
    let url = |view: &View| format!("http://127.0.0.1:{}/?token={}", view.port, view.token);
    let ran = Command::new("sh")
        .args(["-c", "npm install --silent --no-audit --no-fund playwright-core@1 && cp \"$0\" page.mjs && exec node page.mjs \"$@\""])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser.mjs"))
        .args([url(&jobs), url(&evil), url(&long)])
        .current_dir(&guest.folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}\n{errors}");
}

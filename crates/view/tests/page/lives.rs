//! Questions about whole lives: output, calls, counts, the overview, analyses.

use serde_json::{Value, json};

use crate::client::View;
use crate::common::Guest;
use crate::guest;

pub fn whole_lives() {
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
pub fn counts() {
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

pub fn overview() {
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

pub fn analyses() {
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

/// What went into files and to services, as the guest's source says.
pub fn logged() {
    let guest = Guest::new("logs.c", &["-O0"]);
    let view = View::start(&guest);
    let told = view.ask("logged", json!({"stream": 1, "most": 100}));
    let texts = told.as_array().unwrap().iter();
    let texts: Vec<&str> = texts.map(|one| one["text"].as_str().unwrap()).collect();
    assert_eq!(
        texts,
        [
            "starts\n",
            "two parts\n",
            "<14>to the service",
            "to nobody\n",
            "ends\n"
        ]
    );
}

/// The calls within a recursive one, against the recursion itself: order, depths, arguments, results.
pub fn trees() {
    fn fib(n: u64, depth: u64, made: &mut Vec<(u64, String, String)>) -> u64 {
        let at = made.len();
        made.push((depth, n.to_string(), String::new()));
        let result = match n {
            0 | 1 => n,
            n => fib(n - 1, depth + 1, made) + fib(n - 2, depth + 1, made),
        };
        made[at].2 = result.to_string();
        result
    }
    let guest = guest();
    let view = View::start(&guest);
    let asked = json!({"stream": 1, "at": "start", "way": "forward", "spot": "fib"});
    let told = view.ask("run_to", asked);
    let at = &told["here"]["position"];
    let tree = view.ask("tree", json!({"stream": 1, "at": at, "most": 1000}));
    assert_eq!(tree["complete"], true);
    assert_eq!(tree["function"], "fib");
    let mut expected = Vec::new();
    fib(5, 0, &mut expected);
    fib(4, 0, &mut expected);
    let calls = tree["calls"].as_array().unwrap().iter();
    let found: Vec<(u64, String, String)> = calls
        .map(|call| {
            assert_eq!(call["function"], "fib");
            let text = |value: &Value| value["text"].as_str().unwrap().to_string();
            (
                call["depth"].as_u64().unwrap(),
                text(&call["arguments"][0]),
                text(&call["left"]["value"]),
            )
        })
        .collect();
    assert_eq!(found, expected);
}

/// Two accesses that nothing orders, and no others; what must come before an interaction and what can go on without it, against the
/// edges that are told.
pub fn threads() {
    let guest = Guest::new("racy.c", &["-O0"]);
    let view = View::start(&guest);
    let analyse = |analysis: &str, flags: Value| {
        let asked = json!({"stream": 1, "at": "end", "analysis": analysis, "flags": flags});
        view.ask("analyse", asked)
    };
    let races = analyse("races", json!([]))["races"].clone();
    let races = races.as_array().unwrap();
    assert!(!races.is_empty());
    for race in races {
        let mut lines: Vec<u64> = ["first", "second"]
            .iter()
            .map(|side| race[side]["line"].as_u64().unwrap())
            .collect();
        lines.sort_unstable();
        let expected: [u64; 2] =
            ["// one side", "// other side"].map(|text| guest.line(text).into());
        assert_eq!(lines, expected, "{race}");
    }
    let order = analyse("order", json!([]));
    let events = order["events"].as_array().unwrap();
    let edges: Vec<(usize, usize)> = serde_json::from_value(order["edges"].clone()).unwrap();
    let reached = |from: usize, back: bool| {
        let mut seen = std::collections::BTreeSet::from([from]);
        loop {
            let next = edges.iter().filter_map(|&(a, b)| match back {
                true => seen.contains(&b).then_some(a),
                false => seen.contains(&a).then_some(b),
            });
            let next: Vec<usize> = next.filter(|n| !seen.contains(n)).collect();
            if next.is_empty() {
                return seen;
            }
            seen.extend(next);
        }
    };
    for (n, event) in events.iter().enumerate() {
        let place = format!(
            "{}@{}",
            event["thread"],
            event["position"].as_str().unwrap()
        );
        // Several of a thread may be at one position: the first is meant.
        let same = |other: &Value| {
            ["thread", "position"]
                .iter()
                .all(|of| other[of] == event[of])
        };
        if events.iter().position(same) != Some(n) {
            continue;
        }
        let told = |flag: &str| -> std::collections::BTreeSet<usize> {
            let told = analyse("order", json!([format!("--{flag}={place}")]));
            serde_json::from_value(told["order"].clone()).unwrap()
        };
        assert_eq!(told("minima"), reached(n, true), "{place}");
        let behind = reached(n, false);
        let without: std::collections::BTreeSet<usize> = (0..events.len())
            .filter(|one| *one == n || !behind.contains(one))
            .collect();
        assert_eq!(told("maxima"), without, "{place}");
    }
}

/// An analysis that is a command tells how far it is.
pub fn progress() {
    let guest = Guest::new("lines.c", &["-O0", "-DLOOPS=100000000"]);
    let view = View::start(&guest);
    let question = json!({
        "what": "analyse", "stream": 1, "at": "end", "analysis": "alerts", "flags": [],
    });
    let mut told = view.asked("POST", "/api/ask", &question.to_string());
    let mut most = 0.0_f64;
    while let Some(job) = told["job"].as_u64() {
        most = most.max(told["progress"].as_f64().unwrap());
        told = view.asked("GET", &format!("/api/job/{job}"), "");
    }
    assert!(told["error"].is_null(), "{told}");
    assert!(most > 0.0, "it never told how far it is");
}

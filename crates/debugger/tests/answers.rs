//! Questions about the whole run, against what the program itself has written down of it.

mod common;

use clew_debugger::{Direction, Happening, Left, Spot};
use common::Guest;

fn main() {
    let mut tests = Vec::new();
    for level in ["-O0", "-O2"] {
        tests.push(common::test(format!("calls{level}"), move || calls(level)));
        tests.push(common::test(format!("changes{level}"), move || {
            changes(level)
        }));
        tests.push(common::test(format!("happenings{level}"), move || {
            happenings(level)
        }));
        tests.push(common::test(format!("in parts{level}"), move || {
            in_parts(level)
        }));
    }
    tests.push(common::test("interrupted", interrupted));
    tests.push(common::test("logged", logged));
    common::tests(tests)
}

/// What the guest has written: its log without the rest.
fn log(guest: &Guest) -> Vec<Vec<String>> {
    let lines = guest.output.lines();
    lines
        .map(|line| line.split(' ').map(str::to_string).collect())
        .collect()
}

fn calls(level: &str) {
    let guest = Guest::new("answers.cpp", &[level]);
    let mut debugger = guest.open();
    let calls = debugger.calls("traced", 10_000).unwrap();
    assert!(calls.complete);
    let mut expected = Vec::new();
    for words in log(&guest) {
        match words[0].as_str() {
            "enter" => expected.push((words[2..5].to_vec(), None)),
            "leave" => {
                let id: usize = words[1].parse().unwrap();
                expected[id].1 = Some(words[2].parse::<f64>().unwrap());
            }
            _ => {}
        }
    }
    let mut ours = Vec::new();
    for call in &calls.calls {
        assert_eq!(call.function, "traced");
        let text = |n: usize| call.arguments[n].text.clone();
        // A string is shown with its address.
        let name = text(1);
        let name = name.split('"').nth(1).unwrap_or(&name).to_string();
        let result = match &call.left {
            Left::Returned { value, .. } => value.as_ref().map(|v| v.text.parse::<f64>().unwrap()),
            Left::Unwound => None,
            Left::Never => panic!("{call:?}"),
        };
        ours.push((vec![text(0), name, text(2)], result));
    }
    assert_eq!(ours, expected);
    assert!(ours.len() >= 17, "{}", ours.len());
    let unwound = |call: &&clew_debugger::Call| call.left == Left::Unwound;
    assert_eq!(calls.calls.iter().filter(unwound).count(), 5);
    // Recursion is four deep; the handler's calls are within the one that was interrupted.
    assert_eq!(calls.calls.iter().map(|call| call.depth).max(), Some(3));
    // The line that calls.
    let first = &calls.calls[0].caller;
    assert_eq!(first.function.as_deref(), Some("main"));
    assert_eq!(first.line, Some(guest.line("traced(3, \"recursion\"")));
    // A position leads there, and the arguments are the same.
    let fifth = &calls.calls[5];
    let here = debugger.seek(&fifth.position).unwrap();
    assert_eq!(here.thread, fifth.thread);
    let n = debugger.evaluate(here.thread, 0, "n").unwrap();
    assert_eq!(n.text, fifth.arguments[0].text);
    let Left::Returned { position, .. } = &calls.calls[0].left else {
        panic!("{:?}", calls.calls[0]);
    };
    let back = debugger.seek(position).unwrap();
    assert_eq!(back.location.function.as_deref(), Some("main"));
    // Returned in memory; a loop at the beginning; a copy.
    let wide = debugger.calls("wide", 10).unwrap();
    let Left::Returned { value, .. } = &wide.calls[0].left else {
        panic!("{wide:?}");
    };
    assert_eq!(value.as_ref().unwrap().text, "{a = 5, b = 6, c = 7}");
    let length = debugger.calls("length", 10).unwrap();
    assert_eq!(length.calls.len(), 1);
    let copied = debugger.calls("copied", 10).unwrap();
    assert!(copied.calls.is_empty());
    assert_eq!(copied.inlined.len(), 1, "{:?}", copied.inlined);
    let wrong = debugger.calls("tarced", 10).unwrap_err().to_string();
    assert!(wrong.contains("did you mean traced"), "{wrong}");
    // As many as were asked for.
    let few = debugger.calls("traced", 3).unwrap();
    assert_eq!((few.calls.len(), few.complete), (3, false));
    assert_eq!(few.calls[2].arguments, calls.calls[2].arguments);
}

fn changes(level: &str) {
    let guest = Guest::new("answers.cpp", &[level]);
    let mut debugger = guest.open();
    debugger.seek("end").unwrap();
    let thread = debugger.thread();
    let all = debugger.changes(thread, 0, "watched", 1_000).unwrap();
    assert!(all.complete);
    // To the same value is no change. The loader maps it, which is another one.
    let expected: Vec<(String, String)> = log(&guest)
        .into_iter()
        .filter(|words| words[0] == "set" && words[1] != words[2])
        .map(|words| (words[1].clone(), words[2].clone()))
        .collect();
    let texts = |change: &clew_debugger::Change| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        (text(&change.before), text(&change.after))
    };
    let own: Vec<_> = all
        .changes
        .iter()
        .filter(|change| !change.by_event)
        .collect();
    let ours: Vec<_> = own.iter().map(|change| texts(change)).collect();
    assert_eq!(ours, expected);
    assert_eq!(ours.len(), 5);
    let functions: Vec<&str> = own
        .iter()
        .map(|change| change.location.function.as_deref().unwrap_or(""))
        .collect();
    assert!(
        functions.iter().all(|name| name.starts_with("set")),
        "{functions:?}"
    );
    // The last ones, one after the other.
    for expected in own.iter().rev() {
        let change = debugger
            .last_change(debugger.thread(), 0, "::watched")
            .unwrap();
        let change = change.unwrap();
        assert_eq!(change.position, expected.position);
        assert_eq!(texts(&change), texts(expected));
    }
    assert!(debugger.changes(thread, 0, "watched + 1", 10).is_err());
    assert!(debugger.changes(thread, 0, "wathced", 10).is_err());
    // A variable of a call: only while that lasts.
    if level == "-O0" {
        let spot = Spot::Line {
            file: "answers.cpp".into(),
            line: guest.line("while (*text++)"),
        };
        debugger.seek("start").unwrap();
        debugger.run_to(Direction::Forward, &spot).unwrap();
        let thread = debugger.thread();
        let n = debugger.changes(thread, 0, "n", 100).unwrap();
        assert_eq!(n.function.as_deref(), Some("length"));
        let values: Vec<String> = n.changes.iter().map(|change| texts(change).1).collect();
        let end = values.len() - 5;
        assert_eq!(values[end..], ["1", "2", "3", "4", "5"]);
    }
}

fn happenings(level: &str) {
    let guest = Guest::new("answers.cpp", &[level]);
    let mut debugger = guest.open();
    let written = debugger.output(1_000).unwrap();
    let to = |stream: u8| -> String {
        let of = written.iter().filter(|one| one.to == stream);
        of.map(|one| one.text.as_str()).collect()
    };
    assert!(written.iter().all(|one| one.whole));
    assert_eq!(to(1), guest.output);
    assert_eq!(to(2), "to stderr\n");
    // Its position leads into the call.
    let error = written.iter().find(|one| one.to == 2).unwrap();
    debugger.seek(&error.position).unwrap();
    let stack = debugger.stack(error.thread).unwrap();
    let main = stack
        .frames
        .iter()
        .find(|frame| frame.location.function.as_deref() == Some("main"));
    let line = main.unwrap().location.line;
    assert_eq!(line, Some(guest.line("fprintf(stderr")));
    let all = debugger.happenings().unwrap();
    let count = |wanted: fn(&Happening) -> bool| all.iter().filter(|one| wanted(one)).count();
    assert_eq!(
        count(|one| matches!(one, Happening::ThreadBegins { .. })),
        1
    );
    assert_eq!(count(|one| matches!(one, Happening::ThreadEnds { .. })), 1);
    assert_eq!(
        count(|one| matches!(one, Happening::Signal { signo: 10, .. })),
        1
    );
    let thrown = |one: &Happening| matches!(one, Happening::Exception { of, .. } if of.as_deref() == Some("std::runtime_error"));
    assert_eq!(count(thrown), 3, "{all:?}");
    let libraries = debugger.libraries().unwrap();
    let loaded = |name: &str| {
        let named = |one: &&clew_debugger::Loaded| one.name.contains(name) && one.loaded;
        libraries.iter().filter(named).count()
    };
    assert_eq!(
        (loaded("libc.so"), loaded("libstdc++"), loaded("guest")),
        (1, 1, 1),
        "{libraries:?}"
    );
}

/// Texts in files and to services, with the names that they had when they were opened, and where the program wrote them.
fn logged() {
    let guest = Guest::new("logs.c", &["-O0"]);
    let mut debugger = guest.open();
    let here = debugger.here().unwrap();
    let all = debugger.logged(100).unwrap();
    assert_eq!(debugger.here().unwrap(), here);
    let told: Vec<(&str, &str)> = all
        .iter()
        .map(|one| (one.file.rsplit('/').next().unwrap(), one.text.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("app.log", "starts\n"),
            ("app.log", "two parts\n"),
            ("log", "<14>to the service"),
            ("zero", "to nobody\n"),
            ("app.log", "ends\n"),
        ]
    );
    assert!(all[0].file.starts_with("/tmp/clew-logs-"), "{all:?}");
    // Each position is in the call that wrote it.
    let lines = [
        "note(file, \"starts",
        "writev(copy",
        "send(sends",
        "note(copy",
        "note(file, \"ends",
    ];
    for (one, text) in all.iter().zip(lines) {
        debugger.seek(&one.position).unwrap();
        let stack = debugger.stack(one.thread).unwrap();
        let main = stack
            .frames
            .iter()
            .find(|frame| frame.location.function.as_deref() == Some("main"));
        assert_eq!(
            main.unwrap().location.line,
            Some(guest.line(text)),
            "{one:?}"
        );
    }
    assert_eq!(debugger.logged(2).unwrap().len(), 2);
}

/// Whoever looks at a long way in parts, several at once, sees the same as one who goes all the way.
fn in_parts(level: &str) {
    let guest = Guest::new("answers.cpp", &[level]);
    let mut alone = guest.open_with(Some(1), None);
    alone.seek("end").unwrap();
    let thread = alone.thread();
    for stretch in [400, 3_000, 50_000] {
        let mut parts = guest.open_with(Some(3), Some(stretch));
        for name in ["traced", "wide", "main", "malloc", "_dl_relocate_object"] {
            for most in [1, 3, 4, 9, 10_000] {
                let expected = alone.calls(name, most);
                let found = parts.calls(name, most);
                match (expected, found) {
                    (Ok(expected), Ok(found)) => {
                        assert_eq!(found, expected, "{name} {most} {stretch}");
                    }
                    // Not every libc has it.
                    (Err(_), Err(_)) => {}
                    (expected, found) => panic!("{name}: {expected:?} {found:?}"),
                }
            }
        }
        parts.seek("end").unwrap();
        for most in [1, 2, 1_000] {
            let expected = alone.changes(thread, 0, "watched", most).unwrap();
            let found = parts.changes(thread, 0, "watched", most).unwrap();
            assert_eq!(found, expected, "{most} {stretch}");
        }
    }
}

/// What was found until somebody interrupted is told, and that it isn't all.
fn interrupted() {
    let guest = Guest::new("answers.cpp", &["-O0"]);
    let mut debugger = guest.open_with(Some(2), Some(2_000));
    let all = debugger.calls("traced", 10_000).unwrap();
    assert!(all.complete && !all.interrupted);
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    debugger.set_watcher(Box::new(move |_| {
        let before = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        before == 0
    }));
    let some = debugger.calls("traced", 10_000).unwrap();
    assert!(!some.complete && some.interrupted);
    assert!(some.calls.len() < all.calls.len());
}

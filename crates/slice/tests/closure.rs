//! Slices of guests whose lines say what belongs to them: `// in` must be there, `// out` must not, `// ask EXPR` is where
//! the question is asked, `// moved` is a line that only moves the value. Without a question it is why the program failed.

#[path = "../../timeline/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use clew_recording::reader::Recording;
use clew_slice::closure::{Bounds, Kinds, Question, Slice, slice};
use clew_slice::failure::what_failed;
use clew_slice::origin::Value;
use clew_timeline::program::Program;
use clew_timeline::{Target, Timeline};
use common::{open, record_any};

fn main() {
    let mut all = Vec::new();
    for (name, arguments) in [
        ("racy", &[][..]),
        ("switch", &["2"]),
        ("pair", &["5"]),
        ("loops", &["9"]),
        ("jumps", &["2"]),
        ("throws", &["5"]),
        ("generated", &["5"]),
    ] {
        for level in ["-O0", "-O1", "-O2"] {
            let test = format!("{name} {level}");
            all.push(common::test(Box::leak(test.into_boxed_str()), move || {
                lines(name, level, arguments);
                common::no_children();
            }));
        }
    }
    all.push(common::test("generated code has members", || {
        generated();
        common::no_children();
    }));
    all.push(common::test("from, addresses, moves, pairs", || {
        fewer_and_more();
        common::no_children();
    }));
    common::tests(all)
}

fn source(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/slices");
    let file = folder.join(format!("{name}.cc"));
    match file.exists() {
        true => file,
        false => folder.join(format!("{name}.c")),
    }
}

fn record(name: &str, level: &str, arguments: &[&str]) -> PathBuf {
    let program = std::env::temp_dir().join(format!("{name}{level}-{}", std::process::id()));
    let built = Command::new("cc")
        .args([level, "-g", "-pthread", "-o"])
        .args([&program, &source(name)])
        .args(
            source(name)
                .extension()
                .filter(|kind| *kind == "cc")
                .map(|_| "-lstdc++"),
        )
        .status();
    assert!(built.unwrap().success());
    let mut line = vec![program.to_str().unwrap()];
    line.extend(arguments);
    record_any(&[], &line).0
}

/// The slice of what a guest asks, and the lines of its source in it.
fn asked(
    timeline: &mut Timeline,
    folder: &Path,
    name: &str,
    kinds: Kinds,
    bounds: Bounds,
) -> (Slice, BTreeSet<u32>) {
    let recording = Recording::open(folder).unwrap();
    let mut program = Program::new(&recording);
    let text = std::fs::read_to_string(source(name)).unwrap();
    let asked = text.lines().find_map(|line| line.split_once("// ask "));
    timeline.seek(Target::End).unwrap();
    let question = match asked {
        Some((_, what)) => {
            let answer = program.evaluate(timeline, what, &mut Default::default(), 1000);
            let (addr, len) = answer.unwrap().value.unwrap().memory.unwrap();
            Question {
                values: vec![Value::Memory { addr, len }],
                here: false,
            }
        }
        None => {
            what_failed(timeline, &mut program, &recording)
                .unwrap()
                .unwrap()
                .question
        }
    };
    let log = recording.stream(timeline.stream()).unwrap();
    let modules = program.modules(timeline).unwrap();
    let found = slice(timeline, log, modules.clone(), &question, kinds, bounds).unwrap();
    let file = source(name);
    let line_of = |pc: &u64| {
        let image = modules.find(*pc)?;
        let line = image.module.line_at(image.local(*pc)).ok()??;
        (Path::new(&*line.file).file_name() == file.file_name()).then_some(line.line)
    };
    let lines = found.code.keys().filter_map(line_of).collect();
    (found, lines)
}

fn lines(name: &str, level: &str, arguments: &[&str]) {
    let folder = record(name, level, arguments);
    let mut timeline = open(&folder);
    let (slice, lines) = asked(
        &mut timeline,
        &folder,
        name,
        Kinds::default(),
        Bounds::default(),
    );
    let text = std::fs::read_to_string(source(name)).unwrap();
    let (mut missing, mut more) = (Vec::new(), Vec::new());
    for (n, line) in (1..).zip(text.lines()) {
        // Optimised code has other lines than the source: what isn't there at all can't be in a slice.
        let there = lines.contains(&n);
        if line.ends_with("// in") && !there && level == "-O0" {
            missing.push(format!("{n}: {line}"));
        }
        if line.ends_with("// out") && there {
            more.push(format!("{n}: {line}"));
        }
    }
    println!("{} members, lines {lines:?}", slice.count);
    assert!(slice.complete);
    assert!(missing.is_empty(), "missing: {missing:#?}");
    assert!(more.is_empty(), "too many: {more:#?}");
}

/// What no file has: the multiplication and the branch before it.
fn generated() {
    let folder = record("generated", "-O0", &["5"]);
    let mut timeline = open(&folder);
    let (kinds, bounds) = (Kinds::default(), Bounds::default());
    let (slice, _) = asked(&mut timeline, &folder, "generated", kinds, bounds);
    let recording = Recording::open(&folder).unwrap();
    let modules = Program::new(&recording).modules(&mut timeline).unwrap();
    let made = slice
        .code
        .iter()
        .filter(|(pc, _)| modules.find(**pc).is_none());
    let made: Vec<String> = made.map(|(_, code)| code.ins.to_string()).collect();
    let has = |start: &str| made.iter().any(|text| text.starts_with(start));
    assert!(has("imul") && has("jle") && has("cmp"), "{made:?}");
    assert!(!has("lea"), "{made:?}");
}

/// Kinds and bounds that make a slice larger or smaller, each as it should.
fn fewer_and_more() {
    let folder = record("pair", "-O2", &["5"]);
    let mut timeline = open(&folder);
    let mut ask = |kinds, bounds| asked(&mut timeline, &folder, "pair", kinds, bounds).0;
    let (kinds, bounds) = (Kinds::default(), Bounds::default());
    let plain = ask(kinds, bounds);
    let pcs = |slice: &Slice| -> BTreeSet<u64> { slice.code.keys().copied().collect() };
    // A slice with more dependences has all members of one with fewer.
    for more in [
        Kinds {
            addresses: true,
            ..kinds
        },
        Kinds {
            moves: true,
            ..kinds
        },
        Kinds {
            pairs: false,
            ..kinds
        },
        Kinds {
            libraries: true,
            ..kinds
        },
    ] {
        let found = ask(more, bounds);
        assert!(found.count >= plain.count, "{more:?}");
        assert!(pcs(&found).is_superset(&pcs(&plain)), "{more:?}");
    }
    let values = Kinds {
        control: false,
        ..kinds
    };
    assert!(pcs(&plain).is_superset(&pcs(&ask(values, bounds))));
    // What lies before a position isn't looked at, all else is the same.
    let from = plain.members[plain.members.len() / 2].position;
    let bounds = Bounds {
        from: Some(from),
        ..bounds
    };
    let near = ask(kinds, bounds);
    let expected = plain
        .members
        .iter()
        .filter(|member| member.position >= from);
    let expected: Vec<_> = expected.map(|member| member.position).collect();
    let found: Vec<_> = near.members.iter().map(|member| member.position).collect();
    assert_eq!(found, expected);
    assert!(near.instructions < plain.instructions);
}

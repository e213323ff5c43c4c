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
    ] {
        for level in ["-O0", "-O1", "-O2"] {
            let test = format!("{name} {level}");
            all.push(common::test(Box::leak(test.into_boxed_str()), move || {
                lines(name, level, arguments);
                common::no_children();
            }));
        }
    }
    common::tests(all)
}

fn source(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/slices");
    folder.join(format!("{name}.c"))
}

fn record(name: &str, level: &str, arguments: &[&str]) -> PathBuf {
    let program = std::env::temp_dir().join(format!("{name}{level}-{}", std::process::id()));
    let built = Command::new("cc")
        .args([level, "-g", "-pthread", "-o"])
        .args([&program, &source(name)])
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
    let found = slice(
        timeline,
        log,
        modules.clone(),
        &question,
        kinds,
        Bounds::default(),
    )
    .unwrap();
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
    let (slice, lines) = asked(&mut timeline, &folder, name, Kinds::default());
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

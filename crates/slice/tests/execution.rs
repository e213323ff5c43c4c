//! Execution slices: what is executed in them is what was executed, at each place that they have: all threads' registers and all
//! memory are compared, by replays that know nothing of traces. What is left out isn't executed; the rest replays to its end.

#[path = "../../timeline/tests/common/mod.rs"]
mod common;

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clew_recording::reader::Recording;
use clew_slice::closure::{Bounds, Kinds, Question, slice};
use clew_slice::events::Events;
use clew_slice::execution::{self, Leaps};
use clew_slice::failure::what_failed;
use clew_slice::gaps::{Wanted, gaps};
use clew_slice::origin::Value;
use clew_slice::walk::{Executed, Go, Intervals, Place, Run, Visitor, back};
use clew_timeline::program::Program;
use clew_timeline::{Position, Target, Timeline};
use common::{Random, clew, open, record_any, state};

const PLACES: u64 = 40;

fn main() {
    let seed = std::env::var("CLEW_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(std::process::id() as u64 * 7919);
    let mut all = Vec::new();
    for (name, arguments) in [
        ("racy", &[][..]),
        ("loops", &["9"]),
        ("throws", &["5"]),
        ("generated", &["5"]),
    ] {
        all.push(common::test(format!("the slice of {name}"), move || {
            println!("CLEW_SEED={seed} looks at the same places");
            let source = source(name);
            let mut line = vec![built(name, &source)];
            line.extend(arguments.iter().map(|word| word.to_string()));
            let line: Vec<&str> = line.iter().map(String::as_str).collect();
            let text = std::fs::read_to_string(source).unwrap();
            compare(&record_any(&[], &line).0, Some(&text), 1, seed);
            let _ = std::fs::remove_file(line[0]);
            common::no_children();
        }));
    }
    let program = |name: &'static str, shortest, line: &'static [&'static str]| {
        common::test(format!("some of {name}"), move || {
            println!("CLEW_SEED={seed} keeps and looks at the same places");
            compare(&record_any(&[], line).0, None, shortest, seed);
            common::no_children();
        })
    };
    all.push(program("sort", 1, &["/usr/bin/sort", "/etc/passwd"]));
    all.push(program(
        "bash",
        300,
        &[
            "/bin/bash",
            "-c",
            "for i in 1 2 3; do : $(date) & kill -0 $!; done; wait",
        ],
    ));
    common::tests(all)
}

fn source(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/slices");
    let cc = folder.join(format!("{name}.cc"));
    match cc.exists() {
        true => cc,
        false => folder.join(format!("{name}.c")),
    }
}

fn built(name: &str, source: &Path) -> String {
    let program = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    let built = Command::new("cc")
        .args(["-O1", "-g", "-pthread", "-o"])
        .args([program.as_path(), source])
        .arg("-lstdc++")
        .status();
    assert!(built.unwrap().success());
    program.into_os_string().into_string().unwrap()
}

/// Which instructions are kept: those of the slice for what a guest's text asks (`// ask EXPR`), or for its failure; or any.
fn kept(
    text: Option<&str>,
    timeline: &mut Timeline,
    recording: &Recording,
    random: &mut Random,
) -> Vec<Position> {
    timeline.seek(Target::End).unwrap();
    match text {
        Some(text) => {
            let mut program = Program::new(recording);
            let asked = text.lines().find_map(|line| line.split_once("// ask "));
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
                    let failed = what_failed(timeline, &mut program, recording).unwrap();
                    failed.unwrap().question
                }
            };
            let log = recording.stream(timeline.stream()).unwrap();
            let modules = program.modules(timeline).unwrap();
            let kinds = Kinds {
                moves: true,
                ..Kinds::default()
            };
            let found = slice(timeline, log, modules, &question, kinds, Bounds::default());
            found
                .unwrap()
                .members
                .iter()
                .map(|one| one.position)
                .collect()
        }
        None => {
            // A few here and there, of all that a stretch in the midst has.
            let end = timeline.position().unwrap();
            let log = recording.stream(timeline.stream()).unwrap();
            let events = Events::read(log).unwrap();
            let from = Position::after(end.event / 3);
            let from = match timeline.seek(Target::Position(from)) {
                Ok(_) => timeline.position().unwrap(),
                Err(_) => timeline.start(),
            };
            let to = Position::after(from.event + (end.event - from.event) / 10);
            let trace = timeline.trace(from, to).unwrap();
            let (mut all, mut intervals) = (All::default(), Intervals::default());
            back(&trace, &mut intervals, &|n| events.ticks(n), &mut all).unwrap();
            let places = all.0.iter().filter(|_| random.below(20) == 0).take(2_000);
            places
                .map(|place| intervals.position(*place).unwrap())
                .collect()
        }
    }
}

#[derive(Default)]
struct All(Vec<Place>);

impl Visitor for All {
    fn run(&mut self, run: &Run<'_>) -> clew_slice::Result<Go> {
        self.0.extend((0..run.len()).rev().map(|n| run.place(n)));
        Ok(Go::On)
    }

    fn step(&mut self, executed: &Executed<'_>) -> clew_slice::Result<Go> {
        let place = executed.place.place();
        if !place.is_part() {
            self.0.push(place);
        }
        Ok(Go::On)
    }

    fn event(&mut self, _: u64, _: u64, _: u64) -> clew_slice::Result<Go> {
        Ok(Go::On)
    }
}

/// Everything of a recording but its log.
fn copied(folder: &Path) -> PathBuf {
    let copy = folder.with_extension("slice");
    let _ = std::fs::remove_dir_all(&copy);
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700).recursive(true);
    builder.create(copy.join("files")).unwrap();
    for name in ["meta.json", "files"] {
        let from = folder.join(name);
        match from.is_dir() {
            true => {
                for entry in from.read_dir().unwrap() {
                    let entry = entry.unwrap();
                    std::fs::copy(entry.path(), copy.join(name).join(entry.file_name())).unwrap();
                }
            }
            false => drop(std::fs::copy(&from, copy.join(name)).unwrap()),
        }
    }
    copy
}

fn compare(folder: &Path, text: Option<&str>, shortest: u64, seed: u64) {
    let random = &mut Random(seed | 1);
    let recording = Recording::open(folder).unwrap();
    let mut old = open(folder);
    let mut positions = kept(text, &mut old, &recording, random);
    positions.sort_unstable();
    assert!(!positions.is_empty());
    let events = Events::read(recording.stream(old.stream()).unwrap()).unwrap();
    let wanted = Wanted {
        shortest,
        most: 1 << 20,
        from: Position::after(0),
    };
    let (found, instructions) = gaps(&mut old, &events, &positions, wanted).unwrap();
    let copy = copied(folder);
    let written = execution::write(&mut old, &recording, &found, &copy.join("log"), &mut |_| {});
    let leaps: Leaps = written.unwrap();
    println!(
        "{instructions} instructions, {} kept, {} left out by {} leaps",
        positions.len(),
        leaps.left_out,
        leaps.count()
    );
    assert!(leaps.left_out > 0 && leaps.count() > 0);

    // At places that are still there, all is the same.
    let mut new = open(&copy);
    for _ in 0..PLACES {
        let at = positions[random.below(positions.len() as u64) as usize];
        let there = leaps
            .moved(at)
            .unwrap_or_else(|| panic!("{at} is left out"));
        old.seek(Target::Position(at)).unwrap();
        new.seek(Target::Position(there)).unwrap();
        assert_eq!(new.position().unwrap(), there, "for {at}");
        assert!(
            state(&mut old) == state(&mut new),
            "different at {at}, now {there}"
        );
    }
    // What a replay of it executes is all but what is left out.
    let less = Recording::open(&copy).unwrap();
    let events = Events::read(less.stream(new.stream()).unwrap()).unwrap();
    let (_, executed) = gaps(&mut new, &events, &[], wanted).unwrap();
    assert_eq!(executed, instructions - leaps.left_out);

    // To the end, all processes, with all checksums: as the first one.
    let replay = |folder: &Path| {
        let replay = Command::new(clew())
            .args(["replay", "--verify"])
            .arg(folder)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&replay.stderr).into_owned();
        (replay.status.code(), replay.stdout, text)
    };
    let (first, second) = (replay(folder), replay(&copy));
    assert_eq!(first.0, second.0, "{}", second.2);
    assert_eq!(first.1, second.1, "{}", second.2);
    for folder in [folder, &copy] {
        let _ = std::fs::remove_dir_all(folder);
    }
}

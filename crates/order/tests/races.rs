//! Races: small programs whose answers are known, the same from ThreadSanitizer on the same sources, and programs with a
//! planted race.
//!
//! A guest's second line says what races: names of variables, `heap`, `stack`, or `none`.

#[path = "common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Random, ask, build, compile, guest, record, test, tests};
use serde_json::Value;

/// ThreadSanitizer doesn't see what the compiler makes of a short `memset`.
const UNSEEN_BY_OTHERS: &[&str] = &["overlap"];
/// One run may hide a race from it.
const RUNS: usize = 10;

fn main() {
    let mut trials: Vec<_> = sources()
        .into_iter()
        .map(|source| {
            let name = source.file_stem().unwrap().to_str().unwrap().to_string();
            test(format!("guest {name}"), move || known(&source))
        })
        .collect();
    trials.push(test("the figure's program", || {
        let folder = record(&guest("figure2", &[]), &[], Some("5\n"));
        assert_eq!(found(&folder, &[], 0), BTreeSet::new());
    }));
    trials.push(test("known ones are left out", suppressed));
    trials.push(test("positions and stacks", positions));
    trials.push(test("a planted race is named", planted));
    trials.push(test("atomics on the heap", heap_atomics));
    trials.push(test("hunted for", || {
        let program = guest("unlocked", &[]);
        let words = ["hunt", "--fail-if", "race", "--runs", "2", "--"];
        let told = ask(&[&words[..], &[program.to_str().unwrap()]].concat(), 0);
        assert!(told.contains("race on shared: unlocked.c:"), "{told}");
    }));
    trials.push(test("the same as ThreadSanitizer", sanitizer));
    tests(trials)
}

fn sources() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/races");
    let files = std::fs::read_dir(folder).unwrap();
    let mut all: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    all.sort();
    all
}

/// What a guest says that races.
fn said(source: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(source).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("// races: "));
    let words = line.expect("what races").split(' ').map(String::from);
    words.filter(|word| word != "none").collect()
}

fn all_of(folder: &Path, more: &[&str], status: i32) -> Vec<Value> {
    let mut words = vec!["races", folder.to_str().unwrap(), "--json"];
    words.extend(more);
    let value: Value = serde_json::from_str(&ask(&words, status)).unwrap();
    assert_eq!(value["complete"], true);
    value["races"].as_array().unwrap().clone()
}

/// The variables that `clew races` tells of.
fn found(folder: &Path, more: &[&str], status: i32) -> BTreeSet<String> {
    let all = all_of(folder, more, status);
    let name = |race: &Value| match (race["variable"].as_str(), race["block"].is_object()) {
        (Some(name), _) => name.split('[').next().unwrap().to_string(),
        (None, true) => "heap".into(),
        (None, false) => "stack".into(),
    };
    all.iter().map(name).collect()
}

fn known(source: &Path) {
    let name = source.file_stem().unwrap().to_str().unwrap();
    let program = compile(source, name, &[]);
    let said = said(source);
    let status = i32::from(!said.is_empty());
    // What races is told whatever the schedule is.
    let schedules = [
        &["--sched", "fair"][..],
        &["--sched", "random", "--seed", "7"],
    ];
    let most = if said.is_empty() { 1 } else { schedules.len() };
    for options in &schedules[..most] {
        let folder = record(&program, options, None);
        let found = found(&folder, &[], status);
        // What hangs on a wrong pointer races, too.
        let more = found.difference(&said).filter(|name| *name != "heap");
        assert_eq!(more.collect::<Vec<_>>(), Vec::<&String>::new(), "{found:?}");
        assert!(said.is_subset(&found), "{said:?} but found {found:?}");
    }
}

fn suppressed() {
    let source = sources()
        .into_iter()
        .find(|path| path.ends_with("publish.c"))
        .unwrap();
    let folder = record(&compile(&source, "suppressed", &[]), &[], None);
    let name = folder.to_str().unwrap();
    let file = folder.with_extension("supp");
    std::fs::write(&file, "# known\nrace:^ready$\n").unwrap();
    let file_name = file.to_str().unwrap();
    let left = found(&folder, &["--suppressions", file_name], 1);
    assert_eq!(left, BTreeSet::from(["data".to_string()]));
    let all = all_of(&folder, &["--suppressions", file_name, "--all"], 1);
    let hidden: Vec<&str> = all
        .iter()
        .filter_map(|race| race["hidden"].as_str())
        .collect();
    assert!(hidden.contains(&"suppressed by race:^ready$"), "{hidden:?}");
    std::fs::write(&file, "race:first\n").unwrap();
    ask(&["races", name, "--suppressions", file_name], 0);
    std::fs::write(&file, "nonsense\n").unwrap();
    ask(&["races", name, "--suppressions", file_name], 2);
    ask(&["races", name, "--suppressions", "/nowhere"], 2);
}

/// Each side can be looked at: the debugger stands there before the access, in that thread and line.
fn positions() {
    let source = sources()
        .into_iter()
        .find(|path| path.ends_with("two_locks.c"))
        .unwrap();
    let folder = record(&compile(&source, "positions", &[]), &[], None);
    let all = all_of(&folder, &[], 1);
    assert_eq!(all.len(), 1, "{all:#?}");
    let race = &all[0];
    assert_eq!(
        (&race["variable"], &race["bytes"]),
        (&"total".into(), &8.into())
    );
    let text = std::fs::read_to_string(&source).unwrap();
    for (side, function, lock) in [("first", "first", "a"), ("second", "second", "b")] {
        let side = match race[side]["function"] == function {
            true => &race[side],
            // The schedule has the other one first.
            false => &race[if side == "first" { "second" } else { "first" }],
        };
        let line = text
            .lines()
            .position(|line| line.contains(&format!("*{function}(")))
            .unwrap();
        assert_eq!(side["line"], line + 1);
        assert_eq!(side["locks"], serde_json::json!([lock]));
        assert_eq!(side["stack"][0]["function"], function);
        // The instruction there touches the variable.
        let position = side["position"].as_str().unwrap();
        let address = race["address"].as_str().unwrap();
        let what = format!("*{address}:8");
        let origin = ask(
            &[
                "origin",
                folder.to_str().unwrap(),
                &what,
                "--at",
                position,
                "--json",
            ],
            0,
        );
        assert!(origin.contains("ending"));
    }
    assert!(
        race["missing"]
            .as_str()
            .unwrap()
            .contains("thread 1 holds a, thread 2 holds b")
    );
}

/// Programs whose threads share many variables, each with its lock; in one place the lock is left out.
fn planted() {
    let mut random = Random(u64::from(std::process::id()) | 1);
    for round in 0..3 {
        let (threads, variables) = (2 + random.below(3), 2 + random.below(5));
        let (culprit, victim) = (1 + random.below(threads), random.below(variables));
        let mut text = String::from("#include <pthread.h>\n");
        for n in 0..variables {
            text += &format!("long v{n}; pthread_mutex_t l{n} = PTHREAD_MUTEX_INITIALIZER;\n");
        }
        for thread in 1..=threads {
            text += &format!("void *body{thread}(void *_) {{\n");
            for n in 0..variables {
                let times = 1 + random.below(5);
                text += &match (thread, n) == (culprit, victim) {
                    true => format!("  for (int i = 0; i < {times}; i++) v{n} += {thread};\n"),
                    false => format!(
                        "  for (int i = 0; i < {times}; i++) {{ pthread_mutex_lock(&l{n}); v{n} += {thread}; pthread_mutex_unlock(&l{n}); }}\n"
                    ),
                };
            }
            text += "  return 0;\n}\n";
        }
        text += "int main(void) {\n  pthread_t t[8];\n";
        for thread in 1..=threads {
            text += &format!("  pthread_create(&t[{thread}], 0, body{thread}, 0);\n");
        }
        for thread in 1..=threads {
            text += &format!("  pthread_join(t[{thread}], 0);\n");
        }
        text += "  return 0;\n}\n";
        let program = build(&format!("planted-{round}"), &text, &[]);
        let folder = record(&program, &[], None);
        // Everybody takes the locks in the same order, so that no other lock can order what this one should have.
        let all = all_of(&folder, &[], 1);
        for race in &all {
            assert_eq!(race["variable"], format!("v{victim}"), "{text}");
            let functions = [&race["first"]["function"], &race["second"]["function"]];
            assert!(
                functions.contains(&&Value::from(format!("body{culprit}"))),
                "{text}"
            );
        }
    }
}

/// A flag on the heap that is stored with release and loaded with acquire: ordinary instructions, and only the program's debugging information
/// says what they are.
fn heap_atomics() {
    let text = "#include <atomic>\n#include <pthread.h>\n\
        struct Box { long data; std::atomic<int> ready; };\n\
        static void *gives(void *it) { Box *box = (Box *)it; box->data = 5; box->ready.store(1, std::memory_order_release); return 0; }\n\
        static void *takes(void *it) { Box *box = (Box *)it; while (!box->ready.load(std::memory_order_acquire)); box->data++; return 0; }\n\
        int main() { Box *box = new Box(); pthread_t t[2]; pthread_create(&t[0], 0, gives, box); pthread_create(&t[1], 0, takes, box);\n\
        pthread_join(t[0], 0); pthread_join(t[1], 0); return box->data != 6; }\n";
    let source = std::env::temp_dir().join(format!("clew-heap-atomics-{}.cpp", std::process::id()));
    std::fs::write(&source, text).unwrap();
    let program = compile(&source, "heap-atomics", &["-lstdc++"]);
    let _ = std::fs::remove_file(&source);
    let folder = record(&program, &[], None);
    assert!(all_of(&folder, &[], 0).is_empty());
}

/// The same sources, compiled for ThreadSanitizer, run natively.
fn sanitizer() {
    let flags = ["-fsanitize=thread"];
    for source in sources() {
        let name = source.file_stem().unwrap().to_str().unwrap();
        let program = compile(&source, &format!("{name}-tsan"), &flags);
        // It wants addresses where it knows them.
        let run = || {
            Command::new("setarch")
                .arg("-R")
                .arg(&program)
                .output()
                .unwrap()
        };
        let tells =
            |text: &[u8]| String::from_utf8_lossy(text).contains("WARNING: ThreadSanitizer");
        let mut runs = (0..RUNS).map(|_| run());
        let first = runs.next().unwrap();
        let text = String::from_utf8_lossy(&first.stderr);
        if text.contains("unexpected memory mapping") {
            println!("ThreadSanitizer doesn't start here: {text}");
            return;
        }
        let expected = !said(&source).is_empty() && !UNSEEN_BY_OTHERS.contains(&name);
        let told = tells(&first.stderr) || expected && runs.any(|run| tells(&run.stderr));
        assert_eq!(told, expected, "{name}: {text}");
    }
}

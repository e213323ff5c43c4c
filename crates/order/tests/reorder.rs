//! Runs in another order: the paper's figures, event for event, and generated programs under Replay Minima, Replay Maxima and
//! random orders. Each new recording must replay to its end, with the same edges; a race must be named.
//!
//! `CLEW_SEED=N` generates the same programs, `CLEW_PROGRAMS=N` more of them; `-- --ignored` runs a thousand.

#[path = "common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use common::{Random, ask, build, generate, guest, record, test, tests};
use serde_json::Value;

fn main() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("CLEW_SEED").unwrap_or(u64::from(std::process::id()) * 7919 + 1);
    let programs = number("CLEW_PROGRAMS").unwrap_or(2);
    let all = move |programs: u64| {
        println!("CLEW_SEED={seed} generates the same");
        (0..programs).for_each(|n| generated(seed + n));
    };
    tests(vec![
        test("figure 2", figure2),
        test("figure 5", figure5),
        test("figure 7", figure7),
        test("a race", race),
        test("in gdb", gdb),
        test("what can't be", refused),
        test("generated programs", move || all(programs)),
        test("a thousand generated programs", move || all(1000)).with_ignored_flag(true),
    ])
}

/// Calls are bound at the start: else the first thread that makes one binds it, and others depend on that.
const BOUND: &[&str] = &["-Wl,-z,now"];

/// What names an event whatever the order: its thread, which of that thread's it is, its type and object.
type Name = (u64, usize, String, String);

/// The events of a recording in order, and edges between them, by names.
fn graph(folder: &Path) -> (Vec<Name>, BTreeSet<(Name, Name)>, Value) {
    let told = ask(&["order", folder.to_str().unwrap(), "--json"], 0);
    let value: Value = serde_json::from_str(&told).unwrap();
    let mut names: Vec<Name> = Vec::new();
    for one in value["events"].as_array().unwrap() {
        let thread = one["thread"].as_u64().unwrap();
        let before = names.iter().filter(|name| name.0 == thread).count();
        let text = |key: &str| one[key].as_str().unwrap().to_string();
        names.push((thread, before, text("type"), text("name")));
    }
    let edges = value["edges"].as_array().unwrap().iter().map(|edge| {
        let end = |n: usize| names[edge[n].as_u64().unwrap() as usize].clone();
        (end(0), end(1))
    });
    let edges = edges.collect();
    (names, edges, value)
}

fn new_folder(folder: &Path, what: &str) -> PathBuf {
    let new = folder.with_extension(what);
    let _ = std::fs::remove_dir_all(&new);
    new
}

/// Makes the run in another order; the new recording, its events, and what was told. It has replayed once; here it must again, and
/// have the same edges.
fn reordered(folder: &Path, mode: &str, argument: &str) -> (PathBuf, Vec<Name>, Value) {
    let new = new_folder(folder, "new");
    let (old, to) = (folder.to_str().unwrap(), new.to_str().unwrap());
    let told = ask(&["order", old, mode, argument, "-o", to, "--json"], 0);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["same"], true);
    ask(&["replay", to, "--verify"], 0);
    let (_, edges, _) = graph(folder);
    let (names, new_edges, _) = graph(&new);
    assert_eq!(edges, new_edges, "{mode} {argument}");
    (new, names, told)
}

/// The semaphores' events in order, as the figures call them.
fn called(names: &[Name], call: &dyn Fn(&Name) -> Option<&'static str>) -> String {
    let all: Vec<&str> = names.iter().filter_map(call).collect();
    all.join(" ")
}

/// `T@POS` of one of a thread's events.
fn position(folder: &Path, thread: u64, kind: &str, which: usize) -> String {
    let (_, _, value) = graph(folder);
    let own = value["events"].as_array().unwrap().iter();
    let mut own = own.filter(|one| one["thread"] == thread && one["type"] == kind);
    let at = own.nth(which).expect("such an event")["position"].clone();
    format!("{thread}@{}", at.as_str().unwrap())
}

/// Figure 2 in the order that figure 3 doesn't show: with the second thread's needs first, and with all others first.
fn figure2() {
    let folder = record(&guest("figure2", BOUND), &["--sched", "fair"], Some("5\n"));
    let (names, ..) = graph(&folder);
    for thread in [1, 2, 0] {
        for mode in ["--minima", "--maxima"] {
            let at = position(&folder, thread, if thread == 0 { "JN" } else { "SW" }, 0);
            let (_, new, _) = reordered(&folder, mode, &at);
            assert_eq!(
                names.iter().collect::<BTreeSet<_>>(),
                new.iter().collect::<BTreeSet<_>>()
            );
        }
    }
    // The thread that came second isn't needed by the first: under minima nothing of it has happened.
    let first = names.iter().find(|name| name.2 == "SW").unwrap().0;
    let second = 3 - first;
    let at = position(&folder, first, "EX", 0);
    let (_, new, _) = reordered(&folder, "--minima", &at);
    let exit = new
        .iter()
        .position(|n| n.0 == first && n.2 == "EX")
        .unwrap();
    assert!(new[..exit].iter().all(|name| name.0 != second), "{new:?}");
    // Under maxima at its beginning everything else that can be is done.
    let at = position(&folder, second, "SW", 0);
    let (_, new, _) = reordered(&folder, "--maxima", &at);
    let begins = new
        .iter()
        .position(|n| n.0 == second && n.2 == "SW")
        .unwrap();
    assert!(new[..begins].iter().any(|n| n.0 == first && n.2 == "EX"));
}

/// E4 E3 E2 E1 for minima, E4 E3 E2 E6 E5 E1 for maxima.
fn figure5() {
    let folder = record(&guest("figure5", BOUND), &["--sched", "fair"], None);
    // Threads are numbered as they were made: 1 is the paper's thread 3.
    let call = |name: &Name| -> Option<&'static str> {
        Some(match (name.0, name.2.as_str(), name.3.as_str()) {
            (1, "SP", "chain") => "E4",
            (2, "SP", "chain") => "E3",
            (3, "SP", "chain") => "E2",
            (1, "SP", "third") if name.1 == 2 => "E6",
            (1, "SP", "third") => "E5",
            (3, "SP", "first") => "E1",
            (3, "SP", "last") => "E7",
            (2, "SW", "last") => "E8",
            _ => return None,
        })
    };
    let at = position(&folder, 3, "SP", 1);
    let (_, new, told) = reordered(&folder, "--minima", &at);
    assert!(
        called(&new, &call).starts_with("E4 E3 E2 E1 E7 "),
        "{new:?}"
    );
    assert_eq!(told["thread"], 3);
    let (_, new, _) = reordered(&folder, "--maxima", &at);
    assert_eq!(called(&new, &call), "E4 E3 E2 E6 E5 E1 E7 E8");
}

/// Thread 1 stops at E4; thread 2 runs, stops at E2; thread 3 does E1; thread 2 does E2 and E3; thread 1 does E4.
fn figure7() {
    let folder = record(&guest("figure7", BOUND), &["--sched", "fair"], None);
    // The paper's thread 1 is the third that was made.
    let at = position(&folder, 3, "SW", 0);
    let (new, names, _) = reordered(&folder, "--minima", &at);
    let call = |name: &Name| -> Option<&'static str> {
        Some(match (name.0, name.2.as_str()) {
            (1, "SP") => "E1",
            (2, "SW") => "E2",
            (2, "SP") => "E3",
            (3, "SW") => "E4",
            _ => return None,
        })
    };
    assert_eq!(called(&names, &call), "E1 E2 E3 E4");
    let dumped = ask(&["dump", new.to_str().unwrap(), "--quick"], 0);
    let turns = dumped.lines().filter_map(|line| {
        let (_, to) = line.split_once("switch to thread ")?;
        to.split(',').next()?.parse().ok()
    });
    let turns: Vec<u64> = turns.collect();
    assert!(turns.starts_with(&[3, 2, 1, 2, 3]), "{turns:?}");
}

/// Without the semaphore the order of the two isn't an edge: a run in the other order is another, and clew says why.
fn race() {
    let folder = record(&guest("unlocked", BOUND), &["--sched", "fair"], None);
    let at = position(&folder, 2, "EX", 0);
    let (old, new) = (folder.to_str().unwrap(), new_folder(&folder, "raced"));
    let new = new.to_str().unwrap();
    let told = ask(&["order", old, "--minima", &at, "-o", new, "--json"], 1);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["same"], false);
    let race = &told["races"][0];
    assert_eq!(race["race"]["variable"], "shared", "{told}");
    assert_eq!(race["changed"], true, "{told}");
    let functions = [
        &race["race"]["first"]["function"],
        &race["race"]["second"]["function"],
    ];
    assert!(functions.contains(&&Value::from("adds")), "{told}");
    assert!(functions.contains(&&Value::from("multiplies")), "{told}");
    // What each found there: 1 and 6 as it was, 6 or 7 and 1 now.
    let seen = |side: usize, when: &str| race["values"][side][when].as_u64();
    assert_eq!(seen(0, "was"), Some(1), "{told}");
    assert_eq!(seen(1, "was"), Some(6), "{told}");
    assert_eq!(seen(1, "now"), Some(1), "{told}");
    let _ = std::fs::remove_dir_all(new);
    let text = ask(&["order", old, "--minima", &at, "-o", new], 1);
    assert!(text.contains("in another order now: shared"), "{text}");
}

/// The paper's commands. Thread 2 of figure 2's program stands at its beginning: as recorded, the other one has computed; under minima it hasn't.
fn gdb() {
    let folder = record(&guest("figure2", BOUND), &["--sched", "fair"], Some("5\n"));
    let script = [
        "break thread3",
        "continue",
        "print shared",
        "clew order table",
        "clew threads",
        "clew minima",
        "print shared",
        "clew proceed 2",
        "clew event next",
        "clew when",
        "print shared",
        "clew event prev",
        "clew order",
        "print shared",
        "clew lc-break 10",
        "clew lc-break 1:3",
        "clew lc-break 2:99",
        "clew maxima",
        "clew proceed 9",
        "clew event sideways",
    ];
    let mut words = vec!["debug", folder.to_str().unwrap(), "--at", "start", "--"];
    words.extend(["-nx", "-q", "-batch"]);
    for command in script {
        words.extend(["-ex", command]);
    }
    let asked = common::command().args(&words).output().unwrap();
    let out = String::from_utf8_lossy(&asked.stdout).into_owned();
    let err = String::from_utf8_lossy(&asked.stderr).into_owned();
    let has = |text: &str, part: &str| assert!(text.contains(part), "{part:?} in\n{out}\n{err}");
    has(&out, "$1 = 6");
    // The table, twice.
    let row = "2   LC 5     next: LC 8  thread 2  SW sem  figure2.c:20";
    assert_eq!(out.matches(row).count(), 2, "{out}\n{err}");
    has(
        &out,
        "In another order: thread 2 first, of the others what it needs.",
    );
    has(&out, "$2 = 1");
    has(&err, "impossible: first must come");
    has(&err, "LC 7  thread 1  SP sem  figure2.c:14");
    has(&out, "$3 = 6");
    has(&out, "In the order that was recorded.");
    has(&out, "LC 10  thread 2  EX thread 2");
    has(&err, "thread 1's clock doesn't come to 3");
    has(&err, "thread 2's clock doesn't come to 99; its last is 10");
    has(&err, "\"9\" is no thread's number; there are 0, 1, 2");
    has(&err, "clew event doesn't take \"sideways\"");
}

fn refused() {
    let folder = record(&guest("figure2", BOUND), &["--sched", "fair"], Some("5\n"));
    let old = folder.to_str().unwrap();
    let new = new_folder(&folder, "refused");
    let to = new.to_str().unwrap();
    ask(&["order", old, "-o", to], 2);
    ask(&["order", old, "--minima", "7@1", "-o", to], 1);
    assert!(!new.exists());
    // An order that can't be: a join before its thread's end.
    let (names, ..) = graph(&folder);
    let join = names.iter().position(|name| name.2 == "JN").unwrap();
    let file = folder.with_extension("order");
    std::fs::write(&file, join.to_string()).unwrap();
    ask(&["order", old, "--by", file.to_str().unwrap(), "-o", to], 1);
    assert!(!new.exists());
    // One thread, a process that forks while it has threads.
    let alone = build("alone", "int main(void) { return 0; }\n", &[]);
    let alone = record(&alone, &[], None);
    let told = ask(&["order", alone.to_str().unwrap(), "--json"], 1);
    assert!(told.contains("events"), "{told}");
    let kinds = record(&guest("kinds", &["-lrt"]), &[], None);
    let (_, _, value) = graph(&kinds);
    let at = value["events"][0]["position"].as_str().unwrap();
    let (kinds, at) = (kinds.to_str().unwrap(), format!("0@{at}"));
    ask(&["order", kinds, "--minima", &at, "-o", to], 1);
    assert!(!new.exists());
}

/// Programs without a race, under the paper's two modes and an order at random that the edges allow.
fn generated(seed: u64) {
    println!("seed {seed}");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let program = build(&format!("reordered-{seed}"), &generate(&mut random), &[]);
    let text = seed.to_string();
    let folder = record(&program, &["--sched", "random", "--seed", &text], None);
    let (names, _, value) = graph(&folder);
    for mode in ["--minima", "--maxima"] {
        let target = random.below(names.len() as u64) as usize;
        let position = value["events"][target]["position"].as_str().unwrap();
        reordered(&folder, mode, &format!("{}@{position}", names[target].0));
    }
    // Any of those whose needs are done, at random.
    let edges: Vec<(usize, usize)> = value["edges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| {
            let end = |n: usize| edge[n].as_u64().unwrap() as usize;
            (end(0), end(1))
        })
        .collect();
    let mut needs = vec![0; names.len()];
    edges.iter().for_each(|edge| needs[edge.1] += 1);
    let mut free: Vec<usize> = (0..names.len()).filter(|&n| needs[n] == 0).collect();
    let mut order = Vec::new();
    while !free.is_empty() {
        let next = free.swap_remove(random.below(free.len() as u64) as usize);
        order.push(next.to_string());
        for edge in edges.iter().filter(|edge| edge.0 == next) {
            needs[edge.1] -= 1;
            if needs[edge.1] == 0 {
                free.push(edge.1);
            }
        }
    }
    assert_eq!(order.len(), names.len());
    let file = folder.with_extension("order");
    std::fs::write(&file, order.join("\n")).unwrap();
    reordered(&folder, "--by", file.to_str().unwrap());
    for folder in [folder.clone(), folder.with_extension("new")] {
        let _ = std::fs::remove_dir_all(folder);
    }
}

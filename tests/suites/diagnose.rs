//! Diagnoses: failing and passing runs of programs whose bug is known, compared by `clew diagnose`; the first suspect must be
//! the right variable with the right lines. What it gets wrong is marked, and must still be among the suspects.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clew_tests::{clew, scratch};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

/// A bug, and what must be said of it.
struct Case {
    source: PathBuf,
    /// One of these is named.
    variables: Vec<String>,
    /// A line of one side, and of the other.
    sides: [Vec<u64>; 2],
    pattern: Option<String>,
    fail_if: Option<String>,
    /// What is said to have failed.
    failure: Option<String>,
    /// The order can be forced on a passing run, which fails then.
    forced: bool,
    known_wrong: bool,
}

/// A program, the variables of which one must be named, the lines of its accesses.
type Bug = (
    &'static str,
    &'static [&'static str],
    &'static [u64],
    &'static [u64],
);

/// The hunt suite's bugs: variables, lines of the one and of the other side.
const BUGS: &[Bug] = &[
    ("aba", &["head"], &[18, 19], &[19, 31]),
    ("check_then_act", &["left"], &[13], &[21]),
    (
        "double_checked",
        &["buckets", "slots", "allocated at double_checked.c:19"],
        &[43],
        &[21, 22, 23],
    ),
    ("handler", &["finished"], &[39, 40], &[14]),
    ("lock_order", &["accounts"], &[24], &[27]),
    ("lost_update", &["balance"], &[32], &[34]),
    (
        "missed_signal",
        &["requests", "requested"],
        &[15, 25],
        &[52, 53],
    ),
    ("order_violation", &["queue"], &[48], &[20]),
    (
        "shutdown",
        &[
            "messages.open",
            "messages.text",
            "allocated at shutdown.c:42",
        ],
        &[20, 23],
        &[52, 53],
    ),
    ("two_variables", &["view.start"], &[34, 35], &[25, 26]),
];
/// Another variable, which shows the same, comes first (docs/diagnose.md).
const WRONG: &[&str] = &["aba"];
/// Their handlers run because a thread sends a signal: when it does can be chosen.
const FORCED: &[&str] = &["bash_history", "ed_columns", "handler", "lynx_columns"];
const SEED: &str = "3";

fn main() {
    let mut cases = Vec::new();
    for (name, variables, one, other) in BUGS {
        cases.push(Case {
            source: scratch::sources().join(format!("guests/bugs/{name}.c")),
            variables: variables.iter().map(|name| name.to_string()).collect(),
            sides: [one.to_vec(), other.to_vec()],
            pattern: None,
            fail_if: None,
            failure: None,
            forced: FORCED.contains(name),
            known_wrong: WRONG.contains(name),
        });
    }
    let own = fs::read_dir(scratch::sources().join("diagnose")).expect("the cases are there");
    for entry in own {
        cases.push(read(&entry.expect("they can be listed").path()));
    }
    cases.sort_by(|a, b| a.source.cmp(&b.source));
    let mut trials: Vec<Trial> = cases
        .into_iter()
        .map(|case| {
            let name = case
                .source
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy();
            Trial::test(format!("first/{name}"), move || first(&case))
        })
        .collect();
    trials.push(Trial::test("recordings", recordings));
    trials.push(Trial::test("after a hunt", after_a_hunt));
    trials.push(Trial::test("one switch", one_switch));
    trials.push(Trial::test("errors", errors));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// What a case's text says.
fn read(source: &Path) -> Case {
    let text = fs::read_to_string(source).expect("it can be read");
    let head = |key: &str| {
        let key = format!("// {key}: ");
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(&key));
        lines.next().map(String::from)
    };
    let marked = |mark: &str| {
        let lines = text
            .lines()
            .zip(1..)
            .filter(|(line, _)| line.contains(mark));
        lines.map(|(_, number)| number).collect()
    };
    Case {
        source: source.into(),
        variables: head("variable").into_iter().collect(),
        sides: [marked("// LOCAL"), marked("// REMOTE")],
        pattern: head("pattern"),
        fail_if: head("fail-if"),
        failure: head("failure"),
        forced: source
            .file_stem()
            .and_then(|name| name.to_str())
            .is_some_and(|name| FORCED.contains(&name)),
        known_wrong: head("known").is_some(),
    }
}

fn build(source: &Path, name: &str) -> Result<(PathBuf, PathBuf), Failed> {
    let dir = scratch::fresh(&format!("diagnose.{name}"));
    let program = dir.join(source.file_stem().unwrap_or_default());
    let mut line = Command::new("gcc");
    line.args(["-g", "-O1", "-w", "-pthread"])
        .arg(source)
        .arg("-o")
        .arg(&program);
    let built = line.output()?;
    match built.status.success() {
        true => Ok((dir, program)),
        false => Err(format!("{line:?}: {}", String::from_utf8_lossy(&built.stderr)).into()),
    }
}

fn run(dir: &Path, words: &[&str]) -> Result<Output, Failed> {
    let mut line = Command::new(clew::path());
    line.args(words)
        .current_dir(dir)
        .env("CLEW_DIR", dir.join("recordings"));
    Ok(line.output()?)
}

fn said(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!(
        "{:?}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    )
}

fn suspects(output: &Output) -> Result<Vec<Value>, Failed> {
    if output.status.code() != Some(0) {
        return Err(said(output).into());
    }
    let all: Value = serde_json::from_slice(&output.stdout).map_err(|why| why.to_string())?;
    Ok(all["suspects"].as_array().cloned().unwrap_or_default())
}

impl Case {
    /// Whether a suspect is the bug.
    fn is_it(&self, suspect: &Value) -> bool {
        let variable = suspect["variable"].as_str().unwrap_or("");
        let acts = suspect["acts"].as_array().cloned().unwrap_or_default();
        let lines: Vec<u64> = acts
            .iter()
            .filter_map(|act| act["site"]["line"].as_u64())
            .collect();
        let named = self.variables.iter().any(|name| variable.contains(name));
        let both = self
            .sides
            .iter()
            .all(|side| lines.iter().any(|line| side.contains(line)));
        let shape = match self.pattern.as_deref() {
            None | Some("order") => true,
            Some(pattern) => suspect["pattern"] == pattern,
        };
        named && both && shape
    }
}

fn first(case: &Case) -> Result<(), Failed> {
    let name = case
        .source
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    let (dir, program) = build(&case.source, &name)?;
    let program = program.display().to_string();
    let mut words = vec![
        "diagnose",
        "--json",
        "--seed",
        SEED,
        "--jobs",
        "1",
        "--confirm",
        "1",
    ];
    if let Some(condition) = &case.fail_if {
        words.extend(["--fail-if", condition]);
    }
    words.extend(["--", &program]);
    let output = run(&dir, &words)?;
    let suspects = suspects(&output)?;
    if let Some(failure) = &case.failure
        && !String::from_utf8_lossy(&output.stdout).contains(failure)
    {
        return Err(format!("it isn't said that {failure}: {}", said(&output)).into());
    }
    let place = suspects.iter().position(|suspect| case.is_it(suspect));
    // A signal that a thread sends is forced on a passing run, and it fails by that.
    if case.forced {
        let confirmed = &suspects[0]["confirmed"];
        let with = &confirmed["with"];
        if confirmed["forced"] != true || with[0] != with[1] || with[1] == 0 {
            return Err(format!("it isn't forced: {}", said(&output)).into());
        }
    }
    match (place, case.known_wrong) {
        (Some(0), false) => Ok(()),
        (Some(1..), true) => Ok(()),
        (Some(0), true) => Err("it is right now: take it from the list of what is wrong".into()),
        (place, _) => Err(format!("the bug is at {place:?}: {}", said(&output)).into()),
    }
}

/// Recordings that somebody made, and nothing is run again.
fn recordings() -> Result<(), Failed> {
    let source = scratch::sources().join("guests/bugs/lost_update.c");
    let (dir, program) = build(&source, "recordings")?;
    let program = program.display().to_string();
    let hunted = run(&dir, &["hunt", "--keep", "2", "--seed", "5", &program])?;
    if hunted.status.code() != Some(0) {
        return Err(said(&hunted).into());
    }
    for n in ["1", "2", "3"] {
        let folder = dir.join("recordings").join(format!("good-{n}"));
        let folder = folder.display().to_string();
        let words = [
            "record", "-o", &folder, "--sched", "fair", "--seed", n, "--", &program,
        ];
        let output = run(&dir, &words)?;
        if output.status.code() != Some(0) {
            return Err(said(&output).into());
        }
    }
    let words = [
        "diagnose",
        "--json",
        "--confirm",
        "0",
        "--fail",
        "lost_update-1",
        "--fail",
        "lost_update-2",
        "--pass",
        "good-1",
        "--pass",
        "good-2",
        "--pass",
        "good-3",
    ];
    let output = run(&dir, &words)?;
    let all: Value = serde_json::from_slice(&output.stdout).map_err(|_| said(&output))?;
    let first = &all["suspects"][0];
    let right = first["variable"] == "account.balance" && first["confirmed"].is_null();
    if (&all["failing"], &all["passing"], right) != (&2.into(), &3.into(), true) {
        return Err(said(&output).into());
    }
    // The same as a page: a lane for each thread, and where to go.
    let page = dir.join("page.html");
    let words: Vec<&str> = words
        .into_iter()
        .filter(|word| *word != "--json")
        .chain(["--html", "page.html"])
        .collect();
    let output = run(&dir, &words)?;
    let page = fs::read_to_string(&page).map_err(|why| format!("{why}: {}", said(&output)))?;
    let parts = [
        "<code>account.balance</code>",
        "<th>thread 1",
        "<th>thread 2",
        "clew debug lost_update-",
    ];
    if output.status.code() != Some(0) || !parts.iter().all(|part| page.contains(part)) {
        return Err(format!("{page}\n{}", said(&output)).into());
    }
    // Nothing is left but what was there.
    let names = fs::read_dir(dir.join("recordings"))?
        .flatten()
        .map(|entry| entry.file_name());
    let hidden: Vec<_> = names
        .filter(|name| name.to_string_lossy().starts_with(".hunt"))
        .collect();
    match hidden.is_empty() {
        true => Ok(()),
        false => Err(format!("{hidden:?} are left").into()),
    }
}

/// `clew hunt --diagnose`, and the latest recording by itself.
fn after_a_hunt() -> Result<(), Failed> {
    let source = scratch::sources().join("guests/bugs/check_then_act.c");
    let (dir, program) = build(&source, "after")?;
    let program = program.display().to_string();
    let output = run(
        &dir,
        &[
            "hunt",
            "--diagnose",
            "--jobs",
            "1",
            "--seed",
            SEED,
            &program,
        ],
    )?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let right =
        text.contains("1. `left` was read by") && text.contains("atomicity violation (RWR)");
    if output.status.code() != Some(0) || !right || !text.contains("with this order forced") {
        return Err(said(&output).into());
    }
    let output = run(
        &dir,
        &[
            "diagnose",
            "--json",
            "--confirm",
            "0",
            "--function",
            "take_seat",
        ],
    )?;
    let suspects = suspects(&output)?;
    match suspects
        .first()
        .is_some_and(|first| first["variable"] == "left")
    {
        true => Ok(()),
        false => Err(said(&output).into()),
    }
}

/// `clew why --minimize`: the one switch that a hunted run takes.
fn one_switch() -> Result<(), Failed> {
    let source = scratch::sources().join("guests/bugs/check_then_act.c");
    let (dir, program) = build(&source, "switch")?;
    let program = program.display().to_string();
    let words = ["hunt", "--jobs", "1", "--seed", SEED, &program];
    let hunted = run(&dir, &words)?;
    if hunted.status.code() != Some(0) {
        return Err(said(&hunted).into());
    }
    let output = run(&dir, &["why", "check_then_act-1", "--minimize", "--json"])?;
    let all: Value = serde_json::from_slice(&output.stdout).map_err(|_| said(&output))?;
    let switches = &all["switches"];
    let first = &switches["explained"]["preemptions"][0];
    let few = switches["preemptions"].as_u64();
    let right = all["kind"] == "assertion"
        && switches["recording"] == "check_then_act-2"
        && few.is_some_and(|few| (1..=2).contains(&few))
        && first["position"].is_string();
    match right {
        true => Ok(()),
        false => Err(said(&output).into()),
    }
}

fn errors() -> Result<(), Failed> {
    let dir = scratch::fresh("diagnose.errors");
    let ended = run(&dir, &["record", "-n", "fine", "--", "/bin/true"])?;
    if ended.status.code() != Some(0) {
        return Err(said(&ended).into());
    }
    for (words, status, text) in [
        (&["diagnose"][..], 2, "fine didn't fail"),
        (&["diagnose", "--fail", "nothing"][..], 125, "nothing"),
        (
            &["diagnose", "--runs", "3", "--", "/bin/true"][..],
            1,
            "nothing to diagnose",
        ),
        (
            &["diagnose", "--at", "x", "--", "/bin/true"][..],
            2,
            "FILE:LINE",
        ),
    ] {
        let output = run(&dir, words)?;
        let all = said(&output);
        if output.status.code() != Some(status) || !all.contains(text) {
            return Err(format!("{words:?}: {all}").into());
        }
    }
    Ok(())
}

//! What a recording can't have fails with a word, on stderr and in the recording, and the recording replays.

use std::path::Path;
use std::process::Command;

use clew_tests::scratch;
use libtest_mimic::{Failed, Trial};

use super::place::{Place, code, require};

/// The program's argument, and what clew says.
const CASES: &[(&str, &str)] = &[
    ("bpf", "bpf isn't supported under clew and fails"),
    (
        "perf",
        "perf_event_open isn't supported under clew and fails",
    ),
    ("trace", "ptrace isn't supported under clew and fails"),
    ("aio", "io_setup isn't supported under clew and fails"),
    (
        "io_uring",
        "io_uring_setup isn't supported under clew and fails",
    ),
    (
        "userfaultfd",
        "userfaultfd isn't supported under clew and fails",
    ),
    ("device", "can't be recorded and fails: it isn't a file's"),
    (
        "share",
        "unshare(CLONE_FILES or CLONE_FS) in one of several threads isn't supported",
    ),
    (
        "fd",
        "writing to another recorded process's memory can't be recorded and fails",
    ),
    (
        "open",
        "opening another recorded process's memory for writing can't be recorded and fails",
    ),
    (
        "vm",
        "process_vm_writev into another recorded process can't be recorded and fails",
    ),
];

pub fn trials() -> Vec<Trial> {
    CASES
        .iter()
        .map(|&(case, says)| {
            let title = format!("refused/{case}");
            Trial::test(title.clone(), move || {
                refused(&Place::new(&title), case, says)
            })
        })
        .collect()
}

fn refused(place: &Place, case: &str, says: &str) -> Result<(), Failed> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites/robust/refused.c");
    let program = scratch::root().join(format!("robust-refused-{case}"));
    let compiled = Command::new("cc")
        .args(["-O1", "-w", "-pthread", "-o"])
        .args([&program, &source])
        .status();
    assert!(compiled.is_ok_and(|status| status.success()), "cc failed");
    let program = program.to_string_lossy();
    let recorded = place.record("r", &[&program, case])?;
    let stderr = String::from_utf8_lossy(&recorded.stderr);
    let lines = stderr.lines().filter(|line| line.contains(says)).count();
    require(lines == 1, || format!("said {lines} times: {stderr}"))?;
    require(recorded.stdout == b"refused\n", || recorded.printed())?;
    let dumped = place.clew(&["dump", "--all", "r"]);
    let notes = String::from_utf8_lossy(&dumped.stdout).contains(says);
    require(notes, || format!("no note: {}", dumped.printed()))?;
    let replayed = place.clew(&["replay", "--verify", "r"]);
    require(code(&replayed) == Some(0), || replayed.printed())
}

//! What a recording can't have fails with a word, on stderr and in the recording, and the recording replays.

use std::os::unix::fs::PermissionsExt;
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
    let mut trials = vec![
        Trial::test("refused/privileges", || {
            privileges(&Place::new("privileges"))
        }),
        Trial::test("refused/no such event", || {
            no_such_event(&Place::new("no such event"))
        }),
    ];
    trials.extend(cases());
    trials
}

/// A set-user-ID program runs without its privileges, however it is started, and clew says so.
fn privileges(place: &Place) -> Result<(), Failed> {
    let program = place.dir.join("privileged");
    std::fs::copy("/bin/true", &program)?;
    let somebody = Some(65534);
    if std::os::unix::fs::chown(&program, somebody, None).is_err() {
        eprintln!("NOT TESTED: files can't be given to somebody else here");
        return Ok(());
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755))?;
    let says = "privileged runs without its set-user-ID or set-group-ID privileges under clew";
    for (n, args) in [&["./privileged"][..], &["sh", "-c", "./privileged; exit 0"]]
        .into_iter()
        .enumerate()
    {
        let recorded = place.record(&format!("r{n}"), args)?;
        let stderr = String::from_utf8_lossy(&recorded.stderr);
        let times = stderr.matches(says).count();
        require(times == 1, || {
            format!("{args:?}: said {times} times: {stderr}")
        })?;
        let ran = place.clew(&[&["run"][..], args].concat());
        let stderr = String::from_utf8_lossy(&ran.stderr);
        require(stderr.contains(says), || format!("{args:?}: {stderr}"))?;
    }
    Ok(())
}

/// Asked to stop where the program never comes, a replay goes to the end and says so.
fn no_such_event(place: &Place) -> Result<(), Failed> {
    place.record("r", &["sh", "-c", "echo done; exit 0"])?;
    let replay = place.clew(&["replay", "r", "--to", "9999999"]);
    let stderr = String::from_utf8_lossy(&replay.stderr);
    require(
        code(&replay) == Some(0) && replay.stdout == b"done\n",
        || replay.printed(),
    )?;
    require(stderr.contains("no event 9999999"), || replay.printed())?;
    // One that is there is reached without a word.
    let replay = place.clew(&["replay", "r", "--to", "5"]);
    require(code(&replay) == Some(0) && replay.stderr.is_empty(), || {
        replay.printed()
    })
}

fn cases() -> Vec<Trial> {
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

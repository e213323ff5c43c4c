//! Full disks, logs that end early, and recordings of more than a gigabyte.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use clew_tests::clew;
use libtest_mimic::{Failed, Trial};

use super::kills::over;
use super::place::{CUT_OFF, Place, Random, UNABLE, code, program, require};

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for full in ["stop", "continue"] {
        for size in ["300k", "1m", "4m"] {
            let title = format!("full/{full}/{size}");
            trials.push(Trial::test(title.clone(), move || {
                full_disk(&Place::new(&title), full, size)
            }));
        }
    }
    for full in ["stop", "continue"] {
        let title = format!("full/said once/{full}");
        trials.push(Trial::test(title.clone(), move || {
            said_once(&Place::new(&title), full)
        }));
    }
    trials.push(Trial::test("cut", || cut(&Place::new("cut"))));
    trials.push(Trial::test("memory", || memory(&Place::new("memory"))));
    trials
}

/// Prints a hundred lines and reads two megabytes that don't compress.
const WORK: &str = "i=0; while [ $i -lt 50 ]; do echo line $i; head -c 40000 /dev/urandom | cksum >/dev/null; \
                    i=$((i+1)); done; echo end";

/// Eight processes that write at once.
const CROWD: &str =
    "for i in 1 2 3 4; do head -c 2000000 /dev/urandom | cksum >/dev/null & done; wait; echo end";

/// Records a shell's work on a small tmpfs in a mount namespace of its own, and replays it; whether that can be done here.
fn on_small_disk(place: &Place, full: &str, size: &str, work: &str) -> Result<bool, Failed> {
    let disk = place.dir.join("disk");
    fs::create_dir_all(&disk)?;
    let script = format!(
        "set -u; mount -t tmpfs -o size={size} none disk || exit 99; export CLEW_DIR=$PWD/disk/all; \
         $CLEW record -n r --on-full {full} /bin/sh -c \"$WORK\" >recorded 2>said; echo $? >status; \
         $CLEW replay r >replayed 2>>said; echo $? >>status"
    );
    let root = rustix::process::geteuid().is_root();
    let namespace = if root { "-m" } else { "-rm" };
    let made = Command::new("unshare")
        .args([namespace, "sh", "-c", &script])
        .current_dir(&place.dir)
        .env("CLEW", clew::path())
        .env("WORK", work)
        .stdin(Stdio::null())
        .output()?;
    let is_made = made.status.code() != Some(99) && place.dir.join("status").exists();
    if !is_made {
        let why = String::from_utf8_lossy(&made.stderr);
        eprintln!("NOT TESTED: no small disk can be mounted here: {why}");
    }
    Ok(is_made)
}

/// However many processes meet the end of the disk, one says so.
fn said_once(place: &Place, full: &str) -> Result<(), Failed> {
    if !on_small_disk(place, full, "1m", CROWD)? {
        return Ok(());
    }
    let said = fs::read_to_string(place.dir.join("said"))?;
    let times = said.matches("no space is left").count();
    require(times == 1, || format!("{times} times: {said}"))
}

fn full_disk(place: &Place, full: &str, size: &str) -> Result<(), Failed> {
    if !on_small_disk(place, full, size, WORK)? {
        return Ok(());
    }
    let read = |name: &str| fs::read_to_string(place.dir.join(name)).unwrap_or_default();
    let (recorded, replayed, said) = (read("recorded"), read("replayed"), read("said"));
    let end = if full == "stop" { UNABLE } else { 0 };
    let statuses = read("status");
    require(statuses == format!("{end}\n{CUT_OFF}\n"), || {
        format!("statuses {statuses:?}: {said}")
    })?;
    require(said.contains("no space is left"), || said.clone())?;
    require(full == "stop" || recorded.ends_with("end\n"), || {
        format!("it didn't go on: {recorded:?}")
    })?;
    require(recorded.starts_with(&replayed), || {
        format!("recorded {recorded:?}, replayed {replayed:?}")
    })?;
    // On the larger ones it came to something.
    require(size != "4m" || replayed.contains("line 3\n"), || {
        format!("replayed {replayed:?} only")
    })
}

/// The log ends at some byte, as after a power cut: nothing crashes, and what is there replays.
fn cut(place: &Place) -> Result<(), Failed> {
    let recorded = place.record("whole", &[program(), "little"])?;
    let whole = place.folder("whole");
    let log = fs::read(whole.join("log"))?;
    let part = place.folder("part");
    fs::create_dir_all(&part)?;
    fs::copy(whole.join("meta.json"), part.join("meta.json"))?;
    copy_files(&whole, &part)?;
    let mut random = Random::new(1);
    let mut places: Vec<usize> = (0..20).map(|n| n * 3).collect();
    places.extend((0..12).map(|n| log.len().saturating_sub(1 + n * 7)));
    places.extend((0..60).map(|_| random.below(log.len() as u64) as usize));
    for (n, at) in places.into_iter().enumerate() {
        fs::write(part.join("log"), &log[..at])?;
        // What was remembered of the last one.
        let _ = fs::remove_file(part.join("summary.json"));
        let replay = place.clew(&["replay", "part"]);
        require(matches!(code(&replay), Some(0 | 1 | CUT_OFF)), || {
            format!(
                "replay, cut at {at}: {}: {}",
                replay.ending(),
                replay.printed()
            )
        })?;
        // Of each process a beginning; one may be cut off before another that went on for longer.
        require(is_part(&replay.stdout, &recorded.stdout), || {
            format!("cut at {at}: {}", replay.printed())
        })?;
        if n % 4 == 0 {
            for args in [&["info", "part"][..], &["ls"], &["dump", "part"]] {
                let outcome = place.clew(args);
                require(matches!(code(&outcome), Some(0 | 1)), || {
                    format!(
                        "{args:?}, cut at {at}: {}: {}",
                        outcome.ending(),
                        outcome.printed()
                    )
                })?;
            }
        }
    }
    Ok(())
}

/// Whether all lines of `some` are in `all`, in that order.
fn is_part(some: &[u8], all: &[u8]) -> bool {
    let mut all = all.split_inclusive(|&b| b == b'\n');
    some.split_inclusive(|&b| b == b'\n')
        .all(|line| all.any(|other| other == line))
}

pub fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to.join("files"))?;
    for entry in fs::read_dir(from.join("files"))? {
        let entry = entry?;
        fs::copy(entry.path(), to.join("files").join(entry.file_name()))?;
    }
    Ok(())
}

/// In KiB. docs/recordings.md has these numbers.
const MOST_GUEST: u64 = 64 << 10;
const MOST_WRITER: u64 = 32 << 10;

/// Memory doesn't grow with what is recorded.
fn memory(place: &Place) -> Result<(), Failed> {
    let mut command = place.command(&["record", "-n", "r", program(), "much"]);
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    lines.read_line(&mut line)?;
    let guest = peak(child.id());
    let writer = super::kills::writer_of(&place.folder("r"));
    let writer = writer.map_or(0, |pid| peak(pid.as_raw_nonzero().get() as u32));
    drop(child.stdin.take());
    let status = child.wait()?;
    require(line == "done\n" && status.success(), || {
        format!("recorded: {line:?}, {status}")
    })?;
    require((1..MOST_GUEST).contains(&guest), || {
        format!("the guest's process took {guest} KiB")
    })?;
    require((1..MOST_WRITER).contains(&writer), || {
        format!("the writer took {writer} KiB")
    })?;
    over(&place.folder("r"))
}

/// The most memory that a process has had, in KiB.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

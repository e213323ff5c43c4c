//! Many processes: none goes missing, each ends as it did, and what they write to one file keeps its order.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use clew_tests::clew;
use libtest_mimic::{Completion, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};

use super::place::{Place, code, program, require};

/// So often each kind of order is tried.
const ROUNDS: usize = 4;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for what in ["lines", "pages", "threads"] {
        trials.push(Trial::test(format!("order/{what}"), move || order(what)));
    }
    for what in ["kills_itself", "killed_by_child", "killed_by_group"] {
        trials.push(Trial::test(format!("sigkill/{what}"), move || killed(what)));
    }
    trials.push(Trial::test("sigkill/outsider", killed_by_outsider));
    trials.push(Trial::test("sigkill/vfork_parent", vfork_parent));
    trials.push(Trial::ignorable_test("namespaces/same_pid", same_pid));
    trials.push(Trial::test("descriptors/hit", descriptors));
    trials.push(Trial::test("unrecorded/child", unrecorded_child));
    trials
}

/// Several processes write to one pipe, which is read slowly: the replay writes the same bytes.
fn order(what: &str) -> Result<(), Failed> {
    let place = Place::new(&format!("order_{what}"));
    for round in 0..ROUNDS {
        let name = format!("r{round}");
        let mut child = place
            .command(&["record", "-n", &name, program(), "order", what])
            .spawn()?;
        let mut recorded = Vec::new();
        let mut pipe = child.stdout.take().expect("piped");
        // Small sips: writers meet a full pipe, and half-full ones.
        let mut room = [0; 3000];
        while let len @ 1.. = pipe.read(&mut room)? {
            recorded.extend_from_slice(&room[..len]);
        }
        require(child.wait()?.success(), || "recording failed".into())?;
        let replay = place.clew(&["replay", "--verify", &name]);
        require(replay.status.is_some_and(|status| status.success()), || {
            format!("replay: {}: {}", replay.ending(), replay.printed())
        })?;
        let differ = replay
            .stdout
            .iter()
            .zip(&recorded)
            .position(|(a, b)| a != b);
        require(
            differ.is_none() && replay.stdout.len() == recorded.len(),
            || {
                let (there, here) = (recorded.len(), replay.stdout.len());
                format!(
                    "round {round}: {there} bytes recorded, {here} replayed, different at {differ:?}"
                )
            },
        )?;
    }
    Ok(())
}

/// The first process ends by SIGKILL: so does the replay.
fn killed(what: &str) -> Result<(), Failed> {
    let place = Place::new(&format!("sigkill_{what}"));
    let mut child = place
        .command(&["record", "-n", "r", program(), what])
        .spawn()?;
    require(child.wait()?.signal() == Some(9), || {
        "it isn't killed while recording".into()
    })?;
    ends_killed(&place)
}

fn killed_by_outsider() -> Result<(), Failed> {
    let place = Place::new("sigkill_outsider");
    let mut child = place
        .command(&["record", "-n", "r", program(), "pause"])
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line)?;
    kill_process(Pid::from_child(&child), Signal::KILL)?;
    child.wait()?;
    ends_killed(&place)
}

fn ends_killed(place: &Place) -> Result<(), Failed> {
    super::kills::over(&place.folder("r"))?;
    let replay = place.clew(&["replay", "--verify", "r"]);
    let signal = replay.status.and_then(|status| status.signal());
    require(signal == Some(9), || {
        format!("replay: {}: {}", replay.ending(), replay.printed())
    })
}

/// The child of a vfork outlives its parent, whose stream it writes: nothing of what it does is lost.
fn vfork_parent() -> Result<(), Failed> {
    let place = Place::new("vfork_parent");
    let recorded = place.record("r", &[program(), "vfork_orphan"])?;
    super::kills::over(&place.folder("r"))?;
    let replay = place.clew(&["replay", "--verify", "r"]);
    require(
        code(&replay) == Some(0) && replay.stdout == recorded.stdout,
        || format!("replay: {}: {}", replay.ending(), replay.printed()),
    )
}

/// The recorded program is the first of a pid namespace, and so is its child: the pid is the same, the statuses
/// aren't.
fn same_pid() -> Result<Completion, Failed> {
    let nested = ["-Urpf", "--mount-proc"];
    let mut can = Command::new("unshare");
    can.args(nested).arg("unshare").args(nested).arg("true");
    if !can
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
    {
        return Ok(Completion::ignored_with("namespaces may not be made here"));
    }
    let place = Place::new("same_pid");
    let mut job = place.job(&[]);
    job.program = "unshare".into();
    let clew = clew::path().to_string_lossy().into_owned();
    let record = ["record", "-n", "r", program(), "namespace"];
    let words = [&nested[..], &[&clew], &record].concat();
    job.args = words.iter().map(|word| word.to_string()).collect();
    let outcome = job.run();
    require(code(&outcome) == Some(5), || {
        format!("recorded: {}: {}", outcome.ending(), outcome.printed())
    })?;
    let replay = place.clew(&["replay", "--verify", "r"]);
    let said = String::from_utf8_lossy(&replay.stderr).into_owned();
    require(
        code(&replay) == Some(5) && said.contains("2 processes"),
        || format!("replay: {}: {}", replay.ending(), replay.printed()),
    )?;
    // The child is named by its own number, and ends as it did.
    let replay = place.clew(&["replay", "--pid", "1#2", "r"]);
    require(code(&replay) == Some(3), || {
        format!("the child: {}: {}", replay.ending(), replay.printed())
    })?;
    let replay = place.clew(&["replay", "--pid", "1", "r"]);
    require(replay.printed().contains("1#1, 1#2"), || {
        format!("an ambiguous pid: {}", replay.printed())
    })?;
    Ok(Completion::Completed)
}

/// A program that uses the numbers of clew's own descriptors: its children are recorded all the same.
fn descriptors() -> Result<(), Failed> {
    let place = Place::new("descriptors");
    place.record("r", &[program(), "descriptors"])?;
    let replay = place.clew(&["replay", "--verify", "r"]);
    let said = String::from_utf8_lossy(&replay.stderr).into_owned();
    require(said.contains("3 processes"), || {
        format!("{}: {said}", replay.ending())
    })
}

/// A child for whose ring there is no memory runs unrecorded, as it would natively, and isn't passed over: on stderr, in the
/// recording and when that is verified.
fn unrecorded_child() -> Result<(), Failed> {
    let place = Place::new("unrecorded");
    let mut child = place
        .command(&["record", "-n", "r", program(), "forks_later"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let pid = lines.next().ok_or("it printed nothing")??;
    // Room for little things, but not for a ring.
    let pages = std::fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages: u64 = pages.split(' ').next().unwrap_or_default().parse()?;
    let limit = format!("--as={}", pages * 4096 + (1 << 20));
    let limited = Command::new("prlimit")
        .args(["--pid", &pid, &limit])
        .status()?;
    require(limited.success(), || "prlimit failed".into())?;
    child.stdin.take().expect("piped").write_all(b"x")?;
    let printed = lines.next().ok_or("it printed no more")??;
    require(printed == "the child ended with 5", || printed)?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let both = ["isn't recorded: ", "shares"];
    let names = |text: &str| both.iter().all(|part| text.contains(part));
    require(output.status.success() && names(&said), || {
        format!("recording: {said}")
    })?;
    let replay = place.clew(&["replay", "--verify", "r"]);
    let said = String::from_utf8_lossy(&replay.stderr).into_owned();
    require(
        code(&replay) == Some(0) && said.contains("1 process of 2 verified") && names(&said),
        || format!("replay: {}: {}", replay.ending(), replay.printed()),
    )?;
    let info = place.clew(&["info", "r"]).printed();
    require(names(&info), || info)
}

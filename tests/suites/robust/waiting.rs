//! Programs in which all wait for ever hang as natively; a signal ends them, and the recording replays.

use std::io::{BufRead, BufReader};

use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::place::{Place, program, require};

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    // One thread that waits in a call, for a signal, for a lock; two that wait for each other's
    // locks; and one of two that waits in a call.
    for what in ["read", "pause", "lock", "deadlock", "thread_reads"] {
        for signal in [Signal::INT, Signal::TERM] {
            let title = format!("wait/{what}/{}", signal.as_raw());
            trials.push(Trial::test(title.clone(), move || {
                waits(&Place::new(&title), what, signal)
            }));
        }
    }
    trials
}

fn waits(place: &Place, what: &str, signal: Signal) -> Result<(), Failed> {
    use std::os::unix::process::ExitStatusExt;
    let mut child = place
        .command(&["record", "-n", "r", program(), what])
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    lines.read_line(&mut line)?;
    let pid = Pid::from_child(&child);
    kill_process(pid, signal)?;
    let status = child.wait()?;
    let _ = kill_process_group(pid, Signal::KILL);
    require(
        line == "waiting\n" && status.signal() == Some(signal.as_raw()),
        || format!("recorded: {line:?}, {status}"),
    )?;
    let replay = place.clew(&["replay", "r"]);
    let ended = replay.status.and_then(|status| status.signal());
    require(
        ended == Some(signal.as_raw()) && replay.stdout == b"waiting\n",
        || format!("replay: {}: {}", replay.ending(), replay.printed()),
    )?;
    let dump = place.clew(&["dump", "r"]);
    let text = String::from_utf8_lossy(&dump.stdout).to_lowercase();
    require(text.contains("killed"), || "dump shows no death".into())
}

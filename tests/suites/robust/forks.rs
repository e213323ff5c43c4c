//! Forks of replays: no more than the recording has, whatever a recorded program does, and none outlives clew.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clew_tests::family::Family;
use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};

use super::confined;
use super::place::{Place, program, require};

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, signal) in [("interrupt", Signal::INT), ("kill", Signal::KILL)] {
        for command in ["replay", "watch"] {
            let title = format!("forks/{command}/{name}");
            trials.push(Trial::test(title.clone(), move || {
                bomb(&Place::new(&title), command, signal)
            }));
        }
    }
    trials
}

/// Longer than anything takes that doesn't hang.
const LONG: Duration = Duration::from_secs(60);

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The recorded program breaks out of the code cache and forks: 63 times, if it is let.
fn bomb(place: &Place, command: &str, signal: Signal) -> Result<(), Failed> {
    let how = match command {
        "replay" => "forks",
        _ => "clones",
    };
    let mut job = place.job(&["record", "-n", "r", program(), how]);
    job.stdin = "0".into();
    let recorded = job.run();
    require(recorded.stdout == b"stayed\n", || recorded.printed())?;
    confined::make_evil(place)?;
    let mut clew: Command = match command {
        "replay" => place.command(&["replay", "evil"]),
        _ => place.command(&["watch", "evil", "1 == 2"]),
    };
    let child = Running(clew.stdout(Stdio::null()).spawn()?);
    let pid = Pid::from_raw(child.0.id() as i32).expect("a pid");
    // Until the bomb is the one that waits: it has forked as often as it may.
    let began = Instant::now();
    let family = loop {
        let family = Family::of(pid);
        let waits = |pid: Pid| {
            let path = format!("/proc/{}/syscall", pid.as_raw_nonzero());
            // futex(0x30000000, ...
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.starts_with("202 0x30000000 ")
        };
        if family.members().any(|member| waits(member.pid)) {
            break Family::of(pid);
        }
        require(began.elapsed() < LONG, || "nothing broke out".into())?;
        std::thread::sleep(Duration::from_millis(10));
    };
    // clew; the replay and the forks that the recording has left (three, one of them honest); or workers, as many as
    // were asked for.
    let most = match command {
        "replay" => 1 + 1 + 3,
        _ => 1 + 4,
    };
    let names: Vec<String> = family
        .members()
        .map(|member| format!("{member:?}"))
        .collect();
    require(names.len() <= most, || {
        format!("{} processes: {names:#?}", names.len())
    })?;
    kill_process(pid, signal)?;
    let left = family.outlived(LONG);
    require(left.is_empty(), || format!("still there: {left:?}"))
}

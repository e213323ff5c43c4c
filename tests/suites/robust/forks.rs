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
    trials.push(Trial::test("forks/replay/stop", || {
        stop(&Place::new("stop"))
    }));
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

/// As `/proc` shows it: R, S, T, …
fn state(pid: Pid) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

/// Ctrl-Z stops what replays together with clew, and both go on together.
fn stop(place: &Place) -> Result<(), Failed> {
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; echo $i";
    place.record("r", &["sh", "-c", script])?;
    // A replay may be over before it is asked to stop.
    for _ in 0..20 {
        let mut child = Running(place.command(&["replay", "r"]).spawn()?);
        let pid = Pid::from_raw(child.0.id() as i32).expect("a pid");
        let began = Instant::now();
        let until = |done: &dyn Fn() -> bool| {
            while !done() {
                require(began.elapsed() < LONG, || "nothing happens".into())?;
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok::<(), Failed>(())
        };
        let replays = || Family::of(pid).members().count() > 1;
        until(&|| replays() || state(pid) == Some('Z'))?;
        kill_process(pid, Signal::TSTP)?;
        until(&|| matches!(state(pid), Some('T' | 'Z')))?;
        let goes_on = |other: &Pid| *other != pid && state(*other) != Some('Z');
        let family = Family::of(pid);
        let Some(other) = family.members().map(|member| member.pid).find(goes_on) else {
            continue;
        };
        until(&|| matches!(state(other), None | Some('T' | 'Z')))?;
        require(state(other) == Some('T'), || "it went on by itself".into())?;
        kill_process(pid, Signal::CONT)?;
        let status = child.0.wait()?;
        return require(status.success(), || format!("{status}"));
    }
    Err("no replay could be stopped".into())
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

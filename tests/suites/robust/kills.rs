//! SIGKILL of the guest, of the writer, of both, at random moments: what was seen more than 100 ms
//! before is in the recording, which replays up to its end.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clew_tests::run::wait_readable;
use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use super::place::{CUT_OFF, Place, Random, UNABLE, code, program, require};

const ROUNDS: u64 = 12;
/// What was written longer ago than this must be there.
const FLUSHED: Duration = Duration::from_millis(100);
/// Longer than anything takes that doesn't hang.
const LONG: Duration = Duration::from_secs(60);

/// The machine was so busy that a kill proves nothing.
#[derive(PartialEq, Eq)]
struct Busy(bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Guest,
    Writer,
    Both,
}

const SHELL: &[&str] = &[
    "/bin/sh",
    "-c",
    "i=0; while :; do echo $i; (echo sub $i); i=$((i+1)); done",
];

/// 17 combinations with 12 rounds each: 204 kills.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for name in ["count", "threads", "shell"] {
        for victim in [Victim::Guest, Victim::Writer, Victim::Both] {
            for full in ["stop", "continue"] {
                if victim == Victim::Both && full == "continue" && name == "count" {
                    continue;
                }
                let title = format!("kill/{name}/{victim:?}/{full}");
                trials.push(Trial::test(title.clone(), move || {
                    let place = Place::new(&title);
                    let args = match name {
                        "shell" => SHELL.to_vec(),
                        _ => vec![program(), name],
                    };
                    let mut again = 0;
                    for round in 0..ROUNDS {
                        let told = |error: Failed| {
                            let why = error.message().unwrap_or_default();
                            format!("round {round}: {why}")
                        };
                        // No promise holds for a writer that gets no turn.
                        while kill(&place, &args, victim, full, round).map_err(told)? == Busy(true)
                        {
                            again += 1;
                            require(again < 6, || "the machine is too busy".into())?;
                        }
                    }
                    Ok(())
                }));
            }
        }
    }
    trials
}

/// What came out of a pipe, and when.
fn listen(child: &mut Child) -> Receiver<(Instant, Vec<u8>)> {
    let mut pipe = child.stdout.take().expect("piped");
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut room = vec![0; 64 << 10];
        while let Ok(len @ 1..) = pipe.read(&mut room) {
            if sender.send((Instant::now(), room[..len].to_vec())).is_err() {
                break;
            }
        }
    });
    receiver
}

fn kill(
    place: &Place,
    program: &[&str],
    victim: Victim,
    full: &str,
    round: u64,
) -> Result<Busy, Failed> {
    let mut random = Random::new(round * 7919 + program.len() as u64 * 31 + victim as u64);
    let name = format!("r{round}");
    let args = [&["record", "-n", &name, "--on-full", full][..], program].concat();
    let mut child = place.command(&args).spawn()?;
    let group = Pid::from_child(&child);
    let lines = listen(&mut child);
    let first = lines.recv_timeout(LONG)?;
    let mut seen = vec![first];
    let writer = writer_of(&place.folder(&name));
    // A random moment, not a wait for anything.
    let moment = Instant::now() + Duration::from_millis(random.below(250));
    loop {
        match lines.recv_timeout(moment.saturating_duration_since(Instant::now())) {
            Ok(piece) => seen.push(piece),
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => return Err("it ended by itself".into()),
        }
    }
    let waited = writer.is_some_and(waited_for_its_turn);
    let killed = Instant::now();
    if victim != Victim::Writer {
        kill_process(group, Signal::KILL)?;
    }
    if victim != Victim::Guest {
        kill_process(writer.ok_or("there is no writer")?, Signal::KILL)?;
    }
    let end = match (victim, full) {
        (Victim::Writer, "stop") => stops(&mut child),
        (Victim::Writer, _) => goes_on(&lines, killed),
        _ => Ok(()),
    };
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
    end?;
    over(&place.folder(&name))?;

    let mut must = Vec::new();
    for (when, bytes) in &seen {
        if *when + FLUSHED < killed {
            must.extend_from_slice(bytes);
        }
    }
    // A line is known to be recorded, not just printed, when the next one is seen.
    must.pop();
    must.truncate(
        must.iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1),
    );
    let replay = place.clew(&["replay", "--verify", &name]);
    let nothing = String::from_utf8_lossy(&replay.stderr).contains("nothing was recorded");
    // Without its writer nobody can tell how the guest ended.
    let signal = replay.status.and_then(|status| status.signal());
    let killed = signal == Some(Signal::KILL.as_raw());
    let cut_off = code(&replay) == Some(CUT_OFF);
    let good = match victim {
        Victim::Guest => killed,
        Victim::Writer => cut_off,
        Victim::Both => killed || cut_off,
    } || (must.is_empty() && nothing);
    if waited && !replay.stdout.starts_with(&must) {
        fs::remove_dir_all(place.folder(&name))?;
        return Ok(Busy(true));
    }
    require(good, || {
        format!("replay: {}: {}", replay.ending(), replay.printed())
    })?;
    require(replay.stdout.starts_with(&must), || {
        let (there, wanted) = (replay.stdout.len(), must.len());
        format!("replay shows {there} bytes, of which {wanted} were seen 100 ms before the kill")
    })?;
    fs::remove_dir_all(place.folder(&name))?;
    Ok(Busy(false))
}

/// Whether the kernel lets a process wait though it could run, or has done so for long.
fn waited_for_its_turn(pid: Pid) -> bool {
    let read = |name: &str| {
        let path = format!("/proc/{}/{name}", pid.as_raw_nonzero());
        fs::read_to_string(path).unwrap_or_default()
    };
    let nanoseconds = read("schedstat")
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok());
    let runnable = read("stat").contains(") R ");
    runnable || nanoseconds.unwrap_or(0) > 20_000_000u64
}

/// The guest ends because its writer is gone.
fn stops(child: &mut Child) -> Result<(), Failed> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let ended = wait_readable(std::os::fd::AsFd::as_fd(&pidfd), LONG);
    require(ended, || "it hangs without its writer".into())?;
    let status = child.wait()?;
    require(status.code() == Some(UNABLE), || {
        format!("without its writer it ended with {status}")
    })
}

/// The guest doesn't care.
fn goes_on(lines: &Receiver<(Instant, Vec<u8>)>, killed: Instant) -> Result<(), Failed> {
    // More than a pipe holds, and than can have been on its way.
    let mut bytes = 0;
    while bytes < 2000 {
        let (when, piece) = lines.recv_timeout(LONG)?;
        if when > killed {
            bytes += piece.len();
        }
    }
    Ok(())
}

/// The process that has the recording's log open for writing.
pub fn writer_of(folder: &Path) -> Option<Pid> {
    let log = folder.join("log");
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if comm.trim() != "clew-writer" {
            continue;
        }
        let fds = fs::read_dir(entry.path().join("fd")).ok();
        let has = |fd: &fs::DirEntry| fs::read_link(fd.path()).is_ok_and(|to| to == log);
        if fds.is_some_and(|fds| fds.flatten().any(|fd| has(&fd))) {
            return Pid::from_raw(entry.file_name().to_str()?.parse().ok()?);
        }
    }
    None
}

/// Waits until the writer has let go of the log.
pub fn over(folder: &Path) -> Result<(), Failed> {
    let log = File::open(folder.join("log"))?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(log.lock()));
    receiver
        .recv_timeout(LONG)
        .map_err(|_| "the writer stays")??;
    Ok(())
}

//! One run. In: the options of a recording. Out: its folder, and how the program ended.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clew_recording::summary::{self, End};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::guard::Guard;
use crate::{HuntError, Plan, measure, races};

/// Output beyond this is dropped: conditions and reports look at what came first.
const MOST_OUTPUT: usize = 8 << 20;
/// How often a run that takes long looks whether the hunt is over.
const LOOK: Duration = Duration::from_millis(100);
/// A program that was told to end with SIGABRT has this long.
const GRACE: Duration = Duration::from_millis(500);

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    Exit(i32),
    Signal(i32),
    TimedOut,
    /// Who waits for whom.
    Deadlock(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Exit(status) => write!(f, "exit {status}"),
            Ended::Signal(signal) => match Signal::from_named_raw(*signal) {
                Some(name) => write!(f, "{}", signal_name(name, *signal)),
                None => write!(f, "signal {signal}"),
            },
            Ended::TimedOut => write!(f, "timeout"),
            Ended::Deadlock(_) => write!(f, "deadlock"),
        }
    }
}

fn signal_name(signal: Signal, number: i32) -> String {
    // Debug prints "Signal::ABORT" or the like, which isn't what people call it.
    let name = match signal {
        Signal::ABORT => "SIGABRT",
        Signal::SEGV => "SIGSEGV",
        Signal::BUS => "SIGBUS",
        Signal::FPE => "SIGFPE",
        Signal::ILL => "SIGILL",
        Signal::TRAP => "SIGTRAP",
        Signal::TERM => "SIGTERM",
        Signal::KILL => "SIGKILL",
        Signal::INT => "SIGINT",
        Signal::PIPE => "SIGPIPE",
        Signal::ALARM => "SIGALRM",
        _ => return format!("signal {number}"),
    };
    name.into()
}

/// What is known of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub ended: Ended,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub took: Duration,
    /// A data race, if these are looked for and there is one.
    pub race: Option<String>,
}

/// How runs are made.
#[derive(Clone, Debug)]
pub struct Runner {
    /// The clew command.
    pub exe: PathBuf,
    /// Options of `clew record` for all runs.
    pub options: Vec<OsString>,
    pub program: Vec<OsString>,
    /// Look for data races in each run.
    pub races: bool,
}

impl Runner {
    /// Records one run into `folder`, with these options for its schedule. None if the hunt was stopped meanwhile.
    pub fn run(
        &self,
        plan: &Plan,
        folder: &Path,
        timeout: Option<Duration>,
        guard: &Guard,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Outcome>, HuntError> {
        let started = Instant::now();
        let mut child = Command::new(&self.exe)
            .args(["record", "--hunted", "--on-deadlock=stop", "-o"])
            .arg(folder)
            .args(plan.options())
            .args(&self.options)
            .arg("--")
            .args(&self.program)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(HuntError::io("starting a run"))?;
        let group = child.id();
        guard.begins(group);
        let watched = watch(&mut child, started, timeout, stop);
        // What it left running must not disturb the next run.
        end_group(group, Signal::KILL);
        let waited = child.wait();
        guard.ended(group);
        let watched = watched.map_err(HuntError::io("watching a run"))?;
        let status = waited.map_err(HuntError::io("waiting for a run"))?;
        let ended = match watched.how {
            How::Stopped => return Ok(None),
            How::TimedOut => Ended::TimedOut,
            How::Ended => ended(status),
        };
        let mut outcome = Outcome {
            ended,
            stdout: watched.stdout,
            stderr: watched.stderr,
            took: started.elapsed(),
            race: None,
        };
        self.check(&mut outcome, folder)?;
        if self.races {
            measure::wait_for_writer(folder);
            outcome.race = races::first(&self.exe, folder)?;
        }
        Ok(Some(outcome))
    }

    /// Tells the program's end from that of a recorder which couldn't do its work, and from a deadlock.
    fn check(&self, outcome: &mut Outcome, folder: &Path) -> Result<(), HuntError> {
        const FIRST_OF_OURS: i32 = 125;
        match outcome.ended {
            Ended::Exit(status @ FIRST_OF_OURS..=127) => {
                measure::wait_for_writer(folder);
                let end = summary::of(folder).map(|summary| summary.end);
                if !matches!(end, Ok(End::Exited { status: own }) if own == status) {
                    let said = String::from_utf8_lossy(&outcome.stderr);
                    let said = said.trim();
                    let said = said.strip_prefix("clew: ").unwrap_or(said);
                    return Err(HuntError::Unrecordable(match said {
                        "" => format!("clew record ended with status {status}"),
                        said => said.into(),
                    }));
                }
            }
            // A child's deadlock may have been its parent's failure.
            Ended::Exit(1..) | Ended::Signal(_) | Ended::TimedOut => {
                measure::wait_for_writer(folder);
                let summary = summary::of(folder);
                if let Some(text) = summary.ok().and_then(|summary| summary.deadlock) {
                    outcome.ended = Ended::Deadlock(text);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exit(code),
        (None, signal) => Ended::Signal(signal.unwrap_or(0)),
    }
}

fn end_group(group: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, signal);
    }
}

enum How {
    Ended,
    TimedOut,
    Stopped,
}

struct Watched {
    how: How,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Reads what the run prints until it ends, its time is up, or the hunt is over.
fn watch(
    child: &mut Child,
    started: Instant,
    timeout: Option<Duration>,
    stop: &dyn Fn() -> bool,
) -> io::Result<Watched> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut limit = timeout.map(|timeout| started + timeout);
    let mut timed_out = false;
    // What it left running may print for ever.
    let mut reads_left = 1000;
    let how = loop {
        if stop() {
            break How::Stopped;
        }
        let now = Instant::now();
        if let Some(end) = limit.filter(|&end| now >= end) {
            if timed_out {
                break How::TimedOut;
            }
            // A death with a place in the program shows where it hung.
            timed_out = true;
            limit = Some(end.max(now) + GRACE);
            end_group(child.id(), Signal::ABORT);
        }
        let wait = limit.map_or(LOOK, |end| LOOK.min(end.saturating_duration_since(now)));
        let ready = ready([Some(pidfd.as_fd()), fd(&out), fd(&err)], wait)?;
        if ready[1] {
            read(&mut out, &mut stdout)?;
        }
        if ready[2] {
            read(&mut err, &mut stderr)?;
        }
        reads_left -= u32::from(ready[0]);
        if ready[0] && (!ready[1] && !ready[2] || reads_left == 0) {
            break if timed_out { How::TimedOut } else { How::Ended };
        }
    };
    Ok(Watched {
        how,
        stdout,
        stderr,
    })
}

fn fd<T: AsFd>(pipe: &Option<T>) -> Option<BorrowedFd<'_>> {
    pipe.as_ref().map(AsFd::as_fd)
}

/// Which of the descriptors have something, after at most `wait`.
fn ready(fds: [Option<BorrowedFd<'_>>; 3], wait: Duration) -> io::Result<[bool; 3]> {
    let mut found = [false; 3];
    let there: Vec<usize> = (0..3).filter(|&n| fds[n].is_some()).collect();
    let polled = fds.into_iter().flatten();
    let mut polled: Vec<PollFd<'_>> = polled
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
    match poll(&mut polled, Some(&wait)) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok(found),
        Err(error) => return Err(error.into()),
    }
    for (n, polled) in there.into_iter().zip(&polled) {
        found[n] = !polled.revents().is_empty();
    }
    Ok(found)
}

/// Takes what is there; at its end the pipe is gone.
fn read<T: Read>(pipe: &mut Option<T>, into: &mut Vec<u8>) -> io::Result<()> {
    let Some(from) = pipe else {
        return Ok(());
    };
    let mut buffer = [0; 16 << 10];
    match from.read(&mut buffer) {
        Ok(0) => *pipe = None,
        Ok(n) => {
            let room = MOST_OUTPUT - into.len().min(MOST_OUTPUT);
            into.extend_from_slice(&buffer[..n.min(room)]);
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

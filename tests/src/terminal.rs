//! A program on a pseudo-terminal of its own: typed at, read from, resized.
//!
//! What a terminal program prints depends on timing, so these tests don't compare
//! transcripts: they type, wait for what must appear, and check how the program ends.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::run::{Job, wait_readable};

/// How long a program may take to print what is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Terminal {
    controller: Option<File>,
    child: Child,
    /// Everything printed so far, and how much of it was already looked at.
    text: Vec<u8>,
    seen: usize,
}

impl Terminal {
    /// Starts the job as the leader of a session on a new terminal of 24 × 80.
    pub fn start(job: &Job) -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let controller = openpt(flags).expect("a terminal");
        grantpt(&controller).expect("a terminal of our own");
        unlockpt(&controller).expect("a usable terminal");
        let name = ptsname(&controller, Vec::new()).expect("a terminal has a name");
        let name = name.to_string_lossy().into_owned();
        let tty = OpenOptions::new().read(true).write(true).open(name);
        let tty = tty.expect("the terminal's other side");
        tcsetwinsize(&tty, size(24, 80)).expect("a size");

        let inner = job.command();
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(&job.program).args(&job.args);
        command.current_dir(&job.dir).env_clear();
        command.envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let handle = || tty.try_clone().expect("a descriptor");
        command.stdin(handle()).stdout(handle()).stderr(handle());
        Terminal {
            controller: Some(File::from(controller)),
            child: command.spawn().expect("setsid is part of util-linux"),
            text: Vec::new(),
            seen: 0,
        }
    }

    /// The session's leader.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Types the keys.
    pub fn send(&mut self, keys: &str) -> Result<(), String> {
        let controller = self.controller.as_mut().ok_or("hung up")?;
        controller
            .write_all(keys.as_bytes())
            .map_err(|error| format!("typing {keys:?}: {error}"))
    }

    /// Types the keys until `what` appears: a program that is about to read may not have
    /// set its terminal up yet, and what is typed too early is lost.
    pub fn insist(&mut self, keys: &str, what: &str) -> Result<(), String> {
        for _ in 0..PATIENCE.as_secs() {
            self.send(keys)?;
            if self.expect_within(what, Duration::from_secs(1)).is_ok() {
                return Ok(());
            }
        }
        self.expect(what)
    }

    /// Waits until `what` is printed, after what was waited for before.
    pub fn expect(&mut self, what: &str) -> Result<(), String> {
        self.expect_within(what, PATIENCE)
    }

    fn expect_within(&mut self, what: &str, limit: Duration) -> Result<(), String> {
        let end = Instant::now() + limit;
        loop {
            if let Some(at) = find(&self.text[self.seen..], what.as_bytes()) {
                self.seen += at + what.len();
                return Ok(());
            }
            let left = end.saturating_duration_since(Instant::now());
            if !self.read(left) {
                let printed = String::from_utf8_lossy(&self.text);
                return Err(format!("{what:?} did not appear in:\n{printed}\n"));
            }
        }
    }

    /// Reads some more; whether there was any.
    fn read(&mut self, limit: Duration) -> bool {
        let Some(controller) = self.controller.as_mut() else {
            return false;
        };
        if !wait_readable(controller.as_fd(), limit) {
            return false;
        }
        let mut buffer = [0; 4096];
        match controller.read(&mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(length) => {
                self.text.extend(&buffer[..length]);
                true
            }
        }
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        if let Some(controller) = &self.controller {
            tcsetwinsize(controller, size(rows, columns)).expect("a size");
        }
    }

    /// Takes the terminal away.
    pub fn hang_up(&mut self) {
        self.controller = None;
    }

    /// Waits for the program's end.
    pub fn finish(mut self) -> Result<ExitStatus, String> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                return Ok(status);
            }
            if Instant::now() > end {
                let printed = String::from_utf8_lossy(&self.text);
                return Err(format!("still running, after printing:\n{printed}\n"));
            }
            // Someone has to read, or the program may block on its output.
            if !self.read(Duration::from_millis(20)) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

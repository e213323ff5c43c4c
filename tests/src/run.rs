//! A command goes in, its outcome comes out: output, ending, and whether it hung.
//!
//! Output goes to files rather than pipes, so that a hang still shows what was printed and
//! a stray grandchild cannot hold the test. Every run has a process group of its own,
//! which a hang is ended by.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::clew;
use crate::header::Ending;
use crate::scratch;

/// A program and its surroundings; runs as often as wanted.
#[derive(Clone, Debug)]
pub struct Job {
    pub program: PathBuf,
    pub args: Vec<String>,
    /// On top of [`BASE_ENV`]; nothing else is inherited.
    pub env: Vec<(String, String)>,
    pub stdin: String,
    pub dir: PathBuf,
    pub timeout: Duration,
}

/// What every run's environment starts from: the same everywhere, and free of what makes
/// programs differ from run to run.
pub const BASE_ENV: &[(&str, &str)] = &[
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ),
    ("LANG", "C.UTF-8"),
    ("TZ", "UTC"),
    ("TERM", "xterm"),
    ("PYTHONHASHSEED", "0"),
    ("PERL_HASH_SEED", "0"),
];

/// What a person or script sees of a run.
#[derive(Debug)]
pub struct Outcome {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// None: the time limit was reached.
    pub status: Option<ExitStatus>,
}

impl Job {
    pub fn new(program: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Job {
        Job {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            stdin: String::new(),
            dir: dir.into(),
            timeout: Duration::from_secs(120),
        }
    }

    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Job {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// The same job through `clew run`, with `options` before the program.
    pub fn under_clew(&self, options: &[&str]) -> Job {
        self.through("run", options)
    }

    /// The same job through another command of clew that runs programs.
    pub fn through(&self, verb: &str, options: &[&str]) -> Job {
        let mut job = self.clone();
        job.program = clew::path().to_owned();
        let program = self.program.to_string_lossy().into_owned();
        job.args = [verb]
            .into_iter()
            .chain(options.iter().copied())
            .map(str::to_owned)
            .chain(["--".to_owned(), program])
            .chain(self.args.iter().cloned())
            .collect();
        // A translated program may take longer, on a machine that is busy too.
        job.timeout *= 2;
        job
    }

    /// The command with its surroundings, not started.
    pub fn command(&self) -> Command {
        let mut command = attentive(&self.program, ignores_keys());
        command.args(&self.args).current_dir(&self.dir).env_clear();
        command.envs(BASE_ENV.iter().copied());
        command.env("HOME", home()).env("PWD", &self.dir);
        command.env("TMPDIR", "/tmp");
        for name in ["RUSTUP_HOME", "CARGO_HOME"] {
            command.env(name, rust_home(name));
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs to the end or to the time limit.
    pub fn run(&self) -> Outcome {
        self.run_with(|_| {})
    }

    /// The same; `started` is told the process, which leads a group of its own.
    pub fn run_with(&self, started: impl FnOnce(Pid)) -> Outcome {
        let files = Files::new(&self.dir);
        fs::write(&files.stdin, &self.stdin).expect("a writable scratch folder");
        let open = |path| File::create(path).expect("a writable scratch folder");
        let mut command = self.command();
        command
            .stdin(File::open(&files.stdin).expect("just written"))
            .stdout(Stdio::from(open(&files.stdout)))
            .stderr(Stdio::from(open(&files.stderr)))
            .process_group(0);
        let status = match command.spawn() {
            Ok(mut child) => {
                started(Pid::from_child(&child));
                wait(&mut child, self.timeout)
            }
            Err(error) => panic!("cannot start {}: {error}", self.program.display()),
        };
        let read = |path| fs::read(path).unwrap_or_default();
        Outcome {
            stdout: read(&files.stdout),
            stderr: read(&files.stderr),
            status,
        }
    }

    /// A line for the shell that does the same.
    pub fn shell_line(&self) -> String {
        let mut line = format!("cd {} && env", quote(&self.dir.to_string_lossy()));
        for (name, value) in &self.env {
            let _ = write!(line, " {name}={}", quote(value));
        }
        let _ = write!(line, " {}", quote(&self.program.to_string_lossy()));
        for arg in &self.args {
            let _ = write!(line, " {}", quote(arg));
        }
        if !self.stdin.is_empty() {
            let stdin = Files::new(&self.dir).stdin;
            let _ = write!(line, " <{}", quote(&stdin.to_string_lossy()));
        }
        line
    }
}

/// Whether this process ignores SIGINT or SIGQUIT, as all that a script starts in the background does, or SIGHUP (`nohup`): programs
/// inherit that, and those that wait for somebody to die by one of them would wait for ever.
fn ignores_keys() -> bool {
    static IGNORES: OnceLock<bool> = OnceLock::new();
    *IGNORES.get_or_init(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        ignored(&status) & 0b111 != 0
    })
}

/// The set of ignored signals in a `/proc/PID/status`.
fn ignored(status: &str) -> u64 {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.map_or(0, |set| u64::from_str_radix(set.trim(), 16).unwrap_or(0))
}

/// A command that has SIGHUP, SIGINT and SIGQUIT at their defaults, whoever started the tests.
fn attentive(program: &Path, ignored: bool) -> Command {
    if !ignored {
        return Command::new(program);
    }
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,QUIT").arg(program);
    command
}

/// The files of a run, beside its working directory so that the guest doesn't see them.
struct Files {
    stdin: PathBuf,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Files {
    fn new(dir: &Path) -> Files {
        let beside = |suffix: &str| PathBuf::from(format!("{}.{suffix}", dir.display()));
        Files {
            stdin: beside("stdin"),
            stdout: beside("stdout"),
            stderr: beside("stderr"),
        }
    }
}

/// Waits for `child`, and ends its whole process group when `limit` is reached.
fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let pid = Pid::from_child(child);
    let status = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => wait_readable(pidfd.as_fd(), limit).then(|| child.wait().expect("a child")),
        Err(error) => panic!("pidfd_open: {error}"),
    };
    // The rest of the group goes as well, or it would disturb the next test.
    let _ = kill_process_group(pid, Signal::KILL);
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    status
}

/// Whether `fd` has something to read before `limit` has passed.
pub fn wait_readable(fd: BorrowedFd<'_>, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("a short time");
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("poll: {error}"),
        }
    }
}

impl Outcome {
    /// The ending in words.
    pub fn ending(&self) -> String {
        match self.status {
            None => "hung (ended at the time limit)".to_owned(),
            Some(status) => status.to_string(),
        }
    }

    pub fn ended(&self, expected: &Ending) -> bool {
        self.status.is_some_and(|status| match expected {
            Ending::Exit(code) => status.code() == Some(*code),
            Ending::Signal(signal) => status.signal() == Some(*signal),
        })
    }

    /// Everything printed, for a report.
    pub fn printed(&self) -> String {
        let stdout = String::from_utf8_lossy(&self.stdout);
        let stderr = String::from_utf8_lossy(&self.stderr);
        format!("--- stdout\n{}--- stderr\n{}", tail(&stdout), tail(&stderr))
    }
}

/// The last part of a long text.
fn tail(text: &str) -> String {
    const LINES: usize = 40;
    let lines: Vec<&str> = text.lines().collect();
    let skipped = lines.len().saturating_sub(LINES);
    let mut out = String::new();
    if skipped > 0 {
        let _ = writeln!(out, "[{skipped} lines]");
    }
    for line in &lines[skipped..] {
        let cut: String = line.chars().take(300).collect();
        let _ = writeln!(out, "{cut}");
    }
    out
}

/// A home for all runs, apart from their working directories: what programs (and clew's own
/// cache) keep there is not part of the comparison.
fn home() -> PathBuf {
    let home = scratch::root().join("home");
    fs::create_dir_all(&home).expect("a writable target folder");
    home
}

/// Where rustup and cargo keep their things, since HOME is changed for guests.
pub fn rust_home(name: &str) -> PathBuf {
    let default = if name == "CARGO_HOME" {
        ".cargo"
    } else {
        ".rustup"
    };
    std::env::var_os(name).map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(default),
        PathBuf::from,
    )
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_begin_with_the_signals_of_a_terminal() {
        let program = attentive(Path::new("grep"), true);
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh"]);
        command.arg(program.get_program()).args(program.get_args());
        let output = command.args(["SigIgn", "/proc/self/status"]).output();
        let status = String::from_utf8(output.unwrap().stdout).unwrap();
        assert!(status.starts_with("SigIgn:"), "{status}");
        assert_eq!(ignored(&status) & 0b111, 0, "{status}");
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001006\n"), 0x1006);
    }
}

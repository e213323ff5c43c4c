//! A gdb that speaks MI through pipes: commands go in, answers and stops come out.
//!
//! Nothing here waits by the clock: an answer is waited for until it comes, or until the time limit
//! that only a hang reaches.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::run::Job;
use crate::value::{self, Value};

/// Nothing takes longer that doesn't hang.
const PATIENCE: Duration = Duration::from_secs(100);
/// So many lines of a dialogue are shown when something goes wrong.
const SHOWN: usize = 60;

/// A running gdb.
pub struct Mi {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    token: u32,
    /// What was said, both ways.
    log: Vec<String>,
    /// Stops that came before anybody asked.
    stops: Vec<Value>,
    /// gdb has said that there is nothing more in that direction.
    at_an_end: bool,
    shell_line: String,
}

/// What a command came to.
pub struct Answer {
    pub results: Value,
    /// What gdb printed for people meanwhile.
    pub console: String,
}

pub type Result<T> = std::result::Result<T, String>;

impl Mi {
    /// Starts a job that is, or ends up in, a `gdb --interpreter=mi`.
    pub fn start(job: &Job) -> Mi {
        let mut command = job.command();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().expect("gdb starts");
        let (sender, lines) = channel();
        let errors = child.stderr.take().expect("piped");
        let printed = child.stdout.take().expect("piped");
        let to_log = sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(errors)
                .split(b'\n')
                .map_while(|line| line.ok())
            {
                let line = String::from_utf8_lossy(&line).into_owned();
                if to_log.send(format!("!{line}")).is_err() {
                    break;
                }
            }
        });
        thread::spawn(move || {
            for line in BufReader::new(printed)
                .split(b'\n')
                .map_while(|line| line.ok())
            {
                let line = String::from_utf8_lossy(&line).into_owned();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Mi {
            input: child.stdin.take(),
            child,
            lines,
            token: 0,
            log: Vec::new(),
            stops: Vec::new(),
            at_an_end: false,
            shell_line: job.shell_line(),
        }
    }

    /// The first process of the session.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// gdb's own process.
    pub fn gdb_pid(&mut self) -> Result<Pid> {
        let text = self.console("python import os; print(os.getpid())")?;
        let number = text.trim().parse().ok().and_then(Pid::from_raw);
        number.ok_or_else(|| self.failure(&format!("no process id: {text}")))
    }

    /// Says a command of MI or, if it has no dash, of the command line; waits for its answer. An error is
    /// an `Err`.
    pub fn command(&mut self, text: &str) -> Result<Answer> {
        let mut console = String::new();
        let token = self.say(text)?;
        let (class, results) = self.answer(&token, &mut console)?;
        match class.as_str() {
            "error" => {
                let message = results.text("msg").unwrap_or_default();
                Err(self.failure(&format!("{text}: {message}")))
            }
            _ => Ok(Answer { results, console }),
        }
    }

    /// What gdb prints for a command.
    pub fn console(&mut self, text: &str) -> Result<String> {
        self.command(text).map(|answer| answer.console)
    }

    /// What is said to a command, be it an error or not.
    pub fn said(&mut self, text: &str) -> Result<String> {
        let mut console = String::new();
        let token = self.say(text)?;
        let (_, results) = self.answer(&token, &mut console)?;
        console.push_str(&results.text("msg").unwrap_or_default());
        let token = self.say("-gdb-show width")?;
        self.answer(&token, &mut console)?;
        Ok(console)
    }

    /// What is printed for a command that may move the program, until all is said.
    pub fn does(&mut self, text: &str) -> Result<String> {
        self.stops.clear();
        let mut console = self.command(text)?.console;
        // What comes after this one's answer isn't of that command any more.
        console.push_str(&self.command("-gdb-show width")?.console);
        Ok(console)
    }

    /// The message of a command that must fail.
    pub fn refused(&mut self, text: &str) -> Result<String> {
        let mut console = String::new();
        let token = self.say(text)?;
        let (class, results) = self.answer(&token, &mut console)?;
        match class.as_str() {
            "error" => Ok(results.text("msg").unwrap_or_default()),
            _ => Err(self.failure(&format!("{text} wasn't refused"))),
        }
    }

    /// Says a command that makes the program go, and waits until it stops.
    pub fn go(&mut self, text: &str) -> Result<Stop> {
        self.stops.clear();
        self.command(text)?;
        self.stop()
    }

    /// Says a command without waiting for more than its being under way.
    pub fn start_going(&mut self, text: &str) -> Result<()> {
        self.stops.clear();
        self.command(text).map(drop)
    }

    /// Waits for the next stop.
    pub fn stop(&mut self) -> Result<Stop> {
        let mut console = String::new();
        while self.stops.is_empty() {
            let line = self.line()?;
            self.take(&line, &mut console);
        }
        Ok(Stop(self.stops.remove(0)))
    }

    /// The value of an expression, as gdb prints it.
    pub fn print(&mut self, expression: &str) -> Result<String> {
        let text = format!("-data-evaluate-expression {}", value::quoted(expression));
        let answer = self.command(&text)?;
        answer
            .results
            .text("value")
            .ok_or_else(|| self.failure(&format!("{expression} has no value")))
    }

    /// An expression's value as a number.
    pub fn number(&mut self, expression: &str) -> Result<i64> {
        let text = self.print(expression)?;
        let first = text.split_whitespace().next().unwrap_or_default();
        let number = match first.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).map(u64::cast_signed).ok(),
            None => first.parse().ok(),
        };
        number.ok_or_else(|| self.failure(&format!("{expression} is {text}: no number")))
    }

    /// Ctrl-C, as a terminal sends it, to the whole process group, until it stops: gdb takes none while it
    /// is busy with itself.
    pub fn interrupt(&mut self) -> Result<Stop> {
        const AGAIN: Duration = Duration::from_secs(2);
        let mut console = String::new();
        let mut asked: Option<Instant> = None;
        let end = Instant::now() + PATIENCE;
        while self.stops.is_empty() {
            if asked.is_none_or(|asked| asked.elapsed() >= AGAIN) {
                kill_process_group(self.pid(), Signal::INT).map_err(|error| error.to_string())?;
                asked = Some(Instant::now());
            }
            match self.lines.recv_timeout(AGAIN) {
                Ok(line) => {
                    self.log.push(line.clone());
                    self.take(&line, &mut console);
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                Err(_) => return Err(self.failure("it can't be interrupted")),
            }
        }
        Ok(Stop(self.stops.remove(0)))
    }

    /// Ends a process of this session at once.
    pub fn kill(&mut self, pid: Pid) -> Result<()> {
        kill_process(pid, Signal::KILL).map_err(|error| error.to_string())
    }

    /// No more commands will come.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Says goodbye, and waits for the end.
    pub fn quit(mut self) -> Result<ExitStatus> {
        self.say("-gdb-exit")?;
        self.input = None;
        self.ended()
    }

    /// Waits until the session's first process has ended; its output is read on.
    pub fn ended(&mut self) -> Result<ExitStatus> {
        while let Ok(line) = self.line() {
            drop(line);
        }
        match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            // Its output is closed, so it is about to be over.
            Ok(None) => self.child.wait().map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// A message with the last part of the dialogue, and how to see it again.
    pub fn failure(&self, what: &str) -> String {
        let skipped = self.log.len().saturating_sub(SHOWN);
        let shown = self.log[skipped..].join("\n");
        format!(
            "{what}\n--- dialogue\n{shown}\n--- clew: {}\n",
            self.shell_line
        )
    }

    fn say(&mut self, text: &str) -> Result<String> {
        self.token += 1;
        let token = self.token.to_string();
        let line = if text.starts_with('-') {
            format!("{token}{text}\n")
        } else {
            let quoted = value::quoted(text);
            format!("{token}-interpreter-exec console {quoted}\n")
        };
        self.log.push(format!("> {}", line.trim_end()));
        let said = self
            .input
            .as_mut()
            .map(|input| input.write_all(line.as_bytes()));
        match said {
            Some(Ok(())) => Ok(token),
            _ => Err(self.failure("gdb doesn't listen any more")),
        }
    }

    fn answer(&mut self, token: &str, console: &mut String) -> Result<(String, Value)> {
        loop {
            let line = self.line()?;
            let Some(rest) = line.strip_prefix(token).and_then(|l| l.strip_prefix('^')) else {
                self.take(&line, console);
                continue;
            };
            let (class, results) = rest.split_once(',').unwrap_or((rest, ""));
            return Ok((class.to_owned(), value::results(results)));
        }
    }

    /// Looks at a line that isn't the awaited one.
    fn take(&mut self, line: &str, console: &mut String) {
        // What is printed by gdb, and by the program or who plays it.
        if let Some(text) = line.strip_prefix(['~', '@']) {
            let text = value::unquoted(text);
            self.at_an_end |= text.contains("No more reverse-execution history");
            console.push_str(&text);
        } else if let Some(results) = line.strip_prefix("*stopped") {
            let results = results.trim_start_matches(',');
            // Older gdbs say it to people only.
            let added = match self.at_an_end && !results.contains("reason=") {
                true => format!("reason=\"no-history\",{results}"),
                false => results.to_owned(),
            };
            self.at_an_end = false;
            self.stops.push(value::results(&added));
        }
    }

    fn line(&mut self) -> Result<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                let cut: String = line.chars().take(400).collect();
                self.log.push(cut);
                Ok(line)
            }
            Err(RecvTimeoutError::Timeout) => Err(self.failure("no answer: it hangs")),
            Err(RecvTimeoutError::Disconnected) => Err(self.failure("gdb has ended")),
        }
    }
}

impl Drop for Mi {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Where and why it stands.
pub struct Stop(pub Value);

impl Stop {
    /// As MI names reasons; nothing if gdb knows none.
    pub fn reason(&self) -> String {
        self.0.text("reason").unwrap_or_default()
    }

    pub fn function(&self) -> String {
        self.frame("func")
    }

    pub fn line(&self) -> u32 {
        self.frame("line").parse().unwrap_or(0)
    }

    pub fn pc(&self) -> String {
        self.frame("addr")
    }

    /// gdb's number of the thread.
    pub fn thread(&self) -> String {
        self.0.text("thread-id").unwrap_or_default()
    }

    /// A value of what is special about this stop: `signal-name`, `bkptno`...
    pub fn text(&self, name: &str) -> String {
        self.0.text(name).unwrap_or_default()
    }

    fn frame(&self, name: &str) -> String {
        let frame = self.0.get("frame");
        frame.and_then(|frame| frame.text(name)).unwrap_or_default()
    }
}

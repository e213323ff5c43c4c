//! Questions about a value of a recorded run. In: the words of a command line. Out: a timeline that stands where the value
//! is looked at, and the value; what went wrong, with an exit status.

use std::ffi::{CStr, OsStr};

use clew_recording::event::{StreamId, ThreadId};
use clew_recording::process;
use clew_recording::reader::Recording;
use clew_slice::origin::{Value, register_named};
use clew_symbols::expr::Bindings;
use clew_timeline::program::Program;
use clew_timeline::{Reason, Settings, Target, Timeline};

use crate::answers::arguments::Which;
use crate::progress::Progress;
use crate::recordings::{self, Opened};
use crate::replay::{CANT_REPLAY, DIVERGED};
use crate::text;
use crate::when::When;

pub const NOT_FOUND: i32 = 1;
pub const WRONG: i32 = 2;

/// Why there is no answer, with the exit status for it.
pub struct Failed(pub i32, pub String);

impl Failed {
    /// Says so.
    pub fn tell(&self) -> i32 {
        for (n, line) in self.1.lines().enumerate() {
            let line = text::plain(line);
            match n {
                0 => eprintln!("clew: {line}"),
                _ => eprintln!("{line}"),
            }
        }
        self.0
    }
}

impl From<clew_timeline::Error> for Failed {
    fn from(error: clew_timeline::Error) -> Failed {
        match error {
            error @ (clew_timeline::Error::Diverged(_) | clew_timeline::Error::Unsteady(_)) => {
                Failed(DIVERGED, error.to_string())
            }
            error => Failed(CANT_REPLAY, error.to_string()),
        }
    }
}

impl From<clew_slice::Error> for Failed {
    fn from(error: clew_slice::Error) -> Failed {
        match error {
            clew_slice::Error::Timeline(error) => error.into(),
            error => Failed(CANT_REPLAY, error.to_string()),
        }
    }
}

impl From<clew_order::Error> for Failed {
    fn from(error: clew_order::Error) -> Failed {
        match error {
            clew_order::Error::Timeline(error) => error.into(),
            error @ clew_order::Error::Refused(_) => Failed(NOT_FOUND, error.to_string()),
            error => Failed(CANT_REPLAY, error.to_string()),
        }
    }
}

/// A recording that is asked about.
pub struct Asked {
    pub name: String,
    pub recording: Recording,
    pub timeline: Timeline,
    pub program: Program,
    settings: Settings,
    /// Whose values are meant, if not those of the thread that runs.
    thread: Option<ThreadId>,
}

impl Asked {
    /// Opens one and goes to a place.
    pub fn open(
        recording: Option<&OsStr>,
        which: &Which,
        at: Target,
        envp: &[&CStr],
    ) -> Result<Asked, Failed> {
        let unable = |error: &dyn std::fmt::Display| Failed(CANT_REPLAY, error.to_string());
        let Opened {
            name, recording, ..
        } = recordings::open(envp, recording).map_err(|why| Failed(why.failed(), String::new()))?;
        let stream = process::program(recording.streams(), which.pid, which.exec)
            .map_err(|why| unable(&format!("{why}; clew info {name} shows its processes")))?;
        let settings = which.replaying.settings(envp);
        let settings = settings.map_err(|m| Failed(WRONG, m))?;
        let mut timeline = opened(&recording, stream, &settings)?;
        timeline.seek(at)?;
        let program = Program::new(&recording);
        Ok(Asked {
            name,
            recording,
            timeline,
            program,
            settings,
            thread: None,
        })
    }

    /// Opens one and goes to a moment that somebody has named, or to the end.
    pub fn open_at(
        recording: Option<&OsStr>,
        which: &Which,
        at: Option<&When>,
        thread: Option<ThreadId>,
        envp: &[&CStr],
    ) -> Result<Asked, Failed> {
        let mut asked = Asked::open(recording, which, Target::Start, envp)?;
        asked.thread = thread;
        match at {
            Some(when) => asked.go(when)?,
            None => {
                asked.timeline.seek(Target::End)?;
            }
        }
        Ok(asked)
    }

    /// Goes to a moment; where only one thread counts, to one of its.
    pub fn go(&mut self, when: &When) -> Result<(), Failed> {
        let at = when.target_of(&self.recording, &mut self.timeline, self.thread)?;
        let timeline = &mut self.timeline;
        let stop = timeline.seek(at)?;
        let (here, behind) = (
            timeline.position()?,
            !matches!(stop.reason, Reason::Arrived),
        );
        let wanted = match at {
            Target::Position(wanted) if behind && wanted > here => wanted.to_string(),
            Target::Ticks(ticks) if behind => format!("tick:{ticks}"),
            _ => return Ok(()),
        };
        Err(Failed(
            WRONG,
            format!(
                "{wanted} lies behind the end of the recording, which is {here}\nleave --at out, or name a position up to there"
            ),
        ))
    }

    /// The same recording, another process of it.
    pub fn another(&self, stream: StreamId, at: Target) -> Result<Asked, Failed> {
        let mut timeline = opened(&self.recording, stream, &self.settings)?;
        timeline.seek(at)?;
        Ok(Asked {
            name: self.name.clone(),
            recording: self.recording.clone(),
            timeline,
            program: Program::new(&self.recording),
            settings: self.settings.clone(),
            thread: None,
        })
    }

    /// A stream of another recording, replayed in the same way.
    pub fn of(&self, recording: &Recording, stream: StreamId) -> Result<Timeline, Failed> {
        opened(recording, stream, &self.settings)
    }

    /// The recording's log of the stream that is asked about.
    pub fn log(&self) -> Result<clew_recording::reader::StreamReader, Failed> {
        let log = self.recording.stream(self.timeline.stream());
        log.map_err(|error| Failed(CANT_REPLAY, error.to_string()))
    }

    /// What was shown of the work goes.
    pub fn done(&mut self) {
        self.timeline.set_watcher(Box::new(|_| false));
    }

    /// What is asked about, and its value as text where the timeline stands.
    pub fn meant(&mut self, what: &str) -> Result<(Value, String), Failed> {
        let runs = self.timeline.at().thread;
        let (mut value, shown) = meant(&mut self.timeline, &mut self.program, what)?;
        match (&mut value, self.thread) {
            (_, None) => {}
            (Value::Register { thread, .. }, Some(meant)) => *thread = meant,
            (Value::Memory { .. }, Some(meant))
                if meant == runs || bytes(what.trim()).is_some() => {}
            (Value::Memory { .. }, Some(meant)) => {
                let why = format!(
                    "thread {runs} runs there, not {meant}: its names mean other variables\nname a place that thread {meant} \
                     comes to: --at FILE:LINE#N or FUNCTION#N"
                );
                return Err(Failed(WRONG, why));
            }
        }
        Ok((value, shown))
    }
}

fn opened(
    recording: &Recording,
    stream: StreamId,
    settings: &Settings,
) -> Result<Timeline, Failed> {
    let timeline = Timeline::open(recording, stream, settings.clone());
    let mut timeline = timeline.map_err(|error| Failed(CANT_REPLAY, error.to_string()))?;
    timeline.expect_work(recordings::work(recording, stream));
    let mut progress = Progress::new("replaying");
    timeline.set_watcher(Box::new(move |done| {
        progress.show(done);
        false
    }));
    Ok(timeline)
}

/// What is asked about where a timeline stands, and its value as text.
pub fn meant(
    timeline: &mut Timeline,
    program: &mut Program,
    what: &str,
) -> Result<(Value, String), Failed> {
    let wrong = |message: String| Failed(WRONG, message);
    let what = what.trim();
    if let Some(name) = what.strip_prefix('$') {
        let register = register_named(name)
            .ok_or_else(|| wrong(format!("${name} is no general or vector register")))?;
        let thread = timeline.at().thread;
        let value = Value::Register {
            thread,
            register,
            bytes: 0..register.size() as u8,
        };
        return Ok((value, String::new()));
    }
    if let Some((addr, len)) = bytes(what) {
        return Ok((Value::Memory { addr, len }, String::new()));
    }
    clew_symbols::expr::check(what).map_err(|problem| wrong(problem.pointed(what)))?;
    const TICKS: u64 = 10_000_000;
    let answer = program
        .evaluate(timeline, what, &mut Bindings::default(), TICKS)
        .map_err(|error| Failed(CANT_REPLAY, error.to_string()))?;
    let value = answer
        .value
        .map_err(|problem| wrong(problem.pointed(what)))?;
    match value.memory {
        Some((addr, len)) if len > 0 => Ok((Value::Memory { addr, len }, value.text)),
        _ => Err(wrong(format!(
            "`{what}` isn't in memory here: it is computed, or the compiler keeps it in a register\nask for the \
             register ($rax), or for a variable that it comes from"
        ))),
    }
}

/// `*ADDR:LEN`.
fn bytes(text: &str) -> Option<(u64, u64)> {
    let (addr, len) = text.strip_prefix('*')?.split_once(':')?;
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let len = number(len)?;
    (1..=1 << 20)
        .contains(&len)
        .then_some(())
        .and(Some((number(addr)?, len)))
}

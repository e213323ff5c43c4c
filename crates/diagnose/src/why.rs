//! How it came to a failure. In: a recorded program that failed. Out: at most a screen of sentences: what failed, the value
//! that was wrong, where that came from, who had the memory; each with its place, and marked where it is inferred.
//!
//! Each kind of failure has its question to begin with (`fault`, `frees`, `ends`, `waits`, `sanitizer`, `output`); all of them follow
//! values back (`trail`) and look for the decision that led somewhere (`decide`).

mod decide;
mod ends;
pub(crate) mod fault;
mod frees;
mod memory;
mod others;
mod output;
mod sanitizer;
mod tell;
mod trail;
mod waits;

use std::ops::Range;

use clew_calls::names;
use clew_debugger::{Debugger, Process};
use clew_recording::event::{Cause, Event, ThreadId};
use clew_recording::process;
use clew_recording::summary::{self, End};
use clew_timeline::{Direction, Events, Next, Position, Stops};
use serde::Serialize;

use crate::Result;
use crate::scene::{Scene, Site};

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It didn't fail, as far as anybody can tell.
    None,
    #[default]
    Unknown,
    NullPointer,
    WildPointer,
    UseAfterFree,
    DoubleFree,
    InvalidFree,
    HeapOverflow,
    StackSmash,
    StackOverflow,
    Uninitialised,
    Division,
    Assertion,
    Exception,
    Panic,
    Sanitizer,
    Abort,
    Exit,
    Deadlock,
    Hang,
    Child,
    Output,
    Killed,
}

/// A sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Statement {
    pub text: String,
    pub site: Option<Site>,
    /// Concluded, and not read from the recording.
    pub inferred: bool,
    /// It names the cause.
    pub cause: bool,
}

/// How it came to a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    pub kind: Kind,
    /// The process that it is about, if that isn't the one that was asked about.
    pub process: Option<String>,
    pub statements: Vec<Statement>,
    /// Where the cause isn't known: what was looked at.
    pub looked: Vec<String>,
}

impl Answer {
    pub fn cause(&self) -> Option<&Statement> {
        self.statements.iter().find(|statement| statement.cause)
    }
}

/// What is asked.
pub struct Question<'a> {
    pub process: Process,
    /// What standard output should have been.
    pub expected: Option<Vec<u8>>,
    /// Opens a process of the recording.
    pub open: &'a dyn Fn(Process) -> Result<Debugger>,
}

/// Answers about a process of a recording, and of a child of it whose failure is the reason.
pub fn why(question: &Question<'_>) -> Result<Answer> {
    let mut debugger = (question.open)(question.process)?;
    let stream = debugger.stream();
    let all = summary::of_open(debugger.recording());
    let own = all.streams.iter().find(|one| one.id == stream);
    let end = own.map(|own| own.end);
    let failed = match end {
        Some(End::Exited { status }) => status != 0,
        Some(End::Killed { .. }) => true,
        _ => false,
    };
    // A sanitizer may begin a process to find names, and end it: its report counts, not how that child ends.
    if question.expected.is_none() {
        let mut asking = Asking::new(Scene::new(&mut debugger)?);
        if asking.sanitizer()? {
            asking.interferes()?;
            return Ok(asking.answer);
        }
    }
    // A process that ended by itself after a child of it had failed was told so.
    let exits = matches!(end, Some(End::Exited { .. })) && question.expected.is_none();
    if exits && let Some(own) = own {
        let bad = all.streams.iter().rev().find(|one| {
            let failed = match one.end {
                End::Exited { status } => status != 0,
                End::Killed { .. } => true,
                _ => false,
            };
            one.id != stream && one.parent_pid == own.pid && failed
        });
        if let Some(child) = bad {
            let streams = debugger.recording().streams();
            let name = process::name(streams, child.process);
            let how = match child.end {
                End::Killed { signal } => format!("was killed by {}", names::signal(signal)),
                End::Exited { status } => format!("exited with {status}"),
                _ => "failed".into(),
            };
            let forked = forked_at(&mut debugger, child.id);
            let mut statements = Vec::new();
            if let Some(End::Exited { status }) = end
                && status != 0
            {
                statements.push(Statement {
                    text: format!("The program exited with {status}; a child of it had failed."),
                    site: None,
                    inferred: false,
                    cause: false,
                });
            }
            statements.push(Statement {
                text: format!("Process {} {how}.", child.pid),
                site: forked,
                inferred: false,
                cause: false,
            });
            drop(debugger);
            let inner = why(&Question {
                process: Process { name, exec: None },
                expected: None,
                ..*question
            })?;
            statements.extend(inner.statements);
            return Ok(Answer {
                kind: Kind::Child,
                process: name.map(|name| name.to_string()),
                statements,
                looked: inner.looked,
            });
        }
    }
    let mut asking = Asking::new(Scene::new(&mut debugger)?);
    if let Some(expected) = &question.expected {
        asking.output(expected)?;
    } else if asking.deadlock()? {
    } else if failed {
        asking.failed()?;
        asking.interferes()?;
    } else {
        asking.answer.kind = Kind::None;
        let how = match end {
            Some(End::Exited { .. }) => "It ended with status 0",
            Some(End::Exec) => "It began another program",
            _ => "The recording ends before the program does",
        };
        asking.say(
            format!("{how}: there is no failure to explain. If its output is wrong, give --expected FILE."),
            None,
        );
    }
    Ok(asking.answer)
}

/// Where a process was forked.
fn forked_at(debugger: &mut Debugger, child: u32) -> Option<Site> {
    let mut found = None;
    let read = debugger.events(|event, number, thread| {
        if let Event::Forked { stream, .. } = event
            && *stream == child
        {
            found = Some((Position::after(number), thread));
        }
        found.is_none()
    });
    read.ok()?;
    let (position, thread) = found?;
    let mut scene = Scene::new(debugger).ok()?;
    scene.site_at(position, thread).ok()
}

/// What led to a failure, as far as somebody who compares runs wants to know it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Led {
    /// Memory that the failing value was read from, what was read last first.
    pub memory: Vec<Range<u64>>,
    /// What of the output differs, in words, and where that was made.
    pub differs: Option<String>,
    pub printed: Option<Site>,
}

/// Follows the value that failed, or the first output that isn't `expected`, back from where the scene's program ended.
pub(crate) fn led(scene: Scene<'_>, expected: Option<&[u8]>) -> Result<Led> {
    let mut asking = Asking::new(scene);
    match expected {
        Some(expected) => asking.output(expected)?,
        None => asking.failed()?,
    }
    let statements = &asking.answer.statements;
    let mut own = statements.iter().filter(|_| expected.is_some());
    let differs = own.next().map(|differs| differs.text.clone());
    let printed = own.next().and_then(|by| by.site.clone());
    Ok(Led {
        differs,
        printed,
        memory: asking.followed,
    })
}

/// A question on its way to its answer.
pub(crate) struct Asking<'a> {
    pub scene: Scene<'a>,
    pub answer: Answer,
    /// Memory that values were read from which were followed.
    pub followed: Vec<Range<u64>>,
}

/// Signals that instructions raise.
const FAULTS: [i32; 4] = [4, 7, 8, 11];
const SIGABRT: i32 = 6;

impl<'a> Asking<'a> {
    fn new(scene: Scene<'a>) -> Asking<'a> {
        Asking {
            scene,
            answer: Answer::default(),
            followed: Vec::new(),
        }
    }
}

impl Asking<'_> {
    fn say(&mut self, text: String, site: Option<Site>) {
        self.add(text, site, false, false);
    }

    fn add(&mut self, text: String, site: Option<Site>, inferred: bool, cause: bool) {
        let cause = cause && self.answer.cause().is_none();
        self.answer.statements.push(Statement {
            text,
            site,
            inferred,
            cause,
        });
    }

    fn looked(&mut self, what: impl Into<String>) {
        self.answer.looked.push(what.into());
    }

    /// The last fault of an instruction: where, in which thread, which signal.
    fn last_fault(&mut self) -> Result<Option<(Position, ThreadId, i32)>> {
        let mut last = None;
        self.scene.debugger.events(|event, number, thread| {
            let found = match event {
                Event::Signal {
                    place,
                    cause: Cause::Fault,
                    signo,
                    ..
                } => Some((*place, *signo)),
                Event::Killed {
                    place,
                    cause: Cause::Fault,
                    signo,
                } => Some((*place, *signo)),
                _ => None,
            };
            if let Some((place, signo)) = found
                && FAULTS.contains(&signo)
            {
                let position = Position {
                    event: number - 1,
                    ticks: place.ticks,
                    steps: place.steps.into(),
                };
                last = Some((position, thread, signo));
            }
            true
        })?;
        Ok(last)
    }

    fn failed(&mut self) -> Result<()> {
        if self.sanitizer()? {
            return Ok(());
        }
        self.scene.debugger.stand_at_end()?;
        let at = self.scene.debugger.timeline().at();
        let fault = self.last_fault()?;
        match at.next {
            Some(Next::Killed { signo, fault: true }) if FAULTS.contains(&signo) => {
                self.fault(at.thread, signo)
            }
            // A handler saw the fault, and gave up in its own way.
            Some(Next::Killed { signo, .. }) => {
                if let Some((position, thread, fault_signo)) = fault
                    && (signo == fault_signo || signo == SIGABRT)
                    && self.near_the_end(position)?
                {
                    self.stand_before_fault(position)?;
                    return self.fault(thread, fault_signo);
                }
                self.scene.debugger.stand_at_end()?;
                if signo == SIGABRT {
                    return self.aborted(at.thread);
                }
                self.killed(signo)
            }
            Some(Next::Exit { status }) => self.exited(at.thread, status),
            _ => {
                self.answer.kind = Kind::Unknown;
                self.say("The recording ends before the program does.".into(), None);
                Ok(())
            }
        }
    }

    /// Goes to the instruction that faulted, by the tick that it is behind.
    fn stand_before_fault(&mut self, tick: Position) -> Result<()> {
        self.scene.go(tick)?;
        let timeline = self.scene.debugger.timeline();
        if matches!(timeline.at().next, Some(Next::Signal { .. })) {
            return Ok(());
        }
        timeline.set_stops(Stops {
            events: Events {
                signals: u64::MAX,
                ..Events::default()
            },
            ..Stops::default()
        });
        let ran = timeline.run(Direction::Forward, Some(Position::after(tick.event + 1)));
        timeline.set_stops(Stops::default());
        ran?;
        Ok(())
    }

    /// Whether only the handler's doings follow.
    fn near_the_end(&mut self, position: Position) -> Result<bool> {
        let end = self.scene.debugger.timeline().end()?;
        Ok(end.event.saturating_sub(position.event) < 200)
    }

    fn killed(&mut self, signo: i32) -> Result<()> {
        self.answer.kind = Kind::Killed;
        let name = names::signal(signo);
        self.say(format!("{name} from outside killed the program."), None);
        let waiters = self.waiting_at_the_end()?;
        match waiters.is_empty() {
            true => self.where_threads_are(),
            false => self.waiting(&waiters),
        }
    }
}

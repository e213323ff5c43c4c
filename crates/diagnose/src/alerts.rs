//! Everything notable in a recorded program's life. In: a debugger. Out: crashes, assertions, signals, exceptions, panics,
//! sanitizers' reports, calls that failed in unusual ways, wrong frees, deadlocks, data races, long waits, failed children; in order,
//! with positions.

use std::collections::HashMap;

use clew_calls::names;
use clew_order::races::{Suppressions, races};
use clew_recording::event::{Call, Cause, End, Event, ThreadId};
use clew_recording::summary::{self, End as ProcessEnd};
use clew_timeline::{Mark, Position};
use serde::Serialize;

use crate::Result;
use crate::delta::trace::ordered;
use crate::heap::Wrong;
use crate::scene::{Scene, Site};

/// Of so many alerts the line is looked up; each takes a seek.
const MOST_SITES: usize = 200;
/// More of one kind are counted only.
const MOST_OF_KIND: usize = 1_000;
/// A wait is long from here on.
const LONG_NS: u64 = 1_000_000_000;
/// Errors that say that the program did something wrong, or that something ran out: others are everyday answers.
const UNUSUAL: [i64; 14] = [
    libc_errno::EBADF,
    libc_errno::EFAULT,
    libc_errno::ENOMEM,
    libc_errno::EMFILE,
    libc_errno::ENFILE,
    libc_errno::ENOSPC,
    libc_errno::EIO,
    libc_errno::EPIPE,
    libc_errno::ENOTSOCK,
    libc_errno::EDEADLK,
    libc_errno::ENOTCONN,
    libc_errno::ECONNRESET,
    libc_errno::EOVERFLOW,
    libc_errno::EDQUOT,
];
/// The kernel's numbers, the same on every Linux of this machine's kind.
mod libc_errno {
    pub const EIO: i64 = 5;
    pub const EBADF: i64 = 9;
    pub const ENOMEM: i64 = 12;
    pub const EFAULT: i64 = 14;
    pub const ENFILE: i64 = 23;
    pub const EMFILE: i64 = 24;
    pub const ENOSPC: i64 = 28;
    pub const EPIPE: i64 = 32;
    pub const EDEADLK: i64 = 35;
    pub const EOVERFLOW: i64 = 75;
    pub const ENOTSOCK: i64 = 88;
    pub const ECONNRESET: i64 = 104;
    pub const ENOTCONN: i64 = 107;
    pub const EDQUOT: i64 = 122;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Crash,
    Assertion,
    Abort,
    Signal,
    Exception,
    Panic,
    Sanitizer,
    FailedCall,
    WrongFree,
    Deadlock,
    Race,
    LongWait,
    Child,
    Exit,
    Note,
}

impl Kind {
    /// In a word or two.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Crash => "crash",
            Kind::Assertion => "assertion",
            Kind::Abort => "abort",
            Kind::Signal => "signal",
            Kind::Exception => "exception",
            Kind::Panic => "panic",
            Kind::Sanitizer => "sanitizer",
            Kind::FailedCall => "failed call",
            Kind::WrongFree => "wrong free",
            Kind::Deadlock => "deadlock",
            Kind::Race => "race",
            Kind::LongWait => "long wait",
            Kind::Child => "child",
            Kind::Exit => "exit",
            Kind::Note => "note",
        }
    }
}

/// Something notable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alert {
    pub kind: Kind,
    pub position: String,
    pub thread: ThreadId,
    pub text: String,
    /// Where the program was, if that was looked up.
    pub site: Option<Site>,
    #[serde(skip)]
    at: Position,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Alerts {
    pub alerts: Vec<Alert>,
    /// Kinds of which there were more than are told, and how many more.
    pub more: Vec<(Kind, usize)>,
}

/// Functions whose calls are alerts.
pub const RAISERS: [&str; 9] = [
    "__assert_fail",
    "__assert_perror_fail",
    "abort",
    "__cxa_throw",
    "rust_panic",
    "__stack_chk_fail",
    "__ubsan_handle_type_mismatch_v1_abort",
    "__fortify_fail",
    "_ZSt9terminatev",
];

struct Finder<'a, 'b> {
    scene: &'a mut Scene<'b>,
    found: Vec<Alert>,
    counts: HashMap<Kind, usize>,
}

/// Looks for them all; for data races only if somebody asks, because that takes another replay.
pub fn alerts(scene: &mut Scene<'_>, races: bool) -> Result<Alerts> {
    let mut finder = Finder {
        scene,
        found: Vec::new(),
        counts: HashMap::new(),
    };
    finder.of_log()?;
    finder.of_functions()?;
    finder.of_heap()?;
    finder.of_output()?;
    finder.of_children();
    if races {
        finder.of_races()?;
    }
    let Finder {
        scene,
        mut found,
        counts,
    } = finder;
    found.sort_by_key(|alert| alert.at);
    for alert in found.iter_mut().take(MOST_SITES) {
        if alert.site.is_none() {
            let site = scene.site_at(alert.at, alert.thread);
            alert.site = site.ok();
        }
    }
    let more = counts.into_iter().filter_map(|(kind, count)| {
        let more = count.checked_sub(MOST_OF_KIND)?;
        (more > 0).then_some((kind, more))
    });
    let mut more: Vec<(Kind, usize)> = more.collect();
    more.sort_unstable();
    Ok(Alerts {
        alerts: found,
        more,
    })
}

impl Finder<'_, '_> {
    fn add(&mut self, kind: Kind, at: Position, thread: ThreadId, text: String) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= MOST_OF_KIND {
            self.found.push(Alert {
                kind,
                position: at.to_string(),
                thread,
                text,
                site: None,
                at,
            });
        }
    }

    /// Accesses that nothing orders.
    fn of_races(&mut self) -> Result<()> {
        let stream = self.scene.debugger.stream();
        let log = self.scene.debugger.recording().stream(stream);
        let log = log.map_err(|error| crate::Error::Recording(error.to_string()))?;
        let (timeline, program) = self.scene.debugger.timeline_and_program();
        let found = races(timeline, program, log, &Suppressions::default()).map_err(ordered)?;
        for race in found.races.iter().filter(|race| race.hidden.is_none()) {
            let at = race.second.position.as_ref();
            let Some(at) = at.and_then(|at| at.parse().ok()) else {
                continue;
            };
            let variable = race.variable.as_ref().map(|name| format!("`{name}`"));
            let text = format!(
                "{} of {}, and thread {}'s {} at {}: nothing orders them",
                race.second.what,
                variable.unwrap_or_else(|| format!("{:#x}", race.address)),
                race.first.thread,
                race.first.what,
                race.first
                    .line
                    .short()
                    .unwrap_or_else(|| "code without lines".into()),
            );
            self.add(Kind::Race, at, race.second.thread, text);
        }
        Ok(())
    }

    /// What the log tells without being replayed.
    fn of_log(&mut self) -> Result<()> {
        let mut all: Vec<(Kind, Position, ThreadId, String)> = Vec::new();
        let mut waiting: HashMap<ThreadId, (Call, u64, u64)> = HashMap::new();
        let mut time = 0;
        self.scene.debugger.events(|event, number, thread| {
            // Behind a call is where its stack is; before a death is all there is.
            let behind = Position::after(number);
            let (mut failed, mut call) = (None, None);
            match event {
                Event::Time(now) => time = *now,
                Event::Call(this) => match this.end {
                    End::Returned(value) => {
                        failed = Some(value);
                        call = Some(*this);
                    }
                    End::Waits => {
                        waiting.insert(thread, (*this, time, number));
                    }
                    _ => {}
                },
                Event::Resumed { result, .. } => {
                    if let Some((this, since, began)) = waiting.remove(&thread) {
                        failed = *result;
                        call = Some(this);
                        let waited = time.saturating_sub(since);
                        if waited >= LONG_NS {
                            let name = names::call(this.nr);
                            let seconds = waited as f64 / 1e9;
                            let text = format!("waited {seconds:.1} s in {name}");
                            all.push((Kind::LongWait, Position::after(began), thread, text));
                        }
                    }
                }
                Event::Signal { signo, cause, .. } => {
                    let name = names::signal(*signo);
                    let text = match cause {
                        Cause::Fault => {
                            format!("{name} by the instruction there; a handler begins")
                        }
                        Cause::Outside => format!("{name}; a handler begins"),
                    };
                    let kind = match cause {
                        Cause::Fault => Kind::Crash,
                        Cause::Outside => Kind::Signal,
                    };
                    all.push((kind, behind, thread, text));
                }
                Event::Killed {
                    signo,
                    cause,
                    place,
                } => {
                    let name = names::signal(*signo);
                    let text = match cause {
                        Cause::Fault => format!("killed by {name}, by the instruction there"),
                        Cause::Outside => format!("killed by {name}"),
                    };
                    let kind = match cause {
                        Cause::Fault => Kind::Crash,
                        Cause::Outside => Kind::Signal,
                    };
                    let at = Position {
                        event: number - 1,
                        ticks: place.ticks,
                        steps: place.steps.into(),
                    };
                    all.push((kind, at, thread, text));
                }
                Event::Exited { status, ticks } if *status != 0 => {
                    let at = Position {
                        event: number - 1,
                        ticks: *ticks,
                        steps: 0,
                    };
                    let text = format!("exits with status {status}");
                    all.push((Kind::Exit, at, thread, text));
                }
                Event::Deadlock(waiters) => {
                    let text = clew_recording::deadlock::text(waiters);
                    let text = text.replace('\n', "; ");
                    all.push((Kind::Deadlock, behind, thread, text));
                }
                Event::Note(text) => {
                    all.push((Kind::Note, behind, thread, text.to_string()));
                }
                _ => {}
            }
            if let Some((value, call)) = failed.zip(call)
                && UNUSUAL.contains(&-value)
            {
                let error = names::errno(-value).unwrap_or("an error");
                let first = call.args[0];
                let text = match -value {
                    libc_errno::EBADF => {
                        format!(
                            "{}({}, …) failed: {error}",
                            names::call(call.nr),
                            first as i32
                        )
                    }
                    _ => format!("{} failed: {error}", names::call(call.nr)),
                };
                all.push((Kind::FailedCall, behind, thread, text));
            }
            true
        })?;
        // The last place of all is where the end is due, whatever else the log says of it.
        let end = self.scene.debugger.timeline().end()?;
        for (kind, at, thread, text) in all {
            self.add(kind, at.min(end), thread, text);
        }
        Ok(())
    }

    fn of_functions(&mut self) -> Result<()> {
        let seen = self.scene.debugger.calls_of(&RAISERS, 10_000)?;
        let marks: Vec<Mark> = seen.calls.iter().map(|call| call.at).collect();
        let positions = self.scene.debugger.timeline().positions(&marks)?;
        for (call, at) in seen.calls.iter().zip(positions) {
            let name = RAISERS[call.function as usize];
            // abort by terminate by an exception is one thing.
            if call.depth > 0 && name != "__cxa_throw" {
                continue;
            }
            let (kind, text) = match name {
                "__assert_fail" => {
                    self.scene.go(at)?;
                    let said = self.scene.text(call.registers[7])?;
                    let said = said.unwrap_or_else(|| "?".into());
                    (Kind::Assertion, format!("assertion `{said}` failed"))
                }
                "__assert_perror_fail" => (Kind::Assertion, "assertion of a call failed".into()),
                "abort" => (Kind::Abort, "abort() is called".into()),
                "__cxa_throw" => {
                    self.scene.go(at)?;
                    let of = self.thrown(call.registers[6])?;
                    (Kind::Exception, format!("throws {of}"))
                }
                "rust_panic" => (Kind::Panic, "panics".into()),
                "__stack_chk_fail" => (Kind::Abort, "the guard on the stack is overwritten".into()),
                "_ZSt9terminatev" => (Kind::Abort, "std::terminate() is called".into()),
                _ => (Kind::Sanitizer, format!("{name} is called")),
            };
            self.add(kind, at, call.thread, text);
        }
        Ok(())
    }

    /// The name of a type, by its `type_info`.
    fn thrown(&mut self, info: u64) -> Result<String> {
        self.scene.type_name(info)
    }

    fn of_heap(&mut self) -> Result<()> {
        let history = self.scene.history()?;
        let marks: Vec<Mark> = history.wrong.iter().map(|one| one.moment.call).collect();
        let positions = self.scene.debugger.timeline().positions(&marks)?;
        for (one, at) in history.wrong.iter().zip(positions) {
            let address = one.address;
            let text = match one.why {
                Wrong::Twice(_) => format!("{address:#x} is freed again"),
                Wrong::NoBlock(Some(n)) => {
                    let offset = address.wrapping_sub(history.blocks[n].address);
                    format!("{address:#x} is freed, which is {offset} bytes into a block")
                }
                Wrong::NoBlock(None) => format!("{address:#x} is freed, which no allocator gave"),
                Wrong::Mismatch(_) => {
                    format!("{address:#x} is freed in another way than it was allocated")
                }
            };
            self.add(Kind::WrongFree, at, one.moment.thread, text);
        }
        Ok(())
    }

    /// Reports that programs print themselves.
    fn of_output(&mut self) -> Result<()> {
        let written = self.scene.debugger.output(2_000)?;
        for one in written.iter().filter(|one| one.to == 2) {
            for line in one.text.lines() {
                let report = line.contains("ERROR: AddressSanitizer")
                    || line.contains("WARNING: ThreadSanitizer")
                    || line.contains("WARNING: MemorySanitizer")
                    || line.contains(": runtime error: ");
                if report && let Ok(at) = one.position.parse() {
                    let text = line.trim().chars().take(120).collect();
                    self.add(Kind::Sanitizer, at, one.thread, text);
                }
            }
        }
        Ok(())
    }

    /// Processes that this one began and that failed.
    fn of_children(&mut self) {
        let stream = self.scene.debugger.stream();
        let all = summary::of_open(self.scene.debugger.recording());
        let own = all.streams.iter().find(|one| one.id == stream);
        let Some(own) = own.map(|one| one.pid) else {
            return;
        };
        let mut forks = HashMap::new();
        let read = self.scene.debugger.events(|event, number, thread| {
            if let Event::Forked { stream, .. } = event {
                forks.insert(*stream, (Position::after(number), thread));
            }
            true
        });
        if read.is_err() {
            return;
        }
        // The last program of a process tells its end; the first one was forked.
        for child in all.streams.iter().filter(|one| one.parent_pid == own) {
            let mut of_process = all.process(child.process);
            let forked = of_process.find_map(|one| forks.get(&one.id));
            let &(at, thread) = forked.unwrap_or(&(Position::after(0), 0));
            let how = match child.end {
                ProcessEnd::Exited { status } if status != 0 => format!("exited with {status}"),
                ProcessEnd::Killed { signal } => format!("was killed by {}", names::signal(signal)),
                _ => continue,
            };
            let name = child.argv.first().map_or("", |name| name.as_str());
            let text = format!(
                "child {} ({name}) {how}: clew why --pid {}",
                child.pid, child.pid
            );
            self.add(Kind::Child, at, thread, text);
        }
    }
}

impl Scene<'_> {
    /// The name of a C++ type by the address of its `type_info`, where the scene stands.
    pub fn type_name(&mut self, info: u64) -> Result<String> {
        let name = match self.number(info.wrapping_add(8), 8)? {
            Some(name) => self.text(name)?,
            None => None,
        };
        Ok(name.map_or("something".into(), |name| {
            let name = name.trim_start_matches('*');
            let plain = clew_symbols::value::demangled(&format!("_ZTI{name}"));
            match plain.strip_prefix("typeinfo for ") {
                Some(plain) => plain.to_string(),
                None => name.to_string(),
            }
        }))
    }
}

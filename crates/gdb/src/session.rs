//! One debugging session. In: packets, one at a time. Out: their answers, from a timeline.
//!
//! What makes the program go is in `going`, what-ifs are in `whatif`, questions in `queries`, our own
//! commands in `commands`.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clew_debugger::Debugger;
use clew_recording::event::{Start, StreamId, ThreadId};
use clew_recording::reader::Recording;
use clew_timeline::{Calls, Error as TimelineError, Events, Mapping, Position};
use clew_timeline::{Registers, Target, Thread, Timeline};

use crate::auxv::Auxv;
use crate::commands::Move;
use crate::files::Files;
use crate::ids::{Id, Which};
use crate::libraries::Libraries;
use crate::points::Points;
use crate::probes::Probes;
use crate::report::{self, Report};
use crate::whatif::WhatIf;
use crate::wire::{Incoming, LONGEST, Wire, held};
use crate::{Error, Helper, Meter, Result, hex, plain, registers, signals};

/// A memory access of gdb's is answered with at most so many bytes.
const LONGEST_READ: u64 = (LONGEST as u64 - 64) / 2;

/// What takes longer isn't waited for while gdb connects.
const SOON: Duration = Duration::from_millis(700);

/// What a session is made of.
pub struct Settings {
    /// Where gdb finds the recorded files, if it runs on this machine: a folder to fill with links.
    pub root: Option<PathBuf>,
    /// Where to stand first.
    pub at: Target,
    /// Show all packets on stderr.
    pub trace: bool,
    /// The recording's name, for people.
    pub name: String,
    /// gdb is ours: if the way to the first place is long, it connects at the start and is told then where to go. While it
    /// connects Ctrl-C would leave it without a connection.
    pub goes_later: bool,
    pub meter: Box<dyn Meter + Send>,
}

/// The work under way.
struct Effort {
    meter: Box<dyn Meter + Send>,
    /// It is given up then.
    deadline: Option<Instant>,
}

pub struct Session<'a> {
    pub(crate) recording: Recording,
    pub(crate) timeline: Timeline,
    pub(crate) helper: &'a mut dyn Helper,
    /// Once it was needed: on a timeline of its own.
    pub(crate) debugger: Option<Debugger>,
    pub(crate) name: String,
    pub(crate) start: Start,
    pub(crate) stream: StreamId,
    trace: bool,
    pub(crate) first: Option<Target>,
    goes_later: bool,
    effort: Arc<Mutex<Effort>>,
    /// Asked now and then if all is to end.
    ended: fn() -> bool,
    pub(crate) wire: Option<Arc<Mutex<Wire>>>,
    pub(crate) points: Points,
    /// Signals that gdb doesn't want to hear of: bit n - 1 for signal n.
    passed: u64,
    calls: Calls,
    /// gdb tells which forks it wants to hear of by understanding them.
    forks: bool,
    /// The tid of the thread that is meant: of registers and memory; of a step backwards. gdb says so once,
    /// and counts on every stop to make the thread that it tells of the first.
    pub(crate) general: Option<i32>,
    pub(crate) going: Option<i32>,
    /// gdb speaks of a forked process, which isn't here.
    elsewhere: bool,
    pub(crate) threads: Option<Vec<Thread>>,
    pub(crate) mappings: Option<Vec<Mapping>>,
    pub(crate) whatif: Option<WhatIf>,
    pub(crate) pending: Option<Move>,
    pub(crate) standing: Report,
    pub(crate) files: Files,
    pub(crate) auxv: Auxv,
    /// What gdb was last told.
    pub(crate) libraries: Option<Libraries>,
    pub(crate) bookmarks: BTreeMap<String, Position>,
    pub(crate) probes: Probes,
    /// Where the loader's entry of a library has the number of its thread-local block.
    pub(crate) module_number: Option<u64>,
    /// Known when it was asked for.
    pub(crate) events_in_all: Option<u64>,
    /// Ctrl-C came while nothing ran.
    pub(crate) interrupted: Option<Instant>,
    /// gdb shows what is wrong, in words, whatever it has asked for.
    pub(crate) shows_messages: bool,
    /// What was last said beside gdb.
    told: Option<String>,
}

/// What to do after an answer.
pub(crate) enum Answer {
    Reply(Vec<u8>),
    /// It was sent already, or there is none.
    Nothing,
}

impl From<&str> for Answer {
    fn from(text: &str) -> Answer {
        Answer::Reply(text.into())
    }
}

pub(crate) const UNKNOWN: &str = "";
pub(crate) const FAILED: &str = "E01";
const FAULT: &str = "E0e";

impl<'a> Session<'a> {
    pub fn new(
        recording: &Recording,
        timeline: Timeline,
        helper: &'a mut dyn Helper,
        settings: Settings,
    ) -> Result<Session<'a>> {
        let stream = timeline.stream();
        let info = recording.streams().iter().find(|info| info.id == stream);
        let start = info.ok_or(Error::NoStream(stream))?.start.clone();
        let auxv = Auxv::of(recording, stream)?;
        let tid = start.tid;
        Ok(Session {
            recording: recording.clone(),
            timeline,
            helper,
            debugger: None,
            name: settings.name,
            start,
            stream,
            trace: settings.trace,
            first: Some(settings.at),
            goes_later: settings.goes_later,
            effort: Arc::new(Mutex::new(Effort {
                meter: settings.meter,
                deadline: None,
            })),
            ended: || false,
            wire: None,
            points: Points::default(),
            passed: 0,
            calls: Calls::None,
            forks: false,
            general: None,
            going: None,
            elsewhere: false,
            threads: None,
            mappings: None,
            whatif: None,
            pending: None,
            standing: Report::plain(report::TRAP, tid),
            files: Files::new(settings.root),
            auxv,
            libraries: None,
            bookmarks: BTreeMap::new(),
            probes: Probes::default(),
            module_number: None,
            events_in_all: None,
            interrupted: None,
            shows_messages: false,
            told: None,
        })
    }

    /// Serves one gdb until it goes away. `ended`: asked now and then if all is to end.
    pub fn serve(&mut self, socket: UnixStream, ended: fn() -> bool) -> Result<()> {
        let wire = Arc::new(Mutex::new(Wire::new(socket, self.trace)));
        self.wire = Some(wire.clone());
        self.ended = ended;
        let watcher = self.watcher();
        self.timeline.set_watcher(watcher);
        self.points.clear();
        while !ended() {
            let incoming = held(&wire).next()?;
            match incoming {
                None => break,
                Some(Incoming::Signal) => {}
                // It met a stop that gdb passes over: the next time it goes, it is to stop.
                Some(Incoming::Interrupt) => self.interrupted = Some(Instant::now()),
                Some(Incoming::Packet(packet)) => {
                    held(&self.effort).meter.begins();
                    let answer = self.answer(&packet);
                    held(&self.effort).meter.is_over();
                    let answer = answer?;
                    if let Answer::Reply(reply) = answer {
                        held(&wire).send(&reply)?;
                    }
                }
            }
        }
        self.whatif = None;
        self.pending = None;
        self.timeline.set_watcher(Box::new(|_| false));
        self.debugger = None;
        self.wire = None;
        Ok(())
    }

    /// Who looks at long work: it is shown, and ended if gdb or its user wants that.
    pub(crate) fn watcher(&self) -> Box<dyn FnMut(f64) -> bool + Send> {
        let (effort, ended) = (self.effort.clone(), self.ended);
        let wire = self.wire.clone();
        Box::new(move |done| {
            let mut effort = held(&effort);
            effort.meter.show(done);
            let late = effort.deadline.is_some_and(|end| Instant::now() > end);
            let wanted = || {
                let wire = wire.as_ref();
                wire.is_some_and(|wire| held(wire).wants_interrupt())
            };
            late || ended() || wanted()
        })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.start.pid
    }

    /// Text on gdb's console; only while gdb waits for the program.
    pub(crate) fn say(&self, text: &str) -> Result<()> {
        match &self.wire {
            Some(wire) => Ok(held(wire).say(text)?),
            None => Ok(()),
        }
    }

    /// Answers a packet. An error means that the session is over; what only this packet asks wrongly is
    /// answered with an error.
    fn answer(&mut self, packet: &[u8]) -> Result<Answer> {
        let Some((&letter, rest)) = packet.split_first() else {
            return Ok(UNKNOWN.into());
        };
        let answer = match letter {
            b'?' => self.hello(),
            b'!' => Ok("OK".into()),
            b'g' => self.all_registers(),
            b'G' => self.set_all_registers(rest),
            b'p' => self.one_register(rest),
            b'P' => self.set_one_register(rest),
            b'm' => self.memory(rest),
            b'M' => self.set_memory(rest, false),
            b'X' => self.set_memory(rest, true),
            b'Z' if self.elsewhere => Ok("OK".into()),
            b'z' if self.elsewhere => Ok("OK".into()),
            b'Z' => Ok(inserted(self.points.insert(rest))),
            b'z' => Ok(inserted(self.points.remove(rest))),
            b'H' => self.choose_thread(rest),
            b'T' => self.is_alive(rest),
            b'D' => self.detach(rest),
            // Nothing is killed: a session begins again with `run`, and ends with the connection.
            b'k' => return Ok(Answer::Nothing),
            b'R' => self.restart().map(|_| Answer::Nothing),
            b'v' => self.verb(rest),
            b'b' | b'c' | b'C' | b's' | b'S' => self.resume_packet(packet),
            b'q' => self.query(rest),
            b'Q' => self.set(rest),
            _ => Ok(UNKNOWN.into()),
        };
        match answer {
            Err(Error::Timeline(error)) => {
                let error = plain(&error.to_string());
                let (reply, shown) = trouble(letter, &error, self.shows_messages);
                // What gdb keeps to itself is said beside it, once.
                if self.trace || !shown && self.told.as_ref() != Some(&error) {
                    eprintln!("clew: {error}");
                    self.told = Some(error);
                }
                Ok(Answer::Reply(reply.into_bytes()))
            }
            answer => answer,
        }
    }

    /// Where it stands, when gdb connects.
    fn hello(&mut self) -> Result<Answer> {
        if let Some(at) = self.first.take() {
            let deadline = self.goes_later.then(|| Instant::now() + SOON);
            held(&self.effort).deadline = deadline;
            let begun = self.begin(at);
            held(&self.effort).deadline = None;
            if !begun? {
                self.first = Some(at);
                self.begin(Target::Start)?;
            }
        }
        self.stop_packet().map(Answer::Reply)
    }

    /// The stop reply for where it stands.
    pub(crate) fn stop_packet(&mut self) -> Result<Vec<u8>> {
        let tid = self.standing.tid;
        self.general = Some(tid);
        let registers = match self.number_of(tid)? {
            Some(thread) => self.registers(thread)?,
            None => None,
        };
        Ok(self.standing.packet(self.pid(), registers.as_ref()))
    }

    fn verb(&mut self, rest: &[u8]) -> Result<Answer> {
        if let Some(actions) = rest.strip_prefix(b"Cont") {
            if actions == b"?" {
                return Ok("vCont;c;C;s;S;t;r".into());
            }
            return self.resume_packet(&[b"v", rest].concat());
        }
        if let Some(request) = rest.strip_prefix(b"File:") {
            return self.file(request);
        }
        if rest.starts_with(b"Run;") || rest == b"Run" {
            self.restart()?;
            return self.stop_packet().map(Answer::Reply);
        }
        if let Some(pid) = rest.strip_prefix(b"Attach;") {
            return Ok(match hex::number(pid) == u64::try_from(self.pid()).ok() {
                true => Answer::Reply(self.stop_packet()?),
                false => FAILED.into(),
            });
        }
        if rest.starts_with(b"Kill;") {
            return Ok("OK".into());
        }
        Ok(UNKNOWN.into())
    }

    /// `D` or `D;pid`.
    fn detach(&mut self, rest: &[u8]) -> Result<Answer> {
        let pid = rest.strip_prefix(b";").and_then(hex::number);
        // A forked child is let go after each fork.
        let own = pid.is_none_or(|pid| Ok(pid) == u64::try_from(self.pid()));
        if own {
            self.points.clear();
        }
        self.elsewhere = false;
        Ok("OK".into())
    }

    fn set(&mut self, rest: &[u8]) -> Result<Answer> {
        if rest == b"StartNoAckMode" {
            if let Some(wire) = &self.wire {
                let mut wire = held(wire);
                // The last one that is acknowledged.
                wire.send(b"OK")?;
                wire.stop_acknowledging();
            }
            return Ok(Answer::Nothing);
        }
        if let Some(list) = rest.strip_prefix(b"PassSignals:") {
            self.passed = signals::mask(list);
            return Ok("OK".into());
        }
        if let Some(list) = rest.strip_prefix(b"CatchSyscalls:") {
            return Ok(match crate::points::calls(list) {
                Some(calls) => {
                    self.calls = calls;
                    "OK".into()
                }
                None => FAILED.into(),
            });
        }
        // What a program is started with is recorded.
        let ignored = [
            "ProgramSignals:",
            "DisableRandomization:",
            "StartupWithShell:",
        ];
        Ok(
            match ignored.iter().any(|name| rest.starts_with(name.as_bytes())) {
                true => "OK".into(),
                false => UNKNOWN.into(),
            },
        )
    }

    /// What gdb has said to stop at.
    pub(crate) fn events(&self) -> Events {
        Events {
            calls: self.calls.clone(),
            signals: !self.passed,
            forks: self.forks,
            ..Events::default()
        }
    }

    pub(crate) fn hears_of_forks(&mut self) {
        self.forks = true;
    }

    /// It has moved: what was known of the place is so no longer.
    pub(crate) fn forget(&mut self) {
        self.threads = None;
        self.mappings = None;
    }

    pub(crate) fn all_threads(&mut self) -> Result<&[Thread]> {
        if self.threads.is_none() {
            self.threads = Some(self.timeline.threads()?);
        }
        Ok(self.threads.as_deref().unwrap_or_default())
    }

    pub(crate) fn all_mappings(&mut self) -> Result<&[Mapping]> {
        if self.mappings.is_none() {
            self.mappings = Some(self.timeline.mappings()?);
        }
        Ok(self.mappings.as_deref().unwrap_or_default())
    }

    pub(crate) fn number_of(&mut self, tid: i32) -> Result<Option<ThreadId>> {
        let threads = self.all_threads()?;
        Ok(threads.iter().find(|t| t.tid == tid).map(|t| t.number))
    }

    /// The tid of a thread by its number; of one that is gone, the process's.
    pub(crate) fn tid_of(&mut self, number: ThreadId) -> Result<i32> {
        let found = self.all_threads()?.iter().find(|t| t.number == number);
        let tid = found.map(|thread| thread.tid);
        Ok(tid.unwrap_or(self.start.tid))
    }

    /// `Hg` or `Hc` and a thread.
    fn choose_thread(&mut self, rest: &[u8]) -> Result<Answer> {
        let Some((what, id)) = rest
            .split_first()
            .and_then(|(w, id)| Some((w, Id::parse(id)?)))
        else {
            return Ok(FAILED.into());
        };
        self.elsewhere = !id.is_in(self.pid());
        if self.elsewhere {
            return Ok("OK".into());
        }
        let tid = match id.tid {
            Which::One(tid) => Some(tid),
            _ => None,
        };
        if let Some(tid) = tid
            && self.number_of(tid)?.is_none()
        {
            return Ok(FAILED.into());
        }
        match what {
            b'g' => self.general = tid,
            b'c' => self.going = tid,
            _ => return Ok(UNKNOWN.into()),
        }
        Ok("OK".into())
    }

    fn is_alive(&mut self, rest: &[u8]) -> Result<Answer> {
        let alive = match Id::parse(rest) {
            Some(id) if id.is_in(self.pid()) => match id.tid {
                Which::One(tid) => self.number_of(tid)?.is_some(),
                _ => true,
            },
            _ => false,
        };
        Ok(if alive { "OK".into() } else { FAILED.into() })
    }

    /// The thread that a packet about registers means.
    pub(crate) fn meant(&mut self) -> Result<ThreadId> {
        self.or_running(self.general)
    }

    /// The thread with this tid, or the one that runs here.
    pub(crate) fn or_running(&mut self, tid: Option<i32>) -> Result<ThreadId> {
        let named = match tid {
            Some(tid) => self.number_of(tid)?,
            None => None,
        };
        Ok(named.unwrap_or(self.timeline.at().thread))
    }

    fn waits(&mut self, thread: ThreadId) -> Result<Option<u32>> {
        let found = self.all_threads()?.iter().find(|t| t.number == thread);
        Ok(found.and_then(|thread| thread.waits))
    }

    fn all_registers(&mut self) -> Result<Answer> {
        let thread = self.meant()?;
        let waits = self.waits(thread)?;
        let Some(registers) = self.registers(thread)? else {
            return Ok(FAILED.into());
        };
        let text = hex::text(&registers::all(&registers, waits));
        Ok(Answer::Reply(text.into_bytes()))
    }

    fn one_register(&mut self, rest: &[u8]) -> Result<Answer> {
        let thread = self.meant()?;
        let waits = self.waits(thread)?;
        let number = hex::number(rest).and_then(|number| usize::try_from(number).ok());
        let (Some(registers), Some(number)) = (self.registers(thread)?, number) else {
            return Ok(FAILED.into());
        };
        let value = registers::get(&registers, waits, number);
        Ok(value.map_or(FAILED.into(), |value| {
            Answer::Reply(hex::text(&value).into_bytes())
        }))
    }

    fn set_all_registers(&mut self, rest: &[u8]) -> Result<Answer> {
        let values = hex::bytes(rest);
        self.change_registers(|registers| registers::set_all(registers, &values?))
    }

    fn set_one_register(&mut self, rest: &[u8]) -> Result<Answer> {
        let mut parts = rest.splitn(2, |&byte| byte == b'=');
        let number = parts.next().and_then(hex::number);
        let value = parts.next().and_then(hex::bytes);
        self.change_registers(|registers| {
            registers::set(registers, usize::try_from(number?).ok()?, &value?)
        })
    }

    fn change_registers(
        &mut self,
        change: impl FnOnce(&mut Registers) -> Option<()>,
    ) -> Result<Answer> {
        let thread = self.meant()?;
        let Some(before) = self.registers(thread)? else {
            return Ok(FAILED.into());
        };
        let mut after = before.clone();
        if change(&mut after).is_none() {
            return Ok(FAILED.into());
        }
        if after != before {
            self.set_registers(thread, &after)?;
        }
        Ok("OK".into())
    }

    fn memory(&mut self, rest: &[u8]) -> Result<Answer> {
        let Some((addr, len)) = hex::pair(rest, b',') else {
            return Ok(FAILED.into());
        };
        let mut bytes = vec![0; len.min(LONGEST_READ) as usize];
        let read = self.read(addr, &mut bytes)?;
        if read == 0 && len != 0 {
            return Ok(FAULT.into());
        }
        Ok(Answer::Reply(hex::text(&bytes[..read]).into_bytes()))
    }

    /// `addr,length:data`, as digits or as it is.
    fn set_memory(&mut self, rest: &[u8], binary: bool) -> Result<Answer> {
        let colon = rest.iter().position(|&byte| byte == b':');
        let parsed = colon.and_then(|at| {
            let (addr, len) = hex::pair(&rest[..at], b',')?;
            let data = &rest[at + 1..];
            let bytes = match binary {
                true => data.to_vec(),
                false => hex::bytes(data)?,
            };
            (bytes.len() as u64 == len).then_some((addr, bytes))
        });
        let Some((addr, bytes)) = parsed else {
            return Ok(FAILED.into());
        };
        // gdb tries what is supported by writing nothing.
        if bytes.is_empty() {
            return Ok("OK".into());
        }
        Ok(match self.write(addr, &bytes) {
            Ok(()) => "OK".into(),
            // Nothing to write to there; anything else is told.
            Err(Error::Timeline(TimelineError::Refused(_))) => FAULT.into(),
            Err(error) => return Err(error),
        })
    }
}

/// The answer to a packet that begins so and couldn't be answered, and whether the user will see the words. A gdb that
/// doesn't say that it understands messages shows them for registers only; as an answer about memory it takes them for data.
fn trouble(letter: u8, error: &str, shows_messages: bool) -> (String, bool) {
    match shows_messages || b"gGpP".contains(&letter) {
        true => (format!("E.clew: {error}"), true),
        false => (FAILED.into(), false),
    }
}

fn inserted(done: Option<()>) -> Answer {
    match done {
        Some(()) => "OK".into(),
        None => FAILED.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_in_words() {
        let told = |letter, new| trouble(letter, "it is gone", new);
        assert_eq!(told(b'g', false), ("E.clew: it is gone".into(), true));
        assert_eq!(told(b'm', false), ("E01".into(), false));
        assert_eq!(told(b'm', true), ("E.clew: it is gone".into(), true));
    }
}

//! Making the program go. In: a packet that resumes it. Out: where it stopped, and why, for gdb.

use std::time::Duration;

use clew_calls::names;
use clew_timeline::{Direction, EventStop, Next, Reason, Stop, Target};

use crate::report::{self, Report};
use crate::resume::{self, Resume};
use crate::session::{Answer, FAILED, Session, UNKNOWN};
use crate::{Error, Result, ids, signals};

const END: &str = "replaylog:end;";
const BEGIN: &str = "replaylog:begin;";
/// A Ctrl-C between two stops counts for the next that gdb makes so soon.
const FRESH: Duration = Duration::from_secs(1);

impl Session<'_> {
    /// To where the session begins; whether it came there. What goes wrong is told, and it begins at the start.
    pub(crate) fn begin(&mut self, to: Target) -> Result<bool> {
        let stop = match self.timeline.seek(to) {
            Ok(stop) => stop,
            Err(error) => {
                eprintln!("clew: {error}");
                self.timeline.seek(Target::Start)?
            }
        };
        self.arrived(&stop)?;
        Ok(stop.reason != Reason::Interrupted)
    }

    /// Stands somewhere by a jump: what gdb is told, which is the signal if one is due.
    pub(crate) fn arrived(&mut self, stop: &Stop) -> Result<()> {
        self.forget();
        let tid = self.tid_of(stop.thread)?;
        self.standing = match self.timeline.at().next {
            Some(Next::Killed { signo, .. } | Next::Signal { signo, .. }) => {
                Report::plain(signals::to_gdb(signo), tid)
            }
            _ => Report::plain(report::TRAP, tid),
        };
        Ok(())
    }

    /// `run`.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.whatif = None;
        self.pending = None;
        let stop = self.timeline.seek(Target::Start)?;
        self.forget();
        let tid = self.tid_of(stop.thread)?;
        self.standing = Report::plain(report::TRAP, tid);
        Ok(())
    }

    /// `vCont...`, `bc`, `bs`, `c`, `s` and those with a signal.
    pub(crate) fn resume_packet(&mut self, packet: &[u8]) -> Result<Answer> {
        let thread = self.or_running(self.going.or(self.general))?;
        let (how, direction) = match packet {
            b"bc" => (Some(Resume::Continue), Direction::Backward),
            b"bs" => (Some(Resume::Step(thread)), Direction::Backward),
            [b'c' | b'C', ..] => (Some(Resume::Continue), Direction::Forward),
            [b's' | b'S', ..] => (Some(Resume::Step(thread)), Direction::Forward),
            _ => {
                let Some(actions) = packet.strip_prefix(b"vCont") else {
                    return Ok(UNKNOWN.into());
                };
                let threads = self.all_threads()?;
                let known = |tid| threads.iter().find(|t| t.tid == tid).map(|t| t.number);
                (resume::parse(actions, thread, known), Direction::Forward)
            }
        };
        let Some(how) = how else {
            return Ok(FAILED.into());
        };
        // One that is older was for what gdb did then.
        let interrupted = self.interrupted.take();
        if interrupted.is_some_and(|since| since.elapsed() < FRESH) {
            let tid = self.tid_of(thread)?;
            self.standing = Report::plain(report::INTERRUPTED, tid);
            return self.stop_packet().map(Answer::Reply);
        }
        let report = match self.go(how, direction) {
            Ok(report) => report,
            // It stands where it stood, or where it was interrupted.
            Err(Error::Timeline(error)) => {
                self.say(&format!("[clew: {error}]\n"))?;
                self.forget();
                let tid = self.tid_of(self.timeline.at().thread)?;
                Report::plain(report::NOTHING, tid)
            }
            Err(error) => return Err(error),
        };
        self.standing = report;
        self.stop_packet().map(Answer::Reply)
    }

    fn go(&mut self, how: Resume, direction: Direction) -> Result<Report> {
        if let Some(next) = self.pending.take() {
            return self.make(next, how);
        }
        if direction == Direction::Forward && self.goes_on_in_whatif()? {
            return self.run_whatif(how);
        }
        self.drop_whatif()?;
        let stops = self.points.stops(self.events());
        self.timeline.set_stops(stops);
        let before = self.timeline.at();
        let stop = match how {
            Resume::Continue => self.timeline.run(direction, None)?,
            Resume::Step(thread) => self.timeline.step(direction, thread)?,
            Resume::Range { thread, start, end } => self.step_range(thread, start..end)?,
        };
        let moved = {
            let after = self.timeline.at();
            (before.event, before.ticks, before.pc, before.sp)
                != (after.event, after.ticks, after.pc, after.sp)
        };
        self.forget();
        self.told(&stop, moved, how)
    }

    /// What gdb is told about a stop. `moved`: it didn't stand there before.
    pub(crate) fn told(&mut self, stop: &Stop, moved: bool, how: Resume) -> Result<Report> {
        let tid = self.tid_of(stop.thread)?;
        Ok(match stop.reason {
            // A step's end is no surprise to gdb in the thread that it steps only.
            Reason::Arrived => match how {
                Resume::Step(thread) | Resume::Range { thread, .. } if thread != stop.thread => {
                    Report::plain(report::NOTHING, tid)
                }
                _ => Report::plain(report::TRAP, tid),
            },
            Reason::Start => Report::with(BEGIN, tid),
            Reason::End(Next::Killed { signo, .. }) if moved => {
                Report::plain(signals::to_gdb(signo), tid)
            }
            Reason::End(next) => {
                let text = self.ending(next);
                self.say(&format!("[clew: {text}]\n"))?;
                Report::with(END, tid)
            }
            Reason::Break => {
                let kind = self.points.kind_at(stop.pc);
                Report::with(format!("{}:;", kind.word()), tid)
            }
            Reason::Watch { watch, addr, .. } => match self.points.touched(watch, addr) {
                Some((kind, addr)) => Report::with(format!("{}:{addr:x};", kind.word()), tid),
                None => Report::plain(report::TRAP, tid),
            },
            Reason::Event(event) => self.told_event(event, tid),
            Reason::Interrupted => Report::plain(report::INTERRUPTED, tid),
        })
    }

    fn told_event(&mut self, event: EventStop, tid: i32) -> Report {
        match event {
            EventStop::CallIn { nr } => Report::with(format!("syscall_entry:{nr:x};"), tid),
            EventStop::CallOut { nr } => Report::with(format!("syscall_return:{nr:x};"), tid),
            EventStop::Signal { signo } => Report::plain(signals::to_gdb(signo), tid),
            EventStop::Forked { pid } => {
                let child = ids::text(pid, pid);
                Report::with(format!("fork:{child};"), tid)
            }
            EventStop::NewThread { .. }
            | EventStop::EndedThread { .. }
            | EventStop::Exec
            | EventStop::Other => Report::plain(report::NOTHING, tid),
        }
    }

    /// Why there is nothing more behind the last position.
    pub(crate) fn ending(&self, next: Next) -> String {
        match next {
            Next::Exit { status } => format!("the program exits here, with status {status}"),
            Next::Killed { signo, .. } => {
                format!("the program is killed here, by {}", names::signal(signo))
            }
            Next::Exec => {
                let pid = self.pid();
                let mut later = self.recording.streams().iter();
                let next = later.find(|info| info.id > self.stream && info.start.pid == pid);
                let what = next.map_or(String::new(), |info| {
                    format!(" {}", String::from_utf8_lossy(&info.start.exe))
                });
                format!(
                    "process {pid} executes{what} here; what comes then: clew debug {} --pid {pid} \
                     --exec {}",
                    self.name,
                    self.exec_number() + 1
                )
            }
            Next::Diverges => {
                let why = self.timeline.divergence().map(|found| found.to_string());
                let (why, name) = (why.unwrap_or_default(), &self.name);
                format!(
                    "{why}; all before is as recorded. clew report {name} makes a file for whoever looks for the cause"
                )
            }
            Next::CutOff => {
                "the recording ends here: it is of a region, or the program or its recorder was killed, or the disk was full"
                    .into()
            }
            _ => "the recording ends here".into(),
        }
    }

    /// Which of its process's programs this is, from 1.
    fn exec_number(&self) -> usize {
        let pid = self.pid();
        let streams = self.recording.streams().iter();
        streams
            .filter(|info| info.start.pid == pid && info.id <= self.stream)
            .count()
    }

    /// `info` behind `qXfer:siginfo:read`.
    pub(crate) fn siginfo(&mut self) -> Result<Option<Vec<u8>>> {
        let at = self.timeline.at();
        let Some(Next::Signal { signo, fault } | Next::Killed { signo, fault }) = at.next else {
            return Ok(None);
        };
        if let Some(info) = crate::siginfo::recorded(&self.recording, self.stream, at.event)? {
            return Ok(Some(info));
        }
        if !fault {
            // Who sent it isn't written down, its number is.
            let mut info = vec![0; 128];
            info[..4].copy_from_slice(&signo.to_le_bytes());
            return Ok(Some(info));
        }
        // The instruction raises it again in a copy.
        let mut excursion = self.timeline.excursion()?;
        let ran = excursion.run(Default::default(), 16)?;
        let clew_timeline::ExcursionEnd::Signal { addr, .. } = ran.end else {
            return Ok(None);
        };
        let mappings = self.all_mappings()?;
        Ok(Some(crate::siginfo::of_fault(signo, addr, mappings)))
    }
}

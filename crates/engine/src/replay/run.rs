//! Replays one stream, and the streams forked from it, in this process and forks of it.

use std::collections::BTreeSet;
use std::os::fd::RawFd;

use clew_recording::event::{Call, Effect, Event, Output, Record, StreamId};
use clew_recording::log::StreamEnd;
use clew_recording::reader::{Recording, StreamReader};

use super::arguments;
use super::files::Files;
use super::machine::{Divergence, Machine};
use super::report::Message;
use super::tree::{End, Ending, Wanted};
use super::worker::protocol::Diverged;
use super::worker::travel::EVENT_WORK;
use crate::cache::CodeCache;
use crate::cache::atlas::Atlas;
use crate::cache::store::Store;
use crate::kernel::stop;
use crate::memory::Memory;
use crate::program::Options;
use crate::start;
use crate::{sys, syscall};

/// So many forked replays of a process may be under way; then it waits for one to end.
const MOST_CHILDREN: usize = 8;

/// So often it is told how far a replay has come: some ten times a second.
const TELL: u64 = 250_000_000;

/// How much work so many ticks and events are: about as long as that takes, whatever it is.
pub fn work(ticks: u64, events: u64) -> u64 {
    ticks.saturating_add(EVENT_WORK.saturating_mul(events))
}

/// A replay under way.
pub struct Replay<'a> {
    pub machine: Machine,
    recording: &'a Recording,
    reader: StreamReader,
    wanted: &'a Wanted,
    report: RawFd,
    stream: StreamId,
    output: Vec<u8>,
    /// What waiting threads were about to write, and how much of it has gone out in pieces.
    waiting: Vec<(u32, Output, Vec<u8>, usize)>,
    ending: Ending,
    /// Events done with all their effects.
    whole: u64,
    /// The effects of the event behind them are being applied.
    applying: bool,
    /// The log can't be read any further.
    unreadable: bool,
    /// The event after whose effects to stop.
    stop: Option<u64>,
    /// Streams that were forked off already: none is a second time.
    forked: BTreeSet<StreamId>,
    /// Forked replays that may still run.
    children: usize,
    /// When somebody was last told how far it has come, by the time-stamp counter.
    told: u64,
}

/// Makes this process one that replays: it has a guest's memory, none so far, and code.
pub(super) fn new_machine(
    store: Option<&Store>,
    files: &Files,
    options: &Options,
) -> Result<Machine, String> {
    let atlas = Atlas::copy_of(store);
    let memory = Memory::new(Box::new(atlas.clone()));
    let gs = start::new_gs_block();
    let code = CodeCache::new(options, store.cloned(), atlas).map_err(|e| e.to_string())?;
    let files = files.clone();
    let open = Box::new(move |name: &str| files.get(name));
    let machine = Machine::new(gs, memory, code, open);
    start::install_handlers(machine.gs);
    Ok(machine)
}

/// What is left of an event once it was replayed.
enum After {
    Nothing,
    Started,
    Resumed(Option<i64>),
    Forked(StreamId),
    Output(Output, Call),
}

impl<'a> Replay<'a> {
    /// Prepares this process, which becomes the guest's, to replay a stream that began with an exec.
    pub fn new(
        recording: &'a Recording,
        stream: StreamId,
        wanted: &'a Wanted,
        options: &Options,
        report: RawFd,
    ) -> Result<Replay<'a>, String> {
        let mut machine = new_machine(wanted.store.as_ref(), &wanted.files, options)?;
        machine.show_pages = options.pages;
        machine.verify = wanted.verify;
        let reader = recording.stream(stream).map_err(|e| e.to_string())?;
        Ok(Replay {
            machine,
            recording,
            reader,
            wanted,
            report,
            stream,
            output: Vec::new(),
            waiting: Vec::new(),
            ending: Ending::CutOff,
            whole: 0,
            applying: false,
            unreadable: false,
            stop: wanted.stops_after(stream),
            forked: BTreeSet::new(),
            children: 0,
            told: 0,
        })
    }

    /// Replays to the stream's end; never returns.
    pub fn run(mut self) -> ! {
        loop {
            match self.next() {
                Ok(true) => {}
                Ok(false) => self.over(),
                Err(divergence) => self.diverged(&divergence),
            }
        }
    }

    fn number(&self) -> u64 {
        self.reader.position()
    }

    /// Replays one event or applies one effect; false at the end of the stream.
    fn next(&mut self) -> Result<bool, Divergence> {
        let at = self.reader.position();
        let stop = self.stop == Some(at);
        let record = match self.reader.next_in_place() {
            Ok(Some(record)) => record,
            Ok(None) => {
                if stop {
                    self.ending = Ending::Stopped;
                }
                return Ok(false);
            }
            Err(error) => {
                (self.unreadable, self.applying, self.whole) = (true, false, at);
                return Err(Divergence {
                    expected: "a readable recording".into(),
                    found: error.to_string(),
                    thread: self.machine.current,
                    ticks: self.machine.ticks(),
                    pc: self.machine.gs.regs.rip,
                });
            }
        };
        let event = match record {
            Record::Effect(Effect::Output { order, bytes }) => {
                let (order, bytes) = (*order, *bytes);
                self.piece(order, bytes);
                return Ok(true);
            }
            Record::Effect(effect) => {
                self.machine.effect(effect)?;
                return Ok(true);
            }
            Record::Event(_) if stop => {
                self.ending = Ending::Stopped;
                return Ok(false);
            }
            Record::Event(event) => event,
        };
        (self.whole, self.applying) = (at, false);
        self.machine.event(event)?;
        // SAFETY: reads the time-stamp counter.
        let now = unsafe { std::arch::x86_64::_rdtsc() };
        if now.wrapping_sub(self.told) > TELL {
            self.told = now;
            let (stream, work) = (self.stream, work(self.machine.all_ticks(), at + 1));
            Message::Progress { stream, work }.send(self.report);
        }
        self.applying = true;
        // What looked like the end (a failed exec, the death of a vfork's child) wasn't.
        if !matches!(
            event,
            Event::Check { .. } | Event::Time(_) | Event::Note(_) | Event::Deadlock(_)
        ) {
            self.ending = Ending::CutOff;
        }
        if let Event::Call(call) = event
            && self.wanted.tells_arguments(self.stream, at + 1)
        {
            for argument in arguments::of(call) {
                Message::Argument {
                    stream: self.stream,
                    event: at + 1,
                    argument,
                }
                .send(self.report);
            }
        }
        let after = match event {
            Event::Forked { stream, .. } => After::Forked(*stream),
            Event::Call(call) => match call.output {
                Some(output) => After::Output(output, *call),
                None => After::Nothing,
            },
            Event::State {
                waits: Some(call), ..
            } => match call.output {
                Some(output) => After::Output(output, *call),
                None => After::Nothing,
            },
            Event::Resumed { result, .. } => After::Resumed(*result),
            Event::Exited { status, .. } => {
                self.ending = Ending::Exited(*status);
                After::Nothing
            }
            Event::Killed { signo, .. } => {
                self.ending = Ending::Killed(*signo);
                After::Nothing
            }
            Event::Exec { .. } => {
                self.ending = Ending::Exec;
                After::Nothing
            }
            Event::Started(_) => After::Started,
            _ => After::Nothing,
        };
        match after {
            After::Nothing => {}
            After::Started => self.send(&Message::Started {
                stream: self.stream,
            }),
            After::Resumed(result) => self.resumed(result),
            After::Forked(stream) => self.forked(stream),
            After::Output(output, call) => self.written(output, &call),
        }
        Ok(true)
    }

    /// The guest's output is shown when its call returned.
    fn written(&mut self, output: Output, call: &Call) {
        if !self.wanted.shows(self.stream) {
            return;
        }
        let mut bytes = std::mem::take(&mut self.output);
        bytes.clear();
        self.machine.outgoing(call, &mut bytes);
        match call.end {
            clew_recording::event::End::Waits => {
                let current = self.machine.current;
                self.waiting.retain(|(thread, ..)| *thread != current);
                self.waiting.push((current, output, bytes, 0));
            }
            _ => {
                self.show(output, &bytes);
                self.output = bytes;
            }
        }
    }

    fn resumed(&mut self, result: Option<i64>) {
        let current = self.machine.current;
        // What goes out in pieces may be followed by its last ones.
        let whole = |(thread, output, ..): &(u32, Output, Vec<u8>, usize)| {
            *thread == current && output.order != 0
        };
        let Some(at) = self.waiting.iter().position(whole) else {
            return;
        };
        let (_, output, bytes, _) = self.waiting.swap_remove(at);
        let len = result.unwrap_or(0).max(0) as usize;
        self.show(output, &bytes[..len.min(bytes.len())]);
    }

    /// A piece of what the current thread's waiting call writes has gone out.
    fn piece(&mut self, order: u64, len: u64) {
        let current = self.machine.current;
        let of_thread = |(thread, ..): &&mut (u32, Output, Vec<u8>, usize)| *thread == current;
        let Some((_, output, bytes, done)) = self.waiting.iter_mut().find(of_thread) else {
            return;
        };
        let output = Output { order, ..*output };
        let from = *done;
        *done = from.saturating_add(len as usize).min(bytes.len());
        let piece = bytes[from..*done].to_vec();
        self.show(output, &piece);
    }

    fn show(&self, output: Output, bytes: &[u8]) {
        for (n, piece) in bytes.chunks(32 << 10).enumerate() {
            self.send(&Message::Output {
                stream: self.stream,
                to: output.to,
                order: output.order,
                part: n as u32,
                last: (n + 1) * (32 << 10) >= bytes.len(),
                bytes: piece,
            });
        }
        if bytes.is_empty() {
            self.send(&Message::Output {
                stream: self.stream,
                to: output.to,
                order: output.order,
                part: 0,
                last: true,
                bytes: &[],
            });
        }
    }

    /// At a fork: a process of its own goes on with the child, if anybody wants it.
    fn forked(&mut self, stream: StreamId) {
        let child = self.wanted.follows(self.stream, stream);
        if !child || !self.forked.insert(stream) {
            return;
        }
        if self.children == MOST_CHILDREN {
            self.wait_for_child();
        }
        let shared = match self.machine.before_fork() {
            Ok(shared) => shared,
            Err(divergence) => self.diverged(&divergence),
        };
        // SAFETY: this process has one kernel thread; parent and child go separate ways with their
        // own copies of everything.
        let mut pid = unsafe { syscall!(libc::SYS_fork) };
        while pid == sys::err(libc::EAGAIN) && self.children > 0 {
            self.wait_for_child();
            // SAFETY: as above.
            pid = unsafe { syscall!(libc::SYS_fork) };
        }
        if pid < 0 {
            let error = sys::error(pid);
            let text = format!("stream {stream} can't be replayed: fork: {error}");
            return self.send(&Message::Unable {
                stream,
                text: &text,
            });
        }
        if pid > 0 {
            self.children += 1;
            return;
        }
        match self.recording.stream(stream) {
            Ok(reader) => self.reader = reader,
            Err(_) => self.over(),
        }
        self.children = 0;
        self.stop = self.wanted.stops_after(stream);
        self.machine.checks = 0;
        self.stream = stream;
        self.whole = 0;
        if let Err(divergence) = self.machine.become_child(shared) {
            self.diverged(&divergence);
        }
        self.ending = Ending::CutOff;
        self.waiting.clear();
    }

    fn wait_for_child(&mut self) {
        let mut status = 0i32;
        // SAFETY: waits for a child of this process.
        unsafe { syscall!(libc::SYS_wait4, -1i64, &raw mut status, 0, 0) };
        self.children -= 1;
    }

    fn over(&mut self) -> ! {
        let info = self.recording.info(self.stream);
        let cut = info.is_some_and(|info| info.end == Some(StreamEnd::Cut));
        if cut && self.ending == Ending::CutOff {
            self.ending = Ending::Region;
        }
        let end = End {
            ending: self.ending,
            // What was read to find the stop isn't replayed.
            events: self
                .stop
                .map_or(self.number(), |stop| stop.min(self.number())),
            ticks: self.machine.total_ticks(),
            checks: self.machine.checks,
        };
        self.send(&Message::Ended {
            stream: self.stream,
            end,
        });
        stop::exit(0)
    }

    fn diverged(&self, divergence: &Divergence) -> ! {
        let (pc, sp) = self.machine.place_now();
        let diverged = Diverged {
            stream: self.stream,
            event: self.whole,
            ticks: (!self.applying).then(|| self.machine.since()),
            thread: divergence.thread,
            pc,
            sp,
            expected: divergence.expected.clone(),
            found: divergence.found.clone(),
            unreadable: self.unreadable,
        };
        self.send(&Message::Diverged(Box::new(diverged)));
        stop::exit(stop::STATUS)
    }

    fn send(&self, message: &Message) {
        message.send(self.report);
    }
}

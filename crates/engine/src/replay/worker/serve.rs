//! A worker: takes commands one after the other until it is told to end, or nobody is left to tell it.

use std::ops::Range;
use std::os::fd::RawFd;

use clew_recording::event::{Event, Origin, Record, ThreadId};
use clew_recording::reader::StreamReader;

use super::channel::{Channel, Received};
use super::excursion::Astray;
use super::protocol::{CHANNELS, Command, EventStop, Limit, Mark, Reply, Stopped};
use super::stops::{Seen, Wanted};
use super::travel::Halt;
use crate::kernel::stop;
use crate::replay::Machine;
use crate::{sys, syscall};

pub struct Worker {
    pub(super) machine: Machine,
    pub(super) reader: StreamReader,
    /// The streams that lead to the wanted one, nearest last, while it isn't reached.
    ahead: Vec<StreamReader>,
    pub(super) channel: Channel,
    /// The descriptor of channel 0.
    first: RawFd,
    /// The process that commands.
    commander: i32,
    /// Instructions since the last tick or event, where that is known.
    pub(super) steps: Option<u64>,
    /// Events done with all their effects.
    pub(super) whole: u64,
    /// Where the replay diverges, once that is known.
    pub(super) limit: Option<Limit>,
    pub(super) blocked: bool,
    /// The number of events up to the last one that did something.
    pub(super) told: u64,
    /// Whether the event with that number is the stream's last.
    pub(super) last: Option<(u64, bool)>,
    pub(super) looked: Looked,
    /// Where to stop.
    pub(super) wanted: Wanted,
    /// An event changed what is watched, or wrote to it; where it was due.
    pub(super) kernel_wrote: Option<Seen>,
    pub(super) came_from: (Mark, ThreadId),
    /// The last event that did something, as what one may stop behind it.
    pub(super) came_by: Option<EventStop>,
    /// This worker has left the recording.
    pub(super) astray: Option<Astray>,
    /// An observer was told of the instruction that the thread stands on.
    pub(super) past: bool,
    /// Memory that was mapped or unmapped by the last events, while somebody wants to know.
    pub(super) renewed: Option<Vec<Range<u64>>>,
    /// The descriptor of the first buffer.
    pub(super) buffers: RawFd,
    /// A command that came while another was carried out.
    waiting: Option<Command>,
}

/// When the worker last looked for a command, and last told how far it is, by the time-stamp counter.
pub(super) struct Looked {
    pub at: u64,
    pub told: u64,
}

impl Worker {
    /// `readers`: of the stream's ancestors, eldest first, and its own.
    pub fn new(
        machine: Machine,
        mut readers: Vec<StreamReader>,
        first: RawFd,
        buffers: RawFd,
        commander: i32,
    ) -> Worker {
        readers.reverse();
        let reader = readers.pop().expect("a stream at least");
        Worker {
            machine,
            reader,
            ahead: readers,
            channel: Channel::new(first),
            first,
            commander,
            steps: Some(0),
            whole: 0,
            limit: None,
            blocked: false,
            told: 0,
            last: None,
            looked: Looked { at: 0, told: 0 },
            wanted: Wanted::default(),
            kernel_wrote: None,
            came_from: (Mark::default(), 0),
            came_by: None,
            astray: None,
            past: false,
            renewed: None,
            buffers,
            waiting: None,
        }
    }

    /// Serves; never returns.
    pub fn run(mut self) -> ! {
        match self.begin() {
            Ok(()) => self.channel.send(&Reply::Ready),
            Err(halt) => {
                self.halted(halt);
                stop::exit(stop::STATUS)
            }
        }
        loop {
            let command = match self.waiting.take() {
                Some(command) => command,
                None => match self.channel.wait() {
                    Received::Command(command) => command,
                    Received::Nothing => continue,
                    Received::Unknown => {
                        let text = "a command that this worker doesn't know".into();
                        self.channel.send(&Reply::Refused(text));
                        continue;
                    }
                },
            };
            let reply = self.obey(command);
            match reply {
                Ok(Some(reply)) => self.channel.send(&reply),
                Ok(None) => {}
                Err(halt) => self.halted(halt),
            }
        }
    }

    fn halted(&mut self, halt: Halt) {
        let reply = match self.diverged(halt) {
            Ok(diverged) => Reply::Diverged(Box::new(diverged)),
            Err(text) => Reply::Refused(text),
        };
        self.channel.send(&reply);
    }

    fn obey(&mut self, command: Command) -> Result<Option<Reply>, Halt> {
        let reply = match command {
            Command::Fork { channel } => return self.fork(channel),
            Command::Advance { .. }
            | Command::Step
            | Command::Observe { .. }
            | Command::State { .. }
                if self.astray.is_some() =>
            {
                Reply::Refused("an excursion can't follow the recording any more".into())
            }
            Command::Advance { goal, take } => Reply::Stopped(self.advance(goal, take)?),
            Command::Step => Reply::Stopped(self.step()?),
            Command::Where => Reply::Stopped(Stopped {
                why: super::protocol::Why::Goal,
                at: self.at()?,
                last: None,
            }),
            Command::Threads => self.show_threads(),
            Command::Registers { thread } => self.show_registers(thread),
            Command::Read { addr, len } => self.show_memory(addr, len),
            Command::Mappings { from } => self.show_mappings(from),
            Command::Listing { pc } => self.show_listing(pc),
            Command::State { whole } => self.show_state(whole)?,
            Command::Interrupt => return Ok(None),
            Command::End => stop::exit(0),
            Command::Stops(stops) => {
                self.wanted = Wanted::new(stops);
                return Ok(None);
            }
            Command::Limit(limit) => {
                self.set_limit(limit);
                return Ok(None);
            }
            Command::Write { addr, bytes } => self.poke(addr, &bytes)?,
            Command::SetRegisters { thread, registers } => {
                self.set_registers(thread, &registers)?
            }
            Command::Run { ticks } => self.run_astray(ticks)?,
            Command::Observe { look, goal, buffer } => self.observation(look, goal, buffer)?,
        };
        Ok(Some(reply))
    }

    /// To the beginning of the wanted stream.
    fn begin(&mut self) -> Result<(), Halt> {
        while let Some(child) = self.ahead.pop() {
            while !self.forked(child.stream())? {}
            self.reader = child;
            self.whole = 0;
            self.machine.become_forked()?;
        }
        self.apply()?;
        // Nobody stands where the state isn't whole yet.
        let start = self.machine.start.as_ref();
        let mut prologue = start.is_some_and(|start| matches!(start.origin, Origin::Midst { .. }));
        while prologue {
            let next = self.reader.peek()?;
            prologue = !matches!(next, Some(Record::Event(Event::Check { .. })));
            self.apply()?;
        }
        self.told = 0;
        self.pass_silent()
    }

    /// One event on the way to the fork of a stream; whether it was that.
    fn forked(&mut self, wanted: u32) -> Result<bool, Halt> {
        let Some(Record::Event(event)) = self.reader.peek()? else {
            return Err(Halt::Unreadable(format!(
                "the recording doesn't tell how stream {wanted} began"
            )));
        };
        let found = matches!(event, Event::Forked { stream, .. } if *stream == wanted);
        self.apply()?;
        Ok(found)
    }

    fn fork(&mut self, channel: u32) -> Result<Option<Reply>, Halt> {
        if channel as usize >= CHANNELS {
            return Err(Halt::Refused(format!("there is no channel {channel}")));
        }
        let mut child = Channel::new(self.first + channel as RawFd);
        // Commands for a worker that was killed before it read them aren't for this one.
        while !matches!(child.look(), Received::Nothing) {}
        let shared = self.machine.before_fork()?;
        let flags = (libc::CLONE_PARENT | libc::SIGCHLD) as i64;
        // SAFETY: this process has one kernel thread; both go on with their own copies of everything.
        let pid = unsafe { syscall!(libc::SYS_clone, flags, 0, 0, 0, 0) };
        if pid < 0 {
            let error = sys::error(pid);
            return Err(Halt::Refused(format!("no new process: {error}")));
        }
        if pid > 0 {
            return Ok(Some(Reply::Forked { pid: pid as i32 }));
        }
        // SAFETY: a question.
        let parent = unsafe { syscall!(libc::SYS_getppid) };
        if parent != i64::from(self.commander) {
            stop::exit(0);
        }
        self.channel = child;
        self.waiting = None;
        self.machine.have_own_memory(shared)?;
        Ok(None)
    }

    /// A command that comes during another one: whether to stop.
    pub(super) fn interrupted(&mut self) -> bool {
        if self.waiting.is_some() {
            return true;
        }
        match self.channel.look() {
            Received::Command(Command::Interrupt) => true,
            Received::Command(command) => {
                self.waiting = Some(command);
                true
            }
            Received::Nothing | Received::Unknown => false,
        }
    }
}

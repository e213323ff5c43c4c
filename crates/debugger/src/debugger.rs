//! A recorded program and a place in it. In: which recording and process. Out: where it stands, its threads, their
//! stacks.

use std::collections::HashMap;
use std::sync::Arc;

use clew_recording::event::{StreamId, ThreadId};
use clew_recording::process::{self, ProcessName};
use clew_recording::reader::Recording;
use clew_symbols::StackEnd;
use clew_timeline::program::{Poke, Program};
use clew_timeline::{Next, Position, Settings, Target, Timeline};
use serde::{Serialize, Serializer};

use crate::breakpoints::Breakpoints;
use crate::statements::{Body, BodyKey};
use crate::values::Kept;
use crate::watching::Watchpoints;
use crate::{Error, Result};

/// One program's life in a recording, and a place in it.
pub struct Debugger {
    pub(crate) recording: Recording,
    pub(crate) timeline: Timeline,
    pub(crate) program: Program,
    /// Values that were told of this position.
    pub(crate) kept: Kept,
    /// What somebody wants to be other than it was here.
    pub(crate) pokes: Vec<Poke>,
    pub(crate) breakpoints: Breakpoints,
    pub(crate) watchpoints: Watchpoints,
    /// Breakpoints that a front end keeps by itself.
    pub(crate) foreign: Vec<clew_timeline::Break>,
    pub(crate) bodies: HashMap<BodyKey, Arc<Body>>,
    pub(crate) images: Option<Arc<crate::images::Images>>,
    pub(crate) counts: Option<Arc<crate::coverage::Counts>>,
    /// The thread that questions without one are about.
    pub(crate) thread: ThreadId,
    pub(crate) searches: u64,
    /// A thread stands where so many calls begin that were inlined into each other, and before all of them.
    pub(crate) hidden: (ThreadId, usize),
}

/// Which life of which process of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// None: the program that was recorded.
    pub name: Option<ProcessName>,
    /// Which program of one that has run several, one exec after the other, from 1 on; none: the last.
    pub exec: Option<usize>,
}

/// Where a debugger stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Here {
    /// Can be given back to [`Debugger::seek`].
    pub position: String,
    /// The thread that runs there.
    pub thread: ThreadId,
    pub location: Location,
    /// What happens next, where that is an event: a system call, a signal, the end.
    pub next: Option<String>,
}

/// What is at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Location {
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    pub function: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
    pub column: Option<u32>,
    /// The program's or library's file, as the program knew it.
    pub module: Option<String>,
}

/// `main at file.c:12`, with what is known.
impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let function = self.function.as_deref().unwrap_or("??");
        match (&self.file, self.line, &self.module) {
            (Some(file), Some(line), _) => {
                let file = file.rsplit('/').next().unwrap_or(file);
                write!(f, "{function} at {file}:{line}")
            }
            (_, _, Some(module)) => write!(f, "{function} from {module}"),
            _ => write!(f, "{function} at {:#x}", self.address),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadInfo {
    pub number: ThreadId,
    pub tid: i32,
    pub name: String,
    /// It is the one that runs.
    pub runs: bool,
    /// The system call that it waits in.
    pub waits: Option<String>,
    pub location: Location,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stack {
    pub thread: ThreadId,
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// Why there are no more, where that isn't the outermost function.
    pub cut: Option<String>,
}

/// A call in progress: a function, or a call that the compiler inlined into the next one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// From 0, the innermost.
    pub number: usize,
    #[serde(flatten)]
    pub location: Location,
    pub inlined: bool,
    /// The kernel made it to call a signal handler.
    pub signal: bool,
    /// Found without unwind information, perhaps wrong.
    pub guessed: bool,
}

pub(crate) fn hexadecimal<S: Serializer>(
    address: &u64,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{address:#x}"))
}

impl Debugger {
    /// Opens a process of a recording and stands at its start. The processes that it makes end with it, or with this one.
    /// Any thread may open one, and pass it on.
    pub fn open(recording: Recording, which: Process, settings: Settings) -> Result<Debugger> {
        let stream = stream_of(&recording, which)?;
        let timeline = Timeline::open(&recording, stream, settings)?;
        Ok(Debugger::on(recording, timeline))
    }

    /// A debugger that stands where a timeline of this recording stands. Whoever has a timeline already can give it
    /// [`Timeline::another`] of the same stream.
    pub fn on(recording: Recording, timeline: Timeline) -> Debugger {
        let thread = timeline.at().thread;
        Debugger {
            program: Program::new(&recording),
            recording,
            timeline,
            kept: Kept::default(),
            pokes: Vec::new(),
            breakpoints: Breakpoints::default(),
            watchpoints: Watchpoints::default(),
            foreign: Vec::new(),
            bodies: HashMap::new(),
            images: None,
            counts: None,
            thread,
            searches: 0,
            hidden: (thread, 0),
        }
    }

    /// The timeline that it stands on, for questions that nobody has asked a debugger yet. It stays where it is.
    pub fn another_timeline(&mut self) -> Result<Timeline> {
        Ok(self.timeline.another()?)
    }

    /// How much work the program's life is, as far as is known: what progress is measured by.
    pub fn expect_work(&mut self, work: u64) {
        self.timeline.expect_work(work);
    }

    /// Asked now and then during long work: `true` interrupts it. Also told how far it has come, 0..=1.
    pub fn set_watcher(&mut self, watcher: Box<dyn FnMut(f64) -> bool + Send>) {
        self.timeline.set_watcher(watcher);
    }

    pub fn stream(&self) -> StreamId {
        self.timeline.stream()
    }

    /// Where it stands.
    pub fn here(&mut self) -> Result<Here> {
        let position = self.timeline.position()?.to_string();
        let at = self.timeline.at();
        let location = match self.hidden_in(at.thread) {
            0 => self.location(at.pc)?,
            _ => self
                .unwound(at.thread)?
                .frames
                .first()
                .map(location_of)
                .unwrap_or_default(),
        };
        Ok(Here {
            position,
            thread: at.thread,
            location,
            next: at.next.map(next_text),
        })
    }

    /// Goes to a position that was told before, or one that a person wrote; `start` and `end` are positions, too.
    pub fn seek(&mut self, position: &str) -> Result<Here> {
        let target = match position.trim() {
            "start" => Target::Start,
            "end" => Target::End,
            text => Target::Position(self.position_of(text)?),
        };
        self.timeline.seek(target)?;
        self.moved();
        self.thread = self.timeline.at().thread;
        self.here()
    }

    pub(crate) fn position_of(&self, text: &str) -> Result<Position> {
        text.parse().map_err(|_| Error::Position(text.into()))
    }

    /// What was told of the last position isn't asked any more.
    pub(crate) fn moved(&mut self) {
        self.kept.clear();
        self.pokes.clear();
        self.hidden.1 = 0;
    }

    /// So many of the innermost frames of a thread aren't shown: it stands before them.
    pub(crate) fn hidden_in(&self, thread: ThreadId) -> usize {
        match self.hidden.0 == thread {
            true => self.hidden.1,
            false => 0,
        }
    }

    /// The thread that runs where it stands.
    pub fn runs(&self) -> ThreadId {
        self.timeline.at().thread
    }

    /// Where calls begin that were inlined into each other, it may stand before some of them, at the same position: so many.
    /// With [`Debugger::stand_before`] one stands there again.
    pub fn hidden(&self) -> usize {
        self.hidden_in(self.thread)
    }

    /// Stands before so many of the calls that begin here.
    pub fn stand_before(&mut self, calls: usize) {
        self.kept.clear();
        self.hidden = (self.thread, calls);
    }

    /// The thread that stops, steps and questions without a thread are about.
    pub fn thread(&self) -> ThreadId {
        self.thread
    }

    /// Chooses another thread of this position.
    pub fn choose_thread(&mut self, thread: ThreadId) -> Result<()> {
        let threads = self.timeline.threads()?;
        if !threads.iter().any(|one| one.number == thread) {
            return Err(Error::Thread(thread));
        }
        self.thread = thread;
        Ok(())
    }

    pub fn threads(&mut self) -> Result<Vec<ThreadInfo>> {
        let running = self.timeline.at().thread;
        let threads = self.timeline.threads()?;
        let mut all = Vec::new();
        for thread in threads {
            all.push(ThreadInfo {
                number: thread.number,
                tid: thread.tid,
                runs: thread.number == running,
                waits: thread.waits.map(call_name),
                location: self.location(thread.pc)?,
                name: thread.name,
            });
        }
        Ok(all)
    }

    /// The stack of a thread, inlined calls as frames of their own.
    pub fn stack(&mut self, thread: ThreadId) -> Result<Stack> {
        let stack = self.unwound(thread)?;
        let frames = stack.frames.iter().enumerate();
        let frames = frames.map(|(number, frame)| Frame {
            number,
            location: location_of(frame),
            inlined: frame.inlined,
            signal: frame.is_signal,
            guessed: frame.guessed,
        });
        let cut = match stack.end {
            StackEnd::Outermost => None,
            StackEnd::Lost => Some("there is no unwind information for what called this"),
            StackEnd::Unreadable => Some("the stack can't be read further"),
            StackEnd::Cycle => Some("the stack leads back to itself: it is damaged"),
            StackEnd::Limit => Some("more frames follow"),
        };
        Ok(Stack {
            thread,
            frames: frames.collect(),
            cut: cut.map(String::from),
        })
    }

    pub(crate) fn unwound(&mut self, thread: ThreadId) -> Result<clew_symbols::Stack> {
        if self.timeline.registers(thread)?.is_none() {
            return Err(Error::Thread(thread));
        }
        let mut stack = self.program.stack(&mut self.timeline, thread)?;
        let hidden = self.hidden_in(thread).min(stack.frames.len());
        stack.frames.drain(..hidden);
        Ok(stack)
    }

    /// What is at an address of the program as it is mapped here.
    pub fn location(&mut self, address: u64) -> Result<Location> {
        let modules = self.program.modules(&mut self.timeline)?;
        Ok(location_at(&modules, address))
    }
}

/// What is at an address: the innermost call, inlined or not.
pub(crate) fn location_at(modules: &clew_symbols::Modules, address: u64) -> Location {
    let mut location = Location {
        address,
        ..Location::default()
    };
    let Some(image) = modules.find(address) else {
        return location;
    };
    location.module = Some(image.module.name().display().to_string());
    let places = image.module.places_at(image.local(address));
    if let Some(place) = places.ok().and_then(|places| places.into_iter().next()) {
        location.function = place.function;
        fill_line(&mut location, place.line.as_ref());
    }
    location
}

fn location_of(frame: &clew_symbols::Frame) -> Location {
    let module = frame.module.as_ref();
    let mut location = Location {
        address: frame.pc,
        function: frame.function.clone(),
        module: module.map(|module| module.name().display().to_string()),
        ..Location::default()
    };
    fill_line(&mut location, frame.line.as_ref());
    location
}

fn fill_line(location: &mut Location, line: Option<&clew_symbols::Line>) {
    if let Some(line) = line.filter(|line| line.line != 0) {
        location.file = Some(line.file.to_string());
        location.line = Some(line.line);
        location.column = Some(line.column).filter(|column| *column != 0);
    }
}

/// The stream that is meant.
fn stream_of(recording: &Recording, which: Process) -> Result<StreamId> {
    let streams = recording.streams();
    let process = process::find(streams, which.name).map_err(Error::Process)?;
    let programs: Vec<StreamId> = recording.of_process(process).map(|info| info.id).collect();
    let Some(&last) = programs.last() else {
        return Err(Error::Process(
            "there is no process in this recording".into(),
        ));
    };
    let Some(number) = which.exec else {
        return Ok(last);
    };
    let found = number.checked_sub(1).and_then(|n| programs.get(n));
    found.copied().ok_or_else(|| {
        let count = programs.len();
        Error::Process(format!(
            "there is no program {number} of that process: it has run {count}, counted from 1"
        ))
    })
}

pub(crate) fn call_name(nr: u32) -> String {
    clew_engine::kernel::table::lookup(nr.into())
        .name
        .to_string()
}

fn next_text(next: Next) -> String {
    match next {
        Next::Call { nr } => format!("the system call {}", call_name(nr)),
        Next::Signal { signo, .. } => format!("signal {signo}"),
        Next::Switch { to } => format!("thread {to} goes on"),
        Next::Exit { status } => format!("the exit, status {status}"),
        Next::Killed { signo, .. } => format!("death by signal {signo}"),
        Next::Exec => "an exec".into(),
        Next::Fork { pid } => format!("a fork: process {pid}"),
        Next::Other => "an event".into(),
        Next::CutOff => "the recording's end, though not the program's".into(),
        Next::Diverges => "the replay isn't what was recorded from here on".into(),
    }
}

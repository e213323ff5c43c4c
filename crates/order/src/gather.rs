//! All interactions of a process. In: a replay with an observer, and the log. Out: interactions in the order in which
//! they happened, and the objects that they are about.
//!
//! A release (unlock, post, send) counts where it begins, an acquisition where it is over: so the order of what is gathered
//! is one that could have been seen.

use std::collections::BTreeMap;
use std::ops::Range;

use clew_recording::event::{Record, ThreadId};
use clew_recording::reader::StreamReader;
use clew_symbols::Modules;
use clew_timeline::program::Program;
use clew_timeline::{Hears, Interactions, Mark, Target, Timeline, Told};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::descriptors::Descriptors;
use crate::detect::Detector;
use crate::interaction::{Interaction, Kind, Object, ObjectKey};
use crate::known::{Does, Known};
use crate::story::{self, Accessed, Handler, InBlock};
use crate::{Error, Result};

mod log;
mod own;

/// More than this aren't kept.
const MOST: usize = 20_000_000;
const OWNER_DIED: i32 = 130;

/// A thread, as far as its making told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadFacts {
    pub tid: i32,
    /// The function that it began with.
    pub start: Option<u64>,
    pub parent: Option<ThreadId>,
}

/// What a process did.
pub struct Gathered {
    /// In the order in which they happened.
    pub interactions: Vec<Interaction>,
    pub objects: Vec<Object>,
    pub threads: BTreeMap<ThreadId, ThreadFacts>,
    /// Calls of known functions that never returned: what they were about to do.
    pub unfinished: Vec<Interaction>,
    /// There were no more than are kept.
    pub complete: bool,
}

/// Finds all interactions of a timeline's process, which then stands at its end.
pub fn gather(
    timeline: &mut Timeline,
    program: &mut Program,
    log: StreamReader,
) -> Result<(Gathered, Modules)> {
    let (known, modules) = known(timeline, program, false)?;
    let end = timeline.end()?.event;
    let mut gatherer = Gatherer::new(known, log, program.is_fresh(timeline.stream()), None);
    let asked = Interactions {
        functions: gatherer.functions(),
        accesses: None,
        every: false,
    };
    timeline.interactions(&asked, &mut gatherer)?;
    let mut gathered = gatherer.end(end)?.0;
    own::only_the_programs(&mut gathered, &modules);
    own::only_shared_atomics(&mut gathered);
    crate::graph::number(&mut gathered.interactions, gathered.objects.len());
    Ok((gathered, modules))
}

/// Known functions of what is mapped at the end.
pub(crate) fn known(
    timeline: &mut Timeline,
    program: &mut Program,
    accesses: bool,
) -> Result<(Known, Modules)> {
    timeline.seek(Target::End)?;
    let modules = program.modules(timeline)?;
    let catalog = program.catalog();
    let entry = modules
        .modules()
        .find(|image| catalog.is_program(&image.module))
        .and_then(|image| Some(image.module.entry()?.wrapping_add(image.bias)));
    Ok((Known::of(&modules, entry, accesses), modules))
}

/// A call of a known function under way.
struct Open {
    function: u32,
    does: Does,
    at: Mark,
    back: u64,
    arguments: [u64; 4],
    /// The interactions that counted where it began.
    told: Range<usize>,
}

/// What it knows so far; all of it begins again when the replay does.
#[derive(Default)]
struct State {
    interactions: Vec<Interaction>,
    objects: Vec<Object>,
    numbers: FxHashMap<ObjectKey, u32>,
    threads: BTreeMap<ThreadId, ThreadFacts>,
    /// How often something new began at an address.
    which: FxHashMap<u64, u32>,
    descriptors: Descriptors,
    open: FxHashMap<ThreadId, Vec<Open>>,
    /// By their own handles, which are where their thread pointers lead to.
    handles: FxHashMap<u64, ThreadId>,
    /// Calls that wait, by thread.
    waiting: FxHashMap<ThreadId, (i64, [u64; 6], Mark)>,
    current: ThreadId,
    begun: FxHashSet<ThreadId>,
    /// Children of vfork aren't threads.
    borrowed: FxHashSet<ThreadId>,
    /// Spin locks that somebody has.
    spins: FxHashSet<u64>,
    pid: i32,
    /// Who woke a thread, until what it waited for is told.
    woken: FxHashMap<ThreadId, ThreadId>,
    /// Signal handlers under way.
    handlers: FxHashMap<ThreadId, Vec<Handler>>,
    handled: u32,
    /// The handle of the thread that is being made.
    made: Option<(u64, bool)>,
    /// The program itself has begun.
    started: bool,
    complete: bool,
    /// A pair of descriptors that the next effect tells.
    pair: Option<(i64, u64)>,
    failed: Option<String>,
}

pub(crate) struct Gatherer {
    known: Known,
    beginning: StreamReader,
    log: StreamReader,
    fresh: bool,
    state: State,
    detector: Option<Detector>,
    /// Accesses, if they are wanted.
    story: Option<Vec<Accessed>>,
}

impl Gatherer {
    pub fn new(
        known: Known,
        log: StreamReader,
        fresh: bool,
        detector: Option<Detector>,
    ) -> Gatherer {
        Gatherer {
            known,
            beginning: log.clone(),
            log,
            fresh,
            state: State::default(),
            detector,
            story: None,
        }
    }

    /// Keeps every access that it hears of.
    pub fn with_story(mut self) -> Gatherer {
        self.story = Some(Vec::new());
        self
    }

    pub fn take_story(&mut self, event: u64) -> Vec<Accessed> {
        self.read_to(event);
        self.story.take().unwrap_or_default()
    }

    /// Of a thread that touches memory, or frees a block.
    fn keep(&mut self, mut accessed: Accessed) {
        let (Some(story), Some(detector)) = (&mut self.story, &mut self.detector) else {
            return;
        };
        if story.len() >= story::MOST || !self.state.started {
            return;
        }
        let thread = accessed.thread;
        let handlers = self.state.handlers.get(&thread);
        accessed.handler = handlers.and_then(|all| all.last().copied());
        accessed.locks = detector.lock_set(thread);
        accessed.after = self.state.interactions.len();
        accessed.block = detector.block_was_at(accessed.addr).map(|block| InBlock {
            addr: block.addr,
            size: block.size,
            back: block.back,
            allocated: block.at,
            thread: block.thread,
        });
        if let Some(block) = accessed.block.filter(|_| accessed.freed) {
            if block.addr != accessed.addr {
                return;
            }
            accessed.len = block.size;
        } else if accessed.freed {
            return;
        }
        story.push(accessed);
    }

    pub fn functions(&self) -> Vec<clew_timeline::Watchful> {
        let functions = self.known.functions.iter();
        functions.map(|(function, _)| *function).collect()
    }

    /// The rest of the log, up to this event; then all that was found.
    pub fn end(mut self, event: u64) -> Result<(Gathered, Option<Detector>)> {
        self.read_to(event);
        if let Some(why) = self.state.failed {
            return Err(Error::Log(why));
        }
        let state = &mut self.state;
        let unfinished = state.unfinished();
        let state = self.state;
        let gathered = Gathered {
            unfinished,
            interactions: state.interactions,
            objects: state.objects,
            threads: state.threads,
            complete: state.complete,
        };
        Ok((gathered, self.detector))
    }

    /// Reads the log until so many events are done.
    fn read_to(&mut self, event: u64) {
        while self.state.failed.is_none() && self.log.position() < event {
            let state = &mut self.state;
            let number = self.log.position();
            match self.log.next_in_place() {
                Ok(Some(Record::Event(event))) => {
                    state.pair = None;
                    state.event(number, event, &mut self.detector);
                }
                Ok(Some(Record::Effect(effect))) => state.effect(effect),
                Ok(None) => return,
                Err(error) => state.failed = Some(error.to_string()),
            }
        }
        // Effects of the last one.
        while self.state.pair.is_some() {
            match self.log.peek() {
                Ok(Some(Record::Effect(effect))) => {
                    self.state.effect(effect);
                    let _ = self.log.next_in_place();
                }
                _ => self.state.pair = None,
            }
        }
    }
}

impl Hears for Gatherer {
    fn begins(&mut self) {
        self.log = self.beginning.clone();
        self.state = State {
            started: !self.fresh,
            complete: true,
            ..State::default()
        };
        if let Some(detector) = &mut self.detector {
            detector.begins();
        }
        if let Some(story) = &mut self.story {
            story.clear();
        }
    }

    fn hears(&mut self, told: Told) {
        self.read_to(told.event());
        match told {
            Told::Access {
                thread,
                at,
                addr,
                len,
                read,
                write,
                locked,
                value,
            } => self.keep(Accessed {
                thread,
                handler: None,
                at,
                site: at.pc,
                addr,
                len,
                read,
                write,
                locked,
                freed: false,
                value,
                locks: 0,
                block: None,
                after: 0,
            }),
            Told::Called {
                thread,
                function,
                at,
                back,
                arguments,
            } if matches!(
                self.known.does(function),
                Some(Does::Free | Does::Reallocate)
            ) =>
            {
                self.keep(Accessed {
                    thread,
                    handler: None,
                    at,
                    site: back.wrapping_sub(1),
                    addr: arguments[0],
                    len: 0,
                    read: false,
                    write: true,
                    locked: false,
                    freed: true,
                    value: None,
                    locks: 0,
                    block: None,
                    after: 0,
                });
            }
            _ => {}
        }
        let (state, detector) = (&mut self.state, &mut self.detector);
        match told {
            Told::Called {
                thread,
                function,
                at,
                back,
                arguments,
            } => {
                let Some(does) = self.known.does(function) else {
                    return;
                };
                let mut open = Open {
                    function,
                    does,
                    at,
                    back,
                    arguments,
                    told: 0..0,
                };
                let before = state.interactions.len();
                state.called(thread, &open, detector);
                open.told = before..state.interactions.len();
                state.open.entry(thread).or_default().push(open);
            }
            Told::Returned {
                thread,
                function,
                at,
                rax,
                pointed,
            } => {
                if let Some(open) = state.close(thread, function) {
                    for told in &mut state.interactions[open.told.clone()] {
                        told.over = at;
                    }
                    state.returned(thread, &open, at, (rax, pointed), detector);
                }
            }
            Told::Left {
                thread, function, ..
            } => {
                if let Some(open) = state.close(thread, function) {
                    state.left(thread, &open, detector);
                }
            }
            Told::Access {
                thread,
                at,
                addr,
                len,
                read,
                write,
                locked,
                ..
            } => {
                if locked {
                    state.atomic(thread, at, addr);
                }
                if let Some(detector) = detector {
                    let access = crate::detect::Access {
                        thread,
                        at,
                        addr,
                        len,
                        write,
                        locked,
                        read,
                    };
                    detector.access(&access);
                }
            }
            Told::Renewed { range, .. } => {
                if let Some(detector) = detector {
                    detector.renewed(range);
                }
            }
        }
    }
}

impl State {
    fn object(&mut self, key: ObjectKey, label: Option<String>) -> u32 {
        let next = self.objects.len() as u32;
        let number = *self.numbers.entry(key.clone()).or_insert(next);
        if number == next {
            self.objects.push(Object { key, label });
        }
        number
    }

    fn memory(&mut self, addr: u64) -> u32 {
        let which = self.which.get(&addr).copied().unwrap_or(0);
        self.object(ObjectKey::Memory { addr, which }, None)
    }

    fn channel(&mut self, fd: i32) -> (u32, u32) {
        let channel = self.descriptors.of(fd);
        let label = self.descriptors.channels[channel as usize].label.clone();
        let object = self.object(ObjectKey::Channel(channel), Some(label));
        (channel, object)
    }

    fn thread(&mut self, thread: ThreadId) -> u32 {
        self.object(ObjectKey::Thread(thread), None)
    }

    /// Where the program asked for what this thread does now: the outermost known function that it is in.
    fn site(&self, thread: ThreadId) -> u64 {
        let open = self.open.get(&thread);
        let outermost = open.and_then(|open| {
            let real = |open: &&Open| !matches!(open.does, Does::Entry | Does::Once);
            open.iter().find(real)
        });
        outermost.map_or(0, |open| open.back.wrapping_sub(1))
    }

    /// A futex that is a known function's own.
    fn is_own(&self, thread: ThreadId, word: u64) -> bool {
        let open = self.open.get(&thread).and_then(|open| open.last());
        open.is_some_and(|open| open.does == Does::Once && open.arguments[0] == word)
    }

    fn is_inside(&self, thread: ThreadId) -> bool {
        let open = self.open.get(&thread).and_then(|open| open.last());
        open.is_some_and(|open| !matches!(open.does, Does::Entry | Does::Once | Does::Wrapper))
    }

    fn add(&mut self, interaction: Interaction, detector: &mut Option<Detector>) {
        if !self.started {
            return;
        }
        if let Some(detector) = detector {
            let talks = match self.objects[interaction.object as usize].key {
                ObjectKey::Channel(channel) => self.descriptors.talks(channel),
                ObjectKey::World => false,
                _ => true,
            };
            detector.interacts(&interaction, talks);
        }
        if self.interactions.len() >= MOST {
            self.complete = false;
            return;
        }
        self.interactions.push(interaction);
    }

    fn close(&mut self, thread: ThreadId, function: u32) -> Option<Open> {
        let open = self.open.get_mut(&thread)?;
        let at = open.iter().rposition(|open| open.function == function)?;
        let found = open.swap_remove(at);
        open.truncate(at);
        Some(found)
    }

    /// What calls that haven't returned are about to do.
    fn unfinished(&mut self) -> Vec<Interaction> {
        let mut all = Vec::new();
        let open = std::mem::take(&mut self.open);
        for (thread, open) in &open {
            for open in open {
                let kind = match open.does {
                    Does::Lock { had, .. } => had,
                    Does::CondWait => Kind::CondWait,
                    Does::Join => Kind::ThreadJoin,
                    Does::Barrier => Kind::BarrierArrive,
                    Does::SemWait => Kind::SemWait,
                    _ => continue,
                };
                let object = match kind {
                    Kind::ThreadJoin => {
                        let joined = self.handles.get(&open.arguments[0]).copied();
                        match joined {
                            Some(joined) => self.thread(joined),
                            None => continue,
                        }
                    }
                    _ => self.memory(open.arguments[0]),
                };
                all.push(Interaction {
                    kind,
                    thread: *thread,
                    object,
                    t: 0,
                    at: open.at,
                    over: open.at,
                    site: open.back.wrapping_sub(1),
                    other: None,
                });
            }
        }
        all.sort_by_key(|one| (one.at.event, one.at.ticks, one.thread));
        all
    }

    /// What counts where a function begins.
    fn called(&mut self, thread: ThreadId, open: &Open, detector: &mut Option<Detector>) {
        let of = |kind, object| Interaction {
            kind,
            thread,
            object,
            t: 0,
            at: open.at,
            over: open.at,
            site: open.back.wrapping_sub(1),
            other: None,
        };
        let object = open.arguments[0];
        match open.does {
            Does::Entry => self.started = true,
            Does::Unlock(kind) | Does::Tell(kind) | Does::Destroy(kind) => {
                let object = self.memory(object);
                self.add(of(kind, object), detector);
            }
            Does::CondWait => {
                let cond = self.memory(object);
                self.add(of(Kind::CondWait, cond), detector);
                let lock = self.memory(open.arguments[1]);
                self.add(of(Kind::MutexUnlock, lock), detector);
            }
            Does::Barrier => {
                let object = self.memory(object);
                self.add(of(Kind::BarrierArrive, object), detector);
            }
            Does::SpinInitOrUnlock => {
                let held = self.spins.remove(&object);
                if !held {
                    *self.which.entry(object).or_insert(0) += 1;
                }
                let object = self.memory(object);
                let kind = if held {
                    Kind::SpinUnlock
                } else {
                    Kind::SpinInit
                };
                self.add(of(kind, object), detector);
            }
            Does::Free | Does::Reallocate => {
                if let Some(detector) = detector {
                    detector.freed(thread, object, open.at, open.back);
                }
            }
            _ => {}
        }
    }

    /// What counts where it is over.
    fn returned(
        &mut self,
        thread: ThreadId,
        open: &Open,
        at: Mark,
        (rax, pointed): (u64, u64),
        detector: &mut Option<Detector>,
    ) {
        let (object, result) = (open.arguments[0], rax as i32);
        let by = self.woken.remove(&thread);
        let of = |kind, object| Interaction {
            kind,
            thread,
            object,
            t: 0,
            at,
            over: at,
            site: open.back.wrapping_sub(1),
            other: by,
        };
        let new_block = |detector: &mut Option<Detector>, addr: u64, size: u64| {
            if let Some(detector) = detector {
                detector.allocated(thread, addr, size, open.at, open.back);
            }
        };
        match open.does {
            Does::Join | Does::Detach if result == 0 => {
                let Some(&joined) = self.handles.get(&object) else {
                    return;
                };
                let kind = match open.does {
                    Does::Join => Kind::ThreadJoin,
                    _ => Kind::ThreadDetach,
                };
                let object = self.thread(joined);
                let interaction = Interaction {
                    other: Some(joined),
                    ..of(kind, object)
                };
                self.add(interaction, detector);
            }
            Does::Init(kind) if result == 0 => {
                *self.which.entry(object).or_insert(0) += 1;
                let object = self.memory(object);
                self.add(of(kind, object), detector);
            }
            Does::Lock { had, not } => {
                if had == Kind::SpinLock && result == 0 {
                    self.spins.insert(object);
                }
                let object = self.memory(object);
                let kind = match result {
                    0 | OWNER_DIED => had,
                    _ => not,
                };
                self.add(of(kind, object), detector);
            }
            Does::CondWait => {
                let cond = self.memory(object);
                self.add(of(Kind::CondWoken, cond), detector);
                let lock = self.memory(open.arguments[1]);
                self.add(of(Kind::MutexLock, lock), detector);
            }
            Does::Barrier => {
                let object = self.memory(object);
                self.add(of(Kind::BarrierLeave, object), detector);
            }
            Does::Once => {
                let object = self.memory(object);
                self.add(of(Kind::Once, object), detector);
            }
            Does::SemWait => {
                let object = self.memory(object);
                let kind = if result == 0 {
                    Kind::SemWait
                } else {
                    Kind::SemBusy
                };
                self.add(of(kind, object), detector);
            }
            Does::SemOpen if rax != 0 => {
                let object = self.memory(rax);
                self.add(of(Kind::SemOpen, object), detector);
            }
            Does::Allocate { size, by } if rax != 0 => {
                let one = open.arguments[size];
                let count = by.map_or(1, |n| open.arguments[n]);
                new_block(detector, rax, one.saturating_mul(count));
            }
            Does::Reallocate if rax != 0 => new_block(detector, rax, open.arguments[1]),
            Does::AllocateAt if result == 0 => new_block(detector, pointed, open.arguments[2]),
            _ => {}
        }
    }

    /// A call that nobody returned from. Who is cancelled while it waits for a condition has the lock again.
    fn left(&mut self, thread: ThreadId, open: &Open, detector: &mut Option<Detector>) {
        if open.does == Does::CondWait {
            let ended = (0, 0);
            self.returned(thread, open, open.at, ended, detector);
        }
    }

    fn atomic(&mut self, thread: ThreadId, at: Mark, addr: u64) {
        let object = self.memory(addr);
        let interaction = Interaction {
            kind: Kind::Atomic,
            thread,
            object,
            t: 0,
            at,
            over: at,
            site: at.pc,
            other: None,
        };
        // Who looks at accesses hears of it as one.
        self.add(interaction, &mut None);
    }
}

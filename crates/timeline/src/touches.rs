//! Which memory the threads of a program share. In: a recording, and how much to look at. Out: accesses to memory
//! that at least two threads touch and at least one of them writes, in the order in which they happened.
//!
//! What the kernel reads and writes in system calls isn't among them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use clew_engine::replay::worker::protocol::{
    self, Command, Goal, Granules, Observation, Reply, Take, Why,
};
use clew_engine::trace::buffer::Ring;
use clew_recording::event::{Event, Instruction, Record, ThreadId};
use clew_recording::reader::StreamReader;
use clew_recording::script::Point;

use serde::de::DeserializeOwned;

use crate::pool::Buffer;
use crate::worker::{Worker, unexpected};
use crate::{Error, Position, Result, Timeline};

/// How much to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TouchLimits {
    /// So many accesses are told at most.
    pub accesses: usize,
    pub time: Duration,
}

/// One access to memory that at least two threads touch and at least one writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Touch {
    pub thread: ThreadId,
    /// In the thread's own life: the tick, the system call or the instruction answered by the engine (which counts as
    /// one) before the instruction. `steps` is 0.
    pub point: Point,
    pub pc: u64,
    pub addr: u64,
    pub len: u32,
    /// An instruction that reads and writes the same memory is one access that writes.
    pub write: bool,
    /// A lock prefix, or `xchg` with memory.
    pub locked: bool,
    /// In the stream: the tick or event before the instruction. `steps` is 0.
    pub position: Position,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touches {
    /// In the order in which they happened.
    pub touches: Vec<Touch>,
    /// Every instruction, thread and address is there; of those that came often, the first and last 16 times. Otherwise
    /// time or number were a limit, or one thread touched something more than ten thousand times in one turn.
    pub complete: bool,
}

/// More memory than this isn't looked at: pieces that lie apart.
const MOST_RANGES: usize = 1 << 19;

impl Timeline {
    /// Accesses to shared memory, from where the second thread begins to the end. The timeline stays where it is.
    ///
    /// The program is replayed twice from there: first to find which memory several threads touch, then to see who
    /// touches it.
    pub fn touches(&mut self, limits: &TouchLimits) -> Result<Touches> {
        self.pool.begin();
        let until = Instant::now() + limits.time;
        self.up_to_divergence(|timeline| timeline.touches_until(limits, until))
    }

    fn touches_until(&mut self, limits: &TouchLimits, until: Instant) -> Result<Touches> {
        let Some(begin) = self.story.second_thread()? else {
            return Ok(Touches {
                touches: Vec::new(),
                complete: true,
            });
        };
        // A fork's life may begin with the threads' making behind it.
        let begin = Position::after(begin).max(self.start());
        let mut collects = self.fork_before(begin)?;
        collects.send(&Command::Advance {
            goal: Goal::Position(begin),
            take: Take::None,
        })?;
        let arrived = match self.within(&mut collects, until)? {
            Reply::Stopped(stopped) => stopped.why != Why::Interrupted,
            other => return Err(unexpected(other)),
        };
        if !arrived {
            return Ok(Touches::default());
        }
        let left = until.saturating_duration_since(Instant::now());
        let mut surveys = collects.fork()?;
        let mut buffer = self.pool.buffer()?;
        buffer.ring().clear(&[]);
        let half = Instant::now() + left / 2;
        let sharing = Observation::Sharing;
        let mut complete = self.surveyed(&mut surveys, sharing, &mut buffer, half)?;
        drop(surveys);
        // Told again to the one that collects, as far as it is worth it.
        let mut granules: Vec<Granules> = result(buffer.ring())?;
        complete &= granules.len() <= MOST_RANGES;
        granules.truncate(MOST_RANGES);
        let granules = postcard::to_stdvec(&granules).map_err(|_| Error::Lost)?;
        buffer.ring().clear(&granules);
        let touches = Observation::Touches {
            most: limits.accesses as u64,
        };
        complete &= self.surveyed(&mut collects, touches, &mut buffer, until)?;
        let touches = self.told_touches(result(buffer.ring())?, limits.accesses)?;
        Ok(Touches { touches, complete })
    }

    /// What a worker answers when it is done, or time is up.
    fn within(&mut self, worker: &mut Worker, until: Instant) -> Result<Reply> {
        let left = until.saturating_duration_since(Instant::now());
        let reply = worker.journey_within(left)?;
        match self.pool.interrupted() {
            true => Err(Error::Interrupted),
            false => Ok(reply),
        }
    }

    /// Whether it saw all.
    fn surveyed(
        &mut self,
        worker: &mut Worker,
        look: Observation,
        buffer: &mut Buffer,
        until: Instant,
    ) -> Result<bool> {
        let left = until.saturating_duration_since(Instant::now());
        let (_, complete) = worker.observe(look, Goal::End, buffer, left, None)?;
        match self.pool.interrupted() {
            true => Err(Error::Interrupted),
            false => Ok(complete),
        }
    }

    /// What a worker has collected, with points of the threads' own lives.
    fn told_touches(&mut self, told: Vec<protocol::Touch>, most: usize) -> Result<Vec<Touch>> {
        if told.len() > most {
            return Err(Error::Lost);
        }
        let mut lives = Lives::new(self.story.beginning(), self.start.thread);
        let touches = told.into_iter().map(|touch| {
            Ok(Touch {
                thread: touch.thread,
                point: lives.point(&touch)?,
                pc: touch.pc,
                addr: touch.addr,
                len: touch.len,
                write: touch.write,
                locked: touch.locked,
                position: Position {
                    event: touch.event,
                    ticks: touch.ticks,
                    steps: 0,
                },
            })
        });
        touches.collect()
    }
}

/// What a worker has left in a buffer.
pub(crate) fn result<T: DeserializeOwned>(ring: &Ring) -> Result<T> {
    postcard::from_bytes(&ring.rows(0)).map_err(|_| Error::Nonsense)
}

/// How far each thread has come, read from the log.
struct Lives {
    reader: StreamReader,
    current: ThreadId,
    /// Ticks of each, and system calls since the last of them.
    lives: HashMap<ThreadId, Point>,
}

impl Lives {
    fn new(reader: StreamReader, first: ThreadId) -> Lives {
        Lives {
            reader,
            current: first,
            lives: HashMap::new(),
        }
    }

    /// Where that is in the thread's own life. In order: the log is read on.
    fn point(&mut self, touch: &protocol::Touch) -> Result<Point> {
        while self.reader.position() < touch.event {
            let record = self.reader.next_in_place();
            match record.map_err(|error| Error::Refused(error.to_string()))? {
                Some(Record::Event(event)) => {
                    let (_, place) = event.lies();
                    let life = self.lives.entry(self.current).or_default();
                    life.ticks = life.ticks.saturating_add(place.ticks);
                    if place.ticks > 0 {
                        life.calls = 0;
                    }
                    match event {
                        Event::Call(_) => life.calls = life.calls.saturating_add(1),
                        Event::Instruction { what, .. } => {
                            // Those that were passed before it weren't told.
                            let passed = match what {
                                Instruction::Quiet { passed } => *passed,
                                _ => 0,
                            };
                            let more = passed.saturating_add(1);
                            life.calls = life.calls.saturating_add(more);
                        }
                        Event::Switched { to, .. } => self.current = *to,
                        _ => {}
                    }
                }
                Some(Record::Effect(_)) => {}
                None => return Err(Error::Lost),
            }
        }
        if (self.reader.position(), self.current) != (touch.event, touch.thread) {
            return Err(Error::Lost);
        }
        let life = self.lives.entry(self.current).or_default();
        let ticks = life.ticks.checked_add(touch.ticks).ok_or(Error::Lost)?;
        let calls = match touch.ticks {
            0 => life.calls.saturating_add(touch.passed),
            _ => touch.passed,
        };
        Ok(Point {
            ticks,
            calls,
            steps: 0,
        })
    }
}

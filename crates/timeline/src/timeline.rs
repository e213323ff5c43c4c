//! A recorded program and a place in its life. In: questions and wishes. Out: what it looks like
//! there; `seek`, `search`, `stepping` and `excursion` go elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clew_engine::replay::worker;
use clew_engine::replay::worker::protocol::{
    At, Command, Diverged, Goal, LONGEST_READ, Reply, Take,
};
use clew_recording::codec::Decoder;
use clew_recording::event::{Record, StreamId, ThreadId};
use clew_recording::reader::Recording;

use crate::pool::Pool;
use crate::seek::{goal_of, position_of};
use crate::snapshots::{Kind, Shared};
use crate::story::Story;
use crate::usage;
use crate::worker::{StopsId, Worker, unexpected};
use crate::{
    Direction, Error, Mapping, Position, Registers, Result, Settings, Stop, Stops, Target, Thread,
};

/// One program's life in a recording, and a place in it.
pub struct Timeline {
    pub(crate) pool: Arc<Pool>,
    stream: StreamId,
    pub(crate) story: Story,
    pub(crate) snapshots: Shared,
    /// The worker that stands where the timeline stands. None after it was lost: the next one to need it
    /// makes another.
    pub(crate) here: Option<Worker>,
    pub(crate) at: At,
    pub(crate) start: At,
    /// The last place, once it was reached.
    pub(crate) end: Option<At>,
    /// How much work the whole is thought to be, as long as nobody has been at the end.
    pub(crate) expected: u64,
    /// Where the replay diverges, once somebody came there.
    pub(crate) divergence: Option<Box<Diverged>>,
    pub(crate) stops: Stops,
    /// The number of these stops; 0 if there are none.
    pub(crate) stops_id: StopsId,
    pub(crate) pace: Pace,
    pub(crate) jobs: usize,
    pub(crate) stretch: Option<u64>,
    /// Instructions of ticks that were counted while going back.
    pub(crate) lengths: std::collections::HashMap<(u64, u64), u64>,
    /// Of the work under way: what was done by others, and what part of it journeys are.
    pub(crate) share: (f64, f64),
}

/// A worker that one timeline leaves behind may serve another: no two have the same number for other stops.
static LAST_STOPS: AtomicU64 = AtomicU64::new(0);

/// How fast things go.
#[derive(Clone)]
pub(crate) struct Pace {
    latency: Duration,
    /// Work in a second of replay.
    rate: f64,
    measured: bool,
    /// What it takes to make a snapshot.
    fork: Duration,
}

impl Pace {
    fn new(latency: Duration) -> Pace {
        Pace {
            latency,
            rate: 2e7,
            measured: false,
            fork: Duration::ZERO,
        }
    }

    /// Work between two snapshots.
    pub fn interval(&self) -> u64 {
        let time = self.latency.max(self.fork * 20);
        ((time.as_secs_f64() * self.rate) as u64).max(1_000)
    }

    pub fn ran(&mut self, work: u64, time: Duration) {
        // Too short to tell.
        if time < Duration::from_millis(1) {
            return;
        }
        let rate = (work.max(1) as f64 / time.as_secs_f64()).clamp(1e3, 1e10);
        self.rate = match self.measured {
            true => (self.rate * rate).sqrt(),
            false => rate,
        };
        self.measured = true;
    }

    pub fn forked(&mut self, time: Duration) {
        self.fork = (self.fork * 3 + time) / 4;
    }
}

impl Timeline {
    /// Opens a stream and stands at its start. The processes that it makes end with it, or with this one.
    pub fn open(recording: &Recording, stream: StreamId, settings: Settings) -> Result<Timeline> {
        let reader = recording
            .stream(stream)
            .map_err(|error| Error::Refused(error.to_string()))?;
        let wish = worker::Wish {
            options: &settings.options,
            unlocked: settings.unlocked,
            verify: settings.verify,
            program: settings.program.as_deref(),
        };
        let started = worker::start(recording, stream, &wish).map_err(Error::Refused)?;
        let pid = started.pid;
        let pool = Arc::new(Pool::new(started));
        let mut first = Worker::first(pool.clone(), pid)?;
        let at = first.at;
        if position_of(&at).is_none() {
            return Err(Error::Lost);
        }
        let here = first.fork()?;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Ok(Timeline {
            pool,
            stream,
            story: Story::new(reader),
            snapshots: Shared::new(first, settings.memory.unwrap_or_else(usage::quarter)),
            here: Some(here),
            at,
            start: at,
            end: None,
            expected: 0,
            divergence: None,
            stops: Stops::default(),
            stops_id: 0,
            pace: Pace::new(settings.latency),
            jobs: settings.jobs.unwrap_or(cores).clamp(1, 64),
            stretch: settings.stretch,
            lengths: Default::default(),
            share: (0.0, 1.0),
        })
    }

    /// Another timeline of the same stream, which stands where this one stands. Both use the same snapshots and keep to one
    /// budget, each goes its own way, and any thread may have either. Nobody watches the new one, and it has no stops.
    pub fn another(&mut self) -> Result<Timeline> {
        let pool = Arc::new(self.pool.another());
        let mut here = self.worker()?.fork()?;
        here.serve(&pool);
        Ok(self.with(pool, Some(here)))
    }

    /// The same, for a part of the work that this one does: whoever watches this one watches both.
    pub(crate) fn helper(&self) -> Timeline {
        self.with(self.pool.clone(), None)
    }

    fn with(&self, pool: Arc<Pool>, here: Option<Worker>) -> Timeline {
        Timeline {
            pool,
            stream: self.stream,
            story: self.story.clone(),
            snapshots: self.snapshots.clone(),
            here,
            at: self.at,
            start: self.start,
            end: self.end,
            expected: self.expected,
            divergence: self.divergence.clone(),
            stops: Stops::default(),
            stops_id: 0,
            pace: self.pace.clone(),
            jobs: self.jobs,
            stretch: self.stretch,
            lengths: self.lengths.clone(),
            share: (0.0, 1.0),
        }
    }

    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Where it stands.
    pub fn position(&mut self) -> Result<Position> {
        if let Some(position) = position_of(&self.at) {
            return Ok(position);
        }
        // A worker that goes there by the mark counts on its way.
        self.pool.begin();
        self.up_to_divergence(|timeline| {
            timeline.densify_here()?;
            let worker = timeline.worker_at(goal_of(&timeline.at))?;
            let position = position_of(&worker.at).ok_or(Error::Lost)?;
            timeline.at.steps = Some(position.steps);
            timeline.settle(worker);
            Ok(position)
        })
    }

    /// What is known of that place without counting instructions: cheap.
    pub fn at(&self) -> At {
        self.at
    }

    /// The last position. Replays to the end if that wasn't done yet.
    pub fn end(&mut self) -> Result<Position> {
        if self.end.is_none() {
            self.pool.begin();
            self.up_to_divergence(Timeline::find_end)?;
        }
        let end = self.end.as_ref().and_then(position_of);
        end.ok_or(Error::Interrupted)
    }

    /// The first position.
    pub fn start(&self) -> Position {
        position_of(&self.start).unwrap_or_default()
    }

    /// The position after so many ticks of all threads, read from the log without going there.
    pub fn after_ticks(&mut self, ticks: u64) -> Result<Position> {
        Ok(self.story.after_ticks(ticks)?.max(self.start()))
    }

    /// Where to stop in [`Timeline::run`] and [`Timeline::step`].
    pub fn set_stops(&mut self, stops: Stops) {
        if self.stops == stops {
            return;
        }
        self.stops_id = 0;
        if stops != Stops::default() {
            self.stops_id = LAST_STOPS.fetch_add(1, Ordering::Relaxed) + 1;
        }
        self.stops = stops;
    }

    pub fn stops(&self) -> &Stops {
        &self.stops
    }

    /// Goes on until a stop, or the end, or the start. What is at the present position doesn't count.
    /// `until`: not further than that, where given.
    pub fn run(&mut self, direction: Direction, until: Option<Position>) -> Result<Stop> {
        self.pool.begin();
        self.up_to_divergence(|timeline| match direction {
            Direction::Forward => timeline.run_forward(until),
            Direction::Backward => timeline.run_backward(until),
        })
    }

    pub fn seek(&mut self, to: Target) -> Result<Stop> {
        self.pool.begin();
        self.up_to_divergence(|timeline| timeline.go(to))
    }

    /// Back to a place where it stood before, told by [`Timeline::at`]: no instructions are counted for that.
    pub fn return_to(&mut self, at: At) -> Result<()> {
        self.pool.begin();
        self.up_to_divergence(|timeline| {
            let worker = timeline.worker_at(goal_of(&at))?;
            timeline.settle(worker);
            Ok(())
        })
    }

    /// In order of their numbers.
    pub fn threads(&mut self) -> Result<Vec<Thread>> {
        match self.ask(&Command::Threads)? {
            Reply::Threads(threads) => Ok(threads),
            other => Err(unexpected(other)),
        }
    }

    pub fn registers(&mut self, thread: ThreadId) -> Result<Option<Registers>> {
        registers(self.ask(&Command::Registers { thread })?)
    }

    /// Reads what can be read from there on; how many bytes that is.
    pub fn read(&mut self, addr: u64, into: &mut [u8]) -> Result<usize> {
        self.worker()?;
        match &mut self.here {
            Some(worker) => read(worker, addr, into),
            None => Err(Error::Lost),
        }
    }

    pub fn mappings(&mut self) -> Result<Vec<Mapping>> {
        self.worker()?;
        match &mut self.here {
            Some(worker) => mappings(worker),
            None => Err(Error::Lost),
        }
    }

    /// The code there, and what it is translated to, as text.
    pub fn listing(&mut self, pc: u64) -> Result<String> {
        match self.ask(&Command::Listing { pc })? {
            Reply::Listing(text) => Ok(text),
            other => Err(unexpected(other)),
        }
    }

    /// Tells the whole state as the prologue of a stream that begins here, but for its first event; or, if not `whole`,
    /// what stands where a region ends.
    pub fn state(&mut self, whole: bool, take: &mut dyn FnMut(&Record)) -> Result<()> {
        let mut decoder = Decoder::default();
        let mut good = true;
        self.worker()?.state(whole, &mut |piece| {
            let mut rest = piece;
            while good && !rest.is_empty() {
                match decoder.next(rest) {
                    Ok(Some((record, used))) => {
                        take(&record);
                        rest = &rest[used..];
                    }
                    Ok(None) | Err(_) => good = false,
                }
            }
        })?;
        match good {
            true => Ok(()),
            false => Err(Error::Lost),
        }
    }

    /// How much work the stream is, as far as its summary tells: what progress is measured by until the end is known.
    pub fn expect_work(&mut self, work: u64) {
        self.expected = work;
    }

    /// Asked now and then during long work: `true` interrupts it. Also told how far it has come, 0..=1.
    pub fn set_watcher(&mut self, watcher: Box<dyn FnMut(f64) -> bool + Send>) {
        self.pool.set_watcher(watcher);
    }

    /// How many processes stand ready, and what all take of memory, in bytes.
    pub fn load(&self) -> (usize, u64) {
        let snapshots = self.snapshots.hold();
        let snapshots = snapshots.iter().map(|s| s.worker.pid());
        let all: Vec<i32> = snapshots.chain(self.here.iter().map(Worker::pid)).collect();
        (all.len(), usage::together(all.into_iter()))
    }

    pub(crate) fn ask(&mut self, command: &Command) -> Result<Reply> {
        let reply = self.worker()?.ask(command);
        if matches!(reply, Err(Error::Lost | Error::Diverged(_))) {
            self.here = None;
        }
        reply
    }

    /// The worker that stands here.
    pub(crate) fn worker(&mut self) -> Result<&mut Worker> {
        if self.here.is_none() {
            let worker = self.worker_at(goal_of(&self.at))?;
            self.here = Some(worker);
        }
        self.here.as_mut().ok_or(Error::Lost)
    }

    /// A snapshot of this worker; what that takes is noted.
    pub(crate) fn copy(&mut self, worker: &mut Worker) -> Result<Worker> {
        let began = Instant::now();
        let copy = worker.fork()?;
        self.pace.forked(began.elapsed());
        Ok(copy)
    }

    /// A worker at a place that lies on ground that was replayed already, without any stops.
    pub(crate) fn worker_at(&mut self, goal: Goal) -> Result<Worker> {
        let before = match goal {
            Goal::Position(position) => position,
            Goal::Mark(mark) => Position {
                event: mark.event,
                ticks: mark.ticks,
                steps: 0,
            },
            Goal::Work(_) | Goal::End => return Err(Error::Lost),
        };
        let mut worker = self.fork_before(before)?;
        if position_of(&worker.at) == Some(before) && matches!(goal, Goal::Position(_)) {
            return Ok(worker);
        }
        let stopped = worker.advance(goal, Take::None)?;
        crate::seek::must_arrive(&stopped)?;
        Ok(worker)
    }

    /// A copy of the nearest snapshot at or before a position; of one further away if that one has died.
    pub(crate) fn fork_before(&mut self, position: Position) -> Result<Worker> {
        let mut snapshots = self.snapshots.hold();
        loop {
            let Some(nearest) = snapshots.before(position) else {
                return Err(Error::Refused(format!(
                    "{position} lies before the start, {}",
                    self.start()
                )));
            };
            let (id, kind) = (nearest.id, nearest.kind);
            match snapshots.fork(id, &self.pool) {
                Err(Error::Lost) if kind != Kind::Start => snapshots.forget(id),
                forked => return forked,
            }
        }
    }
}

pub(crate) fn registers(reply: Reply) -> Result<Option<Registers>> {
    match reply {
        Reply::Registers(registers) => Ok(registers.map(|registers| *registers)),
        other => Err(unexpected(other)),
    }
}

pub(crate) fn read(worker: &mut Worker, addr: u64, into: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < into.len() {
        let Some(addr) = addr.checked_add(done as u64) else {
            break;
        };
        let len = (into.len() - done).min(LONGEST_READ);
        let bytes = match worker.ask(&Command::Read {
            addr,
            len: len as u32,
        })? {
            Reply::Memory(bytes) => bytes,
            other => return Err(unexpected(other)),
        };
        if bytes.len() > len {
            return Err(Error::Lost);
        }
        into[done..done + bytes.len()].copy_from_slice(&bytes);
        done += bytes.len();
        if bytes.len() < len {
            break;
        }
    }
    Ok(done)
}

fn mappings(worker: &mut Worker) -> Result<Vec<Mapping>> {
    /// The kernel allows 65,530 unless told otherwise.
    const MOST: usize = 1 << 20;
    let mut all: Vec<Mapping> = Vec::new();
    loop {
        let from = all.last().map_or(0, |last| last.end);
        let more = match worker.ask(&Command::Mappings { from })? {
            Reply::Mappings(more) => more,
            other => return Err(unexpected(other)),
        };
        if more.is_empty() || all.len() > MOST {
            return Ok(all);
        }
        for mapping in more {
            let from = all.last().map_or(0, |last| last.end);
            if mapping.start < from || mapping.end <= mapping.start {
                return Err(Error::Lost);
            }
            all.push(mapping);
        }
    }
}

//! A worker's handle: commands go in, replies and deaths come out. Dropping it ends the process.
//!
//! What a worker says may be a stranger's recording speaking: no value is believed that could lead out of
//! its own replay, and nobody waits for it without looking whether it lives.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_engine::replay::worker::protocol::probing::Told;
use clew_engine::replay::worker::protocol::{
    At, Command, Goal, Hit, Observation, Reply, Stopped, Stops, Take,
};
use clew_engine::trace::buffer::Ring;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

use crate::pool::{Buffer, Pool, WATCH};
use crate::{Error, Result};

/// What isn't a journey is answered at once; a fork of a huge process takes longest.
const PATIENCE: Duration = Duration::from_secs(60);
/// One that is told to stop its journey does so within this.
const OBEDIENCE: Duration = Duration::from_secs(10);
/// Whoever fills a buffer isn't kept waiting longer.
const SOON: Duration = Duration::from_micros(500);

/// Who takes segments as they come.
pub type Sink<'a> = &'a mut dyn FnMut(&Ring, Vec<u8>);

/// Which [`Stops`] a worker has: 0 is none at all.
pub type StopsId = u64;

pub struct Worker {
    pool: Arc<Pool>,
    channel: u32,
    pid: Pid,
    /// Readable once it has ended; none on old kernels.
    end: Option<OwnedFd>,
    /// It has ended and was waited for.
    reaped: bool,
    /// Where it stands, or stood when it was last heard of.
    pub at: At,
    stops: StopsId,
}

impl Worker {
    /// The first one, which serves on channel 0.
    pub fn first(pool: Arc<Pool>, pid: i32) -> Result<Worker> {
        let pid = Pid::from_raw(pid).ok_or(Error::Lost)?;
        let nowhere = At {
            event: 0,
            ticks: 0,
            steps: Some(0),
            pc: 0,
            sp: 0,
            thread: 0,
            work: 0,
            next: None,
        };
        let mut worker = Worker::new(pool, 0, pid, nowhere, 0);
        match worker.wait(PATIENCE)? {
            Reply::Ready => {}
            other => return Err(unexpected(other)),
        }
        match worker.ask(&Command::Where)? {
            Reply::Stopped(stopped) => worker.at = stopped.at,
            other => return Err(unexpected(other)),
        }
        Ok(worker)
    }

    fn new(pool: Arc<Pool>, channel: u32, pid: Pid, at: At, stops: StopsId) -> Worker {
        Worker {
            end: pidfd_open(pid, PidfdFlags::empty()).ok(),
            pool,
            channel,
            pid,
            reaped: false,
            at,
            stops,
        }
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// From now on it works for this timeline.
    pub fn serve(&mut self, pool: &Arc<Pool>) {
        self.pool = pool.clone();
    }

    /// Another one in the same state.
    pub fn fork(&mut self) -> Result<Worker> {
        let channel = self.pool.take()?;
        self.pool.let_fork(self.pid());
        let forked = self.ask(&Command::Fork { channel });
        self.pool.has_forked(self.pid());
        let pid = match forked {
            Ok(Reply::Forked { pid }) => pid,
            Ok(other) => {
                self.pool.give_back(channel);
                return Err(unexpected(other));
            }
            Err(error) => {
                self.pool.give_back(channel);
                return Err(error);
            }
        };
        match child_like(pid, self.pid) {
            Some(pid) => Ok(Worker::new(
                self.pool.clone(),
                channel,
                pid,
                self.at,
                self.stops,
            )),
            None => {
                self.pool.give_back(channel);
                Err(Error::Lost)
            }
        }
    }

    pub fn send(&mut self, command: &Command) -> Result<()> {
        let bytes = command.encode();
        let until = Instant::now() + PATIENCE;
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match send(self.pool.channel(self.channel), &bytes, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if Instant::now() > until || !self.lives() {
                        return Err(self.lost());
                    }
                    let fd = self.pool.channel(self.channel);
                    wait_for(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], WATCH);
                }
                Err(error) => {
                    return Err(Error::Io {
                        what: "a replaying process doesn't hear",
                        error: error.into(),
                    });
                }
            }
        }
    }

    /// A command that is answered at once.
    pub fn ask(&mut self, command: &Command) -> Result<Reply> {
        self.send(command)?;
        self.wait(PATIENCE)
    }

    /// Where to stop when it is sent to look for stops.
    pub fn set_stops(&mut self, id: StopsId, stops: &Stops) -> Result<()> {
        if self.stops != id {
            self.send(&Command::Stops(stops.clone()))?;
            self.stops = id;
        }
        Ok(())
    }

    /// Sends it on a journey. If the watcher interrupts, it stops where it is.
    pub fn advance(&mut self, goal: Goal, take: Take) -> Result<Stopped> {
        self.send(&Command::Advance { goal, take })?;
        self.stopped()
    }

    pub fn step(&mut self) -> Result<Stopped> {
        self.send(&Command::Step)?;
        self.stopped()
    }

    /// Waits until a journey has ended.
    pub fn stopped(&mut self) -> Result<Stopped> {
        match self.journey()? {
            Reply::Stopped(stopped) => Ok(self.stands(stopped)),
            other => Err(unexpected(other)),
        }
    }

    /// It said that it stands there.
    fn stands(&mut self, stopped: Stopped) -> Stopped {
        self.at = stopped.at;
        stopped
    }

    /// Waits for the reply to something that may take any time; tells it to stop if the watcher says so.
    fn journey(&mut self) -> Result<Reply> {
        self.journey_within(Duration::MAX)
    }

    /// The same, and tells it to stop after this time.
    pub fn journey_within(&mut self, time: Duration) -> Result<Reply> {
        let began = Instant::now();
        loop {
            if let Some(reply) = self.receive()? {
                return Ok(reply);
            }
            if self.pool.interrupted() || began.elapsed() > time {
                self.send(&Command::Interrupt)?;
                return self.wait(OBEDIENCE);
            }
            self.sleep(WATCH)?;
        }
    }

    /// Lets it look at the way to a goal; what it sees goes to `sink` as it comes, if that is given, and stays in the
    /// buffer otherwise. Tells it to stop after this time. Whether it saw all there is.
    pub fn observe(
        &mut self,
        look: Observation,
        goal: Goal,
        buffer: &mut Buffer,
        time: Duration,
        mut sink: Option<Sink<'_>>,
    ) -> Result<(Stopped, bool)> {
        let number = buffer.number();
        let command = Command::Observe {
            look,
            goal,
            buffer: number,
        };
        self.send(&command)?;
        let (began, mut stopping) = (Instant::now(), None);
        let reply = loop {
            let ring = buffer.ring();
            let mut took = false;
            while let Some(segment) = ring.take() {
                took = true;
                if let Some(sink) = &mut sink {
                    sink(ring, segment);
                }
            }
            // What it sent before its reply is there when the reply is.
            if let Some(reply) = self.receive()? {
                break reply;
            }
            if stopping.is_none() && (self.pool.interrupted() || began.elapsed() > time) {
                self.send(&Command::Interrupt)?;
                stopping = Some(Instant::now());
            }
            if stopping.is_some_and(|since: Instant| since.elapsed() > OBEDIENCE) {
                return Err(self.lost());
            }
            match sink.is_some() {
                true if took => {}
                true => self.sleep(SOON)?,
                false => self.sleep(WATCH)?,
            }
        };
        while let Some(segment) = buffer.ring().take() {
            if let Some(sink) = &mut sink {
                sink(buffer.ring(), segment);
            }
        }
        match reply {
            Reply::Observed { stopped, complete } => Ok((self.stands(stopped), complete)),
            other => Err(unexpected(other)),
        }
    }

    /// Lets it run probes on the way to a goal; what they tell goes to `sink` as it comes. Whether it came there.
    pub fn probe(
        &mut self,
        goal: Goal,
        buffer: &mut Buffer,
        sink: &mut dyn FnMut(Vec<Told>),
    ) -> Result<(Stopped, bool)> {
        self.send(&Command::Observe {
            look: Observation::Probes,
            goal,
            buffer: buffer.number(),
        })?;
        let mut stopping = None;
        loop {
            match self.receive()? {
                Some(Reply::Told(told)) => {
                    sink(told);
                    continue;
                }
                Some(Reply::Observed { stopped, complete }) => {
                    return Ok((self.stands(stopped), complete));
                }
                Some(other) => return Err(unexpected(other)),
                None => {}
            }
            if stopping.is_none() && self.pool.interrupted() {
                self.send(&Command::Interrupt)?;
                stopping = Some(Instant::now());
            }
            if stopping.is_some_and(|since: Instant| since.elapsed() > OBEDIENCE) {
                return Err(self.lost());
            }
            self.sleep(WATCH)?;
        }
    }

    /// Lets it tell its whole state, or what a region that ends here ends with; the records come in pieces.
    pub fn state(&mut self, whole: bool, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.send(&Command::State { whole })?;
        loop {
            match self.wait(PATIENCE)? {
                Reply::State(piece) => sink(&piece),
                Reply::Done => return Ok(()),
                other => return Err(unexpected(other)),
            }
        }
    }

    /// Tells it to end its journey; where it stands then, and what it has passed.
    pub fn halt(&mut self) -> Result<Stopped> {
        self.send(&Command::Interrupt)?;
        match self.wait(OBEDIENCE)? {
            Reply::Stopped(stopped) => Ok(self.stands(stopped)),
            other => Err(unexpected(other)),
        }
    }

    /// The journey's end, if it has come already.
    pub fn arrived(&mut self) -> Result<Option<Stopped>> {
        match self.receive()? {
            Some(Reply::Stopped(stopped)) => Ok(Some(self.stands(stopped))),
            Some(other) => Err(unexpected(other)),
            None if self.lives() => Ok(None),
            // Its last words may have come in between.
            None => match self.receive()? {
                Some(Reply::Stopped(stopped)) => Ok(Some(self.stands(stopped))),
                _ => Err(self.lost()),
            },
        }
    }

    fn wait(&mut self, patience: Duration) -> Result<Reply> {
        let until = Instant::now() + patience;
        loop {
            if let Some(reply) = self.receive()? {
                return Ok(reply);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.lost());
            }
            self.sleep(left.min(WATCH))?;
        }
    }

    /// The next reply that isn't only a sign of life.
    fn receive(&mut self) -> Result<Option<Reply>> {
        while let Some(reply) = self.pool.receive(self.channel, Reply::decode) {
            match reply {
                Some(Reply::Progress { work }) => self.at.work = self.at.work.max(work),
                Some(Reply::Diverged(found)) => return Err(Error::Diverged(found)),
                Some(reply) => return Ok(Some(reply)),
                None => return Err(self.lost()),
            }
        }
        Ok(None)
    }

    /// Until it says something; an error if it has ended and said nothing.
    fn sleep(&mut self, at_most: Duration) -> Result<()> {
        wait_any(&[self], at_most);
        if !self.has_words() && !self.lives() && !self.has_words() {
            return Err(self.lost());
        }
        Ok(())
    }

    fn has_words(&self) -> bool {
        let fd = self.pool.channel(self.channel);
        wait_for(
            &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
            Duration::ZERO,
        )
    }

    fn lives(&mut self) -> bool {
        if !self.reaped {
            self.reaped = !matches!(waitpid(Some(self.pid), WaitOptions::NOHANG), Ok(None));
        }
        !self.reaped
    }

    fn lost(&mut self) -> Error {
        Error::Lost
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.reaped {
            self.pool.buried(self.channel);
            return;
        }
        // It is a child of ours that nobody waited for, so the number is still its own.
        let _ = kill_process(self.pid, Signal::KILL);
        self.pool.bury(self.pid, self.channel);
    }
}

/// Waits until one of these says something or ends.
pub fn wait_any(workers: &[&mut Worker], at_most: Duration) {
    let mut fds = Vec::with_capacity(2 * workers.len());
    let mut at_most = at_most;
    for worker in workers {
        let fd = worker.pool.channel(worker.channel);
        fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match &worker.end {
            Some(end) => fds.push(PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN)),
            // Without a descriptor for its end one has to look.
            None => at_most = at_most.min(Duration::from_millis(5)),
        }
    }
    let pool = workers.first().map(|worker| &worker.pool);
    if let Some(forks) = pool.and_then(|pool| pool.forks()) {
        fds.push(PollFd::from_borrowed_fd(forks, PollFlags::IN));
    }
    wait_for(&mut fds, at_most);
    if let Some(pool) = pool {
        pool.answer_forks();
    }
}

/// Whether there is something.
fn wait_for(fds: &mut [PollFd], at_most: Duration) -> bool {
    let time = Timespec {
        tv_sec: at_most.as_secs() as i64,
        tv_nsec: at_most.subsec_nanos() as _,
    };
    matches!(poll(fds, Some(&time)), Ok(1..))
}

/// The process of that number, if it is a child of this one that runs the same program as a known worker: whoever
/// names it may lie, and what is believed to be a worker will be killed one day.
fn child_like(pid: i32, known: Pid) -> Option<Pid> {
    let pid = Pid::from_raw(pid).filter(|_| pid > 0)?;
    if !matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None)) {
        return None;
    }
    let exe = |of: Pid| std::fs::read_link(format!("/proc/{}/exe", of.as_raw_nonzero())).ok();
    // Without /proc there is nothing to compare.
    (exe(pid) == exe(known)).then_some(pid)
}

/// It can't do that, or talks nonsense.
pub fn unexpected(reply: Reply) -> Error {
    match reply {
        Reply::Refused(why) => Error::Refused(why),
        Reply::Diverged(found) => Error::Diverged(found),
        _ => Error::Lost,
    }
}

/// Where a hit is, as a goal.
pub fn goal_of_hit(hit: &Hit) -> Goal {
    match hit.steps {
        Some(steps) => Goal::Position(crate::Position {
            event: hit.at.event,
            ticks: hit.at.ticks,
            steps,
        }),
        None => Goal::Mark(hit.at),
    }
}

//! What all workers share: their channels, the ends that are still to be waited for, and the watcher who
//! may interrupt.
//!
//! Timelines of one stream share the processes ([`Processes`]); each has a watcher of its own ([`Pool`]).
//!
//! A channel's other end is open in every worker, so nothing on it tells of a death: that is what
//! descriptors of processes are for. A channel is used again only when its worker is dead and reaped
//! and nothing that it said is left.

use std::io::{PipeReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clew_engine::replay::forks::{Guard, Verdict};
use clew_engine::replay::worker::Started;
use clew_engine::replay::worker::protocol::LONGEST;
use clew_engine::trace::buffer::Ring;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::{Error, Result};

/// The watcher is asked so often.
pub const WATCH: Duration = Duration::from_millis(40);

type Watcher = Box<dyn FnMut(f64) -> bool + Send>;

/// The processes of a stream, as one timeline sees them.
pub struct Pool {
    processes: Arc<Processes>,
    watcher: Mutex<Option<Watcher>>,
    asked: Mutex<Instant>,
    interrupted: Mutex<bool>,
    /// How far the work under way has come, 0..=1.
    progress: Mutex<f64>,
}

/// What belongs to all timelines of a stream.
struct Processes {
    channels: Vec<OwnedFd>,
    free: Mutex<Vec<u32>>,
    /// Killed, not yet reaped.
    dying: Mutex<Vec<(Pid, u32)>>,
    /// Where packets are put together.
    room: Mutex<Vec<u8>>,
    /// What workers say on stderr: an engine's last words.
    words: Mutex<PipeReader>,
    guard: Option<Guard>,
    /// The workers that were told to fork. Held while they are answered, too: only one of several threads may.
    forks: Mutex<Vec<i32>>,
    /// Buffers that no worker uses, by number; mapped when first needed.
    buffers: Mutex<Vec<(u32, Unused)>>,
    /// All workers end when this is closed.
    _leash: OwnedFd,
}

enum Unused {
    File(OwnedFd),
    Ring(Ring),
}

/// One of the buffers, ours until it is dropped. No worker may use it any more by then.
pub struct Buffer {
    pool: Arc<Pool>,
    number: u32,
    ring: Option<Ring>,
}

impl Buffer {
    pub fn number(&self) -> u32 {
        self.number
    }

    pub fn ring(&mut self) -> &mut Ring {
        self.ring.as_mut().expect("given back when dropped")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take() {
            ring.discard();
            let unused = (self.number, Unused::Ring(ring));
            lock(&self.pool.processes.buffers).push(unused);
        }
    }
}

/// Nothing is left half done in here, whatever happened to who held it.
fn lock<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set<T>(cell: &Mutex<T>, value: T) {
    *lock(cell) = value;
}

impl Pool {
    pub fn new(started: Started) -> Pool {
        let Started {
            channels,
            buffers,
            words,
            leash,
            guard,
            ..
        } = started;
        let buffers = (0..).zip(buffers.into_iter().map(Unused::File)).collect();
        // Nobody waits for words.
        let _ = rustix::io::ioctl_fionbio(&words, true);
        // The first is the first worker's.
        let free = (1..channels.len() as u32).rev().collect();
        Pool::of(Arc::new(Processes {
            channels,
            free: Mutex::new(free),
            dying: Mutex::default(),
            room: Mutex::new(vec![0; LONGEST + 1]),
            words: Mutex::new(words),
            guard,
            forks: Mutex::default(),
            buffers: Mutex::new(buffers),
            _leash: leash,
        }))
    }

    fn of(processes: Arc<Processes>) -> Pool {
        Pool {
            processes,
            watcher: Mutex::new(None),
            asked: Mutex::new(Instant::now()),
            interrupted: Mutex::new(false),
            progress: Mutex::new(0.0),
        }
    }

    /// The same processes for another timeline, which nobody watches yet.
    pub fn another(&self) -> Pool {
        Pool::of(self.processes.clone())
    }

    /// A buffer for what a worker is to see.
    pub fn buffer(self: &Arc<Pool>) -> Result<Buffer> {
        let unused = lock(&self.processes.buffers).pop();
        let (number, unused) =
            unused.ok_or_else(|| Error::Refused("too many analyses are at work".into()))?;
        let ring = match unused {
            Unused::Ring(ring) => Ok(ring),
            Unused::File(file) => Ring::map(file),
        };
        let ring = ring.map_err(|error| Error::Io {
            what: "no memory to share with a replaying process",
            error,
        })?;
        Ok(Buffer {
            pool: self.clone(),
            number,
            ring: Some(ring),
        })
    }

    pub fn channel(&self, number: u32) -> BorrowedFd<'_> {
        self.processes.channels[number as usize].as_fd()
    }

    /// A channel for a new worker.
    pub fn take(&self) -> Result<u32> {
        let processes = &self.processes;
        processes.reap(WaitOptions::NOHANG);
        if lock(&processes.free).is_empty() {
            processes.reap(WaitOptions::empty());
        }
        let channel = lock(&processes.free).pop();
        channel.ok_or_else(|| Error::Refused("too many processes are at work".into()))
    }

    /// Nobody was made for this channel.
    pub fn give_back(&self, channel: u32) {
        lock(&self.processes.free).push(channel);
    }

    /// This worker was killed; its channel is free once it is reaped.
    pub fn bury(&self, pid: Pid, channel: u32) {
        lock(&self.processes.dying).push((pid, channel));
        self.processes.reap(WaitOptions::NOHANG);
    }

    /// This worker is dead and reaped.
    pub fn buried(&self, channel: u32) {
        self.processes.buried(channel);
    }

    pub fn reap_all(&self) {
        self.processes.reap(WaitOptions::empty());
    }

    /// This worker is told to fork: once.
    pub fn let_fork(&self, pid: i32) {
        lock(&self.processes.forks).push(pid);
    }

    /// It has answered, or won't: it may not fork any more.
    pub fn has_forked(&self, pid: i32) {
        lock(&self.processes.forks).retain(|told| *told != pid);
    }

    /// What becomes readable when a worker wants to fork.
    pub fn forks(&self) -> Option<BorrowedFd<'_>> {
        self.processes.guard.as_ref().map(Guard::as_fd)
    }

    /// Lets the workers fork that were told to, each once, and nobody else: workers are believed nothing.
    pub fn answer_forks(&self) {
        if let Some(guard) = &self.processes.guard {
            let told = &mut *lock(&self.processes.forks);
            guard.answer(|pid| match told.iter().position(|told| *told == pid) {
                Some(n) => {
                    told.swap_remove(n);
                    Verdict::Allowed
                }
                None => Verdict::Refused,
            });
        }
    }

    /// What `read` makes of the next packet there, if there is one.
    pub fn receive<T>(&self, channel: u32, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.processes.receive(channel, read)
    }

    pub fn set_watcher(&self, watcher: Watcher) {
        *lock(&self.watcher) = Some(watcher);
    }

    /// Something begins that may take long.
    pub fn begin(&self) {
        set(&self.interrupted, false);
        set(&self.progress, 0.0);
        // One that was asked for meanwhile is noticed at once.
        set(&self.asked, Instant::now() - WATCH);
    }

    pub fn set_progress(&self, done: f64) {
        set(&self.progress, done.clamp(0.0, 1.0));
    }

    /// Asks the watcher if it is time; whether this work is to end.
    pub fn interrupted(&self) -> bool {
        if !*lock(&self.interrupted) && lock(&self.asked).elapsed() >= WATCH {
            set(&self.asked, Instant::now());
            self.processes.pass_on();
            if let Some(watcher) = &mut *lock(&self.watcher) {
                set(&self.interrupted, watcher(*lock(&self.progress)));
            }
        }
        *lock(&self.interrupted)
    }
}

impl Processes {
    /// Passes on what workers say to people.
    fn pass_on(&self) {
        let mut room = [0; 1024];
        while let Ok(len @ 1..) = lock(&self.words).read(&mut room) {
            let _ = std::io::stderr().write_all(&room[..len]);
        }
    }

    fn buried(&self, channel: u32) {
        while self.receive(channel, |_| ()).is_some() {}
        lock(&self.free).push(channel);
    }

    fn reap(&self, options: WaitOptions) {
        let mut gone = Vec::new();
        lock(&self.dying).retain(|&(pid, channel)| {
            loop {
                match waitpid(Some(pid), options) {
                    Ok(None) => return true,
                    Err(Errno::INTR) => continue,
                    Ok(Some(_)) | Err(_) => break,
                }
            }
            gone.push(channel);
            false
        });
        for channel in gone {
            self.buried(channel);
        }
    }

    fn receive<T>(&self, channel: u32, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let room = &mut *lock(&self.room);
        let fd = self.channels[channel as usize].as_fd();
        loop {
            match recv(fd, &mut room[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return None,
                Ok((_, len)) => return Some(read(&room[..len.min(LONGEST + 1)])),
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.reap(WaitOptions::empty());
        self.pass_on();
    }
}

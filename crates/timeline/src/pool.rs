//! What all workers share: their channels, the ends that are still to be waited for, and the watcher who
//! may interrupt.
//!
//! A channel's other end is open in every worker, so nothing on it tells of a death: that is what
//! descriptors of processes are for. A channel is used again only when its worker is dead and reaped
//! and nothing that it said is left.

use std::cell::{Cell, RefCell};
use std::io::{PipeReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
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

type Watcher = Box<dyn FnMut(f64) -> bool>;

pub struct Pool {
    channels: Vec<OwnedFd>,
    free: RefCell<Vec<u32>>,
    /// Killed, not yet reaped.
    dying: RefCell<Vec<(Pid, u32)>>,
    watcher: RefCell<Option<Watcher>>,
    asked: Cell<Instant>,
    interrupted: Cell<bool>,
    /// How far the work under way has come, 0..=1.
    progress: Cell<f64>,
    /// Where packets are put together.
    room: RefCell<Vec<u8>>,
    /// What workers say on stderr: an engine's last words.
    words: RefCell<PipeReader>,
    guard: Option<Guard>,
    /// The worker that was told to fork.
    forks: Cell<Option<i32>>,
    /// Buffers that no worker uses, by number; mapped when first needed.
    buffers: RefCell<Vec<(u32, Unused)>>,
    /// All workers end when this is closed.
    _leash: OwnedFd,
}

enum Unused {
    File(OwnedFd),
    Ring(Ring),
}

/// One of the buffers, ours until it is dropped. No worker may use it any more by then.
pub struct Buffer {
    pool: Rc<Pool>,
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
            self.pool.buffers.borrow_mut().push(unused);
        }
    }
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
        Pool {
            channels,
            free: RefCell::new(free),
            dying: RefCell::default(),
            watcher: RefCell::new(None),
            asked: Cell::new(Instant::now()),
            interrupted: Cell::new(false),
            progress: Cell::new(0.0),
            room: RefCell::new(vec![0; LONGEST + 1]),
            words: RefCell::new(words),
            guard,
            forks: Cell::new(None),
            buffers: RefCell::new(buffers),
            _leash: leash,
        }
    }

    /// A buffer for what a worker is to see.
    pub fn buffer(self: &Rc<Pool>) -> Result<Buffer> {
        let unused = self.buffers.borrow_mut().pop();
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
        self.channels[number as usize].as_fd()
    }

    /// A channel for a new worker.
    pub fn take(&self) -> Result<u32> {
        self.reap(WaitOptions::NOHANG);
        if self.free.borrow().is_empty() {
            self.reap(WaitOptions::empty());
        }
        let channel = self.free.borrow_mut().pop();
        channel.ok_or_else(|| Error::Refused("too many processes are at work".into()))
    }

    /// Nobody was made for this channel.
    pub fn give_back(&self, channel: u32) {
        self.free.borrow_mut().push(channel);
    }

    /// This worker was killed; its channel is free once it is reaped.
    pub fn bury(&self, pid: Pid, channel: u32) {
        self.dying.borrow_mut().push((pid, channel));
        self.reap(WaitOptions::NOHANG);
    }

    /// This worker is dead and reaped.
    pub fn buried(&self, channel: u32) {
        while self.receive(channel, |_| ()).is_some() {}
        self.free.borrow_mut().push(channel);
    }

    pub fn reap_all(&self) {
        self.reap(WaitOptions::empty());
    }

    fn reap(&self, options: WaitOptions) {
        let mut gone = Vec::new();
        self.dying.borrow_mut().retain(|&(pid, channel)| {
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

    /// This worker is told to fork: once.
    pub fn let_fork(&self, pid: i32) {
        self.forks.set(Some(pid));
    }

    /// What becomes readable when a worker wants to fork.
    pub fn forks(&self) -> Option<BorrowedFd<'_>> {
        self.guard.as_ref().map(Guard::as_fd)
    }

    /// Lets the worker fork that was told to, and nobody else: workers are believed nothing.
    pub fn answer_forks(&self) {
        if let Some(guard) = &self.guard {
            guard.answer(|pid| match self.forks.get() {
                Some(told) if told == pid => {
                    self.forks.set(None);
                    Verdict::Allowed
                }
                _ => Verdict::Refused,
            });
        }
    }

    /// What `read` makes of the next packet there, if there is one.
    pub fn receive<T>(&self, channel: u32, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let room = &mut *self.room.borrow_mut();
        loop {
            match recv(self.channel(channel), &mut room[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return None,
                Ok((_, len)) => return Some(read(&room[..len.min(LONGEST + 1)])),
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            }
        }
    }

    pub fn set_watcher(&self, watcher: Watcher) {
        *self.watcher.borrow_mut() = Some(watcher);
    }

    /// Something begins that may take long.
    pub fn begin(&self) {
        self.interrupted.set(false);
        self.progress.set(0.0);
        // One that was asked for meanwhile is noticed at once.
        self.asked.set(Instant::now() - WATCH);
    }

    pub fn set_progress(&self, done: f64) {
        self.progress.set(done.clamp(0.0, 1.0));
    }

    /// Passes on what workers say to people.
    fn pass_on(&self) {
        let mut room = [0; 1024];
        while let Ok(len @ 1..) = self.words.borrow_mut().read(&mut room) {
            let _ = std::io::stderr().write_all(&room[..len]);
        }
    }

    /// Asks the watcher if it is time; whether this work is to end.
    pub fn interrupted(&self) -> bool {
        if !self.interrupted.get() && self.asked.get().elapsed() >= WATCH {
            self.asked.set(Instant::now());
            self.pass_on();
            if let Some(watcher) = &mut *self.watcher.borrow_mut() {
                self.interrupted.set(watcher(self.progress.get()));
            }
        }
        self.interrupted.get()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.reap_all();
        self.pass_on();
    }
}

//! Which processes are still there.
//!
//! In: pids. Out: who has died; each death also calls the writer. A thread of its own waits for
//! deaths (a thread can't wait for descriptors and a futex at once).

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use crate::channel::Channel;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Its death will be told.
    Watched,
    Dead,
    /// This kernel, or the number of descriptors, doesn't allow to watch it.
    Unknown,
}

struct Watched {
    pidfd: OwnedFd,
    /// It may record: see [`Watch::is_empty`].
    counts: bool,
}

pub struct Watch {
    epoll: Arc<OwnedFd>,
    watched: HashMap<i32, Watched>,
    deaths: Arc<Mutex<Vec<i32>>>,
}

impl Watch {
    pub fn new(channel: Channel) -> io::Result<Watch> {
        // SAFETY: makes a descriptor.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made.
        let epoll = Arc::new(unsafe { OwnedFd::from_raw_fd(epoll) });
        let deaths = Arc::new(Mutex::new(Vec::new()));
        let (for_thread, their_deaths) = (epoll.clone(), deaths.clone());
        std::thread::Builder::new()
            .name("clew-watch".into())
            .stack_size(64 << 10)
            .spawn(move || tell_deaths(&for_thread, &their_deaths, channel))?;
        Ok(Watch {
            epoll,
            watched: HashMap::new(),
            deaths,
        })
    }

    /// Watches a process that records from now on.
    pub fn add(&mut self, pid: i32) -> Life {
        self.add_as(pid, true)
    }

    /// The same for a process that only has to do with one that records.
    pub fn add_bystander(&mut self, pid: i32) -> Life {
        self.add_as(pid, false)
    }

    fn add_as(&mut self, pid: i32, counts: bool) -> Life {
        if let Some(watched) = self.watched.get_mut(&pid) {
            watched.counts |= counts;
            return Life::Watched;
        }
        let pidfd = match open(pid) {
            Ok(pidfd) => pidfd,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Life::Dead,
            Err(_) => return Life::Unknown,
        };
        if has_ended(&pidfd) {
            return Life::Dead;
        }
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLONESHOT) as u32,
            u64: pid as u64,
        };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: valid descriptors and structure.
        let added =
            unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, pidfd.as_raw_fd(), &mut event) };
        if added != 0 {
            return Life::Unknown;
        }
        self.watched.insert(pid, Watched { pidfd, counts });
        Life::Watched
    }

    pub fn forget(&mut self, pid: i32) {
        self.watched.remove(&pid);
    }

    /// Nobody who records is left.
    pub fn is_empty(&mut self) -> bool {
        self.bury();
        !self.watched.values().any(|watched| watched.counts)
    }

    /// Takes note of the deaths so far.
    pub fn bury(&mut self) {
        let dead = std::mem::take(&mut *self.deaths.lock().expect("its holders don't panic"));
        for pid in dead {
            // The number may be another process's by now, which is watched.
            if self
                .watched
                .get(&pid)
                .is_some_and(|it| has_ended(&it.pidfd))
            {
                self.watched.remove(&pid);
            }
        }
    }
}

/// The thread: waits, notes, calls.
fn tell_deaths(epoll: &OwnedFd, deaths: &Mutex<Vec<i32>>, channel: Channel) {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
    loop {
        // SAFETY: as many events as there is room for.
        let found = unsafe {
            libc::epoll_wait(
                epoll.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as i32,
                -1,
            )
        };
        if found <= 0 {
            continue;
        }
        let dead = events[..found as usize]
            .iter()
            .map(|event| event.u64 as i32);
        deaths.lock().expect("its holders don't panic").extend(dead);
        channel.wake_writer();
    }
}

fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: makes a descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Also true of one whose parent hasn't asked for its end.
fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut poll = libc::pollfd {
        fd: pidfd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure.
    unsafe { libc::poll(&mut poll, 1, 0) > 0 }
}

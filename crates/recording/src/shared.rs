//! The memory that recorded processes and the writer share: its layout, and how it is mapped.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::channel::{LOT, RING};
use crate::futex::RobustList;
use crate::outlet::Outlet;

/// How many processes are recorded at the same time at most.
pub const MOST_SLOTS: usize = 4096;

pub const MAGIC: u64 = u64::from_le_bytes(*b"clewchan");
pub const VERSION: u32 = 5;
pub const PAGE: usize = 4096;

/// What the writer wants from processes that commit ([`Control::attention`]).
pub mod attention {
    pub const NONE: u32 = 0;
    /// It sleeps until it is woken.
    pub const ASLEEP: u32 = 1;
    /// The file can't be written any more.
    pub const FULL: u32 = 2;
    /// It has ended because nobody was left.
    pub const ENDED: u32 = 3;
}

/// What a slot is used for ([`Slot::state`]).
pub mod state {
    pub const FREE: u32 = 0;
    /// It waits for its process.
    pub const RESERVED: u32 = 1;
    pub const LIVE: u32 = 2;
    /// Its process has said that no more comes.
    pub const ENDED: u32 = 3;
    /// The same, and the process goes on in another stream.
    pub const EXEC: u32 = 4;
    /// Its process couldn't take it, and runs unrecorded; [`super::Slot::why`] says why.
    pub const UNRECORDED: u32 = 5;
}

#[repr(C, align(4096))]
pub struct Control {
    pub magic: u64,
    pub version: u32,
    pub slots: u32,
    /// CLOCK_MONOTONIC when the recording began.
    pub base: u64,
    pub on_full: AtomicU32,
    /// Somebody has said that the recording can't go on.
    pub told_lost: AtomicU32,
    /// Only the tail is kept: processes are asked for their state now and then.
    pub tail: AtomicU32,
    /// One line that every commit reads and that seldom changes.
    pub line: Line,
    pub next_stream: AtomicU32,
    pub next_output: AtomicU64,
    /// The writer waits here.
    pub wake: AtomicU32,
    /// Counts freed slots; those who need one wait here.
    pub freed: AtomicU32,
    /// Somebody waits for a slot.
    pub slot_wanted: AtomicU32,
    /// The process that began the recording; it keeps its pid through execs.
    pub launcher: AtomicI32,
    /// Counts the writer's looks at all slots; who waits for one waits here.
    pub rounds: AtomicU32,
    /// Somebody does.
    pub round_wanted: AtomicU32,
    /// Standard output and error; if both are one file, the first for both.
    pub outlets: [Outlet; 2],
    /// Which slots are in use.
    pub taken: [AtomicU64; MOST_SLOTS / 64],
}

#[repr(C, align(64))]
pub struct Line {
    /// The writer's robust futex: its tid while it lives.
    pub writer: AtomicU32,
    /// One of [`attention`].
    pub attention: AtomicU32,
}

/// Beside the errno of an unrecorded process: it has memory that recorded ones have too.
pub const SHARES_MEMORY: i32 = 1 << 30;

#[repr(C, align(256))]
pub struct Slot {
    /// Bytes committed so far. Positions count from the slot's taking and never wrap.
    pub head: AtomicU64,
    /// The process writes before this position only.
    pub granted: AtomicU64,
    pub reader: ReaderPart,
    /// One of [`state`].
    pub state: AtomicU32,
    pub stream: AtomicU32,
    /// Of the process, as its parent or itself sees it; 0 while not known.
    pub pid: AtomicI32,
    /// Who reserved the slot.
    pub maker: AtomicI32,
    /// The pid namespace of `pid`, an inode number; 0 if not known.
    pub namespace: AtomicU64,
    /// Not 0 while the process may end, or become another program, by its own doing: whoever is gone
    /// otherwise was killed.
    pub leaves: AtomicU32,
    /// The child that has borrowed the process's memory (vfork) and writes its stream meanwhile, or 0.
    pub lent: AtomicI32,
    /// For a process that is being forked: its parent's stream, or 0; how many ticks after its last event the
    /// parent forks; and how much it had committed by then.
    pub parent: AtomicU32,
    pub fork_ticks: AtomicU64,
    pub fork_head: AtomicU64,
    /// The writer wants the stream to go on in another part, with the process's state at its beginning.
    pub part_wanted: AtomicU32,
    /// The position at which the next part begins, until the writer has come there; or 0.
    pub parted: AtomicU64,
    /// The errno that an unrecorded process met, and [`SHARES_MEMORY`] if it does.
    pub why: AtomicI32,
    /// The robust futex of the thread that writes.
    pub owner: AtomicU32,
    /// Only the kernel and the thread that writes look at it.
    pub list: UnsafeCell<RobustList>,
}

#[repr(C, align(64))]
pub struct ReaderPart {
    /// Bytes that the writer has taken.
    pub tail: AtomicU64,
    /// Bytes that are in the file.
    pub written: AtomicU64,
    /// Set while the writer gives pages back.
    pub punching: AtomicU32,
    /// Changes when the writer has done something for one who waits.
    pub moved: AtomicU32,
    /// The process waits for that.
    pub waiting: AtomicU32,
}

pub const HEADERS: usize = size_of::<Control>() + MOST_SLOTS * size_of::<Slot>();
const _: () = assert!(HEADERS.is_multiple_of(PAGE) && RING.is_multiple_of(PAGE) && LOT < RING / 2);

/// Behind the rings: [`crate::sharing`].
pub fn sharing_offset(slots: usize) -> usize {
    HEADERS + slots * RING
}

pub fn length(slots: usize) -> usize {
    sharing_offset(slots) + crate::sharing::SIZE + crate::sharing::COPIES
}

pub fn map_control(fd: RawFd) -> io::Result<*mut Control> {
    Ok(map(std::ptr::null_mut(), HEADERS, fd, 0)?.cast())
}

/// Maps a ring twice in a row.
pub fn map_ring(fd: RawFd, offset: usize) -> io::Result<*mut u8> {
    // SAFETY: a reservation where the kernel likes, then two mappings inside it.
    let room = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            2 * RING,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if room == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let room = room.cast::<u8>();
    // SAFETY: inside the reservation.
    let second = unsafe { room.add(RING) };
    map(room, RING, fd, offset)
        .and_then(|_| map(second, RING, fd, offset))
        .inspect_err(|_| {
            // SAFETY: the reservation from above.
            unsafe { libc::munmap(room.cast(), 2 * RING) };
        })?;
    Ok(room)
}

/// Maps a piece of the memory, at `at` if that isn't null (the caller's own reservation).
pub fn map(at: *mut u8, len: usize, fd: RawFd, offset: usize) -> io::Result<*mut u8> {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    // SAFETY: replaces nothing but the caller's reservation.
    let place = unsafe {
        libc::mmap(
            at.cast(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE | fixed,
            fd,
            offset as i64,
        )
    };
    if place == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(place.cast())
}

/// Where files may not be that long, the kernel says so with an error and a signal, which isn't wanted.
pub fn set_len(file: &File, len: usize) -> io::Result<()> {
    // SAFETY: a set made by sigemptyset; the mask is put back.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGXFSZ);
        libc::sigprocmask(libc::SIG_BLOCK, &set, &mut old);
        let result = file.set_len(len as u64);
        if result.is_err() {
            let time: libc::timespec = std::mem::zeroed();
            libc::sigtimedwait(&set, std::ptr::null_mut(), &time);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        result
    }
}

pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The kernel's answer, also in a process that was made behind libc's back.
pub fn pid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_getpid) as i32 }
}

/// A number for this process's pid namespace, 0 where /proc can't tell. Asks the kernel, and remembers.
pub fn pid_namespace() -> u64 {
    let found = ask_pid_namespace();
    NAMESPACE.store(found, Relaxed);
    found
}

/// What it was when last asked: it only changes by a fork.
pub fn known_pid_namespace() -> u64 {
    NAMESPACE.load(Relaxed)
}

static NAMESPACE: AtomicU64 = AtomicU64::new(0);

fn ask_pid_namespace() -> u64 {
    // SAFETY: a path and a zeroed structure to fill.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        match libc::stat(c"/proc/self/ns/pid".as_ptr(), &mut stat) {
            0 => stat.st_ino,
            _ => 0,
        }
    }
}

/// Gives a range of the file's memory back.
pub fn punch(fd: RawFd, offset: usize, len: usize) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: no pointers. The range is one that no process writes.
    unsafe { libc::fallocate(fd, mode, offset as i64, len as i64) };
}

impl Slot {
    /// Ready for another stream.
    pub fn reset(&self) {
        use std::sync::atomic::Ordering::SeqCst;
        for word in [
            &self.head,
            &self.granted,
            &self.reader.tail,
            &self.reader.written,
            &self.namespace,
            &self.fork_ticks,
            &self.fork_head,
            &self.parted,
        ] {
            word.store(0, SeqCst);
        }
        for word in [
            &self.reader.waiting,
            &self.stream,
            &self.owner,
            &self.leaves,
            &self.parent,
            &self.part_wanted,
        ] {
            word.store(0, SeqCst);
        }
        for word in [&self.pid, &self.maker, &self.why, &self.lent] {
            word.store(0, SeqCst);
        }
        self.state.store(state::FREE, SeqCst);
    }
}

//! The way of records from recorded processes to the writer: one piece of shared memory.
//!
//! In: encoded records, from any number of processes. Out: what the writer reads, stream by stream.
//!
//! The memory is a memfd: a control block, then slots. A slot is a header and a ring of bytes; it
//! belongs to one stream at a time, whose process puts records in, and the writer takes them out. All
//! recorded processes have the memfd, by fork and as a descriptor through exec.
//!
//! *Memory*: a ring is [`RING`] long and the file is sparse. A process that writes much uses its whole ring;
//! the writer gives back the pages of slots that are freed, and of all slots when nobody has written for
//! a second, but for at most [`LOT`] where a process may be just writing. So the bound is 1 MiB for each
//! process that records at the moment and 132 KiB for each idle one, however long it takes.
//!
//! *Who is there*: a slot's owner holds a robust futex in it, so its death (or exec) is seen in the slot itself,
//! whoever its parent is. The writer holds one in the control block; every commit looks at it.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*, fence};
use std::time::Duration;

use crate::event::{LONGEST_RECORD, StreamId};
use crate::futex::{self, RobustList};

/// Bytes of a ring.
pub const RING: usize = 1 << 20;
/// How far ahead of its last record a process may write; the writer leaves these pages alone.
pub const LOT: usize = 128 << 10;
/// How many processes are recorded at the same time at most.
const MOST_SLOTS: usize = 4096;
/// As few will do where files may not be large (RLIMIT_FSIZE).
const FEWEST_SLOTS: usize = 16;
/// How often one who waits looks whether the writer is still there.
const LOOK: Duration = Duration::from_millis(20);

const MAGIC: u64 = u64::from_le_bytes(*b"clewchan");
const VERSION: u32 = 1;
const PAGE: usize = 4096;

/// What the writer wants from processes that commit ([`Control::attention`]).
pub(crate) mod attention {
    pub const NONE: u32 = 0;
    /// It sleeps until it is woken.
    pub const ASLEEP: u32 = 1;
    /// The file can't be written any more.
    pub const FULL: u32 = 2;
    /// It has ended because nobody was left.
    pub const ENDED: u32 = 3;
}

/// What a slot is used for ([`Slot::state`]).
pub(crate) mod state {
    pub const FREE: u32 = 0;
    /// It waits for its process.
    pub const RESERVED: u32 = 1;
    pub const LIVE: u32 = 2;
    /// Its process has said that no more comes.
    pub const ENDED: u32 = 3;
    /// The same, and the process goes on in another stream.
    pub const EXEC: u32 = 4;
}

#[repr(C, align(4096))]
pub(crate) struct Control {
    magic: u64,
    version: u32,
    slots: u32,
    /// CLOCK_MONOTONIC when the recording began.
    base: u64,
    on_full: AtomicU32,
    /// One line that every commit reads and that seldom changes.
    pub line: Line,
    next_stream: AtomicU32,
    next_output: AtomicU64,
    /// The writer waits here.
    wake: AtomicU32,
    /// Counts freed slots; those who need one wait here.
    pub freed: AtomicU32,
    /// Somebody waits for a slot.
    pub slot_wanted: AtomicU32,
    /// Which slots are in use.
    pub taken: [AtomicU64; MOST_SLOTS / 64],
}

#[repr(C, align(64))]
pub(crate) struct Line {
    /// The writer's robust futex: its tid while it lives.
    pub writer: AtomicU32,
    /// One of [`attention`].
    pub attention: AtomicU32,
}

#[repr(C, align(256))]
pub(crate) struct Slot {
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
    /// The robust futex of the thread that writes.
    pub owner: AtomicU32,
    /// Only the kernel and the thread that writes look at it.
    list: UnsafeCell<RobustList>,
}

#[repr(C, align(64))]
pub(crate) struct ReaderPart {
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

/// What becomes of the guest when the recording can't go on (full disk, dead writer). The engine acts on
/// it; the channel makes it known to all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// It ends.
    #[default]
    Stop,
    /// It runs on, unrecorded.
    Continue,
}

/// How a stream ends that says so itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// Its process won't record any more.
    Ended,
    /// Its process goes on in another stream.
    Exec,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Recording,
    /// The disk is full (or can't be written for another reason): what was written is a valid recording.
    Full,
    /// The writer is dead: likewise.
    WriterGone,
}

/// The shared memory, mapped. Copies are the same mapping, which lasts as long as the process.
#[derive(Clone, Copy)]
pub struct Channel {
    control: &'static Control,
    fd: RawFd,
}

impl Channel {
    /// Makes the memory. The descriptor is closed on exec; the caller decides where it goes, but keeps it
    /// open.
    pub fn create() -> io::Result<(Channel, OwnedFd)> {
        // SAFETY: the name is a string.
        let fd = unsafe { libc::memfd_create(c"clew recording".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        let mut slots = MOST_SLOTS;
        while let Err(error) = set_len(&file, length(slots)) {
            slots /= 2;
            if slots < FEWEST_SLOTS {
                return Err(error);
            }
        }
        let control = map_control(fd)?;
        // SAFETY: fresh memory that nobody else has yet.
        unsafe {
            (*control).magic = MAGIC;
            (*control).version = VERSION;
            (*control).slots = slots as u32;
            (*control).base = now();
            (*control).next_stream = AtomicU32::new(1);
            (*control).next_output = AtomicU64::new(1);
        }
        // SAFETY: mapped for good.
        let control = unsafe { &*control };
        Ok((Channel { control, fd }, file.into()))
    }

    /// Maps the memory behind a descriptor that came by exec; the descriptor stays open.
    pub fn open(fd: RawFd) -> io::Result<Channel> {
        // SAFETY: plain stat into a zeroed structure.
        let size = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(fd, &mut stat) != 0 {
                return Err(io::Error::last_os_error());
            }
            stat.st_size as usize
        };
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not a recording channel");
        if size < length(FEWEST_SLOTS) {
            return Err(wrong());
        }
        let control = map_control(fd)?;
        // SAFETY: mapped for good, and the file is long enough.
        let control = unsafe { &*control };
        let slots = control.slots as usize;
        if control.magic != MAGIC
            || control.version != VERSION
            || slots > MOST_SLOTS
            || size != length(slots)
        {
            return Err(wrong());
        }
        Ok(Channel { control, fd })
    }

    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// The same with another descriptor of the memory, after it was moved.
    pub fn with_fd(self, fd: RawFd) -> Channel {
        Channel { fd, ..self }
    }

    pub fn on_full(&self) -> OnFull {
        match self.control.on_full.load(Relaxed) {
            0 => OnFull::Stop,
            _ => OnFull::Continue,
        }
    }

    pub fn set_on_full(&self, on_full: OnFull) {
        self.control.on_full.store(on_full as u32, Relaxed);
    }

    /// A stream for the calling thread, from now on.
    ///
    /// A process that is being made has none for a moment, and if nobody else has one the
    /// writer takes the recording for over. So its maker calls [`Self::reserve_stream`] before the fork (or
    /// exec), and it calls [`Self::producer_of`].
    pub fn new_stream(&self) -> io::Result<Producer> {
        let stream = self.reserve_stream()?;
        self.expect(stream, pid());
        self.producer_of(stream)
    }

    /// Takes a slot and the next number for a stream whose process isn't there yet: before a fork. Then
    /// the child calls [`Self::producer_of`] and the parent [`Self::expect`], or [`Self::give_back`] if the fork failed.
    /// Before an exec: `expect` with the own pid, tell the new image the number, and there `producer_of`.
    ///
    /// Waits while all slots are taken; an error (`BrokenPipe`) if nothing is being written any more.
    pub fn reserve_stream(&self) -> io::Result<StreamId> {
        loop {
            let seen = self.control.freed.load(SeqCst);
            if self.status() != Status::Recording {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if let Some(index) = self.take_slot() {
                let slot = self.slot(index);
                let stream = self.control.next_stream.fetch_add(1, Relaxed);
                slot.stream.store(stream, Relaxed);
                slot.maker.store(pid(), Relaxed);
                slot.state.store(state::RESERVED, SeqCst);
                return Ok(stream);
            }
            self.control.slot_wanted.store(1, SeqCst);
            self.wake_writer();
            futex::wait(&self.control.freed, seen, Some(LOOK));
        }
    }

    /// The process of a reserved stream has this pid.
    pub fn expect(&self, stream: StreamId, pid: i32) {
        if let Some((_, slot)) = self.find(stream) {
            let _ = slot.pid.compare_exchange(0, pid, SeqCst, Relaxed);
        }
    }

    /// A reserved stream isn't needed after all. Its number isn't used again.
    pub fn give_back(&self, stream: StreamId) {
        if let Some((_, slot)) = self.find(stream) {
            let _ = slot
                .state
                .compare_exchange(state::RESERVED, state::ENDED, SeqCst, Relaxed);
        }
    }

    /// The calling thread writes a reserved stream from now on, until it ends.
    pub fn producer_of(&self, stream: StreamId) -> io::Result<Producer> {
        let (index, slot) = self.find(stream).ok_or(io::ErrorKind::BrokenPipe)?;
        let ring = map_ring(self.fd, self.ring_offset(index))?;
        let _ = slot.pid.compare_exchange(0, pid(), SeqCst, Relaxed);
        slot.namespace.store(pid_namespace(), Relaxed);
        // SAFETY: slot and list stay mapped for good; the thread's exec and death are what it is for.
        unsafe { RobustList::own(slot.list.get(), &slot.owner)? };
        if slot
            .state
            .compare_exchange(state::RESERVED, state::LIVE, SeqCst, Relaxed)
            .is_err()
        {
            RobustList::forget();
            // SAFETY: mapped above.
            unsafe { libc::munmap(ring.cast(), 2 * RING) };
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // It must look once to see the death of this process later.
        self.rouse_writer();
        Ok(Producer {
            channel: *self,
            slot,
            ring,
            head: 0,
            granted: 0,
            nudge_at: 0,
            writer: self.control.line.writer.load(Relaxed),
            status: Status::Recording,
        })
    }

    /// The place of an output among those of all processes, from 1.
    pub fn next_output(&self) -> u64 {
        self.control.next_output.fetch_add(1, Relaxed)
    }

    /// Nanoseconds since the recording began.
    pub fn elapsed(&self) -> u64 {
        now().saturating_sub(self.control.base)
    }

    pub fn status(&self) -> Status {
        let line = &self.control.line;
        match line.attention.load(Relaxed) {
            attention::FULL => Status::Full,
            attention::ENDED => Status::WriterGone,
            _ if line.writer.load(Relaxed) & futex::OWNER == 0 => Status::WriterGone,
            _ => Status::Recording,
        }
    }

    /// Waits until the writer has ended because all recorded processes have, and says whether all of it
    /// is in the file (`Recording`) or how it broke off.
    pub fn wait_for_end(&self) -> Status {
        let line = &self.control.line;
        self.wake_writer();
        loop {
            match line.attention.load(SeqCst) {
                attention::ENDED => return Status::Recording,
                attention::FULL => return Status::Full,
                // The writer says how it ended before it dies.
                _ if self.status() != Status::Recording => {
                    if line.attention.load(SeqCst) != attention::ENDED {
                        return self.status();
                    }
                }
                other => futex::wait(&line.attention, other, Some(LOOK)),
            }
        }
    }

    pub(crate) fn control(&self) -> &'static Control {
        self.control
    }

    pub(crate) fn slot(&self, index: usize) -> &'static Slot {
        assert!(index < self.control.slots as usize);
        // SAFETY: the headers follow the control block, as many as it says.
        unsafe {
            let first = (&raw const *self.control).add(1).cast::<Slot>();
            &*first.add(index)
        }
    }

    /// Where a slot's ring is in the file.
    pub(crate) fn ring_offset(&self, index: usize) -> usize {
        HEADERS + index * RING
    }

    /// The slots in use.
    pub(crate) fn taken(&self) -> impl Iterator<Item = usize> {
        let control = self.control;
        (0..control.slots as usize / 64 + 1)
            .take(MOST_SLOTS / 64)
            .flat_map(|n| {
                let mut bits = control.taken[n].load(SeqCst);
                std::iter::from_fn(move || {
                    let bit = bits.trailing_zeros() as usize;
                    bits &= bits.wrapping_sub(1);
                    (bit < 64).then_some(n * 64 + bit)
                })
            })
    }

    pub(crate) fn streams_so_far(&self) -> u32 {
        self.control.next_stream.load(SeqCst) - 1
    }

    /// What changes when somebody wants the writer, to be read before looking for work.
    pub(crate) fn calls(&self) -> u32 {
        self.control.wake.load(SeqCst)
    }

    /// The writer waits until somebody wants it.
    pub(crate) fn wait_for_call(&self, seen: u32, time: Option<Duration>) {
        futex::wait(&self.control.wake, seen, time);
    }

    pub(crate) fn wake_writer(&self) {
        self.control.wake.fetch_add(1, SeqCst);
        futex::wake(&self.control.wake);
    }

    /// Wakes the writer if it would sleep on; a nap may go on.
    fn rouse_writer(&self) {
        let attention = &self.control.line.attention;
        if attention.load(SeqCst) == attention::ASLEEP
            && attention
                .compare_exchange(attention::ASLEEP, attention::NONE, SeqCst, Relaxed)
                .is_ok()
        {
            self.wake_writer();
        }
    }

    fn take_slot(&self) -> Option<usize> {
        let slots = self.control.slots as usize;
        for (n, word) in self
            .control
            .taken
            .iter()
            .enumerate()
            .take(slots.div_ceil(64))
        {
            let mut bits = word.load(SeqCst);
            loop {
                let bit = bits.trailing_ones() as usize;
                if bit == 64 || n * 64 + bit >= slots {
                    break;
                }
                bits = word.fetch_or(1 << bit, SeqCst);
                if bits >> bit & 1 == 0 {
                    return Some(n * 64 + bit);
                }
            }
        }
        None
    }

    fn find(&self, stream: StreamId) -> Option<(usize, &'static Slot)> {
        self.taken()
            .map(|index| (index, self.slot(index)))
            .find(|(_, slot)| {
                slot.stream.load(SeqCst) == stream && slot.state.load(SeqCst) != state::FREE
            })
    }
}

/// One stream's way in. For one thread: the one that made it.
///
/// Dropping it only unmaps: a forked child drops its copy of the parent's.
pub struct Producer {
    channel: Channel,
    slot: &'static Slot,
    /// The ring, mapped twice in a row.
    ring: *mut u8,
    head: u64,
    granted: u64,
    /// From this position on the ring may be half full.
    nudge_at: u64,
    /// What the writer's futex looks like while it lives.
    writer: u32,
    status: Status,
}

impl Producer {
    pub fn stream(&self) -> StreamId {
        self.slot.stream.load(Relaxed)
    }

    pub fn channel(&self) -> Channel {
        self.channel
    }

    /// Room for one or more records, [`LONGEST_RECORD`] long. Waits while the ring is full; not if nothing is
    /// being written any more, then what is put there is thrown away.
    #[inline]
    pub fn reserve(&mut self) -> &mut [u8] {
        if self.head + LONGEST_RECORD as u64 > self.granted {
            self.obtain();
        }
        let at = self.head as usize % RING;
        // SAFETY: the ring is mapped twice in a row, so LONGEST_RECORD bytes follow any place in its
        // first half. The writer reads committed bytes only, and these are not committed.
        unsafe { std::slice::from_raw_parts_mut(self.ring.add(at), LONGEST_RECORD) }
    }

    /// The first `len` bytes of the room are whole records: they are the writer's now.
    #[inline]
    pub fn commit(&mut self, len: usize) {
        if self.status != Status::Recording {
            return;
        }
        self.head += len as u64;
        debug_assert!(self.head <= self.granted);
        self.slot.head.store(self.head, Release);
        let line = &self.channel.control.line;
        if line.attention.load(Relaxed) != attention::NONE
            || line.writer.load(Relaxed) != self.writer
            || self.head >= self.nudge_at
        {
            self.attend();
        }
    }

    /// The process's producer goes on in the calling thread, whose death is the stream's from now on.
    pub fn move_to_this_thread(&mut self) {
        // SAFETY: slot and list stay mapped for good. The list of the thread before leads to a futex that
        // names another owner, which the kernel leaves alone.
        let moved = unsafe { RobustList::own(self.slot.list.get(), &self.slot.owner) };
        debug_assert!(moved.is_ok());
    }

    /// The stream is over. The writer frees the slot when it has everything.
    pub fn finish(&mut self, how: Finished) {
        if self.slot.state.load(SeqCst) != state::LIVE || self.owner() != futex::tid() {
            return;
        }
        // The slot may soon be another's.
        RobustList::forget();
        self.status = Status::WriterGone;
        let state = match how {
            Finished::Ended => state::ENDED,
            Finished::Exec => state::EXEC,
        };
        self.slot.state.store(state, SeqCst);
        self.channel.rouse_writer();
    }

    /// Waits until everything committed so far is in the file, or can't get there any more.
    pub fn drain(&self) {
        let part = &self.slot.reader;
        while self.status == Status::Recording && self.channel.status() == Status::Recording {
            let seen = part.moved.load(SeqCst);
            part.waiting.store(1, SeqCst);
            if part.written.load(SeqCst) >= self.head {
                break;
            }
            self.channel.wake_writer();
            futex::wait(&part.moved, seen, Some(LOOK));
        }
    }

    /// In a new image, where the kernel can't have told: the stream before the exec is over.
    pub fn end_other(channel: &Channel, stream: StreamId) {
        if let Some((_, slot)) = channel.find(stream) {
            let _ = slot
                .state
                .compare_exchange(state::LIVE, state::EXEC, SeqCst, Relaxed);
        }
    }

    /// Whether records still get to the file. Cheap: to be asked after every event.
    #[inline]
    pub fn status(&self) -> Status {
        self.status
    }

    fn owner(&self) -> u32 {
        self.slot.owner.load(Relaxed) & futex::OWNER
    }

    /// Something is unusual, or it is time to look how full the ring is.
    #[cold]
    fn attend(&mut self) {
        self.status = self.channel.status();
        if self.status != Status::Recording {
            return;
        }
        self.channel.rouse_writer();
        if self.head >= self.nudge_at {
            let half = self.slot.reader.tail.load(Acquire) + RING as u64 / 2;
            if self.head < half {
                self.nudge_at = half;
            } else {
                self.channel.wake_writer();
                self.nudge_at = self.head + RING as u64 / 4;
            }
        }
    }

    /// Gets leave to write [`LONGEST_RECORD`] bytes at the head.
    #[cold]
    fn obtain(&mut self) {
        let part = &self.slot.reader;
        while self.status == Status::Recording {
            let seen = part.moved.load(SeqCst);
            let limit = part.tail.load(SeqCst) + RING as u64;
            if self.head + LONGEST_RECORD as u64 <= limit {
                self.granted = limit.min(self.head + LOT as u64);
                // Either the writer sees this before it gives pages back, or it is seen doing so.
                self.slot.granted.store(self.granted, SeqCst);
                fence(SeqCst);
                while part.punching.load(SeqCst) != 0 && self.look() {
                    futex::wait(&part.punching, 1, Some(LOOK));
                }
                return;
            }
            part.waiting.store(1, SeqCst);
            if part.tail.load(SeqCst) + RING as u64 == limit {
                self.channel.wake_writer();
                futex::wait(&part.moved, seen, Some(LOOK));
            }
            self.look();
        }
    }

    /// Whether the writer is still there.
    fn look(&mut self) -> bool {
        self.status = self.channel.status();
        self.status == Status::Recording
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // SAFETY: the producer's own mapping.
        unsafe { libc::munmap(self.ring.cast(), 2 * RING) };
    }
}

const HEADERS: usize = size_of::<Control>() + MOST_SLOTS * size_of::<Slot>();
const _: () = assert!(HEADERS.is_multiple_of(PAGE) && RING.is_multiple_of(PAGE) && LOT < RING / 2);

fn length(slots: usize) -> usize {
    HEADERS + slots * RING
}

fn map_control(fd: RawFd) -> io::Result<*mut Control> {
    Ok(map(std::ptr::null_mut(), HEADERS, fd, 0)?.cast())
}

/// Maps a ring twice in a row.
pub(crate) fn map_ring(fd: RawFd, offset: usize) -> io::Result<*mut u8> {
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
fn map(at: *mut u8, len: usize, fd: RawFd, offset: usize) -> io::Result<*mut u8> {
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
fn set_len(file: &File, len: usize) -> io::Result<()> {
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

fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The kernel's answer, also in a process that was made behind libc's back.
fn pid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_getpid) as i32 }
}

/// A number for this process's pid namespace, 0 where /proc can't tell.
pub(crate) fn pid_namespace() -> u64 {
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
pub(crate) fn punch(fd: RawFd, offset: usize, len: usize) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: no pointers. The range is one that no process writes.
    unsafe { libc::fallocate(fd, mode, offset as i64, len as i64) };
}

/// A descriptor of its own for the writer.
pub(crate) fn duplicate(fd: &impl AsRawFd) -> io::Result<OwnedFd> {
    // SAFETY: makes a new descriptor or fails.
    let new = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
    if new < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

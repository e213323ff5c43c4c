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

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

use crate::event::StreamId;
use crate::futex::{self, RobustList};
pub use crate::producer::{Producer, leaves, lend};
use crate::shared::*;

/// Bytes of a ring.
pub const RING: usize = 1 << 20;
/// How far ahead of its last record a process may write; the writer leaves these pages alone.
pub const LOT: usize = 128 << 10;
/// As few will do where files may not be large (RLIMIT_FSIZE).
const FEWEST_SLOTS: usize = 16;
/// How often one who waits looks whether the writer is still there.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

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
    /// Where the descriptor was when this was made. Whoever moves it says so, by [`Self::with_fd`].
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

    /// Whether only the tail of the recording is kept, so that processes will be asked for their state.
    pub fn keeps_tail(&self) -> bool {
        self.control.tail.load(Relaxed) != 0
    }

    /// Whether it is for the caller to say that the recording can't go on: one process does, for all.
    pub fn tells_lost(&self) -> bool {
        self.control.told_lost.swap(1, Relaxed) == 0
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
                // What the maker says of the pid is said in its namespace.
                slot.namespace.store(pid_namespace(), Relaxed);
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

    /// The process of a reserved stream can't take it, for a reason told by errno: it runs unrecorded, perhaps with memory
    /// that recorded ones have too. False if the stream was given up already, and its process counted as missing.
    pub fn give_up(&self, stream: StreamId, errno: i32, shares_memory: bool) -> bool {
        let Some((_, slot)) = self.find(stream) else {
            return false;
        };
        let shares = if shares_memory { SHARES_MEMORY } else { 0 };
        slot.why.store(errno | shares, SeqCst);
        let given_up = slot
            .state
            .compare_exchange(state::RESERVED, state::UNRECORDED, SeqCst, Relaxed)
            .is_ok();
        self.rouse_writer();
        given_up
    }

    /// The calling thread writes a reserved stream from now on, until it ends.
    pub fn producer_of(&self, stream: StreamId) -> io::Result<Producer> {
        let (index, slot) = self.find(stream).ok_or(io::ErrorKind::BrokenPipe)?;
        let ring = map_ring(self.fd, self.ring_offset(index))?;
        // Its own view counts from here on; the maker's may be that of another namespace.
        slot.namespace.store(0, SeqCst);
        slot.pid.store(pid(), SeqCst);
        slot.namespace.store(pid_namespace(), SeqCst);
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
        Ok(Producer::new(*self, slot, ring))
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

    /// The writer's process, as long as it lives.
    pub fn writer(&self) -> Option<i32> {
        match self.control.line.writer.load(SeqCst) & futex::OWNER {
            0 => None,
            tid => Some(tid as i32),
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

    /// Waits until all that anybody has committed before is in the file, or can't get there any more.
    pub fn settle(&self) {
        let control = self.control;
        let from = control.rounds.load(SeqCst);
        while self.status() == Status::Recording {
            let now = control.rounds.load(SeqCst);
            // The look under way may have passed somebody by; the next has seen everything.
            if now.wrapping_sub(from) >= 2 {
                break;
            }
            control.round_wanted.store(1, SeqCst);
            if control.rounds.load(SeqCst) == now {
                self.wake_writer();
                futex::wait(&control.rounds, now, Some(LOOK));
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

    /// Where the table of shared pages is in the file.
    pub(crate) fn sharing_offset(&self) -> usize {
        sharing_offset(self.control.slots as usize)
    }

    /// The slots in use.
    pub(crate) fn taken(&self) -> impl Iterator<Item = usize> + use<> {
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
    pub(crate) fn rouse_writer(&self) {
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

    pub(crate) fn find(&self, stream: StreamId) -> Option<(usize, &'static Slot)> {
        self.taken()
            .map(|index| (index, self.slot(index)))
            .find(|(_, slot)| {
                slot.stream.load(SeqCst) == stream && slot.state.load(SeqCst) != state::FREE
            })
    }
}

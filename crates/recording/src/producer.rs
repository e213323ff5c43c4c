//! A stream's way into the channel.

use std::sync::atomic::{AtomicPtr, Ordering::*, fence};

use crate::channel::{Channel, Finished, LOOK, LOT, RING, Status};
use crate::event::{LONGEST_RECORD, StreamId};
use crate::futex::{self, RobustList};
use crate::shared::{Slot, attention, state};

/// The slot that this process writes, for [`leaves`].
static MINE: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());

/// The process is about to end, or to become another program, by its own doing; or it isn't after all.
/// Whoever is gone without having said so was killed. Does nothing in processes that don't record.
pub fn leaves(it_does: bool) {
    // SAFETY: slots stay mapped for good, and nothing in them but atomic numbers is touched.
    if let Some(slot) = unsafe { MINE.load(Relaxed).as_ref() } {
        slot.leaves.store(it_does as u32, SeqCst);
    }
}

/// A child has borrowed this process's memory (vfork) and writes its stream meanwhile; 0: nobody any more. Should
/// the process be killed meanwhile, the slot isn't free before the child has gone too.
pub fn lend(pid: i32) {
    // SAFETY: as above.
    if let Some(slot) = unsafe { MINE.load(Relaxed).as_ref() } {
        slot.lent.store(pid, SeqCst);
    }
}

/// One stream's way in. For one thread: the one that made it.
///
/// Dropping it only unmaps: a forked child drops its copy of the parent's.
pub struct Producer {
    channel: Channel,
    slot: &'static Slot,
    /// Known to a forked child too, whose parent may be gone and its slot another's.
    stream: StreamId,
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
    /// `ring` is the slot's, mapped twice in a row; the calling thread owns the slot.
    pub(crate) fn new(channel: Channel, slot: &'static Slot, ring: *mut u8) -> Producer {
        MINE.store(std::ptr::from_ref(slot).cast_mut(), Relaxed);
        Producer {
            channel,
            slot,
            stream: slot.stream.load(Relaxed),
            ring,
            head: 0,
            granted: 0,
            nudge_at: 0,
            writer: channel.control().line.writer.load(Relaxed),
            status: Status::Recording,
        }
    }

    pub fn stream(&self) -> StreamId {
        self.stream
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
        let line = &self.channel.control().line;
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

    /// The process forks now, so many ticks after its last event, and its next record will be the event for it. If
    /// it is killed before that, the writer adds the event: the child's stream can't be replayed without.
    pub fn forks(&self, child: StreamId, ticks: u64) {
        if let Some((_, slot)) = self.channel.find(child) {
            slot.fork_ticks.store(ticks, SeqCst);
            slot.fork_head.store(self.head, SeqCst);
            slot.parent.store(self.stream, SeqCst);
        }
    }

    /// Whether the writer wants another part of the stream to begin. Cheap: to be asked after every event.
    #[inline]
    pub fn part_wanted(&self) -> bool {
        // The writer may have asked again before it saw the last one.
        self.slot.part_wanted.load(Relaxed) != 0 && self.may_part()
    }

    /// Whether the writer has come to where the last part began.
    pub fn may_part(&self) -> bool {
        self.slot.parted.load(Relaxed) == 0
    }

    /// What is committed from here on is in another part of the stream, which is read without the ones before.
    pub fn begin_part(&self) {
        // The position is known to whoever sees a later head.
        self.slot.parted.store(self.head, SeqCst);
        self.slot.part_wanted.store(0, SeqCst);
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

    /// This process, a fork of the one that wrote, doesn't record.
    pub fn forget() {
        MINE.store(std::ptr::null_mut(), Relaxed);
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

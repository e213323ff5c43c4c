//! The recorder of one stream: ring, encoder, and what it must remember between events.

use clew_recording::channel::{Channel, Finished, OnFull, Producer, Status};
use clew_recording::codec::Encoder;
use clew_recording::event::{
    Call, Effect, Event, LONGEST_PIECE, Origin, REGISTERS, Start, StreamId, ThreadId, Touch,
};
use clew_recording::maps::Change;
use clew_recording::sharing::Sharing;

use super::output::Standard;
use super::tail::Known;
use crate::context::{GsBlock, Regs};
use crate::guest::access;
use crate::host::time::HALF;
use crate::kernel::stop;
use crate::layout;
use crate::memory::Memory;
use crate::memory::govern::{self, News};

/// Cycles between two time stamps in the log: about a millisecond.
const STAMP: u64 = 2_000_000;
/// Cycles between two checks of registers: less than 100 ms.
const CHECK: u64 = 150_000_000;
/// Memory is looked at so seldom that it takes one part in this many of the time.
const SELDOM: u64 = 200;

pub struct Recorder {
    pub(super) channel: Channel,
    pub(super) producer: Producer,
    pub(super) encoder: Encoder,
    /// Where only the tail is kept: what a replay would know.
    pub(super) known: Option<Box<Known>>,
    /// The ticks of the current thread at the last event.
    pub(super) base: u64,
    /// Ticks up to where the current thread stands that no event has told yet.
    pub(super) arrived: u64,
    /// The same at the last time that its budget was used up.
    pub(super) at_budget: u64,
    /// The current thread's registers before an instruction that needn't be told, unless something
    /// happens right behind it.
    pub(super) quiet: Option<Regs>,
    /// The thread's ticks at the last of those, and how many it has passed there.
    pub(super) passed: (u64, u32),
    /// Number of handlers entered so far.
    pub(super) signals: u64,
    next_thread: ThreadId,
    pub(super) standard: Standard,
    /// This process has just been forked: the effects belong to its stream's start.
    pub(super) just_forked: bool,
    /// The call under way, as long as nothing was written about it.
    pub(crate) call: Option<Call>,
    /// What the call under way has named its place.
    pub(super) mark: Option<String>,
    /// Threads that stand for children of vforks, innermost last.
    pub(super) vforks: Vec<ThreadId>,
    /// Threads that the call under way has made.
    pub(super) new_threads: Vec<usize>,
    last_stamp: u64,
    last_check: u64,
    /// Cycles that the last checksum of memory took; 0 before the first.
    memory_cost: u64,
    last_memory: u64,
    room: Vec<u8>,
    /// Empty between events: memory for the ranges that one has touched.
    pub(super) touched: Vec<(u64, u64)>,
    told_lost: bool,
    /// The stream of the program that an exec under way would start.
    pub(super) after_exec: Option<StreamId>,
    /// The end of the vfork's child that runs now is told.
    pub(super) child_told: bool,
    /// This process is the one that began the recording, and whose end people wait for.
    first: bool,
    /// What the call under way writes goes there.
    pub(crate) outlet: Option<Goes>,
    /// Its place among all outputs, once it is written.
    pub(crate) order: Option<u64>,
    /// Pieces of it that have gone out: their places and lengths. No event has told them yet.
    pub(crate) pieces: Vec<(u64, u64)>,
    /// A place may be wrong: this process was stopped while it wrote.
    pub(crate) unsure: bool,
}

/// Where output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Goes {
    /// 1 or 2.
    pub to: u8,
    /// The channel's number for that file.
    pub outlet: usize,
}

fn now() -> u64 {
    // SAFETY: reads the time-stamp counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// How a thread came to an event: its registers there.
pub struct Arrival {
    pub regs: Regs,
    /// Number of signals before it.
    pub signals: u64,
}

impl Recorder {
    /// A recorder for a program that was just started, in the recording behind `fd`.
    /// `stream` was reserved for it by the process that it comes from, if not 0.
    pub fn open(
        fd: i32,
        stream: StreamId,
        first: bool,
        standard: Standard,
    ) -> std::io::Result<Recorder> {
        let channel = Channel::open(fd)?;
        let producer = if stream == 0 {
            channel.new_stream()?
        } else {
            channel.producer_of(stream)?
        };
        govern::begin(Sharing::join(&channel, producer.stream())?);
        Ok(Recorder {
            channel,
            producer,
            encoder: Encoder::default(),
            known: channel.keeps_tail().then(|| Box::new(Known::new())),
            base: 0,
            arrived: 0,
            call: None,
            at_budget: 0,
            quiet: None,
            passed: (0, 0),
            signals: 0,
            next_thread: 1,
            standard,
            just_forked: false,
            mark: None,
            vforks: Vec::new(),
            new_threads: Vec::new(),
            last_stamp: now(),
            last_check: now(),
            memory_cost: 0,
            last_memory: now(),
            room: Vec::new(),
            touched: Vec::new(),
            told_lost: false,
            after_exec: None,
            child_told: false,
            first,
            outlet: None,
            order: None,
            pieces: Vec::new(),
            unsure: false,
        })
    }

    pub fn stream(&self) -> StreamId {
        self.producer.stream()
    }

    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// How far the thread has come for the event that is about to be written. If shared memory was
    /// acquired on the way, that is an event of its own before it.
    pub(crate) fn take_arrived(&mut self) -> u64 {
        let ticks = std::mem::take(&mut self.arrived);
        if !govern::pending() {
            return ticks;
        }
        self.shared(ticks, Touch::Engine);
        0
    }

    /// Shared memory was acquired on the way to where the thread stands, by `touch`.
    pub(super) fn shared(&mut self, ticks: u64, touch: Touch) {
        self.event(&Event::Shared { ticks, touch });
        self.shared_effects();
    }

    /// What became of shared memory, as effects of the last event.
    pub(super) fn shared_effects(&mut self) {
        govern::tell(&mut |record| match record {
            News::Change(change) => self.change(change),
            News::Contents(addr, bytes) => self.effect(&Effect::Memory { addr, bytes }),
        });
    }

    pub(super) fn thread_number(&mut self) -> ThreadId {
        self.next_thread += 1;
        self.next_thread - 1
    }

    /// The stream of a process that is about to be made.
    pub fn reserve(&mut self) -> std::io::Result<StreamId> {
        self.channel.reserve_stream()
    }

    /// This process forks now; `child` is the stream for the child. Returns the place, in ticks.
    pub(super) fn forks(&mut self, child: StreamId) -> u64 {
        // Whatever comes first must be written first.
        self.flush_values();
        let ticks = self.take_arrived();
        self.producer.forks(child, ticks);
        ticks
    }

    /// The next event after [`Self::forks`]: nothing comes between.
    pub(super) fn forked(&mut self, event: &Event) {
        self.put(event);
    }

    /// Has the executor moved to another kernel thread? The kernel tells the writer of its death.
    pub fn on_this_thread(&mut self) {
        self.producer.move_to_this_thread();
        govern::on_this_thread();
    }

    /// Whether this is the process that began the recording.
    pub fn is_first(&self) -> bool {
        self.first
    }

    /// In the forked child: goes on in its own stream. `fd` is the channel's memory.
    pub fn become_child(
        &mut self,
        stream: StreamId,
        mut start: Start,
        fd: i32,
    ) -> std::io::Result<()> {
        let parent = self.producer.stream();
        self.first = false;
        self.channel = self.channel.with_fd(fd);
        self.producer = self.channel.producer_of(stream)?;
        self.encoder = Encoder::default();
        self.arrived = 0;
        self.last_stamp = now();
        self.just_forked = true;
        self.new_threads.clear();
        start.origin = Origin::Fork { parent };
        start.time = self.channel.elapsed();
        self.event(&Event::Started(start));
        govern::become_child(stream);
        Ok(())
    }

    /// Writes an event, and now and then the time before it.
    pub fn event(&mut self, event: &Event) {
        self.flush_values();
        let now = now();
        // A stream begins with its start.
        if now.wrapping_sub(self.last_stamp) > STAMP && !matches!(event, Event::Started(_)) {
            self.last_stamp = now;
            let time = self.channel.elapsed();
            self.put(&Event::Time(time));
        }
        self.put(event);
        if self.producer.status() != Status::Recording {
            self.lost();
        }
    }

    /// Writes down the answers that translated code took by itself since the last event.
    pub(super) fn flush_values(&mut self) {
        // SAFETY: the block is mapped as long as the process lives; the guest isn't running, and
        // its fields for values belong to the recorder.
        let values = unsafe { &mut (*(layout::GS_BLOCK as *mut GsBlock)).values };
        if values.used == 0 {
            return;
        }
        let count = std::mem::take(&mut values.used) as usize;
        // SAFETY: as many as were put there; the buffer has room for more.
        let taken = unsafe { std::slice::from_raw_parts(values.buffer, count) };
        let mut room = std::mem::take(&mut self.room);
        let len = super::values::encode(taken, &mut room);
        self.put(&Event::Values(&room[..len]));
        self.room = room;
    }

    /// Answers of somebody who is gone, and whose events nobody will replay.
    pub(super) fn drop_values(&mut self) {
        // SAFETY: as above.
        unsafe { (*(layout::GS_BLOCK as *mut GsBlock)).values.used = 0 };
    }

    /// Whether it is time for a place at which a replay compares registers.
    #[inline]
    pub(super) fn check_due(&self) -> bool {
        now().wrapping_sub(self.last_check) > CHECK
    }

    /// The same after an event, which has just looked at the time.
    #[inline]
    pub(super) fn check_due_after_event(&self) -> bool {
        self.last_stamp.wrapping_sub(self.last_check) > CHECK
    }

    /// A check is about to be written: the checksum of the guest's memory, if it is affordable now.
    pub(super) fn checksum_for_check(&mut self, memory: &Memory) -> Option<u64> {
        let begin = now();
        self.last_check = begin;
        self.last_stamp = self.last_stamp.max(begin);
        let cost = match self.memory_cost {
            // A byte per cycle is slow.
            0 => memory.iter().map(|m| m.end - m.start).sum(),
            cost => cost,
        };
        if begin.wrapping_sub(self.last_memory) / SELDOM < cost {
            return None;
        }
        let sum = memory.checksum();
        self.last_memory = now();
        self.memory_cost = self.last_memory.wrapping_sub(begin).max(1);
        Some(sum)
    }

    /// Whether so many answers wait that they should be written down.
    pub(super) fn values_wait(&self) -> bool {
        // SAFETY: as above.
        let used = unsafe { (*(layout::GS_BLOCK as *const GsBlock)).values.used };
        used as usize >= HALF
    }

    fn put(&mut self, event: &Event) {
        self.put_plainly(event);
        if let Some(known) = &mut self.known {
            known.note(event);
        }
    }

    pub(super) fn put_plainly(&mut self, event: &Event) {
        let room = self.producer.reserve();
        let len = self.encoder.event(event, room);
        self.producer.commit(len);
    }

    /// Nothing is written any more: the guest ends or runs on, as was asked for.
    #[cold]
    pub(super) fn lost(&mut self) {
        if std::mem::replace(&mut self.told_lost, true) {
            return;
        }
        let why = match self.channel.status() {
            Status::Full => "no space is left for the recording",
            _ => "the recording's writer is gone",
        };
        let stops = self.channel.on_full() == OnFull::Stop;
        // Where nobody may hear it, it doesn't count.
        let is_heard = self.standard.which(2).is_some();
        if !is_heard || self.channel.tells_lost() {
            stop::warn(&match stops {
                true => format!("{why}: stopping the program (--on-full=stop)"),
                false => {
                    format!("{why}: the program goes on, what it does from here on isn't recorded")
                }
            });
        }
        if stops {
            stop::exit(stop::STATUS);
        }
    }

    /// Writes an effect of the last event.
    pub fn effect(&mut self, effect: &Effect) {
        let room = self.producer.reserve();
        let len = self.encoder.effect(effect, room);
        self.producer.commit(len);
    }

    /// A change of mappings, as an effect.
    pub fn change(&mut self, change: &Change) {
        let mut room = std::mem::take(&mut self.room);
        room.clear();
        change.encode(&mut room);
        self.effect(&Effect::Map(&room));
        self.room = room;
    }

    /// What is in guest memory now, as an effect, whether the guest may read it or not. Pages behind a file's
    /// end have no contents.
    pub fn memory(&mut self, memory: &Memory, addr: u64, len: u64) {
        let mut at = addr;
        let end = addr.saturating_add(len);
        while at < end {
            let mut take = (end - at).min(LONGEST_PIECE as u64);
            if !self.piece(at, take, &|bytes| access::read_bytes(at, bytes).is_ok()) {
                // Page by page: what can be read is written down.
                take = take.min(4096 - at % 4096);
                self.piece(at, take, &|bytes| memory.peek(at, bytes).is_ok());
            }
            at += take;
        }
    }

    /// A piece of guest memory, straight into the ring; false if it can't be read.
    fn piece(&mut self, addr: u64, len: u64, read: &dyn Fn(&mut [u8]) -> bool) -> bool {
        let room = self.producer.reserve();
        let Some(len) = self.encoder.memory(addr, len as usize, read, room) else {
            return false;
        };
        self.producer.commit(len);
        true
    }

    /// The registers that differ from `before`.
    pub fn registers(&mut self, before: &Regs, after: &Regs) {
        let (old, new) = (before.words(), after.words());
        let mut mask = 0;
        let mut values = [0; REGISTERS];
        for n in 0..REGISTERS {
            if old[n] != new[n] {
                mask |= 1 << n;
                values[n] = new[n];
            }
        }
        if mask != 0 {
            self.effect(&Effect::Registers { mask, values });
        }
    }

    /// All registers.
    pub fn all_registers(&mut self, regs: &Regs) {
        let values = *regs.words();
        let mask = (1 << REGISTERS) - 1;
        self.effect(&Effect::Registers { mask, values });
    }

    /// The stream of this process before its exec is over.
    pub fn end_other(&mut self, stream: StreamId) {
        Producer::end_other(&self.channel, stream);
    }

    /// The stream ends here. What is in the ring is safe there; but when the first process is gone,
    /// people expect a whole recording.
    pub fn finish(&mut self, how: Finished) {
        self.producer.finish(how);
        if self.first {
            self.channel.settle();
        }
    }
}

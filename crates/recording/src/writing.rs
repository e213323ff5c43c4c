//! What the writer does: takes records out of the channel's rings and appends them to the log.
//!
//! A record is in the file [`NAP`] after its commit, or sooner when a ring fills. When nobody commits the
//! writer sleeps until somebody does: an idle recorded daemon costs nothing.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, Ordering::*, fence};
use std::time::{Duration, Instant};

use crate::bytes::Reader;
use crate::channel::{Channel, RING};
use crate::codec::Encoder;
use crate::event::{Cause, Event, LONGEST_RECORD, Place, StreamId};
use crate::futex;
use crate::log::{self, FILE_HEADER, Kind, Packer, StreamEnd};
use crate::shared::{self, PAGE, Slot, attention, state};
use crate::tail::parts::Parts;
use crate::watch::{Life, Watch};

/// Time between two looks at the rings.
const NAP: Duration = Duration::from_millis(20);
/// After so long without a record, memory is given back.
const IDLE: Duration = Duration::from_secs(1);
/// How often one looks after processes whose death nobody tells.
const POLL: Duration = Duration::from_millis(250);
/// How long a process that should come, and that nobody can tell the death of, is waited for.
const GRACE: Duration = Duration::from_secs(2);
/// So much of a freed ring is kept for the next process until nobody commits.
const KEPT: usize = 64 << 10;

/// The log can't be written any more.
struct Full;

pub struct Writing {
    channel: Channel,
    /// The channel as a file.
    memory: File,
    log: File,
    /// Length of what is good in the log.
    len: u64,
    packer: Packer,
    /// Where streams go if only the tail is kept. The log then has nothing but its end.
    parts: Option<Parts>,
    /// When they were last looked through.
    trimmed: Instant,
    watch: Watch,
    /// Who started the writer, until there is a stream.
    launcher: Option<i32>,
    namespace: u64,
    /// What came last in the stream of a slot, by slot.
    histories: HashMap<usize, Vec<u8>>,
    /// Slots whose process can't be watched or isn't known, and since when.
    unsure: HashMap<usize, Instant>,
    /// Until then somebody may come who can't be watched.
    linger: Option<Instant>,
    /// By parent's stream: the last fork whose child's slot is free already.
    forks: HashMap<StreamId, Fork>,
    /// Slots of whose last part nothing is written yet.
    fresh: HashSet<usize>,
    /// Slots that aren't in use but have memory.
    dirty: HashSet<usize>,
    buffer: Vec<u8>,
}

/// Where a process was forked.
struct Fork {
    child: StreamId,
    pid: i32,
    /// After the parent's last event.
    ticks: u64,
    /// Bytes that the parent had committed.
    head: u64,
}

/// What came of a look at a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Nothing,
    Moved,
}

impl Writing {
    /// `channel` has a descriptor of its own; `log` has its header.
    pub fn new(
        channel: Channel,
        log: File,
        parts: Option<Parts>,
        launcher: i32,
    ) -> io::Result<Writing> {
        let mut watch = Watch::new(channel)?;
        let watched = watch.add(launcher) == Life::Watched;
        // SAFETY: the caller gave the descriptor away.
        let memory = unsafe { File::from_raw_fd(channel.fd()) };
        Ok(Writing {
            channel,
            memory,
            log,
            len: FILE_HEADER as u64,
            packer: Packer::default(),
            parts,
            trimmed: Instant::now(),
            watch,
            launcher: watched.then_some(launcher),
            namespace: shared::pid_namespace(),
            histories: HashMap::new(),
            unsure: HashMap::new(),
            linger: None,
            forks: HashMap::new(),
            fresh: HashSet::new(),
            dirty: HashSet::new(),
            buffer: vec![0; RING],
        })
    }

    /// Until all streams have ended or the log can't be written.
    pub fn run(&mut self) {
        let line = &self.channel.control().line;
        let end = match self.work() {
            Ok(()) => attention::ENDED,
            Err(Full) => attention::FULL,
        };
        // Who is told that it is over finds the log unlocked.
        let _ = self.log.unlock();
        line.attention.store(end, SeqCst);
        futex::wake(&line.attention);
        for index in self.channel.taken() {
            notify(self.channel.slot(index));
        }
        self.channel.control().freed.fetch_add(1, SeqCst);
        futex::wake(&self.channel.control().freed);
        let _ = self.log.sync_all();
    }

    fn work(&mut self) -> Result<(), Full> {
        let attention = &self.channel.control().line.attention;
        // Looks in a row that found nothing.
        let mut quiet = 0;
        loop {
            let calls = self.channel.calls();
            if self.round()? == Look::Moved {
                quiet = 0;
            } else if self.is_over() {
                return self.append(Kind::End, 0, &[], None);
            }
            let time = match quiet {
                0 => Some(NAP),
                // From here on a commit wakes. One that didn't see this yet is found by the next look:
                // no store takes that long to be seen.
                1 => {
                    attention.store(attention::ASLEEP, SeqCst);
                    Some(NAP)
                }
                2 => Some(IDLE),
                3 => {
                    self.tidy();
                    self.patience()
                }
                _ => self.patience(),
            };
            quiet += 1;
            self.channel.wait_for_call(calls, time);
            if quiet > 1 && attention.load(SeqCst) == attention::NONE {
                // More is likely to come right after the first.
                quiet = 0;
                let calls = self.channel.calls();
                if self.channel.control().round_wanted.load(SeqCst) == 0 {
                    self.channel.wait_for_call(calls, Some(NAP));
                }
            }
        }
    }

    /// How long to sleep when there is nothing to do.
    fn patience(&self) -> Option<Duration> {
        (!self.unsure.is_empty() || self.linger.is_some()).then_some(POLL)
    }

    /// Looks at all slots once.
    fn round(&mut self) -> Result<Look, Full> {
        self.watch.bury();
        self.packer.next_round();
        let mut any = Look::Nothing;
        for index in self.channel.taken() {
            let slot = self.channel.slot(index);
            let look = match slot.state.load(SeqCst) {
                // It is just being taken, or its taker died doing so: then it is never used again.
                state::FREE => {
                    self.unsure.entry(index).or_insert_with(Instant::now);
                    Look::Nothing
                }
                state::RESERVED => self.look_for_process(index, slot)?,
                state::UNRECORDED => self.unrecorded(index, slot)?,
                state => self.drain(index, slot, state)?,
            };
            if look == Look::Moved {
                any = Look::Moved;
            }
        }
        self.keep_tail();
        let control = self.channel.control();
        control.rounds.fetch_add(1, SeqCst);
        if control.round_wanted.swap(0, SeqCst) != 0 {
            futex::wake(&control.rounds);
        }
        Ok(any)
    }

    /// Ends a reserved slot if its process won't come; the next look frees it.
    fn look_for_process(&mut self, index: usize, slot: &Slot) -> Result<Look, Full> {
        let expected = slot.pid.load(SeqCst);
        let life = match expected {
            _ if !self.is_near(slot) => Life::Unknown,
            0 => self.watch.add_bystander(slot.maker.load(SeqCst)),
            pid => self.watch.add(pid),
        };
        let end = match life {
            Life::Watched => return Ok(Look::Nothing),
            Life::Dead if expected != 0 => state::ENDED,
            // The child of a dead process, or nobody knows.
            _ => {
                let since = self.unsure.entry(index).or_insert_with(Instant::now);
                // As long as others record there is no hurry.
                if since.elapsed() <= GRACE || self.anybody_lives() {
                    return Ok(Look::Nothing);
                }
                slot.why.store(libc::ETIMEDOUT, SeqCst);
                state::UNRECORDED
            }
        };
        // If the process comes at the same time one of both succeeds.
        let _ = slot
            .state
            .compare_exchange(state::RESERVED, end, SeqCst, Relaxed);
        Ok(Look::Moved)
    }

    /// Whether any process is known to record.
    fn anybody_lives(&self) -> bool {
        self.channel.taken().any(|index| {
            let slot = self.channel.slot(index);
            let owner = slot.owner.load(SeqCst);
            slot.state.load(SeqCst) == state::LIVE && owner & futex::OWNER_DIED == 0
        })
    }

    /// Whether the pids in a slot mean what they mean here: one of another namespace may be anybody's.
    fn is_near(&self, slot: &Slot) -> bool {
        self.namespace != 0 && slot.namespace.load(SeqCst) == self.namespace
    }

    /// Writes down that a process isn't recorded, and frees its slot.
    fn unrecorded(&mut self, index: usize, slot: &Slot) -> Result<Look, Full> {
        let why = slot.why.load(SeqCst);
        let shares = why & shared::SHARES_MEMORY != 0;
        let mut why = match why & !shared::SHARES_MEMORY {
            libc::ETIMEDOUT => "it never began: it was killed before, or couldn't run".into(),
            errno => io::Error::from_raw_os_error(errno).to_string(),
        };
        if shares {
            why.push_str("; it shares memory with recorded processes, whose replays may diverge");
        }
        let text = match slot.pid.load(SeqCst) {
            0 => format!("a process isn't recorded: {why}"),
            pid => format!("process {pid} isn't recorded: {why}"),
        };
        let stream = slot.stream.load(SeqCst);
        self.append(Kind::Unrecorded, stream, text.as_bytes(), None)?;
        self.free(index, slot, StreamEnd::Ended);
        Ok(Look::Moved)
    }

    /// Writes what is in a ring; ends the stream if it is over.
    fn drain(&mut self, index: usize, slot: &Slot, state: u32) -> Result<Look, Full> {
        // First who lives, then what there is: what a dead process has committed is all there.
        let end = match state {
            state::ENDED => Some(StreamEnd::Ended),
            state::EXEC => Some(StreamEnd::Exec),
            _ if !self.lives(index, slot) => Some(StreamEnd::Gone),
            _ => None,
        };
        let stream = slot.stream.load(SeqCst);
        let part = &slot.reader;
        let (tail, head) = (part.tail.load(SeqCst), slot.head.load(SeqCst));
        // More than fits can only be there if the guest has written over the channel.
        let len = head.wrapping_sub(tail);
        let len = if len <= RING as u64 { len as usize } else { 0 };
        if len > 0 {
            let mut buffer = std::mem::take(&mut self.buffer);
            self.copy(index, tail, &mut buffer[..len])
                .map_err(|_| Full)?;
            part.tail.store(head, SeqCst);
            notify(slot);
            if tail == 0
                && let Some(parts) = &mut self.parts
            {
                let parent = slot.parent.load(SeqCst);
                let launcher = self.channel.control().launcher.load(Relaxed);
                let first = slot.pid.load(SeqCst) == launcher;
                parts.begin(
                    stream,
                    (parent != 0).then(|| (parent, slot.fork_head.load(SeqCst))),
                );
                if first {
                    parts.is_first(stream);
                }
            }
            // A position that isn't passed yet is for a later look.
            let parted = slot.parted.load(SeqCst);
            let parted = Some(parted).filter(|&at| at != 0 && tail <= at && at <= head);
            let (old, new) = buffer[..len].split_at(parted.map_or(len, |at| (at - tail) as usize));
            let begins = tail == 0 || self.fresh.remove(&index);
            self.append_records(index, stream, old, begins)?;
            if let Some(at) = parted {
                if let Some(parts) = &mut self.parts {
                    parts.part(stream, at);
                }
                self.histories.remove(&index);
                slot.parted.store(0, SeqCst);
                match new.is_empty() {
                    true => self.fresh.insert(index),
                    false => {
                        self.append_records(index, stream, new, true)?;
                        false
                    }
                };
            }
            self.buffer = buffer;
            part.written.store(head, SeqCst);
            notify(slot);
        }
        if let Some(end) = end {
            if head != 0 && end == StreamEnd::Gone && slot.leaves.load(SeqCst) == 0 {
                self.append_death(index, stream, head)?;
            }
            if head != 0 {
                self.append(Kind::StreamEnd(end), stream, &[], None)?;
            }
            self.free(index, slot, end);
        }
        Ok(match len {
            0 => Look::Nothing,
            _ => Look::Moved,
        })
    }

    /// Appends records of a stream. How a stream (or a part of it) begins is in a chunk of its own: it is read whenever
    /// a recording is opened.
    fn append_records(
        &mut self,
        index: usize,
        stream: u32,
        records: &[u8],
        begins: bool,
    ) -> Result<(), Full> {
        let first = if begins { first_record(records) } else { 0 };
        let (first, rest) = records.split_at(first);
        for piece in [first, rest] {
            if !piece.is_empty() {
                self.append(Kind::Records, stream, piece, Some(index))?;
            }
        }
        Ok(())
    }

    /// Asks processes for their state where it is time, and drops what is too old.
    fn keep_tail(&mut self) {
        let Some(parts) = &mut self.parts else { return };
        if self.trimmed.elapsed() < NAP {
            return;
        }
        self.trimmed = Instant::now();
        for index in self.channel.taken() {
            let slot = self.channel.slot(index);
            let live = slot.state.load(SeqCst) == state::LIVE;
            if live && parts.wants_part(slot.stream.load(SeqCst)) && slot.parted.load(SeqCst) == 0 {
                slot.part_wanted.store(1, SeqCst);
            }
        }
        parts.trim();
    }

    /// Whether the process of a slot lives, or the one that it is lent to; and watches it.
    fn lives(&mut self, index: usize, slot: &Slot) -> bool {
        let owner = slot.owner.load(SeqCst);
        let owned = owner & futex::OWNER != 0 && owner & futex::OWNER_DIED == 0;
        if owned && self.life(index, slot, &slot.pid) != Life::Dead {
            return true;
        }
        if slot.lent.load(SeqCst) == 0 {
            return false;
        }
        match self.life(index, slot, &slot.lent) {
            Life::Watched => true,
            Life::Dead => false,
            Life::Unknown => self.unsure[&index].elapsed() < GRACE,
        }
    }

    fn life(&mut self, index: usize, slot: &Slot, pid: &AtomicI32) -> Life {
        let life = match self.is_near(slot) {
            true => self.watch.add(pid.load(SeqCst)),
            false => Life::Unknown,
        };
        match life {
            Life::Watched => {
                self.unsure.remove(&index);
            }
            Life::Unknown => {
                self.unsure.entry(index).or_insert_with(Instant::now);
            }
            Life::Dead => {}
        }
        life
    }

    fn copy(&self, index: usize, tail: u64, to: &mut [u8]) -> io::Result<()> {
        let ring = self.channel.ring_offset(index) as u64;
        let from = tail % RING as u64;
        let first = to.len().min(RING - from as usize);
        self.memory.read_exact_at(&mut to[..first], ring + from)?;
        self.memory.read_exact_at(&mut to[first..], ring)
    }

    /// The last event of a process that went without a word: nothing else than SIGKILL ends one so. Where it
    /// was by then nobody knows; it is told as if it had come no further than its last event, or than a fork that
    /// it couldn't tell any more.
    fn append_death(&mut self, index: usize, stream: u32, head: u64) -> Result<(), Full> {
        let death = Event::Killed {
            place: Place::default(),
            cause: Cause::Outside,
            signo: libc::SIGKILL,
        };
        for taken in self.channel.taken().collect::<Vec<_>>() {
            self.note_fork(self.channel.slot(taken));
        }
        let fork = self.forks.remove(&stream).filter(|fork| fork.head == head);
        let fork = fork.map(|fork| Event::Forked {
            ticks: fork.ticks,
            stream: fork.child,
            pid: fork.pid,
        });
        let mut room = vec![0; LONGEST_RECORD];
        for event in fork.into_iter().chain([death]) {
            // Such events are in no way differences to those before them.
            let len = Encoder::default().event(&event, &mut room);
            self.append(Kind::Records, stream, &room[..len], Some(index))?;
        }
        Ok(())
    }

    /// Keeps in mind where the process of a slot was forked: its parent's last fork.
    fn note_fork(&mut self, slot: &Slot) {
        let parent = slot.parent.load(SeqCst);
        let child = slot.stream.load(SeqCst);
        let later = self.forks.get(&parent).is_some_and(|f| f.child > child);
        if parent == 0 || later || self.channel.find(parent).is_none() {
            return;
        }
        let fork = Fork {
            child,
            pid: slot.pid.load(SeqCst),
            ticks: slot.fork_ticks.load(SeqCst),
            head: slot.fork_head.load(SeqCst),
        };
        self.forks.insert(parent, fork);
    }

    /// Appends a chunk, or leaves the log as it was.
    fn append(
        &mut self,
        kind: Kind,
        stream: u32,
        raw: &[u8],
        index: Option<usize>,
    ) -> Result<(), Full> {
        let mut none = Vec::new();
        let history = match index {
            Some(index) => self.histories.entry(index).or_default(),
            None => &mut none,
        };
        if let Some(parts) = self.parts.as_mut().filter(|_| stream != 0) {
            parts.append(kind, stream, raw, history).map_err(|_| Full)?;
            log::remember(history, raw);
            return Ok(());
        }
        let chunk = self.packer.pack(kind, stream, raw, history);
        if self.log.write_all_at(chunk, self.len).is_err() {
            let _ = self.log.set_len(self.len);
            return Err(Full);
        }
        self.len += chunk.len() as u64;
        log::remember(history, raw);
        Ok(())
    }

    /// The slot may be used for another stream.
    fn free(&mut self, index: usize, slot: &Slot, end: StreamEnd) {
        let pid = slot.pid.load(SeqCst);
        if end == StreamEnd::Ended {
            if self.is_near(slot) {
                self.watch.forget(pid);
            }
        } else if self.unsure.contains_key(&index) {
            self.linger = Some(Instant::now() + GRACE);
        }
        self.note_fork(slot);
        self.forks.remove(&slot.stream.load(SeqCst));
        self.unsure.remove(&index);
        self.histories.remove(&index);
        self.fresh.remove(&index);
        let offset = self.channel.ring_offset(index) + KEPT;
        shared::punch(self.channel.fd(), offset, RING - KEPT);
        self.dirty.insert(index);
        slot.reset();
        let control = self.channel.control();
        control.taken[index / 64].fetch_and(!(1 << (index % 64)), SeqCst);
        if control.slot_wanted.swap(0, SeqCst) != 0 {
            control.freed.fetch_add(1, SeqCst);
            futex::wake(&control.freed);
        }
    }

    /// Nobody records and nobody can begin to.
    fn is_over(&mut self) -> bool {
        if let Some(pid) = self.launcher
            && self.channel.streams_so_far() > 0
        {
            self.launcher = None;
            let used = |index| self.channel.slot(index).pid.load(SeqCst) == pid;
            if !self.channel.taken().any(used) {
                self.watch.forget(pid);
            }
        }
        let now = Instant::now();
        if self.linger.is_some_and(|until| until <= now) {
            self.linger = None;
        }
        let in_use = |index| {
            self.channel.slot(index).state.load(SeqCst) != state::FREE
                || self.unsure.get(&index).is_none_or(|t| *t + GRACE > now)
        };
        self.linger.is_none() && !self.channel.taken().any(in_use) && self.watch.is_empty()
    }

    /// Gives memory back that nobody is using.
    fn tidy(&mut self) {
        for index in self.channel.taken().collect::<Vec<_>>() {
            self.dirty.insert(index);
        }
        for index in std::mem::take(&mut self.dirty) {
            self.punch_unused(index);
        }
    }

    /// Gives back the pages of a ring that hold nothing and that its process may not write now.
    fn punch_unused(&self, index: usize) {
        let slot = self.channel.slot(index);
        let part = &slot.reader;
        // Either its process sees this before it gets leave to write more, or it is seen to have got it.
        part.punching.store(1, SeqCst);
        fence(SeqCst);
        let from = (slot.granted.load(SeqCst) as usize).next_multiple_of(PAGE);
        let to = (part.tail.load(SeqCst) as usize + RING) / PAGE * PAGE;
        if from < to && to - from <= RING {
            let ring = self.channel.ring_offset(index);
            let start = from % RING;
            let first = (to - from).min(RING - start);
            shared::punch(self.channel.fd(), ring + start, first);
            if to - from > first {
                shared::punch(self.channel.fd(), ring, to - from - first);
            }
        }
        part.punching.store(0, SeqCst);
        futex::wake(&part.punching);
    }
}

/// The length of the record that the bytes begin with.
fn first_record(bytes: &[u8]) -> usize {
    let mut reader = Reader::new(bytes);
    let (Ok(_), Ok(len)) = (reader.byte(), reader.number()) else {
        return bytes.len();
    };
    let head = bytes.len() - reader.rest().len();
    bytes.len().min(head.saturating_add(len as usize))
}

/// Tells the slot's process, if it waits, that something has happened.
fn notify(slot: &Slot) {
    let part = &slot.reader;
    if part.waiting.swap(0, SeqCst) != 0 {
        part.moved.fetch_add(1, SeqCst);
        futex::wake(&part.moved);
    }
}

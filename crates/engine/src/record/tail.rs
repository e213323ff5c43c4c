//! Where only the tail of a recording is kept: the process's state, now and then, told by a copy of it.
//!
//! In: the writer's wish, while the current thread stands where the state is whole. Out: the stream goes on in another
//! part, and a forked copy writes the state there into a file beside it, while the process goes on.
//!
//! The copy is no child that the guest could see: it sends no signal, and only who waits for clones would find it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use clew_recording::channel::Producer;
use clew_recording::event::{Call, End, Event, Origin, Place, Record, Start, ThreadId};
use clew_recording::tail::{self, PartId};

use super::files::NewState;
use super::view::checksum;
use crate::cache::maybe_spoiled;
use crate::context::RSP;
use crate::executor::Executor;
use crate::guest::{access, trap_flag};
use crate::host::sigset::{self, SigSet, set_kernel_mask};
use crate::host::switch;
use crate::memory::govern;
use crate::memory::state::Aside;
use crate::replay::state::{Effects, Told, tell_threads};
use crate::syscall;

/// The kernel keeps so much of a thread's name.
const LONGEST_NAME: usize = 15;

/// What a replay would know of the stream by now, besides registers and memory.
pub(super) struct Known {
    start: Option<Start>,
    /// Where its arguments begin.
    stack: u64,
    events: u64,
    /// How many there were when the last part began.
    begun: u64,
    part: u32,
    current: ThreadId,
    threads: BTreeMap<ThreadId, Thread>,
    /// The copy that was made last, until it is waited for.
    copy: Option<i32>,
    told_why: bool,
}

#[derive(Clone, Default)]
struct Thread {
    tid: i32,
    name: Vec<u8>,
    waits: Option<Call>,
}

impl Known {
    pub(super) fn new() -> Known {
        Known {
            start: None,
            stack: 0,
            events: 0,
            begun: 0,
            part: 0,
            current: 0,
            threads: BTreeMap::new(),
            copy: None,
            told_why: false,
        }
    }

    /// An event is written.
    pub(super) fn note(&mut self, event: &Event) {
        self.events += 1;
        let current = self.current;
        match event {
            Event::Started(start) => self.begin(start),
            Event::Switched { to, .. } => self.current = *to,
            Event::NewThread { thread, tid } => {
                let maker = self.threads.get(&current).cloned().unwrap_or_default();
                let new = Thread {
                    tid: *tid,
                    waits: None,
                    ..maker
                };
                self.threads.insert(*thread, new);
            }
            Event::EndedThread { thread } => {
                self.threads.remove(thread);
            }
            Event::Call(call) => {
                let Some(thread) = self.threads.get_mut(&current) else {
                    return;
                };
                if call.end == End::Waits {
                    thread.waits = Some(*call);
                }
                if call.nr == libc::SYS_prctl as u32
                    && call.args[0] == libc::PR_SET_NAME as u64
                    && let Ok(name) = access::read_cstr(call.args[1], LONGEST_NAME)
                {
                    thread.name = name;
                }
            }
            Event::Resumed { .. } => {
                if let Some(thread) = self.threads.get_mut(&current) {
                    thread.waits = None;
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, start: &Start) {
        let name = match (start.origin, self.threads.get(&self.current)) {
            (Origin::Fork { .. }, Some(thread)) => thread.name.clone(),
            _ => {
                let exe = &start.exe;
                let name = exe.rsplit(|&b| b == b'/').next().unwrap_or(exe);
                name[..name.len().min(LONGEST_NAME)].to_vec()
            }
        };
        let only = Thread {
            tid: start.tid,
            name,
            waits: None,
        };
        self.threads = BTreeMap::from([(self.current, only)]);
        self.start = Some(start.clone());
        (self.events, self.begun, self.part) = (1, 0, 0);
        // It is the parent's.
        self.copy = None;
    }

    /// The program's arguments are where the stack begins.
    pub(super) fn set_stack(&mut self, stack: u64) {
        self.stack = stack;
    }

    /// How the next part begins, at this time.
    pub(super) fn next_part(&mut self, time: u64) -> Option<(PartId, Start)> {
        let start = self.start.as_ref()?;
        self.part += 1;
        self.begun = self.events;
        let origin = Origin::Midst {
            events: self.events,
            ticks: 0,
            stack: self.stack,
        };
        let start = Start {
            origin,
            time,
            ..start.clone()
        };
        let part = PartId {
            stream: 0,
            number: self.part,
        };
        Some((part, start))
    }
}

impl Executor {
    /// Whether the state is wanted, and is whole where the current thread stands.
    #[inline]
    pub(super) fn part_due(&self) -> bool {
        let Some(recorder) = &self.recorder else {
            return false;
        };
        (recorder.part_wanted() || recorder.part_forced(self.options.parts))
            && self.state_is_whole()
    }

    #[cold]
    fn state_is_whole(&self) -> bool {
        let Some(recorder) = &self.recorder else {
            return false;
        };
        // A child that has borrowed the memory changes it beside the log's threads.
        !self.kernel.own.in_vfork
            && recorder.vforks.is_empty()
            && recorder.new_threads.is_empty()
            && recorder.pieces.is_empty()
            && !self.memory.changes_pending()
            && !access::any_notes()
            && self.lockstep.is_none()
            && self.gs.regs.rflags & trap_flag::TRAP_FLAG == 0
            && self.threads.get(self.threads.current_slot()).is_some()
    }

    /// Has the stream go on in another part, and a copy of this process write the state here.
    #[cold]
    pub(super) fn begin_part(&mut self, mut place: Place) {
        govern::acquire_everything();
        if govern::pending() {
            self.check(std::mem::take(&mut place));
            self.recorder().shared_effects();
        }
        self.check(place);
        let aside = match self.memory.set_aside() {
            Ok(aside) => aside,
            // Another time.
            Err(_) => return,
        };
        self.bury_copy();
        let Some((part, start)) = self.recorder().begin_part() else {
            return;
        };
        let file = match self.memory.new_state(part) {
            Ok(file) => file,
            Err(errno) => return self.tell_why(errno),
        };
        let mask = sigset::kernel_mask();
        set_kernel_mask(SigSet::ASYNCHRONOUS);
        // SAFETY: without CLONE_VM and without a stack this is a fork. Its end isn't told by any signal, so that
        // the guest never waits for it.
        let pid = unsafe { syscall!(libc::SYS_clone, 0, 0, 0) };
        if pid == 0 {
            self.be_copy(part, start, aside, file);
        }
        set_kernel_mask(mask);
        match pid {
            1.. => self.recorder().known_copy(pid as i32),
            _ => self.tell_why(-pid as i32),
        }
    }

    /// The copies that have ended are nobody's children any more.
    fn bury_copy(&mut self) {
        if let Some(pid) = self.recorder().take_copy() {
            let mut status = 0i32;
            let how = libc::WNOHANG | libc::__WALL;
            // SAFETY: asks about a child of this process's.
            let done = unsafe { syscall!(libc::SYS_wait4, pid, &raw mut status, how, 0) };
            if done == 0 {
                self.recorder().known_copy(pid);
            }
        }
    }

    /// Says once why the beginning of the stream can't go.
    fn tell_why(&mut self, errno: i32) {
        if self.recorder().tells_why() {
            let why = std::io::Error::from_raw_os_error(errno);
            let text = format!("all of this process is kept: its state can't be written ({why})");
            self.record_note(&text);
        }
    }

    /// The life of the copy.
    fn be_copy(
        &mut self,
        part: PartId,
        start: Start,
        aside: Aside,
        (file, new): (OwnedFd, NewState),
    ) -> ! {
        Producer::forget();
        // What happens to the guest's group, or to those who have its descriptors, isn't the copy's.
        // SAFETY: calls about this very process, which has one thread and needs no other descriptors.
        unsafe {
            syscall!(libc::SYS_setsid);
            syscall!(libc::SYS_prctl, libc::PR_SET_NAME, c"clew-state".as_ptr());
            let mut keep = [file.as_raw_fd(), self.kernel.own.hidden.files];
            keep.sort_unstable();
            let mut from = 0;
            for fd in keep {
                if fd > from {
                    syscall!(libc::SYS_close_range, from, fd - 1, 0);
                }
                from = fd + 1;
            }
            syscall!(libc::SYS_close_range, from, u32::MAX, 0);
        }
        let threads = self.told_threads();
        let current = self.current().number;
        let registers = checksum(self.gs, &self.memory);
        let memory = aside.is_shared_only().then(|| self.memory.checksum());
        let done = tail::write_state(File::from(file), part.stream, start, &mut |put| {
            self.memory.tell_recorded(&aside, &mut Effects::new(put))?;
            tell_threads(&threads, current, put);
            put(&Record::Event(Event::Check {
                place: Place::default(),
                registers,
                memory,
            }));
            Ok(())
        });
        match done {
            Ok(()) => new.finish(),
            Err(_) => new.give_up(),
        }
        loop {
            // SAFETY: ends the copy; nothing after it runs.
            unsafe { syscall!(libc::SYS_exit_group, 0) };
        }
    }

    /// All threads, as a replay has them here.
    fn told_threads(&mut self) -> Vec<Told> {
        let current = self.threads.current_slot();
        let mut threads: Vec<Told> = Vec::new();
        for (slot, thread) in self.threads.iter() {
            let known = self
                .recorder
                .as_ref()
                .and_then(|r| r.known_thread(thread.number));
            let known = known.cloned().unwrap_or_default();
            let mut told = Told {
                number: thread.number,
                tid: known.tid,
                regs: thread.regs,
                xsave: thread.xsave.clone(),
                ticks: thread.ticks,
                name: known.name,
                waits: known.waits,
            };
            if slot == current {
                (told.regs, told.ticks) = (self.gs.regs, self.ticks_now());
            }
            told.regs.rflags &= !maybe_spoiled(&self.memory, told.regs.rip);
            threads.push(told);
        }
        if let Some(told) = threads.iter_mut().find(|told| {
            let thread = self.threads.get(current);
            thread.is_some_and(|thread| thread.number == told.number)
        }) {
            switch::save_extended(self.gs, &mut told.xsave);
        }
        threads.sort_by_key(|told| told.number);
        threads
    }

    /// The program is about to run: its arguments are where its stack begins.
    pub(super) fn note_stack(&mut self) {
        let stack = self.gs.regs.gpr[RSP];
        if let Some(known) = self.recorder().known.as_mut() {
            known.set_stack(stack);
        }
    }
}

impl super::Recorder {
    #[inline]
    fn part_wanted(&self) -> bool {
        self.known.is_some() && self.producer.part_wanted()
    }

    /// Whether so many events have come since the last part began.
    #[inline]
    fn part_forced(&self, after: Option<u64>) -> bool {
        let (Some(after), Some(known)) = (after, &self.known) else {
            return false;
        };
        known.events - known.begun >= after && self.producer.may_part()
    }

    /// What is written from here on is in the next part, which begins as is returned.
    fn begin_part(&mut self) -> Option<(PartId, Start)> {
        // What was taken so far belongs to the part before.
        self.flush_values();
        let time = self.channel.elapsed();
        let (part, start) = self.known.as_mut()?.next_part(time)?;
        self.producer.begin_part();
        self.encoder = clew_recording::codec::Encoder::default();
        // Not noted: no event of the process's.
        self.put_plainly(&Event::Started(start.clone()));
        let stream = self.stream();
        Some((PartId { stream, ..part }, start))
    }

    fn known_thread(&self, number: ThreadId) -> Option<&Thread> {
        self.known.as_ref()?.threads.get(&number)
    }

    fn known_copy(&mut self, pid: i32) {
        if let Some(known) = &mut self.known {
            known.copy = Some(pid);
        }
    }

    fn take_copy(&mut self) -> Option<i32> {
        self.known.as_mut()?.copy.take()
    }

    fn tells_why(&mut self) -> bool {
        let known = self.known.as_mut();
        known.is_some_and(|known| !std::mem::replace(&mut known.told_why, true))
    }
}

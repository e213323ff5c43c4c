//! What the executor tells the recorder: one function for each kind of event.

use clew_recording::channel;
use clew_recording::deadlock::Waiter;
use clew_recording::event::{Call as Written, Cause, Effect, End, Event, Output, Place, Touch};
use clew_recording::marks;

use super::view::{checksum, checksum_of};
use super::{Arrival, Goes, Recorder};
use crate::context::{Fault, Regs, Xsave};
use crate::executor::Executor;
use crate::guest::access;
use crate::host::siginfo::Siginfo;
use crate::host::switch;
use crate::kernel::table::{self, Args};
use crate::kernel::{self, Outcome, outputs, sent, stop};
use crate::memory::{Memory, PAGE, govern};
use crate::{sys, syscall};

impl Executor {
    #[inline]
    pub fn recording(&self) -> bool {
        self.recorder.is_some()
    }

    /// The current thread stands at an event.
    fn arrive(&mut self) -> Arrival {
        let now = self.ticks_now();
        let regs = self.gs.regs;
        let recorder = self.recorder.as_mut().expect("only while recording");
        recorder.arrived += now.saturating_sub(recorder.base);
        recorder.base = now;
        recorder.passed.1 = 0;
        Arrival {
            regs,
            signals: recorder.signals,
        }
    }

    /// The current thread is interrupted: where?
    fn interrupted(&mut self) -> Place {
        self.tell_quiet();
        let steps = self.threads.steps;
        let now = self.ticks_now();
        let recorder = self.recorder.as_mut().expect("only while recording");
        let at = if steps > 0 { recorder.at_budget } else { now };
        let ticks = std::mem::take(&mut recorder.arrived) + at.saturating_sub(recorder.base);
        recorder.base = now;
        recorder.passed.1 = 0;
        self.threads.steps = 0;
        Place { ticks, steps }
    }

    /// A single step made a tick: what follows is counted from here.
    pub(crate) fn note_tick(&mut self) {
        let now = self.ticks_now();
        if let Some(recorder) = &mut self.recorder {
            recorder.at_budget = now;
        }
    }

    /// The budget is used up: if something happens before the next event, it happens from here.
    pub(crate) fn note_budget(&mut self) {
        let now = self.ticks_now();
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        recorder.at_budget = now;
        if recorder.values_wait() {
            let place = self.interrupted();
            self.check(place);
        } else if recorder.check_due() {
            let place = self.interrupted();
            self.full_check(place);
        }
        if self.part_due() {
            let place = self.interrupted();
            self.begin_part(place);
        }
    }

    /// A place at which replay must have these registers and, every now and then, this memory.
    fn full_check(&mut self, place: Place) {
        let registers = checksum(self.gs, &self.memory);
        let recorder = self.recorder.as_mut().expect("only while recording");
        let memory = recorder.checksum_for_check(&self.memory);
        recorder.event(&Event::Check {
            place,
            registers,
            memory,
        });
    }

    /// A place at which replay must have these registers.
    pub(super) fn check(&mut self, place: Place) {
        let registers = checksum(self.gs, &self.memory);
        self.recorder().event(&Event::Check {
            place,
            registers,
            memory: None,
        });
    }

    /// The effects that belong to the event just written: mappings, memory, registers.
    pub(super) fn effects(&mut self, before: Option<&Regs>) {
        self.tell_pieces();
        let changes = self.memory.take_changes();
        let regs = self.gs.regs;
        let recorder = self.recorder.as_mut().expect("only while recording");
        let mut touched = std::mem::take(&mut recorder.touched);
        access::swap_notes(&mut touched);
        for change in &changes.changes {
            recorder.change(change);
        }
        recorder.shared_effects();
        for range in &changes.contents {
            recorder.memory(&self.memory, range.start, range.end - range.start);
        }
        for (addr, len) in touched.drain(..) {
            recorder.memory(&self.memory, addr, len);
        }
        recorder.touched = touched;
        if let Some(before) = before {
            recorder.registers(before, &regs);
        }
        for note in changes.notes {
            if note.warn {
                stop::warn(&note.text);
            }
            recorder.event(&Event::Note(&note.text));
        }
        if std::mem::take(&mut recorder.unsure) {
            recorder.event(&Event::Note(
                "stopped while it wrote to the terminal or a pipe: the order of output may be another here",
            ));
        }
    }

    pub(crate) fn recorder(&mut self) -> &mut Recorder {
        self.recorder.as_mut().expect("only while recording")
    }

    /// Answers the system call of the current thread, and writes down what came of it.
    pub(crate) fn recorded_call(&mut self) {
        let arrival = self.arrive();
        let (nr, args) = call_of(&arrival.regs);
        let thread = self.current().number;
        let mut written = Written {
            ticks: 0,
            nr: nr as u32,
            args,
            end: End::Replaced,
            output: None,
        };
        let goes = match sent::writes(table::lookup(nr), &args) {
            true => self.recorder().standard.goes(args[0] as i32),
            false => None,
        };
        let recorder = self.recorder();
        recorder.call = Some(written);
        recorder.outlet = goes;
        recorder.order = None;
        self.count_call();
        if govern::anybody()
            && let Some((offset, len)) = sent::writes_file(table::lookup(nr), &args)
        {
            self.memory.before_file_write(args[0] as i32, offset, len);
        }
        if sent::kills(table::lookup(nr), &args) && !self.is_spared() {
            self.record_own_kill();
        }
        let outcome = match self.refusal(nr, &args) {
            Some(errno) => Outcome::Return(sys::err(errno)),
            None => kernel::dispatch(self),
        };
        if self.recorder.is_none() {
            return self.settle(&outcome);
        }
        self.recorder().outlet = None;
        if let Some(stream) = self.recorder().after_exec.take() {
            channel::leaves(false);
            if self.kernel.own.in_vfork {
                channel::lend(self.tid());
            }
            self.recorder().child_told = false;
            self.recorder().channel().give_back(stream);
        }
        if std::mem::take(&mut self.recorder().just_forked) {
            self.settle(&outcome);
            self.effects(Some(&arrival.regs));
            return;
        }
        // After a vfork the call is told about already.
        let told = self.recorder().call.take().is_none();
        let ended = self.threads.get(self.threads.current_slot()).is_none();
        written.end = match outcome {
            Outcome::Return(value) => End::Returned(value),
            Outcome::Restart => End::Restarted,
            Outcome::Parked if !ended => End::Waits,
            Outcome::Parked | Outcome::Replaced => End::Replaced,
        };
        let replaced = outcome == Outcome::Replaced;
        if told {
            self.settle(&outcome);
            match outcome {
                Outcome::Return(value) => self.record_resumed(Some(value), None, &arrival.regs),
                Outcome::Restart => self.record_resumed(None, None, &arrival.regs),
                _ => {}
            }
            return;
        }
        if self.recorder().signals != arrival.signals {
            // A signal took its place (a bad frame at sigreturn).
            return;
        }
        let call = table::lookup(nr);
        if let Outcome::Return(value) = outcome {
            if value > 0 {
                let order = self.recorder().order.take();
                written.output = goes.map(|goes| self.output(goes, order));
            }
            outputs::each(call, &args, Some(value), &mut |addr, len| {
                access::note_write(addr, outputs::accessible(addr, len));
            });
            self.note_changed_file(call, &args, value);
        }
        if written.end == End::Waits {
            let in_pieces = self.current().writes.is_some();
            written.output = goes.map(|goes| self.output(goes, in_pieces.then_some(0)));
        }
        self.settle(&outcome);
        written.ticks = self.recorder().take_arrived();
        self.recorder().event(&Event::Call(written));
        // What a call returns is in the event itself.
        let mut expected = arrival.regs;
        if let Outcome::Return(value) = outcome {
            expected.gpr[crate::context::RAX] = value as u64;
        }
        if outcome == Outcome::Restart {
            expected.rip -= 2;
        }
        self.effects((!ended).then_some(&expected));
        if replaced && !ended {
            self.extended_effect();
        }
        self.tell_new_threads();
        if let Some(name) = self.recorder().mark.take() {
            self.record_note(&marks::note(&name));
        }
        if ended {
            self.recorder().event(&Event::EndedThread { thread });
        } else if matches!(written.end, End::Returned(_)) && self.recorder().check_due_after_event()
        {
            self.full_check(Place::default());
        }
        if !ended && matches!(written.end, End::Returned(_)) && self.part_due() {
            self.begin_part(Place::default());
        }
    }

    /// Files that are mapped shared change by writing to them, too.
    fn note_changed_file(&mut self, call: &table::Call, args: &Args, value: i64) {
        if !self.memory.follows_files() {
            return;
        }
        let Some((fd, offset, len)) = sent::changed_file(call, args, value) else {
            return;
        };
        if fd >= 0 {
            return self.memory.file_written(fd, offset, len);
        }
        // SAFETY: the guest's own path, as in the call that has just succeeded; our own descriptor.
        unsafe {
            let fd = syscall!(libc::SYS_open, args[0], libc::O_PATH | libc::O_CLOEXEC);
            if fd >= 0 {
                self.memory.file_written(fd as i32, offset, len);
                syscall!(libc::SYS_close, fd);
            }
        }
    }

    /// An error for a call whose effect a recording couldn't show.
    fn refusal(&mut self, nr: u64, args: &Args) -> Option<i32> {
        let call = table::lookup(nr);
        // Output that never passes through the guest's memory couldn't be shown again; programs go
        // on with read and write.
        let to = sent::moves_data_unseen(call)?;
        self.recorder()
            .standard
            .which(args[to] as i32)
            .map(|_| libc::EINVAL)
    }

    /// The vector state as it is now.
    fn extended_effect(&mut self) {
        let mut area = Xsave::default();
        switch::save_extended(self.gs, &mut area);
        self.recorder().effect(&Effect::Extended(&area.0));
    }

    fn tell_new_threads(&mut self) {
        for slot in std::mem::take(&mut self.recorder().new_threads) {
            let Some(thread) = self.threads.get(slot) else {
                continue;
            };
            let (event, regs) = (
                Event::NewThread {
                    thread: thread.number,
                    tid: thread.tid,
                },
                thread.regs,
            );
            let recorder = self.recorder();
            recorder.event(&event);
            recorder.all_registers(&regs);
        }
    }

    /// Output with the place that was taken for it, or the next.
    fn output(&mut self, goes: Goes, order: Option<u64>) -> Output {
        let order = order.unwrap_or_else(|| self.recorder().channel().next_output());
        Output { to: goes.to, order }
    }

    /// A thread was made, in `slot`.
    pub(crate) fn record_new_thread(&mut self, slot: usize) {
        let mut number = self.threads.begun;
        self.threads.begun += 1;
        if let Some(recorder) = &mut self.recorder {
            number = recorder.thread_number();
            recorder.new_threads.push(slot);
        }
        if let Some(thread) = self.threads.get_mut(slot) {
            thread.number = number;
        }
    }

    /// Executes an instruction for the current thread, and writes down what it answered.
    pub(crate) fn recorded_instruction(&mut self) {
        if self.passed_quietly() {
            return;
        }
        let arrival = self.arrive();
        let done = kernel::emulate::instruction(self);
        if self.recorder().signals != arrival.signals {
            // It faulted instead.
            return;
        }
        let ticks = self.recorder().take_arrived();
        let what = done.what;
        self.recorder().event(&Event::Instruction { ticks, what });
        let before = match done.flags {
            true => told_flags(&arrival.regs, &self.gs.regs),
            false => arrival.regs,
        };
        self.effects(Some(&before));
        if done.x87 {
            self.extended_effect();
        }
    }

    /// The instruction that the current thread stands on has touched memory that was another process's.
    pub(crate) fn record_touch(&mut self, fault: &Fault) {
        self.arrive();
        // One that the engine found where it executed the instruction itself has no place in translated code.
        let touch = match fault.host_pc {
            0 => Touch::Engine,
            _ => Touch::Instruction {
                pc: self.gs.regs.rip,
                page: fault.addr & !(PAGE - 1),
            },
        };
        let recorder = self.recorder();
        let ticks = std::mem::take(&mut recorder.arrived);
        recorder.shared(ticks, touch);
    }

    /// Gives away shared memory that other processes have asked for; the current thread stands at an event or at
    /// the end of a budget.
    pub(crate) fn share(&mut self) {
        if !govern::wanted() || !self.recording() || !self.current_is_runnable() {
            return;
        }
        govern::serve();
        if govern::pending() {
            let place = self.interrupted();
            self.check(place);
            self.recorder().shared_effects();
        }
    }

    /// A handler was entered; `before` were the registers.
    pub(crate) fn record_signal(
        &mut self,
        info: &Siginfo,
        cause: Cause,
        place: Place,
        before: (&Regs, &Xsave),
    ) {
        let signo = info.signo();
        self.recorder().signals += 1;
        let mut place = place;
        if govern::pending() {
            // Its frame is in shared memory, which came first.
            let at = std::mem::take(&mut place);
            let registers = checksum_of(before.0, before.1, &self.memory);
            self.recorder().event(&match cause {
                Cause::Fault => Event::Shared {
                    ticks: at.ticks,
                    touch: Touch::Engine,
                },
                Cause::Outside => Event::Check {
                    place: at,
                    registers,
                    memory: None,
                },
            });
            self.recorder().shared_effects();
        }
        self.recorder().event(&Event::Signal {
            place,
            cause,
            signo,
            info: &info.0,
        });
        self.recorder().effect(&Effect::Extended(&[]));
        // The flags that the handler finds may be spoiled, and in replay spoiled otherwise.
        let before = told_flags(before.0, &self.gs.regs);
        self.effects(Some(&before));
    }

    /// Where a signal that is about to be delivered finds the current thread.
    pub(crate) fn signal_place(&mut self, cause: Cause) -> Place {
        if cause == Cause::Outside {
            return self.interrupted();
        }
        self.arrive();
        Place {
            ticks: self.recorder().take_arrived(),
            steps: 0,
        }
    }

    /// A signal wasn't delivered after all: the place is still to be told.
    pub(crate) fn unplace(&mut self, place: Place) {
        self.threads.steps = place.steps;
        let recorder = self.recorder();
        recorder.arrived = place.ticks;
        recorder.at_budget = recorder.base;
    }

    /// The current thread is about to give way to the one in `next`.
    pub(crate) fn record_switch(&mut self, next: usize) {
        if self.recorder.is_none() {
            return;
        }
        let place = if self.threads.get(self.threads.current_slot()).is_some() {
            self.interrupted()
        } else {
            Place::default()
        };
        let Some(to) = self.threads.get(next).map(|thread| thread.number) else {
            return;
        };
        self.recorder().event(&Event::Switched { place, to });
    }

    /// Memory that the engine changed by itself, not for a call: before the guest goes on, it becomes
    /// the effect of an event of its own.
    pub(crate) fn record_loose_effects(&mut self) {
        if self.recording() && (access::any_notes() || govern::pending()) {
            let place = self.interrupted();
            self.check(place);
            self.effects(None);
        }
    }

    /// The call under way names this place; to be written down behind it.
    pub(crate) fn record_mark(&mut self, name: String) {
        if let Some(recorder) = &mut self.recorder {
            recorder.mark = Some(name);
        }
    }

    /// Something for people to know.
    pub(crate) fn record_note(&mut self, text: &str) {
        if let Some(recorder) = &mut self.recorder {
            recorder.event(&Event::Note(text));
        }
    }

    /// Nobody can ever go on.
    pub(crate) fn record_deadlock(&mut self, waiters: Vec<Waiter>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.event(&Event::Deadlock(waiters));
        }
    }

    /// Another thread has become current.
    pub(crate) fn note_switched(&mut self) {
        let now = self.ticks_now();
        if let Some(recorder) = &mut self.recorder {
            recorder.base = now;
            recorder.at_budget = now;
            recorder.passed.1 = 0;
        }
    }

    /// The waiting call of the current thread has ended, perhaps by another thread's doing; `before` were the registers.
    pub(crate) fn record_resumed(&mut self, result: Option<i64>, by: Option<u32>, before: &Regs) {
        self.recorder().event(&Event::Resumed { result, by });
        if let Some(value) = result {
            let (nr, args) = call_of(before);
            self.note_changed_file(table::lookup(nr), &args, value);
        }
        let mut expected = *before;
        match result {
            Some(value) => expected.gpr[crate::context::RAX] = value as u64,
            None => expected.rip -= 2,
        }
        self.effects(Some(&expected));
    }

    /// A checksum of everything, for the replay to compare with.
    pub(super) fn final_check(&mut self) {
        if self.options.pages {
            show_pages(&self.memory);
        }
        let registers = checksum(self.gs, &self.memory);
        let memory = Some(self.memory.checksum());
        let place = Place::default();
        self.recorder().event(&Event::Check {
            place,
            registers,
            memory,
        });
    }
}

/// Registers as they were before, but for the flags, which count as changed: they may have been spoiled before, and
/// comparing tells nothing.
fn told_flags(before: &Regs, now: &Regs) -> Regs {
    Regs {
        rflags: !now.rflags,
        ..*before
    }
}

/// Number and arguments of a call, by the registers before it.
fn call_of(regs: &Regs) -> (u64, Args) {
    use crate::context::{R8, R9, R10, RAX, RDI, RDX, RSI};
    let gpr = &regs.gpr;
    let args = [gpr[RDI], gpr[RSI], gpr[RDX], gpr[R10], gpr[R8], gpr[R9]];
    (gpr[RAX], args)
}

/// For finding out which page differs: the checksums of all of them.
pub fn show_pages(memory: &Memory) {
    memory.page_sums(&mut |addr, sum| {
        let mapping = memory.find(addr).map(|mapping| mapping.backing);
        eprintln!("clew: page {addr:#x} {sum:016x} {mapping:?}");
    });
}

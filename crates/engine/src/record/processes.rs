//! The ends and beginnings of recorded processes: start, exec, fork, vfork, exit, death.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use clew_recording::channel::{self, Finished, Producer};
use clew_recording::event::{Cause, Effect, End, Event, Origin, Place, Start, StreamId};

use crate::executor::Executor;
use crate::guest::access;
use crate::host::time;
use crate::kernel::stop;
use crate::memory::govern;
use crate::memory::mapping::PAGE;
use crate::{sys, syscall};

impl Executor {
    /// The process ends by `exit_group`.
    pub(crate) fn record_exit(&mut self, status: i32) {
        if self.recorder.is_none() {
            return;
        }
        if self.kernel.own.in_vfork {
            // The stream is the parent's and goes on.
            self.record_last_call();
            self.recorder().child_told = true;
            return;
        }
        let ticks = self.recorder().take_arrived();
        self.recorder().event(&Event::Exited { ticks, status });
        self.effects(None);
        self.final_check();
        self.recorder().finish(Finished::Ended);
    }

    /// The call under way won't return.
    fn record_last_call(&mut self) {
        if let Some(mut call) = self.recorder().call.take() {
            call.ticks = self.recorder().take_arrived();
            self.recorder().event(&Event::Call(call));
            self.effects(None);
        }
    }

    /// The call under way kills this very process by SIGKILL: of that nothing could be told afterwards.
    pub(crate) fn record_own_kill(&mut self) {
        if self.recorder.is_none() {
            return;
        }
        self.record_last_call();
        if self.kernel.own.in_vfork {
            self.recorder().child_told = true;
            return;
        }
        self.recorder().event(&Event::Killed {
            place: Place::default(),
            cause: Cause::Outside,
            signo: libc::SIGKILL,
        });
        self.final_check();
        self.recorder().finish(Finished::Ended);
    }

    /// The process is about to die by a signal.
    pub(crate) fn record_death(&mut self, signo: i32, cause: Cause) {
        if self.recorder.is_none() {
            return;
        }
        let place = self.signal_place(cause);
        self.recorder().event(&Event::Killed {
            place,
            cause,
            signo,
        });
        if self.kernel.own.in_vfork {
            self.recorder().child_told = true;
            return;
        }
        self.final_check();
        self.recorder().finish(Finished::Ended);
    }

    /// Before a fork: the stream of the child.
    pub(crate) fn record_before_fork(&mut self) -> Option<StreamId> {
        let recorder = self.recorder.as_mut()?;
        // They belong to the parent's stream, and the child has a copy.
        recorder.flush_values();
        // An error means that nothing is recorded any more.
        recorder.reserve().ok()
    }

    /// Right before the fork: its place.
    pub(crate) fn record_forks(&mut self, stream: Option<StreamId>) -> u64 {
        match stream {
            Some(stream) => self.recorder().forks(stream),
            None => 0,
        }
    }

    /// In the parent, after the fork, `ticks` being its place.
    pub(crate) fn record_forked(&mut self, stream: Option<StreamId>, ticks: u64, pid: i64) {
        let Some(stream) = stream else {
            return;
        };
        let channel = *self.recorder().channel();
        if sys::is_err(pid) {
            channel.give_back(stream);
            self.recorder().arrived = ticks;
            return;
        }
        channel.expect(stream, pid as i32);
        self.recorder().forked(&Event::Forked {
            ticks,
            stream,
            pid: pid as i32,
        });
    }

    /// In the child of a fork.
    pub(crate) fn record_as_child(&mut self, stream: Option<StreamId>) {
        if self.recorder.is_none() {
            return;
        }
        let start = self.start_event();
        let fd = self.kernel.own.hidden.recording;
        let Some(stream) = stream else {
            // Nothing is being recorded any more.
            Producer::forget();
            govern::isnt_recorded();
            self.recorder().lost();
            return self.stop_recording();
        };
        if let Err(error) = self.recorder().become_child(stream, start, fd) {
            Producer::forget();
            let channel = *self.recorder().channel();
            let shares = govern::isnt_recorded();
            let errno = error.raw_os_error().unwrap_or(libc::EPIPE);
            channel.give_up(stream, errno, shares);
            let pid = self.gs.hub.pid.load(Ordering::Relaxed);
            let more = if shares {
                "; what it writes to memory that it shares with recorded processes isn't either"
            } else {
                ""
            };
            stop::warn(&format!("process {pid} isn't recorded: {error}{more}"));
            self.stop_recording();
        }
    }

    /// This process goes on in the live world: nothing is written any more.
    fn stop_recording(&mut self) {
        self.recorder = None;
        self.memory.forget_changes();
        access::drop_notes();
        time::live(self.gs);
    }

    /// Who this process is; origin and time are for the recorder to fill in.
    pub(crate) fn start_event(&self) -> Start {
        // SAFETY: ids touch no memory.
        let (pid, parent) = unsafe { (syscall!(libc::SYS_getpid), syscall!(libc::SYS_getppid)) };
        let argv = self.program.argv.iter().map(|arg| arg.to_bytes().to_vec());
        Start {
            origin: Origin::Exec { before: 0 },
            pid: pid as i32,
            parent_pid: parent as i32,
            tid: self.tid(),
            exe: self.program.exe.as_os_str().as_bytes().to_vec(),
            argv: argv.collect(),
            time: 0,
        }
    }

    /// Before a vfork: the parent waits, and its child runs in the same stream as another thread.
    pub(crate) fn record_vfork(&mut self) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let Some(mut call) = recorder.call.take() else {
            return;
        };
        call.ticks = recorder.take_arrived();
        call.end = End::Waits;
        recorder.event(&Event::Call(call));
    }

    /// First thing in the child of a vfork, its registers set.
    pub(crate) fn record_vfork_child(&mut self) {
        if self.recorder.is_none() {
            return;
        }
        let thread = self.recorder().thread_number();
        let current = self.current();
        current.number = thread;
        let tid = current.tid;
        let regs = self.gs.regs;
        let recorder = self.recorder();
        recorder.child_told = false;
        recorder.vforks.push(thread);
        recorder.event(&Event::NewThread { thread, tid });
        recorder.all_registers(&regs);
        recorder.event(&Event::Switched {
            place: Place::default(),
            to: thread,
        });
        self.note_switched();
        self.effects(None);
        govern::on_this_thread();
        channel::lend(tid);
    }

    /// In the parent, when the child of its vfork has gone.
    pub(crate) fn record_vfork_over(&mut self, result: i64) {
        if self.recorder.is_none() {
            return;
        }
        govern::on_this_thread();
        govern::unpark();
        // Whatever the child said of its own end.
        channel::leaves(false);
        channel::lend(0);
        let parent = self.current().number;
        let recorder = self.recorder();
        recorder.arrived = 0;
        recorder.outlet = None;
        // What the child did last is told, or died with it.
        recorder.call = None;
        recorder.after_exec = None;
        let killed = !sys::is_err(result) && !std::mem::take(&mut recorder.child_told);
        if killed {
            recorder.drop_values();
        }
        if !sys::is_err(result) {
            if let Some(thread) = recorder.vforks.pop() {
                recorder.event(&Event::EndedThread { thread });
            }
            recorder.event(&Event::Switched {
                place: Place::default(),
                to: parent,
            });
        }
        self.note_switched();
        if killed {
            self.record_remains();
        }
    }

    /// The child of a vfork was killed, and what it did to this process's memory since its last event is known to
    /// nobody: all of that memory is written down.
    fn record_remains(&mut self) {
        let mut pages = Vec::new();
        let memory = &self.memory;
        memory.page_sums(&mut |page, _| {
            if memory.find(page).is_some_and(|m| m.can(libc::PROT_WRITE)) {
                pages.push(page);
            }
        });
        self.effects(None);
        for page in pages {
            let recorder = self.recorder.as_mut().expect("only while recording");
            recorder.memory(&self.memory, page, PAGE);
        }
        self.record_note("the child of a vfork was killed: all memory is written down");
    }

    /// The program is loaded and about to run.
    pub(crate) fn record_start(&mut self, before: StreamId) {
        if self.recorder.is_none() {
            return;
        }
        let mut start = self.start_event();
        start.origin = Origin::Exec { before };
        start.time = self.recorder().channel().elapsed();
        let regs = self.gs.regs;
        self.note_stack();
        self.recorder().event(&Event::Started(start));
        self.effects(None);
        self.recorder().all_registers(&regs);
        self.recorder().effect(&Effect::Extended(&[]));
        if before != 0 {
            self.recorder().end_other(before);
        }
    }

    /// The stream that the program to be started will have.
    pub(crate) fn stream_after_exec(&mut self) -> Option<StreamId> {
        let recorder = self.recorder.as_mut()?;
        let stream = recorder.reserve().ok()?;
        // SAFETY: an id touches no memory.
        let pid = unsafe { syscall!(libc::SYS_getpid) };
        recorder.channel().expect(stream, pid as i32);
        recorder.after_exec = Some(stream);
        Some(stream)
    }

    /// An exec is about to be tried.
    pub(crate) fn record_exec(&mut self) {
        if self.recorder.is_none() {
            return;
        }
        let ticks = self.recorder().take_arrived();
        self.recorder().event(&Event::Exec { ticks });
        self.recorder().child_told = true;
        match self.kernel.own.in_vfork {
            true => channel::lend(0),
            false => channel::leaves(true),
        }
    }
}

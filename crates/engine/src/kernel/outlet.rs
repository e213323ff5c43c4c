//! Calls that write to the standard output or error of a recording, in an order that a replay can keep.
//!
//! In: a call that writes there. Out: its outcome, and the place of what it wrote among all outputs.
//!
//! Recorded processes write to such a file one at a time ([`clew_recording::outlet`]), and nobody waits for
//! room while others wait for their turn: a call is made in a form that can't wait. What doesn't fit goes out
//! in pieces, each with a place of its own; in between, the call waits for room as any other does.

use clew_recording::event::{Effect, End, Event, Output};
use clew_recording::outlet::Written;

use super::scratch::Scratch;
use super::table::{Args, Call, Wait};
use super::waits::{self, ATOMIC, Vectors};
use super::{Outcome, direct, sent};
use crate::executor::Executor;
use crate::memory::govern;
use crate::record::Goes;
use crate::sys::{self, err};
use crate::syscall;

/// So often in a row there may be room that turns out to be too little, before the call is left to wait by itself.
const DECEPTIONS: u32 = 3;

/// A write under way.
#[derive(Clone, Copy)]
struct Writing {
    call: &'static Call,
    args: Args,
    goes: Goes,
    /// Bytes that have gone out.
    done: u64,
    /// It has waited: whatever goes out is a piece.
    waited: bool,
    deceived: u32,
}

/// What a try came to.
enum Tried {
    /// The guest's result.
    Over(i64),
    /// The rest must wait for room.
    NoRoom,
}

pub fn make(ex: &mut Executor, call: &'static Call, args: &Args, goes: Goes) -> Outcome {
    let mut writing = Writing {
        call,
        args: *args,
        goes,
        done: 0,
        waited: false,
        deceived: 0,
    };
    match call.wait {
        Wait::Write => match writing.attempt(ex) {
            Tried::Over(value) => Outcome::Return(value),
            Tried::NoRoom if ex.multi_threaded() => {
                writing.park(ex);
                Outcome::Parked
            }
            Tried::NoRoom => writing.wait(ex),
        },
        // Messages to a socket: made as a whole. With several threads they would hold up all of them.
        _ if ex.multi_threaded() && !matches!(call.wait, Wait::Never) => {
            waits::make(ex, call, args)
        }
        _ => writing.whole(ex),
    }
}

impl Writing {
    /// Makes the call in one piece, even if it waits.
    fn whole(&self, ex: &mut Executor) -> Outcome {
        let mut outcome = Outcome::Restart;
        let written = self.in_turn(ex, |ex| {
            outcome = match self.call.wait {
                Wait::Never => Outcome::Return(direct(ex, self.call, &self.args)),
                _ => waits::make(ex, self.call, &self.args),
            };
            match outcome {
                Outcome::Return(value) => value,
                _ => 0,
            }
        });
        ex.recorder().order = written.order;
        outcome
    }

    /// Writes what there is room for.
    fn attempt(&mut self, ex: &mut Executor) -> Tried {
        let mut fits = false;
        let written = self.in_turn(ex, |ex| {
            let (value, all) = self.some(ex);
            fits = all;
            value
        });
        match written.value {
            AGAIN if !fits => {
                self.deceived += 1;
                Tried::NoRoom
            }
            value if sys::is_err(value) && self.done > 0 => Tried::Over(self.done as i64),
            value if sys::is_err(value) => Tried::Over(value),
            value => {
                self.deceived = 0;
                let first = self.done == 0 && !self.waited;
                self.done += value as u64;
                let over = fits || self.done >= self.bytes();
                if over && first {
                    ex.recorder().order = written.order;
                } else if let Some(order) = written.order {
                    ex.recorder().pieces.push((order, value as u64));
                }
                if over {
                    Tried::Over(self.done as i64)
                } else {
                    Tried::NoRoom
                }
            }
        }
    }

    /// Calls `write` while no other process writes there.
    fn in_turn(&self, ex: &mut Executor, write: impl FnOnce(&mut Executor) -> i64) -> Written {
        // Not inside: whoever has the pages may wait for its turn here.
        if govern::active() {
            govern::acquire_all(&Scratch::ranges(ex, self.call, &self.args));
        }
        let channel = *ex.recorder().channel();
        let written = channel.write_to(self.goes.outlet, || write(ex));
        ex.recorder().unsure |= written.unsure;
        written
    }

    /// A part of what is left, without waiting; and whether nothing is left to wait for, whatever came of it.
    fn some(&self, ex: &mut Executor) -> (i64, bool) {
        let fd = self.args[0] as i32;
        if waits::is_nonblocking(fd) || !waits::may_wait(fd) {
            return match self.done {
                0 => (direct(ex, self.call, &self.args), true),
                _ => (self.rest(fd, u64::MAX), true),
            };
        }
        if self.deceived > DECEPTIONS {
            return (self.rest(fd, u64::MAX), true);
        }
        let value = match self.done {
            0 => Vectors::of(self.call, &self.args).make(libc::SYS_pwritev2, fd),
            _ => self.rest_now(fd),
        };
        if value != err(libc::EOPNOTSUPP) && value != err(libc::EFAULT) {
            return (value, false);
        }
        // Some files don't know how to write without waiting.
        if !waits::is_ready(fd, libc::POLLOUT) {
            return (AGAIN, false);
        }
        let small = self.bytes() <= ATOMIC;
        // A terminal takes a call as a whole, from one process after the other, by itself.
        if self.done == 0 && (small || !ex.multi_threaded() && waits::is_device(fd)) {
            return (direct(ex, self.call, &self.args), true);
        }
        (self.rest(fd, ATOMIC), false)
    }

    fn bytes(&self) -> u64 {
        Vectors::of(self.call, &self.args).bytes()
    }

    /// The guest's buffers from `done` on, at most `most` bytes.
    fn left(&self, most: u64) -> Vec<[u64; 2]> {
        let all = sent::written_bytes(self.call, &self.args, i64::MAX).unwrap_or_default();
        let (mut skip, mut most) = (self.done, most);
        let mut left = Vec::new();
        for (addr, len) in all {
            let skipped = skip.min(len);
            skip -= skipped;
            let take = (len - skipped).min(most);
            most -= take;
            if take > 0 {
                left.push([addr + skipped, take]);
            }
        }
        left
    }

    fn rest(&self, fd: i32, most: u64) -> i64 {
        let left = self.left(most);
        // SAFETY: the guest's own buffers, as in the call it asked for.
        unsafe { syscall!(libc::SYS_writev, fd, left.as_ptr(), left.len()) }
    }

    fn rest_now(&self, fd: i32) -> i64 {
        let left = self.left(u64::MAX);
        Vectors::Many(left.as_ptr() as u64, left.len() as u64).make(libc::SYS_pwritev2, fd)
    }

    /// Waits for room and writes, until all is written: the only thread there is.
    fn wait(mut self, ex: &mut Executor) -> Outcome {
        self.waited = true;
        ex.tell_output_waits(self.goes.to);
        loop {
            ex.tell_pieces();
            let poll = self.poll();
            let ended = ex.wait_for_room(&poll);
            if ended.aborted != 0 || ended.value == err(libc::EINTR) {
                return match self.done {
                    0 if ended.aborted != 0 || ex.interrupted_call_restarts() => Outcome::Restart,
                    0 => Outcome::Return(err(libc::EINTR)),
                    done => Outcome::Return(done as i64),
                };
            }
            if let Tried::Over(value) = self.attempt(ex) {
                ex.tell_pieces();
                return Outcome::Return(value);
            }
        }
    }

    /// The current thread waits for room, and others run meanwhile.
    fn park(mut self, ex: &mut Executor) {
        self.waited = true;
        let poll = Box::new(self.poll());
        let args = [&raw const *poll as u64, 1, u64::MAX, 0, 0, 0];
        ex.park_for_room(
            args,
            self.done,
            Box::new(move |ex, _| {
                drop(poll);
                match self.attempt(ex) {
                    Tried::Over(value) => value,
                    Tried::NoRoom => {
                        // While it is the current thread: whose pieces they are isn't told.
                        ex.tell_pieces();
                        self.park(ex);
                        0
                    }
                }
            }),
        );
    }

    fn poll(&self) -> libc::pollfd {
        libc::pollfd {
            fd: self.args[0] as i32,
            events: libc::POLLOUT,
            revents: 0,
        }
    }
}

const AGAIN: i64 = err(libc::EAGAIN);

impl Executor {
    /// The call under way, which writes, has to wait: what was written so far and what will be follows.
    fn tell_output_waits(&mut self, to: u8) {
        let ticks = self.recorder().take_arrived();
        if let Some(mut call) = self.recorder().call.take() {
            call.ticks = ticks;
            call.end = End::Waits;
            call.output = Some(Output { to, order: 0 });
            self.recorder().event(&Event::Call(call));
        }
    }

    /// Pieces that have gone out, as effects of the last event.
    pub(crate) fn tell_pieces(&mut self) {
        let recorder = self.recorder();
        for (order, bytes) in std::mem::take(&mut recorder.pieces) {
            recorder.effect(&Effect::Output { order, bytes });
        }
    }
}

//! The `futex` system call.

use super::time::{self, Kind};
use super::wake_op::WakeOp;
use crate::executor::Executor;
use crate::guest::access::{self, Fault};
use crate::guest::threads::{Finish, Restart, State, Wake};
use crate::kernel::Outcome;
use crate::memory::govern;
use crate::sys::err;

pub const ANY: u32 = !0;

/// Arguments of a futex call, named.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub op: i32,
    pub word: u64,
    pub value: u32,
    /// A timeout's address, or a second count.
    pub timeout: u64,
    pub word2: u64,
    pub value3: u32,
    /// The clock of an absolute timeout.
    pub clock: libc::clockid_t,
}

pub fn sys_futex(ex: &mut Executor, args: [u64; 6]) -> Outcome {
    let op = args[1] as i32;
    let command = op & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let shared = op & libc::FUTEX_PRIVATE_FLAG == 0
        && (ex.is_shared(args[0]) || (uses_second_word(command) && ex.is_shared(args[4])));
    if !ex.multi_threaded() || shared {
        return in_kernel(ex, command, args);
    }
    let realtime = op & libc::FUTEX_CLOCK_REALTIME != 0;
    let call = Call {
        op: command,
        word: args[0],
        value: args[2] as u32,
        timeout: args[3],
        word2: args[4],
        value3: args[5] as u32,
        clock: if realtime {
            libc::CLOCK_REALTIME
        } else {
            libc::CLOCK_MONOTONIC
        },
    };
    if !call.word.is_multiple_of(4) || (uses_second_word(command) && !call.word2.is_multiple_of(4))
    {
        return Outcome::Return(err(libc::EINVAL));
    }
    ex.emulate_futex(call, realtime)
        .unwrap_or_else(Outcome::Return)
}

fn uses_second_word(command: i32) -> bool {
    matches!(
        command,
        libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE | libc::FUTEX_WAKE_OP
    )
}

/// The kernel's own futexes.
fn in_kernel(ex: &mut Executor, command: i32, mut args: [u64; 6]) -> Outcome {
    let mut finish = None;
    if govern::active() {
        finish = after_wait(args[0]);
        args = on_governed_memory(ex, command, args);
    }
    match command {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_LOCK_PI | LOCK_PI2 => {
            ex.call_blocking_then(libc::SYS_futex, args, finish)
        }
        // Two system calls in one, with a wait in the middle: nobody uses them any more.
        libc::FUTEX_WAIT_REQUEUE_PI | libc::FUTEX_CMP_REQUEUE_PI => {
            Outcome::Return(err(libc::ENOSYS))
        }
        // The owner of a PI futex is the calling kernel thread.
        _ => Outcome::Return(ex.call_on_proxy(libc::SYS_futex, args)),
    }
}

/// When the owner of a robust lock is killed the kernel itself marks the lock, whosever the page is, and
/// wakes one who waits: what that one finds is written down.
fn after_wait(word: u64) -> Option<Finish> {
    govern::governs(&(word..word.saturating_add(4))).then(|| -> Finish {
        Box::new(move |_, value| {
            govern::acquire_all(&[(word, 4)]);
            access::note_write(word, 4);
            value
        })
    })
}

/// A word in memory that is shared with other recorded processes may be theirs at the moment, but the kernel
/// must always see it. What the kernel writes must be this process's.
fn on_governed_memory(ex: &mut Executor, command: i32, mut args: [u64; 6]) -> [u64; 6] {
    if matches!(
        command,
        libc::FUTEX_LOCK_PI | LOCK_PI2 | libc::FUTEX_TRYLOCK_PI | libc::FUTEX_UNLOCK_PI
    ) && govern::governs(&(args[0]..args[0].saturating_add(4)))
    {
        let text =
            "a priority-inheriting lock is shared between processes: it isn't recorded exactly";
        ex.memory.note(text.into(), true);
        govern::acquire_all(&[(args[0], 4)]);
    }
    if command == libc::FUTEX_WAKE_OP {
        govern::acquire_all(&[(args[4], 4)]);
        access::note_write(args[4], 4);
    }
    args[0] = govern::alias(args[0]);
    if uses_second_word(command) {
        args[4] = govern::alias(args[4]);
    }
    args
}

pub(super) const LOCK_PI2: i32 = 13;

pub(super) fn word(at: u64) -> Result<u32, i64> {
    access::read::<u32>(at).map_err(|Fault| Fault::ERRNO)
}

impl Executor {
    fn emulate_futex(&mut self, call: Call, realtime: bool) -> Result<Outcome, i64> {
        let returns = |count: usize| Ok(Outcome::Return(count as i64));
        match call.op {
            libc::FUTEX_WAIT if realtime => Err(err(libc::ENOSYS)),
            libc::FUTEX_WAIT => {
                let deadline = time::deadline(call.timeout, Kind::Relative)?;
                self.futex_wait(call.word, call.value, ANY, deadline)
            }
            libc::FUTEX_WAIT_BITSET => {
                let deadline = time::deadline(call.timeout, Kind::Absolute(call.clock))?;
                self.futex_wait(call.word, call.value, call.value3, deadline)
            }
            libc::FUTEX_WAKE => {
                word(call.word)?;
                returns(self.futex_wake(call.word, at_least_one(call.value), ANY))
            }
            libc::FUTEX_WAKE_BITSET if call.value3 == 0 => Err(err(libc::EINVAL)),
            libc::FUTEX_WAKE_BITSET => {
                word(call.word)?;
                returns(self.futex_wake(call.word, at_least_one(call.value), call.value3))
            }
            libc::FUTEX_REQUEUE => self.futex_requeue(call, None),
            libc::FUTEX_CMP_REQUEUE => self.futex_requeue(call, Some(call.value3)),
            libc::FUTEX_WAKE_OP => self.futex_wake_op(call),
            libc::FUTEX_LOCK_PI => {
                let deadline = time::deadline(call.timeout, Kind::Absolute(libc::CLOCK_REALTIME))?;
                self.lock_pi(call.word, deadline)
            }
            LOCK_PI2 => {
                let deadline = time::deadline(call.timeout, Kind::Absolute(call.clock))?;
                self.lock_pi(call.word, deadline)
            }
            libc::FUTEX_TRYLOCK_PI => self.trylock_pi(call.word),
            libc::FUTEX_UNLOCK_PI => self.unlock_pi(call.word),
            _ => Err(err(libc::ENOSYS)),
        }
    }

    fn futex_wait(
        &mut self,
        at: u64,
        value: u32,
        bitset: u32,
        deadline: Option<u64>,
    ) -> Result<Outcome, i64> {
        if bitset == 0 {
            return Err(err(libc::EINVAL));
        }
        if word(at)? != value {
            return Err(err(libc::EAGAIN));
        }
        let slot = self.threads.current_slot();
        let rank = self.own_rank();
        self.threads.futexes.wait(at, slot, bitset, rank);
        let restartable = if deadline.is_some() {
            Restart::Never
        } else {
            Restart::Flagged
        };
        self.park_on_futex(restartable, deadline);
        Ok(Outcome::Parked)
    }

    /// Parks the current thread, which stands in a queue.
    pub(super) fn park_on_futex(&mut self, restartable: Restart, deadline: Option<u64>) {
        let slot = self.threads.current_slot();
        self.current().state = State::OnFutex { restartable };
        if let Some(deadline) = deadline {
            self.set_timer(slot, deadline);
        }
    }

    /// Wakes waiters of a word; how many.
    pub fn futex_wake(&mut self, at: u64, count: usize, bitset: u32) -> usize {
        self.mix_waiters(at);
        let woken = self.threads.futexes.wake(at, count, bitset);
        let by = self.current().number;
        for &slot in &woken {
            self.wake(
                slot,
                Wake {
                    value: 0,
                    aborted: false,
                    by: Some(by),
                },
                false,
            );
        }
        woken.len()
    }

    /// What the kernel does with a word that it has cleared or marked at a thread's end.
    pub fn wake_after_exit(&mut self, at: u64) {
        if self.is_shared(at) || !self.multi_threaded() {
            // SAFETY: wakes one waiter of a word, in this process or another.
            unsafe {
                crate::syscall!(libc::SYS_futex, govern::alias(at), libc::FUTEX_WAKE, 1);
            }
        }
        self.futex_wake(at, 1, ANY);
    }

    /// A signal or a timeout ends a thread's wait: out of its queue.
    pub fn leave_futex(&mut self, slot: usize) {
        self.threads.futexes.leave(slot);
        self.leave_pi(slot);
    }

    fn futex_requeue(&mut self, call: Call, expected: Option<u32>) -> Result<Outcome, i64> {
        let (wake, move_on) = (call.value as i32, call.timeout as i32);
        if wake < 0 || move_on < 0 {
            return Err(err(libc::EINVAL));
        }
        let now = word(call.word)?;
        word(call.word2)?;
        if expected.is_some_and(|expected| expected != now) {
            return Err(err(libc::EAGAIN));
        }
        let woken = self.futex_wake(call.word, wake as usize, ANY);
        let moved = self
            .threads
            .futexes
            .requeue(call.word, call.word2, move_on as usize);
        Ok(Outcome::Return((woken + moved) as i64))
    }

    fn futex_wake_op(&mut self, call: Call) -> Result<Outcome, i64> {
        let op = WakeOp(call.value3);
        let old = word(call.word2)?;
        let new = op.apply(old).ok_or(err(libc::ENOSYS))?;
        let second = op.compare(old).ok_or(err(libc::ENOSYS))?;
        self.write_guest(call.word2, &new.to_le_bytes())
            .map_err(|Fault| Fault::ERRNO)?;
        let mut woken = self.futex_wake(call.word, at_least_one(call.value), ANY);
        if second {
            woken += self.futex_wake(call.word2, at_least_one(call.timeout as u32), ANY);
        }
        Ok(Outcome::Return(woken as i64))
    }
}

/// The kernel wakes one waiter even when asked for none (or for a negative number).
fn at_least_one(count: u32) -> usize {
    (count as i32).max(1) as usize
}

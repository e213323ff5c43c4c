//! Priority-inheriting futexes. The word holds the owner's tid; the kernel, here the engine, writes
//! it when a lock with waiters changes hands. (There are no priorities among guest threads on one
//! executor: first come, first served.)

use super::calls::{ANY, word};
use crate::executor::Executor;
use crate::guest::access::Fault;
use crate::guest::threads::{Restart, Wake};
use crate::kernel::Outcome;
use crate::sys::err;

const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const TID: u32 = 0x3fff_ffff;

impl Executor {
    fn put_word(&mut self, at: u64, value: u32) -> Result<(), i64> {
        self.write_guest(at, &value.to_le_bytes())
            .map_err(|Fault| Fault::ERRNO)
    }

    /// Takes a free lock: true; false if somebody has it.
    fn take_pi(&mut self, at: u64) -> Result<bool, i64> {
        let value = word(at)?;
        let tid = self.tid() as u32;
        if value & TID == tid {
            return Err(err(libc::EDEADLK));
        }
        if value & TID == 0 {
            let waiters = if self.threads.pi.waiters(at) != 0 {
                WAITERS
            } else {
                0
            };
            self.put_word(at, tid | (value & OWNER_DIED) | waiters)?;
            return Ok(true);
        }
        if self.threads.slot_of((value & TID) as i32).is_none() {
            return Err(err(libc::ESRCH));
        }
        Ok(false)
    }

    pub(super) fn lock_pi(&mut self, at: u64, deadline: Option<u64>) -> Result<Outcome, i64> {
        if self.take_pi(at)? {
            return Ok(Outcome::Return(0));
        }
        let value = word(at)?;
        self.put_word(at, value | WAITERS)?;
        let slot = self.threads.current_slot();
        let rank = self.own_rank();
        self.threads.pi.wait(at, slot, ANY, rank);
        self.park_on_futex(Restart::Always, deadline);
        Ok(Outcome::Parked)
    }

    pub(super) fn trylock_pi(&mut self, at: u64) -> Result<Outcome, i64> {
        if self.take_pi(at)? {
            Ok(Outcome::Return(0))
        } else {
            Err(err(libc::EAGAIN))
        }
    }

    pub(super) fn unlock_pi(&mut self, at: u64) -> Result<Outcome, i64> {
        if word(at)? & TID != self.tid() as u32 {
            return Err(err(libc::EPERM));
        }
        self.hand_over(at, 0)?;
        Ok(Outcome::Return(0))
    }

    /// Gives a lock to its first waiter, or frees it. `died` is OWNER_DIED if the owner is gone.
    fn hand_over(&mut self, at: u64, died: u32) -> Result<(), i64> {
        let Some(slot) = self.threads.pi.wake(at, 1, ANY).pop() else {
            return self.put_word(at, died);
        };
        let tid = self.threads.get(slot).map_or(0, |thread| thread.tid) as u32;
        self.put_word(at, tid | WAITERS | died)?;
        let by = self.current().number;
        self.wake(
            slot,
            Wake {
                value: 0,
                aborted: false,
                by: Some(by),
            },
            false,
        );
        Ok(())
    }

    /// A thread stops waiting. The word keeps its waiters bit: the next unlock comes to us and
    /// finds nobody.
    pub(super) fn leave_pi(&mut self, slot: usize) {
        self.threads.pi.leave(slot);
    }

    /// A thread ends: locks with waiters that it still holds go to the first of them.
    pub fn release_pi(&mut self, slot: usize) {
        let tid = self.threads.get(slot).map_or(0, |thread| thread.tid) as u32;
        for at in self.threads.pi.words() {
            // On a robust list it was marked already and has no owner any more.
            let owned = word(at)
                .is_ok_and(|value| value & TID == tid || value & (TID | OWNER_DIED) == OWNER_DIED);
            if owned {
                // A word that can't be written belongs to memory that is gone, like its lock.
                let _ = self.hand_over(at, OWNER_DIED);
            }
        }
    }
}

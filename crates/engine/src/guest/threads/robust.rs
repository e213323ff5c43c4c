//! Robust lists: the futexes that a thread holds when it ends.
//!
//! They are released in the thread's own turn, at a point that a replay can reach again; the
//! kernel releases those of a process that is killed.

use super::Thread;
use crate::executor::Executor;
use crate::guest::access;

const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const TID_MASK: u32 = 0x3fff_ffff;
/// The kernel's bound on the list's length.
const LIMIT: usize = 2048;
/// Futex words of entries are near their list nodes; bit 0 of a link marks a PI futex.
const PI: u64 = 1;

impl Executor {
    /// Marks all futexes on the list of `slot` as abandoned and wakes a waiter of each.
    pub(super) fn release_robust(&mut self, slot: usize) {
        let Some(&Thread {
            robust_list: head,
            tid,
            ..
        }) = self.threads.get(slot)
        else {
            return;
        };
        if head == 0 {
            return;
        }
        let Ok([first, offset, pending]) = access::read::<[u64; 3]>(head) else {
            return;
        };
        let mut link = first;
        for _ in 0..LIMIT {
            let node = link & !PI;
            if node == head {
                break;
            }
            // The next link is read before the word is released: another may unmap the node.
            let next = access::read::<u64>(node);
            if node != pending & !PI {
                self.release_one(node.wrapping_add(offset), link & PI != 0, tid, false);
            }
            match next {
                Ok(next) => link = next,
                Err(_) => break,
            }
        }
        if pending & !PI != 0 {
            self.release_one(
                (pending & !PI).wrapping_add(offset),
                pending & PI != 0,
                tid,
                true,
            );
        }
        if let Some(thread) = self.threads.get_mut(slot) {
            thread.robust_list = 0;
        }
    }

    fn release_one(&mut self, word: u64, pi: bool, tid: i32, pending: bool) {
        if !word.is_multiple_of(4) {
            return;
        }
        let Ok(value) = access::read::<u32>(word) else {
            return;
        };
        // The thread died between unlocking and waking: wake for it.
        if pending && !pi && value == 0 {
            self.wake_after_exit(word);
            return;
        }
        if value & TID_MASK != tid as u32 {
            return;
        }
        let left = (value & WAITERS) | OWNER_DIED;
        if self.put(word, &left).is_ok() && !pi && value & WAITERS != 0 {
            self.wake_after_exit(word);
        }
    }
}

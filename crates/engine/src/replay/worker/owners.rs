//! Who touches which memory. In: each thread's first access to a granule, and its first write to it. Out: the granules
//! that several threads touch and one writes.
//!
//! What a thread has touched before it passes in translated code ([`Shadow`]), so a whole life costs an exit for
//! each granule and thread, or few more. Errs on the side of too many: neighbours, and what lies in the same block of
//! fresh memory, may count as touched.

use rustc_hash::FxHashMap;

use clew_recording::event::ThreadId;

use super::protocol::Granules;
use crate::cache::accesses::Access;
use crate::cache::shadow::Shadow;
use crate::layout;

/// States of granules: nobody has touched it; several read it; several touch it and one writes.
const UNTOUCHED: u8 = 0;
const READ: u8 = 1;
pub const SHARED: u8 = 2;
/// Then for each thread: only it touches it and reads, and touches it and writes.
const OWNED: u8 = 4;
/// Threads after these have no states of their own; what they touch counts as shared.
const MOST_THREADS: usize = (u8::MAX - OWNED) as usize / 2;
/// Fresh memory is given to whoever touches it first in blocks of so many granules.
const BLOCK: u32 = 8;

pub struct Owners {
    pub shadow: Shadow,
    threads: FxHashMap<ThreadId, u8>,
    /// The state for what the current thread reads; none if it is one too many.
    own: Option<u8>,
    current: Option<ThreadId>,
}

impl Owners {
    pub fn new(mut shadow: Shadow) -> Owners {
        shadow.pass(SHARED, true, true);
        shadow.pass(READ, true, false);
        Owners {
            shadow,
            threads: FxHashMap::default(),
            own: None,
            current: None,
        }
    }

    /// This thread runs now.
    pub fn turn(&mut self, thread: ThreadId) {
        if self.current == Some(thread) {
            return;
        }
        if let Some(read) = self.own {
            self.shadow.pass(read, false, false);
            self.shadow.pass(read + 1, false, false);
        }
        self.current = Some(thread);
        let next = self.threads.len();
        self.own = match self.threads.get(&thread) {
            Some(&own) => Some(own),
            None if next < MOST_THREADS => {
                let own = OWNED + 2 * next as u8;
                self.threads.insert(thread, own);
                Some(own)
            }
            None => None,
        };
        if let Some(read) = self.own {
            self.shadow.pass(read, true, false);
            self.shadow.pass(read + 1, true, true);
        }
    }

    /// The current thread is about to do this. Of long accesses, what is mapped.
    pub fn touched(&mut self, access: &Access) {
        if access.len == 0 {
            return;
        }
        let first = Shadow::granule(access.addr);
        // One more: checks look at it, too.
        let last = Shadow::granule(access.addr.wrapping_add(access.len - 1)).wrapping_add(1);
        let mut granule = first;
        loop {
            self.mark(granule, access.write);
            if granule == last {
                break;
            }
            granule = granule.wrapping_add(1);
        }
        // Images' variables lie side by side, whoever they belong to; the heap's are in larger pieces.
        if access.addr >= layout::HIGH.start {
            self.claim(first / BLOCK * BLOCK, access.write);
        }
    }

    fn mark(&mut self, granule: u32, write: bool) {
        let old = self.shadow.state(granule);
        let new = after(old, self.own, write);
        if new != old {
            self.shadow.set(granule, new);
        }
    }

    /// The rest of a block, as far as nobody has touched it, or only this thread.
    fn claim(&mut self, block: u32, write: bool) {
        let Some(own) = self.own else { return };
        for granule in block..=block + (BLOCK - 1) {
            let state = self.shadow.state(granule);
            if state == UNTOUCHED || (write && state == own) {
                self.shadow.set(granule, own + write as u8);
            }
        }
    }

    /// Memory was mapped there, or became the stack of a new thread: what was touched before was another.
    pub fn renewed(&mut self, first: u32, last: u32) {
        let mut next = self.shadow.next_used(first);
        while let Some(granule) = next.filter(|&granule| granule <= last) {
            if self.shadow.state(granule) != SHARED {
                self.shadow.set(granule, UNTOUCHED);
            }
            next = granule
                .checked_add(1)
                .and_then(|next| self.shadow.next_used(next));
        }
    }

    /// What is shared, in order.
    pub fn shared(&self) -> Vec<Granules> {
        let mut found: Vec<Granules> = Vec::new();
        let mut next = self.shadow.next_used(0);
        while let Some(granule) = next {
            if self.shadow.state(granule) == SHARED {
                match found.last_mut() {
                    Some(last) if last.first + last.count == granule => last.count += 1,
                    _ => found.push(Granules {
                        first: granule,
                        count: 1,
                    }),
                }
            }
            next = granule
                .checked_add(1)
                .and_then(|next| self.shadow.next_used(next));
        }
        found
    }
}

/// The state after an access of a thread that has this state for what it reads.
fn after(state: u8, own: Option<u8>, write: bool) -> u8 {
    match state {
        SHARED => SHARED,
        UNTOUCHED => own.map_or(SHARED, |read| read | write as u8),
        READ if write => SHARED,
        READ => READ,
        owned if Some(owned & !1) == own => owned | write as u8,
        // Another's: both only read it.
        read if read & 1 == 0 && !write => READ,
        _ => SHARED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_is_what_two_touch_and_one_writes() {
        // Threads and whether they write, and whether that makes memory shared.
        let cases: [(&[(usize, bool)], bool); 8] = [
            (&[(0, true), (0, false), (0, true)], false),
            (&[(0, false), (1, false), (2, false), (0, false)], false),
            (&[(0, false), (1, true)], true),
            (&[(0, true), (1, false)], true),
            (&[(0, true), (1, true)], true),
            (&[(0, false), (1, false), (1, true)], true),
            (&[(0, false), (0, true), (0, false), (1, false)], true),
            (&[(MOST_THREADS - 1, false), (MOST_THREADS, false)], false),
        ];
        for (accesses, shared) in cases {
            let state = accesses.iter().fold(UNTOUCHED, |state, &(thread, write)| {
                let own = (thread < MOST_THREADS).then(|| OWNED + 2 * thread as u8);
                after(state, own, write)
            });
            assert_eq!(state == SHARED, shared, "{accesses:?}");
        }
        // Who has no state of its own is taken for several.
        assert_eq!(after(UNTOUCHED, None, false), SHARED);
    }
}

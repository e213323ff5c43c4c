//! Queues of waiting threads, by address of the futex word. The highest rank is woken first; of equals, who came
//! first.

use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiter {
    slot: usize,
    bitset: u32,
    rank: u32,
}

#[derive(Default)]
pub struct Queues {
    by_word: FxHashMap<u64, VecDeque<Waiter>>,
    /// Where each waiting thread stands.
    place: FxHashMap<usize, u64>,
}

impl Queues {
    pub fn wait(&mut self, word: u64, slot: usize, bitset: u32, rank: u32) {
        self.add(word, Waiter { slot, bitset, rank });
        self.place.insert(slot, word);
    }

    fn add(&mut self, word: u64, waiter: Waiter) {
        let queue = self.by_word.entry(word).or_default();
        let before = queue.iter().rposition(|other| other.rank >= waiter.rank);
        queue.insert(before.map_or(0, |last| last + 1), waiter);
    }

    /// Puts the waiters of `word` into another order, within ranks; `choose` gives one out of so many.
    pub fn mix(&mut self, word: u64, mut choose: impl FnMut(usize) -> usize) {
        if let Some(queue) = self.by_word.get_mut(&word) {
            for last in (1..queue.len()).rev() {
                queue.swap(last, choose(last + 1));
            }
            let queue = queue.make_contiguous();
            queue.sort_by_key(|waiter| Reverse(waiter.rank));
        }
    }

    /// Puts the waiters of `word` into the order of `key`, within ranks; equal ones stay as they are.
    pub fn sort(&mut self, word: u64, mut key: impl FnMut(usize) -> usize) {
        if let Some(queue) = self.by_word.get_mut(&word) {
            queue
                .make_contiguous()
                .sort_by_cached_key(|waiter| (Reverse(waiter.rank), key(waiter.slot)));
        }
    }

    /// Removes up to `count` waiters of `word` that wait for any of `bitset`, oldest first.
    pub fn wake(&mut self, word: u64, count: usize, bitset: u32) -> Vec<usize> {
        let mut woken = Vec::new();
        if let Entry::Occupied(mut queue) = self.by_word.entry(word) {
            queue.get_mut().retain(|waiter| {
                let wakes = woken.len() < count && waiter.bitset & bitset != 0;
                if wakes {
                    woken.push(waiter.slot);
                }
                !wakes
            });
            if queue.get().is_empty() {
                queue.remove();
            }
        }
        for slot in &woken {
            self.place.remove(slot);
        }
        woken
    }

    /// Moves up to `count` waiters to another word's queue; how many.
    pub fn requeue(&mut self, from: u64, to: u64, count: usize) -> usize {
        if from == to {
            return self.waiters(from).min(count);
        }
        let Some(mut queue) = self.by_word.remove(&from) else {
            return 0;
        };
        let moved: Vec<Waiter> = queue.drain(..count.min(queue.len())).collect();
        if !queue.is_empty() {
            self.by_word.insert(from, queue);
        }
        if !moved.is_empty() {
            for &waiter in &moved {
                self.place.insert(waiter.slot, to);
                self.add(to, waiter);
            }
        }
        moved.len()
    }

    /// Takes a thread out of whatever queue it stands in; the word of that queue.
    pub fn leave(&mut self, slot: usize) -> Option<u64> {
        let word = self.place.remove(&slot)?;
        if let Entry::Occupied(mut queue) = self.by_word.entry(word) {
            queue.get_mut().retain(|waiter| waiter.slot != slot);
            if queue.get().is_empty() {
                queue.remove();
            }
        }
        Some(word)
    }

    /// The word that a thread waits at.
    pub fn place_of(&self, slot: usize) -> Option<u64> {
        self.place.get(&slot).copied()
    }

    pub fn waiters(&self, word: u64) -> usize {
        self.by_word.get(&word).map_or(0, VecDeque::len)
    }

    /// All words with waiters.
    pub fn words(&self) -> Vec<u64> {
        self.by_word.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_in_order_by_bitset() {
        let mut queues = Queues::default();
        for (slot, bitset) in [(1, 1), (2, 2), (3, 3)] {
            queues.wait(64, slot, bitset, 0);
        }
        assert_eq!(queues.wake(64, 1, 2), [2]);
        assert_eq!(queues.wake(64, 9, !0), [1, 3]);
        assert!(queues.wake(64, 9, !0).is_empty() && queues.words().is_empty());
    }

    #[test]
    fn ranks_come_first() {
        let mut queues = Queues::default();
        for (slot, rank) in [(0, 0), (1, 10), (2, 50), (3, 10), (4, 0)] {
            queues.wait(64, slot, !0, rank);
        }
        queues.wait(128, 5, !0, 20);
        queues.requeue(128, 64, 1);
        queues.sort(64, |slot| 9 - slot);
        assert_eq!(queues.wake(64, 9, !0), [2, 5, 3, 1, 4, 0]);
    }

    #[test]
    fn mixing_keeps_everybody() {
        let mut queues = Queues::default();
        (0..5).for_each(|slot| queues.wait(64, slot, !0, 0));
        queues.mix(64, |_| 0);
        let mut woken = queues.wake(64, 9, !0);
        assert_ne!(woken, [0, 1, 2, 3, 4]);
        woken.sort_unstable();
        assert_eq!(woken, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn sorting_keeps_the_order_of_equals() {
        let mut queues = Queues::default();
        (0..5).for_each(|slot| queues.wait(64, slot, !0, 0));
        queues.sort(64, |slot| if slot == 3 { 0 } else { 9 });
        assert_eq!(queues.wake(64, 9, !0), [3, 0, 1, 2, 4]);
    }

    #[test]
    fn requeues_and_leaves() {
        let mut queues = Queues::default();
        for slot in 0..5 {
            queues.wait(64, slot, !0, 0);
        }
        assert_eq!(queues.wake(64, 1, !0), [0]);
        assert_eq!(queues.requeue(64, 128, 3), 3);
        assert_eq!((queues.waiters(64), queues.waiters(128)), (1, 3));
        assert_eq!(queues.leave(2), Some(128));
        assert_eq!(queues.leave(2), None);
        assert_eq!(queues.wake(128, 9, !0), [1, 3]);
        assert_eq!(queues.wake(64, 9, !0), [4]);
        assert!(queues.place.is_empty());
    }
}

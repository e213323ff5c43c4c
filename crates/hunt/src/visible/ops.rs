//! The operations of each thread at which a schedule may choose. In: a profile, and dice that say which of them matter in this run. Out: a
//! list for each thread.

use std::collections::{BTreeMap, BTreeSet};

use clew_recording::event::ThreadId;
use clew_recording::script::{End, Turn};

use crate::dice::Dice;
use crate::idiom::profile::{Access, Profile};
use crate::idiom::steer::{Course, Place};

/// Accesses to more words than fit are left out.
const MOST: usize = 4_000;

/// Which accesses a schedule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// By the program's own code.
    Own,
    /// Those, and locks, whoever takes them.
    OwnAndLocks,
    /// To so many words.
    Words(usize),
    All,
}

pub struct Ops<'a> {
    course: &'a Course,
    /// The accesses of each thread, in their order. Before the first is the thread's beginning, which is an operation, too.
    pub lists: BTreeMap<ThreadId, Vec<usize>>,
}

pub fn word(access: &Access) -> u64 {
    access.addr >> 3
}

impl<'a> Ops<'a> {
    /// All accesses of some kind, by chance.
    pub fn choose(course: &'a Course, dice: &mut Dice) -> Option<Ops<'a>> {
        let scope = match dice.below(10) {
            0..=2 => Scope::Own,
            3..=5 => Scope::OwnAndLocks,
            6 | 7 => Scope::Words(1),
            8 => Scope::Words(2 + dice.below(2)),
            _ => Scope::All,
        };
        let ops = Ops::within(course, scope, dice);
        if ops.threads().len() >= 2 && ops.total() > ops.threads().len() {
            return Some(ops);
        }
        let ops = Ops::within(course, Scope::All, dice);
        (ops.threads().len() >= 2).then_some(ops)
    }

    fn within(course: &'a Course, scope: Scope, dice: &mut Dice) -> Ops<'a> {
        let profile = course.profile();
        let matters = |access: &Access| match scope {
            Scope::Own => profile.is_own(access.pc),
            Scope::OwnAndLocks => profile.is_own(access.pc) || access.locked,
            Scope::Words(_) | Scope::All => true,
        };
        let mut words: BTreeMap<u64, (usize, bool)> = BTreeMap::new();
        for access in profile.accesses.iter().filter(|a| matters(a)) {
            let entry = words.entry(word(access)).or_default();
            entry.0 += 1;
            entry.1 |= profile.is_own(access.pc);
        }
        let mut order: Vec<u64> = words.keys().copied().collect();
        dice.shuffle(&mut order);
        if let Scope::Words(count) = scope {
            // Words that the program's own code touches come first, three times out of four.
            if !dice.once_in(4) {
                order.sort_by_key(|word| !words[word].1);
            }
            order.truncate(count);
        }
        let mut room = MOST;
        let chosen: BTreeSet<u64> = order
            .into_iter()
            .filter(|word| {
                let fits = words[word].0 <= room;
                room -= if fits { words[word].0 } else { 0 };
                fits
            })
            .collect();
        let mut lists: BTreeMap<ThreadId, Vec<usize>> = BTreeMap::new();
        lists.insert(0, Vec::new());
        for &thread in profile.lives.keys() {
            lists.insert(thread, Vec::new());
        }
        for (n, access) in profile.accesses.iter().enumerate() {
            if matters(access) && chosen.contains(&word(access)) {
                lists.entry(access.thread).or_default().push(n);
            }
        }
        Ops { course, lists }
    }

    pub fn profile(&self) -> &'a Profile {
        self.course.profile()
    }

    pub fn access(&self, n: usize) -> &'a Access {
        &self.course.profile().accesses[n]
    }

    pub fn threads(&self) -> Vec<ThreadId> {
        self.lists.keys().copied().collect()
    }

    /// Operations of all threads, with their beginnings.
    pub fn total(&self) -> usize {
        self.lists.values().map(|list| list.len() + 1).sum()
    }

    /// How many operations a thread has.
    pub fn count(&self, thread: ThreadId) -> usize {
        self.lists.get(&thread).map_or(0, |list| list.len() + 1)
    }

    /// The access that is a thread's operation number `op`; its beginning is number 0.
    pub fn of(&self, thread: ThreadId, op: usize) -> Option<usize> {
        self.lists.get(&thread)?.get(op.checked_sub(1)?).copied()
    }

    /// A turn that leaves a thread behind its operation number `op`, before the next.
    pub fn turn(&self, thread: ThreadId, op: usize) -> Turn {
        let end = match self.of(thread, op + 1) {
            Some(next) => self.course.end(Place::before(next)),
            None => End::Free,
        };
        Turn { thread, end }
    }

    /// Whether a thread's next operation, of number `next`, can be made, as far as its maker's life tells.
    pub fn is_born(&self, thread: ThreadId, done: &BTreeMap<ThreadId, usize>) -> bool {
        let Some(life) = self.profile().lives.get(&thread) else {
            return true;
        };
        match done.get(&life.maker) {
            None | Some(0) => !self.lists.contains_key(&life.maker),
            Some(&next) => match self.of(life.maker, next) {
                Some(access) => self.access(access).event >= life.begun,
                None => true,
            },
        }
    }
}

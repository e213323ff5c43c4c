//! Orders of accesses that weren't seen yet. In: a profile. Out: which orders it shows; and those that it doesn't, with ways to
//! bring them about.
//!
//! As Maple's idioms (Yu, Narayanasamy, Pereira, Pokam, OOPSLA 2012): the other order of two accesses ([`orders`]), an access
//! between two of another thread to the same memory ([`atomic`]), the same with two variables, and two locks in two orders
//! ([`pairs`]). An order is one of instructions, not of single executions of them; several executions may be tried.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::locks::Locks;
use super::profile::{Access, Profile};
use super::steer::{Place, Steer, Then};
use super::{atomic, orders, pairs};

/// An instruction. One that locks the bus is another at each address: all locks of a program are taken by the same code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    pub pc: u64,
    pub lock: Option<u64>,
}

impl Site {
    pub fn of(access: &Access) -> Site {
        Site {
            pc: access.pc,
            lock: access.locked.then_some(access.addr),
        }
    }
}

/// An order of accesses of two threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// One, then the other.
    Order(Site, Site),
    /// The second between the others, which are one thread's.
    Atomic(Site, Site, Site),
    /// One thread has the first lock and takes the second, the other the other way round.
    Locks(u64, u64),
    /// The last two, of one thread, between the first two.
    Pair([Site; 4]),
}

/// An order that wasn't seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub key: Key,
    /// The lower, the sooner it should be tried.
    pub tier: u32,
    /// How often the accesses happened.
    pub count: usize,
    /// Ways to bring it about, the best first.
    pub steers: Vec<Steer>,
}

/// What makes a candidate less likely to come about, or to matter.
pub mod put_off {
    /// For each side that isn't the program's own code.
    pub const LIBRARY: u32 = 1;
    /// Both sides seem to have the same lock all the time.
    pub const SAME_LOCK: u32 = 4;
    /// The other thread seems to have waited for the end of the first.
    pub const JOINED: u32 = 4;
}

/// How far a word's accesses are looked at, from the first and from the last.
const MOST_OF_A_WORD: usize = 4_000;
/// Ways to bring one candidate about.
const MOST_STEERS: usize = 8;

/// What prediction looks at.
pub struct View<'a> {
    pub profile: &'a Profile,
    pub accesses: &'a [Access],
    pub locks: Locks,
    /// Accesses to each four bytes that several threads touch.
    pub words: Vec<Vec<usize>>,
}

impl View<'_> {
    pub fn new(profile: &Profile) -> View<'_> {
        let accesses = &profile.accesses[..];
        let mut words: HashMap<u64, Vec<usize>> = HashMap::new();
        for (n, access) in accesses.iter().enumerate() {
            let last = access.addr + u64::from(access.len.clamp(1, 64)) - 1;
            for word in access.addr >> 2..=last >> 2 {
                words.entry(word).or_default().push(n);
            }
        }
        words.retain(|_, list| {
            let first = accesses[list[0]].thread;
            list.iter().any(|&n| accesses[n].thread != first)
                && list.iter().any(|&n| accesses[n].write)
        });
        let mut words: Vec<(u64, Vec<usize>)> = words.into_iter().collect();
        words.sort_unstable();
        // Neighbours that were always touched together say the same.
        words.dedup_by(|b, a| a.1 == b.1);
        let words = words.into_iter().map(|(_, mut list)| {
            if list.len() > 2 * MOST_OF_A_WORD {
                list.drain(MOST_OF_A_WORD..list.len() - MOST_OF_A_WORD);
            }
            list
        });
        View {
            profile,
            accesses,
            locks: Locks::of(accesses),
            words: words.collect(),
        }
    }

    /// `held` could stand before access `a` while access `b` of another thread happens, as far as is known.
    pub fn possible(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.accesses[a], &self.accesses[b]);
        !self.profile.made_after(b.thread, a.thread, a.event)
    }

    /// Where a thread is held that is to do `a` later than another one does `b`: before it takes a lock that the other
    /// needs for that.
    pub fn before(&self, a: usize, b: usize) -> Place {
        let taken = self.locks.shared(a, b).map(|section| section.taken);
        Place::before(taken.min().unwrap_or(a))
    }

    /// Where the other thread is when it has done `b`: behind the lock that both need.
    pub fn behind(&self, a: usize, b: usize) -> Place {
        let given = self.locks.shared(b, a).map(|section| section.given);
        Place::after(given.max().unwrap_or(b))
    }

    /// Where a thread is held between two accesses: as early as it has no lock any more that it had at the first.
    pub fn between(&self, (first, second): (usize, usize)) -> Place {
        match self.locks.all_given(first) {
            Some(given) if given < second => Place::after(given),
            Some(_) => Place::before(second),
            None => Place::after(first),
        }
    }

    /// What speaks against holding a thread between two accesses until `other` has happened.
    pub fn doubts_between(&self, (first, second): (usize, usize), other: usize) -> u32 {
        // A lock that both have protects only what lies in one section of it.
        let whole = self
            .locks
            .all_given(first)
            .is_some_and(|given| given > second);
        let same = match whole && self.locks.share(first, other) {
            true => put_off::SAME_LOCK,
            false => 0,
        };
        same + self.doubts(first, other).max(self.doubts(second, other))
    }

    /// What speaks against holding a thread before `a` until `b` has happened.
    pub fn doubts(&self, a: usize, b: usize) -> u32 {
        let mut doubts = 0;
        let (a, b) = (&self.accesses[a], &self.accesses[b]);
        let life = self.profile.lives.get(&a.thread);
        let over = life.and_then(|life| life.ended);
        if life.is_some_and(|life| life.maker == b.thread) && over.is_some_and(|end| end <= b.event)
        {
            doubts += put_off::JOINED;
        }
        // Locks are all taken in libraries; that says nothing.
        let library = |access: &Access| !access.locked && !self.profile.is_own(access.pc);
        let libraries = u32::from(library(a)) + u32::from(library(b));
        doubts + libraries * put_off::LIBRARY
    }
}

/// Orders that a profile shows.
pub fn seen(view: &View) -> BTreeSet<Key> {
    let mut seen = BTreeSet::new();
    for word in &view.words {
        orders::seen(view, word, &mut seen);
        atomic::seen(view, word, &mut seen);
    }
    seen
}

/// Orders that it doesn't show and that aren't among those seen elsewhere, sorted by their keys.
pub fn predict(view: &View, seen: &BTreeSet<Key>) -> Vec<Candidate> {
    let mut found = Found::default();
    for word in &view.words {
        orders::predict(view, word, seen, &mut found);
        atomic::predict(view, word, seen, &mut found);
    }
    pairs::lock_orders(view, &mut found);
    pairs::variables(view, &mut found);
    found.candidates()
}

/// One way to bring an order about, and how good it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub tier: u32,
    pub hold: Place,
    pub until: Place,
    /// Only one way to go on; otherwise both the held and the other thread may be the next.
    pub then: Option<Then>,
}

/// Ways, by what they bring about.
#[derive(Default)]
pub struct Found {
    ways: BTreeMap<Key, (usize, Vec<Way>)>,
}

impl Found {
    pub fn add(&mut self, key: Key, count: usize, ways: impl IntoIterator<Item = Way>) {
        let mut ways = ways.into_iter().peekable();
        if ways.peek().is_none() {
            return;
        }
        let entry = self.ways.entry(key).or_default();
        entry.0 += count;
        entry.1.extend(ways);
    }

    fn candidates(self) -> Vec<Candidate> {
        let candidate = |(key, (count, ways)): (Key, (usize, Vec<Way>))| Candidate {
            key,
            count,
            tier: least_tier(&ways),
            steers: steers(ways),
        };
        self.ways.into_iter().map(candidate).collect()
    }
}

fn least_tier(ways: &[Way]) -> u32 {
    ways.iter().map(|way| way.tier).min().unwrap_or(0)
}

/// The best few: nearest first, then the earliest, the latest, and what lies in the middle.
fn steers(mut ways: Vec<Way>) -> Vec<Steer> {
    let least = least_tier(&ways);
    ways.retain(|way| way.tier == least);
    ways.sort_by_key(|way| (way.hold.access, way.until.access));
    ways.dedup();
    let gap = |way: &Way| way.until.access - way.hold.access;
    let nearest = (0..ways.len()).min_by_key(|&n| gap(&ways[n]));
    let last = ways.len().saturating_sub(1);
    let chosen = [nearest.unwrap_or(0), last, 0, last / 2, last / 4];
    let mut steers: Vec<Steer> = Vec::new();
    for way in chosen.iter().filter_map(|&n| ways.get(n)) {
        let thens = match way.then {
            Some(then) => vec![then],
            None => vec![Then::Held, Then::Others],
        };
        for then in thens {
            let steer = Steer {
                hold: way.hold,
                until: way.until,
                then,
            };
            if !steers.contains(&steer) {
                steers.push(steer);
            }
        }
    }
    steers.truncate(MOST_STEERS);
    steers
}

/// First, last and middle ones, and the closest, of pairs with one of each sorted list, the second behind the first.
pub fn meetings(firsts: &[usize], seconds: &[usize]) -> Vec<(usize, usize)> {
    let behind = |first: usize| {
        let at = seconds.partition_point(|&second| second < first);
        seconds.get(at).map(|&second| (first, second))
    };
    let all: Vec<(usize, usize)> = firsts.iter().map_while(|&first| behind(first)).collect();
    let Some(&closest) = all.iter().min_by_key(|(first, second)| second - first) else {
        return Vec::new();
    };
    let mut chosen = vec![closest, all[0], all[all.len() / 2], all[all.len() - 1]];
    // The same first, and what happened last.
    if let Some(&second) = seconds.last() {
        chosen.push((closest.0, second));
    }
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_meets_whom() {
        assert_eq!(meetings(&[1, 3, 5], &[]), []);
        assert_eq!(meetings(&[5], &[1, 2]), []);
        assert_eq!(meetings(&[1, 3, 9], &[4, 6]), [(1, 4), (3, 4), (3, 6)]);
    }

    #[test]
    fn the_nearest_way_is_the_first() {
        let way = |hold, until| Way {
            tier: 1,
            hold: Place::before(hold),
            until: Place::after(until),
            then: None,
        };
        let worse = Way {
            tier: 2,
            ..way(7, 8)
        };
        let steers = steers(vec![way(1, 9), way(5, 7), way(2, 6), worse]);
        let holds: Vec<usize> = steers.iter().map(|steer| steer.hold.access).collect();
        assert_eq!(holds, [5, 5, 1, 1, 2, 2]);
        assert_eq!(steers[0].then, Then::Held);
        assert_eq!(steers[1].then, Then::Others);
    }
}

//! The partial order. In: interactions in an order in which they happened. Out: Lamport times, immediate happened-before
//! edges, what came before what; what must be executed before an interaction, and all that can be without it.
//!
//! The definitions are the paper's: an interaction's time is one more than its thread's and its object's (equation 3); it has an
//! edge from the last one before it in its thread's set, and from the last one in its object's (definition 4, figure 1).

use clew_recording::event::ThreadId;
use rustc_hash::FxHashMap;

use crate::interaction::Interaction;

/// Gives all interactions their Lamport times.
pub fn number(interactions: &mut [Interaction], objects: usize) {
    let mut of_objects = vec![0u64; objects];
    let mut of_threads: FxHashMap<ThreadId, u64> = FxHashMap::default();
    for one in interactions {
        let thread = of_threads.entry(one.thread).or_default();
        let object = &mut of_objects[one.object as usize];
        one.t = (*thread).max(*object) + 1;
        (*thread, *object) = (one.t, one.t);
    }
}

/// Which interaction came right before which, in a thread or at an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// For each: the last one before it of its thread, and of its object.
    before: Vec<[Option<u32>; 2]>,
}

/// How two interactions lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Same,
    Before,
    After,
    Concurrent,
}

/// An order that can't be: `second` can't come before `first` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impossible {
    pub second: usize,
    pub first: usize,
}

impl Graph {
    /// Of interactions in the order in which they happened.
    pub fn of(interactions: &[Interaction]) -> Graph {
        let last = interactions.iter().map(|one| one.object).max();
        let mut of_objects = vec![None; last.map_or(0, |last| last as usize + 1)];
        let mut of_threads: FxHashMap<ThreadId, u32> = FxHashMap::default();
        let before = interactions.iter().enumerate().map(|(n, one)| {
            let n = n as u32;
            let thread = of_threads.insert(one.thread, n);
            let object = of_objects[one.object as usize].replace(n);
            [thread, object.filter(|_| object != thread)]
        });
        Graph {
            before: before.collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.before.len()
    }

    pub fn is_empty(&self) -> bool {
        self.before.is_empty()
    }

    /// Those with an edge to this one.
    pub fn before(&self, n: usize) -> impl Iterator<Item = usize> + '_ {
        let before = self.before.get(n).into_iter().flatten();
        before.flatten().map(|&n| n as usize)
    }

    /// All edges, by where they lead to.
    pub fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..self.len()).flat_map(|n| self.before(n).map(move |before| (before, n)))
    }

    /// What happened before an interaction, as marks on all of them.
    pub fn past(&self, n: usize) -> Vec<bool> {
        let mut past = vec![false; self.len()];
        let mut open: Vec<usize> = self.before(n).collect();
        while let Some(one) = open.pop() {
            if !std::mem::replace(&mut past[one], true) {
                open.extend(self.before(one));
            }
        }
        past
    }

    /// What an interaction happened before.
    pub fn future(&self, n: usize) -> Vec<bool> {
        let mut future = vec![false; self.len()];
        // Edges lead onwards, so all that comes to it has been looked at.
        for one in n + 1..self.len() {
            let depends = self.before(one).any(|before| before == n || future[before]);
            future[one] = depends;
        }
        future
    }

    pub fn relation(&self, one: usize, other: usize) -> Relation {
        if one == other {
            return Relation::Same;
        }
        let (low, high) = (one.min(other), one.max(other));
        match (self.past(high)[low], one < other) {
            (false, _) => Relation::Concurrent,
            (true, true) => Relation::Before,
            (true, false) => Relation::After,
        }
    }

    /// The least that has to be executed to have executed this one, in an order in which it can be: the paper's Replay
    /// Minima, by its figure 4.
    pub fn minima(&self, n: usize) -> Vec<usize> {
        let mut done = vec![false; self.len()];
        let mut order = Vec::new();
        self.proceed(n, &mut done, &mut order);
        order
    }

    /// The same for several, one after the other.
    pub fn proceed_to(&self, targets: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let mut done = vec![false; self.len()];
        let mut order = Vec::new();
        for target in targets {
            self.proceed(target, &mut done, &mut order);
        }
        order
    }

    /// ProceedToEvent, without recursion: of each, first what its thread did before, then what its object needs.
    fn proceed(&self, n: usize, done: &mut [bool], order: &mut Vec<usize>) {
        let mut open = vec![n];
        while let Some(&one) = open.last() {
            if done[one] {
                open.pop();
                continue;
            }
            match self.before(one).find(|&before| !done[before]) {
                Some(before) => open.push(before),
                None => {
                    done[one] = true;
                    order.push(one);
                    open.pop();
                }
            }
        }
    }

    /// All that can be executed while this one isn't, and last this one: the paper's Replay Maxima. What has to come before
    /// it comes first.
    pub fn maxima(&self, n: usize) -> Vec<usize> {
        let mut done = vec![false; self.len()];
        let mut order = Vec::new();
        self.proceed(n, &mut done, &mut order);
        order.pop();
        done[n] = false;
        let future = self.future(n);
        for one in (0..self.len()).filter(|&one| one != n && !future[one]) {
            self.proceed(one, &mut done, &mut order);
        }
        order.push(n);
        order
    }

    /// Whether interactions can be executed in this order, each once.
    pub fn allows(&self, order: &[usize]) -> Result<(), Impossible> {
        let mut done = vec![false; self.len()];
        for &one in order {
            if let Some(first) = self.before(one).find(|&before| !done[before]) {
                return Err(Impossible { second: one, first });
            }
            if let Some(done) = done.get_mut(one) {
                *done = true;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::interaction::Kind;

    /// Threads and objects, one interaction after the other.
    pub(crate) fn story(all: &[(ThreadId, u32)]) -> Vec<Interaction> {
        let one = |&(thread, object): &(ThreadId, u32)| Interaction {
            kind: Kind::SemPost,
            thread,
            object,
            t: 0,
            at: Default::default(),
            over: Default::default(),
            site: 0,
            other: None,
        };
        let mut all: Vec<Interaction> = all.iter().map(one).collect();
        let objects = all.iter().map(|one| one.object as usize + 1).max();
        number(&mut all, objects.unwrap_or(0));
        all
    }

    /// The paper's figure 5: E4 E3 E2 E1 are one chain over three threads, E6 E5 depend on its beginning alone, E7 and E8 on E1.
    #[test]
    fn the_orders_of_figure_5() {
        // E4, E3, E2, E6, E5, E1, E7, E8 by threads 3, 2, 1, 3, 3, 1, 1, 2.
        let all = story(&[
            (3, 0),
            (2, 0),
            (1, 0),
            (3, 1),
            (3, 1),
            (1, 2),
            (1, 3),
            (2, 3),
        ]);
        // E3 needs E4, E2 needs E3, E1 needs E2.
        let names = ["E4", "E3", "E2", "E6", "E5", "E1", "E7", "E8"];
        let graph = Graph::of(&all);
        let e1 = 5;
        let told = |order: Vec<usize>| {
            order
                .iter()
                .map(|&n| names[n])
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(told(graph.minima(e1)), "E4 E3 E2 E1");
        assert_eq!(told(graph.maxima(e1)), "E4 E3 E2 E6 E5 E1");
        assert_eq!(graph.relation(0, 5), Relation::Before);
        assert_eq!(graph.relation(5, 0), Relation::After);
        assert_eq!(graph.relation(3, 5), Relation::Concurrent);
        assert_eq!(graph.relation(5, 5), Relation::Same);
    }

    /// Figure 7: thread 1 stops at E4, which needs E3, which needs E2, which needs E1 of thread 3.
    #[test]
    fn the_schedule_of_figure_7() {
        let all = story(&[(3, 0), (2, 0), (2, 1), (1, 1)]);
        let graph = Graph::of(&all);
        assert_eq!(graph.minima(3), [0, 1, 2, 3]);
        assert_eq!(graph.allows(&[0, 1, 2, 3]), Ok(()));
        let wrong = Impossible {
            second: 1,
            first: 0,
        };
        assert_eq!(graph.allows(&[1, 0]), Err(wrong));
    }

    #[test]
    fn no_edge_twice() {
        let graph = Graph::of(&story(&[(1, 0), (1, 0), (2, 0)]));
        assert_eq!(graph.edges().collect::<Vec<_>>(), [(0, 1), (1, 2)]);
        assert!(Graph::of(&[]).is_empty());
    }
}

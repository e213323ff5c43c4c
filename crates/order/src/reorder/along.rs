//! The paper's orders. In: interactions, and which order is meant. Out: all interactions in that order.

use clew_recording::event::ThreadId;

use crate::graph::Graph;
use crate::interaction::Interaction;

/// Along which order a run is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Along {
    /// This thread first; of the others what it needs, when it does.
    Minima(ThreadId),
    /// This thread to this interaction of its own; from there on the others first, as far as they come without it.
    Maxima(ThreadId, usize),
    /// These, one after the other; then the others.
    By(Vec<usize>),
}

impl Along {
    /// All interactions, in an order that is possible if the beginning of [`Along::By`] is.
    pub fn order(&self, all: &[Interaction]) -> Vec<usize> {
        let graph = Graph::of(all);
        let own = |thread: ThreadId| (0..all.len()).filter(move |&n| all[n].thread == thread);
        let mut order = match self {
            Along::Minima(thread) => graph.proceed_to(own(*thread)),
            Along::Maxima(thread, from) => maxima(&graph, all, *thread, *from),
            Along::By(order) => order.clone(),
        };
        let mut done = vec![false; all.len()];
        order.retain(|&n| n < all.len() && !std::mem::replace(&mut done[n], true));
        order.extend((0..all.len()).filter(|&n| !done[n]));
        order
    }
}

impl Along {
    /// What to go on to, one after the other: under minima the thread's own, so that it runs until it needs others.
    pub fn targets(&self, all: &[Interaction]) -> Vec<usize> {
        match self {
            Along::Minima(thread) => {
                let own = (0..all.len()).filter(|&n| all[n].thread == *thread);
                own.collect()
            }
            _ => self.order(all),
        }
    }
}

fn maxima(graph: &Graph, all: &[Interaction], thread: ThreadId, from: usize) -> Vec<usize> {
    // How many interactions of the thread each of the others needs.
    let mut needs = vec![0usize; all.len()];
    let mut own = Vec::new();
    for n in 0..all.len() {
        needs[n] = graph
            .before(n)
            .map(|before| needs[before])
            .max()
            .unwrap_or(0);
        if all[n].thread == thread {
            own.push(n);
            needs[n] = own.len();
        }
    }
    let done = own.partition_point(|&n| n < from);
    let mut order = graph.proceed_to(own[..done].iter().copied());
    if let Some(&next) = own.get(done) {
        order.extend(graph.proceed_to(graph.before(next)));
    }
    let mut others: Vec<usize> = (0..all.len())
        .filter(|&n| all[n].thread != thread)
        .collect();
    // In the order in which they happened, but for those that can't without the thread.
    others.sort_by_key(|&n| (needs[n].max(done), n));
    let mut others = others.into_iter().peekable();
    for (count, &next) in own.iter().enumerate().skip(done) {
        while let Some(other) = others.next_if(|&other| needs[other] <= count) {
            order.push(other);
        }
        order.push(next);
    }
    order.extend(others);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::tests::story;

    /// The paper's figure 5 again, for the whole run.
    #[test]
    fn minima_and_maxima_of_figure_5() {
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
        let names = ["E4", "E3", "E2", "E6", "E5", "E1", "E7", "E8"];
        let told = |along: Along| {
            let order = along.order(&all);
            let names: Vec<&str> = order.iter().map(|&n| names[n]).collect();
            names.join(" ")
        };
        assert_eq!(told(Along::Minima(1)), "E4 E3 E2 E1 E7 E6 E5 E8");
        assert_eq!(told(Along::Maxima(1, 5)), "E4 E3 E2 E6 E5 E1 E7 E8");
        // All of it: the others come first wherever they can.
        assert_eq!(told(Along::Maxima(1, 0)), "E4 E3 E6 E5 E2 E1 E7 E8");
        assert_eq!(told(Along::By(vec![0, 3, 3])), "E4 E6 E3 E2 E5 E1 E7 E8");
    }

    #[test]
    fn every_order_is_possible_and_whole() {
        let mut dice = 1u64;
        let mut below = |end: u64| {
            dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1);
            (dice >> 33) % end
        };
        for _ in 0..200 {
            let count = 1 + below(40);
            let all: Vec<(ThreadId, u32)> = (0..count)
                .map(|_| (below(4) as ThreadId, below(6) as u32))
                .collect();
            let all = story(&all);
            let graph = Graph::of(&all);
            let from = below(count) as usize;
            for along in [
                Along::Minima(all[from].thread),
                Along::Maxima(all[from].thread, from),
                Along::By(graph.minima(from)),
            ] {
                let order = along.order(&all);
                assert_eq!(order.len(), all.len());
                assert_eq!(graph.allows(&order), Ok(()), "{along:?}");
            }
            // Its beginning is what the graph says.
            let minima = graph.minima(from);
            let order = Along::Minima(all[from].thread).order(&all);
            assert_eq!(order[..minima.len()], minima);
            let maxima = graph.maxima(from);
            let order = Along::Maxima(all[from].thread, from).order(&all);
            assert_eq!(order[maxima.len() - 1], from);
        }
    }
}

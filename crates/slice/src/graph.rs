//! Control dependence. In: a function's blocks and where each may go on. Out: for each block that decides, the blocks
//! whose execution it decides about: they follow on one of its ways in any case, and not on all of them.

/// A set of a function's blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits(Vec<u64>);

impl Bits {
    pub fn insert(&mut self, n: u32) {
        let at = n as usize / 64;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (n % 64);
    }

    pub fn contains(&self, n: u32) -> bool {
        let word = self.0.get(n as usize / 64);
        word.is_some_and(|word| word & 1 << (n % 64) != 0)
    }

    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let words = self.0.iter().enumerate();
        words.flat_map(|(n, word)| {
            let bits = (0..64).filter(move |bit| word & 1 << bit != 0);
            bits.map(move |bit| n as u32 * 64 + bit)
        })
    }
}

/// Where a block goes on.
#[derive(Clone, Debug, Default)]
pub struct Ways {
    pub blocks: Vec<u32>,
    /// Or out of the function.
    pub out: bool,
}

/// For each block the ones that depend on where it goes; nothing for blocks with one way.
pub fn dependents(ways: &[Ways]) -> Vec<Option<Bits>> {
    let exit = ways.len() as u32;
    let mut next: Vec<Vec<u32>> = ways
        .iter()
        .map(|ways| {
            let mut all = ways.blocks.clone();
            all.retain(|block| *block < exit);
            if ways.out || all.is_empty() {
                all.push(exit);
            }
            all.sort_unstable();
            all.dedup();
            all
        })
        .collect();
    let follows = post_dominators(&mut next);
    let of = |(n, next): (usize, &Vec<u32>)| {
        (next.len() > 1).then(|| {
            let mut bits = Bits::default();
            for &way in next {
                let mut block = way;
                while block != follows[n] && block != exit {
                    bits.insert(block);
                    block = follows[block as usize];
                }
            }
            bits
        })
    };
    next.iter().enumerate().map(of).collect()
}

const UNKNOWN: u32 = u32::MAX;

/// For each block the nearest one that follows it in any case; the exit, whose number is behind the last, follows all.
/// Loops without end get a way out.
fn post_dominators(next: &mut [Vec<u32>]) -> Vec<u32> {
    let exit = next.len() as u32;
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); next.len() + 1];
    for (n, next) in next.iter().enumerate() {
        for &way in next {
            before[way as usize].push(n as u32);
        }
    }
    // Backwards from the exit, each block after all that it leads to, as far as loops allow.
    let mut order = Vec::new();
    let mut seen = vec![false; next.len() + 1];
    backwards(exit, &before, &mut seen, &mut order);
    for n in (0..exit).rev() {
        if !seen[n as usize] {
            next[n as usize].push(exit);
            order.pop();
            backwards(n, &before, &mut seen, &mut order);
            order.push(exit);
        }
    }
    let mut rank = vec![0; next.len() + 1];
    for (n, &block) in order.iter().enumerate() {
        rank[block as usize] = n;
    }
    let mut follows = vec![UNKNOWN; next.len() + 1];
    follows[exit as usize] = exit;
    let mut changed = true;
    while changed {
        changed = false;
        for &block in order.iter().rev().filter(|&&block| block != exit) {
            let known = next[block as usize].iter().copied();
            let known = known.filter(|way| follows[*way as usize] != UNKNOWN);
            let nearest = known.reduce(|mut a, mut b| {
                while a != b {
                    while rank[a as usize] < rank[b as usize] {
                        a = follows[a as usize];
                    }
                    while rank[b as usize] < rank[a as usize] {
                        b = follows[b as usize];
                    }
                }
                a
            });
            let nearest = nearest.unwrap_or(exit);
            if follows[block as usize] != nearest {
                follows[block as usize] = nearest;
                changed = true;
            }
        }
    }
    follows
}

/// All that lead to a block and weren't seen, the farthest first, itself last.
fn backwards(from: u32, before: &[Vec<u32>], seen: &mut [bool], order: &mut Vec<u32>) {
    if std::mem::replace(&mut seen[from as usize], true) {
        return;
    }
    let mut stack = vec![(from, 0)];
    while let Some((block, n)) = stack.last_mut() {
        match before[*block as usize].get(*n) {
            Some(&previous) => {
                *n += 1;
                if !std::mem::replace(&mut seen[previous as usize], true) {
                    stack.push((previous, 0));
                }
            }
            None => {
                order.push(*block);
                stack.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(all: &[(&[u32], bool)]) -> Vec<Ways> {
        let ways = all.iter().map(|(blocks, out)| Ways {
            blocks: blocks.to_vec(),
            out: *out,
        });
        ways.collect()
    }

    fn of(all: &[Option<Bits>], n: usize) -> Vec<u32> {
        all[n].as_ref().unwrap().iter().collect()
    }

    #[test]
    fn both_arms_depend_on_an_if_and_what_follows_does_not() {
        // 0 decides between 1 and 2, both go to 3.
        let all = dependents(&ways(&[
            (&[1, 2], false),
            (&[3], false),
            (&[3], false),
            (&[], true),
        ]));
        assert_eq!(of(&all, 0), [1, 2]);
        assert!(all[1..].iter().all(Option::is_none));
    }

    #[test]
    fn a_loop_depends_on_its_own_condition() {
        // 0 -> 1; 1 decides between the body 2 and the end 3; 2 -> 1.
        let all = dependents(&ways(&[
            (&[1], false),
            (&[2, 3], false),
            (&[1], false),
            (&[], true),
        ]));
        assert_eq!(of(&all, 1), [1, 2]);
    }

    #[test]
    fn an_early_return_decides_about_the_rest() {
        let all = dependents(&ways(&[(&[1], true), (&[2], false), (&[], true)]));
        assert_eq!(of(&all, 0), [1, 2]);
    }

    #[test]
    fn loops_without_end_are_no_trouble() {
        let all = dependents(&ways(&[
            (&[1, 2], false),
            (&[1], false),
            (&[3], false),
            (&[2], false),
        ]));
        assert!(all[0].is_some());
    }

    /// By the definition, with sets, on random graphs.
    #[test]
    fn as_defined() {
        let mut seed = 88172645463325252u64;
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for _ in 0..300 {
            let count = 2 + random(12) as u32;
            let graph: Vec<Ways> = (0..count)
                .map(|n| Ways {
                    blocks: (0..1 + random(2))
                        .map(|_| random(count.into()) as u32)
                        .collect(),
                    out: n + 1 == count || random(6) == 0,
                })
                .collect();
            let mut next: Vec<Vec<u32>> = graph
                .iter()
                .map(|ways| {
                    let mut all = ways.blocks.clone();
                    all.extend(ways.out.then_some(count));
                    all
                })
                .collect();
            // Everything must get out for the definition to say something.
            let reaches = |next: &[Vec<u32>], from: u32, without: u32| {
                let (mut seen, mut work) = (vec![false; count as usize + 1], vec![from]);
                while let Some(n) = work.pop() {
                    if n == without || std::mem::replace(&mut seen[n as usize], true) {
                        continue;
                    }
                    if n < count {
                        work.extend(&next[n as usize]);
                    }
                }
                seen[count as usize]
            };
            if (0..count).any(|n| !reaches(&next, n, UNKNOWN)) {
                continue;
            }
            let all = dependents(&graph);
            // a follows b in any case, if without a there is no way out.
            let follows = |a: u32, b: u32| a == b || !reaches(&next, b, a);
            for b in 0..count {
                for a in 0..count {
                    let one = next[b as usize]
                        .iter()
                        .any(|&way| way < count && follows(a, way));
                    let strictly = a != b && follows(a, b);
                    let mut ways = next[b as usize].clone();
                    ways.sort_unstable();
                    ways.dedup();
                    let expected = ways.len() > 1 && one && !strictly;
                    let got = all[b as usize]
                        .as_ref()
                        .is_some_and(|bits| bits.contains(a));
                    assert_eq!(got, expected, "{a} on {b} in {graph:?}");
                }
            }
            next.clear();
        }
    }
}

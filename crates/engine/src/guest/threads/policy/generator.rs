//! Numbers at random that aren't. In: a seed. Out: the same numbers in every run and every later version.

/// SplitMix64 (Steele, Lea, Flood 2014). Our own, because a seed written down once must mean the
/// same schedule in every later version: no library promises that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generator(u64);

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound` (which isn't 0); as good as uniform for the small bounds here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }
}

pub(super) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Which process of the tree this is, without its pid: made of the parent's and how many children
/// that has with this one.
pub fn lineage_of_child(parent: u64, children: u64) -> u64 {
    mix(parent
        .wrapping_add(children)
        .wrapping_add(0x632b_e59b_d9b4_e019))
}

/// The same for the process that is that child of that child ... of the first, from 0.
pub fn lineage_of(path: &[u64]) -> u64 {
    let child = |parent, &before: &u64| lineage_of_child(parent, before.wrapping_add(1));
    path.iter().fold(0, child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // The published test vector for seed 1234567.
        let mut generator = Generator::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| generator.number()).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
        assert!((0..1000).all(|_| generator.below(7) < 7));
    }

    #[test]
    fn children_have_schedules_of_their_own() {
        let first = lineage_of_child(0, 0);
        let second = lineage_of_child(0, 1);
        assert!(first != second && first != 0);
        assert_ne!(lineage_of_child(first, 0), lineage_of_child(second, 0));
        assert_eq!(lineage_of(&[]), 0);
        let third_of_first = lineage_of_child(lineage_of_child(0, 1), 3);
        assert_eq!(lineage_of(&[0, 2]), third_of_first);
    }
}

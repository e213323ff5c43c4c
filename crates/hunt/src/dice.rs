//! Choices at random that are the same in every run with the same seed. In: a seed. Out: numbers.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Dice(u64);

/// SplitMix64's output function: neighbours become strangers.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(mix(seed))
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.number()) * bound as u128) >> 64) as usize
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_choices() {
        let choices = |seed| {
            let mut dice = Dice::new(seed);
            let mut all: Vec<usize> = (0..20).collect();
            dice.shuffle(&mut all);
            (dice.below(1000), dice.once_in(3), all)
        };
        assert_eq!(choices(7), choices(7));
        assert_ne!(choices(7).2, choices(8).2);
        let (_, _, mut all) = choices(7);
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<_>>());
        assert_eq!(Dice::new(1).below(0), 0);
        assert_eq!(Dice::new(1).pick::<u8>(&[]), None);
    }
}

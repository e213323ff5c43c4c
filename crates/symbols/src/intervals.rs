//! Address ranges that may nest and overlap: ranges with values in, those around an address out.

use std::ops::Range;

#[derive(Debug)]
pub(crate) struct Intervals<T> {
    /// By start; with equal starts the longer ones first.
    ranges: Vec<(Range<u64>, T)>,
    /// The greatest end of all ranges up to each, so that a search backwards knows when to stop.
    reach: Vec<u64>,
}

impl<T> Intervals<T> {
    pub fn new(mut ranges: Vec<(Range<u64>, T)>) -> Intervals<T> {
        ranges.retain(|(range, _)| !range.is_empty());
        ranges.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
        let mut furthest = 0;
        let reach = ranges
            .iter()
            .map(|(range, _)| {
                furthest = furthest.max(range.end);
                furthest
            })
            .collect();
        Intervals { ranges, reach }
    }

    pub fn iter(&self) -> impl Iterator<Item = &(Range<u64>, T)> {
        self.ranges.iter()
    }

    /// The ranges that hold the address, smallest first.
    pub fn around(&self, address: u64) -> Vec<&(Range<u64>, T)> {
        let after = self
            .ranges
            .partition_point(|(range, _)| range.start <= address);
        let mut found: Vec<_> = (0..after)
            .rev()
            .take_while(|&index| self.reach[index] > address)
            .map(|index| &self.ranges[index])
            .filter(|(range, _)| range.contains(&address))
            .collect();
        found.sort_by_key(|(range, _)| range.end - range.start);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_and_overlapping_ranges_are_found_smallest_first() {
        let ranges = vec![
            (0..100, 'a'),
            (10..20, 'b'),
            (12..14, 'c'),
            (15..30, 'd'),
            (50..50, 'e'),
        ];
        let intervals = Intervals::new(ranges.clone());
        for address in 0..110 {
            let mut expected: Vec<_> = ranges
                .iter()
                .filter(|(range, _)| range.contains(&address))
                .collect();
            expected.sort_by_key(|(range, _)| range.end - range.start);
            assert_eq!(intervals.around(address), expected, "{address}");
        }
    }
}

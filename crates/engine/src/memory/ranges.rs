//! A set of page-aligned ranges of addresses.

use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Default)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub const fn new() -> Ranges {
        Ranges(BTreeMap::new())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, addr: u64) -> bool {
        let last = self.0.range(..=addr).next_back();
        last.is_some_and(|(_, &end)| addr < end)
    }

    /// The parts of the set inside `range`.
    pub fn inside(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let before = self.0.range(..range.start).next_back();
        let from = before.map_or(range.start, |(&start, _)| start);
        self.0
            .range(from..range.end.max(from))
            .map(|(&start, &end)| start.max(range.start)..end.min(range.end))
            .filter(|part| part.start < part.end)
            .collect()
    }

    /// Cuts `range` into runs inside (`true`) and outside of the set.
    pub fn runs(&self, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut runs = Vec::new();
        let mut at = range.start;
        for part in self.inside(&range) {
            if at < part.start {
                runs.push((at..part.start, false));
            }
            at = part.end;
            runs.push((part, true));
        }
        if at < range.end {
            runs.push((at..range.end, false));
        }
        runs
    }

    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.remove(range.clone());
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&before, &to)) = self.0.range(..start).next_back()
            && to == start
        {
            start = before;
        }
        if let Some(to) = self.0.remove(&end) {
            end = to;
        }
        self.0.insert(start, end);
    }

    pub fn remove(&mut self, range: Range<u64>) {
        for part in self.inside(&range) {
            let whole = self.0.range(..=part.start).next_back();
            let Some((&start, &end)) = whole else {
                continue;
            };
            self.0.remove(&start);
            if start < part.start {
                self.0.insert(start, part.start);
            }
            if part.end < end {
                self.0.insert(part.end, end);
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserts_cuts_and_joins() {
        let mut set = Ranges::new();
        set.insert(10..20);
        set.insert(20..30);
        set.insert(5..12);
        assert_eq!(set.iter().next(), Some(5..30));
        set.remove(8..9);
        set.remove(25..40);
        assert_eq!(set.iter().collect::<Vec<_>>(), [5..8, 9..25]);
        assert!(set.contains(24) && !set.contains(8) && !set.contains(25));
        assert_eq!(
            set.runs(0..12),
            [(0..5, false), (5..8, true), (8..9, false), (9..12, true)]
        );
        assert_eq!(set.inside(&(6..7)), vec![6..7]);
    }
}

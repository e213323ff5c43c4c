//! The interval map: which guest mapping lies where.
//!
//! Mappings never overlap, and neighbours that continue each other are one mapping, as in the
//! kernel. Knows nothing of the host.

use std::collections::BTreeMap;
use std::ops::Range;

use super::mapping::Mapping;

#[derive(Default, Debug)]
pub struct MappingMap {
    by_start: BTreeMap<u64, Mapping>,
}

impl MappingMap {
    /// The mapping that holds `addr`.
    pub fn get(&self, addr: u64) -> Option<&Mapping> {
        let (_, m) = self.by_start.range(..=addr).next_back()?;
        (addr < m.end).then_some(m)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Mapping> {
        self.by_start.values()
    }

    /// All mappings that share an address with `range`, in order.
    pub fn overlapping(&self, range: Range<u64>) -> impl DoubleEndedIterator<Item = &Mapping> {
        let first = match self.get(range.start) {
            Some(m) => m.start,
            None => range.start,
        };
        self.by_start
            .range(first..range.end.max(first))
            .map(|(_, m)| m)
    }

    pub fn is_free(&self, range: Range<u64>) -> bool {
        self.overlapping(range).next().is_none()
    }

    /// How far mappings without a hole reach from `range.start`, at most to `range.end`.
    pub fn covered_to(&self, range: Range<u64>) -> u64 {
        let mut at = range.start;
        for m in self.overlapping(range.clone()) {
            if m.start > at {
                break;
            }
            at = m.end.min(range.end);
        }
        at
    }

    /// The parts of `range` where nothing is mapped, in order.
    pub fn holes(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut holes = Vec::new();
        let mut at = range.start;
        for m in self.overlapping(range.clone()) {
            if at < m.start {
                holes.push(at..m.start);
            }
            at = m.end;
        }
        if at < range.end {
            holes.push(at..range.end);
        }
        holes
    }

    /// Takes everything in `range` out; mappings at its edges are cut.
    pub fn remove(&mut self, range: Range<u64>) -> Vec<Mapping> {
        if range.is_empty() {
            return Vec::new();
        }
        self.split(range.start);
        self.split(range.end);
        let starts: Vec<u64> = self.by_start.range(range).map(|(&s, _)| s).collect();
        starts
            .iter()
            .filter_map(|s| self.by_start.remove(s))
            .collect()
    }

    /// Adds a mapping, replacing what was there.
    pub fn insert(&mut self, mapping: Mapping) {
        if mapping.is_empty() {
            return;
        }
        self.remove(mapping.start..mapping.end);
        self.by_start.insert(mapping.start, mapping);
        self.merge_around(mapping.start..mapping.end);
    }

    /// Changes all mappings inside `range`, cutting those at its edges.
    pub fn update(&mut self, range: Range<u64>, mut change: impl FnMut(&mut Mapping)) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        for (_, m) in self.by_start.range_mut(range.clone()) {
            change(m);
        }
        self.merge_around(range);
    }

    fn split(&mut self, at: u64) {
        let Some(&whole) = self.get(at).filter(|m| m.start < at) else {
            return;
        };
        self.by_start
            .insert(whole.start, whole.slice(whole.start, at));
        self.by_start.insert(at, whole.slice(at, whole.end));
    }

    /// Joins mappings inside `range` and at its edges where one continues the other.
    fn merge_around(&mut self, range: Range<u64>) {
        let before = self.by_start.range(..range.start).next_back();
        let mut at = before.map_or(range.start, |(&s, _)| s);
        while at <= range.end {
            let mut following = self.by_start.range(at..);
            let Some((_, &m)) = following.next() else {
                break;
            };
            let Some((_, &next)) = following.next() else {
                break;
            };
            if m.continues_with(&next) {
                self.by_start.remove(&next.start);
                self.by_start
                    .insert(m.start, Mapping { end: next.end, ..m });
                at = m.start;
            } else {
                at = next.start;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::FileIdentity;
    use super::super::mapping::{Backing, PAGE};
    use super::*;
    use proptest::prelude::*;

    const PAGES: u64 = 40;

    /// What the model keeps of a page: protection and, for a file, the page's offset in it.
    type Page = Option<(i32, Option<u64>)>;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(Range<u64>, i32, Option<u64>),
        Remove(Range<u64>),
        Protect(Range<u64>, i32),
    }

    fn op() -> impl Strategy<Value = Op> {
        let range = (0..PAGES, 1..12u64).prop_map(|(a, n)| a..(a + n).min(PAGES));
        prop_oneof![
            (range.clone(), 0..4, prop::option::of(0..8u64))
                .prop_map(|(r, p, f)| Op::Insert(r, p, f)),
            range.clone().prop_map(Op::Remove),
            (range, 0..4).prop_map(|(r, p)| Op::Protect(r, p)),
        ]
    }

    fn mapping(r: &Range<u64>, prot: i32, file: Option<u64>) -> Mapping {
        let mut m = Mapping::anon(r.start * PAGE, r.end * PAGE, prot);
        if let Some(first) = file {
            let file = FileIdentity::default();
            m.backing = Backing::File {
                file,
                offset: first * PAGE,
                image: None,
            };
            m.was_writable = true;
        }
        m
    }

    fn page_of(map: &MappingMap, page: u64) -> Page {
        let m = map.get(page * PAGE)?;
        let file = match m.backing {
            Backing::File { offset, .. } => Some(offset / PAGE + page - m.start / PAGE),
            _ => None,
        };
        Some((m.prot, file))
    }

    proptest! {
        #[test]
        fn agrees_with_an_array_of_pages(ops in prop::collection::vec(op(), 1..60)) {
            let mut map = MappingMap::default();
            let mut model: Vec<Page> = vec![None; PAGES as usize];
            for op in ops {
                match &op {
                    Op::Insert(r, prot, file) => {
                        map.insert(mapping(r, *prot, *file));
                        for (i, page) in r.clone().enumerate() {
                            model[page as usize] = Some((*prot, file.map(|f| f + i as u64)));
                        }
                    }
                    Op::Remove(r) => {
                        let gone = map.remove(r.start * PAGE..r.end * PAGE);
                        let pages: u64 = gone.iter().map(|m| m.len() / PAGE).sum();
                        let had = r.clone().filter(|&p| model[p as usize].is_some()).count();
                        prop_assert_eq!(pages, had as u64);
                        r.clone().for_each(|p| model[p as usize] = None);
                    }
                    Op::Protect(r, prot) => {
                        map.update(r.start * PAGE..r.end * PAGE, |m| m.prot = *prot);
                        for p in r.clone() {
                            if let Some(page) = &mut model[p as usize] {
                                page.0 = *prot;
                            }
                        }
                    }
                }
                for p in 0..PAGES {
                    prop_assert_eq!(page_of(&map, p), model[p as usize], "page {} after {:?}", p, op);
                }
                let all: Vec<_> = map.iter().collect();
                for pair in all.windows(2) {
                    prop_assert!(pair[0].end <= pair[1].start && pair[0].start < pair[0].end);
                    prop_assert!(!pair[0].continues_with(pair[1]), "not merged: {:?}", pair);
                }
                for start in 0..PAGES {
                    let hole = (start..PAGES).find(|&p| model[p as usize].is_none()).unwrap_or(PAGES);
                    prop_assert_eq!(map.covered_to(start * PAGE..PAGES * PAGE), hole * PAGE);
                    let free = hole == start && model.get(start as usize + 1).is_none_or(|p| p.is_none());
                    let end = (start + 2).min(PAGES);
                    prop_assert_eq!(map.is_free(start * PAGE..end * PAGE), free);
                }
            }
        }
    }
}

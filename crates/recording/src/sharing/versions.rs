//! Versions of a page: what is in it when it changes hands goes in; which words have changed since a version comes out.
//!
//! There is one copy of a page for all, of when it last changed hands, and a *mark* for each line of eight words: in which version it
//! has changed last, which of its words then, and how long before that it had changed. So a page in which nobody
//! has changed anything costs a comparison and not one store, and who had version 7 is told the words that have changed since,
//! whatever happened in between.

use std::ops::Range;

/// A number for what was in a page at a moment; 0 is none.
pub type Version = u32;

/// Words of a line.
const LINE: usize = 8;
/// Differences that so many equal words are between are one.
const GAP: usize = 2;

/// Of a line: the version that it changed in; by how much that is later than the change before, or more; its words that changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Mark(u64);

impl Mark {
    const MOST_LATER: u32 = (1 << 24) - 1;

    fn version(self) -> Version {
        (self.0 >> 32) as Version
    }

    fn before(self) -> Version {
        self.version() - (self.0 >> 8) as u32 % (Mark::MOST_LATER + 1)
    }

    fn changed(self, version: Version, words: u8) -> Mark {
        let later = (version - self.version()).min(Mark::MOST_LATER);
        Mark((version as u64) << 32 | (later as u64) << 8 | words as u64)
    }

    /// The words that have changed since `seen`, or more.
    fn since(self, seen: Version) -> u8 {
        if self.version() <= seen {
            0
        } else if self.before() <= seen {
            self.0 as u8
        } else {
            u8::MAX
        }
    }
}

/// How many marks a page of so many words has.
pub const fn marks(words: usize) -> usize {
    words.div_ceil(LINE)
}

/// A page changes hands, with `now` in it: brings its copy, of `version`, up to date. Which version is it now?
pub fn publish(copy: &mut [u64], marks: &mut [Mark], version: Version, now: &[u64]) -> Version {
    let next = version + 1;
    let mut result = version;
    let lines = copy.chunks_mut(LINE).zip(now.chunks(LINE)).zip(marks);
    for ((copy, now), mark) in lines {
        let both = || copy.iter().zip(now);
        if both().fold(0, |sum, (a, b)| sum | (a ^ b)) != 0 {
            let bits = both().enumerate().map(|(n, (a, b))| u8::from(a != b) << n);
            *mark = mark.changed(next, bits.sum());
            copy.copy_from_slice(now);
            result = next;
        }
    }
    result
}

/// The words of a page that have changed since `seen`; some more, perhaps.
pub fn changed(marks: &[Mark], seen: Version, mut each: impl FnMut(Range<usize>)) {
    let mut open: Option<Range<usize>> = None;
    for (line, mark) in marks.iter().enumerate() {
        let words = mark.since(seen);
        for n in (0..LINE).filter(|n| words >> n & 1 != 0) {
            let word = line * LINE + n;
            match &mut open {
                Some(range) if word <= range.end + GAP => range.end = word + 1,
                _ => {
                    if let Some(range) = open.replace(word..word + 1) {
                        each(range);
                    }
                }
            }
        }
    }
    if let Some(range) = open {
        each(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Page {
        now: [u64; 32],
        copy: [u64; 32],
        marks: [Mark; 4],
        version: Version,
    }

    impl Page {
        fn new() -> Page {
            Page {
                now: [0; 32],
                copy: [0; 32],
                marks: [Mark::default(); 4],
                version: 1,
            }
        }
        fn set(&mut self, word: usize, value: u64) -> Version {
            self.now[word] = value;
            self.version = publish(&mut self.copy, &mut self.marks, self.version, &self.now);
            assert_eq!(self.copy, self.now);
            self.version
        }
        fn since(&self, seen: Version) -> Vec<(usize, usize)> {
            let mut ranges = Vec::new();
            changed(&self.marks, seen, |range| {
                ranges.push((range.start, range.end))
            });
            ranges
        }
    }

    #[test]
    fn words_that_changed_since() {
        let mut page = Page::new();
        assert_eq!(page.set(3, 0), 1, "nothing has changed");
        assert_eq!(page.since(1), []);
        let first = page.set(3, 5);
        let second = page.set(17, 6);
        assert_eq!(page.since(1), [(3, 4), (17, 18)]);
        assert_eq!(page.since(first), [(17, 18)]);
        assert_eq!(page.since(second), []);
        // The line has changed twice since: which words isn't known any more.
        page.set(4, 7);
        assert_eq!(page.since(1), [(0, 8), (17, 18)]);
        assert_eq!(page.since(second), [(4, 5)]);
    }

    #[test]
    fn what_is_set_back_has_changed() {
        let mut page = Page::new();
        let seen = page.set(9, 1);
        page.set(9, 2);
        page.set(9, 1);
        assert_eq!(page.since(seen), [(8, 16)]);
    }

    #[test]
    fn near_words_are_one_range() {
        let mut page = Page::new();
        page.now[6] = 1;
        page.now[9] = 1;
        page.set(14, 1);
        assert_eq!(page.since(1), [(6, 10), (14, 15)]);
    }

    #[test]
    fn long_ago_is_longer_ago_than_can_be_said() {
        let late = Mark::default().changed(1 << 26, 1);
        assert_eq!(late.since(0), u8::MAX);
        assert_eq!(late.since((1 << 26) - 1), 1);
    }
}

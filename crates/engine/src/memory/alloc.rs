//! Where a mapping goes that has no fixed address.
//!
//! The same calls always give the same addresses, whatever the host's layout. Images have a place
//! by file identity, so that saved translations fit them in the next run; the rest is packed from
//! one end of its area.

use std::hash::{BuildHasher, BuildHasherDefault};
use std::ops::Range;

use super::file::FileIdentity;
use super::map::MappingMap;
use super::mapping::PAGE;
use crate::layout;

/// Decides where images lie.
pub trait PlaceImage {
    /// Where an image of `span` bytes should begin (page-aligned, in guest memory). The place is
    /// used if it is free; otherwise, or for `None`, another one is searched from there.
    fn place(&mut self, file: &FileIdentity, span: u64) -> Option<u64>;
}

impl<F: FnMut(&FileIdentity, u64) -> Option<u64>> PlaceImage for F {
    fn place(&mut self, file: &FileIdentity, span: u64) -> Option<u64> {
        self(file, span)
    }
}

/// The place by a hash of the identity.
pub struct ByHash;

/// Images start at multiples of this, so that small ones don't end up interleaved.
const IMAGE_STEP: u64 = 0x1_0000;

impl PlaceImage for ByHash {
    fn place(&mut self, file: &FileIdentity, span: u64) -> Option<u64> {
        let area = layout::IMAGES;
        let room = (area.end - area.start).checked_sub(span)? / IMAGE_STEP + 1;
        let hash = BuildHasherDefault::<rustc_hash::FxHasher>::default().hash_one(file);
        Some(area.start + hash % room * IMAGE_STEP)
    }
}

/// What kind of place a mapping wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// In reach of the code cache if there is room: images-to-be and generated code.
    Low,
    /// Below 2 GiB or not at all (MAP_32BIT).
    LowOnly,
    High,
}

/// Search state of the allocator.
pub(super) struct Places {
    images: Box<dyn PlaceImage>,
    /// No page of HIGH_MAPS at or above this is free.
    high_full: u64,
    /// Ranges where the host surprisingly has something; never tried again.
    blocked: Vec<Range<u64>>,
}

impl Places {
    pub(super) fn new(images: Box<dyn PlaceImage>) -> Places {
        Places {
            images,
            high_full: layout::HIGH_MAPS.end,
            blocked: Vec::new(),
        }
    }

    pub(super) fn set_image_places(&mut self, images: Box<dyn PlaceImage>) {
        self.images = images;
    }

    /// Something in `range` was unmapped.
    pub(super) fn freed(&mut self, range: &Range<u64>) {
        let end = range.end.min(layout::HIGH_MAPS.end);
        self.high_full = self.high_full.max(end);
    }

    /// The host refused `range` although no guest mapping is there.
    pub(super) fn block(&mut self, range: Range<u64>) {
        self.blocked.push(range);
    }

    pub(super) fn find(
        &mut self,
        map: &MappingMap,
        want: Want,
        len: u64,
        align: u64,
    ) -> Option<u64> {
        let low = || self.bottom_up(map, layout::LOW_ANON, len, align);
        match want {
            Want::LowOnly => low(),
            Want::Low => low().or_else(|| self.high(map, len, align)),
            Want::High => self.high(map, len, align),
        }
    }

    /// A place for an image: where its identity belongs or as near behind as possible.
    pub(super) fn find_image(
        &mut self,
        map: &MappingMap,
        file: &FileIdentity,
        len: u64,
        align: u64,
    ) -> Option<u64> {
        let area = layout::IMAGES;
        let wish = self
            .images
            .place(file, len)
            .or_else(|| ByHash.place(file, len));
        let from = match wish {
            Some(wish) => wish.checked_next_multiple_of(align)?,
            None => area.end,
        };
        let wished = wish.is_some() && layout::is_guest(from, len);
        if wished && self.conflict(map, from..from + len).is_none() {
            return Some(from);
        }
        let from = from.clamp(area.start, area.end);
        self.bottom_up(map, from..area.end, len, align)
            .or_else(|| self.bottom_up(map, area, len, align))
            .or_else(|| self.bottom_up(map, layout::LOW_ANON, len, align))
            .or_else(|| self.high(map, len, align))
    }

    /// The lowest range that stands in the way.
    fn conflict(&self, map: &MappingMap, range: Range<u64>) -> Option<Range<u64>> {
        let mapped = map
            .overlapping(range.clone())
            .next()
            .map(|m| m.start..m.end);
        let blocked = self
            .blocked
            .iter()
            .filter(|b| b.start < range.end && range.start < b.end);
        mapped
            .into_iter()
            .chain(blocked.cloned())
            .min_by_key(|r| r.start)
    }

    pub(super) fn is_free(&self, map: &MappingMap, range: Range<u64>) -> bool {
        self.conflict(map, range).is_none()
    }

    fn bottom_up(&self, map: &MappingMap, area: Range<u64>, len: u64, align: u64) -> Option<u64> {
        let mut at = area.start.checked_next_multiple_of(align)?;
        loop {
            let end = at.checked_add(len).filter(|&end| end <= area.end)?;
            match self.conflict(map, at..end) {
                None => return Some(at),
                Some(taken) => at = taken.end.checked_next_multiple_of(align)?,
            }
        }
    }

    fn high(&mut self, map: &MappingMap, len: u64, align: u64) -> Option<u64> {
        let area = layout::HIGH_MAPS;
        let mut end = self.high_full;
        loop {
            let at = end.checked_sub(len)? / align * align;
            if at < area.start {
                return None;
            }
            match self.conflict(map, at..at + len) {
                None if at + len == self.high_full => {
                    self.high_full = at;
                    return Some(at);
                }
                None => return Some(at),
                Some(taken) => {
                    // Full so far up to a mapping that ends exactly here: never look again.
                    if taken.end >= self.high_full && taken.start < self.high_full {
                        self.high_full = taken.start;
                    }
                    end = taken.start;
                }
            }
        }
    }
}

/// How many host refusals to step around before giving up.
pub(super) const ATTEMPTS: usize = 64;

/// The alignment that the kernel would give: huge pages want theirs, and so does anonymous memory
/// in whole huge pages (else transparent ones can't be used).
pub(super) fn alignment(len: u64, flags: i32) -> u64 {
    const HUGE: u64 = 2 << 20;
    if flags & libc::MAP_HUGETLB != 0 {
        return match flags as u32 >> 26 & 63 {
            0 => HUGE,
            shift => (1u64 << shift).max(PAGE),
        };
    }
    let anon = flags & libc::MAP_ANONYMOUS != 0;
    if anon && flags & libc::MAP_STACK == 0 && len >= HUGE && len.is_multiple_of(HUGE) {
        HUGE
    } else {
        PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapping::Mapping;
    use super::*;

    fn file(ino: u64) -> FileIdentity {
        FileIdentity {
            dev: 1,
            ino,
            size: 100,
            mtime_ns: 5,
        }
    }

    #[test]
    fn high_maps_are_packed_from_the_top_and_holes_reused() {
        let mut map = MappingMap::default();
        let mut places = Places::new(Box::new(ByHash));
        let take = |map: &mut MappingMap, places: &mut Places, pages: u64| {
            let at = places.find(map, Want::High, pages * PAGE, PAGE).unwrap();
            map.insert(Mapping::anon(at, at + pages * PAGE, 3));
            at
        };
        let top = layout::HIGH_MAPS.end;
        let a = take(&mut map, &mut places, 4);
        let b = take(&mut map, &mut places, 2);
        assert_eq!((a, b), (top - 4 * PAGE, top - 6 * PAGE));
        map.remove(a..a + 2 * PAGE);
        places.freed(&(a..a + 2 * PAGE));
        assert_eq!(take(&mut map, &mut places, 3), b - 3 * PAGE);
        assert_eq!(take(&mut map, &mut places, 1), a + PAGE);
        assert_eq!(take(&mut map, &mut places, 1), a);
        assert_eq!(take(&mut map, &mut places, 1), b - 4 * PAGE);
    }

    #[test]
    fn an_image_keeps_its_place_and_moves_aside_when_taken() {
        let mut map = MappingMap::default();
        let mut places = Places::new(Box::new(ByHash));
        let span = 0x20_0000;
        let first = places.find_image(&map, &file(7), span, PAGE).unwrap();
        assert!(layout::IMAGES.contains(&first));
        assert_eq!(places.find_image(&map, &file(7), span, PAGE), Some(first));
        map.insert(Mapping::anon(first, first + PAGE, 1));
        let second = places.find_image(&map, &file(7), span, PAGE).unwrap();
        assert_ne!(first, second);
        let aligned = places.find_image(&map, &file(7), span, 2 << 20).unwrap();
        assert_eq!(aligned % (2 << 20), 0);
    }

    #[test]
    fn what_does_not_fit_low_goes_high_or_fails() {
        let map = MappingMap::default();
        let mut places = Places::new(Box::new(ByHash));
        let big = 1 << 30;
        assert!(places.find(&map, Want::Low, big, PAGE).unwrap() >= layout::HIGH_MAPS.start);
        assert_eq!(places.find(&map, Want::LowOnly, big, PAGE), None);
        assert_eq!(places.find(&map, Want::High, u64::MAX / 2, PAGE), None);
        assert!(places.find_image(&map, &file(1), big, PAGE).unwrap() >= layout::HIGH_MAPS.start);
    }
}

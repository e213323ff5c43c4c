//! The atlas: which addresses belong to which image, kept in the user's cache folder.
//!
//! A saved translation contains guest and host addresses, so it fits only if its image and itself
//! lie where they were. The atlas gives every file it has seen a range for the image and one for
//! its translations, disjoint from all others as long as there is room; after that ranges are
//! given out again from the start, and two images that then collide in one process are simply
//! placed elsewhere and not saved.

use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::rc::Rc;

use super::room::room_for;
use super::store::{OPEN_FLAGS, Store, is_private, may_write};
use crate::layout;
use crate::memory::{FileIdentity, PlaceImage};

pub const FILE: &str = "atlas";

/// Beyond this many the older half is forgotten.
const MOST_PLACES: usize = 8192;

/// Images start at multiples of this.
const STEP: u64 = 0x1_0000;

/// The ranges of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: FileIdentity,
    pub guest: u64,
    pub guest_span: u64,
    pub host: u64,
    pub host_span: u64,
}

const RECORD: usize = 80;

impl Place {
    fn to_bytes(self) -> [u8; RECORD] {
        let f = self.file;
        let words = [
            f.dev,
            f.ino,
            f.size,
            f.mtime_ns as u64,
            self.guest,
            self.guest_span,
            self.host,
            self.host_span,
        ];
        let mut bytes = [0; RECORD];
        for (chunk, word) in bytes
            .chunks_exact_mut(8)
            .zip(words.into_iter().chain([0, sum(&words)]))
        {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Place> {
        let mut words = [0u64; RECORD / 8];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(chunk.try_into().ok()?);
        }
        let [
            dev,
            ino,
            size,
            mtime,
            guest,
            guest_span,
            host,
            host_span,
            _,
            check,
        ] = words;
        if check != sum(&words[..8]) {
            return None;
        }
        let file = FileIdentity {
            dev,
            ino,
            size,
            mtime_ns: mtime as i64,
        };
        Some(Place {
            file,
            guest,
            guest_span,
            host,
            host_span,
        })
    }

    /// Hostile or broken files must not make the engine map over itself.
    fn is_sane(&self) -> bool {
        let inside = |at: u64, span: u64, area: &std::ops::Range<u64>| {
            at.is_multiple_of(4096) && area.contains(&at) && span <= area.end - at
        };
        inside(self.guest, self.guest_span, &layout::IMAGES)
            && inside(self.host, self.host_span, &layout::IMAGE_CODE)
    }
}

fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0x9e37_79b9_7f4a_7c15, |sum, word| {
        (sum ^ word)
            .wrapping_mul(0x2545_f491_4f6c_dd1d)
            .rotate_left(29)
    })
}

#[derive(Default)]
pub struct Atlas {
    places: Vec<Place>,
    store: Option<Store>,
}

/// Shared by guest memory (image places) and the code cache (places of translations).
#[derive(Clone, Default)]
pub struct SharedAtlas(Rc<RefCell<Atlas>>);

impl Atlas {
    /// Reads the atlas of a folder; without one, places are given for this process alone.
    pub fn open(store: Option<&Store>) -> SharedAtlas {
        let places = store.map(read).unwrap_or_default();
        SharedAtlas(Rc::new(RefCell::new(Atlas {
            places,
            store: store.cloned(),
        })))
    }

    /// The atlas of a folder as it is now; new places are for this process alone.
    pub fn copy_of(store: Option<&Store>) -> SharedAtlas {
        let places = store.map(read).unwrap_or_default();
        SharedAtlas(Rc::new(RefCell::new(Atlas {
            places,
            store: None,
        })))
    }

    fn find(&self, file: &FileIdentity) -> Option<Place> {
        self.places
            .iter()
            .rev()
            .find(|place| place.file == *file)
            .copied()
    }

    /// The place of a file, given now if it has none.
    fn place(&mut self, file: &FileIdentity, span: u64) -> Option<Place> {
        if let Some(place) = self.find(file).filter(|place| place.guest_span >= span) {
            return Some(place);
        }
        let Some(store) = self.store.clone() else {
            return self.give(file, span);
        };
        let mut options = std::fs::OpenOptions::new();
        let file_result = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OPEN_FLAGS)
            .open(store.dir.join(FILE));
        let Ok(handle) = file_result else {
            return self.give(file, span);
        };
        // Larger than it ever gets.
        if may_write((2 * MOST_PLACES * RECORD) as u64).is_err() || !lock(&handle) {
            return self.give(file, span);
        }
        // Another process may have added this file, or taken the range that would be next.
        self.places = read(&store);
        if let Some(place) = self.find(file).filter(|place| place.guest_span >= span) {
            return Some(place);
        }
        if self.places.len() >= MOST_PLACES {
            self.places.drain(..MOST_PLACES / 2);
            let bytes: Vec<u8> = self
                .places
                .iter()
                .flat_map(|place| place.to_bytes())
                .collect();
            handle
                .set_len(0)
                .and_then(|()| handle.write_all_at(&bytes, 0))
                .ok()?;
        }
        let end = (self.places.len() * RECORD) as u64;
        let place = self.give(file, span)?;
        // Not written is not lost: the place is good for this process.
        let _ = handle.write_all_at(&place.to_bytes(), end);
        Some(place)
    }

    /// Gives out the ranges behind the last ones.
    fn give(&mut self, file: &FileIdentity, span: u64) -> Option<Place> {
        let after = |last: u64, span: u64, area: std::ops::Range<u64>, step: u64| {
            let at = last.max(area.start).next_multiple_of(step);
            let at = if at.checked_add(span)? <= area.end {
                at
            } else {
                area.start
            };
            (at + span <= area.end).then_some(at)
        };
        let last = self.places.last();
        let guest_end = last.map_or(0, |place| place.guest + place.guest_span);
        let host_end = last.map_or(0, |place| place.host + place.host_span);
        let host_span = room_for(span);
        let place = Place {
            file: *file,
            guest: after(guest_end, span, layout::IMAGES, STEP)?,
            guest_span: span,
            host: after(host_end, host_span, layout::IMAGE_CODE, 4096)?,
            host_span,
        };
        self.places.push(place);
        Some(place)
    }
}

/// Locks the file until it is closed. Its holders need microseconds; but one may have been stopped,
/// and nobody shall wait for that.
fn lock(file: &std::fs::File) -> bool {
    for _ in 0..100 {
        // SAFETY: flock on an open descriptor.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    false
}

fn read(store: &Store) -> Vec<Place> {
    let mut options = std::fs::OpenOptions::new();
    let opened = options
        .read(true)
        .custom_flags(OPEN_FLAGS)
        .open(store.dir.join(FILE));
    let Ok(file) = opened else { return Vec::new() };
    let Ok(meta) = file.metadata() else {
        return Vec::new();
    };
    let len = (meta.len() as usize).min(2 * MOST_PLACES * RECORD) / RECORD * RECORD;
    if !is_private(&meta) {
        return Vec::new();
    }
    let mut bytes = vec![0; len];
    if file.read_exact_at(&mut bytes, 0).is_err() {
        return Vec::new();
    }
    bytes
        .chunks_exact(RECORD)
        .map_while(Place::from_bytes)
        .filter(Place::is_sane)
        .collect()
}

impl SharedAtlas {
    /// Where translations of `file` (an image of `span` bytes) belong.
    pub fn host_place(&self, file: &FileIdentity, span: u64) -> Option<std::ops::Range<u64>> {
        let place = self.0.borrow_mut().place(file, span)?;
        Some(place.host..place.host + place.host_span)
    }
}

impl PlaceImage for SharedAtlas {
    fn place(&mut self, file: &FileIdentity, span: u64) -> Option<u64> {
        Some(self.0.borrow_mut().place(file, span)?.guest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(ino: u64) -> FileIdentity {
        FileIdentity {
            dev: 1,
            ino,
            size: 4096,
            mtime_ns: 7,
        }
    }

    #[test]
    fn places_are_disjoint_and_stay() {
        let dir = std::env::temp_dir().join(format!("clew-atlas-{}", std::process::id()));
        let store = Store::open(&dir).unwrap();
        let atlas = Atlas::open(Some(&store));
        let places: Vec<Place> = (0..50)
            .map(|n| {
                atlas
                    .0
                    .borrow_mut()
                    .place(&file(n), 0x3_2000 + n * 4096)
                    .unwrap()
            })
            .collect();
        for (a, b) in places.iter().zip(&places[1..]) {
            assert!(a.guest + a.guest_span <= b.guest && a.host + a.host_span <= b.host);
            assert!(a.is_sane());
        }
        let again = Atlas::open(Some(&store));
        for place in &places {
            assert_eq!(
                again.0.borrow_mut().place(&place.file, place.guest_span),
                Some(*place)
            );
        }
        std::fs::write(dir.join(FILE), b"garbage that is no record").unwrap();
        assert!(read(&store).is_empty());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_full_area_starts_over() {
        let atlas = Atlas::open(None);
        for n in 0..100 {
            let place = atlas.0.borrow_mut().place(&file(n), 40 << 20).unwrap();
            assert!(place.is_sane());
        }
        assert_eq!(atlas.0.borrow_mut().place(&file(200), 1 << 40), None);
    }
}

//! A state for each granule of guest memory, which translated code looks at before each access: who has touched it
//! so far, or whatever else a byte can say.
//!
//! In: states of granules, and which of them the thread that runs now may pass, reading and writing. Out:
//! [`Exit::Watch`](crate::context::Exit::Watch) before an access to any other (`translate::checks`, with
//! [`Instruments::shadow`](super::instruments::Instruments::shadow)).
//!
//! A check looks at the granule of the access's first byte and the one behind it, so an access may be kept back for a
//! neighbour that it doesn't touch. Granules are told apart by bits 4 to 35 of an address; memory further apart than
//! that may share a state. Whoever leaves decides by the exact addresses.

use std::io;

use crate::context::GsBlock;
use crate::{layout, syscall};

const _: () = assert!(layout::GS_BLOCK + (size_of::<GsBlock>() as u64) <= layout::SHADOW_READS);

/// The states, and the tables of what is passed; all are gone when this is dropped.
pub struct Shadow {
    /// Pages of states that have any but 0, a bit each.
    used: Vec<u64>,
    reads: [bool; STATES],
    writes: [bool; STATES],
}

const STATES: usize = 256;
const ENTRIES: u64 = 1 << 32;
const PAGE: u64 = 4096;
/// The last granule has one behind it, too.
const LEN: u64 = ENTRIES + PAGE;
/// For each pair of states: a byte that isn't 0 if it isn't passed.
const TABLE: usize = STATES * STATES;

impl Shadow {
    /// A granule has `1 << SHIFT` bytes.
    pub const SHIFT: u32 = 4;
    pub const GRANULE: u64 = 1 << Shadow::SHIFT;
    pub const PLACE: u64 = layout::SHADOW;
    pub const READS: u64 = layout::SHADOW_READS;
    pub const WRITES: u64 = layout::SHADOW_WRITES;

    /// How many looks, a granule apart, see all that an access of so many bytes can touch.
    pub const fn looks(len: u32) -> u32 {
        let looks = (len + 14) / Shadow::GRANULE as u32;
        if looks == 0 { 1 } else { looks }
    }

    /// All states are 0, and none is passed. There can be one of these.
    pub fn map() -> io::Result<Shadow> {
        for (n, (place, len)) in PARTS.into_iter().enumerate() {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE
                | libc::MAP_ANONYMOUS
                | libc::MAP_NORESERVE
                | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: NOREPLACE: nothing that exists is touched.
            let at = unsafe { syscall!(libc::SYS_mmap, place, len, prot, flags, -1i64, 0) };
            if at != place as i64 {
                unmap(&PARTS[..n]);
                return Err(io::Error::from_raw_os_error(-at as i32));
            }
        }
        for table in [Shadow::READS, Shadow::WRITES] {
            pairs(table).fill(1);
        }
        Ok(Shadow {
            used: vec![0; (ENTRIES / PAGE / 64) as usize],
            reads: [false; STATES],
            writes: [false; STATES],
        })
    }

    /// The granule of an address.
    pub const fn granule(addr: u64) -> u32 {
        (addr >> Shadow::SHIFT) as u32
    }

    pub fn state(&self, granule: u32) -> u8 {
        // SAFETY: there is a byte for each, mapped as long as this lives.
        unsafe { (Shadow::PLACE as *const u8).add(granule as usize).read() }
    }

    pub fn set(&mut self, granule: u32, state: u8) {
        let page = granule / PAGE as u32;
        self.used[page as usize / 64] |= 1 << (page % 64);
        // SAFETY: likewise, and only this and translated code, which doesn't run now, use it.
        unsafe {
            (Shadow::PLACE as *mut u8)
                .add(granule as usize)
                .write(state)
        }
    }

    /// Whether a state lets this thread read, and write.
    pub fn pass(&mut self, state: u8, read: bool, write: bool) {
        change(Shadow::READS, &mut self.reads, state, read);
        change(Shadow::WRITES, &mut self.writes, state, write);
    }

    /// The next granule from there on that has had a state; a good deal of them haven't.
    pub fn next_used(&self, from: u32) -> Option<u32> {
        let page = from / PAGE as u32;
        let mut word = page as usize / 64;
        let mut bits = self.used[word] & (u64::MAX << (page % 64));
        while bits == 0 {
            word += 1;
            bits = *self.used.get(word)?;
        }
        let found = word as u32 * 64 + bits.trailing_zeros();
        Some((found * PAGE as u32).max(from))
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        unmap(&PARTS);
    }
}

/// Places and lengths.
const PARTS: [(u64, u64); 3] = [
    (Shadow::PLACE, LEN),
    (Shadow::READS, TABLE as u64),
    (Shadow::WRITES, TABLE as u64),
];

fn unmap(parts: &[(u64, u64)]) {
    for (place, len) in parts {
        // SAFETY: mapped by a shadow that is gone; code that looks there isn't run without one.
        unsafe { syscall!(libc::SYS_munmap, *place, *len) };
    }
}

/// Which pairs are kept back: the low byte of an index is the state of the first granule.
fn pairs(table: u64) -> &'static mut [u8] {
    // SAFETY: mapped as long as a shadow lives, and used through this alone, briefly.
    unsafe { std::slice::from_raw_parts_mut(table as *mut u8, TABLE) }
}

fn change(table: u64, passed: &mut [bool; STATES], state: u8, pass: bool) {
    let state = state as usize;
    if passed[state] == pass {
        return;
    }
    passed[state] = pass;
    let pairs = pairs(table);
    for other in 0..STATES {
        let kept = !(pass && passed[other]) as u8;
        pairs[state << 8 | other] = kept;
        pairs[other << 8 | state] = kept;
    }
}

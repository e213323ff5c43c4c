//! Instruments: breakpoints and watched memory, compiled into translations on demand.
//!
//! In: a set of them, as often as one likes. Out: [`Exit::Break`] and [`Exit::Watch`] where translated
//! code comes to one. Ticks, and all that the guest can see, are the same with and without.
//!
//! Only what is concerned is translated again, in memory beside the ordinary translations and never
//! from or into the store: of breakpoints, the image that they are in; of watched memory, all code,
//! but only once, since its checks look into a table. What isn't in use stays on a *shelf*, so that
//! switching instruments on and off costs a new dispatch table and no translation.

use std::collections::BTreeSet;
use std::ops::Range;

use super::mutable::Mutable;
use super::room::{map_anywhere, unmap_code};
use super::view::is_immutable;
use super::{CodeCache, Image};
use crate::context::{Exit, GsBlock, Ranges};
use crate::layout;
use crate::memory::Memory;
use crate::stats::Stats;
use crate::translate::HEAD;
use crate::translate::checks::{Checks, Confined, Filter};

/// What to stop at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instruments {
    /// Guest addresses of instructions: [`Exit::Break`] before each.
    pub breaks: BTreeSet<u64>,
    /// The same, if a register plus a displacement may be in one of `gated`: address, the register's number,
    /// displacement. Of others some come through.
    pub gates: BTreeSet<(u64, u8, i32)>,
    pub gated: Vec<Range<u64>>,
    /// [`Exit::Watch`] before each instruction that may touch one of them.
    pub watches: Vec<Watched>,
    /// [`Exit::Watch`] before each instruction that touches memory in a state that this thread doesn't pass. Instead
    /// of `watches`, while there is a [`Shadow`](super::shadow::Shadow).
    pub shadow: bool,
    /// [`Exit::Watch`] before each instruction that is atomic for other processors, too.
    pub locked: bool,
    /// Flags are to be right at every exit, even those that nobody will read: ordinary translations
    /// spoil them at a tick. Code that runs for 25 ticks with this shows no trace of what ran before.
    pub exact: bool,
    /// Translated code writes a trace, while there is a buffer for it ([`CodeCache::trace_into`]). Without `watches` and
    /// `shadow`.
    pub trace: bool,
    /// For tests: a breakpoint at one of so many instructions.
    pub every: Option<u64>,
    /// This is a probe's code ([`CodeCache::confined`]).
    pub confined: Option<Confined>,
}

/// A range of memory that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    pub range: Range<u64>,
    pub reads: bool,
    pub writes: bool,
}

/// A table bounds what a search has to look at; nothing in the guest's half of addresses is behind.
const END: [u64; 2] = [u64::MAX, u64::MAX];
/// So many translations of a body of code with different checks are kept for the next time.
const MOST_SHELVED: usize = 4;
/// Room for translations of mutable code with checks, and most room for those of an image: all of them
/// have to go beside the ordinary ones.
const MUTABLE_ROOM: u64 = 32 << 20;
const MOST_ROOM: u64 = 48 << 20;
/// Translations on the shelf with checks have no more than this together.
const MOST_SHELF: u64 = 128 << 20;

/// The instruments in use, and what they need.
#[derive(Default)]
pub(super) struct Instrumented {
    pub(super) wanted: Instruments,
    /// What is watched for reads, for writes, and for either, ending with [`END`].
    lists: [Vec<[u64; 2]>; 3],
    /// Entries of the filter that are set.
    set: Vec<Range<usize>>,
    filter_mapped: bool,
    /// Translations with other checks than the ones wanted now.
    shelf: Vec<Image>,
    mutable_shelf: Vec<Mutable>,
    /// Go on past every instrument: for tests over whole guests.
    pub(super) ignore: bool,
    /// For such tests, breakpoints at one of so many instructions; taken when code is first run.
    to_begin: Option<u64>,
}

/// Room for an image with checks, which are longer than what they are for.
pub(super) fn room_for(plain: u64, checks: &Checks) -> u64 {
    let room = match checks {
        Checks { trace: true, .. } => plain * 6,
        Checks { shadow: true, .. } => plain * 4,
        checks if checks.confined.is_some() => plain * 2,
        checks if checks.watch() => plain * 2,
        _ => plain,
    };
    room.min(MOST_ROOM)
}

impl Instruments {
    pub fn is_none(&self) -> bool {
        self.breaks.is_empty()
            && self.gates.is_empty()
            && self.watches.is_empty()
            && !self.shadow
            && !self.locked
            && !self.exact
            && !self.trace
            && self.every.is_none()
            && self.confined.is_none()
    }

    /// What is to be compiled into code, where it has these breakpoints.
    fn checks(&self, breaks: Vec<u64>, gates: Vec<(u64, u8, i32)>) -> Checks {
        let watched = |kind: fn(&Watched) -> bool| {
            let real = |watched: &&Watched| !watched.range.is_empty();
            self.watches.iter().filter(real).any(kind)
        };
        Checks {
            breaks,
            gates,
            every: self.every,
            reads: watched(|watched| watched.reads),
            writes: watched(|watched| watched.writes),
            shadow: self.shadow,
            locked: self.locked,
            exact: self.exact,
            trace: self.trace,
            confined: self.confined,
        }
    }

    /// What is to be compiled into the code of an image.
    pub(super) fn checks_in(&self, range: &Range<u64>) -> Checks {
        let gates = (range.start, 0, i32::MIN)..(range.end, 0, i32::MIN);
        self.checks(
            self.breaks.range(range.clone()).copied().collect(),
            self.gates.range(gates).copied().collect(),
        )
    }

    /// What is to be compiled into code that may change: breakpoints that are in no image.
    fn checks_elsewhere(&self, memory: &Memory) -> Checks {
        let elsewhere = |pc: u64| !is_immutable(memory, pc);
        let (breaks, gates) = (self.breaks.iter(), self.gates.iter());
        self.checks(
            breaks.copied().filter(|&pc| elsewhere(pc)).collect(),
            gates.copied().filter(|gate| elsewhere(gate.0)).collect(),
        )
    }
}

impl CodeCache {
    /// Replaces the instruments. What they don't concern goes on as it is.
    pub fn instrument(&mut self, gs: &mut GsBlock, memory: &Memory, wanted: Instruments) {
        if self.instruments.wanted == wanted {
            return;
        }
        let before = &self.instruments.wanted;
        if before.watches != wanted.watches || before.gated != wanted.gated {
            self.instruments.watch(gs, &wanted.watches, &wanted.gated);
        }
        self.instruments.wanted = wanted;
        self.select(memory);
    }

    /// What [`CodeCache::instrument`] was told.
    pub fn instruments(&self) -> &Instruments {
        &self.instruments.wanted
    }

    /// Like [`CodeCache::enter`], but the instruments at `gs.regs.rip` don't count, once. A signal
    /// doesn't hold it back.
    pub fn enter_past(&mut self, gs: &mut GsBlock, memory: &mut Memory, stats: &mut Stats) -> Exit {
        self.run_from(gs, memory, stats, true, true)
    }

    /// Does what [`Instrumented::for_tests`] was told, the first time.
    pub(super) fn instrument_for_tests(&mut self, gs: &mut GsBlock, memory: &Memory) {
        let Some(every) = self.instruments.to_begin.take() else {
            return;
        };
        // A quarter of the filter says yes for this, and then the exact comparison no.
        let nobodys = layout::HEAP.end - (1 << 20)..layout::HEAP.end;
        let wanted = Instruments {
            watches: vec![Watched {
                range: nobodys,
                reads: true,
                writes: true,
            }],
            every: Some(every).filter(|&n| n > 0),
            ..Instruments::default()
        };
        self.instrument(gs, memory, wanted);
    }

    /// Takes the translations with the wanted checks from the shelf, and puts others there.
    pub(super) fn select(&mut self, memory: &Memory) {
        let instruments = &mut self.instruments;
        let wanted = &instruments.wanted;
        let fits = |image: &Image| image.checks == wanted.checks_in(&image.region.guest);
        let mut changed = false;
        let before = instruments.shelf.len();
        let out = self.images.extract_if(.., |image| !fits(image));
        instruments.shelf.extend(out);
        changed |= instruments.shelf.len() != before;
        // What was just put there doesn't fit, so it stays.
        for image in instruments.shelf.extract_if(.., |image| fits(image)) {
            self.images.push(image);
            changed = true;
        }
        let checks = wanted.checks_elsewhere(memory);
        instruments.drop_oldest();
        if self.mutable.checks != checks {
            let shelf = &mut instruments.mutable_shelf;
            let mutable = match shelf.iter().position(|mutable| mutable.checks == checks) {
                Some(at) => shelf.remove(at),
                None => Mutable::new(map_anywhere(MUTABLE_ROOM), checks),
            };
            shelf.push(std::mem::replace(&mut self.mutable, mutable));
            let checked = |mutable: &Mutable| !mutable.checks.is_none();
            if shelf.iter().filter(|mutable| checked(mutable)).count() > 2
                && let Some(oldest) = shelf.iter().position(checked)
            {
                unmap_code(&shelf.remove(oldest).region.host);
            }
            changed = true;
        }
        if changed {
            self.dispatch_dirty = true;
            self.recent.fill((0, 0));
        }
    }

    /// Where to enter past the checks of an instruction whose translation starts at `entry`.
    pub(super) fn past_checks(&mut self, entry: u32) -> u32 {
        let head = if self.mutable.region.host.contains(&entry) {
            HEAD.len() as u32
        } else {
            0
        };
        match self.region_of_host(entry) {
            Some(region) => match region.past_checks(entry + head) {
                past if past == entry + head => entry,
                past => past,
            },
            None => entry,
        }
    }
}

impl Instrumented {
    /// With a breakpoint at one of so many instructions and memory watched that nobody touches, all
    /// of which are passed without a stop.
    pub(super) fn for_tests(every: Option<u64>) -> Instrumented {
        let mut instruments = Instrumented::default();
        (instruments.to_begin, instruments.ignore) = (every, every.is_some());
        instruments
    }

    /// Translations that nobody uses now.
    pub(super) fn shelved(&mut self) -> &mut [Image] {
        &mut self.shelf
    }

    /// Mappings changed.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        for image in self.shelf.extract_if(.., |image| image.overlaps(range)) {
            unmap_code(&image.region.host);
        }
        for mutable in &mut self.mutable_shelf {
            mutable.forget(range);
        }
    }

    pub(super) fn page_written(&mut self, page: u64) {
        for mutable in &mut self.mutable_shelf {
            mutable.page_written(page);
        }
    }

    /// Keeps a few of each body of code with checks, the latest, and always the ordinary translations.
    fn drop_oldest(&mut self) {
        let (mut room, mut kept) = (0, Vec::<Range<u64>>::new());
        for at in (0..self.shelf.len()).rev() {
            let Image { region, checks, .. } = &self.shelf[at];
            if checks.is_none() {
                continue;
            }
            room += (region.host.end - region.host.start) as u64;
            let others = kept.iter().filter(|guest| **guest == region.guest).count();
            if others < MOST_SHELVED && room <= MOST_SHELF {
                kept.push(region.guest.clone());
            } else {
                unmap_code(&self.shelf.remove(at).region.host);
            }
        }
    }

    /// Fills the tables that checks of accesses and gates look into.
    fn watch(&mut self, gs: &mut GsBlock, watches: &[Watched], gated: &[Range<u64>]) {
        let kinds: [fn(&Watched) -> bool; 3] = [
            |watched| watched.reads,
            |watched| watched.writes,
            |watched| watched.reads || watched.writes,
        ];
        self.lists = kinds.map(|kind| merged(watches.iter().filter(|watched| kind(watched))));
        gs.watched = [0, 1, 2].map(|n| Ranges {
            first: self.lists[n].as_ptr(),
            count: self.lists[n].len() as u64 - 1,
        });
        let Some(filter) = self.filter(!watches.is_empty() || !gated.is_empty()) else {
            return;
        };
        for range in self.set.drain(..) {
            filter[range].fill(0);
        }
        let gated = gated.iter().filter(|range| !range.is_empty());
        let gated = gated.map(|range| [range.start, range.end]);
        let watched = self.lists[2].iter().copied();
        for [start, end] in watched.filter(|&range| range != END).chain(gated) {
            // An access that starts before it may reach into it.
            let first = start.saturating_sub(Filter::LONGEST - 1) >> Filter::SHIFT;
            let last = (end - 1) >> Filter::SHIFT;
            let entries = Filter::ENTRIES as u64;
            let (from, to) = if last - first >= entries - 1 {
                (0, entries - 1)
            } else {
                (first % entries, last % entries)
            };
            let (from, to) = (from as usize, to as usize);
            let pieces = if from <= to {
                [from..to + 1, 0..0]
            } else {
                [from..Filter::ENTRIES, 0..to + 1]
            };
            for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
                filter[piece.clone()].fill(1);
                self.set.push(piece);
            }
        }
    }

    /// The table itself; made when it is first needed.
    fn filter(&mut self, make: bool) -> Option<&'static mut [u8]> {
        if !self.filter_mapped && make {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let (place, len) = (Filter::PLACE, Filter::ENTRIES);
            // SAFETY: NOREPLACE: nothing that exists is touched.
            let at = unsafe { crate::syscall!(libc::SYS_mmap, place, len, prot, flags, -1i64, 0) };
            assert_eq!(
                at, place as i64,
                "no memory for the table of watched memory"
            );
            self.filter_mapped = true;
        }
        // SAFETY: mapped above, never unmapped while this lives, and used through this alone.
        self.filter_mapped.then(|| unsafe {
            std::slice::from_raw_parts_mut(Filter::PLACE as *mut u8, Filter::ENTRIES)
        })
    }
}

impl Drop for Instrumented {
    fn drop(&mut self) {
        if self.filter_mapped {
            // SAFETY: nobody uses the table any more.
            unsafe { crate::syscall!(libc::SYS_munmap, Filter::PLACE, Filter::ENTRIES) };
        }
    }
}

/// Ranges in order, those that touch or overlap joined, with the end marked.
fn merged<'a>(watches: impl Iterator<Item = &'a Watched>) -> Vec<[u64; 2]> {
    let mut ranges: Vec<[u64; 2]> = watches
        .filter(|watched| !watched.range.is_empty())
        .map(|watched| [watched.range.start, watched.range.end])
        .collect();
    ranges.sort_unstable();
    let mut merged: Vec<[u64; 2]> = Vec::with_capacity(ranges.len() + 1);
    for [start, end] in ranges {
        match merged.last_mut() {
            Some(last) if start <= last[1] => last[1] = last[1].max(end),
            _ => merged.push([start, end]),
        }
    }
    merged.push(END);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_in_order() {
        let watched = |range| Watched {
            range,
            reads: true,
            writes: false,
        };
        let ranges = [30..40, 8..16, 16..20, 10..12, 50..50].map(watched);
        assert_eq!(merged(ranges.iter()), [[8, 20], [30, 40], END]);
    }

    #[test]
    fn checks_are_for_the_code_they_concern() {
        let wanted = Instruments {
            breaks: [0x1000, 0x2000, 0x2008].into(),
            ..Instruments::default()
        };
        assert_eq!(wanted.checks_in(&(0x2000..0x3000)).breaks, [0x2000, 0x2008]);
        assert!(wanted.checks_in(&(0x3000..0x4000)).is_none());
    }
}

//! The code cache: finds or makes the translation of a guest address and runs it.
//!
//! In: guest registers in the [`GsBlock`]. Out: an [`Exit`] that concerns the executor. Links,
//! indirect misses and stale heads are settled here and never leave.

pub mod accesses;
pub mod atlas;
mod confined;
pub mod instruments;
mod listing;
pub mod mutable;
pub mod region;
mod room;
mod run;
pub mod saved;
pub mod shadow;
mod steps;
pub mod store;
#[cfg(test)]
mod tests;
pub mod trace;
mod view;

use std::ops::Range;

use crate::context::GsBlock;
use crate::layout;
use crate::memory::{Code, Fetch as Fetched, Memory, govern};
use crate::program::Options;
use crate::stats::Stats;
use crate::translate::checks::Checks;
use crate::translate::{self, Shape};
use atlas::SharedAtlas;
use instruments::Instrumented;
use mutable::Mutable;
use region::{Place, Region, Spilled, redirect};
use room::{map_anywhere, map_code, room_for, unmap_code};
pub use run::maybe_spoiled;
use saved::{History, Key};
use store::Store;
pub(crate) use view::View;
use view::page_after;

const RECENT: usize = 1 << 10;

/// Translations of one image.
struct Image {
    region: Region,
    /// What it is saved under; None if it can't be.
    key: Option<Key>,
    history: History,
    /// Its stubs are in the dispatch table.
    installed: bool,
    /// What was compiled into it.
    checks: Checks,
}

impl Image {
    /// An image with nothing to load.
    fn new(region: Region, key: Option<Key>) -> Image {
        Image {
            region,
            key,
            history: History::default(),
            installed: true,
            checks: Checks::default(),
        }
    }

    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.region.guest.start < range.end && range.start < self.region.guest.end
    }
}

pub struct CodeCache {
    images: Vec<Image>,
    mutable: Mutable,
    instruments: Instrumented,
    tracer: trace::Tracer,
    access_reader: accesses::AccessReader,
    steps: steps::Steps,
    atlas: SharedAtlas,
    store: Option<Store>,
    /// Entries used lately, by low bits of the guest pc: resuming after a system call must be fast.
    recent: Box<[(u64, u32)]>,
    /// Dispatch slots lead to stubs that are gone; rebuild before running on.
    dispatch_dirty: bool,
    /// Stubs of an image that was just loaded are still to be put into the dispatch table.
    stubs_waiting: bool,
    /// Number of blocks so far, and how many of them may be optimised (see CONTRIBUTING, bisecting).
    blocks: u64,
    optimise_up_to: u64,
    /// Blocks to show with their translation, by number.
    dump: Range<u64>,
    /// From this block on, the next suitable optimised one gets a mistake (see `lockstep::spoil`).
    spoil: Option<u64>,
    trace: bool,
    /// rcx and r11 before the last system call, which has changed them.
    pub before_call: [u64; 2],
}

/// There is no code at this address, or none that may be executed, or (behind the end of a mapped
/// file) none that can be read.
struct FetchFault(u64);

impl CodeCache {
    /// `store` is where translations are kept from run to run, `atlas` says which addresses they
    /// are for.
    pub fn new(
        options: &Options,
        store: Option<Store>,
        atlas: SharedAtlas,
    ) -> std::io::Result<CodeCache> {
        let private = layout::PRIVATE_CODE;
        map_code(&private)?;
        Ok(CodeCache {
            images: Vec::new(),
            mutable: Mutable::new(private.start as u32..private.end as u32, Checks::default()),
            instruments: Instrumented::for_tests(options.instruments),
            tracer: trace::Tracer::default(),
            access_reader: accesses::AccessReader::default(),
            steps: steps::Steps::default(),
            atlas,
            store,
            recent: vec![(0, 0); RECENT].into_boxed_slice(),
            dispatch_dirty: true,
            stubs_waiting: false,
            blocks: 0,
            optimise_up_to: options.bisect.unwrap_or(u64::MAX),
            dump: options.dump.clone(),
            spoil: options.spoil,
            trace: options.trace,
            before_call: [0; 2],
        })
    }

    /// The host address at which the guest instruction at `pc` can be entered.
    fn entry(
        &mut self,
        pc: u64,
        memory: &mut Memory,
        stats: &mut Stats,
    ) -> Result<u32, FetchFault> {
        let slot = pc as usize % RECENT;
        let (recent, host) = self.recent[slot];
        if recent == pc && host != 0 {
            return Ok(host);
        }
        let (entry, keep) = self.find_or_translate(pc, false, memory, stats)?;
        if keep {
            self.recent[slot] = (pc, entry);
        }
        Ok(entry)
    }

    /// Also says whether the entry stays good until something is invalidated.
    fn find_or_translate(
        &mut self,
        pc: u64,
        stub: bool,
        memory: &mut Memory,
        stats: &mut Stats,
    ) -> Result<(u32, bool), FetchFault> {
        if let Some(image) = self.images.iter().find(|i| i.region.guest.contains(&pc))
            && let Some(entry) = image.region.find(pc)
        {
            return Ok((entry, true));
        }
        let Fetched::Executable(code) = memory.fetch(pc) else {
            return Err(FetchFault(pc));
        };
        let immutable = code.immutable && !view::reaches_out(memory, pc, code.range.end);
        if !immutable && self.instruments.wanted.confined.is_some() {
            // Who changes it doesn't know of translations here.
            return Err(FetchFault(pc));
        }
        let optimise = self.blocks < self.optimise_up_to;
        if immutable {
            let number = self.image_for(&code, memory);
            let image = &mut self.images[number];
            let (region, checks) = (&mut image.region, &image.checks);
            if let Some(entry) = region.find(pc) {
                return Ok((entry, true));
            }
            let shape = Shape {
                mutable: false,
                stub,
                single: None,
                shared: false,
                optimise,
                unchecked: false,
            };
            if region.is_full() {
                self.tracer.book.forget(&region.host);
                region.clear();
                self.dispatch_dirty = true;
                self.recent.fill((0, 0));
            }
            let before = region.hot;
            let (view, book) = (View::of(memory), Some(&mut self.tracer.book));
            let block = translate::translate(region, &view, pc, shape, checks, book)
                .ok_or_else(|| missing_at(pc, memory))?;
            if self.dump.contains(&self.blocks) {
                eprint!(
                    "{}: {}",
                    self.blocks,
                    translate::dump::block(region, &block)
                );
            }
            if optimise
                && self.spoil.is_some_and(|from| from <= self.blocks)
                && crate::lockstep::spoil::block(region, &block)
            {
                self.spoil = None;
            }
            self.blocks += 1;
            stats.blocks += 1;
            stats.guest_bytes += block.guest.iter().map(|r| r.end - r.start).sum::<u64>();
            stats.host_bytes += (region.hot - before) as u64;
            return Ok((block.entry, true));
        }
        let shared = code.shared;
        if shared {
            govern::code::runs(pc);
        }
        if self.mutable.region.is_full() {
            self.tracer.book.forget(&self.mutable.region.host);
            self.mutable.clear();
            self.dispatch_dirty = true;
            self.recent.fill((0, 0));
        }
        let dump = self.dump.contains(&self.blocks);
        let how = mutable::How {
            stub,
            shared,
            optimise,
            dump,
        };
        let book = &mut self.tracer.book;
        let found = self.mutable.entry(pc, how, memory, stats, book);
        let entry = found.ok_or_else(|| missing_at(pc, memory))?;
        self.blocks += 1;
        Ok((entry, false))
    }

    /// The region for the executable mapping `code`, loaded from the store if it was saved.
    fn image_for(&mut self, code: &Code, memory: &mut Memory) -> usize {
        if let Some(n) = self
            .images
            .iter()
            .position(|i| i.region.guest == code.range)
        {
            return n;
        }
        let checks = self.instruments.wanted.checks_in(&code.range);
        let plain = checks.is_none();
        let saved = plain.then(|| self.saved_place(code, memory)).flatten();
        let image = saved.unwrap_or_else(|| {
            let room = room_for(code.range.end - code.range.start);
            let host = map_anywhere(if plain {
                room
            } else {
                instruments::room_for(room, &checks)
            });
            let mut region = Region::new(code.range.clone(), host);
            if checks.trace {
                region.enter_by_heads();
            }
            Image {
                checks,
                ..Image::new(region, None)
            }
        });
        self.stubs_waiting |= !image.installed;
        self.images.push(image);
        self.images.len() - 1
    }

    /// The image at its place in the atlas; None if the place is taken.
    fn saved_place(&mut self, code: &Code, memory: &mut Memory) -> Option<Image> {
        let at = code.image.as_ref()?;
        let store = self.store.as_ref()?;
        // The atlas knows the span of the whole image; its code is a part of that.
        let host = self.atlas.host_place(&at.file, code.range.end - at.base)?;
        map_code(&host).ok()?;
        let host = host.start as u32..host.end as u32;
        let build_id = memory.build_id(at.base);
        let key = Key {
            build_id: build_id
                .map(|id| id.as_bytes().to_vec())
                .unwrap_or_default(),
            size: at.file.size,
            mtime_ns: at.file.mtime_ns,
            guest: code.range.clone(),
            offset: code.range.start.wrapping_add(at.to_offset),
            host: host.clone(),
        };
        let Some((region, history)) = saved::load(store, &key) else {
            let region = Region::new(code.range.clone(), host);
            return Some(Image::new(region, Some(key)));
        };
        Some(Image {
            region,
            key: Some(key),
            history,
            installed: false,
            checks: Checks::default(),
        })
    }

    /// Saves what was translated since the last time, where it is worth it. Failing to save costs
    /// the next run time and nothing else.
    pub fn save(&mut self) {
        let Some(store) = &self.store else { return };
        let shelved = self.instruments.shelved().iter_mut();
        for image in self.images.iter_mut().chain(shelved) {
            let Some(key) = &image.key else { continue };
            if let Some(history) = image.history.worth_saving(image.region.lengths_end()) {
                let _ = saved::save(store, key, &image.region, &history);
                image.history = history;
            }
        }
    }

    fn region_of_host(&mut self, host: u32) -> Option<&mut Region> {
        if self.mutable.region.host.contains(&host) {
            return Some(&mut self.mutable.region);
        }
        self.images
            .iter_mut()
            .map(|i| &mut i.region)
            .find(|r| r.host.contains(&host))
    }

    /// A direct branch left through its link stub: translate its target and join them.
    fn link(&mut self, gs: &mut GsBlock, stub: u32, memory: &mut Memory, stats: &mut Stats) {
        let region = self
            .region_of_host(stub)
            .expect("a link stub lies in a region");
        let link = region
            .link(stub)
            .expect("a link stub is known until it is linked");
        gs.regs.rip = link.target;
        // A target that can't be fetched faults when it is entered, with nothing to link.
        let Ok((entry, _)) = self.find_or_translate(link.target, false, memory, stats) else {
            return;
        };
        // A full region may just have been cleared, the link with it; shared code is never linked.
        let region = self
            .region_of_host(stub)
            .expect("regions don't vanish here");
        let open = region.link(stub).is_some_and(|l| l.site == link.site);
        if open && region.host.contains(&entry) && !self.mutable.is_shared(link.target) {
            let region = self.region_of_host(stub).expect("it was just there");
            region.resolve_link(stub, entry);
        }
    }

    /// An indirect branch found no stub: make one and put it into its dispatch slot.
    fn indirect(&mut self, gs: &mut GsBlock, memory: &mut Memory, stats: &mut Stats) {
        let pc = gs.regs.rip;
        let Ok((entry, _)) = self.find_or_translate(pc, true, memory, stats) else {
            return;
        };
        // A stub that waits would come into its chain twice.
        if self.dispatch_dirty || self.stubs_waiting || self.mutable.is_shared(pc) {
            return;
        }
        let optimise = self.blocks < self.optimise_up_to;
        let plain = |image: &Image| image.checks.is_none() && image.region.host.contains(&entry);
        let look = optimise && self.images.iter().any(plain);
        let Some(region) = self.region_of_host(entry) else {
            return;
        };
        if region.stub(pc).is_none() {
            translate::stubs::add_stub(region, &View::of(memory), pc, entry, look);
        }
        let stub = region.stub(pc).expect("it was just made");
        let own_miss = region.miss_thunk;
        let slot = &mut self.dispatch_table(gs)[pc as usize & 0xffff];
        // A write here would copy a page of saved translations, so an end stays an end.
        let next = if *slot == self.mutable.region.miss_thunk as u64 {
            own_miss
        } else {
            *slot as u32
        };
        redirect(stub.next, next);
        *slot = stub.host as u64;
    }

    fn reset_dispatch(&mut self, gs: &mut GsBlock) {
        let miss = self.mutable.region.miss_thunk as u64;
        self.dispatch_table(gs).fill(miss);
        self.dispatch_dirty = false;
        for image in &mut self.images {
            if image.installed {
                // Chains were made longer since.
                image.region.restore_chains();
                image.installed = false;
            }
        }
        self.stubs_waiting = true;
    }

    /// Puts all stubs of images that were just loaded into the dispatch table: cheaper by far than
    /// a miss at the first branch to each.
    fn install_stubs(&mut self, gs: &mut GsBlock) {
        let end = self.mutable.region.miss_thunk;
        let table = self.dispatch_table(gs);
        for image in &mut self.images {
            if !std::mem::replace(&mut image.installed, true) {
                image.region.install_chains(table, end);
            }
        }
        self.stubs_waiting = false;
    }

    /// Drops translations of guest ranges whose mapping changed.
    fn forget_stale(&mut self, memory: &mut Memory) {
        self.forget(&memory.take_stale());
        if !self.instruments.wanted.is_none() {
            // What was an image's may now be code that can change.
            self.select(memory);
        }
    }

    fn forget(&mut self, ranges: &[Range<u64>]) {
        for range in ranges {
            for image in self.images.extract_if(.., |image| image.overlaps(range)) {
                self.tracer.book.forget(&image.region.host);
                unmap_code(&image.region.host);
                self.dispatch_dirty = true;
            }
            self.mutable.forget(range);
            self.instruments.forget(range);
        }
        self.steps.forget();
        self.recent.fill((0, 0));
    }

    /// The guest wrote to a page that holds translated code: its blocks are checked again before
    /// they run, and the page is writable until then.
    pub fn code_written(&mut self, gs: &mut GsBlock, memory: &mut Memory, addr: u64) {
        if translate::is_time_call(gs.regs.rip) {
            // Its answer was taken before it could be written, and will be taken again. Which pages are protected
            // isn't part of a recording: how many answers there are must not depend on it.
            gs.values.used = gs.values.used.saturating_sub(1);
        }
        self.mutable.page_written(addr & !0xfff);
        self.instruments.page_written(addr & !0xfff);
        memory.unprotect_code(addr & !0xfff);
        self.recent.fill((0, 0));
    }

    /// Gives the memory of all translations back but for the first of mutable code.
    #[cfg(test)]
    fn unmap(&mut self) {
        let all = 0..u64::MAX;
        self.forget(std::slice::from_ref(&all));
        self.instruments = Instrumented::default();
    }

    /// The translation of the instruction at `pc`, if it is in an image's code.
    pub fn host_code(&self, pc: u64) -> Option<Range<u32>> {
        let region = &self
            .images
            .iter()
            .find(|i| i.region.guest.contains(&pc))?
            .region;
        let start = region.find(pc)?;
        let same = |host: &u32| {
            region
                .place_of(*host)
                .is_some_and(|place| place.host == start)
        };
        Some(start..start + (start..).take_while(same).count() as u32)
    }

    /// The register that holds the tick counter at a host address inside a tight loop. For signal
    /// handlers: reads only.
    pub fn loop_counter(&self, host: u32) -> Option<u8> {
        match self.place_of(host)?.spilled {
            Spilled::Loop(register) => Some(register),
            _ => None,
        }
    }

    /// The guest instruction behind a host address.
    pub fn place_of(&self, host: u32) -> Option<Place> {
        if self.mutable.region.host.contains(&host) {
            return self.mutable.region.place_of(host);
        }
        self.images
            .iter()
            .map(|i| &i.region)
            .find(|r| r.host.contains(&host))
            .map_or_else(|| self.steps.place_of(host), |r| r.place_of(host))
    }
}

/// Which part of an instruction at `pc` can't be fetched: its start, or what is on the next page.
fn missing_at(pc: u64, memory: &Memory) -> FetchFault {
    FetchFault(if View::of(memory).is_readable(pc) {
        page_after(pc)
    } else {
        pc
    })
}

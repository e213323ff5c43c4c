//! The code cache: finds or makes the translation of a guest address and runs it.
//!
//! In: guest registers in the [`GsBlock`]. Out: an [`Exit`] that concerns the executor. Links,
//! indirect misses and stale heads are settled here and never leave.

pub mod atlas;
pub mod mutable;
pub mod region;
mod room;
pub mod saved;
pub mod store;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ops::Range;

use crate::context::{Exit, Fault, GsBlock, R11, RBX, RCX, RSI, RSP};
use crate::guest::access;
use crate::host::switch;
use crate::layout;
use crate::memory::{Code, Fetch as Fetched, Memory};
use crate::program::Options;
use crate::stats::Stats;
use crate::translate::{self, Fetch, Shape};
use atlas::SharedAtlas;
use mutable::Mutable;
use region::{Displaced, Place, Region, Spilled, redirect};
use room::{map_anywhere, map_code, room_for, unmap_code};
use saved::{History, Key};
use store::Store;

const RECENT: usize = 1 << 10;

/// Translations of one image.
struct Image {
    region: Region,
    /// What it is saved under; None if it can't be.
    key: Option<Key>,
    history: History,
    /// Its stubs are in the dispatch table.
    installed: bool,
}

impl Image {
    /// An image with nothing to load.
    fn new(region: Region, key: Option<Key>) -> Image {
        Image {
            region,
            key,
            history: History::default(),
            installed: true,
        }
    }
}

pub struct CodeCache {
    images: Vec<Image>,
    mutable: Mutable,
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
            mutable: Mutable::new(private.start as u32..private.end as u32),
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
        })
    }

    /// Runs translated code for `gs.regs` until something needs the executor.
    ///
    /// [`Exit::Attention`] means that nothing has run. Once code has run, a signal doesn't end this
    /// before the next tick (the handler has cut the budget): in between, there is no place that
    /// could be found again.
    pub fn enter(&mut self, gs: &mut GsBlock, memory: &mut Memory, stats: &mut Stats) -> Exit {
        self.run(gs, memory, stats, false)
    }

    /// The same between two places that can be found again: a signal doesn't hold it back.
    pub fn go_on(&mut self, gs: &mut GsBlock, memory: &mut Memory, stats: &mut Stats) -> Exit {
        self.run(gs, memory, stats, true)
    }

    fn run(
        &mut self,
        gs: &mut GsBlock,
        memory: &mut Memory,
        stats: &mut Stats,
        midway: bool,
    ) -> Exit {
        let (mut ran, mut called) = (midway, false);
        let exit = loop {
            let exit = self.run_once(gs, memory, stats);
            match exit {
                Some(Exit::Attention) if ran => {
                    called |= gs.take_attention();
                    // A handler can't cut a counter that is just on its way out of a tight loop.
                    gs.leave_one_tick();
                }
                Some(exit) => break exit,
                None => {}
            }
            ran = true;
        };
        if called {
            gs.attention = 1;
        }
        exit
    }

    /// Runs until translated code leaves for any reason; None if it was the cache's own business.
    fn run_once(
        &mut self,
        gs: &mut GsBlock,
        memory: &mut Memory,
        stats: &mut Stats,
    ) -> Option<Exit> {
        if memory.stale_pending() {
            self.forget(&memory.take_stale());
        }
        if self.dispatch_dirty {
            self.reset_dispatch(gs);
        }
        if self.stubs_waiting {
            self.install_stubs(gs);
        }
        let pc = gs.regs.rip;
        let entry = match self.entry(pc, memory, stats) {
            Ok(entry) => entry,
            Err(FetchFault(addr)) => return Some(fetch_fault(gs, memory, addr)),
        };
        gs.resume = entry as u64;
        gs.code = &raw const *self;
        stats.entering();
        if self.trace {
            eprintln!(
                "clew: enter {pc:#x} at {entry:#x}, {} ticks left",
                gs.ticks_left
            );
        }
        // SAFETY: `entry` is a translation of the instruction at `gs.regs.rip`, and gs is set.
        let exit = unsafe { switch::enter(gs) };
        stats.left(exit);
        let arg = std::mem::take(&mut gs.exit_arg);
        match exit {
            Exit::Link => self.link(gs, arg as u32, memory, stats),
            Exit::Indirect => {
                if !is_canonical(gs.target) {
                    return Some(self.refused_branch(gs));
                }
                gs.regs.rip = gs.target;
                // The stub would have counted.
                gs.add_ticks(-1);
                self.indirect(gs, memory, stats);
                if gs.ticks_left == 0 {
                    return Some(Exit::Budget);
                }
            }
            Exit::Stale => gs.regs.rip = arg,
            Exit::Syscall => {
                gs.regs.rip = arg;
                gs.regs.gpr[RCX] = arg;
                gs.regs.gpr[R11] = gs.regs.rflags;
                return Some(exit);
            }
            // Straight-line code went on into another body of code.
            Exit::Step => gs.regs.rip = arg,
            Exit::Budget | Exit::Emulate => {
                gs.regs.rip = arg;
                return Some(exit);
            }
            Exit::Fault => {
                self.recover(gs);
                return Some(exit);
            }
            Exit::Attention => return Some(exit),
        }
        None
    }

    /// [`CodeCache::step`] of one instruction, whatever signals wait: it never ends with
    /// [`Exit::Attention`].
    pub fn step_on(&mut self, gs: &mut GsBlock, memory: &mut Memory, stats: &mut Stats) -> Exit {
        let mut called = gs.take_attention();
        let exit = loop {
            match self.step(gs, memory, stats, 1) {
                Exit::Attention => called |= gs.take_attention(),
                exit => break exit,
            }
        };
        if called {
            gs.attention = 1;
        }
        exit
    }

    /// Runs `count` instructions of the current thread in a throw-away translation.
    pub fn step(
        &mut self,
        gs: &mut GsBlock,
        memory: &mut Memory,
        stats: &mut Stats,
        count: usize,
    ) -> Exit {
        if memory.stale_pending() {
            self.forget(&memory.take_stale());
        }
        if self.dispatch_dirty {
            self.reset_dispatch(gs);
        }
        let pc = gs.regs.rip;
        let shape = Shape {
            mutable: false,
            stub: false,
            single: Some(count),
            optimise: false,
        };
        let mark = self.mutable.region.mark();
        let Some(block) =
            translate::translate(&mut self.mutable.region, &View::of(memory), pc, shape)
        else {
            return fetch_fault(gs, memory, pc);
        };
        gs.resume = block.entry as u64;
        gs.code = &raw const *self;
        stats.entering();
        // SAFETY: as in `enter`; nothing is linked to the fragment, so it can go afterwards.
        let exit = unsafe { switch::enter(gs) };
        stats.left(exit);
        let arg = std::mem::take(&mut gs.exit_arg);
        match exit {
            Exit::Indirect if !is_canonical(gs.target) => {
                self.refused_branch(gs);
                self.mutable.region.rollback(mark);
                return Exit::Fault;
            }
            Exit::Indirect => {
                gs.regs.rip = gs.target;
                gs.add_ticks(-1);
            }
            Exit::Syscall => {
                gs.regs.rip = arg;
                gs.regs.gpr[RCX] = arg;
                gs.regs.gpr[R11] = gs.regs.rflags;
            }
            Exit::Fault => self.recover(gs),
            Exit::Attention => {}
            _ => gs.regs.rip = arg,
        }
        self.mutable.region.rollback(mark);
        if exit == Exit::Indirect && gs.ticks_left == 0 {
            Exit::Budget
        } else {
            exit
        }
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
        let optimise = self.blocks < self.optimise_up_to;
        if code.immutable {
            let number = self.image_for(&code, memory);
            let region = &mut self.images[number].region;
            if let Some(entry) = region.find(pc) {
                return Ok((entry, true));
            }
            let shape = Shape {
                mutable: false,
                stub,
                single: None,
                optimise,
            };
            if region.is_full() {
                region.clear();
                self.dispatch_dirty = true;
                self.recent.fill((0, 0));
            }
            let before = region.hot;
            let block = translate::translate(region, &View::of(memory), pc, shape)
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
        if self.mutable.region.is_full() {
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
        let found = self.mutable.entry(pc, how, memory, stats);
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
        let image = self.saved_place(code, memory).unwrap_or_else(|| {
            let room = room_for(code.range.end - code.range.start);
            let host = map_anywhere(room);
            let region = Region::new(code.range.clone(), host);
            Image::new(region, None)
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
        })
    }

    /// Saves what was translated since the last time, where it is worth it. Failing to save costs
    /// the next run time and nothing else.
    pub fn save(&mut self) {
        let Some(store) = &self.store else { return };
        for image in &mut self.images {
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
        if region.link(stub).is_some_and(|l| l.site == link.site) && region.host.contains(&entry) {
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
        let look = optimise && !self.mutable.region.host.contains(&entry);
        let Some(region) = self.region_of_host(entry) else {
            return;
        };
        if region.stub(pc).is_none() {
            translate::stubs::add_stub(region, &View::of(memory), pc, entry, look);
        }
        let stub = region.stub(pc).expect("it was just made");
        let own_miss = region.miss_thunk;
        let slot = &mut gs.dispatch[pc as usize & 0xffff];
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
        gs.dispatch.fill(self.mutable.region.miss_thunk as u64);
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
        for image in &mut self.images {
            if !std::mem::replace(&mut image.installed, true) {
                image.region.install_chains(&mut gs.dispatch, end);
            }
        }
        self.stubs_waiting = false;
    }

    /// Drops translations of guest ranges whose mapping changed.
    fn forget(&mut self, ranges: &[Range<u64>]) {
        for range in ranges {
            let gone =
                |i: &Image| i.region.guest.start < range.end && range.start < i.region.guest.end;
            for image in self.images.extract_if(.., |i| gone(i)) {
                unmap_code(&image.region.host);
                self.dispatch_dirty = true;
            }
            self.mutable.forget(range);
        }
        self.recent.fill((0, 0));
    }

    /// The guest wrote to a page that holds translated code: its blocks are checked again before
    /// they run, and the page is writable until then.
    pub fn code_written(&mut self, memory: &mut Memory, addr: u64) {
        self.mutable.page_written(addr & !0xfff);
        // Fails only if the page is gone; then the write faults again, as it should.
        let _ = memory.unprotect_code(addr & !0xfff);
        self.recent.fill((0, 0));
    }

    /// Puts `gs.regs` into the guest's terms after a fault inside translated code.
    fn recover(&mut self, gs: &mut GsBlock) {
        // int3, int1 and int 4 report behind themselves; they are copied as they are.
        const BREAKPOINT: u64 = 3;
        const OVERFLOW: u64 = 4;
        const DEBUG: u64 = 1;
        let behind = matches!(gs.fault.trapno, DEBUG | BREAKPOINT | OVERFLOW) as u32;
        let host = gs.fault.host_pc as u32;
        let place = self
            .place_of(host - behind)
            .unwrap_or_else(|| panic!("a fault at {host:#x}, which no guest instruction explains"));
        gs.regs.rip = if behind != 0 {
            place.guest + (host - place.host) as u64
        } else {
            place.guest
        };
        match place.spilled {
            Spilled::None => {}
            Spilled::Rcx => gs.regs.gpr[RCX] = gs.spill[0],
            Spilled::Reg(r) => gs.regs.gpr[r as usize] = gs.spill[1],
            Spilled::Xsave(r) => {
                gs.regs.gpr[0] = gs.spill[1];
                gs.regs.gpr[2] = gs.spill[2];
                gs.regs.gpr[r as usize] = gs.spill[3];
            }
            Spilled::Loop(r) => {
                gs.ticks_left = gs.regs.gpr[r as usize] as i64;
                gs.regs.gpr[r as usize] = gs.spill[3];
            }
            Spilled::Displaced(which, r) => {
                gs.regs.gpr[r as usize] = gs.spill[1];
                let displaced = if which == Displaced::Rsi { RSI } else { RBX };
                let base = gs.regs.gs_base;
                let register = &mut gs.regs.gpr[displaced];
                *register = register.wrapping_sub(base);
            }
        }
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

    /// The CPU refuses a branch to a non-canonical address at the branch itself.
    fn refused_branch(&mut self, gs: &mut GsBlock) -> Exit {
        const SI_KERNEL: i32 = 0x80;
        const GENERAL_PROTECTION: u64 = 13;
        let source = gs.source as u32;
        let place = self
            .place_of(source)
            .expect("an indirect branch belongs to an instruction");
        gs.regs.rip = place.guest;
        // Undo what the branch did to the stack pointer.
        let mut bytes = [0u8; 15];
        let room = (page_after(place.guest) - place.guest).min(15) as usize;
        // All of it, or what is on its page; it has just run, so it is there.
        let _ = access::read_bytes(place.guest, &mut bytes)
            .or_else(|_| access::read_bytes(place.guest, &mut bytes[..room]));
        let ins = iced_x86::Decoder::with_ip(64, &bytes, place.guest, 0).decode();
        let moved = ins.stack_pointer_increment() as i64 as u64;
        gs.regs.gpr[RSP] = gs.regs.gpr[RSP].wrapping_sub(moved);
        gs.fault = Fault {
            signo: libc::SIGSEGV,
            code: SI_KERNEL,
            trapno: GENERAL_PROTECTION,
            ..Fault::default()
        };
        Exit::Fault
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
            .find(|r| r.host.contains(&host))?
            .place_of(host)
    }
}

/// Guest memory as the translator sees it.
pub(crate) struct View<'a> {
    memory: &'a Memory,
    /// The last mapping asked about: nearly every question is about the same one.
    last: Cell<(u64, u64, bool)>,
    /// The last page found readable.
    read: Cell<u64>,
}

impl<'a> View<'a> {
    pub(crate) fn of(memory: &'a Memory) -> View<'a> {
        View {
            memory,
            last: Cell::new((0, 0, false)),
            read: Cell::new(1),
        }
    }

    /// Start, end and immutability of the executable mapping at `pc`.
    fn mapping(&self, pc: u64) -> Option<(u64, u64, bool)> {
        let last = self.last.get();
        if last.0 <= pc && pc < last.1 {
            return Some(last);
        }
        match self.memory.fetch(pc) {
            Fetched::Executable(code) => {
                let found = (code.range.start, code.range.end, code.immutable);
                self.last.set(found);
                Some(found)
            }
            _ => None,
        }
    }

    /// Can the page be read? A file may have become shorter than its mapping.
    fn is_readable(&self, pc: u64) -> bool {
        let page = pc & !0xfff;
        if self.read.get() != page {
            if access::read::<u8>(page).is_err() {
                return false;
            }
            self.read.set(page);
        }
        true
    }
}

impl Fetch for View<'_> {
    fn code_end(&self, pc: u64) -> Option<u64> {
        let (_, end, _) = self.mapping(pc)?;
        if !self.is_readable(pc) {
            return None;
        }
        // Up to the end of the page is certain; an instruction may need the next one.
        let next = page_after(pc);
        Some(if next < end && pc + 15 > next && !self.is_readable(next) {
            next
        } else {
            end
        })
    }

    fn same_body(&self, a: u64, b: u64) -> bool {
        let body = |pc| self.mapping(pc).filter(|&(_, _, immutable)| immutable);
        body(a) == body(b)
    }
}

/// Addresses have 47 bits here, or their complement.
fn is_canonical(addr: u64) -> bool {
    ((addr as i64) << 16 >> 16) as u64 == addr
}

fn page_after(pc: u64) -> u64 {
    (pc | 0xfff) + 1
}

/// Which part of an instruction at `pc` can't be fetched: its start, or what is on the next page.
fn missing_at(pc: u64, memory: &Memory) -> FetchFault {
    FetchFault(if View::of(memory).is_readable(pc) {
        page_after(pc)
    } else {
        pc
    })
}

/// The guest jumped to where nothing can be executed.
fn fetch_fault(gs: &mut GsBlock, memory: &Memory, addr: u64) -> Exit {
    const SEGV_MAPERR: i32 = 1;
    const SEGV_ACCERR: i32 = 2;
    let found = memory.fetch(addr);
    if matches!(found, Fetched::Executable(_)) {
        // It may be executed, but the file has no such page.
        const BUS_ADRERR: i32 = 2;
        gs.fault = Fault {
            signo: libc::SIGBUS,
            code: BUS_ADRERR,
            addr,
            trapno: 14,
            err: 0x14,
            cr2: addr,
            host_pc: 0,
        };
        return Exit::Fault;
    }
    let mapped = matches!(found, Fetched::NotExecutable);
    gs.fault = Fault {
        signo: libc::SIGSEGV,
        code: if mapped { SEGV_ACCERR } else { SEGV_MAPERR },
        addr,
        trapno: 14,
        // user, instruction fetch, and present if mapped
        err: if mapped { 0x15 } else { 0x14 },
        cr2: addr,
        host_pc: 0,
    };
    Exit::Fault
}

//! A region: the translations of one body of guest code and all that is known about them.
//!
//! Hot code grows upwards from the region's start, exit stubs (cold: run once or at turn ends)
//! grow downwards from its end. A *run* is a stretch of guest instructions translated one after
//! the other; its *lengths* tell for every host address which guest instruction it belongs to,
//! which is how faults are told in the guest's terms.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::context::{DISPATCH_SLOTS, Exit};
use crate::translate::emit::{Emitter, Rel32};

/// Where the guest's registers are while a rewritten instruction can fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spilled {
    None,
    /// rcx is in spill slot 0.
    Rcx,
    /// The register is in spill slot 1.
    Reg(u8),
    /// rax, rdx and the register are in spill slots 1, 2 and 3 (XSAVE and its relatives).
    Xsave(u8),
    /// The register is in spill slot 1, and the guest's gs base was added to another.
    Displaced(Displaced, u8),
    /// The register is in spill slot 3, and holds `ticks_left` (`translate::loops`).
    Loop(u8),
}

/// A register that holds an address relative to the guest's gs base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displaced {
    Rsi,
    Rbx,
}

impl Spilled {
    fn encode(self) -> u8 {
        match self {
            Spilled::None => 0,
            Spilled::Rcx => 1,
            Spilled::Reg(r) => 0x10 | r,
            Spilled::Xsave(r) => 0x20 | r,
            Spilled::Displaced(Displaced::Rsi, r) => 0x30 | r,
            Spilled::Displaced(Displaced::Rbx, r) => 0x40 | r,
            Spilled::Loop(r) => 0x50 | r,
        }
    }

    fn decode(byte: u8) -> Spilled {
        match byte {
            0 => Spilled::None,
            1 => Spilled::Rcx,
            b if b & 0xf0 == 0x10 => Spilled::Reg(b & 15),
            b if b & 0xf0 == 0x30 => Spilled::Displaced(Displaced::Rsi, b & 15),
            b if b & 0xf0 == 0x40 => Spilled::Displaced(Displaced::Rbx, b & 15),
            b if b & 0xf0 == 0x50 => Spilled::Loop(b & 15),
            b => Spilled::Xsave(b & 15),
        }
    }
}

/// A stretch of guest instructions that were translated one after the other.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub guest: u64,
    pub host: u32,
    /// Offset of its lengths in [`Region::lengths`].
    pub lengths: u32,
    pub guest_len: u32,
    pub host_len: u32,
}

/// One instruction of a run.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub guest: u64,
    pub host: u32,
    pub spilled: Spilled,
}

/// The code that an indirect branch to one guest address goes through.
#[derive(Clone, Copy, Debug)]
pub struct Stub {
    pub host: u32,
    /// The rel32 that leads to the next stub of the same dispatch slot.
    pub next: u32,
}

/// A direct branch that isn't linked yet.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub target: u64,
    /// Host address of the rel32 to patch.
    pub site: u32,
}

pub const LINK_STUB: u32 = 16;

/// Size of `jmp [disp32]`.
const THUNK: u32 = 7;

/// Room that one translated block needs at most; checked before translating.
const RESERVE: u32 = 64 << 10;

/// What a region was loaded with from a file (`cache::saved`): the same facts as in the region's
/// own collections, used in place.
#[derive(Clone, Copy, Default)]
pub struct Loaded {
    /// By host address.
    pub runs: &'static [Run],
    /// Run numbers by guest address.
    pub order: &'static [u32],
    pub lengths: &'static [u8],
    /// By dispatch slot, then by guest address: a slot's stubs lead from one to the next.
    pub stubs: &'static [SavedStub],
    /// By the address of the link stub.
    pub links: &'static [SavedLink],
}

/// A dispatch stub as it is in a file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SavedStub {
    pub guest: u64,
    pub host: u32,
    pub next: u32,
}

/// An open link as it is in a file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SavedLink {
    pub target: u64,
    pub stub: u32,
    pub site: u32,
}

/// The dispatch slot of a guest address.
pub fn slot_of(guest: u64) -> usize {
    guest as usize % DISPATCH_SLOTS
}

fn chain_order(guest: u64) -> (usize, u64) {
    (slot_of(guest), guest)
}

pub fn same_slot(a: &SavedStub, b: &SavedStub) -> bool {
    slot_of(a.guest) == slot_of(b.guest)
}

pub struct Region {
    /// Guest code that may be translated into this region.
    pub guest: Range<u64>,
    pub host: Range<u32>,
    pub hot: u32,
    pub cold: u32,
    pub loaded: Loaded,
    /// Runs, their lengths, stubs and links that came since.
    runs: Vec<Run>,
    lengths: Vec<u8>,
    /// Start of each run that may be entered anywhere, to its number (counted from the loaded ones).
    index: BTreeMap<u64, u32>,
    /// Host addresses of instructions that have checks before them, and those behind the checks.
    passed: Vec<(u32, u32)>,
    stubs: FxHashMap<u64, Stub>,
    links: FxHashMap<u32, Link>,
    free_link_stubs: Vec<u32>,
    /// If blocks are entered at their heads alone: where those are.
    heads: Option<FxHashMap<u64, u32>>,
    /// `jmp gs:[exits[Link]]`, shared by all link stubs.
    link_thunk: u32,
    /// `jmp gs:[exits[Indirect]]`, the end of every dispatch chain.
    pub miss_thunk: u32,
}

impl Region {
    /// A region over `host` addresses, which are mapped readable, writable and executable.
    pub fn new(guest: Range<u64>, host: Range<u32>) -> Region {
        let mut region = Region::bare(guest, host);
        region.start();
        region
    }

    /// A region whose memory is filled already, up to `hot` and from `cold` on.
    pub fn with_loaded(
        guest: Range<u64>,
        host: Range<u32>,
        (hot, cold): (u32, u32),
        loaded: Loaded,
        free_link_stubs: Vec<u32>,
    ) -> Region {
        let mut region = Region::bare(guest, host);
        // The thunks are where `start` has put them.
        (region.miss_thunk, region.link_thunk) = (region.hot, region.hot + THUNK);
        (region.hot, region.cold) = (hot, cold);
        region.loaded = loaded;
        region.free_link_stubs = free_link_stubs;
        region
    }

    fn bare(guest: Range<u64>, host: Range<u32>) -> Region {
        Region {
            guest,
            hot: host.start,
            cold: host.end,
            host,
            loaded: Loaded::default(),
            runs: Vec::new(),
            lengths: Vec::new(),
            index: BTreeMap::new(),
            passed: Vec::new(),
            stubs: FxHashMap::default(),
            links: FxHashMap::default(),
            free_link_stubs: Vec::new(),
            heads: None,
            link_thunk: 0,
            miss_thunk: 0,
        }
    }

    fn start(&mut self) {
        let mut thunks = Emitter::new(self.hot);
        self.miss_thunk = thunks.here();
        thunks.exit(Exit::Indirect as usize);
        debug_assert_eq!(thunks.bytes.len() as u32, THUNK);
        self.link_thunk = thunks.here();
        thunks.exit(Exit::Link as usize);
        self.place_hot(&thunks);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        let by_heads = self.heads.is_some();
        *self = Region::new(self.guest.clone(), self.host.clone());
        if by_heads {
            self.enter_by_heads();
        }
    }

    /// From here on blocks are entered at their heads alone.
    pub fn enter_by_heads(&mut self) {
        self.heads = Some(FxHashMap::default());
    }

    pub fn add_head(&mut self, pc: u64, host: u32) {
        if let Some(heads) = &mut self.heads {
            heads.insert(pc, host);
        }
    }

    /// What to go back to after a throw-away translation.
    pub fn mark(&self) -> Mark {
        Mark {
            hot: self.hot,
            cold: self.cold,
            runs: self.runs.len(),
            lengths: self.lengths.len(),
        }
    }

    /// Forgets what was translated since `mark`; nothing may lead there.
    pub fn rollback(&mut self, mark: Mark) {
        self.hot = mark.hot;
        self.cold = mark.cold;
        self.runs.truncate(mark.runs);
        self.lengths.truncate(mark.lengths);
    }

    pub fn is_full(&self) -> bool {
        self.cold - self.hot < RESERVE
    }

    /// Copies finished code to the hot end.
    pub fn place_hot(&mut self, code: &Emitter) {
        debug_assert_eq!(code.address(0), self.hot);
        write_code(self.hot, &code.bytes);
        self.hot += code.bytes.len() as u32;
    }

    /// Copies a stub to the cold end and returns its address.
    pub fn place_cold(&mut self, build: impl FnOnce(&mut Emitter), len: u32) -> u32 {
        let at = self.cold - len;
        let mut stub = Emitter::new(at);
        build(&mut stub);
        assert_eq!(
            stub.bytes.len() as u32,
            len,
            "a stub has its announced size"
        );
        write_code(at, &stub.bytes);
        self.cold = at;
        at
    }

    /// The same for code that is the same wherever it lies.
    pub fn place_cold_bytes(&mut self, bytes: &[u8]) -> u32 {
        self.cold -= bytes.len() as u32;
        write_code(self.cold, bytes);
        self.cold
    }

    /// A stub that asks the engine to link `site` to `target`.
    pub fn link_stub(&mut self, target: u64, site: u32) -> u32 {
        let thunk = self.link_thunk;
        let build = |at: u32, stub: &mut Emitter| {
            stub.exit_arg(at as u64);
            let jump = stub.jmp();
            stub.bind(jump, thunk);
        };
        let at = if let Some(at) = self.free_link_stubs.pop() {
            let mut stub = Emitter::new(at);
            build(at, &mut stub);
            write_code(at, &stub.bytes);
            at
        } else {
            let at = self.cold - LINK_STUB;
            self.place_cold(|stub| build(at, stub), LINK_STUB)
        };
        self.links.insert(at, Link { target, site });
        at
    }

    pub fn link(&self, stub: u32) -> Option<Link> {
        self.links.get(&stub).copied().or_else(|| {
            let links = self.loaded.links;
            let n = links.binary_search_by_key(&stub, |link| link.stub).ok()?;
            Some(Link {
                target: links[n].target,
                site: links[n].site,
            })
        })
    }

    /// Points a link's site at its target and frees the stub.
    pub fn resolve_link(&mut self, stub: u32, target: u32) {
        if let Some(link) = self.link(stub) {
            self.links.remove(&stub);
            patch_rel32(link.site, target);
            self.free_link_stubs.push(stub);
        }
    }

    /// Everything that `cache::saved` writes: links still open.
    pub fn open_links(&self) -> Vec<SavedLink> {
        let free: rustc_hash::FxHashSet<u32> = self.free_link_stubs.iter().copied().collect();
        let old = self.loaded.links.iter().copied();
        let old = old.filter(|l| !free.contains(&l.stub) && !self.links.contains_key(&l.stub));
        let new = self.links.iter();
        let new = new.map(|(&stub, l)| SavedLink {
            target: l.target,
            stub,
            site: l.site,
        });
        let mut all: Vec<SavedLink> = old.chain(new).collect();
        all.sort_by_key(|link| link.stub);
        all
    }

    pub fn unused_link_stubs(&self) -> &[u32] {
        &self.free_link_stubs
    }

    pub fn stub(&self, pc: u64) -> Option<Stub> {
        self.stubs.get(&pc).copied().or_else(|| {
            let stubs = self.loaded.stubs;
            let n = stubs.binary_search_by_key(&chain_order(pc), |stub| chain_order(stub.guest));
            let n = n.ok()?;
            Some(Stub {
                host: stubs[n].host,
                next: stubs[n].next,
            })
        })
    }

    pub fn add_stub(&mut self, pc: u64, stub: Stub) {
        self.stubs.insert(pc, stub);
    }

    pub fn all_stubs(&self) -> Vec<SavedStub> {
        let old = self.loaded.stubs.iter().copied();
        let old = old.filter(|stub| !self.stubs.contains_key(&stub.guest));
        let new = self.stubs.iter();
        let new = new.map(|(&guest, s)| SavedStub {
            guest,
            host: s.host,
            next: s.next,
        });
        let mut all: Vec<SavedStub> = old.chain(new).collect();
        all.sort_by_key(|stub| chain_order(stub.guest));
        all
    }

    /// Puts the loaded stubs into a dispatch table whose empty slots hold `end`. Their chains are
    /// as they were saved; only a slot that others use already makes a write necessary.
    pub fn install_chains(&self, dispatch: &mut [u64], end: u32) {
        for chain in self.loaded.stubs.chunk_by(same_slot) {
            let (first, last) = (chain[0], chain[chain.len() - 1]);
            let slot = &mut dispatch[slot_of(first.guest)];
            if *slot != end as u64 {
                if !self.host.contains(&last.next) {
                    continue;
                }
                patch_rel32(last.next, *slot as u32);
            }
            *slot = first.host as u64;
        }
    }

    /// Makes the chains of the loaded stubs what they were when they were saved.
    pub fn restore_chains(&self) {
        for chain in self.loaded.stubs.chunk_by(same_slot) {
            let after = chain[1..].iter().map(|stub| stub.host);
            for (stub, next) in chain.iter().zip(after.chain([self.miss_thunk])) {
                if self.host.contains(&stub.next) {
                    redirect(stub.next, next);
                }
            }
        }
    }

    /// Adds a finished run. `enterable`: any of its instructions may be entered from anywhere.
    pub fn add_run(&mut self, run: Run, enterable: bool) {
        let number = (self.loaded.runs.len() + self.runs.len()) as u32;
        self.runs.push(run);
        if enterable {
            self.index.entry(run.guest).or_insert(number);
        }
    }

    /// Where the lengths of the next run will be.
    pub fn lengths_end(&self) -> u32 {
        (self.loaded.lengths.len() + self.lengths.len()) as u32
    }

    pub fn add_lengths(&mut self, lengths: &[u8]) {
        self.lengths.extend_from_slice(lengths);
    }

    /// Adds where instructions go on behind their checks. Hot code grows, so they come in order.
    pub fn add_passed(&mut self, passed: &[(u32, u32)]) {
        self.passed.extend_from_slice(passed);
    }

    /// The translation of an instruction behind its checks; where it starts, if it has none.
    pub fn past_checks(&self, host: u32) -> u32 {
        match self.passed.binary_search_by_key(&host, |&(start, _)| start) {
            Ok(at) => self.passed[at].1,
            Err(_) => host,
        }
    }

    pub fn all_runs(&self) -> Vec<Run> {
        [self.loaded.runs, &self.runs].concat()
    }

    /// Numbers of the enterable runs by guest address.
    pub fn all_order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = self
            .loaded
            .order
            .iter()
            .chain(self.index.values())
            .copied()
            .collect();
        order.sort_by_key(|&n| self.run(n).guest);
        order.dedup_by_key(|n| self.run(*n).guest);
        order
    }

    pub fn all_lengths(&self) -> Vec<u8> {
        [self.loaded.lengths, &self.lengths].concat()
    }

    /// The last `count` runs, in the order of translation.
    pub fn newest_runs(&self, count: usize) -> Vec<Run> {
        self.runs[self.runs.len().saturating_sub(count)..].to_vec()
    }

    fn run(&self, number: u32) -> Run {
        let old = self.loaded.runs.len();
        let number = number as usize;
        if number < old {
            self.loaded.runs[number]
        } else {
            self.runs[number - old]
        }
    }

    /// The last enterable run that starts at or before `pc`, new and loaded.
    fn runs_before(&self, pc: u64) -> [Option<Run>; 2] {
        let new = self
            .index
            .range(..=pc)
            .next_back()
            .map(|(_, &n)| self.run(n));
        let order = self.loaded.order;
        let after = order.partition_point(|&n| self.loaded.runs[n as usize].guest <= pc);
        let old = after
            .checked_sub(1)
            .map(|at| self.loaded.runs[order[at] as usize]);
        [new, old]
    }

    /// Where the translation of the instruction at `pc` starts, if there is one.
    pub fn find(&self, pc: u64) -> Option<u32> {
        if let Some(heads) = &self.heads {
            return heads.get(&pc).copied();
        }
        self.runs_before(pc).into_iter().flatten().find_map(|run| {
            if pc >= run.guest + run.guest_len as u64 {
                return None;
            }
            let place = self.places(&run).find(|place| place.guest >= pc)?;
            (place.guest == pc).then_some(place.host)
        })
    }

    /// The first translated guest address at or after `pc`.
    pub fn next_translated(&self, pc: u64) -> u64 {
        let covers = |run: &Run| pc < run.guest + run.guest_len as u64;
        if self.runs_before(pc).iter().flatten().any(covers) {
            return pc;
        }
        let new = self
            .index
            .range(pc..)
            .next()
            .map_or(u64::MAX, |(&start, _)| start);
        let order = self.loaded.order;
        let at = order.partition_point(|&n| self.loaded.runs[n as usize].guest < pc);
        let old = order
            .get(at)
            .map_or(u64::MAX, |&n| self.loaded.runs[n as usize].guest);
        new.min(old)
    }

    /// The guest instruction that a host address belongs to.
    pub fn place_of(&self, host: u32) -> Option<Place> {
        let [new, old] = [&self.runs[..], self.loaded.runs].map(|runs| {
            let after = runs.partition_point(|run| run.host <= host);
            after.checked_sub(1).map(|at| runs[at])
        });
        let run = new.or(old)?;
        if host >= run.host + run.host_len {
            return None;
        }
        self.places(&run)
            .take_while(|place| place.host <= host)
            .last()
    }

    pub fn places(&self, run: &Run) -> impl Iterator<Item = Place> + '_ {
        let mut guest = run.guest;
        let mut host = run.host;
        let end = run.guest + run.guest_len as u64;
        let mut at = run.lengths as usize;
        std::iter::from_fn(move || {
            if guest >= end {
                return None;
            }
            let old = self.loaded.lengths;
            let bytes = if at < old.len() {
                &old[at..]
            } else {
                &self.lengths[at - old.len()..]
            };
            let (lengths, used) = decode_lengths(bytes);
            at += used;
            let place = Place {
                guest,
                host,
                spilled: lengths.spilled,
            };
            guest += lengths.guest as u64;
            host += lengths.host;
            Some(place)
        })
    }
}

/// A state of a region, see [`Region::rollback`].
#[derive(Clone, Copy)]
pub struct Mark {
    hot: u32,
    cold: u32,
    runs: usize,
    lengths: usize,
}

/// How long an instruction is in the guest and in the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    pub guest: u8,
    pub host: u32,
    pub spilled: Spilled,
}

/// Copied instructions have the same length in both worlds: one byte tells. Others take five.
pub fn encode_lengths(out: &mut Vec<u8>, lengths: Lengths) {
    if lengths.spilled == Spilled::None && lengths.host == lengths.guest as u32 {
        out.push(lengths.guest);
    } else if lengths.spilled == Spilled::None && lengths.host < 256 {
        out.extend([0x10 | lengths.guest, lengths.host as u8]);
    } else {
        out.extend([0x20 | lengths.guest, lengths.spilled.encode()]);
        out.extend((lengths.host as u16).to_le_bytes());
    }
}

pub fn decode_lengths(bytes: &[u8]) -> (Lengths, usize) {
    let guest = bytes[0] & 15;
    match bytes[0] >> 4 {
        0 => (
            Lengths {
                guest,
                host: guest as u32,
                spilled: Spilled::None,
            },
            1,
        ),
        1 => (
            Lengths {
                guest,
                host: bytes[1] as u32,
                spilled: Spilled::None,
            },
            2,
        ),
        _ => {
            let host = u16::from_le_bytes([bytes[2], bytes[3]]) as u32;
            (
                Lengths {
                    guest,
                    host,
                    spilled: Spilled::decode(bytes[1]),
                },
                4,
            )
        }
    }
}

/// Writes into the code cache.
pub fn write_code(at: u32, bytes: &[u8]) {
    // SAFETY: `at` comes from a region's own bounds, whose memory is mapped writable, and no
    // guest code runs while the engine does.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as usize as *mut u8, bytes.len());
    }
}

/// Points the rel32 at host address `site` to `target`.
pub fn patch_rel32(site: u32, target: u32) {
    write_code(site, &target.wrapping_sub(site + 4).to_le_bytes());
}

/// Like [`patch_rel32`], but leaves memory alone that is right already.
pub fn redirect(site: u32, target: u32) {
    // SAFETY: `site` is a rel32 inside a region's mapped memory.
    let now = unsafe { std::ptr::read_unaligned(site as usize as *const u32) };
    if now != target.wrapping_sub(site + 4) {
        patch_rel32(site, target);
    }
}

/// Binds a branch in code under construction to a place that may not be translated yet.
pub fn bind_or_link(
    region: &mut Region,
    code: &mut Emitter,
    at: Rel32,
    target: u64,
    found: Option<u32>,
) {
    match found {
        Some(host) => code.bind(at, host),
        None => {
            let stub = region.link_stub(target, code.address(at.0));
            code.bind(at, stub);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_survive_encoding() {
        let displaced = [Displaced::Rsi, Displaced::Rbx].map(|d| Spilled::Displaced(d, 9));
        let all = [
            Spilled::None,
            Spilled::Rcx,
            Spilled::Reg(15),
            Spilled::Xsave(6),
            displaced[0],
            displaced[1],
            Spilled::Loop(13),
        ];
        for spilled in all {
            for guest in 1..=15 {
                for host in [guest as u32, 20, 255, 256, 900] {
                    let lengths = Lengths {
                        guest,
                        host,
                        spilled,
                    };
                    let mut bytes = Vec::new();
                    encode_lengths(&mut bytes, lengths);
                    assert_eq!(decode_lengths(&bytes), (lengths, bytes.len()));
                }
            }
        }
    }
}

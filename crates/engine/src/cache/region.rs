//! A region: the translations of one body of guest code and all that is known about them.
//!
//! Hot code grows upwards from the region's start, exit stubs (cold: run once or at turn ends)
//! grow downwards from its end. A *run* is a stretch of guest instructions translated one after
//! the other; its *lengths* tell for every host address which guest instruction it belongs to,
//! which is how faults are told in the guest's terms.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::context::Exit;
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
}

impl Spilled {
    fn encode(self) -> u8 {
        match self {
            Spilled::None => 0,
            Spilled::Rcx => 1,
            Spilled::Reg(r) => 0x10 | r,
            Spilled::Xsave(r) => 0x20 | r,
        }
    }

    fn decode(byte: u8) -> Spilled {
        match byte {
            0 => Spilled::None,
            1 => Spilled::Rcx,
            b if b & 0xf0 == 0x10 => Spilled::Reg(b & 15),
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

pub const LINK_STUB: u32 = 17;

/// Room that one translated block needs at most; checked before translating.
const RESERVE: u32 = 64 << 10;

pub struct Region {
    /// Guest code that may be translated into this region.
    pub guest: Range<u64>,
    pub host: Range<u32>,
    pub hot: u32,
    pub cold: u32,
    pub runs: Vec<Run>,
    pub lengths: Vec<u8>,
    /// Start of each run that may be entered anywhere, to its number.
    pub index: BTreeMap<u64, u32>,
    pub stubs: FxHashMap<u64, Stub>,
    pub links: FxHashMap<u32, Link>,
    free_link_stubs: Vec<u32>,
    /// `jmp gs:[exits[Link]]`, shared by all link stubs.
    link_thunk: u32,
    /// `jmp gs:[exits[Indirect]]`, the end of every dispatch chain.
    pub miss_thunk: u32,
    pub guest_bytes: u64,
}

impl Region {
    /// A region over `host` addresses, which are mapped readable, writable and executable.
    pub fn new(guest: Range<u64>, host: Range<u32>) -> Region {
        let mut region = Region {
            guest,
            hot: host.start,
            cold: host.end,
            host,
            runs: Vec::new(),
            lengths: Vec::new(),
            index: BTreeMap::new(),
            stubs: FxHashMap::default(),
            links: FxHashMap::default(),
            free_link_stubs: Vec::new(),
            link_thunk: 0,
            miss_thunk: 0,
            guest_bytes: 0,
        };
        region.start();
        region
    }

    fn start(&mut self) {
        let mut thunks = Emitter::new(self.hot);
        self.miss_thunk = thunks.here();
        thunks.exit(Exit::Indirect as usize);
        self.link_thunk = thunks.here();
        thunks.exit(Exit::Link as usize);
        self.place_hot(&thunks);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Region::new(self.guest.clone(), self.host.clone());
    }

    /// What to go back to after a throw-away translation.
    pub fn mark(&self) -> Mark {
        Mark { hot: self.hot, cold: self.cold, runs: self.runs.len(), lengths: self.lengths.len() }
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
        assert_eq!(stub.bytes.len() as u32, len, "a stub has its announced size");
        write_code(at, &stub.bytes);
        self.cold = at;
        at
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

    /// Points a link's site at its target and frees the stub.
    pub fn resolve_link(&mut self, stub: u32, target: u32) {
        if let Some(link) = self.links.remove(&stub) {
            patch_rel32(link.site, target);
            self.free_link_stubs.push(stub);
        }
    }

    pub fn free_link_stubs(&mut self, slots: Vec<u32>) {
        self.free_link_stubs = slots;
    }

    pub fn unused_link_stubs(&self) -> &[u32] {
        &self.free_link_stubs
    }

    /// Where the translation of the instruction at `pc` starts, if there is one.
    pub fn find(&self, pc: u64) -> Option<u32> {
        let (_, &number) = self.index.range(..=pc).next_back()?;
        let run = self.runs[number as usize];
        if pc >= run.guest + run.guest_len as u64 {
            return None;
        }
        self.places(&run).find(|place| place.guest >= pc).filter(|p| p.guest == pc).map(|p| p.host)
    }

    /// The first translated guest address at or after `pc`.
    pub fn next_translated(&self, pc: u64) -> u64 {
        let inside = self.index.range(..=pc).next_back().is_some_and(|(_, &n)| {
            let run = self.runs[n as usize];
            pc < run.guest + run.guest_len as u64
        });
        if inside {
            return pc;
        }
        self.index.range(pc..).next().map_or(u64::MAX, |(&start, _)| start)
    }

    /// The guest instruction that a host address belongs to.
    pub fn place_of(&self, host: u32) -> Option<Place> {
        let after = self.runs.partition_point(|run| run.host <= host);
        let run = self.runs[after.checked_sub(1)?];
        if host >= run.host + run.host_len {
            return None;
        }
        self.places(&run).take_while(|place| place.host <= host).last()
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
            let (lengths, used) = decode_lengths(&self.lengths[at..]);
            at += used;
            let place = Place { guest, host, spilled: lengths.spilled };
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
        0 => (Lengths { guest, host: guest as u32, spilled: Spilled::None }, 1),
        1 => (Lengths { guest, host: bytes[1] as u32, spilled: Spilled::None }, 2),
        _ => {
            let host = u16::from_le_bytes([bytes[2], bytes[3]]) as u32;
            (Lengths { guest, host, spilled: Spilled::decode(bytes[1]) }, 4)
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

/// Binds a branch in code under construction to a place that may not be translated yet.
pub fn bind_or_link(region: &mut Region, code: &mut Emitter, at: Rel32, target: u64, found: Option<u32>) {
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
        let all = [Spilled::None, Spilled::Rcx, Spilled::Reg(15), Spilled::Xsave(6)];
        for spilled in all {
            for guest in 1..=15 {
                for host in [guest as u32, 20, 255, 256, 900] {
                    let lengths = Lengths { guest, host, spilled };
                    let mut bytes = Vec::new();
                    encode_lengths(&mut bytes, lengths);
                    assert_eq!(decode_lengths(&bytes), (lengths, bytes.len()));
                }
            }
        }
    }
}

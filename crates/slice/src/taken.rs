//! What an instruction does to what is looked for. In: what counts, and an instruction that was executed. Out: which of its
//! destinations counted, taken out; their sources, put in.

use std::ops::Range;

use crate::cells::Cells;
use crate::flows::{Flow, Site};
use crate::live::{Live, Who};
use crate::walk::Executed;

/// A destination with bytes that counted.
#[derive(Clone, Debug)]
pub struct Met {
    /// Its number in the instruction.
    pub flow: usize,
    pub who: Who,
    /// Of registers: which cells, and of a single one a bit for each byte.
    cells: Cells,
    bytes: u32,
    /// Of memory: which of the offsets.
    offsets: Range<usize>,
}

/// Destinations of one instruction that were taken out.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    pub met: Vec<Met>,
    offsets: Vec<u64>,
}

impl Taken {
    /// Takes all destinations out.
    pub fn take(&mut self, live: &mut Live, executed: &Executed<'_>, flows: &[Flow]) {
        self.met.clear();
        self.offsets.clear();
        for (n, flow) in flows.iter().enumerate() {
            self.take_one(live, executed, n, flow);
        }
    }

    fn take_one(&mut self, live: &mut Live, executed: &Executed<'_>, number: usize, flow: &Flow) {
        let at = self.offsets.len();
        let (who, cells, bytes) = match &flow.cells {
            Some(cells) => {
                let (met, who) = live.take_cells(executed.thread, cells);
                if met.is_empty() {
                    return;
                }
                let bytes = match flow.to {
                    Site::Cells(_) => 0,
                    _ => met.bytes_within(cells),
                };
                (who, met, bytes)
            }
            None => {
                let mut who = None;
                for (addr, len) in ranges(executed, &flow.to, true) {
                    who = live.take(addr, len, &mut self.offsets).or(who);
                }
                match who {
                    Some(who) => (who, Cells::NONE, 0),
                    None => return,
                }
            }
        };
        self.met.push(Met {
            flow: number,
            who,
            cells,
            bytes,
            offsets: at..self.offsets.len(),
        });
    }

    /// The destination may have kept its value: it is still looked for.
    pub fn put_back(&self, live: &mut Live, executed: &Executed<'_>, met: &Met, to: &Site) {
        live.add_cells(executed.thread, &met.cells, met.who);
        for (addr, _) in ranges(executed, to, true) {
            for offset in &self.offsets[met.offsets.clone()] {
                live.add(addr.wrapping_add(*offset), 1, met.who);
            }
        }
    }

    /// A value was moved byte by byte: from here on its bytes are looked for where they were.
    pub fn follow(
        &self,
        live: &mut Live,
        executed: &Executed<'_>,
        flow: &Flow,
        met: &Met,
        who: Who,
    ) {
        let width = u64::from(flow.width);
        let of_memory = &self.offsets[met.offsets.clone()];
        let mask = of_memory.iter().filter(|offset| **offset < 32);
        let mask = mask.fold(met.bytes, |all, offset| all | 1 << offset);
        let mask = mask
            & 1u32
                .checked_shl(flow.width.into())
                .map_or(u32::MAX, |bit| bit - 1);
        for from in &flow.from {
            match from {
                Site::Cells(cells) => live.add_cells(executed.thread, cells, who),
                Site::Register(_) | Site::Upper(_) => {
                    live.add_cells(executed.thread, &some_of(from, mask), who);
                }
                Site::Memory(_) | Site::Part { .. } => {
                    for (addr, len) in ranges(executed, from, false) {
                        if !of_memory.is_empty() && overlaps(executed, &flow.to, addr, len) {
                            // What it has written it may have read again.
                            live.add(addr, len, who);
                        } else if !of_memory.is_empty() {
                            // A string may be longer than any width says.
                            let all = of_memory.iter().filter(|byte| **byte < len);
                            let wide = flow.width == u8::MAX;
                            for byte in all.filter(|byte| wide || **byte < width) {
                                live.add(addr.wrapping_add(*byte), 1, who);
                            }
                        } else if mask == u32::MAX >> (32 - len.min(32)) {
                            live.add(addr, len, who);
                        } else {
                            let all = (0..32u64.min(len)).filter(|n| mask & 1 << n != 0);
                            for byte in all {
                                live.add(addr.wrapping_add(byte), 1, who);
                            }
                        }
                    }
                }
            }
        }
    }

    /// The offsets in memory that counted of a destination, the first and the last, if it is memory; or the bytes of a
    /// register.
    pub fn extent(&self, met: &Met) -> Option<(u64, u64)> {
        let offsets = &self.offsets[met.offsets.clone()];
        match (offsets.first(), offsets.last()) {
            (Some(first), Some(last)) => Some((*first, *last)),
            _ if met.bytes != 0 => {
                let last = 31 - met.bytes.leading_zeros();
                Some((met.bytes.trailing_zeros().into(), last.into()))
            }
            _ => None,
        }
    }
}

/// Whether a destination in memory and a range have bytes in common.
pub fn overlaps(executed: &Executed<'_>, to: &Site, addr: u64, len: u64) -> bool {
    let end = addr.saturating_add(len);
    ranges(executed, to, true).any(|(start, len)| start < end && addr < start.saturating_add(len))
}

/// From here on these values are looked for.
pub fn want(live: &mut Live, executed: &Executed<'_>, sites: &[Site], who: Who) {
    for site in sites {
        match site.cells() {
            Some(cells) => live.add_cells(executed.thread, &cells, who),
            None => {
                for (addr, len) in ranges(executed, site, false) {
                    live.add(addr, len, who);
                }
            }
        }
    }
}

/// Which bytes of a register's site are in a set.
pub fn bytes_of(site: &Site, cells: &Cells) -> u32 {
    match site {
        Site::Register(register) => cells.bytes_of(*register),
        Site::Upper(number) => cells.bytes_of(iced_x86::Register::YMM0 + u32::from(*number)) >> 16,
        _ => 0,
    }
}

/// These bytes of a register's site.
pub fn some_of(site: &Site, bytes: u32) -> Cells {
    match site {
        Site::Register(register) => Cells::some_of(*register, bytes),
        Site::Upper(number) => {
            Cells::some_of(iced_x86::Register::YMM0 + u32::from(*number), bytes << 16)
        }
        _ => Cells::NONE,
    }
}

/// The ranges of memory behind a site: one, or where the engine told them, all of that direction.
pub fn ranges<'a>(
    executed: &'a Executed<'_>,
    site: &Site,
    write: bool,
) -> impl Iterator<Item = (u64, u64)> + use<'a> {
    let (told, all) = (executed.told, executed.accesses);
    let (number, part) = match *site {
        Site::Memory(number) => (Some(number), None),
        Site::Part { access, at, len } => (Some(access), Some((u64::from(at), u64::from(len)))),
        _ => (None, None),
    };
    let some = match (number, told) {
        (Some(_), true) => all,
        (Some(number), false) => {
            let at = usize::from(number);
            all.get(at..at + 1).unwrap_or_default()
        }
        _ => &[],
    };
    some.iter()
        .filter(move |access| !told || if write { access.write } else { access.read })
        .map(move |access| match part {
            Some((at, len)) => {
                let len = len.min(access.len.saturating_sub(at));
                (access.addr.wrapping_add(at), len)
            }
            None => (access.addr, access.len),
        })
}

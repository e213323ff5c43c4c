//! What lived on the heap, and when. In: a debugger. Out: every block that an allocator handed out, with its size, where it
//! was allocated and freed, and frees that were wrong.
//!
//! One pass over the recording sees all calls of allocators' functions, with the registers that their arguments and results
//! are in. Allocators lie on top of each other (`operator new` calls `malloc`): of calls within calls the outermost
//! counts. Stacks aren't kept; whoever wants one goes there.

use clew_debugger::Debugger;
use clew_recording::event::ThreadId;
use clew_timeline::{CallSeen, LeftBy, Mark, Piece, Position};
use serde::Serialize;

use crate::Result;
use crate::scene::Scene;

/// More calls of allocators aren't looked at.
pub const MOST: u64 = 700_000;

/// What a function of an allocator does with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The size is in this argument.
    Allocate(usize),
    /// A count and a size.
    Array,
    /// The address, and the new size in this argument.
    Again(usize),
    /// The same with a count and a size behind the address.
    ArrayAgain,
    /// Writes the address where its first argument points to; the size is the third.
    Aligned,
    Free,
}

/// Who allocates has to free, by the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    C,
    New,
    NewArray,
}

const FUNCTIONS: [(&str, Role, Family); 64] = [
    ("malloc", Role::Allocate(0), Family::C),
    ("calloc", Role::Array, Family::C),
    ("realloc", Role::Again(1), Family::C),
    ("reallocarray", Role::ArrayAgain, Family::C),
    ("aligned_alloc", Role::Allocate(1), Family::C),
    ("memalign", Role::Allocate(1), Family::C),
    ("posix_memalign", Role::Aligned, Family::C),
    ("valloc", Role::Allocate(0), Family::C),
    ("pvalloc", Role::Allocate(0), Family::C),
    ("free", Role::Free, Family::C),
    ("cfree", Role::Free, Family::C),
    ("free_sized", Role::Free, Family::C),
    ("_Znwm", Role::Allocate(0), Family::New),
    ("_ZnwmSt11align_val_t", Role::Allocate(0), Family::New),
    ("_ZnwmRKSt9nothrow_t", Role::Allocate(0), Family::New),
    (
        "_ZnwmSt11align_val_tRKSt9nothrow_t",
        Role::Allocate(0),
        Family::New,
    ),
    ("_Znam", Role::Allocate(0), Family::NewArray),
    ("_ZnamSt11align_val_t", Role::Allocate(0), Family::NewArray),
    ("_ZnamRKSt9nothrow_t", Role::Allocate(0), Family::NewArray),
    (
        "_ZnamSt11align_val_tRKSt9nothrow_t",
        Role::Allocate(0),
        Family::NewArray,
    ),
    ("_ZdlPv", Role::Free, Family::New),
    ("_ZdlPvm", Role::Free, Family::New),
    ("_ZdlPvSt11align_val_t", Role::Free, Family::New),
    ("_ZdlPvmSt11align_val_t", Role::Free, Family::New),
    ("_ZdlPvRKSt9nothrow_t", Role::Free, Family::New),
    ("_ZdaPv", Role::Free, Family::NewArray),
    ("_ZdaPvm", Role::Free, Family::NewArray),
    ("_ZdaPvSt11align_val_t", Role::Free, Family::NewArray),
    ("_ZdaPvmSt11align_val_t", Role::Free, Family::NewArray),
    ("_ZdaPvRKSt9nothrow_t", Role::Free, Family::NewArray),
    // mimalloc, and jemalloc with the prefixes that it is built with.
    ("mi_malloc", Role::Allocate(0), Family::C),
    ("mi_zalloc", Role::Allocate(0), Family::C),
    ("mi_calloc", Role::Array, Family::C),
    ("mi_realloc", Role::Again(1), Family::C),
    ("mi_malloc_aligned", Role::Allocate(0), Family::C),
    ("mi_zalloc_aligned", Role::Allocate(0), Family::C),
    ("mi_realloc_aligned", Role::Again(1), Family::C),
    ("mi_aligned_alloc", Role::Allocate(1), Family::C),
    ("mi_memalign", Role::Allocate(1), Family::C),
    ("mi_posix_memalign", Role::Aligned, Family::C),
    ("mi_free", Role::Free, Family::C),
    ("mi_free_size", Role::Free, Family::C),
    ("mi_free_aligned", Role::Free, Family::C),
    ("mi_free_size_aligned", Role::Free, Family::C),
    ("je_malloc", Role::Allocate(0), Family::C),
    ("je_calloc", Role::Array, Family::C),
    ("je_realloc", Role::Again(1), Family::C),
    ("je_aligned_alloc", Role::Allocate(1), Family::C),
    ("je_posix_memalign", Role::Aligned, Family::C),
    ("je_mallocx", Role::Allocate(0), Family::C),
    ("je_rallocx", Role::Again(1), Family::C),
    ("je_free", Role::Free, Family::C),
    ("je_dallocx", Role::Free, Family::C),
    ("je_sdallocx", Role::Free, Family::C),
    ("_rjem_malloc", Role::Allocate(0), Family::C),
    ("_rjem_calloc", Role::Array, Family::C),
    ("_rjem_realloc", Role::Again(1), Family::C),
    ("_rjem_mallocx", Role::Allocate(0), Family::C),
    ("_rjem_rallocx", Role::Again(1), Family::C),
    ("_rjem_aligned_alloc", Role::Allocate(1), Family::C),
    ("_rjem_posix_memalign", Role::Aligned, Family::C),
    ("_rjem_free", Role::Free, Family::C),
    ("_rjem_dallocx", Role::Free, Family::C),
    ("_rjem_sdallocx", Role::Free, Family::C),
];

/// Arguments, as instructions number registers: rdi, rsi, rdx.
const ARGUMENTS: [usize; 3] = [7, 6, 2];

/// Something that a call of an allocator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub thread: ThreadId,
    /// At the function's first instruction.
    pub call: Mark,
    /// Behind the call.
    pub back: Option<Mark>,
    /// Of the function, as linkers know it.
    pub function: &'static str,
    pub family: Family,
}

impl Moment {
    /// When it takes effect: a block is there behind its allocation, and isn't from the call of `free` on.
    fn tick(&self, allocates: bool) -> (u64, u64) {
        let mark = match (allocates, self.back) {
            (true, Some(back)) => back,
            _ => self.call,
        };
        (mark.event, mark.ticks)
    }
}

/// A piece of memory from an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub address: u64,
    pub size: u64,
    pub allocated: Moment,
    pub freed: Option<Moment>,
    /// The block that `realloc` made it of.
    pub from: Option<usize>,
}

impl Block {
    pub fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.address) < self.size.max(1)
    }
}

/// A free that wasn't right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongFree {
    pub address: u64,
    pub moment: Moment,
    pub why: Wrong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// This block was freed before.
    Twice(usize),
    /// No block begins there; it may lie in this one.
    NoBlock(Option<usize>),
    /// Freed by another family of functions than allocated it.
    Mismatch(usize),
}

/// All that allocators did.
#[derive(Debug, Default)]
pub struct History {
    /// In the order of their allocation.
    pub blocks: Vec<Block>,
    pub wrong: Vec<WrongFree>,
    /// All calls were seen.
    pub complete: bool,
    /// Calls that never returned: the program ended in them.
    pub unfinished: Vec<(u64, Moment)>,
    by_address: std::collections::HashMap<u64, Vec<usize>>,
}

/// What one call does to the heap.
struct Deed {
    key: (u64, u64, usize),
    what: What,
    moment: Moment,
}

enum What {
    Allocate { address: u64, size: u64 },
    Free { address: u64 },
    Move { from: u64, to: u64, size: u64 },
}

impl History {
    /// Looks at the whole recording.
    pub fn read(debugger: &mut Debugger) -> Result<History> {
        let names: Vec<&str> = FUNCTIONS.iter().map(|one| one.0).collect();
        let mut seen = debugger.calls_of(&names, MOST)?;
        put_results(debugger, &mut seen.calls)?;
        Ok(History::of(&seen.calls, seen.complete))
    }

    /// From calls of [`FUNCTIONS`].
    fn of(calls: &[CallSeen], complete: bool) -> History {
        let mut history = History {
            complete,
            ..History::default()
        };
        let mut deeds = Vec::new();
        for (n, call) in calls.iter().enumerate() {
            // What an allocator calls is its own affair.
            if call.depth > 0 {
                continue;
            }
            let Some(&(function, role, family)) = FUNCTIONS.get(call.function as usize) else {
                continue;
            };
            let argument = |n: usize| call.registers[ARGUMENTS[n]];
            let (back, rax) = match &call.left {
                LeftBy::Return { at, rax, .. } => (Some(*at), Some(*rax)),
                _ => (None, None),
            };
            let moment = Moment {
                thread: call.thread,
                call: call.at,
                back,
                function,
                family,
            };
            let array = |n: usize| argument(n).saturating_mul(argument(n + 1));
            let made = rax.filter(|address| *address != 0);
            let new = |size: u64| {
                let address = made?;
                Some(What::Allocate { address, size })
            };
            let again = |size: u64| match (argument(0), made) {
                (0, Some(address)) => Some(What::Allocate { address, size }),
                (0, None) => None,
                (from, Some(to)) => Some(What::Move { from, to, size }),
                (from, None) if size == 0 && rax.is_some() => Some(What::Free { address: from }),
                _ => None,
            };
            let what = match role {
                Role::Allocate(n) => new(argument(n)),
                Role::Array => new(array(0)),
                Role::Again(n) => again(argument(n)),
                Role::ArrayAgain => again(array(1)),
                Role::Aligned => {
                    pointed(call)
                        .filter(|_| rax == Some(0))
                        .map(|address| What::Allocate {
                            address,
                            size: argument(2),
                        })
                }
                Role::Free => match argument(0) {
                    0 => None,
                    address => Some(What::Free { address }),
                },
            };
            if back.is_none() {
                history.unfinished.push((argument(0), moment));
            }
            if let Some(what) = what {
                let allocates = !matches!(what, What::Free { .. });
                let (event, ticks) = moment.tick(allocates);
                deeds.push(Deed {
                    key: (event, ticks, n),
                    what,
                    moment,
                });
            }
        }
        // Several threads may be in allocators at once; at one tick only one of them runs.
        deeds.sort_by_key(|deed| deed.key);
        for deed in deeds {
            history.happens(&deed.what, deed.moment);
        }
        history
    }

    fn happens(&mut self, what: &What, moment: Moment) {
        match *what {
            What::Allocate { address, size } => self.add(address, size, moment, None),
            What::Free { address } => {
                self.free(address, moment);
            }
            What::Move { from, to, size } => {
                let old = self.free(from, moment);
                self.add(to, size, moment, old);
            }
        }
    }

    fn add(&mut self, address: u64, size: u64, moment: Moment, from: Option<usize>) {
        let known = self.by_address.entry(address).or_default();
        known.push(self.blocks.len());
        self.blocks.push(Block {
            address,
            size,
            allocated: moment,
            freed: None,
            from,
        });
    }

    fn free(&mut self, address: u64, moment: Moment) -> Option<usize> {
        let last = self.by_address.get(&address).and_then(|all| all.last());
        let wrong = |why| WrongFree {
            address,
            moment,
            why,
        };
        match last.copied() {
            Some(n) if self.blocks[n].freed.is_none() => {
                if self.blocks[n].allocated.family != moment.family {
                    self.wrong.push(wrong(Wrong::Mismatch(n)));
                }
                self.blocks[n].freed = Some(moment);
                return Some(n);
            }
            Some(n) => self.wrong.push(wrong(Wrong::Twice(n))),
            None => {
                let inside = self.blocks.iter().rposition(|block| block.holds(address));
                self.wrong.push(wrong(Wrong::NoBlock(inside)));
            }
        }
        None
    }

    /// The blocks that ever held an address, in order.
    pub fn at(&self, address: u64) -> impl Iterator<Item = (usize, &Block)> {
        let all = self.blocks.iter().enumerate();
        all.filter(move |(_, block)| block.holds(address))
    }

    /// Blocks that nobody freed.
    pub fn live(&self) -> impl Iterator<Item = (usize, &Block)> {
        let all = self.blocks.iter().enumerate();
        all.filter(|(_, block)| block.freed.is_none())
    }
}

/// Of functions that write the address where an argument points to, that memory is read at their return.
fn put_results(debugger: &mut Debugger, calls: &mut [CallSeen]) -> Result<()> {
    /// Each takes a seek.
    const MOST_ALIGNED: usize = 500;
    let aligned = |call: &&mut CallSeen| {
        let function = FUNCTIONS.get(call.function as usize);
        call.depth == 0 && function.is_some_and(|one| one.1 == Role::Aligned)
    };
    let here = debugger.timeline().position()?;
    for call in calls.iter_mut().filter(aligned).take(MOST_ALIGNED) {
        let addr = call.registers[ARGUMENTS[0]];
        if let LeftBy::Return { at, pieces, .. } = &mut call.left {
            let position = debugger.timeline().positions(&[*at])?;
            let mut bytes = vec![0; 8];
            for position in position {
                debugger.stand_at(position)?;
                if debugger.timeline().read(addr, &mut bytes)? == 8 {
                    pieces.push(Piece {
                        addr,
                        bytes: bytes.clone(),
                    });
                }
            }
        }
    }
    debugger.stand_at(here)
}

/// Where `posix_memalign` put the address, by what was kept of memory at its return.
fn pointed(call: &CallSeen) -> Option<u64> {
    let at = call.registers[ARGUMENTS[0]];
    let pieces = match &call.left {
        LeftBy::Return { pieces, .. } => pieces,
        _ => return None,
    };
    pieces.iter().find_map(|piece| {
        let from = at.checked_sub(piece.addr)? as usize;
        let bytes = piece.bytes.get(from..from + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    })
}

impl Scene<'_> {
    /// Whether a mark lies before a position.
    pub fn before(&mut self, mark: Mark, position: Position) -> Result<bool> {
        let (a, b) = ((mark.event, mark.ticks), (position.event, position.ticks));
        if a != b {
            return Ok(a < b);
        }
        Ok(self.position(mark)? <= position)
    }

    /// The block that an address was in at a position, alive; else the last one before that held it, which is gone.
    pub fn block_at(&mut self, address: u64, position: Position) -> Result<Option<Held>> {
        let history = self.history()?;
        let mut found = None;
        for (number, block) in history.at(address) {
            let there = block.allocated.back.unwrap_or(block.allocated.call);
            if !self.before(there, position)? {
                continue;
            }
            let gone = match block.freed {
                Some(freed) => self.before(freed.call, position)?,
                None => false,
            };
            found = Some(Held {
                number,
                block: *block,
                gone,
            });
            if !gone {
                break;
            }
        }
        Ok(found)
    }

    /// Blocks that are alive at a position.
    pub fn live_at(&mut self, position: Position) -> Result<Vec<(usize, Block)>> {
        let history = self.history()?;
        let mut all = Vec::new();
        for (number, block) in history.blocks.iter().enumerate() {
            let there = block.allocated.back.unwrap_or(block.allocated.call);
            if !self.before(there, position)? {
                continue;
            }
            let gone = match block.freed {
                Some(freed) => self.before(freed.call, position)?,
                None => false,
            };
            if !gone {
                all.push((number, *block));
            }
        }
        Ok(all)
    }
}

/// A block as it is at some position.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub number: usize,
    pub block: Block,
    /// It was freed by then.
    pub gone: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, n: u64, arguments: [u64; 3], result: Option<u64>) -> CallSeen {
        let function = FUNCTIONS.iter().position(|one| one.0 == name).unwrap();
        let mut registers = [0; 16];
        for (register, value) in ARGUMENTS.iter().zip(arguments) {
            registers[*register] = value;
        }
        let mark = |ticks| Mark {
            event: 1,
            ticks,
            pc: 0,
            sp: 0,
        };
        CallSeen {
            function: function as u32,
            thread: 0,
            at: mark(2 * n),
            known: false,
            frame: 0,
            back: 0,
            depth: 0,
            registers,
            vectors: [0; 8],
            pieces: Vec::new(),
            left: match result {
                Some(rax) => LeftBy::Return {
                    at: mark(2 * n + 1),
                    rax,
                    rdx: 0,
                    xmm: [0; 2],
                    pieces: Vec::new(),
                },
                None => LeftBy::Nothing,
            },
        }
    }

    #[test]
    fn blocks_live_and_go() {
        let calls = [
            call("malloc", 0, [24, 0, 0], Some(0x1000)),
            call("calloc", 1, [4, 8, 0], Some(0x2000)),
            call("realloc", 2, [0x1000, 100, 0], Some(0x3000)),
            call("free", 3, [0x3000, 0, 0], Some(1)),
            call("malloc", 4, [24, 0, 0], Some(0x1000)),
            call("malloc", 5, [24, 0, 0], Some(0)),
            call("free", 6, [0, 0, 0], Some(0)),
        ];
        let history = History::of(&calls, true);
        let sizes: Vec<u64> = history.blocks.iter().map(|block| block.size).collect();
        assert_eq!(sizes, [24, 32, 100, 24]);
        assert_eq!(history.blocks[2].from, Some(0));
        let live: Vec<usize> = history.live().map(|(n, _)| n).collect();
        assert_eq!(live, [1, 3]);
        assert!(history.wrong.is_empty() && history.unfinished.is_empty());
        assert_eq!(history.at(0x1017).count(), 2);
        assert_eq!(history.at(0x1018).count(), 0);
    }

    #[test]
    fn wrong_frees_are_told_apart() {
        let calls = [
            call("malloc", 0, [24, 0, 0], Some(0x1000)),
            call("free", 1, [0x1000, 0, 0], Some(0)),
            call("free", 2, [0x1000, 0, 0], None),
            call("_Znwm", 3, [24, 0, 0], Some(0x2000)),
            call("free", 4, [0x2008, 0, 0], Some(0)),
            call("free", 5, [0x2000, 0, 0], Some(0)),
            call("free", 6, [0x9000, 0, 0], Some(0)),
        ];
        let history = History::of(&calls, true);
        let wrong: Vec<Wrong> = history.wrong.iter().map(|one| one.why).collect();
        let inside = Wrong::NoBlock(Some(1));
        assert_eq!(
            wrong,
            [
                Wrong::Twice(0),
                inside,
                Wrong::Mismatch(1),
                Wrong::NoBlock(None)
            ]
        );
        assert_eq!(history.unfinished.len(), 1);
    }

    #[test]
    fn what_an_allocator_calls_is_its_own() {
        let mut inner = call("malloc", 1, [24, 0, 0], Some(0x1000));
        inner.depth = 1;
        let calls = [call("_Znwm", 0, [24, 0, 0], Some(0x1000)), inner];
        assert_eq!(History::of(&calls, true).blocks.len(), 1);
    }
}

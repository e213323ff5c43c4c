//! Traces: which way a replay went and what it touched, written by translated code without leaving the cache.
//!
//! In: a stretch of a replay, with [`Instruments::trace`](crate::cache::instruments::Instruments::trace). Out: *entries* in
//! memory that worker and commander share, one for each time a block was run through, and *rows* that tell what
//! blocks there are. What follows from a block isn't in its entries: an entry has the registers by which its
//! instructions address memory, each once until it changes ([`plan`]), and a number that tells where the block was
//! left, its *end*.
//!
//! - [`plan`]: which registers an entry has, and where; the same answer for who writes and who reads
//! - [`book`]: blocks and their ends, as they are translated
//! - [`buffer`]: the shared memory, from the worker's side
//! - [`rows`]: how blocks and ends are told
//! - [`read`]: entries, from the last to the first
//!
//! An entry's number comes last, since only the way out of a block knows it: entries are read backwards.

pub mod book;
pub mod buffer;
pub mod plan;
pub mod read;
pub mod rows;

/// Numbers of entries that translated code doesn't write: their payload, its length, then this with the kind.
pub const SPECIAL: u32 = 1 << 31;

/// What else can happen between two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Special {
    /// An event was applied: its number, and the pc where it was due.
    Event = 0,
    /// What was before, back to the event before it or the next of these, this thread did: its number, fs base, gs base.
    Thread = 1,
    /// What the next entry's only instruction touched, where registers alone don't tell.
    Touched = 2,
    /// An instruction that the engine executed by itself: pc, 15 bytes of code and one that tells whether it ticked, what
    /// it touched.
    Step = 3,
    /// The same of a string instruction that has faulted: what it had done by then.
    Part = 4,
}

impl Special {
    pub fn id(self) -> u32 {
        SPECIAL | self as u32
    }

    pub fn of(id: u32) -> Option<Special> {
        use Special::*;
        let all = [Event, Thread, Touched, Step, Part];
        all.into_iter().find(|special| special.id() == id)
    }
}

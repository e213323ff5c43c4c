//! What the child of a vfork, which runs the engine in its parent's memory, was doing when it went.
//!
//! In: notes by the executor, whoever runs it. Out: whether the engine's own memory is whole. A child that is
//! killed in translated code or in a call of the kernel's leaves it so; one that is killed while the engine itself
//! works (translates, allocates, writes events) may leave anything half done, and its parent can't go on with that.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const WORKS: u32 = 0;
const RESTS: u32 = 1;
const LEAVES: u32 = 2;

static DOING: AtomicU32 = AtomicU32::new(WORKS);

/// The engine works, until somebody says otherwise.
#[inline]
pub fn works() {
    DOING.store(WORKS, Relaxed);
}

/// The guest runs, or the kernel for it: the engine is in the midst of nothing.
#[inline]
pub fn rests() {
    DOING.store(RESTS, Relaxed);
}

/// The process ends or becomes another by its own doing.
pub fn leaves() {
    DOING.store(LEAVES, Relaxed);
}

/// For the parent: whether the child went while the engine worked for it.
pub fn was_torn_away() -> bool {
    DOING.load(Relaxed) == WORKS
}

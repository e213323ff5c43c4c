//! The guest's memory: what it has mapped, where, and how it may be used.
//!
//! In: the guest's mapping calls and the loader's segments. Out: real mappings at addresses that
//! depend on nothing but the guest's own calls, and answers about them (fetches, faults, `/proc`).
//!
//! - [`mapping`], [`map`]: one mapping; the map of all of them
//! - [`file`](mod@file): which file a mapping shows
//! - [`alloc`]: where a mapping without a fixed address goes
//! - [`ops`], [`mremap`], [`heap`], [`shm`], [`advice`]: the system calls
//! - [`image`]: ELF images, their places and build-ids
//! - [`stack`]: the main thread's stack
//! - [`code`]: write protection of translated mutable code; which translations became stale
//! - [`query`]: find, fetch
//! - [`render`]: the text of `/proc/self/maps`
//! - [`log`], `source`, `originals`: for a recording: changes, and copies of mapped files
//! - [`govern`], `ranges`: memory that recorded processes share
//! - [`checksum`]: one number for what the guest has written
//! - [`apply`], [`objects`]: for a replay: recorded changes made again
//! - [`host`], [`reserve`]: the real calls; mappings that are kept for the engine

pub mod advice;
pub mod alloc;
pub mod apply;
pub mod checksum;
pub mod code;
pub mod file;
mod follow;
pub mod govern;
pub mod heap;
pub mod host;
pub mod image;
pub mod log;
pub mod map;
pub mod mapping;
pub mod mremap;
pub mod objects;
pub mod ops;
mod originals;
pub mod query;
mod ranges;
pub mod render;
#[cfg(test)]
mod replay_tests;
pub mod reserve;
pub mod shm;
mod source;
pub mod stack;
pub mod state;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use alloc::{ByHash, PlaceImage};
pub use apply::{ApplyError, OpenFile};
pub use file::FileIdentity;
pub use image::BuildId;
pub use log::{Changes, Note};
pub use mapping::{Backing, Mapping, OnFork, PAGE};
pub use objects::Copies;
pub use query::{Code, Fetch, ImageAt};

/// The guest's address space. One for each process; after a fork both have their own.
pub struct Memory {
    pub(crate) map: map::MappingMap,
    places: alloc::Places,
    images: Vec<image::Image>,
    code: code::CodePages,
    /// Program break: its start and its present value.
    brk: Range<u64>,
    /// Changes so far, if they are recorded.
    log: Option<Box<log::Log>>,
    /// Files whose mappings show a copy.
    originals: originals::Originals,
    /// Shared memory in a replay.
    objects: objects::Objects,
    /// Where the main stack can be accessed from, as a replay has it.
    stack_floor: u64,
    /// RLIMIT_STACK.
    stack_limit: u64,
    /// While a probe's module runs: its code, and nothing else can be executed.
    pub module: Option<Range<u64>>,
}

/// Why a mapping call can't be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// What the kernel would answer (or did).
    #[error("errno {0}")]
    Errno(i32),
    /// The call would change memory of the engine itself: the guest must be stopped.
    #[error(
        "the program maps or moves {:#x}..{:#x}, where clew itself lives; \
         it can't run under clew with this fixed address", .0.start, .0.end
    )]
    Engine(Range<u64>),
}

impl From<i32> for MapError {
    fn from(errno: i32) -> MapError {
        MapError::Errno(errno)
    }
}

/// The answer to a mapping call: the value for rax, or why not.
pub type Answer = Result<u64, MapError>;

impl Default for Memory {
    fn default() -> Memory {
        Memory::new(Box::new(ByHash))
    }
}

impl Memory {
    /// An empty address space whose images go where `place` says.
    pub fn new(place: Box<dyn PlaceImage>) -> Memory {
        let heap = crate::layout::HEAP.start;
        Memory {
            map: map::MappingMap::default(),
            places: alloc::Places::new(place),
            images: Vec::new(),
            code: code::CodePages::default(),
            brk: heap..heap,
            log: None,
            originals: originals::Originals::default(),
            objects: objects::Objects::default(),
            stack_floor: crate::layout::STACK_TOP,
            stack_limit: 8 << 20,
            module: None,
        }
    }

    /// Changes who decides where images go (from the next one on).
    pub fn set_place(&mut self, place: Box<dyn PlaceImage>) {
        self.places.set_image_places(place);
    }
}

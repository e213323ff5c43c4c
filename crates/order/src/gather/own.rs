//! What of all interactions is the program's own. In: everything that was gathered. Out: the same without what known
//! functions are made of, and without atomic instructions that say nothing.

use clew_recording::event::ThreadId;
use clew_symbols::Modules;
use rustc_hash::FxHashMap;

use super::Gathered;
use crate::interaction::{Kind, ObjectKey};
use crate::names::is_c_library_at;

/// What the C library does to its own objects is nobody else's business: it is what known functions are made of.
pub(super) fn only_the_programs(gathered: &mut Gathered, modules: &Modules) {
    let mut known: FxHashMap<u64, bool> = FxHashMap::default();
    let mut library = |address: u64| {
        *known
            .entry(address)
            .or_insert_with(|| is_c_library_at(modules, address))
    };
    let objects = &gathered.objects;
    gathered.interactions.retain(|one| {
        let ObjectKey::Memory { addr, .. } = objects[one.object as usize].key else {
            return true;
        };
        !library(one.site) || one.kind != Kind::Atomic && !library(addr)
    });
}

/// Atomic instructions on memory that one thread has for itself say nothing, nor do those of a known function on its own
/// object.
pub(super) fn only_shared_atomics(gathered: &mut Gathered) {
    #[derive(Clone, Copy, Default)]
    struct Seen {
        first: Option<ThreadId>,
        several: bool,
        known: bool,
    }
    let mut seen = vec![Seen::default(); gathered.objects.len()];
    for one in &gathered.interactions {
        let seen = &mut seen[one.object as usize];
        let first = *seen.first.get_or_insert(one.thread);
        seen.several |= first != one.thread;
        seen.known |= !matches!(one.kind, Kind::Atomic | Kind::FutexWait | Kind::FutexWake);
    }
    gathered.interactions.retain(|one| {
        let seen = seen[one.object as usize];
        one.kind != Kind::Atomic || seen.several && !seen.known
    });
}

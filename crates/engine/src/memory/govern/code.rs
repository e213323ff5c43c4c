//! Code in shared memory after a fork: what one process writes there isn't recorded for the other.
//!
//! In: what a forked process has of it, and what it does. Out: an address to warn of, once, when the process runs
//! such code or comes to its memory. A child that goes on to another program does neither.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Is there any?
static ANY: AtomicBool = AtomicBool::new(false);
static STATE: Mutex<State> = Mutex::new(State {
    inherited: Vec::new(),
    used: None,
});

struct State {
    /// Names of objects, and where their code is mapped.
    inherited: Vec<(u64, Range<u64>)>,
    /// To be told.
    used: Option<u64>,
}

fn with<T>(act: impl FnOnce(&mut State) -> T) -> Option<T> {
    if !ANY.load(Ordering::Relaxed) {
        return None;
    }
    STATE.lock().ok().map(|mut state| act(&mut state))
}

/// This process is a child that has this code.
pub fn inherit(code: Vec<(u64, Range<u64>)>) {
    ANY.store(!code.is_empty(), Ordering::Relaxed);
    with(|state| state.inherited = code);
}

/// Code in shared memory is about to run.
pub fn runs(pc: u64) {
    with(|state| state.uses(|(_, range)| range.contains(&pc)));
}

/// A page of an object becomes this process's.
pub fn takes(name: u64) {
    with(|state| state.uses(|(object, _)| *object == name));
}

/// Where code lies that is to be warned of.
pub fn used() -> Option<u64> {
    with(|state| state.used.take()).flatten()
}

impl State {
    fn uses(&mut self, which: impl Fn(&(u64, Range<u64>)) -> bool) {
        if let Some(at) = self.inherited.iter().position(which) {
            self.used = Some(self.inherited.swap_remove(at).1.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test: the state is the process's.
    #[test]
    fn a_child_is_warned_of_once_for_each() {
        runs(0x1000);
        takes(7);
        assert_eq!(used(), None, "nothing was inherited");
        inherit(vec![(7, 0x1000..0x3000), (8, 0x8000..0x9000)]);
        takes(9);
        runs(0x7000);
        assert_eq!(used(), None, "other memory");
        runs(0x2fff);
        assert_eq!((used(), used()), (Some(0x1000), None));
        takes(7);
        assert_eq!(used(), None, "told already");
        takes(8);
        assert_eq!(used(), Some(0x8000));
        inherit(Vec::new());
        takes(8);
        assert_eq!(used(), None);
    }
}

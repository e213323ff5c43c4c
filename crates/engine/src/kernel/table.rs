//! The table of system calls, and which function of the engine answers whom.
//!
//! In: a call number. Out: its row, of [`clew_calls::table`], and a [`Handler`] where that says that the engine answers. The groups
//! (`files`, `memory`, `process`, ...) each hold their part of these beside the functions; this file puts them into one
//! array at compile time.

pub use clew_calls::table::*;

use super::{Outcome, files, memory, misc, process, signals, threads};
use crate::executor::Executor;

pub type Handler = fn(&mut Executor, Args) -> Outcome;

const GROUPS: [&[(i64, Handler)]; 6] = [
    files::HANDLERS,
    memory::HANDLERS,
    process::HANDLERS,
    signals::HANDLERS,
    threads::HANDLERS,
    misc::HANDLERS,
];

static HANDLERS: [Option<Handler>; COUNT] = {
    let mut all: [Option<Handler>; COUNT] = [None; COUNT];
    let mut group = 0;
    while group < GROUPS.len() {
        let mut i = 0;
        while i < GROUPS[group].len() {
            let (nr, handler) = GROUPS[group][i];
            assert!(all[nr as usize].is_none());
            all[nr as usize] = Some(handler);
            i += 1;
        }
        group += 1;
    }
    all
};

/// The function that answers a call, if one of the engine's does.
#[inline]
pub fn handler(call: &Call) -> Option<Handler> {
    HANDLERS[call.nr as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_answers_has_a_function() {
        for call in (0..COUNT as u64).map(lookup) {
            let answers = call.answer == Answer::Engine;
            assert_eq!(answers, handler(call).is_some(), "{}", call.name);
        }
    }
}

//! The guest's own state, apart from its memory: threads, signals, futexes.

pub mod signals;
pub mod threads;

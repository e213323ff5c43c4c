//! The guest's own state, apart from its memory: threads, signals, futexes.

pub mod access;
pub mod futex;
pub mod signals;
pub mod threads;
pub mod trap_flag;
pub mod virtual_time;

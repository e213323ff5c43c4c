//! Futexes of a multi-threaded guest.
//!
//! All guest threads run on one kernel thread, so a futex between them needs no kernel: a word
//! can't change between the comparison and the enqueuing. Waiters stand in queues here. Futexes
//! in shared mappings may have waiters in other processes: these are the kernel's, with proxies
//! waiting in it. With one guest thread all are the kernel's.

pub mod calls;
pub mod pi;
pub mod queues;
pub mod time;
pub mod wake_op;

pub use calls::sys_futex;

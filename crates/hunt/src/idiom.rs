//! Orders of accesses that weren't seen yet, as Maple finds them. In: profiles of runs. Out: schedules of others.
//!
//! [`profile`] is what a run showed, `predict` finds what it didn't show, `steer` makes schedules of that, and [`explore`]
//! says which run gets which.

pub mod explore;
pub mod profile;

mod atomic;
mod locks;
mod orders;
mod pairs;
mod predict;
pub mod steer;
#[cfg(test)]
pub(crate) mod testing;

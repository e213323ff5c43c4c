//! Runs that are led to orders of accesses which weren't seen yet, as Maple does. In: recordings of runs. Out: schedules.
//!
//! [`profile`] is what a run showed, [`predict`] finds what it didn't show, [`steer`] makes schedules of that, and `explore`
//! says which run of a hunt gets which.

pub mod profile;

mod atomic;
mod locks;
mod orders;
mod pairs;
mod predict;
mod steer;
#[cfg(test)]
mod testing;

//! The world *replay*: a stream of a recording, run again.
//!
//! In: events and effects, in order. Out: the guest in the state that it had at each of them, or a
//! [`Divergence`] at the first that doesn't fit. Nothing of the outside world is asked: the guest's
//! code runs up to the next event, what it does there is compared with what is written, and the
//! event's effects are applied.

pub mod agent;
mod approach;
pub mod arguments;
mod effects;
pub mod files;
pub mod forks;
mod halt;
pub mod jail;
pub mod leash;
pub mod machine;
mod passing;
mod report;
pub mod run;
mod running;
mod screen;
pub mod state;
pub mod tree;
pub mod worker;

pub use machine::{Divergence, Machine};
pub use tree::{Outcome, Request};

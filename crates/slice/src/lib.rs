//! Where a value comes from: back through all that a recorded program executed, its threads and what the kernel wrote.
//!
//! It looks at no source: what it finds are instructions as they were executed; lines are for who shows them.
//!
//! In: a timeline, and a value: a register or bytes of memory at a position. Out: the chain of its moves and
//! computations, or all that it depends on, newest first, each with its position.
//!
//! Stretches are traced backwards from the question, the first ones short and each some times longer, so that what lies
//! near is found at once, and the cost is that of the way to the answer.
//!
//! * `cells`: registers as sets of bytes and flags
//! * `flows`: what flows where in an instruction
//! * `known`: the same of blocks, worked out once
//! * `live`: what a question is about, at one moment
//! * `taken`: what an instruction does to that
//! * `events`: what events wrote
//! * `walk`: back through a stretch, or forth
//! * `stretches`: how a way is divided
//! * [`origin`]: the chain of one value
//! * [`closure`]: all that values depend on
//! * [`forward`]: all that values influence
//! * `pairs`: registers that are saved and given back
//! * `code`, `graph`, `frames`: functions, control dependence, whose branch it was
//! * [`gaps`], [`execution`]: what a slice leaves out; a recording in which only the rest is executed
//! * [`failure`]: what a run failed by, as a question
//! * [`passages`]: from one process to another
//! * [`statements`], [`inputs`], [`tell`], [`tour`]: as people read it

#![forbid(unsafe_code)]

pub mod cells;
pub mod closure;
mod code;
pub mod events;
pub mod execution;
pub mod failure;
pub mod flows;
pub mod forward;
mod frames;
pub mod gaps;
mod graph;
pub mod inputs;
mod known;
mod live;
pub mod origin;
mod pairs;
pub mod passages;
mod shortcut;
pub mod statements;
mod stretches;
mod taken;
pub mod tell;
mod threads;
pub mod tour;
pub mod walk;

pub use events::Kind as EventKind;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Timeline(#[from] clew_timeline::Error),
    #[error(transparent)]
    Write(#[from] clew_recording::rewrite::RewriteError),
    #[error("a replaying process has written a trace that makes no sense; please report this")]
    Nonsense,
}

pub type Result<T> = std::result::Result<T, Error>;

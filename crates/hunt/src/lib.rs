//! Hunting. In: a program, and what counts as its failing. Out: recordings of runs that fail.
//!
//! It reports no failure without its recording: whatever it says can be looked at.
//!
//! Each run is a recording made by `clew record`, a process of its own, with a schedule that follows from the hunt's seed
//! and the run's number. One that passes leaves nothing behind.
#![forbid(unsafe_code)]

pub mod condition;
mod dice;
pub mod explain;
pub mod follow;
pub mod guard;
mod guide;
pub mod hunt;
pub mod idiom;
pub mod measure;
pub mod minimize;
pub mod races;
pub mod run;
pub mod strategy;
pub mod turns;
pub mod visible;

pub use condition::Condition;
pub use follow::Follower;
pub use hunt::{Found, News, Passed, Report, Settings, Stopped, Tally, hunt, minimize_recording};
pub use strategy::{Plan, Shard, Strategy, Time};

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum HuntError {
    #[error("the program can't be hunted: {0}")]
    Unrecordable(String),
    #[error("{what}: {why}")]
    Io { what: String, why: io::Error },
    #[error("{}: {why}", path.display())]
    Recording { path: PathBuf, why: String },
    #[error(transparent)]
    Folder(#[from] clew_recording::folder::FolderError),
    #[error("{0}")]
    Bad(String),
}

impl HuntError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> HuntError {
        let what = what.into();
        move |why| HuntError::Io { what, why }
    }
}

//! Woven recordings. In: a program to run, or such a recording. Out: the recording's folder, or the same run again.
//!
//! It knows no engine: what it adds to a lock must cost next to nothing, so it is native code beside the program's own.
//!
//! A program runs natively, its threads in parallel, with a library preloaded (`preload/`) that notes the order in which
//! threads interact and what comes from outside. A replay runs it again with the same library, which enforces that order and gives
//! the same input; under `clew record`, that makes an exact recording of it.
#![deny(unsafe_code)]

pub mod folder;
#[path = "../preload/src/format.rs"]
#[allow(dead_code)]
pub mod format;
#[allow(unsafe_code)]
mod jail;
pub mod launch;
pub mod log;
pub mod refuse;
pub mod replay;

/// The preloaded library.
pub static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/weave.so"));

/// Why something woven can't be made or read, as a user reads it.
#[derive(Debug, thiserror::Error)]
pub enum WeaveError {
    #[error("{}: {why}", path.display())]
    Io {
        path: std::path::PathBuf,
        why: std::io::Error,
    },
    #[error("{0}")]
    Refused(String),
    #[error("{}: the log is damaged, or of another version: {why}", path.display())]
    Damaged {
        path: std::path::PathBuf,
        why: &'static str,
    },
}

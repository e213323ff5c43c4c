//! clew's engine: runs an unmodified x86-64 Linux program through a dynamic binary translator.
//!
//! It knows no source lines and no debugger: what it tells is addresses, registers and positions.
//!
//! Data flow: guest bytes → decode → [`translate`] → [`cache`] → exits → [`executor`] → [`kernel`]
//! table → the world. The guest's own state is in [`guest`] and [`memory`]; what touches the host's
//! signals and kernel threads is in [`host`]. [`lockstep`] checks all of it against the CPU.

pub mod cache;
pub mod context;
pub mod executor;
pub mod guest;
pub mod handover;
pub mod host;
pub mod kernel;
pub mod layout;
pub mod loader;
pub mod lockstep;
pub mod memory;
pub mod program;
pub mod record;
pub mod replay;
mod scripts;
pub mod start;
pub mod stats;
pub mod sys;
pub mod trace;
pub mod translate;
pub mod vdso;

//! A replaying process under command: it stands somewhere in a stream, goes where it is told, shows
//! its registers and memory, and forks.
//!
//! In: [`protocol::Command`]s on a channel. Out: [`protocol::Reply`]s. A *snapshot* is such a process
//! that nobody moves: it is only told to fork. Who is where, and who is to go, is the business of
//! the `timeline` crate, in a process of its own; these here are locked in like every replay.
//!
//! - [`spawn`]: the first worker of a stream
//! - `serve`: commands and replies; forks
//! - `travel`: going forward
//! - `limit`: a stream that ends where its replay diverges
//! - `stops`, `search`: where to stop, and going forward until one comes
//! - `observe`: going forward with somebody looking on; each analysis is an observer
//! - `touches`, `owners`, `collect`: which memory several threads touch, and who touches it where
//! - `functions`: all calls of functions, with their returns
//! - `interactions`, [`told`]: calls of known functions, atomic instructions and accesses to shared memory, in one order
//! - `changes`: all changes of a piece of memory
//! - `probe`: a user's own debug code, run at chosen instructions
//! - `trace`: all instructions and what they touch
//! - `excursion`, `answers`: leaving the recording
//! - `show`: registers, memory, mappings, threads

mod answers;
mod changes;
mod channel;
mod collect;
mod excursion;
mod functions;
mod interactions;
mod limit;
mod observe;
mod owners;
mod probe;
pub mod protocol;
mod search;
mod serve;
mod show;
pub mod spawn;
mod stops;
pub mod told;
mod touches;
mod trace;
pub(super) mod travel;

pub use spawn::{Started, Wish, start};

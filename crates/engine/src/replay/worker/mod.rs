//! A replaying process under command: it stands somewhere in a stream, goes where it is told, shows
//! its registers and memory, and forks.
//!
//! In: [`protocol::Command`]s on a channel. Out: [`protocol::Reply`]s. A *snapshot* is such a process
//! that nobody moves: it is only told to fork. Who is where, and who is to go, is the business of
//! the `timeline` crate, in a process of its own; these here are locked in like every replay.

pub mod protocol;

//! Recordings: what is written down of a run, how it gets to disk, and how it is read again.
//!
//! - [`event`]: the vocabulary
//! - [`codec`]: events to bytes and back
//! - [`bytes`]: numbers to bytes and back
//! - [`maps`]: changes of mappings
//! - [`channel`]: from recorded processes to the writer, through shared memory
//! - [`writer`]: the process that writes the log
//! - [`log`]: the log's format
//! - [`reader`]: from the log back to events
pub mod bytes;
pub mod channel;
pub mod codec;
pub mod event;
mod futex;
pub mod log;
pub mod maps;
mod producer;
pub mod reader;
mod shared;
mod watch;
pub mod writer;
mod writing;

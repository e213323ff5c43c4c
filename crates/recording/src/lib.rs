//! Recordings: what is written down of a run, how it gets to disk, and how it is read again.
//!
//! - [`event`]: the vocabulary
//! - [`codec`]: events to bytes and back
//! - [`bytes`]: numbers to bytes and back
//! - [`maps`]: changes of mappings
pub mod bytes;
pub mod codec;
pub mod event;
pub mod maps;

//! Recordings: what is written down of a run, how it gets to disk, and how it is read again.
//!
//! It knows no engine and no debugger: recordings are listed, packed, checked and read where neither runs.
//!
//! - [`event`]: the vocabulary
//! - [`codec`]: events to bytes and back
//! - [`bytes`]: numbers to bytes and back
//! - [`maps`]: changes of mappings
//! - [`channel`]: from recorded processes to the writer, through shared memory
//! - [`outlet`]: standard output and error, written to by one process at a time
//! - [`sharing`]: who may touch a page that recorded processes share
//! - [`writer`]: the process that writes the log
//! - [`log`]: the log's format
//! - [`reader`]: from the log back to events
//! - [`walk`]: where a stream stands after each of its events
//! - [`borrowers`]: children that have borrowed a process's memory
//! - [`landings`]: places in long streams at which reading can begin
//! - [`process`]: which process somebody means
//! - [`folder`]: where recordings live
//! - [`marks`]: places that a program has named itself
//! - [`meant`]: which of several names somebody means
//! - [`meta`]: what is known of one before its first event
//! - [`summary`]: what one is about, in short
//! - [`pack`]: one portable file for all of one
//! - [`bundle`]: an archive of other things
//! - [`rewrite`]: a log with changes
//! - [`stack`]: what programs were started with
//! - [`cut`]: a region of a recording as one of its own
//! - [`tail`]: recordings of which only the last part is kept
//! - [`deadlock`]: threads that wait for each other for good
//! - [`environment`]: the variables that programs were started with
pub mod borrowers;
pub mod bundle;
pub mod bytes;
pub mod channel;
pub mod codec;
pub mod cut;
pub mod deadlock;
pub mod environment;
pub mod event;
pub mod folder;
mod futex;
pub mod landings;
pub mod log;
mod logfile;
pub mod maps;
pub mod marks;
pub mod meant;
pub mod meta;
pub mod outlet;
pub mod pack;
pub mod position;
pub mod process;
mod producer;
pub mod reader;
pub mod rewrite;
pub mod script;
mod shared;
pub mod sharing;
pub mod stack;
pub mod summary;
pub mod tail;
#[cfg(test)]
mod testing;
pub mod walk;
mod watch;
pub mod writer;
mod writing;

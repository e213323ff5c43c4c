//! The process that writes the log.
use crate::channel::Channel;
use std::io;
use std::path::Path;

/// How the writer works.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {}

/// Starts the writer of a recording.
pub fn spawn(_channel: &Channel, _folder: &Path, _options: &Options) -> io::Result<()> {
    todo!()
}

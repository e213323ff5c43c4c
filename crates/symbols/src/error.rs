//! What can go wrong while debugging information is read.

use std::path::PathBuf;
use std::sync::Arc;

/// Why a file or its debugging information couldn't be used. Cheap to clone, since lazily read
/// parts remember why they failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {error}", path.display())]
    Read {
        path: PathBuf,
        error: Arc<std::io::Error>,
    },
    #[error("{}: not an ELF file for x86-64 that can be read: {what}", path.display())]
    Elf { path: PathBuf, what: String },
    #[error("{}: section {section} is damaged: {what}", path.display())]
    Section {
        path: PathBuf,
        section: String,
        what: String,
    },
    #[error("damaged debugging information: {0}")]
    Dwarf(#[from] gimli::Error),
    #[error("the debugging information refers to what isn't there: {0}")]
    Missing(String),
}

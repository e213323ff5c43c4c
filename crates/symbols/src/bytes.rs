//! Bytes of a file, mapped or owned, that can be shared: the only unsafe code of this crate.
#![allow(unsafe_code)]

use crate::Error;
use std::fs::File;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// Immutable bytes, cheap to clone: a mapped file, or memory (decompressed sections, the vdso).
///
/// A mapped file must not be cut shorter while it is mapped: reading beyond its new end raises
/// SIGBUS, as in every debugger and linker that maps files. Writing a program anew is safe in
/// practice, since compilers, linkers and package managers make a new file and rename it.
#[derive(Clone, Debug)]
pub struct Bytes(Arc<Backing>);

enum Backing {
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    /// Maps the file at `path`.
    pub fn map(path: &Path) -> Result<Bytes, Error> {
        let map = || -> std::io::Result<Bytes> {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            if !metadata.is_file() {
                return Err(std::io::Error::other("not a regular file"));
            }
            if metadata.len() == 0 {
                return Ok(Bytes::from(Vec::new()));
            }
            // SAFETY: the mapping is private and read-only, and this crate never writes to files.
            // Another process that writes to this file changes bytes that only parsers read, and
            // they check whatever they read against the slice's bounds at each use.
            let map = unsafe { memmap2::Mmap::map(&file)? };
            Ok(Bytes(Arc::new(Backing::Mapped(map))))
        };
        map().map_err(|error| Error::Read {
            path: path.into(),
            error: Arc::new(error),
        })
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes(Arc::new(Backing::Owned(bytes)))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.0 {
            Backing::Mapped(map) => map,
            Backing::Owned(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for Backing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Backing::Mapped(map) => write!(f, "Mapped({} bytes)", map.len()),
            Backing::Owned(bytes) => write!(f, "Owned({} bytes)", bytes.len()),
        }
    }
}

// SAFETY: the slice lies in a mapping or in a vector's heap block that the Arc keeps, that nothing
// changes or moves, and that stays where it is when the Arc itself moves.
unsafe impl gimli::StableDeref for Bytes {}

// SAFETY: a clone shares the Arc, and so derefs to the same slice, which lives as long as any clone.
unsafe impl gimli::CloneStableDeref for Bytes {}

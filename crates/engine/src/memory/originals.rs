//! The files behind copies: where a mapping really shows a copy of a file, the guest must see the
//! file's own path, device and inode.

use rustc_hash::FxHashMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::file::FileIdentity;

#[derive(Default)]
pub(super) struct Originals {
    files: FxHashMap<FileIdentity, Original>,
}

struct Original {
    /// As it was when the file was mapped.
    path: Vec<u8>,
    copied: Copies,
    /// The name of the copy in the recording.
    copy: Option<String>,
}

/// Whether mappings of a file show a copy that nobody changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Copies {
    No,
    /// One that has but the mapped part of the file.
    Part,
    Whole,
    /// What the file had when the guest changed it; a replay has that from the log.
    Followed,
}

impl Originals {
    pub(super) fn remember(&mut self, file: FileIdentity, path: &[u8], copied: Copies) {
        let original = Original {
            path: path.to_vec(),
            copied,
            copy: None,
        };
        self.files.insert(file, original);
    }

    /// Which of the recording's files the copy is.
    pub(super) fn remember_copy(&mut self, file: &FileIdentity, name: &str) {
        if let Some(original) = self.files.get_mut(file) {
            original.copy = Some(name.to_owned());
        }
    }

    pub(super) fn copy(&self, file: &FileIdentity) -> Option<&str> {
        self.files.get(file)?.copy.as_deref()
    }

    /// Do mappings of the file show a copy?
    pub(super) fn is_copied(&self, file: &FileIdentity) -> bool {
        let copied = |o: &Original| matches!(o.copied, Copies::Part | Copies::Whole);
        self.files.get(file).is_some_and(copied)
    }

    /// Do they show one that has nothing but what is mapped?
    pub(super) fn is_part(&self, file: &FileIdentity) -> bool {
        self.files
            .get(file)
            .is_some_and(|o| matches!(o.copied, Copies::Part | Copies::Followed))
    }

    pub(super) fn path(&self, file: &FileIdentity) -> Option<&[u8]> {
        self.files.get(file).map(|o| &o.path[..])
    }

    /// The path that `/proc/self/maps` would have for a copied file.
    pub(super) fn shown_path(&self, file: &FileIdentity) -> Option<Vec<u8>> {
        let original = self.files.get(file).filter(|o| o.copied != Copies::No)?;
        let mut path = original.path.clone();
        let there = Path::new(std::ffi::OsStr::from_bytes(&path))
            .symlink_metadata()
            .is_ok_and(|meta| (meta.dev(), meta.ino()) == (file.dev, file.ino));
        if !there && !path.ends_with(b" (deleted)") {
            path.extend_from_slice(b" (deleted)");
        }
        Some(path)
    }
}

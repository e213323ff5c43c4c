//! An archive of texts and files, for people. In: names and contents. Out: a tar file, compressed with zstd.

use std::fs::File;
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const LEVEL: i32 = 6;

/// A file in it.
pub struct Item {
    name: String,
    contents: Contents,
}

enum Contents {
    Bytes(Vec<u8>),
    File(PathBuf),
}

impl Item {
    pub fn bytes(name: &str, bytes: Vec<u8>) -> Item {
        let contents = Contents::Bytes(bytes);
        Item {
            name: name.into(),
            contents,
        }
    }

    /// A copy of a file.
    pub fn file(name: &str, path: &Path) -> Item {
        let contents = Contents::File(path.into());
        Item {
            name: name.into(),
            contents,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct BundleError {
    path: PathBuf,
    why: io::Error,
}

/// Writes a new file, for this user alone; nothing of it is left after an error. Its size.
pub fn write(file: &Path, items: &[Item]) -> Result<u64, BundleError> {
    let failed = |why| BundleError {
        path: file.into(),
        why,
    };
    let out = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .map_err(failed)?;
    let written = write_all(out, items);
    if written.is_err() {
        let _ = std::fs::remove_file(file);
    }
    written.map_err(failed)
}

fn write_all(out: File, items: &[Item]) -> io::Result<u64> {
    let mut zstd = zstd::Encoder::new(BufWriter::new(out), LEVEL)?;
    zstd.include_checksum(true)?;
    let mut archive = tar::Builder::new(zstd);
    for item in items {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(0o600);
        match &item.contents {
            Contents::Bytes(bytes) => {
                header.set_size(bytes.len() as u64);
                archive.append_data(&mut header, &item.name, &bytes[..])?;
            }
            Contents::File(path) => {
                let input = File::open(path)?;
                let len = input.metadata()?.len();
                header.set_size(len);
                let input = io::Read::take(input, len);
                archive.append_data(&mut header, &item.name, input)?;
            }
        }
    }
    let out = archive.into_inner()?.finish()?;
    let out = out.into_inner().map_err(|error| error.into_error())?;
    out.sync_all()?;
    Ok(out.metadata()?.len())
}

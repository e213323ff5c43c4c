//! One portable file for a whole recording. In: a recording's folder, or a packed file. Out: the other.
//!
//! A packed recording is a tar archive compressed with zstd (`tar --zstd -tf NAME.clew` lists it), with
//! the files in the order of their names and nothing of the machine it was packed on: packing twice
//! gives the same bytes. Unpacking trusts nothing: only regular files with plain names are taken,
//! into a new folder, within a bound on size and number.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use crate::log;
use crate::meta::{self, Meta, MetaError};
use crate::{landings, summary};

/// Of zstd: logs are compressed already, copied files aren't.
const LEVEL: i32 = 6;
const MOST_FILES: usize = 200_000;
/// Folders in a recording are flat; nothing is deeper.
const DEEPEST: usize = 3;
const LONGEST_PART: usize = 200;
/// Of a whole path.
const LONGEST_NAME: u64 = 1024;
/// More than this is only unpacked if asked for.
pub const MOST_BYTES: u64 = 64 << 30;
/// And so many times what is packed; small files may.
pub const TIMES: u64 = 100;
const SMALL: u64 = 1 << 20;
/// What is left free on the disk.
const SPARE: u64 = 64 << 20;
/// Between two calls of `progress`.
const PIECE: usize = 256 << 10;

#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error("{}: {why}", path.display())]
    Io { path: PathBuf, why: io::Error },
    #[error("{}: neither a file nor a folder; a recording has nothing else in it", path.display())]
    Odd { path: PathBuf },
    #[error("{}: damaged, or not a packed recording: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
    #[error(
        "{}: unpacks to more than {most} bytes; if you trust it: clew unpack --limit BYTES", path.display()
    )]
    TooLarge { path: PathBuf, most: u64 },
    #[error(
        "{}: unpacks to more than {TIMES} times its {packed} bytes, which recordings seldom do and files made to fill \
         disks always; if you trust it: clew unpack --large", path.display()
    )]
    BlowsUp { path: PathBuf, packed: u64 },
    #[error("{}: there isn't room for it: {need} bytes, {free} are free", path.display())]
    NoRoom { path: PathBuf, need: u64, free: u64 },
    #[error(transparent)]
    Meta(#[from] MetaError),
    #[error("interrupted")]
    Interrupted,
}

/// Told now and then how many bytes are done, of how many; says whether to go on.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// Whether a file of a recording's folder belongs into a pack: not the summary, which can be made
/// again, nor work in progress.
fn is_packed(name: &OsStr) -> bool {
    name != summary::FILE && name != landings::FILE && !name.as_bytes().starts_with(b".")
}

/// The files below `folder` (relative paths), sorted.
fn files(folder: &Path) -> Result<Vec<(PathBuf, u64)>, PackError> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(inside) = folders.pop() {
        let path = folder.join(&inside);
        let failed = |why| PackError::Io {
            path: path.clone(),
            why,
        };
        for entry in path.read_dir().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if !is_packed(&entry.file_name()) {
                continue;
            }
            let meta = entry.metadata().map_err(failed)?;
            let inside = inside.join(entry.file_name());
            if meta.is_dir() {
                folders.push(inside);
            } else if meta.is_file() {
                found.push((inside, meta.len()));
            } else {
                return Err(PackError::Odd { path: entry.path() });
            }
        }
    }
    // By bytes, not by parts: any order will do as long as it is one.
    found.sort_by(|a, b| a.0.as_os_str().cmp(b.0.as_os_str()));
    Ok(found)
}

/// Packs a recording that is no longer written to. The file appears once it is whole.
pub fn pack(folder: &Path, file: &Path, progress: Progress) -> Result<u64, PackError> {
    let meta = Meta::read(folder)?;
    let temporary = beside(file);
    let written = write_pack(folder, &meta, &temporary, progress).and_then(|len| {
        let renamed = std::fs::rename(&temporary, file);
        renamed.map_err(at(file)).map(|()| len)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

fn write_pack(
    folder: &Path,
    meta: &Meta,
    temporary: &Path,
    progress: Progress,
) -> Result<u64, PackError> {
    let failed = at(temporary);
    let out = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(temporary)
        .map_err(at(temporary))?;
    let mut zstd = zstd::Encoder::new(BufWriter::new(out), LEVEL).map_err(&failed)?;
    zstd.include_checksum(true).map_err(&failed)?;
    let mut archive = tar::Builder::new(zstd);
    let files = files(folder)?;
    let total = files.iter().map(|(_, len)| len).sum();
    let mut done = 0;
    for (name, len) in &files {
        let path = folder.join(name);
        let input = open(&path)?;
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(*len);
        header.set_mode(0o600);
        // When it was recorded, not when it was packed.
        header.set_mtime(meta.started_ns / 1_000_000_000);
        let mut input = Counted {
            input: input.take(*len),
            done,
            total,
            stopped: false,
            progress: &mut *progress,
        };
        let appended = archive.append_data(&mut header, name, &mut input);
        if input.stopped {
            return Err(PackError::Interrupted);
        }
        appended.map_err(&failed)?;
        done = input.done;
        if input.input.limit() != 0 {
            let why = io::Error::other("it became shorter while it was packed");
            return Err(PackError::Io { path, why });
        }
    }
    let out = archive
        .into_inner()
        .and_then(|zstd| zstd.finish())
        .and_then(|out| out.into_inner().map_err(|e| e.into_error()))
        .map_err(&failed)?;
    out.sync_all().map_err(&failed)?;
    Ok(out.metadata().map_err(&failed)?.len())
}

/// Unpacks `file` into `folder`, which must not exist; nothing of it is left after an error.
/// The recording is renamed to the folder's name.
pub fn unpack(
    file: &Path,
    folder: &Path,
    allowed: Allowed,
    progress: Progress,
) -> Result<(), PackError> {
    let temporary = beside(folder);
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&temporary)
        .map_err(at(folder))?;
    let done = read_pack(file, &temporary, allowed, progress)
        .and_then(|()| rename_recording(file, &temporary, folder))
        .and_then(|()| rename_new(&temporary, folder).map_err(at(folder)));
    if done.is_err() {
        let _ = std::fs::remove_dir_all(&temporary);
    }
    done
}

/// How much may be unpacked.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// Bytes.
    pub most: u64,
    /// Also more than [`TIMES`] what is packed.
    pub large: bool,
}

/// The name that a packed recording had, if it says so before anything else can go wrong.
pub fn packed_name(file: &Path) -> Result<Meta, PackError> {
    let mut archive = open_archive(file)?;
    for entry in entries(&mut archive).map_err(malformed(file))? {
        let entry = entry.map_err(malformed(file))?;
        if entry.path_bytes() == meta::FILE.as_bytes() {
            let mut text = Vec::new();
            let read = entry.take(8 << 20).read_to_end(&mut text);
            read.map_err(malformed(file))?;
            return serde_json::from_slice(&text).map_err(|why| PackError::Malformed {
                path: file.to_owned(),
                why: format!("{}: {why}", meta::FILE),
            });
        }
    }
    Err(PackError::Malformed {
        path: file.to_owned(),
        why: format!("there is no {} in it", meta::FILE),
    })
}

type Archive = tar::Archive<zstd::Decoder<'static, BufReader<File>>>;

fn open_archive(file: &Path) -> Result<Archive, PackError> {
    let input = open(file)?;
    // zstd itself refuses windows of more than 128 MiB.
    let zstd = zstd::Decoder::with_buffer(input).map_err(malformed(file))?;
    Ok(tar::Archive::new(zstd))
}

/// A name that doesn't fit into a header has an entry of its own, before that of its file.
fn long_name(entry: &mut impl Read, size: u64) -> Result<Vec<u8>, String> {
    if size > LONGEST_NAME {
        return Err("a name in it is too long".into());
    }
    let mut name = Vec::new();
    let read = entry.take(LONGEST_NAME).read_to_end(&mut name);
    read.map_err(|why| why.to_string())?;
    while name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

/// As they are: what extends the next one (long names, pax) would be read whole into memory.
fn entries(
    archive: &mut Archive,
) -> io::Result<tar::Entries<'_, zstd::Decoder<'static, BufReader<File>>>> {
    Ok(archive.entries()?.raw(true))
}

fn read_pack(
    file: &Path,
    folder: &Path,
    allowed: Allowed,
    progress: Progress,
) -> Result<(), PackError> {
    let packed = file.metadata().map_err(at(file))?.len();
    let mut archive = open_archive(file)?;
    let bad = |why: String| PackError::Malformed {
        path: file.to_owned(),
        why,
    };
    let mut written = 0u64;
    let mut longer = None;
    for (n, entry) in entries(&mut archive).map_err(malformed(file))?.enumerate() {
        let mut entry = entry.map_err(malformed(file))?;
        if n >= MOST_FILES {
            return Err(bad(format!("more than {MOST_FILES} files")));
        }
        if entry.header().entry_type() == tar::EntryType::GNULongName {
            let size = entry.size();
            longer = Some(long_name(&mut entry, size).map_err(&bad)?);
            continue;
        }
        let name = longer
            .take()
            .unwrap_or_else(|| entry.path_bytes().into_owned());
        let name = plain_path(&name).map_err(&bad)?;
        if entry.header().entry_type() != tar::EntryType::Regular {
            return Err(bad(format!("{} isn't a regular file", name.display())));
        }
        let size = entry.size();
        let sum = written.saturating_add(size);
        if sum > allowed.most {
            return Err(PackError::TooLarge {
                path: file.to_owned(),
                most: allowed.most,
            });
        }
        if !allowed.large && sum > SMALL.max(packed.saturating_mul(TIMES)) {
            return Err(PackError::BlowsUp {
                path: file.to_owned(),
                packed,
            });
        }
        let free = free_bytes(folder).map_err(at(folder))?;
        if size.saturating_add(SPARE) > free {
            return Err(PackError::NoRoom {
                path: file.to_owned(),
                need: size,
                free,
            });
        }
        let path = folder.join(&name);
        if let Some(parent) = path.parent() {
            let mut builder = std::fs::DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(parent);
            made.map_err(at(parent))?;
        }
        // New, so that nothing in the archive is written to twice.
        let out = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let mut out = match out {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(bad(format!("{} is in it twice", name.display())));
            }
            out => out.map_err(at(&path))?,
        };
        let mut left = size;
        let mut piece = vec![0; PIECE];
        while left > 0 {
            let want = left.min(PIECE as u64) as usize;
            let got = match entry.read(&mut piece[..want]) {
                Ok(0) => return Err(bad("it is cut off".into())),
                got => got.map_err(malformed(file))?,
            };
            out.write_all(&piece[..got]).map_err(at(&path))?;
            left -= got as u64;
            written += got as u64;
            if !progress(written, written.max(packed)) {
                return Err(PackError::Interrupted);
            }
        }
    }
    // To the end: that is where the checksum is.
    let mut rest = archive.into_inner();
    let padding = io::copy(&mut (&mut rest).take(1 << 20), &mut io::sink());
    if padding.map_err(malformed(file))? == 1 << 20 {
        return Err(bad("there is more behind its end".into()));
    }
    Ok(())
}

/// Gives what was unpacked the name that its folder will have, and checks that it is a recording.
fn rename_recording(file: &Path, temporary: &Path, folder: &Path) -> Result<(), PackError> {
    let mut meta = Meta::read(temporary).map_err(|error| PackError::Malformed {
        path: file.to_owned(),
        why: match error {
            MetaError::Io { why, .. } => format!("{}: {why}", meta::FILE),
            MetaError::Malformed { why, .. } => format!("{}: {why}", meta::FILE),
        },
    })?;
    if !temporary.join(log::NAME).is_file() {
        return Err(PackError::Malformed {
            path: file.to_owned(),
            why: format!("there is no {} in it", log::NAME),
        });
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    if meta.name != name {
        meta.name = name.into_owned();
        meta.write(temporary).map_err(at(temporary))?;
    }
    Ok(())
}

/// A relative path of plain parts, or why it is none.
fn plain_path(bytes: &[u8]) -> Result<PathBuf, String> {
    let path = Path::new(OsStr::from_bytes(bytes));
    let shown: String = path
        .display()
        .to_string()
        .escape_debug()
        .take(200)
        .collect();
    let refused = |why: &str| Err(format!("the name \"{shown}\" {why}"));
    let mut plain = PathBuf::new();
    for (n, part) in path.components().enumerate() {
        let Component::Normal(part) = part else {
            return refused("leads out of the recording");
        };
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"._+-@:=".contains(b);
        let bytes = part.as_bytes();
        if n >= DEEPEST || bytes.len() > LONGEST_PART {
            return refused("is too long");
        }
        if bytes.starts_with(b".") || !bytes.iter().all(allowed) {
            return refused("isn't one that clew gives");
        }
        plain.push(part);
    }
    if plain.as_os_str().is_empty() {
        return refused("is empty");
    }
    Ok(plain)
}

/// Renames unless there is something of that name.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let name = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes());
    let (from, to) = (name(from)?, name(to)?);
    let (from, to) = (from.as_ptr(), to.as_ptr());
    let here = libc::AT_FDCWD;
    // SAFETY: two paths that end with NUL. By number, for a libc that hasn't got the function.
    let done = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            here,
            from,
            here,
            to,
            libc::RENAME_NOREPLACE,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// What a user may still write to the disk that `path` is on.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let mut room = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: a path that ends with NUL, and room for one statvfs, of which all bytes may be zero.
    let room = unsafe {
        if libc::statvfs(name.as_ptr(), room.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        room.assume_init()
    };
    Ok(room.f_bavail.saturating_mul(room.f_frsize))
}

/// What a recording takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// On disk: files may have holes, or share their contents.
    pub bytes: u64,
    /// Copies of files that the program had mapped.
    pub files: u64,
}

pub fn size(folder: &Path) -> Sizes {
    let mut sizes = Sizes::default();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => folders.push((entry.path(), depth + 1)),
                Ok(meta) => {
                    sizes.bytes += meta.blocks() * 512;
                    sizes.files += u64::from(depth > 0);
                }
                Err(_) => {}
            }
        }
    }
    sizes
}

/// A name for work in progress next to `path`.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

/// For reading; neither a FIFO nor a device makes us wait.
fn open(path: &Path) -> Result<BufReader<File>, PackError> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(at(path))?;
    if !file.metadata().map_err(at(path))?.is_file() {
        return Err(PackError::Odd {
            path: path.to_owned(),
        });
    }
    Ok(BufReader::with_capacity(PIECE, file))
}

fn at(path: &Path) -> impl Fn(io::Error) -> PackError {
    move |why| PackError::Io {
        path: path.to_owned(),
        why,
    }
}

fn malformed(path: &Path) -> impl Fn(io::Error) -> PackError {
    move |why| PackError::Malformed {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

/// Tells about progress as it is read.
struct Counted<'a, R> {
    input: R,
    done: u64,
    total: u64,
    stopped: bool,
    progress: Progress<'a>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.input.read(out)?;
        self.done += got as u64;
        self.stopped |= !(self.progress)(self.done, self.total);
        if self.stopped {
            return Err(io::Error::other("stopped"));
        }
        Ok(got)
    }
}

#[cfg(test)]
mod tests;

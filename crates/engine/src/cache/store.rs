//! The folder of saved translations: where it is, whether it can be trusted, how large it is.
//!
//! `$CLEW_CACHE`, else `$XDG_CACHE_HOME/clew`, else `~/.cache/clew`; mode 0700 and owned by the
//! user, or it isn't used. Anyone who can write there could make the engine run their code, so
//! nothing is read from a folder that others can write. A program that has become another user (a server that gives up its
//! privileges) has one in `/var/tmp`.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::kernel::cpuid;

use crate::kernel::file_size_limit;

/// The folder is kept below this many bytes; the files unused for longest go first.
pub const MOST_BYTES: u64 = 1 << 30;

/// How names of files under construction begin, and when nobody is at work on one any more.
const TEMPORARY: &str = "tmp-";
const LEFT_BEHIND: Duration = Duration::from_secs(600);

/// Ending of files with translations.
pub const ENDING: &str = "code";

/// For opening what is in the folder: a link is somebody else's work, and a FIFO must not make us
/// wait.
pub const OPEN_FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;

/// A folder that is safe to read translations from.
#[derive(Clone, Debug)]
pub struct Store {
    pub dir: PathBuf,
    /// All that can be read from now on, in a process that may open nothing any more.
    opened: Option<Arc<HashMap<String, File>>>,
}

/// A saved file, as `clew cache` lists it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub path: PathBuf,
    pub bytes: u64,
    pub used: SystemTime,
}

impl Store {
    /// Where the user's translations are kept, by the environment.
    pub fn location(get: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
        let full = |name| {
            get(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        full("CLEW_CACHE")
            .or_else(|| full("XDG_CACHE_HOME").map(|dir| dir.join("clew")))
            .or_else(|| full("HOME").map(|dir| dir.join(".cache/clew")))
    }

    /// Opens the folder, making it if need be.
    pub fn open(dir: &Path) -> io::Result<Store> {
        let meta = match dir.symlink_metadata() {
            Ok(meta) => meta,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(dir)?;
                dir.symlink_metadata()?
            }
            Err(e) => return Err(e),
        };
        if !meta.is_dir() || !is_private(&meta) {
            let text = format!(
                "{} is not a private folder of this user; not used",
                dir.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(Store {
            dir: dir.to_owned(),
            opened: None,
        })
    }

    /// The folder of a user that clew wasn't started by. Only where there is a place for it: the root may not be the one
    /// that clew was started in.
    pub fn open_own() -> io::Result<Store> {
        let place = Path::new("/var/tmp");
        if !place.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        // SAFETY: geteuid always succeeds.
        let user = unsafe { libc::geteuid() };
        Store::open(&place.join(format!("clew-{user}")))
    }

    /// The folder if it is there; never makes it.
    pub fn existing(dir: &Path) -> io::Result<Option<Store>> {
        match dir.symlink_metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => Store::open(dir).map(Some),
        }
    }

    /// Names of the saved translations that begin with one of these.
    pub fn names(&self, begins: &BTreeSet<String>) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let Ok(name) = entry?.file_name().into_string() else {
                continue;
            };
            let wanted = name
                .find('-')
                .is_some_and(|at| begins.contains(&name[..=at]));
            if wanted && name.ends_with(ENDING) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Opens these, so that they can be used where nothing can be opened or written. What can't be opened is translated
    /// again.
    pub fn opened(&self, names: &[String]) -> Store {
        let open = |name: &String| Some((name.clone(), self.file(name)?));
        Store {
            dir: self.dir.clone(),
            opened: Some(Arc::new(names.iter().filter_map(open).collect())),
        }
    }

    /// A saved file, for reading.
    pub fn file(&self, name: &str) -> Option<File> {
        if let Some(opened) = &self.opened {
            return opened.get(name)?.try_clone().ok();
        }
        let mut options = File::options();
        options.read(true).custom_flags(OPEN_FLAGS);
        options.open(self.dir.join(name)).ok()
    }

    /// Everything in the folder that is clew's: name, size, time of last use.
    fn files(&self) -> io::Result<Vec<(OsString, Entry)>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let path = self.dir.join(&name);
            // Another process may have removed it.
            let Ok(meta) = path.symlink_metadata() else {
                continue;
            };
            let is_ours = Path::new(&name).extension() == Some(OsStr::new(ENDING))
                || name == super::atlas::FILE
                || name.as_bytes().starts_with(cpuid::FILE.as_bytes())
                || is_temporary(&name);
            if is_ours && !meta.is_dir() {
                let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                let bytes = meta.len();
                files.push((name, Entry { path, bytes, used }));
            }
        }
        Ok(files)
    }

    /// The files with translations, the last used first.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries: Vec<Entry> = self
            .files()?
            .into_iter()
            .filter(|(name, entry)| {
                entry.path.extension() == Some(OsStr::new(ENDING)) && !is_temporary(name)
            })
            .map(|(_, entry)| entry)
            .collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.used));
        Ok(entries)
    }

    /// Removes all that clew keeps here; returns how many files and bytes went.
    pub fn clear(&self) -> io::Result<(usize, u64)> {
        let mut gone = (0, 0);
        for (_, file) in self.files()? {
            match std::fs::remove_file(&file.path) {
                Ok(()) => gone = (gone.0 + 1, gone.1 + file.bytes),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(gone)
    }

    /// Writes a file so that a reader sees all of it or nothing.
    pub fn write(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        use std::io::Write;
        if self.opened.is_some() {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        may_write(parts.iter().map(|part| part.len() as u64).sum())?;
        // Unique also where containers with pids of their own share the folder.
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let nanos = time.unwrap_or_default().subsec_nanos();
        let pid = std::process::id();
        let temporary = self.dir.join(format!("{TEMPORARY}{pid}-{nanos}-{name}"));
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&temporary)?;
        let written = parts.iter().try_for_each(|part| file.write_all(part));
        let done = written.and_then(|()| std::fs::rename(&temporary, self.dir.join(name)));
        if done.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        done?;
        self.evict()
    }

    /// Removes the files unused for longest until the folder is small enough, and what
    /// interrupted writers left.
    fn evict(&self) -> io::Result<()> {
        let mut total = 0;
        for entry in self.entries()? {
            total += entry.bytes;
            if total > MOST_BYTES {
                let _ = std::fs::remove_file(&entry.path);
            }
        }
        for (name, file) in self.files()? {
            let age = file.used.elapsed().unwrap_or_default();
            if is_temporary(&name) && age > LEFT_BEHIND {
                let _ = std::fs::remove_file(&file.path);
            }
        }
        Ok(())
    }
}

/// Whether the process's limit allows a file of this size; trying would kill the guest by SIGXFSZ.
pub fn may_write(bytes: u64) -> io::Result<()> {
    if file_size_limit() < bytes {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    Ok(())
}

fn is_temporary(name: &OsStr) -> bool {
    name.as_bytes().starts_with(TEMPORARY.as_bytes())
}

/// Owned by this user and writable by nobody else.
pub fn is_private(meta: &std::fs::Metadata) -> bool {
    // SAFETY: geteuid always succeeds.
    let user = unsafe { libc::geteuid() };
    meta.uid() == user && meta.mode() & 0o077 == 0
}

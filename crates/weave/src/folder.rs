//! The folder of a woven recording. In: a recording's folder. Out: what is in it, by name.
//!
//! `weave/log` and `weave/data` are the library's own (see [`crate::format`]); `weave/library.so` is the library;
//! `weave/files` has copies of the program and its libraries, named in `weave/files.json`; `weave/end.json` says how the
//! program ended; `exact` is the exact recording made of it, when there is one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::WeaveError;
use crate::format::{self, FIRST};

pub const FOLDER: &str = "weave";
pub const LOG: &str = "log";
pub const DATA: &str = "data";
pub const REPORT: &str = "report";
pub const LIBRARY: &str = "library.so";
pub const FILES: &str = "files";
const MANIFEST: &str = "files.json";
const MODULES: &str = "modules";
const END: &str = "end.json";
/// The exact recording made of a woven one.
pub const EXACT: &str = "exact";

/// A stranger's lists aren't read if they are larger.
const MOST_BYTES: u64 = 16 << 20;
/// The log's greatest sizes, the largest that this process may have mapped.
const SIZES: [u64; 3] = [64 << 30, 2 << 30, 256 << 20];

/// How the program ended, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub status: Option<i32>,
    pub signal: Option<i32>,
    pub duration_ns: u64,
}

/// Copies of files: their own path, and their name among the copies.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Files {
    pub program: String,
    pub loader: String,
    pub cwd: String,
    pub copies: BTreeMap<String, String>,
}

/// The woven part of a recording.
#[derive(Clone, Debug)]
pub struct Woven {
    pub dir: PathBuf,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> WeaveError {
    let path = path.to_owned();
    move |why| WeaveError::Io { path, why }
}

impl Woven {
    pub fn of(recording: &Path) -> Woven {
        Woven {
            dir: recording.join(FOLDER),
        }
    }

    pub fn is(recording: &Path) -> bool {
        recording.join(FOLDER).join(LOG).exists()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes everything that the library needs to record.
    pub fn create(recording: &Path, anyway: bool, lenient: bool) -> Result<Woven, WeaveError> {
        let woven = Woven::of(recording);
        // LD_PRELOAD knows no way to quote.
        let odd = |c: char| c == ':' || c.is_whitespace();
        if woven.dir.to_string_lossy().contains(odd) {
            return Err(WeaveError::Refused(format!(
                "{}: a woven recording's folder can't have spaces or colons in its name; give another with -o",
                recording.display()
            )));
        }
        let folder = fs::DirBuilder::new().mode(0o700).create(&woven.dir);
        folder.map_err(at(&woven.dir))?;
        let library = woven.path(LIBRARY);
        fs::write(&library, crate::LIBRARY).map_err(at(&library))?;
        let path = woven.path(LOG);
        let log = new_file(&path).map_err(at(&path))?;
        let mut header = vec![0; FIRST as usize];
        header[..8].copy_from_slice(&format::MAGIC.to_le_bytes());
        header[8..12].copy_from_slice(&format::VERSION.to_le_bytes());
        header[24..32].copy_from_slice(&FIRST.to_le_bytes());
        header[48..52].copy_from_slice(&u32::from(lenient).to_le_bytes());
        header[52..56].copy_from_slice(&u32::from(anyway).to_le_bytes());
        log.write_all_at(&header, 0).map_err(at(&path))?;
        // It is sparse, and cut to what is used at the end.
        let sized = SIZES
            .iter()
            .map(|&size| log.set_len(size))
            .find(Result::is_ok);
        sized
            .unwrap_or(Err(io::Error::other("no room")))
            .map_err(at(&path))?;
        let path = woven.path(DATA);
        new_file(&path).map_err(at(&path))?;
        Ok(woven)
    }

    /// Libraries that the program had, by the names that the loader has for them.
    pub fn modules(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path(MODULES)).unwrap_or_default();
        let own = self.dir.to_string_lossy().into_owned();
        let wanted = |line: &&str| {
            line.starts_with('/')
                && !line.starts_with(&own)
                && !line.ends_with(" (deleted)")
                && !line.starts_with("/dev/")
        };
        let mut names: Vec<String> = text.lines().filter(wanted).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Copies the program, its loader and its libraries into the recording.
    pub fn copy_files(&self, program: &Path, loader: &Path, cwd: &Path) -> Result<(), WeaveError> {
        let folder = self.path(FILES);
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(at(&folder))?;
        let mut files = Files {
            program: program.to_string_lossy().into_owned(),
            loader: loader.to_string_lossy().into_owned(),
            cwd: cwd.to_string_lossy().into_owned(),
            copies: BTreeMap::new(),
        };
        let mut copied: BTreeMap<(u64, u64), String> = BTreeMap::new();
        let mut wanted = self.modules();
        wanted.extend([files.program.clone(), files.loader.clone()]);
        wanted.extend(ALSO.iter().map(|&path| path.to_owned()));
        for path in wanted {
            if files.copies.contains_key(&path) {
                continue;
            }
            let known = Path::new(&path)
                .metadata()
                .ok()
                .filter(fs::Metadata::is_file)
                .map(|meta| (meta.dev(), meta.ino()));
            if let Some(name) = known.and_then(|identity| copied.get(&identity)) {
                files.copies.insert(path, String::clone(name));
                continue;
            }
            let base = Path::new(&path)
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let mut name = base.clone();
            let mut n = 1;
            while copied.values().any(|taken| *taken == name) {
                n += 1;
                name = format!("{n}.{base}");
            }
            match (known, fs::copy(&path, folder.join(&name))) {
                (Some(identity), Ok(_)) => {
                    copied.insert(identity, name.clone());
                    files.copies.insert(path, name);
                }
                (_, Err(why)) if path == files.program || path == files.loader => {
                    return Err(at(Path::new(&path))(why));
                }
                // What is there only sometimes, or has gone.
                _ => {}
            }
        }
        self.write(MANIFEST, &files)
    }

    pub fn files(&self) -> Result<Files, WeaveError> {
        self.read(MANIFEST)
    }

    pub fn set_end(&self, end: &End) -> Result<(), WeaveError> {
        self.write(END, end)
    }

    /// None if it is still being made, or was broken off.
    pub fn end(&self) -> Option<End> {
        self.read(END).ok()
    }

    /// Is it being made right now?
    pub fn is_being_written(&self) -> bool {
        let Ok(log) = File::open(self.path(LOG)) else {
            return false;
        };
        matches!(log.try_lock_shared(), Err(fs::TryLockError::WouldBlock))
    }

    fn write(&self, name: &str, value: &impl Serialize) -> Result<(), WeaveError> {
        let path = self.path(name);
        let text = serde_json::to_vec_pretty(value).map_err(io::Error::other);
        text.and_then(|text| fs::write(&path, text))
            .map_err(at(&path))
    }

    fn read<T: for<'a> Deserialize<'a>>(&self, name: &str) -> Result<T, WeaveError> {
        let path = self.path(name);
        let bytes = read_bounded(&path, MOST_BYTES).map_err(at(&path))?;
        serde_json::from_slice(&bytes).map_err(|why| at(&path)(io::Error::other(why)))
    }
}

/// Files that the C library reads by itself, for programs that ask for a language or a time zone.
const ALSO: [&str; 6] = [
    "/etc/ld.so.cache",
    "/usr/share/locale/locale.alias",
    "/etc/localtime",
    "/usr/lib/locale/locale-archive",
    "/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache",
    "/etc/nsswitch.conf",
];

fn new_file(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// A file's contents, if it isn't larger than that.
pub fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other("larger than it should be"));
    }
    Ok(bytes)
}

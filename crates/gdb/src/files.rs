//! Files as the guest had them. In: paths, and gdb's `vFile` packets. Out: the copies in the recording.
//!
//! gdb that runs on this machine finds the same copies in a folder of links, its sysroot: reading them
//! through packets takes longer, and gdb says so for each.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use clew_recording::reader::{FILES, Recording};

use crate::hex;
use crate::wire::{self, LONGEST};

/// Error numbers of the protocol; those that matter are Linux's.
const ENOENT: i32 = 2;
const EIO_UNKNOWN: i32 = 9999;
const EBADF: i32 = 9;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const ENFILE: i32 = 23;
const MOST_OPEN: usize = 1024;

/// What can be opened.
pub enum Found {
    File(File),
    /// Made up for the occasion, like what is in /proc.
    Text(Vec<u8>),
}

pub struct Files {
    /// Names that files had, to the names of their copies.
    copies: BTreeMap<String, String>,
    /// Copies by these names are linked from below this folder.
    root: Option<PathBuf>,
    open: BTreeMap<u32, Found>,
}

impl Files {
    pub fn new(root: Option<PathBuf>) -> Files {
        Files {
            copies: BTreeMap::new(),
            root,
            open: BTreeMap::new(),
        }
    }

    /// A file of this name was mapped, and this is its copy.
    pub fn learn(&mut self, recording: &Recording, path: &str, copy: &str) {
        if self.copies.get(path).is_some_and(|known| known == copy) {
            return;
        }
        self.copies.insert(path.into(), copy.into());
        // Without the link gdb lacks this file's symbols, and says so.
        if let Some(root) = &self.root {
            let _ = link(root, path, &recording.folder().join(FILES).join(copy));
            // Symbols that lie beside the program: gdb looks for them beside the link.
            for beside in beside(path) {
                let _ = link(root, &beside, Path::new(&beside));
            }
        }
    }

    /// This path was a link to `target`, a file that is known. gdb looks for what belongs to it beside that.
    pub fn learn_link(&mut self, path: &str, target: &str) {
        let Some(copy) = self.copies.get(target) else {
            return;
        };
        if self.copies.get(path) == Some(copy) {
            return;
        }
        self.copies.insert(path.into(), copy.clone());
        if let Some(root) = &self.root
            && let (Ok(place), Ok(file)) = (below(root, path), below(root, target))
        {
            let _ = made(&place).and_then(|()| std::os::unix::fs::symlink(file, &place));
        }
    }

    /// Answers `vFile:...`, what is behind the colon. `made` knows what files in /proc say, and where
    /// links there lead to.
    pub fn answer(
        &mut self,
        request: &[u8],
        recording: &Recording,
        made: &mut dyn FnMut(&str) -> Option<Vec<u8>>,
    ) -> Vec<u8> {
        let Some(at) = request.iter().position(|&byte| byte == b':') else {
            return Vec::new();
        };
        let (name, rest) = (&request[..at], &request[at + 1..]);
        let answer = match name {
            b"setfs" => Ok(b"F0".to_vec()),
            b"open" => self.open(rest, recording, made),
            b"close" => self.close(rest),
            b"pread" => self.pread(rest),
            b"fstat" => self.fstat(rest),
            b"readlink" => readlink(rest, made),
            // Nothing can be written, and gdb copes without.
            _ => return Vec::new(),
        };
        answer.unwrap_or_else(|errno| format!("F-1,{errno:x}").into_bytes())
    }

    fn open(
        &mut self,
        rest: &[u8],
        recording: &Recording,
        made: &mut dyn FnMut(&str) -> Option<Vec<u8>>,
    ) -> Result<Vec<u8>, i32> {
        let mut parts = rest.split(|&byte| byte == b',');
        let path = parts.next().and_then(hex::bytes).ok_or(EINVAL)?;
        let flags = parts.next().and_then(hex::number).ok_or(EINVAL)?;
        if flags != 0 {
            return Err(EACCES);
        }
        let path = String::from_utf8(path).map_err(|_| ENOENT)?;
        let found = match self.copies.get(&path) {
            Some(copy) => recording.file(copy).map(Found::File).map_err(errno)?,
            None if path.starts_with("/proc/") => Found::Text(made(&path).ok_or(ENOENT)?),
            None if is_debug_file(&path) => {
                let file = File::open(&path).map_err(errno)?;
                Found::File(file)
            }
            None => return Err(ENOENT),
        };
        if self.open.len() >= MOST_OPEN {
            return Err(ENFILE);
        }
        let fd = (0..).find(|fd| !self.open.contains_key(fd));
        let fd = fd.expect("few are open");
        self.open.insert(fd, found);
        Ok(format!("F{fd:x}").into_bytes())
    }

    fn close(&mut self, rest: &[u8]) -> Result<Vec<u8>, i32> {
        let fd = hex::number(rest).ok_or(EINVAL)?;
        self.open.remove(&(fd as u32)).ok_or(EBADF)?;
        Ok(b"F0".to_vec())
    }

    fn opened(&self, digits: &[u8]) -> Result<&Found, i32> {
        let fd = hex::number(digits).ok_or(EINVAL)?;
        self.open.get(&(fd as u32)).ok_or(EBADF)
    }

    fn pread(&self, rest: &[u8]) -> Result<Vec<u8>, i32> {
        let mut parts = rest.splitn(2, |&byte| byte == b',');
        let found = self.opened(parts.next().ok_or(EINVAL)?)?;
        let (count, offset) = parts
            .next()
            .and_then(|text| hex::pair(text, b','))
            .ok_or(EINVAL)?;
        let count = usize::try_from(count).unwrap_or(LONGEST).min(LONGEST);
        let bytes = match found {
            Found::File(file) => {
                let mut bytes = vec![0; count];
                let n = file.read_at(&mut bytes, offset).map_err(errno)?;
                bytes.truncate(n);
                bytes
            }
            Found::Text(text) => {
                let from = usize::try_from(offset)
                    .unwrap_or(usize::MAX)
                    .min(text.len());
                text[from..text.len().min(from + count)].to_vec()
            }
        };
        Ok(attached(&bytes))
    }

    fn fstat(&self, rest: &[u8]) -> Result<Vec<u8>, i32> {
        let (size, mode, mtime) = match self.opened(rest)? {
            Found::File(file) => {
                let meta = file.metadata().map_err(errno)?;
                (meta.len(), meta.mode(), meta.mtime() as u32)
            }
            Found::Text(text) => (text.len() as u64, libc::S_IFREG | 0o444, 0),
        };
        let mut stat = Vec::new();
        // Device, inode, mode, links, user, group, device; most significant byte first.
        for field in [0, 0, mode, 1, 0, 0, 0] {
            stat.extend(field.to_be_bytes());
        }
        for field in [size, 4096, size.div_ceil(512)] {
            stat.extend(field.to_be_bytes());
        }
        for time in [mtime; 3] {
            stat.extend(time.to_be_bytes());
        }
        Ok(attached(&stat))
    }
}

fn readlink(rest: &[u8], made: &mut dyn FnMut(&str) -> Option<Vec<u8>>) -> Result<Vec<u8>, i32> {
    let path = hex::bytes(rest).ok_or(EINVAL)?;
    let path = String::from_utf8(path).map_err(|_| ENOENT)?;
    let target = match path.starts_with("/proc/") {
        true => made(&path),
        false => None,
    };
    target.map(|target| attached(&target)).ok_or(ENOENT)
}

/// `F`, the number of bytes, and the bytes, as many as fit.
fn attached(bytes: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    let taken = wire::escape(&mut data, bytes, LONGEST - 32);
    let mut reply = format!("F{taken:x};").into_bytes();
    reply.append(&mut data);
    reply
}

fn errno(error: io::Error) -> i32 {
    match error.kind() {
        io::ErrorKind::NotFound => ENOENT,
        io::ErrorKind::PermissionDenied => EACCES,
        io::ErrorKind::InvalidInput => EINVAL,
        _ => EIO_UNKNOWN,
    }
}

/// Symbols kept apart from their programs: those of this machine, which gdb compares by build-id or checksum.
fn is_debug_file(path: &str) -> bool {
    path.starts_with("/usr/lib/debug/") || path.contains("/.debug/") || path.ends_with(".debug")
}

/// Where a program's symbols may be kept, by what `.gnu_debuglink` usually says.
fn beside(path: &str) -> Vec<String> {
    let Some((folder, name)) = path.rsplit_once('/') else {
        return Vec::new();
    };
    vec![
        format!("{folder}/{name}.debug"),
        format!("{folder}/.debug/{name}.debug"),
        format!("{folder}/.debug/{name}"),
    ]
}

/// The path below the folder. It may be a stranger's: it doesn't lead out.
fn below(root: &Path, path: &str) -> io::Result<PathBuf> {
    let mut place = root.to_path_buf();
    for part in Path::new(path).components() {
        match part {
            Component::RootDir => {}
            Component::Normal(part) => place.push(part),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    if place == root || !path.starts_with('/') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(place)
}

/// Makes the folders above a place, and makes it free.
fn made(place: &Path) -> io::Result<()> {
    if let Some(parent) = place.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match std::fs::remove_file(place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the path below the folder, as a link.
fn link(root: &Path, path: &str, copy: &Path) -> io::Result<()> {
    let place = below(root, path)?;
    // Nor may what stands for the copy lead elsewhere.
    if !std::fs::symlink_metadata(copy)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let copy = std::path::absolute(copy)?;
    made(&place)?;
    // gdb looks for what belongs to a program beside the program itself, past symbolic links.
    match std::fs::hard_link(&copy, &place) {
        Ok(()) => Ok(()),
        // Another file system, or somebody else's file.
        Err(_) => std::os::unix::fs::symlink(copy, place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_below_their_root() {
        let root = std::env::temp_dir().join(format!("clew-files-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let copy = root.join("copy");
        std::fs::write(&copy, "x").unwrap();
        link(&root, "/usr/lib/a.so", &copy).unwrap();
        link(&root, "/usr/lib/a.so", &copy).unwrap();
        assert_eq!(std::fs::read(root.join("usr/lib/a.so")).unwrap(), b"x");
        for bad in ["/../a", "/usr/../../a", "a", "/", ""] {
            assert!(link(&root, bad, &copy).is_err(), "{bad}");
        }
        let other = root.join("other");
        std::os::unix::fs::symlink(&copy, &other).unwrap();
        assert!(link(&root, "/b", &other).is_err(), "a link isn't a copy");
        // A path below what is a file already.
        assert!(link(&root, "/usr/lib/a.so/b", &copy).is_err());
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn made_up_files_are_read() {
        let mut files = Files::new(None);
        let made = &mut |path: &str| match path {
            "/proc/5/maps" => Some(b"#text".to_vec()),
            "/proc/5/exe" => Some(b"/bin/x".to_vec()),
            _ => None,
        };
        // No recording is needed for these.
        let mut ask = |request: &str| {
            let at = request.find(':').unwrap();
            let (name, rest) = (&request[..at], &request.as_bytes()[at + 1..]);
            match name {
                "pread" => files.pread(rest),
                "fstat" => files.fstat(rest),
                "close" => files.close(rest),
                "readlink" => readlink(rest, made),
                _ => {
                    files
                        .open
                        .insert(0, Found::Text(made("/proc/5/maps").unwrap()));
                    Ok(b"F0".to_vec())
                }
            }
        };
        ask("open:").unwrap();
        assert_eq!(ask("pread:0,3,0").unwrap(), b"F3;}\x03te");
        assert_eq!(ask("pread:0,99,4").unwrap(), b"F1;t");
        assert_eq!(ask("pread:0,99,44").unwrap(), b"F0;");
        assert_eq!(ask("pread:1,9,0"), Err(EBADF));
        let stat = ask("fstat:0").unwrap();
        assert!(stat.starts_with(b"F40;"));
        let path = hex::text(b"/proc/5/exe");
        assert_eq!(ask(&format!("readlink:{path}")).unwrap(), b"F6;/bin/x");
        assert_eq!(ask("close:0").unwrap(), b"F0");
        assert_eq!(ask("close:0"), Err(EBADF));
    }

    #[test]
    fn which_files_of_this_machine_are_given() {
        assert!(is_debug_file("/usr/lib/debug/.build-id/ab/cd.debug"));
        assert!(is_debug_file("/opt/x/.debug/x"));
        assert!(!is_debug_file("/etc/passwd"));
        assert_eq!(beside("/a/b")[1], "/a/.debug/b.debug");
    }
}

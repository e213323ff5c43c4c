//! Files of debug code. In: the files of one folder as they were when it began, and calls that open, read and write. Out:
//! values, and what is written, for the commander to write.
//!
//! A replay is locked in and stays so: no file is opened here. Names that aren't below the folder don't exist.

use std::collections::{BTreeMap, BTreeSet};

use crate::replay::worker::protocol::probing::Folder;

/// Descriptors begin behind the standard ones.
const FIRST: u64 = 3;
const MOST_OPEN: usize = 256;
/// No file becomes longer.
const LONGEST: u64 = 256 << 20;

struct Open {
    name: String,
    at: u64,
    flags: i32,
}

impl Open {
    fn reads(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_WRONLY
    }

    fn writes(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }
}

/// What debug code has of files.
pub struct Files {
    path: String,
    here: String,
    all: BTreeMap<String, Vec<u8>>,
    folders: BTreeSet<String>,
    open: Vec<Option<Open>>,
}

/// A call's value, or its error.
type Value<T> = Result<T, i32>;

/// What an open did to its file.
pub struct Opened {
    pub fd: u64,
    /// The file is empty now, and wasn't or didn't exist.
    pub emptied: Option<String>,
}

impl Files {
    pub fn new(folder: Folder) -> Files {
        Files {
            path: folder.path,
            here: folder.here,
            all: folder.files.into_iter().collect(),
            folders: folder.folders.into_iter().collect(),
            open: Vec::new(),
        }
    }

    /// The name below the folder; empty for the folder itself.
    fn name(&self, path: &[u8]) -> Value<String> {
        let path = std::str::from_utf8(path).map_err(|_| libc::ENOENT)?;
        let whole = match path.starts_with('/') {
            true => path.to_string(),
            false => format!("{}/{path}", self.here),
        };
        let mut parts: Vec<&str> = Vec::new();
        for part in whole.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                part => parts.push(part),
            }
        }
        let whole = format!("/{}", parts.join("/"));
        let below = match whole.strip_prefix(&self.path) {
            Some("") => Some(""),
            below => below.and_then(|rest| rest.strip_prefix('/')),
        };
        below.map(String::from).ok_or(libc::EACCES)
    }

    fn is_folder(&self, name: &str) -> bool {
        name.is_empty() || self.folders.contains(name)
    }

    pub fn open(&mut self, path: &[u8], flags: i32) -> Value<Opened> {
        let name = self.name(path)?;
        if self.is_folder(&name) {
            return Err(libc::EISDIR);
        }
        let new = !self.all.contains_key(&name);
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        if new && (flags & libc::O_CREAT == 0 || !self.is_folder(folder)) {
            return Err(libc::ENOENT);
        }
        if !new && flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL {
            return Err(libc::EEXIST);
        }
        let free = self.open.iter().position(Option::is_none);
        let at = free.unwrap_or(self.open.len());
        if at >= MOST_OPEN {
            return Err(libc::EMFILE);
        }
        if at == self.open.len() {
            self.open.push(None);
        }
        let bytes = self.all.entry(name.clone()).or_default();
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let emptied = new || writes && flags & libc::O_TRUNC != 0;
        if emptied {
            bytes.clear();
        }
        self.open[at] = Some(Open {
            name: name.clone(),
            at: 0,
            flags,
        });
        Ok(Opened {
            fd: FIRST + at as u64,
            emptied: emptied.then_some(name),
        })
    }

    fn opened(&mut self, fd: u64) -> Value<(&mut Open, &mut Vec<u8>)> {
        let at = fd.checked_sub(FIRST).ok_or(libc::EBADF)?;
        let open = self.open.get_mut(at as usize).and_then(Option::as_mut);
        let open = open.ok_or(libc::EBADF)?;
        let bytes = self.all.get_mut(&open.name).ok_or(libc::EBADF)?;
        Ok((open, bytes))
    }

    /// At most so many bytes from where the descriptor is.
    pub fn read(&mut self, fd: u64, most: u64) -> Value<Vec<u8>> {
        let (open, bytes) = self.opened(fd)?;
        if !open.reads() {
            return Err(libc::EBADF);
        }
        let from = open.at.min(bytes.len() as u64);
        let to = from.saturating_add(most).min(bytes.len() as u64);
        open.at = to.max(open.at);
        Ok(bytes[from as usize..to as usize].to_vec())
    }

    /// Which file was written, and where.
    pub fn write(&mut self, fd: u64, more: &[u8]) -> Value<(String, u64)> {
        let (open, bytes) = self.opened(fd)?;
        if !open.writes() {
            return Err(libc::EBADF);
        }
        if open.flags & libc::O_APPEND != 0 {
            open.at = bytes.len() as u64;
        }
        let (from, to) = (open.at, open.at.saturating_add(more.len() as u64));
        if to > LONGEST {
            return Err(libc::EFBIG);
        }
        if to > bytes.len() as u64 {
            bytes.resize(to as usize, 0);
        }
        bytes[from as usize..to as usize].copy_from_slice(more);
        open.at = to;
        Ok((open.name.clone(), from))
    }

    pub fn seek(&mut self, fd: u64, by: i64, whence: i32) -> Value<u64> {
        let (open, bytes) = self.opened(fd)?;
        let from = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => open.at,
            libc::SEEK_END => bytes.len() as u64,
            _ => return Err(libc::EINVAL),
        };
        let to = from.checked_add_signed(by).filter(|to| *to <= LONGEST);
        open.at = to.ok_or(libc::EINVAL)?;
        Ok(open.at)
    }

    pub fn close(&mut self, fd: u64) -> Value<()> {
        self.opened(fd)?;
        self.open[(fd - FIRST) as usize] = None;
        Ok(())
    }

    pub fn size(&mut self, fd: u64) -> Value<u64> {
        Ok(self.opened(fd)?.1.len() as u64)
    }

    /// Of a name; none of a folder.
    pub fn size_of(&self, path: &[u8]) -> Value<Option<u64>> {
        let name = self.name(path)?;
        match self.all.get(&name) {
            Some(bytes) => Ok(Some(bytes.len() as u64)),
            None if self.is_folder(&name) => Ok(None),
            None => Err(libc::ENOENT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Files {
        Files::new(Folder {
            path: "/home/u/notes".into(),
            here: "/home/u".into(),
            folders: vec!["old".into()],
            files: vec![("list".into(), b"one\ntwo\n".to_vec())],
        })
    }

    #[test]
    fn nothing_is_outside_of_the_folder() {
        let mut files = files();
        for path in [
            "/etc/passwd",
            "../list",
            "notes/../../x",
            "/home/u/notes2/x",
            "/home/u/notes/../x",
            "x",
        ] {
            let opened = files.open(path.as_bytes(), libc::O_RDWR | libc::O_CREAT);
            assert_eq!(opened.err(), Some(libc::EACCES), "{path}");
        }
        assert!(files.open(b"notes/old/../list", libc::O_RDONLY).is_ok());
        assert!(files.open(b"/home/u/notes//./list", libc::O_RDONLY).is_ok());
        let missing = files.open(b"notes/new/x", libc::O_WRONLY | libc::O_CREAT);
        assert_eq!(missing.err(), Some(libc::ENOENT));
        assert_eq!(
            files.open(b"notes", libc::O_RDONLY).err(),
            Some(libc::EISDIR)
        );
    }

    #[test]
    fn what_is_written_is_read() {
        let mut files = files();
        let list = files
            .open(b"notes/list", libc::O_RDWR | libc::O_APPEND)
            .unwrap();
        assert!(list.emptied.is_none());
        assert_eq!(files.read(list.fd, 4).unwrap(), b"one\n");
        assert_eq!(
            files.write(list.fd, b"three\n").unwrap(),
            ("list".into(), 8)
        );
        assert_eq!(files.seek(list.fd, -6, libc::SEEK_END), Ok(8));
        assert_eq!(files.read(list.fd, 100).unwrap(), b"three\n");
        let how = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
        let new = files.open(b"notes/old/new", how).unwrap();
        assert_eq!(new.emptied.as_deref(), Some("old/new"));
        assert_eq!(files.seek(new.fd, 3, libc::SEEK_SET), Ok(3));
        assert_eq!(files.write(new.fd, b"x").unwrap(), ("old/new".into(), 3));
        assert_eq!(files.size(new.fd), Ok(4));
        assert_eq!(files.read(new.fd, 1), Err(libc::EBADF));
        assert_eq!(files.close(new.fd), Ok(()));
        assert_eq!(files.close(new.fd), Err(libc::EBADF));
        assert_eq!(files.size_of(b"notes/old/new"), Ok(Some(4)));
        assert_eq!(files.size_of(b"notes/old"), Ok(None));
    }
}

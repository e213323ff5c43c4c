//! `clew probe --allow-files DIR`: the folder that debug code has. In: a folder; what debug code writes. Out: its files as they
//! are, and then as they become.
//!
//! Debug code runs locked in, and sees copies. What it writes comes here, and goes nowhere but below the folder: symbolic
//! links aren't followed.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use clew_timeline::probing::Folder;

/// So much is handed to debug code.
const MOST_BYTES: u64 = 64 << 20;
const MOST_FILES: usize = 10_000;
const MOST_OPEN: usize = 64;

/// Reads a folder, and those in it.
pub fn read(dir: &Path) -> Result<Folder, String> {
    let told = |error: std::io::Error| format!("--allow-files {}: {error}", dir.display());
    let path = dir.canonicalize().map_err(told)?;
    if !path.is_dir() {
        return Err(format!(
            "--allow-files {}: it isn't a folder",
            dir.display()
        ));
    }
    let here = std::env::current_dir().and_then(|here| here.canonicalize());
    let mut folder = Folder {
        path: text(&path)?,
        here: text(&here.map_err(told)?)?,
        ..Folder::default()
    };
    let mut bytes = 0;
    gather(&path, "", &mut folder, &mut bytes)?;
    Ok(folder)
}

fn text(path: &Path) -> Result<String, String> {
    let text = path.to_str().map(String::from);
    text.ok_or_else(|| format!("--allow-files: {} isn't UTF-8", path.display()))
}

fn gather(at: &Path, below: &str, folder: &mut Folder, bytes: &mut u64) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{}: {error}", at.display());
    for entry in fs::read_dir(at).map_err(told)? {
        let entry = entry.map_err(told)?;
        let kind = entry.file_type().map_err(told)?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let name = match below {
            "" => name,
            below => format!("{below}/{name}"),
        };
        if kind.is_dir() {
            folder.folders.push(name.clone());
            gather(&entry.path(), &name, folder, bytes)?;
        } else if kind.is_file() {
            let content = fs::read(entry.path()).map_err(told)?;
            *bytes += content.len() as u64;
            folder.files.push((name, content));
        }
        if *bytes > MOST_BYTES || folder.files.len() + folder.folders.len() > MOST_FILES {
            return Err(format!(
                "--allow-files: {} has more than {} MiB or {MOST_FILES} files; give a smaller one",
                folder.path,
                MOST_BYTES >> 20
            ));
        }
    }
    Ok(())
}

/// Puts what debug code writes below its folder.
pub struct Writer {
    path: PathBuf,
    open: HashMap<String, File>,
    /// What couldn't be written, and why.
    pub failed: Vec<String>,
}

impl Writer {
    pub fn new(folder: &Folder) -> Writer {
        Writer {
            path: folder.path.clone().into(),
            open: HashMap::new(),
            failed: Vec::new(),
        }
    }

    pub fn empty(&mut self, name: &str) {
        let emptied = self.file(name).and_then(|file| {
            let emptied = file.set_len(0);
            emptied.map_err(|error| error.to_string())
        });
        self.note(name, emptied);
    }

    pub fn write(&mut self, name: &str, at: u64, bytes: &[u8]) {
        let written = self.file(name).and_then(|file| {
            let written = file.write_all_at(bytes, at);
            written.map_err(|error| error.to_string())
        });
        self.note(name, written);
    }

    fn note(&mut self, name: &str, done: Result<(), String>) {
        if let Err(why) = done {
            let words = format!("{}/{name} can't be written: {why}", self.path.display());
            if !self.failed.contains(&words) {
                self.failed.push(words);
            }
        }
    }

    /// A worker is believed nothing: names have only plain parts, and each is a folder but the last.
    fn file(&mut self, name: &str) -> Result<&File, String> {
        if self.open.len() > MOST_OPEN && !self.open.contains_key(name) {
            self.open.clear();
        }
        if !self.open.contains_key(name) {
            let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
            let relative = Path::new(name);
            if name.is_empty() || !relative.components().all(plain) {
                return Err("it isn't below the folder".into());
            }
            let mut folder = self.path.clone();
            for part in relative.parent().into_iter().flat_map(Path::components) {
                folder.push(part);
                let kind = fs::symlink_metadata(&folder).map_err(|error| error.to_string())?;
                if !kind.is_dir() {
                    return Err("it isn't below the folder".into());
                }
            }
            let mut options = OpenOptions::new();
            let options = options.write(true).create(true).truncate(false).mode(0o600);
            // Neither a link's file nor a pipe that nobody reads.
            let options = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
            let file = options.open(self.path.join(relative));
            let file = file.map_err(|error| error.to_string())?;
            if !file.metadata().is_ok_and(|kind| kind.is_file()) {
                return Err("it isn't a file".into());
            }
            self.open.insert(name.into(), file);
        }
        self.open.get(name).ok_or_else(|| "it isn't open".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_outside() {
        let dir = std::env::temp_dir().join(format!("clew-probe-files-{}", std::process::id()));
        let (inside, outside) = (dir.join("in"), dir.join("out"));
        fs::create_dir_all(inside.join("sub")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        std::os::unix::fs::symlink(outside.join("x"), inside.join("file")).unwrap();
        let folder = read(&inside).unwrap();
        assert_eq!((folder.folders.len(), folder.files.len()), (1, 0));
        let mut writer = Writer::new(&folder);
        for name in ["../out/x", "/x", "", "link/x", "file", "sub/../../x", "."] {
            writer.write(name, 0, b"x");
        }
        assert_eq!(writer.failed.len(), 7, "{:?}", writer.failed);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        writer.write("sub/x", 2, b"y");
        assert_eq!(fs::read(inside.join("sub/x")).unwrap(), b"\0\0y");
        fs::remove_dir_all(&dir).unwrap();
    }
}

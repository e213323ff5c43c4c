//! Where recordings live. In: the environment, or what a user calls a recording. Out: its folder.
//!
//! `$CLEW_DIR`, else `$XDG_DATA_HOME/clew`, else `~/.local/share/clew`; made with mode 0700, as is each
//! recording in it: a recording holds what the program had in memory. `latest` is a link to the
//! recording that was begun last. Names that begin with a dot are work in progress.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::meant::{Meant, meant};
use crate::meta;

/// The link to the recording that was begun last.
pub const LATEST: &str = "latest";
/// Ending of packed recordings.
pub const PACKED: &str = "clew";

/// Longer names are cut (a default name) or refused (a chosen one).
const LONGEST_NAME: usize = 200;
/// As many numbers are tried for a default name.
const MOST_NUMBERS: u64 = 10_000_000;

#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error(
        "there is no place for recordings: none of CLEW_DIR, XDG_DATA_HOME and HOME is an \
         absolute path; set CLEW_DIR, or give a folder with -o"
    )]
    NoPlace,
    #[error("{}: {why}", path.display())]
    Io { path: PathBuf, why: io::Error },
    #[error("{}: can't make a recording here: {why}; set CLEW_DIR, or give a folder with -o", path.display())]
    NotWritable { path: PathBuf, why: io::Error },
    #[error("{name:?} can't be the name of a recording: {why}")]
    BadName { name: String, why: &'static str },
    #[error(
        "there is a recording {name} already; choose another name, or remove it: clew rm {name}"
    )]
    Taken { name: String },
    #[error("{}: exists and isn't an empty folder; -o names the folder of the new recording itself", path.display())]
    NotEmpty { path: PathBuf },
    #[error("there is no recording {name:?} in {}; {}clew ls shows them", dir.display(), did_you_mean(similar))]
    Unknown {
        name: String,
        dir: PathBuf,
        similar: Vec<String>,
    },
    #[error("{name:?} could be {}; say which", all.join(", "))]
    Several { name: String, all: Vec<String> },
    #[error("there are no recordings in {} yet; clew record PROG makes one", dir.display())]
    Nothing { dir: PathBuf },
    #[error("the latest recording is gone; clew ls shows the others")]
    LatestGone,
    #[error("{}: not a recording (there is no {} in it)", path.display(), meta::FILE)]
    NotRecording { path: PathBuf },
    #[error("{}: a packed recording; first: clew unpack {}", path.display(), path.display())]
    IsPacked { path: PathBuf },
}

fn did_you_mean(similar: &[String]) -> String {
    match similar {
        [] => String::new(),
        _ => format!("did you mean {}? ", similar.join(", ")),
    }
}

/// The folder of a user's recordings.
#[derive(Clone, Debug)]
pub struct Recordings {
    dir: PathBuf,
}

impl Recordings {
    /// Where this user's recordings are, by the environment.
    pub fn location(get: impl Fn(&str) -> Option<OsString>) -> Result<Recordings, FolderError> {
        let full = |name| {
            get(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let dir = full("CLEW_DIR")
            .or_else(|| full("XDG_DATA_HOME").map(|dir| dir.join("clew")))
            .or_else(|| full("HOME").map(|dir| dir.join(".local/share/clew")))
            .ok_or(FolderError::NoPlace)?;
        Ok(Recordings { dir })
    }

    pub fn at(dir: &Path) -> Recordings {
        Recordings {
            dir: dir.to_owned(),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the folder itself if it isn't there.
    pub fn make(&self) -> Result<(), FolderError> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .map_err(|why| self.not_writable(why))
    }

    /// Makes an empty folder for a recording with this name.
    pub fn create(&self, name: &str) -> Result<PathBuf, FolderError> {
        check_name(name)?;
        self.make()?;
        let path = self.dir.join(name);
        match private(&path) {
            Ok(()) => Ok(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Err(FolderError::Taken { name: name.into() })
            }
            Err(why) => Err(self.not_writable(why)),
        }
    }

    /// Makes an empty folder named for a program: `ls-1`, `ls-2`, the first that is free. mkdir
    /// decides, so two at once get two numbers.
    pub fn create_for(&self, program: &OsStr) -> Result<PathBuf, FolderError> {
        self.make()?;
        let base = base_name(program);
        for n in self.first_guess(&base)..MOST_NUMBERS {
            let path = self.dir.join(format!("{base}-{n}"));
            match private(&path) {
                Ok(()) => return Ok(path),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(why) => return Err(self.not_writable(why)),
            }
        }
        let why = io::Error::new(io::ErrorKind::AlreadyExists, "no number is free");
        Err(self.not_writable(why))
    }

    /// One after the highest number there is, so that names tell the order and a removed
    /// recording's name isn't used for another at once; 1 for the first.
    fn first_guess(&self, base: &str) -> u64 {
        let Ok(entries) = std::fs::read_dir(&self.dir) else {
            return 1;
        };
        let number = |name: OsString| {
            let rest = name.as_bytes().strip_prefix(base.as_bytes())?;
            let digits = std::str::from_utf8(rest.strip_prefix(b"-")?).ok()?;
            digits.parse().ok().filter(|&n: &u64| n < MOST_NUMBERS / 2)
        };
        let names = entries.flatten().map(|entry| entry.file_name());
        names.filter_map(number).max().map_or(1, |n| n + 1)
    }

    /// The folder that a user means: a name, a path, or nothing for the latest.
    pub fn resolve(&self, recording: Option<&OsStr>) -> Result<PathBuf, FolderError> {
        let exactly = self.resolve_exactly(recording);
        let Err(FolderError::Unknown {
            name, similar, dir, ..
        }) = exactly
        else {
            return exactly;
        };
        match meant(&name, self.names()) {
            Meant::One(one) => check_is_recording(self.dir.join(one)),
            Meant::Several(all) => Err(FolderError::Several { name, all }),
            Meant::Similar(_) => Err(FolderError::Unknown { name, dir, similar }),
        }
    }

    /// The names of what is there.
    fn names(&self) -> Vec<String> {
        let listed = self.list().unwrap_or_default().into_iter();
        let recordings = listed.filter(|folder| folder.join(meta::FILE).is_file());
        recordings
            .filter_map(|folder| Some(folder.file_name()?.to_str()?.to_string()))
            .collect()
    }

    /// The same, by the whole name only: for what can't be undone.
    pub fn resolve_exactly(&self, recording: Option<&OsStr>) -> Result<PathBuf, FolderError> {
        let Some(word) = recording else {
            return self.latest();
        };
        let is_path = word.as_bytes().contains(&b'/');
        let inside = self.dir.join(word);
        let path = if is_path || word.is_empty() || !inside.exists() {
            PathBuf::from(word)
        } else {
            inside
        };
        let found = path.symlink_metadata().is_ok();
        if !found && !is_path {
            if word == LATEST {
                return self.latest();
            }
            let name = word.to_string_lossy().into_owned();
            let similar = match meant(&name, self.names()) {
                Meant::One(one) => vec![one],
                Meant::Several(names) | Meant::Similar(names) => names,
            };
            let dir = self.dir.clone();
            return Err(FolderError::Unknown { name, dir, similar });
        }
        // A link (`latest`) is followed: what is removed or shown is the recording itself.
        let path = path.canonicalize().map_err(|why| FolderError::Io {
            path: path.clone(),
            why,
        })?;
        check_is_recording(path)
    }

    fn latest(&self) -> Result<PathBuf, FolderError> {
        let link = self.dir.join(LATEST);
        if link.symlink_metadata().is_err() {
            return Err(FolderError::Nothing {
                dir: self.dir.clone(),
            });
        }
        let path = link.canonicalize().map_err(|_| FolderError::LatestGone)?;
        check_is_recording(path)
    }

    /// Folders that look like recordings, in no order.
    pub fn list(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match std::fs::read_dir(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let hidden = entry.file_name().as_bytes().starts_with(b".");
            // Links (`latest`) aren't folders here.
            if !hidden && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }

    /// Points `latest` to a recording, at once for anyone who looks.
    pub fn set_latest(&self, folder: &Path) -> io::Result<()> {
        let target = match folder.strip_prefix(&self.dir) {
            // Relative: the whole folder can be moved.
            Ok(inside) => inside.to_owned(),
            Err(_) => std::path::absolute(folder)?,
        };
        let temporary = self.dir.join(format!(".{LATEST}-{}", std::process::id()));
        let _ = std::fs::remove_file(&temporary);
        std::os::unix::fs::symlink(target, &temporary)?;
        let renamed = std::fs::rename(&temporary, self.dir.join(LATEST));
        if renamed.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        renamed
    }

    /// Removes a recording. If it was the latest, the one begun before it takes its place.
    pub fn remove(&self, folder: &Path) -> io::Result<()> {
        let link = self.dir.join(LATEST);
        let was_latest = link
            .canonicalize()
            .is_ok_and(|latest| folder.canonicalize().is_ok_and(|folder| folder == latest));
        // Renamed first: from here on nobody takes what is left of it for a recording.
        let name = folder.file_name().unwrap_or(OsStr::new("recording"));
        let mut hidden = OsString::from(".removing-");
        hidden.push(name);
        let hidden = folder.with_file_name(hidden);
        let doomed = match std::fs::rename(folder, &hidden) {
            Ok(()) => hidden.as_path(),
            Err(_) => folder,
        };
        std::fs::remove_dir_all(doomed)?;
        if was_latest {
            let started = |path: &PathBuf| {
                let meta = path.join(meta::FILE).metadata().ok()?;
                Some((meta.mtime(), meta.mtime_nsec()))
            };
            let others = self.list()?;
            let before = others.iter().filter(|path| started(path).is_some());
            match before.max_by_key(|path| started(path)) {
                Some(before) => self.set_latest(before)?,
                None => std::fs::remove_file(link)?,
            }
        }
        Ok(())
    }

    fn not_writable(&self, why: io::Error) -> FolderError {
        FolderError::NotWritable {
            path: self.dir.clone(),
            why,
        }
    }
}

/// Makes the folder that a user chose for a recording (`-o`); an empty one will do.
pub fn create_at(path: &Path) -> Result<PathBuf, FolderError> {
    let failed = |why| FolderError::Io {
        path: path.to_owned(),
        why,
    };
    match private(path) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let empty = path.is_dir() && path.read_dir().map_err(failed)?.next().is_none();
            if !empty {
                return Err(FolderError::NotEmpty {
                    path: path.to_owned(),
                });
            }
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            std::fs::set_permissions(path, mode).map_err(failed)?;
        }
        Err(why) => return Err(failed(why)),
    }
    path.canonicalize().map_err(failed)
}

fn private(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

fn check_is_recording(path: PathBuf) -> Result<PathBuf, FolderError> {
    if path.join(meta::FILE).is_file() {
        return Ok(path);
    }
    Err(
        if path.is_file() && path.extension() == Some(OsStr::new(PACKED)) {
            FolderError::IsPacked { path }
        } else {
            FolderError::NotRecording { path }
        },
    )
}

/// Whether a recording may be called so: it must be a plain file name that a shell takes as one
/// word, and not look like a flag.
pub fn check_name(name: &str) -> Result<(), FolderError> {
    let odd = |c: char| !(c.is_alphanumeric() || "._+-@:=".contains(c));
    let why = if name.is_empty() {
        "it is empty"
    } else if name.starts_with(['.', '-']) {
        "it begins with a dot or a dash"
    } else if name == LATEST {
        "that is the link to the latest one"
    } else if name.len() > LONGEST_NAME {
        "it is too long"
    } else if name.contains(odd) {
        "only letters, digits and ._+-@:= are allowed"
    } else {
        return Ok(());
    };
    Err(FolderError::BadName {
        name: name.into(),
        why,
    })
}

/// The part of a program's path that recordings of it are named for.
fn base_name(program: &OsStr) -> String {
    let last = program.as_bytes().rsplit(|&b| b == b'/').next();
    let name = String::from_utf8_lossy(last.unwrap_or(b""));
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    let name: String = name
        .chars()
        .map(|c| if plain(c) { c } else { '_' })
        .take(LONGEST_NAME - 20)
        .collect();
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() { "program" } else { name }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn recording(recordings: &Recordings, name: &str) -> PathBuf {
        let path = recordings.create(name).unwrap();
        std::fs::write(path.join(meta::FILE), "{}").unwrap();
        path
    }

    #[test]
    fn the_environment_says_where() {
        let place = |set: &[(&str, &str)]| {
            let get = |name: &str| {
                let found = set.iter().find(|(n, _)| *n == name);
                found.map(|(_, value)| OsString::from(value))
            };
            Recordings::location(get).map(|r| r.dir().to_owned()).ok()
        };
        let all = [("CLEW_DIR", "/c"), ("XDG_DATA_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(place(&all), Some("/c".into()));
        assert_eq!(place(&all[1..]), Some("/x/clew".into()));
        assert_eq!(place(&all[2..]), Some("/h/.local/share/clew".into()));
        assert_eq!(place(&[("CLEW_DIR", "relative"), ("HOME", "")]), None);
    }

    #[test]
    fn default_names_count_up() {
        let scratch = Scratch::new("names");
        let all = Recordings::at(&scratch.0.join("deep/er"));
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_string();
        assert_eq!(name(all.create_for(OsStr::new("/bin/ls")).unwrap()), "ls-1");
        assert_eq!(name(all.create_for(OsStr::new("ls")).unwrap()), "ls-2");
        std::fs::remove_dir(all.dir().join("ls-1")).unwrap();
        assert_eq!(name(all.create_for(OsStr::new("ls")).unwrap()), "ls-3");
        assert_eq!(name(all.create_for(OsStr::new("./-x y")).unwrap()), "x_y-1");
        assert_eq!(name(all.create_for(OsStr::new("/")).unwrap()), "program-1");
        let mode = all.dir().join("ls-3").metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(all.dir().metadata().unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn two_at_once_get_two_names() {
        let scratch = Scratch::new("race");
        let all = Recordings::at(&scratch.0);
        let names: std::collections::BTreeSet<PathBuf> = std::thread::scope(|scope| {
            let make = || (0..20).map(|_| all.create_for(OsStr::new("p")).unwrap());
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(move || make().collect::<Vec<_>>()))
                .collect();
            threads
                .into_iter()
                .flat_map(|t| t.join().unwrap())
                .collect()
        });
        assert_eq!(names.len(), 80);
    }

    #[test]
    fn names_that_would_confuse_are_refused() {
        for bad in [
            "", ".x", "-x", "a/b", "..", "latest", "a b", "a\nb", "x\u{1b}",
        ] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        for good in ["ls-1", "a.b", "crash@host", "größe"] {
            assert!(check_name(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn a_recording_is_found_by_name_path_and_as_the_latest() {
        let scratch = Scratch::new("resolve");
        let all = Recordings::at(&scratch.0);
        let error = |word: Option<&str>| all.resolve(word.map(OsStr::new)).unwrap_err();
        assert!(matches!(error(None), FolderError::Nothing { .. }));
        let one = recording(&all, "one");
        all.set_latest(&one).unwrap();
        assert_eq!(all.resolve(None).unwrap(), one);
        assert_eq!(all.resolve(Some(OsStr::new("one"))).unwrap(), one);
        assert_eq!(all.resolve(Some(OsStr::new("latest"))).unwrap(), one);
        assert_eq!(all.resolve(Some(one.as_os_str())).unwrap(), one);
        assert!(matches!(error(Some("two")), FolderError::Unknown { .. }));
        assert!(matches!(error(Some("/no/such")), FolderError::Io { .. }));
        assert!(matches!(error(Some("/")), FolderError::NotRecording { .. }));
        let packed = scratch.0.join("x.clew");
        std::fs::write(&packed, "").unwrap();
        assert!(matches!(
            error(packed.to_str()),
            FolderError::IsPacked { .. }
        ));
        assert!(matches!(
            all.create("one").unwrap_err(),
            FolderError::Taken { .. }
        ));
    }

    #[test]
    fn removing_the_latest_makes_the_one_before_it_the_latest() {
        let scratch = Scratch::new("remove");
        let all = Recordings::at(&scratch.0);
        let (one, two) = (recording(&all, "one"), recording(&all, "two"));
        all.set_latest(&two).unwrap();
        assert_eq!(
            std::fs::read_link(scratch.0.join(LATEST)).unwrap(),
            Path::new("two")
        );
        all.remove(&two).unwrap();
        assert_eq!(all.resolve(None).unwrap(), one);
        all.remove(&one).unwrap();
        assert!(matches!(
            all.resolve(None).unwrap_err(),
            FolderError::Nothing { .. }
        ));
        assert_eq!(all.list().unwrap().len(), 0);
    }

    #[test]
    fn a_chosen_folder_must_be_new_or_empty() {
        let scratch = Scratch::new("chosen");
        let path = scratch.0.join("mine");
        assert_eq!(create_at(&path).unwrap(), path);
        assert_eq!(create_at(&path).unwrap(), path);
        std::fs::write(path.join("x"), "").unwrap();
        assert!(matches!(
            create_at(&path).unwrap_err(),
            FolderError::NotEmpty { .. }
        ));
        assert!(create_at(&scratch.0.join("no/such/parent")).is_err());
    }
}

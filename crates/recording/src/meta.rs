//! What is known of a recording before its first event: `meta.json`, written when it is begun.
//!
//! For people, and for the question whether this clew on this machine can replay it. Strings that
//! aren't UTF-8 are shown with replacement characters; the exact ones are in the guest's memory.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub const FILE: &str = "meta.json";

/// The version of the recording's format: log, records and files. A later one can't be read.
pub const FORMAT: u32 = crate::log::VERSION;
/// The version of the rules by which ticks are counted and single instructions step, and of the vdso that programs
/// read. Under others, no place in a recording is where it was.
pub const CLOCK: u32 = 2;

/// A capture of everything that a program was told, from its start.
pub const EXACT: &str = "exact";

/// The order and input of threads that ran in parallel; an exact one can be made of it.
pub const WOVEN: &str = "woven";

/// An exact one of which parts are left out, and their effects are there instead.
pub const SLICE: &str = "slice";

fn exact() -> String {
    EXACT.into()
}

/// A stranger's file of more than this isn't read.
const MOST_BYTES: u64 = 8 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    pub format: u32,
    pub clock: u32,
    /// What kind of capture it is: [`EXACT`], [`WOVEN`], [`SLICE`], or one that a later clew makes. Those before didn't say, and were exact.
    #[serde(default = "exact")]
    pub capture: String,
    /// The version of clew that recorded.
    pub clew: String,
    pub name: String,
    /// The program's file.
    pub program: String,
    pub argv: Vec<String>,
    pub cwd: String,
    /// Nanoseconds since 1970.
    pub started_ns: u64,
    pub pid: i32,
    pub schedule: Schedule,
    pub portable: bool,
    pub machine: Machine,
    /// What it is a part of, if it was cut out of another recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Region>,
}

/// Where a recording was cut out of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// The other's name.
    pub of: String,
    /// Positions there. Without an end it goes on to the process's own.
    pub from: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Which process of it.
    pub pid: i32,
    /// So many events restore the state: the next is the next one there.
    pub prologue: u64,
}

/// How threads took turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// fair, random or pct.
    pub policy: String,
    pub seed: u64,
    /// Change points, for pct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// How much work the run was expected to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// What the kernel was made to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chaos: Option<String>,
    /// What clocks, sleeps and timers followed, if that wasn't real time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub vendor: String,
    pub brand: String,
    /// What the guest was shown of the CPU's features, by the names in `/proc/cpuinfo`.
    pub features: BTreeSet<String>,
    pub kernel: String,
    pub hostname: String,
    pub user: String,
}

#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    #[error("{}: {why}", path.display())]
    Io { path: PathBuf, why: io::Error },
    #[error("{}: damaged, or not a recording: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
}

/// Why a recording can't be replayed by this clew or on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error(
        "recorded by clew {clew} in format {format}; this one reads up to {FORMAT}: replay it with \
         clew {clew}"
    )]
    Format { format: u32, clew: String },
    #[error(
        "recorded by clew {clew}, whose clock counts by rules {clock}, this one by {CLOCK}: replay \
         it with clew {clew}"
    )]
    Clock { clock: u32, clew: String },
    #[error(
        "a capture of the kind {capture:?}, made by clew {clew}; this one replays those of the kind \"{EXACT}\" only: replay \
         it with clew {clew}"
    )]
    Capture { capture: String, clew: String },
    #[error(
        "recorded on {brand}; this CPU hasn't got {}, which the program could see and may \
         use. Replay it on a machine that has, or record with --portable", missing.join(", ")
    )]
    Cpu { brand: String, missing: Vec<String> },
}

impl Meta {
    pub fn read(folder: &Path) -> Result<Meta, MetaError> {
        let path = folder.join(FILE);
        let bytes = read_bounded(&path, MOST_BYTES).map_err(|why| MetaError::Io {
            path: path.clone(),
            why,
        })?;
        let malformed = |why: String| MetaError::Malformed {
            path: path.clone(),
            why,
        };
        let meta: Meta = match serde_json::from_slice(&bytes) {
            Ok(meta) => meta,
            // A later format may have other fields; its number is what matters then.
            Err(why) => return Err(malformed(version_first(&bytes).unwrap_or(why.to_string()))),
        };
        Ok(meta)
    }

    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        text.push(b'\n');
        replace_file(&folder.join(FILE), &text)
    }

    /// Whether this clew can replay it on a machine like `here`.
    pub fn fits(&self, here: &Machine) -> Result<(), Unfit> {
        let clew = || self.clew.clone();
        if !(1..=FORMAT).contains(&self.format) {
            return Err(Unfit::Format {
                format: self.format,
                clew: clew(),
            });
        }
        if self.clock != CLOCK {
            return Err(Unfit::Clock {
                clock: self.clock,
                clew: clew(),
            });
        }
        if ![EXACT, SLICE].contains(&self.capture.as_str()) {
            return Err(Unfit::Capture {
                capture: self.capture.clone(),
                clew: clew(),
            });
        }
        let missing = self.machine.features.difference(&here.features);
        let missing: Vec<String> = missing.cloned().collect();
        if !missing.is_empty() {
            return Err(Unfit::Cpu {
                brand: self.machine.brand.clone(),
                missing,
            });
        }
        Ok(())
    }
}

/// What to say of a file that doesn't parse because it is in another format.
fn version_first(bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
        clew: String,
    }
    let Version { format, clew } = serde_json::from_slice(bytes).ok()?;
    (!(1..=FORMAT).contains(&format)).then(|| Unfit::Format { format, clew }.to_string())
}

/// All of a regular file, if it isn't longer than `most`. Neither links nor FIFOs are opened.
pub(crate) fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other("unbelievably long"));
    }
    Ok(bytes)
}

/// Writes a file so that a reader sees all of it or nothing.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}", std::process::id()));
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    let temporary = path.with_file_name(hidden);
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
pub(crate) fn example(name: &str) -> Meta {
    let features = ["sse2", "avx2"].map(String::from);
    Meta {
        format: FORMAT,
        clock: CLOCK,
        capture: exact(),
        clew: "0.1.0".into(),
        name: name.into(),
        program: "/usr/bin/ls".into(),
        argv: vec!["ls".into(), "-l".into()],
        cwd: "/".into(),
        started_ns: 1_700_000_000_000_000_000,
        pid: 77,
        schedule: Schedule {
            policy: "fair".into(),
            seed: u64::MAX,
            depth: None,
            length: None,
            chaos: None,
            time: None,
        },
        portable: false,
        machine: Machine {
            vendor: "GenuineIntel".into(),
            brand: "A CPU".into(),
            features: features.into(),
            kernel: "Linux 6.1".into(),
            hostname: "here".into(),
            user: "me".into(),
        },
        region: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn what_is_written_is_read_again() {
        let scratch = Scratch::new("meta");
        let meta = example("x");
        meta.write(&scratch.0).unwrap();
        assert_eq!(Meta::read(&scratch.0).unwrap(), meta);
        assert_eq!(scratch.0.read_dir().unwrap().count(), 1);
        // One that doesn't say.
        let mut older = serde_json::to_value(&meta).unwrap();
        older.as_object_mut().unwrap().remove("capture");
        std::fs::write(scratch.0.join(FILE), older.to_string()).unwrap();
        assert_eq!(Meta::read(&scratch.0).unwrap(), meta);
    }

    #[test]
    fn versions_and_missing_features_are_told() {
        let meta = example("x");
        assert_eq!(meta.fits(&meta.machine), Ok(()));
        let mut here = meta.machine.clone();
        here.features.insert("sha_ni".into());
        assert_eq!(meta.fits(&here), Ok(()));
        here.features.remove("avx2");
        let text = meta.fits(&here).unwrap_err().to_string();
        assert!(text.contains("hasn't got avx2"), "{text}");
        let older = Meta {
            format: 1,
            ..meta.clone()
        };
        assert_eq!(older.fits(&meta.machine), Ok(()));
        let newer = Meta {
            format: FORMAT + 1,
            ..meta.clone()
        };
        assert!(matches!(newer.fits(&here), Err(Unfit::Format { .. })));
        let woven = Meta {
            capture: "dreamt".into(),
            ..meta.clone()
        };
        let text = woven.fits(&meta.machine).unwrap_err().to_string();
        assert!(text.contains("of the kind \"dreamt\""), "{text}");
        let other = Meta {
            clock: CLOCK + 1,
            ..meta
        };
        assert!(matches!(other.fits(&here), Err(Unfit::Clock { .. })));
    }

    #[test]
    fn damage_is_told_and_links_are_not_followed() {
        let scratch = Scratch::new("meta-damage");
        let error = |text: &str| {
            std::fs::write(scratch.0.join(FILE), text).unwrap();
            Meta::read(&scratch.0).unwrap_err().to_string()
        };
        assert!(error("{").contains("damaged"));
        let later = error(r#"{"format":9,"clew":"3.0","other":[]}"#);
        assert!(later.contains("replay it with clew 3.0"), "{later}");
        let deep = "[".repeat(1 << 20);
        assert!(error(&deep).contains("damaged"));
        std::fs::remove_file(scratch.0.join(FILE)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", scratch.0.join(FILE)).unwrap();
        assert!(matches!(Meta::read(&scratch.0), Err(MetaError::Io { .. })));
    }
}

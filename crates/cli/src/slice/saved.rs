//! Questions that are kept beside a recording. In: what was asked, and where. Out: a file, and what was asked again.

use std::path::{Path, PathBuf};

use clew_recording::event::StreamId;
use clew_recording::folder::check_name;
use clew_slice::closure::{Bounds, Kinds, Question};
use clew_slice::origin::{Value, register_named};
use clew_timeline::Position;
use serde::{Deserialize, Serialize};

use super::Slice;
use crate::asking::{Failed, WRONG};

/// Of a recording.
const FOLDER: &str = "slices";
const VERSION: u32 = 1;
/// A stranger's file of more than this isn't read.
const LARGEST: u64 = 1 << 20;

#[derive(Debug, Serialize, Deserialize)]
pub struct Saved {
    version: u32,
    /// In words, with its value.
    pub what: String,
    pub stream: StreamId,
    at: String,
    from: Option<String>,
    values: Vec<Kept>,
    here: bool,
    control: bool,
    addresses: bool,
    libraries: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Kept {
    Register {
        thread: u32,
        register: String,
        bytes: std::ops::Range<u8>,
    },
    Memory {
        addr: u64,
        len: u64,
    },
}

fn file(folder: &Path, name: &str) -> Result<PathBuf, Failed> {
    check_name(name).map_err(|error| Failed(WRONG, error.to_string()))?;
    Ok(folder.join(FOLDER).join(format!("{name}.json")))
}

impl Saved {
    pub fn new(
        what: &str,
        stream: StreamId,
        at: Position,
        question: &Question,
        line: &Slice,
        bounds: Bounds,
    ) -> Saved {
        let values = question.values.iter().map(|value| match value {
            Value::Register {
                thread,
                register,
                bytes,
            } => Kept::Register {
                thread: *thread,
                register: format!("{register:?}").to_lowercase(),
                bytes: bytes.clone(),
            },
            &Value::Memory { addr, len } => Kept::Memory { addr, len },
        });
        Saved {
            version: VERSION,
            what: what.into(),
            stream,
            at: at.to_string(),
            from: bounds.from.map(|from| from.to_string()),
            values: values.collect(),
            here: question.here,
            control: !line.data,
            addresses: line.address,
            libraries: line.libraries,
        }
    }

    pub fn write(&self, folder: &Path, name: &str) -> Result<(), Failed> {
        let file = file(folder, name)?;
        let failed = |error: std::io::Error| Failed(1, format!("{}: {error}", file.display()));
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let text = serde_json::to_string_pretty(self).expect("plain data");
        std::fs::write(&file, text + "\n").map_err(failed)
    }

    pub fn read(folder: &Path, name: &str) -> Result<Saved, Failed> {
        let file = file(folder, name)?;
        let length = std::fs::metadata(&file).map(|meta| meta.len());
        let text = match length {
            Ok(length) if length <= LARGEST => std::fs::read(&file).ok(),
            _ => None,
        };
        let text = text.ok_or_else(|| {
            let there = names(folder);
            let there = match there.is_empty() {
                true => "none is saved".into(),
                false => format!("there are: {}", there.join(", ")),
            };
            let how = "clew slice REC WHAT --save NAME saves one";
            Failed(
                WRONG,
                format!("no slice is saved as {name}; {there}\n{how}"),
            )
        })?;
        let damaged = || Failed(WRONG, format!("{}: damaged", file.display()));
        let saved: Saved = serde_json::from_slice(&text).map_err(|_| damaged())?;
        match saved.version {
            VERSION => Ok(saved),
            _ => Err(damaged()),
        }
    }

    /// Where the value is looked at.
    pub fn at(&self) -> Result<Position, Failed> {
        let wrong = |_| {
            Failed(
                WRONG,
                format!("a saved slice names no position: {}", self.at),
            )
        };
        self.at.parse().map_err(wrong)
    }

    pub fn question(&self) -> Result<Question, Failed> {
        let values = self.values.iter().map(|kept| {
            Some(match kept {
                Kept::Register {
                    thread,
                    register,
                    bytes,
                } => {
                    let register = register_named(register)?;
                    let fits = bytes.start < bytes.end && usize::from(bytes.end) <= register.size();
                    fits.then(|| Value::Register {
                        thread: *thread,
                        register,
                        bytes: bytes.clone(),
                    })?
                }
                &Kept::Memory { addr, len } => Value::Memory { addr, len },
            })
        });
        let values: Option<Vec<Value>> = values.collect();
        let values = values.ok_or_else(|| Failed(WRONG, "a saved slice is damaged".into()))?;
        Ok(Question {
            values,
            here: self.here,
        })
    }

    /// Moves are members: what is executed isn't cut into pieces by them.
    pub fn kinds(&self) -> Kinds {
        Kinds {
            control: self.control,
            addresses: self.addresses,
            libraries: self.libraries,
            moves: true,
            ..Kinds::default()
        }
    }

    pub fn from(&self) -> Option<Position> {
        self.from.as_ref()?.parse().ok()
    }
}

/// All that are saved.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join(FOLDER)).into_iter().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            Some(name.strip_suffix(".json")?.to_owned())
        })
        .collect();
    names.sort();
    names
}

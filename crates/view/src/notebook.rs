//! What people write down about a recording. In: notes as the page has them. Out: the same, for all windows; kept in the recording's folder.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// In the recording's folder.
const NAME: &str = "notes.json";
const MOST: usize = 1_000;
const LARGEST: usize = 8 << 20;

pub struct Notebook {
    file: PathBuf,
    version: u64,
    notes: Vec<Value>,
}

impl Notebook {
    /// What was kept before. A file that can't be read is no reason to show nothing.
    pub fn open(folder: &Path) -> Notebook {
        let file = folder.join(NAME);
        let text = std::fs::read(&file).unwrap_or_default();
        let kept: Option<Vec<Value>> = serde_json::from_slice(&text).ok();
        Notebook {
            file,
            version: 1,
            notes: kept.unwrap_or_default(),
        }
    }

    pub fn told(&self) -> Value {
        json!({"version": self.version, "notes": self.notes})
    }

    /// All of them anew, if nobody else was faster; the page then has theirs, and tries again.
    pub fn replace(&mut self, version: u64, notes: Vec<Value>) -> Result<Value, String> {
        if version != self.version {
            return Ok(json!({"version": self.version, "notes": self.notes, "late": true}));
        }
        let text = serde_json::to_vec_pretty(&notes).map_err(|error| error.to_string())?;
        if notes.len() > MOST || text.len() > LARGEST {
            return Err(format!(
                "the notebook is full: {MOST} notes or {} MiB; export it and remove some",
                LARGEST >> 20
            ));
        }
        let partly = self.file.with_extension("json.new");
        let kept =
            std::fs::write(&partly, text).and_then(|()| std::fs::rename(&partly, &self.file));
        self.version += 1;
        self.notes = notes;
        let mut told = self.told();
        // A recording of somebody else may be looked at, too: its notes last as long as the page.
        if let Err(error) = kept {
            told["unkept"] = format!("{} can't be written: {error}", self.file.display()).into();
        }
        Ok(told)
    }
}

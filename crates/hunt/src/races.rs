//! Data races of a run. In: its recording. Out: the first one, in words.
//!
//! A replay with observers takes a process with one thread: it is asked of `clew races`.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::HuntError;

/// There are some.
const FOUND: i32 = 1;

/// The first race of a recording, if it has any.
pub fn first(exe: &Path, folder: &Path) -> Result<Option<String>, HuntError> {
    let asked = Command::new(exe)
        .args(["races", "--json"])
        .arg(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(HuntError::io("looking for races"))?;
    let bad = |why: String| HuntError::Recording {
        path: folder.into(),
        why,
    };
    match asked.status.code() {
        Some(0) => Ok(None),
        Some(FOUND) => {
            let told: Value =
                serde_json::from_slice(&asked.stdout).map_err(|error| bad(error.to_string()))?;
            Ok(Some(words(&told["races"][0])))
        }
        _ => {
            let said = String::from_utf8_lossy(&asked.stderr);
            Err(bad(format!(
                "no races could be looked for: {}",
                said.trim()
            )))
        }
    }
}

/// `race on counter: a.c:9 and a.c:12`.
fn words(race: &Value) -> String {
    let text = |value: &Value| value.as_str().map(String::from);
    let what = text(&race["variable"]).or_else(|| text(&race["address"]));
    let side = |name: &str| {
        let side = &race[name];
        let file = text(&side["file"]);
        let file = file.map(|file| file.rsplit('/').next().unwrap_or_default().to_string());
        match (file, side["line"].as_u64()) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            _ => text(&side["function"])
                .or_else(|| text(&side["pc"]))
                .unwrap_or_default(),
        }
    };
    let what = what.unwrap_or_default();
    format!("race on {what}: {} and {}", side("first"), side("second"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_race_in_words() {
        let race = json!({
            "variable": "total", "address": "0x1000",
            "first": { "file": "/src/a.c", "line": 9, "function": "one", "pc": "0x10" },
            "second": { "file": null, "line": null, "function": "two", "pc": "0x20" },
        });
        assert_eq!(words(&race), "race on total: a.c:9 and two");
        assert_eq!(words(&json!({ "address": "0x8" })), "race on 0x8:  and ");
    }
}

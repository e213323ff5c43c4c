//! `clew hunt merge`: what several parts of a hunt found. In: files with what `clew hunt --json` printed. Out: one report.

use std::ffi::OsString;
use std::path::Path;

use serde_json::{Value, json};

use super::{CANT_HUNT, NOTHING_FOUND};
use crate::text;

const WRONG_LINE: i32 = 2;

pub fn merge(files: &[OsString], as_json: bool) -> i32 {
    if files.is_empty() {
        eprintln!(
            "clew: hunt merge takes the files with what `clew hunt --json` printed (a program of that name: ./merge)"
        );
        return WRONG_LINE;
    }
    let mut parts = Vec::new();
    for file in files {
        match read(Path::new(file)) {
            Ok(part) => parts.push((file.to_string_lossy().into_owned(), part)),
            Err(why) => {
                eprintln!("clew: {}", text::plain(&why));
                return CANT_HUNT;
            }
        }
    }
    let merged = together(&parts);
    if as_json {
        text::print(&format!("{merged}\n"));
    } else {
        text::print(&report(&merged));
    }
    match merged["found"].as_array() {
        Some(found) if !found.is_empty() => 0,
        _ => NOTHING_FOUND,
    }
}

fn read(path: &Path) -> Result<Value, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|why| format!("{name}: {why}"))?;
    let part: Value = serde_json::from_str(&text).map_err(|_| {
        format!("{name} isn't what `clew hunt --json` prints; was that part cut short?")
    })?;
    match part["runs"].is_u64() && part["found"].is_array() {
        true => Ok(part),
        false => Err(format!("{name} isn't what `clew hunt --json` prints")),
    }
}

/// One object as a hunt's own, with the file of its part in each finding.
fn together(parts: &[(String, Value)]) -> Value {
    let sum = |key: &str| -> u64 {
        parts
            .iter()
            .filter_map(|(_, part)| part[key].as_u64())
            .sum()
    };
    let most = |key: &str| {
        parts
            .iter()
            .filter_map(|(_, part)| part[key].as_u64())
            .max()
    };
    let seconds: f64 = parts
        .iter()
        .filter_map(|(_, part)| part["seconds"].as_f64())
        .sum();
    let mut found: Vec<Value> = Vec::new();
    for (file, part) in parts {
        for one in part["found"].as_array().into_iter().flatten() {
            let mut one = one.clone();
            one["part"] = json!(file);
            found.push(one);
        }
    }
    // The fewest preemptions first: it is read most easily.
    found.sort_by_key(|one| one["preemptions"].as_u64().unwrap_or(u64::MAX));
    json!({
        "parts": parts.len(),
        "runs": sum("runs"),
        "failed": sum("failed"),
        "seconds": seconds,
        "length": most("length"),
        "threads": most("threads"),
        "found": found,
    })
}

fn report(merged: &Value) -> String {
    let number = |key: &str| merged[key].as_u64().unwrap_or(0);
    let mut out = String::new();
    for one in merged["found"].as_array().into_iter().flatten() {
        let word = |key: &str| text::plain(one[key].as_str().unwrap_or("?"));
        out.push_str(&format!(
            "found: {}, {}, by {} ({}), in {}\n  folder   {}\n",
            word("name"),
            word("why"),
            word("strategy"),
            text::counted(one["preemptions"].as_u64().unwrap_or(0), "preemption"),
            word("part"),
            word("folder"),
        ));
    }
    out.push_str(&format!(
        "{} in {}, {} failed, {} kept\n",
        text::counted(number("runs"), "run"),
        text::counted(number("parts"), "part"),
        text::count(number("failed")),
        text::count(merged["found"].as_array().map_or(0, Vec::len) as u64),
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up() {
        let part = |runs: u64, preemptions: &[u64]| {
            let found: Vec<Value> = preemptions
                .iter()
                .map(|n| json!({"name": format!("x-{n}"), "why": "exit 1", "preemptions": n}))
                .collect();
            json!({"runs": runs, "failed": found.len(), "seconds": 1.5, "found": found})
        };
        let parts = [
            ("a.json".to_string(), part(100, &[7])),
            ("b.json".to_string(), part(50, &[])),
            ("c.json".to_string(), part(60, &[3, 9])),
        ];
        let merged = together(&parts);
        assert_eq!(merged["runs"], 210);
        assert_eq!(merged["failed"], 3);
        let names: Vec<&str> = merged["found"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["x-3", "x-7", "x-9"]);
        assert_eq!(merged["found"][1]["part"], "a.json");
        assert!(report(&merged).ends_with("210 runs in 3 parts, 3 failed, 3 kept\n"));
    }
}

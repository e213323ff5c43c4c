//! Lists the test files of a folder, by name, so that suites need no registry.

use std::fs;
use std::path::{Path, PathBuf};

/// A test file and the name its tests go by: its path below the folder, without suffix.
pub struct Source {
    pub name: String,
    pub path: PathBuf,
}

/// All files below `folder` with one of the `suffixes`, in order of their names.
/// Folders named `lib` hold parts of other tests and are left out.
pub fn list(folder: &Path, suffixes: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    walk(folder, folder, suffixes, &mut found);
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn walk(root: &Path, folder: &Path, suffixes: &[&str], found: &mut Vec<Source>) {
    let entries = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            if !path.ends_with("lib") {
                walk(root, &path, suffixes, found);
            }
            continue;
        }
        let suffix = path.extension().and_then(|s| s.to_str()).unwrap_or("");
        if suffixes.contains(&suffix) {
            let name = path.strip_prefix(root).expect("found below root");
            let name = name.with_extension("").to_string_lossy().into_owned();
            found.push(Source { name, path });
        }
    }
}

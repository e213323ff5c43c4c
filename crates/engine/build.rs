//! Gives the engine a version that changes with its sources: saved translations made by another
//! version must never be used.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=src");
    let mut hasher = DefaultHasher::new();
    hash_tree(Path::new("src"), &mut hasher);
    println!("cargo:rustc-env=CLEW_ENGINE_VERSION={}", hasher.finish());
}

fn hash_tree(dir: &Path, hasher: &mut DefaultHasher) {
    let entries = std::fs::read_dir(dir).expect("the sources are readable");
    let mut paths: Vec<_> = entries
        .map(|e| e.expect("a directory entry").path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            hash_tree(&path, hasher);
        } else {
            path.hash(hasher);
            std::fs::read(&path).expect("a source file").hash(hasher);
        }
    }
}

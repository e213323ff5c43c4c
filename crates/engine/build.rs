//! Gives the engine a version that changes with its sources and with the decoder that it uses: saved translations
//! made by another version must never be used.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=src");
    let mut hasher = DefaultHasher::new();
    hash_tree(Path::new("src"), &mut hasher);
    decoder().hash(&mut hasher);
    println!("cargo:rustc-env=CLEW_ENGINE_VERSION={}", hasher.finish());
}

/// What the workspace's lock file says of iced-x86: version, source and checksum.
fn decoder() -> String {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let lock = Path::new(&folder)
        .ancestors()
        .map(|folder| folder.join("Cargo.lock"))
        .find(|lock| lock.exists())
        .expect("there is a Cargo.lock: translations depend on the decoder's version");
    println!("cargo:rerun-if-changed={}", lock.display());
    let text = std::fs::read_to_string(&lock).expect("Cargo.lock is readable");
    let packages = text.split("[[package]]");
    let is_decoder = |package: &&str| package.lines().any(|line| line == "name = \"iced-x86\"");
    let found: Vec<&str> = packages.filter(is_decoder).collect();
    assert_eq!(found.len(), 1, "Cargo.lock names one iced-x86");
    found[0].trim().to_owned()
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

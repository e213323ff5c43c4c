//! Directories for what tests make: compiled guests, and one working directory per run.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// `target/<triple>/<profile>`'s sibling folder for things that tests make and keep.
pub fn root() -> PathBuf {
    let exe = env::current_exe().expect("this test has a path");
    let target = exe
        .ancestors()
        .nth(3)
        .expect("test is inside a target folder");
    target.join("clew-tests")
}

/// The repository's `tests` folder.
pub fn sources() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// An empty directory for the test `name`. Both runs of a test use the same one in turn,
/// so that paths in their outputs agree.
pub fn fresh(name: &str) -> PathBuf {
    let dir = root().join("run").join(name.replace('/', "."));
    empty(&dir);
    dir
}

/// Makes `dir` an empty directory, whatever was left in it.
pub fn empty(dir: &Path) {
    if dir.exists() {
        fs::remove_dir_all(dir)
            .unwrap_or_else(|error| panic!("cannot clear {}: {error}", dir.display()));
    }
    fs::create_dir_all(dir)
        .unwrap_or_else(|error| panic!("cannot create {}: {error}", dir.display()));
}

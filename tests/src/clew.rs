//! Finds the `clew` under test: `$CLEW`, or the one built beside this test.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of the command under test.
///
/// `CLEW` may name another build, or a stand-in such as `tests/native-clew`, which runs
/// the program natively and so tests the tests.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(find)
}

fn find() -> PathBuf {
    if let Some(path) = env::var_os("CLEW") {
        return std::path::absolute(path).expect("CLEW is a path");
    }
    // target/<triple>/<profile>/deps/this-test
    let exe = env::current_exe().expect("this test has a path");
    let profile = exe
        .ancestors()
        .nth(2)
        .expect("test is inside a target folder");
    let clew = profile.join("clew");
    if !clew.exists() {
        build(profile);
    }
    assert!(
        clew.exists(),
        "{} is missing: cargo build -p clew, or set CLEW",
        clew.display()
    );
    clew
}

/// `cargo test -p clew-tests` alone doesn't build the command; do it once.
fn build(profile: &Path) {
    let Some(cargo) = env::var_os("CARGO") else {
        return;
    };
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", "clew"]);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let built = command.status().is_ok_and(|status| status.success());
    assert!(built, "cargo build --package clew failed");
}

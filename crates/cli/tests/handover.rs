//! What one clew process tells the next: what can't be read ends the process.

use std::process::Command;

/// The arguments are a guest's, whatever they look like.
#[test]
fn a_bad_handover_is_fatal() {
    for variable in [
        "",
        "1",
        "2,exe=/bin/true",
        "1,exe=/bin/true,unknown=1",
        "1,fd=x",
    ] {
        let got = Command::new(env!("CARGO_BIN_EXE_clew"))
            .env_clear()
            .env("CLEW_ENGINE", variable)
            .args(["run", "/bin/echo", "a guest's argument"])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&got.stderr);
        assert_eq!(got.status.code(), Some(125), "{variable:?}: {stderr}");
        assert!(got.stdout.is_empty(), "{variable:?}: {got:?}");
        assert!(
            stderr.starts_with("clew: ") && stderr.contains("CLEW_ENGINE"),
            "{stderr}"
        );
    }
}

#[test]
fn other_variables_are_the_guests() {
    let got = Command::new(env!("CARGO_BIN_EXE_clew"))
        .env_clear()
        .env("CLEW_ENGINES", "1")
        .args(["run", "--no-cache", "/usr/bin/env"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&got.stdout), "CLEW_ENGINES=1\n");
}

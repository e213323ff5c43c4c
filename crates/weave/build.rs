//! Compiles the library that is preloaded: `preload/src` → a shared object in OUT_DIR, which is then part of this crate.
//!
//! It is for programs of any C library and names none: it needs Rust's `core` only, so the target that clew itself is
//! built for serves, and its symbols have no versions, so any glibc from Debian 11 on will do.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Libraries that it needs to be loaded where they are apart from the C library, as before glibc 2.34. Empty ones with
/// these names are linked, so that the build needs no C library of any kind.
const NEEDED: [&str; 2] = ["libdl.so.2", "libpthread.so.0"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=preload/src");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let empty = out.join("empty.c");
    std::fs::write(&empty, "").expect("OUT_DIR can be written");
    for name in NEEDED {
        let soname = format!("-Wl,-soname,{name}");
        run(Command::new("cc")
            .args(["-shared", "-nostdlib", &soname, "-o"])
            .arg(out.join(name))
            .arg(&empty));
    }
    let library = out.join("weave.so");
    let mut link = vec!["-nostdlib", "-nostartfiles", "-Wl,--no-as-needed"];
    let needed = NEEDED.map(|name| out.join(name).to_string_lossy().into_owned());
    link.extend(needed.iter().map(String::as_str));
    // First of all constructors: others already use the standard streams.
    link.extend([
        "-Wl,-z,initfirst",
        "-Wl,-z,now",
        "-Wl,-soname,libclew-weave.so",
    ]);
    let mut command = Command::new(rustc);
    command
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "cdylib",
            "--crate-name",
            "clew_weave_preload",
        ])
        .args([
            "--target",
            "x86_64-unknown-linux-musl",
            "-C",
            "target-feature=-crt-static",
        ])
        .args([
            "-C",
            "panic=abort",
            "-C",
            "opt-level=3",
            "-C",
            "codegen-units=1",
            "-C",
            "strip=symbols",
        ])
        .args([
            "-C",
            "linker=cc",
            "-C",
            "link-self-contained=no",
            "-C",
            "default-linker-libraries=no",
        ])
        .args(
            link.iter()
                .flat_map(|arg| ["-C".to_owned(), format!("link-arg={arg}")]),
        )
        .arg(Path::new("preload/src/lib.rs"))
        .arg("-o")
        .arg(&library);
    run(&mut command);
}

fn run(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?} failed");
}

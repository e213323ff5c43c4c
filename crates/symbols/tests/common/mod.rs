//! Compiles the programs that tests look at, and asks other tools what they say about them.
#![allow(dead_code)] // Each test file uses a part of it.

use clew_symbols::{DebugSearch, Module};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory that is removed with everything in it.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("clew-symbols-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
}

/// Compiles a program of tests/programs; the compiler follows from the name.
pub fn compile(scratch: &Scratch, name: &str, flags: &[&str]) -> PathBuf {
    let tag: String = flags
        .join("")
        .chars()
        .filter(|c| c.is_alphanumeric())
        .collect();
    let out = scratch.join(&format!("{}-{tag}", name.replace('.', "-")));
    let compiler = match name.rsplit_once('.').unwrap().1 {
        "c" => "gcc",
        "cpp" => "g++",
        "rs" => "rustc",
        other => panic!("no compiler for {other}"),
    };
    run(Command::new(compiler)
        .args(flags)
        .arg("-o")
        .arg(&out)
        .arg(source(name))
        .current_dir(scratch.path()));
    out
}

/// Runs a command that must succeed; its output.
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{errors}",
        output.status
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that reads from standard input.
pub fn run_with_input(command: &mut Command, input: String) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn open(path: &Path) -> Module {
    Module::open(path, path, &DebugSearch::default()).unwrap()
}

/// Address and size of the section, as readelf tells.
pub fn section(program: &Path, name: &str) -> Option<(u64, u64)> {
    let table = run(Command::new("readelf").args(["-SW"]).arg(program));
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(']').nth(1)?.split_whitespace().collect();
        let hex = |at: usize| u64::from_str_radix(fields.get(at)?, 16).ok();
        (fields.first() == Some(&name)).then(|| Some((hex(2)?, hex(4)?)))?
    })
}

//! What people install: completions, manuals, `make install`, the Debian package, the tarball. Each is made by the scripts that people call,
//! and used where nothing else of clew is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder =
            std::env::temp_dir().join(format!("clew-package-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn clew() -> &'static str {
    env!("CARGO_BIN_EXE_clew")
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs it, and wants it to succeed; what it printed.
fn ran(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn package(words: &[&str]) -> Command {
    let mut command = Command::new(top().join("tools/package.sh"));
    command.args(words);
    command
}

/// The commands that `clew --help` lists.
fn commands() -> Vec<String> {
    let help = ran(Command::new(clew()).arg("--help"));
    let line = |line: &str| {
        let rest = line.strip_prefix("  ")?;
        let word = rest.split_whitespace().next()?;
        let named = rest.starts_with(word)
            && word != "clew"
            && word.chars().all(|c| c.is_ascii_lowercase());
        (named && rest.contains("  ")).then(|| word.to_string())
    };
    let all: Vec<String> = help.lines().filter_map(line).collect();
    assert!(all.len() > 20, "{all:?}\n{help}");
    all
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Shells take what is printed for them, and offer every command.
#[test]
fn completions() {
    let folder = Folder::new("completions");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = ran(Command::new(clew()).args(["completions", shell]));
        for command in commands() {
            assert!(text.contains(&command), "{shell}: {command}");
        }
        fs::write(folder.0.join(shell), text).unwrap();
    }
    // The shell itself completes.
    let script = r#"
        . ./bash
        COMP_WORDS=(clew "$1"); COMP_CWORD=1
        _clew clew "$1" clew
        printf '%s\n' "${COMPREPLY[@]}""#;
    for (typed, expected) in [("rec", "record"), ("vie", "view"), ("com", "completions")] {
        let mut bash = Command::new("bash");
        bash.current_dir(&folder.0)
            .args(["-c", script, "bash", typed]);
        let offered = ran(&mut bash);
        assert!(
            offered.lines().any(|line| line == expected),
            "{typed}: {offered}"
        );
    }
    for shell in ["zsh", "fish"] {
        if has(shell) {
            ran(Command::new(shell).arg("-n").arg(folder.0.join(shell)));
        }
    }
    let output = Command::new(clew()).args(["completions", "tcsh"]).output();
    assert_eq!(output.unwrap().status.code(), Some(2));
}

/// A manual for each command, with all its flags.
#[test]
fn manuals() {
    let folder = Folder::new("manuals");
    ran(Command::new(clew()).arg("man").arg(&folder.0));
    let read = |name: &str| {
        let file = folder.0.join(name);
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    assert!(read("clew.1").starts_with(".ie"), "{}", read("clew.1"));
    for command in commands().iter().filter(|name| *name != "help") {
        let page = read(&format!("clew-{command}.1")).replace("\\-", "-");
        let help = ran(Command::new(clew()).args([command, "--help"]));
        let words = help.split_whitespace();
        let flags = words.filter(|word| word.starts_with("--") && word.len() > 2);
        for flag in flags {
            let ends = |c: char| !c.is_ascii_alphanumeric() && c != '-';
            let flag = flag.split(ends).next().unwrap_or(flag);
            assert!(page.contains(flag), "{command}: {flag}\n{page}");
        }
    }
    if has("groff") {
        for file in fs::read_dir(&folder.0).unwrap() {
            let mut groff = Command::new("groff");
            groff
                .args(["-Kutf8", "-man", "-Tutf8", "-ww"])
                .arg(file.unwrap().path());
            let Output { status, stderr, .. } = groff.output().unwrap();
            let complaints = String::from_utf8_lossy(&stderr);
            assert!(
                status.success() && complaints.trim().is_empty(),
                "{groff:?}: {complaints}"
            );
        }
    }
}

/// What is installed is all there, and works.
#[test]
fn installed() {
    let folder = Folder::new("installed");
    let root = folder.0.join("usr");
    ran(&mut package(&["install", clew(), root.to_str().unwrap()]));
    for file in [
        "bin/clew",
        "share/man/man1/clew.1",
        "share/man/man1/clew-record.1",
        "share/bash-completion/completions/clew",
        "share/zsh/site-functions/_clew",
        "share/fish/vendor_completions.d/clew.fish",
        "share/doc/clew/README.md",
        "share/doc/clew/docs/view.md",
    ] {
        assert!(root.join(file).is_file(), "{file}");
    }
    let mut run = Command::new(root.join("bin/clew"));
    run.args(["run", "/bin/echo", "hello"]);
    run.env("CLEW_CACHE", folder.0.join("cache"));
    assert_eq!(ran(&mut run), "hello\n");
}

/// The package and the tarball, in a root that was just made by debootstrap and in one with nothing in it.
#[test]
#[ignore = "needs root, debootstrap and the network; some minutes"]
fn clean_roots() {
    let script = top().join("tools/clean-root.sh");
    let folder = Folder::new("roots");
    let said = ran(Command::new(script).arg(clew()).arg(&folder.0));
    for line in [
        "bare: works",
        "tarball: works",
        "deb: works",
        "make install: works",
    ] {
        assert!(said.lines().any(|one| one == line), "{line}\n{said}");
    }
}

//! Guests of these tests: built, recorded, and asked about by the command.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libtest_mimic::{Arguments, Trial};

/// Runs these by name, one after the other.
pub fn tests(trials: Vec<Trial>) -> ! {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit()
}

pub fn test(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        body();
        Ok(())
    })
}

/// Numbers that look random (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end.max(1)
    }
}

fn scratch() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("clew-order-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The command under test: `CLEW`, or the one that was built beside this test.
pub fn command() -> Command {
    let path = std::env::var_os("CLEW")
        .map(PathBuf::from)
        .unwrap_or_else(|| {
            let here = std::env::current_exe().unwrap();
            here.parent().and_then(Path::parent).unwrap().join("clew")
        });
    assert!(
        path.exists(),
        "{} isn't built: cargo build --release -p clew",
        path.display()
    );
    let mut command = Command::new(path);
    command.env("CLEW_DIR", scratch());
    command
}

/// Compiles a program's text.
pub fn build(name: &str, text: &str, flags: &[&str]) -> PathBuf {
    let source = scratch().join(format!("{name}.c"));
    std::fs::write(&source, text).unwrap();
    compile(&source, name, flags)
}

/// Compiles a guest of this folder.
pub fn guest(name: &str, flags: &[&str]) -> PathBuf {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests");
    compile(&guests.join(format!("{name}.c")), name, flags)
}

pub fn compile(source: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let program = scratch().join(name);
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let built = Command::new(compiler)
        .args(["-O1", "-g", "-pthread", "-o"])
        .args([&program, source])
        .args(flags)
        .status()
        .unwrap();
    assert!(built.success());
    program
}

/// Records a program; the recording, and what it printed.
pub fn recorded(program: &Path, options: &[&str], input: Option<&str>) -> (PathBuf, String) {
    let folder = program.with_extension("rec");
    let _ = std::fs::remove_dir_all(&folder);
    let stdin = program.with_extension("input");
    std::fs::write(&stdin, input.unwrap_or_default()).unwrap();
    let recorded = command()
        .args(["record", "-o"])
        .arg(&folder)
        .args(options)
        .arg("--")
        .arg(program)
        .stdin(std::fs::File::open(&stdin).unwrap())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{}", recorded.status);
    (folder, String::from_utf8(recorded.stdout).unwrap())
}

pub fn record(program: &Path, options: &[&str], input: Option<&str>) -> PathBuf {
    recorded(program, options, input).0
}

/// What the command says, which must end with that status.
pub fn ask(words: &[&str], status: i32) -> String {
    let asked = command().args(words).output().unwrap();
    let (out, err) = (&asked.stdout, &asked.stderr);
    let text = String::from_utf8(out.clone()).unwrap();
    assert_eq!(
        asked.status.code(),
        Some(status),
        "{words:?}\n{text}\n{}",
        String::from_utf8_lossy(err)
    );
    text
}

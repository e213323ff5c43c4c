//! Guests for these tests: compiled, recorded by the command, opened as debuggers; and what gdb says of the same program.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clew_debugger::{Debugger, Process, Settings};
use clew_engine::program::Options;
use clew_recording::reader::Recording;
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

/// A compiled and recorded guest.
pub struct Guest {
    pub folder: PathBuf,
    pub program: PathBuf,
    pub source: PathBuf,
    /// What it printed.
    pub output: String,
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Guest {
    /// Compiles and records; `source` is a file of `guests`.
    pub fn new(source: &str, flags: &[&str]) -> Guest {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../debugger/tests/guests");
        let path = path.join(source);
        let name = format!(
            "clew-debugger-{}-{source}{}",
            std::process::id(),
            flags.join("")
        );
        let folder = std::env::temp_dir().join(name.replace(['=', ',', '/'], "-"));
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join("guest");
        let compiler = match source.rsplit_once('.').unwrap().1 {
            "c" => "cc",
            "cpp" => "c++",
            _ => "rustc",
        };
        let mut line = Command::new(compiler);
        // Libraries come behind who needs them.
        let (libraries, flags): (Vec<&str>, Vec<&str>) =
            flags.iter().partition(|flag| flag.starts_with("-l"));
        line.arg("-g")
            .args(flags)
            .arg("-o")
            .arg(&program)
            .arg(&path)
            .args(libraries);
        assert!(line.status().unwrap().success(), "{line:?}");
        let recorded = Command::new(clew())
            .args(["record", "-o"])
            .arg(folder.join("rec"))
            .arg("--")
            .arg(&program)
            .env("CLEW_DIR", &folder)
            .stderr(Stdio::null())
            .output()
            .unwrap();
        assert!(recorded.status.success(), "{recorded:?}");
        Guest {
            output: String::from_utf8(recorded.stdout).unwrap(),
            folder,
            program,
            source: path,
        }
    }

    /// Compiles and records another program in C, as `NAME.rec` in the same folder.
    pub fn record_another(&self, source: &Path, name: &str) {
        let program = self.folder.join(name);
        let made = Command::new("cc")
            .args(["-g", "-O0", "-o"])
            .arg(&program)
            .arg(source)
            .status();
        assert!(made.unwrap().success());
        let recorded = Command::new(clew())
            .args(["record", "-o"])
            .arg(self.folder.join(format!("{name}.rec")))
            .arg(&program)
            .env("CLEW_DIR", &self.folder)
            .stderr(Stdio::null())
            .status();
        recorded.unwrap();
    }

    pub fn open(&self) -> Debugger {
        self.open_with(None, None)
    }

    /// With so many processes at once, and long ways in parts of so much work.
    pub fn open_with(&self, jobs: Option<usize>, stretch: Option<u64>) -> Debugger {
        let recording = Recording::open(&self.folder.join("rec")).unwrap();
        let settings = Settings {
            program: Some(clew()),
            jobs,
            stretch,
            ..Settings::new(Options::default())
        };
        Debugger::open(recording, Process::default(), settings).unwrap()
    }

    /// Runs a command of clew; `REC` is the recording. Status, output, errors.
    pub fn clew(&self, words: &[&str]) -> (i32, String, String) {
        let recording = self.folder.join("rec");
        let words = words.iter().map(|word| match *word {
            "REC" => recording.as_os_str(),
            word => std::ffi::OsStr::new(word),
        });
        let ran = Command::new(clew())
            .args(words)
            .env("CLEW_DIR", &self.folder)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let status = ran.status.code().unwrap_or(-1);
        (status, text(ran.stdout), text(ran.stderr))
    }

    /// The number of the line with this text.
    pub fn line(&self, text: &str) -> u32 {
        let source = std::fs::read_to_string(&self.source).unwrap();
        let found = source.lines().position(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("no line has {text}")) as u32 + 1
    }

    /// What a script in gdb's Python prints, on the program itself.
    pub fn gdb(&self, script: &str) -> Vec<String> {
        let file = self.folder.join("script.py");
        std::fs::write(&file, script).unwrap();
        let output = Command::new("gdb")
            .args(["-nx", "-batch", "-iex", "set debuginfod enabled off"])
            .args(["-iex", "set disable-randomization on"])
            .args(["-iex", "set width 0"])
            .arg("-x")
            .arg(&file)
            .arg(&self.program)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().filter_map(|line| line.strip_prefix("@ "));
        let lines: Vec<String> = lines.map(str::to_string).collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!lines.is_empty(), "{text}\n{errors}");
        lines
    }
}

/// The command under test: `CLEW`, or the one that was built beside this test.
pub fn clew() -> PathBuf {
    if let Some(path) = std::env::var_os("CLEW") {
        return path.into();
    }
    let here = std::env::current_exe().unwrap();
    let built = here.parent().and_then(Path::parent).unwrap().join("clew");
    assert!(
        built.exists(),
        "{} isn't built: cargo build --release -p clew",
        built.display()
    );
    built
}

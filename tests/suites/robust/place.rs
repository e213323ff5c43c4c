//! A folder for one trial: its recordings, and clew commands that use them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use clew_tests::run::{Job, Outcome};
use clew_tests::{clew, scratch};
use libtest_mimic::Failed;

pub struct Place {
    pub dir: PathBuf,
}

/// Statuses of `clew replay`.
pub const CUT_OFF: i32 = 123;
pub const DIVERGED: i32 = 124;
pub const UNABLE: i32 = 125;

impl Place {
    pub fn new(name: &str) -> Place {
        let dir = scratch::fresh(&format!("robust.{}", name.replace([' ', ','], "_")));
        let place = Place { dir };
        scratch::empty(&place.recordings());
        let _ = fs::set_permissions(place.recordings(), fs::Permissions::from_mode(0o700));
        place
    }

    pub fn recordings(&self) -> PathBuf {
        PathBuf::from(format!("{}-recordings", self.dir.display()))
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        self.recordings().join(name)
    }

    /// A clew command, to be run to its end.
    pub fn job(&self, args: &[&str]) -> Job {
        let mut job = Job::new(clew::path(), &self.dir).args(args.iter().copied());
        let all = self.recordings().to_string_lossy().into_owned();
        job.env.push(("CLEW_DIR".into(), all));
        job
    }

    pub fn clew(&self, args: &[&str]) -> Outcome {
        self.job(args).run()
    }

    /// The same, to be started by the caller, with its output in a pipe and in a process group of
    /// its own.
    pub fn command(&self, args: &[&str]) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = self.job(args).command();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        command
    }

    /// Records to the end.
    pub fn record(&self, name: &str, program: &[&str]) -> Result<Outcome, Failed> {
        let args = [&["record", "-n", name][..], program].concat();
        let outcome = self.clew(&args);
        let status = outcome.status.and_then(|status| status.code());
        match status {
            Some(0) => Ok(outcome),
            _ => Err(format!("{}: {}", outcome.ending(), outcome.printed()).into()),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What went wrong may be of interest.
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(self.recordings());
        }
    }
}

/// The program with all the behaviours, compiled once.
pub fn program() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites/robust/programs.c");
        let program = scratch::root().join("robust-programs");
        // Tests are processes of their own: none may find it half made, or busy.
        let own = program.with_extension(std::process::id().to_string());
        let compiled = Command::new("cc")
            .args(["-O1", "-w", "-pthread", "-o"])
            .args([&own, &source])
            .status();
        assert!(compiled.is_ok_and(|status| status.success()), "cc failed");
        std::fs::rename(&own, &program).expect("in the same folder");
        program.to_string_lossy().into_owned()
    })
}

pub fn code(outcome: &Outcome) -> Option<i32> {
    outcome.status.and_then(|status| status.code())
}

pub fn require(good: bool, why: impl FnOnce() -> String) -> Result<(), Failed> {
    if good { Ok(()) } else { Err(why().into()) }
}

/// Random numbers from a seed (xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.word() >> 16) % n
    }

    pub fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

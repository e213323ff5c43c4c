//! The ways to run a row's command: natively, under clew, and under two other translators.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::measure::{self, Sample};
use crate::rows::{Measure, Row};

pub struct Translator {
    pub name: &'static str,
    /// What goes before the command; empty: native.
    prefix: Vec<PathBuf>,
}

impl Translator {
    /// All of them, native first.
    pub fn all(clew: &Path) -> Vec<Translator> {
        let words = |words: &[&str]| words.iter().map(PathBuf::from).collect();
        vec![
            Translator {
                name: "native",
                prefix: Vec::new(),
            },
            Translator {
                name: "clew",
                prefix: vec![clew.to_owned(), "run".into(), "--".into()],
            },
            Translator {
                name: "valgrind",
                prefix: words(&[
                    "valgrind",
                    "--tool=none",
                    "--quiet",
                    "--trace-children=yes",
                    "--smc-check=all-non-file",
                ]),
            },
            Translator {
                name: "qemu",
                prefix: words(&["qemu-x86_64"]),
            },
        ]
    }

    pub fn is_wanted(&self, only: &[String]) -> bool {
        self.is_native() || only.is_empty() || only.iter().any(|name| name == self.name)
    }

    fn is_native(&self) -> bool {
        self.prefix.is_empty()
    }

    fn is_other(&self) -> bool {
        matches!(self.name, "valgrind" | "qemu")
    }

    /// The others are there for scale and slow: fewer runs do.
    pub fn most_runs(&self, runs: usize) -> usize {
        if self.is_other() { runs.min(1) } else { runs }
    }

    /// The first run fills caches, the system's and clew's own.
    pub fn needs_warm_up(&self) -> bool {
        !self.is_other()
    }

    /// Runs the row once.
    pub fn run(&self, row: &Row, dir: &Path) -> Result<Sample, String> {
        if self.name == "qemu" && row.children {
            return Err("does not follow children".to_owned());
        }
        let limit = Duration::from_secs(if self.is_other() { 60 } else { 300 });
        let repeat = match row.measure {
            Measure::Wall { repeat } if self.is_other() => repeat.min(3),
            Measure::Wall { repeat } => repeat,
            Measure::Cpu => 1,
        };
        let mut total: Option<Sample> = None;
        for _ in 0..repeat {
            let input = input(row.input, dir)?;
            let sample = measure::run(&mut self.command(row, dir), input, limit)?;
            total = Some(match total {
                None => sample,
                Some(sum) => Sample {
                    cpu: sum.cpu + sample.cpu,
                    wall: sum.wall + sample.wall,
                    max_rss_kib: sum.max_rss_kib.max(sample.max_rss_kib),
                },
            });
        }
        let sum = total.expect("a row runs at least once");
        Ok(Sample {
            cpu: sum.cpu / repeat,
            wall: sum.wall / repeat,
            ..sum
        })
    }

    fn command(&self, row: &Row, dir: &Path) -> Command {
        command(&self.prefix, row.command, dir)
    }
}

/// The command with what goes before it, in the same surroundings for everyone.
pub fn command(prefix: &[PathBuf], row: &[&str], dir: &Path) -> Command {
    let program = row.first().map(|program| find(program, dir));
    let mut words = prefix.iter().cloned().chain(program);
    let mut command = Command::new(words.next().expect("a program"));
    command
        .args(words)
        .args(row.iter().skip(1))
        .current_dir(dir);
    command.env("LANG", "C.UTF-8").env("PYTHONHASHSEED", "0");
    command.env("PERL_HASH_SEED", "0").env_remove("LD_PRELOAD");
    command
}

/// qemu does not look in PATH, so everyone gets a path.
fn find(program: &str, dir: &Path) -> PathBuf {
    if program.starts_with("./") {
        return dir.join(program);
    }
    if program.starts_with('/') {
        return PathBuf::from(program);
    }
    let places = ["/usr/bin", "/bin", "/usr/local/bin"];
    let found = places
        .iter()
        .map(|place| Path::new(place).join(program))
        .find(|path| path.exists());
    found.unwrap_or_else(|| PathBuf::from(program))
}

/// A file for standard input.
pub fn input(name: Option<&str>, dir: &Path) -> Result<Option<File>, String> {
    let open = |name| File::open(dir.join(name)).map_err(|error| format!("{name}: {error}"));
    name.map(open).transpose()
}

//! One recording for one trial, and the ways to look at it: gdb in batch, gdb by machine, `clew watch`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use clew_tests::compare::report;
use clew_tests::header::{Ending, Header};
use clew_tests::mi::{Mi, Stop};
use clew_tests::recorded::Recording;
use clew_tests::run::{Job, Outcome};
use clew_tests::{compile, guests, scratch};
use libtest_mimic::{Failed, Trial};

/// A trial gets its name, to name its folder for it.
pub type Check = fn(&str) -> Result<(), Failed>;

pub fn trials(group: &str, checks: &[(&'static str, Check)]) -> Vec<Trial> {
    let trial = |&(name, check): &(&'static str, Check)| {
        let name = format!("{group}/{name}");
        let folder = format!("travel.{}", name.replace([' ', ',', '\''], "_"));
        Trial::test(name, move || check(&folder))
    };
    checks.iter().map(trial).collect()
}

/// A program that was recorded.
pub struct Place {
    /// The program as it was run natively.
    pub job: Job,
    pub made: Recording,
    /// Its source, where it is one of ours.
    source: Option<PathBuf>,
}

impl Place {
    /// Records a guest of `guests/travel` in its first build.
    pub fn guest(test: &str, file: &str) -> Result<Place, Failed> {
        Place::guest_with(test, file, None, &[])
    }

    /// The same in another build, or with other arguments.
    pub fn guest_with(
        test: &str,
        file: &str,
        variant: Option<&str>,
        args: &[&str],
    ) -> Result<Place, Failed> {
        let folder = scratch::sources().join("guests");
        let source = match file.contains('/') {
            true => folder.join(file),
            false => folder.join("travel").join(file),
        };
        let mut header = Header::read(&source);
        if !args.is_empty() {
            header.args = args.iter().map(|&arg| arg.into()).collect();
        }
        let first = compile::variants(&source, &header).swap_remove(0);
        let job = guests::job(test, &source, &header, variant.unwrap_or(&first))?;
        Place::record(job, Some(source), &header.status, &[])
    }

    /// Records a program of the distribution, which must end well.
    pub fn program(test: &str, program: &str, args: &[&str]) -> Result<Place, Failed> {
        let job = Job::new(program, scratch::fresh(test)).args(args.iter().copied());
        Place::record(job, None, &Ending::Exit(0), &[])
    }

    /// Records `job`, with options for `clew record`.
    pub fn record(
        job: Job,
        source: Option<PathBuf>,
        ending: &Ending,
        options: &[&str],
    ) -> Result<Place, Failed> {
        let made = Recording::of(&job, options);
        let outcome = made.job.run();
        if !outcome.ended(ending) {
            return Err(report(
                "the recording failed",
                &outcome,
                &[("record", &made.job)],
            ));
        }
        Ok(Place { job, made, source })
    }

    /// The same program, another recording of it.
    pub fn with(self, made: Recording) -> Place {
        Place { made, ..self }
    }

    /// The line of the guest's source with that mark.
    pub fn line(&self, mark: &str) -> u32 {
        line(self.source.as_deref().expect("a guest of ours"), mark)
    }

    /// `clew debug` of it with arguments for gdb.
    pub fn debug(&self, options: &[&str], gdb: &[&str]) -> Job {
        let mut all = options.to_vec();
        all.extend(["--", "-nx", "-q"]);
        all.extend(gdb);
        self.made.command("debug", &all)
    }

    /// What gdb prints for a script, from the beginning of the recording.
    pub fn batch(&self, script: &str) -> Result<String, Failed> {
        self.batch_with(&["--at", "start"], script)
    }

    /// What gdb prints for a script; errors of gdb are part of it.
    pub fn batch_with(&self, options: &[&str], script: &str) -> Result<String, Failed> {
        self.batch_in(options, script, &[])
    }

    /// The same with more in the environment.
    pub fn batch_in(
        &self,
        options: &[&str],
        script: &str,
        env: &[(String, String)],
    ) -> Result<String, Failed> {
        let path = script_file(&self.job, script);
        let mut job = self.debug(options, &["-batch", "-x", &path]);
        job.env.extend_from_slice(env);
        let outcome = job.run();
        let text = printed(&outcome);
        match outcome.status {
            // A failed script's status is 1.
            Some(status) if matches!(status.code(), Some(0 | 1)) => Ok(text),
            _ => Err(report("gdb failed", &outcome, &[("clew", &job)])),
        }
    }

    /// gdb by machine, at the beginning of the recording.
    pub fn mi(&self) -> Result<Mi, Failed> {
        self.mi_with(&["--at", "start"])
    }

    pub fn mi_with(&self, options: &[&str]) -> Result<Mi, Failed> {
        let job = self.debug(options, &["--interpreter=mi"]);
        ready(Mi::start(&job))
    }

    /// `clew watch`.
    pub fn watch(&self, expression: &str, options: &[&str]) -> Outcome {
        self.watch_job(expression, options).run()
    }

    pub fn watch_job(&self, expression: &str, options: &[&str]) -> Job {
        let mut all = vec![expression];
        all.extend(options);
        self.made.command("watch", &all)
    }

    /// What gdb prints for a script about the program itself, natively.
    pub fn native(&self, script: &str) -> Result<String, Failed> {
        let path = script_file(&self.job, script);
        let mut job = self.job.clone();
        let mut args = ["-nx", "-q", "-batch", "-x", &path, "--args"]
            .map(String::from)
            .to_vec();
        args.push(job.program.to_string_lossy().into_owned());
        args.append(&mut job.args);
        job.program = "gdb".into();
        job.args = args;
        let outcome = job.run();
        match outcome.status {
            Some(status) if status.success() => Ok(printed(&outcome)),
            _ => Err(report("native gdb failed", &outcome, &[("native", &job)])),
        }
    }
}

/// Says what has no consequences, so that what gdb says at its start is done with.
fn ready(mut mi: Mi) -> Result<Mi, Failed> {
    mi.command("-gdb-set confirm off")?;
    mi.command("-gdb-set width 0")?;
    Ok(mi)
}

fn script_file(job: &Job, script: &str) -> String {
    let path = format!("{}.gdb", job.dir.display());
    let settings = "set confirm off\nset width 0\nset height 0\nset style enabled off\n";
    fs::write(&path, format!("{settings}{script}\n")).expect("a writable scratch folder");
    path
}

/// What was printed, errors last.
fn printed(outcome: &Outcome) -> String {
    let mut text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&outcome.stderr));
    text
}

/// The line of a source that has `MARK: name` on it.
fn line(source: &Path, mark: &str) -> u32 {
    let text = fs::read_to_string(source).expect("the guest's source");
    let wanted = format!("MARK: {mark}");
    let found = text
        .lines()
        .position(|line| line.trim_end().ends_with(&wanted));
    let found = found.unwrap_or_else(|| panic!("no {wanted} in {}", source.display()));
    u32::try_from(found + 1).expect("a short file")
}

pub fn require(good: bool, why: impl FnOnce() -> String) -> Result<(), Failed> {
    if good { Ok(()) } else { Err(why().into()) }
}

/// Both must be the same.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, one: T, other: T) -> Result<(), Failed> {
    require(one == other, || format!("{what}:\n  {one:?}\n  {other:?}"))
}

/// The text must have these in it, in this order.
pub fn has(text: &str, wanted: &[&str]) -> Result<(), Failed> {
    let mut rest = text;
    for &part in wanted {
        let Some(at) = rest.find(part) else {
            return Err(format!("{part:?} is missing (in this place) in:\n{text}").into());
        };
        rest = &rest[at + part.len()..];
    }
    Ok(())
}

/// The text of the lines that begin with this, without it.
pub fn lines_after<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| line.strip_prefix(start))
        .collect()
}

pub fn code(status: Option<ExitStatus>) -> Option<i32> {
    status.and_then(|status| status.code())
}

/// Nothing more in that direction.
pub fn is_end(stop: &Stop) -> bool {
    stop.reason() == "no-history"
}

/// Goes on with `command` until there is nothing more, and looks at each stop.
pub fn all_stops<T>(
    mi: &mut Mi,
    command: &str,
    mut look: impl FnMut(&mut Mi, &Stop) -> Result<T, String>,
) -> Result<Vec<T>, Failed> {
    const MOST: usize = 5000;
    let mut seen = Vec::new();
    loop {
        let stop = mi.go(command)?;
        if is_end(&stop) {
            return Ok(seen);
        }
        if stop.reason().starts_with("exited") || seen.len() > MOST {
            return Err(mi.failure(&format!("unexpected stop: {:?}", stop.0)).into());
        }
        seen.push(look(mi, &stop)?);
    }
}

pub const FORTH: &str = "-exec-continue";
pub const BACK: &str = "-exec-continue --reverse";

/// All stops forwards, then all stops backwards: the same in the other order. How many.
pub fn there_and_back<T: PartialEq + std::fmt::Debug>(
    mi: &mut Mi,
    mut look: impl FnMut(&mut Mi, &Stop) -> Result<T, String>,
) -> Result<Vec<T>, Failed> {
    let forth = all_stops(mi, FORTH, &mut look)?;
    let mut back = all_stops(mi, BACK, &mut look)?;
    back.reverse();
    match forth == back {
        true => Ok(forth),
        false => Err(mi
            .failure(&format!("forwards {forth:?}\nbackwards {back:?}"))
            .into()),
    }
}

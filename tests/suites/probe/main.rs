//! Debug code inside exact replays: what it prints is what the program was, and the program stays what was recorded.

mod events;
mod files;
mod going;
mod languages;
mod limits;
mod locals;
mod paper;
mod programs;
mod reading;
mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use clew_tests::compare::{check, code};
use clew_tests::run::{Job, Outcome};
use clew_tests::{clew, scratch};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let mut trials = vec![
        Trial::test("paper", || paper::paper("gcc", &["-O0"])),
        Trial::test("paper/O2", || paper::paper("gcc", &["-O2"])),
        Trial::test("paper/no-pie", || paper::paper("gcc", &["-O1", "-no-pie"])),
        Trial::test("print", reading::print),
        Trial::test("optimised", reading::optimised),
        Trial::test("returns", reading::returns),
        Trial::test("every call", reading::every_call),
        Trial::test("dropped", reading::dropped),
        Trial::test("where available", reading::where_available),
        Trial::test("locals", || locals::recursive("-O0")),
        Trial::test("locals/O2", || locals::recursive("-O2")),
        Trial::test("locals/cpp", locals::containers),
        Trial::test("locals/threads", locals::threads),
        Trial::test("commands", source::commands),
        Trial::test("no compiler", source::no_compiler),
        Trial::test("threads", events::threads),
        Trial::test("call-backs", events::call_backs),
        Trial::test("watched", events::watched),
        Trial::test("other source", source::other_source),
        Trial::test("events", events::events),
        Trial::test("entry values", reading::entry_values),
        Trial::test("gdb", going::gdb),
        Trial::test("parts", going::parts),
        Trial::test("whole program", reading::whole_program),
        Trial::test("clang", reading::clang).with_ignored_flag(!reading::has_clang()),
        Trial::test("files", files::allowed),
        Trial::test("writes", limits::writes),
        Trial::test("failures", limits::failures),
        Trial::test("undone", limits::undone),
        Trial::test("cpp", || languages::cpp("-O0", "program.cc:11")),
        Trial::test("cpp/wide", languages::wide),
        Trial::test("cpp/O1", || languages::cpp("-O1", "program.cc:11")),
        Trial::test("cpp/O2", || languages::cpp("-O2", "program.cc:11")),
        Trial::test("rust", languages::rust),
        Trial::test("wrong", limits::wrong),
    ];
    trials.extend(programs::PROGRAMS.iter().map(|program| {
        let long = !program.usual;
        Trial::test(format!("programs/{}", program.name), || {
            programs::real(program)
        })
        .with_ignored_flag(long)
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A program and a folder for it.
struct Bench {
    dir: PathBuf,
    job: Job,
}

fn sources() -> PathBuf {
    scratch::sources().join("probe")
}

impl Bench {
    /// Compiles these files.
    fn new(
        name: &str,
        compiler: &str,
        options: &[&str],
        files: &[PathBuf],
    ) -> Result<Bench, Failed> {
        let dir = scratch::fresh(&format!("probe.{name}"));
        let program = dir.join("program");
        let mut command = Command::new(compiler);
        command
            .arg("-g")
            .args(options)
            .arg("-o")
            .arg(&program)
            .args(files)
            .arg("-lpthread");
        let done = command.output().map_err(|error| error.to_string())?;
        check_compiled(&done)?;
        Ok(Bench::of(program, dir))
    }

    /// A program that is there.
    fn of(program: PathBuf, dir: PathBuf) -> Bench {
        let mut job = Job::new(program, &dir);
        let recordings = dir.join("recordings").display().to_string();
        job.env.push(("CLEW_DIR".into(), recordings));
        job.timeout = Duration::from_secs(120);
        Bench { dir, job }
    }

    /// The same of a text.
    fn text(name: &str, options: &[&str], text: &str, extension: &str) -> Result<Bench, Failed> {
        let dir = scratch::root().join(format!("probe.{name}.source"));
        fs::create_dir_all(&dir)?;
        let file = dir.join(format!("program.{extension}"));
        fs::write(&file, text)?;
        let compiler = if extension == "c" { "gcc" } else { "g++" };
        Bench::new(name, compiler, options, &[file])
    }

    fn record(&self, args: &[&str]) -> Outcome {
        let job = self.job.clone().args(args.iter().copied());
        job.through("record", &["-n", "r"]).run()
    }

    fn clew(&self, args: &[&str]) -> Outcome {
        let mut job = self.job.clone();
        job.program = clew::path().to_owned();
        job.args = args.iter().map(|&arg| arg.into()).collect();
        job.run()
    }

    fn probe(&self, args: &[&str]) -> Outcome {
        self.clew(&[&["probe", "r"], args].concat())
    }
}

fn check_compiled(done: &Output) -> Result<(), Failed> {
    match done.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&done.stderr).into_owned().into()),
    }
}

/// Debug code ran to its end and the replay was compared: what it printed.
fn told(outcome: &Outcome) -> Result<String, Failed> {
    check(code(outcome) == Some(0), "the probe didn't run", outcome)?;
    let words = String::from_utf8_lossy(&outcome.stderr).into_owned();
    check(
        words.contains("the replay is what was recorded"),
        "the end wasn't compared",
        outcome,
    )?;
    Ok(String::from_utf8_lossy(&outcome.stdout).into_owned())
}

fn same(found: &str, expected: &str, outcome: &Outcome) -> Result<(), Failed> {
    check(
        found == expected,
        &format!("expected {expected:?}"),
        outcome,
    )
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

const SUM: &str = "#include <stdio.h>
struct point { int x, y; struct point *next; };
static long total;
static __attribute__((noinline)) int weigh(struct point *p, int scale)
{
    int sum = p->x * scale + p->y;
    total += sum;
    return sum;
}
int main(void)
{
    struct point last = {3, 4, 0}, first = {1, 2, &last};
    int n = 0;
    for (struct point *p = &first; p; p = p->next)
        n += weigh(p, 10);
    printf(\"%d %ld\\n\", n, total);
    return 0;
}
";

//! The demo (`tools/demo.sh`): it shows what it says, with a few plain runs, and notices when it doesn't.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use clew_tests::compare::report;
use clew_tests::run::{Job, Outcome};
use clew_tests::{clew, scratch};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let trials = vec![
        Trial::test("shows what it says", shows),
        Trial::test("notices a hunt without a find", || {
            notices("hunt", "exit 1", "the hunt found nothing")
        }),
        Trial::test("notices replays that differ", || {
            notices("replay", "date +%N", "the replays differ")
        }),
        Trial::test("notices a debugger that stays at the crash", || {
            notices("debug", "exit 0", "the crash isn't in line")
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The demo with another `clew`, in a folder of its own.
fn demo(name: &str, clew: &Path) -> Job {
    let dir = scratch::fresh(&format!("demo.{name}"));
    let script = scratch::sources().join("../tools/demo.sh");
    let mut job = Job::new(script, &dir).args([clew.display().to_string()]);
    job.env = vec![
        ("DEMO_DIR".into(), dir.join("demo").display().to_string()),
        ("DEMO_RUNS".into(), "20".into()),
    ];
    job.timeout = Duration::from_secs(240);
    job
}

fn check(fine: bool, what: &str, job: &Job, outcome: &Outcome) -> Result<(), Failed> {
    match fine {
        true => Ok(()),
        false => Err(report(what, outcome, &[("demo", job)])),
    }
}

fn shows() -> Result<(), Failed> {
    let job = demo("shows", clew::path());
    let outcome = job.run();
    let ended = outcome.status.is_some_and(|status| status.success());
    check(ended, "it failed", &job, &outcome)?;
    // From the crash in the canceller back to the worker that frees the job, on to the repair, and all in one question.
    let text = String::from_utf8_lossy(&outcome.stdout);
    let mut rest = text.as_ref();
    for part in [
        "20 runs, all fine",
        "found: jobs-1, SIGSEGV",
        "status 139\n",
        "status 139\n",
        "job->client->cancelled++;\n",
        "(gdb) reverse-continue\n",
        "hit Hardware watchpoint 1: -location job->client",
        "in free_job (",
        "in worker (",
        "no failure in ",
        "$ clew why jobs-1\n",
        "\n=> ",
        "clew debug jobs-1",
    ] {
        let Some(at) = rest.find(part) else {
            return check(
                false,
                &format!("{part:?} is missing, or too early"),
                &job,
                &outcome,
            );
        };
        rest = &rest[at + part.len()..];
    }
    check(
        !text.contains('\x1b'),
        "colours without a terminal",
        &job,
        &outcome,
    )
}

/// A `clew` that does something else first when asked to `verb` must make the demo fail with `message`.
fn notices(verb: &str, instead: &str, message: &str) -> Result<(), Failed> {
    let dir = scratch::fresh(&format!("demo.false.{verb}"));
    let wrong = dir.join("clew");
    let clew = clew::path().display();
    let script = format!("#!/bin/sh\n[ $1 != {verb} ] || {{ {instead}; }}\nexec '{clew}' \"$@\"\n");
    fs::write(&wrong, script)?;
    fs::set_permissions(&wrong, Permissions::from_mode(0o755))?;
    let job = demo(verb, &wrong);
    let outcome = job.run();
    let code = outcome.status.and_then(|status| status.code());
    check(code == Some(1), "it didn't fail", &job, &outcome)?;
    let said = String::from_utf8_lossy(&outcome.stderr).contains(message);
    check(said, "it failed for another reason", &job, &outcome)
}

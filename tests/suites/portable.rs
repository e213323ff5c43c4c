//! `--portable`: programs see x86-64-v3 and no more, whatever the CPU has, also after an exec.

use clew_tests::compare::report;
use clew_tests::header::Header;
use clew_tests::run::Job;
use clew_tests::{compile, cpu, scratch};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// What stays (given that the CPU has AVX2); all else that the guest prints must be hidden.
const SHOWN: &[&str] = &[
    "cmpxchg16b",
    "sse4.2",
    "avx",
    "avx2",
    "bmi",
    "bmi2",
    "fma",
    "f16c",
    "lzcnt",
    "movbe",
    "popcnt",
    "aes",
    "pclmul",
    "x86-64-v3",
];

fn main() {
    let trials = vec![
        Trial::ignorable_test("direct", || check(false)),
        Trial::ignorable_test("after an exec", || check(true)),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn check(through_shell: bool) -> Result<Completion, Failed> {
    if let Some(skipped) = cpu::skipped_without("avx2") {
        return Ok(skipped);
    }
    let path = scratch::sources().join("guests/instructions/lib/portable.c");
    let guest = compile::guest(&path, &Header::read(&path), "pie")?;
    let dir = scratch::fresh(&format!("portable.{through_shell}"));
    let job = if through_shell {
        let program = guest.program.to_string_lossy().into_owned();
        Job::new("/bin/sh", dir).args(["-c", "\"$0\"; exec \"$0\"", &program])
    } else {
        Job::new(guest.program, dir)
    };
    let job = job.under_clew(&["--portable"]);
    let outcome = job.run();
    let wrong = |what: &str| Err(report(what, &outcome, &[("clew", &job)]));
    if !outcome.status.is_some_and(|status| status.success()) {
        return wrong("it failed");
    }
    let text = String::from_utf8_lossy(&outcome.stdout);
    let mut seen = 0;
    for line in text.lines() {
        let Some((name, has)) = line.rsplit_once(' ') else {
            return wrong("not a line of the guest");
        };
        if (has == "1") != SHOWN.contains(&name) {
            return wrong(&format!("{name} is {has}"));
        }
        seen += 1;
    }
    let times = if through_shell { 2 } else { 1 };
    if seen != 31 * times {
        return wrong("not all lines of the guest");
    }
    Ok(Completion::Completed)
}

//! The lockstep checker: translations agree with the CPU, and one that doesn't is found.
//!
//! A native single step takes some 30 µs, so each case checks a bounded number of instructions.

use std::path::PathBuf;

use clew_tests::compare::report;
use clew_tests::header::Header;
use clew_tests::run::Job;
use clew_tests::{compile, cpu, scratch};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Guest, variant, instructions to check, and ticks between two pieces of 400.
const GUESTS: &[(&str, &str, u64, u64)] = &[
    ("instructions/loops.c", "static", 27_000, 50),
    ("instructions/misc.c", "static", 30_000, 70),
    ("instructions/partial_flags.S", "bare", 25_000, 0),
    ("instructions/segments.c", "static", 27_000, 50),
    ("instructions/self_modifying.c", "static", 30_000, 40),
    ("instructions/state_images.c", "static", 30_000, 4000),
    ("instructions/vectors.c", "static", 27_000, 6000),
    ("instructions/x87.c", "static", 27_000, 3000),
    ("signals/basic.c", "static", 27_000, 3000),
    ("threads/conditions.c", "static", 27_000, 20_000),
];

/// Name, command, input, instructions to check, ticks between pieces.
const PROGRAMS: &[(&str, &[&str], &str, u64, u64)] = &[
    ("true", &["/bin/true"], "", u64::MAX, 0),
    (
        "bash",
        &[
            "/bin/bash",
            "-c",
            "for i in 1 2 3; do echo $((i * i)); done",
        ],
        "",
        60_000,
        400,
    ),
    // Generated code.
    (
        "luajit",
        &[
            "/usr/bin/luajit",
            "-e",
            "local s = 0.5; for i = 1, 2000000 do s = s + i % 7 end; print(s)",
        ],
        "",
        25_000,
        30_000,
    ),
    // Vectors, and instructions for ciphers and hashes.
    (
        "openssl",
        &["/usr/bin/openssl", "dgst", "-sha512", "/bin/bash"],
        "",
        25_000,
        4000,
    ),
    (
        "openssl/cipher",
        &[
            "/bin/sh",
            "-c",
            "exec openssl enc -aes-256-ctr -K 00 -iv 00 -in /bin/sh",
        ],
        "",
        25_000,
        4000,
    ),
];

/// Blocks of /bin/true in which a mistake is made.
const MISTAKES: &[u64] = &[0, 60, 250];

fn main() {
    let mut trials = Vec::new();
    for &(source, variant, limit, spread) in GUESTS {
        trials.push(Trial::ignorable_test(source, move || {
            agree(&guest(source, variant)?, limit, spread)
        }));
    }
    for &(name, command, stdin, limit, spread) in PROGRAMS {
        trials.push(Trial::ignorable_test(name, move || {
            let mut job = Job::new(command[0], scratch::fresh(&format!("lockstep.{name}")))
                .args(command[1..].iter().copied());
            stdin.clone_into(&mut job.stdin);
            agree(&job, limit, spread)
        }));
    }
    for &block in MISTAKES {
        trials.push(Trial::test(
            format!("mistake in block {block}"),
            move || found(block),
        ));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn guest(source: &str, variant: &str) -> Result<Job, Failed> {
    let path: PathBuf = scratch::sources().join("guests").join(source);
    let header = Header::read(&path);
    let guest = compile::guest(&path, &header, variant)?;
    let mut job = Job::new(guest.program, scratch::fresh(&format!("lockstep.{source}")))
        .args(header.args.clone());
    job.env.clone_from(&header.env);
    job.stdin.clone_from(&header.stdin);
    Ok(job)
}

/// The program runs as natively, and the checker has seen no difference.
fn agree(job: &Job, limit: u64, spread: u64) -> Result<Completion, Failed> {
    if let Some(skipped) = cpu::skipped_without("avx2") {
        return Ok(skipped);
    }
    let native = job.run();
    let debug = format!("lockstep={limit},spread={spread}");
    let checked = job.under_clew(&["--no-cache", "--debug", &debug]);
    let outcome = checked.run();
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    let jobs = [("native", job), ("clew", &checked)];
    if !stderr.contains("clew: lockstep: no difference in ") {
        return Err(report(
            "a difference, or no word of the checker",
            &outcome,
            &jobs,
        ));
    }
    if outcome.status != native.status || outcome.stdout != native.stdout {
        return Err(report("not as natively", &outcome, &jobs));
    }
    Ok(Completion::Completed)
}

/// A mistranslated instruction stops the run with a report.
fn found(block: u64) -> Result<(), Failed> {
    let dir = scratch::fresh(&format!("lockstep.mistake.{block}"));
    let debug = format!("lockstep,spoil={block}");
    let job = Job::new("/bin/true", dir).under_clew(&["--debug", &debug]);
    let outcome = job.run();
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    let told = ["clew: lockstep: ", "translated", "native", "<--"];
    if outcome.status.and_then(|status| status.code()) != Some(125)
        || !told.iter().all(|word| stderr.contains(word))
    {
        return Err(report(
            "the mistake wasn't found",
            &outcome,
            &[("clew", &job)],
        ));
    }
    Ok(())
}

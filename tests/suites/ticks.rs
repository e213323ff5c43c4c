//! The clock: a deterministic single-threaded program counts the same ticks in every run, with
//! instruments in its code as without.

use clew_tests::compare::report;
use clew_tests::run::Job;
use clew_tests::scratch;
use libtest_mimic::{Arguments, Failed, Trial};

const RUNS: usize = 3;

/// Name, command, input.
const PROGRAMS: &[(&str, &[&str], &str)] = &[
    ("true", &["/bin/true"], ""),
    ("echo", &["/bin/echo", "hello"], ""),
    ("seq", &["/usr/bin/seq", "1", "20000"], ""),
    (
        "sort",
        &["/usr/bin/sort", "--parallel=1", "-n"],
        "3\n1\n2\n77\n5\n",
    ),
    (
        "awk",
        &[
            "/usr/bin/awk",
            "BEGIN { for (i = 0; i < 50000; i++) s += i % 7; print s }",
        ],
        "",
    ),
    (
        "sed",
        &["/bin/sed", "s/\\(a\\)\\(b*\\)/\\2\\1/g"],
        "abbb\nxaby\n",
    ),
    (
        "grep",
        &["/bin/grep", "-cE", "^(a|b)+$"],
        "abab\nabc\nbbb\n",
    ),
    ("bc", &["/usr/bin/bc", "-l"], "scale=100; 4*a(1)\n"),
    (
        "gzip",
        &["/bin/gzip", "-9nc"],
        "some text to be made smaller, some text to be made smaller\n",
    ),
    (
        "bzip2",
        &["/bin/bzip2", "-9c"],
        "some text to be made smaller, some text to be made smaller\n",
    ),
    ("sha256sum", &["/usr/bin/sha256sum"], "abc"),
    ("expr", &["/usr/bin/expr", "6", "*", "7"], ""),
    (
        "dash",
        &[
            "/bin/dash",
            "-c",
            "i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done; echo $i",
        ],
        "",
    ),
    (
        "perl",
        &[
            "/usr/bin/perl",
            "-e",
            "$s += $_ % 7 for 1 .. 50000; print \"$s\\n\"",
        ],
        "",
    ),
    (
        "python",
        &[
            "/usr/bin/python3",
            "-S",
            "-c",
            "print(sum(i % 7 for i in range(50000)))",
        ],
        "",
    ),
    (
        "sqlite",
        &["/usr/bin/sqlite3", ":memory:"],
        "create table t(a); insert into t values(1),(2); select sum(a) from t;\n",
    ),
];

fn main() {
    let trials = PROGRAMS
        .iter()
        .map(|&(name, command, stdin)| Trial::test(name, move || same_ticks(name, command, stdin)));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn same_ticks(name: &str, command: &[&str], stdin: &str) -> Result<(), Failed> {
    let dir = scratch::fresh(&format!("ticks.{name}"));
    let mut job = Job::new(command[0], dir).args(command[1..].iter().copied());
    stdin.clone_into(&mut job.stdin);
    let plain = job.clone().under_clew(&["--stats"]);
    let mut jobs = vec![plain; RUNS];
    for instruments in ["instruments=0", "instruments=29"] {
        jobs.push(job.clone().under_clew(&["--stats", "--debug", instruments]));
    }
    let mut counts = Vec::new();
    for job in &jobs {
        let outcome = job.run();
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        match ticks(&stderr) {
            Some(count) if outcome.status.is_some_and(|status| status.success()) => {
                counts.push(count);
            }
            _ => return Err(report("no tick count", &outcome, &[("clew", job)])),
        }
    }
    if counts.iter().any(|count| *count != counts[0]) {
        let lines: Vec<String> = jobs.iter().map(Job::shell_line).collect();
        let lines = lines.join("\n--- ");
        return Err(format!("ticks differ: {counts:?}\n--- {lines}\n").into());
    }
    Ok(())
}

/// The value of the line `clew: ticks: N`.
fn ticks(stderr: &str) -> Option<u64> {
    let line = stderr
        .lines()
        .find_map(|line| line.strip_prefix("clew: ticks: "))?;
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

//! Debug code in parts of a recording, and from gdb.

use super::*;

/// gdb shows what probes print, and goes on from there.
pub fn gdb() -> Result<(), Failed> {
    let bench = Bench::text("gdb", &["-O0"], SUM, "c")?;
    bench.record(&[]);
    let commands = [
        "clew probe add weigh printf(\"x=%d\\n\", p->x);",
        "clew probe add main$ printf(\"n=%d\\n\", n);",
        "clew probe list",
        "clew probe delete 2",
        "clew probe run",
        "clew probe delete 7",
        "print 1 + 1",
    ];
    let mut args = vec!["debug", "r", "--", "-nx", "-q", "-batch"];
    for command in commands {
        args.extend(["-ex", command]);
    }
    let outcome = bench.clew(&args);
    let words = String::from_utf8_lossy(&outcome.stdout).into_owned();
    for expected in [
        "Probe 1 at weigh",
        "2    main$  printf",
        "x=1\n",
        "x=3\n",
        "debug code ran 2 times; the replay is what was recorded",
        "$1 = 2",
    ] {
        check(
            words.contains(expected),
            &format!("expected {expected:?}"),
            &outcome,
        )?;
    }
    check(!words.contains("n=46"), "what was deleted ran", &outcome)?;
    let errors = String::from_utf8_lossy(&outcome.stderr).into_owned();
    check(
        errors.contains("there is no probe \"7\""),
        "what isn't there was deleted",
        &outcome,
    )
}

pub const LOOP: &str = "#include <stdio.h>
static long total;
static __attribute__((noipa)) void hit(int n) { total += n; }
int main(void)
{
    for (int n = 0; n < 20000; n++) {
        hit(n);
        if (n % 500 == 0)
            puts(\"\");
    }
    return total == 0;
}
";

/// Parts of the way tell together what the whole does: from one position to another, and at once.
pub fn parts() -> Result<(), Failed> {
    let bench = Bench::text("parts", &["-O1"], LOOP, "c")?;
    bench.record(&[]);
    let at = ["--at", "hit", "printf(\"%d\\n\", n);"];
    let outcome = bench.probe(&at);
    let whole = told(&outcome)?;
    let all: String = (0..20000).map(|n| format!("{n}\n")).collect();
    same(&whole, &all, &outcome)?;
    let outcome = bench.probe(&[&at[..], &["--parallel"]].concat());
    same(&told(&outcome)?, &all, &outcome)?;
    // At a hit itself: it belongs to what begins there.
    let outcome = bench.probe(&[&at[..], &["--positions"]].concat());
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let line = text.lines().nth(7777).unwrap_or_default();
    let position = line.split_whitespace().next().unwrap_or_default();
    let first = bench.probe(&[&at[..], &["--to", position]].concat());
    let second = bench.probe(&[&at[..], &["--from", position]].concat());
    let both = [&first.stdout[..], &second.stdout[..]].concat();
    same(&String::from_utf8_lossy(&both), &all, &second)?;
    check(
        second.stdout.starts_with(b"7777\n"),
        "not from there",
        &second,
    )
}

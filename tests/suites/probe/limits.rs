//! What debug code may not do: write to the program, crash, hang, leave; and wrong command lines.

use super::*;

/// Debug code can't write to the program, neither openly nor through pointers.
pub fn writes() -> Result<(), Failed> {
    let bench = Bench::text("writes", &["-O0"], SUM, "c")?;
    bench.record(&[]);
    let words = |outcome: &Outcome| String::from_utf8_lossy(&outcome.stderr).into_owned();
    let outcome = bench.probe(&["--at", "weigh", "total = 1;"]);
    check(
        code(&outcome) == Some(2),
        "an assignment is refused",
        &outcome,
    )?;
    check(
        words(&outcome).contains("can't write to the program: total"),
        "and named",
        &outcome,
    )?;
    let outcome = bench.probe(&["--at", "weigh", "long *t = &total;\n*t = 5;"]);
    check(code(&outcome) == Some(3), "a store is caught", &outcome)?;
    check(
        words(&outcome).contains("which is total"),
        "with its variable",
        &outcome,
    )?;
    check(
        words(&outcome).contains(":2: a probe can't write"),
        "and its line",
        &outcome,
    )?;
    let outcome = bench.probe(&["--at", "weigh", "memset(p, 0, 4);", "--on-error", "go-on"]);
    check(
        code(&outcome) == Some(3),
        "libc's stores are caught",
        &outcome,
    )?;
    check(
        words(&outcome).contains("the replay is what was recorded"),
        "nothing has changed",
        &outcome,
    )
}

/// However a probe ends, it is told with its line, and the replay goes on if it is to.
pub fn failures() -> Result<(), Failed> {
    let bench = Bench::text("failures", &["-O0"], SUM, "c")?;
    bench.record(&[]);
    for (code_text, expected) in [
        ("*(volatile int *)8;", "it crashed"),
        ("for (;;) ;", "it doesn't end"),
        ("exit(3);", "exit(3)"),
        ("abort();", "signal 6"),
        (
            "struct r { int (*f)(struct r *, int); } r; int go(struct r *r, int n) { volatile char a[4096]; a[n % 4096] = 1; return r->f(r, n + 1) + a[0]; } r.f = go; go(&r, 0);",
            "stack is used up",
        ),
        ("extern int fork(void); fork();", "another process"),
        ("((void (*)(void))8)();", "no code that a probe can run"),
    ] {
        let outcome = bench.probe(&[
            "--at",
            "weigh",
            code_text,
            "--on-error",
            "go-on",
            "--most-ticks",
            "10000000",
        ]);
        check(code(&outcome) == Some(3), code_text, &outcome)?;
        let words = String::from_utf8_lossy(&outcome.stderr).into_owned();
        check(
            words.contains(expected),
            &format!("expected {expected:?}"),
            &outcome,
        )?;
        check(words.contains("--at weigh:1: "), "with its line", &outcome)?;
        check(
            words.contains("the replay is what was recorded"),
            "and the replay went on",
            &outcome,
        )?;
    }
    Ok(())
}

/// What the program's own functions write when debug code calls them is undone; with --strict it is an error.
pub fn undone() -> Result<(), Failed> {
    let bench = Bench::text("undone", &["-O0"], SUM, "c")?;
    bench.record(&[]);
    let call = "int w = weigh(p, 100); printf(\"%d %ld\\n\", w, total);";
    let outcome = bench.probe(&["--at", "program.c:6", call]);
    same(&told(&outcome)?, "102 102\n304 316\n", &outcome)?;
    let outcome = bench.probe(&["--at", "program.c:6", call, "--strict"]);
    check(code(&outcome) == Some(3), "an error", &outcome)?;
    let words = String::from_utf8_lossy(&outcome.stderr).into_owned();
    check(
        words.contains("in the program's weigh"),
        "where it was",
        &outcome,
    )
}

pub fn wrong() -> Result<(), Failed> {
    let bench = Bench::text("wrong", &["-O0"], SUM, "c")?;
    bench.record(&[]);
    for (args, expected) in [
        (&["--at", "weihg", "1;"][..], "did you mean weigh"),
        (&["--at", "weigh"], "--print"),
        (
            &["--at", "weigh", "nothing_like_it(3;"],
            "can't be compiled",
        ),
        (&["--at", "program.c:999", "1;"], "no code is known"),
    ] {
        let outcome = bench.probe(args);
        check(
            code(&outcome) == Some(2),
            "the command line is wrong",
            &outcome,
        )?;
        let words = String::from_utf8_lossy(&outcome.stderr).into_owned();
        check(
            words.contains(expected),
            &format!("expected {expected:?}"),
            &outcome,
        )?;
    }
    Ok(())
}

//! The paper's case: a calculator that makes bc's mistake, and the steps to find it.

use super::*;

/// The instructions and stacks up to the branch that finds nothing.
pub const STEPS: &str = "inst=K\ninst=s\n    1 = 0\ninst=B\n";

pub fn paper(compiler: &str, options: &[&str]) -> Result<(), Failed> {
    let files = ["main.c", "translate.c", "execute.c"].map(|file| sources().join(file));
    let bench = Bench::new(
        &format!("paper{}", options.join("")),
        compiler,
        options,
        &files,
    )?;
    bench.record(&["for (i=0;;i+1) i"]);
    let before = fs::read(&bench.job.program)?;
    let copies = sources().join("step2");
    let (execute, helpers) = (
        path(&copies.join("execute.c")),
        path(&copies.join("helpers.c")),
    );
    let outcome = bench.probe(&[&execute, "--with", &helpers]);
    same(&told(&outcome)?, STEPS, &outcome)?;
    // The second region, in the translation phase, tells which input that was.
    let translate = path(&copies.join("translate.c"));
    let outcome = bench.probe(&[&execute, &translate, "--with", &helpers]);
    let all = format!("input: for (i=0;;i+1) i\n{STEPS}");
    same(&told(&outcome)?, &all, &outcome)?;
    check(
        fs::read(&bench.job.program)? == before,
        "the program was changed",
        &outcome,
    )
}

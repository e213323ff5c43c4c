//! What debug code is compiled with: the program's own headers and options, its source or none, no compiler at all.

use super::*;

/// Without a compiler expressions can be printed, and the message says what to install.
pub fn no_compiler() -> Result<(), Failed> {
    let mut bench = Bench::text("nocompiler", &["-O0"], SUM, "c")?;
    bench.record(&[]);
    bench.job.env.push(("PATH".into(), "/nowhere".into()));
    let outcome = bench.probe(&["--at", "weigh", "int n;"]);
    let words = String::from_utf8_lossy(&outcome.stderr).into_owned();
    check(
        code(&outcome) == Some(2) && words.contains("install gcc"),
        "what to install",
        &outcome,
    )?;
    let outcome = bench.probe(&["--at", "weigh", "--print", "scale"]);
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    check(text.lines().count() == 2, "two calls", &outcome)
}

/// Headers and macros are those that the program was compiled with.
pub fn commands() -> Result<(), Failed> {
    let dir = scratch::fresh("probe.commands.source");
    fs::create_dir(dir.join("include"))?;
    fs::write(
        dir.join("include/shape.h"),
        "struct shape { int sides[SIDES]; int last; };\n#define LAST(s) ((s)->last)\n",
    )?;
    let file = dir.join("program.c");
    fs::write(
        &file,
        "#include \"shape.h\"
static int weigh(struct shape *s) { return s->last; }
int main(void) { struct shape s = {{1, 2, 3, 4, 5}, 9}; return weigh(&s) - 9; }
",
    )?;
    let include = format!("-I{}", dir.join("include").display());
    let commands = format!(
        "[{{\"directory\": \"{0}\", \"file\": \"program.c\", \"command\": \"cc -DSIDES=5 {include} -c program.c\"}}]",
        dir.display()
    );
    fs::write(dir.join("compile_commands.json"), commands)?;
    let bench = Bench::new("commands", "gcc", &["-O0", "-DSIDES=5", &include], &[file])?;
    bench.record(&[]);
    let outcome = bench.probe(&[
        "--at",
        "weigh",
        "printf(\"%d %d\\n\", LAST(s), s->sides[4]);",
    ]);
    same(&told(&outcome)?, "9 5\n", &outcome)
}

/// A copy that isn't the file that was compiled is noticed.
pub fn other_source() -> Result<(), Failed> {
    let bench = Bench::text("other", &["-O0"], SUM, "c")?;
    bench.record(&[]);
    let copy = bench.dir.join("program.c");
    let region = "rdb_begin\nprintf(\"%d\\n\", p->x);\nrdb_end\n    int sum = ";
    fs::write(&copy, SUM.replace("    int sum = ", region))?;
    let outcome = bench.probe(&[&path(&copy)]);
    same(&told(&outcome)?, "1\n3\n", &outcome)?;
    let words = |outcome: &Outcome| String::from_utf8_lossy(&outcome.stderr).into_owned();
    check(!words(&outcome).contains("differ"), "the same", &outcome)?;
    let other = SUM.replace("return sum;", "return sum + 0;");
    fs::write(&copy, other.replace("    int sum = ", region))?;
    let outcome = bench.probe(&[&path(&copy)]);
    check(
        words(&outcome).contains("they differ in line 8"),
        "another one",
        &outcome,
    )
}

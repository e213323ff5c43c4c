//! What debug code reads: variables of optimised programs, at every call and return, by any compiler.

use super::*;

pub fn print() -> Result<(), Failed> {
    let bench = Bench::text("print", &["-O0"], SUM, "c")?;
    bench.record(&[]);
    let outcome = bench.probe(&["--at", "weigh", "--print", "p->x, p->next != 0, scale"]);
    check(code(&outcome) == Some(0), "nothing printed", &outcome)?;
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    check(lines.len() == 2, "two calls", &outcome)?;
    check(
        lines[0].ends_with("p->x = 1, p->next != 0 = 1, scale = 10"),
        "the first call",
        &outcome,
    )?;
    check(
        lines[1].ends_with("p->x = 3, p->next != 0 = 0, scale = 10"),
        "the second call",
        &outcome,
    )
}

/// The same as the optimiser leaves it where it may not look into functions that others call.
pub fn optimised() -> Result<(), Failed> {
    let text = SUM.replace("noinline", "noipa");
    let bench = Bench::text("optimised", &["-O2"], &text, "c")?;
    bench.record(&[]);
    let code = "printf(\"%d %d %ld %d\\n\", p->x, scale, total, p->next ? 1 : 0);";
    let outcome = bench.probe(&["--at", "weigh", code]);
    same(&told(&outcome)?, "1 10 0 1\n3 10 12 0\n", &outcome)
}

pub const EARLY: &str = "#include <stdio.h>
static volatile int ready, made;
static __attribute__((noipa)) void init(void) { ready = 1; }
static __attribute__((noipa)) int get(int n)
{
    if (__builtin_expect(!ready, 0)) {
        init();
        return n;
    }
    int sum = made * n;
    made++;
    return sum;
}
int main(void)
{
    for (int n = 0; n < 4; n++)
        printf(\"%d\\n\", get(n));
    return 0;
}
";

/// A function's calls are all seen, also those that leave it before what it mostly does.
pub fn every_call() -> Result<(), Failed> {
    for optimised in ["-O0", "-O1", "-O2", "-O3"] {
        let name = format!("early{optimised}");
        let bench = Bench::text(&name, &[optimised], EARLY, "c")?;
        bench.record(&[]);
        let outcome = bench.probe(&["--at", "get", "printf(\"%d\\n\", n);"]);
        same(&told(&outcome)?, "0\n1\n2\n3\n", &outcome)?;
    }
    // libc's, known by its own debugging information or by its symbol alone.
    let bench = Bench::text("early.libc", &["-O0"], EARLY, "c")?;
    bench.record(&[]);
    let outcome = bench.probe(&["--at", "malloc", "printf(\"%d\\n\", __clew_hit.r[7] > 0);"]);
    same(&told(&outcome)?, "1\n", &outcome)
}

/// A variable that the compiler has dropped is an error that says where it is.
pub fn dropped() -> Result<(), Failed> {
    let text = "#include <stdio.h>
static __attribute__((noipa)) int twice(int n) { return 2 * n; }
static __attribute__((noipa)) int work(int n)
{
    int first = twice(n);
    int second = twice(first + 1);
    int third = twice(7);
    return second + third;
}
int main(void) { printf(\"%d\\n\", work(3)); return 0; }
";
    let bench = Bench::text("dropped", &["-O2"], text, "c")?;
    bench.record(&[]);
    let at = |line: &str| bench.probe(&["--at", line, "printf(\"%d\\n\", first);"]);
    let outcome = at("program.c:8");
    let words = String::from_utf8_lossy(&outcome.stderr).into_owned();
    check(code(&outcome) == Some(2), "an error", &outcome)?;
    check(
        words.contains("first has no value where the probe runs"),
        "with its name",
        &outcome,
    )?;
    check(
        words.contains("it is there in lines 6"),
        "and lines",
        &outcome,
    )?;
    let outcome = at("program.c:6");
    same(&told(&outcome)?, "6\n", &outcome)
}

pub const GONE: &str = "#include <stdio.h>
static volatile int noise;
static __attribute__((noipa)) int twice(int n) { noise++; return 2 * n; }
static __attribute__((noipa)) int deep(int n, int mark)
{
    int sum = twice(mark);
    if (n)
        sum += deep(n - 1, mark + 1);
    noise += sum;
    return sum;
}
int main(void)
{
    printf(\"%d\\n\", deep(3, 7));
    return 0;
}
";

/// Arguments that no register has any more are what they were at the entry, also in recursions.
pub fn entry_values() -> Result<(), Failed> {
    let bench = Bench::text("entries", &["-O2"], GONE, "c")?;
    bench.record(&[]);
    let outcome = bench.probe(&["--at", "program.c:9", "printf(\"%d %d\\n\", mark, sum);"]);
    let all = "10 20\n9 38\n8 54\n7 68\n";
    same(&told(&outcome)?, all, &outcome)?;
    let words = String::from_utf8_lossy(&outcome.stderr).into_owned();
    check(
        words.contains("ran 4 times"),
        "what is noted counts",
        &outcome,
    )
}

pub fn returns() -> Result<(), Failed> {
    let bench = Bench::text("returns", &["-O1"], SUM, "c")?;
    bench.record(&[]);
    let outcome = bench.probe(&["--at", "weigh$", "printf(\"%d %ld\\n\", $ret, total);"]);
    same(&told(&outcome)?, "12 12\n34 46\n", &outcome)
}

/// Optimised as a whole, units are no more what was compiled.
pub fn whole_program() -> Result<(), Failed> {
    let text = SUM.replace("noinline", "noipa");
    let bench = Bench::text("whole", &["-O3", "-flto"], &text, "c")?;
    bench.record(&[]);
    let code = "printf(\"%d %d %ld\\n\", p->x, scale, total);";
    let outcome = bench.probe(&["--at", "weigh", code]);
    same(&told(&outcome)?, "1 10 0\n3 10 12\n", &outcome)
}

pub fn has_clang() -> bool {
    Command::new("clang").arg("--version").output().is_ok()
}

pub fn clang() -> Result<(), Failed> {
    let dir = scratch::root().join("probe.clang.source");
    fs::create_dir_all(&dir)?;
    let file = dir.join("program.c");
    fs::write(&file, SUM)?;
    for optimised in ["-O0", "-O1", "-O2"] {
        let files = [file.clone()];
        let name = format!("clang{optimised}");
        let bench = Bench::new(&name, "clang", &[optimised], &files)?;
        bench.record(&[]);
        let code = "printf(\"%d %d %ld\\n\", p->x, scale, total);";
        let outcome = bench.probe(&["--at", "weigh", code]);
        same(&told(&outcome)?, "1 10 0\n3 10 12\n", &outcome)?;
        let outcome = bench.probe(&["--at", "weigh$", "printf(\"%d\\n\", $ret);"]);
        same(&told(&outcome)?, "12\n34\n", &outcome)?;
    }
    Ok(())
}

/// A call that is inlined without its argument, which nobody uses, and the function itself.
const DROPPED: &str = "static volatile int total, rounds = 3;
__attribute__((const, noipa)) int cube(int n) { return n * n * n; }
static int pick(int n) { return total = total + 1; }
int (*volatile by)(int) = pick;
int main(void)
{
    for (int i = 0; i < rounds; i++) pick(cube(i));
    by(5);
    by(6);
    return 0;
}
";

/// Where a variable is only at some of a line's places, the probe is skipped at the others, and that is counted.
pub fn where_available() -> Result<(), Failed> {
    let bench = Bench::text("available", &["-O2"], DROPPED, "c")?;
    bench.record(&[]);
    let probe = ["--at", "pick", "printf(\"%d\\n\", n);"];
    let outcome = bench.probe(&probe);
    let words = String::from_utf8_lossy(&outcome.stderr).into_owned();
    check(
        code(&outcome) == Some(2) && words.contains("--where-available"),
        "an error that says how to go on",
        &outcome,
    )?;
    let outcome = bench.probe(&[&probe[..], &["--where-available"]].concat());
    same(&told(&outcome)?, "5\n6\n", &outcome)?;
    let words = String::from_utf8_lossy(&outcome.stderr).into_owned();
    check(
        words.contains("pick: skipped 3 times, at a place where n has no value"),
        "how often it was skipped",
        &outcome,
    )?;
    check(
        words.contains("debug code ran 2 times"),
        "how often it ran",
        &outcome,
    )
}

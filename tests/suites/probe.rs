//! Debug code inside exact replays: what it prints is what the program was, and the program stays what was recorded.
//!
//! The first is the case of the paper that this follows: a calculator that makes bc's mistake, and the steps to find it.

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
        Trial::test("paper", || paper("gcc", &["-O0"])),
        Trial::test("paper/O2", || paper("gcc", &["-O2"])),
        Trial::test("paper/no-pie", || paper("gcc", &["-O1", "-no-pie"])),
        Trial::test("print", print),
        Trial::test("optimised", optimised),
        Trial::test("returns", returns),
        Trial::test("every call", every_call),
        Trial::test("dropped", dropped),
        Trial::test("commands", commands),
        Trial::test("no compiler", no_compiler),
        Trial::test("threads", threads),
        Trial::test("call-backs", call_backs),
        Trial::test("watched", watched),
        Trial::test("other source", other_source),
        Trial::test("events", events),
        Trial::test("entry values", entry_values),
        Trial::test("gdb", gdb),
        Trial::test("parts", parts),
        Trial::test("whole program", whole_program),
        Trial::test("clang", clang).with_ignored_flag(!has_clang()),
        Trial::test("writes", writes),
        Trial::test("failures", failures),
        Trial::test("undone", undone),
        Trial::test("cpp", || cpp("-O0", "program.cc:11")),
        Trial::test("cpp/wide", wide),
        Trial::test("cpp/O1", || cpp("-O1", "program.cc:11")),
        Trial::test("cpp/O2", || cpp("-O2", "program.cc:11")),
        Trial::test("rust", rust),
        Trial::test("wrong", wrong),
    ];
    trials.extend(PROGRAMS.iter().map(|program| {
        let long = !program.usual;
        Trial::test(format!("programs/{}", program.name), || real(program)).with_ignored_flag(long)
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

/// The instructions and stacks up to the branch that finds nothing.
const STEPS: &str = "inst=K\ninst=s\n    1 = 0\ninst=B\n";

fn paper(compiler: &str, options: &[&str]) -> Result<(), Failed> {
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

fn print() -> Result<(), Failed> {
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
fn optimised() -> Result<(), Failed> {
    let text = SUM.replace("noinline", "noipa");
    let bench = Bench::text("optimised", &["-O2"], &text, "c")?;
    bench.record(&[]);
    let code = "printf(\"%d %d %ld %d\\n\", p->x, scale, total, p->next ? 1 : 0);";
    let outcome = bench.probe(&["--at", "weigh", code]);
    same(&told(&outcome)?, "1 10 0 1\n3 10 12 0\n", &outcome)
}

const EARLY: &str = "#include <stdio.h>
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
fn every_call() -> Result<(), Failed> {
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
fn dropped() -> Result<(), Failed> {
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

/// Without a compiler expressions can be printed, and the message says what to install.
fn no_compiler() -> Result<(), Failed> {
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
fn commands() -> Result<(), Failed> {
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

const GONE: &str = "#include <stdio.h>
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
fn entry_values() -> Result<(), Failed> {
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

fn returns() -> Result<(), Failed> {
    let bench = Bench::text("returns", &["-O1"], SUM, "c")?;
    bench.record(&[]);
    let outcome = bench.probe(&["--at", "weigh$", "printf(\"%d %ld\\n\", $ret, total);"]);
    same(&told(&outcome)?, "12 12\n34 46\n", &outcome)
}

const THREADS: &str = "#include <pthread.h>
#include <signal.h>
#include <stdio.h>
static volatile int count;
static __thread int mine;
static void step(int who) { mine += who; count++; }
static void caught(int sig) { step(0); }
static void *work(void *who) { for (int n = 0; n < 1000; n++) step((int)(long)who); return 0; }
int main(void)
{
    pthread_t all[4];
    signal(SIGUSR1, caught);
    for (long n = 0; n < 4; n++) pthread_create(&all[n], 0, work, (void *)(n + 1));
    raise(SIGUSR1);
    for (int n = 0; n < 4; n++) pthread_join(all[n], 0);
    printf(\"%d\\n\", count > 0);
    return 0;
}
";

fn threads() -> Result<(), Failed> {
    let bench = Bench::text("threads", &["-O0"], THREADS, "c")?;
    bench.record(&[]);
    let dir = &bench.dir;
    let helpers = dir.join("helpers.c");
    fs::write(
        &helpers,
        "#include <stdio.h>\nint seen[5], wrong, last[64];\nCLEW_AT_END { printf(\"%d %d %d %d %d wrong %d\\n\", seen[0], seen[1], seen[2], seen[3], seen[4], wrong); }\n",
    )?;
    // Thread-local variables are those of the thread that runs.
    let code = "seen[who]++; if (who && mine != last[CLEW_THREAD]) wrong++; last[CLEW_THREAD] = mine + who;";
    let outcome = bench.probe(&["--at", "step", code, "--with", &path(&helpers)]);
    same(
        &told(&outcome)?,
        "1 1000 1000 1000 1000 wrong 0\n",
        &outcome,
    )
}

/// Elements, what pointers point at, and as many bytes as are wanted.
fn watched() -> Result<(), Failed> {
    let text = "struct pair { int a, b; };
static struct pair table[4];
static char text[64];
int main(int argc, char **argv)
{
    for (int n = 0; n < 12; n++) {
        table[n % 4].b = n;
        table[n % 4].a = n;
    }
    for (int n = 0; n < 64; n++)
        text[n] = n;
    return table[2].b != 10;
}
";
    let bench = Bench::text("watched", &["-O0"], text, "c")?;
    bench.record(&[]);
    let helpers = bench.dir.join("helpers.c");
    fs::write(
        &helpers,
        "static int writes, reads, some;
CLEW_ON_WRITE(table[2].b) { writes++; }
CLEW_ON_READ(table[(1 + 1)].b) { reads++; }
CLEW_ON_ACCESS(*&text[8], 16) { some++; }
CLEW_AT_END { printf(\"%d %d %d\\n\", writes, reads, some); }
",
    )?;
    let outcome = bench.probe(&["--with", &path(&helpers)]);
    same(&told(&outcome)?, "3 1 16\n", &outcome)
}

/// A copy that isn't the file that was compiled is noticed.
fn other_source() -> Result<(), Failed> {
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

fn call_backs() -> Result<(), Failed> {
    let bench = Bench::text("callbacks", &["-O0"], SUM, "c")?;
    bench.record(&[]);
    let helpers = bench.dir.join("helpers.c");
    fs::write(
        &helpers,
        "static int calls, stores;
CLEW_ON_CALL(weigh) { calls++; printf(\"weigh %d\\n\", p->x); }
CLEW_ON_RETURN(weigh) { printf(\"total %ld\\n\", total); }
CLEW_ON_WRITE(total) { stores++; }
CLEW_ON_SYSCALL(write) { if (after) printf(\"written %ld: %.*s\", result, (int)args[2], (char *)args[1]); }
CLEW_AT_END { printf(\"%d calls, %d stores\\n\", calls, stores); }
",
    )?;
    let outcome = bench.probe(&["--with", &path(&helpers)]);
    let expected = "weigh 1\ntotal 12\nweigh 3\ntotal 46\nwritten 6: 46 46\n2 calls, 2 stores\n";
    same(&told(&outcome)?, expected, &outcome)
}

/// Call-backs for what isn't an instruction, of a file alone: names are those that `main` sees.
fn events() -> Result<(), Failed> {
    let bench = Bench::text("events", &["-O0"], THREADS, "c")?;
    bench.record(&[]);
    let helpers = bench.dir.join("helpers.c");
    fs::write(
        &helpers,
        "static int threads, signals, reads, low = 1 << 30;
CLEW_ON_THREAD { threads++; }
CLEW_ON_SIGNAL { signals++; }
CLEW_ON_READ(count) { reads++; if (count < low) low = count; }
CLEW_AT_END { printf(\"%d threads, %d signals, %d, %d\\n\", threads, signals, reads >= 4001, low); }
",
    )?;
    let outcome = bench.probe(&["--with", &path(&helpers)]);
    same(&told(&outcome)?, "4 threads, 1 signals, 1, 0\n", &outcome)
}

/// gdb shows what probes print, and goes on from there.
fn gdb() -> Result<(), Failed> {
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

const LOOP: &str = "#include <stdio.h>
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
fn parts() -> Result<(), Failed> {
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

/// Optimised as a whole, units are no more what was compiled.
fn whole_program() -> Result<(), Failed> {
    let text = SUM.replace("noinline", "noipa");
    let bench = Bench::text("whole", &["-O3", "-flto"], &text, "c")?;
    bench.record(&[]);
    let code = "printf(\"%d %d %ld\\n\", p->x, scale, total);";
    let outcome = bench.probe(&["--at", "weigh", code]);
    same(&told(&outcome)?, "1 10 0\n3 10 12\n", &outcome)
}

fn has_clang() -> bool {
    Command::new("clang").arg("--version").output().is_ok()
}

fn clang() -> Result<(), Failed> {
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

/// Debug code can't write to the program, neither openly nor through pointers.
fn writes() -> Result<(), Failed> {
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
fn failures() -> Result<(), Failed> {
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
fn undone() -> Result<(), Failed> {
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

const CPP: &str = "#include <map>
#include <string>
#include <vector>
#include <cstdio>
namespace shop {
struct Cart {
    std::vector<int> prices;
    std::map<std::string, int> names;
    int total = 0;
    void add(const std::string &name, int price) {
        prices.push_back(price);
        names[name]++;
        total += price;
    }
};
}
int main()
{
    shop::Cart cart;
    cart.add(\"tea\", 3);
    cart.add(\"milk\", 4);
    cart.add(\"tea\", 5);
    printf(\"%d\\n\", cart.total);
}
";

fn cpp(optimised: &str, place: &str) -> Result<(), Failed> {
    let bench = Bench::text(&format!("cpp{optimised}"), &[optimised], CPP, "cc")?;
    bench.record(&[]);
    let text = "printf(\"%s %d %zu %d\\n\", name.c_str(), price, prices.size(), total); \
                std::map<std::string, int> mine; mine[name] = price; printf(\"%zu\\n\", mine.size() + this->names.size());";
    let outcome = bench.probe(&["--at", place, text]);
    same(
        &told(&outcome)?,
        "tea 3 0 0\n1\nmilk 4 1 3\n2\ntea 5 2 7\n3\n",
        &outcome,
    )
}

/// The number of the line that ends with a comment.
fn line_with(text: &str, comment: &str) -> usize {
    let found = text.lines().position(|line| line.ends_with(comment));
    found.map_or(0, |at| at + 1)
}

/// Members of templates, virtual calls, references, namespaces; the program's functions write, and nothing stays.
fn wide() -> Result<(), Failed> {
    let file = sources().join("cpp/wide.cc");
    let text = fs::read_to_string(&file)?;
    let bench = Bench::new("wide", "g++", &["-O0"], &[file])?;
    bench.record(&[]);
    let all = "printf(\"%zu %d %d\\n\", table.size(), a::b::deep, hidden); int two = a::b::twice(count); \
               for (auto &one : table) printf(\"%s=%d\\n\", one.first.c_str(), one.second); \
               std::cout << box.inside << two << hidden << std::endl;";
    let places = [
        (
            "// references",
            "printf(\"%d %d %zu %d %d\\n\", sum, count, all.size(), one->id, one->area());",
        ),
        (
            "// a template's member",
            "printf(\"%s %d %d %d\\n\", inside.c_str(), n, plus, this->n);",
        ),
        ("// all of it", all),
    ];
    let places =
        places.map(|(comment, code)| (format!("wide.cc:{}", line_with(&text, comment)), code));
    let args: Vec<&str> = places
        .iter()
        .flat_map(|(place, code)| ["--at", place, code])
        .collect();
    let outcome = bench.probe(&args);
    let expected = "hello 1 2 1\n0 0 2 7 4\n4 1 2 7 9\n2 9 5\nx=3\ny=4\nhello!46\n";
    same(&told(&outcome)?, expected, &outcome)
}

const RUST: &str = "struct Point { x: i32, y: i64 }
#[inline(never)]
fn weigh(p: &Point, scale: i32) -> i64 {
    p.y + (p.x * scale) as i64
}
fn main() {
    let mut sum = 0;
    for n in 0..3 {
        sum += weigh(&Point { x: n, y: 2 }, 10);
    }
    println!(\"{sum}\");
}
";

/// A program that isn't C: its variables by types from debugging information.
fn rust() -> Result<(), Failed> {
    let dir = scratch::root().join("probe.rust.source");
    fs::create_dir_all(&dir)?;
    let file = dir.join("program.rs");
    fs::write(&file, RUST)?;
    let dir = scratch::fresh("probe.rust");
    let program = dir.join("program");
    let mut command = Command::new("rustc");
    command
        .args(["-g", "-C", "panic=abort", "-o"])
        .arg(&program);
    let done = command.arg(&file).output()?;
    check_compiled(&done)?;
    let bench = Bench::of(program, dir);
    bench.record(&[]);
    let code = "printf(\"%d %ld %d\\n\", p->x, p->y, scale);";
    let outcome = bench.probe(&["--at", "program.rs:4", code]);
    same(&told(&outcome)?, "0 2 10\n1 2 10\n2 2 10\n", &outcome)
}

fn wrong() -> Result<(), Failed> {
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

/// A program of the distribution, whose allocations are counted.
struct Program {
    /// Its file, and what it does there.
    name: &'static str,
    args: &'static [&'static str],
    /// Run by default; the others are long.
    usual: bool,
}

const fn usual(name: &'static str, args: &'static [&'static str]) -> Program {
    Program {
        name,
        args,
        usual: true,
    }
}

const fn long(name: &'static str, args: &'static [&'static str]) -> Program {
    Program {
        usual: false,
        ..usual(name, args)
    }
}

const SIGNALLED: &str = "import os, signal
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append([len(seen)]))
for n in range(200):
    os.kill(os.getpid(), signal.SIGUSR1)
print(len(seen))";

const THREADED: &str = "import threading
def work(n): return [str(k) for k in range(n)]
all = [threading.Thread(target=work, args=(5000,)) for n in range(4)]
[one.start() for one in all]
[one.join() for one in all]";

/// With threads, with signal handlers, and plain ones. `text` has lines.
const PROGRAMS: [Program; 20] = [
    usual("sort", &["-n", "--parallel=2", "text"]),
    usual("xz", &["-T2", "-k", "-c", "text"]),
    usual("python3 signals", &["-c", SIGNALLED]),
    usual(
        "bash",
        &[
            "-c",
            "trap 'n=$((n+1))' USR1; for i in 1 2 3 4 5; do kill -USR1 $$; a[$i]=$n; done; echo ${a[@]}",
        ],
    ),
    usual(
        "perl",
        &[
            "-e",
            "$SIG{USR1} = sub { $n{$n++} = [1] }; kill USR1 => $$ for 1..100; print scalar(keys %n)",
        ],
    ),
    long("python3 threads", &["-c", THREADED]),
    long(
        "dash",
        &[
            "-c",
            "n=0; while read a; do n=$((n + a)); done <text; echo $n",
        ],
    ),
    long("bzip2", &["-k", "-c", "text"]),
    long("zstd", &["-T2", "-k", "-c", "text"]),
    long("grep", &["-c", "7.*7", "text"]),
    long("sed", &["s/1/one/g", "text"]),
    long(
        "mawk",
        &["{ s[$1 % 97] += $1 } END { print length(s) }", "text"],
    ),
    long("find", &["/usr/include/linux", "-name", "*.h"]),
    long("ls", &["-l", "/usr/bin"]),
    long("tar", &["cf", "-", "text"]),
    long("diff", &["text", "other"]),
    long("bc", &["-q", "-l", "numbers"]),
    long("objdump", &["-d", "/bin/true"]),
    long("openssl", &["dgst", "-sha256", "text"]),
    long(
        "sqlite3",
        &[
            ":memory:",
            "create table t(a, b); with recursive n(k) as (select 1 union all select k + 1 from n where k < 999) insert into t select k, k * k from n; select sum(b) from t;",
        ],
    ),
];

/// Debug code in a program's hottest functions: every checksum of registers and memory that was recorded still agrees.
fn real(program: &Program) -> Result<(), Failed> {
    let name = program.name.split(' ').next().unwrap_or_default();
    let dir = scratch::fresh(&format!("probe.real.{}", program.name.replace(' ', ".")));
    let lines: String = (0..4000)
        .map(|n| format!("{}\n", n * 7919 % 10007))
        .collect();
    fs::write(dir.join("text"), &lines)?;
    fs::write(dir.join("other"), lines.replace("9\n", "8\n"))?;
    fs::write(dir.join("numbers"), "scale=200\n4*a(1)\nquit\n")?;
    let bench = Bench::of(Path::new("/usr/bin").join(name), dir);
    let outcome = bench.record(program.args);
    check(
        !outcome.stdout.is_empty() || name == "python3",
        "it did nothing",
        &outcome,
    )?;
    let helpers = bench.dir.join("helpers.c");
    fs::write(
        &helpers,
        "long made, freed, last[64];\nCLEW_AT_END { printf(\"%d %d\\n\", made > 0, freed > 0); }\n",
    )?;
    let (made, freed) = ("made++; last[made & 63] = CLEW_TICKS;", "freed++;");
    let outcome = bench.probe(&[
        "--at",
        "malloc",
        made,
        "--at",
        "free",
        freed,
        "--with",
        &path(&helpers),
    ]);
    same(&told(&outcome)?, "1 1\n", &outcome)
}

//! Debug code that runs when something happens: threads, calls, accesses, system calls, signals.

use super::*;

pub const THREADS: &str = "#include <pthread.h>
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

pub fn threads() -> Result<(), Failed> {
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
pub fn watched() -> Result<(), Failed> {
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

pub fn call_backs() -> Result<(), Failed> {
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
pub fn events() -> Result<(), Failed> {
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

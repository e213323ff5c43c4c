//! Programs of the distribution, with debug code in their hot functions: the same checksums.

use super::*;

/// A program of the distribution, whose allocations are counted.
pub struct Program {
    /// Its file, and what it does there.
    pub name: &'static str,
    args: &'static [&'static str],
    /// Run by default; the others are long.
    pub usual: bool,
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
pub const PROGRAMS: [Program; 20] = [
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
pub fn real(program: &Program) -> Result<(), Failed> {
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

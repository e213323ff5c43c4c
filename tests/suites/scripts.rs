//! Schedules that are followed: what a recording says about its turns makes the same turns again, and nothing that a
//! schedule says keeps a program from its end.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use clew_tests::compare::{check, code, text};
use clew_tests::header::Header;
use clew_tests::run::{Job, Outcome};
use clew_tests::{clew, compile, scratch};
use libtest_mimic::{Arguments, Failed, Trial};

/// Programs that do the same whenever their threads take the same turns.
const BUGS: &[&str] = &[
    "aba",
    "check_then_act",
    "double_checked",
    "handler",
    "lock_order",
    "lost_update",
    "missed_signal",
    "order_violation",
    "shutdown",
    "two_variables",
];
const GUESTS: &[&str] = &[
    "cancel",
    "conditions",
    "futex",
    "priority_inheritance",
    "racing",
    "schedule",
    "forked_threads",
];

fn main() {
    let mut trials = Vec::new();
    for bug in BUGS {
        for policy in ["random", "pct"] {
            for seed in ["1", "2", "3"] {
                let name = format!("again/{policy}/{bug}/{seed}");
                let source = format!("bugs/{bug}.c");
                trials.push(Trial::test(name, move || again(&source, policy, seed)));
            }
        }
    }
    for guest in GUESTS {
        let source = format!("threads/{guest}.c");
        let name = format!("again/random/{guest}");
        trials.push(Trial::test(name, move || again(&source, "random", "1")));
    }
    trials.push(Trial::test("spinning", spinning));
    trials.push(Trial::test("behind exec", behind_exec));
    trials.push(Trial::test("in a child", in_a_child));
    trials.push(Trial::test("to an instruction", to_an_instruction));
    trials.push(Trial::test("nothing", || runs_with("")));
    trials.push(Trial::test("nonsense", || runs_with(NONSENSE)));
    trials.push(Trial::test("nobody's", || {
        runs_with("process 3.1\n1 free\n")
    }));
    trials.push(Trial::test("errors", errors));
    trials.push(Trial::test("xz", || real("xz")));
    trials.push(Trial::test("python3", || real("python3")));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A program, and recordings of it.
struct Bench {
    job: Job,
}

impl Bench {
    fn new(name: &str, program: impl Into<PathBuf>) -> Bench {
        let dir = scratch::fresh(&format!("scripts.{name}"));
        let mut job = Job::new(program, &dir);
        let recordings = dir.join("recordings").display().to_string();
        job.env.push(("CLEW_DIR".into(), recordings));
        job.timeout = Duration::from_secs(60);
        Bench { job }
    }

    fn guest(name: &str, source: &str) -> Result<Bench, Failed> {
        // Several tests use the same guest.
        static COMPILING: Mutex<()> = Mutex::new(());
        let path = scratch::sources().join("guests").join(source);
        let one_at_a_time = COMPILING.lock();
        let guest = compile::guest(&path, &Header::read(&path), "pie")?;
        drop(one_at_a_time);
        Ok(Bench::new(name, guest.program))
    }

    fn record(&self, name: &str, options: &[&str]) -> Outcome {
        let options = [&["--on-deadlock", "stop", "-n", name], options].concat();
        self.job.through("record", &options).run()
    }

    fn clew(&self, args: &[&str]) -> Outcome {
        let mut job = self.job.clone();
        job.program = clew::path().to_owned();
        job.args = args.iter().map(|&arg| arg.into()).collect();
        job.run()
    }

    fn turns(&self, name: &str) -> Result<String, Failed> {
        let outcome = self.clew(&["dump", "--turns", name]);
        check(code(&outcome) == Some(0), "no turns", &outcome)?;
        Ok(String::from_utf8_lossy(&outcome.stdout).into_owned())
    }

    /// A file with these turns.
    fn script(&self, text: &str) -> String {
        let path = self.job.dir.join("turns");
        fs::write(&path, text).expect("a writable scratch folder");
        path.display().to_string()
    }

    fn follow(&self, name: &str, turns: &str) -> Outcome {
        self.record(name, &["--script", &self.script(turns)])
    }

    /// What is recorded must be exact, whoever chose the turns.
    fn verify(&self, name: &str, recorded: &Outcome) -> Result<(), Failed> {
        let replayed = self.clew(&["replay", "--verify", name]);
        let same = replayed.stdout == recorded.stdout && replayed.status == recorded.status;
        check(same, "the replay differs", &replayed)
    }
}

/// Where two lists of turns part.
fn same_turns(first: &str, again: &str) -> Result<(), Failed> {
    if first == again {
        return Ok(());
    }
    let differ = |(_, (a, b)): &(usize, (&str, &str))| a != b;
    let mut lines = first.lines().zip(again.lines()).enumerate();
    let parts = lines.find(differ);
    let (many, few) = (first.lines().count(), again.lines().count());
    Err(format!("other turns, {many} and {few}, from {parts:?}").into())
}

/// Records a run, follows its turns, and has them again.
fn again(source: &str, policy: &str, seed: &str) -> Result<(), Failed> {
    let name = source.replace('/', ".");
    let bench = Bench::guest(&format!("again.{policy}.{name}.{seed}"), source)?;
    let options = ["--sched", policy, "--seed", seed, "--depth", "10"];
    let options = [&options[..], &["--length", "4000"]].concat();
    let first = bench.record("first", &options);
    let turns = bench.turns("first")?;
    // Its head, and more than threads that run one after the other.
    check(turns.lines().count() > 3, "too few turns", &first)?;
    let second = bench.follow("second", &turns);
    check(first.status == second.status, "another end", &second)?;
    same_turns(&turns, &bench.turns("second")?)?;
    bench.verify("second", &second)
}

/// Threads that wait by spinning, some of them for a thread that the schedule has come to forget.
fn spinning() -> Result<(), Failed> {
    let bench = Bench::guest("spinning", "threads/spinning.c")?;
    let first = bench.record("first", &["--sched", "random", "--seed", "2"]);
    check(code(&first) == Some(0), "failed", &first)?;
    bench.verify("first", &first)?;
    let turns = bench.turns("first")?;
    let rest = |keep: &dyn Fn(usize, &str) -> bool| {
        let lines = turns.lines().enumerate();
        let kept = lines.filter(|&(n, line)| n == 0 || keep(n, line));
        kept.map(|(_, line)| format!("{line}\n"))
            .collect::<String>()
    };
    for (name, turns) in [
        ("all", turns.clone()),
        ("half", rest(&|n, _| n % 2 == 0)),
        ("main", rest(&|_, line| line.starts_with("0 "))),
        ("free", rest(&|_, line| line.ends_with("free"))),
    ] {
        let outcome = bench.follow(name, &turns);
        let fine = code(&outcome) == Some(0) && outcome.stdout == first.stdout;
        check(fine, name, &outcome)?;
        bench.verify(name, &outcome)?;
    }
    Ok(())
}

/// The program that follows isn't the first, and the file is gone by the time it begins.
fn behind_exec() -> Result<(), Failed> {
    let guest = Bench::guest("lost", "bugs/lost_update.c")?.job.program;
    let guest = guest.display().to_string();
    let mut bench = Bench::new("exec", "/bin/sh");
    let line = format!("{guest}; echo $?; rm -f turns; {guest}; exit $?");
    bench.job.args = vec!["-c".into(), line];
    let ends = |name: &str, outcome: &Outcome| -> Result<(), Failed> {
        let turns = bench.turns(name)?;
        check(turns.contains("process 2\n"), "another process", outcome)
    };
    // A seed with which the second program has more to do than the first, and fails.
    for seed in 1..60 {
        let options = ["--sched", "random", "--seed", &seed.to_string()];
        let first = bench.record(&format!("first{seed}"), &options);
        let turns = bench.turns(&format!("first{seed}"))?;
        if code(&first) != Some(1) || !turns.contains("process 2\n") {
            continue;
        }
        let second = bench.follow("second", &turns);
        check(code(&second) == Some(1), "another end", &second)?;
        ends("second", &second)?;
        same_turns(&turns, &bench.turns("second")?)?;
        return bench.verify("second", &second);
    }
    Err("no seed makes it fail".into())
}

/// The process with threads is the second child of the first.
fn in_a_child() -> Result<(), Failed> {
    let bench = Bench::guest("child", "threads/forked_threads.c")?;
    let first = bench.record("first", &["--sched", "random", "--seed", "4"]);
    let turns = bench.turns("first")?;
    check(turns.contains("process 1\n"), &turns, &first)?;
    let second = bench.follow("second", &turns);
    same_turns(&turns, &bench.turns("second")?)?;
    bench.verify("second", &second)?;
    // For the parent these turns mean nothing.
    let other = turns.replace("process 1\n", "");
    let third = bench.follow("third", &other);
    check(third.stdout == first.stdout, "another output", &third)?;
    bench.verify("third", &third)
}

/// A turn that ends right before a certain instruction loses an update, one that ends behind it doesn't.
fn to_an_instruction() -> Result<(), Failed> {
    let mut bench = Bench::guest("instruction", "threads/two_adders.c")?;
    bench.job.args = vec!["where".into()];
    let told = bench.job.under_clew(&[]).run();
    let told = String::from_utf8_lossy(&told.stdout);
    let writes = told.trim();
    bench.job.args = vec!["race".into()];
    for (side, number) in [("before", "1\n"), ("after", "2\n")] {
        let turns = format!("clew schedule 1\n0 free\n1 {side} {writes} from 0\n2 free\n");
        let outcome = bench.follow(side, &turns);
        let fine = text(&outcome) == number;
        check(fine, &turns, &outcome)?;
        bench.verify(side, &outcome)?;
        let live = ["--script", &bench.script(&turns)];
        let outcome = bench.job.under_clew(&live).run();
        check(text(&outcome) == number, "not recorded", &outcome)?;
        // The same, told as a point.
        let point = bench.turns(side)?;
        check(!point.contains("0x"), &point, &outcome)?;
        let outcome = bench.follow(&format!("{side}-point"), &point);
        check(text(&outcome) == number, &point, &outcome)?;
    }
    Ok(())
}

const NONSENSE: &str = "\
77 free
1 at 18446744073709551615
0 at 3+4294967295
2 at 1+0+4294967295
2 before 0xffffffffffffffff from 2
1 after 0x0 from 1+1
0 free
0 at 18446744073709551615+4294967295+4294967295
";

/// Whatever the schedule says, the program runs to its end.
fn runs_with(turns: &str) -> Result<(), Failed> {
    for guest in ["conditions", "spinning", "cancel"] {
        let name = format!("with.{}.{guest}", turns.len());
        let bench = Bench::guest(&name, &format!("threads/{guest}.c"))?;
        let native = bench.job.run();
        let outcome = bench.follow("run", &format!("clew schedule 1\n{turns}"));
        let same = outcome.stdout == native.stdout && outcome.status == native.status;
        check(same, guest, &outcome)?;
        bench.verify("run", &outcome)?;
    }
    Ok(())
}

fn errors() -> Result<(), Failed> {
    let bench = Bench::new("errors", "/bin/true");
    let good = bench.script("clew schedule 1\n");
    let bad = bench.job.dir.join("bad");
    fs::write(&bad, "clew schedule 1\n1 free\n2 at noon\n").expect("a writable scratch folder");
    let bad = bad.display().to_string();
    for verb in ["run", "record"] {
        for (options, said) in [
            (&["--script", "/no/such"][..], "/no/such: No such file"),
            (&["--script", &bad], "bad: line 3 isn't part of a schedule"),
            (&["--script", "/bin/true"], "/bin/true: line 1 isn't"),
            (&["--script", &good, "--sched", "random"], "cannot be used"),
            (&["--sched", "script"], "there are fair, random, pct"),
        ] {
            let outcome = bench.job.through(verb, options).run();
            let fine = code(&outcome) == Some(2) && text(&outcome).contains(said);
            check(fine, said, &outcome)?;
        }
    }
    let outcome = bench.follow("fine", "clew schedule 1\n");
    check(code(&outcome) == Some(0), "an empty schedule", &outcome)?;
    let info = bench.clew(&["info", "fine"]);
    check(text(&info).contains("script"), "no policy", &info)
}

/// Programs that nobody here wrote: times may change what they do, but they come to the same end.
fn real(name: &str) -> Result<(), Failed> {
    const THREADS: &str = "\
import threading, queue
work, done = queue.Queue(), []
def square():
    while (n := work.get()) is not None:
        done.append(n * n)
threads = [threading.Thread(target=square) for _ in range(3)]
for thread in threads: thread.start()
for n in range(100): work.put(n)
for _ in threads: work.put(None)
for thread in threads: thread.join()
print(sum(done))
";
    let mut bench = Bench::new(&format!("real.{name}"), format!("/usr/bin/{name}"));
    if !bench.job.program.exists() {
        return Err(format!("{} isn't installed", bench.job.program.display()).into());
    }
    bench.job.args = match name {
        "xz" => ["-T2", "--block-size=60000", "-0", "-k", "-c", "data"]
            .map(Into::into)
            .into(),
        _ => vec!["-c".into(), THREADS.into()],
    };
    let data: Vec<u8> = (0..200_000u64).map(|n| ((n * n) >> 7) as u8).collect();
    fs::write(bench.job.dir.join("data"), data).expect("a writable scratch folder");
    let first = bench.record("first", &["--sched", "pct", "--depth", "30", "--seed", "5"]);
    check(code(&first) == Some(0), "failed", &first)?;
    let turns = bench.turns("first")?;
    check(turns.lines().count() > 5, "too few turns", &first)?;
    let second = bench.follow("second", &turns);
    let same = second.stdout == first.stdout && second.status == first.status;
    check(same, "another end", &second)?;
    bench.verify("second", &second)
}

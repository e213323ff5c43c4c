//! Woven recordings: a replay prints what was printed, an exact recording can be made of it, and what isn't the same is
//! never passed over in silence.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clew_tests::compare::{check, code, text};
use clew_tests::header::Header;
use clew_tests::run::{Job, Outcome};
use clew_tests::{clew, compile, scratch, sources, woven};
use libtest_mimic::{Arguments, Failed, Trial};

/// Woven runs of a guest.
const RUNS: usize = 3;
/// Random programs, unless `CLEW_WOVEN=0..1000` says which.
const RANDOM: std::ops::Range<u64> = 0..12;
/// In `make test-all`.
const MORE_RANDOM: std::ops::Range<u64> = 1000..1100;
/// Woven runs of a real program there.
const MANY: usize = 20;

/// Real programs that compress: name, arguments.
const REAL: &[(&str, &[&str])] = &[
    ("pigz", &["-p3", "-c"]),
    ("xz", &["-T2", "-1", "-c", "--block-size=128KiB"]),
    ("zstd", &["-T2", "-3", "-c"]),
    ("pbzip2", &["-p2", "-1", "-c"]),
];

fn main() {
    let mut trials = Vec::new();
    for source in sources::list(&folder("right"), &["c", "cpp"]) {
        let header = Header::read(&source.path);
        for variant in compile::variants(&source.path, &header) {
            let (path, name) = (source.path.clone(), format!("{}/{variant}", source.name));
            trials.push(Trial::test(format!("right/{name}"), move || {
                right(&path, &name, &variant)
            }));
        }
    }
    for name in ["data", "control"] {
        trials.push(Trial::test(format!("races/{name}"), move || race(name)));
    }
    trials.push(Trial::test("random", || random(seeds())));
    trials.push(Trial::test("random/more", || random(MORE_RANDOM)).with_ignored_flag(true));
    for &(name, args) in REAL {
        trials.push(Trial::test(format!("real/{name}"), move || {
            real(name, args, 1)
        }));
        let many = Trial::test(format!("real/{name}/many"), move || real(name, args, MANY));
        trials.push(many.with_ignored_flag(true));
    }
    trials.push(Trial::test("jail", jail));
    trials.push(Trial::test("refused", refused));
    trials.push(Trial::test("strangers", strangers));
    trials.push(Trial::test("killed", killed));
    trials.push(Trial::test("commands", commands));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn folder(name: &str) -> PathBuf {
    scratch::sources().join("weave").join(name)
}

fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("CLEW_WOVEN").ok();
    let given = given.as_deref().and_then(|text| text.split_once(".."));
    match given.map(|(from, to)| (from.parse(), to.parse())) {
        Some((Ok(from), Ok(to))) => from..to,
        _ => RANDOM,
    }
}

/// A program with recordings of its own.
struct Weave {
    job: Job,
    recordings: PathBuf,
}

impl Weave {
    fn new(name: &str, program: impl Into<PathBuf>) -> Weave {
        let dir = scratch::fresh(&format!("weave.{name}"));
        let recordings = dir.join("recordings");
        let mut job = Job::new(program, dir);
        job.env
            .push(("CLEW_DIR".into(), recordings.display().to_string()));
        job.timeout = Duration::from_secs(120);
        Weave { job, recordings }
    }

    fn guest(name: &str, source: &Path, variant: &str) -> Result<Weave, Failed> {
        let header = Header::read(source);
        let guest = compile::guest(source, &header, variant)?;
        let mut weave = Weave::new(name, guest.program);
        weave.job.stdin = header.stdin.clone();
        Ok(weave)
    }

    fn record(&self, options: &[&str]) -> Outcome {
        self.job.through("record", options).run()
    }

    fn clew(&self, args: &[&str]) -> Outcome {
        let mut job = self.job.clone();
        job.program = clew::path().to_owned();
        job.args = args.iter().map(|&arg| arg.to_owned()).collect();
        job.stdin = String::new();
        job.timeout *= 2;
        job.run()
    }
}

/// What a replay shows is what was recorded.
fn same(what: &str, recorded: &Outcome, replayed: &Outcome) -> Result<(), Failed> {
    let equal = recorded.status == replayed.status && recorded.stdout == replayed.stdout;
    if equal {
        return Ok(());
    }
    Err(format!(
        "{what}: recorded {:?}, replayed {:?}\n{}\n{}",
        recorded.status,
        replayed.status,
        tail(&text(recorded)),
        tail(&text(replayed))
    )
    .into())
}

fn tail(text: &str) -> String {
    let from = text.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
    text[from..].to_owned()
}

fn right(source: &Path, name: &str, variant: &str) -> Result<(), Failed> {
    let header = Header::read(source);
    let weave = Weave::guest(name, source, variant)?;
    for run in 0..RUNS {
        let recorded = weave.record(&["--weave"]);
        check(
            recorded.ended(&header.status),
            "the recorded run ends as it should",
            &recorded,
        )?;
        for _ in 0..2 {
            same("replay", &recorded, &weave.clew(&["replay"]))?;
        }
        if run == 0 {
            let relogged = weave.clew(&["relog"]);
            check(code(&relogged) == Some(0), "relog", &relogged)?;
            let exact = weave.clew(&["replay", "--verify"]);
            same("exact replay", &recorded, &exact)?;
            check(text(&exact).contains("verified:"), "it is verified", &exact)?;
        }
    }
    Ok(())
}

/// Diverges loudly or is right.
fn race(name: &str) -> Result<(), Failed> {
    let weave = Weave::guest(
        &format!("race.{name}"),
        &folder("wrong").join(format!("{name}.c")),
        "pie",
    )?;
    for _ in 0..4 {
        let recorded = weave.record(&["--weave"]);
        check(code(&recorded) == Some(0), "recorded", &recorded)?;
        for _ in 0..2 {
            let replayed = weave.clew(&["replay"]);
            if code(&replayed) == Some(124) {
                let said = text(&replayed).contains("isn't what was recorded");
                check(said, "a divergence is told", &replayed)?;
            } else {
                same("a race that wasn't noticed", &recorded, &replayed)?;
            }
        }
    }
    Ok(())
}

fn random(seeds: std::ops::Range<u64>) -> Result<(), Failed> {
    let header = Header::read(&folder("right").join("figure.c"));
    for seed in seeds {
        let name = format!("random.{seed}");
        let source = scratch::fresh(&format!("weave.source.{seed}")).join("woven.c");
        fs::write(&source, woven::program(seed))?;
        let guest = compile::guest(&source, &header, "pie")?;
        let weave = Weave::new(&name, guest.program);
        let recorded = weave.record(&["--weave"]);
        check(
            code(&recorded) == Some(0),
            &format!("seed {seed}"),
            &recorded,
        )?;
        same(&format!("seed {seed}"), &recorded, &weave.clew(&["replay"]))?;
        let _ = fs::remove_dir_all(&weave.recordings);
    }
    Ok(())
}

/// Text that compresses, but not to nothing.
fn input(path: &Path) -> Result<(), Failed> {
    let (mut text, mut state) = (String::new(), 1u64);
    while text.len() < 1_500_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        text.push_str(&format!("{} ", (state >> 33) % 5000));
        if state >> 60 == 0 {
            text.push('\n');
        }
    }
    fs::write(path, text)?;
    Ok(())
}

fn real(name: &str, args: &[&str], runs: usize) -> Result<(), Failed> {
    let kind = if runs > 1 { "many" } else { "once" };
    let mut weave = Weave::new(&format!("real.{name}.{kind}"), name);
    input(&weave.job.dir.join("input"))?;
    weave.job = weave.job.args(args.iter().copied()).args(["input"]);
    let native = weave.job.run();
    for run in 0..runs {
        let recorded = weave.record(&["--weave"]);
        same("as natively", &native, &recorded)?;
        same("replay", &recorded, &weave.clew(&["replay"]))?;
        if run % 5 == 0 {
            let exact = weave.clew(&["replay", "--verify"]);
            same("exact replay", &recorded, &exact)?;
            check(text(&exact).contains("verified:"), "it is verified", &exact)?;
        }
        let _ = fs::remove_dir_all(&weave.recordings);
    }
    Ok(())
}

/// A replay can't touch anything, whatever its program does.
fn jail() -> Result<(), Failed> {
    let weave = Weave::guest("jail", &folder("wrong").join("escape.c"), "pie")?;
    let recorded = weave.record(&["--weave"]);
    check(
        text(&recorded).contains("1 1 1 1 1"),
        "it can do all of that while recorded",
        &recorded,
    )?;
    let leak = weave.job.dir.join("leak");
    fs::remove_file(&leak)?;
    let replayed = weave.clew(&["replay"]);
    check(
        code(&replayed) == Some(124),
        "it prints something else, which is told",
        &replayed,
    )?;
    check(!leak.exists(), "nothing is written", &replayed)
}

fn refused() -> Result<(), Failed> {
    let wrong = folder("wrong");
    for (name, variant, why) in [
        ("atomics", "pie", "atomic instruction"),
        ("atomics", "static", "static program"),
        ("futex", "pie", "futexes of its own"),
    ] {
        let weave = Weave::guest(
            &format!("refused.{name}.{variant}"),
            &wrong.join(format!("{name}.c")),
            variant,
        )?;
        let outcome = weave.record(&["--weave"]);
        let told = text(&outcome).contains(why) && text(&outcome).contains("clew record");
        check(code(&outcome) == Some(125) && told, why, &outcome)?;
        check(
            !weave.recordings.join("latest").exists(),
            "nothing is left",
            &outcome,
        )?;
    }
    let weave = Weave::guest("refused.anyway", &wrong.join("atomics.c"), "pie")?;
    let outcome = weave.record(&["--weave=anyway"]);
    same("anyway", &outcome, &weave.clew(&["replay"]))
}

/// To make a stranger's recording exact would run its program with the user's rights.
fn strangers() -> Result<(), Failed> {
    let weave = Weave::guest("strangers", &folder("right").join("figure.c"), "pie")?;
    let recorded = weave.record(&["--weave", "-n", "mine"]);
    check(code(&recorded) == Some(0), "recorded", &recorded)?;
    fs::remove_dir_all(weave.recordings.join(".woven"))?;
    for args in [["relog", "mine"].as_slice(), &["dump", "mine"]] {
        let outcome = weave.clew(args);
        check(
            text(&outcome).contains("--trust") && code(&outcome) != Some(0),
            "refused",
            &outcome,
        )?;
    }
    same(
        "it replays, locked in",
        &recorded,
        &weave.clew(&["replay", "mine"]),
    )?;
    let outcome = weave.clew(&["relog", "--trust", "mine"]);
    check(code(&outcome) == Some(0), "trusted", &outcome)
}

/// What was written down before a SIGKILL replays.
fn killed() -> Result<(), Failed> {
    let weave = Weave::guest("killed", &folder("wrong").join("killed.c"), "pie")?;
    let recorded = weave.record(&["--weave"]);
    check(
        recorded.status.is_some_and(|status| !status.success()),
        "it is killed",
        &recorded,
    )?;
    let replayed = weave.clew(&["replay"]);
    let equal = recorded.stdout == replayed.stdout && code(&replayed) == Some(123);
    check(equal, "it replays up to there", &replayed)
}

fn commands() -> Result<(), Failed> {
    let weave = Weave::guest("commands", &folder("right").join("figure.c"), "pie")?;
    let recorded = weave.record(&["--weave", "-n", "one"]);
    check(code(&recorded) == Some(0), "recorded", &recorded)?;
    for (args, said) in [
        (["ls"].as_slice(), "(woven)"),
        (&["ls", "--json"], "\"woven\":true"),
        (&["info", "one"], "3 threads"),
        (&["info", "--json", "one"], "\"threads\":3"),
        (&["dump", "one", "--quick"], "read"),
        (&["info", "one"], "made; debug"),
        (&["rm", "one"], ""),
    ] {
        let outcome = weave.clew(args);
        check(
            code(&outcome) == Some(0) && text(&outcome).contains(said),
            said,
            &outcome,
        )?;
    }
    check(!weave.recordings.join("one").exists(), "removed", &recorded)
}

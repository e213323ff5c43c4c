//! The zoo: programs that fail, each with its cause marked, recorded and explained by `clew why`; and what `clew heap`
//! sees of allocators, compared with a preloaded library that writes down every call.

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use clew_tests::{clew, scratch};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

/// A run that hangs is ended after so many seconds; it only waits until then.
const HANGS: &str = "10";
/// A race shows with one of so many seeds.
const SEEDS: u32 = 200;

fn main() {
    let mut trials = Vec::new();
    let zoo = scratch::sources().join("zoo");
    let mut sources: Vec<PathBuf> = fs::read_dir(&zoo)
        .expect("the zoo is there")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.is_file())
        .collect();
    sources.sort();
    for source in sources {
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        trials.push(Trial::test(format!("why/{name}"), {
            let source = source.clone();
            move || explained(&source, Compilers::Gnu)
        }));
        // Reports of sanitizers are the compiler's: both have their own.
        if name.starts_with("san_") {
            let trial = Trial::test(format!("why/clang/{name}"), {
                let source = source.clone();
                move || explained(&source, Compilers::Clang)
            });
            trials.push(trial.with_ignored_flag(!has_clang()));
        }
    }
    trials.push(Trial::test("heap/churn", || {
        let dir = scratch::fresh("zoo.heap.churn");
        let program = dir.join("churn");
        build(&sources_of("heap/churn.c"), &program, &[])?;
        same_heap(&dir, &program, &[], "gcc", None)
    }));
    // Other allocators by their own functions.
    for allocator in ["libjemalloc.so.2", "libmimalloc.so.2.0"] {
        trials.push(Trial::test(format!("heap/{allocator}"), move || {
            let dir = scratch::fresh(&format!("zoo.heap.{allocator}"));
            let program = dir.join("churn");
            build(&sources_of("heap/churn.c"), &program, &[])?;
            same_heap(&dir, &program, &[], "gcc", Some(allocator))
        }));
    }
    trials.push(Trial::test("heap/musl", || {
        let dir = scratch::fresh("zoo.heap.musl");
        let program = dir.join("churn");
        built(
            Command::new("musl-gcc"),
            &sources_of("heap/churn.c"),
            &program,
            &["-g"],
        )?;
        same_heap(&dir, &program, &[], "musl-gcc", None)
    }));
    trials.push(Trial::test("heap/sort", || {
        let dir = scratch::fresh("zoo.heap.sort");
        let text: String = (0..3000u32)
            .map(|n| format!("{}\n", n * 7919 % 3001))
            .collect();
        let input = dir.join("input");
        fs::write(&input, text)?;
        let input = input.display().to_string();
        let sort = Path::new("/usr/bin/sort");
        same_heap(&dir, sort, &["--parallel=1", &input], "gcc", None)
    }));
    trials.push(Trial::test("alerts/notable", notable));
    trials.push(Trial::test("alerts/races", races));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Whose compilers an animal is built with.
#[derive(Clone, Copy)]
enum Compilers {
    Gnu,
    Clang,
}

/// Whether clang is there, with what its sanitizers need.
fn has_clang() -> bool {
    let asked = Command::new("clang")
        .arg("-print-file-name=libclang_rt.asan-x86_64.a")
        .output();
    asked.is_ok_and(|said| Path::new(String::from_utf8_lossy(&said.stdout).trim()).is_file())
}

fn sources_of(name: &str) -> PathBuf {
    scratch::sources().join("zoo").join(name)
}

/// What a program's first lines say.
struct Animal {
    keys: HashMap<String, String>,
    /// Lines of the cause.
    causes: Vec<u64>,
}

impl Animal {
    fn read(source: &Path) -> Result<Animal, Failed> {
        let text = fs::read_to_string(source)?;
        let head = text.lines().take_while(|line| line.starts_with("// "));
        let keys = head.filter_map(|line| line[3..].split_once(": "));
        let numbered = text.lines().zip(1..);
        Ok(Animal {
            keys: keys
                .map(|(key, value)| (key.into(), value.replace("\\n", "\n")))
                .collect(),
            causes: numbered
                .filter(|(line, _)| line.contains("// CAUSE"))
                .map(|(_, number)| number)
                .collect(),
        })
    }

    fn get(&self, key: &str) -> &str {
        self.keys.get(key).map_or("", String::as_str)
    }
}

fn build(source: &Path, program: &Path, flags: &[&str]) -> Result<(), Failed> {
    build_by(Compilers::Gnu, source, program, flags)
}

fn build_by(
    compilers: Compilers,
    source: &Path,
    program: &Path,
    flags: &[&str],
) -> Result<(), Failed> {
    let kind = source.extension().unwrap_or_default().to_string_lossy();
    let mut line = match (&*kind, compilers) {
        ("rs", _) => Command::new("rustc"),
        ("cpp", Compilers::Gnu) => Command::new("g++"),
        ("cpp", Compilers::Clang) => Command::new("clang++"),
        (_, Compilers::Gnu) => Command::new("gcc"),
        (_, Compilers::Clang) => Command::new("clang"),
    };
    match &*kind {
        "rs" => line.args([
            "--edition=2024",
            "-g",
            "--target",
            "x86_64-unknown-linux-gnu",
        ]),
        _ => line.args(["-g", "-O0", "-w", "-pthread"]),
    };
    built(line, source, program, flags)
}

fn built(mut line: Command, source: &Path, program: &Path, flags: &[&str]) -> Result<(), Failed> {
    let built = line
        .args(flags)
        .arg(source)
        .arg("-o")
        .arg(program)
        .output()?;
    match built.status.success() {
        true => Ok(()),
        false => Err(format!("{line:?}: {}", String::from_utf8_lossy(&built.stderr)).into()),
    }
}

/// Runs a command line in a folder, with recordings there.
fn run(dir: &Path, words: &[&str], input: &str) -> Result<Output, Failed> {
    let file = dir.join("stdin");
    fs::write(&file, input)?;
    let ran = Command::new(words[0])
        .args(&words[1..])
        .current_dir(dir)
        .env("CLEW_DIR", dir.join("recordings"))
        .env("LC_ALL", "C")
        // clang's begins another program to find names, which takes seconds.
        .env("ASAN_OPTIONS", "symbolize=0:detect_leaks=0")
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::from(fs::File::open(&file)?))
        .output()?;
    Ok(ran)
}

fn explained(source: &Path, compilers: Compilers) -> Result<(), Failed> {
    let animal = Animal::read(source)?;
    let name = source
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .replace('.', "_");
    let by = match compilers {
        Compilers::Gnu => "zoo",
        Compilers::Clang => "zoo.clang",
    };
    let dir = scratch::fresh(&format!("{by}.{name}"));
    let program = dir.join("program");
    let flags: Vec<&str> = animal.get("flags").split_whitespace().collect();
    build_by(compilers, source, &program, &flags)?;
    let (clew, program) = (
        clew::path().display().to_string(),
        program.display().to_string(),
    );
    let input = animal.get("stdin");
    if animal.get("record").is_empty() {
        let words = [
            "timeout", HANGS, &clew, "record", "-n", "rec", "--", &program,
        ];
        run(&dir, &words, input)?;
    } else {
        let failed = (1..=SEEDS).find_map(|seed| {
            let _ = fs::remove_dir_all(dir.join("recordings"));
            let seed = seed.to_string();
            let record = [
                "record", "-n", "rec", "--sched", "random", "--seed", &seed, "--",
            ];
            let words: Vec<&str> = [&clew[..]]
                .into_iter()
                .chain(record)
                .chain([&program[..]])
                .collect();
            let ran = run(&dir, &words, input).ok()?;
            (!ran.status.success()).then_some(())
        });
        failed.ok_or("it fails with no seed")?;
    }
    let mut words = vec![&clew[..], "why", "rec", "--json"];
    if !animal.get("expected").is_empty() {
        fs::write(dir.join("expected"), animal.get("expected"))?;
        words.extend(["--expected", "expected"]);
    }
    let ran = run(&dir, &words, "")?;
    let told = String::from_utf8_lossy(&ran.stdout).into_owned();
    let complaint = || format!("{told}\n{}", String::from_utf8_lossy(&ran.stderr));
    if ran.status.signal().is_some() || ran.status.code() > Some(1) {
        return Err(format!("{:?}: {}", ran.status, complaint()).into());
    }
    let answer: Value =
        serde_json::from_str(&told).map_err(|why| format!("{why}: {}", complaint()))?;
    let statements = answer["statements"].as_array().cloned().unwrap_or_default();
    let cause = statements.iter().find(|one| one["cause"] == true);
    let line = cause.and_then(|one| one["site"]["line"].as_u64());
    let right = answer["kind"] == animal.get("kind")
        && line.is_some_and(|line| animal.causes.contains(&line));
    // What is known to be told wrongly (docs/why.md) may become right.
    if right || animal.get("known") == "wrong" {
        return Ok(());
    }
    let wanted = format!("{} at {:?}", animal.get("kind"), animal.causes);
    Err(format!("expected {wanted}: {}", complaint()).into())
}

/// Each marked line has its alert, and there are no others.
fn notable() -> Result<(), Failed> {
    let source = sources_of("alerts/notable.c");
    let dir = scratch::fresh("zoo.alerts");
    let program = dir.join("program");
    build(&source, &program, &[])?;
    let (clew, program) = (
        clew::path().display().to_string(),
        program.display().to_string(),
    );
    run(&dir, &[&clew, "record", "-n", "rec", "--", &program], "")?;
    let ran = run(&dir, &[&clew, "alerts", "rec", "--json"], "")?;
    let told: Value = serde_json::from_slice(&ran.stdout)
        .map_err(|why| format!("{why}: {}", String::from_utf8_lossy(&ran.stderr)))?;
    let text = fs::read_to_string(&source)?;
    let mut expected: Vec<(String, u64)> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let Some((_, mark)) = line.split_once("// ALERT ") else {
            continue;
        };
        let kind = mark.split(',').next().unwrap_or(mark);
        expected.push((kind.into(), number));
        if mark.contains("signal of") {
            expected.push(("signal".into(), number));
        }
    }
    let alerts = told["alerts"].as_array().cloned().unwrap_or_default();
    let mut found: Vec<(String, u64)> = alerts
        .iter()
        .map(|alert| {
            let kind = alert["kind"].as_str().unwrap_or("").to_string();
            (kind, alert["site"]["line"].as_u64().unwrap_or(0))
        })
        .collect();
    expected.sort();
    found.sort();
    match found == expected && ran.status.code() == Some(0) {
        true => Ok(()),
        false => Err(format!("expected {expected:?}, found {found:?}").into()),
    }
}

/// Data races are among the alerts if somebody asks.
fn races() -> Result<(), Failed> {
    let dir = scratch::fresh("zoo.alerts.races");
    let program = dir.join("program");
    build(
        &scratch::sources().join("guests/bugs/lost_update.c"),
        &program,
        &[],
    )?;
    let clew = clew::path().display().to_string();
    let program = program.display().to_string();
    run(&dir, &[&clew, "record", "-n", "rec", "--", &program], "")?;
    let ran = run(&dir, &[&clew, "alerts", "rec", "--races", "--json"], "")?;
    let told: Value = serde_json::from_slice(&ran.stdout)
        .map_err(|why| format!("{why}: {}", String::from_utf8_lossy(&ran.stderr)))?;
    let alerts = told["alerts"].as_array().cloned().unwrap_or_default();
    let right = alerts.iter().any(|alert| {
        let text = alert["text"].as_str().unwrap_or("");
        alert["kind"] == "race"
            && alert["site"]["line"] == 32
            && text.contains("thread 1's write at lost_update.c:34")
    });
    match right {
        true => Ok(()),
        false => Err(format!("{told:#}").into()),
    }
}

/// What a preloaded library sees natively is what clew sees in a recording: sizes, in order, and which were freed.
/// `compiler`: whose C library the program has; `allocator`: one that is preloaded too.
fn same_heap(
    dir: &Path,
    program: &Path,
    args: &[&str],
    compiler: &str,
    allocator: Option<&str>,
) -> Result<(), Failed> {
    let library = dir.join("logger.so");
    built(
        Command::new(compiler),
        &sources_of("heap/logger.c"),
        &library,
        &["-g", "-w", "-O2", "-shared", "-fPIC"],
    )?;
    let log = dir.join("log");
    let program = program.display().to_string();
    let preloaded = format!("LD_PRELOAD={}", allocator.unwrap_or_default());
    let preload = match allocator {
        Some(allocator) => format!("LD_PRELOAD={}:{allocator}", library.display()),
        None => format!("LD_PRELOAD={}", library.display()),
    };
    let put = format!("HEAP_LOG={}", log.display());
    let mut words = vec!["env", &preload, &put, &program];
    words.extend(args);
    let native = run(dir, &words, "")?;
    let clew = clew::path().display().to_string();
    let mut words = vec![
        "env", &preloaded, &clew, "record", "-n", "rec", "--", &program,
    ];
    words.extend(args);
    let recorded = run(dir, &words, "")?;
    if native.stdout != recorded.stdout || !recorded.status.success() {
        return Err(format!("it isn't the same program: {recorded:?}").into());
    }
    let told = run(dir, &[&clew, "heap", "rec", "--all", "--json"], "")?;
    let told: Value = serde_json::from_slice(&told.stdout)?;
    let seen: Vec<(u64, bool)> = told["blocks"]
        .as_array()
        .ok_or("no blocks")?
        .iter()
        .map(|block| {
            (
                block["size"].as_u64().unwrap_or(0),
                !block["freed_by"].is_null(),
            )
        })
        .collect();
    let mut expected: Vec<(u64, bool)> = Vec::new();
    let mut live: HashMap<u64, usize> = HashMap::new();
    for line in fs::read_to_string(&log)?.lines() {
        let mut words = line[1..]
            .split_whitespace()
            .filter_map(|word| word.parse::<u64>().ok());
        let (size, block) = (
            words.next().ok_or("a size")?,
            words.next().ok_or("a block")?,
        );
        match line.starts_with('+') {
            true => {
                live.insert(block, expected.len());
                expected.push((size, false));
            }
            false => {
                let block = live.remove(&block).ok_or("freed, but not allocated")?;
                expected[block].1 = true;
            }
        }
    }
    if expected.len() < 10 {
        return Err(format!("only {} blocks are natively allocated", expected.len()).into());
    }
    if seen != expected {
        let at = seen
            .iter()
            .zip(&expected)
            .take_while(|(a, b)| a == b)
            .count();
        let (seen_there, wanted) = (seen.get(at), expected.get(at));
        return Err(format!(
            "{} blocks, natively {}; the first difference is block {at}: {seen_there:?}, natively {wanted:?}",
            seen.len(),
            expected.len()
        )
        .into());
    }
    Ok(())
}

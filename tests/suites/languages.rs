//! Recordings of interpreters, stepped through in their language: what is told is what the language's own tracing of a
//! native run tells. The same lines with the same values, forwards; backwards the reverse.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clew_tests::{clew, scratch};
use libtest_mimic::{Arguments, Failed, Trial};

type Check = fn(&Interpreter) -> Result<(), Failed>;

fn main() {
    let python: [(&str, Check); 13] = [
        ("steps", |python| steps(python, "basics.py")),
        ("steps through generators and coroutines", |python| {
            steps(python, "flows.py")
        }),
        ("steps through a module of its own", own_module),
        ("steps through the library", |python| {
            steps(python, "library.py")
        }),
        ("nexts", nexts),
        ("breakpoints", breakpoints),
        ("conditions", conditions),
        ("invariant", invariant),
        ("uncaught", uncaught),
        ("race", race),
        ("hunted", hunted),
        ("exceptions", exceptions),
        ("started otherwise", started_otherwise),
    ];
    let perl: [(&str, Check); 3] = [
        ("steps", |perl| perl_steps(perl, "sums.pl")),
        ("steps through the library", |perl| {
            perl_steps(perl, "library.pl")
        }),
        ("wrong sum", perl_sum),
    ];
    let mut trials = Vec::new();
    for interpreter in pythons() {
        for (name, check) in python {
            let interpreter = interpreter.clone();
            let name = format!("{}/{name}", interpreter.name);
            trials.push(Trial::test(name, move || check(&interpreter)));
        }
    }
    let program = "/usr/bin/perl".to_string();
    for (name, check) in perl {
        let interpreter = Interpreter {
            program: program.clone(),
            name: "perl".into(),
        };
        trials.push(Trial::test(format!("perl/{name}"), move || {
            check(&interpreter)
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

#[derive(Clone)]
struct Interpreter {
    program: String,
    name: String,
}

/// The distribution's, the one that is found first, which may be built by oneself, and those in `CLEW_PYTHONS`, with colons
/// between them; of versions that are supported.
fn pythons() -> Vec<Interpreter> {
    let others = std::env::var("CLEW_PYTHONS").unwrap_or_default();
    let named = others.split(':').filter(|name| !name.is_empty());
    let all = ["/usr/bin/python3", "python3"].into_iter().chain(named);
    let mut known: Vec<Interpreter> = Vec::new();
    for program in all {
        let told = Command::new(program)
            .args([
                "-c",
                "import sys; print('%d.%d.%d' % sys.version_info[:3], sys.executable)",
            ])
            .output();
        let Some(told) = told
            .ok()
            .and_then(|told| String::from_utf8(told.stdout).ok())
        else {
            continue;
        };
        let Some((version, program)) = told.trim().split_once(' ') else {
            continue;
        };
        let name = format!("python{version}");
        let minor = version
            .split('.')
            .nth(1)
            .and_then(|minor| minor.parse().ok());
        let fits = minor.is_some_and(|minor: u32| (11..=13).contains(&minor));
        if fits && !known.iter().any(|one| one.name == name) {
            known.push(Interpreter {
                program: program.into(),
                name,
            });
        }
    }
    known
}

fn script(name: &str) -> PathBuf {
    scratch::sources().join("languages").join(name)
}

/// A script under an interpreter, the same in every run.
fn plain(interpreter: &Interpreter) -> Command {
    let mut command = Command::new(&interpreter.program);
    fixed(&mut command);
    command
}

fn fixed(command: &mut Command) {
    command
        .env("PYTHONHASHSEED", "0")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PERL_HASH_SEED", "0");
}

/// A recording of a script.
fn record(interpreter: &Interpreter, test: &str, name: &str) -> PathBuf {
    let folder = scratch::fresh(&format!("languages.{}.{test}", interpreter.name));
    let recording = folder.join("rec");
    let mut command = Command::new(clew::path());
    fixed(&mut command);
    let recorded = command
        .args(["record", "-o"])
        .arg(&recording)
        .arg("--")
        .arg(&interpreter.program)
        .arg(script(name))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("clew starts");
    assert!(recorded.code().is_some_and(|code| code < 2), "{recorded}");
    recording
}

/// What the prompt answers, command by command; first of all its greeting.
fn ask(recording: &Path, commands: &[&str]) -> Vec<String> {
    let mut child = Command::new(clew::path())
        .arg("debug")
        .arg(recording)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("clew starts");
    let mut input = child.stdin.take().expect("a pipe");
    let text = commands.join("\n") + "\n";
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("it reads");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut answers = vec![String::new()];
    for line in text.lines() {
        let echo = ["(python) ", "(perl) "]
            .iter()
            .any(|prompt| line.starts_with(prompt));
        match echo {
            true => answers.push(String::new()),
            false => {
                let last = answers.len() - 1;
                answers[last].push_str(line);
                answers[last].push('\n');
            }
        }
    }
    assert_eq!(answers.len(), commands.len() + 1, "{text}\n{errors}");
    answers
}

/// A line as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    file: String,
    line: u32,
    function: String,
    depth: usize,
    locals: Vec<String>,
}

impl Line {
    fn place(&self) -> String {
        let Line {
            file,
            line,
            function,
            ..
        } = self;
        let call = if function.starts_with('<') { "" } else { "()" };
        format!("> {file}({line}){function}{call}")
    }
}

/// The place in an answer, without the thread in front.
fn place(answer: &str) -> String {
    let line = answer.lines().find(|line| line.contains("> "));
    let line = line.unwrap_or(answer);
    line[line.find("> ").unwrap_or(0)..].to_string()
}

/// What the tracer tells of a native run.
fn oracle(python: &Interpreter, name: &str) -> Vec<Line> {
    let told = plain(python)
        .arg(script("trace.py"))
        .arg(script(name))
        .output()
        .expect("python starts");
    let text = String::from_utf8_lossy(&told.stderr).into_owned();
    let line = |line: &str| {
        let mut fields = line.split('\x1f');
        Some(Line {
            file: fields.next()?.into(),
            line: fields.next()?.parse().ok()?,
            function: fields.next()?.into(),
            depth: fields.next()?.parse().ok()?,
            locals: sorted(fields.map(|field| field.replacen('=', " = ", 1))),
        })
    };
    text.lines().filter_map(line).collect()
}

/// Objects are elsewhere in another run.
fn without_addresses(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("0x") {
        out.push_str(before);
        out.push_str("0x");
        rest = after.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    out.push_str(rest);
    out
}

fn locals(answer: &str) -> Vec<String> {
    let lines = answer.lines().filter(|line| *line != "none");
    sorted(lines.map(String::from))
}

/// A tracer keeps a frame's variables in the order in which it saw them.
fn sorted(variables: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = variables.map(|one| without_addresses(&one)).collect();
    all.sort();
    all
}

fn expect(what: &str, found: &str, wanted: &str) -> Result<(), Failed> {
    match found.contains(wanted) {
        true => Ok(()),
        false => Err(format!("{what}: {wanted:?} isn't in {found:?}").into()),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), Failed> {
    match found == wanted {
        true => Ok(()),
        false => Err(format!("{what}: {found:?}, expected {wanted:?}").into()),
    }
}

/// So many lines are compared; of each so many-th the values.
const MOST: usize = 250;
const VALUES: usize = 9;

fn steps(python: &Interpreter, name: &str) -> Result<(), Failed> {
    let lines: Vec<Line> = oracle(python, name).into_iter().take(MOST).collect();
    assert!(lines.len() > 100, "the oracle tells {} lines", lines.len());
    let mut commands = Vec::new();
    for n in 0..lines.len() {
        if n % VALUES == 0 {
            commands.push("locals");
        }
        if n + 1 < lines.len() {
            commands.push("step");
        }
    }
    for n in (0..lines.len() - 1).rev() {
        commands.push("reverse-step");
        if n % (VALUES * 3) == 0 {
            commands.push("locals");
        }
    }
    commands.push("reverse-step");
    let test = name.rsplit('/').next().unwrap_or(name);
    let answers = ask(&record(python, test, name), &commands);
    let mut answers = answers.iter();
    let mut next = || answers.next().map_or("", String::as_str);
    for (n, line) in lines.iter().enumerate() {
        same(&format!("step {n}"), place(next()), line.place())?;
        if n % VALUES == 0 {
            same(
                &format!("values at step {n}"),
                locals(next()),
                line.locals.clone(),
            )?;
        }
    }
    for (n, line) in lines.iter().enumerate().rev().skip(1) {
        same(&format!("back at step {n}"), place(next()), line.place())?;
        if n % (VALUES * 3) == 0 {
            let found = locals(next());
            same(&format!("values back at {n}"), found, line.locals.clone())?;
        }
    }
    expect("before the first line", next(), "the beginning")
}

/// A program of the interpreter's own distribution.
fn own_module(python: &Interpreter) -> Result<(), Failed> {
    let told = plain(python)
        .args(["-c", "import os; print(os.path.dirname(os.__file__))"])
        .output()
        .expect("python starts");
    let folder = String::from_utf8_lossy(&told.stdout).trim().to_string();
    steps(python, &format!("{folder}/this.py"))
}

/// `next` leads to the next line that isn't deeper, and back.
fn nexts(python: &Interpreter) -> Result<(), Failed> {
    let lines = oracle(python, "basics.py");
    let mut way = vec![0];
    let mut at = 0;
    while let Some(next) = (at + 1..lines.len()).find(|&n| lines[n].depth <= lines[at].depth) {
        at = next;
        way.push(at);
    }
    let there = vec!["next"; way.len() - 1];
    let back = vec!["reverse-next"; way.len() - 1];
    let more = [
        "tbreak tries",
        "continue",
        "finish",
        "undo",
        "reverse-finish",
        "start",
        "tbreak fact if n == 1",
        "continue",
        "where",
        "until",
        "finish",
    ];
    let commands = [&there[..], &back[..], &more[..]].concat();
    let answers = ask(&record(python, "nexts", "basics.py"), &commands);
    for (n, &wanted) in way.iter().enumerate() {
        let from = lines[way[n.saturating_sub(1)]].place();
        let what = format!("next {n} from {from}");
        same(&what, place(&answers[n]), lines[wanted].place())?;
    }
    for (n, &wanted) in way.iter().rev().enumerate().skip(1) {
        let answer = &answers[way.len() - 1 + n];
        same(&format!("back {n}"), place(answer), lines[wanted].place())?;
    }
    let rest = &answers[way.len() * 2 - 1..];
    expect("a function", &rest[1], "tries()")?;
    expect("finished", &rest[2], "<listcomp>")
        .or_else(|_| expect("finished", &rest[2], "<module>"))?;
    same("undone", place(&rest[3]), place(&rest[1]))?;
    same("called from", place(&rest[4]), place(&rest[2]))?;
    same("the start", place(&rest[5]), lines[0].place())?;
    expect("recursion", &rest[7], "fact()")?;
    same("its depth", rest[8].matches(")fact").count(), 4)?;
    expect("in a caller", &rest[10], "fact()")
}

/// Lines, functions, conditions; both ways.
fn breakpoints(python: &Interpreter) -> Result<(), Failed> {
    let lines = oracle(python, "basics.py");
    let wanted = |line: &&Line| line.line == 3 && line.function == "square";
    let hits: Vec<&Line> = lines.iter().filter(wanted).collect();
    let mut commands = vec!["break basics.py:3"];
    for _ in &hits {
        commands.extend(["continue", "locals"]);
    }
    commands.push("continue");
    for _ in &hits {
        commands.extend(["reverse-continue", "locals"]);
    }
    commands.push("reverse-continue");
    let more = [
        "clear 1",
        "break fact if n == 2",
        "c",
        "p n",
        "args",
        "up",
        "p n",
        "p print('hello') or n + 1",
        "p nobody",
        "!n = 77",
        "p n",
        "p [n * k for k in range(2)]",
        "p while",
        "p sum(1 for _ in iter(int, 1))",
    ];
    commands.extend(more);
    let answers = ask(&record(python, "breakpoints", "basics.py"), &commands);
    let mut answers = answers.iter().skip(2);
    let mut next = || answers.next().map_or("", String::as_str);
    for hit in &hits {
        expect("forwards", next(), "breakpoint 1")?;
        same("forwards", locals(next()), hit.locals.clone())?;
    }
    expect("the end", next(), "the end of the program: exit 0")?;
    for hit in hits.iter().rev() {
        expect("backwards", next(), "breakpoint 1")?;
        same("backwards", locals(next()), hit.locals.clone())?;
    }
    expect("the start", next(), "the beginning")?;
    let answers: Vec<&str> = (0..more.len()).map(|_| next()).collect();
    expect("a condition", answers[2], "breakpoint 2")?;
    same("n", answers[3], "2\n")?;
    same("arguments", answers[4], "n = 2\n")?;
    same("the caller's n", answers[6], "3\n")?;
    same("what is printed", answers[7], "hello\n4\n")?;
    expect("an unknown name", answers[8], "NameError")?;
    same("a copy is changed", answers[10], "3\n")?;
    same("names inside comprehensions", answers[11], "[0, 3]\n")?;
    expect("what can't be compiled", answers[12], "SyntaxError")?;
    expect("what doesn't end", answers[13], "come to an end")
}

/// A condition that is asked in the midst of a run holds where the language says so, whatever its variable is.
fn conditions(python: &Interpreter) -> Result<(), Failed> {
    const LARGE: &str = "1000000000000";
    const SMALL: &str = "-1000000000000";
    let wanted: [(&str, &[&str]); 8] = [
        ("v == 7", &["7"]),
        ("v == 1", &["True"]),
        ("v != 0", &["-5", "7", "True", "1.5", LARGE, SMALL]),
        ("v < 0", &["-5", SMALL]),
        ("v <= -5", &["-5", SMALL]),
        ("v > 5", &["7", LARGE]),
        ("v >= 0 and v >= 1", &["7", "True", "1.5", LARGE]),
        ("v > -6 and v < 1", &["-5", "0"]),
    ];
    let mut commands = Vec::new();
    for (n, (condition, values)) in wanted.iter().enumerate() {
        commands.push(format!("break f if {condition}"));
        for _ in *values {
            commands.extend(["continue".to_string(), "p v".into()]);
        }
        commands.push("continue".into());
        commands.push("reverse-continue".into());
        commands.push("p v".into());
        commands.push(format!("clear {}", n + 1));
        commands.push("start".into());
    }
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let answers = ask(&record(python, "conditions", "values.py"), &commands);
    let mut answers = answers.iter().skip(1);
    let mut next = || answers.next().map_or("", String::as_str);
    for (condition, values) in wanted {
        next();
        for value in values {
            expect(condition, next(), "f()")?;
            same(condition, next().trim(), value)?;
        }
        expect(condition, next(), "the end of the program")?;
        expect(condition, next(), "f()")?;
        same("the last", Some(next().trim()), values.last().copied())?;
        next();
        next();
    }
    Ok(())
}

/// What `clew watch` and its kin say, as JSON.
fn told(recording: &Path, words: &[&str]) -> serde_json::Value {
    let output = Command::new(clew::path())
        .arg(words[0])
        .arg(recording)
        .args(&words[1..])
        .arg("--json")
        .output()
        .expect("clew starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code().is_some_and(|code| code < 2),
        "{errors}"
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn invariant(python: &Interpreter) -> Result<(), Failed> {
    let recording = record(python, "invariant", "bank.py");
    // Between taking and giving the sum is less than 2000; more it is by the one wrong line.
    let condition = "sum(a.n for a in accounts) <= 2000";
    let all = told(&recording, &["watch", "--lang", "python", condition]);
    let flip = &all["flip"];
    same("line", flip["stack"][0]["line"].as_u64(), Some(13))?;
    let function = flip["stack"][0]["function"].as_str();
    same("function", function, Some("transfer"))?;
    same("caller", flip["stack"][1]["function"].as_str(), Some("run"))?;
    same("after", flip["values"][1]["after"].as_str(), Some("2001"))?;
    let all = told(
        &recording,
        &["last", "--lang", "python", "accounts[0].name"],
    );
    let function = all["flip"]["stack"][0]["function"].as_str();
    expect("made by", function.unwrap_or_default(), "<module>")
}

fn uncaught(python: &Interpreter) -> Result<(), Failed> {
    let commands = [
        "end",
        "raised",
        "p price",
        "where",
        "up",
        "p name",
        "watch prices.get('pear', 0) is None",
        "p name, price",
    ];
    let answers = ask(&record(python, "uncaught", "uncaught.py"), &commands);
    expect("raised", &answers[2], "TypeError")?;
    expect("where it was raised", &answers[2], "(20)add()")?;
    same("the bad value", answers[3].as_str(), "None\n")?;
    expect("the stack", &answers[4], "(15)total")?;
    same("the caller's", answers[6].as_str(), "'pear'\n")?;
    expect("what made it", &answers[7], "prices[name] = price")?;
    same("its values", answers[8].as_str(), "('pear', None)\n")
}

/// The update that is lost: the count gets less than it was.
fn race(python: &Interpreter) -> Result<(), Failed> {
    let commands = [
        "break second",
        "continue",
        "where 1",
        "tbreak race.py:22",
        "continue",
        "p count",
        "watch count > 30",
        "threads",
    ];
    let recording = record(python, "race", "race.py");
    let answers = ask(&recording, &commands);
    expect("the thread", &answers[2], "second()")?;
    expect("the other one", &answers[3], ")first")?;
    expect("its updates", &answers[6], "40")?;
    expect("who made it more", &answers[7], "second()")?;
    // After the other thread's updates it is 31 again.
    let commands = [
        "break race.py:22",
        "continue",
        "when",
        "break race.py:11 if count == 31",
        "continue",
        "when",
    ];
    let answers = ask(&recording, &commands);
    let (from, to) = (answers[3].trim(), answers[6].trim());
    let words = [
        "watch",
        "--lang",
        "python",
        "--from",
        from,
        "--to",
        to,
        "count < 40",
    ];
    let all = told(&recording, &words);
    let frame = &all["flip"]["stack"][0];
    same("it was less", frame["line"].as_u64(), Some(15))?;
    same("by", frame["function"].as_str(), Some("first"))
}

/// A race that ordinary runs don't show: a schedule is found that does, and the line in Python.
fn hunted(python: &Interpreter) -> Result<(), Failed> {
    let folder = scratch::fresh(&format!("languages.{}.hunted", python.name));
    let mut command = Command::new(clew::path());
    fixed(&mut command);
    let found = command
        .args(["hunt", "--sched", "pos", "--runs", "200", "--"])
        .arg(&python.program)
        .arg(script("stock.py"))
        .env("CLEW_DIR", &folder)
        .output()
        .expect("clew starts");
    let text = String::from_utf8_lossy(&found.stdout);
    same(&text, found.status.code(), Some(0))?;
    let words = ["watch", "--lang", "python", "stock['left'] >= 0"];
    let all = told(&folder.join("latest"), &words);
    let frame = &all["flip"]["stack"][0];
    same("line", frame["line"].as_u64(), Some(14))?;
    same("function", frame["function"].as_str(), Some("sell"))?;
    let left = all["flip"]["values"][1]["after"].as_str();
    same("left", left, Some("-1"))
}

/// Stops where exceptions are raised, not where they pass; both ways.
fn exceptions(python: &Interpreter) -> Result<(), Failed> {
    let wanted = [
        ("KeyError: 'thrown'", "numbers()"),
        ("GeneratorExit", "numbers()"),
    ];
    let commands = [
        "exceptions on",
        "continue",
        "continue",
        "reverse-continue",
        "reverse-continue",
        "exceptions off",
        "break flows.py:71",
        "continue",
        "exceptions on",
        "continue",
        "p n",
    ];
    let answers = ask(&record(python, "exceptions", "flows.py"), &commands);
    for (n, (what, function)) in [2, 3, 4].into_iter().zip([wanted[0], wanted[1], wanted[0]]) {
        expect("raised", &answers[n], &format!("raised: {what}"))?;
        expect("in", &answers[n], function)?;
    }
    expect("before all", &answers[5], "the beginning")?;
    expect("the line before", &answers[8], "breakpoint 1")?;
    expect("deep", &answers[10], "raised: LookupError: deep")?;
    same("its n", answers[11].as_str(), "0\n")
}

/// Text on the command line, a module, standard input: the main program's first line is found.
fn started_otherwise(python: &Interpreter) -> Result<(), Failed> {
    let folder = scratch::fresh(&format!("languages.{}.otherwise", python.name));
    let text = "def f(n):\n    return n + 1\nx = f(1)\nprint(x)\n";
    std::fs::write(folder.join("own.py"), text).expect("it is written");
    for (name, words) in [
        ("text", vec!["-c", text]),
        ("module", vec!["-m", "own"]),
        ("input", vec!["-"]),
    ] {
        let recording = folder.join(name);
        let mut command = Command::new(clew::path());
        fixed(&mut command);
        let recorded = command
            .args(["record", "-o"])
            .arg(&recording)
            .arg("--")
            .arg(&python.program)
            .args(words)
            .current_dir(&folder)
            .stdin(std::fs::File::open(folder.join("own.py")).expect("it is there"))
            .stdout(Stdio::null())
            .status()
            .expect("clew starts");
        assert!(recorded.success());
        let answers = ask(
            &recording,
            &["step", "step", "where", "reverse-step", "rs", "rs"],
        );
        expect(name, &answers[0], "(1)<module>")?;
        expect(name, &answers[1], "(3)<module>")?;
        expect(name, &answers[2], "(2)f()")?;
        expect(name, &answers[3], "(3)<module>")?;
        expect(name, &answers[4], "(3)<module>")?;
        expect(name, &answers[5], "(1)<module>")?;
        expect(name, &answers[6], "the beginning")?;
    }
    Ok(())
}

fn perl_steps(perl: &Interpreter, name: &str) -> Result<(), Failed> {
    let told = plain(perl)
        .arg("-d")
        .arg(script(name))
        .env(
            "PERL5DB",
            format!("BEGIN {{ require \"{}\" }}", script("trace.pl").display()),
        )
        .output()
        .expect("perl starts");
    let text = String::from_utf8_lossy(&told.stderr).into_owned();
    let lines: Vec<String> = text
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split('\x1f').collect();
            match fields[..] {
                [file, line, sub] => {
                    let call = if sub == "main program" { "" } else { "()" };
                    Some(format!("> {file}({line}){sub}{call}"))
                }
                _ => None,
            }
        })
        .collect();
    assert!(lines.len() > 50, "the oracle tells {text}");
    let steps = vec!["step"; lines.len() - 1];
    let back = vec!["reverse-step"; lines.len() - 1];
    let commands = [&steps[..], &back[..]].concat();
    let answers = ask(&record(perl, name, name), &commands);
    let places: Vec<String> = answers.iter().map(|answer| place(answer)).collect();
    for (n, line) in lines.iter().enumerate() {
        let plain = |place: &str| place.replace("main program()", "main program");
        same(&format!("step {n}"), plain(&places[n]), plain(line))?;
        let back = places.len() - 1 - n;
        same(&format!("back {n}"), plain(&places[back]), plain(line))?;
    }
    Ok(())
}

fn perl_sum(perl: &Interpreter) -> Result<(), Failed> {
    let recording = record(perl, "sum", "sums.pl");
    let commands = [
        "break add if $n == 36",
        "break sums.pl:10 if $n == 36",
        "clear 1",
        "continue",
        "locals",
        "args",
        "p $totals{even}",
        "next",
        "p $totals{even}",
        "reverse-next",
        "p $totals{even}",
        "where",
        "finish",
    ];
    let answers = ask(&recording, &commands);
    expect("a condition", &answers[4], "(10)add()")?;
    expect("locals", &answers[5], "$n = 36")?;
    expect("arguments", &answers[6], "('even', 36)")?;
    same("before", answers[7].as_str(), "20\n")?;
    same("after", answers[9].as_str(), "56\n")?;
    same("before again", answers[11].as_str(), "20\n")?;
    expect("the stack", &answers[12], "(30)main program")?;
    expect("back in the caller", &answers[13], "main program")?;
    // Without the wrong line it would be 56, then 120, by line 10.
    let condition = "$totals{even} < 92";
    let all = told(&recording, &["watch", "--lang", "perl", condition]);
    same("line", all["flip"]["stack"][0]["line"].as_u64(), Some(14))
}

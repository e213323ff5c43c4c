//! Regions of recordings as recordings of their own: what is in them is what was in the original, record by record; the
//! state that they begin with leads to the same checks, outputs and ends; and every command takes them.

#[path = "regions/tail.rs"]
mod tail;

use std::fs;
use std::path::{Path, PathBuf};

use clew_recording::cut;
use clew_recording::event::{Effect, Event, Record, StreamId};
use clew_recording::meta::Meta;
use clew_recording::position::Position;
use clew_recording::reader::Recording as Log;
use clew_tests::compare::report;
use clew_tests::header::Header;
use clew_tests::recorded::Recording;
use clew_tests::run::{Job, Outcome};
use clew_tests::{clew, guests, scratch};
use libtest_mimic::{Arguments, Failed, Trial};

/// Threads, handlers, code that changes, memory that is shared, processes.
const GUESTS: &[&str] = &[
    "images/contexts",
    "images/dlopen",
    "images/exceptions",
    "images/tls",
    "instructions/jit_dual",
    "instructions/jit_threads",
    "instructions/self_modifying",
    "instructions/time_stamp",
    "instructions/vectors",
    "instructions/x87",
    "processes/exec",
    "processes/fork",
    "processes/shared_counter",
    "processes/shared_maps",
    "processes/vfork",
    "signals/basic",
    "signals/between_threads",
    "signals/context",
    "signals/fatal",
    "signals/timers",
    "threads/conditions",
    "threads/forked_threads",
    "threads/main_first",
    "threads/many",
    "threads/waiting_calls",
    "travel/work",
];

/// The same, and those that wait long enough for several parts.
const TAILS: &[&str] = &[
    "instructions/jit_dual",
    "instructions/jit_threads",
    "instructions/self_modifying",
    "instructions/vectors",
    "instructions/x87",
    "processes/exec",
    "processes/fork",
    "processes/shared_counter",
    "processes/shared_maps",
    "processes/vfork",
    "signals/between_threads",
    "signals/fatal",
    "signals/timers",
    "threads/conditions",
    "threads/forked_threads",
    "threads/main_first",
    "threads/many",
    "threads/waiting_calls",
    "travel/work",
];

fn main() {
    let mut trials = Vec::new();
    for &name in GUESTS {
        trials.push(Trial::test(format!("cut/{name}"), move || cut_guest(name)));
    }
    trials.push(Trial::test("a cut of a cut", cut_of_a_cut));
    trials.push(Trial::test("every command takes one", commands));
    trials.push(Trial::test("wrong places", wrong_places));
    trials.push(Trial::test("cut short", cut_short));
    trials.push(Trial::test("python, by its lines", python));
    trials.push(Trial::test("kept if", kept_if));
    trials.push(Trial::test("a region is recorded", recorded_region));
    for &name in TAILS {
        trials.push(Trial::test(format!("tail/{name}"), move || {
            tail::guest(name)
        }));
    }
    trials.push(Trial::test("marks", marks));
    trials.push(Trial::test("tail: redis killed", tail::redis_killed));
    trials.push(Trial::test("tail: redis crashed", tail::redis_crashed));
    trials.push(Trial::test("tail: nginx killed", tail::nginx_killed));
    trials.push(Trial::test(
        "tail: the recorder killed",
        tail::recorder_killed,
    ));
    trials.push(Trial::test("tail: damaged parts", tail::damaged));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A guest in its first build.
fn guest(test: &str, name: &str) -> Result<Job, Failed> {
    let sources = scratch::sources().join("guests");
    let source = ["c", "cpp"]
        .map(|ending| sources.join(format!("{name}.{ending}")))
        .into_iter()
        .find(|source| source.is_file())
        .ok_or("no such guest")?;
    let header = Header::read(&source);
    let variants = clew_tests::compile::variants(&source, &header);
    guests::job(
        &format!("regions.{test}.{name}"),
        &source,
        &header,
        &variants[0],
    )
}

/// A recording, and what came of the recorded run.
struct Original {
    made: Recording,
    outcome: Outcome,
}

impl Original {
    fn of(job: &Job) -> Result<Original, Failed> {
        let made = Recording::of(job, &["--seed", "1"]);
        let outcome = made.job.run();
        if outcome.status.is_none() {
            return Err(report("hung", &outcome, &[("record", &made.job)]));
        }
        Ok(Original { made, outcome })
    }

    fn log(&self) -> Result<Log, Failed> {
        Ok(Log::open(&self.made.folder)?)
    }
}

/// A region that was cut out, removed when dropped.
struct Region {
    folder: PathBuf,
}

impl Drop for Region {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Region {
    /// Cuts it; none if it was refused for a child of vfork's.
    fn cut(of: &Path, job: &Job, words: &[&str]) -> Result<Option<Region>, Failed> {
        let folder = PathBuf::from(format!("{}.region", of.display()));
        let _ = fs::remove_dir_all(&folder);
        let (from, to) = (of.to_string_lossy(), folder.to_string_lossy());
        let mut all = vec!["cut", &from, "-o", &to];
        all.extend(words);
        let cut = run(job, &all);
        let said = String::from_utf8_lossy(&cut.stderr).into_owned();
        match cut.status.and_then(|status| status.code()) {
            Some(0) => Ok(Some(Region { folder })),
            Some(125) if said.contains("vfork") && !folder.exists() => Ok(None),
            _ => Err(format!(
                "clew {}: {}\n{}",
                all.join(" "),
                cut.ending(),
                cut.printed()
            )
            .into()),
        }
    }

    fn path(&self) -> String {
        self.folder.to_string_lossy().into_owned()
    }

    /// Replays it with all checks; what it printed and how it ended.
    fn verified(&self, job: &Job) -> Result<Outcome, Failed> {
        let path = self.path();
        let mut replay = run(job, &["replay", &path, "--verify"]);
        let said = String::from_utf8_lossy(&replay.stderr).into_owned();
        let Some(at) = said.rfind("clew: verified: ") else {
            return Err(format!("not verified: {}\n{}", replay.ending(), replay.printed()).into());
        };
        replay.stderr.truncate(at);
        Ok(replay)
    }
}

/// A clew command, in the job's place.
fn run(job: &Job, words: &[&str]) -> Outcome {
    let mut job = job.clone();
    job.program = clew::path().to_owned();
    job.args = words.iter().map(|&word| word.into()).collect();
    job.stdin.clear();
    job.run()
}

/// The records of a stream behind so many events, as text; those of outputs without their numbers.
fn records(log: &Log, stream: StreamId, after: u64) -> Result<Vec<String>, Failed> {
    let mut reader = log.stream(stream)?;
    let mut all = Vec::new();
    while let Some(mut record) = reader.next()? {
        if let Record::Event(Event::Call(call)) = &mut record
            && let Some(output) = &mut call.output
        {
            output.order = 0;
        }
        if let Record::Effect(Effect::Output { order, .. }) = &mut record {
            *order = 0;
        }
        let text = format!("{record:?}");
        if reader.position() > after {
            all.push(text);
        }
    }
    Ok(all)
}

/// Ticks before each event of a stream, the first at 0.
fn ticks(log: &Log, stream: StreamId) -> Result<Vec<u64>, Failed> {
    let mut reader = log.stream(stream)?;
    let mut all = Vec::new();
    while let Some(record) = reader.next()? {
        if let Record::Event(event) = record {
            all.push(event.place().ticks);
        }
    }
    Ok(all)
}

/// The program's first process is cut in several places; what it leads to is what the original led to.
fn cut_guest(name: &str) -> Result<(), Failed> {
    let job = guest("cut", name)?;
    let original = Original::of(&job)?;
    let log = original.log()?;
    // By default the last program of the process is meant.
    let stream = log.of_process(1).last().ok_or("no stream")?.id;
    let ticks = ticks(&log, stream)?;
    let events = ticks.len() as u64;
    let mut cuts = 0;
    for part in [1, 3, 5, 7] {
        let from = events * part / 8;
        let place = from.to_string();
        let Some(region) = Region::cut(&original.made.folder, &job, &["--from", &place])? else {
            continue;
        };
        cuts += 1;
        compare(&log, &region, stream)?;
        let replay = region.verified(&job)?;
        let whole = &original.outcome;
        // Processes that were there before aren't in it, nor what they print.
        let alone = log.processes() == 1;
        let printed = !alone || whole.stdout.ends_with(&replay.stdout);
        if replay.status != whole.status || !printed {
            let text = format!(
                "{name} from {from}: {}\n{}",
                replay.ending(),
                replay.printed()
            );
            return Err(text.into());
        }
    }
    if cuts == 0 {
        return Err("nothing could be cut".into());
    }
    // In the midst of the longest computation, and to the midst of a later one.
    let longest = (1..ticks.len() - 1).max_by_key(|&n| ticks[n]).unwrap_or(1);
    let from = format!("{longest}+{}", ticks[longest] / 2);
    let later = (longest + 1..ticks.len() - 1).max_by_key(|&n| ticks[n]);
    let to = later.map(|n| format!("{n}+{}", ticks[n] / 2));
    let mut words = vec!["--from", &from];
    if let Some(to) = &to {
        words.extend(["--to", to]);
    }
    if let Some(region) = Region::cut(&original.made.folder, &job, &words)? {
        let replay = region.verified(&job)?;
        let expected = match &to {
            Some(_) => replay.status.is_some_and(|status| status.success()),
            None => replay.status == original.outcome.status,
        };
        if !expected {
            let text = format!(
                "{name} {words:?}: {}\n{}",
                replay.ending(),
                replay.printed()
            );
            return Err(text.into());
        }
    }
    Ok(())
}

/// The region's records are those of the original from there on.
fn compare(log: &Log, region: &Region, stream: StreamId) -> Result<(), Failed> {
    let there = Log::open(&region.folder)?;
    // What does nothing by itself is passed: it begins where it says.
    let said = Meta::read(&region.folder)?.region.ok_or("no region")?.from;
    let from = said.parse::<Position>()?.event;
    let prologue = cut::prologue(&there, stream)?;
    let mut old = records(log, stream, from)?;
    let mut new = records(&there, stream, prologue)?;
    // What does nothing by itself is behind the position already, and answers of time calls are told with the state.
    let silent = |text: &&String| {
        ["Event(Time(", "Event(Values(", "Event(Note(", "Event(Check"]
            .iter()
            .any(|kind| text.starts_with(kind))
    };
    let begin = |all: &[String]| all.iter().take_while(silent).count();
    old.drain(..begin(&old));
    new.drain(..begin(&new));
    settle(&mut old);
    settle(&mut new);
    match old.iter().zip(&new).position(|(old, new)| old != new) {
        None if old.len() == new.len() => Ok(()),
        None => Err(format!("{} records, {} in the region", old.len(), new.len()).into()),
        Some(n) => Err(format!("record {n}: {}\nis in the region {}", old[n], new[n]).into()),
    }
}

/// Of what stands between two events and does nothing by itself, the answers of time calls come last: where a region may
/// end before they are all taken, they are written last.
fn settle(all: &mut [String]) {
    let beside = |text: &String| {
        [
            "Event(Time(",
            "Event(Values(",
            "Event(Note(",
            "Event(Deadlock(",
        ]
        .iter()
        .any(|kind| text.starts_with(kind))
    };
    for run in all.chunk_by_mut(|one, next| beside(one) && beside(next)) {
        run.sort_by_key(|text| text.starts_with("Event(Values("));
    }
}

fn cut_of_a_cut() -> Result<(), Failed> {
    let job = guest("again", "threads/many")?;
    let original = Original::of(&job)?;
    let log = original.log()?;
    let events = ticks(&log, 1)?.len() as u64;
    let place = (events / 4).to_string();
    let first = Region::cut(&original.made.folder, &job, &["--from", &place])?;
    let first = first.ok_or("refused")?;
    let prologue = cut::prologue(&Log::open(&first.folder)?, 1)?;
    let place = (prologue + events / 4).to_string();
    let second = Region::cut(&first.folder, &job, &["--from", &place])?;
    let second = second.ok_or("refused")?;
    let replay = second.verified(&job)?;
    if replay.status != original.outcome.status {
        return Err(replay.printed().into());
    }
    // It says where it is in the life of the process.
    let dump = run(&job, &["dump", &second.path(), "--to", "1"]);
    let text = String::from_utf8_lossy(&dump.stdout).into_owned();
    let at = events / 4 + events / 4;
    // What does nothing by itself is passed where a region begins.
    let near = (at..at + 4).any(|at| text.contains(&format!("in the midst, at {at}:")));
    match near {
        true => Ok(()),
        false => Err(format!("not at {at}: {text}").into()),
    }
}

/// What must be said of a region by a command.
fn says(job: &Job, words: &[&str], expected: &[&str]) -> Result<(), Failed> {
    let outcome = run(job, words);
    let said = outcome.printed();
    match expected.iter().find(|text| !said.contains(**text)) {
        None => Ok(()),
        Some(missing) => Err(format!(
            "clew {}: {}, without {missing:?}\n{said}",
            words.join(" "),
            outcome.ending()
        )
        .into()),
    }
}

fn commands() -> Result<(), Failed> {
    let source = scratch::sources().join("guests/travel/work.c");
    let mut header = Header::read(&source);
    header.flags.push("-g".into());
    let job = guests::job("regions.commands", &source, &header, "pie")?;
    let original = Original::of(&job)?;
    // By other words for where: none of them may lead elsewhere than the position that it means.
    for (when, other) in [
        ("hash$", "end"),
        ("calls:30", "end"),
        ("work.c:24#2", "output:."),
        ("ticks:2e5", "sort#3"),
    ] {
        let words = ["--from", when, "--to", other];
        let region = Region::cut(&original.made.folder, &job, &words)?.ok_or("refused")?;
        region.verified(&job)?;
    }
    let region = Region::cut(
        &original.made.folder,
        &job,
        &["--from", "sort#2", "--to", "hash#3$"],
    )?;
    let region = region.ok_or("refused")?;
    let replay = region.verified(&job)?;
    if !replay.status.is_some_and(|status| status.success()) {
        return Err(replay.printed().into());
    }
    let path = &region.path();
    let origin = original.made.folder.to_string_lossy().into_owned();
    let origin = Path::new(&origin).file_name().unwrap_or_default();
    let origin = origin.to_string_lossy();
    says(&job, &["info", path], &["region", &origin, "goes on"])?;
    says(
        &job,
        &["dump", path],
        &["in the midst, at", "state of the thread"],
    )?;
    let gdb = [
        "debug",
        path,
        "--at",
        "start",
        "--",
        "-batch",
        "-ex",
        "bt",
        "-ex",
        "clew when",
    ];
    says(&job, &gdb, &["main (", "work.c"])?;
    let stepping = [
        "debug",
        path,
        "--at",
        "start",
        "--",
        "-batch",
        "-ex",
        "stepi 100",
        "-ex",
        "reverse-stepi 50",
        "-ex",
        "break hash",
        "-ex",
        "continue",
        "-ex",
        "reverse-continue",
        "-ex",
        "bt",
    ];
    says(&job, &stepping, &["main", "hash"])?;
    says(&job, &["calls", "hash", path], &["hash()"])?;
    says(
        &job,
        &["writes", "seed", path, "--most", "10"],
        &["next_random"],
    )?;
    // Packed, unpacked elsewhere, replayed.
    let pack = format!("{path}.clew");
    let _ = fs::remove_file(&pack);
    let packed = run(&job, &["pack", path, "-o", &pack]);
    let elsewhere = scratch::fresh("regions.commands.elsewhere");
    let mut other = job.clone();
    let place = elsewhere.to_string_lossy().into_owned();
    other.env.push(("CLEW_DIR".into(), place));
    let unpacked = run(&other, &["unpack", &pack, "-n", "there"]);
    let _ = fs::remove_file(&pack);
    for outcome in [&packed, &unpacked] {
        if !outcome.status.is_some_and(|status| status.success()) {
            return Err(outcome.printed().into());
        }
    }
    let replay = run(&other, &["replay", "there", "--verify"]);
    let done = replay.status.is_some_and(|status| status.success());
    let done = done && replay.printed().contains("verified: ");
    let _ = fs::remove_dir_all(&elsewhere);
    if !done {
        return Err(replay.printed().into());
    }
    says(
        &job,
        &["pack", path, "--strip-env", "-o", &pack],
        &["in the midst of a run"],
    )
}

fn wrong_places() -> Result<(), Failed> {
    let job = guest("wrong", "images/hello")?;
    let original = Original::of(&job)?;
    let path = original.made.folder.to_string_lossy().into_owned();
    let new = format!("{path}.region");
    for (from, to, why) in [
        ("99999999", "end", "lies behind the end"),
        ("20", "10", "doesn't lie behind"),
        ("20", "20", "doesn't lie behind"),
        ("x", "10", "no function is called x"),
        ("12x", "10", "invalid value"),
    ] {
        let words = ["cut", &path, "--from", from, "--to", to, "-o", &new];
        says(&job, &words, &[why])?;
        if Path::new(&new).exists() {
            let _ = fs::remove_dir_all(&new);
            return Err(format!("{from}..{to} leaves a folder behind").into());
        }
    }
    Ok(())
}

/// A region's log that ends anywhere, also in its state, or has a byte changed: what there is replays, or it is said
/// why not.
fn cut_short() -> Result<(), Failed> {
    let job = guest("short", "threads/many")?;
    let original = Original::of(&job)?;
    let log = original.log()?;
    let half = (ticks(&log, 1)?.len() / 2).to_string();
    let region = Region::cut(&original.made.folder, &job, &["--from", &half])?;
    let region = region.ok_or("refused")?;
    let file = region.folder.join("log");
    let whole = fs::read(&file)?;
    for n in 0..24 {
        let at = whole.len() * n / 24;
        let mut bytes = whole.clone();
        match n % 2 {
            0 => bytes.truncate(at),
            _ => bytes[at] ^= 0x10,
        }
        fs::write(&file, &bytes)?;
        let replay = run(&job, &["replay", &region.path()]);
        let code = replay.status.and_then(|status| status.code());
        if !matches!(code, Some(1 | 123 | 124 | 125)) || replay.stderr.is_empty() {
            return Err(format!("{n}: {}\n{}", replay.ending(), replay.printed()).into());
        }
    }
    Ok(())
}

/// An interpreter, from the middle of its life on: in its own language.
fn python() -> Result<(), Failed> {
    let script = "\
def step(n):
    return n * 3 % 1000003

total = 1
for n in range(200000):
    total = step(total) + n
print(total)
";
    let dir = scratch::fresh("regions.python");
    fs::write(dir.join("sums.py"), script)?;
    let job = Job::new("/usr/bin/python3", &dir).args(["sums.py"]);
    let original = Original::of(&job)?;
    let log = original.log()?;
    // While modules are imported.
    let from = (ticks(&log, 1)?.len() / 2).to_string();
    let region = Region::cut(&original.made.folder, &job, &["--from", &from])?;
    let region = region.ok_or("refused")?;
    let replay = region.verified(&job)?;
    if replay.status != original.outcome.status || replay.stdout != original.outcome.stdout {
        return Err(replay.printed().into());
    }
    says(&job, &["last", &region.path(), "total"], &["sums.py:6"])
}

/// Recordings that stay only if the run ended so: its status is always the program's own.
fn kept_if() -> Result<(), Failed> {
    let dir = scratch::fresh("regions.kept");
    let folder = PathBuf::from(format!("{}.recording", dir.display()));
    let path = folder.to_string_lossy().into_owned();
    let job = Job::new("/bin/sh", &dir);
    let (dies, fails) = ("kill -SEGV $$", "/bin/true; /bin/false; exit 3");
    for (condition, script, ends, kept) in [
        ("fail", "exit 0", "exit 0", None),
        ("signal", "exit 1", "exit 1", None),
        ("fail", dies, "signal 11", Some("SIGSEGV")),
        ("exit!=0", dies, "signal 11", None),
        ("exit=3", fails, "exit 3", Some("exit 3")),
        ("exit=4", fails, "exit 3", None),
        (
            "fail",
            fails,
            "exit 3",
            Some("without 1 process that ended well"),
        ),
        (
            "output=lost [1-9]",
            "echo lost 3",
            "exit 0",
            Some("it printed"),
        ),
        ("output=lost [4-9]", "echo lost 3", "exit 0", None),
        (
            "grep -q lost",
            "echo lost 3",
            "exit 0",
            Some("grep -q lost says so"),
        ),
    ] {
        let _ = fs::remove_dir_all(&folder);
        let words = [
            "record",
            "-o",
            &path,
            "--keep-if",
            condition,
            "--",
            "/bin/sh",
            "-c",
            script,
        ];
        let outcome = run(&job, &words);
        let wrong = |what: &str| -> Failed {
            format!(
                "{condition}, {script}: {what}: {}\n{}",
                outcome.ending(),
                outcome.printed()
            )
            .into()
        };
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        let ended = match outcome.status {
            Some(status) => match (
                status.code(),
                std::os::unix::process::ExitStatusExt::signal(&status),
            ) {
                (Some(code), _) => format!("exit {code}"),
                (_, signal) => format!("signal {}", signal.unwrap_or(0)),
            },
            None => return Err(wrong("hung")),
        };
        if ended != ends {
            return Err(wrong("another end"));
        }
        match kept {
            None if folder.exists() => return Err(wrong("it is still there")),
            None if !said.is_empty() => return Err(wrong("something was said")),
            None => continue,
            Some(why) if !said.contains("clew: kept ") || !said.contains(why) => {
                return Err(wrong("it wasn't said why"));
            }
            Some(_) => {}
        }
        let replay = run(&job, &["replay", &path, "--verify"]);
        let same = replay.status == outcome.status && replay.printed().contains("verified: ");
        if !same {
            return Err(wrong(&format!(
                "the replay: {}\n{}",
                replay.ending(),
                replay.printed()
            )));
        }
    }
    let _ = fs::remove_dir_all(&folder);
    Ok(())
}

/// Places that a program names itself; natively nothing comes of it.
fn marks() -> Result<(), Failed> {
    let dir = scratch::fresh("regions.marks");
    let header = scratch::sources().join("../include/clew.h");
    let text = format!(
        "#include \"{}\"\n#include <stdio.h>\n\
         int main(void) {{\n\
         errno = 7;\n\
         for (int n = 0; n < 3; n++) {{ clew_mark(\"round\"); printf(\"%d\\n\", n); fflush(stdout); }}\n\
         clew_mark(\"all done\");\n\
         return clew_running() * 10 + errno;\n}}\n",
        header.display()
    );
    let source = dir.join("marks.c");
    fs::write(&source, text)?;
    let program = dir.join("marks");
    let compiled = std::process::Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .args([&program, &source])
        .status()?;
    if !compiled.success() {
        return Err("the header isn't compiled".into());
    }
    let job = Job::new(&program, &dir);
    let code = |of: &Outcome| of.status.and_then(|status| status.code());
    let native = job.run();
    let under = job.under_clew(&[]).run();
    if (code(&native), code(&under)) != (Some(7), Some(17)) || native.stdout != under.stdout {
        return Err(format!("{}\n{}", native.printed(), under.printed()).into());
    }
    let original = Original::of(&job)?;
    if code(&original.outcome) != Some(27) {
        return Err(original.outcome.printed().into());
    }
    for (mark, rest) in [
        ("mark:round", "0\n1\n2\n"),
        ("mark:round#3", "2\n"),
        ("mark:all done", ""),
    ] {
        let region = Region::cut(&original.made.folder, &job, &["--from", mark])?;
        let replay = region.ok_or("refused")?.verified(&job)?;
        if replay.stdout != rest.as_bytes() || code(&replay) != Some(27) {
            return Err(format!("{mark}: {}", replay.printed()).into());
        }
    }
    let path = original.made.folder.to_string_lossy().into_owned();
    let new = format!("{path}.region");
    let wrong = ["cut", &path, "--from", "mark:round#4", "-o", &new];
    says(&job, &wrong, &["no mark \"round#4\"", "round, all done"])?;
    let gdb = [
        "debug",
        &path,
        "--",
        "-batch",
        "-ex",
        "clew seek mark:round#2",
        "-ex",
        "clew when",
    ];
    says(&job, &gdb, &["prctl", "  thread "])
}

/// Only a region of a run stays; all of it if there is no such moment.
fn recorded_region() -> Result<(), Failed> {
    let source = scratch::sources().join("guests/travel/work.c");
    let header = Header::read(&source);
    let job = guests::job("regions.recorded", &source, &header, "pie")?;
    for (when, begins) in [("sort#2", "in the midst"), ("sort#99", "started")] {
        let made = Recording::of(&job, &["--from", when]);
        let outcome = made.job.run();
        let wrong = |what: &str, of: &Outcome| -> Failed {
            format!("{when}: {what}: {}\n{}", of.ending(), of.printed()).into()
        };
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        let missing = said.contains("no region was cut out");
        if !outcome.status.is_some_and(|status| status.success())
            || missing != (begins == "started")
        {
            return Err(wrong("recorded", &outcome));
        }
        let path = made.folder.to_string_lossy().into_owned();
        let dump = run(&job, &["dump", &path, "--to", "1"]);
        if !dump.printed().contains(begins) {
            return Err(wrong("another beginning", &dump));
        }
        let replay = run(&job, &["replay", &path, "--verify"]);
        if replay.status != outcome.status || !replay.printed().contains("verified: ") {
            return Err(wrong("replayed", &replay));
        }
    }
    Ok(())
}

//! Recordings whose replay diverges: all that lies before can be looked at, and the report tells what there is to tell.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use clew_recording::codec::Encoder;
use clew_recording::event::{Effect, Event, LONGEST_RECORD, Record};
use clew_recording::log::{self, Kind, Packer};
use clew_recording::reader::Recording;
use clew_recording::rewrite::Puts;
use clew_tests::run::Outcome;
use clew_tests::scratch;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::hostile;
use super::place::{DIVERGED, Place, code, require};

pub fn trials() -> Vec<Trial> {
    let trial = |name: &'static str, test: fn(&Place) -> Result<(), Failed>| {
        let title = format!("diverged/{name}");
        Trial::test(title.clone(), move || test(&Place::new(&title)))
    };
    vec![
        trial("told", told),
        trial("debug", debug),
        trial("watch", watch),
        trial("dump", dump),
        trial("report", report),
        trial("ways", ways),
        trial("unreadable", unreadable),
        trial("forked", forked),
    ]
}

/// The program of these trials, compiled once, with lines.
pub fn program() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let source = source();
        let program = scratch::root().join("robust-diverged");
        let own = program.with_extension(std::process::id().to_string());
        let compiled = Command::new("cc")
            .args(["-O1", "-g", "-w", "-o"])
            .args([&own, Path::new(&source)])
            .status();
        assert!(compiled.is_ok_and(|status| status.success()), "cc failed");
        fs::rename(&own, &program).expect("in the same folder");
        program.to_string_lossy().into_owned()
    })
}

fn source() -> String {
    format!("{}/suites/robust/diverged.c", env!("CARGO_MANIFEST_DIR"))
}

/// The line with the call.
fn line() -> usize {
    let text = fs::read_to_string(source()).expect("the source");
    let found = text.lines().position(|line| line.ends_with("// the call"));
    found.expect("a line with that mark") + 1
}

const SECRET: &str = "what-was-read-is-secret";
const VARIABLE: &str = "what-is-in-the-environment-is-secret";

/// Records it as `good`.
pub fn record(place: &Place) -> Result<(), Failed> {
    let mut job = place.job(&["record", "-n", "good", program()]);
    job.stdin = SECRET.into();
    job.env.push(("SECRET".into(), VARIABLE.into()));
    job.env.push(("NEEDED".into(), "aaab".into()));
    let outcome = job.run();
    require(code(&outcome) == Some(0), || outcome.printed())
}

/// The events of `good` that write, by number, from 1.
fn calls(place: &Place) -> Result<Vec<u64>, Failed> {
    let recording = Recording::open(&place.folder("good"))?;
    let mut reader = recording.stream(1)?;
    let mut found = Vec::new();
    while let Some(record) = reader.next()? {
        if matches!(record, Record::Event(Event::Call(call)) if call.nr == 1) {
            found.push(reader.position());
        }
    }
    Ok(found)
}

/// Makes `bad` of it: event `target` is what `edit` puts there.
fn damage(place: &Place, target: u64, edit: &mut dyn FnMut(&Record, Puts)) -> Result<(), Failed> {
    let mut events = 0;
    hostile::rewrite(
        &place.folder("good"),
        &place.folder("bad"),
        &mut |_, _, record, put| {
            events += matches!(record, Record::Event(_)) as u64;
            match record {
                Record::Event(_) if events == target => edit(record, put),
                record => put(record),
            }
        },
    )
}

/// `bad` is `good`, but one call in the middle wrote another number of bytes. The number of its event.
fn one_argument(place: &Place) -> Result<u64, Failed> {
    record(place)?;
    let target = calls(place)?[30];
    damage(place, target, &mut |record, put| {
        if let Record::Event(Event::Call(call)) = record {
            let mut call = *call;
            call.args[2] = 2;
            put(&Record::Event(Event::Call(call)));
        }
    })?;
    Ok(target)
}

fn said(outcome: &Outcome) -> String {
    let both = [&outcome.stdout[..], &outcome.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

fn has(text: &str, words: &[&str]) -> Result<(), Failed> {
    for word in words {
        require(text.contains(word), || format!("no {word:?} in:\n{text}"))?;
    }
    Ok(())
}

/// gdb on `bad`, with these commands.
fn gdb(place: &Place, at: &str, script: &str) -> Result<String, Failed> {
    let file = place.dir.join("script");
    fs::write(&file, script)?;
    let file = file.to_string_lossy();
    let gdb = ["--", "-nx", "-q", "-batch", "-x", &file];
    let outcome = place.clew(&[&["debug", "bad", "--at", at][..], &gdb].concat());
    require(code(&outcome) == Some(0), || {
        format!("{}: {}", outcome.ending(), outcome.printed())
    })?;
    Ok(said(&outcome))
}

/// What `clew replay` says of it, and that its command leads there.
fn told(place: &Place) -> Result<(), Failed> {
    let target = one_argument(place)?;
    let replay = place.clew(&["replay", "bad"]);
    require(code(&replay) == Some(DIVERGED), || replay.printed())?;
    let text = said(&replay);
    let (last, line) = (target - 1, line());
    let at = format!("step at {}:{line}", source());
    has(
        &text,
        &[
            "replay diverged from the recording in process ",
            "robust-diverged",
            &format!("behind event {last} of stream 1"),
            "expected write with [1, ",
            &format!("> {target} "),
            &format!("last equal: event {last}"),
            &format!("there, at {last}, in thread "),
            "the replay noticed, at ",
            &at,
            "in main at ",
            &format!("look at it: clew debug bad --at {last}"),
            "report it: clew report bad",
        ],
    )?;
    // Both stacks: behind the call before it, and at the one that differs.
    require(text.matches(&at).count() >= 2, || text.clone())?;
    let there = gdb(place, &last.to_string(), "clew when\nbt\n")?;
    has(
        &there,
        &[&format!("\n{last}  thread"), "in step (", "in main ("],
    )
}

/// Everything before can be gone to, from both sides.
fn debug(place: &Place) -> Result<(), Failed> {
    let target = one_argument(place)?;
    // Far behind: the last place that there is.
    let text = gdb(
        place,
        &(target + 40).to_string(),
        "clew when\nup\nprint counter\nreverse-stepi\nclew when\nstepi\nclew when\nbreak main\nreverse-continue\ncontinue\nclew when\n",
    )?;
    has(&text, &["diverges from the recording behind event"])?;
    let positions: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("  thread "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let [end, before, again, last] = positions[..] else {
        return Err(format!("positions {positions:?} in:\n{text}").into());
    };
    require(end == again && end == last && before != end, || {
        format!("positions {positions:?} in:\n{text}")
    })?;
    require(end.starts_with(&format!("{}+", target - 1)), || {
        format!("{end}, and event {target} is the one that differs")
    })?;
    // The same value as in the good one, which goes on.
    let value = |text: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix("$1 = "));
        found.map(String::from)
    };
    let counter = value(&text);
    let _ = fs::remove_dir_all(place.folder("bad"));
    fs::rename(place.folder("good"), place.folder("bad"))?;
    let good = gdb(place, end, "up\nprint counter\n")?;
    require(counter.is_some() && counter == value(&good), || {
        format!("{counter:?} in:\n{text}\nand in\n{good}")
    })
}

fn watch(place: &Place) -> Result<(), Failed> {
    one_argument(place)?;
    let found = place.clew(&["watch", "bad", "counter > 100"]);
    require(code(&found) == Some(0), || found.printed())?;
    has(&said(&found), &["counter += "])?;
    // What lies behind isn't there.
    let none = place.clew(&["watch", "bad", "counter > 100000"]);
    require(code(&none) == Some(1), || none.printed())
}

fn dump(place: &Place) -> Result<(), Failed> {
    let target = one_argument(place)?;
    let outcome = place.clew(&["dump", "bad"]);
    require(code(&outcome) == Some(0), || outcome.printed())?;
    let text = said(&outcome);
    // What was written comes from the replay, up to where it goes.
    has(
        &text,
        &[
            "write(1, \".\", 1) = 1",
            "exited with 0",
            &format!("behind event {} of stream 1", target - 1),
        ],
    )
}

fn report(place: &Place) -> Result<(), Failed> {
    let target = one_argument(place)?;
    let made = place.clew(&["report", "bad", "--json", "-o", "report.tar.zst"]);
    require(code(&made) == Some(0), || made.printed())?;
    let facts: Value = serde_json::from_slice(&made.stdout)?;
    let first = &facts["divergences"][0];
    let in_step = |scene: &Value| {
        let mut stack = scene["stack"].as_array().into_iter().flatten();
        stack.any(|frame| frame["function"] == "step" && frame["line"].is_number())
    };
    require(
        first["event"] == target - 1
            && first["again"] == true
            && in_step(&first["noticed"])
            && in_step(&first["agreed"])
            && first["agreed"]["position"].as_str() == Some(&(target - 1).to_string()),
        || format!("{facts:#}"),
    )?;
    let contents = |file: &str| -> Result<String, Failed> {
        let all = Command::new("tar")
            .args(["--zstd", "-xOf", file])
            .current_dir(&place.dir)
            .output()?;
        Ok(String::from_utf8_lossy(&all.stdout).into_owned())
    };
    let text = contents("report.tar.zst")?;
    has(
        &text,
        &[
            "Not in it: the program's memory, environment and files.",
            "replay diverged from the recording",
            "rflags",
            "  run 0x",
            "robust-diverged",
            "\"kernel\"",
        ],
    )?;
    require(!text.contains(SECRET) && !text.contains(VARIABLE), || {
        "secrets are in it".into()
    })?;
    // One that is there isn't replaced.
    let again = place.clew(&["report", "bad", "-o", "report.tar.zst"]);
    require(code(&again) == Some(1), || again.printed())?;
    // All of it: replays, and holds what it is asked for.
    let whole = place.clew(&[
        "report",
        "bad",
        "--with-memory",
        "--with-files",
        "-o",
        "whole.tar.zst",
    ]);
    require(code(&whole) == Some(0), || whole.printed())?;
    let unpacked = Command::new("tar")
        .args(["--zstd", "-xf", "whole.tar.zst"])
        .current_dir(&place.dir)
        .status()?;
    require(unpacked.success(), || "tar fails".into())?;
    let replay = place.clew(&["replay", "./recording"]);
    require(code(&replay) == Some(DIVERGED), || replay.printed())?;
    let variables =
        clew_recording::environment::of(&Recording::open(&place.dir.join("recording"))?)?;
    require(
        variables
            .iter()
            .any(|variable| variable.value == VARIABLE.as_bytes()),
        || format!("{variables:?}"),
    )?;
    // Nothing to report.
    let good = place.clew(&["report", "good", "-o", "none.tar.zst"]);
    let there = place.dir.join("none.tar.zst").exists();
    require(code(&good) == Some(1) && !there, || good.printed())
}

/// What can be wrong with an event, and with its effects: each is noticed there or later, and all before is there.
fn ways(place: &Place) -> Result<(), Failed> {
    record(place)?;
    let all = calls(place)?;
    type Change = fn(&Record, Puts);
    type Way<'a> = &'a dyn Fn(&Record, Puts);
    let ticks = |by: i64| {
        move |record: &Record, put: Puts| {
            if let Record::Event(Event::Call(call)) = record {
                let mut call = *call;
                call.ticks = call.ticks.wrapping_add_signed(by);
                put(&Record::Event(Event::Call(call)));
            }
        }
    };
    let (fewer, more) = (ticks(-3), ticks(3));
    let other: Change = |record, put| {
        if let Record::Event(Event::Call(call)) = record {
            let mut call = *call;
            call.nr = 0;
            put(&Record::Event(Event::Call(call)));
        }
    };
    let missing: Change = |_, _| {};
    let twice: Change = |record, put| {
        put(record);
        put(record);
    };
    let effect: Change = |record, put| {
        put(record);
        put(&Record::Effect(Effect::Map(b"no such thing")));
    };
    let ways: [(&str, Way); 7] = [
        ("fewer ticks", &fewer),
        ("more ticks", &more),
        ("another call", &other),
        ("missing", &missing),
        ("twice", &twice),
        ("effect", &effect),
        ("as it was", &|record, put| put(record)),
    ];
    for (n, (name, way)) in ways.into_iter().enumerate() {
        let target = all[20 + n];
        damage(place, target, &mut |record, put| way(record, put))?;
        let replay = place.clew(&["replay", "bad"]);
        if name == "as it was" {
            require(code(&replay) == Some(0), || replay.printed())?;
            continue;
        }
        let told = format!("{name}, event {target}: {}", replay.printed());
        require(code(&replay) == Some(DIVERGED), || told.clone())?;
        let text = said(&replay);
        let last = target - u64::from(name != "twice");
        has(
            &text,
            &[
                &format!("last equal: event {last}"),
                "the replay noticed, at ",
            ],
        )?;
        let script = "clew when\nreverse-stepi\nclew when\nstepi\nclew when\nreverse-continue\ncontinue\nclew when\n";
        let text = gdb(place, "end", script)?;
        let positions: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("  thread "))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        let same = matches!(positions[..], [a, b, c, d] if a == c && a == d && a != b);
        let there = positions.first().and_then(|at| at.split('+').next());
        require(same && there == Some(&last.to_string()), || {
            format!("{name}: {positions:?} in:\n{text}")
        })?;
        // And all before.
        for event in [all[3], last - 1] {
            let text = gdb(place, &event.to_string(), "clew when\n")?;
            require(text.contains("  thread "), || format!("{name}: {text}"))?;
        }
    }
    Ok(())
}

/// A log that makes no sense from some event on, in a chunk whose checksum is right: it can be looked at up to there.
fn unreadable(place: &Place) -> Result<(), Failed> {
    record(place)?;
    let target = calls(place)?[20];
    hostile::rewrite(
        &place.folder("good"),
        &place.folder("bad"),
        &mut |_, _, record, put| put(record),
    )?;
    let recording = Recording::open(&place.folder("good"))?;
    let (mut encoder, mut packer) = (Encoder::default(), Packer::default());
    let mut room = vec![0; 2 * LONGEST_RECORD];
    let mut bytes = Vec::new();
    let mut out = log::file_header().to_vec();
    let mut history = Vec::new();
    let mut reader = recording.stream(1)?;
    while reader.position() < target
        && let Some(record) = reader.next()?
    {
        let len = match &record {
            Record::Event(event) => encoder.event(event, &mut room),
            Record::Effect(effect) => encoder.effect(effect, &mut room),
        };
        bytes.extend_from_slice(&room[..len]);
        if out.len() == log::file_header().len() {
            out.extend_from_slice(packer.pack(Kind::Records, 1, &bytes, &history));
            log::remember(&mut history, &bytes);
            bytes.clear();
        }
    }
    bytes.extend_from_slice(&[0xff; 40]);
    out.extend_from_slice(packer.pack(Kind::Records, 1, &bytes, &history));
    fs::write(place.folder("bad").join("log"), out)?;
    let replay = place.clew(&["replay", "-q", "bad"]);
    require(code(&replay) == Some(DIVERGED), || replay.printed())?;
    let text = gdb(place, "end", "clew when\nreverse-stepi\nclew when\n")?;
    let positions = text.lines().filter(|line| line.contains("  thread "));
    require(positions.count() == 2, || text.clone())?;
    has(&text, &["can be read to event"])
}

/// A child of a process that diverges before it is forked can't be had, which is said; one forked before can.
fn forked(place: &Place) -> Result<(), Failed> {
    place.record(
        "good",
        &[
            "/bin/sh",
            "-c",
            "(echo one); echo between; (echo two); echo end",
        ],
    )?;
    let recording = Recording::open(&place.folder("good"))?;
    let mut forks = Vec::new();
    let (mut number, mut between) = (0, 0);
    let mut reader = recording.stream(1)?;
    while let Some(record) = reader.next()? {
        number += matches!(record, Record::Event(_)) as u64;
        match record {
            Record::Event(Event::Forked { pid, .. }) => forks.push(pid),
            Record::Event(Event::Call(call)) if call.nr == 1 && forks.len() == 1 => {
                between = number
            }
            _ => {}
        }
    }
    let [first, second] = forks[..] else {
        return Err(format!("{forks:?}").into());
    };
    let mut events = 0;
    hostile::rewrite(
        &place.folder("good"),
        &place.folder("bad"),
        &mut |stream, _, record, put| {
            events += (stream == 1 && matches!(record, Record::Event(_))) as u64;
            match record {
                Record::Event(Event::Call(call)) if stream == 1 && events == between => {
                    let mut call = *call;
                    call.args[2] += 1;
                    put(&Record::Event(Event::Call(call)));
                }
                record => put(record),
            }
        },
    )?;
    let at = |pid: i32| {
        let pid = pid.to_string();
        place.clew(&[
            "debug",
            "bad",
            "--pid",
            &pid,
            "--",
            "-nx",
            "-q",
            "-batch",
            "-ex",
            "clew when",
        ])
    };
    let one = at(first);
    require(code(&one) == Some(0), || one.printed())?;
    has(&said(&one), &["  thread "])?;
    let two = at(second);
    require(code(&two) == Some(125), || two.printed())?;
    has(
        &said(&two),
        &["diverges from the recording behind event", "of stream 1"],
    )
}

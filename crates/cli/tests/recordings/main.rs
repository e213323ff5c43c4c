//! The commands about recordings, on recordings that were written for the purpose.

mod packing;
mod synthetic;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::{Duration, Instant};

use clew_recording::event::*;
use synthetic::{Place, Records, start};

const FIRST: Origin = Origin::Exec { before: 0 };

/// Two processes, two threads, a signal, a waiting call, a note.
fn rich(place: &Place) {
    let info = {
        let mut info = [0u8; 128];
        info[0] = libc::SIGSEGV as u8;
        info[8] = 1;
        info[16..24].copy_from_slice(&0xdead_0000u64.to_le_bytes());
        info
    };
    let at = |ticks, steps| Place_ { ticks, steps };
    let first = Records::default()
        .event(start(100, FIRST, 0, &["/bin/demo", "\u{1b}[31m"]))
        .event(Event::Time(1_000_000))
        .call(
            libc::SYS_openat,
            [libc::AT_FDCWD as u32 as u64, 0x5000, 0o2000000, 0, 0, 0],
            End::Returned(3),
        )
        .call(libc::SYS_read, [3, 0x6000, 4096, 0, 0, 0], End::Returned(6))
        .memory(0x6000, b"hello\n")
        .call(libc::SYS_read, [0, 0x6000, 1, 0, 0, 0], End::Waits)
        .event(Event::NewThread {
            thread: 1,
            tid: 101,
        })
        .event(Event::Switched {
            place: at(40, 3),
            to: 1,
        })
        .call(libc::SYS_kill, [100, 15, 0, 0, 0, 0], End::Returned(-1))
        .event(Event::Switched {
            place: at(0, 0),
            to: 0,
        })
        .event(Event::Resumed {
            result: Some(1),
            by: None,
        })
        .memory(0x6000, b"x")
        .event(Event::Note("ioctl 0x1234 isn't known"))
        .event(Event::Forked {
            ticks: 3,
            stream: 2,
            pid: 102,
        })
        .event(Event::Signal {
            place: at(9, 1),
            cause: Cause::Fault,
            signo: libc::SIGSEGV,
            info: &info,
        })
        .call(999, [1, 2, 3, 4, 5, 6], End::Returned(-38))
        .event(Event::Time(9_000_000))
        .event(Event::Killed {
            place: at(1, 0),
            cause: Cause::Fault,
            signo: libc::SIGSEGV,
        });
    let second = Records::default()
        .event(start(
            102,
            Origin::Fork { parent: 1 },
            5_000_000,
            &["/bin/demo"],
        ))
        .event(Event::Time(6_000_000))
        .event(Event::Exited {
            ticks: 1,
            status: 4,
        });
    place
        .recording("rich", 50)
        .stream(1, first)
        .stream(2, second)
        .finish();
}

use clew_recording::event::Place as Place_;

#[test]
fn ls_shows_the_oldest_first_and_how_each_ended() {
    let place = Place::new("ls");
    let nothing = place.clew(&["ls"]);
    assert!(nothing.status.success() && nothing.stdout.is_empty());
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("clew record PROG"));

    place.recording("late", 300).simple(0);
    place.recording("early", 100).simple(3);
    rich(&place);
    let begun = Records::default().event(start(100, FIRST, 0, &["/bin/demo"]));
    place.recording("lost", 400).stream(1, begun).cut();
    fs::create_dir(place.dir().join("other")).unwrap();
    let broken = place.recording("broken", 500).simple(0);
    fs::write(broken.join("log"), "nonsense").unwrap();

    let text = place.good(&["ls"]);
    let lines: Vec<&str> = text.lines().collect();
    let names: Vec<&str> = lines.iter().map(|l| l.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["name", "rich", "early", "late", "lost", "broken"]);
    assert!(lines[1].contains("SIGSEGV"), "{text}");
    assert!(
        lines[2].contains("exit 3") && lines[2].contains("2 ms"),
        "{text}"
    );
    assert!(lines[2].contains("demo 'two words'"), "{text}");
    assert!(lines[4].contains("cut off"), "{text}");
    assert!(lines[5].contains("unreadable"), "{text}");

    let json: serde_json::Value = serde_json::from_str(&place.good(&["ls", "--json"])).unwrap();
    let rows = json["recordings"].as_array().unwrap();
    assert_eq!(rows.len(), 5);
    assert_eq!(rows[0]["end"]["how"], "killed");
    assert_eq!(rows[0]["processes"], 2);
    assert_eq!(rows[1]["end"]["status"], 3);
    assert_eq!(rows[1]["events"], 3);
    assert!(rows[4]["problem"].is_string() && rows[4]["end"].is_null());
}

#[test]
fn ls_of_a_thousand_is_fast_the_second_time() {
    let place = Place::new("thousand");
    for n in 0..1000 {
        place.recording(&format!("r-{n}"), n).simple(0);
    }
    place.good(&["ls"]);
    let began = Instant::now();
    let text = place.good(&["ls"]);
    assert_eq!(text.lines().count(), 1001);
    // A fraction of it on an idle machine.
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn nobody_goes_missing_in_silence() {
    let place = Place::new("missing");
    let forked = |stream, pid| Event::Forked {
        ticks: 0,
        stream,
        pid,
    };
    let first = Records::default()
        .event(start(1, Origin::Exec { before: 0 }, 0, &["/bin/demo"]))
        .event(forked(2, 7))
        .event(forked(3, 8))
        .event(forked(4, 9));
    let child = Records::default().event(start(1, Origin::Fork { parent: 1 }, 0, &["/bin/demo"]));
    place
        .recording("some", 1)
        .stream(1, first)
        .stream(2, child)
        .unrecorded(3, "process 8 isn't recorded: no memory")
        .finish();
    let text = place.good(&["info", "some"]);
    for words in [
        "2 processes",
        "1#1 /bin/demo",
        "1#2 forked /bin/demo",
        "process 8 isn't recorded: no memory",
        "1 process more, killed before the first event",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let text = place.good(&["dump", "some", "--pid", "1#2", "--quick"]);
    assert!(
        text.contains("from stream 1") && !text.contains("forked process"),
        "{text}"
    );
    let text = place.bad(1, &["dump", "some", "--pid", "1", "--quick"]);
    assert!(text.contains("1#1, 1#2"), "{text}");
}

#[test]
fn recordings_of_earlier_formats_are_read() {
    let place = Place::new("first-format");
    for format in [1, 2, 3] {
        let name = format!("old-{format}");
        let note = "deadlock: no thread can ever go on\nthread 100 waits at 0x10 to be woken";
        let records = Records::default()
            .event(start(100, FIRST, 0, &["/bin/demo"]))
            .event(Event::Note(note))
            .event(Event::Exited {
                ticks: 5,
                status: 3,
            });
        let folder = place.recording(&name, 1).stream(1, records).finish();
        let mut log = std::fs::read(folder.join("log")).unwrap();
        log[8] = format;
        let sum = match format {
            1 | 2 => [0; 4],
            _ => clew_recording::log::header_sum(&log[..12]),
        };
        log[12..16].copy_from_slice(&sum);
        std::fs::write(folder.join("log"), log).unwrap();
        let meta = std::fs::read_to_string(folder.join("meta.json")).unwrap();
        let now = format!("\"format\": {}", clew_recording::meta::FORMAT);
        let old = meta.replace(&now, &format!("\"format\": {format}"));
        assert_ne!(meta, old);
        std::fs::write(folder.join("meta.json"), old).unwrap();
        let text = place.good(&["info", &name]);
        assert!(
            text.contains("exit 3") && !text.contains("can't be"),
            "{text}"
        );
        let summary: serde_json::Value =
            serde_json::from_str(&place.good(&["info", &name, "--json"])).unwrap();
        let told = summary["summary"]["deadlock"].as_str().unwrap_or_default();
        assert!(told.contains("thread 100 waits"), "{told}");
    }
}

#[test]
fn info_tells_processes_counts_and_notes() {
    let place = Place::new("info");
    rich(&place);
    let text = place.good(&["info", "rich"]);
    for words in [
        "command     demo 'two words'",
        "end         SIGSEGV",
        "2 processes",
        "  100 /bin/demo",
        "    102 forked",
        "2 threads: 100, 101",
        "ioctl 0x1234 isn't known (process 100, event 11)",
        "2  read",
        "syscall_999",
        "1 file copied",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    let json = place.good(&["info", "rich", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["system_calls"]["read"]["count"], 2);
    assert_eq!(json["summary"]["end"]["signal"], libc::SIGSEGV);
    assert_eq!(json["meta"]["schedule"]["seed"], 7);
    assert!(
        place
            .bad(1, &["info", "none"])
            .contains("no recording \"none\"")
    );
    assert!(place.bad(1, &["info"]).contains("there are no recordings"));
}

#[test]
fn dump_shows_events_in_words() {
    let place = Place::new("dump");
    rich(&place);
    let output = place.clew(&["dump", "rich"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for words in [
        "openat(AT_FDCWD, 0x5000, O_RDONLY|O_CLOEXEC, 00) = 3",
        "read(3, \"hello\\n\", 4096) = 6",
        "read(0, 0x6000, 1) <waits ...>",
        "<... read resumed> \"x\" = 1",
        "switch to thread 1, 40 ticks and 3 instructions on",
        "kill(100, SIGTERM) = -1 EPERM",
        "note: ioctl 0x1234 isn't known",
        "--- SIGSEGV SEGV_MAPERR at 0xdead0000, by the instruction there",
        "syscall_999(0x1, 0x2, 0x3, 0x4, 0x5, 0x6) = -1 ENOSYS",
        "+++ killed by SIGSEGV",
        "0.009000",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    // Thread 1 made the kill.
    let kill = text.lines().find(|line| line.contains("kill(100")).unwrap();
    assert!(kill.contains("    101  "), "{kill}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("not shown: processes 102"), "{said}");

    let part = place.good(&["dump", "rich", "--from", "3", "--to", "4"]);
    let numbers: Vec<&str> = part.lines().map(|l| l.split(' ').next().unwrap()).collect();
    assert_eq!(numbers, ["3", "4"]);
    let child = place.good(&["dump", "rich", "--pid", "102"]);
    assert!(child.contains("+++ exited with 4"), "{child}");
    assert!(
        place
            .bad(1, &["dump", "rich", "--pid", "7"])
            .contains("no process 7")
    );
}

#[test]
fn dump_of_all_processes_goes_by_time() {
    let place = Place::new("dump-all");
    rich(&place);
    let text = place.good(&["dump", "rich", "--all", "--json"]);
    let events: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.len(), 19);
    let times: Vec<u64> = events
        .iter()
        .map(|e| e["time_ns"].as_u64().unwrap())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    let read = events.iter().find(|e| e["name"] == "read").unwrap();
    assert_eq!(read["memory"][0]["data"], "68656c6c6f0a");
    assert_eq!(read["result"], 6);
    let last = events.last().unwrap();
    assert_eq!(
        (&last["kind"], &last["signal"]),
        (&"killed".into(), &"SIGSEGV".into())
    );
}

#[test]
fn rm_removes_and_keeps_latest_right() {
    let place = Place::new("rm");
    for name in ["a", "b", "c"] {
        place.recording(name, 1).simple(0);
    }
    symlink("b", place.dir().join("latest")).unwrap();
    assert!(place.bad(2, &["rm"]).contains("Usage"));
    let said = place.bad(1, &["rm", "nothing", "a"]);
    assert!(said.contains("no recording \"nothing\""), "{said}");
    assert!(!place.dir().join("a").exists());
    place.good(&["rm", "latest"]);
    assert!(!place.dir().join("b").exists());
    let latest = fs::read_link(place.dir().join("latest")).unwrap();
    assert_eq!(latest.to_str(), Some("c"));
    // Not a recording: nobody's files are removed.
    fs::create_dir(place.0.join("mine")).unwrap();
    assert!(place.bad(1, &["rm", "./mine"]).contains("not a recording"));
    assert!(place.0.join("mine").exists());
    place.good(&["rm", "--all"]);
    assert_eq!(fs::read_dir(place.dir()).unwrap().count(), 0);
}

#[test]
fn what_is_being_recorded_is_left_alone() {
    let place = Place::new("busy");
    let folder = place.recording("busy", 1).simple(0);
    let log = fs::File::open(folder.join("log")).unwrap();
    log.lock().unwrap();
    assert!(place.good(&["ls"]).contains("recording"));
    assert!(
        place
            .bad(1, &["rm", "busy"])
            .contains("still being recorded")
    );
    assert!(
        place
            .bad(1, &["pack", "busy"])
            .contains("still being recorded")
    );
    place.good(&["rm", "--all"]);
    assert!(folder.exists());
    place.good(&["rm", "--force", "busy"]);
    assert!(!folder.exists());
}

#[test]
fn replay_refuses_what_cannot_be_replayed_here() {
    let place = Place::new("unfit");
    let folder = place.recording("old", 1).simple(0);
    let meta = fs::read_to_string(folder.join("meta.json")).unwrap();
    let change = |from: &str, to: &str| {
        assert!(meta.contains(from), "{meta}");
        fs::write(folder.join("meta.json"), meta.replace(from, to)).unwrap();
    };
    let clock = format!("\"clock\": {}", clew_recording::meta::CLOCK);
    change(&clock, "\"clock\": 77");
    assert!(place.bad(125, &["replay", "old"]).contains("rules 77"));
    change("\"features\": []", "\"features\": [\"quantum\"]");
    assert!(
        place
            .bad(125, &["replay", "old"])
            .contains("hasn't got quantum")
    );
    change("{", "");
    assert!(place.bad(1, &["replay", "old"]).contains("damaged"));
    assert!(place.bad(1, &["replay", "none"]).contains("no recording"));
    change(&clock, &clock);
    assert!(
        place
            .bad(1, &["replay", "old", "--pid", "9"])
            .contains("no process 9")
    );
}

#[test]
fn names_may_be_short_and_mistyped() {
    let place = Place::new("meant");
    for name in ["crash", "server-1", "server-2"] {
        place.recording(name, 1).simple(0);
    }
    assert!(place.good(&["info", "cra"]).contains("crash"));
    let said = place.bad(1, &["info", "serv"]);
    assert!(said.contains("could be server-1, server-2"), "{said}");
    let said = place.bad(1, &["info", "carsh"]);
    assert!(said.contains("did you mean crash?"), "{said}");
    // What can't be undone takes whole names only.
    let said = place.bad(1, &["rm", "cra"]);
    assert!(said.contains("did you mean crash?"), "{said}");
    assert!(place.dir().join("crash").exists());
}

#[test]
fn events_that_are_not_there_are_told() {
    let place = Place::new("events");
    rich(&place);
    let said = place.bad(2, &["dump", "rich", "--quick", "--from", "5", "--to", "2"]);
    assert!(said.contains("--from is behind --to"), "{said}");
    let output = place.clew(&["dump", "rich", "--quick", "--from", "999"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.stdout.is_empty() && said.contains("there is no event 999"),
        "{said}"
    );
}

/// Twelve megabytes of calls, in chunks of all sizes, by two threads, one of which waits at times.
fn long(place: &Place) {
    let mut records = Records::default()
        .event(start(100, FIRST, 0, &["/bin/demo"]))
        .cut()
        .event(Event::NewThread {
            thread: 1,
            tid: 101,
        });
    let at = Place_ { ticks: 7, steps: 1 };
    let mut noise = 1u64;
    for n in 0..9000u64 {
        let mut data = [0u8; 1400];
        for byte in &mut data {
            noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1);
            *byte = (noise >> 56) as u8;
        }
        let args = [3, 0x6000 + n * 8, 1400, 0, 0, 0];
        records = records
            .event(Event::Time(1000 * n))
            .call(libc::SYS_read, args, End::Waits)
            .event(Event::Switched { place: at, to: 1 })
            .call(libc::SYS_getpid, [n, 0, 0, 0, 0, 0], End::Returned(100));
        // Also between an event and what it changed, and while somebody waits.
        if n % 37 == 0 || n % 400 < 3 {
            records = records.cut();
        }
        records = records
            .event(Event::Switched { place: at, to: 0 })
            .event(Event::Resumed {
                result: Some(1400),
                by: None,
            });
        if n % 41 == 0 {
            records = records.cut();
        }
        records = records.memory(0x6000 + n * 8, &data);
    }
    let records = records.event(Event::Exited {
        ticks: 1,
        status: 0,
    });
    place.recording("long", 1).stream(1, records).finish();
}

#[test]
fn reading_begins_in_the_midst() {
    let place = Place::new("landings");
    long(&place);
    let all = place.good(&["dump", "long", "--quick"]);
    let number = |line: &str| line.split_whitespace().next()?.parse::<u64>().ok();
    let landings = place.dir().join("long/landings");
    let check = || {
        for from in [1, 20_000, 30_001, 44_444, 53_900] {
            let to = from + 30;
            let (first, last) = (from.to_string(), to.to_string());
            let part = place.good(&["dump", "long", "--quick", "--from", &first, "--to", &last]);
            let within = |line: &&str| number(line).is_some_and(|n| (from..=to).contains(&n));
            let expected: Vec<&str> = all.lines().filter(within).collect();
            assert!(expected.len() > 15, "{expected:?}");
            assert_eq!(part.lines().collect::<Vec<_>>(), expected, "from {from}");
        }
    };
    check();
    let kept = fs::read(&landings).unwrap();
    assert!(kept.len() > 1000, "{}", kept.len());
    check();
    // Damaged, or of another log: as if it weren't there.
    let mut damaged = kept.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&landings, &damaged).unwrap();
    check();
    assert_eq!(fs::read(&landings).unwrap(), kept);
    fs::write(&landings, &kept[..40]).unwrap();
    check();
    // It isn't part of what is given away.
    place.good(&["pack", "long", "-o", "long.clew"]);
    place.good(&["unpack", "long.clew", "-n", "other"]);
    assert!(!place.dir().join("other/landings").exists());
}

#[test]
fn bad_command_lines_are_told() {
    let place = Place::new("usage");
    for args in [
        &["record"][..],
        &["record", "-n", "a", "-o", "b", "true"],
        &["record", "--sched", "odd", "true"],
        &["record", "--depth", "0", "true"],
        &["replay", "--to", "x"],
        &["replay", "--pid", "0"],
        &["dump", "--all", "--pid", "1"],
        &["unpack"],
        &["ls", "extra"],
    ] {
        assert!(!place.bad(2, args).is_empty(), "{args:?}");
    }
}

#[test]
fn a_record_that_cannot_begin_leaves_nothing() {
    let place = Place::new("record");
    assert!(
        place
            .bad(127, &["record", "no-such-program"])
            .contains("command not found")
    );
    assert!(!place.dir().exists());
    place.bad(126, &["record", "/etc/passwd"]);
    assert!(!place.dir().exists());
    assert!(
        place
            .bad(125, &["record", "-n", "a/b", "true"])
            .contains("can't be the name")
    );
    place.recording("taken", 1).simple(0);
    assert!(
        place
            .bad(125, &["record", "-n", "taken", "true"])
            .contains("already")
    );
    let said = place.bad(125, &["record", "-o", "all", "true"]);
    assert!(said.contains("isn't an empty folder"), "{said}");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_clew"))
        .args(["record", "true"])
        .env("CLEW_DIR", "/proc/nowhere")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("set CLEW_DIR"), "{said}");
}

#[test]
fn doctor_finds_what_is_in_the_way() {
    let place = Place::new("doctor");
    let json: serde_json::Value = serde_json::from_str(&place.good(&["doctor", "--json"])).unwrap();
    assert_eq!(json["ok"], true);
    assert!(json["checks"].as_array().unwrap().len() > 10);
    assert!(
        place
            .good(&["doctor"])
            .contains("clew can record and replay here")
    );
    // Nothing is made by looking.
    assert!(!place.dir().exists());
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_clew"))
        .arg("doctor")
        .env("CLEW_DIR", "/proc/nowhere")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("FAIL  recordings"));
    // A new folder is private.
    fs::create_dir(place.dir()).unwrap();
    assert!(place.dir().metadata().unwrap().mode() & 0o700 == 0o700);
}

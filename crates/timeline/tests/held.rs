//! Who can hold a timeline: any thread of a process that has many, two of one recording at once.

mod common;

use clew_recording::event::{Event, Record};
use clew_recording::reader::Recording;
use clew_recording::rewrite::rewrite;
use clew_timeline::{Target, Timeline};
use common::{open, record};

fn main() {
    common::tests(vec![
        common::test("threads", threads),
        common::test("two at once", two),
        common::test("another", another),
        common::test("one finds a divergence", divergence),
    ])
}

/// Opened in one thread, used in another, and the first has ended by then.
fn threads() {
    let folder = record("plain");
    let others: Vec<_> = (0..3)
        .map(|_| std::thread::spawn(|| std::thread::sleep(std::time::Duration::from_secs(600))))
        .collect();
    let folder = &folder;
    let end = std::thread::scope(|scope| {
        let opened = scope.spawn(move || open(folder));
        let mut timeline: Timeline = opened.join().unwrap();
        let used = scope.spawn(move || {
            timeline.seek(Target::End).unwrap();
            let end = timeline.position().unwrap();
            timeline.seek(Target::Start).unwrap();
            (timeline, end)
        });
        let (mut timeline, end) = used.join().unwrap();
        timeline.seek(Target::Position(end)).unwrap();
        end
    });
    let mut again = open(folder);
    again.seek(Target::End).unwrap();
    assert_eq!(again.position().unwrap(), end);
    drop(again);
    // The others would still sleep.
    assert!(others.iter().all(|thread| !thread.is_finished()));
    common::no_children();
}

fn two() {
    let folder = record("threads");
    let (mut one, mut other) = (open(&folder), open(&folder));
    one.seek(Target::End).unwrap();
    let end = one.position().unwrap();
    other.seek(Target::Position(end)).unwrap();
    assert_eq!(common::state(&mut one), common::state(&mut other));
    drop(one);
    other.seek(Target::Start).unwrap();
    other.seek(Target::Position(end)).unwrap();
    assert_eq!(other.position().unwrap(), end);
    drop(other);
    common::no_children();
}

/// Two timelines on the same snapshots, in two threads at once: each goes its own way, and both see the same.
fn another() {
    let folder = record("threads");
    let mut one = open(&folder);
    one.seek(Target::End).unwrap();
    let end = one.position().unwrap();
    let mut other = one.another().unwrap();
    assert_eq!(other.position().unwrap(), end);
    // Nothing is replayed again: what it stands on are processes of the first one.
    let (before, _) = one.load();
    let expected = common::state(&mut one);
    assert_eq!(common::state(&mut other), expected);
    let ticks: Vec<u64> = vec![100, 900, 400, 50, 700];
    let states = |timeline: &mut Timeline, ticks: &[u64]| -> Vec<common::State> {
        let state = |&tick: &u64| {
            timeline.seek(Target::Ticks(tick)).unwrap();
            common::state(timeline)
        };
        ticks.iter().map(state).collect()
    };
    let backwards: Vec<u64> = ticks.iter().rev().copied().collect();
    let (mut first, mut second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| states(&mut one, &ticks));
        let second = scope.spawn(|| states(&mut other, &backwards));
        (first.join().unwrap(), second.join().unwrap())
    });
    second.reverse();
    assert!(first == second);
    // Stops of one aren't the other's.
    one.seek(Target::Start).unwrap();
    other.seek(Target::Start).unwrap();
    let events = clew_timeline::Events {
        calls: clew_timeline::Calls::All,
        ..Default::default()
    };
    one.set_stops(clew_timeline::Stops {
        events,
        ..Default::default()
    });
    one.run(clew_timeline::Direction::Forward, None).unwrap();
    let stop = other.run(clew_timeline::Direction::Forward, None).unwrap();
    assert!(
        matches!(stop.reason, clew_timeline::Reason::End(_)),
        "{stop:?}"
    );
    // The one that is left has all it needs.
    drop(one);
    other.seek(Target::Start).unwrap();
    first = states(&mut other, &ticks);
    second.truncate(first.len());
    assert!(first == second);
    assert!(before > 0);
    drop(other);
    common::no_children();
}

/// What one timeline finds out about where the replay diverges holds for the other, wherever it stands.
fn divergence() {
    let good = record("plain");
    let bad = good.with_extension("bad");
    let _ = std::fs::remove_dir_all(&bad);
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([&good, &bad])
        .status();
    assert!(copied.unwrap().success());
    std::fs::remove_file(bad.join("log")).unwrap();
    // Its last call but two had another argument.
    let recording = Recording::open(&good).unwrap();
    let mut reader = recording.stream(recording.streams()[0].id).unwrap();
    let mut calls = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        if matches!(record, Record::Event(Event::Call(_))) {
            calls.push(reader.position());
        }
    }
    let target = calls[calls.len() - 3];
    let mut events = 0;
    rewrite(&recording, &bad.join("log"), &mut |_, _, record, put| {
        let mut record = record.clone();
        if let Record::Event(event) = &mut record {
            events += 1;
            if let (Event::Call(call), true) = (event, events == target) {
                call.args[0] ^= 1;
            }
        }
        put(&record);
    })
    .unwrap();

    let mut one = open(&bad);
    let mut other = one.another().unwrap();
    one.seek(Target::End).unwrap();
    let found = one.divergence().expect("it diverges").clone();
    assert_eq!(found.event + 1, target);
    // It stands at the start, and has seen nothing of it.
    other.seek(Target::Start).unwrap();
    assert_eq!(other.divergence().map(|told| told.event), Some(found.event));
    other.seek(Target::End).unwrap();
    assert_eq!(other.position().unwrap(), one.position().unwrap());
    let mut third = one.another().unwrap();
    third.seek(Target::Start).unwrap();
    third.seek(Target::End).unwrap();
    assert_eq!(third.position().unwrap(), one.position().unwrap());
    drop((one, other, third));
    common::no_children();
    let _ = std::fs::remove_dir_all(&bad);
}

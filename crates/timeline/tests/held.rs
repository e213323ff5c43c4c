//! Who can hold a timeline: any thread of a process that has many, two of one recording at once.

mod common;

use clew_timeline::{Target, Timeline};
use common::{open, record};

fn main() {
    common::tests(vec![
        common::test("threads", threads),
        common::test("two at once", two),
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

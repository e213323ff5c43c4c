//! Interrupted searches, killed workers: nothing hangs, nothing is left, the place isn't lost.

mod common;

use std::cell::Cell;
use std::process::Command;
use std::time::{Duration, Instant};

use clew_timeline::{Break, Direction, Reason, Stops, Target, Timeline};
use common::{Program, Shared, open, record_with, state};

fn main() {
    common::tests(vec![common::test("trouble", all)])
}

fn all() {
    let folder = record_with("writes", &[], &["2000000", "20000000"]);
    let timeline = &mut open(&folder);
    let program = Program::of(timeline, &folder, "writes");
    interrupted(timeline, &program);
    killed(timeline);
    positions(timeline);
    let children = common::children();
    drop(open(&folder));
    assert_eq!(common::children(), children);
}

/// A breakpoint that is passed all the time and never counts.
fn interrupted(timeline: &mut Timeline, program: &Program) {
    let never = vec![0x22, 0, 0x27];
    timeline.set_stops(Stops {
        breaks: vec![Break {
            addr: program.address("put"),
            thread: None,
            conditions: vec![never],
        }],
        ..Stops::default()
    });
    let began = Shared::new(Instant::now());
    let asked = Shared::new((0, Duration::ZERO));
    let (since, count) = (began.clone(), asked.clone());
    let last = Cell::new(Instant::now());
    timeline.set_watcher(Box::new(move |done| {
        assert!((0.0..=1.0).contains(&done));
        let (number, longest) = count.get();
        count.set((
            number + 1,
            longest.max(last.replace(Instant::now()).elapsed()),
        ));
        since.get().elapsed() > Duration::from_millis(150)
    }));
    for direction in [Direction::Forward, Direction::Backward] {
        began.set(Instant::now() + Duration::from_secs(1000));
        if direction == Direction::Backward {
            timeline.seek(Target::End).unwrap();
        }
        let from = timeline.position().unwrap();
        began.set(Instant::now());
        asked.set((0, Duration::ZERO));
        let stop = timeline.run(direction, None).unwrap();
        let took = began.get().elapsed();
        assert_eq!(stop.reason, Reason::Interrupted, "{direction:?}");
        println!(
            "{direction:?} interrupted after {took:?}, asked {:?}",
            asked.get()
        );
        assert!(took < Duration::from_secs(10));
        began.set(Instant::now() + Duration::from_secs(1000));
        let now = timeline.position().unwrap();
        match direction {
            Direction::Forward => assert!(now > from),
            Direction::Backward => assert_eq!(now, from),
        }
    }
    timeline.set_watcher(Box::new(|_| false));
    timeline.set_stops(Stops::default());
}

/// All workers but the first snapshot are killed: what is needed is made again.
fn killed(timeline: &mut Timeline) {
    let end = timeline.end().unwrap();
    let places = [end.ticks / 3, end.ticks / 2];
    for ticks in places {
        let to = timeline.after_ticks(ticks).unwrap();
        timeline.seek(Target::Position(to)).unwrap();
        let before = state(timeline);
        let children = common::children();
        for pid in &children[1..] {
            Command::new("kill").args(["-9", pid]).status().unwrap();
        }
        // The first to notice may say so; from then on all is as it was.
        let threads = timeline.threads();
        println!(
            "after killing {} workers: {:?}",
            children.len() - 1,
            threads.err()
        );
        assert_eq!(state(timeline), before);
        timeline.step_any(Direction::Backward).unwrap();
        timeline.step_any(Direction::Forward).unwrap();
        assert_eq!(state(timeline), before);
        timeline.seek(Target::Start).unwrap();
    }
}

fn positions(timeline: &mut Timeline) {
    let start = timeline.start();
    let end = timeline.end().unwrap();
    let here = timeline.position().unwrap();
    for (text, good) in [("0", false), ("1+0+4000000000", false), ("999999999", true)] {
        let sought = timeline.seek(Target::Position(text.parse().unwrap()));
        assert_eq!(sought.is_ok(), good, "{text}: {sought:?}");
        let now = timeline.position().unwrap();
        match sought {
            Ok(stop) => {
                assert!(matches!(stop.reason, Reason::End(_)), "{stop:?}");
                assert_eq!(now, end);
            }
            Err(error) => {
                println!("{error}");
                assert_eq!(now, here);
            }
        }
    }
    timeline.seek(Target::Start).unwrap();
    let back = timeline.run(Direction::Backward, None).unwrap();
    assert_eq!(
        (back.reason, timeline.position().unwrap()),
        (Reason::Start, start)
    );
    let back = timeline.step_any(Direction::Backward).unwrap();
    assert_eq!(
        (back.reason, timeline.position().unwrap()),
        (Reason::Start, start)
    );
    timeline.seek(Target::End).unwrap();
    let on = timeline.step_any(Direction::Forward).unwrap();
    assert!(matches!(on.reason, Reason::End(_)), "{on:?}");
    assert_eq!(timeline.position().unwrap(), end);
}

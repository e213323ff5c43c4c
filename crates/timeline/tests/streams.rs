//! The lives of a process: before and after an exec, and of its forked child, which crashes.

mod common;

use clew_recording::event::Origin;
use clew_recording::reader::Recording;
use clew_timeline::{Direction, Next, Position, Reason, Stops, Target, Timeline, Watch, WatchKind};
use common::{Program, open_stream, record, state};

fn main() {
    common::tests(vec![common::test("streams", all)])
}

fn all() {
    let folder = record("family");
    let recording = Recording::open(&folder).unwrap();
    let streams = recording.streams().iter();
    let kinds: Vec<_> = streams.map(|info| (info.id, info.start.origin)).collect();
    println!("{kinds:?}");
    assert_eq!(kinds.len(), 3);
    for (id, origin) in kinds {
        let timeline = &mut open_stream(&folder, id);
        let stop = timeline.seek(Target::End).unwrap();
        println!("stream {id}: {stop:?} at {}", timeline.position().unwrap());
        match (origin, stop.reason) {
            (Origin::Fork { .. }, Reason::End(Next::Killed { signo, fault })) => {
                assert_eq!((signo, fault), (11, true));
                let program = &Program::of(timeline, &folder, "family");
                crashed(timeline, program);
            }
            (Origin::Exec { before: 0 }, Reason::End(Next::Exec)) => {}
            (Origin::Exec { .. }, Reason::End(Next::Exit { status: 0 })) => {}
            other => panic!("{other:?}"),
        }
        walk(timeline);
    }
    common::no_children();
}

/// At the faulting instruction; the last change before it, and the first.
fn crashed(timeline: &mut Timeline, program: &Program) {
    let here = timeline.at();
    let threads = timeline.threads().unwrap();
    assert_eq!((threads.len(), threads[0].pc), (1, here.pc));
    timeline.set_stops(Stops {
        watches: vec![Watch {
            addr: program.address("step"),
            len: 4,
            kind: WatchKind::Change,
        }],
        ..Stops::default()
    });
    let stop = timeline.run(Direction::Backward, None).unwrap();
    assert!(matches!(stop.reason, Reason::Watch { .. }), "{stop:?}");
    let mut step = [0; 4];
    timeline.read(program.address("step"), &mut step).unwrap();
    assert_eq!(i32::from_le_bytes(step), 999);
    // Shared memory is this timeline's own, as it was here.
    let mut pointer = [0; 8];
    timeline
        .read(program.address("shared"), &mut pointer)
        .unwrap();
    timeline
        .read(u64::from_le_bytes(pointer), &mut step)
        .unwrap();
    assert_eq!(i32::from_le_bytes(step), 999);
    timeline.seek(Target::Ticks(100)).unwrap();
    timeline.seek(Target::End).unwrap();
    timeline.set_stops(Stops::default());
}

/// Back by single steps from the end, and forth again.
fn walk(timeline: &mut Timeline) {
    let end = timeline.position().unwrap();
    let mut passed: Vec<(Position, common::State)> = Vec::new();
    for _ in 0..200 {
        passed.push((timeline.position().unwrap(), state(timeline)));
        if timeline.step_any(Direction::Backward).unwrap().reason == Reason::Start {
            passed.pop();
            break;
        }
    }
    while let Some((position, before)) = passed.pop() {
        let stop = timeline.step_any(Direction::Forward).unwrap();
        assert!(
            stop.reason == Reason::Arrived || position == end,
            "{stop:?}"
        );
        assert_eq!(timeline.position().unwrap(), position);
        assert_eq!(state(timeline), before, "at {position}");
    }
}

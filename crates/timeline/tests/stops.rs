//! What stops a program on its way forward stops it on its way back, in reverse order.

mod common;

use clew_timeline::{
    Break, Calls, Direction, Events, Position, Reason, Stops, Target, Timeline, Watch, WatchKind,
};
use common::{Program, open, record};

fn main() {
    let cases: [(_, fn(&mut Timeline, &Program)); 2] = [("plain", plain), ("threads", threads)];
    let test = |(guest, case): (&'static str, fn(&mut Timeline, &Program))| {
        common::test(guest, move || {
            let folder = record(guest);
            let timeline = &mut open(&folder);
            let program = Program::of(timeline, &folder, guest);
            case(timeline, &program);
        })
    };
    common::tests(cases.map(test).into())
}

fn plain(timeline: &mut Timeline, program: &Program) {
    let rounds = history(
        "breakpoints",
        timeline,
        breaks(program, &["round_done", "handler"]),
    );
    assert_eq!(rounds, 45);
    let handled = program.address("handled");
    assert_eq!(
        history("a change", timeline, watch(handled, 4, WatchKind::Change)),
        5
    );
    let total = program.address("total");
    let reads = history("reads", timeline, watch(handled, 4, WatchKind::Read));
    // Each handler reads it, and the end.
    assert_eq!(reads, 6);
    let mut both = breaks(program, &["round_done"]);
    both.watches = watch(total, 8, WatchKind::Change).watches;
    assert!(
        history("changes and breakpoints", timeline, both) > 100,
        "few"
    );
    let signals = Stops {
        events: Events {
            signals: 1 << (10 - 1),
            ..Events::default()
        },
        ..Stops::default()
    };
    assert_eq!(history("signals", timeline, signals), 5);
    let calls = Stops {
        events: Events {
            calls: Calls::All,
            ..Events::default()
        },
        ..Stops::default()
    };
    assert!(history("calls", timeline, calls) > 50);
}

fn threads(timeline: &mut Timeline, program: &Program) {
    assert_eq!(
        history("breakpoints", timeline, breaks(program, &["worker"])),
        3
    );
    let rounds = program.address("rounds");
    assert_eq!(
        history("changes", timeline, watch(rounds, 8, WatchKind::Change)),
        180
    );
    let events = Stops {
        events: Events {
            threads: true,
            calls: Calls::These(vec![202]),
            ..Events::default()
        },
        ..Stops::default()
    };
    assert!(history("threads and futexes", timeline, events) > 6);
    let all = Stops {
        events: Events {
            all: true,
            ..Events::default()
        },
        ..Stops::default()
    };
    assert!(history("every event", timeline, all) > 100);
}

fn breaks(program: &Program, functions: &[&str]) -> Stops {
    let at = |name: &&str| Break {
        addr: program.address(name),
        thread: None,
        conditions: Vec::new(),
    };
    Stops {
        breaks: functions.iter().map(at).collect(),
        ..Stops::default()
    }
}

fn watch(addr: u64, len: u64, kind: WatchKind) -> Stops {
    Stops {
        watches: vec![Watch { addr, len, kind }],
        ..Stops::default()
    }
}

/// A stop: forwards behind what is watched, backwards before it. Both as before.
type Seen = (Position, Reason);

/// So many stops are looked at.
const MOST: usize = 300;

/// How many stops there are, at most so many. Forwards and backwards they must be the same.
fn history(what: &str, timeline: &mut Timeline, stops: Stops) -> usize {
    timeline.set_stops(stops);
    timeline.seek(Target::Start).unwrap();
    let began = std::time::Instant::now();
    let mut forward: Vec<Seen> = Vec::new();
    loop {
        let stop = timeline.run(Direction::Forward, None).unwrap();
        if matches!(stop.reason, Reason::End(_)) {
            break;
        }
        forward.push((timeline.position().unwrap(), stop.reason));
        if forward.len() == MOST {
            break;
        }
    }
    let end = timeline.position().unwrap();
    let there = began.elapsed();
    let began = std::time::Instant::now();
    let mut backward: Vec<Seen> = Vec::new();
    loop {
        let stop = timeline.run(Direction::Backward, None).unwrap();
        if stop.reason == Reason::Start {
            break;
        }
        let before = timeline.position().unwrap();
        assert!(backward.len() <= MOST, "{what}: more stops than forwards");
        let Reason::Watch { .. } = stop.reason else {
            backward.push((before, stop.reason));
            continue;
        };
        // One on, and back.
        let stops = timeline.stops().clone();
        timeline.set_stops(Stops::default());
        timeline.step_any(Direction::Forward).unwrap();
        backward.push((timeline.position().unwrap(), stop.reason));
        timeline.seek(Target::Position(before)).unwrap();
        timeline.set_stops(stops);
    }
    backward.reverse();
    // What stops it at the very end, or where it turned back, doesn't count there.
    let behind = |reason: &Reason| matches!(reason, Reason::Watch { .. });
    forward.pop_if(|(position, reason)| *position == end && !behind(reason));
    let back = began.elapsed();
    println!(
        "{what}: {} stops, {there:?} forwards, {back:?} backwards",
        forward.len()
    );
    for (n, pair) in forward.iter().zip(&backward).enumerate() {
        assert_eq!(pair.0, pair.1, "{what}, stop {n}");
    }
    assert_eq!(forward.len(), backward.len(), "{what}");
    forward.len()
}

//! How fast searches are, for people: `workers speed` prints it.

use std::time::Instant;

use clew_engine::replay::worker::protocol::*;

use crate::Case;
use crate::commander::*;

/// Only if it is asked for by name.
pub fn cases(wanted: &[String]) -> Vec<Case> {
    let asked = wanted.iter().any(|part| part == "speed");
    if asked {
        vec![("speed", speed)]
    } else {
        vec![]
    }
}

fn speed() {
    const CALLS: u32 = 1_000_000;
    let scratch = Scratch::new("speed");
    let recording = record(&scratch, &["x", &CALLS.to_string()]);
    let mut all = Commander::new(&recording, recording.streams()[0].id);
    let (mix, counter) = (symbol(&scratch, "mix"), symbol(&scratch, "counter"));
    let per = |begun: Instant| begun.elapsed().as_nanos() / u128::from(CALLS);
    let (plain, _) = all.fork(0);
    let begun = Instant::now();
    all.advance(plain, Goal::End);
    println!("plain: {} ns a call", per(begun));
    // rdi == -1
    let never = vec![0x26, 0, 5, 0x22, 0xff, 0x16, 8, 0x13, 0x27];
    let stops = Stops {
        breaks: vec![Break {
            addr: mix,
            thread: None,
            conditions: vec![never],
        }],
        ..Stops::default()
    };
    for take in [Take::First, Take::Last] {
        let (worker, _) = all.fork(0);
        all.stops(worker, stops.clone());
        let begun = Instant::now();
        let goal = Goal::End;
        let stopped = all.stopped(worker, Command::Advance { goal, take });
        assert_eq!((stopped.why, stopped.last), (Why::End, None));
        println!("false condition, {take:?}: {} ns a call", per(begun));
    }
    let stops = Stops {
        watches: vec![Watch {
            addr: counter,
            len: 8,
            kind: WatchKind::Change,
        }],
        ..Stops::default()
    };
    let (worker, _) = all.fork(0);
    all.stops(worker, stops.clone());
    let begun = Instant::now();
    let stopped = all.last(worker, Goal::End);
    assert!(stopped.last.is_some());
    println!("watch, last: {} ns a call", per(begun));
    let (worker, _) = all.fork(0);
    all.stops(worker, stops);
    let begun = Instant::now();
    for _ in 0..10_000 {
        all.first(worker, Goal::End);
    }
    let each = begun.elapsed().as_nanos() / 10_000;
    println!("watch, first: {each} ns a stop");
    let (worker, _) = all.fork(0);
    let begun = Instant::now();
    for _ in 0..10_000 {
        all.stopped(worker, Command::Step);
    }
    let each = begun.elapsed().as_nanos() / 10_000;
    println!("step: {each} ns");
    let begun = Instant::now();
    for _ in 0..100 {
        let (worker, _) = all.fork(plain);
        all.end(worker);
    }
    println!("fork and end: {} us", begun.elapsed().as_micros() / 100);
}

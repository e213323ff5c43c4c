//! How fast searches are, for people: `cargo test --test workers -- --ignored speed` prints it, in time of the worker alone.

use clew_engine::replay::worker::protocol::*;

use crate::commander::*;

/// Nanoseconds that a process has run.
fn ran(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

pub fn speed() {
    const CALLS: u32 = 1_000_000;
    let scratch = Scratch::new("speed");
    let recording = record(&scratch, &["x", &CALLS.to_string()]);
    let mut all = Commander::new(&recording, recording.streams()[0].id);
    let (mix, counter) = (symbol(&scratch, "mix"), symbol(&scratch, "counter"));
    let per = |pid: i32, begun: u64| (ran(pid) - begun) / u64::from(CALLS);
    let (plain, pid) = all.fork(0);
    let begun = ran(pid);
    all.advance(plain, Goal::End);
    println!("plain: {} ns a call", per(pid, begun));
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
        let (worker, pid) = all.fork(0);
        all.stops(worker, stops.clone());
        let begun = ran(pid);
        let goal = Goal::End;
        let stopped = all.stopped(worker, Command::Advance { goal, take });
        assert_eq!((stopped.why, stopped.last), (Why::End, None));
        println!("false condition, {take:?}: {} ns a call", per(pid, begun));
    }
    let stops = Stops {
        watches: vec![Watch {
            addr: counter,
            len: 8,
            kind: WatchKind::Change,
        }],
        ..Stops::default()
    };
    let (worker, pid) = all.fork(0);
    all.stops(worker, stops.clone());
    let begun = ran(pid);
    let stopped = all.last(worker, Goal::End);
    assert!(stopped.last.is_some());
    println!("watch, last: {} ns a call", per(pid, begun));
    let (worker, pid) = all.fork(0);
    all.stops(worker, stops);
    let begun = ran(pid);
    for _ in 0..10_000 {
        all.first(worker, Goal::End);
    }
    let each = (ran(pid) - begun) / 10_000;
    println!("watch, first: {each} ns a stop");
    let (worker, pid) = all.fork(0);
    let begun = ran(pid);
    for _ in 0..10_000 {
        all.stopped(worker, Command::Step);
    }
    let each = (ran(pid) - begun) / 10_000;
    println!("step: {each} ns");
    let begun = std::time::Instant::now();
    for _ in 0..100 {
        let (worker, _) = all.fork(plain);
        all.end(worker);
    }
    println!("fork and end: {} us", begun.elapsed().as_micros() / 100);
}

//! Random walks through recordings: wherever one comes from, a position shows the same registers and
//! memory as a straight run, and what was done forwards is undone backwards.
//!
//! `walk [GUEST [SEED]]`; a failure says both.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use clew_timeline::{Direction, Position, Reason, Target, Timeline};
use common::{Random, State, open, record_with, state};

/// Names, guests, and how to record them.
const GUESTS: [(&str, &str, &[&str]); 3] = [
    ("plain", "plain", &[]),
    ("threads", "threads", &[]),
    // Turns end between any two instructions.
    ("threads at random", "threads", &["--sched", "random"]),
];
/// Random seeks and steps in each recording.
const MOVES: usize = 1_000;

fn main() {
    let seed = std::env::var("CLEW_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(std::process::id() as u64 * 7919);
    let test = |(name, guest, options): (&str, &'static str, &'static [&'static str])| {
        common::test(name, move || {
            println!("CLEW_SEED={seed} walks the same way");
            walk(&record_with(guest, options, &[]), seed);
            common::no_children();
        })
    };
    common::tests(GUESTS.map(test).into())
}

fn walk(folder: &Path, seed: u64) {
    let random = &mut Random(seed | 1);
    let began = Instant::now();
    let known = straight(&mut open(folder), random);
    println!(
        "  a straight run: {} places, {:?}",
        known.len(),
        began.elapsed()
    );
    let places: Vec<Position> = known.keys().copied().collect();
    let mut timeline = open(folder);
    timeline.seek(Target::End).unwrap();
    let check = |timeline: &mut Timeline, how: &str| {
        let position = timeline.position().unwrap();
        let expected = known.get(&position);
        let expected = expected.unwrap_or_else(|| panic!("{how}: {position} isn't known"));
        let found = state(timeline);
        assert_eq!(
            &found,
            expected,
            "{how}, at {position}, {:?}",
            timeline.at()
        );
    };
    let (mut seeks, mut steps) = (Vec::new(), Vec::new());
    for n in 0..MOVES {
        let index = random.below(places.len() as u64) as usize;
        let began = Instant::now();
        timeline.seek(Target::Position(places[index])).unwrap();
        seeks.push(began.elapsed());
        assert_eq!(timeline.position().unwrap(), places[index]);
        check(&mut timeline, "seek");
        // Places come in rows of neighbours.
        let neighbour = |n: usize| known.get(&places[n]).is_some_and(|s| s.follows);
        match random.below(4) {
            0 if index > 0 && neighbour(index) => {
                let began = Instant::now();
                timeline.step_any(Direction::Backward).unwrap();
                steps.push(began.elapsed());
                assert_eq!(timeline.position().unwrap(), places[index - 1], "move {n}");
                check(&mut timeline, "a step back");
            }
            1 if index + 1 < places.len() && neighbour(index + 1) => {
                timeline.step_any(Direction::Forward).unwrap();
                assert_eq!(timeline.position().unwrap(), places[index + 1], "move {n}");
                check(&mut timeline, "a step");
            }
            2 => there_and_back(&mut timeline, random),
            _ => {}
        }
    }
    println!("  seek: {}", common::spread(&mut seeks));
    println!("  step back: {}", common::spread(&mut steps));
    let (processes, memory) = timeline.load();
    println!("  {processes} processes, {} KiB", memory >> 10);
}

/// Some steps of a thread forward, then as many back: through the same positions. At the ends of
/// what a thread does there may be fewer.
fn there_and_back(timeline: &mut Timeline, random: &mut Random) {
    let threads = timeline.threads().unwrap();
    let thread = threads[random.below(threads.len() as u64) as usize].number;
    let mut passed = vec![];
    // Into the thread: from where others run, a step back needn't lead to the same place.
    if timeline.step(Direction::Forward, thread).unwrap().reason != Reason::Arrived {
        return;
    }
    for _ in 0..1 + random.below(12) {
        passed.push((timeline.position().unwrap(), state(timeline)));
        let stop = timeline.step(Direction::Forward, thread).unwrap();
        if stop.reason != Reason::Arrived {
            return;
        }
    }
    while let Some((position, before)) = passed.pop() {
        let from = timeline.position().unwrap();
        let stop = timeline.step(Direction::Backward, thread).unwrap();
        assert_eq!(
            stop.reason,
            Reason::Arrived,
            "thread {thread} back from {from}"
        );
        let found = timeline.position().unwrap();
        // It stands before the same instruction of the thread: others may have run in between.
        if timeline.at().thread == thread && found.event == position.event {
            assert_eq!(found, position, "thread {thread} back from {from}");
            assert_eq!(state(timeline), before, "at {found}");
        } else {
            let of = |state: &State| state.registers[&thread].clone();
            assert!(
                of(&state(timeline)) == of(&before),
                "thread {thread} back from {from}: {found}, not {position}"
            );
        }
    }
}

/// Forwards only, by one worker: what positions look like, in rows of neighbours.
fn straight(timeline: &mut Timeline, random: &mut Random) -> BTreeMap<Position, State> {
    let mut known = BTreeMap::new();
    let mut ticks = 0;
    let mut follows = false;
    let began = Instant::now();
    loop {
        for _ in 0..random.below(40) {
            let mut now = state(timeline);
            now.follows = follows;
            known.insert(timeline.position().unwrap(), now);
            if let Reason::End(_) = timeline.step_any(Direction::Forward).unwrap().reason {
                return known;
            }
            follows = true;
        }
        let mut now = state(timeline);
        now.follows = follows;
        known.insert(timeline.position().unwrap(), now);
        ticks += random.below(3_000);
        let before = timeline.position().unwrap();
        let to = timeline.after_ticks(ticks).unwrap();
        if to <= before {
            continue;
        }
        timeline.seek(Target::Position(to)).unwrap();
        follows = timeline.position().unwrap() == before;
        if timeline.at().next.is_some_and(common::is_last) && timeline.position().unwrap() == before
        {
            return known;
        }
        assert!(
            began.elapsed() < Duration::from_secs(300),
            "no end in sight"
        );
    }
}

//! Snapshots stay within their budget of memory, on a guest that writes all of its memory again and again.

mod common;

use std::cell::Cell;
use std::time::{Duration, Instant};

use clew_timeline::{Settings, Target};
use common::{Shared, open_with, record_with};

fn main() {
    // A large one is for people: cargo test --test budget -- --ignored
    common::tests(vec![
        common::test("small", || within(96, 400 << 20, 20)),
        common::test("two gigabytes", || within(2048, 6000 << 20, 3)).with_ignored_flag(true),
    ])
}

/// A guest of `size` megabytes that writes all of them some times over.
fn within(size: u64, budget: u64, rounds: u32) {
    let rounds = rounds.to_string();
    let folder = record_with("big", &[], &[&size.to_string(), &rounds]);
    let mut timeline = open_with(&folder, |settings: &mut Settings| {
        settings.memory = Some(budget);
    });
    let most = Shared::new(0);
    let seen = most.clone();
    let looked = Cell::new(Instant::now());
    timeline.set_watcher(Box::new(move |_| {
        // Looking takes long.
        if looked.get().elapsed() > Duration::from_millis(500) {
            seen.set(seen.get().max(taken()));
            looked.set(Instant::now());
        }
        false
    }));
    let began = Instant::now();
    timeline.seek(Target::End).unwrap();
    let (processes, memory) = timeline.load();
    println!(
        "to the end: {:?}; {processes} processes, {} MiB",
        began.elapsed(),
        memory >> 20
    );
    println!("{:.1} s computed", common::computed());
    println!("at most {} MiB on the way", most.get() >> 20);
    // What is under way besides snapshots: one worker that may write all of its memory.
    assert!(most.get() <= budget, "{} MiB", most.get() >> 20);
    assert!(memory <= budget);
    let end = timeline.end().unwrap();
    for part in [3, 2, 4, 1] {
        let to = timeline.after_ticks(end.ticks * part / 5).unwrap();
        let (began, before) = (Instant::now(), common::computed());
        timeline.seek(Target::Position(to)).unwrap();
        let (took, used) = (began.elapsed(), common::computed() - before);
        println!(
            "seek: {took:?}, {used:.2} s computed, {} MiB",
            taken() >> 20
        );
        assert!(taken() <= budget, "{} MiB", taken() >> 20);
    }
    drop(timeline);
    common::no_children();
}

/// What all children of this process take together.
fn taken() -> u64 {
    let children = std::fs::read_to_string("/proc/thread-self/children").unwrap();
    let share = |pid: &str| {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    children.split_whitespace().filter_map(share).sum::<u64>() << 10
}

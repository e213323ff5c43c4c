//! Snapshots stay within their budget of memory, on a guest that writes all of its memory again and again.
//!
//! `budget [MEBIBYTES [BUDGET]]`

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use clew_timeline::{Settings, Target};
use common::{open_with, record_with};

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse::<u64>().ok());
    let size = numbers.next().unwrap_or(96);
    let budget = numbers.next().unwrap_or(400) << 20;
    let folder = record_with("big", &[], &[&size.to_string(), "20"]);
    let mut timeline = open_with(&folder, |settings: &mut Settings| {
        settings.memory = Some(budget);
    });
    let most = Rc::new(Cell::new(0));
    let seen = most.clone();
    timeline.set_watcher(Box::new(move |_| {
        seen.set(seen.get().max(taken()));
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
    println!("at most {} MiB on the way", most.get() >> 20);
    // What is under way besides snapshots: one worker that may write all of its memory.
    assert!(most.get() <= budget, "{} MiB", most.get() >> 20);
    assert!(memory <= budget);
    let end = timeline.end().unwrap();
    for part in [3, 2, 4, 1] {
        let to = timeline.after_ticks(end.ticks * part / 5).unwrap();
        let began = Instant::now();
        timeline.seek(Target::Position(to)).unwrap();
        println!("seek: {:?}", began.elapsed());
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

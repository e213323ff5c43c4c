//! How fast stretches of a recording are traced: `tracing RECORDING [FROM_TICKS TO_TICKS]`.

use std::path::Path;
use std::time::Instant;

use clew_engine::program::Options;
use clew_engine::trace::read::{Backwards, Entry};
use clew_recording::reader::Recording;
use clew_timeline::{Settings, Target, Timeline};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let recording = Recording::open(Path::new(&args[1])).unwrap();
    let stream = recording.streams()[0].id;
    let own = std::env::current_exe().unwrap();
    // The clew that was built beside this.
    let clew = own.ancestors().nth(2).unwrap().join("clew");
    let settings = Settings {
        program: Some(clew),
        ..Settings::new(Options::default())
    };
    let mut timeline = Timeline::open(&recording, stream, settings).unwrap();
    let began = Instant::now();
    timeline.seek(Target::End).unwrap();
    println!(
        "to the end: {:?}, work {}",
        began.elapsed(),
        timeline.at().work
    );
    let ticks = |n: usize| args.get(n).and_then(|t| t.parse::<u64>().ok());
    if let Some(to) = ticks(3) {
        timeline.seek(Target::Ticks(to)).unwrap();
    }
    let to = timeline.position().unwrap();
    match ticks(2) {
        Some(from) => timeline.seek(Target::Ticks(from)).unwrap(),
        None => timeline.seek(Target::Start).unwrap(),
    };
    let from = timeline.position().unwrap();
    let began = Instant::now();
    timeline.seek(Target::Position(to)).unwrap();
    println!("plain, one way: {:?}", began.elapsed());
    for _ in 0..2 {
        let began = Instant::now();
        let trace = timeline.trace(from, to).unwrap();
        let took = began.elapsed();
        let bytes: usize = trace.segments.iter().map(Vec::len).sum();
        let (mut count, mut entries) = (0u64, 0u64);
        let began = Instant::now();
        for segment in trace.segments.iter().rev() {
            for entry in Backwards::new(&trace.tables, segment) {
                entries += 1;
                match entry.unwrap() {
                    Entry::Run { end, .. } => count += u64::from(end.count),
                    Entry::Step { .. } => count += 1,
                    _ => {}
                }
            }
        }
        println!(
            "traced: {took:?}, {count} instructions, {:.0} M/s, {:.2} bytes each, {entries} entries, {} blocks; read in {:?}",
            count as f64 / took.as_secs_f64() / 1e6,
            bytes as f64 / count as f64,
            trace.tables.blocks.len(),
            began.elapsed(),
        );
    }
}

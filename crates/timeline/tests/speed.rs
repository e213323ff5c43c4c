//! How long things take that must not take long. Limits are generous, for busy machines; what was measured is
//! printed.

mod common;

use std::time::{Duration, Instant};

use clew_engine::trace::read::{Backwards, Entry};
use clew_timeline::trace::Trace;
use clew_timeline::{
    Break, Direction, Position, Reason, Stops, Target, Timeline, TouchLimits, Watch, WatchKind,
};
use common::{Program, Random, computed, of_process, open, record_with, spread};

fn main() {
    // Prints figures, for people.
    common::tests(vec![common::test("speed", all).with_ignored_flag(true)])
}

fn all() {
    let random = &mut Random(88172645463325252);
    let folder = record_with("writes", &[], &["3000000"]);
    let began = Instant::now();
    let timeline = &mut open(&folder);
    println!("open: {:?}", began.elapsed());
    let began = Instant::now();
    timeline.seek(Target::End).unwrap();
    println!(
        "to the end: {:?}; {:.2} s computed",
        began.elapsed(),
        computed()
    );
    let (processes, memory) = timeline.load();
    println!("{processes} processes, {} KiB", memory >> 10);
    let program = Program::of(timeline, &folder, "writes");

    last_write("the last of 6 million writes", timeline, &program);
    let end = timeline.end().unwrap();
    seeks(timeline, random, end);
    steps_back(timeline, random);

    // The end of the loop without calls.
    timeline.set_stops(break_at(program.address("put")));
    timeline.seek(Target::Start).unwrap();
    let stop = timeline.run(Direction::Forward, None).unwrap();
    assert_eq!(stop.reason, Reason::Break);
    last_write("the last of a loop without calls", timeline, &program);

    condition(timeline, &program);

    touches();
    traces();

    let folder = record_with("writes", &[], &["3000000", "30000000"]);
    let far = &mut open(&folder);
    far.seek(Target::End).unwrap();
    let program = Program::of(far, &folder, "writes");
    last_write(
        "the last of 6 million writes, then a while of others",
        far,
        &program,
    );
}

/// Accesses to shared memory, against a plain replay.
fn touches() {
    let folder = record_with("threads", &[], &[]);
    let timeline = &mut open(&folder);
    let (began, before) = (Instant::now(), computed());
    timeline.seek(Target::End).unwrap();
    let (took, used) = (began.elapsed(), computed() - before);
    println!("threads, to the end: {took:?}; {used:.2} s computed");
    let limits = TouchLimits {
        accesses: 1 << 20,
        time: Duration::from_secs(60),
    };
    let began = Instant::now();
    let found = timeline.touches(&limits).unwrap();
    let (took, count) = (began.elapsed(), found.touches.len());
    println!("accesses to shared memory: {took:?}; {count} of them");
}

/// Traces against a plain replay, by the difference between a long stretch and a short one: what translating costs falls out.
fn traces() {
    let data: Vec<u8> = (0..6_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 27) as u8)
        .collect();
    let input = common::scratch().join("traced");
    std::fs::write(&input, data).unwrap();
    let folder = common::record_program(&[], &["/bin/bzip2", "-kc", input.to_str().unwrap()]);
    let timeline = &mut open(&folder);
    timeline.seek(Target::End).unwrap();
    let work = timeline.at().work;
    let start = timeline.start();
    let mut places = Vec::new();
    for part in [1, 2] {
        timeline.seek(Target::Start).unwrap();
        places.push(timeline.after_ticks(work / 20 * part).unwrap());
    }
    let mut costs = Vec::new();
    for &to in &places {
        let plain = (0..3).map(|_| {
            let mut fresh = open(&folder);
            let before = computed();
            fresh.seek(Target::Position(to)).unwrap();
            computed() - before
        });
        let plain = plain.fold(f64::MAX, f64::min);
        let mut best = (f64::MAX, 0.0);
        let mut counts = (0, 0, 0);
        for _ in 0..3 {
            let mut fresh = open(&folder);
            let (before, mine) = (computed(), of_process("self"));
            let trace = fresh.trace(start, to).unwrap();
            let (all, mine) = (computed() - before, of_process("self") - mine);
            if all < best.0 {
                best = (all, mine);
            }
            counts = count(&trace);
        }
        costs.push((plain, best, counts));
    }
    let [
        (plain, (traced, reader), (instructions, entries, words)),
        more,
    ] = costs[..]
    else {
        unreachable!("two places");
    };
    let (instructions, entries, words) = (
        (more.2.0 - instructions) as f64,
        (more.2.1 - entries) as f64,
        (more.2.2 - words) as f64,
    );
    let (plain, traced, reader) = (more.0 - plain, more.1.0 - traced, more.1.1 - reader);
    let worker = traced - reader;
    println!(
        "trace of bzip2: {:.0} M instructions, {:.0} M blocks, {:.0} M registers; plain {plain:.2} s, traced {worker:.2} s and {reader:.2} s to take it",
        instructions / 1e6,
        entries / 1e6,
        words / 1e6,
    );
    let each = |seconds: f64, count: f64| 1e9 * seconds / count;
    println!(
        "  {:.2} ns more for each instruction, {:.2} for each thing written, {:.2} with taking it",
        each(worker - plain, instructions),
        each(worker - plain, entries + words),
        each(traced - plain, entries + words),
    );
}

/// Instructions, blocks that were run through, and registers written down for them.
fn count(trace: &Trace) -> (u64, u64, u64) {
    let mut counts = (0, 0, 0);
    for segment in &trace.segments {
        for entry in Backwards::new(&trace.tables, segment) {
            if let Entry::Run { end, slots } = entry.expect("entries make sense") {
                counts.0 += u64::from(end.count);
                counts.1 += 1;
                counts.2 += slots.len() as u64 / 8;
            }
        }
    }
    counts
}

fn break_at(addr: u64) -> Stops {
    Stops {
        breaks: vec![Break {
            addr,
            thread: None,
            conditions: Vec::new(),
        }],
        ..Stops::default()
    }
}

fn last_write(what: &str, timeline: &mut Timeline, program: &Program) {
    let from = timeline.position().unwrap();
    timeline.set_stops(Stops {
        watches: vec![Watch {
            addr: program.address("counter"),
            len: 8,
            kind: WatchKind::Change,
        }],
        ..Stops::default()
    });
    let mut times = Vec::new();
    let before = computed();
    for _ in 0..5 {
        timeline.seek(Target::Position(from)).unwrap();
        let began = Instant::now();
        let stop = timeline.run(Direction::Backward, None).unwrap();
        times.push(began.elapsed());
        assert!(matches!(stop.reason, Reason::Watch { .. }), "{stop:?}");
    }
    let first = times[0];
    let each = (computed() - before) / times.len() as f64;
    println!(
        "{what}: first {first:?}; {}; {each:.3} s computed",
        spread(&mut times)
    );
    let mut value = [0; 8];
    timeline
        .read(program.address("counter"), &mut value)
        .unwrap();
    println!("  before it {}", i64::from_le_bytes(value));
    // And on from there.
    let mut times = Vec::new();
    for n in 1..20 {
        let began = Instant::now();
        let stop = timeline.run(Direction::Backward, None).unwrap();
        times.push(began.elapsed());
        assert!(matches!(stop.reason, Reason::Watch { .. }), "{stop:?}");
        let mut earlier = [0; 8];
        timeline
            .read(program.address("counter"), &mut earlier)
            .unwrap();
        assert_eq!(i64::from_le_bytes(earlier), i64::from_le_bytes(value) - n);
    }
    println!("  the one before: {}", spread(&mut times));
}

fn seeks(timeline: &mut Timeline, random: &mut Random, end: Position) {
    let mut times = Vec::new();
    // Ticks of the whole, by trying.
    let mut ticks = 1;
    while timeline.after_ticks(ticks).unwrap() < end && ticks < 1 << 40 {
        ticks *= 2;
    }
    while times.len() < 200 {
        let to = timeline.after_ticks(random.below(ticks)).unwrap();
        if to >= end {
            continue;
        }
        let began = Instant::now();
        timeline.seek(Target::Position(to)).unwrap();
        times.push(began.elapsed());
    }
    println!("seek: {}", spread(&mut times));
}

fn steps_back(timeline: &mut Timeline, random: &mut Random) {
    timeline.set_stops(Stops::default());
    let end = timeline.end().unwrap();
    let (mut first, mut more) = (Vec::new(), Vec::new());
    let before = computed();
    for _ in 0..20 {
        let to = timeline.after_ticks(random.below(20_000_000)).unwrap();
        if to >= end {
            continue;
        }
        timeline.seek(Target::Position(to)).unwrap();
        for n in 0..20 {
            let thread = timeline.at().thread;
            let began = Instant::now();
            timeline.step(Direction::Backward, thread).unwrap();
            match n {
                0 => first.push(began.elapsed()),
                _ => more.push(began.elapsed()),
            }
        }
    }
    let each = 1000.0 * (computed() - before) / (first.len() + more.len()) as f64;
    println!("reverse-stepi: {each:.2} ms computed each");
    println!("reverse-stepi, the first somewhere: {}", spread(&mut first));
    println!("reverse-stepi, the next: {}", spread(&mut more));
    assert!(first[first.len() / 2] < Duration::from_secs(1));
}

/// A breakpoint whose condition is never true.
fn condition(timeline: &mut Timeline, program: &Program) {
    // const 0, end
    let never = vec![0x22, 0, 0x27];
    timeline.set_stops(Stops {
        breaks: vec![Break {
            addr: program.address("ask"),
            thread: None,
            conditions: vec![never],
        }],
        ..Stops::default()
    });
    timeline.seek(Target::Start).unwrap();
    let (began, before) = (Instant::now(), computed());
    let stop = timeline.run(Direction::Forward, None).unwrap();
    assert!(matches!(stop.reason, Reason::End(_)), "{stop:?}");
    let (took, used) = (began.elapsed(), computed() - before);
    println!("a condition, false 3 million times, forwards: {took:?}; {used:.2} s computed");
    let (began, before) = (Instant::now(), computed());
    let stop = timeline.run(Direction::Backward, None).unwrap();
    assert_eq!(stop.reason, Reason::Start);
    let (took, used) = (began.elapsed(), computed() - before);
    println!("backwards: {took:?}; {used:.2} s computed");
}

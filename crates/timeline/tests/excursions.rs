//! What-ifs: functions are called, memory is written, and the timeline knows nothing of it.

mod common;

use std::time::{Duration, Instant};

use clew_timeline::{Break, Direction, ExcursionEnd, Reason, Stops, Target, Timeline, Undefined};
use common::{Program, open, record, state};

/// More than any of the calls needs.
const TICKS: u64 = 1_000_000;

fn main() {
    common::tests(vec![common::test("excursions", all)])
}

fn all() {
    let folder = record("calls");
    let timeline = &mut open(&folder);
    let program = &Program::of(timeline, &folder, "calls");
    timeline.set_stops(breaks(program.address("here")));
    for _ in 0..2 {
        let stop = timeline.run(Direction::Forward, None).unwrap();
        assert_eq!(stop.reason, Reason::Break);
    }
    let before = state(timeline);
    calls(timeline, program);
    changes(timeline, program);
    assert_eq!(state(timeline), before);
    // It goes on as if nothing had been.
    let stop = timeline.run(Direction::Forward, None).unwrap();
    assert_eq!(stop.reason, Reason::Break);
    assert_eq!(value(timeline, program), 9);
    timeline.seek(Target::End).unwrap();
    assert_eq!(value(timeline, program), 10);
    speed(timeline, program);
}

fn breaks(addr: u64) -> Stops {
    let at = Break {
        addr,
        thread: None,
        conditions: Vec::new(),
    };
    Stops {
        breaks: vec![at],
        ..Stops::default()
    }
}

fn value(timeline: &mut Timeline, program: &Program) -> i32 {
    let mut bytes = [0; 4];
    let len = timeline.read(program.address("value"), &mut bytes).unwrap();
    assert_eq!(len, 4);
    i32::from_le_bytes(bytes)
}

fn calls(timeline: &mut Timeline, program: &Program) {
    let mut excursion = timeline.excursion().unwrap();
    let thread = excursion.thread();
    let before = excursion.registers(thread).unwrap();
    let mut call = |name: &str, arguments: &[u64]| {
        let function = program.address(name);
        excursion.call(function, arguments, TICKS).unwrap()
    };
    assert_eq!(call("add6", &[1, 2, 3, 4, 5, 6]), Ok(91));
    assert_eq!(call("talk", &[10]), Ok("3.333 of 10\n".len() as u64));
    // The excursion goes on from what was called.
    let mut bytes = [0; 4];
    excursion
        .read(program.address("value"), &mut bytes)
        .unwrap();
    assert_eq!(i32::from_le_bytes(bytes), 10);
    assert_eq!(excursion.registers(thread).unwrap(), before);

    let mut undefined = |name: &str, argument: u64| {
        let mut excursion = timeline.excursion().unwrap();
        let called = excursion.call(program.address(name), &[argument], TICKS);
        called.unwrap().unwrap_err()
    };
    let segv = |addr| Undefined::Signal { signo: 11, addr };
    assert_eq!(undefined("crash", 24), segv(24));
    assert_eq!(undefined("endless", 0), Undefined::Endless);
    assert_eq!(undefined("lock", 0), Undefined::Endless);
    assert_eq!(undefined("quit", 0), Undefined::Exited);
    let mut excursion = timeline.excursion().unwrap();
    assert_eq!(excursion.call(0, &[], TICKS).unwrap(), Err(segv(0)));
    assert!(excursion.call(0, &[0; 7], TICKS).is_err());
}

fn changes(timeline: &mut Timeline, program: &Program) {
    let mut excursion = timeline.excursion().unwrap();
    let long = vec![1; 4];
    excursion.write(program.address("value"), &long).unwrap();
    assert!(excursion.write(16, &long).is_err());
    let thread = excursion.thread();
    let mut registers = excursion.registers(thread).unwrap().unwrap();
    registers.words[3] = 0x1234;
    excursion.set_registers(thread, &registers).unwrap();
    assert_eq!(excursion.registers(thread).unwrap(), Some(registers));
    // On to the next breakpoint, with the changed value.
    let ran = excursion
        .run(breaks(program.address("here")), TICKS)
        .unwrap();
    assert_eq!(ran.end, ExcursionEnd::Break);
    assert_eq!(ran.pc, program.address("here"));
    let mut bytes = [0; 4];
    excursion
        .read(program.address("value"), &mut bytes)
        .unwrap();
    assert_eq!(u32::from_le_bytes(bytes), 0x0101_0102);
    let ran = excursion.run(Stops::default(), TICKS).unwrap();
    assert_eq!(ran.end, ExcursionEnd::Exited);
    assert_eq!(ran.output, format!("{}\n", 0x0101_0103).into_bytes());
}

fn speed(timeline: &mut Timeline, program: &Program) {
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..50 {
        let began = Instant::now();
        let mut excursion = timeline.excursion().unwrap();
        let called = excursion.call(program.address("add6"), &[1; 6], TICKS);
        assert_eq!(called.unwrap(), Ok(21));
        drop(excursion);
        times.push(began.elapsed());
    }
    println!("an excursion and a call: {}", common::spread(&mut times));
}

//! Back through stretches: each instruction where single steps have it.

#[path = "../../timeline/tests/common/mod.rs"]
mod common;

use std::path::Path;

use clew_recording::reader::Recording;
use clew_slice::Result;
use clew_slice::events::Events;
use clew_slice::walk::{Executed, Go, Intervals, Place, Run, Visitor, back};
use clew_timeline::{Direction, Position, Reason, Target};
use common::{Random, open, record_program};

const STRETCHES: usize = 40;
const STEPS: usize = 500;

fn main() {
    let seed = std::env::var("CLEW_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(std::process::id() as u64 * 7919);
    let program = |name: &'static str, line: &'static [&'static str]| {
        common::test(name, move || {
            println!("CLEW_SEED={seed} looks at the same stretches");
            compare(&record_program(&[], line), seed);
            common::no_children();
        })
    };
    common::tests(vec![
        program("sort", &["/usr/bin/sort", "/etc/passwd"]),
        program(
            "bash",
            &["/bin/bash", "-c", "for i in 1 2 3; do : $((i * i)); done"],
        ),
    ])
}

#[derive(Default)]
struct All(Vec<(u64, Place)>);

impl Visitor for All {
    fn run(&mut self, run: &Run<'_>) -> Result<Go> {
        for n in (0..run.len()).rev() {
            self.0.push((run.instruction(n).ip(), run.place(n)));
        }
        Ok(Go::On)
    }

    fn step(&mut self, executed: &Executed<'_>) -> Result<Go> {
        self.0.push((executed.ins.ip(), executed.place.place()));
        Ok(Go::On)
    }

    fn event(&mut self, _: u64, _: u64, _: u64) -> Result<Go> {
        Ok(Go::On)
    }
}

fn compare(folder: &Path, seed: u64) {
    let random = &mut Random(seed | 1);
    let mut timeline = open(folder);
    let recording = Recording::open(folder).unwrap();
    let events = Events::read(recording.stream(timeline.stream()).unwrap()).unwrap();
    timeline.seek(Target::End).unwrap();
    let end = timeline.position().unwrap();
    for _ in 0..STRETCHES {
        let from = Position::after(random.below(end.event));
        if timeline.seek(Target::Position(from)).is_err() {
            continue;
        }
        let mut steps = Vec::new();
        while steps.len() < STEPS {
            let at = timeline.at();
            steps.push((at.pc, timeline.position().unwrap()));
            if timeline.step_any(Direction::Forward).unwrap().reason != Reason::Arrived {
                break;
            }
        }
        let to = timeline.position().unwrap();
        let trace = timeline.trace(from, to).unwrap();
        let (mut all, mut intervals) = (All::default(), Intervals::default());
        back(&trace, &mut intervals, &|n| events.ticks(n), &mut all).unwrap();
        for (pc, place) in all.0.iter().rev() {
            let position = intervals.position(*place).unwrap();
            let found = steps.iter().find(|(_, at)| *at == position);
            let expected = found.map(|(pc, _)| format!("{pc:#x}"));
            assert_eq!(
                expected,
                Some(format!("{pc:#x}")),
                "{position} in {from}..{to}"
            );
        }
    }
}

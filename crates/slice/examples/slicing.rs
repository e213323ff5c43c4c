//! How long a slice takes: `slicing CLEW RECORDING ADDR:LEN [data]`, of memory at the end.

use std::path::Path;
use std::time::Instant;

use clew_engine::program::Options;
use clew_recording::reader::Recording;
use clew_slice::closure::{Bounds, Kinds, Question, slice};
use clew_slice::failure::what_failed;
use clew_slice::origin::Value;
use clew_timeline::program::Program;
use clew_timeline::{Settings, Target, Timeline};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let recording = Recording::open(Path::new(&arguments[2])).expect("a recording");
    let mut settings = Settings::new(Options::default());
    settings.program = Some(arguments[1].clone().into());
    let stream = recording.streams()[0].id;
    let mut timeline = Timeline::open(&recording, stream, settings).expect("a timeline");
    timeline.seek(Target::End).expect("the end");
    let mut program = Program::new(&recording);
    let question = match arguments.get(3).and_then(|what| what.split_once(':')) {
        Some((addr, len)) => Question {
            values: vec![Value::Memory {
                addr: u64::from_str_radix(addr.trim_start_matches("0x"), 16).expect("an address"),
                len: len.parse().expect("a length"),
            }],
            here: false,
        },
        None => {
            let failed = what_failed(&mut timeline, &mut program, &recording);
            failed.expect("an answer").expect("a failure").question
        }
    };
    let modules = program.modules(&mut timeline).expect("modules");
    let log = recording.stream(stream).expect("a log");
    let kinds = Kinds {
        control: !arguments.iter().any(|word| word == "data"),
        ..Kinds::default()
    };
    let began = Instant::now();
    let found = slice(
        &mut timeline,
        log,
        modules,
        &question,
        kinds,
        Bounds::default(),
    );
    let found = found.expect("a slice");
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} members of {} instructions, {} moves, {seconds:.2} s, {:.0} M/s",
        found.count,
        found.instructions,
        found.moves,
        found.instructions as f64 / seconds / 1e6
    );
}

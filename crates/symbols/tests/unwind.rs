//! Stacks compared with gdb's, at every instruction of stretches of programs.

mod common;

use clew_symbols::{DebugSearch, Frame, Mapping, Module, Modules, Registers, StackEnd};
use common::{Scratch, compile, run};
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// What gdb said at a stop.
struct Stop {
    registers: Registers,
    stack: (u64, Vec<u8>),
    frames: Vec<Theirs>,
}

#[derive(Debug)]
struct Theirs {
    pc: u64,
    kind: String,
    line: Option<u32>,
    /// rsp, rbp, rbx, r12 to r15.
    kept: Vec<Option<u64>>,
    name: Option<String>,
}

struct Session {
    modules: Modules,
    images: Vec<(u64, Vec<u8>)>,
    stops: Vec<Stop>,
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap()
}

fn bytes(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

/// Lets gdb run the program to a place and step on from there.
fn session(scratch: &Scratch, program: &Path, place: &str, steps: usize) -> Session {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gdb_frames.py");
    let log = scratch.join("frames.txt");
    run(Command::new("gdb")
        .args(["-nx", "-batch", "-ex"])
        .arg(format!("source {}", script.display()))
        .arg("-ex")
        .arg(format!(
            "python travel({place:?}, {steps}, {:?})",
            log.to_str().unwrap()
        ))
        .arg(program));
    let text = std::fs::read_to_string(&log).unwrap();
    let mut session = Session {
        modules: Modules::new(),
        images: Vec::new(),
        stops: Vec::new(),
    };
    let mut opened: HashMap<String, Arc<Module>> = HashMap::new();
    let mut vdso = 0..0;
    for line in text.lines() {
        let (what, rest) = line.split_once(' ').unwrap();
        let fields: Vec<&str> = rest.split(' ').collect();
        match what {
            "map" => {
                let mapping = Mapping {
                    range: hex(fields[0])..hex(fields[1]),
                    offset: hex(fields[2]),
                };
                if fields[3] == "[vdso]" {
                    vdso = mapping.range;
                    continue;
                }
                let module = opened.entry(fields[3].into()).or_insert_with(|| {
                    let path = Path::new(fields[3]);
                    Arc::new(Module::open(path, path, &DebugSearch::default()).unwrap())
                });
                assert!(session.modules.map(module, &mapping), "{line}");
                let file = std::fs::read(fields[3]).unwrap();
                let end = (mapping.offset + mapping.range.end - mapping.range.start)
                    .min(file.len() as u64);
                let part = file[mapping.offset as usize..end as usize].to_vec();
                session.images.push((mapping.range.start, part));
            }
            "vdso" => {
                let image = bytes(fields[0]);
                let name = Path::new("[vdso]");
                let module =
                    Module::from_bytes(image.clone(), name, &DebugSearch::nowhere()).unwrap();
                session
                    .modules
                    .add(Arc::new(module), vdso.start, vdso.clone());
                session.images.push((vdso.start, image));
            }
            "stop" => {
                let gprs = std::array::from_fn(|index| hex(fields[index]));
                let registers = Registers::from_encoding_order(gprs, hex(fields[16]));
                session.stops.push(Stop {
                    registers,
                    stack: (0, Vec::new()),
                    frames: Vec::new(),
                });
            }
            "stack" => session.stops.last_mut().unwrap().stack = (hex(fields[0]), bytes(fields[1])),
            "frame" => session.stops.last_mut().unwrap().frames.push(Theirs {
                pc: hex(fields[0]),
                kind: fields[1].into(),
                line: fields[2].parse().ok(),
                kept: fields[3..10]
                    .iter()
                    .map(|text| u64::from_str_radix(text, 16).ok())
                    .collect(),
                name: Some(fields[10..].join(" ")).filter(|name| name != "?"),
            }),
            _ => panic!("{line}"),
        }
    }
    session
}

impl Session {
    fn stack(&self, stop: &Stop) -> clew_symbols::Stack {
        let mut memory = |address: u64, buffer: &mut [u8]| {
            let parts = self.images.iter().map(|(start, bytes)| (*start, bytes));
            for (start, bytes) in [(stop.stack.0, &stop.stack.1)].into_iter().chain(parts) {
                if let Some(at) = address
                    .checked_sub(start)
                    .filter(|&at| at < bytes.len() as u64)
                {
                    let rest = &bytes[at as usize..];
                    let count = rest.len().min(buffer.len());
                    buffer[..count].copy_from_slice(&rest[..count]);
                    return count;
                }
            }
            0
        };
        self.modules.stack(&stop.registers, &mut memory)
    }

    /// Compares all stops; says how many frames were compared.
    fn compare(&self, lines: bool) -> usize {
        let mut compared = 0;
        for stop in &self.stops {
            let stack = self.stack(stop);
            let theirs: Vec<&Theirs> = stop
                .frames
                .iter()
                .filter(|frame| frame.kind != "inline")
                .collect();
            let ours: Vec<&Frame> = stack.frames.iter().filter(|frame| !frame.inlined).collect();
            let context = || format!("ours:\n{stack}theirs:\n{:#?}", stop.frames);
            for (index, theirs) in theirs.iter().enumerate() {
                let ours = ours
                    .get(index)
                    .unwrap_or_else(|| panic!("frame {index}: {}", context()));
                same(ours, theirs, index == 0, lines).unwrap_or_else(|what| {
                    panic!("frame {index}: {what}: {}", context());
                });
                compared += 1;
            }
            if theirs.len() < 40 {
                assert_eq!(ours.len(), theirs.len(), "{}", context());
                assert_eq!(stack.end, StackEnd::Outermost, "{}", context());
            }
            // gdb doesn't show calls at whose first instruction it stopped as entered.
            let outer = |frame: &&Frame| frame.pc != ours[0].pc;
            let ours = stack
                .frames
                .iter()
                .filter(outer)
                .filter(|frame| frame.inlined)
                .count();
            let theirs_inlined = stop.frames.iter().filter(|frame| frame.pc != theirs[0].pc);
            let theirs_inlined = theirs_inlined
                .filter(|frame| frame.kind == "inline")
                .count();
            if theirs.len() < 40 {
                assert_eq!(ours, theirs_inlined, "{}", context());
            }
        }
        compared
    }
}

fn same(ours: &Frame, theirs: &Theirs, first: bool, lines: bool) -> Result<(), String> {
    let check = |what: &str, same: bool| if same { Ok(()) } else { Err(what.to_string()) };
    check("pc", ours.pc == theirs.pc)?;
    check("kind", ours.is_signal == (theirs.kind == "signal"))?;
    let names = ["rsp", "rbp", "rbx", "r12", "r13", "r14", "r15"];
    for (name, value) in names.iter().zip(&theirs.kept) {
        let ours = ours.registers.get(Registers::number(name).unwrap());
        check(name, ours == *value || ours.is_none())?;
    }
    check("rsp unknown", ours.registers.sp().is_some())?;
    if let (Some(name), false) = (&theirs.name, ours.is_signal) {
        let plain = |name: &str| {
            name.split(['<', '(', '['])
                .next()
                .unwrap()
                .trim()
                .to_string()
        };
        let known = ours.function.clone().unwrap_or_default();
        check(
            "function",
            plain(&known) == plain(name) || clew_symbols::means(name, &known),
        )?;
    }
    if lines && !first && !ours.is_signal {
        check(
            "line",
            ours.line.as_ref().map(|line| line.line) == theirs.line,
        )?;
    }
    Ok(())
}

#[test]
fn c_with_callbacks_through_libc() {
    let scratch = Scratch::new("unwind-c");
    for flags in [
        ["-g", "-O0", "-fno-omit-frame-pointer"],
        ["-g", "-O2", "-fomit-frame-pointer"],
    ] {
        let program = compile(&scratch, "deep.c", &flags);
        let session = session(&scratch, &program, "main", 600);
        let compared = session.compare(flags[1] == "-O0");
        assert!(compared > 2000, "{compared}");
    }
}

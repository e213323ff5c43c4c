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
    // `main, then`: a place that is known only when the program runs.
    let (first, then) = match place.split_once(", ") {
        Some((first, then)) => (first, format!("{then:?}")),
        None => (place, "None".into()),
    };
    run(Command::new("gdb")
        .args(["-nx", "-batch", "-ex"])
        .arg(format!("source {}", script.display()))
        .arg("-ex")
        .arg(format!(
            "python travel({first:?}, {steps}, {:?}, {then})",
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
            let called = |frame: &&Theirs| !matches!(&*frame.kind, "inline" | "tailcall");
            let theirs: Vec<&Theirs> = stop.frames.iter().filter(called).collect();
            let ours: Vec<&Frame> = stack.frames.iter().filter(|frame| !frame.inlined).collect();
            let context = || {
                let theirs = stop.frames.iter().map(|frame| format!("{frame:x?}\n"));
                format!("ours:\n{stack}theirs:\n{}", theirs.collect::<String>())
            };
            for (index, theirs) in theirs.iter().enumerate() {
                let ours = ours
                    .get(index)
                    .unwrap_or_else(|| panic!("frame {index}: {}", context()));
                same(ours, theirs, index == 0, lines).unwrap_or_else(|what| {
                    panic!("frame {index}: {what}: {}", context());
                });
                compared += 1;
            }
            if stop.frames.len() < 40 {
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
            if stop.frames.len() < 40 {
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
        let known = ours.function.as_deref().unwrap_or_default();
        check("function", same_name(known, name) || is_alias(ours, name))?;
    }
    if lines && !first && !ours.is_signal {
        check(
            "line",
            ours.line.as_ref().map(|line| line.line) == theirs.line,
        )?;
    }
    Ok(())
}

/// Whether the last parts are the same, without arguments. Old names don't number closures.
fn same_name(ours: &str, theirs: &str) -> bool {
    let last = |name: &str| {
        let name = name
            .replace("(anonymous namespace)", "")
            .replace("@plt", "");
        // Operators' brackets are no brackets.
        if let Some(at) = name.find("operator") {
            return name[at..].split('(').next().unwrap().to_string();
        }
        let mut depth = 0;
        let mut plain = String::new();
        for character in name.chars() {
            match character {
                '<' | '(' | '[' => depth += 1,
                '>' | ')' | ']' => depth -= 1,
                _ if depth == 0 => plain.push(character),
                _ => {}
            }
        }
        let last = plain
            .trim()
            .trim_end_matches("::")
            .rsplit("::")
            .next()
            .unwrap();
        if last.starts_with('{') {
            "closure".into()
        } else {
            last.into()
        }
    };
    // gdb doesn't say which function an entry for an indirect function leads to.
    let indirect = theirs.starts_with("*ABS*") && ours.ends_with("@plt");
    indirect || last(ours) == last(theirs) || clew_symbols::means(theirs, ours)
}

/// Whether gdb took another of several symbols for the same function.
fn is_alias(ours: &Frame, theirs: &str) -> bool {
    let (Some(module), Some(offset)) = (&ours.module, ours.offset) else {
        return false;
    };
    let start = ours.pc.wrapping_sub(offset).wrapping_sub(ours.bias);
    module
        .symbols_named(theirs)
        .unwrap()
        .iter()
        .any(|symbol| symbol.address == start)
}

/// Compiles, runs to each place, steps, and compares.
fn check(test: &str, name: &str, flags: &[&str], places: &[(&str, usize)]) -> Vec<Session> {
    let scratch = Scratch::new(test);
    let program = compile(&scratch, name, flags);
    let lines = flags.contains(&"-O0");
    let each = |&(place, steps): &(&str, usize)| {
        let session = session(&scratch, &program, place, steps);
        let compared = session.compare(lines);
        assert!(
            compared >= 2 * session.stops.len() && compared > 20,
            "{compared} at {place}"
        );
        session
    };
    places.iter().map(each).collect()
}

#[test]
fn c_with_callbacks_through_libc() {
    let places = [("main", 150), ("compare", 200)];
    check(
        "unwind-c0",
        "deep.c",
        &["-g", "-O0", "-fno-omit-frame-pointer"],
        &places,
    );
    check(
        "unwind-c2",
        "deep.c",
        &["-g", "-O2", "-fomit-frame-pointer"],
        &places,
    );
}

#[test]
fn only_debug_frame() {
    let flags = [
        "-g",
        "-O2",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ];
    check(
        "unwind-df",
        "deep.c",
        &flags,
        &[("main", 60), ("compare", 100)],
    );
}

#[test]
fn signal_handlers() {
    let sessions = check(
        "unwind-signal",
        "deep.c",
        &["-g", "-O2"],
        &[("handler", 250)],
    );
    let stack = sessions[0].stack(&sessions[0].stops[0]);
    assert!(stack.frames.iter().any(|frame| frame.is_signal), "{stack}");
    assert!(
        stack.to_string().contains("<signal handler called>"),
        "{stack}"
    );
}

#[test]
fn code_without_unwind_information_is_guessed() {
    let sessions = check("unwind-bare", "deep.c", &["-g", "-O2"], &[("*bare", 8)]);
    for stop in &sessions[0].stops {
        let stack = sessions[0].stack(stop);
        let count = stack.frames.iter().filter(|frame| frame.guessed).count();
        let innermost = stack.frames[0].function.as_deref();
        let expected = match innermost {
            Some("bare_leaf") => 2,
            Some("bare") => 1,
            _ => 0,
        };
        assert_eq!(count, expected, "{stack}");
        assert_eq!(
            stack.frames[count].function.as_deref(),
            Some("main"),
            "{stack}"
        );
    }
}

#[test]
fn cpp_with_exceptions() {
    let places = [("Derived::run", 150), ("__cxa_throw", 150)];
    check("unwind-cpp0", "shapes.cpp", &["-g", "-O0"], &places);
    check("unwind-cpp2", "shapes.cpp", &["-g", "-O2"], &places);
}

#[test]
fn rust() {
    check(
        "unwind-rust0",
        "shapes.rs",
        &["-g"],
        &[("shapes::total", 150)],
    );
    check(
        "unwind-rust3",
        "shapes.rs",
        &["-g", "-O"],
        &[("shapes::total", 150)],
    );
}

#[test]
fn threads_and_a_call_to_address_zero() {
    let sessions = check(
        "unwind-threads",
        "waiting.c",
        &["-g", "-O1"],
        &[("run", 80)],
    );
    let at_zero = sessions[0]
        .stops
        .iter()
        .find(|stop| stop.registers.pc() == Some(0))
        .unwrap();
    let stack = sessions[0].stack(at_zero);
    assert_eq!(stack.frames[1].function.as_deref(), Some("work"), "{stack}");
    assert!(stack.frames[1].guessed, "{stack}");
    assert_eq!(stack.frames[2].function.as_deref(), Some("run"), "{stack}");
}

#[test]
fn in_the_vdso() {
    let place = "main, __vdso_clock_gettime";
    let sessions = check("unwind-vdso", "deep.c", &["-g", "-O2"], &[(place, 30)]);
    let stack = sessions[0].stack(&sessions[0].stops[1]);
    let module = stack.frames[0].module.as_ref().unwrap();
    assert_eq!(module.name(), Path::new("[vdso]"), "{stack}");
    assert!(stack.frames.iter().all(|frame| !frame.guessed), "{stack}");
}

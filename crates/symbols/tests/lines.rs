//! Lines, functions and inlined calls of whole programs, compared with binutils' addr2line at
//! every address.

mod common;

use clew_symbols::{Place, demangle, means};
use common::{Scratch, compile, open, run_with_input, section, source};
use std::path::Path;
use std::process::Command;

/// What addr2line says for each address: functions and lines, innermost first.
fn addr2line(program: &Path, addresses: &[u64]) -> Vec<Vec<(String, String)>> {
    let input: String = addresses
        .iter()
        .map(|address| format!("{address:#x}\n"))
        .collect();
    let text = run_with_input(
        Command::new("addr2line")
            .args(["-a", "-f", "-i", "-e"])
            .arg(program),
        input,
    );
    let mut all: Vec<Vec<(String, String)>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            all.push(Vec::new());
            continue;
        }
        let place = lines.next().unwrap();
        let place = place.split(" (discriminator").next().unwrap();
        all.last_mut().unwrap().push((line.into(), place.into()));
    }
    assert_eq!(all.len(), addresses.len());
    all
}

/// Whether both tools say the same about a place. Where there is no line, addr2line names files
/// by the symbol table, and takes the nearest symbol for padding between functions.
fn same(ours: &Place, theirs: &(String, String), unit_file: &str) -> bool {
    let (function, line) = theirs;
    let known = ours.line.as_ref().filter(|line| line.line != 0);
    let same_line = match known {
        // For units of a single file, binutils 2.40 mistakes the file of version 5's tables.
        Some(known) => {
            let (file, number) = line.rsplit_once(':').unwrap();
            number == known.line.to_string() && (file == &*known.file || file == unit_file)
        }
        None => line.ends_with(":?") || line.ends_with(":0"),
    };
    // The symbol table has names of their own for parts that were moved away.
    let function = function.strip_suffix(".cold").unwrap_or(function);
    let plain = demangle(function).unwrap_or_else(|| function.into());
    let same_function = match &ours.function {
        // What our demangler doesn't know, we say as DWARF has it.
        Some(name) if plain.starts_with("_Z") => name
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .all(|word| function.contains(word) || matches!(word, "std" | "int" | "double")),
        Some(name) => *name == plain || means(&plain, name),
        None => true,
    };
    same_line && same_function
}

/// Compares at every address of the program's code, or each `step`th.
fn compare(program: &Path, step: usize, version: &str, name: &str) {
    let source = source(name);
    let unit_file = if version == "-gdwarf-5" {
        source.to_str().unwrap()
    } else {
        ""
    };
    let module = open(program);
    let (start, size) = section(program, ".text").unwrap();
    let addresses: Vec<u64> = (start..start + size).step_by(step).collect();
    let mut differ = Vec::new();
    let (mut lines, mut functions) = (0, 0);
    for (&address, theirs) in addresses.iter().zip(addr2line(program, &addresses)) {
        let ours = module.places_at(address).unwrap();
        lines += usize::from(ours[0].line.is_some());
        functions += usize::from(ours[0].function.is_some());
        let same = ours.len() == theirs.len()
            && ours.iter().zip(&theirs).all(|(a, b)| same(a, b, unit_file));
        if !same && differ.len() < 12 {
            let show = |place: &Place| {
                let line = place
                    .line
                    .as_ref()
                    .map(|line| format!("{}:{}", line.file, line.line));
                (place.function.clone(), line)
            };
            let ours: Vec<_> = ours.iter().map(show).collect();
            differ.push(format!(
                "{address:#x}\n ours   {ours:?}\n theirs {theirs:?}\n"
            ));
        }
    }
    assert!(
        differ.is_empty(),
        "{} of {}:\n{}",
        differ.len(),
        addresses.len(),
        differ.concat()
    );
    assert!(
        lines > 100 && functions > 100,
        "{lines} lines, {functions} functions"
    );
}

#[test]
fn cpp() {
    let scratch = Scratch::new("lines-cpp");
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        for level in ["-O0", "-O2"] {
            compare(
                &compile(&scratch, "shapes.cpp", &[version, level]),
                3,
                version,
                "shapes.cpp",
            );
        }
    }
}

#[test]
fn rust() {
    let scratch = Scratch::new("lines-rust");
    compare(
        &compile(&scratch, "shapes.rs", &["-g"]),
        53,
        "",
        "shapes.rs",
    );
    compare(
        &compile(&scratch, "shapes.rs", &["-g", "-O"]),
        53,
        "",
        "shapes.rs",
    );
}

#[test]
fn c() {
    let scratch = Scratch::new("lines-c");
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        for level in ["-O0", "-O2"] {
            compare(
                &compile(&scratch, "shapes.c", &[version, level]),
                1,
                version,
                "shapes.c",
            );
        }
    }
}

//! Lines, functions and inlined calls of whole programs, compared with binutils' addr2line at
//! every address.

mod common;

use common::{Scratch, compile, open, run_with_input, section};
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

fn compare(program: &Path) {
    let module = open(program);
    let (start, size) = section(program, ".text").unwrap();
    let addresses: Vec<u64> = (start..start + size).collect();
    let mut differ = 0;
    for (&address, theirs) in addresses.iter().zip(addr2line(program, &addresses)) {
        let places = module.places_at(address).unwrap();
        let ours: Vec<(String, String)> = places
            .iter()
            .map(|place| {
                let line = match &place.line {
                    Some(line) if line.line == 0 => format!("{}:?", line.file),
                    Some(line) => format!("{}:{}", line.file, line.line),
                    None => "??:?".into(),
                };
                (place.function.clone().unwrap_or("??".into()), line)
            })
            .collect();
        if ours != theirs {
            differ += 1;
            if differ < 10 {
                println!("{address:#x}\n ours   {ours:?}\n theirs {theirs:?}");
            }
        }
    }
    println!("{} addresses, {differ} differ", addresses.len());
    assert_eq!(differ, 0);
}

#[test]
fn c() {
    let scratch = Scratch::new("lines-c");
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        for level in ["-O0", "-O2"] {
            compare(&compile(&scratch, "shapes.c", &[version, level]));
        }
    }
}

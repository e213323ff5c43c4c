//! The environment variables that programs of a recording were started with. In: the first effects of a stream that
//! begins with an exec. Out: names, values, and where in memory these are.
//!
//! Also: the same recording without some of the values, for who may see the rest of it but not those.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use crate::event::{Effect, Event, Origin, Record, StreamId};
use crate::reader::{ReadError, Recording};
use crate::rewrite::{RewriteError, rewrite};
use crate::stack::Stack;

/// What stands in place of a value.
const FILLER: u8 = b'x';
/// Shorter values are found everywhere.
const TELLING: usize = 8;

/// One variable of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    pub stream: StreamId,
    pub name: String,
    pub value: Vec<u8>,
    /// Where the value is in the program's memory.
    pub range: Range<u64>,
}

/// Of all programs of a recording.
pub fn of(recording: &Recording) -> Result<Vec<Variable>, ReadError> {
    let mut all = Vec::new();
    for info in recording.streams() {
        if !matches!(info.start.origin, Origin::Exec { .. }) {
            continue;
        }
        if let Some(stack) = Stack::of(recording, info.id)? {
            variables(&stack, info.id, &mut all);
        }
    }
    Ok(all)
}

fn variables(stack: &Stack, stream: StreamId, all: &mut Vec<Variable>) -> Option<()> {
    for addr in stack.environment()? {
        let string = stack.string(addr)?;
        let Some(equal) = string.iter().position(|&byte| byte == b'=') else {
            continue;
        };
        let start = addr + equal as u64 + 1;
        let value = string[equal + 1..].to_vec();
        all.push(Variable {
            stream,
            name: String::from_utf8_lossy(&string[..equal]).into_owned(),
            range: start..start + value.len() as u64,
            value,
        });
    }
    Some(())
}

/// Writes a log in which values are overwritten where programs got them, but for variables of these names. Memory isn't
/// compared in it any more: it would differ.
pub fn strip(
    recording: &Recording,
    variables: &[Variable],
    keep: &BTreeSet<String>,
    file: &Path,
) -> Result<(), RewriteError> {
    let stripped: Vec<&Variable> = variables
        .iter()
        .filter(|variable| !keep.contains(&variable.name))
        .collect();
    let mut starting = false;
    rewrite(
        recording,
        file,
        &mut |stream, number, record, put| match record {
            Record::Event(Event::Check {
                place, registers, ..
            }) => {
                starting = false;
                put(&Record::Event(Event::Check {
                    place: *place,
                    registers: *registers,
                    memory: None,
                }));
            }
            Record::Event(_) => {
                starting = number == 0;
                put(record);
            }
            Record::Effect(Effect::Memory { addr, bytes }) if starting => {
                let mut changed = bytes.to_vec();
                let own = stripped.iter().filter(|variable| variable.stream == stream);
                for variable in own {
                    overwrite(*addr, &mut changed, &variable.range);
                }
                put(&Record::Effect(Effect::Memory {
                    addr: *addr,
                    bytes: &changed,
                }));
            }
            record => put(record),
        },
    )
}

fn overwrite(addr: u64, bytes: &mut [u8], range: &Range<u64>) {
    let end = addr.saturating_add(bytes.len() as u64);
    let (from, to) = (range.start.max(addr), range.end.min(end));
    if from < to {
        bytes[(from - addr) as usize..(to - addr) as usize].fill(FILLER);
    }
}

/// Variables whose values are also elsewhere in the log, beside where programs got them: what was read, received, told.
pub fn elsewhere(
    recording: &Recording,
    variables: &[Variable],
) -> Result<BTreeSet<String>, ReadError> {
    let mut found = BTreeSet::new();
    let telling: Vec<&Variable> = variables
        .iter()
        .filter(|variable| variable.value.len() >= TELLING)
        .collect();
    let values: BTreeSet<(&[u8], &str)> = telling
        .iter()
        .map(|variable| (&variable.value[..], variable.name.as_str()))
        .collect();
    for info in recording.streams() {
        let mut reader = recording.stream(info.id)?;
        let begins = matches!(info.start.origin, Origin::Exec { .. });
        let mut number = 0u64;
        while let Some(record) = reader.next()? {
            match record {
                Record::Event(_) => number += 1,
                // The environment itself, and what the kernel says of it.
                Record::Effect(Effect::Memory { .. }) if begins && number == 1 => {}
                Record::Effect(Effect::Memory { bytes, .. }) => {
                    for (value, name) in &values {
                        if contains(bytes, value) {
                            found.insert((*name).to_owned());
                        }
                    }
                }
                Record::Effect(_) => {}
            }
        }
    }
    Ok(found)
}

fn contains(bytes: &[u8], value: &[u8]) -> bool {
    bytes.windows(value.len()).any(|window| window == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_and_overwritten() {
        let mut bytes = Vec::new();
        let top = 0x1000u64;
        // argc 1, argv, 0, two variables, 0
        for word in [1, 0x1100, 0, 0x1110, 0x1120, 0] {
            bytes.extend_from_slice(&u64::to_le_bytes(word));
        }
        bytes.resize(0x100, 0);
        for (at, text) in [
            (0x100, "prog"),
            (0x110, "A=one"),
            (0x120, "LONG=another one"),
        ] {
            bytes.resize(at, 0);
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.push(0);
        // In two pieces, cut inside of a value.
        let second = bytes.split_off(0x128);
        let pieces = vec![(top, bytes.clone()), (top + 0x128, second.clone())];
        let stack = Stack::made(top, pieces);
        let mut found = Vec::new();
        variables(&stack, 7, &mut found).unwrap();
        let names: Vec<(&str, &[u8])> = found
            .iter()
            .map(|variable| (variable.name.as_str(), &variable.value[..]))
            .collect();
        assert_eq!(names, [("A", &b"one"[..]), ("LONG", b"another one")]);
        assert_eq!(found[1].range, 0x1125..0x1130);
        let (mut first, mut rest) = (bytes, second);
        overwrite(top, &mut first, &found[1].range);
        overwrite(top + 0x128, &mut rest, &found[1].range);
        assert_eq!(&first[0x120..], b"LONG=xxx");
        assert_eq!(rest, b"xxxxxxxx\0");
    }
}

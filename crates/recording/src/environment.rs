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

const RSP: usize = 4;
/// The kernel takes fewer.
const MOST_WORDS: u64 = 4 << 20;
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
        let mut reader = recording.stream(info.id)?;
        reader.next()?;
        let mut stack = Stack::default();
        while let Some(effect) = reader.next_effect()? {
            match effect {
                Effect::Memory { addr, bytes } => stack.pieces.push((addr, bytes.to_vec())),
                Effect::Registers { mask, values } if mask >> RSP & 1 != 0 => {
                    stack.top = values[RSP];
                }
                _ => {}
            }
        }
        stack.variables(info.id, &mut all);
    }
    Ok(all)
}

/// The stack as exec makes it: argc, argv, 0, envp, 0.
#[derive(Default)]
struct Stack {
    top: u64,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Stack {
    fn from(&self, addr: u64) -> Option<&[u8]> {
        self.pieces.iter().rev().find_map(|(start, bytes)| {
            let at = usize::try_from(addr.checked_sub(*start)?).ok()?;
            bytes.get(at..).filter(|rest| !rest.is_empty())
        })
    }

    fn word(&self, addr: u64) -> Option<u64> {
        let bytes = self.from(addr)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// To the 0 at its end; pieces that follow each other are one.
    fn string(&self, addr: u64) -> Option<Vec<u8>> {
        let mut string = Vec::new();
        loop {
            let rest = self.from(addr.checked_add(string.len() as u64)?)?;
            match rest.iter().position(|&byte| byte == 0) {
                Some(end) => {
                    string.extend_from_slice(&rest[..end]);
                    return Some(string);
                }
                None => string.extend_from_slice(rest),
            }
        }
    }

    fn variables(&self, stream: StreamId, all: &mut Vec<Variable>) -> Option<()> {
        let argc = self.word(self.top)?;
        if argc > MOST_WORDS {
            return None;
        }
        let mut at = self.top.checked_add(8 * (argc + 2))?;
        for _ in 0..MOST_WORDS {
            let addr = self.word(at)?;
            if addr == 0 {
                break;
            }
            at += 8;
            let string = self.string(addr)?;
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
        let stack = Stack {
            top,
            pieces: vec![(top, bytes.clone()), (top + 0x128, second.clone())],
        };
        let mut found = Vec::new();
        stack.variables(7, &mut found).unwrap();
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

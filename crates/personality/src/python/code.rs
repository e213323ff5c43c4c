//! A code object, read from memory. In: its address. Out: its names, the line of each instruction, and the
//! instructions at which a line may begin.

use super::layout::{BYTES, ITEMS, Layout, SIZE, TYPE};
use crate::view::{half, word};
use crate::{Error, Result, View};

/// Larger ones are nobody's.
const MOST_UNITS: u64 = 1 << 20;
const MOST_TABLE: usize = 1 << 22;
const MOST_CONSTANTS: u64 = 1 << 16;

#[derive(Clone, Debug)]
pub struct Code {
    pub address: u64,
    pub file: String,
    pub qualified: String,
    /// Where the bytecode is.
    pub start: u64,
    /// The line of each unit of two bytes; none for what belongs to no line.
    lines: Vec<Option<u32>>,
    /// Units at which a line may begin, or the frame is entered; in order.
    candidates: Vec<u32>,
    /// The unit at which the frame is first entered.
    entry: u32,
    opcodes: Vec<u8>,
    /// What tells that the object is still the same.
    print: Print,
}

/// What of a code object doesn't change, and isn't another's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Print {
    pub first_line: u32,
    file: u64,
    name: u64,
    lines: u64,
    size: u64,
}

impl Print {
    fn of(layout: &Layout, head: &[u8]) -> Print {
        Print {
            first_line: half(head, layout.first_line as usize),
            file: word(head, layout.file as usize),
            name: word(head, layout.name as usize),
            lines: word(head, layout.lines as usize),
            size: word(head, SIZE as usize),
        }
    }
}

impl Code {
    /// Whether what is in memory is still this.
    pub fn is_there(&self, view: &mut View, layout: &Layout) -> Result<bool> {
        let head = view.bytes(self.address, layout.bytecode as usize)?;
        Ok(Print::of(layout, &head) == self.print)
    }

    pub fn read(view: &mut View, layout: &Layout, address: u64) -> Result<Code> {
        let strange = || Error::Refused("a code object of the interpreter isn't understood".into());
        let code_type = view.address("PyCode_Type")?;
        let head = view.bytes(address, layout.bytecode as usize)?;
        let print = Print::of(layout, &head);
        if word(&head, TYPE as usize) != code_type || print.size > MOST_UNITS {
            return Err(strange());
        }
        let file = string(view, layout, print.file)?;
        let qualified = string(view, layout, word(&head, layout.qualified as usize))?;
        let start = address + layout.bytecode;
        let bytecode = view.bytes(start, print.size as usize * 2)?;
        let table = bytes(view, print.lines)?;
        let handlers = bytes(view, word(&head, layout.handlers as usize))?;
        let lines = lines(&table, print.first_line, print.size as usize);
        let opcodes: Vec<u8> = bytecode.iter().copied().step_by(2).collect();
        let is_resume = |op: &u8| layout.opcodes.resume.contains(op);
        let entry = opcodes.iter().position(is_resume).unwrap_or(0) as u32;
        let mut candidates: Vec<u32> = (0..print.size as u32)
            .filter(|&unit| is_resume(&opcodes[unit as usize]) || starts(&lines, unit as usize))
            // The first line begins there, though it may be the one that the entry is of.
            .chain([entry + 1])
            .chain(jumps(layout, &bytecode))
            .chain(targets(&handlers))
            .filter(|&unit| unit < print.size as u32)
            .collect();
        candidates.sort_unstable();
        candidates.dedup();
        Ok(Code {
            address,
            file,
            qualified,
            start,
            lines,
            candidates,
            entry,
            opcodes,
            print,
        })
    }

    fn unit(&self, instruction: u64) -> Option<usize> {
        let unit = instruction.checked_sub(self.start)? / 2;
        (unit < self.lines.len() as u64).then_some(unit as usize)
    }

    pub fn line(&self, instruction: u64) -> Option<u32> {
        self.lines[self.unit(instruction)?]
    }

    pub fn first_line(&self) -> u32 {
        self.print.first_line
    }

    /// The instruction by which a call enters it.
    pub fn entered(&self) -> u64 {
        self.start + u64::from(self.entry) * 2
    }

    pub fn contains(&self, instruction: u64) -> bool {
        self.unit(instruction).is_some()
    }

    /// The frame is entered by this instruction.
    pub fn enters(&self, layout: &Layout, instruction: u64) -> bool {
        let opcode = self.unit(instruction).map(|unit| self.opcodes[unit]);
        opcode.is_some_and(|opcode| layout.opcodes.resume.contains(&opcode))
    }

    /// Whether a line begins with an instruction that is executed after another one of the same frame: the rule by
    /// which `sys.settrace` tells of lines.
    pub fn begins(&self, layout: &Layout, last: u64, instruction: u64) -> bool {
        let Some(unit) = self.unit(instruction) else {
            return false;
        };
        let (Some(line), false) = (self.lines[unit], self.enters(layout, instruction)) else {
            return false;
        };
        if (unit as u32) < self.entry {
            return false;
        }
        let before = match self.unit(last) {
            Some(before) if before as u32 > self.entry => before,
            _ => return true,
        };
        self.lines[before] != Some(line)
            || unit < before && self.opcodes[unit] != layout.opcodes.send
    }

    /// Addresses of instructions at which a line may begin, as ranges.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        self.joined(|_| true)
    }

    /// The same, of one line.
    pub fn ranges_of(&self, line: u32) -> Vec<(u64, u64)> {
        self.joined(|unit| self.lines[unit as usize] == Some(line))
    }

    fn joined(&self, wanted: impl Fn(u32) -> bool) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for &unit in self.candidates.iter().filter(|&&unit| wanted(unit)) {
            let at = self.start + u64::from(unit) * 2;
            match ranges.last_mut() {
                Some(last) if last.1 == at => last.1 = at + 2,
                _ => ranges.push((at, at + 2)),
            }
        }
        ranges
    }

    /// Code objects among its constants: functions, classes and comprehensions that are defined in it.
    pub fn inner(&self, view: &mut View, layout: &Layout) -> Result<Vec<u64>> {
        let code_type = view.address("PyCode_Type")?;
        let tuple = view.word(self.address + layout.constants)?;
        let count = view.word(tuple + SIZE)?.min(MOST_CONSTANTS);
        let items = view.bytes(tuple + ITEMS, count as usize * 8)?;
        let mut inner = Vec::new();
        for n in 0..count as usize {
            let item = word(&items, n * 8);
            if view.word(item + TYPE)? == code_type {
                inner.push(item);
            }
        }
        Ok(inner)
    }
}

/// Two instructions may be executed as one, so the line before may be that of the last but one.
fn starts(lines: &[Option<u32>], unit: usize) -> bool {
    let Some(line) = lines[unit] else {
        return false;
    };
    let near = unit.saturating_sub(2)..unit;
    unit == 0 || lines[near].iter().any(|&before| before != Some(line))
}

/// Units that jumps lead to. What isn't an instruction, but part of a cache, may look like one: that is one more.
fn jumps(layout: &Layout, bytecode: &[u8]) -> Vec<u32> {
    let opcodes = &layout.opcodes;
    let mut all = Vec::new();
    let mut high = 0u32;
    for (unit, pair) in bytecode.chunks_exact(2).enumerate() {
        let (op, arg) = (pair[0], high << 8 | u32::from(pair[1]));
        high = match opcodes.extended.contains(&op) {
            true => arg,
            false => 0,
        };
        let here = unit as u32 + 1;
        let find = |jumps: &[(u8, u8)]| jumps.iter().find(|jump| jump.0 == op).map(|jump| jump.1);
        if let Some(cache) = find(opcodes.forward) {
            let to = here.wrapping_add(cache.into()).wrapping_add(arg);
            // Loops skip the instruction that ends them.
            all.extend([to, to.wrapping_add(1)]);
        }
        if let Some(cache) = find(opcodes.backward) {
            all.extend((here + u32::from(cache)).checked_sub(arg));
        }
    }
    all
}

/// Units at which exceptions are handled: entries of four numbers, six bits a byte.
fn targets(table: &[u8]) -> Vec<u32> {
    let mut all = Vec::new();
    let mut numbers = Vec::new();
    let mut bytes = table.iter().peekable();
    while let Some(&byte) = bytes.next() {
        let mut value = u32::from(byte & 63);
        let mut more = byte & 64 != 0;
        while more {
            let Some(&byte) = bytes.next() else {
                return all;
            };
            value = value << 6 | u32::from(byte & 63);
            more = byte & 64 != 0;
        }
        numbers.push(value);
        if let [_, _, target, _] = numbers[..] {
            all.push(target);
            numbers.clear();
        }
    }
    all
}

/// The line of each unit, from the table of locations.
fn lines(table: &[u8], first: u32, units: usize) -> Vec<Option<u32>> {
    let mut all = Vec::with_capacity(units);
    let mut line = i64::from(first);
    let mut at = 0;
    while let Some(&head) = table.get(at) {
        let (kind, length) = (head >> 3 & 15, usize::from(head & 7) + 1);
        at += 1;
        let mut none = false;
        match kind {
            10..=12 => line += i64::from(kind - 10),
            13 | 14 => {
                let (mut value, mut shift) = (0u64, 0);
                while let Some(&byte) = table.get(at) {
                    at += 1;
                    value |= u64::from(byte & 63) << shift;
                    shift += 6;
                    if byte & 64 == 0 || shift > 36 {
                        break;
                    }
                }
                let size = (value >> 1) as i64;
                line += if value & 1 != 0 { -size } else { size };
            }
            15 => none = true,
            _ => {}
        }
        let known = u32::try_from(line).ok().filter(|_| !none);
        all.resize((all.len() + length).min(units), known);
        // Columns, until the next entry.
        while table.get(at).is_some_and(|byte| byte & 128 == 0) {
            at += 1;
        }
    }
    all.resize(units, None);
    all
}

/// The text of a string object.
pub fn string(view: &mut View, layout: &Layout, address: u64) -> Result<String> {
    let strange = || Error::Refused("a string of the interpreter isn't understood".into());
    let unicode = view.address("PyUnicode_Type")?;
    let head = view.bytes(address, layout.text as usize + 32)?;
    let length = word(&head, SIZE as usize) as usize;
    if word(&head, TYPE as usize) != unicode || length > MOST_TABLE {
        return Err(strange());
    }
    // Bits of the state: interned (2, or 16 from 3.12 on below 3.14: only the lowest), kind (3), compact, ascii.
    let state = half(&head, 32);
    let (kind, ascii) = (state >> 2 & 7, state >> 6 & 1 != 0);
    let data = match ascii {
        true => address + layout.text,
        // The compact ones have the length and text of their UTF-8 form in between.
        false => address + layout.text + if layout.text == 40 { 16 } else { 24 },
    };
    let bytes = view.bytes(data, length * kind.max(1) as usize)?;
    Ok(match kind {
        2 => {
            let units = bytes
                .chunks_exact(2)
                .map(|two| u32::from(u16::from_le_bytes([two[0], two[1]])));
            units.map(character).collect()
        }
        4 => {
            let units = bytes
                .chunks_exact(4)
                .map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
            units.map(character).collect()
        }
        _ => bytes
            .iter()
            .map(|&byte| character(u32::from(byte)))
            .collect(),
    })
}

fn character(code: u32) -> char {
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn bytes(view: &mut View, address: u64) -> Result<Vec<u8>> {
    let strange = || Error::Refused("a table of the interpreter isn't understood".into());
    let bytes_type = view.address("PyBytes_Type")?;
    let head = view.bytes(address, BYTES as usize)?;
    let length = word(&head, SIZE as usize) as usize;
    if word(&head, TYPE as usize) != bytes_type || length > MOST_TABLE {
        return Err(strange());
    }
    view.bytes(address + BYTES, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_read_as_python_writes_them() {
        // One unit on the first line, two without one, one a line further, three two lines back, with columns.
        let table = [0x80, 0x00, 0xf9, 0xd8, 0x05, 0xf2, 0x05, 0x01, 0x02, 0x03];
        let lines = lines(&table, 10, 9);
        let known = |line| Some(line);
        assert_eq!(lines[0], known(10));
        assert_eq!(&lines[1..3], [None, None]);
        // 0xd8: kind 11, one unit, a line further.
        assert_eq!(lines[3], known(11));
        assert_eq!(&lines[4..7], [known(9); 3]);
        assert_eq!(&lines[7..], [None, None]);
    }

    #[test]
    fn handlers_are_found() {
        assert_eq!(
            targets(&[0x80 | 4, 3, 9, 1, 0x80 | 8, 1, 64 | 1, 2, 0]),
            [9, 66]
        );
    }
}

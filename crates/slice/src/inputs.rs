//! Where values came in, in words. In: an event that wrote them, or memory that nobody wrote. Out: "read() of input.txt at
//! offset 8192", "argv[2]", "the heap, never written".

use clew_recording::event::{Call, End};
use clew_timeline::{Position, Target, Timeline};

use crate::Result;
use crate::closure::{Input, Rest};
use crate::events::{Events, Kind};

/// How far back a descriptor's making is looked for.
const MOST_EVENTS: u64 = 5_000_000;
const LONGEST_PATH: usize = 4096;

mod number {
    pub const READ: u32 = 0;
    pub const OPEN: u32 = 2;
    pub const CLOSE: u32 = 3;
    pub const LSEEK: u32 = 8;
    pub const PREAD: u32 = 17;
    pub const READV: u32 = 19;
    pub const DUP: u32 = 32;
    pub const DUP2: u32 = 33;
    pub const SOCKET: u32 = 41;
    pub const ACCEPT: u32 = 43;
    pub const FCNTL: u32 = 72;
    pub const CREAT: u32 = 85;
    pub const OPENAT: u32 = 257;
    pub const ACCEPT4: u32 = 288;
    pub const DUP3: u32 = 292;
    pub const PREADV: u32 = 295;
}

/// An input in words. The timeline may stand elsewhere afterwards.
pub fn input(timeline: &mut Timeline, events: &Events, input: &Input) -> Result<String> {
    Ok(match &input.kind {
        Kind::Call(call) => called(timeline, events, input.position.event, call)?,
        Kind::Signal { signo } => format!("signal {signo}, whose frame it is in"),
        other => other.words().into(),
    })
}

fn called(timeline: &mut Timeline, events: &Events, event: u64, call: &Call) -> Result<String> {
    let name = clew_calls::table::lookup(u64::from(call.nr)).name;
    let reads = [number::READ, number::READV, number::PREAD, number::PREADV];
    if !reads.contains(&call.nr) {
        return Ok(format!("{name}()"));
    }
    let Some((what, offset)) = descriptor(timeline, events, event, call.args[0])? else {
        return Ok(format!("{name}() of descriptor {}", call.args[0]));
    };
    let offset = match call.nr {
        number::PREAD | number::PREADV => Some(call.args[3]),
        _ => offset,
    };
    Ok(match offset {
        Some(offset) => format!("{name}() of {what} at offset {offset}"),
        None => format!("{name}() of {what}"),
    })
}

/// What a descriptor stands for at an event, and where its file was read by then, if that is known.
fn descriptor(
    timeline: &mut Timeline,
    events: &Events,
    event: u64,
    fd: u64,
) -> Result<Option<(String, Option<u64>)>> {
    let mut fd = fd;
    let mut read: Option<u64> = Some(0);
    // Reading stops at the last place that says where it is.
    let mut counting = true;
    for number in (event.saturating_sub(MOST_EVENTS)..event).rev() {
        let Some(Kind::Call(call)) = events.get(number).map(|fact| &fact.kind) else {
            continue;
        };
        let End::Returned(returned) = call.end else {
            continue;
        };
        if returned < 0 {
            continue;
        }
        let same = call.args[0] == fd;
        let made = returned as u64 == fd;
        match call.nr {
            number::READ | number::READV if same && counting => {
                read = read.map(|read| read + returned as u64);
            }
            number::LSEEK if same && counting => {
                read = read.map(|read| read + returned as u64);
                counting = false;
            }
            // Before that it was something else: what made it, a pipe say, has no number as its result.
            number::CLOSE if same => return Ok(None),
            number::OPEN | number::CREAT | number::OPENAT if made => {
                let path = match call.nr {
                    number::OPENAT => call.args[1],
                    _ => call.args[0],
                };
                let position = Position {
                    event: number,
                    ticks: events.ticks(number),
                    steps: 0,
                };
                let path = text(timeline, position, path)?;
                return Ok(path.map(|path| (path, read)));
            }
            number::DUP | number::FCNTL if made => fd = call.args[0],
            number::DUP2 | number::DUP3 if made && call.args[1] == fd => fd = call.args[0],
            number::SOCKET | number::ACCEPT | number::ACCEPT4 if made => {
                return Ok(Some((format!("a socket (descriptor {fd})"), None)));
            }
            _ => {}
        }
    }
    Ok((fd == 0).then(|| ("standard input".into(), read)))
}

/// A string of the program's at a position.
fn text(timeline: &mut Timeline, position: Position, addr: u64) -> Result<Option<String>> {
    timeline.seek(Target::Position(position))?;
    let mut bytes = vec![0; LONGEST_PATH];
    let got = timeline.read(addr, &mut bytes)?;
    let end = bytes[..got].iter().position(|byte| *byte == 0);
    Ok(end.map(|end| String::from_utf8_lossy(&bytes[..end]).into_owned()))
}

/// What exec gave the program: arguments and environment, and where they are.
pub struct Given {
    strings: Vec<(std::ops::Range<u64>, String)>,
    mappings: Vec<clew_timeline::Mapping>,
}

/// Arguments and variables that are looked at.
const MOST_STRINGS: u64 = 4096;
const RSP: usize = 4;

impl Given {
    /// Reads it from the beginning of a program's life. The timeline stands there afterwards; `mappings` are those of
    /// where the question was asked.
    pub fn read(timeline: &mut Timeline, mappings: Vec<clew_timeline::Mapping>) -> Result<Given> {
        timeline.seek(Target::Start)?;
        let thread = timeline.at().thread;
        let registers = timeline.registers(thread)?;
        let mut strings = Vec::new();
        if let Some(registers) = registers {
            let sp = registers.words[RSP];
            let mut word = |n: u64| -> Result<u64> {
                let mut bytes = [0; 8];
                timeline.read(sp.wrapping_add(8 * n), &mut bytes)?;
                Ok(u64::from_le_bytes(bytes))
            };
            let count = word(0)?.min(MOST_STRINGS);
            let mut pointers = Vec::new();
            for n in 0..count {
                pointers.push((word(1 + n)?, format!("argv[{n}]")));
            }
            for n in 0..MOST_STRINGS {
                match word(2 + count + n)? {
                    0 => break,
                    pointer => pointers.push((pointer, "the environment".into())),
                }
            }
            for (pointer, mut name) in pointers {
                let mut bytes = vec![0; LONGEST_PATH];
                let got = timeline.read(pointer, &mut bytes)?;
                let end = bytes[..got].iter().position(|byte| *byte == 0);
                let end = end.unwrap_or(got);
                if name == "the environment" {
                    let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
                    let variable = text.split('=').next().unwrap_or_default();
                    name = format!("the environment's {variable}");
                }
                strings.push((pointer..pointer + end as u64 + 1, name));
            }
        }
        Ok(Given { strings, mappings })
    }

    /// Memory that nobody wrote, in words.
    pub fn rest(&self, rest: &Rest) -> String {
        let mut strings = self.strings.iter();
        let string = strings.find(|(range, _)| range.contains(&rest.addr));
        if let Some((_, name)) = string {
            return name.clone();
        }
        let mapping = self
            .mappings
            .iter()
            .find(|mapping| (mapping.start..mapping.end).contains(&rest.addr));
        match mapping {
            Some(mapping) if mapping.copy.is_some() => format!("the contents of {}", mapping.name),
            Some(mapping) if mapping.name == "[stack]" => {
                "the stack, never written, or as exec made it".into()
            }
            Some(mapping) if !mapping.name.is_empty() => {
                format!("{}, never written", mapping.name)
            }
            Some(_) => "memory that was never written".into(),
            None => "memory that isn't there any more".into(),
        }
    }
}

//! Memory and code as they are here. In: an address. Out: bytes; instructions with their lines.

use clew_recording::event::ThreadId;
use clew_symbols::Modules;
use clew_timeline::{Direction, Reason, Target};
use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter};
use serde::Serialize;

use crate::Result;
use crate::debugger::{Debugger, Location, location_at};

/// More isn't read at once.
const MOST_BYTES: usize = 1 << 20;
const MOST_INSTRUCTIONS: usize = 10_000;
/// No instruction is longer.
const LONGEST: usize = 15;

/// An instruction of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Code {
    #[serde(flatten)]
    pub location: Location,
    #[serde(skip)]
    pub bytes: Vec<u8>,
    /// In Intel's notation; `(bad)` for what is no instruction.
    pub text: String,
}

/// An instruction as it was executed once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Executed {
    /// Before it.
    pub position: String,
    pub thread: ThreadId,
    #[serde(flatten)]
    pub code: Code,
}

impl Debugger {
    /// The instructions that were executed next from a position on, of whichever threads, at most so many. It stays where it is.
    pub fn executed_from(&mut self, position: &str, most: usize) -> Result<Vec<Executed>> {
        let (here, thread, hidden) = (self.timeline.position()?, self.thread, self.hidden);
        let from = self.position_of(position)?;
        self.timeline.seek(Target::Position(from))?;
        let all = self.executed_next(most);
        self.timeline.seek(Target::Position(here))?;
        self.moved();
        (self.thread, self.hidden) = (thread, hidden);
        all
    }

    fn executed_next(&mut self, most: usize) -> Result<Vec<Executed>> {
        let mut all: Vec<Executed> = Vec::new();
        while all.len() < most.min(MOST_INSTRUCTIONS) {
            let at = self.timeline.at();
            let position = self.timeline.position()?.to_string();
            if all.last().is_some_and(|last| last.position == position) {
                break;
            }
            all.extend(self.code(at.pc, 0, 1)?.pop().map(|code| Executed {
                position,
                thread: at.thread,
                code,
            }));
            let stop = self.timeline.step_any(Direction::Forward)?;
            if matches!(stop.reason, Reason::End(_) | Reason::Interrupted) {
                break;
            }
        }
        Ok(all)
    }

    /// Memory, as far as there is some from there on.
    pub fn read_memory(&mut self, address: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len.min(MOST_BYTES)];
        let got = self.timeline.read(address, &mut bytes)?;
        bytes.truncate(got);
        for (from, new) in &self.pokes {
            for (n, byte) in new.iter().enumerate() {
                let at = from.wrapping_add(n as u64).wrapping_sub(address);
                let at = usize::try_from(at).ok();
                if let Some(known) = at.and_then(|at| bytes.get_mut(at)) {
                    *known = *byte;
                }
            }
        }
        Ok(bytes)
    }

    /// So many instructions, from `skip` before (negative) or behind an address on. Those before it are found from the
    /// beginning of their function: without one, there are fewer.
    pub fn code(&mut self, address: u64, skip: i64, count: usize) -> Result<Vec<Code>> {
        let modules = self.program.modules(&mut self.timeline)?;
        let before = skip.min(0).unsigned_abs() as usize;
        let before = before.min(MOST_INSTRUCTIONS);
        let mut all = self.before(&modules, address, before)?;
        let behind = usize::try_from(skip.max(0)).unwrap_or(0);
        let behind = behind.min(MOST_INSTRUCTIONS);
        // Those before are less than were asked for where nothing is known of them.
        let wanted = (count.min(MOST_INSTRUCTIONS) + behind).saturating_sub(all.len());
        let bytes = self.read_memory(address, wanted * LONGEST)?;
        let later = decoded(&modules, address, &bytes, wanted);
        all.extend(later.into_iter().skip(behind));
        all.truncate(count);
        Ok(all)
    }

    fn before(&mut self, modules: &Modules, address: u64, count: usize) -> Result<Vec<Code>> {
        let extent = modules.find(address).and_then(|image| {
            let local = image.local(address);
            Some(image.module.extent(local)?.start.wrapping_add(image.bias))
        });
        let Some(start) = extent.filter(|start| *start < address && count > 0) else {
            return Ok(Vec::new());
        };
        // A function may be long: what lies far before isn't asked for.
        let bytes = self.read_memory(start, (address - start) as usize)?;
        let mut all = decoded(modules, start, &bytes, usize::MAX);
        let from = all.len().saturating_sub(count);
        Ok(all.split_off(from))
    }
}

fn decoded(modules: &Modules, address: u64, bytes: &[u8], most: usize) -> Vec<Code> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut formatter = IntelFormatter::new();
    let mut instruction = Instruction::default();
    let mut all = Vec::new();
    while decoder.can_decode() && all.len() < most {
        let from = decoder.position();
        let at = decoder.ip();
        decoder.decode_out(&mut instruction);
        // Cut off by the end of memory.
        if instruction.is_invalid() && bytes.len() - from < LONGEST && all.len() + 1 < most {
            break;
        }
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        all.push(Code {
            location: location_at(modules, at),
            bytes: bytes[from..decoder.position()].to_vec(),
            text,
        });
    }
    all
}

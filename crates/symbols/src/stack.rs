//! Stacks as people read them: unwound frames in; functions, lines and inlined calls out.

use crate::unwind::{Memory, RawFrame};
use crate::{
    Die, Error, Frame, Function, Image, Line, Module, Modules, Registers, Stack, StackEnd,
};
use std::collections::HashMap;
use std::sync::Arc;

/// More frames than a person or a tool can use.
const MAX_FRAMES: usize = 1 << 16;

/// The same with inlined calls.
const MAX_WITH_INLINED: usize = 1 << 18;

/// What is at an address of a process: where its function starts, and its places.
struct Found {
    start: Option<u64>,
    places: Vec<Place>,
}

/// A function at an address, or a call inlined into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Demangled and qualified.
    pub function: Option<String>,
    /// The line of the address in this function.
    pub line: Option<Line>,
    /// The function's or inlined call's entry.
    pub die: Option<Die>,
    /// Inlined into the next place.
    pub inlined: bool,
}

impl Module {
    /// What is at an address: the innermost inlined call first, the function that was really
    /// called last. Damaged debugging information is an error; none at all gives what the
    /// symbol table says.
    pub fn places_at(&self, address: u64) -> Result<Vec<Place>, Error> {
        let mut line = self.line_at(address)?;
        let Some((die, _)) = self.function_die(address)? else {
            let function = self.symbols()?.at(address).map(|symbol| symbol.demangled());
            return Ok(vec![Place {
                function,
                line,
                die: None,
                inlined: false,
            }]);
        };
        let mut places = Vec::new();
        for call in self.inlined_at(die, address)?.into_iter().rev() {
            let file = self.file(call.die.unit, call.call_file)?;
            let site = file.map(|file| Line {
                file,
                line: u32::try_from(call.call_line).unwrap_or(0),
                column: u32::try_from(call.call_column).unwrap_or(0),
                is_stmt: false,
            });
            places.push(Place {
                function: self.function_name(call.die)?,
                line: std::mem::replace(&mut line, site),
                die: Some(call.die),
                inlined: true,
            });
        }
        let function = match self.function_name(die)? {
            Some(name) => Some(name),
            None => self.symbols()?.at(address).map(|symbol| symbol.demangled()),
        };
        places.push(Place {
            function,
            line,
            die: Some(die),
            inlined: false,
        });
        Ok(places)
    }
}

impl Modules {
    /// The stack of a thread with these registers, inlined calls as frames of their own.
    pub fn stack(&self, registers: &Registers, memory: Memory<'_>) -> Stack {
        self.stack_of(registers, memory, MAX_FRAMES)
    }

    /// The innermost `limit` frames (not counting inlined calls) of a stack.
    pub fn stack_of(&self, registers: &Registers, memory: Memory<'_>, limit: usize) -> Stack {
        let (raw, end) = self.unwind(registers, memory, limit);
        let mut frames = Vec::new();
        // Recursion comes to the same places again and again.
        let mut known: HashMap<u64, Arc<Found>> = HashMap::new();
        for raw in &raw {
            let found = known
                .entry(raw.lookup)
                .or_insert_with(|| Arc::new(self.found(raw.lookup)));
            self.add_frames(raw, found, &mut frames);
            if frames.len() > MAX_WITH_INLINED {
                return Stack {
                    frames,
                    end: StackEnd::Limit,
                };
            }
        }
        Stack { frames, end }
    }

    /// What is at an address of the process. If debugging information can't be read, it is told
    /// as far as possible.
    fn found(&self, lookup: u64) -> Found {
        let unknown = Place {
            function: None,
            line: None,
            die: None,
            inlined: false,
        };
        let Some(image) = self.find(lookup) else {
            return Found {
                start: None,
                places: vec![unknown],
            };
        };
        let address = image.local(lookup);
        let places = image.module.places_at(address).unwrap_or_else(|_| {
            let symbol = image.module.symbol_at(address).ok().flatten();
            vec![Place {
                function: symbol.map(|symbol| symbol.demangled()),
                ..unknown
            }]
        });
        Found {
            start: function_start(image, address),
            places,
        }
    }

    /// Adds the calls inlined at an unwound frame, and then its function.
    fn add_frames(&self, raw: &RawFrame, found: &Found, frames: &mut Vec<Frame>) {
        let image = self.find(raw.lookup);
        let last = found.places.len() - 1;
        frames.extend(found.places.iter().enumerate().map(|(index, place)| {
            Frame {
                pc: raw.pc,
                lookup: raw.lookup,
                module: image.map(|image| image.module.clone()),
                bias: image.map_or(0, |image| image.bias),
                function: place.function.clone(),
                offset: found
                    .start
                    .filter(|_| index == last)
                    .map(|start| raw.pc.wrapping_sub(start)),
                die: place.die,
                line: place.line.clone(),
                inlined: place.inlined,
                is_signal: raw.is_signal && index == last,
                guessed: raw.guessed,
                cfa: raw.cfa,
                registers: raw.registers.clone(),
            }
        }));
    }

    /// Functions of all modules that a name means, with where their modules lie.
    pub fn functions_named(&self, name: &str) -> Result<Vec<(Image, Function)>, Error> {
        let mut found = Vec::new();
        for image in self.modules() {
            let functions = image.module.functions_named(name)?;
            found.extend(
                functions
                    .into_iter()
                    .map(|function| (image.clone(), function)),
            );
        }
        Ok(found)
    }
}

/// Where the function around a module's address starts, in the process's terms.
fn function_start(image: &Image, address: u64) -> Option<u64> {
    let symbol = image
        .module
        .symbol_at(address)
        .ok()
        .flatten()
        .map(|symbol| symbol.address);
    let start = symbol.or_else(|| Some(image.module.function_at(address).ok()??.entry))?;
    Some(start.wrapping_add(image.bias))
}

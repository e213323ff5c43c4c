//! Places of a run in terms of the program's own source. In: a debugger and a position. Out: the line of the program, not
//! of a library, that is at work there; what it says; memory and registers.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::rc::Rc;

use clew_debugger::{Debugger, Error, Location};
use clew_recording::event::ThreadId;
use clew_slice::origin::{Chain, Value, origin};
use clew_symbols::{Frame, Modules, Stack};
use clew_timeline::{Mapping, Mark, Position, Registers};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use serde::Serialize;

use crate::heap::History;
use crate::{Result, sliced};

/// Source files that are larger aren't read.
const LARGEST_SOURCE: u64 = 16 << 20;
const LONGEST_LINE: usize = 100;
/// Files below these aren't the program's own.
const OTHERS: [&str; 5] = [
    "/usr/include/",
    "/usr/lib/",
    "/usr/src/",
    "/rustc/",
    "/build/",
];

/// A recorded program that is looked at.
pub struct Scene<'a> {
    pub debugger: &'a mut Debugger,
    /// Of the whole life.
    pub modules: Modules,
    history: Option<Rc<History>>,
    sources: HashMap<String, Option<Rc<Vec<String>>>>,
}

/// A place of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Site {
    pub position: String,
    pub thread: ThreadId,
    pub function: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
    /// What the line says, if the file is there.
    pub source: Option<String>,
    /// The library's function, called from that line, that is at work.
    pub inside: Option<String>,
}

impl Site {
    /// `a.c:12`, with the file's name alone.
    pub fn short(&self) -> Option<String> {
        let (file, line) = (self.file.as_deref()?, self.line?);
        let name = file.rsplit('/').next().unwrap_or(file);
        Some(format!("{name}:{line}"))
    }

    /// The same line of the same file.
    pub fn same_line(&self, other: &Site) -> bool {
        self.line.is_some() && (self.line, &self.file) == (other.line, &other.file)
    }
}

/// `a.c:12 in f`, or what is known of that.
impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = self.function.as_deref().map(plain_name);
        match (self.short(), function) {
            (Some(line), Some(function)) => write!(f, "{line} in {function}"),
            (Some(line), None) => write!(f, "{line}"),
            (None, Some(function)) => write!(f, "{function}"),
            (None, None) => write!(f, "code without a name"),
        }
    }
}

/// A function's name without its parameters' types and the compiler's additions.
pub fn plain_name(name: &str) -> &str {
    let name = name.split('@').next().unwrap_or(name);
    match name.find('(') {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}

impl<'a> Scene<'a> {
    pub fn new(debugger: &'a mut Debugger) -> Result<Scene<'a>> {
        let modules = debugger.all_modules()?;
        Ok(Scene {
            debugger,
            modules,
            history: None,
            sources: HashMap::new(),
        })
    }

    /// What lived on the heap; found at the first question.
    pub fn history(&mut self) -> Result<Rc<History>> {
        if let Some(history) = &self.history {
            return Ok(history.clone());
        }
        let history = Rc::new(History::read(self.debugger)?);
        self.history = Some(history.clone());
        Ok(history)
    }

    pub fn go(&mut self, position: Position) -> Result<()> {
        self.debugger.stand_at(position)
    }

    pub fn here(&mut self) -> Result<Position> {
        Ok(self.debugger.timeline().position()?)
    }

    /// The position of a mark.
    pub fn position(&mut self, mark: Mark) -> Result<Position> {
        let found = self.debugger.timeline().positions(&[mark])?;
        let lost = || Error::Place("a place of the recording isn't found again".into());
        found.first().copied().ok_or_else(lost)
    }

    pub fn stack(&mut self, thread: ThreadId) -> Result<Stack> {
        self.debugger.frames(thread)
    }

    /// The line at work in a thread here.
    pub fn site(&mut self, thread: ThreadId) -> Result<Site> {
        let stack = self.stack(thread)?;
        let position = self.here()?;
        Ok(self.site_in(&stack, thread, position))
    }

    /// The same at another position; it goes there.
    pub fn site_at(&mut self, position: Position, thread: ThreadId) -> Result<Site> {
        self.go(position)?;
        self.site(thread)
    }

    /// The line at work in a stack that was taken at a position.
    pub fn site_in(&mut self, stack: &Stack, thread: ThreadId, position: Position) -> Site {
        let number = self.own_frame(stack);
        let mut site = Site {
            position: position.to_string(),
            thread,
            ..Site::default()
        };
        let Some(number) = number else {
            let first = stack.frames.first();
            site.function = first.and_then(|frame| frame.function.clone());
            return site;
        };
        let frame = &stack.frames[number];
        let called = stack.frames[..number].iter().rev();
        let called = called.filter_map(|frame| frame.function.clone());
        let mut called = called.filter(|name| !name.ends_with("@plt"));
        site.inside = called.next().map(|name| plain_name(&name).to_string());
        site.function = frame.function.clone();
        if let Some(line) = frame.line.as_ref().filter(|line| line.line != 0) {
            site.file = Some(line.file.to_string());
            site.line = Some(line.line);
            site.source = self.source(&line.file, line.line);
        }
        site
    }

    /// The innermost frame of the program's own source; without source, of the program's file.
    pub fn own_frame(&self, stack: &Stack) -> Option<usize> {
        let frames = &stack.frames;
        let found = frames.iter().position(|frame| self.is_own(frame));
        found.or_else(|| {
            frames.iter().position(|frame| {
                let module = frame.module.as_ref();
                let stub = frame.function.as_deref().unwrap_or("").ends_with("@plt");
                let first = self.modules.modules().next();
                let program = first.map(|image| image.module.name());
                !stub && module.is_some_and(|module| Some(module.name()) == program)
            })
        })
    }

    fn is_own(&self, frame: &Frame) -> bool {
        let line = frame.line.as_ref().filter(|line| line.line != 0);
        line.is_some_and(|line| is_own_file(&line.file))
    }

    /// The program's own line at an address, without a look at the stack.
    pub fn own_line(&mut self, address: u64, position: Position, thread: ThreadId) -> Option<Site> {
        let location: Location = self.debugger.location_ever(address).ok()?;
        let (file, line) = (location.file?, location.line?);
        if !is_own_file(&file) {
            return None;
        }
        Some(Site {
            position: position.to_string(),
            thread,
            source: self.source(&file, line),
            function: location.function,
            file: Some(file),
            line: Some(line),
            inside: None,
        })
    }

    /// What a line says.
    pub fn source(&mut self, file: &str, line: u32) -> Option<String> {
        let lines = self.lines(file)?;
        let text = lines.get((line as usize).checked_sub(1)?)?;
        Some(text.trim().chars().take(LONGEST_LINE).collect())
    }

    pub fn lines(&mut self, file: &str) -> Option<Rc<Vec<String>>> {
        if let Some(known) = self.sources.get(file) {
            return known.clone();
        }
        let read = || {
            let metadata = std::fs::metadata(Path::new(file)).ok()?;
            if !metadata.is_file() || metadata.len() > LARGEST_SOURCE {
                return None;
            }
            let bytes = std::fs::read(file).ok()?;
            let text = String::from_utf8_lossy(&bytes);
            Some(Rc::new(text.lines().map(String::from).collect()))
        };
        let lines = read();
        self.sources.insert(file.into(), lines.clone());
        lines
    }

    pub fn registers(&mut self, thread: ThreadId) -> Result<Registers> {
        let registers = self.debugger.timeline().registers(thread)?;
        registers.ok_or(Error::Thread(thread))
    }

    pub fn mappings(&mut self) -> Result<Vec<Mapping>> {
        Ok(self.debugger.timeline().mappings()?)
    }

    /// Up to eight bytes of memory as a number.
    pub fn number(&mut self, address: u64, len: u64) -> Result<Option<u64>> {
        let mut bytes = [0; 8];
        let len = len.clamp(1, 8) as usize;
        let got = self.debugger.timeline().read(address, &mut bytes[..len])?;
        Ok((got == len).then(|| u64::from_le_bytes(bytes)))
    }

    /// Text that ends with a zero, or what can be read of it.
    pub fn text(&mut self, address: u64) -> Result<Option<String>> {
        let mut bytes = [0; 256];
        let got = self.debugger.timeline().read(address, &mut bytes)?;
        let bytes = &bytes[..got];
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(got);
        Ok((got > 0).then(|| String::from_utf8_lossy(&bytes[..end]).into_owned()))
    }

    /// The instruction there.
    pub fn instruction(&mut self, pc: u64) -> Result<Option<Instruction>> {
        let mut code = [0; 15];
        let got = self.debugger.timeline().read(pc, &mut code)?;
        let instruction = Decoder::with_ip(64, &code[..got], pc, DecoderOptions::NONE).decode();
        Ok((!instruction.is_invalid()).then_some(instruction))
    }

    /// The chain of a value, where the scene stands.
    pub fn origin(&mut self, value: &Value) -> Result<Chain> {
        let stream = self.debugger.stream();
        let log = self.debugger.recording().stream(stream);
        let log = log.map_err(|error| Error::Recording(error.to_string()))?;
        origin(self.debugger.timeline(), log, value).map_err(sliced)
    }

    /// The variable of the program, or part of it, that is at an address: its name, file and line of declaration.
    pub fn variable(&mut self, address: u64) -> Result<Option<String>> {
        let modules = self.with_zeros()?;
        let (_, program) = self.debugger.timeline_and_program();
        let found = program.catalog().symbol_at(&modules, address);
        Ok(found.map(|(name, offset)| match offset {
            0 => name,
            offset => format!("{name}+{offset:#x}"),
        }))
    }

    /// Where a global variable is declared.
    pub fn declared(&mut self, name: &str) -> Result<Option<(String, u32)>> {
        use clew_symbols::gimli::{AttributeValue, constants as dw};
        use clew_symbols::variables::Kind;
        let modules = self.with_zeros()?;
        let (_, program) = self.debugger.timeline_and_program();
        let path = clew_symbols::expr::Path::of(name);
        let found = program
            .catalog()
            .named(&modules, &path, |kind| kind == Kind::Variable);
        let Some(found) = found.unwrap_or_default().into_iter().next() else {
            return Ok(None);
        };
        let entry = found.entry;
        let number = |attribute| match entry.attribute(attribute) {
            Ok(Some(AttributeValue::FileIndex(n) | AttributeValue::Udata(n))) => Some(n),
            Ok(Some(AttributeValue::Data1(n))) => Some(n.into()),
            Ok(Some(AttributeValue::Data2(n))) => Some(n.into()),
            Ok(Some(AttributeValue::Data4(n))) => Some(n.into()),
            _ => None,
        };
        let (file, line) = (number(dw::DW_AT_decl_file), number(dw::DW_AT_decl_line));
        let Some((file, line)) = file.zip(line) else {
            return Ok(None);
        };
        let file = entry.module.file(entry.die.unit, file)?;
        Ok(file.map(|file| (file.to_string(), line as u32)))
    }

    /// Variables that begin as zeros aren't in the file: they lie behind what is mapped of it.
    fn with_zeros(&mut self) -> Result<Modules> {
        let (timeline, program) = self.debugger.timeline_and_program();
        let mut modules = program.modules(timeline)?;
        for mapping in self.mappings()? {
            let before = mapping.start.wrapping_sub(1);
            if mapping.copy.is_some() || !mapping.name.is_empty() {
                continue;
            }
            if let Some(image) = modules.find(before).cloned() {
                modules.add(image.module, image.bias, mapping.start..mapping.end);
            }
        }
        Ok(modules)
    }
}

/// Whether a source file is there, and isn't a library's.
pub fn is_own_file(file: &str) -> bool {
    let plain = without_detours(file);
    let other = OTHERS.iter().any(|place| plain.starts_with(place));
    !other && !plain.contains("/rustlib/") && Path::new(file).is_file()
}

/// A path without `..`: clang names libraries' headers `/usr/bin/../lib/gcc/…/../../../../include/…`.
fn without_detours(file: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in file.split('/') {
        match part {
            ".." if parts
                .last()
                .is_some_and(|last| !last.is_empty() && *last != "..") =>
            {
                parts.pop();
            }
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_known_by_any_way_to_them() {
        let detour = "/usr/bin/../lib/gcc/x/12/../../../../include/c++/12/bits/new_allocator.h";
        let plain = "/usr/include/c++/12/bits/new_allocator.h";
        assert_eq!(without_detours(detour), plain);
        assert_eq!(without_detours("/a/./b//c.c"), "/a/b//c.c");
        assert_eq!(without_detours("../../c.c"), "../../c.c");
        assert_eq!(without_detours("/../c.c"), "/../c.c");
    }
}

//! The recorded process as a personality sees it. In: addresses, names. Out: memory, registers, symbols, copies of
//! the program to evaluate in.

use std::collections::HashMap;
use std::sync::Arc;

use clew_recording::event::{Effect, Record, StreamId, ThreadId};
use clew_recording::maps::{Backing, Change, Source};
use clew_recording::meta::Meta;
use clew_recording::reader::Recording;
use clew_symbols::{Module, SymbolKind};
use clew_timeline::program::Program;
use clew_timeline::{Excursion, Registers, Timeline, Undefined};

use crate::{Error, Result};

/// An interpreter is mapped within so many events.
const MOST_EVENTS: u64 = 100_000;
/// Strings of the interpreter aren't read any longer.
const LONGEST_STRING: usize = 1 << 16;
const RSP: usize = 4;
const RED_ZONE: u64 = 128;
/// Between what is written for an evaluation and the interpreter's own stack.
const ROOM: u64 = 256;
/// An evaluation takes so many ticks at most: about a second.
const MOST_TICKS: u64 = 40_000_000;

/// A timeline, and the names of what is in it.
pub struct View {
    pub timeline: Timeline,
    /// As it was started, and where.
    pub arguments: Vec<String>,
    pub folder: Option<String>,
    program: Program,
    images: Vec<Image>,
    found: HashMap<&'static str, Option<(u64, u64)>>,
}

/// A file that was mapped as a program or library.
#[derive(Clone)]
struct Image {
    module: Arc<Module>,
    bias: u64,
}

impl View {
    pub fn new(recording: &Recording, stream: StreamId, timeline: Timeline) -> Result<View> {
        let info = recording.streams().iter().find(|info| info.id == stream);
        let arguments = info.map_or(Vec::new(), |info| {
            let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
            info.start.argv.iter().map(text).collect()
        });
        let mut view = View {
            timeline,
            arguments,
            folder: Meta::read(recording.folder()).ok().map(|meta| meta.cwd),
            program: Program::new(recording),
            images: Vec::new(),
            found: HashMap::new(),
        };
        for mapping in view.timeline.mappings()? {
            if let Some(copy) = mapping.copy {
                view.mapped(&copy, &mapping.name, mapping.start, mapping.offset);
            }
        }
        view.read_log(recording, stream);
        Ok(view)
    }

    fn mapped(&mut self, copy: &str, name: &str, start: u64, offset: u64) {
        let Some(module) = self.program.module(copy, name) else {
            return;
        };
        if self
            .images
            .iter()
            .any(|image| Arc::ptr_eq(&image.module, &module))
        {
            return;
        }
        if let Some(bias) = module.bias(start, offset) {
            self.images.push(Image { module, bias });
        }
    }

    /// Libraries are mapped soon after the start; a torn log ends it here as everywhere.
    fn read_log(&mut self, recording: &Recording, stream: StreamId) {
        let Ok(mut reader) = recording.stream(stream) else {
            return;
        };
        while reader.position() < MOST_EVENTS {
            let bytes = match reader.next_in_place() {
                Ok(Some(Record::Effect(Effect::Map(bytes)))) => bytes.to_vec(),
                Ok(Some(_)) => continue,
                Ok(None) | Err(_) => return,
            };
            if let Ok(Change::Map {
                mapping,
                source: Source::Copy { name, offset },
                path,
            }) = Change::decode(&bytes)
                && matches!(mapping.backing, Backing::File { .. })
            {
                let path = String::from_utf8_lossy(&path).into_owned();
                self.mapped(&name, &path, mapping.pages.start, offset);
            }
        }
    }

    /// Address and size of a symbol that other files can see, wherever it is.
    pub fn symbol(&mut self, name: &'static str) -> Option<(u64, u64)> {
        if let Some(known) = self.found.get(name) {
            return *known;
        }
        let mut found = None;
        for image in &self.images {
            let symbols = image.module.symbols_named(name).unwrap_or_default();
            let of_memory = |kind| matches!(kind, SymbolKind::Function | SymbolKind::Data);
            if let Some(symbol) = symbols.iter().find(|symbol| of_memory(symbol.kind)) {
                found = Some((symbol.address.wrapping_add(image.bias), symbol.size));
                break;
            }
        }
        self.found.insert(name, found);
        found
    }

    /// The same; without it nothing works.
    pub fn address(&mut self, name: &'static str) -> Result<u64> {
        let found = self.symbol(name);
        found.map(|(address, _)| address).ok_or_else(|| {
            Error::Unknown(format!(
                "the interpreter has no symbol {name}: it can't be asked"
            ))
        })
    }

    pub fn bytes(&mut self, address: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let got = self.timeline.read(address, &mut bytes)?;
        match got == len {
            true => Ok(bytes),
            false => Err(Error::Refused(format!(
                "there is no memory at {address:#x}: the interpreter isn't in a state that is understood"
            ))),
        }
    }

    pub fn word(&mut self, address: u64) -> Result<u64> {
        let bytes = self.bytes(address, 8)?;
        Ok(word(&bytes, 0))
    }

    /// A string that ends with a zero.
    pub fn string(&mut self, address: u64) -> Result<String> {
        let mut bytes = Vec::new();
        while bytes.len() < LONGEST_STRING {
            let at = address.wrapping_add(bytes.len() as u64);
            let len = 256 - (at % 256) as usize;
            let more = self.bytes(at, len)?;
            if let Some(end) = more.iter().position(|&byte| byte == 0) {
                bytes.extend(&more[..end]);
                break;
            }
            bytes.extend(more);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub fn registers(&mut self, thread: ThreadId) -> Result<Registers> {
        let registers = self.timeline.registers(thread)?;
        registers.ok_or_else(|| Error::Refused(format!("there is no thread {thread} here")))
    }

    /// A copy to evaluate in.
    pub fn copy(&mut self) -> Result<Copy> {
        let excursion = self.timeline.excursion()?;
        Ok(Copy { excursion })
    }
}

/// A copy of the program that is called into, and thrown away.
pub struct Copy {
    excursion: Excursion,
}

impl Copy {
    /// Writes bytes below the stack, where they stay; not by the program's own allocator, which may be at work.
    pub fn place(&mut self, bytes: &[u8]) -> Result<u64> {
        let thread = self.excursion.thread();
        let Some(mut registers) = self.excursion.registers(thread)? else {
            return Err(Error::Refused("no thread runs here".into()));
        };
        let below = registers.words[RSP].wrapping_sub(RED_ZONE + ROOM);
        let at = below.wrapping_sub(bytes.len() as u64) & !15;
        if self.excursion.write(at, bytes).is_err() {
            return Err(Error::Refused(
                "there is no room on the stack to evaluate anything".into(),
            ));
        }
        registers.words[RSP] = at;
        self.excursion.set_registers(thread, &registers)?;
        Ok(at)
    }

    /// The same for a string of C.
    pub fn text(&mut self, text: &str) -> Result<u64> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.retain(|&byte| byte != 0);
        bytes.push(0);
        self.place(&bytes)
    }

    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.excursion.write(address, bytes)?)
    }

    pub fn word(&mut self, address: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.excursion.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub fn read(&mut self, address: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let got = self.excursion.read(address, &mut bytes)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    /// Calls a function of the interpreter; why there is no result, in words.
    pub fn call(
        &mut self,
        function: u64,
        arguments: &[u64],
    ) -> Result<std::result::Result<u64, String>> {
        let result = self.excursion.call(function, arguments, MOST_TICKS)?;
        Ok(result.map_err(|why| match why {
            Undefined::Signal { signo, .. } => {
                format!("the interpreter would be killed by signal {signo} if asked here")
            }
            Undefined::Exited => "the program would exit".into(),
            Undefined::Endless => {
                "it doesn't come to an end: it runs for long, or waits for what can't happen".into()
            }
        }))
    }

    /// What was printed so far.
    pub fn output(&mut self) -> String {
        String::from_utf8_lossy(&self.excursion.take_output()).into_owned()
    }
}

pub fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(there) = bytes.get(at..at + 8) {
        word.copy_from_slice(there);
    }
    u64::from_le_bytes(word)
}

pub fn half(bytes: &[u8], at: usize) -> u32 {
    let mut half = [0; 4];
    if let Some(there) = bytes.get(at..at + 4) {
        half.copy_from_slice(there);
    }
    u32::from_le_bytes(half)
}

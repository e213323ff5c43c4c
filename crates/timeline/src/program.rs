//! The program behind a timeline, as its debugging information knows it. In: the position where a timeline stands.
//! Out: what is mapped there, the stack with functions and lines, values of C expressions.
//!
//! The program's files are those of the recording, so that it doesn't matter what has become of the
//! ones on disk. They are opened once: a [`Program`] serves a whole session.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clew_recording::event::{Origin, StreamId, ThreadId};
use clew_recording::reader::{Recording, StreamInfo};
use clew_symbols::expr::{Bindings, Evaluator, Problem};
use clew_symbols::value::{Context, Returned};
use clew_symbols::variables::Catalog;
use clew_symbols::{DebugSearch, Module, Modules, Stack};

use crate::{Error, Excursion, Registers, Result, Timeline, Undefined};

/// Where copies of mapped files are in a recording.
const FILES: &str = "files";
const VDSO: &str = "[vdso]";
/// No kernel's is larger.
const LARGEST_VDSO: u64 = 1 << 20;
/// More frames than anybody reads.
const MOST_FRAMES: usize = 256;
/// Below the stack pointer, a function may have data that it didn't make room for.
const RED_ZONE: u64 = 128;

const RAX: usize = 0;
const RSP: usize = 4;
const RIP: usize = 16;
const FS_BASE: usize = 18;
/// Where xmm0 is in an XSAVE area.
const XMM: usize = 160;

/// The program's files, opened, and what was read of them.
pub struct Program {
    files: PathBuf,
    search: DebugSearch,
    /// By the copy's name; those that are no ELF files are none.
    opened: HashMap<String, Option<Arc<Module>>>,
    catalog: Catalog,
    /// Streams that began with an exec, not a fork.
    fresh: Vec<StreamId>,
}

/// What came of evaluating an expression.
#[derive(Clone, Debug)]
pub struct Answer {
    pub value: std::result::Result<Evaluated, Problem>,
    /// A function that it called took longer than it may.
    pub endless: bool,
    /// The calls in it, as they are written, and what they returned.
    pub calls: Vec<(String, String)>,
}

/// An expression's value somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluated {
    /// As people read it.
    pub text: String,
    /// If it counts as true; none for what is neither, such as structures.
    pub truth: Option<bool>,
    /// The memory that it is in, address and length; none if it is in registers, or computed.
    pub memory: Option<(u64, u64)>,
}

impl Program {
    pub fn new(recording: &Recording) -> Program {
        let fresh = |info: &&StreamInfo| matches!(info.start.origin, Origin::Exec { .. });
        Program {
            fresh: recording
                .streams()
                .iter()
                .filter(fresh)
                .map(|info| info.id)
                .collect(),
            files: recording.folder().join(FILES),
            search: DebugSearch::default(),
            opened: HashMap::new(),
            catalog: Catalog::new(),
        }
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Whether a stream is a program's life from its first instruction on.
    pub fn is_fresh(&self, stream: StreamId) -> bool {
        self.fresh.contains(&stream)
    }

    /// What is mapped where the timeline stands.
    pub fn modules(&mut self, timeline: &mut Timeline) -> Result<Modules> {
        let mut modules = Modules::new();
        for mapping in timeline.mappings()? {
            let module = match (&mapping.copy, mapping.name.as_str()) {
                (Some(copy), name) => self.module(copy, name),
                (None, VDSO) => self.vdso(timeline, mapping.start, mapping.end)?,
                _ => None,
            };
            if let Some(module) = module {
                modules.map(
                    &module,
                    &clew_symbols::Mapping {
                        range: mapping.start..mapping.end,
                        offset: mapping.offset,
                    },
                );
            }
        }
        Ok(modules)
    }

    /// A file of the recording, opened; none if it is no ELF file. `name`: what the program knew it by.
    pub fn module(&mut self, copy: &str, name: &str) -> Option<Arc<Module>> {
        if let Some(known) = self.opened.get(copy) {
            return known.clone();
        }
        // The name may be a stranger's.
        let plain = !copy.is_empty() && !copy.starts_with('.') && !copy.contains(['/', '\0']);
        let path = self.files.join(copy);
        let is_file = path
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_file());
        let module = (plain && is_file)
            .then(|| Module::open(&path, Path::new(name), &self.search).ok())
            .flatten()
            .map(Arc::new);
        self.opened.insert(copy.into(), module.clone());
        module
    }

    /// The build-id of a file of the recording, in hexadecimal. `name`: what the program knew it by.
    pub fn build_id(&mut self, copy: &str, name: &str) -> Option<String> {
        let module = self.module(copy, name)?;
        let id = module.build_id()?;
        Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn vdso(
        &mut self,
        timeline: &mut Timeline,
        start: u64,
        end: u64,
    ) -> Result<Option<Arc<Module>>> {
        if let Some(known) = self.opened.get(VDSO) {
            return Ok(known.clone());
        }
        let len = end.saturating_sub(start).min(LARGEST_VDSO);
        let mut bytes = vec![0; len as usize];
        let got = timeline.read(start, &mut bytes)?;
        bytes.truncate(got);
        let module = Module::from_bytes(bytes, Path::new(VDSO), &self.search);
        let module = module.ok().map(Arc::new);
        self.opened.insert(VDSO.into(), module.clone());
        Ok(module)
    }

    /// The stack of a thread.
    pub fn stack(&mut self, timeline: &mut Timeline, thread: ThreadId) -> Result<Stack> {
        let modules = self.modules(timeline)?;
        let Some(registers) = timeline.registers(thread)? else {
            return Err(Error::Refused(format!("there is no thread {thread} here")));
        };
        let registers = symbol_registers(&registers);
        let mut failed = None;
        let mut read = |address: u64, into: &mut [u8]| match timeline.read(address, into) {
            Ok(got) => got,
            Err(error) => {
                failed = Some(error);
                0
            }
        };
        let stack = modules.stack_of(&registers, &mut read, MOST_FRAMES);
        match failed {
            Some(error) => Err(error),
            None => Ok(stack),
        }
    }

    /// The value of a C expression in the thread that runs where the timeline stands. `names`: what names
    /// mean, learnt here or kept from elsewhere. `ticks`: how long functions that it calls may take.
    pub fn evaluate(
        &mut self,
        timeline: &mut Timeline,
        expression: &str,
        names: &mut Bindings,
        ticks: u64,
    ) -> Result<Answer> {
        let mut all = self.evaluate_all(timeline, &[expression], names, ticks)?;
        all.pop().ok_or(Error::Lost)
    }

    /// Lets somebody look at a thread where the timeline stands: its stack, variables, values.
    pub fn ask<T>(
        &mut self,
        timeline: &mut Timeline,
        asked: Asked<'_>,
        names: &mut Bindings,
        question: impl FnOnce(&mut Evaluator<'_>) -> T,
    ) -> Result<T> {
        let modules = self.modules(timeline)?;
        let registers = timeline.registers(asked.thread)?;
        if registers.is_none() {
            let thread = asked.thread;
            return Err(Error::Refused(format!("there is no thread {thread} here")));
        }
        let calls = timeline.at().thread == asked.thread;
        let mut here = Here {
            registers,
            excursion: poked(timeline, asked.pokes)?,
            timeline,
            pokes: asked.pokes,
            ticks: asked.ticks,
            endless: false,
            failed: None,
            calls,
        };
        let mut evaluator = Evaluator::new(&self.catalog, &modules, &mut here, names);
        let answer = question(&mut evaluator);
        match here.failed {
            Some(error) => Err(error),
            None => Ok(answer),
        }
    }

    /// Several expressions, one after the other; what one's calls change, the next doesn't see.
    pub fn evaluate_all(
        &mut self,
        timeline: &mut Timeline,
        expressions: &[&str],
        names: &mut Bindings,
        ticks: u64,
    ) -> Result<Vec<Answer>> {
        let modules = self.modules(timeline)?;
        let thread = timeline.at().thread;
        let registers = timeline.registers(thread)?;
        let mut all = Vec::new();
        for expression in expressions {
            let mut here = Here {
                registers: registers.clone(),
                timeline: &mut *timeline,
                excursion: None,
                pokes: &[],
                ticks,
                endless: false,
                failed: None,
                calls: true,
            };
            let mut evaluator = Evaluator::new(&self.catalog, &modules, &mut here, names);
            let value = evaluator.evaluate(expression).map(|value| Evaluated {
                text: evaluator.show(&value),
                truth: evaluator.truth(&value).ok(),
                memory: evaluator.memory(&value),
            });
            let calls = evaluator.calls().to_vec();
            if let Some(error) = here.failed {
                return Err(error);
            }
            all.push(Answer {
                value,
                endless: here.endless,
                calls,
            });
        }
        Ok(all)
    }
}

/// What [`Program::ask`] needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub thread: ThreadId,
    /// How long functions that are called may take.
    pub ticks: u64,
    /// What somebody wants to be other than it was: the question is about a copy of the program that has it so.
    pub pokes: &'a [Poke],
}

/// Where memory is changed, and what is there then.
pub type Poke = (u64, Vec<u8>);

/// A copy of the program in which memory was changed; none if nothing was.
fn poked(timeline: &mut Timeline, pokes: &[Poke]) -> Result<Option<Excursion>> {
    if pokes.is_empty() {
        return Ok(None);
    }
    let mut excursion = timeline.excursion()?;
    for (address, bytes) in pokes {
        excursion.write(*address, bytes)?;
    }
    Ok(Some(excursion))
}

/// A program at a position; with a copy of it as soon as something is called.
struct Here<'a> {
    timeline: &'a mut Timeline,
    registers: Option<Registers>,
    excursion: Option<Excursion>,
    pokes: &'a [Poke],
    ticks: u64,
    endless: bool,
    /// What went wrong that isn't the program's.
    failed: Option<Error>,
    /// Functions may be called: it is the thread that runs.
    calls: bool,
}

impl Here<'_> {
    fn excursion(&mut self) -> std::result::Result<&mut Excursion, String> {
        if !self.calls {
            return Err("can't be called here: another thread runs".into());
        }
        if self.excursion.is_none() {
            match self.timeline.excursion() {
                Ok(excursion) => self.excursion = Some(excursion),
                Err(error) => return Err(self.fails(error)),
            }
        }
        self.excursion
            .as_mut()
            .ok_or_else(|| "can't be tried".to_string())
    }

    /// The copy is of no use any more: what was changed is changed in another one.
    fn again(&mut self) {
        match poked(self.timeline, self.pokes) {
            Ok(excursion) => self.excursion = excursion,
            Err(error) => {
                self.excursion = None;
                self.fails(error);
            }
        }
    }

    /// Remembers an error that ends it all; what to say of it meanwhile.
    fn fails(&mut self, error: Error) -> String {
        let text = error.to_string();
        match error {
            // Something of this kind can't be done, that is all.
            Error::Refused(_) => {}
            error => self.failed = Some(error),
        }
        format!("can't be called here: {text}")
    }
}

impl Context for Here<'_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        let read = match &mut self.excursion {
            Some(excursion) => excursion.read(address, into),
            None => self.timeline.read(address, into),
        };
        read.unwrap_or_else(|error| {
            self.fails(error);
            0
        })
    }

    fn registers(&mut self) -> clew_symbols::Registers {
        self.registers
            .as_ref()
            .map_or_else(clew_symbols::Registers::new, symbol_registers)
    }

    fn thread_pointer(&mut self) -> Option<u64> {
        self.registers
            .as_ref()
            .map(|registers| registers.words[FS_BASE])
    }

    fn call(&mut self, function: u64, arguments: &[u64]) -> std::result::Result<Returned, String> {
        let ticks = self.ticks;
        let excursion = self.excursion()?;
        match excursion.call_registers(function, arguments, ticks) {
            Ok(Ok(registers)) => Ok(Returned {
                rax: registers.words[RAX],
                xmm0: xmm(&registers, 0).map(|bits| bits as u64),
            }),
            Ok(Err(undefined)) => {
                // What is left of it is in no state to be asked again.
                self.again();
                self.endless |= undefined == Undefined::Endless;
                Err(why_undefined(&undefined))
            }
            Err(Error::Lost) => {
                self.again();
                Err("brings its process to an end".into())
            }
            Err(error) => Err(self.fails(error)),
        }
    }

    fn place(&mut self, bytes: &[u8]) -> std::result::Result<u64, String> {
        let no_room = || "there is no room on the stack for the text".to_string();
        let excursion = self.excursion()?;
        let thread = excursion.thread();
        let Ok(Some(mut registers)) = excursion.registers(thread) else {
            return Err(no_room());
        };
        // Calls make their own room below the stack pointer, so what it passed is safe.
        let top = registers.words[RSP].wrapping_sub(RED_ZONE);
        let address = top.wrapping_sub(bytes.len() as u64) & !15;
        excursion.write(address, bytes).map_err(|_| no_room())?;
        registers.words[RSP] = address;
        excursion
            .set_registers(thread, &registers)
            .map_err(|_| no_room())?;
        Ok(address)
    }
}

/// Why a call has no value, as the end of a sentence about it.
fn why_undefined(undefined: &Undefined) -> String {
    match undefined {
        Undefined::Signal { signo: 11, addr } => {
            format!("crashes here: SIGSEGV at address {addr:#x}")
        }
        Undefined::Signal { signo, .. } => format!("crashes here, by signal {signo}"),
        Undefined::Exited => "ends the program here".into(),
        Undefined::Endless => "doesn't return here".into(),
    }
}

/// Registers as debugging information numbers them.
pub fn symbol_registers(registers: &Registers) -> clew_symbols::Registers {
    let words = &registers.words;
    let general = std::array::from_fn(|n| words[n]);
    let known = clew_symbols::Registers::from_encoding_order(general, words[RIP]);
    match (0..16)
        .map(|n| xmm(registers, n))
        .collect::<Option<Vec<u128>>>()
    {
        Some(all) => known.with_vectors(std::array::from_fn(|n| all[n])),
        None => known,
    }
}

fn xmm(registers: &Registers, number: usize) -> Option<u128> {
    let at = XMM + number * 16;
    let bytes = registers.extended.get(at..at + 16)?;
    Some(u128::from_le_bytes(bytes.try_into().ok()?))
}

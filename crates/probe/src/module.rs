//! A module as the worker wants it: an executable file in, its segments and the places that matter out.

use clew_engine::layout;
use clew_timeline::probing::{Module, Probe, Segment};
use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _, Sym as _};

use crate::Error;

type Header = elf::FileHeader64<object::LittleEndian>;
const LE: object::LittleEndian = object::LittleEndian;

/// Where modules are put.
pub const BASE: u64 = layout::PROBE.start + 0x10_0000;

/// How a module is to be run.
#[derive(Clone, Copy, Debug)]
pub struct How {
    pub strict: bool,
    pub stop_at_errors: bool,
    pub most_ticks: u64,
}

/// Reads a module that was linked.
pub fn read(file: &[u8], probes: Vec<Probe>, how: How) -> Result<Module, Error> {
    let wrong = |what: &str| Error::Compiler(format!("the module that was made isn't one: {what}"));
    let header = Header::parse(file).map_err(|error| wrong(&error.to_string()))?;
    let parts = header
        .program_headers(LE, file)
        .map_err(|error| wrong(&error.to_string()))?;
    let mut segments = Vec::new();
    for part in parts.iter().filter(|part| part.p_type(LE) == elf::PT_LOAD) {
        let bytes = part
            .data(LE, file)
            .map_err(|()| wrong("a part is missing"))?;
        segments.push(Segment {
            addr: BASE + part.p_vaddr(LE),
            len: part.p_memsz(LE),
            bytes: bytes.to_vec(),
            executable: part.p_flags(LE) & elf::PF_X != 0,
        });
    }
    let sections = header
        .sections(LE, file)
        .map_err(|error| wrong(&error.to_string()))?;
    let symbols = sections.symbols(LE, file, elf::SHT_SYMTAB);
    let symbols = symbols.map_err(|error| wrong(&error.to_string()))?;
    let find = |name: &str| {
        let found = symbols.iter().find(|symbol| {
            symbol.name(LE, symbols.strings()) == Ok(name.as_bytes()) && symbol.st_value(LE) != 0
        });
        let found = found.map(|symbol| BASE + symbol.st_value(LE));
        found.ok_or_else(|| wrong(&format!("{name} is missing")))
    };
    Ok(Module {
        entry: BASE + header.e_entry(LE),
        headers: (BASE + header.e_phoff(LE), parts.len() as u64),
        hit: find("__clew_hit")?,
        enter: find("__clew_enter")?,
        segments,
        probes,
        strict: how.strict,
        stop_at_errors: how.stop_at_errors,
        most_ticks: how.most_ticks,
        files: None,
    })
}

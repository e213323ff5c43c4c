//! One executable, library or vdso with its debugging information: a path in, sections and units
//! out. Everything beyond the ELF headers is read when it is first asked for.

use crate::elf::{Elf, Segment};
use crate::functions::Functions;
use crate::lines::LineTable;
use crate::names::Names;
use crate::symtab::{Symbol, Symbols};
use crate::unwind::cfi::Cfi;
use crate::{Bytes, DebugSearch, Error};
use gimli::{Dwarf, EndianReader, LittleEndian, UnitOffset};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

mod coverage;
mod split;
mod units;

pub use units::Die;

/// How DWARF is read: a part of a shared file or buffer, cheap to clone.
pub type Reader = EndianReader<LittleEndian, Bytes>;

/// A unit together with the sections that its offsets refer to.
pub type Unit<'a> = gimli::UnitRef<'a, Reader>;

/// An ELF file as a process maps it, with its debugging information.
#[derive(Debug)]
pub struct Module {
    name: PathBuf,
    pub(crate) elf: Elf,
    /// The separate debug file, if the file has no DWARF itself and one was found.
    pub(crate) separate: Option<Elf>,
    /// The file shared by several debug files, which dwz makes.
    supplementary: Option<Elf>,
    debug: OnceLock<Result<units::Debug, Error>>,
    symbols: OnceLock<Result<Symbols, Error>>,
    cfi: OnceLock<Cfi>,
    names: OnceLock<Result<Names, Error>>,
}

impl Module {
    /// Reads the file at `path`, which the process knew as `name` (the same, unless the file was
    /// copied), and looks for its separate debug file if it needs one.
    pub fn open(path: &Path, name: &Path, search: &DebugSearch) -> Result<Module, Error> {
        Module::new(Elf::open(path)?, name, search)
    }

    /// A module from memory, as the vdso is; `name` is only for people.
    pub fn from_bytes(bytes: Vec<u8>, name: &Path, search: &DebugSearch) -> Result<Module, Error> {
        Module::new(Elf::parse(Bytes::from(bytes), name)?, name, search)
    }

    fn new(elf: Elf, name: &Path, search: &DebugSearch) -> Result<Module, Error> {
        let has_dwarf = |elf: &Elf| {
            elf.section(".debug_info")
                .or_else(|| elf.section(".zdebug_info"))
                .is_some()
        };
        let separate = if has_dwarf(&elf) {
            None
        } else {
            search.debug_file(&elf, &elf.path, name)
        };
        let supplementary = search.supplementary(separate.as_ref().unwrap_or(&elf));
        Ok(Module {
            name: name.into(),
            elf,
            separate,
            supplementary,
            debug: OnceLock::new(),
            symbols: OnceLock::new(),
            cfi: OnceLock::new(),
            names: OnceLock::new(),
        })
    }

    /// As the process knew it.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Where it is read.
    pub fn path(&self) -> &Path {
        &self.elf.path
    }

    /// Where its separate debug file is read, if it has one.
    pub fn debug_path(&self) -> Option<&Path> {
        self.separate.as_ref().map(|elf| elf.path.as_path())
    }

    /// Whether an address, in the file's own terms, is of its memory: also what the file has no bytes for.
    pub fn holds(&self, address: u64) -> bool {
        let mut segments = self.elf.segments.iter();
        segments.any(|segment| {
            address
                .checked_sub(segment.address)
                .is_some_and(|offset| offset < segment.memory_size)
        })
    }

    /// The addresses of a section that is mapped, in the file's own terms.
    pub fn section(&self, name: &str) -> Option<Range<u64>> {
        let section = self
            .elf
            .section(name)
            .filter(|section| section.address != 0)?;
        Some(section.address..section.address.checked_add(section.size)?)
    }

    /// Where the program begins, in the file's own addresses; none for a library without a beginning.
    pub fn entry(&self) -> Option<u64> {
        const ENTRY: usize = 24;
        let bytes = self.elf.bytes.get(ENTRY..ENTRY + 8)?;
        let entry = u64::from_le_bytes(bytes.try_into().ok()?);
        (entry != 0).then_some(entry)
    }

    pub fn build_id(&self) -> Option<&[u8]> {
        self.elf.build_id.as_deref()
    }

    /// What to add to this module's addresses if its file, from `offset` on, is mapped at
    /// `mapped_at`; none if no program header covers that offset. Where several do, the likeliest: who knows what else is
    /// mapped of the module asks for [`Module::biases`].
    pub fn bias(&self, mapped_at: u64, offset: u64) -> Option<u64> {
        self.biases(mapped_at, offset).next()
    }

    /// The same for each program header that it may be, the likeliest first. Segments may share a page of the file, and then
    /// nothing about a single mapping of that page says whose it is.
    pub fn biases(&self, mapped_at: u64, offset: u64) -> impl Iterator<Item = u64> + '_ {
        const PAGE: u64 = 4096;
        let first_page = |segment: &Segment| segment.offset & !(PAGE - 1);
        let covers = move |segment: &&Segment| {
            let end = segment.offset.saturating_add(segment.file_size);
            (first_page(segment)..end).contains(&offset)
        };
        let candidates = || self.elf.segments.iter().filter(covers);
        // A mapping that starts where two meet is the later's.
        let starts = candidates().filter(move |segment| first_page(segment) == offset);
        let others = candidates().filter(move |segment| first_page(segment) != offset);
        starts.chain(others).map(move |segment| {
            let address = segment
                .address
                .wrapping_add(offset)
                .wrapping_sub(segment.offset);
            mapped_at.wrapping_sub(address)
        })
    }

    /// The DWARF sections, of the file itself or its separate debug file; empty sections if there
    /// is no DWARF.
    pub fn dwarf(&self) -> Result<&Dwarf<Reader>, Error> {
        Ok(&self.debug()?.dwarf)
    }

    /// How many units there are: those of `.debug_info`, of `.debug_types`, then those of the
    /// supplementary file. A unit's number is its name in this crate.
    pub fn unit_count(&self) -> Result<usize, Error> {
        Ok(self.debug()?.count())
    }

    /// The unit of that number. For split DWARF this is the full unit, from its `.dwo` or `.dwp`
    /// file, if that is found, else the skeleton.
    pub fn unit(&self, number: usize) -> Result<Unit<'_>, Error> {
        let debug = self.debug()?;
        debug.unit(self, number)
    }

    /// The unit of that number in the module's own file, which for split DWARF is the skeleton
    /// (it has the line table).
    pub fn skeleton(&self, number: usize) -> Result<Unit<'_>, Error> {
        let debug = self.debug()?;
        debug.skeleton(self, number)
    }

    /// The entry that an attribute of unit `from` refers to, across units and files; none if the
    /// value isn't a reference.
    pub fn follow(
        &self,
        from: usize,
        value: &gimli::AttributeValue<Reader>,
    ) -> Result<Option<Die>, Error> {
        let debug = self.debug()?;
        debug.follow(self, from, value)
    }

    /// Whether the address lies in executable memory.
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.elf.code().any(|range| range.contains(&address))
    }

    pub(crate) fn units_at(&self, address: u64) -> Result<Vec<usize>, Error> {
        Ok(self.debug()?.units_at(self, address))
    }

    pub(crate) fn functions(&self, unit: usize) -> Result<&Functions, Error> {
        self.debug()?.functions(self, unit)
    }

    pub(crate) fn lines(&self, unit: usize) -> Result<&LineTable, Error> {
        self.debug()?.lines(self, unit)
    }

    pub(crate) fn symbols(&self) -> Result<&Symbols, Error> {
        self.symbols
            .get_or_init(|| {
                let small = if self.separate.is_none() {
                    self.elf.small_debug_file()
                } else {
                    None
                };
                let files: Vec<&Elf> = self
                    .separate
                    .iter()
                    .chain(&small)
                    .chain([&self.elf])
                    .collect();
                let code: Vec<_> = self.elf.code().collect();
                Symbols::load(&files, &code)
            })
            .as_ref()
            .map_err(Error::clone)
    }

    pub(crate) fn cfi(&self) -> &Cfi {
        self.cfi.get_or_init(|| Cfi::load(self))
    }

    pub(crate) fn names(&self) -> Result<&Names, Error> {
        self.names
            .get_or_init(|| Names::read(self))
            .as_ref()
            .map_err(Error::clone)
    }

    /// The path of a unit's file by the number that attributes like `DW_AT_decl_file` give.
    pub fn file(&self, unit: usize, number: u64) -> Result<Option<Arc<str>>, Error> {
        Ok(self
            .lines(unit)?
            .files
            .get(self.skeleton(unit)?, number)
            .cloned())
    }

    /// The symbol around an address of code, from the symbol tables alone.
    pub fn symbol_at(&self, address: u64) -> Result<Option<Symbol>, Error> {
        Ok(self.symbols()?.at(address))
    }

    /// Symbols of exactly that linker's name.
    pub fn symbols_named(&self, name: &str) -> Result<Vec<Symbol>, Error> {
        Ok(self.symbols()?.named(name))
    }

    pub(crate) fn debug(&self) -> Result<&units::Debug, Error> {
        self.debug
            .get_or_init(|| {
                let main = self.separate.as_ref().unwrap_or(&self.elf);
                units::Debug::load(main, self.supplementary.as_ref())
            })
            .as_ref()
            .map_err(Error::clone)
    }
}

impl Die {
    pub fn new(unit: usize, offset: UnitOffset) -> Die {
        Die { unit, offset }
    }
}

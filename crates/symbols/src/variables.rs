//! Names of a program: modules come in; variables, functions, types and enumerators by name, and
//! the variables in sight at an address, come out.

use crate::expr::Path;
use crate::types::{Entry, Language, Type};
use crate::{Die, Error, Modules, modules::Image};
use gimli::UnitOffset;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::location::is_program;

pub(crate) mod entries;
mod index;
mod scope;
mod symbols;

pub use index::Kind;
use index::{ModuleIndex, UnitIndex};
pub use scope::{Block, Scope, Variable};
pub use symbols::{ElfSymbol, SymbolKind};

/// What has been read of the modules' debugging information, kept for the next question. One serves
/// a whole session: nothing in it depends on where the program stands. It may go from thread to thread.
#[derive(Default)]
pub struct Catalog {
    pub(crate) types: RefCell<HashMap<Entry, Type>>,
    /// How many questions are being answered for the sake of others.
    depth: Cell<usize>,
    /// By the modules' addresses, which [`Indexed`] keeps.
    modules: RefCell<HashMap<usize, Arc<Indexed>>>,
}

/// Questions that lead to themselves end.
const DEEPEST: usize = 64;

/// A question within a question, while it is there.
pub(crate) struct Deeper<'a>(&'a Cell<usize>);

impl Drop for Deeper<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// One module's part.
struct Indexed {
    /// Keeps the address, which is the key, from being another module's.
    module: Arc<crate::Module>,
    units: Mutex<HashMap<usize, Arc<UnitIndex>>>,
    names: OnceLock<Result<ModuleIndex, Error>>,
    program: OnceLock<bool>,
    symbols: OnceLock<symbols::Table>,
    tls: OnceLock<Option<crate::location::TlsBlock>>,
}

/// In which modules a name is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Programs,
    Anybody,
}

/// Something with a name.
#[derive(Clone, Debug)]
pub struct Found {
    pub kind: Kind,
    pub entry: Entry,
    /// Of the module's image.
    pub bias: u64,
    /// Seen by other units.
    pub external: bool,
}

/// How a unit was compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The source file, as the compiler was given it.
    pub name: String,
    pub directory: Option<String>,
    /// The compiler and its options, as far as it says.
    pub producer: Option<String>,
    pub language: Language,
}

impl Catalog {
    /// How the code at a module's address was compiled; none without debugging information.
    pub fn compiled(&self, image: &Image, address: u64) -> Result<Option<Compiled>, Error> {
        let Some((function, _)) = image.module.function_die(address)? else {
            return Ok(None);
        };
        let unit = image.module.unit(function.unit)?;
        let mut entries = unit.entries();
        let Some((_, root)) = entries.next_dfs()? else {
            return Ok(None);
        };
        let root = entry_at(&image.module, function.unit, root.offset());
        let text = |name| Ok::<_, Error>(root.text(name)?.map(|text| text.to_string()));
        Ok(Some(Compiled {
            name: text(gimli::DW_AT_name)?.unwrap_or_default(),
            directory: text(gimli::DW_AT_comp_dir)?,
            producer: text(gimli::DW_AT_producer)?,
            language: self.language(&root)?,
        }))
    }

    pub fn new() -> Catalog {
        Catalog::default()
    }

    /// None if it goes too deep.
    pub(crate) fn deeper(&self) -> Option<Deeper<'_>> {
        let depth = self.depth.get();
        (depth < DEEPEST).then(|| {
            self.depth.set(depth + 1);
            Deeper(&self.depth)
        })
    }

    fn indexed(&self, module: &Arc<crate::Module>) -> Arc<Indexed> {
        let mut modules = self.modules.borrow_mut();
        let new = || {
            Arc::new(Indexed {
                module: module.clone(),
                units: Mutex::default(),
                names: OnceLock::new(),
                program: OnceLock::new(),
                symbols: OnceLock::new(),
                tls: OnceLock::new(),
            })
        };
        modules
            .entry(Arc::as_ptr(module) as usize)
            .or_insert_with(new)
            .clone()
    }

    fn unit_index(
        &self,
        module: &Arc<crate::Module>,
        unit: usize,
    ) -> Result<Arc<UnitIndex>, Error> {
        self.indexed(module).unit(unit)
    }

    /// Whether a module is the program itself, not a library.
    pub fn is_program(&self, module: &Arc<crate::Module>) -> bool {
        let indexed = self.indexed(module);
        *indexed.program.get_or_init(|| is_program(module))
    }

    /// Each module once, the program itself first: its names come before its libraries'.
    pub(crate) fn in_order<'a>(&self, modules: &'a Modules) -> Vec<&'a Image> {
        let mut all: Vec<&Image> = modules.modules().collect();
        all.sort_by_key(|image| !self.is_program(&image.module));
        all
    }

    pub(crate) fn tls_block(
        &self,
        module: &Arc<crate::Module>,
    ) -> Option<crate::location::TlsBlock> {
        let indexed = self.indexed(module);
        *indexed
            .tls
            .get_or_init(|| crate::location::tls_block(module))
    }

    /// C that computes where a thread-local variable is, from its offset into the module's block and the thread pointer;
    /// none where only a running program could tell.
    pub fn thread_local(
        &self,
        module: &Arc<crate::Module>,
        bias: u64,
        pointer: &str,
        offset: &str,
    ) -> Option<String> {
        use crate::location::TlsBlock;
        Some(match self.tls_block(module)? {
            TlsBlock::Below(distance) => format!("({pointer} - {distance}UL + {offset})"),
            TlsBlock::Offset { at, of } => {
                let at = at.wrapping_add(bias);
                format!("({pointer} + *(unsigned long *){at:#x}UL - {of}UL + {offset})")
            }
            TlsBlock::Numbered(at) => {
                // As glibc keeps them: the thread's vector, whose entries are pairs.
                let at = at.wrapping_add(bias);
                format!(
                    "(*(unsigned long *)(*(unsigned long *)({pointer} + 8) + 16 * *(unsigned long *){at:#x}UL) + {offset})"
                )
            }
        })
    }

    /// The language of the entry's unit.
    pub fn language(&self, entry: &Entry) -> Result<Language, Error> {
        Ok(self.unit_index(&entry.module, entry.die.unit)?.language)
    }

    /// An entry's name with its namespaces; none if it has no name.
    pub fn path(&self, entry: &Entry) -> Result<Option<Arc<str>>, Error> {
        let Some(_deeper) = self.deeper() else {
            return Ok(None);
        };
        let index = self.unit_index(&entry.module, entry.die.unit)?;
        if index.language != Language::C
            && let Some(path) = index.paths.get(&entry.die.offset)
        {
            return Ok(Some(path.clone()));
        }
        match entry.attribute(gimli::DW_AT_specification)? {
            Some(_) => match entry.referred(gimli::DW_AT_specification)? {
                Some(other) if other != *entry => self.path(&other),
                _ => entry.name(),
            },
            None => entry.name(),
        }
    }

    /// The definition of a type that is only declared at `entry`.
    pub(crate) fn definition(&self, entry: &Entry, name: &str) -> Result<Option<Entry>, Error> {
        let indexed = self.indexed(&entry.module);
        let tag = entry.tag()?;
        let path = Path::of(name);
        for candidate in indexed.named(&path, |kind| kind == Kind::Type)? {
            if candidate.entry.tag()? == tag
                && candidate
                    .entry
                    .attribute(gimli::DW_AT_declaration)?
                    .is_none()
            {
                return Ok(Some(candidate.entry));
            }
        }
        Ok(None)
    }

    /// Whatever has that name in the unit of `pc`, at file level.
    pub fn in_unit_of(
        &self,
        modules: &Modules,
        pc: u64,
        path: &Path,
        wanted: impl Fn(Kind) -> bool,
    ) -> Result<Vec<Found>, Error> {
        let Some(image) = modules.find(pc) else {
            return Ok(Vec::new());
        };
        let mut all = Vec::new();
        for unit in image.module.units_at(image.local(pc))? {
            let index = self.unit_index(&image.module, unit)?;
            let named = index.named(path, &wanted);
            all.extend(named.map(|named| found(image, unit, named)));
        }
        Ok(all)
    }

    /// The variables at file level of the unit of `pc`, with their names; at most so many.
    pub fn variables_of_unit(
        &self,
        modules: &Modules,
        pc: u64,
        most: usize,
    ) -> Result<Vec<(Arc<str>, Found)>, Error> {
        let Some(image) = modules.find(pc) else {
            return Ok(Vec::new());
        };
        let mut all = Vec::new();
        for unit in image.module.units_at(image.local(pc))? {
            let index = self.unit_index(&image.module, unit)?;
            let variables = index.all().filter(|named| named.kind == Kind::Variable);
            let told = variables.map(|named| (named.path.clone(), found(image, unit, named)));
            all.extend(told.take(most - all.len()));
        }
        Ok(all)
    }

    /// The names of all functions (or variables) of a module, as its debugging information has them, with their
    /// namespaces.
    pub fn names_of(
        &self,
        module: &Arc<crate::Module>,
        kind: Kind,
    ) -> Result<Vec<Arc<str>>, Error> {
        let indexed = self.indexed(module);
        let mut all = Vec::new();
        for number in 0..module.unit_count()? {
            // A damaged unit hides its own names only.
            if let Ok(unit) = indexed.unit(number) {
                let named = unit.all().filter(|named| named.kind == kind);
                all.extend(named.map(|named| named.path.clone()));
            }
        }
        Ok(all)
    }

    /// Whatever has that name anywhere, from the module where it is found first (the program
    /// itself comes before its libraries).
    pub fn named(
        &self,
        modules: &Modules,
        path: &Path,
        wanted: impl Fn(Kind) -> bool + Copy,
    ) -> Result<Vec<Found>, Error> {
        self.named_in(modules, Whose::Anybody, path, wanted)
    }

    /// The same, of the program itself or of all.
    pub(crate) fn named_in(
        &self,
        modules: &Modules,
        whose: Whose,
        path: &Path,
        wanted: impl Fn(Kind) -> bool + Copy,
    ) -> Result<Vec<Found>, Error> {
        for image in self.in_order(modules) {
            if whose == Whose::Programs && !self.is_program(&image.module) {
                continue;
            }
            let mut all = self.indexed(&image.module).named(path, wanted)?;
            if let Some(file) = &path.file {
                let mut of_file = Vec::new();
                for one in all {
                    if self.unit_is_file(&one.entry, file)? {
                        of_file.push(one);
                    }
                }
                all = of_file;
            }
            for one in &mut all {
                one.bias = image.bias;
            }
            if !all.is_empty() {
                return Ok(all);
            }
        }
        Ok(Vec::new())
    }

    /// Whether the unit was compiled from a file of that name (the last parts of its path).
    fn unit_is_file(&self, entry: &Entry, file: &str) -> Result<bool, Error> {
        let index = self.unit_index(&entry.module, entry.die.unit)?;
        let Some(rest) = index.file.strip_suffix(file) else {
            return Ok(false);
        };
        Ok(rest.is_empty() || rest.ends_with('/'))
    }
}

impl Indexed {
    fn units(&self) -> MutexGuard<'_, HashMap<usize, Arc<UnitIndex>>> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unit(&self, number: usize) -> Result<Arc<UnitIndex>, Error> {
        if let Some(known) = self.units().get(&number) {
            return Ok(known.clone());
        }
        let index = Arc::new(UnitIndex::read(&self.module, number)?);
        self.units().insert(number, index.clone());
        Ok(index)
    }

    fn named(
        &self,
        path: &Path,
        wanted: impl Fn(Kind) -> bool + Copy,
    ) -> Result<Vec<Found>, Error> {
        let names = self.names.get_or_init(|| ModuleIndex::read(self));
        let names = names.as_ref().map_err(Error::clone)?;
        let mut all = Vec::new();
        for &unit in names.units(path) {
            let index = self.unit(unit)?;
            all.extend(index.named(path, &wanted).map(|named| Found {
                kind: named.kind,
                entry: Entry::new(&self.module, Die::new(unit, named.offset)),
                bias: 0,
                external: named.external,
            }));
        }
        // A name with all its namespaces beats one with some left out.
        let whole = |found: &Found| -> Result<bool, Error> {
            let index = self.unit(found.entry.die.unit)?;
            Ok(index
                .paths
                .get(&found.entry.die.offset)
                .is_none_or(|p| path.is(p)))
        };
        let mut exact = Vec::new();
        for found in &all {
            if whole(found)? {
                exact.push(found.clone());
            }
        }
        Ok(if exact.is_empty() { all } else { exact })
    }
}

fn found(image: &Image, unit: usize, named: &index::Named) -> Found {
    Found {
        kind: named.kind,
        entry: Entry::new(&image.module, Die::new(unit, named.offset)),
        bias: image.bias,
        external: named.external,
    }
}

impl Path {
    /// From a name as debugging information has it.
    pub fn of(name: &str) -> Path {
        Path {
            file: None,
            global: false,
            parts: crate::expr::split(name),
        }
    }

    pub fn last(&self) -> &str {
        self.parts.last().map_or("", String::as_str)
    }

    fn is(&self, name: &str) -> bool {
        normal(&self.parts.join("::")) == normal(name)
    }
}

/// Names of templates differ in spaces from one compiler to the next.
fn normal(name: &str) -> String {
    if !name.contains(' ') {
        return name.into();
    }
    let mut out = String::new();
    let bytes = name.as_bytes();
    let word = |at: Option<&u8>| at.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    for (at, c) in name.char_indices() {
        // Only a space between two words means something.
        let needed = at > 0 && word(bytes.get(at - 1)) && word(bytes.get(at + 1));
        if c != ' ' || needed {
            out.push(c);
        }
    }
    out
}

/// Unit offsets of one unit, for those who only have one of them.
pub(crate) fn entry_at(module: &Arc<crate::Module>, unit: usize, offset: UnitOffset) -> Entry {
    Entry::new(module, Die::new(unit, offset))
}

//! A module's names: the entries of all units in; functions, variables and types by the name that
//! somebody typed, out. The index is made when a name is first asked for.

use crate::demangle::{base, means, parts};
use crate::functions::{is_scope, short_text};
use crate::{Die, Error, Function, Module, Reader, Unit};
use gimli::{AttributeValue, DwTag, UnitOffset, constants as dw};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// How many references from an entry to the one that has its name are followed.
const MAX_ORIGINS: usize = 8;

/// What a name can stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameKind {
    Function,
    /// Of the program or a class, not of a function.
    Variable,
    Type,
    Namespace,
    /// A constant of an enumeration.
    Enumerator,
}

/// Entries outside of functions, by a hash of the last part of their names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// In the order of units and offsets, so that an entry is found by its place.
    entries: Vec<Entry>,
    /// Numbers of entries that have names, sorted by hash.
    by_hash: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    unit: u32,
    offset: u32,
    kind: NameKind,
    /// A declaration, or an abstract function: without code or storage.
    declared: bool,
}

/// What the index needs of an entry's attributes.
#[derive(Default)]
struct Attributes {
    name: Option<AttributeValue<Reader>>,
    origin: Option<AttributeValue<Reader>>,
    sibling: Option<UnitOffset>,
    declared: bool,
    has_code: bool,
}

impl Names {
    pub fn read(module: &Module) -> Result<Names, Error> {
        let mut this = Names::default();
        // Entries that leave their names to another: a definition to its declaration.
        let mut unnamed: Vec<(u32, Die)> = Vec::new();
        for number in 0..module.unit_count()? {
            // What comes after damage in a unit is left out.
            if let Ok(unit) = module.unit(number) {
                let _ = this.scan(module, number, unit, &mut unnamed);
            }
        }
        let mut named: Vec<Option<u32>> = vec![None; this.entries.len()];
        for &(hash, entry) in &this.by_hash {
            named[entry as usize] = Some(hash);
        }
        for (entry, origin) in &unnamed {
            let mut at = *origin;
            for _ in 0..MAX_ORIGINS {
                let Some(found) = this.position(at) else {
                    break;
                };
                if let Some(hash) = named[found] {
                    this.by_hash.push((hash, *entry));
                    break;
                }
                let next = unnamed.binary_search_by_key(&(found as u32), |&(entry, _)| entry);
                let Ok(next) = next else { break };
                at = unnamed[next].1;
            }
        }
        this.by_hash.sort_unstable();
        Ok(this)
    }

    fn scan(
        &mut self,
        module: &Module,
        number: usize,
        unit: Unit<'_>,
        unnamed: &mut Vec<(u32, Die)>,
    ) -> Result<(), Error> {
        let mut entries = unit.entries_raw(None)?;
        // Entries deeper than this are inside of a function.
        let mut inside: Option<isize> = None;
        let mut base_depth = 0;
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let depth = base_depth + entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            let kind = kind_of(abbreviation.tag());
            if inside.is_some_and(|limit| depth > limit) {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            inside = None;
            let passed_over =
                abbreviation.has_children() && depth > 0 && !is_scope(abbreviation.tag());
            let Some(kind) = kind else {
                entries.skip_attributes(abbreviation.attributes())?;
                if passed_over {
                    inside = Some(depth);
                }
                continue;
            };
            let mut found = Attributes::default();
            for &spec in abbreviation.attributes() {
                let attribute = entries.read_attribute(spec)?;
                found.take(attribute.name(), attribute.value());
            }
            if passed_over {
                match found
                    .sibling
                    .filter(|sibling| sibling.0 > entries.next_offset().0)
                {
                    Some(sibling) => {
                        entries = unit.entries_raw(Some(sibling))?;
                        base_depth = depth;
                    }
                    None => inside = Some(depth),
                }
            }
            let declared = found.declared || (kind == NameKind::Function && !found.has_code);
            let (Ok(unit32), Ok(offset32)) = (u32::try_from(number), u32::try_from(offset.0))
            else {
                return Ok(());
            };
            let entry = Entry {
                unit: unit32,
                offset: offset32,
                kind,
                declared,
            };
            let position = self.entries.len() as u32;
            if let Some(name) = found.name {
                let name = short_text(&unit.attr_string(name)?);
                self.by_hash.push((hash(base(&name)), position));
            } else if let Some(origin) = found.origin {
                // A reference that leads nowhere leaves the entry without a name.
                match module.follow(number, &origin) {
                    Ok(Some(origin)) => unnamed.push((position, origin)),
                    _ => continue,
                }
            } else {
                continue;
            }
            self.entries.push(entry);
        }
        Ok(())
    }

    fn position(&self, die: Die) -> Option<usize> {
        let (unit, offset) = (
            u32::try_from(die.unit).ok()?,
            u32::try_from(die.offset.0).ok()?,
        );
        self.entries
            .binary_search_by_key(&(unit, offset), |entry| (entry.unit, entry.offset))
            .ok()
    }

    /// Entries whose names may end in that part.
    fn candidates(&self, last: &str) -> impl Iterator<Item = &Entry> {
        let hash = hash(last);
        let start = self.by_hash.partition_point(|&(known, _)| known < hash);
        let same = self.by_hash[start..]
            .iter()
            .take_while(move |&&(known, _)| known == hash);
        same.map(|&(_, number)| &self.entries[number as usize])
    }
}

impl Attributes {
    fn take(&mut self, name: gimli::DwAt, value: AttributeValue<Reader>) {
        match name {
            dw::DW_AT_name => self.name = Some(value),
            dw::DW_AT_specification | dw::DW_AT_abstract_origin => self.origin = Some(value),
            dw::DW_AT_declaration => self.declared = value == AttributeValue::Flag(true),
            dw::DW_AT_low_pc | dw::DW_AT_ranges => self.has_code = true,
            dw::DW_AT_sibling => {
                if let AttributeValue::UnitRef(offset) = value {
                    self.sibling = Some(offset);
                }
            }
            _ => {}
        }
    }
}

fn kind_of(tag: DwTag) -> Option<NameKind> {
    Some(match tag {
        dw::DW_TAG_subprogram => NameKind::Function,
        dw::DW_TAG_variable | dw::DW_TAG_constant => NameKind::Variable,
        dw::DW_TAG_namespace | dw::DW_TAG_module => NameKind::Namespace,
        dw::DW_TAG_enumerator => NameKind::Enumerator,
        dw::DW_TAG_base_type | dw::DW_TAG_typedef | dw::DW_TAG_unspecified_type => NameKind::Type,
        scope if is_scope(scope) => NameKind::Type,
        _ => return None,
    })
}

fn hash(part: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    part.hash(&mut hasher);
    hasher.finish() as u32
}

impl Module {
    /// Entries outside of functions that `name` means, which may be qualified (`a::B::c`), in the
    /// order of units. Declarations, and functions without code of their own, come after the rest.
    pub fn dies_named(&self, name: &str, kind: NameKind) -> Result<Vec<Die>, Error> {
        let wanted = name.trim().trim_start_matches("::");
        let last = parts(wanted)
            .last()
            .map_or("", |part| base(part))
            .to_string();
        let mut found: Vec<(bool, Die)> = Vec::new();
        for entry in self
            .names()?
            .candidates(&last)
            .filter(|entry| entry.kind == kind)
        {
            let offset = UnitOffset(entry.offset as usize);
            let die = Die {
                unit: entry.unit as usize,
                offset,
            };
            // Damage in one entry mustn't hide the others.
            let full = self.qualified_name(die).ok().flatten();
            let matches = full.as_ref().is_some_and(|full| means(wanted, full))
                || (kind == NameKind::Function
                    && self
                        .function_name(die)
                        .ok()
                        .flatten()
                        .is_some_and(|full| means(wanted, &full)));
            if matches {
                found.push((entry.declared, die));
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found.into_iter().map(|(_, die)| die).collect())
    }

    /// The name of an entry with the namespaces and types around it, as DWARF has it.
    pub fn qualified_name(&self, die: Die) -> Result<Option<String>, Error> {
        let mut at = die;
        let mut named = None;
        for _ in 0..MAX_ORIGINS {
            let unit = self.unit(at.unit)?;
            let entry = unit.entry(at.offset)?;
            if named.is_none()
                && let Some(value) = entry.attr_value(dw::DW_AT_name)?
            {
                named = Some(crate::functions::text(unit, value)?);
            }
            let origin = match entry.attr_value(dw::DW_AT_specification)? {
                Some(value) => Some(value),
                None => entry.attr_value(dw::DW_AT_abstract_origin)?,
            };
            match origin
                .map(|value| self.follow(at.unit, &value))
                .transpose()?
                .flatten()
            {
                Some(origin) if origin != at => at = origin,
                _ => break,
            }
        }
        named.map(|name| self.qualified(at, name)).transpose()
    }

    /// Functions with code of their own that a name means: qualified or not, with template
    /// arguments or not, or the linker's name. Those that DWARF doesn't know come from the symbol
    /// table. Calls that were inlined are not told.
    pub fn functions_named(&self, name: &str) -> Result<Vec<Function>, Error> {
        let mut found = Vec::new();
        for die in self.dies_named(name, NameKind::Function)? {
            found.extend(self.function(die)?);
        }
        let mut known: HashSet<u64> = found.iter().map(|function| function.entry).collect();
        let symbols = self.symbols()?;
        let by_linkage = symbols
            .named(name)
            .into_iter()
            .filter(|symbol| self.is_code(symbol.address));
        for symbol in by_linkage.chain(symbols.meant(name)) {
            if !known.insert(symbol.address) {
                continue;
            }
            let described = self.function_at(symbol.address)?;
            let same = described.filter(|function| function.entry == symbol.address);
            found.push(same.unwrap_or_else(|| Function::from_symbol(&symbol)));
        }
        found.sort_by_key(|function| function.entry);
        found.dedup_by_key(|function| function.entry);
        Ok(found)
    }
}

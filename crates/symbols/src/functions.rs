//! Functions of a unit: its entries in; the function around an address, the calls inlined there,
//! and names out.

use crate::demangle::demangle;
use crate::intervals::Intervals;
use crate::{Die, Error, Module, Reader, Unit};
use gimli::{AttributeValue, UnitOffset, constants as dw};
use std::ops::Range;

/// How many references from a function to what it is an instance of are followed.
const MAX_ORIGINS: usize = 8;
/// More parts than a function or inlined call has.
const MAX_PARTS: usize = 1 << 14;
/// More parts than the functions of a unit have together.
const MAX_UNIT_PARTS: usize = 1 << 22;
/// More calls than are inlined into each other.
const MAX_INLINED: usize = 1 << 10;
/// Longer names are cut.
const MAX_NAME: usize = 1 << 16;
/// How deep namespaces and classes are nested in names.
const MAX_SCOPES: usize = 64;

/// The functions with code of a unit, and which scopes its entries lie in.
#[derive(Debug)]
pub(crate) struct Functions {
    /// By address.
    code: Intervals<UnitOffset>,
    /// What has a qualified name, with the namespace or type around it, by offset. Those
    /// directly in the unit are left out.
    scopes: Vec<(UnitOffset, UnitOffset)>,
}

impl Functions {
    /// Reads all entries of a unit. What comes after damage is left out.
    pub fn read(module: &Module, unit: Unit<'_>) -> Functions {
        let mut code = Vec::new();
        let mut scopes = Vec::new();
        // A failure ends the reading; what was found before it is good.
        let _ = Functions::scan(module, unit, &mut code, &mut scopes);
        Functions {
            code: Intervals::new(code),
            scopes,
        }
    }

    fn scan(
        module: &Module,
        unit: Unit<'_>,
        code: &mut Vec<(Range<u64>, UnitOffset)>,
        scopes: &mut Vec<(UnitOffset, UnitOffset)>,
    ) -> Result<(), Error> {
        let mut entries = unit.entries_raw(None)?;
        // The namespaces and types around the current entry, with their depths.
        let mut around: Vec<(isize, UnitOffset)> = Vec::new();
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let depth = entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            let specs = abbreviation.attributes();
            entries.skip_attributes(specs)?;
            while around.last().is_some_and(|&(outer, _)| outer >= depth) {
                around.pop();
            }
            let is_function = abbreviation.tag() == dw::DW_TAG_subprogram;
            let is_scope = is_scope(abbreviation.tag());
            if let Some(&(outer_depth, outer)) = around.last()
                && (is_function
                    || is_scope
                    || (is_named(abbreviation.tag()) && depth == outer_depth + 1))
            {
                scopes.push((offset, outer));
            }
            if is_scope && abbreviation.has_children() {
                around.push((depth, offset));
            }
            let has_code = || {
                let named = |name| specs.iter().any(|spec| spec.name() == name);
                named(dw::DW_AT_low_pc) || named(dw::DW_AT_ranges)
            };
            if is_function && has_code() {
                let ranges = code_ranges(module, unit, offset).unwrap_or_default();
                code.extend(ranges.into_iter().map(|range| (range, offset)));
                if code.len() > MAX_UNIT_PARTS {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The innermost function around the address: its entry and the part of it that holds the
    /// address.
    pub fn at(&self, address: u64) -> Option<(UnitOffset, Range<u64>)> {
        let (range, offset) = self.code.around(address).first().copied()?;
        Some((*offset, range.clone()))
    }

    /// All ranges of code, which a unit without ranges of its own consists of.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.code.iter().map(|(range, _)| range.clone())
    }

    /// The namespace or type that the entry lies in.
    fn scope(&self, offset: UnitOffset) -> Option<UnitOffset> {
        let index = self
            .scopes
            .binary_search_by_key(&offset, |&(inner, _)| inner)
            .ok()?;
        Some(self.scopes[index].1)
    }
}

pub(crate) fn is_scope(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        dw::DW_TAG_namespace
            | dw::DW_TAG_module
            | dw::DW_TAG_structure_type
            | dw::DW_TAG_class_type
            | dw::DW_TAG_union_type
            | dw::DW_TAG_interface_type
            | dw::DW_TAG_enumeration_type
    )
}

/// What else has a qualified name, if it lies directly in a namespace or type.
fn is_named(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        dw::DW_TAG_variable
            | dw::DW_TAG_constant
            | dw::DW_TAG_member
            | dw::DW_TAG_enumerator
            | dw::DW_TAG_typedef
            | dw::DW_TAG_base_type
            | dw::DW_TAG_unspecified_type
    )
}

/// The code of the entry at `offset`: ranges in executable memory. Functions that the linker
/// dropped stay in DWARF with addresses near 0 or at the very top.
pub(crate) fn code_ranges(
    module: &Module,
    unit: Unit<'_>,
    offset: UnitOffset,
) -> Result<Vec<Range<u64>>, Error> {
    let entry = unit.entry(offset)?;
    let mut iter = unit.die_ranges(&entry)?;
    let mut ranges = Vec::new();
    for _ in 0..MAX_PARTS {
        let Some(range) = iter.next()? else { break };
        if range.begin < range.end && module.is_code(range.begin) {
            ranges.push(range.begin..range.end);
        }
    }
    Ok(ranges)
}

/// A function of a module; addresses are the module's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Demangled and qualified.
    pub name: String,
    /// As the linker knows it, if known and different.
    pub linkage: Option<String>,
    /// Where calls enter it.
    pub entry: u64,
    /// Its code; optimised functions may have more than one part.
    pub ranges: Vec<Range<u64>>,
    /// Where DWARF describes it; none if only a symbol table knows it.
    pub die: Option<Die>,
}

/// A call that was inlined at an address.
#[derive(Clone, Debug)]
pub(crate) struct Inlined {
    pub die: Die,
    pub call_file: u64,
    pub call_line: u64,
    pub call_column: u64,
}

impl Module {
    /// The function that holds the address, as DWARF or else a symbol table knows it.
    pub fn function_at(&self, address: u64) -> Result<Option<Function>, Error> {
        if let Some((die, _)) = self.function_die(address)? {
            return self.function(die);
        }
        Ok(self
            .symbols()?
            .at(address)
            .map(|symbol| Function::from_symbol(&symbol)))
    }

    /// The entry of the innermost function (not inlined) around the address, and the part of it.
    pub fn function_die(&self, address: u64) -> Result<Option<(Die, Range<u64>)>, Error> {
        for number in self.units_at(address)? {
            if let Some((offset, range)) = self.functions(number)?.at(address) {
                return Ok(Some((
                    Die {
                        unit: number,
                        offset,
                    },
                    range,
                )));
            }
        }
        Ok(None)
    }

    /// The function that DWARF describes at `die`, which may be an inlined call's entry, too;
    /// none if it has no code.
    pub fn function(&self, die: Die) -> Result<Option<Function>, Error> {
        let unit = self.unit(die.unit)?;
        let ranges = code_ranges(self, unit, die.offset)?;
        let entry = unit.entry(die.offset)?;
        let low = match entry.attr_value(dw::DW_AT_entry_pc)? {
            // A constant is an offset from the lowest address.
            Some(AttributeValue::Udata(offset)) => {
                ranges.first().map(|range| range.start.wrapping_add(offset))
            }
            Some(value) => unit.attr_address(value)?,
            None => None,
        };
        let Some(entry) = low.or_else(|| ranges.first().map(|range| range.start)) else {
            return Ok(None);
        };
        let (name, linkage) = self.function_names(die)?;
        let name = match name {
            Some(name) => name,
            None => match self.symbols()?.at(entry) {
                Some(symbol) => symbol.demangled(),
                None => return Ok(None),
            },
        };
        Ok(Some(Function {
            name,
            linkage,
            entry,
            ranges,
            die: Some(die),
        }))
    }

    /// Where calls of the function at `die` were inlined, in its own unit: the addresses at which they begin.
    pub fn inlined_copies(&self, die: Die) -> Result<Vec<u64>, Error> {
        let unit = self.unit(die.unit)?;
        let origin_of = |at: UnitOffset| -> Result<Option<Die>, Error> {
            let entry = unit.entry(at)?;
            match entry.attr_value(dw::DW_AT_abstract_origin)? {
                Some(value) => self.follow(die.unit, &value),
                None => Ok(None),
            }
        };
        let wanted = origin_of(die.offset)?.unwrap_or(die);
        let mut entries = unit.entries_raw(None)?;
        let mut found = Vec::new();
        while !entries.is_empty() && found.len() < MAX_PARTS {
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            entries.skip_attributes(abbreviation.attributes())?;
            if abbreviation.tag() == dw::DW_TAG_inlined_subroutine
                && origin_of(offset)? == Some(wanted)
            {
                let die = Die::new(die.unit, offset);
                found.extend(self.function(die)?.map(|function| function.entry));
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// The qualified name of the function or inlined call at `die`.
    pub fn function_name(&self, die: Die) -> Result<Option<String>, Error> {
        Ok(self.function_names(die)?.0)
    }

    /// The qualified name and the linker's name. A function's entry may leave them to the
    /// declaration in its class or to the abstract function that it is an instance of.
    fn function_names(&self, die: Die) -> Result<(Option<String>, Option<String>), Error> {
        let mut at = die;
        let mut name = None;
        let mut linkage = None;
        for _ in 0..MAX_ORIGINS {
            let unit = self.unit(at.unit)?;
            let entry = unit.entry(at.offset)?;
            let mut origin = None;
            let mut attributes = entry.attrs();
            while let Some(attribute) = attributes.next()? {
                match attribute.name() {
                    dw::DW_AT_linkage_name | dw::DW_AT_MIPS_linkage_name if linkage.is_none() => {
                        linkage = Some(text(unit, attribute.value())?);
                    }
                    dw::DW_AT_name if name.is_none() => name = Some(text(unit, attribute.value())?),
                    dw::DW_AT_abstract_origin | dw::DW_AT_specification => {
                        origin = self.follow(at.unit, &attribute.value())?;
                    }
                    _ => {}
                }
            }
            if let Some(plain) = linkage.as_deref().and_then(demangle) {
                return Ok((Some(plain), linkage));
            }
            match origin {
                Some(origin) if origin != at => at = origin,
                _ => break,
            }
        }
        // The last in the chain is the one that lies in the class.
        let name = match name {
            Some(name) => Some(self.qualified(at, name)?),
            None => linkage.clone(),
        };
        Ok((name, linkage))
    }

    /// The name with the namespaces and types around its entry.
    pub(crate) fn qualified(&self, die: Die, name: String) -> Result<String, Error> {
        let functions = self.functions(die.unit)?;
        let unit = self.unit(die.unit)?;
        let mut parts = vec![name];
        let mut at = die.offset;
        for _ in 0..MAX_SCOPES {
            let Some(outer) = functions.scope(at) else {
                break;
            };
            let entry = unit.entry(outer)?;
            let is_namespace = entry.tag() == dw::DW_TAG_namespace;
            match entry.attr_value(dw::DW_AT_name)? {
                Some(value) => parts.push(text(unit, value)?),
                None if is_namespace => parts.push("(anonymous namespace)".into()),
                None => parts.push("{unnamed type}".into()),
            }
            at = outer;
        }
        parts.reverse();
        Ok(parts.join("::"))
    }

    /// The calls inlined at an address of the function at `die`, outermost first.
    pub(crate) fn inlined_at(&self, die: Die, address: u64) -> Result<Vec<Inlined>, Error> {
        let unit = self.unit(die.unit)?;
        let mut entries = unit.entries_raw(Some(die.offset))?;
        let mut found = Vec::new();
        // Children of entries deeper than this are passed over.
        let mut skip: Option<isize> = None;
        let mut first = true;
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let depth = entries.next_depth();
            if !first && depth <= 0 {
                break;
            }
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            entries.skip_attributes(abbreviation.attributes())?;
            if first {
                first = false;
                if !abbreviation.has_children() {
                    break;
                }
                continue;
            }
            if skip.is_some_and(|limit| depth > limit) {
                continue;
            }
            skip = None;
            let is_call = abbreviation.tag() == dw::DW_TAG_inlined_subroutine;
            let is_block = matches!(
                abbreviation.tag(),
                dw::DW_TAG_lexical_block | dw::DW_TAG_try_block | dw::DW_TAG_catch_block
            );
            let named = |name| {
                abbreviation
                    .attributes()
                    .iter()
                    .any(|spec| spec.name() == name)
            };
            let has_code = named(dw::DW_AT_low_pc) || named(dw::DW_AT_ranges);
            let inside = || -> Result<bool, Error> {
                let ranges = code_ranges(self, unit, offset)?;
                Ok(ranges.iter().any(|range| range.contains(&address)))
            };
            // A block without ranges may still have inlined calls below it.
            let enter =
                (is_call && has_code && inside()?) || (is_block && (!has_code || inside()?));
            if !enter {
                skip = Some(depth);
            } else if is_call {
                if found.len() >= MAX_INLINED {
                    break;
                }
                found.push(self.inlined(
                    unit,
                    Die {
                        unit: die.unit,
                        offset,
                    },
                )?);
            }
        }
        Ok(found)
    }

    fn inlined(&self, unit: Unit<'_>, die: Die) -> Result<Inlined, Error> {
        let entry = unit.entry(die.offset)?;
        let number = |name| -> Result<u64, Error> {
            Ok(match entry.attr(name)? {
                Some(attribute) => match attribute.value() {
                    AttributeValue::FileIndex(index) => index,
                    _ => attribute.udata_value().unwrap_or(0),
                },
                None => 0,
            })
        };
        Ok(Inlined {
            die,
            call_file: number(dw::DW_AT_call_file)?,
            call_line: number(dw::DW_AT_call_line)?,
            call_column: number(dw::DW_AT_call_column)?,
        })
    }
}

impl Function {
    pub(crate) fn from_symbol(symbol: &crate::Symbol) -> Function {
        let name = symbol.demangled();
        let end = symbol.address.saturating_add(symbol.size.max(1));
        Function {
            linkage: Some(symbol.name.clone()).filter(|linkage| *linkage != name),
            name,
            entry: symbol.address,
            ranges: std::iter::once(symbol.address..end).collect(),
            die: None,
        }
    }
}

/// A string attribute's text.
pub(crate) fn text(unit: Unit<'_>, value: AttributeValue<Reader>) -> Result<String, Error> {
    Ok(short_text(&unit.attr_string(value)?))
}

/// Text of a name, cut where it is longer than any name.
pub(crate) fn short_text(reader: &Reader) -> String {
    let bytes = reader.bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_NAME)]).into_owned()
}

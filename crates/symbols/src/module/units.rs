//! The units of a module: DWARF sections in; units by number, parsed when first asked for, and
//! the entries that references lead to, out.

use super::{Module, Reader, Unit, coverage, split};
use crate::Error;
use crate::elf::Elf;
use crate::functions::Functions;
use crate::intervals::Intervals;
use crate::lines::LineTable;
use gimli::{
    AttributeValue, DebugInfoOffset, Dwarf, DwarfPackage, UnitHeader, UnitOffset,
    UnitSectionOffset, UnitType,
};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A debugging information entry of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Die {
    /// The unit's number.
    pub unit: usize,
    pub offset: UnitOffset,
}

pub(crate) struct Debug {
    pub dwarf: Dwarf<Reader>,
    units: Vec<Slot>,
    /// How many of the units are of `.debug_info`.
    in_info: usize,
    /// Where those of the supplementary file start.
    sup_start: usize,
    signatures: OnceLock<HashMap<u64, Die>>,
    /// Units by the addresses of their code.
    ranges: OnceLock<Intervals<usize>>,
    /// The file beside the program with the full units of split DWARF.
    package: OnceLock<Option<DwarfPackage<Reader>>>,
    /// Line tables by the file they are in and their place in it, since units may share one.
    tables: Mutex<HashMap<(bool, usize), Arc<LineTable>>>,
}

#[derive(Debug)]
struct Slot {
    header: UnitHeader<Reader>,
    parsed: OnceLock<Result<Parsed, Error>>,
    functions: OnceLock<Result<Functions, Error>>,
    lines: OnceLock<Result<Arc<LineTable>, Error>>,
}

#[derive(Debug)]
struct Parsed {
    unit: gimli::Unit<Reader>,
    /// The full unit of a skeleton, with its sections.
    split: Option<split::Full>,
}

impl std::fmt::Debug for Debug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Debug({} units)", self.units.len())
    }
}

impl Debug {
    pub fn load(main: &Elf, supplementary: Option<&Elf>) -> Result<Debug, Error> {
        let mut unpacked = main.unpacked();
        let mut dwarf = Dwarf::load(|id| {
            unpacked
                .remove(id.name())
                .unwrap_or_else(|| main.data(id.name()))
        })?;
        if let Some(supplementary) = supplementary {
            let mut unpacked = supplementary.unpacked();
            dwarf.load_sup(|id| {
                unpacked
                    .remove(id.name())
                    .unwrap_or_else(|| supplementary.data(id.name()))
            })?;
        }
        // Units of link-time optimisation and dwz share their abbreviations.
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        let mut units = Vec::new();
        // A damaged header hides the units after it; those before it are still good.
        let mut info = dwarf.units();
        while let Ok(Some(header)) = info.next() {
            units.push(header);
        }
        let in_info = units.len();
        let mut types = dwarf.type_units();
        while let Ok(Some(header)) = types.next() {
            units.push(header);
        }
        let sup_start = units.len();
        if let Some(sup) = dwarf.sup() {
            let mut info = sup.units();
            while let Ok(Some(header)) = info.next() {
                units.push(header);
            }
        }
        let slot = |header| Slot {
            header,
            parsed: OnceLock::new(),
            functions: OnceLock::new(),
            lines: OnceLock::new(),
        };
        Ok(Debug {
            units: units.into_iter().map(slot).collect(),
            dwarf,
            in_info,
            sup_start,
            signatures: OnceLock::new(),
            ranges: OnceLock::new(),
            package: OnceLock::new(),
            tables: Mutex::default(),
        })
    }

    pub fn count(&self) -> usize {
        self.units.len()
    }

    /// The file's sections that unit `number` is in.
    fn home(&self, number: usize) -> &Dwarf<Reader> {
        match self.dwarf.sup() {
            Some(sup) if number >= self.sup_start => sup,
            _ => &self.dwarf,
        }
    }

    fn parsed(&self, module: &Module, number: usize) -> Result<&Parsed, Error> {
        let slot = self.units.get(number).ok_or_else(|| {
            Error::Missing(format!("unit {number} of {}", module.name().display()))
        })?;
        slot.parsed
            .get_or_init(|| {
                let unit = self.home(number).unit(slot.header.clone())?;
                let split = if unit.dwo_id.is_some() {
                    let package = self.package.get_or_init(|| split::package(module));
                    split::full_unit(module, &self.dwarf, package.as_ref(), &unit)?
                } else {
                    None
                };
                Ok(Parsed { unit, split })
            })
            .as_ref()
            .map_err(Error::clone)
    }

    pub fn skeleton(&self, module: &Module, number: usize) -> Result<Unit<'_>, Error> {
        let parsed = self.parsed(module, number)?;
        Ok(Unit::new(self.home(number), &parsed.unit))
    }

    pub fn unit(&self, module: &Module, number: usize) -> Result<Unit<'_>, Error> {
        let parsed = self.parsed(module, number)?;
        Ok(match &parsed.split {
            Some(split) => Unit::new(&split.0, &split.1),
            None => Unit::new(self.home(number), &parsed.unit),
        })
    }

    /// The units with code at the address, the one with the smallest range first.
    pub fn units_at(&self, module: &Module, address: u64) -> Vec<usize> {
        let ranges = self.ranges.get_or_init(|| self.coverage(module));
        let mut numbers: Vec<usize> = Vec::new();
        for &(_, number) in ranges.around(address) {
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        numbers
    }

    fn coverage(&self, module: &Module) -> Intervals<usize> {
        // Each range takes at least a byte somewhere; damaged units may all name the same list.
        let limit = coverage::size_of_ranges(&self.dwarf) + 4 * self.units.len();
        let mut listed = coverage::from_aranges(&self.dwarf);
        let mut all = Vec::new();
        for (number, slot) in self.units.iter().enumerate().take(self.in_info) {
            if !matches!(
                slot.header.type_(),
                UnitType::Compilation | UnitType::Skeleton(_)
            ) {
                continue;
            }
            let start = match slot.header.offset() {
                UnitSectionOffset::DebugInfoOffset(start) => start.0,
                UnitSectionOffset::DebugTypesOffset(_) => continue,
            };
            let is_code =
                |range: &Range<u64>| range.start < range.end && module.is_code(range.start);
            let mut ranges = listed.remove(&start).unwrap_or_default();
            ranges.retain(is_code);
            if ranges.is_empty() {
                // A damaged unit covers nothing; the others are still good.
                ranges = coverage::of_unit(&self.dwarf, &slot.header).unwrap_or_default();
                ranges.retain(is_code);
            }
            if ranges.is_empty()
                && let Ok(functions) = self.functions(module, number)
            {
                ranges.extend(functions.ranges());
            }
            all.extend(ranges.into_iter().map(|range| (range, number)));
            if all.len() > limit {
                break;
            }
        }
        Intervals::new(all)
    }

    pub fn functions(&self, module: &Module, number: usize) -> Result<&Functions, Error> {
        let unit = self.unit(module, number)?;
        let slot = &self.units[number];
        let functions = slot
            .functions
            .get_or_init(|| Ok(Functions::read(module, unit)));
        functions.as_ref().map_err(Error::clone)
    }

    pub fn lines(&self, module: &Module, number: usize) -> Result<&LineTable, Error> {
        let unit = self.skeleton(module, number)?;
        let read = || {
            let Some(program) = &unit.line_program else {
                return Arc::new(LineTable::read(unit));
            };
            let key = (number >= self.sup_start, program.header().offset().0);
            let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
            tables
                .entry(key)
                .or_insert_with(|| Arc::new(LineTable::read(unit)))
                .clone()
        };
        let table = self.units[number].lines.get_or_init(|| Ok(read()));
        table.as_deref().map_err(Error::clone)
    }

    pub fn follow(
        &self,
        module: &Module,
        from: usize,
        value: &AttributeValue<Reader>,
    ) -> Result<Option<Die>, Error> {
        match value {
            AttributeValue::UnitRef(offset) => Ok(Some(Die {
                unit: from,
                offset: *offset,
            })),
            AttributeValue::DebugInfoRef(offset) if from >= self.sup_start => self
                .at(module, self.sup_start..self.units.len(), *offset)
                .map(Some),
            AttributeValue::DebugInfoRef(offset) => {
                self.at(module, 0..self.in_info, *offset).map(Some)
            }
            AttributeValue::DebugInfoRefSup(offset) => self
                .at(module, self.sup_start..self.units.len(), *offset)
                .map(Some),
            AttributeValue::DebugTypesRef(signature) => {
                let die = self.signatures().get(&signature.0).copied();
                let missing =
                    || Error::Missing(format!("the type of signature {:#x}", signature.0));
                die.ok_or_else(missing).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The entry at an offset of a `.debug_info` section whose units are `numbers`.
    fn at(
        &self,
        module: &Module,
        numbers: std::ops::Range<usize>,
        offset: DebugInfoOffset,
    ) -> Result<Die, Error> {
        let units = &self.units[numbers.clone()];
        let after = units.partition_point(|slot| match slot.header.offset() {
            UnitSectionOffset::DebugInfoOffset(start) => start.0 <= offset.0,
            UnitSectionOffset::DebugTypesOffset(_) => false,
        });
        let found = after.checked_sub(1).and_then(|index| {
            let inner = offset.to_unit_offset(&units[index].header)?;
            Some(Die {
                unit: numbers.start + index,
                offset: inner,
            })
        });
        found.ok_or_else(|| {
            Error::Missing(format!(
                "the entry at {:#x} of {}",
                offset.0,
                module.name().display()
            ))
        })
    }

    fn signatures(&self) -> &HashMap<u64, Die> {
        self.signatures.get_or_init(|| {
            let types = self.units.iter().enumerate().filter_map(|(number, slot)| {
                match slot.header.type_() {
                    UnitType::Type {
                        type_signature,
                        type_offset,
                    }
                    | UnitType::SplitType {
                        type_signature,
                        type_offset,
                    } => Some((
                        type_signature.0,
                        Die {
                            unit: number,
                            offset: type_offset,
                        },
                    )),
                    _ => None,
                }
            });
            types.collect()
        })
    }
}

//! Which addresses a unit has code at: unit headers and `.debug_aranges` in, ranges out, without
//! reading more of a unit than its first entry.

use super::Reader;
use crate::Error;
use gimli::{
    AttributeValue, Dwarf, Reader as _, Section as _, UnitHeader, UnitType, constants as dw,
};
use std::collections::HashMap;
use std::ops::Range;

/// The ranges that `.debug_aranges` gives, by where their units start in `.debug_info`. Compilers
/// that write it do so for whole units, so a unit that is in it needs no other look.
pub(super) fn from_aranges(dwarf: &Dwarf<Reader>) -> HashMap<usize, Vec<Range<u64>>> {
    let mut all: HashMap<usize, Vec<Range<u64>>> = HashMap::new();
    let mut headers = dwarf.debug_aranges.headers();
    // A failure ends the reading; other units tell themselves.
    while let Ok(Some(header)) = headers.next() {
        let ranges = all.entry(header.debug_info_offset().0).or_default();
        let mut entries = header.entries();
        while let Ok(Some(entry)) = entries.next() {
            ranges.push(entry.range().begin..entry.range().end);
        }
    }
    all
}

/// How many bytes of ranges there are, and so a bound for their number.
pub(super) fn size_of_ranges(dwarf: &Dwarf<Reader>) -> usize {
    let lists =
        dwarf.ranges.debug_ranges().reader().len() + dwarf.ranges.debug_rnglists().reader().len();
    lists + dwarf.debug_aranges.reader().len()
}

/// The ranges that the unit's first entry gives.
pub(super) fn of_unit(
    dwarf: &Dwarf<Reader>,
    header: &UnitHeader<Reader>,
) -> Result<Vec<Range<u64>>, Error> {
    let unit = without_lines(dwarf, header)?;
    let mut said = dwarf.unit_ranges(&unit)?;
    let mut ranges = Vec::new();
    while let Some(range) = said.next()? {
        ranges.push(range.begin..range.end);
    }
    Ok(ranges)
}

/// The unit with what ranges need, and without names and its line table's header, which take long
/// to read.
fn without_lines(
    dwarf: &Dwarf<Reader>,
    header: &UnitHeader<Reader>,
) -> Result<gimli::Unit<Reader>, Error> {
    let encoding = header.encoding();
    let mut unit = gimli::Unit {
        abbreviations: dwarf.abbreviations(header)?,
        name: None,
        comp_dir: None,
        low_pc: 0,
        str_offsets_base: gimli::DebugStrOffsetsBase(0),
        addr_base: gimli::DebugAddrBase(0),
        loclists_base: gimli::DebugLocListsBase(0),
        rnglists_base: gimli::DebugRngListsBase::default_for_encoding_and_file(
            encoding,
            dwarf.file_type,
        ),
        line_program: None,
        dwo_id: match header.type_() {
            UnitType::Skeleton(id) => Some(id),
            _ => None,
        },
        header: header.clone(),
    };
    let mut low = None;
    {
        let mut entries = header.entries_raw(&unit.abbreviations, None)?;
        let specs = match entries.read_abbreviation()? {
            Some(abbreviation) => abbreviation.attributes(),
            None => &[],
        };
        for &spec in specs {
            let attribute = entries.read_attribute(spec)?;
            match (attribute.name(), attribute.value()) {
                (dw::DW_AT_low_pc, value) => low = Some(value),
                (_, AttributeValue::DebugAddrBase(base)) => unit.addr_base = base,
                (_, AttributeValue::DebugRngListsBase(base)) => unit.rnglists_base = base,
                _ => {}
            }
        }
    }
    if let Some(low) = low {
        unit.low_pc = dwarf.attr_address(&unit, low)?.unwrap_or(0);
    }
    Ok(unit)
}

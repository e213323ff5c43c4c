//! What else entries of debugging information tell: an entry in; where its code starts, what it is in, what is in it, out.

use crate::Error;
use crate::types::Entry;
use gimli::constants as dw;

/// Where a function's code starts.
pub(crate) fn code_address(entry: &Entry) -> Result<Option<u64>, Error> {
    let unit = entry.module.unit(entry.die.unit)?;
    if let Some(value) = entry.attribute(dw::DW_AT_entry_pc)?
        && let Some(address) = unit.attr_address(value)?
    {
        return Ok(Some(address));
    }
    let raw = unit.entry(entry.die.offset)?;
    let mut ranges = unit.die_ranges(&raw)?;
    while let Some(range) = ranges.next()? {
        if range.begin != 0 && range.begin < range.end {
            return Ok(Some(range.begin));
        }
    }
    Ok(None)
}

/// The enumeration that an enumerator is in.
pub(crate) fn enumeration_of(entry: &Entry) -> Result<Option<Entry>, Error> {
    let unit = entry.module.unit(entry.die.unit)?;
    let mut entries = unit.entries_raw(None)?;
    let mut last = None;
    while !entries.is_empty() {
        let offset = entries.next_offset();
        if offset.0 > entry.die.offset.0 {
            break;
        }
        let Some(abbreviation) = entries.read_abbreviation()? else {
            continue;
        };
        entries.skip_attributes(abbreviation.attributes())?;
        if abbreviation.tag() == dw::DW_TAG_enumeration_type {
            last = Some(offset);
        }
    }
    Ok(last.map(|offset| entry.beside(offset)))
}

/// All variables of that name in a function.
pub(crate) fn variables_below(function: &Entry, name: &str) -> Result<Vec<Entry>, Error> {
    let mut found = Vec::new();
    let mut open = vec![function.clone()];
    while let Some(entry) = open.pop() {
        for child in entry.children()? {
            let tag = child.tag()?;
            if tag == dw::DW_TAG_lexical_block {
                open.push(child);
                continue;
            }
            let is_variable = matches!(tag, dw::DW_TAG_variable | dw::DW_TAG_formal_parameter);
            if is_variable && child.name()?.as_deref() == Some(name) {
                found.push(child);
            }
        }
    }
    Ok(found)
}

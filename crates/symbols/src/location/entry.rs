//! What a parameter was when its function was called: the expression for it in; from the caller's
//! information about that call, the value out.

use super::{Locator, NoPlace};
use crate::Reader;
use crate::types::Entry;
use gimli::{Expression, Location, Reader as _, constants as dw};

impl Locator<'_> {
    pub(super) fn entry_value(&mut self, expression: &Expression<Reader>) -> Result<u64, NoPlace> {
        let Some(frame) = self.frame else {
            return Err(NoPlace::Gone);
        };
        // Inlined frames share the function's call.
        let mut inner = frame;
        while self.frames[inner].inlined {
            inner += 1;
            if inner >= self.frames.len() {
                return Err(NoPlace::Gone);
            }
        }
        let Some(caller) = self.frames.get(inner + 1).filter(|frame| !frame.guessed) else {
            return Err(NoPlace::Gone);
        };
        let (pc, lookup, bias) = (caller.pc, caller.lookup, caller.bias);
        if self.frames[inner].is_signal || caller.is_signal {
            return Err(NoPlace::Gone);
        }
        let image = self.modules.find(lookup).ok_or(NoPlace::Gone)?;
        let scope = self.catalog.scope(image, image.local(lookup))?;
        let scope = scope.ok_or(NoPlace::Gone)?;
        let site = call_site(&scope.function, pc.wrapping_sub(bias))?.ok_or(NoPlace::Gone)?;
        // Only if that call went to this function: it may have gone to one that jumped here.
        let target = match site.referred(dw::DW_AT_call_origin)? {
            Some(target) => Some(target),
            None => site.referred(dw::DW_AT_abstract_origin)?,
        };
        let callee = &self.frames[inner];
        let callee_image = self.modules.find(callee.lookup).ok_or(NoPlace::Gone)?;
        let callee_scope = self
            .catalog
            .scope(callee_image, callee_image.local(callee.lookup))?;
        let (Some(target), Some(callee)) = (target, callee_scope) else {
            return Err(NoPlace::Gone);
        };
        if !same_function(&target, &callee.function)? {
            return Err(NoPlace::Gone);
        }
        let wanted = expression.0.to_slice()?;
        for parameter in site.children()? {
            let tag = parameter.tag()?;
            if tag != dw::DW_TAG_call_site_parameter && tag != dw::DW_TAG_GNU_call_site_parameter {
                continue;
            }
            let place = parameter.attribute(dw::DW_AT_location)?;
            let Some(place) = place.and_then(|value| value.exprloc_value()) else {
                continue;
            };
            if place.0.to_slice()? != wanted {
                continue;
            }
            let value = match parameter.attribute(dw::DW_AT_call_value)? {
                Some(value) => Some(value),
                None => parameter.attribute(dw::DW_AT_GNU_call_site_value)?,
            };
            let value = value.and_then(|value| value.exprloc_value());
            let value = value.ok_or(NoPlace::Gone)?;
            let unit = parameter.module.unit(parameter.die.unit)?;
            let outer = self.frame.replace(inner + 1);
            let pieces = self.run(&parameter, &unit, bias, value, None);
            self.frame = outer;
            return match pieces?.first().map(|piece| &piece.location) {
                Some(Location::Address { address }) => Ok(*address),
                Some(Location::Value { value }) => Ok(value.to_u64(u64::MAX)?),
                _ => Err(NoPlace::Gone),
            };
        }
        Err(NoPlace::Gone)
    }
}

/// The entry about the call that returns to an address.
fn call_site(function: &Entry, returns_to: u64) -> Result<Option<Entry>, NoPlace> {
    let unit = function.module.unit(function.die.unit)?;
    let mut tree = unit.entries_tree(Some(function.die.offset))?;
    let mut found = None;
    find_site(&unit, tree.root()?, returns_to, 0, &mut found)?;
    Ok(found.map(|offset| function.beside(offset)))
}

fn find_site(
    unit: &crate::Unit<'_>,
    node: gimli::EntriesTreeNode<'_, '_, '_, Reader>,
    returns_to: u64,
    depth: usize,
    found: &mut Option<gimli::UnitOffset>,
) -> Result<(), NoPlace> {
    if depth > 1000 {
        return Err(NoPlace::Gone);
    }
    let mut children = node.children();
    while let Some(child) = children.next()? {
        let entry = child.entry();
        let at = match entry.tag() {
            dw::DW_TAG_call_site => entry.attr_value(dw::DW_AT_call_return_pc)?,
            dw::DW_TAG_GNU_call_site => entry.attr_value(dw::DW_AT_low_pc)?,
            _ => {
                find_site(unit, child, returns_to, depth + 1, found)?;
                continue;
            }
        };
        if let Some(at) = at
            && unit.attr_address(at)? == Some(returns_to)
        {
            *found = Some(entry.offset());
            return Ok(());
        }
    }
    Ok(())
}

fn same_function(target: &Entry, function: &Entry) -> Result<bool, NoPlace> {
    let (a, b) = (target.origin()?, function.origin()?);
    if a == b {
        return Ok(true);
    }
    // A declaration in another unit has the same name, for the linker or at least for people.
    for attribute in [dw::DW_AT_linkage_name, dw::DW_AT_name] {
        let name = |entry: &Entry| -> Result<_, NoPlace> {
            Ok(match entry.bearer(attribute)? {
                Some(bearer) => bearer.text(attribute)?,
                None => None,
            })
        };
        match (name(&a)?, name(&b)?) {
            (Some(a), Some(b)) => return Ok(a == b),
            (None, None) => {}
            _ => return Ok(false),
        }
    }
    Ok(false)
}

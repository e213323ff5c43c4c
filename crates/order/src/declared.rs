//! Variables that the program's text says are atomic. In: debugging information. Out: their addresses.
//!
//! The machine's code doesn't tell: an atomic load or store that only acquires or releases is an ordinary instruction.

use clew_symbols::gimli::{Reader as _, constants as dw};
use clew_symbols::types::{Entry, Offset, Type};
use clew_symbols::variables::{Catalog, Kind};
use clew_symbols::{Modules, expr::Path};

/// More than any program has.
const MOST: usize = 100_000;
/// Elements of one array, and members of members.
const MOST_ELEMENTS: u64 = 4_096;
const DEEPEST: usize = 12;
/// Types of languages whose atomics are structures.
const ATOMIC: &[&str] = &["std::atomic", "std::__atomic", "core::sync::atomic::Atomic"];

/// Addresses of the program's atomic variables, members and elements.
pub fn declared(catalog: &Catalog, modules: &Modules) -> Vec<u64> {
    let mut all = Vec::new();
    let images = modules.modules();
    for image in images.filter(|image| catalog.is_program(&image.module)) {
        let mut names = catalog
            .names_of(&image.module, Kind::Variable)
            .unwrap_or_default();
        names.sort();
        names.dedup();
        for name in names {
            let is = |kind: Kind| kind == Kind::Variable;
            for found in catalog
                .named(modules, &Path::of(&name), is)
                .unwrap_or_default()
            {
                let Some(address) = address_of(&found.entry) else {
                    continue;
                };
                if let Ok(of) = found.entry.type_of() {
                    let start = address.wrapping_add(found.bias);
                    inside(catalog, &of, start, 0, &mut all);
                }
                if all.len() >= MOST {
                    return all;
                }
            }
        }
    }
    all
}

/// Where a variable is, if that is always the same place.
fn address_of(entry: &Entry) -> Option<u64> {
    let location = entry.attribute(dw::DW_AT_location).ok()??;
    let expression = location.exprloc_value()?;
    let bytes = expression.0.to_slice().ok()?;
    let (&op, address) = bytes.split_first()?;
    let address: [u8; 8] = address.try_into().ok()?;
    (op == dw::DW_OP_addr.0).then(|| u64::from_le_bytes(address))
}

fn inside(catalog: &Catalog, of: &Type, at: u64, depth: usize, all: &mut Vec<u64>) {
    if depth > DEEPEST || all.len() >= MOST {
        return;
    }
    match catalog.look(of) {
        Ok(Type::Qualified { word, .. }) if word.contains("tomic") => all.push(at),
        Ok(Type::Qualified { of, .. } | Type::Named { of, .. }) => {
            inside(catalog, &of, at, depth + 1, all)
        }
        Ok(Type::Array { of, count }) => {
            let size = catalog.size(&of).ok().flatten().unwrap_or(0);
            let count = count.unwrap_or(0).min(MOST_ELEMENTS);
            // If the first has none, the others haven't either.
            let before = all.len();
            for n in 0..count {
                inside(catalog, &of, at + n * size, depth + 1, all);
                if all.len() == before {
                    return;
                }
            }
        }
        Ok(Type::Record(record)) => {
            let name = record.name.as_deref().unwrap_or_default();
            if ATOMIC.iter().any(|atomic| name.starts_with(atomic)) {
                all.push(at);
                return;
            }
            for member in &record.members {
                if let Offset::Bytes(offset) = member.offset {
                    inside(catalog, &member.of, at + offset, depth + 1, all);
                }
            }
        }
        _ => {}
    }
}

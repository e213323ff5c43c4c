//! What a variable at an address is called. In: an address. Out: `accounts[1].lock`, or as much of that as is known.

use clew_symbols::Modules;
use clew_symbols::types::{Offset, Type};
use clew_symbols::variables::Catalog;
use clew_symbols::variables::Kind;
use clew_timeline::Result;

use super::spot::View;

/// Arrays in structures in arrays end somewhere.
const DEEPEST: usize = 16;

impl View {
    /// The name of the global variable, or the part of one, that begins at an address or holds it.
    pub fn variable(&mut self, address: u64) -> Result<Option<String>> {
        let mut modules = self.program.modules(&mut self.timeline)?;
        // Variables that begin as zeros aren't in the file: they lie behind what is mapped of it.
        for mapping in self.timeline.mappings()? {
            let before = mapping.start.wrapping_sub(1);
            if mapping.copy.is_some() || !mapping.name.is_empty() {
                continue;
            }
            if let Some(image) = modules.find(before).cloned() {
                modules.add(image.module, image.bias, mapping.start..mapping.end);
            }
        }
        Ok(name_of(self.program.catalog(), &modules, address))
    }
}

fn name_of(catalog: &Catalog, modules: &Modules, address: u64) -> Option<String> {
    let (name, offset) = catalog.symbol_at(modules, address)?;
    // Of several with that name nobody says which it is.
    let path = clew_symbols::expr::Path::of(&name);
    let variable = |kind| kind == Kind::Variable;
    let entries = catalog.named(modules, &path, variable).unwrap_or_default();
    let part = match &entries[..] {
        [one] => one
            .entry
            .type_of()
            .ok()
            .and_then(|of| part(catalog, of, offset)),
        _ => None,
    };
    Some(match (part, offset) {
        (Some(part), _) => format!("{name}{part}"),
        (None, 0) => name,
        (None, offset) => format!("{name}+{offset:#x}"),
    })
}

/// The part of a value that lies at an offset: `[1].lock`. Stops at what has a name of its own there, such as a lock.
fn part(catalog: &Catalog, of: Type, mut offset: u64) -> Option<String> {
    let mut text = String::new();
    let mut of = of;
    for _ in 0..DEEPEST {
        if offset == 0 && is_lock(catalog, &of) {
            return Some(text);
        }
        match catalog.strip(&of).ok()? {
            Type::Array { of: element, .. } => {
                let size = catalog.size(&element).ok()??;
                text.push_str(&format!("[{}]", offset.checked_div(size)?));
                offset %= size;
                of = (*element).clone();
            }
            Type::Record(record) => {
                let inside = record.members.iter().find_map(|member| {
                    let Offset::Bytes(from) = member.offset else {
                        return None;
                    };
                    let size = catalog.size(&member.of).ok()??;
                    (from..from.checked_add(size)?)
                        .contains(&offset)
                        .then_some((member, from))
                });
                let (member, from) = inside?;
                if let Some(name) = &member.name {
                    text.push_str(&format!(".{name}"));
                }
                offset -= from;
                of = member.of.clone();
            }
            _ => break,
        }
    }
    (offset == 0).then_some(text)
}

/// Whether people see a type as one thing, whatever its insides are: a lock of the C library's.
fn is_lock(catalog: &Catalog, of: &Type) -> bool {
    let mut of = of.clone();
    for _ in 0..DEEPEST {
        of = match catalog.look(&of) {
            Ok(Type::Named { name, .. })
                if name.starts_with("pthread_") || &*name == "sem_t" || &*name == "mtx_t" =>
            {
                return true;
            }
            Ok(Type::Named { of, .. } | Type::Qualified { of, .. }) => (*of).clone(),
            _ => return false,
        };
    }
    false
}

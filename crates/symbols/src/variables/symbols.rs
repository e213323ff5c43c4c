//! The linker's symbols: a module's symbol tables in, addresses by name and names by address out. For what
//! has no debugging information.

use super::Catalog;
use crate::elf::Elf;
use crate::{Modules, modules::Image};
use gimli::Reader as _;
use std::collections::HashMap;

const SYMTAB: u32 = 2;
const DYNSYM: u32 = 11;
const ENTRY: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolKind {
    Function,
    /// A function that returns the function to call.
    Chooser,
    Data,
    /// Thread-local: the value is an offset into the module's block.
    Tls,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElfSymbol {
    /// In the module's terms.
    pub address: u64,
    pub size: u64,
    pub kind: SymbolKind,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    names: HashMap<String, ElfSymbol>,
    /// Code and data by address: (address, size, name).
    places: Vec<(u64, u64, String)>,
}

impl Table {
    fn read(module: &crate::Module) -> Table {
        let mut table = Table::default();
        // The whole table may be in the debug file, the exported part is in the module.
        for elf in module.separate.iter().chain([&module.elf]) {
            for section in &elf.sections {
                if section.kind == SYMTAB || section.kind == DYNSYM {
                    table.add(elf, section);
                }
            }
        }
        table.places.sort();
        table.places.dedup();
        table
    }

    /// What is damaged is left out.
    fn add(&mut self, elf: &Elf, section: &crate::elf::Section) {
        let Some(strings) = elf.sections.get(section.link) else {
            return;
        };
        let (Ok(entries), Ok(strings)) = (elf.section_data(section), elf.section_data(strings))
        else {
            return;
        };
        let (Ok(entries), Ok(strings)) = (entries.to_slice(), strings.to_slice()) else {
            return;
        };
        for entry in entries.chunks_exact(ENTRY) {
            let word =
                |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("eight bytes"));
            let name_at = (word(0) & 0xffff_ffff) as usize;
            let (info, index) = (entry[4], u16::from_le_bytes([entry[6], entry[7]]));
            let kind = match info & 15 {
                2 => SymbolKind::Function,
                10 => SymbolKind::Chooser,
                0 | 1 => SymbolKind::Data,
                6 => SymbolKind::Tls,
                _ => continue,
            };
            if index == 0 || name_at == 0 {
                continue;
            }
            let Some(rest) = strings.get(name_at..) else {
                continue;
            };
            let end = rest.iter().position(|byte| *byte == 0).unwrap_or(0);
            let name = String::from_utf8_lossy(&rest[..end]).into_owned();
            if name.is_empty() {
                continue;
            }
            let symbol = ElfSymbol {
                address: word(8),
                size: word(16),
                kind,
            };
            if kind != SymbolKind::Tls {
                self.places
                    .push((symbol.address, symbol.size, name.clone()));
            }
            // Global symbols beat local ones of the same name.
            let global = info >> 4 != 0;
            if global {
                self.names.insert(name, symbol);
            } else {
                self.names.entry(name).or_insert(symbol);
            }
        }
    }
}

impl Catalog {
    /// A symbol of any module, the program's own first.
    pub fn symbol<'a>(&self, modules: &'a Modules, name: &str) -> Option<(&'a Image, ElfSymbol)> {
        self.in_order(modules).into_iter().find_map(|image| {
            let symbol = self.symbol_of(image, name)?;
            Some((image, symbol))
        })
    }

    pub fn symbol_of(&self, image: &Image, name: &str) -> Option<ElfSymbol> {
        let indexed = self.indexed(&image.module);
        let table = indexed.symbols.get_or_init(|| Table::read(&indexed.module));
        table.names.get(name).cloned()
    }

    /// The symbol at or before an address of the process, if the address is within it, and how far in.
    pub fn symbol_at(&self, modules: &Modules, address: u64) -> Option<(String, u64)> {
        let image = modules.owner(address)?;
        let local = image.local(address);
        let indexed = self.indexed(&image.module);
        let table = indexed.symbols.get_or_init(|| Table::read(&indexed.module));
        let after = table.places.partition_point(|(start, ..)| *start <= local);
        let near = table.places[..after].iter().rev().take(64);
        let mut best: Option<&(u64, u64, String)> = None;
        for place in near {
            let (start, size, name) = place;
            if best.is_some_and(|(other, ..)| other != start) {
                break;
            }
            let inside = local - start < (*size).max(1);
            // Of several names the one with fewest underscores is the one that people know.
            let score = |name: &str| name.len() - name.trim_start_matches('_').len();
            if inside && best.is_none_or(|(_, _, other)| score(name) < score(other)) {
                best = Some(place);
            }
        }
        best.map(|(start, _, name)| (crate::value::demangled(name), local - start))
    }
}

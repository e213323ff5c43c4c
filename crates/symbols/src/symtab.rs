//! ELF symbol tables: `.symtab` and `.dynsym` in; the symbol around an address, and symbols by
//! name, out.

use crate::demangle;
use crate::elf::{Elf, Section};
use crate::plt::{self, PltEntry, Target};
use crate::{Error, Reader};
use object::elf;
use std::ops::Range;

/// What a symbol names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SymbolKind {
    Function,
    Data,
    /// Of a thread's own memory: the address is an offset into its block.
    ThreadLocal,
    /// A label in assembly code, mostly.
    Untyped,
}

/// A symbol of a module, in the module's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// As the linker knows it, without a version.
    pub name: String,
    pub address: u64,
    /// 0 if unknown.
    pub size: u64,
    pub kind: SymbolKind,
    /// Visible to other files.
    pub global: bool,
}

impl Symbol {
    /// The name as people write it.
    pub fn demangled(&self) -> String {
        match self.name.strip_suffix("@plt") {
            Some(target) => demangle::demangle(target).map(|target| format!("{target}@plt")),
            None => demangle::demangle(&self.name),
        }
        .unwrap_or_else(|| self.name.clone())
    }
}

#[derive(Default)]
pub(crate) struct Symbols {
    /// The string tables that names are in.
    strings: Vec<Reader>,
    entries: Vec<Entry>,
    /// Numbers of entries that are code, by address; of several at one address only the best.
    code: Vec<u32>,
    /// Entries of procedure linkage tables, which no symbol table names, by address.
    plt: Vec<PltEntry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    size: u64,
    /// Where a symbol without a size ends at the latest.
    section_end: u64,
    name: u32,
    table: u8,
    kind: SymbolKind,
    global: bool,
    /// Lies in an executable section.
    code: bool,
}

impl std::fmt::Debug for Symbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Symbols({})", self.entries.len())
    }
}

impl Symbols {
    /// The symbols of a file, of its separate debug file, and of the small table that some
    /// distributions put into stripped files.
    pub fn load(files: &[&Elf], executable: &[Range<u64>]) -> Result<Symbols, Error> {
        let mut this = Symbols::default();
        for file in files {
            // `.symtab` has all that `.dynsym` has.
            let table = |kind| file.sections.iter().find(|section| section.kind == kind);
            let full = table(elf::SHT_SYMTAB);
            let dynamic = table(elf::SHT_DYNSYM).filter(|_| full.is_none());
            for section in [full, dynamic].into_iter().flatten() {
                this.add(file, section, executable)?;
            }
        }
        let mut code: Vec<u32> = (0..this.entries.len() as u32).collect();
        code.retain(|&number| this.entries[number as usize].code);
        let entries = &this.entries;
        // The best of those at one address comes last, where the search looks first.
        let rank = |entry: &Entry| {
            (
                entry.kind == SymbolKind::Function,
                entry.size != 0,
                entry.global,
            )
        };
        code.sort_by_key(|&number| {
            let entry = &entries[number as usize];
            (entry.address, rank(entry), std::cmp::Reverse(number))
        });
        code.dedup_by(|later, earlier| {
            let same = entries[*later as usize].address == entries[*earlier as usize].address;
            if same {
                *earlier = *later;
            }
            same
        });
        this.code = code;
        this.plt = files.iter().flat_map(|file| plt::entries(file)).collect();
        this.plt.sort_by_key(|entry| entry.address);
        Ok(this)
    }

    fn add(
        &mut self,
        file: &Elf,
        section: &Section,
        executable: &[Range<u64>],
    ) -> Result<(), Error> {
        let Some(strings) = file.sections.get(section.link) else {
            return Ok(());
        };
        let strings = file.section_data(strings)?;
        let table = file.section_data(section)?;
        let bytes = table.bytes();
        let number = self.strings.len() as u8;
        self.strings.push(strings);
        self.entries.reserve(bytes.len() / 24);
        for raw in bytes.as_chunks::<24>().0 {
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| raw[at + index]));
            let name = u32::from_le_bytes(std::array::from_fn(|index| raw[index]));
            let (info, index) = (raw[4], u16::from_le_bytes([raw[6], raw[7]]));
            let (address, size) = (word(8), word(16));
            if index == elf::SHN_UNDEF || name == 0 {
                continue;
            }
            let kind = match info & 0xf {
                elf::STT_FUNC | elf::STT_GNU_IFUNC => SymbolKind::Function,
                elf::STT_OBJECT | elf::STT_COMMON => SymbolKind::Data,
                elf::STT_TLS => SymbolKind::ThreadLocal,
                elf::STT_NOTYPE => SymbolKind::Untyped,
                _ => continue,
            };
            let code = matches!(kind, SymbolKind::Function | SymbolKind::Untyped)
                && index != elf::SHN_ABS
                && executable.iter().any(|range| range.contains(&address));
            let global = info >> 4 != elf::STB_LOCAL;
            let section = file.sections.get(usize::from(index));
            let section_end = section.map_or(u64::MAX, |section| {
                section.address.saturating_add(section.size)
            });
            self.entries.push(Entry {
                address,
                size,
                section_end,
                name,
                table: number,
                kind,
                global,
                code,
            });
        }
        Ok(())
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        let Some(strings) = self.strings.get(usize::from(entry.table)) else {
            return b"";
        };
        let rest = strings.bytes().get(entry.name as usize..).unwrap_or(b"");
        let name = &rest[..rest
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(rest.len())];
        // `printf@@GLIBC_2.2.5`
        &name[..name
            .iter()
            .position(|&byte| byte == b'@')
            .filter(|&at| at > 0)
            .unwrap_or(name.len())]
    }

    fn symbol(&self, entry: &Entry) -> Symbol {
        Symbol {
            name: String::from_utf8_lossy(self.name(entry)).into_owned(),
            address: entry.address,
            size: entry.size,
            kind: entry.kind,
            global: entry.global,
        }
    }

    /// The function or label that holds the address. A label without a size reaches to the next.
    pub fn at(&self, address: u64) -> Option<Symbol> {
        self.plt_at(address).or_else(|| self.code_at(address))
    }

    fn code_at(&self, address: u64) -> Option<Symbol> {
        /// How many symbols before the address are looked at for one that reaches over it.
        const NESTED: usize = 16;
        let entry = |&number: &u32| &self.entries[number as usize];
        let after = self
            .code
            .partition_point(|number| entry(number).address <= address);
        for (steps, index) in (0..after).rev().take(NESTED).enumerate() {
            let found = entry(&self.code[index]);
            let reaches = address - found.address < found.size;
            let open = found.size == 0 && steps == 0 && address < found.section_end;
            if reaches || open {
                return Some(self.symbol(found));
            }
        }
        None
    }

    fn plt_at(&self, address: u64) -> Option<Symbol> {
        let after = self.plt.partition_point(|entry| entry.address <= address);
        let entry = self.plt.get(after.checked_sub(1)?)?;
        if address - entry.address >= entry.size {
            return None;
        }
        let target = match &entry.target {
            Target::Named(name) => name.clone(),
            Target::Chosen(chooser) => self.code_at(*chooser)?.name,
        };
        Some(Symbol {
            name: format!("{target}@plt"),
            address: entry.address,
            size: entry.size,
            kind: SymbolKind::Function,
            global: false,
        })
    }

    /// Symbols of exactly that linker's name.
    pub fn named(&self, name: &str) -> Vec<Symbol> {
        let entries = self
            .entries
            .iter()
            .filter(|entry| self.name(entry) == name.as_bytes());
        dedup(entries.map(|entry| self.symbol(entry)).collect())
    }

    /// Functions that `wanted` means, by their demangled names.
    pub fn meant(&self, wanted: &str) -> Vec<Symbol> {
        let last = demangle::parts(wanted)
            .last()
            .map_or("", |part| demangle::base(part))
            .to_string();
        // A mangled name has identifiers with their lengths, which spares demangling most of them.
        let word = last.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !last.is_empty();
        let counted = [
            format!("{}{last}", last.len()),
            format!("{}_{last}", last.len()),
        ];
        let found = self
            .entries
            .iter()
            .filter(|entry| entry.code)
            .filter(|entry| {
                let Ok(name) = std::str::from_utf8(self.name(entry)) else {
                    return false;
                };
                if word && name != wanted && !counted.iter().any(|counted| name.contains(counted)) {
                    return false;
                }
                match demangle::demangle(name) {
                    Some(name) => demangle::means(wanted, &name),
                    None => name == wanted,
                }
            });
        dedup(found.map(|entry| self.symbol(entry)).collect())
    }
}

/// A symbol is often in more than one table.
fn dedup(mut symbols: Vec<Symbol>) -> Vec<Symbol> {
    symbols.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
    symbols.dedup_by(|a, b| a.address == b.address && a.name == b.name);
    symbols
}

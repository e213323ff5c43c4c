//! Names for the procedure linkage table: its code and the relocations of the table that it jumps
//! through in; `printf@plt` for each of its entries out.

use crate::elf::{Elf, Section};
use object::elf;
use std::collections::HashMap;

/// An entry's address, size and the name of the function that it leads to.
pub(crate) struct PltEntry {
    pub address: u64,
    pub size: u64,
    pub target: Target,
}

/// Where an entry leads.
#[derive(Clone)]
pub(crate) enum Target {
    Named(String),
    /// To what the function at this address chooses when the program starts.
    Chosen(u64),
}

/// The entries of all linkage tables of a file. What can't be made out is left without a name.
pub(crate) fn entries(file: &Elf) -> Vec<PltEntry> {
    let targets = targets(file);
    let tables = [(".plt", 16), (".plt.sec", 16), (".plt.got", 8)];
    let mut found = Vec::new();
    for (name, usual) in tables {
        let Some(section) = file.section(name) else {
            continue;
        };
        // Tables for processors that check where jumps lead have longer entries.
        let code = &file.bytes[section.file.clone()];
        let size = if code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
            16
        } else {
            usual
        };
        for (index, entry) in code.chunks_exact(size).enumerate() {
            let address = section.address.wrapping_add((index * size) as u64);
            if let Some(target) = slot(entry, address).and_then(|slot| targets.get(&slot)) {
                found.push(PltEntry {
                    address,
                    size: size as u64,
                    target: target.clone(),
                });
            }
        }
    }
    found
}

/// The address that an entry jumps through: `[endbr64;] [bnd] jmp *x(%rip)`.
fn slot(entry: &[u8], address: u64) -> Option<u64> {
    let mut at = 0;
    for prefix in [&[0xf3, 0x0f, 0x1e, 0xfa][..], &[0xf2]] {
        if entry.get(at..)?.starts_with(prefix) {
            at += prefix.len();
        }
    }
    let [0xff, 0x25, displacement @ ..] = entry.get(at..)? else {
        return None;
    };
    let displacement = i32::from_le_bytes(displacement.get(..4)?.try_into().ok()?);
    let next = address.wrapping_add(at as u64 + 6);
    Some(next.wrapping_add_signed(i64::from(displacement)))
}

/// The functions that words of the global offset table are filled with.
fn targets(file: &Elf) -> HashMap<u64, Target> {
    let mut all = HashMap::new();
    for relocations in file
        .sections
        .iter()
        .filter(|section| section.kind == elf::SHT_RELA)
    {
        // Programs linked statically have relocations without symbols.
        let symbols = file.sections.get(relocations.link);
        let strings = symbols.and_then(|symbols| file.sections.get(symbols.link));
        let data = |section: &Section| &file.bytes[section.file.clone()];
        for raw in data(relocations).as_chunks::<24>().0 {
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| raw[at + index]));
            let (kind, symbol) = (word(8) as u32, (word(8) >> 32) as usize);
            if kind == elf::R_X86_64_IRELATIVE {
                all.insert(word(0), Target::Chosen(word(16)));
                continue;
            }
            if !matches!(kind, elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT) || symbol == 0 {
                continue;
            }
            let name = || -> Option<String> {
                let at = data(symbols?)
                    .get(symbol.checked_mul(24)?..)?
                    .first_chunk::<4>()?;
                let rest = data(strings?).get(u32::from_le_bytes(*at) as usize..)?;
                let end = rest.iter().position(|&byte| byte == 0)?;
                Some(String::from_utf8_lossy(&rest[..end]).into_owned())
            };
            if let Some(name) = name().filter(|name| !name.is_empty()) {
                all.insert(word(0), Target::Named(name));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_of_both_kinds_lead_to_their_slot() {
        let plain = [
            0xff, 0x25, 0x10, 0, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0,
        ];
        assert_eq!(slot(&plain, 0x1000), Some(0x1016));
        let checked = [
            0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0xf5, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0,
        ];
        assert_eq!(slot(&checked, 0x1000), Some(0x1000));
        assert_eq!(slot(&[0xff, 0x35, 0, 0, 0, 0], 0), None);
        assert_eq!(slot(&[0xff, 0x25, 0], 0), None);
    }
}

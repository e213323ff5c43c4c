//! Thread-local variables: an offset into a module's block in; the address in the thread that stands
//! at the position, by way of its thread pointer, out.

use super::{Locator, NoPlace};
use crate::Module;
use crate::elf::Elf;
use gimli::Reader as _;
use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use std::sync::Arc;

type Header = elf::FileHeader64<object::LittleEndian>;
const LE: object::LittleEndian = object::LittleEndian;

const DYNAMIC_FLAGS_1: u64 = 0x6fff_fffb;
const IS_PROGRAM: u64 = 0x0800_0000;
/// Where the loader leaves word for debuggers: programs have it, libraries don't.
const DYNAMIC_DEBUG: u64 = 21;
const RELOCATION: usize = 24;

/// How a thread's copy of a module's variables is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsBlock {
    /// So many bytes below the thread pointer: the program itself.
    Below(u64),
    /// The loader wrote the module's number to this address of the module.
    Numbered(u64),
    /// The loader wrote to this address where, relative to the thread pointer, a variable is that is so
    /// far into the block.
    Offset { at: u64, of: u64 },
}

/// A thread's vector has no more entries.
const MOST_MODULES: u64 = 1 << 20;

impl Locator<'_> {
    pub fn tls(&mut self, module: &Arc<Module>, bias: u64, offset: u64) -> Result<u64, NoPlace> {
        let Some(pointer) = self
            .context
            .thread_pointer()
            .filter(|pointer| *pointer != 0)
        else {
            let message = "this thread has no variables of its own yet";
            return Err(NoPlace::Unknown(message.into()));
        };
        let block = self.catalog.tls_block(module);
        let unknown = || {
            NoPlace::Unknown(format!(
                "where {} has its thread-local variables isn't known",
                module.name().display()
            ))
        };
        match block.ok_or_else(unknown)? {
            TlsBlock::Below(distance) => Ok(pointer.wrapping_sub(distance).wrapping_add(offset)),
            TlsBlock::Offset { at, of } => {
                let distance = self.word(at.wrapping_add(bias))?;
                Ok(pointer
                    .wrapping_add(distance)
                    .wrapping_sub(of)
                    .wrapping_add(offset))
            }
            TlsBlock::Numbered(at) => {
                let number = self.word(at.wrapping_add(bias))?;
                if number == 0 || number > MOST_MODULES {
                    return Err(unknown());
                }
                let vector = self.word(pointer.wrapping_add(8))?;
                // musl's entries are pointers, glibc's are pairs.
                let musl = self.modules.modules().any(|image| {
                    let name = image.module.name().file_name();
                    name.is_some_and(|name| name.to_string_lossy().contains("ld-musl"))
                });
                let each = if musl { 8 } else { 16 };
                let block = self.word(vector.wrapping_add(number * each))?;
                // Not yet made for this thread: it hasn't touched any of them.
                if block == 0 || block == u64::MAX {
                    return Err(NoPlace::Unknown(
                        "this thread hasn't touched the library's variables yet".into(),
                    ));
                }
                Ok(block.wrapping_add(offset))
            }
        }
    }

    fn word(&mut self, address: u64) -> Result<u64, NoPlace> {
        let mut bytes = [0; 8];
        if self.context.read(address, &mut bytes) < 8 {
            return Err(NoPlace::Unreadable(address));
        }
        Ok(u64::from_le_bytes(bytes))
    }
}

/// What a module's file says.
pub(crate) fn block(module: &Module) -> Option<TlsBlock> {
    let elf = &module.elf;
    let data: &[u8] = &elf.bytes;
    let header = Header::parse(data).ok()?;
    let segments = header.program_headers(LE, data).ok()?;
    let own = segments
        .iter()
        .find(|segment| segment.p_type(LE) == elf::PT_TLS)?;
    if is_program(module) {
        let align = own.p_align(LE).max(1);
        if !align.is_power_of_two() {
            return None;
        }
        // As the C libraries place it: its end at the thread pointer, its start aligned.
        let first = own.p_vaddr(LE).wrapping_neg() & (align - 1);
        let size = own.p_memsz(LE).checked_sub(first)?;
        let distance = size.checked_next_multiple_of(align)?.checked_add(first)?;
        return Some(TlsBlock::Below(distance));
    }
    let symbols = elf.data(".dynsym").ok()?;
    let symbols = symbols.to_slice().ok()?;
    let relocations = elf.data(".rela.dyn").ok()?;
    let relocations = relocations.to_slice().ok()?;
    let mut offset = None;
    for raw in relocations.chunks_exact(RELOCATION) {
        let word = |at: usize| {
            let bytes = raw[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        let (at, info, addend) = (word(0), word(8), word(16));
        let (kind, symbol) = (info as u32, (info >> 32) as usize);
        // A symbol of this module, or none: others may be another module's.
        let value = match symbol {
            0 => Some(0),
            symbol => symbols
                .get(symbol * 24..symbol * 24 + 24)
                .and_then(|entry| {
                    let section = u16::from_le_bytes([entry[6], entry[7]]);
                    let value = u64::from_le_bytes(entry[8..16].try_into().expect("eight bytes"));
                    (section != 0).then_some(value)
                }),
        };
        let Some(value) = value else { continue };
        match kind {
            elf::R_X86_64_DTPMOD64 => return Some(TlsBlock::Numbered(at)),
            elf::R_X86_64_TPOFF64 => {
                offset = Some(TlsBlock::Offset {
                    at,
                    of: value.wrapping_add(addend),
                });
            }
            _ => {}
        }
    }
    offset
}

/// A program, not a library.
pub(crate) fn is_program(module: &Module) -> bool {
    let data: &[u8] = &module.elf.bytes;
    let fixed = Header::parse(data).is_ok_and(|header| header.e_type(LE) == elf::ET_EXEC);
    fixed || says_program(&module.elf)
}

/// A position-independent program says what it is.
fn says_program(elf: &Elf) -> bool {
    let Ok(dynamic) = elf.data(".dynamic") else {
        return false;
    };
    let Ok(dynamic) = dynamic.to_slice() else {
        return false;
    };
    dynamic.chunks_exact(16).any(|entry| {
        let word = |at: usize| {
            let bytes = entry[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        let says = word(0) == DYNAMIC_FLAGS_1 && word(8) & IS_PROGRAM != 0;
        says || word(0) == DYNAMIC_DEBUG
    })
}

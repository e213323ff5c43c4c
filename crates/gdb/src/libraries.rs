//! Shared libraries of the guest. In: its memory and auxiliary vector. Out: the list that the loader
//! keeps, as gdb reads it (`qXfer:libraries-svr4:read`).
//!
//! Given by the stub rather than read by gdb, because the stub knows which file of the recording is
//! mapped where a library lies, whatever its name means by now.

use crate::auxv::{AT_BASE, AT_PHDR, AT_PHNUM, Auxv};
use crate::xml;

const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_PHDR: u32 = 6;
const DT_DEBUG: u64 = 21;
const HEADER: u64 = 56;
/// No program has more; a list from damaged memory may go in circles.
const MOST: usize = 4096;
const LONGEST_NAME: usize = 4096;

/// Reads exactly so many bytes, or not at all.
pub type Read<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> bool;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    pub name: String,
    /// Of the loader's entry.
    pub entry: u64,
    /// Added to the addresses in the file.
    pub base: u64,
    /// Its dynamic section, in memory.
    pub dynamic: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Libraries {
    /// The program's own entry, 0 if there is none yet.
    pub main: u64,
    pub all: Vec<Library>,
}

impl Libraries {
    /// What the loader has in its list now: only itself before it has begun, nothing in a static program.
    pub fn read(auxv: &Auxv, read: Read) -> Libraries {
        let mut libraries = Libraries::listed(auxv, read);
        if libraries.all.is_empty()
            && let Some(itself) = loader_itself(auxv, read)
        {
            libraries.all.push(itself);
        }
        libraries
    }

    fn listed(auxv: &Auxv, read: Read) -> Libraries {
        let mut libraries = Libraries::default();
        let Some(mut entry) = debug(auxv, read).and_then(|debug| word(read, debug + 8)) else {
            return libraries;
        };
        libraries.main = entry;
        while entry != 0 && libraries.all.len() < MOST {
            let mut words = [0; 4 * 8];
            if !read(entry, &mut words) {
                break;
            }
            let word =
                |n: usize| u64::from_le_bytes(std::array::from_fn(|byte| words[8 * n + byte]));
            let (base, name, dynamic, next) = (word(0), word(1), word(2), word(3));
            // The first one is the program itself.
            if entry != libraries.main
                && let Some(name) = string(read, name)
                && !name.is_empty()
            {
                libraries.all.push(Library {
                    name,
                    entry,
                    base,
                    dynamic,
                });
            }
            entry = next;
        }
        libraries
    }

    pub fn xml(&self) -> String {
        let mut text = String::from("<library-list-svr4 version=\"1.0\"");
        if self.main != 0 {
            text.push_str(&format!(" main-lm=\"{:#x}\"", self.main));
        }
        text.push('>');
        for library in &self.all {
            let name = xml::escaped(&library.name);
            let Library {
                entry,
                base,
                dynamic,
                ..
            } = library;
            text.push_str(&format!(
                "<library name=\"{name}\" lm=\"{entry:#x}\" lmid=\"0x0\" l_addr=\"{base:#x}\" l_ld=\"{dynamic:#x}\"/>"
            ));
        }
        text.push_str("</library-list-svr4>");
        text
    }
}

/// The loader, which is mapped before it can put itself into its list.
fn loader_itself(auxv: &Auxv, read: Read) -> Option<Library> {
    let base = auxv.get(AT_BASE).filter(|&base| base != 0)?;
    let name = loader(auxv, read)?;
    let offset = word(read, base.checked_add(32)?)?;
    let count = word(read, base.checked_add(56)?)? & 0xffff;
    let segments = headers(read, base.checked_add(offset)?, count)?;
    let dynamic = segments.iter().find(|s| s.kind == PT_DYNAMIC)?;
    Some(Library {
        name,
        entry: 0,
        base,
        dynamic: base.wrapping_add(dynamic.addr),
    })
}

struct Segment {
    kind: u32,
    addr: u64,
    len: u64,
}

/// The program's segments, where they are in memory.
fn segments(auxv: &Auxv, read: Read) -> Option<Vec<Segment>> {
    let (at, count) = (auxv.get(AT_PHDR)?, auxv.get(AT_PHNUM)?);
    let mut segments = headers(read, at, count)?;
    // A position-independent program says where its headers should have been.
    let planned = segments.iter().find(|s| s.kind == PT_PHDR);
    let bias = planned.map_or(0, |planned| at.wrapping_sub(planned.addr));
    for segment in &mut segments {
        segment.addr = segment.addr.wrapping_add(bias);
    }
    Some(segments)
}

/// Segments as their headers say.
fn headers(read: Read, at: u64, count: u64) -> Option<Vec<Segment>> {
    let mut segments = Vec::new();
    for n in 0..count.min(64) {
        let mut header = [0; HEADER as usize];
        if !read(at.checked_add(n * HEADER)?, &mut header) {
            return None;
        }
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        segments.push(Segment {
            kind: word(0) as u32,
            addr: word(16),
            len: word(40),
        });
    }
    Some(segments)
}

/// The loader's `r_debug`.
fn debug(auxv: &Auxv, read: Read) -> Option<u64> {
    let segments = segments(auxv, read)?;
    let dynamic = segments.iter().find(|s| s.kind == PT_DYNAMIC)?;
    for n in 0..dynamic.len / 16 {
        let at = dynamic.addr.checked_add(n * 16)?;
        match word(read, at)? {
            DT_DEBUG => return word(read, at + 8).filter(|&debug| debug != 0),
            0 => return None,
            _ => {}
        }
    }
    None
}

/// The loader's path, as the program names it.
pub fn loader(auxv: &Auxv, read: Read) -> Option<String> {
    let segments = segments(auxv, read)?;
    let interp = segments.iter().find(|s| s.kind == PT_INTERP)?;
    string(read, interp.addr).filter(|name| !name.is_empty())
}

fn word(read: Read, addr: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    read(addr, &mut bytes).then(|| u64::from_le_bytes(bytes))
}

fn string(read: Read, mut addr: u64) -> Option<String> {
    let mut text = Vec::new();
    loop {
        // Up to the end of a page: what is behind it may not be there.
        let mut piece = vec![0; (4096 - addr % 4096).min(256) as usize];
        if !read(addr, &mut piece) {
            return None;
        }
        if let Some(end) = piece.iter().position(|&byte| byte == 0) {
            text.extend_from_slice(&piece[..end]);
            return Some(String::from_utf8_lossy(&text).into_owned());
        }
        text.extend_from_slice(&piece);
        addr = addr.checked_add(piece.len() as u64)?;
        if text.len() > LONGEST_NAME {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auxv::tests::made;

    /// A program at 0x40_0000 of which the loader has one library.
    fn memory() -> Vec<u8> {
        let mut memory = vec![0; 0x2000];
        let mut put = |at: usize, words: &[u64]| {
            for (n, word) in words.iter().enumerate() {
                memory[at + 8 * n..at + 8 * n + 8].copy_from_slice(&word.to_le_bytes());
            }
        };
        put(0x40, &[u64::from(PT_PHDR), 0, 0x40, 0, 0, 168, 0]);
        put(0x40 + 56, &[u64::from(PT_DYNAMIC), 0, 0x200, 0, 0, 64, 0]);
        put(0x40 + 112, &[u64::from(PT_INTERP), 0, 0x300, 0, 0, 8, 0]);
        put(0x200, &[1, 1, DT_DEBUG, 0x40_0400, 0, 0]);
        put(0x400, &[1, 0x40_0500]);
        put(0x500, &[0, 0x40_0600, 0x40_0200, 0x40_0540]);
        put(0x540, &[0x7000, 0x40_0608, 0x7100, 0x40_0500]);
        memory[0x300..0x307].copy_from_slice(b"/lib/ld");
        memory[0x608..0x60f].copy_from_slice(b"/lib/<x");
        memory
    }

    #[test]
    fn the_loaders_list_is_walked() {
        let memory = memory();
        let mut read = |addr: u64, into: &mut [u8]| {
            let Some(at) = addr.checked_sub(0x40_0000) else {
                return false;
            };
            let from = memory.get(at as usize..).and_then(|m| m.get(..into.len()));
            from.map(|from| into.copy_from_slice(from)).is_some()
        };
        let auxv = made(&[(AT_PHDR, 0x40_0040), (AT_PHNUM, 3)]);
        assert_eq!(loader(&auxv, &mut read).as_deref(), Some("/lib/ld"));
        let libraries = Libraries::read(&auxv, &mut read);
        assert_eq!(libraries.main, 0x40_0500);
        // It goes in a circle, which ends.
        assert_eq!(libraries.all.len(), MOST);
        assert_eq!(libraries.all[0].base, 0x7000);
        let one = Libraries {
            main: 1,
            all: libraries.all[..1].to_vec(),
        };
        assert_eq!(
            one.xml(),
            "<library-list-svr4 version=\"1.0\" main-lm=\"0x1\"><library name=\"/lib/&lt;x\" \
             lm=\"0x400540\" lmid=\"0x0\" l_addr=\"0x7000\" l_ld=\"0x7100\"/></library-list-svr4>"
        );
        let nothing = made(&[]);
        assert_eq!(Libraries::read(&nothing, &mut read), Libraries::default());
    }
}

//! What a process has mapped at a moment: modules with where they lie in, an address's module out.

use crate::Module;
use std::ops::Range;
use std::sync::Arc;

/// The executables, libraries and the vdso that a process has mapped at a moment.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    /// Sorted by where their ranges start; ranges don't overlap.
    images: Vec<Image>,
}

/// A mapped range of a module.
#[derive(Clone, Debug)]
pub struct Image {
    pub module: Arc<Module>,
    /// Process address = module address + bias (wrapping).
    pub bias: u64,
    /// Process addresses.
    pub range: Range<u64>,
}

impl Image {
    /// The address in the module's own terms, in which its symbols and DWARF speak.
    pub fn local(&self, address: u64) -> u64 {
        address.wrapping_sub(self.bias)
    }
}

/// A part of a file that a process has mapped, as `/proc/PID/maps` tells it.
#[derive(Clone, Debug)]
pub struct Mapping {
    pub range: Range<u64>,
    /// Where in the file the range starts.
    pub offset: u64,
}

impl Modules {
    pub fn new() -> Modules {
        Modules::default()
    }

    /// Adds a range with a known bias. What older ranges held there is forgotten.
    pub fn add(&mut self, module: Arc<Module>, bias: u64, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut cut = Vec::new();
        self.images.retain_mut(|image| {
            if image.range.end <= range.start || range.end <= image.range.start {
                return true;
            }
            let after = Image {
                range: range.end..image.range.end,
                ..image.clone()
            };
            if !after.range.is_empty() {
                cut.push(after);
            }
            image.range.end = range.start;
            !image.range.is_empty()
        });
        self.images.extend(cut);
        self.images.push(Image {
            module,
            bias,
            range,
        });
        self.images.sort_by_key(|image| image.range.start);
    }

    /// Adds a mapped part of the module's file; the bias comes from the program headers. Says
    /// false, and adds nothing, if no program header fits (a file mapped as data).
    ///
    /// All segments of a module have one bias. Where several program headers fit, because they share a page of the file, it is
    /// the one whose bias the module has already: parts come in the order of their addresses, or as the loader mapped them,
    /// and of the first one nobody doubts which it is.
    pub fn map(&mut self, module: &Arc<Module>, mapping: &Mapping) -> bool {
        let biases: Vec<u64> = module.biases(mapping.range.start, mapping.offset).collect();
        let known = |bias: &&u64| {
            let same = |image: &Image| image.bias == **bias && Arc::ptr_eq(&image.module, module);
            self.images.iter().any(same)
        };
        let Some(&bias) = biases.iter().find(known).or(biases.first()) else {
            return false;
        };
        self.add(module.clone(), bias, mapping.range.clone());
        true
    }

    /// The image that holds the process's address.
    pub fn find(&self, address: u64) -> Option<&Image> {
        let after = self
            .images
            .partition_point(|image| image.range.start <= address);
        let image = self.images.get(after.checked_sub(1)?)?;
        image.range.contains(&address).then_some(image)
    }

    /// The image whose memory an address is in: also what is mapped behind the file's bytes, as large variables are that
    /// begin as zeros.
    pub fn owner(&self, address: u64) -> Option<&Image> {
        let owns = |image: &&Image| image.module.holds(image.local(address));
        self.find(address).or_else(|| self.modules().find(owns))
    }

    /// All mapped ranges, by address.
    pub fn images(&self) -> &[Image] {
        &self.images
    }

    /// Each module once per bias, by address.
    pub fn modules(&self) -> impl Iterator<Item = &Image> {
        self.images.iter().enumerate().filter_map(|(index, image)| {
            let earlier = &self.images[..index];
            let same = |other: &Image| {
                other.bias == image.bias && Arc::ptr_eq(&other.module, &image.module)
            };
            (!earlier.iter().any(same)).then_some(image)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DebugSearch;
    use std::path::Path;

    /// A program without anything but these segments: offset, address, size.
    fn program(segments: &[(u64, u64, u64)]) -> Arc<Module> {
        let mut bytes = vec![0u8; 0x4000];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(16, &3u16.to_le_bytes());
        put(18, &62u16.to_le_bytes());
        put(20, &1u32.to_le_bytes());
        put(32, &64u64.to_le_bytes());
        put(52, &64u16.to_le_bytes());
        put(54, &56u16.to_le_bytes());
        put(56, &(segments.len() as u16).to_le_bytes());
        for (n, (offset, address, size)) in segments.iter().enumerate() {
            let at = 64 + 56 * n;
            put(at, &1u32.to_le_bytes());
            put(at + 4, &5u32.to_le_bytes());
            for (field, value) in [(8, offset), (16, address), (32, size), (40, size)] {
                put(at + field, &value.to_le_bytes());
            }
        }
        let path = Path::new("program");
        Arc::new(Module::from_bytes(bytes, path, &DebugSearch::default()).unwrap())
    }

    /// Three segments in one page of the file, each at a page of its own.
    #[test]
    fn segments_that_share_a_page_are_one_module() {
        let module = program(&[
            (0, 0, 0x1200),
            (0x1200, 0x2200, 0x100),
            (0x1300, 0x3300, 0x800),
        ]);
        let base = 0x5000_0000;
        let mut modules = Modules::new();
        for (start, end, offset) in [
            (0, 0x2000, 0),
            (0x2000, 0x3000, 0x1000),
            (0x3000, 0x4000, 0x1000),
        ] {
            let mapping = Mapping {
                range: base + start..base + end,
                offset,
            };
            assert!(modules.map(&module, &mapping));
        }
        assert_eq!(modules.modules().count(), 1);
        assert!(modules.images().iter().all(|image| image.bias == base));
        let local = |address| modules.find(address).unwrap().local(address);
        assert_eq!(local(base + 0x3300), 0x3300);
        // Mapped a second time elsewhere, it is another one.
        let again = Mapping {
            range: 0x7000_0000..0x7000_2000,
            offset: 0,
        };
        assert!(modules.map(&module, &again));
        assert_eq!(modules.modules().count(), 2);
    }
}

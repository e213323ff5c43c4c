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
    pub fn map(&mut self, module: &Arc<Module>, mapping: &Mapping) -> bool {
        let Some(bias) = module.bias(mapping.range.start, mapping.offset) else {
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

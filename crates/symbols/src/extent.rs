//! What unwind information says of code besides the way to a caller: where functions begin and end, and where they keep
//! the registers that they have to give back. In: an address of a module. Out: that.

use std::ops::Range;

use crate::unwind::Saved;
use crate::{Module, Modules};

impl Module {
    /// The piece of code around an address that unwind information knows as one: a function, or a part of one.
    pub fn extent(&self, address: u64) -> Option<Range<u64>> {
        Some(self.cfi().find(address)?.extent())
    }

    /// What the file holds for these addresses.
    pub fn bytes(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let reader = self.elf.mapped(range)?;
        gimli::Reader::to_slice(&reader).ok().map(Into::into)
    }
}

impl Modules {
    /// The registers that a function has saved by the time it comes to an instruction, and where.
    pub fn saved(&self, pc: u64) -> Vec<Saved> {
        let saved = || {
            let image = self.find(pc)?;
            let address = image.local(pc);
            Some(image.module.cfi().find(address)?.saved(address))
        };
        saved().unwrap_or_default()
    }
}

//! What a recording and its replay may see of a thread's registers: registers in, a checksum of what is visible out.
//!
//! Dead flags are the only thing that depends on how a thread came to a place: a tick may have spoiled them
//! (`translate/flags.rs`). Whoever looks sees them as 0; all else is exact, and compared.

use crate::cache::maybe_spoiled;
use crate::context::{GsBlock, Regs, Xsave};
use crate::host::switch;
use crate::memory::Memory;

/// Of the registers of the thread that is running here.
pub fn checksum(gs: &mut GsBlock, memory: &Memory) -> u64 {
    let mut extended = Xsave::default();
    switch::save_extended(gs, &mut extended);
    checksum_of(&gs.regs, &extended, memory)
}

/// Of registers that are kept somewhere.
pub fn checksum_of(regs: &Regs, extended: &Xsave, memory: &Memory) -> u64 {
    let mut seen = *regs;
    seen.rflags &= !maybe_spoiled(memory, regs.rip);
    let sum = mix(0x9e37_79b9_7f4a_7c15, seen.words().iter().copied());
    let words = extended.0.chunks_exact(8);
    mix(
        sum,
        words.map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes"))),
    )
}

fn mix(sum: u64, words: impl Iterator<Item = u64>) -> u64 {
    words.fold(sum, |sum, word| {
        let sum = (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        sum ^ sum >> 32
    })
}

//! What a recording and its replay may see of a thread's registers: registers in, a checksum of what is visible out.
//!
//! Dead flags are the only thing that depends on how a thread came to a place: a tick may have spoiled them
//! (`translate/flags.rs`). Whoever looks sees them as 0; all else is exact, and compared.

use clew_recording::event::View;

use crate::cache::maybe_spoiled;
use crate::context::{GsBlock, Regs, Xsave};
use crate::host::switch;
use crate::memory::Memory;

const ARITHMETIC: u64 = 0x8d5;

/// Of the registers of the thread that is running here.
pub fn checksum(gs: &mut GsBlock, memory: &Memory, view: View) -> u64 {
    let mut extended = Xsave::default();
    if view == View::Whole {
        switch::save_extended(gs, &mut extended);
    }
    checksum_of(&gs.regs, &extended, memory, view)
}

/// Of registers that are kept somewhere.
pub fn checksum_of(regs: &Regs, extended: &Xsave, memory: &Memory, view: View) -> u64 {
    let mut seen = *regs;
    seen.rflags &= !match view {
        View::General => ARITHMETIC,
        View::Whole => maybe_spoiled(memory, regs.rip),
    };
    let sum = mix(0x9e37_79b9_7f4a_7c15, seen.words().iter().copied());
    match view {
        View::General => sum,
        View::Whole => {
            let words = extended.0.chunks_exact(8);
            mix(
                sum,
                words.map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes"))),
            )
        }
    }
}

fn mix(sum: u64, words: impl Iterator<Item = u64>) -> u64 {
    words.fold(sum, |sum, word| {
        let sum = (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        sum ^ sum >> 32
    })
}

//! Shows a block beside its translation: guest instructions on the left margin, the host code made
//! from each indented below it.

use std::fmt::Write;

use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter};

use super::Block;
use crate::cache::region::Region;

/// The newest block of a region as text.
pub fn block(region: &Region, block: &Block) -> String {
    let mut text = String::new();
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_branch_leading_zeros(false);
    let _ = writeln!(
        text,
        "block {:#x}: {} instructions",
        block.entry, block.instructions
    );
    for run in region.newest_runs(block.guest.len()) {
        let _ = writeln!(
            text,
            "  run {:#x}..{:#x}",
            run.guest,
            run.guest + run.guest_len as u64
        );
        let places: Vec<_> = region.places(&run).collect();
        for (n, place) in places.iter().enumerate() {
            let guest_end = places
                .get(n + 1)
                .map_or(run.guest + run.guest_len as u64, |p| p.guest);
            let host_end = places
                .get(n + 1)
                .map_or(run.host + run.host_len, |p| p.host);
            list(&mut text, &mut formatter, "", place.guest, guest_end);
            list(
                &mut text,
                &mut formatter,
                "        ",
                place.host as u64,
                host_end as u64,
            );
        }
    }
    text
}

fn list(text: &mut String, formatter: &mut IntelFormatter, indent: &str, from: u64, to: u64) {
    // SAFETY: both ranges belong to the block that was just made: guest code that was decoded, and
    // host code inside its region.
    let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, (to - from) as usize) };
    let mut decoder = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        let _ = writeln!(text, "  {indent}{:#x}  {line}", instruction.ip());
    }
}

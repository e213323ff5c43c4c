//! A deliberate mistake: `--debug spoil=N` mistranslates one instruction of the first suitable
//! block from number N on, to see the checker find it. It plays the part of a bad optimisation:
//! blocks that aren't optimised (`bisect`) stay right.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind, Register};

use crate::cache::region::{Region, write_code};
use crate::translate::Block;

/// Changes a constant at the beginning of the newest block of `region`, where it is sure to be
/// executed; false if there is none.
pub fn block(region: &Region, block: &Block) -> bool {
    let Some(run) = region
        .newest_runs(block.guest.len())
        .into_iter()
        .find(|run| run.host >= block.entry)
    else {
        return false;
    };
    for place in region.places(&run) {
        let guest = (run.guest + run.guest_len as u64 - place.guest).min(15) as usize;
        let host = (run.host + run.host_len - place.host).min(15) as usize;
        // SAFETY: both belong to the block that was just made.
        let (guest, host) = unsafe {
            (
                std::slice::from_raw_parts(place.guest as *const u8, guest),
                std::slice::from_raw_parts(place.host as *const u8, host),
            )
        };
        let ins = Decoder::with_ip(64, guest, place.guest, DecoderOptions::NONE).decode();
        if ins.flow_control() != FlowControl::Next {
            return false;
        }
        if let Some(at) = constant(guest).filter(|&at| host.get(..=at) == guest.get(..=at)) {
            write_code(place.host + at as u32, &[guest[at] ^ 1]);
            return true;
        }
    }
    false
}

/// Where an instruction that moves the stack pointer by a constant has it.
fn constant(bytes: &[u8]) -> Option<usize> {
    let mut decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
    let ins = decoder.decode();
    // The stack pointer lives on: nothing makes the mistake unseen.
    let suits = matches!(ins.mnemonic(), Mnemonic::Add | Mnemonic::Sub)
        && ins.op0_kind() == OpKind::Register
        && ins.op0_register() == Register::RSP;
    let offsets = decoder.get_constant_offsets(&ins);
    (suits && offsets.has_immediate()).then_some(offsets.immediate_offset())
}

#[cfg(test)]
mod tests {
    #[test]
    fn constants_are_found() {
        // sub rsp, 8; sub rax, 8; sub rsp, rax
        assert_eq!(super::constant(&[0x48, 0x83, 0xec, 8]), Some(3));
        assert_eq!(super::constant(&[0x48, 0x83, 0xe8, 8]), None);
        assert_eq!(super::constant(&[0x48, 0x29, 0xc4]), None);
    }
}

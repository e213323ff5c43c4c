//! Between engine and translated code. (Stand-in: the translator's author writes this file.)

use crate::context::{GsBlock, Xsave};

/// Where a handler sends a fault in translated code: saves the state like any exit.
pub fn exit_fault_address() -> u64 {
    0
}

/// Stores x87 (live), `gs.ymm` and `gs.mxcsr` in XSAVE format.
pub fn save_extended(gs: &mut GsBlock, area: &mut Xsave) {
    area.0[24..28].copy_from_slice(&gs.mxcsr.to_le_bytes());
    for (i, ymm) in gs.ymm.iter().enumerate() {
        area.0[160 + 16 * i..176 + 16 * i].copy_from_slice(&ymm[..16]);
        area.0[576 + 16 * i..592 + 16 * i].copy_from_slice(&ymm[16..]);
    }
}

/// Loads what [`save_extended`] stored.
pub fn load_extended(gs: &mut GsBlock, area: &Xsave) {
    gs.mxcsr = u32::from_le_bytes([area.0[24], area.0[25], area.0[26], area.0[27]]);
    for (i, ymm) in gs.ymm.iter_mut().enumerate() {
        ymm[..16].copy_from_slice(&area.0[160 + 16 * i..176 + 16 * i]);
        ymm[16..].copy_from_slice(&area.0[576 + 16 * i..592 + 16 * i]);
    }
}

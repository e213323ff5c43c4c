//! Stubs: the pieces of code that indirect branches and used-up budgets go through.

use super::emit::{CC_Z, Emitter, RCX};
use super::{Fetch, flags, live_flags};
use crate::cache::region::{Region, Stub};
use crate::context::{BUDGET_RCX, Exit, TARGET};

/// Adds a dispatch stub for `pc`, whose translation starts at `entry`.
/// `look`: the code at `pc` can't change, so it may tell which flags are dead.
pub fn add_stub(region: &mut Region, fetch: &dyn Fetch, pc: u64, entry: u32, look: bool) {
    let mut code = Emitter::new(region.hot);
    let live = if look {
        live_flags(fetch, pc)
    } else {
        flags::ALL
    };
    dispatch_stub(region, &mut code, pc, live);
    let jump = code.jmp();
    code.bind(jump, entry);
    region.place_hot(&code);
}

/// Emits the stub that an indirect branch to `pc` goes through; falls through on a match.
pub(super) fn dispatch_stub(region: &mut Region, code: &mut Emitter, pc: u64, live: u32) {
    let keeps_flags = live & flags::DEC != 0;
    // The way out comes first, where a short jump reaches it and nobody else runs through it.
    let spent = code.here();
    if keeps_flags {
        let out = code.jmp();
        code.bind(out, budget_stub(region, pc, BUDGET_RCX));
    }
    let host = code.here();
    // Others pass through here on their way to a target whose flags may be live: the comparison
    // touches none.
    if pc <= i32::MAX as u64 {
        code.load_gs(RCX, TARGET);
        code.lea_rcx(-(pc as i32));
    } else {
        const RDX: u8 = 2;
        code.spill(1, RDX);
        code.mov_imm(RDX, pc.wrapping_neg());
        code.load_gs(RCX, TARGET);
        // lea rcx, [rcx + rdx]
        code.raw(&[0x48, 0x8d, 0x0c, 0x11]);
        code.unspill(RDX, 1);
    }
    let hit = code.jrcxz();
    let next = code.jmp();
    code.bind_short(hit);
    if keeps_flags {
        code.tick_rcx();
        code.jrcxz_back(spent);
        code.unspill(RCX, 0);
    } else {
        code.unspill(RCX, 0);
        code.tick_dec();
        let out = code.jcc(CC_Z);
        code.bind(out, budget_stub(region, pc, Exit::Budget as usize));
    }
    code.bind(next, region.miss_thunk);
    let next = code.address(next.0);
    region.add_stub(pc, Stub { host, next });
}

/// A stub that leaves the cache because the budget is used up; the guest goes on at `pc`.
pub(super) fn budget_stub(region: &mut Region, pc: u64, routine: usize) -> u32 {
    region.place_cold(
        |stub| {
            stub.exit_arg(pc);
            stub.exit(routine);
        },
        exit_stub_len(pc),
    )
}

/// Size of a stub that names a guest pc and leaves.
pub(crate) fn exit_stub_len(pc: u64) -> u32 {
    if pc > u32::MAX as u64 { 29 } else { 18 }
}

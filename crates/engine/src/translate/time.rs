//! Time calls without leaving the cache: the guest's vdso functions call the host's.
//!
//! Natively `clock_gettime` costs 25 ns and no kernel entry; programs call it by the million. The
//! host's function writes into the [`GsBlock`], from where translated code copies to the guest, so
//! that a bad pointer faults at a guest instruction. The host's vdso uses no vector registers and
//! no thread-local storage, so neither is switched.

use std::mem::offset_of;

use super::emit::{CC_NZ, CC_Z, Emitter, RCX};
use crate::context::{GsBlock, Regs, SPILL};
use crate::layout;
use crate::vdso::VdsoCall;

const TIME: usize = offset_of!(GsBlock, time);
const GPR: usize = offset_of!(GsBlock, regs) + offset_of!(Regs, gpr);
const RSP: u8 = 4;
const RSI: u8 = 6;
const RDI: u8 = 7;

/// rcx, rdx, rsi, rdi, r8 to r11: what a call may change, apart from rax.
const CALLER_SAVED: [u8; 8] = [1, 2, 6, 7, 8, 9, 10, 11];

/// Can this call be answered in the cache?
pub fn is_fast(call: VdsoCall) -> bool {
    matches!(
        call,
        VdsoCall::ClockGettime | VdsoCall::Gettimeofday | VdsoCall::Time
    )
}

/// Emits the call in place of its `syscall` instruction; `slow` emits the ordinary way out.
pub fn emit(code: &mut Emitter, call: VdsoCall, slow: impl FnOnce(&mut Emitter)) {
    code.spill(0, RCX);
    match call {
        VdsoCall::ClockGettime => {
            host_call(code, 0, RSI);
            // On failure nothing is written: test eax, eax
            code.raw(&[0x85, 0xc0]);
            let failed = code.jcc_short(CC_NZ);
            copy_out(code, RSI, 2);
            code.bind_short(failed);
        }
        VdsoCall::Gettimeofday => {
            // The time zone is asked for by nobody in this century: test rsi, rsi
            code.raw(&[0x48, 0x85, 0xf6]);
            let usual = code.jcc_short(CC_Z);
            slow(code);
            code.bind_short(usual);
            host_call(code, 1, RDI);
            // A null pointer is allowed: test rdi, rdi
            code.raw(&[0x48, 0x85, 0xff]);
            let nothing = code.jcc_short(CC_Z);
            copy_out(code, RDI, 2);
            code.bind_short(nothing);
        }
        VdsoCall::Time => {
            host_call(code, 2, RDI);
            code.raw(&[0x48, 0x85, 0xff]);
            let nothing = code.jcc_short(CC_Z);
            copy_out(code, RDI, 1);
            code.bind_short(nothing);
        }
        VdsoCall::Getcpu | VdsoCall::ClockGetres => unreachable!("not a fast call"),
    }
    code.unspill(RCX, 0);
}

/// Calls a host function on the engine's stack, with `into` pointing to `gs.time`.
fn host_call(code: &mut Emitter, function: usize, into: u8) {
    for reg in CALLER_SAVED {
        code.store_gs(GPR + 8 * reg as usize, reg);
    }
    code.store_gs(SPILL + 16, RSP);
    code.load_gs(RSP, offset_of!(GsBlock, engine_rsp));
    // `enter` left the stack eight bytes off the alignment that a call needs.
    code.adjust_rsp(-8);
    code.mov_imm(into, layout::GS_BLOCK + TIME as u64);
    code.call_gs(offset_of!(GsBlock, vdso) + 8 * function);
    code.load_gs(RSP, SPILL + 16);
    for reg in CALLER_SAVED {
        code.load_gs(reg, GPR + 8 * reg as usize);
    }
}

/// Copies words of `gs.time` to the guest; rcx is free.
fn copy_out(code: &mut Emitter, to: u8, words: u8) {
    for word in 0..words {
        code.load_gs(RCX, TIME + 8 * word as usize);
        // mov [to + 8*word], rcx
        code.raw(&[0x48, 0x89, 0x48 | to, 8 * word]);
    }
}

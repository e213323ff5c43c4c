//! Guests that single-step themselves: with the trap flag set, every instruction ends in SIGTRAP.
//!
//! The flag never reaches the CPU, where it would trap inside translated code: instructions run
//! one at a time in throw-away translations, and the signal is raised here.

use clew_recording::event::Cause;

use crate::context::{Exit, RSP};
use crate::executor::Executor;
use crate::guest::access;
use crate::host::siginfo::Siginfo;

pub const TRAP_FLAG: u64 = 0x100;

const TRAP_TRACE: i32 = 2;
const DEBUG_TRAP: u64 = 1;
const PUSHF: u8 = 0x9c;
pub(crate) const POPF: u8 = 0x9d;

impl Executor {
    /// Runs one instruction of a guest thread that has the trap flag set, and raises its trap.
    pub(crate) fn enter_trapping(&mut self) -> Exit {
        let opcode = opcode_at(self.gs.regs.rip);
        // A check here sees the flag, as in a replay.
        self.note_budget();
        self.gs.regs.rflags &= !TRAP_FLAG;
        let exit = self
            .code
            .step(self.gs, &mut self.memory, &mut self.stats, 1);
        if exit != Exit::Attention {
            self.nothing_happened();
            self.threads.steps = 0;
        }
        // popf has set the flag as it wants it; the emulation of other values does so too.
        if opcode != Some(POPF) || exit == Exit::Attention {
            self.gs.regs.rflags |= TRAP_FLAG;
        }
        match exit {
            // Nothing was executed, or what there is to tell comes first.
            Exit::Attention | Exit::Fault => return exit,
            Exit::Syscall | Exit::Emulate => self.handle(exit),
            // To a recording the trap is a signal that comes one step after the last event.
            _ => self.threads.steps = 1,
        }
        if opcode == Some(PUSHF) {
            let top = self.gs.regs.gpr[RSP];
            if let Ok(pushed) = access::read::<u16>(top) {
                // The push has just succeeded, so this does.
                let _ = access::write(top, &(pushed | TRAP_FLAG as u16));
            }
        }
        let rip = self.gs.regs.rip;
        self.current().signals.trap.trapno = DEBUG_TRAP;
        self.current().signals.trap.err = 0;
        let info = Siginfo::fault(libc::SIGTRAP, TRAP_TRACE, rip);
        self.force(&info, Cause::Outside);
        Exit::Attention
    }
}

/// The opcode of the instruction at `pc`, behind an operand-size or REX prefix.
pub(crate) fn opcode_at(pc: u64) -> Option<u8> {
    let first = access::read::<u8>(pc).ok()?;
    if first == 0x66 || first & 0xf0 == 0x40 {
        return access::read::<u8>(pc + 1).ok();
    }
    Some(first)
}

//! Synchronous signals: an instruction of the guest raised them, so they can't wait.

use clew_recording::event::Cause;

use super::Trap;
use crate::context::Fault;
use crate::executor::Executor;
use crate::host::siginfo::{SI_KERNEL, Siginfo};
use crate::memory::govern;

const PAGE_FAULT: u64 = 14;
const WRITE: u64 = 2;
const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;

impl Executor {
    /// A synchronous fault happened at `gs.fault`; `gs.regs` are recovered guest registers.
    pub fn fault(&mut self) {
        let fault = self.gs.fault;
        let page_fault = fault.signo == libc::SIGSEGV && fault.trapno == PAGE_FAULT;
        if page_fault && self.recording() && govern::touch_for(fault.addr, fault.err & WRITE != 0) {
            return self.record_touch(&fault);
        }
        if page_fault && fault.err & WRITE != 0 && self.code_write_fault(fault.addr) {
            return;
        }
        let code = if page_fault {
            // The kernel sees the engine's reservations; the guest's own mappings decide.
            if self.is_mapped(fault.addr) {
                SEGV_ACCERR
            } else {
                SEGV_MAPERR
            }
        } else {
            fault.code
        };
        let addr = match fault.signo {
            // The kernel names the instruction, which is translated code.
            libc::SIGILL | libc::SIGFPE => self.gs.regs.rip,
            libc::SIGTRAP if code != SI_KERNEL => self.gs.regs.rip,
            _ => fault.addr,
        };
        self.current().signals.trap = Trap {
            trapno: fault.trapno,
            err: fault.err,
            cr2: fault.cr2,
        };
        self.force(&Siginfo::fault(fault.signo, code, addr), Cause::Fault);
    }

    /// A fault that the engine found itself (`int3`, a fetch from unmapped memory, ...).
    pub fn raise_fault(&mut self, signo: i32, code: i32, addr: u64, trapno: u64, err: u64) {
        let cr2 = if trapno == PAGE_FAULT {
            addr
        } else {
            self.current().signals.trap.cr2
        };
        self.gs.fault = Fault {
            signo,
            code,
            addr,
            trapno,
            err,
            cr2,
            host_pc: 0,
        };
        self.fault();
    }

    /// Makes the current thread take `info` now: a signal that is blocked, ignored or without
    /// handler kills, as the kernel has it.
    pub fn force(&mut self, info: &Siginfo, cause: Cause) {
        let sig = info.signo();
        if self.current().signals.mask.contains(sig) || !self.signals.has_handler(sig) {
            self.die(sig, cause);
        }
        self.run_handler(info, cause);
        self.unblock_in_kernel();
    }
}

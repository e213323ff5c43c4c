//! Running translated code: in, out, and back to the guest's terms after a fault.

use super::region::{Displaced, Spilled};
use super::view::page_after;
use super::{CodeCache, FetchFault, View};
use crate::context::{Exit, Fault, GsBlock, R11, RBX, RCX, RSI, RSP};
use crate::guest::access;
use crate::host::switch;
use crate::memory::{Fetch as Fetched, Memory};
use crate::stats::Stats;
use crate::translate;

impl CodeCache {
    /// Runs translated code for `gs.regs` until something needs the executor.
    ///
    /// [`Exit::Attention`] means that nothing has run. Once code has run, a signal doesn't end this
    /// before the next tick (the handler has cut the budget): in between, there is no place that
    /// could be found again.
    pub fn enter(&mut self, gs: &mut GsBlock, memory: &mut Memory, stats: &mut Stats) -> Exit {
        self.run_from(gs, memory, stats, false, false)
    }

    /// The same between two places that can be found again: a signal doesn't hold it back.
    pub fn go_on(&mut self, gs: &mut GsBlock, memory: &mut Memory, stats: &mut Stats) -> Exit {
        self.run_from(gs, memory, stats, true, false)
    }

    /// `midway`: this isn't a place that can be found again. `past`: the instruments of the first
    /// instruction don't count.
    pub(super) fn run_from(
        &mut self,
        gs: &mut GsBlock,
        memory: &mut Memory,
        stats: &mut Stats,
        midway: bool,
        mut past: bool,
    ) -> Exit {
        let (mut ran, mut called) = (midway, false);
        let exit = loop {
            let exit = self.run_once(gs, memory, stats, past);
            // Nothing has run when attention was called for.
            past &= exit == Some(Exit::Attention);
            match exit {
                Some(Exit::Break | Exit::Watch) if self.instruments.ignore => past = true,
                Some(Exit::Watch) if self.is_traced() => {
                    self.trace_touched(gs);
                    past = true;
                }
                Some(Exit::Attention) if ran => {
                    called |= gs.take_attention();
                    // A handler can't cut a counter that is just on its way out of a tight loop.
                    gs.leave_one_tick();
                }
                Some(exit) => break exit,
                None => {}
            }
            ran = true;
        };
        if called {
            gs.attention = 1;
        }
        exit
    }

    /// Runs until translated code leaves for any reason; None if it was the cache's own business.
    fn run_once(
        &mut self,
        gs: &mut GsBlock,
        memory: &mut Memory,
        stats: &mut Stats,
        past: bool,
    ) -> Option<Exit> {
        if memory.stale_pending() {
            self.forget_stale(memory);
        }
        if self.dispatch_dirty {
            self.instrument_for_tests(gs, memory);
            self.reset_dispatch(gs);
        }
        if self.stubs_waiting {
            self.install_stubs(gs);
        }
        let pc = gs.regs.rip;
        let entry = match self.entry(pc, memory, stats) {
            Ok(entry) => entry,
            Err(FetchFault(addr)) => return Some(fetch_fault(gs, memory, addr)),
        };
        let entry = if past { self.past_checks(entry) } else { entry };
        gs.resume = entry as u64;
        gs.code = &raw const *self;
        stats.entering();
        if self.trace {
            eprintln!(
                "clew: enter {pc:#x} at {entry:#x}, {} ticks left",
                gs.ticks_left
            );
        }
        // SAFETY: `entry` is a translation of the instruction at `gs.regs.rip`, and gs is set.
        let mut exit = unsafe { switch::enter(gs) };
        while exit == Exit::Fault && self.is_trace_full(gs) {
            gs.resume = gs.fault.host_pc;
            // Only replays are traced: no signal is for them.
            gs.take_attention();
            // SAFETY: the very instruction that has faulted, with its registers.
            exit = unsafe { switch::enter(gs) };
        }
        stats.left(exit);
        let arg = std::mem::take(&mut gs.exit_arg);
        match exit {
            Exit::Link => self.link(gs, arg as u32, memory, stats),
            Exit::Indirect => {
                if !is_canonical(gs.target) {
                    return Some(self.refused_branch(gs));
                }
                gs.regs.rip = gs.target;
                // The stub would have counted.
                gs.add_ticks(-1);
                self.indirect(gs, memory, stats);
                if gs.ticks_left == 0 {
                    return Some(Exit::Budget);
                }
            }
            Exit::Stale => gs.regs.rip = arg,
            Exit::Syscall => {
                gs.regs.rip = arg;
                self.before_call = [gs.regs.gpr[RCX], gs.regs.gpr[R11]];
                gs.regs.gpr[RCX] = arg;
                gs.regs.gpr[R11] = gs.regs.rflags;
                return Some(exit);
            }
            // Straight-line code went on into another body of code.
            Exit::Step => gs.regs.rip = arg,
            Exit::Budget | Exit::Emulate | Exit::Break | Exit::Watch => {
                gs.regs.rip = arg;
                return Some(exit);
            }
            Exit::Fault => {
                self.recover(gs);
                self.trace_fault(gs);
                return Some(exit);
            }
            Exit::Attention => return Some(exit),
        }
        None
    }

    /// Puts `gs.regs` into the guest's terms after a fault inside translated code.
    pub(super) fn recover(&mut self, gs: &mut GsBlock) {
        // int3, int 4 and, on some CPUs, int1 report behind themselves; they are copied as they are.
        const BREAKPOINT: u64 = 3;
        const OVERFLOW: u64 = 4;
        const DEBUG: u64 = 1;
        let host = gs.fault.host_pc as u32;
        let behind = match gs.fault.trapno {
            BREAKPOINT | OVERFLOW => 1,
            DEBUG => {
                // SAFETY: translated code, where at least two bytes follow any instruction that traps.
                let next = unsafe { *(host as u64 as *const [u8; 2]) };
                (next == translate::BEHIND_INT1) as u32
            }
            _ => 0,
        };
        let place = self
            .place_of(host - behind)
            .unwrap_or_else(|| panic!("a fault at {host:#x}, which no guest instruction explains"));
        gs.regs.rip = if behind != 0 {
            let start = self
                .region_of_host(place.host)
                .map_or(place.host, |region| region.past_checks(place.host));
            place.guest + (host - start) as u64
        } else {
            place.guest
        };
        match place.spilled {
            Spilled::None => {}
            Spilled::Rcx => gs.regs.gpr[RCX] = gs.spill[0],
            Spilled::Reg(r) => gs.regs.gpr[r as usize] = gs.spill[1],
            Spilled::Xsave(r) => {
                gs.regs.gpr[0] = gs.spill[1];
                gs.regs.gpr[2] = gs.spill[2];
                gs.regs.gpr[r as usize] = gs.spill[3];
            }
            Spilled::Loop(r) => {
                gs.ticks_left = gs.regs.gpr[r as usize] as i64;
                gs.regs.gpr[r as usize] = gs.spill[3];
            }
            Spilled::Displaced(which, r) => {
                gs.regs.gpr[r as usize] = gs.spill[1];
                let displaced = if which == Displaced::Rsi { RSI } else { RBX };
                let base = gs.regs.gs_base;
                let register = &mut gs.regs.gpr[displaced];
                *register = register.wrapping_sub(base);
            }
        }
    }

    /// The CPU refuses a branch to a non-canonical address at the branch itself.
    pub(super) fn refused_branch(&mut self, gs: &mut GsBlock) -> Exit {
        const SI_KERNEL: i32 = 0x80;
        const GENERAL_PROTECTION: u64 = 13;
        let source = gs.source as u32;
        let place = self
            .place_of(source)
            .expect("an indirect branch belongs to an instruction");
        gs.regs.rip = place.guest;
        // Undo what the branch did to the stack pointer.
        let mut bytes = [0u8; 15];
        let room = (page_after(place.guest) - place.guest).min(15) as usize;
        // All of it, or what is on its page; it has just run, so it is there.
        let _ = access::read_bytes(place.guest, &mut bytes)
            .or_else(|_| access::read_bytes(place.guest, &mut bytes[..room]));
        let ins = iced_x86::Decoder::with_ip(64, &bytes, place.guest, 0).decode();
        let moved = ins.stack_pointer_increment() as i64 as u64;
        gs.regs.gpr[RSP] = gs.regs.gpr[RSP].wrapping_sub(moved);
        gs.fault = Fault {
            signo: libc::SIGSEGV,
            code: SI_KERNEL,
            trapno: GENERAL_PROTECTION,
            ..Fault::default()
        };
        Exit::Fault
    }
}

/// Flags that translated code may have spoiled where a thread stands at `pc`: the program writes them
/// again before it reads them. Whoever looks at a thread's registers sees them as 0.
pub fn maybe_spoiled(memory: &Memory, pc: u64) -> u64 {
    match memory.fetch(pc) {
        // In code that may change only tight loops spoil any, and they look no further than this does.
        Fetched::Executable(code) if code.immutable || !code.shared => {
            let live = translate::live_flags(&View::of(memory), pc);
            u64::from(translate::flags::hardware(translate::flags::DEC & !live))
        }
        _ => 0,
    }
}

/// Addresses have 47 bits here, or their complement.
pub(super) fn is_canonical(addr: u64) -> bool {
    ((addr as i64) << 16 >> 16) as u64 == addr
}

/// The guest jumped to where nothing can be executed.
pub(super) fn fetch_fault(gs: &mut GsBlock, memory: &Memory, addr: u64) -> Exit {
    const SEGV_MAPERR: i32 = 1;
    const SEGV_ACCERR: i32 = 2;
    let found = memory.fetch(addr);
    if matches!(found, Fetched::Executable(_)) {
        // It may be executed, but the file has no such page.
        const BUS_ADRERR: i32 = 2;
        gs.fault = Fault {
            signo: libc::SIGBUS,
            code: BUS_ADRERR,
            addr,
            trapno: 14,
            err: 0x14,
            cr2: addr,
            host_pc: 0,
        };
        return Exit::Fault;
    }
    let mapped = matches!(found, Fetched::NotExecutable);
    gs.fault = Fault {
        signo: libc::SIGSEGV,
        code: if mapped { SEGV_ACCERR } else { SEGV_MAPERR },
        addr,
        trapno: 14,
        // user, instruction fetch, and present if mapped
        err: if mapped { 0x15 } else { 0x14 },
        cr2: addr,
        host_pc: 0,
    };
    Exit::Fault
}

//! Registers of both sides, and where they differ.

use super::native::Barrier;
use super::twin::{Stop, Twin};
use crate::context::{GsBlock, R11, RCX, Xsave};
use crate::executor::Executor;
use crate::host::switch;

/// CF, PF, AF, ZF, SF, OF: what instructions compute.
pub const ARITHMETIC: u64 = 0x8d5;
/// DF, AC, ID: what they only carry.
const CARRIED: u64 = 0x24_0400;

pub const GPR_NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// All that a guest can see of its registers.
#[derive(Clone, Debug)]
pub struct State {
    pub gpr: [u64; 16],
    pub rip: u64,
    pub rflags: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub mxcsr: u32,
    pub ymm: [[u8; 32]; 16],
    /// Control, status, tags.
    pub x87: [u16; 3],
    pub st: [[u8; 10]; 8],
}

impl State {
    pub fn of_original(gs: &mut GsBlock) -> State {
        let mut area = Xsave::default();
        switch::save_extended(gs, &mut area);
        let regs = &gs.regs;
        let mut state = State::of_area(&area.0);
        state.gpr = regs.gpr;
        (state.rip, state.rflags) = (regs.rip, regs.rflags);
        (state.fs_base, state.gs_base) = (regs.fs_base, regs.gs_base);
        state
    }

    /// `area` is in the standard XSAVE format, as ptrace gives it.
    pub fn of_twin(regs: &libc::user_regs_struct, area: &[u8]) -> State {
        let mut state = State::of_area(area);
        state.gpr = [
            regs.rax, regs.rcx, regs.rdx, regs.rbx, regs.rsp, regs.rbp, regs.rsi, regs.rdi,
            regs.r8, regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15,
        ];
        (state.rip, state.rflags) = (regs.rip, regs.eflags);
        (state.fs_base, state.gs_base) = (regs.fs_base, regs.gs_base);
        state
    }

    fn of_area(area: &[u8]) -> State {
        let half = |at: usize| u16::from_le_bytes([area[at], area[at + 1]]);
        let mut state = State {
            gpr: [0; 16],
            rip: 0,
            rflags: 0,
            fs_base: 0,
            gs_base: 0,
            mxcsr: u32::from_le_bytes([area[24], area[25], area[26], area[27]]),
            ymm: [[0; 32]; 16],
            x87: [half(0), half(2), half(4) & 0xff],
            st: [[0; 10]; 8],
        };
        for (i, ymm) in state.ymm.iter_mut().enumerate() {
            ymm[..16].copy_from_slice(&area[160 + 16 * i..176 + 16 * i]);
            ymm[16..].copy_from_slice(&area[576 + 16 * i..592 + 16 * i]);
        }
        for (i, st) in state.st.iter_mut().enumerate() {
            st.copy_from_slice(&area[32 + 16 * i..42 + 16 * i]);
        }
        state
    }
}

/// What differs.
#[derive(Debug, Default)]
pub struct Found {
    /// Arithmetic flags.
    pub flags: u32,
    /// Anything else.
    pub others: bool,
}

impl Found {
    pub fn any(&self) -> bool {
        self.flags != 0 || self.others
    }
}

/// Compares both sides, which stand at the same place.
pub fn registers(ex: &mut Executor, twin: &Twin, stop: &Stop) -> Found {
    let mut here = State::of_original(ex.gs);
    let there = twin.state();
    if matches!(stop, Stop::Barrier(Barrier::Syscall)) {
        // The kernel's to spoil.
        here.gpr[RCX] = there.gpr[RCX];
        here.gpr[R11] = there.gpr[R11];
    }
    let flags = here.rflags ^ there.rflags;
    Found {
        flags: (flags & ARITHMETIC) as u32,
        others: here.gpr != there.gpr
            || flags & CARRIED != 0
            || here.fs_base != there.fs_base
            || here.gs_base != there.gs_base
            || here.mxcsr != there.mxcsr
            || here.ymm != there.ymm
            || here.x87 != there.x87
            || here.st != there.st,
    }
}

pub fn flag_names(flags: u64) -> String {
    let names = [
        (0x1, "CF"),
        (0x4, "PF"),
        (0x10, "AF"),
        (0x40, "ZF"),
        (0x80, "SF"),
        (0x400, "DF"),
        (0x800, "OF"),
        (0x4_0000, "AC"),
        (0x20_0000, "ID"),
    ];
    let set: Vec<&str> = names
        .iter()
        .filter(|(bit, _)| flags & bit != 0)
        .map(|n| n.1)
        .collect();
    set.join(" ")
}

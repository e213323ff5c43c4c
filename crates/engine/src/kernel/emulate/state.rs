//! Instructions that store the x87, SSE and AVX state: xsave, xsavec, xsaveopt, fxsave, fnsave,
//! fnstenv.
//!
//! What the CPU would write isn't the same twice. Which components it takes to be in use (XINUSE)
//! depends on what ran in between, the engine included; and the address of the last x87
//! instruction is that of its translation. Images made here depend on nothing but the guest:
//!
//! - every component that is asked for is in use, as `xgetbv` with ecx = 1 tells the guest;
//! - the last x87 instruction's address, operand address and opcode (FIP, FDP, FOP, and the
//!   selectors FCS and FDS) are 0;
//! - MXCSR_MASK is 0xffff.
//!
//! All else is as the architecture has it, and what the CPU leaves unwritten stays so.
//!
//! In: such an instruction's operand; the guest's vectors in `gs`, its x87 state in the CPU. Out:
//! the image in guest memory, or a fault.

use std::arch::asm;
use std::ops::Range;

use super::operand::{Encoded, Operand};
use super::{bad_address, general_protection, write_fault};
use crate::context::{GsBlock, RAX, RDX, Xsave};
use crate::executor::Executor;
use crate::guest::access;
use crate::host::switch;
use crate::kernel::cpuid;
use crate::memory::Memory;

/// An instruction that stores state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// xsave, and xsaveopt where everything has changed since it was last restored.
    Xsave,
    Xsavec,
    Fxsave,
    /// Environment and registers, after which the x87 state is initial.
    Fnsave {
        short: bool,
    },
    /// The environment, after which all exceptions are masked.
    Fnstenv {
        short: bool,
    },
}

impl Store {
    pub fn of(ins: &Encoded) -> Option<Store> {
        let memory = matches!(ins.operand, Operand::Memory { .. });
        let plain = !ins.short && !ins.repeat;
        let short = ins.short;
        let store = match (ins.two_bytes, ins.opcode, ins.reg & 7) {
            (true, 0xae, 0) if plain => Store::Fxsave,
            (true, 0xae, 4 | 6) if plain => Store::Xsave,
            (true, 0xc7, 4) if plain => Store::Xsavec,
            (false, 0xd9, 6) => Store::Fnstenv { short },
            (false, 0xdd, 6) => Store::Fnsave { short },
            _ => return None,
        };
        memory.then_some(store)
    }

    fn alignment(self) -> u64 {
        match self {
            Store::Xsave | Store::Xsavec => 64,
            Store::Fxsave => 16,
            Store::Fnsave { .. } | Store::Fnstenv { .. } => 1,
        }
    }

    /// Does it change the x87 state as well?
    pub fn changes_x87(self) -> bool {
        matches!(self, Store::Fnsave { .. } | Store::Fnstenv { .. })
    }
}

/// Carries it out; the thread then stands behind the instruction, or on it with a fault.
pub fn store(ex: &mut Executor, what: Store, ins: &Encoded) {
    let Operand::Memory { addr, stack } = ins.operand else {
        unreachable!("Store::of takes memory operands only");
    };
    if !is_canonical(addr) {
        return bad_address(ex, stack);
    }
    if !addr.is_multiple_of(what.alignment()) {
        return general_protection(ex);
    }
    let written = match what {
        Store::Xsave | Store::Xsavec | Store::Fxsave => {
            registers(&mut Parts::of(ex), what, addr).map_err(|at| tried_first(ex, what, addr, at))
        }
        Store::Fnsave { short } => environment(ex, addr, true, short),
        Store::Fnstenv { short } => environment(ex, addr, false, short),
    };
    match written {
        Ok(()) => ex.gs.regs.rip += ins.len,
        Err(at) => write_fault(ex, at),
    }
}

pub fn is_canonical(addr: u64) -> bool {
    (addr as i64) << 16 >> 16 == addr as i64
}

/// Writes parts of an image; the address of the first byte that can't be written on failure.
pub fn write(ex: &mut Executor, addr: u64, bytes: &[u8]) -> Result<(), u64> {
    Parts::of(ex).write(addr, bytes)
}

/// What storing needs.
pub struct Parts<'a> {
    pub gs: &'a mut GsBlock,
    pub memory: &'a mut Memory,
}

impl Parts<'_> {
    fn of(ex: &mut Executor) -> Parts<'_> {
        Parts {
            gs: ex.gs,
            memory: &mut ex.memory,
        }
    }

    fn put(&mut self, addr: u64, bytes: &[u8]) -> bool {
        access::write_bytes(addr, bytes).is_ok()
            || (self.memory.unprotect_for_kernel(addr, bytes.len() as u64)
                && access::write_bytes(addr, bytes).is_ok())
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), u64> {
        if self.put(addr, bytes) {
            return Ok(());
        }
        // Which page it was.
        let mut done = 0;
        while done < bytes.len() {
            let at = addr.wrapping_add(done as u64);
            let piece = (4096 - at % 4096).min((bytes.len() - done) as u64) as usize;
            if !self.put(at, &bytes[done..done + piece]) {
                return Err(at);
            }
            done += piece;
        }
        Ok(())
    }

    /// xsave, xsavec and fxsave, to an address that suits them; where it fails.
    pub fn store(&mut self, what: Store, ins: &Encoded) -> Result<(), u64> {
        let Operand::Memory { addr, .. } = ins.operand else {
            return Err(0);
        };
        let suits = is_canonical(addr) && addr.is_multiple_of(what.alignment());
        if !suits || what.changes_x87() {
            return Err(0);
        }
        registers(self, what, addr)?;
        self.gs.regs.rip += ins.len;
        Ok(())
    }
}

/// The components in an image, and where.
const X87: u64 = 1;
const SSE: u64 = 2;
const AVX: u64 = 4;
/// XCOMP_BV says that the image is compacted.
const COMPACTED: u64 = 1 << 63;
const HEADER: u64 = 512;

fn asked(gs: &GsBlock) -> u64 {
    let gpr = &gs.regs.gpr;
    ((gpr[RDX] << 32) | (gpr[RAX] & u32::MAX as u64)) & cpuid::XCR0
}

/// The address that a fault names: CPUs try the image's last byte before they write any.
fn tried_first(ex: &Executor, what: Store, addr: u64, failed: u64) -> u64 {
    let size = match what {
        Store::Fxsave => 512,
        _ if asked(ex.gs) & AVX != 0 => cpuid::XSAVE_SIZE as u64,
        _ => HEADER + 64,
    };
    let last = addr + (size - 1);
    let writable = ex
        .memory
        .find(last)
        .is_some_and(|m| m.can(libc::PROT_WRITE));
    if writable { failed } else { last }
}

fn registers(to: &mut Parts, what: Store, addr: u64) -> Result<(), u64> {
    let mut area = Xsave::default();
    switch::save_extended(to.gs, &mut area);
    let asked = asked(to.gs);
    for part in parts(what, asked).into_iter().flatten() {
        to.write(addr + part.start as u64, &area.0[part])?;
    }
    let header = addr + HEADER;
    match what {
        Store::Xsave => {
            let mut kept = [0; 8];
            if crate::guest::access::read_bytes(header, &mut kept).is_err() {
                return Err(header);
            }
            let in_use = u64::from_le_bytes(kept) & !asked | asked;
            to.write(header, &in_use.to_le_bytes())
        }
        Store::Xsavec => {
            let mut words = [0; 16];
            words[..8].copy_from_slice(&asked.to_le_bytes());
            words[8..].copy_from_slice(&(asked | COMPACTED).to_le_bytes());
            to.write(header, &words)
        }
        _ => Ok(()),
    }
}

/// Which bytes of an image are written, apart from the header. In the compacted format AVX is
/// where it is in the standard one, as no other component comes before it.
fn parts(what: Store, asked: u64) -> [Option<Range<usize>>; 3] {
    const ALL: Range<usize> = 0..416;
    let avx = (asked & AVX != 0).then_some(576..832);
    if what == Store::Fxsave {
        return [Some(ALL), None, None];
    }
    if asked & (X87 | SSE) == X87 | SSE {
        return [Some(ALL), avx, None];
    }
    // MXCSR belongs to SSE; the standard format stores it for AVX, too.
    let mxcsr = asked & SSE != 0 || asked & AVX != 0 && what == Store::Xsave;
    if asked & X87 != 0 {
        let head = if mxcsr { 0..32 } else { 0..24 };
        return [Some(head), Some(32..160), avx];
    }
    let sse = (asked & SSE != 0).then_some(160..416);
    [mxcsr.then_some(24..32), sse, avx]
}

/// fnsave and fnstenv, which the CPU carries out into memory of our own.
fn environment(ex: &mut Executor, addr: u64, whole: bool, short: bool) -> Result<(), u64> {
    let mut image = [0u8; 108];
    let to = image.as_mut_ptr();
    // SAFETY: stores at most 108 bytes. The x87 state is the guest's, the engine has none.
    let len = unsafe {
        match (whole, short) {
            (true, false) => {
                asm!("fnsave [{}]", in(reg) to, options(nostack));
                108
            }
            (true, true) => {
                asm!(".byte 0x66", "fnsave [{}]", in(reg) to, options(nostack));
                94
            }
            (false, false) => {
                asm!("fnstenv [{}]", in(reg) to, options(nostack));
                28
            }
            (false, true) => {
                asm!(".byte 0x66", "fnstenv [{}]", in(reg) to, options(nostack));
                14
            }
        }
    };
    let mut shown = image;
    clear_pointers(&mut shown, short);
    let written = write(ex, addr, &shown[..len]);
    if written.is_err() {
        let from = image.as_ptr();
        // SAFETY: loads what the same CPU just stored, in the same format. No exception is pending:
        // storing has masked them.
        unsafe {
            match (whole, short) {
                (true, false) => asm!("frstor [{}]", in(reg) from, options(nostack)),
                (true, true) => asm!(".byte 0x66", "frstor [{}]", in(reg) from, options(nostack)),
                (false, false) => asm!("fldenv [{}]", in(reg) from, options(nostack)),
                (false, true) => asm!(".byte 0x66", "fldenv [{}]", in(reg) from, options(nostack)),
            }
        }
    }
    written
}

/// Takes out the addresses, opcode and selectors of the last x87 instruction.
fn clear_pointers(image: &mut [u8; 108], short: bool) {
    if short {
        image[6..14].fill(0);
    } else {
        // The upper half of the last word is reserved, not part of the selector.
        image[12..26].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Regs;
    use crate::kernel::emulate::LONGEST;
    use crate::kernel::emulate::operand::decode;

    fn told(bytes: &[u8]) -> Option<Store> {
        let mut all = [0; LONGEST];
        all[..bytes.len()].copy_from_slice(bytes);
        Store::of(&decode(&all, &Regs::default()).unwrap())
    }

    #[test]
    fn instructions_are_told() {
        // xsavec [rsp+0x40], xsave64 [rsi], xsaveopt [r8], fxsave64 [rdi]
        assert_eq!(told(&[0x0f, 0xc7, 0x64, 0x24, 0x40]), Some(Store::Xsavec));
        assert_eq!(told(&[0x48, 0x0f, 0xae, 0x26]), Some(Store::Xsave));
        assert_eq!(told(&[0x41, 0x0f, 0xae, 0x30]), Some(Store::Xsave));
        assert_eq!(told(&[0x48, 0x0f, 0xae, 0x07]), Some(Store::Fxsave));
        // clwb [rax], rdseed, xrstor [rax], fldenv [rax], fst
        assert_eq!(told(&[0x66, 0x0f, 0xae, 0x30]), None);
        assert_eq!(told(&[0x0f, 0xc7, 0xf8]), None);
        assert_eq!(told(&[0x0f, 0xae, 0x28]), None);
        assert_eq!(told(&[0xd9, 0x20]), None);
        assert_eq!(told(&[0xdd, 0xf0]), None);
        let environment = |short| Some(Store::Fnstenv { short });
        assert_eq!(told(&[0xd9, 0x34, 0x24]), environment(false));
        assert_eq!(told(&[0x66, 0xd9, 0x30]), environment(true));
        let short = false;
        assert_eq!(told(&[0xdd, 0x30]), Some(Store::Fnsave { short }));
    }

    /// Which bytes the CPU writes, with everything in use.
    fn written_by_cpu(asked: u32, compacted: bool) -> Vec<Range<usize>> {
        #[repr(align(64))]
        struct Area([u8; 832]);
        let run = |filler: u8| {
            let mut area = Area([filler; 832]);
            area.0[512..576].fill(0);
            let to = area.0.as_mut_ptr();
            // SAFETY: xsave and xsavec write at most 832 bytes for components 0 to 2. Loading
            // vectors and x87 registers first puts all of them in use; those are clobbered, and
            // the x87 stack is left empty.
            unsafe {
                asm!(
                    "fninit", "fldpi", "vpcmpeqd ymm0, ymm0, ymm0",
                    "test ecx, ecx", "jnz 2f", "xsave64 [{to}]", "jmp 3f",
                    "2:", "xsavec64 [{to}]", "3:", "vzeroall", "fninit",
                    to = in(reg) to, in("eax") asked, in("edx") 0, in("ecx") compacted as u32,
                    out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, out("ymm4") _,
                    out("ymm5") _, out("ymm6") _, out("ymm7") _, out("ymm8") _, out("ymm9") _,
                    out("ymm10") _, out("ymm11") _, out("ymm12") _, out("ymm13") _,
                    out("ymm14") _, out("ymm15") _,
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                );
            }
            area.0
        };
        let (a, b) = (run(0x11), run(0x22));
        let mut ranges: Vec<Range<usize>> = Vec::new();
        // The two runs differ in where their x87 instructions are.
        let written = |k: usize| (a[k], b[k]) != (0x11, 0x22);
        for k in (0..832).filter(|&k| written(k) && !(512..576).contains(&k)) {
            match ranges.last_mut() {
                Some(last) if last.end == k => last.end = k + 1,
                _ => ranges.push(k..k + 1),
            }
        }
        ranges
    }

    #[test]
    fn images_have_the_parts_that_the_cpu_writes() {
        let has_xsavec = std::arch::x86_64::__cpuid_count(0xd, 1).eax & 2 != 0;
        for asked in 0..8 {
            for (what, compacted) in [(Store::Xsave, false), (Store::Xsavec, true)] {
                if compacted && !has_xsavec {
                    continue;
                }
                let mut mine: Vec<_> = parts(what, asked).into_iter().flatten().collect();
                // Neighbours are one range.
                mine.dedup_by(|next, last| {
                    let adjacent = last.end == next.start;
                    if adjacent {
                        last.end = next.end;
                    }
                    adjacent
                });
                let cpu = written_by_cpu(asked as u32, compacted);
                assert_eq!(mine, cpu, "{what:?} {asked}");
            }
        }
    }

    #[test]
    fn pointers_are_cleared_and_nothing_else() {
        let mut image = [0xff; 108];
        clear_pointers(&mut image, false);
        assert!(image[..12].iter().chain(&image[26..]).all(|&b| b == 0xff));
        assert!(image[12..26].iter().all(|&b| b == 0));
        let mut image = [0xff; 108];
        clear_pointers(&mut image, true);
        assert!(image[..6].iter().chain(&image[14..]).all(|&b| b == 0xff));
        assert!(image[6..14].iter().all(|&b| b == 0));
    }
}

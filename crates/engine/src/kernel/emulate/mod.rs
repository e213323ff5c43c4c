//! Instructions whose answer the engine gives: cpuid, xgetbv, segment bases, pauses, and what can
//! be different each time or on each machine: time stamps, random numbers, images of the vector
//! state, the kernel's tables.
//!
//! In: a guest thread that stands on such an instruction. Out: the thread stands behind it, or a
//! fault waits in `gs.fault` as the CPU would have raised it.
//!
//! - [`operand`]: what an instruction's operand is
//! - [`state`]: images of the vector and x87 state
//! - [`system`]: descriptor tables and segments

mod operand;
mod state;
mod system;

use std::arch::asm;
use std::path::Path;

use clew_recording::event::Instruction as Kind;

use super::cpuid::{self, Cpuid};
use super::stop;
use crate::context::{GsBlock, RAX, RBX, RCX, RDX, RSP, Regs};
use crate::executor::Executor;
use crate::guest::access;
use crate::host::virtual_clock;
use crate::memory::Memory;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind, Register};
use state::Store;
use system::System;

/// The longest instruction.
const LONGEST: usize = 15;
/// The kernel's selectors for user code and data.
/// The kernel's segment for 32-bit programs.
const USER_CODE_32: u64 = 0x23;
const USER_CODE: u64 = 0x33;
const USER_DATA: u16 = 0x2b;

/// What was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub what: Kind,
    /// The x87 state may have changed, which is in no register of `gs`.
    pub x87: bool,
    /// It wrote arithmetic flags. What was there before may have been spoiled, so that it can't be told by comparing
    /// whether they have changed.
    pub flags: bool,
}

/// Executes the instruction at `gs.regs.rip` and steps over it.
pub fn instruction(ex: &mut Executor) -> Done {
    let bytes = fetch(ex.gs.regs.rip);
    match common(&bytes) {
        Some((common, len)) => Done {
            what: answer(ex, common, len),
            x87: false,
            flags: matches!(common, Common::Random { .. }),
        },
        None => uncommon(ex, &bytes),
    }
}

/// Executes the instruction at `gs.regs.rip` for a thread that nobody records, as far as that takes no more
/// than this: what programs run in the midst of their work. False if it faults, or is another one.
pub fn alone(gs: &mut GsBlock, memory: &mut Memory, cpuid: &mut Cpuid) -> bool {
    let bytes = fetch(gs.regs.rip);
    let Some((common, len)) = common(&bytes) else {
        let encoded = operand::decode(&bytes, &gs.regs);
        let Some((encoded, store)) = encoded.and_then(|e| Store::of(&e).map(|s| (e, s))) else {
            return false;
        };
        return state::Parts { gs, memory }.store(store, &encoded).is_ok();
    };
    let regs = &mut gs.regs;
    match common {
        Common::Cpuid => set_cpuid(regs, cpuid, None, false),
        Common::TimeStamp { with_aux } => time_stamp(regs, with_aux),
        Common::Random {
            seed,
            size,
            register,
        } => random(regs, seed, size, register),
        Common::ProcessorId { register } => regs.gpr[register] = processor().1 as u64,
        Common::Xgetbv | Common::Pause | Common::SegmentBase(_) => return pass(regs, common, len),
    }
    regs.rip += len;
    true
}

/// The others, which take some decoding.
fn uncommon(ex: &mut Executor, bytes: &[u8; LONGEST]) -> Done {
    let mut done = Done {
        what: Kind::Other,
        x87: false,
        flags: false,
    };
    if let Some(encoded) = operand::decode(bytes, &ex.gs.regs) {
        if let Some(store) = Store::of(&encoded) {
            state::store(ex, store, &encoded);
            done.x87 = store.changes_x87();
            return done;
        }
        if let Some(system) = System::of(&encoded) {
            system::answer(ex, system, &encoded);
            done.flags = true;
            return done;
        }
    }
    rare(ex, bytes);
    done.flags = true;
    done
}

/// Executes the instruction at `regs.rip` if nothing but the registers says what it does: neither the
/// machine nor the moment. A replay does so too, and finds no event.
pub fn quiet(regs: &mut Regs) -> bool {
    common(&fetch(regs.rip)).is_some_and(|(common, len)| pass(regs, common, len))
}

/// The same for a recorded thread, which gives way at a pause.
pub fn quietly(ex: &mut Executor) -> bool {
    let Some((common, len)) = common(&fetch(ex.gs.regs.rip)) else {
        return false;
    };
    let done = pass(&mut ex.gs.regs, common, len);
    if done && common == Common::Pause {
        give_way(ex);
    }
    done
}

/// False if it isn't one of those, or faults.
fn pass(regs: &mut Regs, common: Common, len: u64) -> bool {
    let done = match common {
        Common::Pause => true,
        Common::Xgetbv => xgetbv(regs),
        Common::SegmentBase(base) => segment_base(regs, base),
        _ => false,
    };
    if done {
        regs.rip += len;
    }
    done
}

/// A pause says that the thread waits for another one.
fn give_way(ex: &mut Executor) {
    if ex.multi_threaded() {
        ex.pause_turn();
    }
}

fn answer(ex: &mut Executor, common: Common, len: u64) -> Kind {
    match common {
        Common::Cpuid => {
            let folder = ex.options.cache_dir.as_deref();
            let portable = ex.options.portable;
            set_cpuid(&mut ex.gs.regs, &mut ex.kernel.cpuid, folder, portable);
            ex.gs.regs.rip += len;
            return Kind::Cpuid;
        }
        Common::TimeStamp { .. } if ex.current().tsc_faults => {
            general_protection(ex);
        }
        Common::TimeStamp { with_aux } => {
            time_stamp(&mut ex.gs.regs, with_aux);
            ex.gs.regs.rip += len;
            return Kind::TimeStamp;
        }
        Common::Random {
            seed,
            size,
            register,
        } => {
            random(&mut ex.gs.regs, seed, size, register);
            ex.gs.regs.rip += len;
            return Kind::Random;
        }
        Common::ProcessorId { register } => {
            ex.gs.regs.gpr[register] = processor().1 as u64;
            ex.gs.regs.rip += len;
        }
        Common::Xgetbv | Common::Pause | Common::SegmentBase(_) => {
            if !pass(&mut ex.gs.regs, common, len) {
                general_protection(ex);
            } else if common == Common::Pause {
                give_way(ex);
            }
        }
    }
    Kind::Other
}

/// The time-stamp counter and the processor it was read on.
fn processor() -> (u64, u32) {
    if virtual_clock::active() {
        const PER_NANOSECOND: u64 = 2;
        virtual_clock::advance(1);
        return (virtual_clock::elapsed() * PER_NANOSECOND, 0);
    }
    let mut aux = 0;
    // SAFETY: reads a counter that user mode may read wherever clew runs.
    let counter = unsafe { std::arch::x86_64::__rdtscp(&mut aux) };
    (counter, aux)
}

fn set_cpuid(regs: &mut Regs, cpuid: &mut Cpuid, folder: Option<&Path>, portable: bool) {
    let gpr = &mut regs.gpr;
    let (leaf, subleaf) = (gpr[RAX] as u32, gpr[RCX] as u32);
    let [eax, ebx, ecx, edx] = cpuid.answer(leaf, subleaf, folder, portable);
    gpr[RAX] = eax as u64;
    gpr[RBX] = ebx as u64;
    gpr[RCX] = ecx as u64;
    gpr[RDX] = edx as u64;
}

fn time_stamp(regs: &mut Regs, with_aux: bool) {
    let (counter, aux) = processor();
    let gpr = &mut regs.gpr;
    gpr[RAX] = counter & 0xffff_ffff;
    gpr[RDX] = counter >> 32;
    if with_aux {
        gpr[RCX] = aux as u64;
    }
}

/// rdrand and rdseed: the carry flag says whether there was a number, the other arithmetic flags
/// are cleared.
fn random(regs: &mut Regs, seed: bool, size: u8, register: usize) {
    let mut value = 0u64;
    let done: u8;
    // SAFETY: only executed for a guest that does so itself, so the CPU knows the instruction.
    unsafe {
        if seed {
            asm!("rdseed {}", "setc {}", out(reg) value, out(reg_byte) done);
        } else {
            asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) done);
        }
    }
    if done == 0 {
        value = 0;
    }
    let slot = &mut regs.gpr[register];
    *slot = match size {
        2 => *slot & !0xffff | value & 0xffff,
        4 => value & 0xffff_ffff,
        _ => value,
    };
    const ARITHMETIC: u64 = 0x8d5;
    regs.rflags = regs.rflags & !ARITHMETIC | done as u64;
}

/// The bytes at `pc`; zeroes where memory ends.
fn fetch(pc: u64) -> [u8; LONGEST] {
    let mut bytes = [0; LONGEST];
    if access::read_bytes(pc, &mut bytes).is_err() {
        let room = (4096 - pc % 4096).min(LONGEST as u64) as usize;
        let _ = access::read_bytes(pc, &mut bytes[..room]);
    }
    bytes
}

/// What is common enough to be told without the decoder, whose tables take a millisecond to
/// build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Common {
    Cpuid,
    Xgetbv,
    Pause,
    /// rdtsc, rdtscp
    TimeStamp {
        with_aux: bool,
    },
    /// rdrand, rdseed
    Random {
        seed: bool,
        size: u8,
        register: usize,
    },
    /// rdpid
    ProcessorId {
        register: usize,
    },
    SegmentBase(SegmentBase),
}

/// rdgsbase, wrfsbase or wrgsbase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SegmentBase {
    gs: bool,
    write: bool,
    wide: bool,
    register: usize,
}

fn common(bytes: &[u8; LONGEST]) -> Option<(Common, u64)> {
    let mut at = 0;
    let mut repeat = false;
    let mut short = false;
    let mut rex = 0;
    loop {
        match *bytes.get(at)? {
            0xf3 => repeat = true,
            0x66 => short = true,
            byte @ 0x40..=0x4f => {
                rex = byte;
                at += 1;
                break;
            }
            _ => break,
        }
        at += 1;
    }
    let rest = bytes.get(at..)?;
    let done = |common, len: usize| Some((common, (at + len) as u64));
    match *rest {
        [0x0f, 0xa2, ..] if !repeat && !short => done(Common::Cpuid, 2),
        [0x0f, 0x31, ..] => done(Common::TimeStamp { with_aux: false }, 2),
        [0x0f, 0x01, 0xf9, ..] => done(Common::TimeStamp { with_aux: true }, 3),
        [0x0f, 0xc7, modrm @ 0xf0..=0xff, ..] => {
            let register = (modrm & 7 | (rex & 1) << 3) as usize;
            let seed = modrm & 8 != 0;
            if repeat {
                // f3 with /6 is senduipi.
                return if seed {
                    done(Common::ProcessorId { register }, 3)
                } else {
                    None
                };
            }
            let size = match (rex & 8 != 0, short) {
                (true, _) => 8,
                (_, true) => 2,
                _ => 4,
            };
            done(
                Common::Random {
                    seed,
                    size,
                    register,
                },
                3,
            )
        }
        [0x0f, 0x01, 0xd0, ..] if !repeat => done(Common::Xgetbv, 3),
        [0x90, ..] if repeat && rex & 1 == 0 => done(Common::Pause, 1),
        [0x0f, 0xae, modrm @ 0xc8..=0xdf, ..] if repeat => {
            let base = SegmentBase {
                gs: modrm & 8 != 0,
                write: modrm & 16 != 0,
                wide: rex & 8 != 0,
                register: (modrm & 7 | (rex & 1) << 3) as usize,
            };
            done(Common::SegmentBase(base), 3)
        }
        _ => None,
    }
}

fn xgetbv(regs: &mut Regs) -> bool {
    // XCR0, and which of its components are in use: all, whatever the hardware last noticed.
    let known = matches!(regs.gpr[RCX] as u32, 0 | 1);
    if known {
        regs.gpr[RAX] = cpuid::XCR0;
        regs.gpr[RDX] = 0;
    }
    known
}

fn segment_base(regs: &mut Regs, base: SegmentBase) -> bool {
    let slot = if base.gs {
        &mut regs.gs_base
    } else {
        &mut regs.fs_base
    };
    let mask = if base.wide { u64::MAX } else { u32::MAX as u64 };
    if base.write {
        let value = regs.gpr[base.register] & mask;
        let canonical = (value as i64) << 16 >> 16 == value as i64;
        if !canonical {
            return false;
        }
        *slot = value;
    } else {
        regs.gpr[base.register] = *slot & mask;
    }
    true
}

/// What hardly any program executes.
fn rare(ex: &mut Executor, bytes: &[u8; LONGEST]) {
    let pc = ex.gs.regs.rip;
    let ins = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
    match ins.code() {
        Code::INVALID => invalid_opcode(ex),
        // As where the kernel doesn't let user mode read performance counters.
        Code::Rdpmc => general_protection(ex),
        code if is_hidden(code) => invalid_opcode(ex),
        Code::Popfq | Code::Popfw => pop_flags(ex, &ins),
        Code::Iretq => far_return(ex, 5),
        Code::Retfq => far_return(ex, 2),
        _ if is_segment_load(&ins) => load_segment(ex, &ins),
        Code::Int_imm8 => refuse(ex, &ins, "32-bit system calls (int 0x80)"),
        _ => refuse(ex, &ins, "this instruction"),
    }
}

/// Of features that cpuid hides, or not for user mode.
fn is_hidden(code: Code) -> bool {
    use Code::*;
    matches!(
        code,
        Xtest | Xend | Xabort_imm8 | Xbegin_rel16 | Xbegin_rel32 | Sysenter
    )
}

fn refuse(ex: &Executor, ins: &Instruction, what: &str) -> ! {
    stop::refuse(
        ex,
        &format!("{what} can't be run under clew: {:?}", ins.code()),
    )
}

/// What user mode may change of the flags.
const CHANGEABLE: u64 = 0x24_0dd5;

/// `popf` of a value with the trap flag; others are copied.
fn pop_flags(ex: &mut Executor, ins: &Instruction) {
    let rsp = ex.gs.regs.gpr[RSP];
    let (value, size) = if ins.code() == Code::Popfw {
        (access::read::<u16>(rsp).map(u64::from), 2)
    } else {
        (access::read::<u64>(rsp), 8)
    };
    let Ok(value) = value else {
        return read_fault(ex, rsp);
    };
    let mask = if size == 2 {
        CHANGEABLE & 0xffff
    } else {
        CHANGEABLE
    };
    let regs = &mut ex.gs.regs;
    regs.rflags = regs.rflags & !mask | value & mask | 2;
    regs.gpr[RSP] = rsp + size;
    regs.rip = ins.next_ip();
}

/// iretq and far returns that stay in 64-bit code; `words` is how much of a frame they pop.
fn far_return(ex: &mut Executor, words: u64) {
    let rsp = ex.gs.regs.gpr[RSP];
    let mut frame = [0u64; 5];
    for (k, word) in frame.iter_mut().enumerate().take(words as usize) {
        match access::read(rsp + 8 * k as u64) {
            Ok(value) => *word = value,
            Err(_) => return read_fault(ex, rsp + 8 * k as u64),
        }
    }
    match frame[1] & 0xffff {
        USER_CODE => {}
        USER_CODE_32 => stop::refuse(ex, "a far return into 32-bit code can't be run under clew"),
        _ => return general_protection(ex),
    }
    let regs = &mut ex.gs.regs;
    regs.rip = frame[0];
    if words == 5 {
        regs.rflags = regs.rflags & !CHANGEABLE | frame[2] & CHANGEABLE | 2;
        regs.gpr[RSP] = frame[3];
    } else {
        regs.gpr[RSP] = rsp + 16;
    }
}

fn is_segment_load(ins: &Instruction) -> bool {
    matches!(
        ins.code(),
        Code::Mov_Sreg_rm16 | Code::Mov_Sreg_r32m16 | Code::Mov_Sreg_r64m16
    ) && ins.op1_kind() == OpKind::Register
}

/// `mov` to a segment register: the null selectors and the kernel's data segment, whose base is 0.
fn load_segment(ex: &mut Executor, ins: &Instruction) {
    let source = ins.op1_register().full_register().number();
    let selector = ex.gs.regs.gpr[source] as u16;
    if selector > 3 && selector != USER_DATA {
        return general_protection(ex);
    }
    match ins.op0_register() {
        Register::FS => ex.gs.regs.fs_base = 0,
        Register::GS => ex.gs.regs.gs_base = 0,
        Register::SS if selector != USER_DATA => return general_protection(ex),
        // In 64-bit mode ds, es and ss have no effect on addresses.
        _ => {}
    }
    ex.gs.regs.rip = ins.next_ip();
}

fn general_protection(ex: &mut Executor) {
    /// `SI_KERNEL`: no address is known.
    const KERNEL: i32 = 0x80;
    ex.raise_fault(libc::SIGSEGV, KERNEL, 0, 13, 0);
}

/// A non-canonical address; `stack`: relative to rsp or rbp.
fn bad_address(ex: &mut Executor, stack: bool) {
    const KERNEL: i32 = 0x80;
    if stack {
        ex.raise_fault(libc::SIGBUS, KERNEL, 0, 12, 0);
    } else {
        general_protection(ex);
    }
}

fn invalid_opcode(ex: &mut Executor) {
    /// `ILL_ILLOPN`.
    const OPERAND: i32 = 2;
    let pc = ex.gs.regs.rip;
    ex.raise_fault(libc::SIGILL, OPERAND, pc, 6, 0);
}

/// Bits of a page fault's error code.
const PRESENT: u64 = 1;
const WRITE: u64 = 2;
const USER: u64 = 4;

fn read_fault(ex: &mut Executor, addr: u64) {
    page_fault(ex, addr, USER, libc::PROT_READ);
}

fn write_fault(ex: &mut Executor, addr: u64) {
    page_fault(ex, addr, USER | WRITE, libc::PROT_WRITE);
}

fn page_fault(ex: &mut Executor, addr: u64, err: u64, needs: i32) {
    /// `SEGV_MAPERR`; whether it is rather `SEGV_ACCERR` is found out where faults are told.
    const MAPERR: i32 = 1;
    /// `BUS_ADRERR`: the mapping is there and allows it, but the file has ended.
    const ADRERR: i32 = 2;
    let mapping = ex.memory.find(addr);
    if mapping.is_some_and(|m| m.can(needs)) {
        return ex.raise_fault(libc::SIGBUS, ADRERR, addr, 14, err);
    }
    // The kernel's own half is told as present whatever there is.
    let present = mapping.is_some_and(|m| m.prot != libc::PROT_NONE) || addr >> 63 != 0;
    let err = if present { err | PRESENT } else { err };
    ex.raise_fault(libc::SIGSEGV, MAPERR, addr, 14, err);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(bytes: &[u8]) -> Option<(Common, u64)> {
        let mut all = [0; LONGEST];
        all[..bytes.len()].copy_from_slice(bytes);
        common(&all)
    }

    #[test]
    fn common_instructions_are_told_by_hand() {
        assert_eq!(told(&[0x0f, 0xa2]), Some((Common::Cpuid, 2)));
        assert_eq!(told(&[0x0f, 0x01, 0xd0]), Some((Common::Xgetbv, 3)));
        assert_eq!(told(&[0xf3, 0x90]), Some((Common::Pause, 2)));
        assert_eq!(told(&[0x0f, 0x0b]), None);
        let rdtsc = Common::TimeStamp { with_aux: false };
        assert_eq!(told(&[0x0f, 0x31]), Some((rdtsc, 2)));
        // rdrand r9, rdseed cx, rdpid rdx
        let random = |seed, size, register| Common::Random {
            seed,
            size,
            register,
        };
        assert_eq!(
            told(&[0x49, 0x0f, 0xc7, 0xf1]),
            Some((random(false, 8, 9), 4))
        );
        assert_eq!(
            told(&[0x66, 0x0f, 0xc7, 0xf9]),
            Some((random(true, 2, 1), 4))
        );
        let pid = Common::ProcessorId { register: 2 };
        assert_eq!(told(&[0xf3, 0x0f, 0xc7, 0xfa]), Some((pid, 4)));
        assert_eq!(told(&[0xf3, 0x41, 0x90]), None);
        // wrfsbase r9
        let base = SegmentBase {
            gs: false,
            write: true,
            wide: true,
            register: 9,
        };
        assert_eq!(
            told(&[0xf3, 0x49, 0x0f, 0xae, 0xd1]),
            Some((Common::SegmentBase(base), 5))
        );
        // rdgsbase eax
        let base = SegmentBase {
            gs: true,
            write: false,
            wide: false,
            register: 0,
        };
        assert_eq!(
            told(&[0xf3, 0x0f, 0xae, 0xc8]),
            Some((Common::SegmentBase(base), 4))
        );
    }
}
